"""One file, spelled in many ways: the reference engine and we see the same live files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.spec.paths import normal_path
from liquidlog.table import Table

pytestmark = pytest.mark.reference

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
