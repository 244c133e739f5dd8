"""One instance of every error and of every conflict, with arguments as they occur."""

from liquidlog import errors
from liquidlog.clustering.change import FilesAdded
from liquidlog.clustering.planner import TooManyDeletedRows
from liquidlog.commit import (
    ConcurrentDeleteRead,
    DomainMetadataChanged,
    MetadataChanged,
    ProtocolChanged,
    RowsMayBeBack,
)
from liquidlog.errors import LiquidlogError, Outdated, SchemaProblem, SchemaProblemKind
from liquidlog.operations.batches import TooMuchToRead
from liquidlog.operations.optimize import GroupConflict

CONFLICTS = (
    ConcurrentDeleteRead(8, ("a.parquet", "b.parquet")),
    RowsMayBeBack(8, ("c.parquet",)),
    MetadataChanged(9),
    ProtocolChanged(10),
    DomainMetadataChanged(11, "delta.clustering"),
    Outdated("the table's schema changed"),
    TooManyDeletedRows(30, 100, 0.2),
    TooMuchToRead(3 << 30, 1 << 30),
    FilesAdded((7, 8), ("d.parquet", "e.parquet")),
    GroupConflict(3, MetadataChanged(9)),
)
SCHEMA_PROBLEMS = (
    SchemaProblem(SchemaProblemKind.COLUMN_EXISTS, "there is a column x already", column="x"),
    SchemaProblem(
        SchemaProblemKind.FEATURE_MISSING,
        "delta.enableDeletionVectors=true needs the table feature deletionVectors",
        property="delta.enableDeletionVectors",
        feature="deletionVectors",
    ),
)
PROBLEMS = ("x is a map", "y does not exist")
EXAMPLES = (
    LiquidlogError("something went wrong"),
    errors.UsageError("no size", value="3 parsecs", columns=("a", "b"), limit=None, most=1.5),
    errors.ClusteringColumnError(PROBLEMS),
    errors.SchemaChangeError(SCHEMA_PROBLEMS),
    errors.LogError("the log is not there"),
    errors.TableNotFoundError("/data/orders", "it is empty"),
    errors.TableExistsError("/data/orders"),
    errors.VersionNotFoundError(7, 2, 5),
    errors.TimestampNotFoundError("2024-01-01T00:00:00.000Z", "2025-01-01", "2026-01-01"),
    errors.CorruptLogError("00000000000000000003.json", "no JSON", line=4),
    errors.StorageError("s3://bucket/orders", "access denied"),
    errors.UnsupportedFeatureError("/data/orders", "written", ("v2Checkpoint", "x")),
    errors.ManagedTableError("/data/orders"),
    errors.NotPermittedError("unity://main.sales.orders", "DATA_CLEANUP", ("METADATA_CLEANUP",)),
    errors.SchemaMismatchError("new.parquet", "a: long", "a: string", ("a is string",)),
    errors.DataFileError("part-0.parquet", "it is cut off"),
    errors.DocumentError("plan.json", "it is no plan"),
    errors.ResultMismatchError(PROBLEMS),
    errors.RowsNotFoundError(10, 3),
    errors.ReconcileLimitError(3 << 30, 1 << 30),
    errors.CheckpointMismatchError(12, PROBLEMS),
    errors.ExecutorError("group 1: lost", failures=("group 1: lost",)),
    errors.CommitError("nothing was committed"),
    errors.CommitConflictError(6, CONFLICTS),
    errors.TableReplacedError("/data/orders", "it has another id", read_version=6),
    errors.CommitStateUnknownError(13, "the connection was lost"),
)
