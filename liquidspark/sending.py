"""Functions over the batches of a frame's partitions, and how each Spark task gets its request.

A function travels whole to every task of a job, so a task's request is a row of a DataFrame. Small
requests travel with the function instead, which saves a stage.

Spark's `repartition(n, column)` sends a row to partition murmur3(column) mod n. `partition_values`
finds for each partition a value that lands there; that works in every version of Spark and over
Spark Connect.
"""

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from liquidlog.errors import LiquidlogError
from liquidlog.rewriting.process import prepare_process
from liquidlog.rewriting.sink import (
    TaskFacts,
    begin_attempt,
    decode_facts,
    encode_facts,
    failed,
    merge_facts,
)
from liquidlog.rewriting.source import WritingWork
from liquidspark.session import OWN_WORKERS, arrow_frame

Batches: TypeAlias = Iterable[pa.RecordBatch]
Made = TypeVar("Made")

TaskFunction = Callable[[int, Any], Iterator[Made]]
"""(number of the task, its request) -> what it yields."""


class BatchFunction(Protocol):
    """A function that mapInArrow calls once per task; must be picklable."""

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class _Prepared:
    function: BatchFunction

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        context = TaskContext.get()
        begin_attempt(0 if context is None else int(context.attemptNumber()))
        return self.function(batches)


def map_batches(frame: DataFrame, function: BatchFunction, schema: str | StructType) -> DataFrame:
    """Return what a function makes of a frame's batches; Spark calls it once per task."""
    return frame.mapInArrow(_Prepared(function).__call__, schema)


def collected(frame: DataFrame) -> TaskFacts:
    """Run a job whose rows are facts, and return their sum."""
    return merge_facts([decode_facts(bytes(row.facts)) for row in frame.collect()])


_ANSWER_SCHEMA: Final = "answer binary, failure binary"


def answer_batches(
    work: WritingWork, ask: Callable[[Batches], object], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Yield the answer of a task about its batches, or its failure; nothing for the answer None."""
    answer, failure = None, None
    try:
        found = ask(batches)
        if found is None:
            return
        answer = pickle.dumps(found, pickle.HIGHEST_PROTOCOL)
    except LiquidlogError as error:
        failure = encode_facts(failed(error, work))
        deque(batches, maxlen=0)
    arrays = [pa.array([answer], pa.binary()), pa.array([failure], pa.binary())]
    yield pa.RecordBatch.from_arrays(arrays, ["answer", "failure"])


def answers_of(
    frame: DataFrame,
    work: WritingWork,
    ask: Callable[[Batches], object],
    *,
    most: int | None = None,
) -> tuple[list[Any], TaskFacts | None]:
    """Return the answers of tasks about their batches, at most `most`, or their failures."""
    mapped = map_batches(frame, partial(answer_batches, work, ask), _ANSWER_SCHEMA)
    rows = (mapped if most is None else mapped.limit(most)).collect()
    failures = [decode_facts(bytes(row.failure)) for row in rows if row.failure is not None]
    if failures:
        return [], merge_facts(failures)
    return [pickle.loads(row.answer) for row in rows], None  # noqa: S301  ours


def prepare_worker() -> None:
    """Prepare a Python worker of Spark once; see `prepare_process`."""
    prepare_process(runs_only_tasks=OWN_WORKERS in os.environ)


_MAX_EMBEDDED_BYTES: Final = 64 << 10
"""Most bytes of all requests together that travel with the function."""

_ASSIGNMENTS: Final = "id bigint, content binary, target int"
_MURMUR_SEED: Final = 42


@dataclass(frozen=True, slots=True)
class AssignedTasks(Generic[Made]):
    """Runs tasks with their requests, from the rows of batches or from `embedded`."""

    function: TaskFunction[Made]
    embedded: tuple[bytes, ...] | None

    def __call__(self, batches: Batches) -> Iterator[Made]:
        """Yield the results of the tasks whose numbers are in the batches."""
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
    """Return a request as bytes; inverse: `decoded_request`."""
    plain = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
    packed: bytes = pa.compress(plain, codec=_CODEC, asbytes=True)
    return len(plain).to_bytes(_SIZE_BYTES, "little") + packed


def decoded_request(content: bytes) -> Any:  # noqa: ANN401  whatever was sent
    """Return the request in bytes that `encoded_request` made in this run."""
    size = int.from_bytes(content[:_SIZE_BYTES], "little")
    plain = pa.decompress(content[_SIZE_BYTES:], size, codec=_CODEC, asbytes=True)
    return pickle.loads(plain)  # noqa: S301  the driver of this run made it


def assigned(
    spark: SparkSession, function: TaskFunction[Made], requests: Sequence[Any]
) -> tuple[DataFrame, AssignedTasks[Made]]:
    """Return a frame with one partition per request, and the function that maps its batches."""
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
    found: dict[int, int] = {}
    start, step = 0, max(1024, 4 * partitions)
    while len(found) < partitions:
        values = np.arange(start, start + step, dtype=np.int64)
        homes = _murmur3(values).astype(np.int32) % np.int32(partitions)
        for home, value in zip(homes.tolist(), values.tolist(), strict=True):
            found.setdefault(home, value)
        start += step
    return tuple(found[partition] for partition in range(partitions))


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
