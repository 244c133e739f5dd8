"""Every call on storage of every operation that writes or deletes fails, in every way, once.

After each: the table is readable, every row is there once, what was told is true, and what no
version names is listed as orphans and goes with them.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.log.history import named_files
from liquidlog.operations.rewrite import read_plan
from liquidlog.plan import encode_plan, encode_rewritten_group
from liquidlog.snapshot import decoded_paths
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said
from support.effort import effort, is_long
from support.partitioned import TEXTS, partitioned_table, rows_read
from support.playground import Playground, counted_tokens, playground
from support.processes import (
    GROUPS,
    Run,
    appended_table,
    check,
    command_of,
    complete_after_a_killed_driver,
    descendants,
    finish,
    kill_at_random,
    killed_on_the_way,
    start,
)
from support.races import Crash
from support.rivals import alone_on_storage
from support.storage_calls import Call, Effect
from support.verbs import OPERATIONS, Fault, Operation, Trial, Verb, faults_at
from support.writers import SCHEMA, rows

SAMPLES = 2
PAIRS = effort(1, 40)
UNREADABLE_BY_DELTA_RS = {"rename a column", "drop a column"}
"""Column mapping is nothing that its scan of this version knows."""


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_no_fault_of_storage_loses_anything(operation: Operation) -> None:
    draw = np.random.default_rng(len(operation.name))
    with playground() as ground:
        trial = Trial.of(ground, operation)
        mapped = operation.name in UNREADABLE_BY_DELTA_RS
        made = trial.run(by_delta_rs=not mapped).made
        single = list(faults_at(made))
        for fault in single if is_long() else _some(single, SAMPLES, draw):
            trial.run([fault], by_delta_rs=not mapped)
        for _ in range(PAIRS):
            first = _some(single, 1, draw)[0]
            # What is called after a fault is other than what would have been without it.
            later = [f for f in faults_at(trial.run([first]).made) if f.number > first.number]
            trial.run([first, *_some(later, 1, draw)], by_delta_rs=not mapped)
    count = f"{len(made)} calls, {len(single)} faults, {PAIRS} pairs of them"
    sys.stdout.write(f"{operation.name}: {count}; {trial.told}\n")


def _some(faults: Sequence[Fault], number: int, draw: np.random.Generator) -> list[Fault]:
    chosen = draw.permutation(len(faults))[:number]
    return [faults[index] for index in sorted(chosen)]


# kill -9 of a worker and of the driver, at random moments of an optimize without a JVM.


RUNS = effort(1, 17)
LOCAL = ("--executor", "local")
LONGEST_WAIT_SECONDS = 1.0


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return appended_table(tmp_path / "t")


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_worker_is_survived(table: Table, seed: int) -> None:
    process = start(table, *LOCAL)

    def workers() -> list[int]:
        found = descendants(process.pid)
        return [pid for pid in found if "liquidlog.local" in command_of(pid)]

    random = np.random.default_rng(seed)
    kill_at_random(process, workers, random, longest_wait_seconds=LONGEST_WAIT_SECONDS)
    assert len(finish(process)["groups"]) == GROUPS
    check(table)
    assert not list(Path(table.uri).glob("_liquidspark-*"))


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_driver_leaves_whole_cubes_and_the_next_run_completes(
    table: Table, seed: int
) -> None:
    complete_after_a_killed_driver(
        table,
        lambda: start(table, *LOCAL),
        np.random.default_rng(seed),
        longest_wait_seconds=LONGEST_WAIT_SECONDS,
    )


# kill -9 anywhere: the table opens, the operation happened once or not at all, and can be redone.


KILLS = effort(2, 67)
APPENDS_CRASHES = 4
Content = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def victim() -> Iterator[Run]:
    with killed_on_the_way() as run:
        yield run


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with a small table, Parquet to append, and a plan with its result."""
    table = Table.create(str(tmp_path / "table"), schema=SCHEMA, cluster_by=["x", "s"])
    for number in range(APPENDS_CRASHES):
        table.append(rows(number))
    pq.write_table(rows(APPENDS_CRASHES), tmp_path / "new.parquet")
    plan = table.plan()
    (tmp_path / "plan.json").write_bytes(encode_plan(plan))
    lines = [encode_rewritten_group(group) for group in execute(plan).groups]
    (tmp_path / "result.jsonl").write_bytes(b"".join(lines))
    shutil.copytree(tmp_path / "table", tmp_path / "template")
    return tmp_path


def arguments(work: Path, operation: str) -> list[str]:
    table = str(work / "table")
    return {
        "append": ["append", table, str(work / "new.parquet")],
        "commit": ["commit", str(work / "plan.json"), str(work / "result.jsonl")],
    }[operation]


def content(work: Path) -> Content:
    scanned = pa.RecordBatchReader.from_stream(DeltaTable(work / "table").scan()).read_all()
    return sorted(zip(*(scanned[name].to_pylist() for name in SCHEMA.names), strict=True))


def expected(appends: int) -> Content:
    table = pa.concat_tables([rows(number) for number in range(appends)])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def has_happened(work: Path, operation: str) -> bool:
    table = Table.open(str(work / "table"))
    detail = table.detail()
    assert detail["version"] in {APPENDS_CRASHES, APPENDS_CRASHES + 1}
    done: bool = {
        "append": detail["numRecords"] == len(expected(APPENDS_CRASHES + 1)),
        "commit": detail["numFiles"] == len(read_plan(str(work / "plan.json")).groups),
    }[operation]
    assert done == (detail["version"] == APPENDS_CRASHES + 1)
    return done


def assert_leftovers_are_listed(work: Path) -> None:
    """Delete what `orphans` lists: what is left is the log and the files that it names."""
    directory = work / "table"
    live = set(decoded_paths(Table.open(str(directory)).snapshot().files).to_pylist())
    Table.open(str(directory)).orphans(older_than="0s", finished=True, delete=True)
    others = {path.name for path in directory.iterdir()} - {"_delta_log"}
    assert named_files(LocalTableStore(directory), others) == others
    assert live <= others
    log = {path.name for path in (directory / "_delta_log").iterdir()}
    assert log == {f"{version:020d}.json" for version in range(len(log))}


def restore(work: Path) -> None:
    shutil.rmtree(work / "table")
    shutil.copytree(work / "template", work / "table")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("operation", ["append", "commit"])
def test_a_killed_operation_happened_once_or_not_at_all(
    operation: str, work: Path, victim: Run
) -> None:
    words = arguments(work, operation)
    whole = victim(words)
    assert (whole["killed"], whole["status"]) == (False, 0), whole
    assert has_happened(work, operation)
    draw = np.random.default_rng(len(operation))
    outcomes = []
    for _ in range(KILLS):
        restore(work)
        # The end, where the commit is put, is the more dangerous part.
        start = draw.choice([1, whole["calls"] * 9 // 10])
        answer = victim(words, int(draw.integers(start, whole["calls"])))
        assert answer["killed"] or answer["status"] == 0, answer
        done = has_happened(work, operation)
        outcomes.append(done)
        after = APPENDS_CRASHES + 1 if operation == "append" else APPENDS_CRASHES
        assert content(work) == expected(after if done else APPENDS_CRASHES)
        if not done or operation != "append":
            redone = victim(words)
            assert redone["status"] == 0, redone
        assert has_happened(work, operation)
        assert content(work) == expected(after)
        assert_leftovers_are_listed(work)
    sys.stdout.write(f"{operation}: landed {sum(outcomes)} of {KILLS} killed\n")


# A rewrite of a migration that is killed keeps the groups that are written.

LIQUIDLOG = (sys.executable, "-c", "from liquidlog.cli import main; main()")
SMALL = ("--set", "min_cube_size=1B", "--set", "target_cube_size=3KB")


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_rewrite_goes_on_with_the_groups_that_are_left(tmp_path: Path) -> None:
    path, plan, result = (tmp_path / name for name in ("t", "plan.json", "result.jsonl"))
    partitioned_table(path, files=dict.fromkeys(TEXTS, 3))
    before = rows_read(path)
    saved = said("migrate", str(path), "--cluster-by", "id", "-o", str(plan), *SMALL)
    assert saved[0] == 0, saved
    groups = len(json.loads(plan.read_text())["groups"])
    assert groups > 2
    command = [*LIQUIDLOG, "run", str(plan), "-o", str(result), "--executor", "local"]
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


# A vacuum that is killed at any call on storage: the table is whole, and the next one ends it.


KILLS_VACUUM_KILLS: Final = effort(15, 10_000)


class Killer:
    """Lets so many calls through; from then on the process is gone."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self.made = 0

    def __call__(self, _: Call, effect: Effect) -> Any:
        if self.made == self._left:
            raise Crash
        self.made += 1
        return effect()


def killed(ground: Playground, verb: Verb, calls: int) -> int:
    """Run a verb from the saved state, killed after so many calls; return how many it made."""
    ground.restore()
    killer = Killer(calls)
    with counted_tokens(), alone_on_storage(), ground.calls(killer), suppress(Crash):
        verb(ground)
    return killer.made


def test_a_killed_vacuum_is_finished_by_the_next() -> None:
    (operation,) = (one for one in OPERATIONS if one.name == "vacuum")
    with playground() as ground:
        verb = operation.made_ready(ground)
        whole = killed(ground, verb, 1 << 30)
        left = ground.log.there
        data = {name for name in left if name.endswith(".parquet")}
        step = max(1, whole // KILLS_VACUUM_KILLS)
        for calls in range(whole - 1, -1, -step):
            assert killed(ground, verb, calls) == calls
            log = ground.log
            assert not log.missing
            assert log.values("x") == sorted(operation.base)
            verb(ground)
            after = ground.log
            assert not after.missing
            assert {name for name in after.there if name.endswith(".parquet")} == data
    sys.stdout.write(f"killed at every {step} of {whole} calls\n")
