"""Statements and builders beside Delta Spark: names of its catalog, columns of its DataFrames."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import liquidspark
from liquidlog.errors import LiquidlogError, TableExistsError
from liquidspark.tables import DeltaTable
from support.commands import printed_statements

pytestmark = pytest.mark.reference


@pytest.fixture
def database(spark: Any, tmp_path: Path) -> Iterator[str]:
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.sql(f"CREATE DATABASE said LOCATION '{tmp_path}/said'")
    spark.sql("USE said")
    yield "said"
    spark.sql("USE default")
    spark.sql("DROP DATABASE said CASCADE")


@pytest.mark.usefixtures("database")
def test_every_printed_statement_runs_as_printed(spark: Any) -> None:
    for statement, reason in printed_statements():
        try:
            liquidspark.sql(spark, statement).collect()
            refused = None
        except LiquidlogError as error:
            refused = error.message
        assert (refused is None) == (reason is None), (statement, refused)
        assert (reason or "") in (refused or ""), statement
        if statement.startswith("CREATE TABLE events (") and refused is None:
            for first in (0, 100):
                spark.sql(f"INSERT INTO events SELECT id + {first}, 'x' FROM range(50)")
    rows = spark.table("events").select("col1").collect()
    assert sorted(row.col1 for row in rows) == [*range(50), *range(100, 150)]


def test_answers_have_the_reference_columns(spark: Any, database: str) -> None:
    spark.sql("CREATE TABLE t (a INT, `Location` STRING) USING delta CLUSTER BY (a) COMMENT 'c'")
    for _ in range(2):
        spark.sql("INSERT INTO t SELECT id, 'x' FROM range(20)")
    for statement in ("DESCRIBE DETAIL t", "DESCRIBE HISTORY t"):
        theirs, ours = spark.sql(statement), liquidspark.sql(spark, statement)
        assert [(one.name, one.dataType) for one in ours.schema] == [
            (one.name, one.dataType) for one in theirs.schema
        ]
    said: list[Any] = [spark.sql("DESCRIBE DETAIL t"), DeltaTable.forName(spark, "t").detail()]
    rows = [found.first() for found in said]
    their, our = ({**row.asDict(), "location": row.location.removeprefix("file:")} for row in rows)
    assert our == their
    commits: list[Any] = [spark.sql("DESCRIBE HISTORY t"), DeltaTable.forName(spark, "t").history()]
    before, after = (
        [(row.version, row.timestamp, row.operation, row.operationMetrics) for row in one.collect()]
        for one in commits
    )
    assert after == before
    done = DeltaTable.forName(spark, f"{database}.t").optimize().executeCompaction()
    # The reference never leaves a number out, and says so; ours is null where it is not measured.
    assert done.schema.simpleString() == spark.sql("OPTIMIZE t").schema.simpleString()
    assert DeltaTable.forName(spark, "t").toDF().count() == 40


@pytest.mark.usefixtures("database")
def test_a_new_table_has_a_name_and_rows_of_the_reference(spark: Any, tmp_path: Path) -> None:
    builder = (
        DeltaTable.create(spark)
        .tableName("said.made")
        .location(f"{tmp_path}/elsewhere")
        .addColumn("a", "INT")
        .addColumn("d", "decimal(5,2)")
        .clusterBy("a")
    )
    builder.execute()
    with pytest.raises(TableExistsError):
        builder.execute()
    spark.sql("INSERT INTO made VALUES (1, 2.5), (2, NULL)")
    liquidspark.sql(spark, "ALTER TABLE made ADD COLUMNS (e STRING COMMENT 'new')")
    spark.sql("REFRESH TABLE made")
    spark.sql("INSERT INTO made VALUES (3, 1, 'x')")
    assert [row.e for row in spark.sql("SELECT e FROM made ORDER BY a").collect()] == [
        None, None, "x",
    ]  # fmt: skip
    assert spark.sql("DESCRIBE DETAIL made").first().clusteringColumns == ["a"]
