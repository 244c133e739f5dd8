"""Answers as DataFrames, with the columns that Delta Spark gives them.

Source: Delta Spark 4.4, DescribeDeltaDetailCommand, DeltaHistory and OptimizeTableCommand.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from liquidspark.versions import parsed_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DETAIL: Final = (
    "format string, id string, name string, description string, location string,"
    " createdAt timestamp, lastModified timestamp, partitionColumns array<string>,"
    " clusteringColumns array<string>, numFiles bigint, sizeInBytes bigint,"
    " properties map<string,string>, minReaderVersion int, minWriterVersion int,"
    " tableFeatures array<string>"
)
"""Columns of DESCRIBE DETAIL."""

HISTORY: Final = (
    "version bigint, timestamp timestamp, userId string, userName string, operation string,"
    " operationParameters map<string,string>, job struct<jobId:string,jobName:string,"
    "jobRunId:string,runId:string,jobOwnerId:string,triggerType:string>,"
    " notebook struct<notebookId:string>, clusterId string, readVersion bigint,"
    " isolationLevel string, isBlindAppend boolean, operationMetrics map<string,string>,"
    " userMetadata string, engineInfo string"
)
"""Columns of DESCRIBE HISTORY."""

_SIZES: Final = "struct<min:bigint,max:bigint,avg:double,totalFiles:bigint,totalSize:bigint>"
_CUBES: Final = "struct<num:bigint,size:bigint>"
_ZCUBES: Final = "struct<numFiles:bigint,size:bigint>"
OPTIMIZE: Final = (
    f"path string, metrics struct<numFilesAdded:bigint,numFilesRemoved:bigint,filesAdded:{_SIZES},"
    f"filesRemoved:{_SIZES},partitionsOptimized:bigint,zOrderStats:struct<strategyName:string,"
    f"inputCubeFiles:{_CUBES},inputOtherFiles:{_CUBES},inputNumCubes:bigint,mergedFiles:{_CUBES},"
    "numOutputCubes:bigint,mergedNumCubes:bigint>,clusteringStats:struct<inputZCubeFiles:"
    f"{_ZCUBES},inputOtherFiles:{_ZCUBES},inputNumZCubes:bigint,mergedFiles:{_ZCUBES},"
    "numOutputZCubes:bigint>,numBins:bigint,numBatches:bigint,totalConsideredFiles:bigint,"
    "totalFilesSkipped:bigint,preserveInsertionOrder:boolean,"
    "numFilesSkippedToReduceWriteAmplification:bigint,"
    "numBytesSkippedToReduceWriteAmplification:bigint,startTimeMs:bigint,endTimeMs:bigint,"
    "totalClusterParallelism:bigint,totalScheduledTasks:bigint,autoCompactParallelismStats:"
    "struct<maxClusterActiveParallelism:bigint,minClusterActiveParallelism:bigint,"
    "maxSessionActiveParallelism:bigint,minSessionActiveParallelism:bigint>,deletionVectorStats:"
    "struct<numDeletionVectorsRemoved:bigint,numDeletionVectorRowsRemoved:bigint>,"
    "numTableColumns:bigint,numTableColumnsWithStats:bigint>"
)
"""Columns of OPTIMIZE; what is not measured is null."""

HEALTH: Final = (
    "table_uri string, version bigint, cluster_by_keys array<string>, total_file_count bigint,"
    " total_bytes bigint, unclustered_file_count bigint, unclustered_bytes bigint,"
    " constant_file_count bigint, stable_cube_count bigint, partial_cube_count bigint,"
    " average_overlaps double, average_depth double, p95_depth bigint, p99_depth bigint,"
    " max_depth bigint, depth_ratio double, read_ratio double,"
    " depth_histogram map<string,bigint>, notes array<string>"
)
"""Columns of clustering information, named as `liquidlog health --json` names them."""

PATHS: Final = "path string"
"""Columns of VACUUM."""

ADVICE: Final = "recommended array<string>, reason string, document string"
"""Columns of ADVISE; the document is that of `liquidlog advise --json`."""


def detail_frame(
    spark: "SparkSession", detail: Mapping[str, Any], name: str | None = None
) -> "DataFrame":
    """Return the DESCRIBE DETAIL row; `name` is that in a catalog, if the table has one."""
    times = {key: _time(detail[key]) for key in ("createdAt", "lastModified")}
    return frame(spark, [{**detail, **times, "name": name or detail["name"]}], DETAIL)


def history_frame(spark: "SparkSession", rows: Iterable[Mapping[str, Any]]) -> "DataFrame":
    """Return one row per commit."""
    shown = [{"operationMetrics": {}, **row, "timestamp": _time(row["timestamp"])} for row in rows]
    return frame(spark, shown, HISTORY)


def optimize_frame(
    spark: "SparkSession", path: str, metrics: Iterable[Mapping[str, Any]]
) -> "DataFrame":
    """Return one row per run of OPTIMIZE."""
    return frame(spark, [{"path": path, "metrics": dict(one)} for one in metrics], OPTIMIZE)


def empty_frame(spark: "SparkSession") -> "DataFrame":
    """Return what a statement answers that has no answer: no rows, no columns."""
    from pyspark.sql.types import StructType

    no_rows: list[tuple[Any, ...]] = []
    return spark.createDataFrame(no_rows, StructType([]))


def frame(spark: "SparkSession", rows: Iterable[Mapping[str, Any]], schema: str) -> "DataFrame":
    """Return rows as a DataFrame; fields that the schema lacks are left out, others are null."""
    wanted = parsed_schema(spark, schema)
    return spark.createDataFrame([_cast(row, wanted) for row in rows], wanted)


def _cast(value: Any, wanted: Any) -> Any:  # noqa: ANN401  any value of a row
    from pyspark.sql.types import DoubleType, StructType

    if value is None:
        return None
    if isinstance(wanted, StructType):
        return tuple(_cast(value.get(field.name), field.dataType) for field in wanted.fields)
    return float(value) if isinstance(wanted, DoubleType) else value


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
