"""Find an executor: liquidlog does not know who rewrites files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Final

from liquidlog.errors import ExecutorError, UsageError
from liquidlog.plan import ClusteringPlan, GroupFailure, RewrittenGroup

GROUP: Final = "liquidlog.executors"
"""Entry points: a name and a Start."""

SPARK: Final = "spark"
"""The executor that a Spark configuration is for."""

OnShare = Callable[[int, float], None]
"""Called with (group id, share of the group that is done, 0 to 1)."""

Rewrite = Callable[
    [ClusteringPlan, Sequence[int], OnShare], Iterator[RewrittenGroup | GroupFailure]
]
"""(plan, ids of the groups to rewrite, progress) -> outcomes, each as soon as it is finished."""

Start = Callable[[Mapping[str, str], Mapping[str, str]], AbstractContextManager[Rewrite]]
"""(configuration, storage options) -> context manager of a Rewrite."""


def open_executor(
    name: str, configuration: Mapping[str, str], storage_options: Mapping[str, str]
) -> AbstractContextManager[Rewrite]:
    """Return the executor of that name, started when the context is entered.

    Raises:
        UsageError: If no installed package provides it, or it takes no Spark configuration.
        ExecutorError: If what it needs is not installed.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(f"there is no executor {name!r}; installed are: {listed}", name=name)
    if configuration and name != SPARK:
        raise UsageError(f"--spark-conf has no effect with --executor {name}: it is for {SPARK}")
    try:
        start: Start = known[name].load()
    except ImportError as error:
        detail = f"the executor {name} cannot be used: {error}; install liquidlog[{name}]"
        raise ExecutorError(detail) from error
    return start(configuration, storage_options)
