"""The next version costs its commits: nothing that was read before is read again."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.errors import CorruptLogError
from liquidlog.log.loader import advance, load_snapshot
from liquidlog.log.local_store import LocalTableStore
from liquidlog.log.statistics import load_bounds
from liquidlog.operations.opened import OpenedTable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.paths import LogFile, canonical_path, commit_name
from liquidlog.spec.schema import leaves
from liquidlog.storage.files import Source
from liquidlog.table import Table, as_table, system_clock
from support.plain_bounds import plain_bounds
from support.repository import ROOT

LOGS = ROOT / "fixtures" / "logs"
CASES = ["05_alter_columns", "12_dv_stable_becomes_partial", "17_checkpoint_single", "34_restore"]


class CountingStore(LocalTableStore):
    """Remembers what was read of the log; `hide_after` hides newer commits."""

    def __init__(self, root: Path, hide_after: int | None = None) -> None:
        super().__init__(root)
        self.read: list[str] = []
        self.hide_after = hide_after

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...]:
        hidden = self.hide_after
        return tuple(
            file
            for file in super().list_log(first_version) or ()
            if hidden is None or file.version <= hidden
        )

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        return tuple(self.read_log(name) for name in names)

    def read_log(self, name: str) -> bytes | None:
        self.read.append(name)
        return super().read_log(name)

    def open_log(self, name: str) -> Source:
        self.read.append(name)
        return super().open_log(name)


def table_at(path: Path, clustered_by: tuple[str, ...] = ("x",)) -> Table:
    schema = pa.schema([("x", pa.int64())])
    return Table.create(str(path), schema=schema, cluster_by=clustered_by)


def some_rows(number: int) -> pa.Table:
    return pa.table({"x": pa.array([number, number + 1], pa.int64())})


def content(snapshot: Snapshot, store: LocalTableStore) -> Any:
    bounds = load_bounds(store, snapshot, list(leaves(snapshot.schema))[:2])
    return (
        snapshot.version,
        snapshot.timestamp_ms,
        snapshot.protocol,
        snapshot.metadata,
        snapshot.domains,
        snapshot.transactions,
        # The row of the statistics and the adding commit depend on the checkpoint used.
        snapshot.files.drop_columns(["statistics_row", "version"]).to_pylist(),
        repr(plain_bounds(bounds)),
    )


@pytest.mark.parametrize("case", CASES)
def test_versions_reached_commit_by_commit_are_those_loaded_whole(case: str) -> None:
    root = LOGS / case / "table"
    newest = Table.open(str(root)).snapshot().version
    files = LocalTableStore(root).list_log() or ()
    start = max((f.version for f in files if "checkpoint" in f.name), default=0)
    start = min(start, newest)
    store = CountingStore(root, hide_after=start)
    snapshot = load_snapshot(store)
    for version in range(start + 1, newest + 1):
        store.hide_after = version
        snapshot, commits = advance(store, snapshot)
        assert [commit.version for commit in commits] == [version]
        assert content(snapshot, store) == content(load_snapshot(store), store)


def test_only_new_commits_are_read(tmp_path: Path) -> None:
    other = table_at(tmp_path)
    other.append(some_rows(1))
    store = CountingStore(tmp_path)
    table = as_table(OpenedTable(store, system_clock()))
    assert table.snapshot().version == 1
    assert store.read == ["_last_checkpoint", commit_name(1), commit_name(0)]
    store.read.clear()
    assert table.snapshot().version == 1
    assert store.read == []
    other.append(some_rows(2))
    assert table.snapshot().files.num_rows == 2
    assert store.read == [commit_name(2)]


def test_after_a_lost_race_only_the_winner_is_read(tmp_path: Path) -> None:
    other = table_at(tmp_path)

    class RacingStore(CountingStore):
        races = 3

        def put_log_if_absent(self, name: str, body: bytes) -> bool:
            if self.races:
                self.races -= 1
                other.append(some_rows(self.races))
            return super().put_log_if_absent(name, body)

    store = RacingStore(tmp_path)
    table = as_table(OpenedTable(store, system_clock()))
    appended = table.append(some_rows(9))
    assert appended.version == 4
    # Each winner once to see whose it is, once or twice to be based upon; version 0 only once.
    assert store.read.count(commit_name(0)) == 1
    assert all(store.read.count(commit_name(v)) <= 3 for v in (1, 2, 3))
    assert table.snapshot().files.num_rows == 4


def replaced(path: Path) -> None:
    for file in (path / "_delta_log").iterdir():
        file.unlink()
    table_at(path, ())
    Table.open(str(path)).append(some_rows(5))


def shortened(path: Path) -> None:
    (path / "_delta_log" / commit_name(2)).unlink()


@pytest.mark.parametrize("change", [replaced, shortened])
def test_a_log_that_is_another_one_is_loaded_anew(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    table = table_at(tmp_path)
    table.append(some_rows(1))
    table.append(some_rows(2))
    assert table.snapshot().version == 2
    change(tmp_path)
    fresh = Table.open(str(tmp_path)).snapshot()
    assert table.snapshot().metadata == fresh.metadata
    assert table.snapshot().files.equals(fresh.files)


def add_line(path: str) -> str:
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0}
    return json.dumps({"add": {**add, "dataChange": True}}) + "\n"


@pytest.mark.parametrize("odd", ["a%20b.parquet", "./c.parquet", "s3://bucket/d.parquet"])
def test_paths_are_known_to_be_plain_only_while_all_are(tmp_path: Path, odd: str) -> None:
    table = table_at(tmp_path / "t")
    store = LocalTableStore(tmp_path / "t")
    snapshot = load_snapshot(store)
    for version, paths in enumerate((["a.parquet"], ["b.parquet", odd], ["e.parquet"]), start=1):
        lines = "".join(map(add_line, paths))
        (tmp_path / "t" / "_delta_log" / commit_name(version)).write_text(lines)
        snapshot, _ = advance(store, snapshot)
        assert snapshot.paths().equals(load_snapshot(store).paths())
        assert (snapshot.plain_files is snapshot.files) == (version == 1)
    assert canonical_path(odd) in table.snapshot().paths().to_pylist()


def test_one_file_under_two_names_is_found_in_a_later_commit(tmp_path: Path) -> None:
    table_at(tmp_path / "t")
    store = LocalTableStore(tmp_path / "t")
    snapshot = load_snapshot(store)
    log = tmp_path / "t" / "_delta_log"
    (log / commit_name(1)).write_text(add_line("a+b.parquet"))
    snapshot, _ = advance(store, snapshot)
    (log / commit_name(2)).write_text(add_line("a%2Bb.parquet"))
    for load in (lambda: advance(store, snapshot), lambda: load_snapshot(store)):
        with pytest.raises(CorruptLogError):
            load()
