"""Partitioned tables, made clustered ones on Spark and by the executor `local`: the same files."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from liquidlog.local.executor import LocalExecutor
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.plan import ClusteringPlan, Outcome, RewriteResult, RewrittenGroup, WrittenFile
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute_groups
from support.partitioned import TEXTS, map_columns, partitioned_table, rows_read

pytestmark = pytest.mark.spark

OPTIONS = {
    "one task": ExecutorOptions(sample_rows=100),
    "shuffled": ExecutorOptions(single_task_bytes=0, task_bytes=1 << 11, sample_rows=100),
}


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor({}) as started:
        yield started


def finished(outcomes: list[Outcome]) -> tuple[RewrittenGroup, ...]:
    groups = tuple(one for one in outcomes if isinstance(one, RewrittenGroup))
    assert len(groups) == len(outcomes) > 0, outcomes
    return tuple(sorted(groups, key=lambda group: group.group_id))


def in_order(group: RewrittenGroup) -> list[WrittenFile]:
    """Return the outputs by the number in their names, which random parts surround."""
    return sorted(group.outputs, key=lambda one: Path(one.path).name.split("-")[3])


def digests(path: Path, groups: tuple[RewrittenGroup, ...]) -> list[list[str]]:
    return [
        [sha256((path / file.path).read_bytes()).hexdigest() for file in in_order(group)]
        for group in groups
    ]


def committed(table: Table, plan: ClusteringPlan, groups: tuple[RewrittenGroup, ...]) -> None:
    require_rewritable(table.opened, plan)
    report = table.commit(plan, RewriteResult(plan_id=plan.plan_id, groups=groups))
    assert len(report.versions) == 1
    assert table.detail()["partitionColumns"] == []


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("columns", [["p", "id"], ["v"]], ids=["partitions", "others"])
def test_both_executors_write_the_same_files_with_the_same_rows(
    spark: SparkSession, executor: LocalExecutor, tmp_path: Path, name: str, columns: list[str]
) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files=dict.fromkeys(TEXTS, 3))
    before = rows_read(path)
    plan = table.plan_migration(
        columns, min_cube_size="1B", target_cube_size="5KB", max_file_size="1KB"
    )
    assert len(plan.groups) > 1
    options = OPTIONS[name]
    on_spark = finished(list(execute_groups(spark, plan, options=options)))
    executor._options = options
    wanted = [group.group_id for group in plan.groups]
    here = finished(list(executor(plan, wanted, lambda *_: None)))
    assert digests(path, on_spark) == digests(path, here)
    committed(table, plan, on_spark)
    assert rows_read(path) == before


def test_mapped_columns_are_found_by_their_physical_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    partitioned_table(path, files={"a": 2, None: 2})
    map_columns(path)
    table = Table.open(str(path))
    done = table.migrate(["the p"], spark)
    [group] = done.report.finished
    assert pq.read_schema(path / group.outputs[0].path).names == ["id", "p", "n", "v"]
    assert table.detail()["clusteringColumns"] == ["`the p`"]


def test_the_local_executor_migrates_alone(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path)
    before = rows_read(path)
    done = table.migrate(["p", "id"], executor="local")
    assert len(done.versions) == 1
    assert done.metrics["numFilesRemoved"] == 3 * len(TEXTS)
    assert rows_read(path) == before
