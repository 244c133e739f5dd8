"""Delta Spark and delta-rs read and continue partitioned tables that we rewrote and appended to."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.operations.rewrite import require_rewritable
from liquidlog.table import Table
from support.arrow_executor import execute
from support.logs import live_adds
from support.partitioned import SQL_COLUMNS, SqlColumn, rows_by_spark, table_by_every_type

pytestmark = pytest.mark.reference

COLUMNS: dict[str, SqlColumn] = {
    **SQL_COLUMNS,
    "m": ("DECIMAL(10,2)", ["1.50", "-0.01", "NULL"]),
}


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Table:
    """Three files in each of three partitions, by every type at once."""
    return table_by_every_type(spark, tmp_path / "t", COLUMNS)


def optimized(spark: Any, table: Table, more: str = "") -> dict[str, Any]:
    [row] = spark.sql(f"OPTIMIZE delta.`{table.uri}` {more}").collect()
    metrics: dict[str, Any] = row["metrics"].asDict(recursive=True)
    return metrics


def compact(table: Table, **arguments: Any) -> int:
    plan = table.plan(**arguments)
    require_rewritable(table.opened, plan)
    table.commit(plan, execute(plan))
    return len(plan.groups)


def test_the_engine_reads_what_we_compacted_and_finds_nothing_to_do(
    spark: Any, table: Table
) -> None:
    before = rows_by_spark(spark, table)
    values = {str(sorted(add["partitionValues"].items())) for add in _adds(table)}
    assert compact(table) == 3
    assert rows_by_spark(spark, table) == before
    assert {str(sorted(add["partitionValues"].items())) for add in _adds(table)} == values
    counted = spark.sql(f"SELECT day, count(*), max(id) FROM delta.`{table.uri}` GROUP BY day")
    assert sorted(map(tuple, counted.collect()), key=str) == sorted(
        [(day, 30, 209) for day in {row[0] for row in counted.collect()}], key=str
    )
    nothing = optimized(spark, table)
    assert (nothing["numFilesAdded"], nothing["numFilesRemoved"]) == (0, 0)
    ordered = optimized(spark, table, "ZORDER BY (v)")
    assert (ordered["numFilesRemoved"], ordered["partitionsOptimized"]) == (3, 3)
    assert rows_by_spark(spark, table) == before


def test_both_engines_join_the_same_files(spark: Any, table: Table) -> None:
    plan = table.plan(where="i = 1 OR b IS NULL")
    ours = {file.path for group in plan.groups for file in group.inputs}
    before = set(table.snapshot().paths().to_pylist())
    theirs = optimized(spark, table, "WHERE i = 1 OR b IS NULL")
    assert before - set(table.snapshot().paths().to_pylist()) == ours
    assert theirs["numBins"] == len(plan.groups) == 2


def test_the_engine_reads_what_we_ordered(spark: Any, table: Table) -> None:
    before = rows_by_spark(spark, table)
    assert compact(table, zorder_by="v") == 3
    assert rows_by_spark(spark, table) == before
    found = spark.sql(f"SELECT count(*) FROM delta.`{table.uri}` WHERE v = '3' AND m = 1.5")
    assert found.collect()[0][0] == sum("v='3'" in row and "'1.50'" in row for row in before)


def test_the_engine_reads_what_we_appended(spark: Any, table: Table) -> None:
    table.append(spark.sql(f"SELECT * FROM delta.`{table.uri}` WHERE id < 5").toArrow())
    expected = rows_by_spark(spark, table)
    assert len(expected) == 90 + 15
    doubled = spark.sql(f"SELECT count(*) FROM delta.`{table.uri}` WHERE id < 5").collect()[0][0]
    assert doubled == 30
    partitions = spark.sql(f"SELECT DISTINCT {', '.join(COLUMNS)} FROM delta.`{table.uri}`")
    assert partitions.count() == 3
    assert optimized(spark, table)["partitionsOptimized"] == 3
    assert rows_by_spark(spark, table) == expected


def test_delta_rs_reads_and_appends_after_us(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = pa.table({"id": [1, 2, 3], "p": ["a", "b c", None]})
    for _ in range(2):
        write_deltalake(str(path), rows, partition_by=["p"], mode="append")
    table = Table.open(str(path))
    assert compact(table) == 3
    write_deltalake(str(path), rows, mode="append")
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == 9
    assert spark.sql(f"SELECT count(*) FROM delta.`{path}` WHERE p = 'b c'").collect()[0][0] == 3


def test_row_ids_and_deletions_are_kept(spark: Any, tmp_path: Path) -> None:
    where = f"delta.`{tmp_path / 't'}`"
    names = ("DeletionVectors", "RowTracking", "ChangeDataFeed", "InCommitTimestamps")
    properties = ", ".join(f"'delta.enable{name}' = 'true'" for name in names)
    spark.sql(
        f"CREATE TABLE {where} (id INT, p STRING) USING delta PARTITIONED BY (p)"
        f" TBLPROPERTIES ({properties})"
    )
    for file in range(3):
        for text in ("'a b'", "NULL"):
            ids = f"range({9 * file}, {9 * file + 9}, 1, 1)"
            spark.sql(f"INSERT INTO {where} SELECT CAST(id AS INT), {text} FROM {ids}")
    spark.sql(f"DELETE FROM {where} WHERE id % 4 = 1")
    table = Table.open(str(tmp_path / "t"))
    tracked = f"SELECT *, _metadata.row_id, _metadata.row_commit_version FROM {where}"
    before = sorted(map(str, spark.sql(tracked).collect()))
    assert table.snapshot().files["deletion_vector"].null_count == 0
    assert compact(table) == 2
    assert sorted(map(str, spark.sql(tracked).collect())) == before
    assert table.snapshot().files["deletion_vector"].null_count == 2
    version = table.snapshot().version
    changes = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", version)
        .load(table.uri)
    )
    assert changes.count() == 0


def _adds(table: Table) -> list[dict[str, Any]]:
    return list(live_adds(Path(table.uri)).values())
