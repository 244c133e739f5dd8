"""The tasks of groups as Spark jobs, and any function as tasks.

`spark.range(n)` with n partitions gives n tasks, each its own number; what a task has to do
travels with the function. So only numbers are Spark rows until the table's rows move.
"""

import pickle
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4  # noqa: TID251  names jobs, not files

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import Tasks
from liquidlog.rewriting.layout import Layout, Route
from liquidlog.rewriting.passes import Engine
from liquidlog.rewriting.shuffle import (
    FACTS_SCHEMA,
    SHUFFLE_SCHEMA,
    OutputTasks,
    Piece,
    RegroupTasks,
    SplitTasks,
    in_batches,
)
from liquidlog.rewriting.sink import TaskFacts, is_tried_again
from liquidlog.rewriting.source import Assignment, GroupWork, Split, WritingWork
from liquidlog.storage.clients import may_pass
from liquidspark.sending import Batches, assigned, collected, map_batches, partition_values
from liquidspark.session import (
    cancel_tagged,
    context_of,
    failure_reason,
    piece_session,
    setting_of,
    tagged,
)

if TYPE_CHECKING:
    from pyspark import SparkContext, SparkJobInfo

T = TypeVar("T")

SLOTS_PER_GROUP: Final = 16
"""With twice as many groups in flight as there are slots, there are 32 jobs at a time."""
_MEASURE_SECONDS: Final = 30.0
_RANGE: Final = 1 << 16


class TaskSlots:
    """Measures how many tasks the cluster runs at a time, again twice a minute: it may grow."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._slots, self._measured = task_slots(spark), time.monotonic()
        self.watched = context_of(spark) is not None

    @property
    def groups_per_job(self) -> int:
        """How many groups of one task share a job now, at least 1."""
        return max(1, self._slots // SLOTS_PER_GROUP)

    def count(self) -> int:
        """Return the number now, at least 1."""
        if time.monotonic() - self._measured > _MEASURE_SECONDS:
            self._measured = time.monotonic()
            with suppress(ExecutorError):  # the jobs of the groups say what is wrong
                self._slots = task_slots(self._spark)
        return self._slots


def task_slots(spark: SparkSession) -> int:
    """Return how many tasks the session's cluster runs at a time, at least 1."""
    try:
        context = context_of(spark)
        cores = _partitions(spark) if context is None else int(context.defaultParallelism)
    except Exception as error:
        raise ExecutorError(f"the Spark session has ended: {failure_reason(error)}") from error
    return max(1, cores // int(setting_of(spark, "spark.task.cpus") or 1))


def _partitions(spark: SparkSession) -> int:
    """Return how many partitions Spark makes by default: one per core."""
    numbers = spark.range(_RANGE).select(spark_partition_id().alias("number"))
    (row,) = numbers.agg({"number": "max"}).collect()
    return int(row[0]) + 1


_LOCAL_ATTEMPTS: Final = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")
_DEFAULT_ATTEMPTS: Final = 4


class SparkEngine(Engine):
    """Runs the tasks of one group on a session, in jobs under a name of its own."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark
        self._name = f"liquidspark-{uuid4().hex}"

    @property
    def task_attempts(self) -> int:
        """How often Spark tries a task."""
        return task_attempts(self._spark)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Context manager: jobs that this thread starts belong to the group."""
        context = context_of(self._spark)
        if context is not None:
            context.setJobGroup(self._name, "liquidspark", interruptOnCancel=True)
        with nullcontext() if context is not None else tagged(self._spark, self._name):
            yield

    def each(self, function: Callable[[Any], T], requests: Sequence[Any]) -> Sequence[T]:
        """Run a function as one task per request; return its results in their order."""
        return _answers(self._spark, function, requests)

    def moved(
        self,
        work: GroupWork,
        layout: Layout,
        route: Route,
        sent: Sequence[Assignment[tuple[Split, ...]]],
    ) -> list[TaskFacts]:
        """Run the tasks that read, and the tasks that write what those send."""
        targets = partition_values(route.tasks)
        reading = SplitTasks(work=work, layout=layout, route=route, targets=targets)
        frame, mapped = assigned(self._spark, reading, sent)
        return [shuffled(frame, mapped, work, route)]

    def reason_of(self, error: Exception) -> str:
        """Return one sentence that says why a job failed."""
        return failure_reason(error)

    def require_running(self) -> None:
        """Refuse to go on if no other group can be rewritten either."""
        task_slots(self._spark)

    def _tasks_done(self) -> int:
        context = context_of(self._spark)
        if context is None:
            return 0
        stages = {stage for job in self._jobs(context) for stage in job.stageIds}
        infos = map(context.statusTracker().getStageInfo, stages)
        return sum(int(info.numCompletedTasks) for info in infos if info is not None)

    def _stop(self, *, is_again: bool) -> None:
        context = context_of(self._spark)
        with suppress(Exception):
            if context is None:
                cancel_tagged(self._spark, self._name)
            elif not is_again or "RUNNING" in {job.status for job in self._jobs(context)}:
                # Spark logs a warning whenever there is nothing to stop.
                context.cancelJobGroup(self._name)

    def _jobs(self, context: "SparkContext") -> "list[SparkJobInfo]":
        tracker = context.statusTracker()
        found = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name))
        return [job for job in found if job is not None]


PieceFunction = Callable[[Batches], Iterator[Piece]]
"""Maps the batches of a reading task's partition to pieces; must be picklable."""


def shuffled(
    frame: DataFrame, reading: PieceFunction, work: WritingWork, route: Route
) -> TaskFacts:
    """Send the pieces that a function makes of a frame to the tasks that write them."""
    pieces = map_batches(frame, partial(_sent, reading), SHUFFLE_SCHEMA)
    moved = pieces.repartition(route.tasks, "target")
    if route.in_two_steps:
        moved = moved.sortWithinPartitions("slice", "ordinal")
        moved = map_batches(moved, RegroupTasks(work=work), SHUFFLE_SCHEMA)
    if route.slices_per_task > 1:
        moved = moved.sortWithinPartitions("slice", "ordinal")
    return collected(map_batches(moved, OutputTasks(work=work, route=route), FACTS_SCHEMA))


def _sent(reading: PieceFunction, batches: Batches) -> Iterator[pa.RecordBatch]:
    return in_batches(reading(batches))


def task_attempts(spark: SparkSession) -> int:
    """Return how often Spark tries a task, at least 1; a local master names the number itself."""
    local = _LOCAL_ATTEMPTS.fullmatch(setting_of(spark, "spark.master") or "")
    if local is not None:
        return int(local[1] or 1)
    return int(setting_of(spark, "spark.task.maxFailures") or _DEFAULT_ATTEMPTS)


_ANSWER_SCHEMA: Final = "number long, answer binary, failure string"


def session_tasks(spark: SparkSession) -> Tasks:
    """Return what runs a function over requests on the workers of a session."""
    return partial(_run_tasks, spark)


def _run_tasks(
    spark: SparkSession, function: Callable[[Any], Any], requests: Sequence[Any]
) -> Sequence[Any]:
    if not requests:
        return ()
    # The names of jobs belong to the thread, and the caller's thread may have set its own.
    with piece_session(spark) as own, ThreadPoolExecutor(1) as pool:
        engine = SparkEngine(own)

        def answers() -> Sequence[Any]:
            with engine.at_work():
                return engine.each(function, requests)

        running = pool.submit(answers)
        try:
            return running.result()
        except Exception as error:
            raise ExecutorError(failure_reason(error)) from error
        except BaseException:
            engine.cancel()
            raise


def _answers(
    spark: SparkSession, function: Callable[[Any], T], requests: Sequence[Any]
) -> Sequence[T]:
    task = partial(_answer, function, task_attempts(spark))
    frame, mapped = assigned(spark, task, requests)
    rows = map_batches(frame, mapped, _ANSWER_SCHEMA).collect()
    failures = sorted({row.failure for row in rows if row.failure is not None})
    if failures:
        raise ExecutorError("; ".join(failures))
    answers = {row.number: bytes(row.answer) for row in rows}
    if answers.keys() != set(range(len(requests))):
        raise ExecutorError(f"Spark ran {len(answers)} of {len(requests)} tasks")
    return [pickle.loads(answers[number]) for number in range(len(requests))]  # noqa: S301  ours


def _answer(
    function: Callable[[Any], Any], attempts: int, number: int, request: object
) -> Iterator[pa.RecordBatch]:
    answer, failure = None, None
    try:
        answer = pickle.dumps(function(request), pickle.HIGHEST_PROTOCOL)
    except LiquidlogError as error:
        if may_pass(error) and is_tried_again(attempts):
            raise
        failure = "; ".join(str(error).splitlines())
    kinds = (pa.int64(), pa.binary(), pa.string())
    values = zip((number, answer, failure), kinds, strict=True)
    arrays = [pa.array([value], kind) for value, kind in values]
    yield pa.RecordBatch.from_arrays(arrays, ["number", "answer", "failure"])
