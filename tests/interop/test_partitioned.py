"""Delta Spark and delta-rs read and continue partitioned tables that we rewrote and appended to."""

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from liquidlog.errors import CommitConflictError
from liquidlog.operations.optimize import require_rewritable
from liquidlog.plan import RewriteResult
from liquidlog.table import Table
from support.arrow_executor import execute
from support.logs import live_adds
from support.partitioned import SQL_COLUMNS, migrate, rows_by_spark, table_by_every_type

pytestmark = pytest.mark.reference


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Table:
    """Three files in each of three partitions, by every type at once."""
    return table_by_every_type(spark, tmp_path / "t")


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


def test_the_engine_reads_what_we_appended(spark: Any, tmp_path: Path) -> None:
    table = table_by_every_type(spark, tmp_path / "t", without="y")  # bytes are not appended
    table.append(spark.sql(f"SELECT * FROM delta.`{table.uri}` WHERE id < 5").toArrow())
    expected = rows_by_spark(spark, table)
    assert len(expected) == 90 + 15
    doubled = spark.sql(f"SELECT count(*) FROM delta.`{table.uri}` WHERE id < 5").collect()[0][0]
    assert doubled == 30
    partitions = spark.sql(f"SELECT DISTINCT day, i, m FROM delta.`{table.uri}`")
    assert partitions.count() == 3
    assert optimized(spark, table)["partitionsOptimized"] == 3
    assert rows_by_spark(spark, table) == expected


def _adds(table: Table) -> list[dict[str, Any]]:
    return list(live_adds(Path(table.uri)).values())


# Tables that were migrated from partitions are read and continued, too.


def detail(spark: Any, table: Table) -> tuple[list[str], list[str]]:
    [row] = spark.sql(f"DESCRIBE DETAIL delta.`{table.uri}`").collect()
    return row["partitionColumns"], row["clusteringColumns"]


def test_values_of_every_type_are_those_that_engines_read(spark: Any, table: Table) -> None:
    before = rows_by_spark(spark, table)
    ours = (
        DeltaTable(table.uri).to_pyarrow_table().sort_by([("id", "ascending"), ("i", "ascending")])
    )
    version = table.snapshot().version
    migrate(table, ["day", "i"])
    assert rows_by_spark(spark, table) == before
    assert detail(spark, table) == ([], ["day", "i"])
    assert rows_by_spark(spark, table, version) == before
    after = (
        DeltaTable(table.uri).to_pyarrow_table().sort_by([("id", "ascending"), ("i", "ascending")])
    )
    assert list(map(str, after.to_pylist())) == list(map(str, ours.to_pylist()))
    files = [f"{table.uri}/{path}" for path in table.snapshot().paths().to_pylist()]
    counted = duckdb.connect().execute(
        f"SELECT count(*), count(day), count(s), min(i), max(n) FROM read_parquet({files})"
    )
    assert str(counted.fetchall()) == (
        "[(90, 60, 60, -2147483648, datetime.datetime(2024, 1, 1, 12, 0, 0, 500000))]"
    )
    found = spark.sql(f"SELECT count(*) FROM delta.`{table.uri}` WHERE y = X'C3A9' AND i < 0")
    assert found.collect()[0][0] == 30


def test_the_engine_continues(spark: Any, table: Table) -> None:
    migrate(table, ["day", "id"])
    where = f"delta.`{table.uri}`"
    spark.sql(f"INSERT INTO {where} SELECT * FROM {where} WHERE id < 5")
    expected = rows_by_spark(spark, table)
    assert len(expected) == 90 + 15
    [row] = spark.sql(f"OPTIMIZE {where}").collect()
    metrics = row["metrics"].asDict(recursive=True)
    assert metrics["clusteringStats"]["inputZCubeFiles"]["numFiles"] == 1  # ours is its own cube
    assert rows_by_spark(spark, table) == expected
    spark.sql(f"DELETE FROM {where} WHERE day IS NULL")
    assert len(rows_by_spark(spark, table)) == 70
    assert not table.plan(full=True).skipped


def test_the_engine_restores_the_partitioned_table(spark: Any, table: Table) -> None:
    before, version = rows_by_spark(spark, table), table.snapshot().version
    migrate(table, ["id"])
    spark.sql(f"INSERT INTO delta.`{table.uri}` SELECT * FROM delta.`{table.uri}` WHERE id = 1")
    spark.sql(f"RESTORE TABLE delta.`{table.uri}` TO VERSION AS OF {version}")
    assert rows_by_spark(spark, table) == before
    assert detail(spark, table) == (list(SQL_COLUMNS), [])
    spark.sql(f"INSERT INTO delta.`{table.uri}` SELECT * FROM delta.`{table.uri}` WHERE id = 1")
    expected = rows_by_spark(spark, table)
    migrate(table, ["i"])
    assert rows_by_spark(spark, table) == expected
    assert detail(spark, table) == ([], ["i"])


def test_row_ids_deletions_and_change_data_are_kept(spark: Any, tmp_path: Path) -> None:
    where = f"delta.`{tmp_path / 't'}`"
    names = ("DeletionVectors", "RowTracking", "ChangeDataFeed", "InCommitTimestamps")
    properties = ", ".join(f"'delta.enable{name}' = 'true'" for name in names)
    spark.sql(
        f"CREATE TABLE {where} (id INT, p STRING) USING delta PARTITIONED BY (p)"
        f" TBLPROPERTIES ({properties}, 'delta.appendOnly' = 'false')"
    )
    for file in range(3):
        for text in ("'a b'", "NULL"):
            ids = f"range({9 * file}, {9 * file + 9}, 1, 1)"
            spark.sql(f"INSERT INTO {where} SELECT CAST(id AS INT), {text} FROM {ids}")
    spark.sql(f"DELETE FROM {where} WHERE id % 4 = 1")
    table = Table.open(str(tmp_path / "t"))
    tracked = f"SELECT *, _metadata.row_id, _metadata.row_commit_version FROM {where}"
    before = sorted(map(str, spark.sql(tracked).collect()))
    plan = table.plan_migration("p")
    result = execute(plan)
    spark.sql(f"DELETE FROM {where} WHERE id % 10 = 2 AND p = 'a b'")
    after = sorted(map(str, spark.sql(tracked).collect()))
    assert len(before) > len(after)
    report = table.commit(plan, result)
    assert report.reconciled.rows == len(before) - len(after)
    assert sorted(map(str, spark.sql(tracked).collect())) == after
    changes = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 0)
        .load(table.uri)
    )
    found = Counter(row["_change_type"] for row in changes.collect())
    assert found["insert"] == 54
    assert found["delete"] == 54 - len(after)
    spark.sql(f"INSERT INTO {where} VALUES (1000, 'new')")
    assert spark.sql(f"SELECT count(*) FROM {where}").collect()[0][0] == len(after) + 1


def test_what_others_write_while_it_runs_is_caught_up_with(spark: Any, table: Table) -> None:
    where = f"delta.`{table.uri}`"
    plan = table.plan_migration("day")
    result = execute(plan)
    spark.sql(f"INSERT INTO {where} SELECT * FROM {where} WHERE id = 1")
    spark.sql(f"UPDATE {where} SET day = DATE'2025-05-05' WHERE id = 101 AND i = 1")
    spark.sql(f"DELETE FROM {where} WHERE id = 202")
    before = rows_by_spark(spark, table)
    with pytest.raises(CommitConflictError):
        table.commit(plan, result)
    assert rows_by_spark(spark, table) == before
    extended = table.plan_migration(add_to=plan)
    rest = execute(extended, [group.group_id for group in extended.groups[len(plan.groups) :]])
    both = RewriteResult(plan_id=plan.plan_id, groups=(*result.groups, *rest.groups))
    report = table.commit(extended, both, max_reconciled_share=1)
    assert len(report.versions) == 1
    assert report.reconciled.rows > 0
    assert rows_by_spark(spark, table) == before
    assert detail(spark, table) == ([], ["day"])
