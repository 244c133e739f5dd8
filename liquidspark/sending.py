"""Functions over the batches of a frame's partitions, and how each Spark task gets what it is sent.

A function travels whole to every task of a job, so what each task is sent are rows of a DataFrame,
of which each task receives its own. Where all of it together is small, it travels with the
function, which spares a stage.

Spark's `repartition(n, column)` sends a row to partition murmur3(column) mod n. `partition_values`
finds for each partition a value that lands there; that works in every version of Spark and over
Spark Connect.
"""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from liquidlog.rewriting.process import prepare_process
from liquidlog.rewriting.sink import TaskFacts, begin_attempt, decode_facts, merge_facts
from liquidspark.session import OWN_WORKERS, arrow_frame

Made = TypeVar("Made")

TaskFunction = Callable[[int, Any], Iterator[Made]]
"""(number of the task, what it is sent) -> what it yields."""


class BatchFunction(Protocol):
    """What mapInArrow calls once per task; must be picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class _Prepared:
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
    return merge_facts([decode_facts(bytes(content)) for content in contents])


_MAX_EMBEDDED_BYTES: Final = 64 << 10
"""Most bytes of all requests together that travel with the function."""

_ASSIGNMENTS: Final = "id bigint, content binary, target int"
_MURMUR_SEED: Final = 42


@dataclass(frozen=True, slots=True)
class AssignedTasks(Generic[Made]):
    """A function over batches: runs a task with its request, from its row or from `embedded`."""

    function: TaskFunction[Made]
    embedded: tuple[bytes, ...] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Made]:
        """Yield what the tasks yield whose numbers are in the batches."""
        for batch in batches:
            for row, number in enumerate(batch.column(0).to_pylist()):
                if self.embedded is None:
                    content = batch.column(1)[row].as_py()
                else:
                    content = self.embedded[number]
                yield from self.function(number, decoded_request(content))


_SIZE_BYTES: Final = 8
_CODEC: Final = "zstd"


def encoded_request(request: object) -> bytes:
    """Return what a task is sent as bytes; inverse: `decoded_request`."""
    plain = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
    packed: bytes = pa.compress(plain, codec=_CODEC, asbytes=True)
    return len(plain).to_bytes(_SIZE_BYTES, "little") + packed


def decoded_request(content: bytes) -> Any:  # noqa: ANN401  whatever was sent
    """Return what is in bytes that `encoded_request` made in this run."""
    size = int.from_bytes(content[:_SIZE_BYTES], "little")
    plain = pa.decompress(content[_SIZE_BYTES:], size, codec=_CODEC, asbytes=True)
    return pickle.loads(plain)  # noqa: S301  the driver of this run made it


def assigned(
    spark: SparkSession, function: TaskFunction[Made], requests: Sequence[Any]
) -> tuple[DataFrame, AssignedTasks[Made]]:
    """Return a frame with a partition per request, and the function to map its batches with."""
    contents = tuple(map(encoded_request, requests))
    count = len(contents)
    if sum(map(len, contents)) <= _MAX_EMBEDDED_BYTES:
        return spark.range(0, count, 1, count), AssignedTasks(function, contents)
    numbers = pa.array(range(count), pa.int64())
    targets = pa.array(partition_values(count), pa.int32())
    rows = pa.table(
        [numbers, pa.array(contents, pa.binary()), targets], ["id", "content", "target"]
    )
    frame = arrow_frame(spark, rows, _ASSIGNMENTS).repartition(count, "target")
    return frame, AssignedTasks(function, None)


def partition_values(partitions: int) -> tuple[int, ...]:
    """Return an int per partition that Spark's hash partitioning sends there.

    Source: Spark, Murmur3_x86_32.hashInt and HashPartitioning.partitionIdExpression.
    """
    found = np.full(partitions, -1, np.int64)
    start, step = 0, max(1024, 4 * partitions)
    while (found < 0).any():
        values = np.arange(start, start + step, dtype=np.int64)
        homes = _murmur3(values).astype(np.int32) % np.int32(partitions)
        missing = found[homes] < 0
        found[homes[missing]] = values[missing]
        start += step
    return tuple(found.tolist())


def _murmur3(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    mixed = values.astype(np.uint32) * np.uint32(0xCC9E2D51)
    mixed = _rotate(mixed, 15) * np.uint32(0x1B873593)
    hashed = _rotate(mixed ^ np.uint32(_MURMUR_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(4)
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashed ^ (hashed >> np.uint32(16))


def _rotate(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
