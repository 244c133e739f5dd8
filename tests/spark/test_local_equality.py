"""The executor `local` writes the bytes that Spark writes for the same plan of recorded tables."""

import shutil
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from liquidlog.local.executor import LocalExecutor
from liquidlog.plan import ClusteringPlan, Outcome, RewrittenGroup
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute_groups
from support.partitioned import TEXTS, partitioned_table
from support.repository import ROOT

pytestmark = pytest.mark.spark

OPTIONS = {
    "one task": ExecutorOptions(),
    "shuffled": ExecutorOptions(single_task_bytes=0, task_bytes=1 << 14, slice_bytes=1 << 14),
}
FULL = {"full": True, "max_file_size": "20KB"}
RECORDED: Mapping[str, Mapping[str, Any]] = {
    "tables/09_cm_name_rename": FULL,
    "tables/10_cm_id": FULL,
    "tables/11_nested": FULL,
    "tables/11_struct_column_mapping": FULL,
    "tables/14_payload_types": FULL,
    "tables/14_types_text_time": FULL,
    "logical/12_dv_live": FULL,
    "logical/13_update_merge_dv": FULL,
    "logical/15_row_tracking": FULL,
    "logical/15_row_tracking_dv": FULL,
}
MADE: Mapping[str, Mapping[str, Any]] = {
    "prefix": {"prefix": "x"},
    "kd": {"curve": "kd"},
    "bloom": {"bloom_filter": "s"},
    "small files": {"max_file_size": "4KB"},
}


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor({}) as started:
        yield started


def digests(home: Path, outcomes: list[Outcome]) -> list[tuple[int, list[str]]]:
    groups = [one for one in outcomes if isinstance(one, RewrittenGroup)]
    assert len(groups) == len(outcomes) > 0, outcomes
    return sorted(
        (one.group_id, [sha256((home / f.path).read_bytes()).hexdigest() for f in in_order(one)])
        for one in groups
    )


def in_order(group: RewrittenGroup) -> list[Any]:
    """Return the outputs by the number in their names, which random parts surround."""
    return sorted(group.outputs, key=lambda one: Path(one.path).name.split("-")[3])


def assert_equal(
    spark: SparkSession, executor: LocalExecutor, plan: ClusteringPlan, options: ExecutorOptions
) -> None:
    executor._options = options
    groups = [group.group_id for group in plan.groups]
    here = list(executor(plan, groups, lambda *_: None))
    there = list(execute_groups(spark, plan, options=options))
    assert digests(Path(plan.table_uri), here) == digests(Path(plan.table_uri), there)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", RECORDED)
def test_files_of_recorded_tables_are_equal(
    spark: SparkSession, executor: LocalExecutor, tmp_path: Path, name: str, options: str
) -> None:
    home = shutil.copytree(ROOT / "fixtures" / name / "table", tmp_path / "t")
    plan = Table.open(str(home)).plan(**RECORDED[name])
    assert plan.groups
    assert_equal(spark, executor, plan, OPTIONS[options])


@pytest.mark.parametrize("policy", [{}, {"zorder_by": "v"}], ids=["joined", "ordered"])
def test_files_of_partitions_are_equal(
    spark: SparkSession, executor: LocalExecutor, tmp_path: Path, policy: dict[str, Any]
) -> None:
    table = partitioned_table(tmp_path / "t", files=dict.fromkeys(TEXTS, 2))
    assert_equal(spark, executor, table.plan(**policy), OPTIONS["shuffled"])


@pytest.mark.parametrize("name", [*MADE, "joined", "ordered"])
def test_files_of_other_layouts_are_equal(
    spark: SparkSession, executor: LocalExecutor, tmp_path: Path, name: str
) -> None:
    columns = ["x", "y"] if name in MADE else None
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("s", pa.string())])
    table = Table.create(tmp_path / "t", schema=schema, cluster_by=columns)
    for first in range(4):
        numbers = range(first, 8_000, 4)
        rows = {
            "x": [number % 5 for number in numbers],
            "y": [number * 7919 % 1_009 for number in numbers],
            "s": [f"name {number % 300}" for number in numbers],
        }
        table.append(pa.table(rows, schema=schema))
    policy = MADE.get(name, {"zorder_by": ["x", "y"]} if name == "ordered" else {})
    plan = table.plan(**policy)
    assert plan.groups
    assert_equal(spark, executor, plan, OPTIONS["shuffled"])
