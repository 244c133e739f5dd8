"""Spark writes files with Bloom filters through a rewrite, finds every value and skips by them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from liquidlog.table import Table
from liquidspark import execute
from support.filters import filters_in

pytestmark = pytest.mark.spark

ROWS = 60_000
ASKED = ("number", "text", "day", "part.code")


def rows() -> pa.Table:
    random = np.random.default_rng(5)
    values = random.permutation(ROWS) * 7
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "number": pa.array(values),
            "text": pa.array([f"name {value}" for value in values]),
            "day": pa.array(values % 20_000, pa.int32()).cast(pa.date32()),
            "part": pa.array([{"code": int(value) + 1} for value in values]),
            "filler": pa.array([random.bytes(30).hex() for _ in values]),
        }
    )


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    content = rows()
    made = Table.create(
        str(tmp_path_factory.mktemp("bloom") / "t"), schema=content.schema, cluster_by="id"
    )
    made.append(content)
    plan = made.plan(bloom_filter=list(ASKED), max_file_size="1MiB")
    made.commit(plan, execute(spark, plan))
    return made


def paths_of(table: Table) -> list[str]:
    return [f"{table.uri}/{path}" for path in table.files()["path"].to_pylist()]


def test_every_row_group_has_filters(table: Table) -> None:
    for path in paths_of(table):
        for filters in filters_in(path):
            assert {"number", "text"} <= filters.keys() <= {*ASKED}


@pytest.mark.parametrize("vectorised", ["true", "false"])
def test_spark_finds_every_value(spark: SparkSession, table: Table, vectorised: str) -> None:
    content = rows()
    columns = {
        "number": content["number"],
        "text": content["text"],
        "day": content["day"],
        "part.code": pc.struct_field(content["part"], ["code"]),
    }
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
    try:
        found = spark.read.parquet(*paths_of(table))
        for name, column in columns.items():
            for value in column.slice(100, 5).to_pylist():
                expected = pc.sum(pc.equal(column, pa.scalar(value, column.type))).as_py()
                assert found.where(f"{name} = {_literal(value)}").count() == expected
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_spark_opens_no_row_group_that_a_filter_rules_out(
    spark: SparkSession, table: Table
) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        found = spark.read.parquet(*paths_of(table))
        assert rows_scanned(found.where("text = 'name 15'")) == 0
        assert 0 < rows_scanned(found.where("text = 'name 14'")) < ROWS
        # A column without filters.
        assert rows_scanned(found.where("filler = 'f'")) > 0
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def rows_scanned(query: DataFrame) -> int:
    """Return how many rows Spark's scan hands on."""
    query.collect()
    leaves: Any = query._jdf.queryExecution().executedPlan().collectLeaves()
    return int(leaves.head().metrics().apply("numOutputRows").value())


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"
