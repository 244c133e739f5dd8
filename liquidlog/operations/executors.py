"""Find executors among installed packages; liquidlog imports none of them."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from inspect import signature
from typing import Final

from liquidlog.errors import ExecutorError, UsageError
from liquidlog.plan import Cancelled, ClusteringPlan, Outcome, Progress
from liquidlog.spec.text import render_size
from liquidlog.storage.addresses import OptionsSource

EXECUTOR_GROUP: Final = "liquidlog.executors"
"""The group of the entry points, each a Start; also the name of the executors' logger."""
SPARK: Final = "spark"
"""The executor that takes a Spark configuration."""
LOCAL: Final = "local"
"""The executor that takes a limit of the plan's size."""
AUTO: Final = "auto"
"""The name that stands for `local` for small plans, else for `spark`."""
AUTO_LIMIT_BYTES: Final = 4 << 30
"""The largest plan, in input bytes, that `auto` gives to `local` by default."""
_MASTERS: Final = (
    *("SPARK_REMOTE", "SPARK_MASTER", "MASTER", "PYSPARK_SUBMIT_ARGS"),
    "PYSPARK_GATEWAY_PORT",  # set by spark-submit
)
"""Environment variables with which a user has chosen a Spark."""

_OWN: Final = (
    EntryPoint(SPARK, "liquidspark.cli:open_executor", EXECUTOR_GROUP),
    EntryPoint(LOCAL, "liquidlog.local:LocalExecutor", EXECUTOR_GROUP),
)
"""Our executors, which are also found if the packages are not installed but shipped as files."""

Executor = Callable[..., Iterator[Outcome]]
"""(plan, ids of the groups to rewrite, progress) -> outcomes, each as soon as its group ends.

An executor that can stop groups takes the keyword `cancelled`, a `liquidlog.plan.Cancelled`. It
calls it at least every few seconds, stops the named groups, deletes what they wrote, and yields
each as a GroupFailure that is `cancelled`, with the given reason; the other groups go on.

The optional attribute `tasks`, a `liquidlog.plan.Tasks`, runs other work on its machines; commits
use it while they wait for outcomes.
"""

Start = Callable[..., AbstractContextManager[Executor]]
"""(configuration, storage options) -> context manager of an Executor.

Optional keywords: `read_back` (passed only as False: do not prove the outputs), `verb` (the
operation, as `optimize`), `session` (a running one), and `limit_bytes` (larger plans are refused).
With a limit, the attribute `require_doable`, a function of (plan, ids of groups or None, limit or
None), may refuse a plan before the start.
"""

NOT_READ_BACK: Final = (
    "outputs are not read back: it is proved that the Parquet encoder gets the rows of the inputs,"
    " but not that the encoder and the storage keep them"
)
"""The warning about a run without `read_back`."""

ExecutorOf = Callable[[ClusteringPlan], Executor]
"""Returns the executor of a plan; it is started only if the plan has groups."""


@contextmanager
def executors_when_needed(
    choose: Callable[[ClusteringPlan], str],
    open_it: Callable[[str], AbstractContextManager[Executor]],
) -> Iterator[ExecutorOf]:
    """Context manager: starts an executor for its first plan with groups; ends all of them."""
    with ExitStack() as stack:
        started = cache(lambda name: stack.enter_context(open_it(name)))
        yield lambda plan: started(choose(plan)) if plan.groups else lambda *_: iter(())


def rewrite_groups(
    executor: Executor,
    plan: ClusteringPlan,
    groups: Sequence[int],
    progress: Progress,
    cancelled: Cancelled,
) -> Iterator[Outcome]:
    """Return the outcomes of groups; only an executor that can stop groups gets `cancelled`."""
    if "cancelled" in signature(executor).parameters:
        return executor(plan, groups, progress, cancelled=cancelled)
    return executor(plan, groups, progress)


def open_executor(
    name: str,
    configuration: Mapping[str, str],
    storage_options: OptionsSource,
    *,
    read_back: bool = True,
    verb: str | None = None,
    session: object = None,
    limit_bytes: int | None = None,
) -> AbstractContextManager[Executor]:
    """Return a context manager that starts the executor `name`, for the operation `verb`."""
    require_settings(name, configuration, limit_bytes)
    start = find_executor(name)
    taken = signature(start).parameters
    given: dict[str, object] = {} if verb is None or "verb" not in taken else {"verb": verb}
    if session is not None:
        if "session" not in taken:
            raise UsageError(f"the executor {name} takes no session; leave it out", name=name)
        given["session"] = session
    if limit_bytes is not None:
        given["limit_bytes"] = limit_bytes
    if not read_back:
        if "read_back" not in taken:
            raise UsageError(
                f"no_read_back has no effect with the executor {name}: it takes no read_back",
                option="no_read_back",
            )
        given["read_back"] = False
    return start(configuration, storage_options, **given)


@dataclass(frozen=True, slots=True)
class ChosenExecutor:
    """The executor of a plan, and the reason in a clause."""

    name: str
    reason: str


def choose_executor(
    name: str,
    plan: ClusteringPlan,
    configuration: Mapping[str, str],
    *,
    session: object = None,
    limit_bytes: int | None = None,
) -> ChosenExecutor:
    """Return the executor that `name` stands for; `auto` depends on plan and environment."""
    if name != AUTO:
        find_executor(name)
        return ChosenExecutor(name, "it was named")
    if session is not None:
        return ChosenExecutor(SPARK, "there is a Spark session")
    if configuration:
        return ChosenExecutor(SPARK, "Spark settings were given")
    chosen = next((variable for variable in _MASTERS if os.environ.get(variable)), None)
    if chosen is not None:
        return ChosenExecutor(SPARK, f"{chosen} is set")
    most, size = limit_bytes or AUTO_LIMIT_BYTES, plan.size_bytes
    reads = f"the plan reads {render_size(size)},"
    if size <= most:
        return ChosenExecutor(LOCAL, f"{reads} at most {render_size(most)}")
    if limit_bytes is None and find_spec("pyspark") is None:
        return ChosenExecutor(LOCAL, "PySpark is not installed")
    return ChosenExecutor(SPARK, f"{reads} more than {render_size(most)}")


def active_session() -> object:
    """Return the Spark session of this program, None without one; PySpark is not imported."""
    sql = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def require_settings(name: str, configuration: Mapping[str, str], limit_bytes: int | None) -> None:
    """Refuse settings that have no effect with the executor `name`."""
    if configuration and name not in {SPARK, AUTO}:
        raise UsageError(
            f"a Spark configuration has no effect with the executor {name}: it is for {SPARK}",
            option="spark_conf",
        )
    if limit_bytes is not None and name not in {LOCAL, AUTO}:
        raise UsageError(
            f"a local limit has no effect with the executor {name}: it is for {LOCAL}",
            option="local_limit",
        )


def require_doable(
    name: str, plan: ClusteringPlan, groups: Collection[int] | None, limit_bytes: int | None
) -> None:
    """Refuse groups, all if None, that the executor `name` would refuse, without starting it."""
    check = getattr(find_executor(name), "require_doable", None)
    if check is not None:
        check(plan, groups, limit_bytes)


def executor_names() -> tuple[str, ...]:
    """Return the names of the installed executors, sorted, and `auto`; none is loaded."""
    return (AUTO, *sorted(_known()))


def find_executor(name: str) -> Start:
    """Return the function that starts the executor `name`, without starting it."""
    known = _known()
    if name not in known:
        listed = ", ".join(sorted(known))
        raise UsageError(f"there is no executor {name!r}; installed are: {listed}", name=name)
    try:
        start: Start = known[name].load()
    except ImportError as error:
        detail = f"the executor {name} cannot be used: {error}; install the package that is missing"
        raise ExecutorError(detail) from error
    return start


def _known() -> dict[str, EntryPoint]:
    return {point.name: point for point in (*entry_points(group=EXECUTOR_GROUP), *_OWN)}
