"""DeltaTable with the names of `delta.tables`, and SQL, for scripts that maintain tables.

DELETE, MERGE and the like are missing. Names are Delta's, and an argument of a wrong type is a
TypeError, as in Delta. Source: Delta Lake, Python API, `delta.tables`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from liquidlog import sql as ask
from liquidlog.errors import ExecutorError, TableExistsError, TableNotFoundError, UsageError
from liquidlog.operations.advise import read_workload
from liquidlog.operations.optimize import expected_metrics, partition_where, require_rewritable
from liquidlog.predicates.workload import Workload
from liquidlog.report.jsonable import jsonable
from liquidlog.spec.schema import StructField, StructType, parse_schema, split_path
from liquidlog.spec.text import address, number, one, text_mapping, texts
from liquidlog.sql import column_type, parse_statement
from liquidlog.storage.addresses import OptionsSource, StorageOptions
from liquidlog.table import Table
from liquidspark.session import setting_of

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType
    from pyspark.sql.types import StructType as SparkStruct

# Names of tables in the catalog of a Spark session: where a table is, and new names.

_FACTS: Final = "# Detailed Table Information"
"""The row of DESCRIBE EXTENDED that follows the columns; a column may be called Location."""
_SESSION_CATALOG: Final = "spark.sql.catalog.spark_catalog"


def new_location(spark: "SparkSession", parts: Sequence[str]) -> str:
    """Return the address of a new table of this name, in the directory of its database."""
    database = quoted(parts[:-1]) if parts[:-1] else quoted((spark.catalog.currentDatabase(),))
    rows = spark.sql(f"DESCRIBE DATABASE EXTENDED {database}").collect()
    facts = {row[0]: row[1] for row in rows}
    return f"{facts['Location'].rstrip('/')}/{parts[-1].lower()}"


def quoted(parts: Sequence[str]) -> str:
    """Return a name in SQL, each part in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


# Answers as DataFrames, with the columns of Delta Spark 4.4
# Source: DescribeDeltaDetailCommand, DeltaHistory and OptimizeTableCommand.

DETAIL: Final = (
    "format string, id string, name string, description string, location string,"
    " createdAt timestamp, lastModified timestamp, partitionColumns array<string>,"
    " clusteringColumns array<string>, numFiles bigint, sizeInBytes bigint,"
    " properties map<string,string>, minReaderVersion int, minWriterVersion int,"
    " tableFeatures array<string>"
)

HISTORY: Final = (
    "version bigint, timestamp timestamp, userId string, userName string, operation string,"
    " operationParameters map<string,string>, job struct<jobId:string,jobName:string,"
    "jobRunId:string,runId:string,jobOwnerId:string,triggerType:string>,"
    " notebook struct<notebookId:string>, clusterId string, readVersion bigint,"
    " isolationLevel string, isBlindAppend boolean, operationMetrics map<string,string>,"
    " userMetadata string, engineInfo string"
)

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
"""Metrics that are not measured are null."""

HEALTH: Final = (
    "table_uri string, version bigint, cluster_by_keys array<string>, total_file_count bigint,"
    " total_bytes bigint, unclustered_file_count bigint, unclustered_bytes bigint,"
    " constant_file_count bigint, stable_cube_count bigint, partial_cube_count bigint,"
    " average_overlaps double, average_depth double, p95_depth bigint, p99_depth bigint,"
    " max_depth bigint, depth_ratio double, read_ratio double,"
    " depth_histogram map<string,bigint>, notes array<string>"
)
"""Named as `liquidlog health --json` names them."""

ADVICE: Final = "recommended array<string>, reason string, document string"
"""The document is that of `liquidlog advise --json`."""


def optimize_frame(
    spark: "SparkSession", path: str, metrics: Iterable[Mapping[str, Any]]
) -> "DataFrame":
    """Return one row per run of OPTIMIZE."""
    return frame(spark, [{"path": path, "metrics": dict(one)} for one in metrics], OPTIMIZE)


def empty_frame(spark: "SparkSession") -> "DataFrame":
    """Return the answer of a statement that has none: no rows, no columns."""
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType([]))


def frame(spark: "SparkSession", rows: Iterable[Mapping[str, Any]], schema: str) -> "DataFrame":
    """Return rows as a DataFrame, without fields that the schema lacks and with null for others."""
    wanted = spark.createDataFrame([], schema).schema
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


# ruff: noqa: N802, N803  the names are those of delta.tables

T = TypeVar("T")

_RETENTION_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"

__all__ = ["DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder"]


class DeltaTable:
    """A Delta table and the session that rewrites it; arguments of wrong types are TypeErrors."""

    def __init__(self, spark: "SparkSession", table: Table, name: str | None = None) -> None:
        self._spark, self._table, self._name = spark, table, name

    @classmethod
    def forPath(
        cls,
        sparkSession: "SparkSession",
        path: "str | PathLike[str]",
        hadoopConf: Mapping[str, str] | None = None,
        storage_options: OptionsSource | None = None,
    ) -> "DeltaTable":
        """Return the table at a path or URI; `hadoopConf` may say how to reach S3."""
        place = _checked(lambda: address(path, argument="path"))
        options = _storage_options(hadoopConf or {}, storage_options)
        return cls(_session(sparkSession), Table.open(place, storage_options=options))

    @classmethod
    def forName(
        cls,
        sparkSession: "SparkSession",
        tableOrViewName: str,
        storage_options: OptionsSource | None = None,
    ) -> "DeltaTable":
        """Return the table of a name in the session's catalog."""
        spark = _session(sparkSession)
        parts = split_path(_text(tableOrViewName, argument="tableOrViewName"))
        name = quoted(parts)
        if not spark.catalog.tableExists(name):
            raise TableNotFoundError(name, "the session's catalog has no table of this name")
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        names = [row[0] for row in rows]
        begin = names.index(_FACTS) + 1 if _FACTS in names else len(names)
        facts = {row[0]: row[1] for row in rows[begin:] if row[0]}
        provider, uri = facts.get("Provider", facts.get("Type", "view")), facts.get("Location")
        if provider.lower() != "delta" or not uri:
            raise UsageError(f"{name} is no Delta table, but one of {provider.lower()}", table=name)
        whole = [facts[key] for key in ("Catalog", "Database", "Table") if facts.get(key)]
        return cls(spark, Table.open(uri, storage_options=storage_options), ".".join(whole) or name)

    @classmethod
    def isDeltaTable(
        cls,
        sparkSession: "SparkSession",
        identifier: "str | PathLike[str]",
        storage_options: OptionsSource | None = None,
    ) -> bool:
        """Return whether there is a table at a path or URI."""
        _session(sparkSession)
        place = _checked(lambda: address(identifier, argument="identifier"))
        try:
            Table.open(place, storage_options=storage_options)
        except TableNotFoundError:
            return False
        return True

    @classmethod
    def create(cls, sparkSession: "SparkSession | None" = None) -> "DeltaTableBuilder":
        """Return a builder of a new table; there must be none yet."""
        return DeltaTableBuilder(_session(sparkSession), if_not_exists=False)

    @classmethod
    def createIfNotExists(cls, sparkSession: "SparkSession | None" = None) -> "DeltaTableBuilder":
        """Return a builder of a new table; an existing table is returned unchanged."""
        return DeltaTableBuilder(_session(sparkSession), if_not_exists=True)

    @property
    def table(self) -> Table:
        """The same table with the methods of liquidlog."""
        return self._table

    def detail(self) -> "DataFrame":
        """Return the DESCRIBE DETAIL row."""
        detail = dict(self._table.detail())
        detail.update({key: _time(detail[key]) for key in ("createdAt", "lastModified")})
        return frame(self._spark, [{**detail, "name": self._name or detail["name"]}], DETAIL)

    def history(self, limit: int | None = None) -> "DataFrame":
        """Return one row per commit, newest first."""
        if limit is not None:
            _whole(limit, argument="limit")
        rows = self._table.history(limit)
        timed = [{**row, "timestamp": _time(row["timestamp"])} for row in rows]
        return frame(self._spark, [{"operationMetrics": {}, **row} for row in timed], HISTORY)

    def optimize(self) -> "DeltaOptimizeBuilder":
        """Return a builder of an OPTIMIZE."""
        return DeltaOptimizeBuilder(self._spark, self._table)

    def vacuum(self, retentionHours: float | None = None) -> "DataFrame":
        """Delete files that no version of the last `retentionHours` needs; return no rows.

        The default is `delta.deletedFileRetentionDuration`. Less than that or a week is allowed if
        the session's setting `spark.databricks.delta.retentionDurationCheck.enabled` is false.
        """
        if retentionHours is not None:
            _typed(retentionHours, (int, float), argument="retentionHours", expected="a number")
        self.vacuumed(retentionHours, dry_run=False)
        return empty_frame(self._spark)

    def vacuumed(self, hours: float | None, *, dry_run: bool) -> "DataFrame":
        """Return VACUUM's answer: the table's path, or with `dry_run` those of unneeded files."""
        checked = setting_of(self._spark, _RETENTION_CHECK)
        whole = None if hours is None else number(hours, argument="retentionHours")
        done = self._table.vacuum(
            retain=None if whole is None else f"{round(whole * 3600)}s",
            allow_short_retention=str(checked).lower() == "false",
            dry_run=dry_run,
        )
        paths = [f"{self._table.uri}/{file.path}" for file in done.files]
        found = paths if dry_run else [self._table.uri]
        return frame(self._spark, [{"path": path} for path in found], "path string")

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Give the table the features that these versions imply; versions never become lower."""
        reader = _whole(readerVersion, argument="readerVersion")
        writer = _whole(writerVersion, argument="writerVersion")
        versions = {"delta.minReaderVersion": str(reader), "delta.minWriterVersion": str(writer)}
        self._table.set_properties(versions)

    def addFeatureSupport(self, featureName: str) -> None:
        """Give the table a feature that existing files do not need to support."""
        name = _text(featureName, argument="featureName")
        self._table.set_properties({f"delta.feature.{name}": "supported"})

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:  # noqa: FBT001  as in delta.tables
        """Drop the feature `clustering` or `domainMetadata`."""
        name = _text(featureName, argument="featureName")
        truncates = truncateHistory is not None and _typed(
            truncateHistory, bool, argument="truncateHistory", expected="True or False"
        )
        self._table.drop_feature(name, truncate_history=truncates)

    def toDF(self) -> "DataFrame":
        """Return the table's rows, as Delta Spark reads them."""
        try:
            return self._spark.read.format("delta").load(self._table.uri)
        except Exception as error:
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise ExecutorError(
                "the session has no Delta Spark, which reads the rows; add its package to the"
                " session, as io.delta:delta-spark"
            ) from error


class DeltaOptimizeBuilder:
    """An OPTIMIZE that is not run yet."""

    def __init__(self, spark: "SparkSession", table: Table) -> None:
        self._spark, self._table = spark, table
        self._where: str | None = None

    def where(self, partitionFilter: str) -> Self:
        """Take only partitions that a predicate on partition columns matches."""
        self._where = _text(partitionFilter, argument="partitionFilter")
        return self

    def executeCompaction(self) -> "DataFrame":
        """Cluster a clustered table, or compact another; return Delta's metrics."""
        return self._run()

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> "DataFrame":
        """Order the rows of a table without clustering columns along a Z-order curve."""
        return self._run(zorder_by=_names(cols, argument="cols"))

    def _run(self, **policy: Any) -> "DataFrame":  # noqa: ANN401  as Table.plan takes them
        if self._where is not None:
            policy["where"] = partition_where(self._table.snapshot(), self._where)
        done = self._table.optimize(self._spark, **policy)
        return optimize_frame(self._spark, self._table.uri, [done.metrics])


class DeltaTableBuilder:
    """A new table that is not created yet; its methods change it and return it."""

    def __init__(self, spark: "SparkSession", *, if_not_exists: bool) -> None:
        self._spark, self._if_not_exists = spark, if_not_exists
        self._name: tuple[str, ...] | None = None
        self._location: str | None = None
        self._fields: list[StructField] = []
        self._properties: dict[str, str] = {}
        self._others: dict[str, Any] = {}

    def tableName(self, identifier: str) -> Self:
        """Give the table a name in the session's catalog; delta.`path` gives its place instead."""
        parts = split_path(_text(identifier, argument="identifier"))
        if len(parts) == len(("delta", "path")) and parts[0].lower() == "delta":
            return self.location(parts[1])
        self._name = parts
        return self

    def location(self, location: "str | PathLike[str]") -> Self:
        """Give the table its place: a path or URI."""
        self._location = _checked(lambda: address(location, argument="location"))
        return self

    def comment(self, comment: str) -> Self:
        """Give the table a description."""
        self._others["description"] = _text(comment, argument="comment")
        return self

    def addColumn(
        self,
        colName: str,
        dataType: "str | DataType",
        nullable: bool = True,  # noqa: FBT001, FBT002  as in delta.tables
        comment: str | None = None,
    ) -> Self:
        """Add a column; the type is one of Spark's, or its name in SQL."""
        name = _text(colName, argument="colName")
        may_be_null = _typed(nullable, bool, argument="nullable", expected="True or False")
        said = {} if comment is None else {"comment": _text(comment, argument="comment")}
        field = _field(name, dataType)
        metadata = {**field.metadata, **said}
        self._fields.append(StructField(name, field.data_type, may_be_null, metadata))
        return self

    def addColumns(self, cols: "SparkStruct | Sequence[Any]") -> Self:
        """Add columns: a StructType of Spark, or a list of its StructFields."""
        from pyspark.sql.types import StructField as SparkField

        if isinstance(cols, str) or not isinstance(cols, Iterable):
            raise TypeError(f"cols must be a StructType or a list of its fields, not {cols!r}")
        for field in cols:
            _typed(field, SparkField, argument="cols", expected="a StructField")
            self._fields.extend(_parsed([field]).fields)
        return self

    def clusterBy(self, *clusterByCols: str | Sequence[str]) -> Self:
        """Give the table clustering columns."""
        self._others["cluster_by"] = _names(clusterByCols, argument="clusterByCols")
        return self

    def partitionedBy(self, *cols: str | Sequence[str]) -> Self:
        """Give the table partition columns, which are among its columns."""
        self._others["partition_by"] = _names(cols, argument="cols")
        return self

    def property(self, key: str, value: str) -> Self:
        """Give the table a property."""
        self._properties[_text(key, argument="key")] = _text(value, argument="value")
        return self

    def execute(self) -> DeltaTable:
        """Create the table and return it."""
        schema = StructType(tuple(self._fields))
        return create_table(
            self._spark,
            name=self._name,
            location=self._location,
            if_not_exists=self._if_not_exists,
            definition={**self._others, "schema": schema, "properties": self._properties},
        )


def create_table(
    spark: "SparkSession",
    *,
    name: tuple[str, ...] | None,
    location: str | None,
    if_not_exists: bool,
    definition: dict[str, Any],
    storage_options: OptionsSource | None = None,
) -> DeltaTable:
    """Create a table at a place, by default in the directory of its name's database."""
    if name is None and location is None:
        raise UsageError("a new table needs a name or a location")
    if name is not None and spark.catalog.tableExists(quoted(name)):
        if if_not_exists:
            return DeltaTable.forName(spark, quoted(name), storage_options)
        raise TableExistsError(quoted(name))
    catalog = setting_of(spark, _SESSION_CATALOG) or ""
    if name is not None and not catalog.endswith("DeltaCatalog"):
        raise UsageError(
            f"the session's catalog cannot hold the Delta table {quoted(name)}: set"
            f" {_SESSION_CATALOG} to Delta's catalog, or create the table by its path",
            table=quoted(name),
        )
    place = location if location is not None else new_location(spark, name or ())
    has_columns = definition.get("like") is not None or bool(definition["schema"].fields)
    try:
        # Without columns, only check whether there is a table already.
        table = Table.create(
            place, **definition, storage_options=storage_options, dry_run=not has_columns
        )
        if not has_columns:
            raise UsageError("a new table needs at least one column: addColumn adds one")
    except TableExistsError:
        if not if_not_exists:
            raise
        table = Table.open(place, storage_options=storage_options)
    if name is None:
        return DeltaTable(spark, table)
    literal = place.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE {quoted(name)} USING delta LOCATION '{literal}'")
    return DeltaTable.forName(spark, quoted(name), storage_options)


_HADOOP_S3: Final[Mapping[str, str]] = {
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint": "aws_endpoint_url",
    "fs.s3a.endpoint.region": "aws_region",
}
"""Hadoop's options of S3 that storage options have too. Source: Hadoop, "S3A" Configuration."""


def _storage_options(
    hadoop_conf: Mapping[str, str], given: OptionsSource | None
) -> OptionsSource | None:
    conf = _checked(lambda: text_mapping(hadoop_conf, argument="hadoopConf"))
    if not conf:
        return given
    unknown = sorted(conf.keys() - _HADOOP_S3.keys())
    if unknown or given is not None:
        why = "storage_options are given too" if given is not None else f"found {unknown[0]}"
        raise UsageError(
            f"hadoopConf may have {', '.join(_HADOOP_S3)}, {why}; storage_options takes the options"
            " of every store",
            option="hadoopConf",
        )
    return {_HADOOP_S3[name]: value for name, value in conf.items()}


def _typed(value: Any, kind: type[T] | tuple[type[T], ...], *, argument: str, expected: str) -> T:  # noqa: ANN401  as a caller gives it
    return _checked(lambda: one(value, kind, argument=argument, expected=expected))


def _text(value: Any, *, argument: str) -> str:  # noqa: ANN401  as a caller gives it
    return _typed(value, str, argument=argument, expected="text")


def _whole(value: Any, *, argument: str) -> int:  # noqa: ANN401  as a caller gives it
    return _typed(value, int, argument=argument, expected="a whole number")


def _checked(check: Callable[[], T]) -> T:
    try:
        return check()
    except UsageError as error:
        raise TypeError(error.message) from None


def _session(given: "SparkSession | None") -> "SparkSession":
    from pyspark.sql import SparkSession

    if given is not None and not all(hasattr(type(given), name) for name in ("read", "version")):
        raise TypeError(f"sparkSession must be a SparkSession, not {type(given).__name__}")
    found = given or SparkSession.getActiveSession()
    if found is None:
        raise UsageError("there is no active Spark session; give one")
    return found


def _names(given: tuple[str | Sequence[str], ...], *, argument: str) -> tuple[str, ...]:
    listed = given[0] if len(given) == 1 else given
    return _checked(lambda: texts(listed, argument=argument, of="column names"))


def _field(name: str, data_type: Any) -> StructField:  # noqa: ANN401  a type, or its name
    if isinstance(data_type, str):
        return column_type(name, data_type)
    from pyspark.sql.types import DataType
    from pyspark.sql.types import StructField as SparkField

    expected = "a type of Spark, or its name in SQL"
    kind = _typed(data_type, DataType, argument="dataType", expected=expected)
    return _parsed([SparkField(name, kind)]).fields[0]


def _parsed(fields: Sequence[Any]) -> StructType:
    from pyspark.sql.types import StructType as SparkStruct

    return parse_schema(SparkStruct(list(fields)).json(), where="the columns given")


# Statements of SQL on a Spark session: tables by path or by name, answers as DataFrames.


def sql(
    spark: "SparkSession", statement: str, *, storage_options: OptionsSource | None = None
) -> "DataFrame":
    """Run one statement about a table and return its answer, without columns if it has none.

    Tables are named by delta.`path`, by a path in quotes, or by their name in the session's
    catalog. DESCRIBE and OPTIMIZE answer with the columns that Delta Spark gives them, EXPLAIN
    OPTIMIZE with those of OPTIMIZE.

    Args:
        spark: The session that rewrites files and knows names.
        statement: One statement; docs/reference/sql.md lists them.
        storage_options: With which tables are opened.

    Raises:
        UsageError: If the text is no known statement; its arguments are the line and the column of
            the word. Or if the table cannot have what the statement sets.
        TableNotFoundError: If there is no such table.
        LiquidlogError: As the `Table` method for the statement.
    """
    asked = parse_statement(statement)
    if isinstance(asked, ask.Creation):
        _create(spark, asked, storage_options)
        return empty_frame(spark)
    try:
        opened = open_table(spark, asked.table, storage_options)
    except TableNotFoundError:
        if isinstance(asked, ask.RewriteStatement) and asked.if_exists:
            return optimize_frame(spark, str(asked.table), [])
        raise
    match asked:
        case ask.RewriteStatement():
            return _rewritten(spark, opened.table, asked)
        case ask.Vacuum(retain_hours=hours, dry_run=dry_run):
            return opened.vacuumed(hours, dry_run=dry_run)
        case ask.Alteration():
            getattr(opened.table, asked.method)(*asked.names, **asked.arguments)
            return empty_frame(spark)
        case ask.Question():
            return _answered(spark, opened, asked, storage_options)


def open_table(
    spark: "SparkSession", name: ask.TableName, storage_options: OptionsSource | None = None
) -> DeltaTable:
    """Return the table of a statement."""
    if isinstance(name, ask.TableAt):
        return DeltaTable.forPath(spark, name.uri, storage_options=storage_options)
    return DeltaTable.forName(spark, quoted(name.parts), storage_options)


def _answered(
    spark: "SparkSession",
    opened: DeltaTable,
    asked: ask.Question,
    storage_options: OptionsSource | None,
) -> "DataFrame":
    match asked.verb:
        case "detail":
            return opened.detail()
        case "history":
            return opened.history(asked.limit)
        case "health":
            return frame(spark, [jsonable(opened.table.health())], HEALTH)
        case _:
            workload = _workload(opened.table, asked.sources, storage_options)
            document = jsonable(opened.table.advise(workload).document())
            best, row = document["recommended"], {**document, "document": json.dumps(document)}
            row["recommended"] = None if best is None else best["columns"]
            return frame(spark, [row], ADVICE)


def _rewritten(spark: "SparkSession", table: Table, asked: ask.RewriteStatement) -> "DataFrame":
    policy: dict[str, Any] = {"strategy": "overlap", "where": asked.where}
    if not asked.recluster:
        policy = {"full": asked.full}
        if asked.where is not None:
            policy["where"] = partition_where(table.snapshot(), asked.where)
        if asked.zorder_by:
            policy["zorder_by"] = asked.zorder_by
    if asked.explain:
        plan = table.plan(**policy)
        require_rewritable(table.opened, plan)
        return optimize_frame(spark, table.uri, [expected_metrics(table.opened, plan, {})])
    done = table.optimize(spark, final=asked.final or None, **policy)
    rounds = [one.done.metrics for one in done.rounds] if asked.final else [done.metrics]
    return optimize_frame(spark, table.uri, rounds)


def _create(
    spark: "SparkSession", asked: ask.Creation, storage_options: OptionsSource | None
) -> None:
    at = asked.table if isinstance(asked.table, ask.TableAt) else None
    if at is not None and asked.location is not None:
        raise UsageError(
            f"{at} says where the table is; leave LOCATION out", location=asked.location
        )
    definition = dict(asked.definition)
    if asked.like is not None:
        definition["like"] = open_table(spark, asked.like, storage_options).table
    create_table(
        spark,
        name=None if isinstance(asked.table, ask.TableAt) else asked.table.parts,
        location=asked.location if at is None else at.uri,
        if_not_exists=asked.if_not_exists,
        definition=definition,
        storage_options=storage_options,
    )


def _workload(
    table: Table, sources: tuple[str, ...], storage_options: OptionsSource | None
) -> Workload:
    """Return the queries in sources; without sources, those that the table's log records."""
    options = StorageOptions.of(storage_options)
    named = sources or (table.uri,)
    try:
        read = [read_workload(one, table=table.uri, storage_options=options) for one in named]
    except UsageError as error:
        if sources:
            raise
        raise UsageError(
            "the table's log records no query; say where queries are recorded, as ADVISE t FROM"
            " 'queries.sql'"
        ) from error
    return tuple(chain.from_iterable(read))
