"""SQL and Delta's builders on a session without Delta's jars: tables by path."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

import liquidspark
from liquidlog.errors import ExecutorError, TableExistsError, TableNotFoundError, UsageError
from liquidlog.table import Table
from liquidspark.tables import DETAIL, HISTORY, OPTIMIZE, DeltaTable

pytestmark = pytest.mark.spark

ROWS = pa.table({"a": pa.array(range(200), pa.int64()), "b": [f"s{n % 7}" for n in range(200)]})


def made(path: Path, *cluster_by: str) -> Table:
    table = Table.create(path, schema=ROWS.schema, cluster_by=cluster_by)
    for _ in range(2):
        table.append(ROWS)
    return table


@pytest.mark.sparks
def test_statements_rewrite_and_answer(spark: SparkSession, tmp_path: Path) -> None:
    at = f"delta.`{tmp_path}/t`"
    created = liquidspark.sql(spark, f"CREATE TABLE {at} (a BIGINT, b STRING) CLUSTER BY (b)")
    assert (created.columns, created.count()) == ([], 0)
    table = Table.open(tmp_path / "t")
    for _ in range(2):
        table.append(ROWS)
    explained = liquidspark.sql(spark, f"EXPLAIN OPTIMIZE {at}").first()
    assert explained is not None
    assert explained.metrics.numFilesRemoved == 2
    assert table.files().num_rows == 2
    done = liquidspark.sql(spark, f"OPTIMIZE {at}")
    assert done.schema == spark.createDataFrame([], OPTIMIZE).schema
    first = done.first()
    assert first is not None
    assert (first.metrics.numFilesAdded, first.metrics.clusteringStats.numOutputZCubes) == (1, 1)
    assert table.files().num_rows == 1
    assert liquidspark.sql(spark, f"ALTER TABLE {at} RECLUSTER FINAL").collect() == []
    health = liquidspark.sql(spark, f"SELECT * FROM clustering_information('{at}')").first()
    assert health is not None
    assert (health.cluster_by_keys, health.total_file_count) == (["b"], 1)
    liquidspark.sql(spark, f"ALTER TABLE {at} ADD COLUMN c DATE")
    history = liquidspark.sql(spark, f"DESCRIBE HISTORY {at} LIMIT 2").collect()
    assert [row.operation for row in history] == ["ADD COLUMNS", "OPTIMIZE"]
    assert liquidspark.sql(spark, f"ALTER TABLE IF EXISTS {at[:-1]}x` RECLUSTER").collect() == []


@pytest.mark.sparks
def test_builders_create_and_optimize(spark: SparkSession, tmp_path: Path) -> None:
    more = StructType([StructField("c", ArrayType(IntegerType()), nullable=False)])
    builder = (
        DeltaTable.create(spark)
        .location(tmp_path / "t")
        .addColumn("a", "BIGINT", comment="key")
        .addColumn("b", "varchar(9)", nullable=True)
        .addColumns(more)
        .comment("sales")
        .property("p", "q")
        .clusterBy("a", "b")
    )
    table = builder.execute()
    detail = table.detail()
    assert detail.schema == spark.createDataFrame([], DETAIL).schema
    row = detail.first()
    assert row is not None
    assert (row.description, row.clusteringColumns, row.properties) == (
        "sales", ["a", "b"], {"p": "q"},
    )  # fmt: skip
    fields = table.table.snapshot().schema.fields
    assert [(field.name, field.nullable) for field in fields] == [
        ("a", True), ("b", True), ("c", False),
    ]  # fmt: skip
    assert table.history(1).schema == spark.createDataFrame([], HISTORY).schema
    with pytest.raises(TableExistsError):
        builder.execute()
    again = DeltaTable.createIfNotExists(spark).tableName(f"delta.`{tmp_path}/t`")
    assert again.execute().history().count() == 1
    assert DeltaTable.isDeltaTable(spark, tmp_path / "t")
    assert not DeltaTable.isDeltaTable(spark, tmp_path)


def test_an_optimize_orders_and_refuses(spark: SparkSession, tmp_path: Path) -> None:
    made(tmp_path / "plain")
    plain = DeltaTable.forPath(spark, tmp_path / "plain")
    row = plain.optimize().executeZOrderBy("a", "b").first()
    assert row is not None
    assert (row.metrics.numFilesRemoved, row.metrics.numFilesAdded) == (2, 1)
    with pytest.raises(UsageError, match="partition columns only"):
        plain.optimize().where("a = 1").executeCompaction()
    with pytest.raises(ExecutorError, match="no Delta Spark"):
        plain.toDF()
    made(tmp_path / "clustered", "a")
    clustered = DeltaTable.forPath(spark, tmp_path / "clustered")
    with pytest.raises(UsageError, match="takes no WHERE"):
        clustered.optimize().where("a = 1").executeCompaction()
    with pytest.raises(UsageError, match="ZORDER BY"):
        clustered.optimize().executeZOrderBy("a")
    done = clustered.table.optimize(spark)
    assert (len(done.versions), done.metrics["numFilesAdded"]) == (1, 1)
    assert clustered.table.optimize(spark).versions == ()


def test_names_need_a_catalog_of_delta_tables(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="no table of this name"):
        DeltaTable.forName(spark, "nope")
    with pytest.raises(UsageError, match="catalog cannot hold"):
        liquidspark.sql(spark, "CREATE TABLE nope (a INT)")
    spark.createDataFrame([(1,)], "a int").createOrReplaceTempView("seen")
    with pytest.raises(UsageError, match="no Delta table"):
        DeltaTable.forName(spark, "seen")
    with pytest.raises(UsageError, match="session must be a SparkSession"):
        made(tmp_path / "t", "a").optimize("local")


def test_vacuum_and_drop_feature_answer_as_deltas(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "t", "a")
    at = f"delta.`{table.uri}`"
    table.cluster_by(None)
    name = table.files()["path"][0].as_py()
    (tmp_path / "t" / "_delta_log" / f"{4:020d}.json").write_text(
        json.dumps({"remove": {"path": name, "deletionTimestamp": 1, "dataChange": True}})
    )
    with pytest.raises(UsageError):
        liquidspark.sql(spark, f"VACUUM {at} RETAIN 0 HOURS")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        found = liquidspark.sql(spark, f"VACUUM {at} RETAIN 0 HOURS DRY RUN").collect()
        assert [row.path for row in found] == [f"{table.uri}/{name}"]
        assert DeltaTable.forPath(spark, table.uri).vacuum(0).collect() == []
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert not (tmp_path / "t" / name).exists()
    assert [row.path for row in liquidspark.sql(spark, f"VACUUM {at}").collect()] == [table.uri]
    DeltaTable.forPath(spark, table.uri).dropFeatureSupport("clustering")
    liquidspark.sql(spark, f"ALTER TABLE {at} DROP FEATURE domainMetadata")
    assert table.detail()["minWriterVersion"] == 2
