"""Other places than one local session: a standalone cluster, and Spark Connect.

`kill -9` of a Python worker, an executor and the driver comes at a random moment of an optimize. No
row is lost or doubled; what survives finishes, what does not is completed by the next run.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from liquidlog.table import Table
from liquidspark import execute
from support.commands import call
from support.effort import effort
from support.processes import (
    APPENDS,
    GROUPS,
    ROWS,
    all_processes,
    appended_table,
    check,
    check_rows,
    command_of,
    descendants,
    eventually,
    finish,
    in_groups,
    kill,
    kill_at_random,
    optimize_command,
    start,
)
from support.repository import ROOT
from support.spark_servers import environment, packed, without_us, zipped

pytestmark = pytest.mark.spark

RUNS = effort(1, 17)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(tmp_path / "t")


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_executor_is_survived(
    table: Table, seed: int, master: str, tmp_path: Path
) -> None:
    """The workers' Python comes in an archive, and our packages as files: again after the kill."""
    archive = packed(tmp_path / "env.tar.gz", without_us(tmp_path / "bare"))
    conf = {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.archives": f"{archive}#env",
        "spark.pyspark.python": "./env/bin/python",
        "spark.submit.pyFiles": zipped(tmp_path / "liquid.zip"),
    }
    process = start(table, conf=conf, environment=environment())

    def executors() -> list[int]:
        named = "CoarseGrainedExecutorBackend"
        found = [pid for pid in all_processes() if named in command_of(pid)]
        return [pid for pid in found if master in command_of(pid) and descendants(pid)]

    kill_at_random(process, executors, np.random.default_rng(seed))
    assert len(finish(process)["groups"]) == GROUPS
    check(table)


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_python_worker_is_survived(spark: SparkSession, table: Table, seed: int) -> None:
    gateway = cast("Any", spark.sparkContext)._gateway.proc.pid
    random = np.random.default_rng(seed)

    def workers() -> list[int]:
        daemons = [pid for pid in descendants(gateway) if "pyspark.daemon" in command_of(pid)]
        return [pid for pid in daemons if not descendants(pid)]

    for pid in workers():
        kill(pid)  # those of other tests, which wait for work
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(table.optimize, spark, **in_groups(table))
        killed = int(random.choice(eventually(workers, step_seconds=0.01)))
        kill(killed)
        done.result().report.require_success()
    assert len(table.cubes()) == GROUPS
    check(table)
    assert not list(Path(table.uri).glob("_liquidspark-*"))


THROUGH_CONNECT = """
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from pyspark.sql import SparkSession
from liquidlog import Table
from liquidspark import ExecutorOptions, append, execute_groups, overwrite, read

address, groups, home, written, packages, python, tests = sys.argv[1:]
sys.path.insert(0, tests)
from support.wrapped_tasks import first_task_pauses
spark = SparkSession.builder.remote(address).getOrCreate()

table = Table.open(groups)
plan = table.plan(min_cube_size=1, target_cube_size=1)
with first_task_pauses(Path(home)) as pause:
    cancelled = lambda: {} if pause.exists() else {0: "enough"}
    (lost,) = execute_groups(spark, plan, groups=[0], cancelled=cancelled)
assert type(lost).__name__ == "GroupFailure", lost
done = table.optimize(spark, max_file_size=table.snapshot().size_bytes // 6)
assert len(done.report.finished) == 1, done

spark.conf.set("spark.sql.execution.pyspark.python", python)
spark.addArtifacts(packages, pyfile=True)
rows = spark.range(1000, 5000, 1, 3)
shuffled = ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 12)
append(rows, written, options=shuffled, max_file_size="8KiB")
overwrite(rows.where("id < 1010"), written, where="id >= 1000 AND id < 3000")
found = read(spark, written, where="id < 3010")
assert sorted(row.id for row in found.collect()) == [*range(1000, 1010), *range(3000, 3010)]
with redirect_stdout(StringIO()) as plan:
    found.join(found.selectExpr("id"), "id").explain()
assert "SortMergeJoin" in plan.getvalue()
"""


@pytest.mark.sparks
def test_tables_are_written_through_spark_connect(
    table: Table, connect: str, tmp_path: Path
) -> None:
    """From the append on, the server's workers have not the packages: the client sends them."""
    schema = pa.schema([("id", pa.int64())])
    written = Table.create(tmp_path / "written", schema=schema, cluster_by=["id"])
    sent = [zipped(tmp_path / "liquid.zip"), without_us(tmp_path / "bare"), str(ROOT / "tests")]
    words = [sys.executable, "-c", THROUGH_CONNECT, connect, table.uri, str(tmp_path), written.uri]
    subprocess.run([*words, *sent], check=True, timeout=300, env=environment())
    assert len(table.cubes()) == 1
    check(table)
    found = pa.RecordBatchReader.from_stream(DeltaTable(written.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == [*range(1000, 1010), *range(3000, 5000)]


# The command as a user runs it: in its own process, killed, and beside another one.


CONF = {"spark.master": "local[1]", "spark.driver.memory": "1g"}
DEADLINE_SECONDS = 240.0
Command = Callable[..., Any]


@pytest.fixture
def optimize_here(table: Table, spark: SparkSession) -> Command:
    """Runs the command in this process and its session; returns its document."""
    del spark
    policy = in_groups(table)

    def run(*words: str) -> Any:
        command = optimize_command(table.uri, {}, **policy)
        status, out, err = call(*command[command.index("optimize") :], *words)
        assert (status, err) == (0, "")
        return out

    return run


def test_optimize_commits_each_cube_and_then_nothing(table: Table, optimize_here: Command) -> None:
    result = optimize_here()
    assert len(result["versions"]) == len(result["groups"]) == GROUPS
    assert result["rows_verified"] == APPENDS * ROWS
    assert result["metrics"]["numFilesRemoved"] == APPENDS
    assert table.cubes().num_rows == GROUPS
    check_rows(table)
    assert optimize_here()["groups"] == []


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
            for value in column.slice(100, 1).to_pylist():
                expected = pc.sum(pc.equal(column, pa.scalar(value, column.type))).as_py()
                assert found.where(f"{name} = {_literal(value)}").count() == expected
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_spark_opens_no_group_that_filters_rule_out(
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
