"""kill -9 of a Python worker, an executor and the driver, at random moments of an optimize.

No row is lost or doubled; what survives finishes, what does not is completed by the next run.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.table import Table
from support.clustered import appended_table, optimize_command
from support.effort import effort
from support.spark_servers import (
    all_processes,
    cluster,
    command_of,
    descendants,
    environment,
    eventually,
    kill,
)

pytestmark = pytest.mark.spark

RUNS = effort(1, 17)
APPENDS = 4
ROWS = 60_000
TIMEOUT = 300
LOCAL = {"spark.master": "local[2,4]", "spark.driver.memory": "1g"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(str(tmp_path / "t"), appends=APPENDS, rows=ROWS)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2, memory="1g") as address:
        yield address


def start(table: Table, conf: dict[str, str]) -> subprocess.Popen[str]:
    """Start an optimize in two groups, each of several outputs."""
    size = max(table.files()["size_bytes"].to_pylist())
    command = optimize_command(
        table.uri, conf, min_cube_size=1, target_cube_size=2 * size, max_file_size=size // 2
    )
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> Any:
    out, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, said[-2000:]
    return json.loads(out)


def kill_at_random(
    process: subprocess.Popen[str], victims: Callable[[], list[int]], random: np.random.Generator
) -> bool:
    """Kill one of the victims at a random moment after there is one; False if it was too late."""

    def found() -> list[int]:
        return victims() if process.poll() is None else [0]

    if eventually(found) == [0]:
        return False
    try:
        process.wait(float(random.uniform(0, 4)))
    except subprocess.TimeoutExpired:
        left = victims()
        if left:
            kill(int(random.choice(left)))
        return bool(left)
    return False


def check(table: Table) -> None:
    """Check that no row is lost or doubled and that no file is there without a reason."""
    found = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    assert sorted(found["id"].to_pylist()) == list(range(APPENDS * ROWS))
    table.orphans(older_than="0s", finished=True, delete=True)
    named = {
        path
        for version in range(table.snapshot().version + 1)
        for path in table.files(version)["path"].to_pylist()
    }
    there = {path.name for path in Path(table.uri).glob("*.parquet")}
    assert named == there


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_python_worker_is_survived(table: Table, seed: int) -> None:
    process = start(table, LOCAL)

    def workers() -> list[int]:
        return [
            pid
            for pid in descendants(process.pid)
            if "pyspark.daemon" in command_of(pid) and not descendants(pid)
        ]

    kill_at_random(process, workers, np.random.default_rng(seed))
    assert len(finish(process)["groups"]) == APPENDS // 2
    check(table)
    assert not list(Path(table.uri).glob("_liquidspark-*"))


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_executor_is_survived(table: Table, seed: int, master: str) -> None:
    settings = {"spark.master": master, "spark.executor.memory": "512m"}
    process = start(table, {**LOCAL, **settings, "spark.driver.host": "127.0.0.1"})

    def executors() -> list[int]:
        named = "CoarseGrainedExecutorBackend"
        found = [pid for pid in all_processes() if named in command_of(pid)]
        return [pid for pid in found if descendants(pid)]

    kill_at_random(process, executors, np.random.default_rng(seed))
    assert len(finish(process)["groups"]) == APPENDS // 2
    check(table)


# In its short form this is the kill in tests/spark/test_optimize_command.py.
@pytest.mark.parametrize("seed", range(effort(0, RUNS)))
def test_a_killed_driver_leaves_whole_cubes_and_the_next_run_completes(
    table: Table, seed: int
) -> None:
    process = start(table, LOCAL)
    before = table.snapshot().version

    def at_work() -> list[int]:
        return [process.pid] if list(Path(table.uri).glob("_liquidspark-*")) else []

    killed = kill_at_random(process, at_work, np.random.default_rng(seed))
    if killed:
        os.killpg(process.pid, signal.SIGKILL)  # its JVM too
    process.communicate()
    committed = table.update().version - before
    check(table)  # which may commit that it ended the dead run
    assert len(table.cubes()) == committed
    assert len(finish(start(table, LOCAL))["groups"]) == APPENDS // 2 - committed
    check(table)
