"""The command as a user runs it: in its own process, killed, and beside another one."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
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
from support.commands import caller
from support.copies import copy_table, delta_rs_rows, plan_of_all
from support.partitioned import TEXTS, map_columns, partitioned_table, rows_read
from support.processes import (
    APPENDS,
    GROUPS,
    ROWS,
    appended_table,
    check_rows,
    eventually,
    in_groups,
    optimize_command,
    start,
)
from support.repository import ROOT
from support.table_rows import filters_in

pytestmark = pytest.mark.spark
CONF = {"spark.master": "local[1]", "spark.driver.memory": "1g"}
DEADLINE_SECONDS = 240.0
Command = Callable[..., Any]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(tmp_path / "t")


@pytest.fixture
def optimize_here(table: Table, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process and its session; returns its document."""
    del spark
    policy = in_groups(table)

    def run(*words: str) -> Any:
        command = optimize_command(table.uri, {}, **policy)
        status, out, err = caller(capsys)(*command[command.index("optimize") :], *words)
        assert (status, err) == (0, "")
        return out

    return run


def test_optimize_commits_cube_by_cube_and_then_has_nothing_to_do(
    table: Table, optimize_here: Command
) -> None:
    result = optimize_here()
    assert len(result["versions"]) == len(result["groups"]) == GROUPS
    assert result["rows_verified"] == APPENDS * ROWS
    assert result["metrics"]["numFilesRemoved"] == APPENDS
    assert table.cubes().num_rows == GROUPS
    check_rows(table)
    assert optimize_here()["groups"] == []


def test_groups_share_a_version_and_say_that_they_were_not_read_back(
    table: Table, optimize_here: Command
) -> None:
    out = optimize_here("--set", "groups_per_commit=2", "--set", "read_back=false")
    assert [group["version"] for group in out["groups"]] == [7, 7, 8]
    assert (out["versions"], out["metrics"]["numBatches"]) == ([7, 8], 2)
    assert [group["read_back"] for group in out["groups"]] == [False] * 3
    check_rows(table)


def nothing_is_left(table: Table) -> bool:
    """Delete orphans; return whether only files that a version names stay.

    Spark's workers outlive a killed driver a little, and may finish a file after a deletion.
    """
    left = table.orphans(older_than="0s", finished=True, delete=True)
    if not all(row["deleted"] or "a version" in row["reason"] for row in left):
        return False
    versions = range(table.snapshot().version + 1)
    named = {file for version in versions for file in table.files(version)["path"].to_pylist()}
    found = {path.name for path in Path(table.uri).glob("*.parquet")}
    return found == named and not list(Path(table.uri).glob("_liquidspark-*"))


def test_a_killed_optimize_leaves_a_readable_table_and_the_next_run_completes(
    table: Table, optimize_here: Command
) -> None:
    process = start(table, conf=CONF)
    before = table.snapshot().version
    deadline = time.monotonic() + DEADLINE_SECONDS
    while table.snapshot().version == before and time.monotonic() < deadline:
        assert process.poll() is None, "it finished before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    committed = table.snapshot().version - before
    assert committed >= 1
    check_rows(table)
    # Whether the kill came while files were written is chance; that they can all be found is not.
    assert eventually(lambda: nothing_is_left(table))
    assert len(optimize_here()["groups"]) == GROUPS - committed
    check_rows(table)
    assert {file["state"] for file in table.files(min_cube_size=1).to_pylist()} == {"stable"}


def test_two_processes_commit_each_cube_once(spark: SparkSession, table: Table) -> None:
    plan = table.plan(**in_groups(table))
    process = start(table, conf=CONF)
    # Until the other one is at work, too.
    eventually(lambda: process.poll() or [*Path(table.uri).glob("_liquidspark-*")])
    ours = table.commit_each(plan, execute_groups(spark, plan))
    _, complaint = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode in {0, 3}
    assert bool(complaint) == (process.returncode != 0)
    assert {*ours.committed_groups, *(one.group_id for one in ours.conflicts)} == {*range(GROUPS)}
    assert table.snapshot().version == plan.read_version + GROUPS
    check_rows(table)
    live = set(table.files()["path"].to_pylist())
    removed = {f"{path.name}" for path in Path(table.uri).glob("*.parquet")} - live
    assert len(removed) == APPENDS, "only the inputs are left beside the live files"


# Partitioned tables, made clustered ones on Spark and by the executor `local`: the same files.


OPTIONS = {
    "one task": ExecutorOptions(sample_rows=100),
    "shuffled": ExecutorOptions(single_task_bytes=0, task_bytes=1 << 11, sample_rows=100),
}


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


@pytest.mark.parametrize(("columns", "name"), [(["p", "id"], "shuffled"), (["v"], "one task")])
def test_both_executors_write_the_same_files_with_the_same_rows(
    spark: SparkSession, executor: LocalExecutor, tmp_path: Path, columns: list[str], name: str
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
    assert digests(path, on_spark) == digests(path, finished(list(here(executor, options, plan))))
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
            for value in column.slice(100, 2).to_pylist():
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


Rewriting = Callable[[ClusteringPlan], Iterable[Outcome]]


def rewrite(table: Table, plan: ClusteringPlan, rewriting: Rewriting) -> RewrittenGroup:
    require_rewritable(table.opened, plan)
    (group,) = finished(list(rewriting(plan)))
    table.commit(plan, RewriteResult(plan_id=plan.plan_id, groups=(group,)))
    return group


@pytest.mark.parametrize(("number", "kind", "case"), [(n, *case) for n, case in enumerate(CASES)])
def test_a_rewrite_keeps_live_rows_with_their_ids_and_purges_vectors(
    spark: SparkSession,
    executor: LocalExecutor,
    tmp_path: Path,
    number: int,
    kind: str,
    case: str,
) -> None:
    """Each table goes one way on Spark, and the others where the same tasks run sooner."""
    for place, (way, options) in enumerate(WAYS.items()):
        (tmp_path / way).mkdir()
        path = copy_table(kind, case, tmp_path / way)
        if place == number % len(WAYS):
            check_rewrites(path, kind, case, partial(execute_groups, spark, options=options))
        else:
            check_rewrites(path, kind, case, partial(here, executor, options))


def here(
    executor: LocalExecutor, options: ExecutorOptions, plan: ClusteringPlan
) -> Iterable[Outcome]:
    executor._options = options
    return executor(plan, [group.group_id for group in plan.groups], lambda *_: None)


def check_rewrites(path: Path, kind: str, case: str, rewriting: Rewriting) -> None:
    table = Table.open(str(path))
    recorded = ROOT / "fixtures" / kind / case
    rows = pq.read_table(recorded / "rows.parquet")
    for number in range(2):
        plan = plan_of_all(table.snapshot(), plan_id=f"plan-{number}")
        group = rewrite(table, plan, rewriting)
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


def test_compaction_leaves_deleted_rows_out_in_order(spark: SparkSession, tmp_path: Path) -> None:
    path = copy_table("logical", "12_dv_live", tmp_path)
    table = Table.open(str(path))
    table.cluster_by(None)
    before = delta_rs_rows(path, table.snapshot())
    plan = table.plan()
    assert plan.mode is RewriteMode.COMPACTION
    rewrite(table, plan, partial(execute_groups, spark, options=WAYS["sliced"]))
    after = delta_rs_rows(path, table.snapshot())
    assert multiset_checksum(after) == multiset_checksum(before)
    assert table.snapshot().files["deletion_vector"].null_count == table.snapshot().files.num_rows
