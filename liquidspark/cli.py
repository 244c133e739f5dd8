"""The entry point by which `liquidlog` finds this executor."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from liquidlog.operations.executors import Executor
from liquidlog.plan import Cancelled, ClusteringPlan, Outcome, Progress
from liquidlog.rewriting.inputs import ExecutorOptions
from liquidlog.spec.text import refuse
from liquidlog.storage.addresses import OptionsSource
from liquidspark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class _OnSession:
    """An `Executor` that loads the modules that need pyspark when it is at work."""

    spark: "SparkSession"
    storage_options: OptionsSource | None
    options: ExecutorOptions
    verb: str

    def __call__(
        self,
        plan: ClusteringPlan,
        groups: Sequence[int],
        progress: Progress,
        cancelled: Cancelled | None = None,
    ) -> Iterator[Outcome]:
        from liquidspark.executor import execute_groups

        return execute_groups(
            self.spark,
            plan,
            groups=groups,
            progress=progress,
            options=self.options,
            storage_options=self.storage_options,
            cancelled=cancelled,
            verb=self.verb,
        )

    def tasks(self, function: Callable[[Any], Any], requests: Sequence[Any]) -> Sequence[Any]:
        from liquidspark.executor import session_tasks

        return session_tasks(self.spark)(function, requests)


@contextmanager
def open_executor(
    conf: Mapping[str, str],
    storage_options: OptionsSource | None = None,
    *,
    read_back: bool = True,
    verb: str = "run",
    session: "SparkSession | None" = None,
) -> Iterator[Executor]:
    """Context manager: an executor on the given or active Spark session, or on a new local one."""
    if session is not None and not hasattr(session, "createDataFrame"):
        refuse("session", "a SparkSession", session)
    with nullcontext(session) if session is not None else open_session(conf) as spark:
        yield _OnSession(spark, storage_options, ExecutorOptions(read_back=read_back), verb)
