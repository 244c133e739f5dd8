"""Rows that other commits deleted while a rewrite ran, and where they are in what it wrote.

No map says where a row went. The deleted rows are read from the inputs by their positions, and rows
that equal them, bit by bit, are looked for in the outputs: rows are a multiset, so any equal row
will do, and each is taken at most once. Where rows keep ids, the ids are among what must be equal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.data.checksum import add_checksums, multiset_checksum, subtract_checksums
from liquidlog.data.encodings import integer_array
from liquidlog.data.logical_file import LogicalFile
from liquidlog.data.output_rows import (
    PARALLEL_FILES,
    PART_BYTES,
    FileLayout,
    Output,
    OutputRows,
    OutputSearch,
    ReadBudget,
    Rows,
    SoughtRows,
    UnequalRowsError,
    WantedRows,
    bounded_leaves,
    search_output,
    stored_bytes,
)
from liquidlog.data.reader import DataFile
from liquidlog.data.runs import Run
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import DataFileError, ResultMismatchError, RowsNotFoundError
from liquidlog.plan import InputFile, Tasks, WrittenFile
from liquidlog.spec.bounds import parse_bounds
from liquidlog.spec.deletion_vectors import Positions
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_SLICE_BYTES: Final = 256 << 20
"""Deleted rows that are looked for together take about this in memory, hashes and all."""

_PART_BYTES: Final = 128 << 20
"""Of an output in memory at a time, while it is copied without some rows."""

_HASHED_ROW_BYTES: Final = 128
"""What a row takes in memory besides its values: hashes, places in their order, range ids."""

_SENT_BYTES: Final = 64 << 20
"""Rows that are looked for in several outputs at the same time take about this in memory. So do
slices where tasks may look for them, as the driver of an executor may have little memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """Rows of one input that winners deleted.

    Attributes:
        address: Of the data file.
        source: What the plan says of it; its deletion vector is the planned one.
        vector_location: Path or URI of the planned vector; None for one in the log, or none.
        positions: Physical rows that are newly deleted; None for all that were live in the plan,
            but for those in `already`.
        already: Physical rows that an earlier attempt reconciled.
    """

    address: str
    source: InputFile
    vector_location: str | None
    positions: Positions | None
    already: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """Where the deleted rows are in the outputs.

    Attributes:
        positions: Per output, physical rows to delete that are not deleted yet.
        rows: How many they are in all.
        bytes_read: Bytes of the column chunks that were read, of inputs and outputs.
        checksum: The multiset checksum of the deleted rows, which is that of the rows found.
    """

    positions: tuple[Positions, ...]
    rows: int
    bytes_read: int
    checksum: int


def find_rows(
    deleted: Sequence[DeletedRows],
    outputs: Sequence[Output],
    *,
    layout: FileLayout,
    limit_bytes: int,
    tasks: Tasks | None = None,
    storage: StorageOptions = NO_OPTIONS,
) -> FoundRows:
    """Return rows of the outputs that equal the deleted rows, one for each.

    The same arguments give the same rows: the first of equal ones, in the order of the outputs.
    However many rows were deleted, less than a GiB is in memory at a time: deleted rows are looked
    for in slices, and files are read in parts, a few files beside each other. At most `limit_bytes`
    of column chunks are read here; `tasks` read outputs that might take more, up to three times the
    size of all files, and without them that is refused.
    """
    size_bytes = stored_bytes(outputs) + sum(rows.source.size_bytes for rows in deleted)
    search = _Search(outputs, layout, storage, ReadBudget.of(size_bytes, limit_bytes, tasks))
    checksum = rows = 0
    for wanted in search.slices(deleted):
        rows += wanted.missing
        search.take(wanted)
        if wanted.missing:
            raise RowsNotFoundError(rows, wanted.missing)
        checksum = add_checksums(checksum, wanted.checksum)
    return FoundRows(
        positions=tuple(search.found(number) for number in range(len(outputs))),
        rows=rows,
        bytes_read=search.budget.spent_bytes,
        checksum=checksum,
    )


class _Search:
    """The outputs, and which of their rows were found so far; mutable."""

    def __init__(
        self,
        outputs: Sequence[Output],
        layout: FileLayout,
        storage: StorageOptions,
        budget: ReadBudget,
    ) -> None:
        self.budget = budget
        self._outputs = outputs
        self._layout = layout
        self._storage = storage
        self._leaves = bounded_leaves(layout)
        stats = pa.array([output.file.stats for output in outputs], pa.string())
        self._bounds = parse_bounds(stats, self._leaves)
        self._deleted = [output.deleted for output in outputs]

    def found(self, number: int) -> Positions:
        return np.setdiff1d(self._deleted[number], self._outputs[number].deleted, True)  # noqa: FBT003

    def slices(self, deleted: Sequence[DeletedRows]) -> Iterator[WantedRows]:
        """Yield the deleted rows from the inputs, as many as memory may hold, or one part."""
        held: list[pa.Table] = []
        held_bytes = 0
        for rows in deleted:
            for part in self._deleted_parts(rows):
                held.append(part)
                held_bytes += part.nbytes + len(part) * _HASHED_ROW_BYTES
                if held_bytes >= (_SENT_BYTES if self.budget.has_tasks else _SLICE_BYTES):
                    yield _wanted(held)
                    held, held_bytes = [], 0
        if held:
            yield _wanted(held)

    def _deleted_parts(self, rows: DeletedRows) -> Iterator[pa.Table]:
        if rows.positions is not None and not len(rows.positions):
            return
        with LogicalFile.open(
            rows.address,
            rows.source,
            schema=self._layout.schema,
            mapping=self._layout.mapping,
            vector_location=rows.vector_location,
            row_tracking=self._layout.row_tracking,
            partition_columns=self._layout.partition_columns,
            former_partition_columns=self._layout.former_partition_columns,
            storage=self._storage,
        ) as file:
            positions = file.live_positions() if rows.positions is None else rows.positions
            positions = np.setdiff1d(positions, rows.already, assume_unique=True)
            for group, _ in file.row_groups_of(positions):
                self.budget.spend(file.row_group_stored_bytes(group))
            yield from file.read_rows(positions, max_bytes=PART_BYTES)

    def take(self, wanted: WantedRows) -> None:
        admitted = list(self._admitted(wanted))
        most_bytes = stored_bytes([self._outputs[number] for number, _ in admitted])
        tasks = self.budget.tasks_for(most_bytes)
        storage = self._storage if tasks is None else self._storage.fresh()
        for numbers, sent, searches in self._together(admitted, wanted, storage, tasks):
            answers = self.budget.read(search_output, searches, tasks)
            for number, rows, answer in zip(numbers, sent, answers, strict=True):
                self._take(number, wanted, rows, answer)

    def _admitted(self, wanted: WantedRows) -> Iterator[tuple[int, Rows]]:
        if not self._leaves:
            everything = np.arange(len(wanted.rows))
            yield from ((number, everything) for number in range(len(self._outputs)))
            return
        sought = SoughtRows.of(wanted.rows, self._leaves)
        for number, rows in enumerate(sought.rows_within(self._bounds)):
            if len(rows):
                yield number, np.sort(rows)

    def _together(
        self,
        admitted: Sequence[tuple[int, Rows]],
        wanted: WantedRows,
        storage: StorageOptions,
        tasks: Tasks | None,
    ) -> Iterator[tuple[list[int], list[Rows], list[OutputSearch]]]:
        """Yield outputs that are searched at the same time, for what is missing by then.

        With each go the rows to look for: their numbers, and the search.
        """
        numbers: list[int] = []
        sent: list[Rows] = []
        searches: list[OutputSearch] = []
        for number, all_rows in admitted:
            rows = all_rows[wanted.is_missing(all_rows)]
            if not len(rows):
                continue
            numbers.append(number)
            sent.append(rows)
            searches.append(self._search(number, wanted, rows, storage))
            sent_bytes = sum(search.rows.nbytes for search in searches)
            is_full = tasks is None and len(searches) == PARALLEL_FILES
            if is_full or sent_bytes >= _SENT_BYTES:
                yield numbers, sent, searches
                numbers, sent, searches = [], [], []
        if searches:
            yield numbers, sent, searches

    def _search(
        self, number: int, wanted: WantedRows, rows: Rows, storage: StorageOptions
    ) -> OutputSearch:
        return OutputSearch(
            output=replace(self._outputs[number], deleted=self._deleted[number]),
            rows=wanted.rows.take(integer_array(rows)),
            layout=self._layout,
            storage=storage,
        )

    def _take(self, number: int, wanted: WantedRows, rows: Rows, answer: OutputRows) -> None:
        taken = answer.positions[wanted.take_equal(rows[answer.wanted])]
        # A stable sort merges what is sorted in parts.
        self._deleted[number] = np.sort(
            np.concatenate([self._deleted[number], taken]), kind="stable"
        )


def _wanted(parts: Sequence[pa.Table]) -> WantedRows:
    try:
        return WantedRows(pa.concat_tables(parts), ())
    except UnequalRowsError:
        raise ResultMismatchError(("other rows were deleted of the same checksum",)) from None


# What the rows of an output are that are about to be deleted, read from the output itself.
#
# Whoever found the rows may be wrong about where they are. The rows at the positions that are
# committed decide: their checksum must be that of the rows that others deleted. Tables without
# deletion vectors get a copy of the output without them instead.


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
            for part in file.read_bounded(None, group, max_bytes=_PART_BYTES):
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
            for part in file.read_bounded(None, group, max_bytes=_PART_BYTES):
                found = add_checksums(found, multiset_checksum(part))
    if found != checksum:
        problem = f"{written.path} does not hold the rows that it should"
        raise ResultMismatchError((problem,))
