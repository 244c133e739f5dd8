"""Two runs of upkeep at once, one killed at any moment: nothing is lost, done twice or overspent.

The lake has tables of every kind. After each round the tables hold what they held, no live run took
an input that another had taken, and each decision is one that is right for its table.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.data.runs import runs_in
from liquidlog.log.history import named_files
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import Table
from support.effort import effort
from support.lake import SCHEMA, copied, ragged, rows, somebody_at_work
from support.partitioned import partitioned_table
from support.processes import Forking

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
    with Forking("support.lake") as started:
        yield started


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
        Table.create(self.lake / f"empty-{number}", schema=SCHEMA, cluster_by=["x"])
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


def start(processes: Forking, lake: Lake) -> int:
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
    new = (map(str, rows(1_000 + number).to_pylist()) for number in range(APPENDS))
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
    processes.ask(verb="wait", pid=start(processes, lake))
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
        third = start(processes, lake)
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
    both = start(processes, lake), start(processes, lake)
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
