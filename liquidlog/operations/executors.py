"""Find executors among installed packages; liquidlog imports none of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import entry_points
from inspect import signature
from typing import Final, Self

from liquidlog.errors import ExecutorError, UsageError
from liquidlog.plan import ClusteringPlan, Outcome, Progress

EXECUTOR_GROUP: Final = "liquidlog.executors"
"""Group of entry points, each a Start; also the name of the logger of executors."""

SPARK: Final = "spark"
"""The executor that takes a Spark configuration."""

Executor = Callable[[ClusteringPlan, Sequence[int], Progress], Iterator[Outcome]]
"""(plan, ids of the groups to rewrite, progress) -> outcomes, each as soon as its group ends."""

Start = Callable[..., AbstractContextManager[Executor]]
"""(configuration, storage options) -> context manager of an Executor.

One that reads its outputs back to prove them may take the keyword `read_back`, a bool that is true
by default; it is given only to leave that out.
"""

NOT_READ_BACK: Final = (
    "outputs are not read back: what the Parquet encoder and the storage make of the rows is not"
    " proved, only that the rows handed to them are those of the inputs"
)
"""What a run without `read_back` does not prove, as a warning."""


class ExecutorWhenNeeded:
    """Starts an executor for the first plan that has groups, and ends it with this context."""

    def __init__(self, open_it: Callable[[], AbstractContextManager[Executor]]) -> None:
        self._open = open_it
        self._stack = ExitStack()
        self._started: Executor | None = None

    def __enter__(self) -> Self:
        """Return this object; no executor is started yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the executor, if it was started."""
        self._stack.close()

    def for_plan(self, plan: ClusteringPlan) -> Executor:
        """Return an executor for the plan; it is started only if the plan has groups."""
        if not plan.groups:
            return _rewrite_nothing
        if self._started is None:
            self._started = self._stack.enter_context(self._open())
        return self._started


def _rewrite_nothing(*_: object) -> Iterator[Outcome]:
    return iter(())


def open_executor(
    name: str,
    configuration: Mapping[str, str],
    storage_options: Mapping[str, str],
    *,
    read_back: bool = True,
) -> AbstractContextManager[Executor]:
    """Return a context manager that starts the executor `name` when it is entered.

    Raises:
        UsageError: As `find_executor`, or if the executor takes no Spark configuration, or cannot
            leave out `read_back`.
        ExecutorError: As `find_executor`.
    """
    if configuration and name != SPARK:
        raise UsageError(
            f"a Spark configuration has no effect with the executor {name}: it is for {SPARK}",
            option="spark_conf",
        )
    start = find_executor(name)
    if read_back:
        return start(configuration, storage_options)
    if "read_back" not in signature(start).parameters:
        raise UsageError(
            f"no_read_back has no effect with the executor {name}: it takes no read_back",
            option="no_read_back",
        )
    return start(configuration, storage_options, read_back=False)


def find_executor(name: str) -> Start:
    """Return the function that starts the executor `name`, without starting it.

    Raises:
        UsageError: If no installed package provides the executor.
        ExecutorError: If a package that the executor needs is not installed.
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
