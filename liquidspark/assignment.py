"""What each task is sent besides the function of its job, and surveys as they come back.

A task is sent its inputs, and what to do with them.

A function travels whole to every task of a job. A group may have hundreds of thousands of inputs,
of which a task reads few. So they are rows of a DataFrame, of which each task receives its own.
Where all assignments together are small, they travel with the function, which spares a stage.

Spark's `repartition(n, column)` sends a row to partition murmur3(column) mod n. `partition_values`
finds for each partition a value that lands there; that works in every version of Spark and over
Spark Connect.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from liquidlog.data.ipc import decode_table, encode_table
from liquidlog.plan import InputFile
from liquidspark.source import GroupWork, Survey, flat_array
from liquidspark.versions import arrow_frame

_MAX_EMBEDDED_BYTES: Final = 64 << 10
"""Most bytes of all assignments together that travel with the function."""

_SIZE_BYTES: Final = 8
_ASSIGNMENTS: Final = "id bigint, content binary, target int"
_CODEC: Final = "zstd"
_MURMUR_SEED: Final = 42

Own = TypeVar("Own")


@dataclass(frozen=True, slots=True)
class Assignment(Generic[Own]):
    """The inputs of one task, and what it does with them: `own`, which numbers them from 0."""

    inputs: tuple[InputFile, ...]
    paths: tuple[str, ...]
    vector_paths: tuple[str | None, ...]
    own: Own

    @classmethod
    def of(cls, work: GroupWork, files: Sequence[int], own: Own) -> "Assignment[Own]":
        """Return what a task is sent that reads these inputs of a group."""
        return cls(
            tuple(work.inputs[file] for file in files),
            tuple(work.paths[file] for file in files),
            tuple(work.vector_paths[file] for file in files),
            own,
        )

    def work(self, common: GroupWork) -> GroupWork:
        """Return a group's work with the inputs of this task only."""
        return common.with_inputs(self.inputs, self.paths, self.vector_paths)

    def encoded(self) -> bytes:
        """Return the assignment as bytes; inverse: `decoded`."""
        plain = pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)
        packed: bytes = pa.compress(plain, codec=_CODEC, asbytes=True)
        return len(plain).to_bytes(_SIZE_BYTES, "little") + packed

    @staticmethod
    def decoded(content: bytes) -> "Assignment[Own]":
        """Return the assignment in bytes that `encoded` made in this run."""
        size = int.from_bytes(content[:_SIZE_BYTES], "little")
        plain = pa.decompress(content[_SIZE_BYTES:], size, codec=_CODEC, asbytes=True)
        found: Assignment[Own] = pickle.loads(plain)  # noqa: S301  the driver of this run made it
        return found


TaskFunction = Callable[[int, Assignment[Own]], Iterator[pa.RecordBatch]]
"""(number of the task, what it is sent) -> what it yields."""


@dataclass(frozen=True, slots=True)
class AssignedTasks(Generic[Own]):
    """What mapInArrow calls: runs a task with its assignment, from its row or from `embedded`."""

    function: TaskFunction[Own]
    embedded: tuple[bytes, ...] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the tasks yield whose numbers are in the batches."""
        for batch in batches:
            for row, number in enumerate(batch.column(0).to_pylist()):
                if self.embedded is None:
                    content = batch.column(1)[row].as_py()
                else:
                    content = self.embedded[number]
                yield from self.function(number, Assignment.decoded(content))


def assigned(
    spark: SparkSession, function: TaskFunction[Own], assignments: Sequence[Assignment[Own]]
) -> tuple[DataFrame, AssignedTasks[Own]]:
    """Return a frame with a partition per assignment, and the function to map its batches with."""
    contents = tuple(assignment.encoded() for assignment in assignments)
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


def encode_survey(survey: Survey) -> bytes:
    """Return a survey as an Arrow IPC stream of its sampled rows; inverse: decode_survey."""
    names = [f"c{i}" for i in range(len(survey.columns))]
    facts_of_rows = [pa.array(survey.rows), pa.array(survey.row_bytes)]
    table = pa.table([*facts_of_rows, *survey.columns], names=["row", "bytes", *names])
    facts = {
        "file": str(survey.file),
        "row_group_rows": ",".join(map(str, survey.row_group_rows)),
        "memory_bytes": str(survey.memory_bytes),
        **({} if survey.copy_key is None else {"copy_key": survey.copy_key}),
    }
    content: bytes = encode_table(table.replace_schema_metadata(facts)).to_pybytes()
    return content


def decode_survey(content: bytes) -> Survey:
    """Return the survey in an Arrow IPC stream."""
    table = decode_table(content)
    metadata = table.schema.metadata
    sizes = metadata[b"row_group_rows"].decode()
    rows, sizes_of_rows, *columns = [flat_array(column) for column in table.columns]
    return Survey(
        file=int(metadata[b"file"]),
        row_group_rows=tuple(int(size) for size in sizes.split(",") if size),
        memory_bytes=int(metadata[b"memory_bytes"]),
        rows=rows.to_numpy(),
        columns=tuple(columns),
        row_bytes=sizes_of_rows.to_numpy(),
        copy_key=metadata.get(b"copy_key"),
    )


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
