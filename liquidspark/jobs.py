"""The Spark jobs of one group: naming, progress and cancelling, on classic and on Connect."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from uuid import uuid4  # noqa: TID251  names jobs, not files

from pyspark.sql import SparkSession

T = TypeVar("T")


class GroupJobs:
    """All jobs that one thread starts for one group, in phases of a known number of tasks."""

    def __init__(self) -> None:
        self._name = f"liquidspark-{uuid4().hex}"
        self._base, self._until = 0.0, 0.0
        self._tasks_before, self._tasks = 0, 0

    def begin_phase(self, tasks: int, *, until: float) -> None:
        """Say that `tasks` tasks follow, after which the share done is `until`."""
        self._base, self._until = self._until, until
        self._tasks_before, self._tasks = self._tasks_before + self._tasks, tasks

    def tagged(self, spark: SparkSession, run: Callable[[], T]) -> T:
        """Return what `run` returns; the jobs it starts in this thread belong to the group."""
        context = getattr(spark, "sparkContext", None)
        if context is not None:
            context.setJobGroup(self._name, "liquidspark", interruptOnCancel=True)
            return run()
        spark.addTag(self._name)
        try:
            return run()
        finally:
            spark.removeTag(self._name)

    def share_done(self, spark: SparkSession) -> float:
        """Return which share of the tasks is done, 0 to 0.99; 0 where Spark does not say."""
        context = getattr(spark, "sparkContext", None)
        if context is None or not self._tasks:
            return 0.0
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        infos = [tracker.getStageInfo(stage) for stage in stages]
        done = sum(info.numCompletedTasks for info in infos if info is not None)
        phase_done = min(1.0, max(0, done - self._tasks_before) / self._tasks)
        return float(min(0.99, self._base + (self._until - self._base) * phase_done))

    def cancel(self, spark: SparkSession) -> None:
        """Stop the group's jobs, best-effort."""
        context = getattr(spark, "sparkContext", None)
        with suppress(Exception):
            if context is not None:
                context.cancelJobGroup(self._name)
            else:
                spark.interruptTag(self._name)
