"""`liquidspark.read` beside Delta Spark: the same rows, in the same types."""

from pathlib import Path
from typing import Any

import pytest

from liquidlog.errors import LiquidlogError
from liquidspark import append, read
from support.partitioned import PARTED_BY
from support.repository import ROOT

pytestmark = pytest.mark.reference

FIXTURES = ROOT / "fixtures"

CASES = sorted(
    path.parent
    for kind in ("tables", "logical")
    for path in (FIXTURES / kind).glob("*/**/_delta_log")
)


def texts(frame: Any) -> Any:
    """Return rows as texts that say every value: JSON leaves out nulls of maps and structs."""
    return frame.selectExpr("cast(struct(*) AS string) AS t", "count(1) OVER () AS n")


@pytest.mark.parametrize("path", CASES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_tables_have_the_rows_that_delta_spark_reads(spark: Any, path: Path) -> None:
    wanted = spark.read.format("delta").load(str(path))
    try:
        found = read(spark, path)
    except LiquidlogError as error:
        pytest.skip(f"refused: {error}")
    assert [(one.name, one.dataType.simpleString()) for one in found.schema] == [
        (one.name, one.dataType.simpleString()) for one in wanted.schema
    ]
    assert texts(found).exceptAll(texts(wanted)).isEmpty()
    assert texts(wanted).exceptAll(texts(found)).isEmpty()


@pytest.mark.parametrize("mode", ["none", "name"])
@pytest.mark.parametrize("columns", PARTED_BY)
def test_partition_values_are_those_that_delta_spark_reads(
    spark: Any, tmp_path: Path, columns: str, mode: str
) -> None:
    name = f"delta.`{tmp_path / 't'}`"
    parts = ", ".join(part.split()[0] for part in columns.split(", ")[::-1])
    spark.sql(
        f"CREATE TABLE {name} ({columns}, id BIGINT) USING delta PARTITIONED BY ({parts})"
        f" TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
    )
    spark.sql(f"INSERT INTO {name} SELECT {PARTED_BY[columns]}, id FROM range(12)")
    found, wanted = read(spark, tmp_path / "t"), spark.table(name)
    assert [one.dataType for one in found.schema] == [one.dataType for one in wanted.schema]
    assert texts(found).exceptAll(texts(wanted)).isEmpty()
    assert texts(wanted).exceptAll(texts(found)).isEmpty()
    first = columns.split(maxsplit=1)[0]
    assert read(spark, tmp_path / "t", columns=first).count() == 12
    where = f"{first} IS NULL OR {first} <> {first} OR id > 3"
    assert read(spark, tmp_path / "t", where=where).count() == wanted.where(where).count()


def test_what_others_delete_and_change_is_read(spark: Any, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, s VARCHAR(12), st STRUCT<a: INT, b: ARRAY<STRING>>)"
        " USING delta CLUSTER BY (id) TBLPROPERTIES ('delta.columnMapping.mode' = 'name',"
        " 'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true',"
        " 'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        "concat('row ', id) AS s",
        "named_struct('a', cast(id as int), 'b', array('x', NULL)) AS st",
        "id",
    )
    for cluster in (True, False):
        append(frame, tmp_path / "t", cluster=cluster)
    spark.sql(f"DELETE FROM {name} WHERE id % 3 = 1")
    spark.sql(f"UPDATE {name} SET s = 'changed' WHERE id < 5")
    found = read(spark, tmp_path / "t")
    assert texts(found).exceptAll(texts(spark.table(name))).isEmpty()
    assert found.count() == spark.table(name).count()
    assert read(spark, tmp_path / "t", where="s = 'changed'").count() == 6
