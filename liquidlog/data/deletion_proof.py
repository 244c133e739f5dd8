"""What the rows of an output are that are about to be deleted, read from the output itself.

Whoever found the rows may be wrong about where they are. The rows at the positions that are
committed decide: their checksum must be that of the rows that others deleted. Tables without
deletion vectors get a copy of the output without them instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from liquidlog.data.buffers import integer_array
from liquidlog.data.checksum import add_checksums, multiset_checksum, subtract_checksums
from liquidlog.data.deleted_rows import FoundRows
from liquidlog.data.output_rows import PART_BYTES, FileLayout, Output, stored_bytes
from liquidlog.data.read_budget import ReadBudget
from liquidlog.data.reader import DataFile
from liquidlog.data.runs import Run
from liquidlog.data.writer import ROW_GROUP_BYTES, DataFileWriter
from liquidlog.errors import DataFileError, ResultMismatchError
from liquidlog.plan import Tasks, WrittenFile
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

    Their checksum must be that of `found`; `limit_bytes` and `tasks` are as for `find_rows`.
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
    """Return rows of an output, at least one; only the row groups that hold them are read.

    `spend` is called with the bytes of column chunks before they are read; it may raise.
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
    checksum = start = 0
    for part in file.read_bounded(None, group, max_bytes=PART_BYTES):
        rows = _within(positions, start, start + len(part))
        checksum = add_checksums(
            checksum, multiset_checksum(part.take(integer_array(rows.astype(np.int64))))
        )
        start += len(part)
    return checksum


def _within(positions: Positions, start: int, stop: int) -> Positions:
    edges = np.array([start, stop], np.uint64)
    first, last = np.searchsorted(positions, edges).tolist()
    return positions[first:last] - np.uint64(start)


def write_without(
    run: Run,
    output: Output,
    deleted: ProvedRows,
    *,
    layout: FileLayout,
    unique_id: str,
    storage: StorageOptions = NO_OPTIONS,
) -> WrittenFile:
    """Write a copy of an output without some rows, in the same order; return what it holds.

    Rows that earlier attempts deleted are left out too. What is written is read back: its checksum
    must be that of all rows of the output without that of the rows left out. `run` must have begun,
    and `unique_id` names no other file of it.
    """
    gone = np.union1d(output.deleted, deleted.positions)
    if len(gone) >= output.file.num_records:
        raise ValueError(f"{output.file.path}: no row would be left")
    attempt = str(run.uuid(unique_id))[len("01234567-0123-") :]
    name = run.path(run.file_name(0, attempt, layout.options.compression))
    address = f"{run.directory}/{name}"
    with DataFileWriter(
        address, schema=layout.file_schema, options=layout.options, storage=storage
    ) as writer:
        expected = _copy(output, gone, deleted, writer, layout, storage)
        written = writer.finish(name)
    with run.accepting(name):
        _require(written, address, expected, layout, storage)
    return written


def _copy(
    output: Output,
    gone: Positions,
    deleted: ProvedRows,
    writer: DataFileWriter,
    layout: FileLayout,
    storage: StorageOptions,
) -> int:
    """Write the rows of an output that are not gone; return the checksum that they should have.

    The `deleted` rows are those that are gone now.
    """
    whole = left_out = proved = start = 0
    with output.opened(layout, storage, dictionary=True) as file:
        for group in range(file.num_row_groups):
            for part in file.read_bounded(None, group, max_bytes=ROW_GROUP_BYTES):
                doomed = _mask(gone, start, len(part))
                new = _mask(deleted.positions, start, len(part))
                whole = add_checksums(whole, multiset_checksum(part))
                left_out = add_checksums(left_out, multiset_checksum(part.filter(doomed)))
                proved = add_checksums(proved, multiset_checksum(part.filter(new)))
                writer.write(part.filter(~doomed))
                start += len(part)
    if proved != deleted.checksum:
        problem = f"the rows to leave out of {output.file.path} are not those that were found"
        raise ResultMismatchError((problem,))
    return subtract_checksums(whole, left_out)


def _mask(positions: Positions, start: int, rows: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros(rows, np.bool_)
    first, last = np.searchsorted(positions, np.array([start, start + rows], np.uint64)).tolist()
    mask[positions[first:last] - np.uint64(start)] = True
    return mask


def _require(
    written: WrittenFile, address: str, checksum: int, layout: FileLayout, storage: StorageOptions
) -> None:
    found = 0
    copy = Output(address=address, file=written, deleted=np.empty(0, np.uint64))
    with copy.opened(layout, storage, dictionary=True) as file:
        for group in range(file.num_row_groups):
            for part in file.read_bounded(None, group, max_bytes=ROW_GROUP_BYTES):
                found = add_checksums(found, multiset_checksum(part))
    if found != checksum:
        problem = f"{written.path} does not hold the rows that it should"
        raise ResultMismatchError((problem,))
