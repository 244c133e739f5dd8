"""Finds rows in the outputs of a rewrite that other commits deleted while the rewrite ran.

The deleted rows are read from the inputs by position. Then equal rows, bit by bit and with row ids
if there are any, are searched in the outputs. Any equal row will do; each is taken at most once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.curves import Ids, range_ids
from liquidlog.data.encodings import (
    Lane,
    Lanes,
    add_checksums,
    decoded,
    integer_array,
    lanes_checksum,
    multiset_checksum,
    row_lanes,
    same_bits,
    subtract_checksums,
)
from liquidlog.data.reader import DataFile, DataLayout, Located, LogicalFile, is_live
from liquidlog.data.runs import Run
from liquidlog.data.writer import DataFileWriter, read_row_group_bounds
from liquidlog.errors import (
    DataFileError,
    ReconcileLimitError,
    ResultMismatchError,
    RowsNotFoundError,
)
from liquidlog.plan import ClusteringPlan, InputFile, Tasks, WriterOptions, WrittenFile, file_schema
from liquidlog.spec.actions import Positions
from liquidlog.spec.arrow import leaf_column, one_array
from liquidlog.spec.bounds import Bounds, ColumnBounds, has_bounds, parse_bounds
from liquidlog.spec.schema import Leaf, Path, StructType, leaves
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Taken(NamedTuple):
    """Numbers of the rows found, increasing, and numbers of the wanted rows that equal them."""

    rows: Rows
    wanted: Rows


class WantedRows:
    """A multiset of rows to find; `missing` counts the rows not found yet. Mutable."""

    def __init__(
        self, rows: pa.Table, columns: Sequence[Path], where: str = "what others deleted"
    ) -> None:
        """Look for rows, equal ones as often as they occur; `columns` are tested first."""
        self.rows, self._where = rows, where
        first, second = lanes = row_lanes(rows)
        self.checksum = lanes_checksum(lanes)
        self.missing = len(rows)
        self._order = np.lexsort((second, first))
        first, second = first[self._order], second[self._order]
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        self._starts = np.flatnonzero(begins)
        self._counts = np.diff(np.append(self._starts, len(rows)))
        again = np.flatnonzero(~begins)
        self._require_equal(rows, self._order[again - 1], self._order[again])
        self._kind_of = np.empty(len(rows), np.int64)
        self._kind_of[self._order] = np.cumsum(begins) - 1
        self._used = np.zeros(len(self._starts), np.int64)
        self._first, self._second = first[begins], second[begins]
        self._tries = int(_occurrences(self._first).max(initial=-1)) + 1
        self._keys = _first_lane([leaf_column(rows, path) for path in columns])

    def may_be(self, columns: pa.Table) -> Mask:
        """Return which of n rows have the values of a wanted row in the tested columns."""
        return np.isin(_first_lane(columns.columns), self._keys)

    def take(self, rows: pa.Table) -> Taken:
        """Take the wanted rows found in `rows`, the first of equal ones, from the missing ones."""
        lanes = row_lanes(rows)
        kinds = self._kinds(lanes)
        known = np.flatnonzero(kinds >= 0)
        kinds = kinds[known]
        ordinals = self._used[kinds] + _occurrences(kinds)
        wanted = ordinals < self._counts[kinds]
        found, kinds = known[wanted], kinds[wanted]
        partners = self._order[self._starts[kinds] + ordinals[wanted]]
        self._require_equal(rows, found, partners)
        self._use(kinds)
        return Taken(found, partners)

    def is_missing(self, wanted: Rows) -> Mask:
        """Return which wanted rows, by number, are missing or equal a missing row."""
        kinds = self._kind_of[wanted]
        return self._used[kinds] < self._counts[kinds]

    def take_equal(self, wanted: Rows) -> Mask:
        """Take wanted rows, the first of equal ones, from the missing; return which were taken."""
        kinds = self._kind_of[wanted]
        found: Mask = self._used[kinds] + _occurrences(kinds) < self._counts[kinds]
        self._use(kinds[found])
        return found

    def _require_equal(self, table: pa.Table, rows: Rows, partners: Rows) -> None:
        """Refuse unequal rows with the same two hashes, which cannot happen by chance."""
        found, wanted = table.take(integer_array(rows)), self.rows.take(integer_array(partners))
        if not same_bits(found, wanted):
            problem = f"{self._where} has other rows of the same checksum"
            raise ResultMismatchError((problem,))

    def _use(self, kinds: Rows) -> None:
        np.add.at(self._used, kinds, 1)
        self.missing -= len(kinds)

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


class SoughtRows:
    """The values of rows in some columns, compared with the bounds of files and row groups."""

    def __init__(self, rows: pa.Table, leaves: Sequence[Leaf]) -> None:
        """Take the values of rows, whose columns have physical names, in leaves with bounds."""
        plain = decoded(rows)
        self._columns = [one_array(leaf_column(plain, leaf.physical)) for leaf in leaves]

    def admitted(self, bounds: Bounds) -> Mask:
        """Return which of n files or row groups may hold one of the rows, (n,) bool."""
        if not self._columns:
            return np.ones(len(bounds), np.bool_)
        return np.array([len(rows) > 0 for rows in self.rows_within(bounds)], np.bool_)

    def rows_within(self, bounds: Bounds) -> Iterator[Rows]:
        """Yield for each file or row group the numbers, unsorted, of the rows that it may hold."""
        axes = [_Axis(*pair) for pair in zip(self._columns, bounds.columns, strict=True)]
        by_first = np.argsort(axes[0].ids, kind="stable")
        ordered = axes[0].ids[by_first].astype(np.int64)
        for number in range(len(bounds)):
            low, high = axes[0].lows[number], axes[0].highs[number]
            edges = np.searchsorted(ordered, np.array([1, low, high + 1], np.int64)).tolist()
            nulls = by_first[: edges[0] if axes[0].may_be_null[number] else 0]
            rows = np.concatenate([nulls, by_first[edges[1] : edges[2]]])
            for axis in axes[1:]:
                ids = axis.ids[rows]
                inside = (ids >= axis.lows[number]) & (ids <= axis.highs[number])
                rows = rows[inside | ((ids == 0) & axis.may_be_null[number])]
            yield rows


class _Axis:
    """One column: range ids of the rows' values, 0 for null, between the ends of all boxes."""

    def __init__(self, values: pa.Array, bounds: ColumnBounds) -> None:
        low, high = _comparable(bounds)
        edges = pa.concat_arrays([low, high]).drop_null()
        edges = pc.unique(edges.take(pc.sort_indices(edges)))
        self.ids: Ids = range_ids(values, edges)
        # An end that is null has range id 0, and excludes nothing.
        highs = range_ids(high, edges).astype(np.int64)
        self.lows: list[int] = np.maximum(range_ids(low, edges), 1).tolist()
        self.highs: list[int] = np.where(highs == 0, len(edges) + 1, highs).tolist()
        none_null = pc.fill_null(pc.equal(bounds.null_count, 0), fill_value=False)
        self.may_be_null: Mask = ~np.asarray(none_null, np.bool_)


def _comparable(bounds: ColumnBounds) -> tuple[pa.Array, pa.Array]:
    """Return ends with one zero and, because footers leave NaN out, NaN for upper infinity."""
    kind = bounds.low.type
    if not pa.types.is_floating(kind):
        return bounds.low, bounds.high
    # Range ids count both zeros as equal, but sort them apart.
    low, high = (pc.add(end, pa.scalar(0.0, kind)) for end in (bounds.low, bounds.high))
    infinite = pc.equal(high, pa.scalar(float("inf"), kind))
    return low, pc.if_else(infinite, pa.scalar(float("nan"), kind), high)


PARALLEL_FILES: Final = 4
"""Files read in parallel in this process: each needs memory for a part of its rows."""
_TASKS_READ: Final = 3
"""Tasks read at most this many times the files' bytes: enough for a search and its proof."""

Spend = Callable[[int], None]
"""Called before bytes are read; raises ReconcileLimitError if they are too many."""

Answer = TypeVar("Answer", "OutputRows", "ProvedRows")


class ReadBudget:
    """Counts bytes read in this process and, beyond its limit, by `tasks`. Mutable."""

    def __init__(self, size_bytes: int, limit_bytes: int, tasks: Tasks | None) -> None:
        """Count from 0; all files together have `size_bytes`."""
        self.tasks = tasks
        self.spent_bytes = 0
        self._here_bytes = limit_bytes
        self._limit_bytes = limit_bytes + (0 if tasks is None else _TASKS_READ * size_bytes)
        self._lock = Lock()

    def spend(self, size_bytes: int) -> None:
        with self._lock:
            needed_bytes = self.spent_bytes + size_bytes
            if needed_bytes > self._limit_bytes:
                raise ReconcileLimitError(needed_bytes, self._limit_bytes)
            self.spent_bytes = needed_bytes

    def tasks_for(self, most_bytes: int) -> Tasks | None:
        """Return the tasks if this process may not read so many more bytes, else None."""
        return self.tasks if self.spent_bytes + most_bytes > self._here_bytes else None

    def read(
        self,
        function: "Callable[[Spend, OutputRequest], Answer]",
        requests: "Sequence[OutputRequest]",
        tasks: Tasks | None,
    ) -> Sequence[Answer]:
        """Return what a function returns for each request: in tasks, or in a few threads here."""
        if tasks is None:
            with ThreadPoolExecutor(PARALLEL_FILES) as pool:
                return list(pool.map(partial(function, self.spend), requests))
        answers: Sequence[Answer] = tasks(partial(function, _allow), requests)
        self.spend(sum(answer.bytes_read for answer in answers))
        return answers


def _allow(_: int) -> None:
    """Allow any number of bytes: bytes that tasks read are counted afterwards."""


PART_BYTES: Final = 64 << 20
"""Memory of the rows of a file that are read together."""
_MOST_LEAVES: Final = 4
"""Most columns whose bounds exclude files and row groups."""
_WORTH_A_LOOK: Final = 2
"""Tested columns are read first if all columns together have this many times their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout(DataLayout):
    """How the data files of a rewrite are read and written; no `columns` for a compaction."""

    columns: tuple[Path, ...]
    options: WriterOptions

    @classmethod
    def of(cls, plan: ClusteringPlan) -> Self:
        return cls(
            schema=plan.data_schema,
            mapping=plan.mapping_mode,
            row_tracking=plan.row_tracking,
            columns=tuple(column.physical for column in plan.columns),
            options=plan.writer_options,
            partition_columns=plan.partitioned_by,
            constant_columns=plan.constant_columns,
        )

    @property
    def file_schema(self) -> StructType:
        """The columns of data files: the table's, then the hidden columns of row tracking."""
        return file_schema(self.schema, self.row_tracking)

    @property
    def bounded_leaves(self) -> tuple[Leaf, ...]:
        """The leaves whose bounds exclude outputs: clustering columns, else some others."""
        found = {leaf.physical: leaf for leaf in leaves(self.schema)}
        paths = self.columns or self.options.indexed
        bounded = [found[path] for path in paths if path in found]
        return tuple(leaf for leaf in bounded if has_bounds(leaf.data_type))[:_MOST_LEAVES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A file that the rewrite wrote; earlier attempts `deleted` physical rows of it."""

    address: str
    file: WrittenFile
    deleted: Positions

    def opened(
        self, layout: FileLayout, storage: StorageOptions, *, dictionary: bool = False
    ) -> DataFile:
        """Return the file opened; with `dictionary`, columns stay encoded."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRequest:
    """An output, and the rows to look for (a table) or to read (physical positions)."""

    output: Output
    rows: pa.Table | Positions
    layout: FileLayout
    storage: StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRows:
    """Physical rows found in an output, increasing, and numbers of the wanted rows they equal."""

    positions: Positions
    wanted: Rows
    bytes_read: int


def search_output(spend: Spend, request: OutputRequest) -> OutputRows:
    """Return the rows of an output that equal wanted rows; each is found at most once."""
    return _OpenSearch(spend, request).found()


class _OpenSearch:
    def __init__(self, spend: Spend, request: OutputRequest) -> None:
        self._request, self._spend = request, spend
        self._bytes_read = 0
        # Columns to look at before all are read.
        tracking = request.layout.row_tracking
        self._columns = tuple(leaf.physical for leaf in request.layout.bounded_leaves)
        if tracking is not None and tracking.preserved:
            self._columns = ((tracking.row_id_column,),)
        where = request.output.file.path
        self._wanted = WantedRows(request.rows, self._columns, where)

    def found(self) -> OutputRows:
        layout = self._request.layout
        sought = SoughtRows(self._request.rows, layout.bounded_leaves)
        positions: list[Positions] = [np.empty(0, np.uint64)]
        wanted: list[Rows] = [np.empty(0, np.int64)]
        with self._request.output.opened(layout, self._request.storage) as file:
            bounds = read_row_group_bounds(
                file.parquet,
                schema=layout.schema,
                mapping=layout.mapping,
                wanted=layout.bounded_leaves,
            )
            starts = np.cumsum([0, *bounds.num_records.to_pylist()])
            for group in np.flatnonzero(sought.admitted(bounds)).tolist():
                if not self._wanted.missing:
                    break
                for taken in self._taken(file, group, int(starts[group])):
                    positions.append(taken.rows.astype(np.uint64))
                    wanted.append(taken.wanted)
        return OutputRows(
            positions=np.concatenate(positions),
            wanted=np.concatenate(wanted),
            bytes_read=self._bytes_read,
        )

    def _read(
        self, file: DataFile, columns: Sequence[Path] | None, group: int
    ) -> Iterator[pa.Table]:
        size_bytes = file.stored_bytes(group, columns)
        self._spend(size_bytes)
        self._bytes_read += size_bytes
        return file.read_bounded(columns, group, max_bytes=PART_BYTES)

    def _taken(self, file: DataFile, group: int, start: int) -> Iterator[Taken]:
        """Yield the rows found in a row group; `start` is its first physical row."""
        rows = file.row_group_rows(group)
        may_be = is_live((start, start + rows), self._request.output.deleted)
        few, all_of = (file.stored_bytes(group, columns) for columns in (self._columns, None))
        if self._columns and few * _WORTH_A_LOOK <= all_of:
            looked_at = self._read(file, self._columns, group)
            may_be &= np.concatenate([self._wanted.may_be(part) for part in looked_at])
        if not may_be.any():
            return
        begin = 0
        for part in self._read(file, None, group):
            places = np.flatnonzero(may_be[begin : begin + len(part)])
            taken = self._wanted.take(part.take(integer_array(places)))
            yield Taken(places[taken.rows] + begin + start, taken.wanted)
            begin += len(part)


_SLICE_BYTES: Final = 256 << 20
"""Memory of the deleted rows that are looked for together, with their hashes."""
_HASHED_ROW_BYTES: Final = 128
"""Memory of a row besides its values: hashes, places in their order, range ids."""
_SENT_BYTES: Final = 64 << 20
"""Memory of the rows that are searched in several outputs at the same time, and of slices that
tasks search, because the driver of an executor may have little memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """Rows of one input that winners deleted; earlier attempts reconciled the rows `already`.

    `source` has the planned vector. `positions` None stands for all other rows live in the plan.
    """

    address: str
    source: InputFile
    vector_location: str | None
    positions: Positions | None
    already: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """Physical rows to delete, per output, and the `checksum` that they must have."""

    positions: tuple[Positions, ...]
    rows: int
    bytes_read: int
    checksum: int


def _stored_bytes(outputs: Iterable[Output]) -> int:
    return sum(output.file.size_bytes for output in outputs)


def find_rows(
    deleted: Sequence[DeletedRows],
    outputs: Sequence[Output],
    *,
    layout: FileLayout,
    limit_bytes: int,
    tasks: Tasks | None = None,
    storage: StorageOptions = NO_OPTIONS,
) -> FoundRows:
    """Return rows of the outputs that equal the deleted rows; needs less than 1 GiB of memory."""
    size_bytes = _stored_bytes(outputs) + sum(rows.source.size_bytes for rows in deleted)
    search = _Search(outputs, layout, storage, ReadBudget(size_bytes, limit_bytes, tasks))
    checksum = rows = 0
    for wanted in search.slices(deleted):
        rows += wanted.missing
        search.take(wanted)
        if wanted.missing:
            raise RowsNotFoundError(rows, wanted.missing)
        checksum = add_checksums(checksum, wanted.checksum)
    return FoundRows(
        positions=search.found(), rows=rows, bytes_read=search.budget.spent_bytes, checksum=checksum
    )


class _Search:
    """The outputs, and the rows found in them so far; mutable."""

    def __init__(
        self,
        outputs: Sequence[Output],
        layout: FileLayout,
        storage: StorageOptions,
        budget: ReadBudget,
    ) -> None:
        self.budget = budget
        self._outputs, self._layout, self._storage = outputs, layout, storage
        stats = pa.array([output.file.stats for output in outputs], pa.string())
        self._bounds = parse_bounds(stats, layout.bounded_leaves)
        self._deleted = [output.deleted for output in outputs]

    def found(self) -> tuple[Positions, ...]:
        pairs = zip(self._deleted, self._outputs, strict=True)
        return tuple(np.setdiff1d(now, one.deleted, assume_unique=True) for now, one in pairs)

    def slices(self, deleted: Sequence[DeletedRows]) -> Iterator[WantedRows]:
        """Yield the deleted rows in slices that fit in memory, or one part of an input each."""
        most_bytes = _SLICE_BYTES if self.budget.tasks is None else _SENT_BYTES
        held: list[pa.Table] = []
        held_bytes = 0
        for rows in deleted:
            for part in self._deleted_parts(rows):
                held.append(part)
                held_bytes += part.nbytes + len(part) * _HASHED_ROW_BYTES
                if held_bytes >= most_bytes:
                    yield WantedRows(pa.concat_tables(held), ())
                    held, held_bytes = [], 0
        if held:
            yield WantedRows(pa.concat_tables(held), ())

    def _deleted_parts(self, rows: DeletedRows) -> Iterator[pa.Table]:
        if rows.positions is not None and not len(rows.positions):
            return
        located = Located(rows.source, rows.address, rows.vector_location)
        with LogicalFile.open(located, self._layout, storage=self._storage) as file:
            positions = file.live_positions() if rows.positions is None else rows.positions
            positions = np.setdiff1d(positions, rows.already, assume_unique=True)
            for group in file.row_groups_of(positions):
                self.budget.spend(file.file.row_group_stored_bytes(group))
            yield from file.read_rows(positions, max_bytes=PART_BYTES)

    def take(self, wanted: WantedRows) -> None:
        leaves, everything = self._layout.bounded_leaves, np.arange(len(wanted.rows))
        admitted = [(number, everything) for number in range(len(self._outputs))]
        if leaves:
            within = enumerate(SoughtRows(wanted.rows, leaves).rows_within(self._bounds))
            admitted = [(number, np.sort(rows)) for number, rows in within if len(rows)]
        size_bytes = _stored_bytes(self._outputs[number] for number, _ in admitted)
        tasks = self.budget.tasks_for(size_bytes)
        storage = self._storage if tasks is None else self._storage.fresh()
        for some in self._together(admitted, wanted, storage, tasks):
            answers = self.budget.read(search_output, [request for *_, request in some], tasks)
            for (number, rows, _), answer in zip(some, answers, strict=True):
                taken = answer.positions[wanted.take_equal(rows[answer.wanted])]
                # A stable sort merges sorted parts.
                together = np.concatenate([self._deleted[number], taken])
                self._deleted[number] = np.sort(together, kind="stable")

    def _together(
        self,
        admitted: Sequence[tuple[int, Rows]],
        wanted: WantedRows,
        storage: StorageOptions,
        tasks: Tasks | None,
    ) -> Iterator[list[tuple[int, Rows, OutputRequest]]]:
        """Yield outputs to search at the same time, with the numbers of the rows still missing."""
        some: list[tuple[int, Rows, OutputRequest]] = []
        for number, all_rows in admitted:
            rows = all_rows[wanted.is_missing(all_rows)]
            if not len(rows):
                continue
            request = OutputRequest(
                output=replace(self._outputs[number], deleted=self._deleted[number]),
                rows=wanted.rows.take(integer_array(rows)),
                layout=self._layout,
                storage=storage,
            )
            some.append((number, rows, request))
            sent_bytes = sum(one.rows.nbytes for *_, one in some)
            is_full = tasks is None and len(some) == PARALLEL_FILES
            if is_full or sent_bytes >= _SENT_BYTES:
                yield some
                some = []
        if some:
            yield some


# A search may give wrong positions, so the rows at these positions are read again as the proof.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedRows:
    """Physical rows that were read from one output, increasing, and their checksum."""

    positions: Positions
    checksum: int = 0
    bytes_read: int = 0


def require_found(
    outputs: Sequence[Output],
    found: FoundRows,
    *,
    layout: FileLayout,
    limit_bytes: int,
    tasks: Tasks | None = None,
    storage: StorageOptions = NO_OPTIONS,
) -> tuple[ProvedRows, ...]:
    """Read the rows at the positions found, check their checksum, and return them per output."""
    named = [pair for pair in zip(outputs, found.positions, strict=True) if len(pair[1])]
    budget = ReadBudget(_stored_bytes(outputs), limit_bytes, tasks)
    readers = budget.tasks_for(_stored_bytes(output for output, _ in named))
    sent = storage if readers is None else storage.fresh()
    requests = [
        OutputRequest(output=output, rows=rows, layout=layout, storage=sent)
        for output, rows in named
    ]
    answers = budget.read(rows_at, requests, readers)
    is_right = add_checksums(*(rows.checksum for rows in answers)) == found.checksum
    rows = sum(len(np.unique(rows.positions)) for rows in answers)
    twice = any(
        np.isin(rows.positions, output.deleted).any()
        for rows, (output, _) in zip(answers, named, strict=True)
    )
    if twice or not is_right or rows != found.rows:
        problem = "the rows found in outputs are not the rows that other commits deleted"
        raise ResultMismatchError((problem,))
    left = iter(answers)
    return tuple(
        next(left) if len(rows) else ProvedRows(positions=rows) for rows in found.positions
    )


def rows_at(spend: Spend, request: OutputRequest) -> ProvedRows:
    """Return rows of an output, at least one; only the row groups that hold them are read."""
    positions = request.rows
    checksum = bytes_read = start = 0
    with request.output.opened(request.layout, request.storage) as file:
        if positions[-1] >= file.num_rows:
            raise DataFileError(request.output.address, f"has no row {positions[-1]}")
        for group in range(file.num_row_groups):
            stop = start + file.row_group_rows(group)
            if is_live((start, stop), positions).all():
                start = stop
                continue
            size_bytes = file.row_group_stored_bytes(group)
            spend(size_bytes)
            bytes_read += size_bytes
            for part in file.read_bounded(None, group, max_bytes=PART_BYTES):
                named = ~is_live((start, start + len(part)), positions)
                checksum = add_checksums(checksum, multiset_checksum(part.filter(named)))
                start += len(part)
    return ProvedRows(positions=positions, checksum=checksum, bytes_read=bytes_read)


def write_without(
    run: Run,
    output: Output,
    deleted: ProvedRows,
    *,
    layout: FileLayout,
    unique_id: str,
    storage: StorageOptions = NO_OPTIONS,
) -> WrittenFile:
    """Write a copy of an output without the deleted rows, prove it, and return its facts.

    This is for tables without deletion vectors.
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
        with output.opened(layout, storage, dictionary=True) as file:
            expected = _copy(file, gone, deleted, writer)
        written = writer.finish(name)
    with run.accepting(name):
        copy = Output(address=address, file=written, deleted=np.empty(0, np.uint64))
        with copy.opened(layout, storage, dictionary=True) as file:
            found = add_checksums(*map(multiset_checksum, file.parts(max_bytes=PART_BYTES)))
        if found != expected:
            raise ResultMismatchError((f"{written.path} does not hold the rows that it should",))
    return written


def _copy(file: DataFile, gone: Positions, deleted: ProvedRows, writer: DataFileWriter) -> int:
    """Write the rows that are not gone; return the checksum that they should have."""
    whole = left_out = proved = start = 0
    for part in file.parts(max_bytes=PART_BYTES):
        span = start, start + len(part)
        stays = is_live(span, gone)
        whole = add_checksums(whole, multiset_checksum(part))
        left_out = add_checksums(left_out, multiset_checksum(part.filter(~stays)))
        new = part.filter(~is_live(span, deleted.positions))
        proved = add_checksums(proved, multiset_checksum(new))
        writer.write(part.filter(stays))
        start = span[1]
    if proved != deleted.checksum:
        problem = f"the rows to leave out of {file.path} are not the rows that were found"
        raise ResultMismatchError((problem,))
    return subtract_checksums(whole, left_out)
