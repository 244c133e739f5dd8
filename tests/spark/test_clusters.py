"""Other places than one local session: a standalone cluster of two workers, and Spark Connect.

`kill -9` of a Python worker, an executor and the driver comes at a random moment of an optimize. No
row is lost or doubled; what survives finishes, what does not is completed by the next run.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.table import Table
from support.effort import effort
from support.plans import parquet_names
from support.processes import (
    APPENDS,
    GROUPS,
    all_processes,
    appended_table,
    check,
    command_of,
    complete_after_a_killed_driver,
    descendants,
    finish,
    kill_at_random,
    optimize_command,
    start,
)
from support.repository import ROOT
from support.spark_servers import environment, packed, without_us, zipped

pytestmark = pytest.mark.spark

RUNS = effort(1, 17)
LOCAL = {"spark.master": "local[2,4]", "spark.driver.memory": "1g"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(tmp_path / "t")


def on_cluster(master: str) -> dict[str, str]:
    return {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def run(words: list[str]) -> Any:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=300, env=environment()
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout) if done.stdout else None


def optimize_whole(table: Table, conf: dict[str, str]) -> None:
    size = table.snapshot().size_bytes // 6
    result = run(optimize_command(table.uri, conf, max_file_size=size))
    assert len(result["groups"]) == 1
    assert table.files().num_rows >= APPENDS
    assert len(table.cubes()) == 1
    check(table)


def test_workers_without_the_packages_are_sent_them(
    table: Table, master: str, tmp_path: Path
) -> None:
    files = {"spark.submit.pyFiles": zipped(tmp_path / "liquid.zip")}
    bare = {"spark.pyspark.python": without_us(tmp_path / "bare")}
    optimize_whole(table, {**on_cluster(master), **bare, **files})


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_executor_is_survived(
    table: Table, seed: int, master: str, tmp_path: Path
) -> None:
    """Its workers run the Python of an archive, which another executor unpacks in its place."""
    without_us(tmp_path / "bare")
    archive = packed(tmp_path / "env.tar.gz", tmp_path / "bare" / "packages")
    sent = {"spark.archives": f"{archive}#env", "spark.pyspark.python": "./env/bin/python"}
    process = start(table, conf={**on_cluster(master), **sent}, environment=environment())

    def executors() -> list[int]:
        named = "CoarseGrainedExecutorBackend"
        found = [pid for pid in all_processes() if named in command_of(pid)]
        return [pid for pid in found if master in command_of(pid) and descendants(pid)]

    kill_at_random(process, executors, np.random.default_rng(seed))
    assert len(finish(process)["groups"]) == GROUPS
    check(table)


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_python_worker_is_survived(table: Table, seed: int) -> None:
    process = start(table, conf=LOCAL, environment=environment())

    def workers() -> list[int]:
        return [
            pid
            for pid in descendants(process.pid)
            if "pyspark.daemon" in command_of(pid) and not descendants(pid)
        ]

    kill_at_random(process, workers, np.random.default_rng(seed))
    assert len(finish(process)["groups"]) == GROUPS
    check(table)
    assert not list(Path(table.uri).glob("_liquidspark-*"))


# In its short form this is the kill in test_optimize_command.py.
@pytest.mark.parametrize("seed", range(effort(0, RUNS)))
def test_a_killed_driver_leaves_whole_cubes_and_the_next_run_completes(
    table: Table, seed: int
) -> None:
    complete_after_a_killed_driver(
        table,
        lambda: start(table, conf=LOCAL, environment=environment()),
        np.random.default_rng(seed),
    )


@pytest.mark.sparks
def test_optimize_through_spark_connect(table: Table, connect: str) -> None:
    optimize_whole(table, {"spark.remote": connect})


CANCELLED = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
address, uri, directory, tests = sys.argv[1:]
sys.path.insert(0, tests)
from liquidlog import Table
from liquidspark import execute_groups
from support.wrapped_tasks import first_task_pauses

spark = SparkSession.builder.remote(address).getOrCreate()
plan = Table.open(uri).plan(min_cube_size=1, target_cube_size=1)
with first_task_pauses(Path(directory)) as pause:
    cancelled = lambda: {} if pause.exists() else {0: "enough"}
    found = [
        type(one).__name__
        for group in (0, 1)
        for one in execute_groups(spark, plan, groups=[group], cancelled=cancelled)
    ]
print(json.dumps(found))
"""


def test_a_group_is_cancelled_through_spark_connect(
    table: Table, connect: str, tmp_path: Path
) -> None:
    before = parquet_names(tmp_path / "t")
    words = [sys.executable, "-c", CANCELLED, connect, table.uri]
    assert run([*words, str(tmp_path), str(ROOT / "tests")]) == ["GroupFailure", "RewrittenGroup"]
    assert len(parquet_names(tmp_path / "t") - before) == 1


APPENDED = """
import sys
from contextlib import redirect_stdout
from io import StringIO
from pyspark.sql import SparkSession
from liquidspark import ExecutorOptions, append, overwrite, read

address, table, packages, python = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
spark.conf.set("spark.sql.execution.pyspark.python", python)
spark.addArtifacts(packages, pyfile=True)
rows = spark.range(1000, 3000, 1, 3)
append(rows, table)
shuffled = ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 12)
append(rows.selectExpr("id + 2000 AS id"), table, options=shuffled, max_file_size="8KiB")
overwrite(rows.where("id < 1010"), table, where="id >= 1000 AND id < 3000")
found = read(spark, table, where="id < 3010")
assert sorted(row.id for row in found.collect()) == [*range(1000, 1010), *range(3000, 3010)]
with redirect_stdout(StringIO()) as plan:
    found.join(found.selectExpr("id"), "id").explain()
assert "SortMergeJoin" in plan.getvalue()
"""


@pytest.mark.sparks
def test_append_overwrite_and_read_through_spark_connect(connect: str, tmp_path: Path) -> None:
    """The server's workers have not the packages: the client sends them."""
    schema = pa.schema([("id", pa.int64())])
    table = Table.create(tmp_path / "written", schema=schema, cluster_by=["id"])
    packages, python = zipped(tmp_path / "liquid.zip"), without_us(tmp_path / "bare")
    run([sys.executable, "-c", APPENDED, connect, table.uri, packages, python])
    found = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == [*range(1000, 1010), *range(3000, 5000)]
