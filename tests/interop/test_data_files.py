"""Data files as we write them, read by Delta Spark's vectorised reader and by its row-based one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.spec.actions import normal_path
from liquidlog.spec.text import CODEC_NAMES, CODEC_PROPERTY
from liquidlog.table import Table
from support.arrow_executor import execute
from support.copies import filled
from support.repository import ROOT

pytestmark = pytest.mark.reference

VECTORISED = "spark.sql.parquet.enableVectorizedReader"


UNSIGNED = {pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long"}
UNSIGNED |= {pa.uint64(): "decimal(20,0)"}


@contextmanager
def reader(spark: Any, *, vectorised: bool) -> Iterator[None]:
    spark.conf.set(VECTORISED, str(vectorised).lower())
    try:
        yield
    finally:
        spark.conf.unset(VECTORISED)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_is_read(spark: Any, tmp_path: Path, codec: str) -> None:
    rows = pa.table({"a": range(5000), "b": [f"text {row % 40}" for row in range(5000)]})
    path = str(tmp_path / "t")
    table = Table.create(path, schema=rows.schema, properties={CODEC_PROPERTY: codec})
    table.append(rows)
    for vectorised in (True, False):
        with reader(spark, vectorised=vectorised):
            found = spark.sql(f"select a, b from delta.`{path}` order by a").collect()
        assert [row.asDict() for row in found] == rows.to_pylist()


@pytest.mark.parametrize(("kind", "wanted"), UNSIGNED.items(), ids=str)
def test_unsigned_integers_stay_what_the_engine_reads(
    spark: Any, tmp_path: Path, kind: pa.DataType, wanted: str
) -> None:
    """A table over files with unsigned integers holds, rewritten, what it held before."""
    path, bits = tmp_path / "t", kind.bit_width
    numbers = [0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1, None]
    inside = pa.StructArray.from_arrays(
        [pa.array(numbers, kind), pa.array([[n] for n in numbers], pa.list_(kind))], ["x", "l"]
    )
    data = pa.table({"x": pa.array(numbers, kind), "s": inside})
    path.mkdir()
    for name, use_dictionary in (("encoded", True), ("plain", False)):
        pq.write_table(data, path / f"{name}.parquet", use_dictionary=use_dictionary)
    spark.sql(f"convert to delta parquet.`{path}`")
    before = readings(spark, path)
    table = Table.open(str(path))
    assert json.loads(table.snapshot().metadata.schema_string)["fields"][0]["type"] == wanted
    table.cluster_by(["x"])
    plan = table.plan(full=True)
    assert len(plan.groups[0].inputs) == 2
    table.commit(plan, execute(plan))
    expected = sorted(repr({"x": n, "s": {"x": n, "l": [n]}}) for n in numbers * 2)
    for found in (*before, *readings(spark, path)):
        assert found == expected


def readings(spark: Any, path: Path) -> list[list[str]]:
    """Return the rows as both readers of the engine read them, as text, sorted."""
    found = []
    for vectorised in (True, False):
        with reader(spark, vectorised=vectorised):
            rows = spark.sql(f"select x, s from delta.`{path}`").collect()
        found.append(sorted(repr(numeric(row.asDict(recursive=True))) for row in rows))
    return found


def numeric(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with decimals as the integers that they are."""
    inside = row["s"]
    return {
        "x": whole(row["x"]),
        "s": {"x": whole(inside["x"]), "l": [whole(n) for n in inside["l"]]},
    }


def whole(number: Any) -> int | None:
    return None if number is None else int(number)


# One file, spelled in many ways: the reference engine and we see the same live files.


SCHEMA = pa.schema([("a", pa.int64())])
PAIRS = [
    ("file:{}/x", "{}/x"),
    ("{}/x", "file:{}/x"),
    ("file:///{}/x", "{}/x"),
    ("file:{}/x", "file:////{}/x"),
    ("file:{}/x", "file:{}//x"),
    ("file:{}/x", "file:{}/q/../x"),
    ("file:{}/x", "file://localhost{}/x"),
    ("file:{}/x", "/{}/x"),
    ("file:{}/x", "file:{}/%78"),
    ("x", "./x"),
    ("x", "y/../x"),
    ("x", "x/"),
    ("x", "%78"),
    ("x", "{}/x"),
    ("y/x", "y//x"),
    ("y/x", "y%2Fx"),
    ("a+x", "a%2Bx"),
    ("a%20x", "a%2520x"),
]
"""What is added, and how the next version names what it removes. `{}` is the table."""


def _commit(table: Table, version: int, actions: list[dict[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}}
    lines = "".join(json.dumps(line) + "\n" for line in (info, *actions))
    (Path(table.uri) / "_delta_log" / f"{version:020d}.json").write_text(lines)


def _add(path: str, size_bytes: int = 1) -> dict[str, Any]:
    add = {"path": path, "partitionValues": {}, "size": size_bytes, "modificationTime": 0}
    return {"add": {**add, "dataChange": True}}


def test_a_remove_is_about_the_same_file(spark: Any, tmp_path: Path) -> None:
    place = f"{tmp_path}/t"
    table = Table.create(place, schema=SCHEMA)
    spelled = [
        (f"{added}{i}".format(place), f"{removed}{i}".format(place))
        for i, (added, removed) in enumerate(PAIRS)
    ]
    _commit(table, 1, [_add(added) for added, _ in spelled])
    gone = {"deletionTimestamp": 1, "dataChange": True}
    _commit(table, 2, [{"remove": {"path": removed, **gone}} for _, removed in spelled])
    # Equal URIs are found among the actions of a partition, and `file:/x` and `file:///x` go to
    # different ones.
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    gateway = spark._jvm
    log = gateway.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, place)
    none = gateway.scala.Option.apply(None)
    stale_allowed = False
    theirs = [file.path() for file in log.update(stale_allowed, none, none).allFiles().collect()]
    ours = table.snapshot().files["path"].to_pylist()
    assert 0 < len(ours) < len(PAIRS)
    assert sorted(map(normal_path, theirs)) == sorted(map(normal_path, ours))


def test_names_are_opened_where_the_reference_opens_them(spark: Any, tmp_path: Path) -> None:
    names = ["a b", "x%20y", "h#x", "q?x", "p+", "ü", "%", "c=d"]
    for name in names:
        (tmp_path / "away" / name).mkdir(parents=True)
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/away/{name}/s` (a BIGINT) USING delta")
        spark.sql(f"INSERT INTO delta.`{tmp_path}/away/{name}/s` VALUES (1)")
        spark.sql(f"INSERT INTO delta.`{tmp_path}/away/{name}/s` VALUES (2)")
        clone = f"{tmp_path}/clone {names.index(name)}"
        spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{tmp_path}/away/{name}/s`")
        paths = Table.open(clone).plan().groups[0].inputs.columns["path"].to_pylist()
        assert sum(pq.read_metadata(path).num_rows for path in paths) == 2


# What others say of our VACUUM and DROP FEATURE: Delta Spark on the same tables.


LOGS: Final = ROOT / "fixtures" / "logs"
CASES: Final = (
    "03_optimize_once",
    "09_cm_name_rename",
    "12_dv_live",
    "17_checkpoint_multipart",
    "18_v2_checkpoint_parquet",
    "23_cdf_dv",
    "24_partitioned_special_values",
)


@pytest.mark.parametrize("case", CASES)
def test_delta_spark_would_delete_the_same(case: str, spark: Any, tmp_path: Path) -> None:
    from interop.golden_vacuum import compare_case

    filled(LOGS / case / "table", tmp_path / "table")
    outcomes = [outcome for _, outcome in compare_case(spark, tmp_path)]
    assert {kind for kind, _ in outcomes} == {"the same files, but names that are not of data"}, (
        outcomes
    )


def test_delta_spark_goes_on_after_a_vacuum(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "table"
    spark.sql(f"CREATE TABLE delta.`{root}` (a BIGINT) USING delta CLUSTER BY (a)")
    for value in range(3):
        spark.sql(f"INSERT INTO delta.`{root}` VALUES ({value})")
    spark.sql(f"DELETE FROM delta.`{root}` WHERE a = 1")
    done = Table.open(root).vacuum(retain="0s", allow_short_retention=True)
    assert done.deleted_files == 2, "one was removed, one was written by the DELETE for no row"
    spark.sql(f"INSERT INTO delta.`{root}` VALUES (7)")
    rows = spark.sql(f"SELECT a FROM delta.`{root}` ORDER BY a").collect()
    assert [row.a for row in rows] == [0, 2, 7]
    history = spark.sql(f"DESCRIBE HISTORY delta.`{root}`").collect()
    ended, started = history[1], history[2]
    assert (started.operation, ended.operation) == ("VACUUM START", "VACUUM END")
    assert ended.operationMetrics == {"numDeletedFiles": "2", "numVacuumedDirectories": "1"}


def test_all_writers_are_back_after_the_features_are_dropped(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "table"
    write_deltalake(root, pa.table({"a": [1]}))
    table = Table.open(root)
    table.cluster_by(["a"])
    table.append(pa.table({"a": [2]}))
    dropped = table.drop_feature("clustering")
    spark.sql(f"INSERT INTO delta.`{root}` VALUES (3)")
    assert spark.sql(f"DESCRIBE DETAIL delta.`{root}`").first().clusteringColumns == []
    spark.sql(f"ALTER TABLE delta.`{root}` DROP FEATURE domainMetadata")
    theirs = Table.open(root).snapshot()
    assert (theirs.protocol.min_reader_version, theirs.protocol.min_writer_version) == (1, 2)
    assert dropped.protocol.writer_features == ("appendOnly", "invariants", "domainMetadata")
    write_deltalake(root, pa.table({"a": [4]}), mode="append")
    rows = spark.sql(f"SELECT a FROM delta.`{root}` ORDER BY a").collect()
    assert [row.a for row in rows] == [1, 2, 3, 4]
    assert DeltaTable(root).protocol().min_writer_version == 2
    assert {
        row.a for row in spark.sql(f"SELECT a FROM delta.`{root}` VERSION AS OF 2").collect()
    } == {1, 2}
