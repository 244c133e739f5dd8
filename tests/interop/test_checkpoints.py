"""Delta Spark opens tables of which only our checkpoint is left. Needs its jars; skips without."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.table import Table
from support.arrow_executor import execute
from support.copies import copy_logs
from support.repository import ROOT

pytestmark = pytest.mark.reference

CASES = [
    "04_incremental_mixed",
    "09_cm_name_rename",
    "12_dv_live",
    "13_update_merge_dv",
    "15_row_tracking_dv",
    "16_in_commit_timestamps",
    "17_checkpoint_struct_stats",
    "18_v2_checkpoint_parquet",
    "18_v2_struct_stats",
    "24_partitioned_special_values",
    "27_file_names_special",
    "32_domain_removed",
]


def keep_only_the_checkpoint(table: Table) -> None:
    version = table.checkpoint().version
    for file in (Path(table.uri) / "_delta_log").iterdir():
        if file.is_file() and file.name[:20].isdecimal() and int(file.name[:20]) < version:
            file.unlink()
        elif file.suffix == ".crc":
            file.unlink()  # it says what the checkpoint must say alone


def detail(spark: Any, uri: str) -> dict[str, Any]:
    (row,) = spark.sql(f"describe detail delta.`{uri}`").collect()
    return {key: row[key] for key in ("numFiles", "sizeInBytes", "clusteringColumns")} | {
        "tableFeatures": sorted(row["tableFeatures"])
    }


@pytest.mark.parametrize("case", CASES)
def test_the_engine_describes_the_table_as_before(spark: Any, case: str, tmp_path: Path) -> None:
    table = Table.open(str(copy_logs(case, tmp_path)))
    keep_only_the_checkpoint(table)
    expected = json.loads((ROOT / "fixtures" / "logs" / case / "expected.json").read_text())
    found = detail(spark, table.uri)
    wanted = {key: expected["detail"][key] for key in found}
    assert found == {**wanted, "tableFeatures": sorted(wanted["tableFeatures"])}


def test_the_engine_reads_the_rows_and_continues(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema=schema, cluster_by=["a"])
    for first in range(0, 3000, 1000):
        values = list(range(first, first + 1000))
        table.append(pa.table([values, [f"b{n % 7}" for n in values]], schema=schema))
    plan = table.plan(max_file_size=8_000)
    table.commit(plan, execute(plan))
    tagged = table.cubes().num_rows
    keep_only_the_checkpoint(table)
    (row,) = spark.sql(f"select count(*) c, sum(a) s from delta.`{table.uri}`").collect()
    assert (row["c"], row["s"]) == (3000, sum(range(3000)))
    files = table.detail()["numFiles"]
    spark.sql(f"optimize delta.`{table.uri}`").collect()
    spark.sql(f"insert into delta.`{table.uri}` values (5000, 'z')").collect()
    left = Table.open(table.uri)
    assert left.cubes().num_rows == tagged
    assert left.detail()["numFiles"] == files + 1
    assert left.detail()["clusteringColumns"] == ["a"]
    spark.sql(f"delete from delta.`{table.uri}` where a < 10").collect()
    assert Table.open(table.uri).snapshot().version > table.snapshot().version - 1
