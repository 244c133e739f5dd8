"""Rows of tables as DataFrames: `liquidspark.read`."""

from functools import reduce
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import liquidspark
from liquidlog import Table
from liquidlog.errors import CorruptLogError, ExecutorError, UsageError
from liquidspark import append, overwrite, read
from support.written import (
    CHAR_TRUTH,
    NOWHERE,
    TYPED,
    char_table,
    filled,
    nested_schema,
    numbers,
    require_untouched,
    table_of,
    table_with_lost_vector,
    typed_frame,
    typed_table,
)

pytestmark = pytest.mark.spark


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


@pytest.mark.sparks
def test_every_type_is_read_exactly(spark: SparkSession, tmp_path: Path) -> None:
    if spark.version.startswith("3."):
        pytest.skip("this Spark has no variants")
    table, frame = typed_table(tmp_path), typed_frame(spark)
    append(frame, table, cluster=False)
    kept = [f"cast({name} as string) {name}" for name, _, _ in TYPED if name != "v"]
    kept = ["id", *kept, "hex(bin) h", "to_json(v) j", "double('-0.0') <=> d z"]
    found = read(spark, table)
    assert [one.dataType for one in found.schema] == [one.dataType for one in frame.schema]
    wanted, found = frame.selectExpr(*kept), found.selectExpr(*kept)
    assert found.count() == 300
    assert wanted.exceptAll(found).isEmpty()


def test_structs_maps_and_nulls_are_read(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, nested_schema(), cluster_by=["id"])
    frame = spark.range(2).selectExpr(
        "id",
        "IF(id = 1, NULL, named_struct('a', id, 'b', array('u', NULL))) AS st",
        "map('k', named_struct('x', cast(id as int))) AS m",
    )
    append(frame, table)
    found = {row.id: row for row in read(spark, table).collect()}
    assert (found[1].st, found[0].st.b, found[0].m["k"].x) == (None, ["u", None], 0)


@pytest.mark.sparks
def test_texts_of_char_columns_are_padded_as_spark_pads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = char_table(tmp_path)
    frames = {
        **{(where, "asked"): read(spark, table, where=where) for where in CHAR_TRUTH},
        **{(where, "filtered"): read(spark, table).where(where) for where in CHAR_TRUTH},
    }
    told = [frame.selectExpr(f"{n} AS n", "id") for n, frame in enumerate(frames.values())]
    rows = reduce(DataFrame.union, told).collect()
    found = [sorted(row.id for row in rows if row.n == n) for n in range(len(frames))]
    assert dict(zip(frames, found, strict=True)) == {case: CHAR_TRUTH[case[0]] for case in frames}
    first = read(spark, table, where="id = 0").collect()[0]
    padded = "a   "
    assert (first.c, first.st.c, first.m, first.v) == (padded, padded, {padded: [padded]}, "a")


@pytest.mark.sparks
def test_a_table_is_read_at_a_version_and_only_the_columns_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    assert read(spark, table).collect() == []
    for start in (0, 1000, 2000):
        filled(table, 1000, start=start)
    first = read(spark, table.uri)
    overwrite(numbers(spark, 7), table, where="true")
    assert first.count() == 3000  # a DataFrame is of one version
    assert read(spark, table).count() == 7
    assert ids(read(spark, table, version=1)) == list(range(1000))
    opened = Table.open(table.uri, version=2)
    assert read(spark, opened).count() == 2000
    found = read(spark, opened, columns=["s", "id"], where="id >= 1990")
    assert (found.columns, ids(found)) == (["s", "id"], list(range(1990, 2000)))
    with pytest.raises(UsageError, match="no, which the table lacks; it has id, k, s"):
        read(spark, table, columns="no")
    with pytest.raises(UsageError, match="columns names s, twice"):
        read(spark, table, columns=["s", "s"])
    with pytest.raises(UsageError, match="no"):
        read(spark, table, where="no = 1")


def test_files_without_rows_that_are_asked_for_are_not_opened(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path, cluster_by=["id"])
    for start in (0, 1000, 2000):
        filled(table, 1000, start=start)
    found = read(spark, table, where="id BETWEEN 1200 AND 1300 AND s LIKE 'row%'")
    wanted = table.scan("id = 1250").files["path"].to_pylist()
    for path in set(table.files()["path"].to_pylist()) - set(wanted):
        (Path(table.uri) / path).unlink()  # what is opened must be there
    assert ids(found) == list(range(1200, 1301))
    with pytest.raises(PySparkException):
        read(spark, table).collect()


@pytest.mark.sparks
def test_a_table_is_not_taken_for_a_small_one_in_joins(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes rows of Python functions to be as small as what goes into these."""
    table = filled(table_of(tmp_path, cluster_by=["id"]), 1000)
    rows = read(spark, table)

    def planned(frame: DataFrame) -> str:
        return str(rows.join(frame, "id")._jdf.queryExecution().executedPlan().toString())

    assert "BroadcastHashJoin" not in planned(rows.select("id"))
    assert "BuildRight" in planned(spark.range(10))


def test_deletion_vectors_that_are_nowhere_are_named(spark: SparkSession, tmp_path: Path) -> None:
    for nowhere in NOWHERE:
        table, path = table_with_lost_vector(tmp_path / nowhere, nowhere)
        with pytest.raises(CorruptLogError, match=path):
            read(spark, table)
        with pytest.raises(ExecutorError, match=path):
            overwrite(numbers(spark, 5), table, where="id < 10")
        require_untouched(table, 2)


def test_large_files_are_read_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from liquidspark import reading

    table = filled(table_of(tmp_path, cluster_by=["id"]), 20_000)
    monkeypatch.setattr(reading, "_TASK_BYTES", 1 << 13)
    monkeypatch.setattr(reading, "_MOST_TASK_BYTES", 1 << 13)
    found = read(spark, table, columns="id")
    assert found.rdd.getNumPartitions() > 4
    assert ids(found) == list(range(20_000))


def test_who_registers_the_former_format_is_told_what_to_use() -> None:
    with pytest.raises(UsageError, match=r"liquidspark\.read, write with liquidspark\.append"):
        from liquidspark import register  # noqa: F401
    assert "register" not in dir(liquidspark)
