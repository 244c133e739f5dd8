"""How many tasks the cluster of a session runs at a time."""

import time
from contextlib import suppress
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from liquidlog.errors import ExecutorError
from liquidspark.session import failure_reason
from liquidspark.versions import context_of, setting_of

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
