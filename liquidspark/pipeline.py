"""The tasks of a group as Spark jobs.

`spark.range(n)` with n partitions gives n tasks, each its own number; what a task has to do
travels with the function. So nothing but numbers is ever a Spark row before rows move.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from liquidlog.rewriting.layout import Layout, Route
from liquidlog.rewriting.passes import SurveyOrder, SurveyTasks
from liquidlog.rewriting.pieces import SHUFFLE_SCHEMA, Piece, in_batches
from liquidlog.rewriting.shuffle import FACTS_SCHEMA, OutputTasks, RegroupTasks, SplitTasks
from liquidlog.rewriting.sink import TaskFacts
from liquidlog.rewriting.source import (
    Assignment,
    GroupWork,
    Split,
    Survey,
    WritingWork,
    decode_survey,
)
from liquidlog.rewriting.whole import CompactionTasks, GroupTask, Share
from liquidspark.jobs import GroupJobs
from liquidspark.mapping import BatchFunction, collected, failure_in, map_batches
from liquidspark.sending import assigned, partition_values
from liquidspark.session import failure_reason
from liquidspark.shared_jobs import SharedJobs
from liquidspark.slots import task_slots
from liquidspark.versions import setting_of

_SURVEY_SCHEMA: Final = "survey binary, failure binary"
_LOCAL_ATTEMPTS: Final = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")
_DEFAULT_ATTEMPTS: Final = 4


class SparkEngine:
    """Runs the tasks of one group on a session; an `Engine`."""

    def __init__(self, spark: SparkSession, shared_jobs: SharedJobs) -> None:
        self._spark = spark
        self._shared_jobs = shared_jobs
        self.jobs = GroupJobs(spark)

    @property
    def task_attempts(self) -> int:
        """How often Spark tries a task."""
        return task_attempts(self._spark)

    def at_work(self) -> AbstractContextManager[None]:
        """Return a context manager: jobs that this thread starts are the group's."""
        return self.jobs.started_here()

    def whole(self, task: GroupTask) -> TaskFacts:
        """Run a group of one task."""
        return self._shared_jobs.run(task, self.jobs)

    def surveyed(
        self, tasks: SurveyTasks, sent: Sequence[Assignment[tuple[SurveyOrder, ...]]]
    ) -> list[Survey] | list[TaskFacts]:
        """Run the sampling pass."""
        frame, mapped = assigned(self._spark, tasks, sent)
        surveys, failure = surveys_of(frame, mapped)
        return surveys if failure is None else [failure]

    def compacted(
        self, tasks: CompactionTasks, sent: Sequence[Assignment[Share]]
    ) -> list[TaskFacts]:
        """Run a task for each output of a compaction."""
        frame, mapped = assigned(self._spark, tasks, sent)
        return [collected(map_batches(frame, mapped, FACTS_SCHEMA))]

    def moved(
        self,
        work: GroupWork,
        layout: Layout,
        route: Route,
        sent: Sequence[Assignment[tuple[Split, ...]]],
    ) -> list[TaskFacts]:
        """Run the tasks that read, and those that write what they send."""
        targets = partition_values(route.tasks)
        reading = SplitTasks(work=work, layout=layout, route=route, targets=targets)
        frame, mapped = assigned(self._spark, reading, sent)
        return [shuffled(frame, mapped, work, route)]

    def reason_of(self, error: Exception) -> str:
        """Return in one sentence why a job failed."""
        return failure_reason(error)

    def require_running(self) -> None:
        """Refuse to go on where no other group could be rewritten either."""
        task_slots(self._spark)


PieceFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[Piece]]
"""What reading tasks do with the batches of their partitions; must be picklable."""


def shuffled(
    frame: DataFrame, reading: PieceFunction, work: WritingWork, route: Route
) -> TaskFacts:
    """Move the pieces that a function makes of a frame to the tasks that write them.

    One job with a shuffle; with two if rows go in two steps.

    Args:
        frame: Its partitions are the reading tasks.
        reading: Yields pieces, with `partition_values` of the route's tasks as targets.
        work: The group.
        route: Of its rows.
    """
    pieces = map_batches(frame, _SendingTasks(reading), SHUFFLE_SCHEMA)
    moved = pieces.repartition(route.tasks, "target")
    if route.in_two_steps:
        moved = moved.sortWithinPartitions("slice", "ordinal")
        moved = map_batches(moved, RegroupTasks(work=work), SHUFFLE_SCHEMA)
    if route.slices_per_task > 1:
        moved = moved.sortWithinPartitions("slice", "ordinal")
    return collected(map_batches(moved, OutputTasks(work=work, route=route), FACTS_SCHEMA))


@dataclass(frozen=True, slots=True)
class _SendingTasks:
    """Reading tasks whose pieces go through the shuffle."""

    reading: PieceFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return in_batches(self.reading(batches))


def task_attempts(spark: SparkSession) -> int:
    """Return how often Spark tries a task before it gives up its job, at least 1.

    Source: Spark, SparkContext.createTaskScheduler: a local master names the number itself.
    """
    local = _LOCAL_ATTEMPTS.fullmatch(setting_of(spark, "spark.master") or "")
    if local is not None:
        return int(local[1] or 1)
    return int(setting_of(spark, "spark.task.maxFailures") or _DEFAULT_ATTEMPTS)


def surveys_of(frame: DataFrame, function: BatchFunction) -> tuple[list[Survey], TaskFacts | None]:
    """Run a job whose tasks survey the batches of a frame; return the surveys, or what failed."""
    rows = map_batches(frame, function, _SURVEY_SCHEMA).collect()
    failure = failure_in(rows)
    surveys = [] if failure is not None else [decode_survey(bytes(row.survey)) for row in rows]
    return surveys, failure
