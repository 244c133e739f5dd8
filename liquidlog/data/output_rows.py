"""The files that a rewrite wrote, and the search of one of them for rows.

The request says all that the search needs, so that it can run in another process as it does here.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.grid import Ids, range_ids
from liquidlog.data.checksum import Lane, Lanes, lanes_checksum, row_lanes, same_bits
from liquidlog.data.encodings import integer_array
from liquidlog.data.reader import DataFile
from liquidlog.data.row_group_bounds import read_row_group_bounds
from liquidlog.errors import DataFileError, ReconcileLimitError, ResultMismatchError
from liquidlog.plan import (
    ClusteringPlan,
    RowTracking,
    Tasks,
    WriterOptions,
    WrittenFile,
    file_schema,
)
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.bounds import Bounds, ColumnBounds, has_bounds
from liquidlog.spec.deletion_vectors import Positions
from liquidlog.spec.schema import Leaf, MappingMode, Path, StructType, leaves
from liquidlog.storage.options import StorageOptions

# Rows that are looked for in files: a multiset, from which each row that is found is taken.
#
# Files and row groups whose bounds admit none of them are left out.

_HASH_BITS: Final = 64
_SPARE_BITS: Final = 4
"""With these, one in 16 of the hashes that are no members begins as a member does."""
_MOST_BITS: Final = 26

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Taken(NamedTuple):
    """Rows that were found, and the wanted rows that they equal: their numbers, (n,) int64 each.

    Those of the rows that were found increase.
    """

    rows: Rows
    wanted: Rows


class UnequalRowsError(ValueError):
    """Rows with the same two hashes are not equal, which is not by chance."""


class WantedRows:
    """Rows to find; `missing` counts those of `rows` that were not found yet. Mutable."""

    def __init__(self, rows: pa.Table, columns: Sequence[Path]) -> None:
        """Look for rows; equal ones are wanted as often as they occur.

        `columns` can be asked for first.
        """
        self.rows = rows
        first, second = lanes = row_lanes(rows)
        self.checksum = lanes_checksum(lanes)
        self.missing = len(rows)
        self._order = np.lexsort((second, first))
        first, second = first[self._order], second[self._order]
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        self._starts = np.flatnonzero(begins)
        self._counts = np.diff(np.append(self._starts, len(rows)))
        self._require_equal(begins)
        self._kind_of = np.empty(len(rows), np.int64)
        self._kind_of[self._order] = np.cumsum(begins) - 1
        self._used = np.zeros(len(self._starts), np.int64)
        self._first, self._second = first[begins], second[begins]
        self._tries = int(_occurrences(self._first).max(initial=-1)) + 1
        self._keys = _Members(_first_lane([leaf_column(rows, path) for path in columns]))

    def may_be(self, columns: pa.Table) -> Mask:
        """Return which of n rows have the values of a wanted row in the columns asked for first."""
        return self._keys.among(_first_lane(columns.columns))

    def take(self, rows: pa.Table) -> Taken:
        """Take the rows that are wanted, the first of equal ones, from what is missing."""
        lanes = row_lanes(rows)
        kinds = self._kinds(lanes)
        known = np.flatnonzero(kinds >= 0)
        kinds = kinds[known]
        ordinals = self._used[kinds] + _occurrences(kinds)
        wanted = ordinals < self._counts[kinds]
        found, kinds = known[wanted], kinds[wanted]
        partners = self._order[self._starts[kinds] + ordinals[wanted]]
        if not same_bits(_taken(rows, found), _taken(self.rows, partners)):
            raise UnequalRowsError
        self._use(kinds)
        return Taken(found, partners)

    def is_missing(self, wanted: Rows) -> Mask:
        """Return of which wanted rows, by their numbers, one or an equal one is not found yet."""
        kinds = self._kind_of[wanted]
        return self._used[kinds] < self._counts[kinds]

    def take_equal(self, wanted: Rows) -> Mask:
        """Take rows, the first of equal ones, from what is missing; return which were taken."""
        kinds = self._kind_of[wanted]
        found: Mask = self._used[kinds] + _occurrences(kinds) < self._counts[kinds]
        self._use(kinds[found])
        return found

    def _use(self, kinds: Rows) -> None:
        np.add.at(self._used, kinds, 1)
        self.missing -= len(kinds)

    def _require_equal(self, begins: Mask) -> None:
        """Refuse rows of the same hashes that are not equal: any of them may stand for another."""
        again = np.flatnonzero(~begins)
        before, after = self._order[again - 1], self._order[again]
        if not same_bits(_taken(self.rows, before), _taken(self.rows, after)):
            raise UnequalRowsError

    def _kinds(self, lanes: Lanes) -> Rows:
        first, second = lanes
        kinds = np.full(len(first), -1, np.int64)
        places = np.searchsorted(self._first, first)
        last = len(self._first) - 1
        for step in range(self._tries):
            at = np.minimum(places + step, last)
            same = (self._first[at] == first) & (self._second[at] == second)
            kinds[same] = at[same]
        return kinds


def _first_lane(columns: Sequence[pa.ChunkedArray]) -> Lane:
    names = [str(number) for number in range(len(columns))]
    return row_lanes(pa.table(list(columns), names))[0]


class _Members:
    """A set of hashes. Bits of them say of most others, from little memory, that they are none."""

    def __init__(self, hashes: Lane) -> None:
        self._sorted = np.unique(hashes)
        bits = min(len(self._sorted).bit_length() + _SPARE_BITS, _MOST_BITS)
        self._shift = np.uint64(_HASH_BITS - bits)
        self._begins = np.zeros(1 << bits, np.bool_)
        self._begins[self._sorted >> self._shift] = True

    def among(self, hashes: Lane) -> Mask:
        """Return which of n hashes are members, (n,) bool."""
        found: Mask = self._begins[hashes >> self._shift]
        suspects = np.flatnonzero(found)
        if len(suspects):
            places = np.searchsorted(self._sorted, hashes[suspects])
            places = np.minimum(places, len(self._sorted) - 1)
            found[suspects] = self._sorted[places] == hashes[suspects]
        return found


def _occurrences(kinds: Rows | Lane) -> Rows:
    order = np.argsort(kinds, kind="stable")
    ordered = kinds[order]
    begins = np.ones(len(kinds), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(begins)
    counts = np.diff(np.append(starts, len(kinds)))
    found = np.empty(len(kinds), np.int64)
    found[order] = np.arange(len(kinds)) - np.repeat(starts, counts)
    return found


def _taken(table: pa.Table, rows: Rows) -> pa.Table:
    return table.take(integer_array(rows))


class SoughtRows:
    """The values that rows have in some columns; asks of bounds whether they admit any row.

    Whatever holds one of the rows is admitted. A little more is: a value between the end of one box
    and the start of the next counts as in both.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        """Use `of`; this does not check anything."""
        self._columns = columns

    @classmethod
    def of(cls, rows: pa.Table, leaves: Sequence[Leaf]) -> Self:
        """Return the values of rows, whose columns have physical names, in leaves with bounds."""
        return cls([_flat(leaf_column(rows, leaf.physical)) for leaf in leaves])

    def admitted(self, bounds: Bounds) -> Mask:
        """Return which of n files or row groups may hold one of the rows, (n,) bool.

        An end that is not known admits every value.
        """
        if not self._columns:
            return np.ones(len(bounds), np.bool_)
        return np.array([len(rows) > 0 for rows in self.rows_within(bounds)], np.bool_)

    def rows_within(self, bounds: Bounds) -> Iterator[Rows]:
        """Yield for each file or row group the numbers of the rows that it may hold; not sorted."""
        axes = [_Axis(*pair) for pair in zip(self._columns, bounds.columns, strict=True)]
        by_first = np.argsort(axes[0].ids, kind="stable")
        ordered = axes[0].ids[by_first].astype(np.int64)
        for number in range(len(bounds)):
            low, high = axes[0].span(number)
            edges = np.searchsorted(ordered, np.array([1, low, high + 1], np.int64)).tolist()
            nulls = by_first[: edges[0] if axes[0].may_be_null[number] else 0]
            rows = np.concatenate([nulls, by_first[edges[1] : edges[2]]])
            for axis in axes[1:]:
                rows = rows[axis.admits(rows, number)]
            yield rows


class _Axis:
    """One column: range ids of the rows' values, 0 for null, between the ends of all boxes."""

    def __init__(self, values: pa.Array, bounds: ColumnBounds) -> None:
        low, high = _plain_zero(bounds.low), _with_nan(_plain_zero(bounds.high))
        edges = pa.concat_arrays([low, high]).drop_null()
        edges = pc.unique(edges.take(pc.sort_indices(edges)))
        self.ids: Ids = range_ids(values, edges)
        # An end that is null has range id 0: nothing is below it, and nothing above counts.
        self._low = np.maximum(range_ids(low, edges).astype(np.int64), 1)
        highs = range_ids(high, edges).astype(np.int64)
        self._high = np.where(highs == 0, len(edges) + 1, highs)
        none_null = pc.fill_null(pc.equal(bounds.null_count, 0), fill_value=False)
        self.may_be_null: Mask = ~np.asarray(none_null, np.bool_)

    def span(self, number: int) -> tuple[int, int]:
        return int(self._low[number]), int(self._high[number])

    def admits(self, rows: Rows, number: int) -> Mask:
        ids = self.ids[rows]
        low, high = self.span(number)
        inside = (ids >= low) & (ids <= high)
        return inside | (ids == 0) if self.may_be_null[number] else inside


def _flat(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    flat = pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
    return flat.dictionary_decode() if isinstance(flat, pa.DictionaryArray) else flat


def _plain_zero(ends: pa.Array) -> pa.Array:
    """Return ends with one zero: range ids count both as equal, but sort them as they come."""
    return pc.add(ends, pa.scalar(0.0, ends.type)) if pa.types.is_floating(ends.type) else ends


def _with_nan(highs: pa.Array) -> pa.Array:
    """Return upper ends, NaN for infinity: footers leave NaN out, and their ends stand for it."""
    if not pa.types.is_floating(highs.type):
        return highs
    infinite = pc.equal(highs, pa.scalar(float("inf"), highs.type))
    return pc.if_else(infinite, pa.scalar(float("nan"), highs.type), highs)


# How much may be read here to find rows, and who reads what is more: the tasks of an executor.

PARALLEL_FILES: Final = 4
"""Files that are read here beside each other: each takes memory for a part of its rows."""

_TASKS_READ: Final = 3
"""With tasks, at most so many times the bytes of the files are read, as a search and its proof may
take: what takes more would better be rewritten."""

Spend = Callable[[int], None]
"""Called with the bytes that are about to be read; raises ReconcileLimitError if they are many."""

Request = TypeVar("Request")


class Read(Protocol):
    """What a function returns that reads a file."""

    @property
    def bytes_read(self) -> int:
        """Bytes of the column chunks that were read."""
        ...


Answer = TypeVar("Answer", bound=Read)


class ReadBudget:
    """Bytes that were read, here and by tasks; mutable, used by several threads.

    Whatever might exceed the limit of this process is read by `tasks`, up to a limit of their own.
    Without tasks it is refused.
    """

    def __init__(self, limit_bytes: int, tasks: Tasks | None, tasks_limit_bytes: int) -> None:
        """Count from 0."""
        self.spent_bytes = 0
        self._here_bytes = limit_bytes
        self._tasks = tasks
        self._limit_bytes = limit_bytes if tasks is None else max(limit_bytes, tasks_limit_bytes)
        self._lock = Lock()

    @classmethod
    def of(cls, size_bytes: int, limit_bytes: int, tasks: Tasks | None) -> Self:
        """Return the budget of a search in files that have `size_bytes` in all."""
        return cls(limit_bytes, tasks, limit_bytes + _TASKS_READ * size_bytes)

    @property
    def has_tasks(self) -> bool:
        """Whether tasks may have to read."""
        return self._tasks is not None

    def spend(self, size_bytes: int) -> None:
        """Count bytes that are about to be read."""
        with self._lock:
            needed_bytes = self.spent_bytes + size_bytes
            if needed_bytes > self._limit_bytes:
                raise ReconcileLimitError(needed_bytes, self._limit_bytes)
            self.spent_bytes = needed_bytes

    def tasks_for(self, most_bytes: int) -> Tasks | None:
        """Return the tasks if so many bytes more are too many for this process, else None."""
        return self._tasks if self.spent_bytes + most_bytes > self._here_bytes else None

    def read(
        self,
        function: Callable[[Request, Spend], Answer],
        requests: Sequence[Request],
        tasks: Tasks | None,
    ) -> Sequence[Answer]:
        """Return what a function returns for each request: in tasks, or in a few threads here."""
        if tasks is None:
            with ThreadPoolExecutor(PARALLEL_FILES) as pool:
                return list(pool.map(partial(_call, function, self.spend), requests))
        answers: Sequence[Answer] = tasks(partial(_call, function, _allow), requests)
        self.spend(sum(answer.bytes_read for answer in answers))
        return answers


def _call(function: Callable[[Request, Spend], Answer], spend: Spend, request: Request) -> Answer:
    return function(request, spend)


def _allow(_: int) -> None:
    """Allow any number of bytes: what tasks have read is counted when they are done."""


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
        self._columns = _first_columns(search.layout)
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


def _first_columns(layout: FileLayout) -> tuple[Path, ...]:
    tracking = layout.row_tracking
    if tracking is not None and tracking.preserved:
        return ((tracking.row_id_column,),)
    return tuple(leaf.physical for leaf in bounded_leaves(layout))
