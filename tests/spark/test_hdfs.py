"""OPTIMIZE of a table in HDFS: workers read and write without Hadoop's client."""

import secrets
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import liquidspark
from liquidlog.table import Table
from support import emulators

pytestmark = pytest.mark.spark

ROWS = pa.table({"x": list(range(2000)), "y": [n * 7919 % 1000 for n in range(2000)]})


@pytest.fixture(scope="module")
def hdfs_root() -> Iterator[str]:
    with emulators.hdfs() as address:
        yield address


def test_a_shuffled_group(spark: SparkSession, hdfs_root: str) -> None:
    place = f"{hdfs_root}/{secrets.token_hex(6)}/a table"
    table = Table.create(place, schema=ROWS.schema, cluster_by=["x", "y"])
    for _ in range(3):
        table.append(ROWS)
    plan = table.plan(max_file_size=4_000)
    options = liquidspark.ExecutorOptions(single_task_bytes=1)
    report = table.commit_each(plan, liquidspark.execute_groups(spark, plan, options=options))
    report.require_success()
    assert report.rows_verified == 3 * len(ROWS)
    assert list(table.orphans(older_than="0s")) == []
    assert table.health().unclustered_file_count == 0
