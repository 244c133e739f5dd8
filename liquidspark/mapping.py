"""Functions over the batches of a frame's partitions: prepared on a worker, and their results."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from liquidlog.rewriting.process import prepare_process
from liquidlog.rewriting.sink import TaskFacts, begin_attempt, decode_facts, merge_facts
from liquidspark.versions import OWN_WORKERS


class BatchFunction(Protocol):
    """What mapInArrow calls once per task; must be picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A task's function, and before it what a worker does once, and for each attempt."""

    function: BatchFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        context = TaskContext.get()
        begin_attempt(0 if context is None else int(context.attemptNumber()))
        return self.function(batches)


def map_batches(frame: DataFrame, function: BatchFunction, schema: str | StructType) -> DataFrame:
    """Return what a function makes of a frame's batches; it is called once per task."""
    return frame.mapInArrow(_Prepared(function).__call__, schema)


def collected(frame: DataFrame) -> TaskFacts:
    """Run a job whose rows are facts, and return their sum."""
    return _sum([row.facts for row in frame.collect()])


def failure_in(rows: Sequence[Row]) -> TaskFacts | None:
    """Return the sum of the facts in a column `failure` of rows; None if there are none."""
    failures = [row.failure for row in rows if row.failure is not None]
    return _sum(failures) if failures else None


def prepare_worker() -> None:
    """Do what a Python worker of Spark does once; see `prepare_process`."""
    prepare_process(runs_only_tasks=OWN_WORKERS in os.environ)


def _sum(contents: Sequence[bytes | bytearray]) -> TaskFacts:
    """Return the sum of facts as tasks send them."""
    return merge_facts([decode_facts(bytes(content)) for content in contents])
