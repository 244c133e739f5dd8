"""What the rows of an output are that are about to be deleted, read from the output itself.

Whoever found the rows may be wrong about where they are. The rows at the positions that are
committed decide: their checksum must be that of the rows that others deleted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from liquidlog.data.buffers import integer_array
from liquidlog.data.checksum import add_checksums, multiset_checksum
from liquidlog.data.deleted_rows import FoundRows
from liquidlog.data.output_rows import PART_BYTES, FileLayout, Output, stored_bytes
from liquidlog.data.read_budget import ReadBudget
from liquidlog.data.reader import DataFile
from liquidlog.errors import DataFileError, ResultMismatchError
from liquidlog.plan import Tasks
from liquidlog.spec.deletion_vectors import Positions
from liquidlog.storage.options import NO_OPTIONS, StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsToProve:
    """Rows of an output that were found: their physical positions, increasing."""

    output: Output
    positions: Positions
    layout: FileLayout
    storage: StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedRows:
    """Rows of one output, read from it.

    Attributes:
        positions: Physical rows, increasing.
        checksum: Their multiset checksum.
        bytes_read: Bytes of the column chunks that were read.
    """

    positions: Positions
    checksum: int
    bytes_read: int


def require_found(
    outputs: Sequence[Output],
    found: FoundRows,
    *,
    layout: FileLayout,
    limit_bytes: int,
    tasks: Tasks | None = None,
    storage: StorageOptions = NO_OPTIONS,
) -> tuple[ProvedRows, ...]:
    """Read the rows at the positions found and return them, one entry per output.

    Args:
        outputs: The files in which they were found.
        found: The positions, and the checksum that the rows there must have together.
        layout: Of the outputs.
        limit_bytes: Bytes of column chunks that may be read here.
        tasks: Read what might take more, as in `find_rows`; None to refuse that.
        storage: Opens the files.
    """
    pairs = list(zip(outputs, found.positions, strict=True))
    budget = ReadBudget.of(stored_bytes(outputs), limit_bytes, tasks)
    readers = budget.tasks_for(stored_bytes([output for output, rows in pairs if len(rows)]))
    sent = storage if readers is None else storage.fresh()
    requests = [
        RowsToProve(output=output, positions=rows, layout=layout, storage=sent)
        for output, rows in pairs
        if len(rows)
    ]
    answers = iter(budget.read(rows_at, requests, readers))
    proved = tuple(
        next(answers) if len(rows) else ProvedRows(positions=rows, checksum=0, bytes_read=0)
        for rows in found.positions
    )
    twice = any(
        np.isin(rows.positions, output.deleted).any()
        for output, rows in zip(outputs, proved, strict=True)
    )
    checksum = add_checksums(*(rows.checksum for rows in proved))
    if twice or checksum != found.checksum or _count(proved) != found.rows:
        problem = "the rows found in outputs are not the rows that other commits deleted"
        raise ResultMismatchError((problem,))
    return proved


def _count(proved: Sequence[ProvedRows]) -> int:
    return sum(len(np.unique(rows.positions)) for rows in proved)


def rows_at(request: RowsToProve, spend: Callable[[int], None]) -> ProvedRows:
    """Return rows of an output; only the row groups that hold them are read.

    Args:
        request: The output and the rows, at least one.
        spend: Called with the bytes of column chunks before they are read; may raise.
    """
    output, positions = request.output, request.positions
    checksum = bytes_read = start = 0
    with output.opened(request.layout, request.storage) as file:
        if positions[-1] >= file.num_rows:
            raise DataFileError(output.address, f"has no row {positions[-1]}")
        for group in range(file.num_row_groups):
            rows = file.row_group_rows(group)
            wanted = _within(positions, start, start + rows)
            if len(wanted):
                spend(file.row_group_stored_bytes(group))
                bytes_read += file.row_group_stored_bytes(group)
                checksum = add_checksums(checksum, _checksum(file, group, wanted))
            start += rows
    return ProvedRows(positions=positions, checksum=checksum, bytes_read=bytes_read)


def _checksum(file: DataFile, group: int, positions: Positions) -> int:
    """Return the checksum of rows of one row group, numbered from its first row."""
    checksum = start = 0
    for part in file.read_bounded(None, group, max_bytes=PART_BYTES):
        rows = _within(positions, start, start + len(part))
        checksum = add_checksums(
            checksum, multiset_checksum(part.take(integer_array(rows.astype(np.int64))))
        )
        start += len(part)
    return checksum


def _within(positions: Positions, start: int, stop: int) -> Positions:
    """Return those of increasing positions that lie in a span, counted from its start."""
    edges = np.array([start, stop], np.uint64)
    first, last = np.searchsorted(positions, edges).tolist()
    return positions[first:last] - np.uint64(start)
