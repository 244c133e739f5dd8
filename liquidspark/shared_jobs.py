"""Groups of one task each, several in one job.

A job takes the driver tens of milliseconds of CPU, whatever its tasks do: where hundreds of slots
wait for groups of one task, it could not begin jobs as fast as their tasks end. So a group waits a
moment for others, and goes with those that came meanwhile. What became of it is known when all
tasks of the job are done.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, NamedTuple, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from liquidlog.errors import ExecutorError
from liquidlog.rewriting.assignment import Assignment
from liquidlog.rewriting.sink import TaskFacts, decode_facts, encode_facts
from liquidlog.rewriting.source import GroupWork
from liquidlog.rewriting.whole import GroupTask
from liquidspark.jobs import GroupJobs, NamedJobs
from liquidspark.mapping import map_batches
from liquidspark.sending import assigned

SLOTS_PER_GROUP: Final = 16
"""With twice as many groups in flight as there are slots, there are 32 jobs at a time."""
_MAX_JOBS: Final = 64
_GATHER_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.2
_SCHEMA: Final = "number long, facts binary"


@contextmanager
def shared_jobs(spark: SparkSession, slots: int) -> Iterator["SharedJobs | None"]:
    """Context manager of the shared jobs for groups of a plan; None where each has its own.

    Args:
        spark: A classic or Connect session.
        slots: How many tasks run at a time.
    """
    most = slots // SLOTS_PER_GROUP
    if most > 1:
        with SharedJobs(spark, most=most) as shared:
            yield shared
    else:
        yield None


class SharedJobs:
    """Context manager that runs groups of one plan, of one task each, for many threads."""

    def __init__(self, spark: SparkSession, *, most: int) -> None:
        """Put up to `most` groups into a job."""
        self._spark = spark
        self._most = most
        self._lock, self._beginning = Lock(), Lock()
        self._waiting: deque[_Member] = deque()
        self._pool = ThreadPoolExecutor(_MAX_JOBS, thread_name_prefix="liquidspark-job")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Begin no more jobs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(self, task: GroupTask, jobs: GroupJobs) -> TaskFacts:
        """Return what the task did.

        Args:
            task: All that is done for a group.
            jobs: Of the group; cancelling them ends the wait, and the job if nobody waits for it.

        Raises:
            ExecutorError: If the group was cancelled.
            Exception: What Spark raises if the task fails, again if it was not the only one.
        """
        member = _Member(task)
        with jobs.joined(member):
            with self._lock:
                self._waiting.append(member)
            self._pool.submit(self._serve)
            return member.future.result()

    def _serve(self) -> None:
        """Run some of the groups that wait, if any still do."""
        try:
            self._run_some()
        except BaseException as error:
            with self._lock:
                waiting, self._waiting = self._waiting, deque()
            for member in waiting:
                member.fail(error)
            raise

    def _run_some(self) -> None:
        with self._beginning:
            members = self._gathered()
            if not members:
                return
            job = _Job(self._spark, members)
            frame = job.frame()
        if frame is None or job.run(frame):
            return
        # One task may have brought the others down.
        for member in members:
            self._pool.submit(self._run_alone, member)

    def _gathered(self) -> list["_Member"]:
        if self._waiting and len(self._waiting) < self._most:
            time.sleep(_GATHER_SECONDS)
        with self._lock:
            found = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        return [member for member in found if not member.future.done()]

    def _run_alone(self, member: "_Member") -> None:
        job = _Job(self._spark, [member])
        frame = job.frame()
        if frame is not None:
            job.run(frame)


class _Member:
    """A group on its way: its task, and what becomes of it."""

    def __init__(self, task: GroupTask) -> None:
        self.task = task
        self.future: Future[TaskFacts] = Future()
        self.job: _Job | None = None

    def stop(self, *, is_again: bool) -> None:  # noqa: ARG002  it ends at once
        self.fail(ExecutorError("the group was cancelled"))
        if self.job is not None:
            self.job.stop_if_left()

    def tasks_done(self) -> float:
        return 0.0 if self.job is None else self.job.share_done()

    def finish(self, facts: TaskFacts) -> None:
        with suppress(InvalidStateError):
            self.future.set_result(facts)

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class _Job:
    """One job for some groups; mutable."""

    def __init__(self, spark: SparkSession, members: Sequence[_Member]) -> None:
        self._spark = spark
        self._members = members
        self._jobs = NamedJobs(spark)
        self._looked, self._share = 0.0, 0.0
        for member in members:
            member.job = self

    def frame(self) -> DataFrame | None:
        """Return the frame of the job; None if that failed, which all members are told."""
        try:
            works = [member.task.work for member in self._members]
            sent = [
                Assignment.of(work, range(len(work.paths)), _Own.of(member.task))
                for work, member in zip(works, self._members, strict=True)
            ]
            tasks = _SharedTasks(work=works[0].without_inputs())
            frame, mapped = assigned(self._spark, tasks, sent)
            return map_batches(frame, mapped, _SCHEMA)
        except Exception as error:  # noqa: BLE001  threads wait for it
            self._fail(error)
            return None

    def run(self, frame: DataFrame) -> bool:
        """Run the job and tell the members; return False if each should be tried by itself."""
        if self._is_left():
            return True
        try:
            with self._jobs.started_here():
                rows = frame.collect()
            found = {row.number: decode_facts(bytes(row.facts)) for row in rows}
        except Exception as error:  # noqa: BLE001  threads wait for it
            if len(self._members) > 1:
                return self._is_left()
            self._fail(error)
            return True
        for number, member in enumerate(self._members):
            if number in found:
                member.finish(found[number])
            else:
                member.fail(ExecutorError("Spark did not say what became of the group's task"))
        return True

    def share_done(self) -> float:
        """Return which share of the tasks is done, as it was a moment ago."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._share = self._jobs.tasks_done() / len(self._members)
        return self._share

    def stop_if_left(self) -> None:
        """Stop the job if no member waits for it any more."""
        if self._is_left():
            self._jobs.stop()

    def _is_left(self) -> bool:
        return all(member.future.done() for member in self._members)

    def _fail(self, error: Exception) -> None:
        for member in self._members:
            member.fail(error)


class _Own(NamedTuple):
    """What the work of one group has of its own besides inputs, and how many rows it samples."""

    token: str
    outputs: int
    output_directories: tuple[str, ...]
    sample_rows: int

    @classmethod
    def of(cls, task: GroupTask) -> "_Own":
        work = task.work
        return cls(work.token, work.outputs, work.output_directories, task.sample_rows)


@dataclass(frozen=True, slots=True)
class _SharedTasks:
    """A task per group; `work` is that of any of them, without inputs."""

    work: GroupWork

    def __call__(self, number: int, assignment: Assignment[_Own]) -> Iterator[pa.RecordBatch]:
        own = assignment.own
        work = replace(
            assignment.work(self.work),
            token=own.token,
            outputs=own.outputs,
            output_directories=own.output_directories,
        )
        facts = GroupTask(work=work, sample_rows=own.sample_rows).run()
        arrays = [pa.array([number], pa.int64()), pa.array([encode_facts(facts)], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, ["number", "facts"])
