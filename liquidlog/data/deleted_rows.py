"""Rows that other commits deleted while a rewrite ran, and where they are in what it wrote.

No map says where a row went. The deleted rows are read from the inputs by their positions, and rows
that equal them, bit by bit, are looked for in the outputs: rows are a multiset, so any equal row
will do, and each is taken at most once. Where rows keep ids, the ids are among what must be equal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.data.buffers import integer_array
from liquidlog.data.checksum import add_checksums
from liquidlog.data.logical_file import LogicalFile
from liquidlog.data.output_rows import (
    PART_BYTES,
    FileLayout,
    Output,
    OutputRows,
    OutputSearch,
    bounded_leaves,
    search_output,
    stored_bytes,
)
from liquidlog.data.read_budget import PARALLEL_FILES, ReadBudget
from liquidlog.data.wanted_rows import Rows, SoughtRows, UnequalRowsError, WantedRows
from liquidlog.errors import ResultMismatchError, RowsNotFoundError
from liquidlog.plan import InputFile, Tasks
from liquidlog.spec.bounds import parse_bounds
from liquidlog.spec.deletion_vectors import Positions
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_SLICE_BYTES: Final = 256 << 20
"""Deleted rows that are looked for together take about this in memory, hashes and all."""

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
