"""The documents: plan and result of a rewrite and of a write, and the plan of a read."""

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from liquidlog.errors import DocumentError
from liquidlog.plan.files import Document, InputFiles, RewriteGroup, SkippedFiles
from liquidlog.spec.evolution import TableTerms
from liquidlog.spec.partitions import PartitionTexts, data_schema
from liquidlog.spec.schema import MappingMode, PrimitiveType, StructField, StructType, parse_schema
from liquidlog.spec.text import Summary

if TYPE_CHECKING:
    from liquidlog.curve.conditions import IntervalEnds, ValuePredicates

Progress = Callable[[int, float], None]
"""Called with (group id, share of the group that is done, 0 to 1), from the caller's thread."""

Cancelled = Callable[[], Mapping[int, str]]
"""Returns why groups can no longer be committed, by id; whoever runs them asks now and then."""


Tasks = Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]]
"""(function, requests) -> what the function returns for each request, in their order.

The function is called where an executor has its machines; all three can be pickled. An error of
ours, such as a file that cannot be read, is an ExecutorError here, with its message.
"""


class WrittenFile(Document, frozen=True, kw_only=True):
    """Facts about a data file written by an executor.

    `path` is relative to the table and not URI-encoded; `stats` is the JSON of the protocol.
    """

    path: str
    size_bytes: int
    modification_time_ms: int
    num_records: int
    stats: str


class GroupCosts(Document, frozen=True, kw_only=True):
    """Time that a rewrite spent per phase, and bytes that it moved.

    Seconds are sums over all tasks, except `sample_seconds`, the elapsed time of sampling the
    group. `map` is reading rows and cutting them into slices, `shuffle` is waiting for slices and
    unpacking them, `write` is sorting rows and writing files, `verify` is the checksums on both
    sides.
    """

    sample_seconds: float = 0.0
    map_seconds: float = 0.0
    shuffle_seconds: float = 0.0
    write_seconds: float = 0.0
    verify_seconds: float = 0.0
    read_bytes: int = 0
    shuffled_bytes: int = 0
    written_bytes: int = 0


# What readers ask, as a plan carries it to the executor: weighted boxes over its columns
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
    """Predicates that the layout cannot be fitted to; `share` is theirs of all weights."""

    reason: str
    predicates: int
    share: float


class FittedWorkload(Document, frozen=True, kw_only=True):
    """The predicates that a layout is fitted to.

    `column_weights`, one per clustering column or none at all, are weights of readers who ask for
    single values of a column, each value as often as it has rows. The weights of predicates and
    columns are on one scale.
    """

    predicates: tuple[AskedPredicate, ...] = ()
    column_weights: tuple[float, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def asks(self) -> bool:
        """Whether there is anything to fit a layout to."""
        return bool(self.predicates) or any(weight > 0 for weight in self.column_weights)

    def conditions(
        self, parsed: Sequence[Callable[[Sequence[str | None]], pa.Array]]
    ) -> "ValuePredicates":
        """Return the predicates over values; `parsed` turns constants of each column to them."""
        from liquidlog.curve.conditions import ValuePredicates

        flat = _Flat()
        for predicate in self.predicates:
            _check(predicate)
            flat.add(predicate)
        axes = np.array(flat.axes, np.int64)
        if len(axes) and not 0 <= axes.min() <= axes.max() < len(parsed):
            raise ValueError(f"a term names a column beyond {len(parsed)}")
        weights = self.column_weights or (0.0,) * len(parsed)
        if len(weights) != len(parsed):
            raise ValueError(f"{len(weights)} weights of columns for {len(parsed)} columns")
        own = [
            [one for one, axis in zip(flat.intervals, flat.axes, strict=True) if axis == number]
            for number in range(len(parsed))
        ]
        return ValuePredicates(
            axes=axes,
            lows=tuple(
                _ends(of([one.low for one in some]), [one.open_low for one in some])
                for some, of in zip(own, parsed, strict=True)
            ),
            highs=tuple(
                _ends(of([one.high for one in some]), [one.open_high for one in some])
                for some, of in zip(own, parsed, strict=True)
            ),
            terms=np.array(flat.terms, np.int64),
            alternatives=np.array(flat.alternatives, np.int64),
            predicates=np.array(flat.predicates, np.int64),
            weights=np.array([predicate.weight for predicate in self.predicates], np.float64),
            column_weights=np.array(weights, np.float64),
        )


def _check(predicate: AskedPredicate) -> None:
    terms = [term for alternative in predicate.any_of for term in alternative]
    if not terms or not all(predicate.any_of) or not all(term.intervals for term in terms):
        raise ValueError("a predicate has no term, or a term has no interval")
    if not 0 < predicate.weight < float("inf"):
        raise ValueError(f"a predicate has the weight {predicate.weight}")


class _Flat:
    """Intervals of predicates in one list, and where terms, alternatives and predicates begin."""

    def __init__(self) -> None:
        self.axes: list[int] = []
        self.intervals: list[Interval] = []
        self.terms: list[int] = []
        self.alternatives: list[int] = []
        self.predicates: list[int] = []

    def add(self, predicate: AskedPredicate) -> None:
        self.predicates.append(len(self.alternatives))
        for alternative in predicate.any_of:
            self.alternatives.append(len(self.terms))
            for term in alternative:
                self.terms.append(len(self.intervals))
                self.intervals += term.intervals
                self.axes += [term.column] * len(term.intervals)


def _ends(values: pa.Array, is_open: Sequence[bool]) -> "IntervalEnds":
    from liquidlog.curve.conditions import IntervalEnds

    return IntervalEnds(values, np.array(is_open, np.bool_))


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
    """Return the numbers of a prefix's columns among those that a plan orders by."""
    numbers = {path: number for number, path in enumerate(columns)}
    if not numbers.keys() >= set(prefix):
        raise DocumentError("the plan", "has a prefix of other columns than it orders by")
    return tuple(numbers[path] for path in prefix)


def weighted_columns(weights: Sequence[float]) -> FittedWorkload:
    """Return the workload of readers who ask for single values, of each column with its weight."""
    if not all(0 <= weight < float("inf") for weight in weights) or not sum(weights) > 0:
        raise ValueError(
            f"weights must be numbers from 0, not all of them 0, found {list(weights)}"
        )
    total = sum(weights)
    return FittedWorkload(column_weights=tuple(weight / total for weight in weights))


# The two documents between planner, executor and commit: ClusteringPlan and RewriteResult
#
# A plan lists the files to rewrite together and all that an executor needs for it; a result
# lists the written files with facts about them. Neither contains a secret; both can be saved,
# reviewed, shipped and replayed. Sizes are bytes and times milliseconds since the epoch, unless
# a name says otherwise.

FORMAT_VERSION: Final = 1
PARTITIONED_FORMAT_VERSION: Final = 2
"""Plans of partitioned tables, which releases that would ignore partition values must not run."""
MIGRATING_FORMAT_VERSION: Final = 3
"""Plans that turn partition columns into data, of which older releases would write nulls."""
RESULT_FORMAT_VERSION: Final = 2
"""Results of version 1 name no run, so whether their files may be committed is not known."""

GIB: Final = 1 << 30
DEFAULT_MIN_CUBE_BYTES: Final = 100 * GIB
"""Cubes of at least this logical size are stable. Source: design document, MIN_CUBE_SIZE."""
DEFAULT_TARGET_CUBE_BYTES: Final = 150 * GIB
"""Size up to which cubes are packed. Source: design document, TARGET_CUBE_SIZE."""
DEFAULT_MAX_FILE_BYTES: Final = GIB
"""Size of output files. Source: Delta Spark, spark.databricks.delta.optimize.maxFileSize."""
DEFAULT_ROW_GROUP_ROWS: Final = 8_000_000
"""The most rows of a row group; it also has a limit of bytes, see `data.writer`."""
MIN_ROW_GROUP_ROWS: Final = 1_000
"""Row groups of fewer rows would be little but descriptions of their columns."""
DEFAULT_TOLERANCE: Final = 1.27
"""Limit of the bytes that narrow predicates read, as a multiple of those after a full rewrite."""
DEFAULT_MIN_OVERLAPPING_FILES: Final = 4
DEFAULT_MIN_OVERLAP: Final = 0.75
"""Source: Microsoft Fabric, autoRecluster.minOffendingFiles and minOverlapThreshold."""

OPTION: Final = "option"
"""Who decided a setting that the caller gave; see ClusteringPlan."""

_KD_PAYS_FROM_FILES: Final = 8


class RewriteMode(StrEnum):
    """How a rewrite lays out its inputs; the reference engine's three modes of OPTIMIZE."""

    CLUSTERING = "clustering"
    ZORDER = "zorder"
    COMPACTION = "compaction"


class ClusteringPolicy(Document, frozen=True, kw_only=True):
    """What the user asks of the planner; all sizes are bytes.

    The fields from `tolerance` on are for the strategy `overlap` only. `tolerance` limits the bytes
    that narrow predicates read, as a multiple of those after a full rewrite. A clustered file
    overlaps if at least `min_overlapping_files` others share on average `min_overlap` of its range
    (names and defaults from Fabric). At most `budget_bytes` are rewritten, only of files that may
    match `where`; of a partitioned table, `where` asks for partitions. `compression` is the codec
    of the files to write, by the names of the table property; None for the codec that the property
    names. With `skip_clustered`, the strategy `cube` keeps the bytes of files that lie well in
    their group; `overlap` always does. Columns of `bloom_filter` get Bloom filters in the files to
    write. `prefix` names clustering columns by whose single values rows are parted first, and
    `row_group_rows` is the most rows of a row group; both are absent from the document if nothing
    asks for them. So is `partition_time_zone`, the zone of timestamps in partition values that name
    none, where a migration read no such value.
    """

    min_cube_bytes: int = DEFAULT_MIN_CUBE_BYTES
    target_cube_bytes: int = DEFAULT_TARGET_CUBE_BYTES
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES
    full: bool = False
    curve: str = "hilbert"
    zorder_by: tuple[tuple[str, ...], ...] = ()
    tolerance: float = DEFAULT_TOLERANCE
    min_overlapping_files: int = DEFAULT_MIN_OVERLAPPING_FILES
    min_overlap: float = DEFAULT_MIN_OVERLAP
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
    """The hidden columns of data files for row ids and row commit versions.

    If `preserved`, a rewrite copies their values for every row. If not, row tracking is disabled:
    the values in these columns have no meaning and are left out.
    """

    row_id_column: str
    row_commit_version_column: str
    preserved: bool


class WriterOptions(Document, frozen=True, kw_only=True):
    """How to write data files of the table; derived from its properties.

    `indexed` are the physical paths of the leaves that get statistics; they always include the
    clustering columns. With `tight_bounds`, statistics declare their bounds exact, which tables
    with deletion vectors need. `bloom_filters` are the physical paths of the leaves whose row
    groups get Bloom filters, the most wanted first. A row group has at most `row_group_rows`, or
    DEFAULT_ROW_GROUP_ROWS if that is absent.
    """

    indexed: tuple[tuple[str, ...], ...]
    string_prefix_chars: int = 32
    compression: str = "zstd"
    tight_bounds: bool = False
    bloom_filters: tuple[tuple[str, ...], ...] = ()
    row_group_rows: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def rows_of_a_group(self) -> int:
        """The most rows of a row group."""
        return self.row_group_rows or DEFAULT_ROW_GROUP_ROWS


class ClusteringPlan(Summary, Document, frozen=True, kw_only=True):
    """What to rewrite at one version of a table; every file considered is in a group or skipped.

    `schema_string` is the table's schema in the protocol's JSON, `mapping_mode` says how columns
    are identified in data files. `columns` are the curve's dimensions, in order; empty for
    compaction. `row_tracking` is None if data files have no hidden columns. `fitted` is what the
    layout is to be fitted to; absent from the document if it is nothing. `terms` are what else of
    the table outputs are written for; without them, no change of metadata can be outlasted.
    `partition_columns` are physical names, in the table's order; absent if there are none. So are
    `former_partition_columns`, by which the table is partitioned and will no longer be: the inputs
    have the values that outputs hold. All groups of such a plan are one commit.

    `decided_by` says which settings do not have their defaults: OPTION, or the name of the table's
    property, by the field of the policy or "strategy". `notes` are sentences for whoever reads the
    plan. None of these is part of what the executor is asked for.
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

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The physical names of the partition columns, none if there are none."""
        return self.partition_columns or ()

    @property
    def formerly_partitioned_by(self) -> tuple[str, ...]:
        """The physical names of the partition columns that become data, none if there are none."""
        return self.former_partition_columns or ()

    @property
    def is_migration(self) -> bool:
        """Whether its commit turns a partitioned table into a clustered one."""
        return bool(self.formerly_partitioned_by)

    @property
    def data_schema(self) -> StructType:
        """The table's columns that data files hold: all but the partition columns."""
        return data_schema(parse_schema(self.schema_string, where="the plan"), self.partitioned_by)

    @property
    def size_bytes(self) -> int:
        """Total bytes of the files to rewrite."""
        return sum(group.size_bytes for group in self.groups)

    @property
    def live_rows(self) -> int | None:
        """Rows of the files to rewrite, without deleted rows; None if unknown."""
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
        """The numbers of the columns by whose values rows are parted; see `prefix_numbers`."""
        return prefix_numbers(self.policy.prefix or (), [column.logical for column in self.columns])

    @property
    def readers(self) -> FittedWorkload | None:
        """What the layout is fitted to, None if nothing."""
        return self.fitted if self.fitted and self.fitted.asks else None

    @property
    def kd_would_be_narrower(self) -> bool:
        """Whether the curve kd would write narrower files than the plan's Hilbert curve.

        It does where files cannot be fitted to the Hilbert curve, and are many enough to matter.
        Source: docs/curves.md, which measures both curves.
        """
        # Documents are read without the kernels of curves.
        from liquidlog.curve.boxes import MAX_FITTED_DIMENSIONS

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
    """Facts about a finished group. Checksums are 32 hex digits, equal for equal multisets.

    `run` is the token of the run that wrote the outputs: it is part of their names, and the table's
    directory has the run's fate (see `data.runs`). `read_back` is there, and false, if the outputs
    were not read back to prove them. `partition_values` are those of the rows, as the plan has
    them; absent if the table is not partitioned. A group is one line of a result document.
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
    """A group that could not be rewritten; `reason` is one sentence. No output of it is kept.

    A group is `cancelled` if its executor was told that it could no longer be committed.
    """

    group_id: int
    reason: str
    cancelled: bool = False


Outcome = RewrittenGroup | GroupFailure
"""What became of a group."""


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


# The two documents between a table and whoever writes rows that come from outside into it.
#
# A WritePlan says what the table asks of the rows and of the files, and what the commit will
# replace; a WriteResult lists the written files, with the proof that the rows that came in are in
# them.


class ColumnSource(Document, frozen=True, kw_only=True):
    """Where the values of the column `name` come from.

    It is a column of the data, or an SQL expression on columns that do not have one themselves.
    With neither, the values are null.
    """

    name: str
    column: str | None = None
    expression: str | None = None


class RowCheck(Document, frozen=True, kw_only=True):
    """An SQL condition on a table's columns that must be true of every row; `what` names it."""

    what: str
    expression: str


class WritePlan(Summary, Document, frozen=True, kw_only=True):
    """What to write into a table, planned at `read_version`; ids are UUIDs, sizes bytes.

    `schema_string` is the schema that the table will have. Rows are placed along `curve` by
    `columns` and become the cube `zcube_id`; without columns they go to files as they come.
    `row_bytes` is about what a row takes as stored, None if not known. Where rows are replaced,
    those of which `where` is true, the files `removed` (their paths as the log has them) have no
    other rows, and the files `rewritten` have rows that stay, with the partition values
    `rewritten_partitions`, one each. `partition_columns` are physical names, `directory_settings`
    the table's properties that say where files of a partition are (`partitions.output_directory`).
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

    def _facts(self) -> Mapping[str, object]:
        return {
            "table_uri": self.table_uri,
            "read_version": self.read_version,
            "columns": tuple(".".join(column.logical) for column in self.columns),
            "max_file_bytes": self.max_file_bytes,
            "where": self.where,
            "removed_files": len(self.removed),
            "rewritten_files": len(self.rewritten),
        }


class WriteResult(Summary, Document, frozen=True, kw_only=True):
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

    def _facts(self) -> Mapping[str, object]:
        return {
            "write_id": self.write_id,
            "files": len(self.outputs),
            "size_bytes": sum(file.size_bytes for file in self.outputs),
            "rows_written": self.rows_written,
            "seconds": self.seconds,
        }

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        return ("path", "rows", "size_bytes"), [
            (file.path, file.num_records, file.size_bytes) for file in self.outputs
        ]


class Written(Summary, Document, frozen=True, kw_only=True):
    """What a write did: the table's version afterwards, the files added and the rows in them.

    `replaced_files` were removed; rows of theirs that stay are among the rows. `skipped` says that
    nothing was written because the table has the transaction already.
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


# What a reader of a table needs: the files that may have the rows it asks for, and their forms


class ReadPlan(Summary, Document, frozen=True, kw_only=True):
    """The live files of a table at `version` that may have rows which a reader asks for.

    `partition_columns` are physical names; the values of file n, as the log spells them, are
    `partitions[partition_numbers[n]]`. `row_tracking` names hidden columns that files may have, and
    that readers leave out.
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

    def _facts(self) -> Mapping[str, object]:
        return {
            "table_uri": self.table_uri,
            "version": self.version,
            "files": len(self.files),
            "size_bytes": self.files.size_bytes,
            "total_files": self.total_files,
        }
