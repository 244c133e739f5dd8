"""The command as a user runs it: in its own process, killed, and beside another one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.table import Table
from support.processes import eventually

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
