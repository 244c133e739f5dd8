"""Find an executor: liquidlog does not know who rewrites files."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import entry_points
from typing import Final

from liquidlog.errors import ExecutorError, UsageError
from liquidlog.plan import ClusteringPlan, GroupFailure, RewrittenGroup

GROUP: Final = "liquidlog.executors"
"""Entry points: a name and a Start. Also the logger to which executors say what takes long."""

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


@contextmanager
def executors_heard(*, as_json: bool) -> Iterator[None]:
    """Context manager: what executors say to the logger GROUP is shown on stderr.

    With `as_json` nothing is: stderr is for an error document then.
    """
    log, handler = logging.getLogger(GROUP), logging.StreamHandler()
    level = log.level
    if not as_json:
        log.setLevel(logging.INFO)
        log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def open_executor(
    name: str, configuration: Mapping[str, str], storage_options: Mapping[str, str]
) -> AbstractContextManager[Rewrite]:
    """Return the executor of that name, started when the context is entered.

    Raises:
        UsageError: As `find_executor`; or it takes no Spark configuration.
        ExecutorError: As `find_executor`.
    """
    if configuration and name != SPARK:
        raise UsageError(f"--spark-conf has no effect with --executor {name}: it is for {SPARK}")
    return find_executor(name)(configuration, storage_options)


def find_executor(name: str) -> Start:
    """Return what starts the executor of that name; nothing is started.

    Raises:
        UsageError: If no installed package provides it.
        ExecutorError: If what it needs is not installed.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(f"there is no executor {name!r}; installed are: {listed}", name=name)
    try:
        start: Start = known[name].load()
    except ImportError as error:
        detail = f"the executor {name} cannot be used: {error}; install liquidlog[{name}]"
        raise ExecutorError(detail) from error
    return start
