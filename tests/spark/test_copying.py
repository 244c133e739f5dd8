"""Spark's files are copied row group by row group, and Spark reads what comes of it."""

from pathlib import Path

import pytest
from msgspec import UNSET
from pyspark.sql import SparkSession

from liquidlog.plan import ClusteringPlan, CopiedRowGroups, InputFile, RewriteMode
from liquidspark import ExecutorOptions, execute
from support.plans import make_plan, schema_json_of

pytestmark = pytest.mark.spark

COLUMNS = {"id": "long", "text": "string", "price": "decimal(9,2)", "d": "double", "day": "date"}
QUERY = """
    select id, concat('text ', id % 97) as text, cast(id % 1000 / 7 as decimal(9, 2)) as price,
           if(id % 50 = 0, double('NaN'), id / 3) as d, date_add(date'2020-01-01', cast(id % 900 as int)) as day
    from range({start}, {stop}, 1, 1)
"""  # noqa: E501


def compaction(spark: SparkSession, directory: Path, files: int, rows: int) -> ClusteringPlan:
    """Let Spark write files of one row group each; return the plan that joins them."""
    inputs = []
    for number in range(files):
        query = QUERY.format(start=number * rows, stop=(number + 1) * rows)
        written = directory / f"written {number}"
        spark.sql(query).write.option("compression", "zstd").parquet(str(written))
        (path,) = written.glob("*.parquet")
        path = path.rename(directory / f"input {number}.parquet")
        inputs.append(InputFile(path=path.name, size_bytes=path.stat().st_size, num_records=rows))
    return make_plan(
        directory, schema_json_of(COLUMNS), [(tuple(inputs), 1)], mode=RewriteMode.COMPACTION
    )


def test_small_row_groups_become_one(spark: SparkSession, tmp_path: Path) -> None:
    plan = compaction(spark, tmp_path, files=3, rows=10_000)
    (group,) = execute(spark, plan).groups
    assert not isinstance(group.copied, CopiedRowGroups)
    assert group.rows_written == 30_000


def test_spark_reads_the_row_groups_that_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    rows = 400_000
    plan = compaction(spark, tmp_path, files=2, rows=rows)
    (group,) = execute(spark, plan).groups
    (decoded,) = execute(spark, plan, options=ExecutorOptions(copy_row_groups=False)).groups
    assert isinstance(group.copied, CopiedRowGroups)
    assert group.copied.rows == group.rows_written == 2 * rows
    assert decoded.copied is UNSET
    (output,), (other,) = group.outputs, decoded.outputs
    assert (output.stats, output.num_records) == (other.stats, other.num_records)
    expected = spark.sql(QUERY.format(start=0, stop=2 * rows))
    for vectorised in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
        try:
            found = spark.read.parquet(str(tmp_path / output.path))
            assert found.exceptAll(expected).isEmpty()
            assert expected.exceptAll(found).isEmpty()
            # Pages are skipped by their index here.
            assert found.where("id between 399000 and 401000").count() == 2_001
            assert found.where("id = 555555").select("text").collect()[0].text == "text 36"
        finally:
            spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
