"""What tables remember of their layout, set by Delta Spark, by us, and kept by every engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import liquidspark
from liquidlog.errors import UsageError
from liquidlog.report.policies import policy_document
from liquidlog.table import Table

pytestmark = pytest.mark.reference

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64())])
CLUSTERED = {
    "liquidlog.strategy": "overlap",
    "liquidlog.curve": "kd",
    "liquidlog.minCubeSize": "1MB",
    "liquidlog.targetCubeSize": "2MB",
    "liquidlog.maxFileSize": "16KiB",
    "liquidlog.tolerance": "1.1",
}
DECIDED = {
    "strategy": "overlap",
    "curve": "kd",
    "min_cube_bytes": 1 << 20,
    "target_cube_bytes": 2 << 20,
    "max_file_bytes": 16 << 10,
    "tolerance": 1.1,
}
ARBITRARY = "spark.databricks.delta.allowArbitraryProperties.enabled"


def rows(seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table([chance.permutation(8192), chance.permutation(8192)], schema=SCHEMA)


def created(spark: Any, path: Path, more: str = "") -> str:
    uri = str(path / "t")
    spark.sql(f"create table delta.`{uri}` (x bigint, y bigint) using delta {more}")
    return uri


def alter(spark: Any, uri: str, properties: Mapping[str, str]) -> None:
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(f"alter table delta.`{uri}` set tblproperties ({pairs})")


def remembered(uri: str) -> dict[str, Any]:
    """Return the settings of a plan that properties decided."""
    found = policy_document(Table.open(uri).plan())
    return {name: one["value"] for name, one in found.items() if one["from"] == "property"}


def properties_in_spark(spark: Any, uri: str) -> dict[str, str]:
    return {
        row["key"]: row["value"] for row in spark.sql(f"show tblproperties delta.`{uri}`").collect()
    }


def test_what_delta_spark_sets_is_honoured_and_kept(spark: Any, tmp_path: Path) -> None:
    uri = created(spark, tmp_path, "cluster by (x, y)")
    alter(spark, uri, CLUSTERED)
    table = Table.open(uri)
    for seed in range(3):
        table.append(rows(seed), cluster=True)
    assert remembered(uri) == DECIDED
    plan = table.plan()
    table.commit(plan, liquidspark.execute(spark, plan))
    assert len(table.files()) > 3
    spark.sql(f"insert into delta.`{uri}` values (1, 2)")
    spark.sql(f"optimize delta.`{uri}`")
    alter(spark, uri, {"mine": "1"})
    spark.sql(f"alter table delta.`{uri}` add column (z int)")
    assert remembered(uri) == DECIDED
    assert Table.open(uri).detail()["properties"].items() >= CLUSTERED.items()
    alter(spark, uri, {"liquidlog.curve": "hilbert"})
    spark.sql(f"alter table delta.`{uri}` unset tblproperties ('liquidlog.strategy')")
    kept = remembered(uri)
    assert kept == {
        name: value for name, value in DECIDED.items() if name not in {"strategy", "tolerance"}
    } | {"curve": "hilbert"}


def test_what_we_set_is_delta_sparks_and_copied(spark: Any, tmp_path: Path) -> None:
    uri = created(spark, tmp_path, "cluster by (x, y)")
    table = Table.open(uri)
    table.set_properties(CLUSTERED)
    assert properties_in_spark(spark, uri).items() >= CLUSTERED.items()
    spark.sql(f"insert into delta.`{uri}` select id, id % 97 from range(1000)")
    spark.sql(f"delete from delta.`{uri}` where x = 3")
    assert remembered(uri) == DECIDED
    like = Table.create(tmp_path / "like", like=table)
    spark.sql(f"insert into delta.`{like.uri}` values (1, 2)")
    assert remembered(like.uri) == DECIDED


def test_a_remembered_order_leaves_a_table_to_every_writer(spark: Any, tmp_path: Path) -> None:
    uri = created(spark, tmp_path)
    alter(spark, uri, {"liquidlog.zorderBy": "x, y", "liquidlog.maxFileSize": "32KiB"})
    write_deltalake(uri, rows(0), mode="append")
    write_deltalake(uri, rows(1), mode="append")
    DeltaTable(uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    decided = {"zorder_by": (("x",), ("y",)), "max_file_bytes": 32 << 10}
    assert remembered(uri) == decided
    table = Table.open(uri)
    plan = table.plan()
    assert plan.mode == "zorder"
    table.commit(plan, liquidspark.execute(spark, plan))
    write_deltalake(uri, rows(2), mode="append")
    DeltaTable(uri).optimize.compact()
    DeltaTable(uri).delete("x = 5")
    assert remembered(uri) == decided
    spark.sql(f"insert into delta.`{uri}` values (1, 2)")
    spark.sql(f"optimize delta.`{uri}`")
    assert remembered(uri) == decided
    count = spark.sql(f"select count(*) n from delta.`{uri}`").collect()[0]["n"]
    files = [str(Path(uri) / path) for path in table.files()["path"].to_pylist()]
    assert count == 3 * 8191 + 1 == duckdb.read_parquet(files).count("*").fetchall()[0][0]


def test_the_file_size_of_delta_is_set_with_its_own_permission(spark: Any, tmp_path: Path) -> None:
    uri = created(spark, tmp_path, "cluster by (x, y)")
    with pytest.raises(Exception, match="UNKNOWN_CONFIGURATION"):
        alter(spark, uri, {"delta.targetFileSize": "32768"})
    spark.conf.set(ARBITRARY, "true")
    try:
        alter(spark, uri, {"delta.targetFileSize": "32k"})
    finally:
        spark.conf.unset(ARBITRARY)
    assert remembered(uri) == {"max_file_bytes": 32 << 10}
    Table.open(uri).set_properties({"delta.targetFileSize": "65536"})
    spark.sql(f"insert into delta.`{uri}` values (1, 2)")
    alter(spark, uri, {"mine": "1"})
    assert remembered(uri) == {"max_file_bytes": 64 << 10}


@pytest.mark.parametrize("name", CLUSTERED)
def test_a_wrong_value_of_delta_spark_is_one_error_that_names_it(
    spark: Any, tmp_path: Path, name: str
) -> None:
    uri = created(spark, tmp_path, "cluster by (x, y)")
    alter(spark, uri, {"liquidlog.strategy": "overlap", name: "nonsense"})
    with pytest.raises(UsageError, match=f"{name} cannot be 'nonsense'"):
        Table.open(uri).plan()
    assert [one.name for one in Table.open(uri).doctor()] == ["wrong-property"]
    Table.open(uri).set_properties({}, unset=[name])
    assert name not in properties_in_spark(spark, uri)
    Table.open(uri).plan()
