"""The files that a rewrite wrote, and the search of one of them for rows.

The request says all that the search needs, so that it can run in another process as it does here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.data.buffers import integer_array
from liquidlog.data.reader import DataFile
from liquidlog.data.row_group_bounds import read_row_group_bounds
from liquidlog.data.wanted_rows import Rows, SoughtRows, Taken, UnequalRowsError, WantedRows
from liquidlog.errors import DataFileError, ResultMismatchError
from liquidlog.plan import ClusteringPlan, RowTracking, WriterOptions, WrittenFile, file_schema
from liquidlog.spec.bounds import has_bounds
from liquidlog.spec.deletion_vectors import Positions
from liquidlog.spec.schema import Leaf, MappingMode, Path, StructType, leaves
from liquidlog.storage.options import StorageOptions

PART_BYTES: Final = 64 << 20
"""Rows of a file that are read together take about this in memory."""

_MOST_LEAVES: Final = 4
"""Columns by whose bounds files and row groups are left out, at most."""

_WORTH_A_LOOK: Final = 2
"""A few columns are read first if all columns take at least so many times their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """How the data files of a rewrite are to be read and written; all paths are physical.

    `schema` has the table's columns that files hold. `columns` are the clustering columns, in
    order; none for a compaction. `partition_columns` may be in inputs and are not read;
    `former_partition_columns` are columns of `schema` whose values inputs have in the log.
    """

    schema: StructType
    mapping: MappingMode
    row_tracking: RowTracking | None
    columns: tuple[Path, ...]
    options: WriterOptions
    partition_columns: tuple[str, ...] = ()
    former_partition_columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: ClusteringPlan) -> Self:
        """Return the layout of a plan's files."""
        return cls(
            schema=plan.data_schema,
            mapping=plan.mapping_mode,
            row_tracking=plan.row_tracking,
            columns=tuple(column.physical for column in plan.columns),
            options=plan.writer_options,
            partition_columns=plan.partitioned_by,
            former_partition_columns=plan.formerly_partitioned_by,
        )

    @property
    def file_schema(self) -> StructType:
        """The columns of data files: the table's, then the hidden ones that rows keep."""
        return file_schema(self.schema, self.row_tracking)


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

    def opened(
        self, layout: FileLayout, storage: StorageOptions, *, dictionary: bool = False
    ) -> DataFile:
        """Return the file opened; with `dictionary`, its dictionaries are kept as they are."""
        found = DataFile.open(
            self.address,
            schema=layout.file_schema,
            mapping=layout.mapping,
            dictionary=dictionary,
            storage=storage,
            size_bytes=self.file.size_bytes,
        )
        if found.num_rows != self.file.num_records:
            found.close()
            detail = f"has {found.num_rows} rows, its writer says {self.file.num_records}"
            raise DataFileError(self.address, detail)
        return found


def stored_bytes(outputs: Sequence[Output]) -> int:
    """Return the size of outputs, as stored."""
    return sum(output.file.size_bytes for output in outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSearch:
    """Which rows to look for in an output; those that its `deleted` say are not found any more."""

    output: Output
    rows: pa.Table
    layout: FileLayout
    storage: StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRows:
    """What was found in an output, and the bytes of the column chunks that were read for it.

    Attributes:
        positions: Physical rows, (n,) uint64, increasing: of each kind of equal rows the first, as
            many as were looked for, or all that there are.
        wanted: The number of a row that was looked for and that each of them equals, (n,) int64.
    """

    positions: Positions
    wanted: Rows
    bytes_read: int


def search_output(search: OutputSearch, spend: Callable[[int], None]) -> OutputRows:
    """Return the rows of an output that equal the rows looked for; each is found at most once.

    `spend` is called with the bytes of column chunks before they are read; it may raise.
    """
    try:
        return _OpenSearch(search, spend).found()
    except UnequalRowsError:
        problem = f"{search.output.file.path} has other rows of the same checksum"
        raise ResultMismatchError((problem,)) from None


class _OpenSearch:
    """A search that goes on: what is still looked for, and the bytes that were read; mutable."""

    def __init__(self, search: OutputSearch, spend: Callable[[int], None]) -> None:
        self._search = search
        self._spend = spend
        self._bytes_read = 0
        self._leaves = bounded_leaves(search.layout)
        self._columns = first_columns(search.layout)
        self._wanted = WantedRows(search.rows, self._columns)

    def found(self) -> OutputRows:
        search, layout = self._search, self._search.layout
        sought = SoughtRows.of(search.rows, self._leaves)
        positions: list[Positions] = [np.empty(0, np.uint64)]
        wanted: list[Rows] = [np.empty(0, np.int64)]
        with search.output.opened(layout, search.storage) as file:
            bounds = read_row_group_bounds(
                file.parquet, schema=layout.schema, mapping=layout.mapping, wanted=self._leaves
            )
            starts = np.cumsum([0, *bounds.num_records.to_pylist()])
            for group in np.flatnonzero(sought.admitted(bounds)).tolist():
                if not self._wanted.missing:
                    break
                span = int(starts[group]), int(starts[group + 1])
                for taken in self._taken(_RowGroup(file, group, span, search.output.deleted)):
                    positions.append(taken.rows.astype(np.uint64) + np.uint64(span[0]))
                    wanted.append(taken.wanted)
        return OutputRows(
            positions=np.concatenate(positions),
            wanted=np.concatenate(wanted),
            bytes_read=self._bytes_read,
        )

    def _read(self, size_bytes: int) -> None:
        self._spend(size_bytes)
        self._bytes_read += size_bytes

    def _taken(self, group: "_RowGroup") -> Iterator[Taken]:
        wanted, may_be = self._wanted, group.is_live()
        costs = [group.file.stored_bytes(group.number, part) for part in (self._columns, None)]
        if self._columns and costs[0] * _WORTH_A_LOOK <= costs[1]:
            self._read(costs[0])
            may_be &= np.concatenate([wanted.may_be(part) for part in group.read(self._columns)])
        if not may_be.any():
            return
        self._read(costs[1])
        start = 0
        for part in group.read(None):
            rows = np.flatnonzero(may_be[start : start + len(part)])
            taken = wanted.take(part.take(integer_array(rows)))
            yield Taken(rows[taken.rows] + start, taken.wanted)
            start += len(part)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    file: DataFile
    number: int
    span: tuple[int, int]
    deleted: Positions

    def is_live(self) -> npt.NDArray[np.bool_]:
        start, stop = self.span
        live = np.ones(stop - start, np.bool_)
        first, last = np.searchsorted(self.deleted, np.array(self.span, np.uint64)).tolist()
        live[self.deleted[first:last] - np.uint64(start)] = False
        return live

    def read(self, columns: Sequence[Path] | None) -> Iterator[pa.Table]:
        yield from self.file.read_bounded(columns, self.number, max_bytes=PART_BYTES)


def bounded_leaves(layout: FileLayout) -> tuple[Leaf, ...]:
    """Return the leaves by which outputs are left out: clustering columns, else some others."""
    found = {leaf.physical: leaf for leaf in leaves(layout.schema)}
    paths = layout.columns or layout.options.indexed
    bounded = [found[path] for path in paths if path in found]
    return tuple(leaf for leaf in bounded if has_bounds(leaf.data_type))[:_MOST_LEAVES]


def first_columns(layout: FileLayout) -> tuple[Path, ...]:
    """Return the columns that are read first: the row id, which no other row has, or the leaves."""
    tracking = layout.row_tracking
    if tracking is not None and tracking.preserved:
        return ((tracking.row_id_column,),)
    return tuple(leaf.physical for leaf in bounded_leaves(layout))
