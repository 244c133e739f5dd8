"""The documents between planner, executor and commit: plans and results of rewrites and writes.

A plan lists the files to rewrite together and everything that an executor needs; a result lists the
written files with facts about them. Neither contains a secret; both can be saved, reviewed, shipped
and replayed. Sizes are bytes and times milliseconds since the epoch, unless a name says otherwise.
A plan may name a million files, so it has them in Arrow columns, which take a quarter of the memory
of structs.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from operator import eq
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, overload

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import inspect
from numpy.typing import NDArray

from liquidlog.errors import DocumentError
from liquidlog.spec.actions import UNREADABLE, DeletionVector
from liquidlog.spec.arrow import PartitionTexts, data_schema, json_texts
from liquidlog.spec.features import TableTerms
from liquidlog.spec.schema import (
    NESTED_IDS,
    MappingMode,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
)
from liquidlog.spec.text import Summary

if TYPE_CHECKING:
    from liquidlog.curve.curves import ValuePredicates


_BATCH_FILES: Final = 8_192


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all structs in a document."""


class SkipReason(StrEnum):
    """Why a live file is not rewritten."""

    STABLE_CUBE = "stable_cube"
    OTHER_COLUMNS = "other_columns"
    OTHER_PROVIDER = "other_provider"
    LONE_CUBE = "lone_cube"
    LARGE_ENOUGH = "large_enough"
    LONE_FILE = "lone_file"
    WELL_CLUSTERED = "well_clustered"
    OVER_BUDGET = "over_budget"
    NOT_ASKED_FOR = "not_asked_for"


class PlannedDeletionVector(Document, frozen=True, kw_only=True, gc=False):
    """The deletion vector of an input, as described in the log."""

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    size_bytes: int
    cardinality: int

    @property
    def descriptor(self) -> DeletionVector:
        return DeletionVector(
            storage_type=self.storage_type,
            path_or_inline_dv=self.path_or_inline_dv,
            offset=self.offset,
            size_in_bytes=self.size_bytes,
            cardinality=self.cardinality,
        )


class InputFile(Document, frozen=True, kw_only=True, gc=False):
    """A data file to rewrite; `path` is decoded, relative to the table or absolute.

    `num_records` counts physical rows, also deleted ones. `partition_values`, by physical names as
    the log spells them, become values of the rows; absent unless partition columns become data.
    """

    path: str
    size_bytes: int
    num_records: int | None = None
    deletion_vector: PlannedDeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    partition_values: dict[str, str | None] | msgspec.UnsetType = msgspec.UNSET


class KeptFile(Document, frozen=True, kw_only=True, gc=False):
    """A data file that joins the cube of its group unchanged; the tags are those of the plan."""

    path: str
    size_bytes: int
    num_records: int
    zcube_id: str | None = None
    zorder_by: str | None = None


class SkippedFile(Document, frozen=True, kw_only=True, gc=False):
    """A live file that is not rewritten, and the reason."""

    path: str
    size_bytes: int
    reason: SkipReason


FileT = TypeVar("FileT", InputFile, KeptFile, SkippedFile)


def _columns(struct: inspect.Type) -> list[tuple[str, pa.DataType]]:
    assert isinstance(struct, inspect.StructType)  # noqa: S101
    return [(one.name, _arrow_type(one.type)) for one in struct.fields]


def _arrow_type(kind: inspect.Type) -> pa.DataType:
    match kind:
        case inspect.UnionType(types=(of_value, _)):  # and None
            return _arrow_type(of_value)
        case inspect.StructType():
            return pa.struct(_columns(kind))
        case inspect.DictType():
            return pa.map_(pa.string(), pa.string())
        case inspect.EnumType():
            return pa.dictionary(pa.int8(), pa.string())
        case _:
            return pa.int64() if isinstance(kind, inspect.IntType) else pa.string()


class _Files(Sequence[FileT]):
    """An immutable sequence of files, kept in columns with the names of the struct's fields."""

    schema: ClassVar[pa.Schema]
    _struct: type[FileT]
    _may_be_absent: ClassVar[tuple[str, ...]] = ()

    __slots__ = ("columns",)

    def __init__(self, columns: pa.Table) -> None:
        self.columns = columns

    @classmethod
    def of(cls, files: Iterable[FileT] = ()) -> Self:
        rows, tables = map(msgspec.to_builtins, files), [cls.schema.empty_table()]
        try:
            while some := list(islice(rows, _BATCH_FILES)):
                tables.append(pa.Table.from_pylist(some, cls.schema))
        except OverflowError as error:
            raise ValueError(str(error)) from error
        return cls(pa.concat_tables(tables).combine_chunks())

    @classmethod
    def from_document(cls, rows: object) -> Self:
        try:
            return cls.of(msgspec.convert(rows, list[cls._struct]))  # type: ignore[name-defined]
        except msgspec.ValidationError as error:
            # msgspec adds the place in the document to a ValueError, but not to its own error.
            raise ValueError(str(error)) from error

    @property
    def size_bytes(self) -> int:
        return int(pc.sum(self.columns["size_bytes"]).as_py() or 0)

    def named(self, path: str | None) -> Self:
        if path is None:
            return self
        return type(self)(self.columns.filter(pc.equal(self.columns["path"], path)))

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    @overload
    def __getitem__(self, position: int) -> FileT: ...
    @overload
    def __getitem__(self, position: slice) -> Self: ...
    def __getitem__(self, position: int | slice) -> FileT | Self:
        rows = range(len(self))[position]
        if isinstance(rows, int):
            return next(iter(type(self)(self.columns.slice(rows, 1))))
        if rows.step == 1:
            return type(self)(self.columns.slice(rows.start, len(rows)))
        return type(self)(self.columns.take(pa.array(rows, pa.int64())))

    def lines(self, start: bytes) -> Iterator[bytes]:
        between = b"," + start
        head = start
        for batch in self._batches():
            texts = json_texts(batch.to_struct_array()).cast("binary").to_pylist()
            yield head + between.join(texts)
            head = between

    def __iter__(self) -> Iterator[FileT]:
        for batch in self._batches():
            rows = batch.to_pylist(maps_as_pydicts="strict")
            yield from msgspec.convert(rows, list[self._struct])  # type: ignore[name-defined]

    def _batches(self) -> list[pa.RecordBatch]:
        absent = (n for n in self._may_be_absent if self.columns[n].null_count == len(self))
        batches = self.columns.drop_columns(list(absent)).to_batches(max_chunksize=_BATCH_FILES)
        return list(batches)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash((len(self), self.size_bytes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} files, {self.size_bytes} bytes)"


def live_rows(num_records: pa.ChunkedArray, vectors: pa.ChunkedArray) -> int | None:
    """Return the rows of files without deleted ones, None if the row count of one is unknown."""
    if num_records.null_count:
        return None
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
    return int(pc.sum(num_records).as_py() or 0) - int(deleted)


class InputFiles(_Files[InputFile]):
    """Data files to rewrite, in reading order."""

    schema = pa.schema(_columns(inspect.type_info(InputFile)))
    _struct = InputFile
    _may_be_absent = ("partition_values",)

    __slots__ = ()

    @property
    def live_rows(self) -> int | None:
        return live_rows(self.columns["num_records"], self.columns["deletion_vector"])

    def all_of(self, values: PartitionTexts) -> "InputFiles":
        kind = self.schema.field("partition_values").type
        return self.with_partition_values(pa.array([list(values.items())] * len(self), kind))

    def with_partition_values(self, values: pa.Array) -> "InputFiles":
        """Return the files with these partition values: a map for each, from names to texts."""
        place = self.schema.get_field_index("partition_values")
        return InputFiles(self.columns.set_column(place, self.schema.field(place), values))

    def have_values_of(self, columns: AbstractSet[str]) -> bool:
        """Return whether the files have partition values of these columns and no others."""
        values = self.columns["partition_values"]
        if not columns:
            return bool(values.null_count == len(self))
        found = values.to_pylist(maps_as_pydicts="strict")
        return all(one is not None and one.keys() == columns for one in found)


class KeptFiles(_Files[KeptFile]):
    """Data files that keep their bytes, in the order of the group's inputs."""

    schema = pa.schema(_columns(inspect.type_info(KeptFile)))
    _struct = KeptFile

    __slots__ = ()

    def paths(self) -> list[str]:
        paths: list[str] = self.columns["path"].to_pylist()
        return paths


class SkippedFiles(_Files[SkippedFile]):
    """Live files that are not rewritten."""

    schema = pa.schema(_columns(inspect.type_info(SkippedFile)))
    _struct = SkippedFile

    __slots__ = ()


NONE_KEPT: Final = KeptFiles(pa.Table.from_batches([], KeptFiles.schema))


class RewriteGroup(Document, frozen=True, kw_only=True, omit_defaults=True):
    """Files to rewrite and commit together, usually as one cube.

    `expected_outputs` may be exceeded with a prefix or a workload. In a partitioned table, all
    files have the group's `partition_values`, by physical names; outputs go to `directory`.
    """

    group_id: int
    zcube_id: str | None
    inputs: InputFiles
    expected_outputs: int
    kept: KeptFiles = NONE_KEPT
    partition_values: dict[str, str | None] = {}
    directory: str = ""

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories besides the table's own that outputs are written to: one, or none."""
        return (self.directory,) if self.directory else ()

    @property
    def size_bytes(self) -> int:
        return self.inputs.size_bytes

    @property
    def live_rows(self) -> int | None:
        return self.inputs.live_rows


def repeated_inputs(groups: Iterable[RewriteGroup]) -> tuple[str, ...]:
    """Return the paths that groups list more than once, sorted; their rows would be doubled."""
    files = [files.columns["path"] for group in groups for files in (group.inputs, group.kept)]
    chunks = [chunk for paths in files for chunk in paths.chunks]
    counts = pc.value_counts(pa.chunked_array(chunks, pa.string()))
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    return tuple(sorted(repeated.field("values").to_pylist()))


def repeated_message(paths: Sequence[str]) -> str:
    """Return the clause for an error about inputs that a plan lists more than once."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"lists the input {paths[0]}{more} more than once: its rows would be doubled; plan again"


PLAN_ID_TAG: Final = "liquidlog.planId"
GROUP_ID_TAG: Final = "liquidlog.groupId"
GROUP_IDS_TAG: Final = "liquidlog.groupIds"
"""Tags of commitInfo by which a run of a plan recognises the groups already committed.

A commit of several groups names the first as if it were alone, for older readers, then all.
"""


def group_tags(group_ids: Sequence[int]) -> dict[str, str]:
    """Return the tags of a commit of these groups, at least one."""
    tags = {GROUP_ID_TAG: str(group_ids[0])}
    if len(group_ids) > 1:
        tags[GROUP_IDS_TAG] = ",".join(map(str, group_ids))
    return tags


def tagged_groups(tags: Mapping[str, str], plan_id: str) -> frozenset[int]:
    if tags.get(PLAN_ID_TAG) != plan_id:
        return frozenset()
    return frozenset(map(int, tags.get(GROUP_IDS_TAG, tags[GROUP_ID_TAG]).split(",")))


# The documents: plan and result of a rewrite and of a write, and the plan of a read

Progress = Callable[[int, float], None]
"""Called with (group id, share of the group that is done, 0 to 1), from the caller's thread."""

Cancelled = Callable[[], Mapping[int, str]]
"""Returns why groups can no longer be committed, by id; an executor calls it now and then."""

Tasks = Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]]
"""(function, requests) -> the function's values for the requests, in their order.

The function is called on an executor's machines, so all three can be pickled. Our own errors, such
as of a file that cannot be read, become an ExecutorError with their message.
"""


class WrittenFile(Document, frozen=True, kw_only=True):
    """A data file written by an executor; `path` is relative, `stats` the JSON of the protocol."""

    path: str
    size_bytes: int
    modification_time_ms: int
    num_records: int
    stats: str


class GroupCosts(Document, frozen=True, kw_only=True):
    """The time of a rewrite per phase, and the bytes that it moved.

    Seconds are sums over all tasks; `sample_seconds` are elapsed. `map` cuts rows into slices,
    `shuffle` waits for slices, `write` sorts rows and writes files, `verify` takes checksums.
    """

    sample_seconds: float = 0.0
    map_seconds: float = 0.0
    shuffle_seconds: float = 0.0
    write_seconds: float = 0.0
    verify_seconds: float = 0.0
    read_bytes: int = 0
    shuffled_bytes: int = 0
    written_bytes: int = 0


# The predicates of queries in a plan: weighted boxes over its columns
#
# Constants are texts in the column's own type: numbers in decimal notation, dates as
# 2026-01-31, timestamps as microseconds since the epoch. The planner has converted them as
# Spark compares them, so that an executor needs no SQL.


class Interval(Document, frozen=True, kw_only=True, omit_defaults=True):
    """Values from `low` to `high`, unbounded where None; an open end is not part of it."""

    low: str | None = None
    high: str | None = None
    open_low: bool = False
    open_high: bool = False


class Term(Document, frozen=True, kw_only=True):
    """A condition on one clustering column, by its number: its value is in one of the intervals."""

    column: int
    intervals: tuple[Interval, ...]


class AskedPredicate(Document, frozen=True, kw_only=True):
    """A predicate: all terms of one of its alternatives hold; `weight` is its share."""

    weight: float
    any_of: tuple[tuple[Term, ...], ...]


class LeftOut(Document, frozen=True, kw_only=True):
    """Predicates that the layout cannot be fitted to; `share` is their share of all weights."""

    reason: str
    predicates: int
    share: float


class FittedWorkload(Document, frozen=True, kw_only=True):
    """The predicates that a layout is fitted to, and weights of single values per column."""

    predicates: tuple[AskedPredicate, ...] = ()
    column_weights: tuple[float, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def has_queries(self) -> bool:
        return bool(self.predicates) or any(weight > 0 for weight in self.column_weights)

    def conditions(self, kinds: Sequence[pa.DataType]) -> "ValuePredicates":
        from liquidlog.curve.curves import IntervalEnds, ValuePredicates

        alternatives = [one for predicate in self.predicates for one in predicate.any_of]
        terms = [term for alternative in alternatives for term in alternative]
        parts = [predicate.any_of for predicate in self.predicates]
        intervals = [term.intervals for term in terms]
        if not all([*parts, *alternatives, *intervals]):
            raise ValueError("a predicate has no term, or a term has no interval")
        if not all(0 <= term.column < len(kinds) for term in terms):
            raise ValueError(f"a term names a column beyond {len(kinds)}")
        lows, highs = [], []
        for number, kind in enumerate(kinds):
            own = [one for term in terms if term.column == number for one in term.intervals]
            open_low = np.array([one.open_low for one in own], np.bool_)
            open_high = np.array([one.open_high for one in own], np.bool_)
            lows.append(IntervalEnds(parsed_as(kind, [one.low for one in own]), open_low))
            highs.append(IntervalEnds(parsed_as(kind, [one.high for one in own]), open_high))
        return ValuePredicates(
            axes=np.array([term.column for term in terms for _ in term.intervals], np.int64),
            lows=tuple(lows),
            highs=tuple(highs),
            terms=_starts(intervals),
            alternatives=_starts(alternatives),
            predicates=_starts(parts),
            weights=np.array([predicate.weight for predicate in self.predicates], np.float64),
            column_weights=self._column_weights(len(kinds)),
        )

    def _column_weights(self, columns: int) -> NDArray[np.float64]:
        for predicate in self.predicates:
            if not 0 < predicate.weight < float("inf"):
                raise ValueError(f"a predicate has the weight {predicate.weight}")
        if len(self.column_weights) not in {0, columns}:
            raise ValueError(f"{len(self.column_weights)} weights of columns for {columns} columns")
        return np.array(self.column_weights or (0.0,) * columns, np.float64)


def _starts(parts: Sequence[Sequence[object]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)])[:-1]


def parsed_as(kind: pa.DataType, texts: Sequence[str | None]) -> pa.Array:
    """Return constants as values of a column's Arrow type, null where None."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array(texts, kind)
    parse: Callable[[str], object] = int
    stored = kind
    if pa.types.is_floating(kind):
        parse = float
    elif pa.types.is_decimal(kind):
        parse = Decimal
    elif pa.types.is_date(kind):
        parse = dt.date.fromisoformat
    elif pa.types.is_timestamp(kind):
        stored = pa.int64()
    try:
        found = pa.array([None if text is None else parse(text) for text in texts], stored)
    except (ArithmeticError, pa.ArrowException) as error:
        raise ValueError(f"a constant is no value of type {kind}: {error}") from error
    return found if stored == kind else found.cast(pa.timestamp("us")).cast(kind)


def prefix_numbers(
    prefix: Sequence[tuple[str, ...]], columns: Sequence[tuple[str, ...]]
) -> tuple[int, ...]:
    numbers = {path: number for number, path in enumerate(columns)}
    if not numbers.keys() >= set(prefix):
        raise DocumentError("the plan", "has a prefix of other columns than it orders by")
    return tuple(numbers[path] for path in prefix)


def weighted_columns(weights: Sequence[float]) -> FittedWorkload:
    """Return a workload of queries for single values of each column, with its weight."""
    total = sum(weights)
    if not all(0 <= weight < float("inf") for weight in weights) or not total > 0:
        raise ValueError(f"weights must be numbers from 0, not all of them 0, found {weights}")
    return FittedWorkload(column_weights=tuple(weight / total for weight in weights))


# Plan and result of a rewrite

FORMAT_VERSION: Final = 1
PARTITIONED_FORMAT_VERSION: Final = 2
"""Plans of partitioned tables; releases that ignore partition values must not run them."""
MIGRATING_FORMAT_VERSION: Final = 3
"""Plans that turn partition columns into data; older releases would write nulls for them."""
FULLER_FORMAT_VERSION: Final = 4
"""Plans whose outputs hold partition columns too, or field ids inside arrays and maps; older
releases write neither."""
RESULT_FORMAT_VERSION: Final = 2
"""Results of version 1 name no run, so whether their files may be committed is not known."""
GIB: Final = 1 << 30
DEFAULT_MIN_CUBE_BYTES: Final = 100 * GIB
"""Cubes of at least this logical size are stable. Source: design document, MIN_CUBE_SIZE."""
DEFAULT_ROW_GROUP_ROWS: Final = 8_000_000
"""The most rows of a row group; it also has a limit of bytes, see `data.writer`."""
MIN_ROW_GROUP_ROWS: Final = 1_000
"""Row groups of fewer rows would be little but descriptions of their columns."""
OPTION: Final = "option"
"""In `ClusteringPlan.decided_by`: the caller gave the setting."""
_KD_PAYS_FROM_FILES: Final = 8


class RewriteMode(StrEnum):
    """The layout of a rewrite: the reference engine's three modes of OPTIMIZE."""

    CLUSTERING = "clustering"
    ZORDER = "zorder"
    COMPACTION = "compaction"


class ClusteringPolicy(Document, frozen=True, kw_only=True):
    """The settings of a plan, see `clustering.settings`; all sizes are bytes.

    Cubes are packed up to `target_cube_bytes`. `tolerance` limits the bytes that narrow predicates
    read, as a multiple of those after a full rewrite. `compression` is None for the table's
    property. `prefix`, `row_group_rows` and `partition_time_zone` are absent from the document by
    default. Source of defaults: design document, TARGET_CUBE_SIZE; Delta Spark,
    optimize.maxFileSize; Microsoft Fabric, autoRecluster.minOffendingFiles and minOverlapThreshold.
    """

    min_cube_bytes: int = DEFAULT_MIN_CUBE_BYTES
    target_cube_bytes: int = 150 * GIB
    max_file_bytes: int = GIB
    full: bool = False
    curve: str = "hilbert"
    zorder_by: tuple[tuple[str, ...], ...] = ()
    tolerance: float = 1.27
    min_overlapping_files: int = 4
    min_overlap: float = 0.75
    budget_bytes: int | None = None
    where: str | None = None
    compression: str | None = None
    skip_clustered: bool = False
    bloom_filter: tuple[tuple[str, ...], ...] = ()
    prefix: tuple[tuple[str, ...], ...] | msgspec.UnsetType = msgspec.UNSET
    partition_time_zone: str | msgspec.UnsetType = msgspec.UNSET
    row_group_rows: int | msgspec.UnsetType = msgspec.UNSET


class PlannedColumn(Document, frozen=True, kw_only=True):
    """A clustering column: its logical and its physical path."""

    logical: tuple[str, ...]
    physical: tuple[str, ...]


class RowTracking(Document, frozen=True, kw_only=True):
    """The hidden columns of data files for row ids; only if `preserved`, a rewrite copies them."""

    row_id_column: str
    row_commit_version_column: str
    preserved: bool


class WriterOptions(Document, frozen=True, kw_only=True):
    """How to write data files of the table; derived from its properties.

    `indexed` are the physical paths of leaves with statistics; with `tight_bounds`, statistics
    declare their bounds exact. `bloom_filters` are the physical paths of leaves with Bloom filters,
    the most useful first. With `holds_partitions`, files have the partition columns too, after all
    other columns.
    """

    indexed: tuple[tuple[str, ...], ...]
    string_prefix_chars: int = 32
    compression: str = "zstd"
    tight_bounds: bool = False
    bloom_filters: tuple[tuple[str, ...], ...] = ()
    row_group_rows: int | msgspec.UnsetType = msgspec.UNSET
    holds_partitions: bool | msgspec.UnsetType = msgspec.UNSET


class ClusteringPlan(Summary, Document, frozen=True, kw_only=True):
    """The rewrite of one version of a table; every file considered is in a group or skipped.

    `schema_string` is the table's schema in the protocol's JSON. `columns` are the curve's
    dimensions, in order; empty for compaction. `row_tracking` is None if data files have no hidden
    columns. `fitted` is the workload for the layout. Outputs are written for the table's `terms`;
    without them, a commit can follow no change of metadata. `partition_columns` are physical names,
    in the table's order. `former_partition_columns` become data: the inputs have their values, and
    all groups of such a plan are one commit. The document omits empty ones, and an empty `fitted`.

    `decided_by` maps fields of the policy (or "strategy") that do not have their defaults to OPTION
    or the name of the table's property. `notes` are sentences for people. The executor uses
    neither.
    """

    format_version: int = FORMAT_VERSION
    plan_id: str
    table_uri: str
    table_id: str
    read_version: int
    strategy: str
    mode: RewriteMode
    policy: ClusteringPolicy
    columns: tuple[PlannedColumn, ...]
    schema_string: str
    mapping_mode: MappingMode = MappingMode.NONE
    writer_options: WriterOptions
    row_tracking: RowTracking | None = None
    groups: tuple[RewriteGroup, ...]
    skipped: SkippedFiles
    decided_by: dict[str, str] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fitted: FittedWorkload | msgspec.UnsetType = msgspec.UNSET
    terms: TableTerms | msgspec.UnsetType = msgspec.UNSET
    partition_columns: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    former_partition_columns: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    table_location: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def location(self) -> str:
        """The directory of the table's files, which the document has where a catalog chose it."""
        return self.table_location or self.table_uri

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        return self.partition_columns or ()

    @property
    def formerly_partitioned_by(self) -> tuple[str, ...]:
        return self.former_partition_columns or ()

    @property
    def constant_columns(self) -> tuple[str, ...]:
        """The physical names of the columns that outputs hold and whose values the inputs have."""
        held = self.partitioned_by if self.writer_options.holds_partitions else ()
        return self.formerly_partitioned_by or held

    @property
    def is_migration(self) -> bool:
        """Whether its commit turns a partitioned table into a clustered one."""
        return bool(self.formerly_partitioned_by)

    @property
    def data_schema(self) -> StructType:
        schema, options = parse_schema(self.schema_string, where="the plan"), self.writer_options
        held = bool(options.holds_partitions)
        return data_schema(schema, self.partitioned_by, holds_partitions=held)

    @property
    def size_bytes(self) -> int:
        return sum(group.size_bytes for group in self.groups)

    @property
    def live_rows(self) -> int | None:
        rows = [group.live_rows for group in self.groups]
        return None if None in rows else sum(count for count in rows if count is not None)

    @property
    def curve(self) -> str:
        """The curve along which the executor sorts; a single column is always sorted linearly."""
        if self.mode is RewriteMode.ZORDER:
            return "zorder" if len(self.columns) > 1 else "linear"
        return self.policy.curve if len(self.columns) > 1 else "linear"

    @property
    def prefix(self) -> tuple[int, ...]:
        """The numbers of the columns whose values part the rows first."""
        return prefix_numbers(self.policy.prefix or (), [column.logical for column in self.columns])

    @property
    def readers(self) -> FittedWorkload | None:
        """The workload that the layout is fitted to, None if it has no query."""
        return self.fitted if self.fitted and self.fitted.has_queries else None

    @property
    def kd_would_be_narrower(self) -> bool:
        """Whether kd would write narrower files than the plan's Hilbert curve (docs/curves.md)."""
        # Documents are read without the kernels of curves.
        from liquidlog.curve.layouts import MAX_FITTED_DIMENSIONS

        outputs = sum(group.expected_outputs for group in self.groups)
        is_fitted = len(self.columns) <= MAX_FITTED_DIMENSIONS
        return self.curve == "hilbert" and not is_fitted and outputs >= _KD_PAYS_FROM_FILES

    def _facts(self) -> Mapping[str, object]:
        return {
            "table_uri": self.table_uri,
            "read_version": self.read_version,
            "strategy": self.strategy,
            "mode": self.mode,
            "columns": tuple(".".join(column.logical) for column in self.columns),
            "groups": len(self.groups),
            "files": sum(len(group.inputs) for group in self.groups),
            "size_bytes": self.size_bytes,
            "skipped_files": len(self.skipped),
        }

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        return ("group_id", "zcube_id", "files", "size_bytes", "expected_outputs"), [
            (g.group_id, g.zcube_id, len(g.inputs), g.size_bytes, g.expected_outputs)
            for g in self.groups
        ]


class RewrittenGroup(Document, frozen=True, kw_only=True):
    """Facts about a finished group, one line of a result document.

    Checksums are 32 hex digits, equal for equal multisets. `run` is the token of the run that wrote
    the outputs, part of their names (see `data.runs`). `read_back` is false if the outputs were not
    read back to prove them, else absent. `partition_values` are the plan's, absent if the table is
    not partitioned.
    """

    format_version: int = RESULT_FORMAT_VERSION
    plan_id: str
    group_id: int
    run: str
    outputs: tuple[WrittenFile, ...]
    rows_read: int
    rows_written: int
    checksum_read: str
    checksum_written: str
    seconds: float
    costs: GroupCosts = GroupCosts()
    read_back: bool | msgspec.UnsetType = msgspec.UNSET
    partition_values: dict[str, str | None] | msgspec.UnsetType = msgspec.UNSET


class GroupFailure(Document, frozen=True, kw_only=True):
    """A group that could not be rewritten; `reason` is one sentence. No output of it is kept."""

    group_id: int
    reason: str
    cancelled: bool = False


Outcome = RewrittenGroup | GroupFailure


class RewriteResult(Summary, Document, frozen=True, kw_only=True):
    """The finished groups of a plan."""

    plan_id: str
    groups: tuple[RewrittenGroup, ...]

    def _facts(self) -> Mapping[str, object]:
        outputs = [file for group in self.groups for file in group.outputs]
        return {
            "plan_id": self.plan_id,
            "groups": len(self.groups),
            "files": len(outputs),
            "size_bytes": sum(file.size_bytes for file in outputs),
            "rows_written": sum(group.rows_written for group in self.groups),
        }

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        return ("group_id", "files", "rows_written", "seconds"), [
            (g.group_id, len(g.outputs), g.rows_written, g.seconds) for g in self.groups
        ]


def file_schema(schema: StructType, row_tracking: RowTracking | None) -> StructType:
    """Return the columns of data files: the table's, then the preserved hidden columns."""
    if row_tracking is None or not row_tracking.preserved:
        return schema
    names = row_tracking.row_id_column, row_tracking.row_commit_version_column
    return StructType(
        (*schema.fields, *(StructField(name, PrimitiveType("long")) for name in names))
    )


# Plan and result of a write of rows that come from outside


class ColumnSource(Document, frozen=True, kw_only=True):
    """The source of the column `name`: a column of the data, or an SQL expression."""

    name: str
    column: str | None = None
    expression: str | None = None


class RowCheck(Document, frozen=True, kw_only=True):
    """An SQL condition on a table's columns that must be true of every row; `what` names it."""

    what: str
    expression: str


class WritePlan(Document, frozen=True, kw_only=True):
    """What to write into a table, planned at `read_version`; ids are UUIDs, sizes bytes.

    `schema_string` is the schema that the table will have. Rows are placed along `curve` by
    `columns` and become the cube `zcube_id`; without columns they are written in the order in which
    they arrive. `row_bytes` is about the size of a stored row. If rows are replaced, `where` is
    true of them: the files `removed` (paths as in the log) have no other rows; the files
    `rewritten`, with values in `rewritten_partitions`, have rows that stay. `partition_columns` are
    physical names; `directory_settings` are for `partitions.output_directory`.
    """

    write_id: str
    table_uri: str
    table_id: str
    read_version: int
    schema_string: str
    mapping_mode: MappingMode = MappingMode.NONE
    columns: tuple[PlannedColumn, ...] = ()
    curve: str | None = None
    prefix: tuple[int, ...] = ()
    zcube_id: str | None = None
    writer_options: WriterOptions
    max_file_bytes: int
    row_bytes: float | None = None
    sources: tuple[ColumnSource, ...]
    checks: tuple[RowCheck, ...] = ()
    where: str | None = None
    partition_columns: tuple[str, ...] = ()
    directory_settings: Mapping[str, str] = {}
    removed: tuple[str, ...] = ()
    rewritten_partitions: tuple[PartitionTexts, ...] = ()
    rewritten: InputFiles = msgspec.field(default_factory=InputFiles.of)


class WriteResult(Document, frozen=True, kw_only=True):
    """The files that were written for a plan. Checksums are 32 hex digits.

    `partitions` has the partition values of files by path, if the table has partition columns.
    `run` is the token of the run that wrote the files (see `data.runs`).
    """

    write_id: str
    run: str
    outputs: tuple[WrittenFile, ...]
    partitions: Mapping[str, PartitionTexts] = {}
    rows_read: int
    rows_written: int
    checksum_read: str
    checksum_written: str
    seconds: float
    costs: GroupCosts = GroupCosts()


class Written(Summary, Document, frozen=True, kw_only=True):
    """The table's version after a write, the files added and their rows, also of replaced files.

    If the write was `skipped`, the table had its transaction already.
    """

    version: int
    files: int
    rows: int
    replaced_files: int = 0
    skipped: bool = False

    def _facts(self) -> Mapping[str, object]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def files_digest(written: Sequence[WrittenFile]) -> str:
    """Return the digest, 64 hex digits, that binds a commit to the files that it adds."""
    return hashlib.sha256(msgspec.json.encode(written)).hexdigest()


# The plan of a read


class ReadPlan(Document, frozen=True, kw_only=True):
    """The live files of a table at `version` that may have rows of a query.

    `partition_columns` are physical names; the values of file n, as the log spells them, are
    `partitions[partition_numbers[n]]`. Readers leave out the hidden columns in `row_tracking`.
    """

    table_uri: str
    table_id: str
    version: int
    schema_string: str
    mapping_mode: MappingMode = MappingMode.NONE
    row_tracking: RowTracking | None = None
    partition_columns: tuple[str, ...] = ()
    partitions: tuple[PartitionTexts, ...] = ({},)
    files: InputFiles = msgspec.field(default_factory=InputFiles.of)
    partition_numbers: tuple[int, ...] = ()
    total_files: int


# Plans and results as bytes: encoded, decoded, told apart, and bound to each other by a digest

_FILES: Final = b"-0"
"""Stands for a list of files while a document is made; no integer is written like this."""

_FIELD_OF_FILES: Final = re.compile(
    rb'^(?P<indent> *)"\w+": (?=%b,?$)' % _FILES, flags=re.MULTILINE
)


def encode_plan(plan: ClusteringPlan) -> bytes:
    return b"".join(plan_pieces(plan))


def plan_pieces(plan: ClusteringPlan) -> Iterator[bytes]:
    """Yield the document of a plan piece by piece, indented, with a line for each file."""
    lists: list[_Files[Any]] = []

    def apart(files: _Files[Any]) -> msgspec.Raw:
        lists.append(files)
        return msgspec.Raw(_FILES)

    document = msgspec.json.format(msgspec.json.encode(plan, enc_hook=apart), indent=2)
    # No text of the document has a line end in it, so a line is a field, never part of a text.
    written = 0
    for field, files in zip(_FIELD_OF_FILES.finditer(document), lists, strict=True):
        yield document[written : field.end()] + b"["
        yield from files.lines(b"\n" + field["indent"] + b"  ")
        yield b"\n" + field["indent"] + b"]" if files else b"]"
        written = field.end() + len(_FILES)
    yield document[written:] + b"\n"


def decode_plan(content: bytes, *, where: str) -> ClusteringPlan:
    versions = tuple(range(FORMAT_VERSION, FULLER_FORMAT_VERSION + 1))
    _check_head(content, where, kind="a plan", expected=versions)
    try:
        plan = msgspec.json.decode(content, type=ClusteringPlan, dec_hook=_files)
    except UNREADABLE as error:
        raise DocumentError(where, f"is not a plan: {error}") from error
    repeated = repeated_inputs(plan.groups)
    if repeated:
        raise DocumentError(where, repeated_message(repeated))
    for problem in _partition_problems(plan):
        raise DocumentError(where, problem)
    return plan


def _files(kind: type[_Files[Any]], rows: object) -> _Files[Any]:
    return kind.from_document(rows)


def plan_version(
    partition_columns: Sequence[str], options: WriterOptions, schema_string: str
) -> int:
    if options.holds_partitions or NESTED_IDS in schema_string:
        return FULLER_FORMAT_VERSION
    return PARTITIONED_FORMAT_VERSION if partition_columns else FORMAT_VERSION


def _partition_problems(plan: ClusteringPlan) -> Iterator[str]:
    columns, former = set(plan.partitioned_by), set(plan.formerly_partitioned_by)
    constant = set(plan.constant_columns)
    version = plan_version(plan.partitioned_by, plan.writer_options, plan.schema_string)
    version = max(version, MIGRATING_FORMAT_VERSION if former else FORMAT_VERSION)
    if plan.format_version != version or (columns and former) or (former and not plan.terms):
        yield (
            f"has format version {plan.format_version}, {len(columns)} partition columns and"
            f" {len(former)} former ones"
        )
    for group in plan.groups:
        if not group.inputs.have_values_of(constant):
            expected = ", ".join(sorted(constant)) or "no column"
            yield (
                f"has partition values of other columns than {expected} for inputs of group"
                f" {group.group_id}; plan again"
            )
        if set(group.partition_values) != columns:
            found, expected = (
                ", ".join(sorted(names)) or "no column"
                for names in (group.partition_values, columns)
            )
            yield (
                f"has partition values of {found} for group {group.group_id}, expected values of"
                f" {expected}; plan again"
            )


def encode_rewritten_group(group: RewrittenGroup) -> bytes:
    """Return one line of a result document, including the newline."""
    return msgspec.json.encode(group) + b"\n"


def rewritten_group_begins(plan_id: str) -> bytes:
    """Return the bytes that begin every line of a plan's result document."""
    head = {"format_version": RESULT_FORMAT_VERSION, "plan_id": plan_id}
    return msgspec.json.encode(head)[:-1] + b","


def decode_result(content: bytes, *, where: str) -> RewriteResult:
    """Return the result in a document that has one line per group."""
    groups = []
    whole = _head(content)
    if whole is not None and whole.kind == "a plan":
        raise DocumentError(where, "is a plan, not a result; are the two swapped?")
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{where} line {number}"
        head = _check_head(line, place, kind="a result", expected=(RESULT_FORMAT_VERSION,))
        if head.copied is not None:
            raise DocumentError(
                place,
                "says that row groups were copied byte by byte, which an earlier release did and"
                " this one cannot prove; run the plan again, to another result document",
            )
        try:
            groups.append(msgspec.json.decode(line, type=RewrittenGroup))
        except UNREADABLE as error:
            raise DocumentError(place, f"is not a result: {error}") from error
    plan_ids = {group.plan_id for group in groups}
    if len(plan_ids) > 1:
        raise DocumentError(where, f"mixes the results of {len(plan_ids)} plans")
    return RewriteResult(plan_id=next(iter(plan_ids), ""), groups=tuple(groups))


def plan_document(plan: ClusteringPlan) -> Mapping[str, object]:
    document: Mapping[str, object] = msgspec.to_builtins(plan, enc_hook=list)
    return document


class _Head(msgspec.Struct):
    format_version: object = None
    group_id: object = None
    groups: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    policy: object = None
    copied: object = None  # row groups, which an earlier release copied

    @property
    def kind(self) -> str | None:
        if self.format_version is None:
            return None
        if self.groups is not msgspec.UNSET:
            return "a plan"
        return None if self.group_id is None else "a result"


def _check_head(content: bytes, where: str, *, kind: str, expected: tuple[int, ...]) -> _Head:
    found = _head(content)
    if found is None and kind == "a plan":
        found = _head(content.partition(b"\n")[0])
    if found is not None and found.kind not in {None, kind}:
        raise DocumentError(where, f"is {found.kind}, not {kind}; are the two swapped?")
    version = None if found is None else found.format_version
    if version is not None and version not in expected:
        *others, last = map(str, expected)
        listed = f"{', '.join(others)} and {last}" if others else last
        raise DocumentError(
            where,
            f"has format version {version}, and this release reads {kind} of {listed} only;"
            " make it again with this release",
        )
    if found is None or found.kind is None:
        maker = "liquidlog plan TABLE -o FILE" if kind == "a plan" else "liquidlog run PLAN -o FILE"
        raise DocumentError(where, f"is not {kind}; {maker} writes one")
    settings = found.policy.values() if isinstance(found.policy, dict) else ()
    if any(isinstance(setting, dict) for setting in settings):
        detail = "is a plan as --json prints it; liquidlog plan TABLE -o FILE saves one to run"
        raise DocumentError(where, detail)
    return found


def _head(content: bytes) -> _Head | None:
    try:
        return msgspec.json.decode(content, type=_Head)
    except UNREADABLE:
        return None


def rewrite_digest(plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup) -> str:
    """Return the SHA-256 of a planned group, its plan's terms and its result, as 64 hex digits.

    It binds the result to the plan: the run that wrote the outputs leaves it in the table's
    directory. It leaves out the table's address, since machines may mount it elsewhere, and the
    fields for people.
    """
    bare = msgspec.structs.replace(
        plan, groups=(), skipped=SkippedFiles.of(), table_uri="", table_location=msgspec.UNSET
    )
    terms = dict(plan_document(bare))
    del terms["decided_by"], terms["notes"]
    digest = hashlib.sha256()
    for document in (terms, planned, group):
        digest.update(msgspec.json.encode(document, enc_hook=list))
        digest.update(b"\n")
    return digest.hexdigest()
