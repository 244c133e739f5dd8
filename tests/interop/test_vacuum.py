"""What others say of our VACUUM and DROP FEATURE: Delta Spark on the same tables."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.table import Table
from support.copies import filled
from support.repository import ROOT

pytestmark = pytest.mark.reference

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
