"""The two documents between planner, executor and commit: ClusteringPlan and RewriteResult.

A plan lists the files to rewrite together and all that an executor needs for it; a result lists the
written files with facts about them. Neither contains a secret; both can be saved, reviewed, shipped
and replayed. Sizes are bytes and times milliseconds since the epoch, unless a name says otherwise.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from liquidlog.plan.facts import GroupCosts, WrittenFile
from liquidlog.plan.files import Document, RewriteGroup, SkippedFiles
from liquidlog.plan.fitted import FittedWorkload, prefix_numbers
from liquidlog.spec.mapping import MappingMode
from liquidlog.spec.markup import Summary
from liquidlog.spec.partitions import data_schema
from liquidlog.spec.schema import PrimitiveType, StructField, StructType, parse_schema
from liquidlog.spec.terms import TableTerms

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
DEFAULT_ROW_GROUP_ROWS: Final = 1_000_000
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
    plan. `spared_bytes_a_day` is what the plan was predicted to spare readers, for the commits to
    say; absent if nobody asked. None of these is part of what the executor is asked for.
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
    spared_bytes_a_day: float | msgspec.UnsetType = msgspec.UNSET

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
        from liquidlog.curve.fit import MAX_FITTED_DIMENSIONS

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
