"""Rows that other commits deleted while a rewrite ran, and where they are in what it wrote.

No map says where a row went. The deleted rows are read from the inputs by their positions, and rows
that equal them, bit by bit, are looked for in the outputs: rows are a multiset, so any equal row
will do, and each is taken at most once. Where rows keep ids, the ids are among what must be equal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.data.admitted import SoughtRows
from liquidlog.data.buffers import integer_array
from liquidlog.data.checksum import add_checksums
from liquidlog.data.logical_file import LogicalFile
from liquidlog.data.reader import DataFile
from liquidlog.data.row_group_bounds import read_row_groups
from liquidlog.data.wanted_rows import Taken, UnequalRowsError, WantedRows
from liquidlog.errors import (
    DataFileError,
    ReconcileLimitError,
    ResultMismatchError,
    RowsNotFoundError,
)
from liquidlog.plan import (
    ClusteringPlan,
    InputFile,
    RowTracking,
    WriterOptions,
    WrittenFile,
    file_schema,
)
from liquidlog.spec.bounds import has_bounds
from liquidlog.spec.bounds_json import parse_bounds
from liquidlog.spec.deletion_vectors import Positions
from liquidlog.spec.mapping import MappingMode
from liquidlog.spec.schema import Leaf, Path, StructType, leaves
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_SLICE_BYTES: Final = 256 << 20
"""Deleted rows that are looked for together take about this in memory, hashes and all."""

_HASHED_ROW_BYTES: Final = 128
"""What a row takes in memory besides its values: hashes, places in their order, range ids."""

_PART_BYTES: Final = 64 << 20
"""Rows of a file that are read together take about this in memory."""

_MOST_LEAVES: Final = 4
"""Columns by whose bounds files and row groups are left out, at most."""

_WORTH_A_LOOK: Final = 2
"""A few columns are read first if all columns take at least so many times their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """How the data files of a rewrite are to be read and written; all paths are physical.

    `schema` has the table's columns that files hold. `columns` are the clustering columns, in
    order; none for a compaction. `partition_columns` may be in inputs and are not read.
    """

    schema: StructType
    mapping: MappingMode
    row_tracking: RowTracking | None
    columns: tuple[Path, ...]
    options: WriterOptions
    partition_columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: ClusteringPlan) -> Self:
        """Return the layout of a plan's files.

        Raises:
            UnsupportedFeatureError: If the plan's schema has types that are unknown.
            CorruptLogError: If the plan's schema cannot be understood.
        """
        return cls(
            schema=plan.data_schema,
            mapping=plan.mapping_mode,
            row_tracking=plan.row_tracking,
            columns=tuple(column.physical for column in plan.columns),
            options=plan.writer_options,
            partition_columns=plan.partitioned_by,
        )

    @property
    def file_schema(self) -> StructType:
        """The columns of data files: the table's, then the hidden ones that rows keep."""
        return file_schema(self.schema, self.row_tracking)


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
class Output:
    """A file that the rewrite wrote, as it stands.

    Attributes:
        address: Of the data file.
        file: What its writer says of it.
        deleted: Physical rows that earlier attempts deleted of it.
    """

    address: str
    file: WrittenFile
    deleted: Positions


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
    storage: StorageOptions = NO_OPTIONS,
) -> FoundRows:
    """Return rows of the outputs that equal the deleted rows, one for each.

    The same arguments give the same rows: the first of equal ones, in the order of the outputs.
    However many rows were deleted, little more than half a GiB is in memory at a time: deleted rows
    are looked for in slices, and files are read in parts.

    Args:
        deleted: Rows of the inputs.
        outputs: All that was written of these inputs.
        layout: Of all these files.
        limit_bytes: Bytes of column chunks that may be read.
        storage: Opens the files.

    Raises:
        RowsNotFoundError: If the outputs have fewer such rows than were deleted.
        ReconcileLimitError: If more bytes would have to be read.
        ResultMismatchError: If the rows found do not have the checksum of the deleted ones.
        DataFileError: If a file is missing or cannot be read exactly.
    """
    search = _Search(outputs, layout, storage, _Budget(limit_bytes))
    checksum = rows = 0
    for wanted in search.slices(deleted):
        rows += wanted.missing
        found = search.take(wanted)
        if wanted.missing:
            raise RowsNotFoundError(rows, wanted.missing)
        if found != wanted.checksum:
            raise ResultMismatchError(("rows found in outputs are not the deleted rows",))
        checksum = add_checksums(checksum, found)
    return FoundRows(
        positions=tuple(search.found(number) for number in range(len(outputs))),
        rows=rows,
        bytes_read=search.budget.spent_bytes,
        checksum=checksum,
    )


class _Budget:
    """Bytes that were read, and how many may be; mutable."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.spent_bytes = 0

    def spend(self, size_bytes: int) -> None:
        """Count bytes that are about to be read.

        Raises:
            ReconcileLimitError: If they are too many.
        """
        needed_bytes = self.spent_bytes + size_bytes
        if needed_bytes > self._limit_bytes:
            raise ReconcileLimitError(needed_bytes, self._limit_bytes)
        self.spent_bytes = needed_bytes


class _Search:
    """The outputs, and which of their rows were found so far; mutable."""

    def __init__(
        self,
        outputs: Sequence[Output],
        layout: FileLayout,
        storage: StorageOptions,
        budget: _Budget,
    ) -> None:
        self.budget = budget
        self._outputs = outputs
        self._layout = layout
        self._storage = storage
        self._leaves = _bounded_leaves(layout)
        self._columns = _first_columns(layout, self._leaves)
        stats = pa.array([output.file.stats for output in outputs], pa.string())
        self._bounds = parse_bounds(stats, self._leaves)
        self._deleted = [output.deleted for output in outputs]

    def found(self, number: int) -> Positions:
        """Return the rows of an output that were found."""
        return np.setdiff1d(self._deleted[number], self._outputs[number].deleted, True)  # noqa: FBT003

    def slices(self, deleted: Sequence[DeletedRows]) -> Iterator[WantedRows]:
        """Yield the deleted rows, read from the inputs: of `_SLICE_BYTES` in memory, or one part.

        Raises:
            ReconcileLimitError: If too many bytes would have to be read.
            DataFileError: If an input cannot be read exactly.
        """
        held: list[pa.Table] = []
        held_bytes = 0
        for rows in deleted:
            for part in self._deleted_parts(rows):
                held.append(part)
                held_bytes += part.nbytes + len(part) * _HASHED_ROW_BYTES
                if held_bytes >= _SLICE_BYTES:
                    yield WantedRows(pa.concat_tables(held), self._columns)
                    held, held_bytes = [], 0
        if held:
            yield WantedRows(pa.concat_tables(held), self._columns)

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
            storage=self._storage,
        ) as file:
            positions = file.live_positions() if rows.positions is None else rows.positions
            positions = np.setdiff1d(positions, rows.already, assume_unique=True)
            for group, _ in file.row_groups_of(positions):
                self.budget.spend(file.row_group_stored_bytes(group))
            yield from file.read_rows(positions, max_bytes=_PART_BYTES)

    def take(self, wanted: WantedRows) -> int:
        """Take wanted rows from the outputs; return the checksum of those that were found.

        Raises:
            ReconcileLimitError: If too many bytes would have to be read.
            DataFileError: If an output cannot be read exactly.
            ResultMismatchError: If rows are not equal whose hashes are.
        """
        checksum = 0
        sought = SoughtRows.of(wanted.rows, self._leaves)
        for number in np.flatnonzero(sought.admitted(self._bounds)).tolist():
            if not wanted.missing:
                break
            try:
                checksum = add_checksums(checksum, self._take_from(number, wanted, sought))
            except UnequalRowsError:
                problem = f"{self._outputs[number].file.path} has other rows of the same checksum"
                raise ResultMismatchError((problem,)) from None
        return checksum

    def _take_from(self, number: int, wanted: WantedRows, sought: SoughtRows) -> int:
        output, before = self._outputs[number], self._deleted[number]
        checksum = 0
        found: list[Positions] = []
        with DataFile.open(
            output.address,
            schema=self._layout.file_schema,
            mapping=self._layout.mapping,
            storage=self._storage,
            size_bytes=output.file.size_bytes,
        ) as file:
            if file.num_rows != output.file.num_records:
                detail = f"has {file.num_rows} rows, its writer says {output.file.num_records}"
                raise DataFileError(output.address, detail)
            groups = read_row_groups(
                file.parquet,
                schema=self._layout.schema,
                mapping=self._layout.mapping,
                wanted=self._leaves,
            )
            starts = np.cumsum([0, *groups.bounds.num_records.to_pylist()])
            for group in np.flatnonzero(sought.admitted(groups.bounds)).tolist():
                if not wanted.missing:
                    break
                span = int(starts[group]), int(starts[group + 1])
                open_rows = _RowGroup(file, group, span, before)
                for taken in self._taken(open_rows, wanted):
                    checksum = add_checksums(checksum, taken.checksum)
                    found.append(taken.rows.astype(np.uint64) + np.uint64(span[0]))
        # A stable sort merges what is sorted in parts.
        self._deleted[number] = np.sort(np.concatenate([before, *found]), kind="stable")
        return checksum

    def _taken(self, group: "_RowGroup", wanted: WantedRows) -> Iterator[Taken]:
        """Yield what is taken of one row group; rows are numbered from its first one."""
        may_be = group.is_live()
        costs = [group.file.stored_bytes(group.number, part) for part in (self._columns, None)]
        if self._columns and costs[0] * _WORTH_A_LOOK <= costs[1]:
            self.budget.spend(costs[0])
            may_be &= np.concatenate([wanted.may_be(part) for part in group.read(self._columns)])
        if not may_be.any():
            return
        self.budget.spend(costs[1])
        start = 0
        for part in group.read(None):
            rows = np.flatnonzero(may_be[start : start + len(part)])
            taken = wanted.take(part.take(integer_array(rows)))
            yield Taken(rows[taken.rows] + start, taken.checksum)
            start += len(part)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group of an open output; `span` are its physical rows, `deleted` those of the file."""

    file: DataFile
    number: int
    span: tuple[int, int]
    deleted: Positions

    def is_live(self) -> npt.NDArray[np.bool_]:
        """Return which of its rows are not deleted."""
        start, stop = self.span
        live = np.ones(stop - start, np.bool_)
        first, last = np.searchsorted(self.deleted, np.array(self.span, np.uint64)).tolist()
        live[self.deleted[first:last] - np.uint64(start)] = False
        return live

    def read(self, columns: Sequence[Path] | None) -> Iterator[pa.Table]:
        """Yield its rows, deleted ones too, so many at a time as take `_PART_BYTES` in memory."""
        yield from self.file.read_bounded(columns, self.number, max_bytes=_PART_BYTES)


def _bounded_leaves(layout: FileLayout) -> tuple[Leaf, ...]:
    """Return the leaves by which outputs are left out: clustering columns, else some others."""
    found = {leaf.physical: leaf for leaf in leaves(layout.schema)}
    paths = layout.columns or layout.options.indexed
    bounded = [found[path] for path in paths if path in found]
    return tuple(leaf for leaf in bounded if has_bounds(leaf.data_type))[:_MOST_LEAVES]


def _first_columns(layout: FileLayout, bounded: Sequence[Leaf]) -> tuple[Path, ...]:
    """Return the columns that are read first: the row id, which no other row has, or the leaves."""
    tracking = layout.row_tracking
    if tracking is not None and tracking.preserved:
        return ((tracking.row_id_column,),)
    return tuple(leaf.physical for leaf in bounded)
