"""The command as a user runs it: in its own process, killed, and beside another one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from liquidlog.data.checksum import multiset_checksum
from liquidlog.local.executor import LocalExecutor
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.plan import (
    ClusteringPlan,
    Outcome,
    RewriteMode,
    RewriteResult,
    RewrittenGroup,
    WrittenFile,
)
from liquidlog.spec.arrow import arrow_schema
from liquidlog.table import Table
from liquidspark import ExecutorOptions, execute, execute_groups
from support.copies import copy_table, delta_rs_rows, plan_of_all
from support.filters import filters_in
from support.partitioned import TEXTS, map_columns, partitioned_table, rows_read
from support.processes import eventually
from support.repository import ROOT

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("s", pa.string())])
APPENDS = 6
ROWS = 20_000
COMMAND = [sys.executable, "-c", "from liquidlog.cli import main; main()"]
CONF = ["--spark-conf", "spark.master=local[1]", "--spark-conf", "spark.driver.memory=1g"]
DEADLINE_SECONDS = 240.0


def rows(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    ids = np.arange(seed * ROWS, (seed + 1) * ROWS)
    x = pa.array(random.integers(0, 10_000, ROWS), pa.int32())
    words = pa.array([f"w{number}" for number in random.integers(0, 10**9, ROWS)])
    return pa.table([ids, x, words], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["x", "s"])
    for seed in range(APPENDS):
        made.append(rows(seed))
    return made


def group_bytes(table: Table) -> int:
    """Return a cube size that makes a group of every two files."""
    return 2 * int(max(table.files()["size_bytes"].to_pylist()))


def optimize_command(table: Table, cube_bytes: int) -> list[str]:
    size = ["--set", "min_cube_size=1", "--set", f"target_cube_size={cube_bytes!s}"]
    return [*COMMAND, "optimize", table.uri, *size, *CONF, "--json"]


def assert_no_row_is_lost(table: Table) -> None:
    found = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == list(range(APPENDS * ROWS))


def run(words: list[str], **environment: str) -> tuple[int, Any, Any]:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, **environment},
    )
    out = json.loads(done.stdout) if done.stdout else None
    return done.returncode, out, done.stderr


def test_optimize_commits_cube_by_cube_and_then_has_nothing_to_do(table: Table) -> None:
    size = group_bytes(table)
    status, result, said = run(optimize_command(table, size))
    assert (status, said) == (0, "")
    assert len(result["versions"]) == len(result["groups"]) == APPENDS // 2
    assert result["rows_verified"] == APPENDS * ROWS
    assert result["metrics"]["numFilesRemoved"] == APPENDS
    assert table.cubes().num_rows == APPENDS // 2
    assert_no_row_is_lost(table)
    assert run(optimize_command(table, size))[:2][1]["groups"] == []


def test_groups_share_a_version_and_say_that_they_were_not_read_back(table: Table) -> None:
    words = optimize_command(table, group_bytes(table))
    status, out, err = run([*words, "--set", "groups_per_commit=2", "--set", "read_back=false"])
    assert status == 0, err
    assert [group["version"] for group in out["groups"]] == [7, 7, 8]
    assert (out["versions"], out["metrics"]["numBatches"]) == ([7, 8], 2)
    assert [group["read_back"] for group in out["groups"]] == [False] * 3
    assert_no_row_is_lost(table)


def live_at(table: Table, version: int) -> list[str]:
    """Return the paths that are live at a version."""
    paths: list[str] = table.files(version)["path"].to_pylist()
    return paths


def nothing_is_left(table: Table) -> bool:
    """Delete orphans; return whether only files that a version names stay.

    Spark's workers outlive a killed driver a little, and may finish a file after a deletion.
    """
    left = table.orphans(older_than="0s", finished=True, delete=True)
    if not all(row["deleted"] or "a version" in row["reason"] for row in left):
        return False
    versions = range(table.snapshot().version + 1)
    named = {file for version in versions for file in live_at(table, version)}
    found = {path.name for path in Path(table.uri).glob("*.parquet")}
    return found == named and not list(Path(table.uri).glob("_liquidspark-*"))


def test_a_killed_optimize_leaves_a_readable_table_and_the_next_run_completes(
    table: Table,
) -> None:
    command = optimize_command(table, group_bytes(table))
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    before = table.snapshot().version
    deadline = time.monotonic() + DEADLINE_SECONDS
    while table.snapshot().version == before and time.monotonic() < deadline:
        assert process.poll() is None, "it finished before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    committed = table.snapshot().version - before
    assert committed >= 1
    assert_no_row_is_lost(table)
    # Whether the kill came while files were written is chance; that they can all be found is not.
    assert eventually(lambda: nothing_is_left(table))
    status, result, _ = run(command)
    assert status == 0
    assert len(result["groups"]) == APPENDS // 2 - committed
    assert_no_row_is_lost(table)
    assert {file["state"] for file in table.files(min_cube_size=1).to_pylist()} == {"stable"}


def test_two_processes_commit_each_cube_once(table: Table) -> None:
    command = optimize_command(table, group_bytes(table))
    before = table.snapshot().version
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        process.communicate(timeout=DEADLINE_SECONDS)
    assert {process.returncode for process in processes} <= {0, 3}
    assert table.snapshot().version - before == APPENDS // 2
    assert_no_row_is_lost(table)
    live = set(table.files()["path"].to_pylist())
    removed = {f"{path.name}" for path in Path(table.uri).glob("*.parquet")} - live
    assert len(removed) == APPENDS, "only the inputs are left beside the live files"


def test_without_java_it_says_so_in_one_sentence(table: Table, tmp_path: Path) -> None:
    command = optimize_command(table, group_bytes(table))
    before = table.snapshot().version
    status, out, err = run(command, JAVA_HOME=str(tmp_path / "none"), PATH=str(tmp_path))
    assert (status, out) == (1, None)
    error = json.loads(err)["error"]
    assert error["code"] == "executor"
    assert "Java" in error["message"]
    assert "\n" not in error["message"]
    assert table.snapshot().version == before


# Partitioned tables, made clustered ones on Spark and by the executor `local`: the same files.


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


# Spark writes files with Bloom filters through a rewrite, finds every value and skips by them.


ROWS_BLOOM = 60_000
ASKED = ("number", "text", "day", "part.code")


def rows_bloom() -> pa.Table:
    random = np.random.default_rng(5)
    values = random.permutation(ROWS_BLOOM) * 7
    return pa.table(
        {
            "id": pa.array(range(ROWS_BLOOM)),
            "number": pa.array(values),
            "text": pa.array([f"name {value}" for value in values]),
            "day": pa.array(values % 20_000, pa.int32()).cast(pa.date32()),
            "part": pa.array([{"code": int(value) + 1} for value in values]),
            "filler": pa.array([random.bytes(30).hex() for _ in values]),
        }
    )


@pytest.fixture(scope="module")
def table_bloom(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    content = rows_bloom()
    made = Table.create(
        str(tmp_path_factory.mktemp("bloom") / "t"), schema=content.schema, cluster_by="id"
    )
    made.append(content)
    plan = made.plan(bloom_filter=list(ASKED), max_file_size="1MiB")
    made.commit(plan, execute(spark, plan))
    return made


def paths_of(table_bloom: Table) -> list[str]:
    return [f"{table_bloom.uri}/{path}" for path in table_bloom.files()["path"].to_pylist()]


def test_every_row_group_has_filters(table_bloom: Table) -> None:
    for path in paths_of(table_bloom):
        for filters in filters_in(path):
            assert {"number", "text"} <= filters.keys() <= {*ASKED}


@pytest.mark.parametrize("vectorised", ["true", "false"])
def test_spark_finds_every_value(spark: SparkSession, table_bloom: Table, vectorised: str) -> None:
    content = rows_bloom()
    columns = {
        "number": content["number"],
        "text": content["text"],
        "day": content["day"],
        "part.code": pc.struct_field(content["part"], ["code"]),
    }
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
    try:
        found = spark.read.parquet(*paths_of(table_bloom))
        for name, column in columns.items():
            for value in column.slice(100, 5).to_pylist():
                expected = pc.sum(pc.equal(column, pa.scalar(value, column.type))).as_py()
                assert found.where(f"{name} = {_literal(value)}").count() == expected
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_spark_opens_no_row_group_that_a_filter_rules_out(
    spark: SparkSession, table_bloom: Table
) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        found = spark.read.parquet(*paths_of(table_bloom))
        assert rows_scanned(found.where("text = 'name 15'")) == 0
        assert 0 < rows_scanned(found.where("text = 'name 14'")) < ROWS_BLOOM
        # A column without filters.
        assert rows_scanned(found.where("filler = 'f'")) > 0
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def rows_scanned(query: DataFrame) -> int:
    """Return how many rows Spark's scan hands on."""
    query.collect()
    leaves: Any = query._jdf.queryExecution().executedPlan().collectLeaves()
    return int(leaves.head().metrics().apply("numOutputRows").value())


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"


# Tables with deletion vectors and row ids, rewritten on Spark and committed.


WAYS = {
    "shuffled": ExecutorOptions(single_task_bytes=0, task_bytes=1 << 11, sample_rows=100),
    "sliced": ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 10, sample_rows=100),
    "whole": ExecutorOptions(sample_rows=100),
}
CASES = [
    *(("logical", path.name) for path in sorted((ROOT / "fixtures" / "logical").glob("*/"))),
    ("clones", "27_shallow_clone"),
]


def rewrite(spark: SparkSession, table: Table, plan: ClusteringPlan, way: str) -> RewrittenGroup:
    require_rewritable(table.opened, plan)
    (group,) = execute_groups(spark, plan, options=WAYS[way])
    assert isinstance(group, RewrittenGroup), group
    table.commit(plan, RewriteResult(plan_id=plan.plan_id, groups=(group,)))
    return group


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "case"), CASES)
def test_a_rewrite_keeps_live_rows_with_their_ids_and_purges_vectors(
    spark: SparkSession, tmp_path: Path, kind: str, case: str, way: str
) -> None:
    path = copy_table(kind, case, tmp_path)
    table = Table.open(str(path))
    recorded = ROOT / "fixtures" / kind / case
    rows = pq.read_table(recorded / "rows.parquet")
    for number in range(2):
        plan = plan_of_all(table.snapshot(), plan_id=f"plan-{number}")
        group = rewrite(spark, table, plan, way)
        assert group.rows_read == group.rows_written == len(rows)
        newest = table.snapshot()
        assert newest.files["deletion_vector"].null_count == newest.files.num_rows
        expected = rows.cast(arrow_schema(newest.schema))
        assert multiset_checksum(delta_rs_rows(path, newest)) == multiset_checksum(expected)
        if (recorded / "row_ids.parquet").exists():
            names = newest.files["path"].to_pylist()
            files = [pq.ParquetFile(path / name).read() for name in names]
            ids = pq.read_table(recorded / "row_ids.parquet")
            found = pa.concat_tables(files)
            typed = ids.rename_columns(found.column_names).cast(found.schema)
            assert multiset_checksum(found) == multiset_checksum(typed)


@pytest.mark.parametrize("way", WAYS)
def test_compaction_leaves_deleted_rows_out_in_order(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    path = copy_table("logical", "12_dv_live", tmp_path)
    table = Table.open(str(path))
    table.cluster_by(None)
    before = delta_rs_rows(path, table.snapshot())
    plan = table.plan()
    assert plan.mode is RewriteMode.COMPACTION
    rewrite(spark, table, plan, way)
    after = delta_rs_rows(path, table.snapshot())
    assert multiset_checksum(after) == multiset_checksum(before)
    assert table.snapshot().files["deletion_vector"].null_count == table.snapshot().files.num_rows
