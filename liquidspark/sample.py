"""The sampling pass: how many rows each input has, and a sample of its clustering columns.

Reads footers and the clustering columns only. Sampled rows are evenly spread over the file with a
deterministic, low-discrepancy jitter, so that the sample neither changes between runs nor falls in
step with a period of the data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.data.encodings import decoded
from liquidlog.data.logical_file import LogicalFile
from liquidspark.sink import TaskFacts
from liquidspark.source import (
    GroupWork,
    decode_table,
    encode_table,
    open_input,
    read_bounded,
    rows_at_a_time,
)

_GOLDEN_RATIO: Final = 0.6180339887498949


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What one input holds: its row groups and sampled rows.

    `rows` are the sampled row numbers, increasing; `columns` the clustering columns at them.
    `memory_bytes` is about what all of its rows take in memory.
    """

    file: int
    row_group_rows: tuple[int, ...]
    memory_bytes: int
    rows: npt.NDArray[np.uint64]
    columns: tuple[pa.Array, ...]

    @property
    def num_rows(self) -> int:
        """Rows of the whole input."""
        return sum(self.row_group_rows)


def survey_file(work: GroupWork, file: int, *, sample_rows: int) -> Survey:
    """Return the row groups of one input and about `sample_rows` sampled rows.

    Raises:
        DataFileError: If the file cannot be read.
    """
    with open_input(work, file) as data_file:
        sizes = tuple(data_file.row_group_rows(i) for i in range(data_file.num_row_groups))
        picked = sample_positions(sum(sizes), sample_rows if work.columns else 0)
        memory_bytes = sum(map(data_file.row_group_memory_bytes, range(len(sizes))))
        pieces = [
            decoded(table.take(pa.array(rows)))
            for table, rows in _picked(work, file, data_file, picked)
        ]
    columns = pa.concat_tables(pieces).combine_chunks().columns if pieces else []
    return Survey(
        file=file,
        row_group_rows=sizes,
        memory_bytes=memory_bytes,
        rows=picked,
        columns=tuple(_flat(column) for column in columns),
    )


def _picked(
    work: GroupWork, file: int, opened: LogicalFile, picked: npt.NDArray[np.uint64]
) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
    """Yield the clustering columns, some rows at a time, and which of these rows are picked."""
    first = 0
    for group in range(opened.num_row_groups):
        stop = first + opened.row_group_rows(group)
        if not len(_between(picked, first, stop)):
            first = stop
            continue
        max_rows = rows_at_a_time(work, file, opened, [group])
        for table in read_bounded(opened, work.columns, [group], max_rows=max_rows):
            yield table, _between(picked, first, first + len(table))
            first += len(table)


def _between(picked: npt.NDArray[np.uint64], first: int, stop: int) -> npt.NDArray[np.int64]:
    """Return the picked rows of first <= row < stop, counted from the first."""
    low, high = np.searchsorted(picked, np.array([first, stop], np.uint64)).tolist()
    return (picked[low:high] - np.uint64(first)).astype(np.int64)


def sample_positions(rows: int, count: int) -> npt.NDArray[np.uint64]:
    """Return about `count` increasing row numbers below `rows`, all rows if they are fewer."""
    if count >= rows:
        return np.arange(rows, dtype=np.uint64)
    steps = np.arange(count)
    jitter = (steps * _GOLDEN_RATIO) % 1.0
    positions = np.floor((steps + jitter) * (rows / max(count, 1)))
    return positions[np.diff(positions, prepend=-1) > 0].astype(np.uint64)


def sample_shares(sizes_bytes: Sequence[int], total_rows: int) -> list[int]:
    """Return how many rows to sample from each input, in proportion to its size."""
    total_bytes = max(sum(sizes_bytes), 1)
    return [-(-total_rows * size // total_bytes) for size in sizes_bytes]


def check_rows(facts: TaskFacts, surveys: Sequence[Survey]) -> TaskFacts:
    """Return the facts, as a failure if the tasks did not read every row the footers promise."""
    promised = sum(survey.num_rows for survey in surveys)
    read = 0 if facts.read is None else facts.read.rows
    if facts.failure is None and read != promised:
        reason = f"the inputs have {promised} rows, {read} were read"
        return TaskFacts(failure=reason, outputs=facts.outputs)
    return facts


def encode_survey(survey: Survey) -> bytes:
    """Return a survey as an Arrow IPC stream of its sampled rows; inverse: decode_survey."""
    names = [f"c{i}" for i in range(len(survey.columns))]
    table = pa.table([pa.array(survey.rows), *survey.columns], names=["row", *names])
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
    rows, *columns = [_flat(column) for column in table.columns]
    return Survey(
        file=int(metadata[b"file"]),
        row_group_rows=tuple(int(size) for size in sizes.split(",") if size),
        memory_bytes=int(metadata[b"memory_bytes"]),
        rows=rows.to_numpy(),
        columns=tuple(columns),
    )


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
