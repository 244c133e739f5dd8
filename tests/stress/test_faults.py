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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.data.runs import runs_in
from liquidlog.log.history import named_files
from liquidlog.log.loader import list_recent_log, load_snapshot, open_store, read_commits
from liquidlog.operations.optimize import read_plan
from liquidlog.plan import encode_plan, encode_rewritten_group
from liquidlog.snapshot import decoded_paths
from liquidlog.spec.actions import AddFile, Commit
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import Table
from support import emulators
from support.arrow_executor import execute
from support.commands import said
from support.effort import effort, is_long
from support.lake import SCHEMA as LAKE_SCHEMA
from support.lake import copied, ragged, somebody_at_work
from support.lake import rows as rows_of
from support.partitioned import TEXTS, partitioned_table, rows_read
from support.playground import Playground, counted_tokens, playground
from support.processes import (
    GROUPS,
    Forking,
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
from support.repository import ROOT
from support.rivals import alone_on_storage
from support.storage_calls import Call, Effect
from support.table_rows import live_rows
from support.verbs import OPERATIONS, Fault, Operation, Trial, Verb, faults_at
from support.writers import ROWS, SCHEMA, rows

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


# Two runs of upkeep at once, one killed at any moment: nothing is lost, done twice or overspent.
#
# The lake has tables of every kind. After each round the tables hold what they held, no live run
# took an input that another had taken, and each decision is one that is right for its table.


ROUNDS: Final = effort(2, 50)
EACH: Final = effort(1, 3)
APPENDS: Final = effort(2, 6)
BUDGET_TABLES: Final = 0.6
"""The share of all that is to be rewritten that one run may rewrite."""

GOOD: Final = ("clustered", "plain", "partitioned", "busy")
RIGHT: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(GOOD, frozenset({"rewrite", "leave", "postpone"})),
    "occupied": frozenset({"postpone"}),
    "empty": frozenset({"leave"}),
    "refused": frozenset({"leave"}),
    "damaged": frozenset({"fail"}),
    "gone": frozenset({"fail", "postpone"}),
}


@pytest.fixture(scope="module")
def processes() -> Iterator[Forking]:
    with Forking("support.lake") as forking:
        yield forking


class Lake:
    """Tables of every kind below a directory, which can be made as they were."""

    def __init__(self, home: Path) -> None:
        self.home, self.lake, self.journal = home, home / "lake", home / "journal"
        self.policy = home / "policy.toml"
        for number in range(EACH):
            self._make(number)
        ragged(self.lake / "busy-0", files=6)
        for files in (9, 12):
            ragged(self.lake / f"clustered-more-{files}", files=files)
        self.sizes = {
            path: Table.open(path).snapshot().size_bytes
            for path in self.lake.iterdir()
            if self.kind(path) in GOOD
        }
        self.budget = int(sum(self.sizes.values()) * BUDGET_TABLES)
        self.policy.write_text(
            # So many readers that a rewrite pays back at once, however short the last one is ago.
            'tables = ["lake/*"]\n[rewrite]\nqueries_per_day = 10000000\n'
            "[rewrite.when]\ncommits = 1\n"
            f"[budget]\nbytes = {self.budget}\n[checkpoint]\ncommits = 12\n"
        )
        self.held = {path: self.content(path) for path in self.sizes}
        shutil.copytree(self.lake, home / "template")

    def _make(self, number: int) -> None:
        for more in ("a", "b"):
            ragged(self.lake / f"clustered-{more}-{number}", files=6)
        ragged(self.lake / f"plain-{number}", files=6, cluster_by=None)
        partitioned_table(self.lake / f"partitioned-{number}", files={"a": 4, None: 4})
        somebody_at_work(ragged(self.lake / f"occupied-{number}", files=6))
        Table.create(self.lake / f"empty-{number}", schema=LAKE_SCHEMA, cluster_by=["x"])
        copied("logs/32_truncated_middle", self.lake / f"damaged-{number}")
        copied("logs/31_unknown_reader_feature", self.lake / f"refused-{number}")
        copied("logs/26_stats_missing", self.lake / f"gone-{number}")

    @staticmethod
    def kind(path: Path | str) -> str:
        return Path(path).name.partition("-")[0]

    @staticmethod
    def content(path: Path) -> Counter[Any]:
        scanned = pa.RecordBatchReader.from_stream(DeltaTable(path).scan()).read_all()
        return Counter(map(str, scanned.to_pylist()))

    def restore(self) -> None:
        shutil.rmtree(self.lake)
        shutil.copytree(self.home / "template", self.lake)
        for path in self.home.glob("journal*"):
            path.unlink()

    def notes(self) -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def document(self, pid: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(f"{self.journal}.{pid}").read_text())
        return found

    def age(self, pid: int) -> None:
        """Let time pass for what a killed process left."""
        for path in self.sizes:
            for run in runs_in(str(path)):
                origin = run.origin()
                if origin is None or origin.pid == pid:
                    for trace in path.glob(f"_liquidspark-{run.token}*"):
                        os.utime(trace, (0, 0))
                    for name in run.files():
                        os.utime(path / name, (0, 0))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("ticks"))


def begin(processes: Forking, lake: Lake) -> int:
    pid: int = processes.ask(verb="tick", policy=str(lake.policy), journal=str(lake.journal))["pid"]
    return pid


def assert_right(lake: Lake, document: Mapping[str, Any]) -> None:
    wrong = [
        (one["table"], one["decision"], one["reason"])
        for one in document["tables"]
        if one["decision"] not in RIGHT[lake.kind(one["table"])] or not one["reason"]
    ]
    assert wrong == []
    assert len(document["tables"]) == len(list(lake.lake.iterdir()))
    assert document["budget"]["spent"] <= document["budget"]["bytes"] == lake.budget
    done = sum(one["bytes_rewritten"] for one in document["tables"] if one["versions"])
    assert done <= document["budget"]["spent"]


def assert_nothing_twice(lake: Lake, killed: int | None) -> None:
    """No input is taken by two runs, unless the first of them was killed."""
    takers: dict[tuple[str, str], int] = {}
    for note in lake.notes():
        if lake.kind(note["table"]) not in GOOD:
            continue  # its rewrites fail, and are tried again
        for path in note["inputs"]:
            before = takers.setdefault((note["table"], path), note["pid"])
            assert before in {note["pid"], killed}, note
            takers[note["table"], path] = note["pid"]


def assert_budget(lake: Lake) -> None:
    spent = Counter[int]()
    for note in lake.notes():
        spent[note["pid"]] += note["bytes"]
    assert max(spent.values(), default=0) <= lake.budget


def assert_whole(lake: Lake) -> None:
    new = (map(str, rows_of(1_000 + number).to_pylist()) for number in range(APPENDS))
    appended = Counter[Any](chain.from_iterable(new))
    for path, held in lake.held.items():
        more = appended if lake.kind(path) == "busy" else Counter[Any]()
        assert lake.content(path) == held + more, path
        Table.open(path).orphans(older_than="0s", finished=True, delete=True)
        directories = [path, *(one for one in path.iterdir() if "=" in one.name)]
        there = {
            str(file.relative_to(path))
            for directory in directories
            for file in directory.iterdir()
            if file.suffix == ".parquet"
        }
        assert named_files(LocalTableStore(path), there) == there
        assert runs_in(str(path)) == ()


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
def test_two_runs_at_once_and_one_is_killed(processes: Forking, lake: Lake) -> None:
    started = time.monotonic()
    processes.ask(verb="wait", pid=begin(processes, lake))
    whole = time.monotonic() - started
    draw = np.random.default_rng(1)
    done = Counter[str]()
    for number in range(ROUNDS):
        # In one round of three both live, and must leave each other alone.
        after = None if number % 3 == 1 else whole * 1.5 * draw.random()
        killed = one_round(processes, lake, kill_after=after, kill_first=draw.random() < 0.5)
        done["whole" if killed is None else "killed"] += 1
        if killed is not None:
            lake.age(killed)
        third = begin(processes, lake)
        assert processes.ask(verb="wait", pid=third)["status"] == 1
        assert_right(lake, lake.document(third))
        assert_nothing_twice(lake, killed)
        assert_budget(lake)
        assert_whole(lake)
    sys.stdout.write(f"{dict(done)} of {ROUNDS} rounds, {len(list(lake.lake.iterdir()))} tables\n")


def one_round(
    processes: Forking, lake: Lake, *, kill_after: float | None, kill_first: bool
) -> int | None:
    """Run two at once, beside a writer, and kill one; return its pid, None if none was killed."""
    lake.restore()
    busy = str(lake.lake / "busy-0")
    writer = processes.ask(verb="append", table=busy, appends=APPENDS)["pid"]
    both = begin(processes, lake), begin(processes, lake)
    victim = both[0] if kill_first else both[1]
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(victim, signal.SIGKILL)
    ends = {pid: processes.ask(verb="wait", pid=pid) for pid in (*both, writer)}
    killed = victim if ends[victim]["killed"] else None
    assert ends[writer]["status"] == 0
    for pid in both:
        if pid != killed:
            assert ends[pid] == {"killed": False, "status": 1}  # of tables that are damaged
            assert_right(lake, lake.document(pid))
    assert_nothing_twice(lake, killed)
    return killed


# Processes that race for versions: every commit lands once, readers see only whole versions.


WRITERS, COMMITS = effort((4, 10), (16, 50))
TIMEOUT = effort(120, 3_000)


@dataclass(frozen=True)
class Place:
    """Where a table is to be, and the storage options that reach it."""

    uri: str
    options: Mapping[str, str]
    read_by_delta_rs: bool = True

    @property
    def kinds(self) -> str:
        """What writers do but append; a rewrite asks delta-rs for its opinion of the log."""
        return "rewrite cluster-by" if self.read_by_delta_rs else "cluster-by"

    def start(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        options = json.dumps(dict(self.options))
        command = [sys.executable, "-m", "support.writers", program, self.uri, *words, options]
        return subprocess.Popen(command, cwd=ROOT / "tests")


STORES = [
    "local",
    *(pytest.param(name, marks=pytest.mark.emulator) for name in ("s3", "azure", "gcs")),
]


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield Place(str(tmp_path / "table"), {})
        return
    with getattr(emulators, request.param)() as emulator:
        # fake-gcs-server has not the kind of listing that delta-rs asks for.
        readable = emulator.kind != "gcs"
        yield Place(emulator.new_table(), emulator.direct_options, read_by_delta_rs=readable)


def test_every_commit_of_racing_processes_lands_exactly_once(place: Place, tmp_path: Path) -> None:
    report, stop = tmp_path / "seen.json", tmp_path / "stop"
    options = place.options
    Table.create(place.uri, schema=SCHEMA, cluster_by=["x", "s"], storage_options=options)
    reader = place.start("read", str(report), str(stop))
    started = time.monotonic()
    counted = str(COMMITS)
    writers = [place.start("write", str(n), counted, place.kinds) for n in range(WRITERS)]
    assert [writer.wait(TIMEOUT) for writer in writers] == [0] * WRITERS
    seconds = time.monotonic() - started
    stop.touch()
    assert reader.wait(TIMEOUT) == 0
    store = open_store(place.uri, options)
    newest = list_recent_log(store).newest
    sys.stdout.write(f"{newest} commits of {WRITERS} processes in {seconds:.1f} s\n")
    assert newest == WRITERS * COMMITS
    commits = list(read_commits(store, range(newest + 1)))
    # On a slow store a rewrite may lose to some CLUSTER BY every time.
    assert_all_landed_once(commits, "cluster-by" if options else place.kinds)
    assert_readers_saw_whole_versions(commits, report)
    assert_rows_are_those_appended(place, commits)
    if not options:
        named = {unquote(a.path) for c in commits for a in c.actions if isinstance(a, AddFile)}
        assert {path.name for path in Path(place.uri).glob("*.parquet")} == named


def assert_all_landed_once(commits: list[Commit], kinds: str) -> None:
    assert len({commit.info.txn_id for commit in commits}) == len(commits)
    by_writer = Counter(str(commit.info.txn_id).rsplit(" ", 1)[0] for commit in commits[1:])
    assert by_writer == {f"writer {number}": COMMITS for number in range(WRITERS)}
    operations = {commit.info.operation for commit in commits}
    wanted = {"rewrite": "OPTIMIZE", "cluster-by": "CLUSTER BY"}
    assert operations >= {"WRITE", *effort([], [wanted[kind] for kind in kinds.split()])}


def assert_readers_saw_whole_versions(commits: list[Commit], report: Path) -> None:
    live = list(accumulate(ROWS * is_append(commit) for commit in commits))
    seen = json.loads(report.read_text())
    assert len(seen) > 1
    assert dict(seen) == {version: live[version] for version, _ in seen}


def assert_rows_are_those_appended(place: Place, commits: list[Commit]) -> None:
    scanned = scan(place)
    found = sorted(zip(*(scanned[name].to_pylist() for name in SCHEMA.names), strict=True))
    numbers = sorted({row_id // ROWS for row_id, _, _ in found})
    expected = pa.concat_tables([rows(number) for number in numbers]).to_pylist()
    assert found == [tuple(row.values()) for row in expected]
    assert len(numbers) == sum(map(is_append, commits))


def scan(place: Place) -> pa.Table:
    if not place.read_by_delta_rs:
        store = open_store(place.uri, place.options)
        return live_rows(store, load_snapshot(store))
    table = DeltaTable(place.uri, storage_options=dict(place.options))
    return pa.RecordBatchReader.from_stream(table.scan()).read_all()


def is_append(commit: Commit) -> bool:
    return commit.info.operation == "WRITE"
