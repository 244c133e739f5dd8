"""What each task is sent besides the function of its job, and surveys as they come back.

A task is sent its inputs, and what to do with them: a group may have hundreds of thousands of
inputs, of which a task reads few.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import pyarrow as pa

from liquidlog.data.ipc import decode_table, encode_table
from liquidlog.plan import InputFile
from liquidlog.rewriting.source import GroupWork, Survey, flat_array

_SIZE_BYTES: Final = 8
_CODEC: Final = "zstd"

Own = TypeVar("Own")
Made = TypeVar("Made")


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


TaskFunction = Callable[[int, Assignment[Own]], Iterator[Made]]
"""(number of the task, what it is sent) -> what it yields."""


def encode_survey(survey: Survey) -> bytes:
    """Return a survey as an Arrow IPC stream of its sampled rows; inverse: decode_survey."""
    names = [f"c{i}" for i in range(len(survey.columns))]
    facts_of_rows = [pa.array(survey.rows), pa.array(survey.row_bytes)]
    table = pa.table([*facts_of_rows, *survey.columns], names=["row", "bytes", *names])
    facts = {
        "file": str(survey.file),
        "row_group_rows": ",".join(map(str, survey.row_group_rows)),
        "memory_bytes": str(survey.memory_bytes),
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
    )
