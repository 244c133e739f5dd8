"""The tasks of groups as Spark jobs, of several groups in one job, and any function as tasks.

`spark.range(n)` with n partitions gives n tasks, each its own number; what a task has to do
travels with the function. So nothing but numbers is ever a Spark row before rows move.

A job takes the driver tens of milliseconds of CPU, whatever its tasks do: where hundreds of slots
wait for groups of one task, it could not begin jobs as fast as their tasks end. So a group waits a
moment for others, and goes with those that came meanwhile. What became of it is known when all
tasks of the job are done. Groups of a job that fails run again, each by itself, as one task may
have brought the others down.
"""

import pickle
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self
from uuid import uuid4  # noqa: TID251  names jobs, not files

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import Tasks
from liquidlog.rewriting.flight import Jobs
from liquidlog.rewriting.layout import Layout, Route
from liquidlog.rewriting.passes import CompactionTasks, GroupTask, Share, SurveyOrder, SurveyTasks
from liquidlog.rewriting.shuffle import (
    FACTS_SCHEMA,
    SHUFFLE_SCHEMA,
    OutputTasks,
    Piece,
    RegroupTasks,
    SplitTasks,
    in_batches,
)
from liquidlog.rewriting.sink import TaskFacts, decode_facts, encode_facts, is_tried_again
from liquidlog.rewriting.source import (
    Assignment,
    GroupWork,
    Split,
    Survey,
    WritingWork,
    decode_survey,
)
from liquidlog.storage.clients import may_pass
from liquidspark.sending import (
    BatchFunction,
    assigned,
    collected,
    failure_in,
    map_batches,
    partition_values,
)
from liquidspark.session import (
    add_tag,
    cancel_tagged,
    context_of,
    failure_reason,
    piece_session,
    remove_tag,
    setting_of,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

# Spark jobs under one name, how far they are and how they are stopped, and task slots.


class Place(Protocol):
    """Where the tasks of a group run: in jobs of its own, or in one that it shares with others."""

    def tasks_done(self) -> float:
        """Return how many of them are done; 0 if that is not known."""
        ...

    def stop(self, *, is_again: bool) -> None:
        """Stop them, best-effort."""


class NamedJobs:
    """All jobs that threads start under a name that no others have; a `Place`.

    Names, progress and stopping work on classic and on Connect sessions alike.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._name = f"liquidspark-{uuid4().hex}"

    @contextmanager
    def started_here(self) -> Iterator[None]:
        """Context manager: jobs that this thread starts have the name."""
        context = context_of(self._spark)
        if context is not None:
            context.setJobGroup(self._name, "liquidspark", interruptOnCancel=True)
            yield
            return
        add_tag(self._spark, self._name)
        try:
            yield
        finally:
            remove_tag(self._spark, self._name)

    def tasks_done(self) -> int:
        """Return how many tasks of the jobs are done; 0 if that is not known."""
        context = context_of(self._spark)
        if context is None:
            return 0
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        infos = [tracker.getStageInfo(stage) for stage in stages]
        return sum(int(info.numCompletedTasks) for info in infos if info is not None)

    def stop(self, *, is_again: bool = False) -> None:
        """Stop the jobs that run, best-effort."""
        context = context_of(self._spark)
        with suppress(Exception):
            if context is None:
                cancel_tagged(self._spark, self._name)
            elif not is_again or self._has_running(context):
                # Spark logs a warning whenever there is nothing to stop.
                context.cancelJobGroup(self._name)

    def _has_running(self, context: "SparkContext") -> bool:
        tracker = context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name))
        return any(job is not None and job.status == "RUNNING" for job in jobs)


class GroupJobs(Jobs):
    """All jobs for one group: those that one thread starts, or one that it shares with others."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._own = NamedJobs(spark)
        self._place: Place = self._own

    def started_here(self) -> AbstractContextManager[None]:
        """Return a context manager: jobs that this thread starts are the group's own."""
        return self._own.started_here()

    @contextmanager
    def joined(self, place: Place) -> Iterator[None]:
        """Context manager: what is done for the group is done in this place."""
        self._place = place
        if self.cancelled is not None:
            place.stop(is_again=False)
        try:
            yield
        finally:
            self._place = self._own

    def _tasks_done(self) -> float:
        return self._place.tasks_done()

    def _stop(self, *, is_again: bool) -> None:
        self._place.stop(is_again=is_again)


_MEASURE_SECONDS: Final = 30.0
_RANGE: Final = 1 << 16


class TaskSlots:
    """How many tasks the cluster runs at a time, measured again twice a minute: it may grow."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._slots, self._measured = task_slots(spark), time.monotonic()
        self.watched = context_of(spark) is not None

    @property
    def latest(self) -> int:
        """The number when it was last measured, at least 1."""
        return self._slots

    def count(self) -> int:
        """Return the number now, at least 1."""
        if time.monotonic() - self._measured > _MEASURE_SECONDS:
            self._measured = time.monotonic()
            with suppress(ExecutorError):  # the jobs of the groups say what is wrong
                self._slots = task_slots(self._spark)
        return self._slots


def task_slots(spark: SparkSession) -> int:
    """Return how many tasks the session's cluster runs at a time, at least 1.

    Connect sessions do not say; there a job of empty tasks counts the partitions that Spark makes
    unless it is asked for a number: one per core.
    """
    try:
        context = context_of(spark)
        cores = _partitions(spark) if context is None else int(context.defaultParallelism)
    except Exception as error:
        raise ExecutorError(f"the Spark session has ended: {failure_reason(error)}") from error
    return max(1, cores // int(setting_of(spark, "spark.task.cpus") or 1))


def _partitions(spark: SparkSession) -> int:
    numbers = spark.range(_RANGE).select(spark_partition_id().alias("number"))
    (row,) = numbers.agg({"number": "max"}).collect()
    return int(row[0]) + 1


SLOTS_PER_GROUP: Final = 16
"""With twice as many groups in flight as there are slots, there are 32 jobs at a time."""
_MAX_JOBS: Final = 64
_GATHER_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.2
_SCHEMA: Final = "number long, facts binary"


class SharedJobs:
    """Context manager that runs groups of one plan, of one task each, for many threads."""

    def __init__(self, spark: SparkSession, *, slots: int) -> None:
        """Let groups share jobs if `slots`, how many tasks run at a time, are many."""
        self._spark = spark
        self._most = slots // SLOTS_PER_GROUP
        self._waiting: deque[_Member] = deque()
        self._beginning = Lock()
        self._pool = ThreadPoolExecutor(_MAX_JOBS, thread_name_prefix="liquidspark-job")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Begin no more jobs; by now no group runs any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(self, task: GroupTask, jobs: GroupJobs) -> TaskFacts:
        """Return what the task did, for which cancelling `jobs` ends the wait.

        The job ends if nobody else waits for it.
        """
        facts = self._with_others(task, jobs) if self._most > 1 else None
        if facts is not None:
            return facts
        return collected(map_batches(self._spark.range(0, 1, 1, 1), task, FACTS_SCHEMA))

    def _with_others(self, task: GroupTask, jobs: GroupJobs) -> TaskFacts | None:
        member = _Member(task)
        with jobs.joined(member):
            self._waiting.append(member)
            self._pool.submit(self._run_some)
            return member.facts.result()

    def _run_some(self) -> None:
        members: Sequence[_Member] = ()
        facts: Mapping[int, TaskFacts] = {}
        try:
            with self._beginning:
                members = self._gathered()
                job = _Job(self._spark, members) if len(members) > 1 else None
            facts = {} if job is None else job.facts()
        finally:  # an error ends here: each group meets it again by itself
            for number, member in enumerate(members):
                member.tell(facts.get(number))

    def _gathered(self) -> list["_Member"]:
        """Return the groups that wait, as many as a job has at most; one thread may call it."""
        if self._waiting and len(self._waiting) < self._most:
            time.sleep(_GATHER_SECONDS)
        found = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        return [member for member in found if not member.facts.done()]


class _Member:
    def __init__(self, task: GroupTask) -> None:
        self.task = task
        self.facts: Future[TaskFacts | None] = Future()
        self.job: _Job | None = None

    def tasks_done(self) -> float:
        return 0.0 if self.job is None else self.job.share_done()

    def stop(self, *, is_again: bool) -> None:  # noqa: ARG002  a place is left once
        with suppress(InvalidStateError):
            self.facts.set_exception(ExecutorError("the group was cancelled"))
        if self.job is not None:
            self.job.stop_if_left()

    def tell(self, facts: TaskFacts | None) -> None:
        with suppress(InvalidStateError):
            self.facts.set_result(facts)


class _Job:
    """One job for several groups, a task each; mutable."""

    def __init__(self, spark: SparkSession, members: Sequence[_Member]) -> None:
        self._members = members
        self._jobs = NamedJobs(spark)
        self._looked, self._share = 0.0, 0.0
        for member in members:
            member.job = self
        common = members[0].task.work.without_inputs()
        sent = [_assignment(member.task, common) for member in members]
        self._frame = map_batches(*assigned(spark, _SharedTasks(common), sent), _SCHEMA)

    def facts(self) -> dict[int, TaskFacts]:
        if self._is_left():
            return {}
        with self._jobs.started_here():
            rows = self._frame.collect()
        return {row.number: decode_facts(bytes(row.facts)) for row in rows}

    def share_done(self) -> float:
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._share = self._jobs.tasks_done() / len(self._members)
        return self._share

    def stop_if_left(self) -> None:
        if self._is_left():
            self._jobs.stop()

    def _is_left(self) -> bool:
        return all(member.facts.done() for member in self._members)


class _Own(NamedTuple):
    """What a group's task has of its own besides inputs: attributes of its work, and a number."""

    work: Mapping[str, Any]
    sample_rows: int


def _assignment(task: GroupTask, common: GroupWork) -> Assignment[_Own]:
    own = _Own(task.work.without_inputs().unlike(common), task.sample_rows)
    return Assignment.of(task.work, range(len(task.work.paths)), own)


@dataclass(frozen=True, slots=True)
class _SharedTasks:
    common: GroupWork

    def __call__(self, number: int, assignment: Assignment[_Own]) -> Iterator[pa.RecordBatch]:
        own = assignment.own
        work = replace(assignment.work(self.common), **own.work)
        facts = GroupTask(work=work, sample_rows=own.sample_rows).run()
        arrays = [pa.array([number], pa.int64()), pa.array([encode_facts(facts)], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, ["number", "facts"])


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
    """Move the pieces that a function makes of a frame to the tasks that write them."""
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


_ANSWER_SCHEMA: Final = "number long, answer binary, failure string"


def session_tasks(spark: SparkSession) -> Tasks:
    """Return what runs a function over requests on the workers of a session."""
    return partial(run_tasks, spark)


def run_tasks(
    spark: SparkSession, function: Callable[[Any], Any], requests: Sequence[Any]
) -> Sequence[Any]:
    """Return what a function returns for each request, in their order; each is a task.

    It is called again if it raises an error that may pass. The job is cancelled if this is
    interrupted.
    """
    if not requests:
        return ()
    # Names of jobs belong to threads, and the caller's may have its own.
    with piece_session(spark) as own, ThreadPoolExecutor(1) as pool:
        jobs = NamedJobs(own)
        running = pool.submit(_collected, own, function, requests, jobs)
        try:
            return running.result()
        except Exception as error:
            raise ExecutorError(failure_reason(error)) from error
        except BaseException:
            jobs.stop()
            raise


def _collected(
    spark: SparkSession, function: Callable[[Any], Any], requests: Sequence[Any], jobs: NamedJobs
) -> Sequence[Any]:
    tasks = _RequestTasks(function=function, task_attempts=task_attempts(spark))
    assignments = [Assignment((), (), (), request) for request in requests]
    with jobs.started_here():
        frame, mapped = assigned(spark, tasks, assignments)
        rows = map_batches(frame, mapped, _ANSWER_SCHEMA).collect()
    failures = sorted({row.failure for row in rows if row.failure is not None})
    if failures:
        raise ExecutorError("; ".join(failures))
    answers = {row.number: bytes(row.answer) for row in rows}
    if answers.keys() != set(range(len(requests))):
        raise ExecutorError(f"Spark ran {len(answers)} of {len(requests)} tasks")
    return [pickle.loads(answers[number]) for number in range(len(requests))]  # noqa: S301  ours


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestTasks:
    function: Callable[[Any], Any]
    task_attempts: int

    def __call__(self, number: int, assignment: Assignment[Any]) -> Iterator[pa.RecordBatch]:
        answer, failure = None, None
        try:
            answer = pickle.dumps(self.function(assignment.own), pickle.HIGHEST_PROTOCOL)
        except LiquidlogError as error:
            if may_pass(error) and is_tried_again(self.task_attempts):
                raise
            failure = "; ".join(str(error).splitlines())
        arrays = [
            pa.array([number], pa.int64()),
            pa.array([answer], pa.binary()),
            pa.array([failure], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, ["number", "answer", "failure"])
