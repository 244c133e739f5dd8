"""The Spark jobs of one group: their name, how far they are, and how they are stopped."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4  # noqa: TID251  names jobs, not files

from pyspark.sql import SparkSession

from liquidlog.rewriting.jobs import Jobs
from liquidspark.versions import add_tag, cancel_tagged, context_of, remove_tag

if TYPE_CHECKING:  # absent from clients of Connect
    from pyspark import SparkContext


class Place(Protocol):
    """A group's place in a job that it shares with others."""

    def leave(self) -> None:
        """Wait for it no longer."""

    def share_done(self) -> float:
        """Return which share of the job is done, 0 to 1."""
        ...


class GroupJobs(Jobs):
    """All jobs that one thread starts for one group, or the place it has in another's.

    Names, progress and cancelling work on classic and on Connect sessions alike.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark
        self._name = f"liquidspark-{uuid4().hex}"
        self._place: Place | None = None

    @contextmanager
    def started_here(self) -> Iterator[None]:
        """Context manager: jobs that this thread starts belong to the group."""
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

    @contextmanager
    def joined(self, place: Place) -> Iterator[None]:
        """Context manager: what is done for the group is done in another job, in this place."""
        self._place = place
        if self.cancelled is not None:
            place.leave()
        try:
            yield
        finally:
            self._place = None

    def _has_running(self, context: "SparkContext") -> bool:
        tracker = context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name))
        return any(job is not None and job.status == "RUNNING" for job in jobs)

    def _tasks_done(self) -> float:
        if self._place is not None:
            return self._place.share_done()
        return self.tasks_done()

    def tasks_done(self) -> int:
        """Return how many tasks of jobs of this name are done; 0 if that is not known."""
        context = context_of(self._spark)
        if context is None:
            return 0
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        infos = [tracker.getStageInfo(stage) for stage in stages]
        return sum(int(info.numCompletedTasks) for info in infos if info is not None)

    def _stop(self, *, is_again: bool) -> None:
        place = self._place
        if place is not None:
            place.leave()
            return
        context = context_of(self._spark)
        with suppress(Exception):
            if context is None:
                cancel_tagged(self._spark, self._name)
            elif not is_again or self._has_running(context):
                # Spark logs a warning whenever there is nothing to stop.
                context.cancelJobGroup(self._name)
