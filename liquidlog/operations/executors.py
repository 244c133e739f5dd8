"""Find an executor: liquidlog does not know who rewrites files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import entry_points
from typing import Final, Self

from liquidlog.errors import ExecutorError, UsageError
from liquidlog.plan import ClusteringPlan, Outcome, Progress

EXECUTOR_GROUP: Final = "liquidlog.executors"
"""Entry points: a name and a Start. Also the logger to which executors say what takes long."""

SPARK: Final = "spark"
"""The executor that a Spark configuration is for."""

Executor = Callable[[ClusteringPlan, Sequence[int], Progress], Iterator[Outcome]]
"""(plan, ids of the groups to rewrite, progress) -> outcomes, each as soon as it is finished."""

Start = Callable[[Mapping[str, str], Mapping[str, str]], AbstractContextManager[Executor]]
"""(configuration, storage options) -> context manager of an Executor."""


class ExecutorWhenNeeded:
    """An executor that starts for the first plan with groups, and ends with this context."""

    def __init__(self, open_it: Callable[[], AbstractContextManager[Executor]]) -> None:
        self._open = open_it
        self._stack = ExitStack()
        self._started: Executor | None = None

    def __enter__(self) -> Self:
        """Return this; nothing is started."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the executor if it was started."""
        self._stack.close()

    def for_plan(self, plan: ClusteringPlan) -> Executor:
        """Return what rewrites the plan's groups, started if there are any."""
        if not plan.groups:
            return _rewrite_nothing
        if self._started is None:
            self._started = self._stack.enter_context(self._open())
        return self._started


def _rewrite_nothing(*_: object) -> Iterator[Outcome]:
    return iter(())


def open_executor(
    name: str, configuration: Mapping[str, str], storage_options: Mapping[str, str]
) -> AbstractContextManager[Executor]:
    """Return the executor of that name, started when the context is entered.

    Raises:
        UsageError: As `find_executor`; or it takes no Spark configuration.
        ExecutorError: As `find_executor`.
    """
    if configuration and name != SPARK:
        raise UsageError(
            f"a Spark configuration has no effect with the executor {name}: it is for {SPARK}",
            option="spark_conf",
        )
    return find_executor(name)(configuration, storage_options)


def find_executor(name: str) -> Start:
    """Return what starts the executor of that name; nothing is started.

    Raises:
        UsageError: If no installed package provides it.
        ExecutorError: If what it needs is not installed.
    """
    known = {point.name: point for point in entry_points(group=EXECUTOR_GROUP)}
    if name not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(f"there is no executor {name!r}; installed are: {listed}", name=name)
    try:
        start: Start = known[name].load()
    except ImportError as error:
        detail = f"the executor {name} cannot be used: {error}; install the package that is missing"
        raise ExecutorError(detail) from error
    return start
