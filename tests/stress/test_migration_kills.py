"""A migration that is killed anywhere: all of it is committed or nothing, and it goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from liquidlog.plan import encode_plan, encode_rewritten_group
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said
from support.effort import effort
from support.logs import live_adds
from support.partitioned import TEXTS, partitioned_table, rows_read
from support.processes import Run, killed_on_the_way

KILLS = effort(3, 60)
LIQUIDLOG = (sys.executable, "-c", "from liquidlog.cli import main; main()")
SMALL = ("--set", "min_cube_size=1B", "--set", "target_cube_size=3KB")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    partitioned_table(tmp_path / "t", files=dict.fromkeys(TEXTS, 3))
    shutil.copytree(tmp_path / "t", tmp_path / "template")
    return tmp_path


@pytest.fixture
def victim() -> Iterator[Run]:
    with killed_on_the_way() as run:
        yield run


def rewritten(work: Path, table: Table) -> list[str]:
    """Rewrite the table, keep it as it is then, and return the words that commit it."""
    plan = table.plan_migration(["p", "id"], min_cube_size="1B", target_cube_size="3KB")
    (work / "plan.json").write_bytes(encode_plan(plan))
    lines = b"".join(encode_rewritten_group(group) for group in execute(plan).groups)
    (work / "result.jsonl").write_bytes(lines)
    shutil.copytree(work / "t", work / "rewritten")
    return ["commit", str(work / "plan.json"), str(work / "result.jsonl")]


def test_a_killed_commit_did_all_of_it_or_nothing(work: Path, victim: Run) -> None:
    path = work / "t"
    table = Table.open(str(path))
    before, version = rows_read(path), table.snapshot().version
    words = rewritten(work, table)
    whole = victim(words)
    assert (whole["killed"], whole["status"]) == (False, 0), whole
    draw = np.random.default_rng(7)
    landed = 0
    for _ in range(KILLS):
        shutil.rmtree(path)
        shutil.copytree(work / "rewritten", path)
        start = draw.choice([1, whole["calls"] * 9 // 10])
        answer = victim(words, int(draw.integers(start, whole["calls"])))
        assert answer["killed"] or answer["status"] == 0, answer
        detail = Table.open(str(path)).detail()
        done = detail["version"] == version + 1
        landed += done
        assert detail["partitionColumns"] == ([] if done else ["p", "n"])
        assert detail["clusteringColumns"] == (["p", "id"] if done else [])
        assert rows_read(path) == before
        assert victim(words)["status"] == 0
        assert rows_read(path) == before
        Table.open(str(path)).orphans(older_than="0s", finished=True, delete=True)
        assert rows_read(path) == before
        left = {str(file.relative_to(path)) for file in path.glob("*.parquet")}
        assert left == set(live_adds(path))
    sys.stdout.write(f"landed {landed} of {KILLS} killed\n")


def test_a_killed_rewrite_goes_on_with_the_groups_that_are_left(work: Path) -> None:
    path, plan, result = work / "t", work / "plan.json", work / "result.jsonl"
    before = rows_read(path)
    saved = said("migrate", str(path), "--cluster-by", "id", "-o", str(plan), *SMALL)
    assert saved[0] == 0, saved
    groups = len(json.loads(plan.read_text())["groups"])
    assert groups > 2
    command = [*LIQUIDLOG, "run", str(plan), "-o", str(result)]
    command += ["--executor", "local"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (result.exists() and result.stat().st_size):
        time.sleep(0.002)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() in {0, -signal.SIGKILL}
    finished = [
        line for line in result.read_bytes().splitlines(keepends=True) if line[-1:] == b"\n"
    ]
    assert finished
    files = {one["path"] for line in finished for one in json.loads(line)["outputs"]}
    stamps = {name: (path / name).stat().st_mtime_ns for name in files}
    status, _, err = said("commit", str(plan), str(result))
    assert status == (0 if len(finished) == groups else 1), err
    if len(finished) == groups:
        return  # it was done before it could be killed
    assert Table.open(str(path)).detail()["partitionColumns"] == ["p", "n"]
    assert said("run", str(plan), "-o", str(result), "--executor", "local")[0] == 0
    assert result.read_bytes().startswith(b"".join(finished))
    assert {name: (path / name).stat().st_mtime_ns for name in files} == stamps
    assert said("commit", str(plan), str(result))[0] == 0
    assert rows_read(path) == before
    assert Table.open(str(path)).detail()["clusteringColumns"] == ["id"]
    assert said("orphans", str(path), "--delete", "--finished", "--older-than", "0s")[0] == 0
    assert rows_read(path) == before


def test_a_killed_migration_leaves_the_table_as_it_was(work: Path) -> None:
    path = work / "t"
    before, version = rows_read(path), Table.open(str(path)).snapshot().version
    command = [*LIQUIDLOG, "migrate", str(path), "--cluster-by", "id"]
    command += ["--executor", "local", "--yes", *SMALL]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(path.glob("part-*.zstd.parquet")):
        time.sleep(0.002)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() in {0, -signal.SIGKILL}
    assert rows_read(path) == before
    table = Table.open(str(path))
    if table.snapshot().version > version:
        assert table.detail()["partitionColumns"] == []
        return  # it was done before it could be killed
    assert table.detail()["partitionColumns"] == ["p", "n"]
    assert said("orphans", str(path), "--delete", "--older-than", "0s", "--finished")[0] == 0
    assert not list(path.glob("part-*"))
    assert said("migrate", str(path), "--cluster-by", "id", "--executor", "local", "--yes")[0] == 0
    assert rows_read(path) == before
