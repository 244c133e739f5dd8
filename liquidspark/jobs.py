"""The jobs of one group: their name in Spark, how far they are, and how they are stopped."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4  # noqa: TID251  names jobs, not files

from pyspark.sql import SparkSession

from liquidlog.errors import ExecutorError
from liquidspark.versions import add_tag, cancel_tagged, context_of, remove_tag

if TYPE_CHECKING:  # absent from clients of Connect
    from pyspark import SparkContext


class GroupJobs:
    """All jobs that one thread starts for one group, in phases of a known number of tasks.

    Names, progress and cancelling work on classic and on Connect sessions alike.
    """

    def __init__(self) -> None:
        self._name = f"liquidspark-{uuid4().hex}"
        self._base, self._until = 0.0, 0.0
        self._tasks_before, self._tasks = 0, 0
        self._cancelled: str | None = None

    @property
    def cancelled(self) -> str | None:
        """Why the group was cancelled, None if it was not."""
        return self._cancelled

    def begin_phase(self, tasks: int, *, until: float) -> None:
        """Say that `tasks` tasks follow, after which the share done is `until`.

        Raises:
            ExecutorError: If the group was cancelled.
        """
        if self._cancelled is not None:
            raise ExecutorError(self._cancelled)
        self._base, self._until = self._until, until
        self._tasks_before, self._tasks = self._tasks_before + self._tasks, tasks

    @contextmanager
    def started_here(self, spark: SparkSession) -> Iterator[None]:
        """Context manager: jobs that this thread starts belong to the group."""
        context = context_of(spark)
        if context is not None:
            context.setJobGroup(self._name, "liquidspark", interruptOnCancel=True)
            yield
            return
        add_tag(spark, self._name)
        try:
            yield
        finally:
            remove_tag(spark, self._name)

    def share_done(self, spark: SparkSession) -> float:
        """Return which share of the tasks is done, 0 to 0.99; 0 where Spark does not say."""
        if not self._tasks:
            return 0.0
        phase_done = self._done_in_phase(spark) / self._tasks
        return float(min(0.99, self._base + (self._until - self._base) * phase_done))

    def tasks_left(self, spark: SparkSession, outputs: int) -> int:
        """Return how many of the tasks that write `outputs` have still to end; all if not known."""
        if self._until < 1:
            return outputs
        return min(outputs, self._tasks - self._done_in_phase(spark))

    def _has_running(self, context: "SparkContext") -> bool:
        tracker = context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name))
        return any(job is not None and job.status == "RUNNING" for job in jobs)

    def _done_in_phase(self, spark: SparkSession) -> int:
        """Return how many tasks of this phase are done; 0 where Spark does not say."""
        context = context_of(spark)
        if context is None:
            return 0
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        infos = [tracker.getStageInfo(stage) for stage in stages]
        done = sum(int(info.numCompletedTasks) for info in infos if info is not None)
        return min(self._tasks, max(0, done - self._tasks_before))

    def cancel(self, spark: SparkSession, because: str | None = None) -> None:
        """Stop the group's jobs, best-effort; with a reason, no other phase begins.

        A job that begins at the same time is not stopped: call again until the group has ended.
        """
        is_again = because is not None and self._cancelled is not None
        self._cancelled = self._cancelled if because is None else because
        context = context_of(spark)
        with suppress(Exception):
            if context is None:
                cancel_tagged(spark, self._name)
            elif not is_again or self._has_running(context):
                # Spark logs a warning whenever there is nothing to stop.
                context.cancelJobGroup(self._name)
