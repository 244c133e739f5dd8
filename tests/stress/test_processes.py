"""Processes that race for versions: every commit lands once, readers see only whole versions."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.log.loader import list_recent_log, load_snapshot, open_store, read_commits
from liquidlog.spec.actions import AddFile, Commit
from liquidlog.table import Table
from support import emulators
from support.effort import effort
from support.repository import ROOT
from support.table_rows import live_rows
from support.writers import ROWS, SCHEMA, rows

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
