"""What DataFrames are written to is read, changed and optimized by Delta Spark."""

from pathlib import Path
from typing import Any

import pytest

from liquidlog import Table
from liquidlog.errors import LiquidlogError
from liquidspark import ExecutorOptions, append, overwrite, read, stream
from support.partitioned import PARTED_BY
from support.repository import ROOT

pytestmark = pytest.mark.reference

SHUFFLED = ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 14, sample_rows=1 << 12)


@pytest.fixture
def name(spark: Any, tmp_path: Path) -> str:
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, day DATE, s VARCHAR(12), at TIMESTAMP,"
        " st STRUCT<a: INT, b: ARRAY<STRING>>, twice BIGINT GENERATED ALWAYS AS (id * 2))"
        " USING delta CLUSTER BY (id, day) TBLPROPERTIES ('delta.columnMapping.mode' = 'name',"
        " 'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true',"
        " 'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT known CHECK (s <> 'none')")
    return name


def rows(spark: Any, start: int, stop: int) -> Any:
    return spark.range(start, stop, 1, 3).selectExpr(
        "date_add(date'2024-01-01', cast(id % 90 as int)) AS day",
        "id",
        "concat('row ', id) AS s",
        "timestamp_micros(id * 1000003) AS at",
        "named_struct('b', array('x', cast(id as string)), 'a', cast(id as int)) AS st",
    )


def same(spark: Any, name: str, expected: Any) -> bool:
    columns = ["id", "day", "s", "at", "st.a", "st.b", "twice"]
    found = spark.table(name).selectExpr(*columns)
    wanted = expected.selectExpr("*", "id * 2 AS twice").selectExpr(*columns)
    return bool(found.exceptAll(wanted).isEmpty() and wanted.exceptAll(found).isEmpty())


def test_delta_spark_reads_and_continues(spark: Any, name: str, tmp_path: Path) -> None:
    table = Table.open(tmp_path / "t")
    append(rows(spark, 0, 6000), table, options=SHUFFLED, max_file_size="32KiB")
    append(rows(spark, 6000, 6500), table, cluster=False)
    assert same(spark, name, rows(spark, 0, 6500))
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 3")
    spark.sql(f"UPDATE {name} SET s = 'changed' WHERE id < 10")
    append(rows(spark, 6500, 6600), table, txn=("job", 4))
    assert spark.table(name).count() == 5950
    done = overwrite(rows(spark, 0, 20), table, where="true")
    assert done.replaced_files > 1
    assert same(spark, name, rows(spark, 0, 20))
    assert table.opened.last_transaction("job") == 4
    version = done.version
    changes = spark.sql(
        f"SELECT _change_type t, count(*) n FROM table_changes_by_path('{tmp_path / 't'}',"
        f" {version}, {version}) GROUP BY 1"
    )
    assert {row.t: row.n for row in changes.collect()} == {"insert": 20, "delete": 5950}
    ids = spark.sql(f"SELECT _metadata.row_id AS i FROM {name}").distinct()
    assert ids.count() == 20


def test_its_optimize_finds_a_clustered_append_to_be_a_partial_cube(
    spark: Any, name: str, tmp_path: Path
) -> None:
    table = Table.open(tmp_path / "t")
    append(rows(spark, 0, 6000), table, options=SHUFFLED, max_file_size="32KiB")
    files = table.files().num_rows
    assert files > 2
    (cube,) = table.cubes().to_pylist()
    append(rows(spark, 6000, 6100), table)
    metrics = spark.sql(f"OPTIMIZE {name}").collect()[0].metrics
    stats = metrics.clusteringStats
    assert stats.inputZCubeFiles.numFiles == files + 1
    assert stats.inputOtherFiles.numFiles == 0
    assert stats.inputNumZCubes == 2
    assert stats.numOutputZCubes == 1
    assert cube["zcube_id"] not in {one["zcube_id"] for one in table.cubes().to_pylist()}
    assert same(spark, name, rows(spark, 0, 6100))


def test_a_stream_is_read_and_streamed_on(spark: Any, name: str, tmp_path: Path) -> None:
    rows(spark, 0, 300).write.parquet(str(tmp_path / "in"))
    inputs = spark.readStream.schema(rows(spark, 0, 1).schema).parquet(str(tmp_path / "in"))
    for _ in range(2):
        query = stream(
            inputs, tmp_path / "t", checkpoint=str(tmp_path / "cp"), trigger={"availableNow": True}
        )
        query.awaitTermination()
    assert same(spark, name, rows(spark, 0, 300))
    found = spark.readStream.format("delta").load(str(tmp_path / "t")).select("id")
    onward = found.writeStream.option("checkpointLocation", str(tmp_path / "cp2"))
    query = onward.trigger(availableNow=True).format("parquet").start(str(tmp_path / "out"))
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 300


@pytest.mark.parametrize("mode", ["none", "name"])
@pytest.mark.parametrize("columns", PARTED_BY)
def test_partitions_are_those_that_it_writes_itself(
    spark: Any, tmp_path: Path, columns: str, mode: str
) -> None:
    names = [part.split()[0] for part in columns.split(", ")]
    for place in ("ours", "theirs"):
        spark.sql(
            f"CREATE TABLE delta.`{tmp_path / place}` ({columns}, id BIGINT) USING delta"
            f" PARTITIONED BY ({', '.join(names)})"
            f" TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
        )
    listed = ", ".join(names)
    frame = spark.sql(f"SELECT id, {PARTED_BY[columns]} FROM range(40)").toDF("id", *names)
    kinds = [f"cast({name} as {part.split()[1]}) {name}" for name, part in zip(
        names, columns.split(", "), strict=True
    )]  # fmt: skip
    frame = frame.selectExpr("id", *kinds)
    frame.write.format("delta").mode("append").save(str(tmp_path / "theirs"))
    table = Table.open(tmp_path / "ours")
    append(frame, table, cluster=False)
    texts = f"cast(struct({listed}, id) AS string) t"
    ours, theirs = (
        spark.read.format("delta").load(str(tmp_path / place)).selectExpr(texts)
        for place in ("ours", "theirs")
    )
    assert ours.exceptAll(theirs).isEmpty()
    assert theirs.exceptAll(ours).isEmpty()
    values = [
        {tuple(one.values()) for one in Table.open(tmp_path / place).plan_read().partitions}
        for place in ("ours", "theirs")
    ]
    assert values[0] == values[1]
    overwrite(frame.where("id < 7"), table, where="id < 20", cluster=False)
    name = f"delta.`{tmp_path / 'ours'}`"
    assert spark.table(name).count() == 27
    spark.sql(f"DELETE FROM {name} WHERE id = 30")
    spark.sql(f"OPTIMIZE {name}")
    assert spark.table(name).count() == 26


# `liquidspark.read` beside Delta Spark: the same rows, in the same types.


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
