"""Advice on a table that Delta Spark Z-ordered: what is read now, and whether to change it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liquidlog.predicates.workload import Recorded, WeightedPredicate, Workload
from liquidlog.table import Table

pytestmark = pytest.mark.reference

VALUES = 100_000
FILE_BYTES = 24_000


def points(column: str, count: int = 40) -> Workload:
    random = np.random.default_rng(3)
    return tuple(
        WeightedPredicate(f"{column} = {random.integers(VALUES)}", recorded=Recorded(last_ms=n))
        for n in range(count)
    )


@pytest.fixture
def zordered(spark: Any, tmp_path: Path) -> Table:
    """Return a table that OPTIMIZE ZORDER BY (x) cut into many files."""
    uri = str(tmp_path / "zordered")
    drawn = ", ".join(f"CAST(rand({n}) * {VALUES} AS BIGINT) {name}" for n, name in enumerate("xz"))
    spark.range(60_000).selectExpr("id").createOrReplaceTempView("ids")
    spark.sql(f"CREATE TABLE delta.`{uri}` USING delta AS SELECT {drawn} FROM ids")
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", FILE_BYTES)
    try:
        spark.sql(f"OPTIMIZE delta.`{uri}` ZORDER BY (x)")
    finally:
        spark.conf.unset("spark.databricks.delta.optimize.maxFileSize")
    return Table.open(uri)


def opened_files(spark: Any, table: Table, where: str) -> int:
    """Return how many files Spark opens for a condition, by its own skipping."""
    found = spark.read.format("delta").load(table.uri).where(where)
    return len(found.inputFiles())


def test_readers_of_the_z_ordered_column_are_left_alone_and_others_are_not(
    spark: Any, zordered: Table
) -> None:
    assert zordered.snapshot().files.num_rows > 10
    for column, is_served in (("x", True), ("z", False)):
        workload = points(column)
        advice = zordered.advise(workload, max_file_size=FILE_BYTES)
        newest = workload[-12:]
        files = np.mean([opened_files(spark, zordered, one.where) for one in newest])
        assert advice.current.files_per_reading == pytest.approx(files, rel=0.1)
        assert advice.current.columns == ()
        assert advice.is_recommended == (not is_served), advice.reason
        if not is_served:
            assert advice.best is not None
            assert advice.best.candidate.columns == (("z",),)
            assert advice.best.read_share < 0.2 * advice.current.read_share
