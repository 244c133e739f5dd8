"""Spark jobs under one name, how far they are and how they are stopped, and task slots."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4  # noqa: TID251  names jobs, not files

from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from liquidlog.errors import ExecutorError
from liquidlog.rewriting.flight import Jobs
from liquidspark.session import failure_reason
from liquidspark.versions import add_tag, cancel_tagged, context_of, remove_tag, setting_of

if TYPE_CHECKING:
    from pyspark import SparkContext


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
