"""Groups of one task each, several in one job.

A job takes the driver tens of milliseconds of CPU, whatever its tasks do: where hundreds of slots
wait for groups of one task, it could not begin jobs as fast as their tasks end. So a group waits a
moment for others, and goes with those that came meanwhile. What became of it is known when all
tasks of the job are done. Groups of a job that fails run again, each by itself, as one task may
have brought the others down.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from pyspark.sql import SparkSession

from liquidlog.errors import ExecutorError
from liquidlog.rewriting.shuffle import FACTS_SCHEMA
from liquidlog.rewriting.sink import TaskFacts, decode_facts, encode_facts
from liquidlog.rewriting.source import Assignment, GroupWork
from liquidlog.rewriting.whole import GroupTask
from liquidspark.jobs import GroupJobs, NamedJobs
from liquidspark.mapping import collected, map_batches
from liquidspark.sending import assigned

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
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Begin no more jobs; by now no group runs any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(self, task: GroupTask, jobs: GroupJobs) -> TaskFacts:
        """Return what the task did.

        Args:
            task: All that is done for a group.
            jobs: Of the group; cancelling them ends the wait, and the job if nobody waits for it.
        """
        facts = self._with_others(task, jobs) if self._most > 1 else None
        if facts is not None:
            return facts
        return collected(map_batches(self._spark.range(0, 1, 1, 1), task, FACTS_SCHEMA))

    def _with_others(self, task: GroupTask, jobs: GroupJobs) -> TaskFacts | None:
        """Return what the task did in a job with others; None if there was none, or it failed."""
        member = _Member(task)
        with jobs.joined(member):
            self._waiting.append(member)
            self._pool.submit(self._run_some)
            return member.facts.result()

    def _run_some(self) -> None:
        """Run a job for groups that wait, if several do; tell each what its task did, if known."""
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
    """A group's place in a job that it shares, as soon as there is one; a `Place`."""

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
        """Run the job, and return what the tasks did by number; nothing if nobody waits for it."""
        if self._is_left():
            return {}
        with self._jobs.started_here():
            rows = self._frame.collect()
        return {row.number: decode_facts(bytes(row.facts)) for row in rows}

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
    """A task per group; `common` is the work of one of them, without inputs."""

    common: GroupWork

    def __call__(self, number: int, assignment: Assignment[_Own]) -> Iterator[pa.RecordBatch]:
        own = assignment.own
        work = replace(assignment.work(self.common), **own.work)
        facts = GroupTask(work=work, sample_rows=own.sample_rows).run()
        arrays = [pa.array([number], pa.int64()), pa.array([encode_facts(facts)], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, ["number", "facts"])
