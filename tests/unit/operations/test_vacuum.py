"""Only files that no version within the retention needs are deleted, and the history says so."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.commit.transaction import Clock
from liquidlog.data.runs import Run
from liquidlog.errors import StorageError, UnsupportedFeatureError, UsageError
from liquidlog.log.store import LocalTableStore
from liquidlog.operations import vacuum as operation
from liquidlog.operations.opened import OpenedTable
from liquidlog.spec.text import RETENTION
from liquidlog.table import Table, as_table
from support.arrow_executor import execute
from support.logs import live_adds, write_actions
from support.playground import clock_of

DAY_S = 86_400
SHORT: Mapping[str, Any] = {"retain": "0s", "allow_short_retention": True}


def table_at(path: Path, values: int = 2) -> Table:
    table = Table.create(str(path), schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for value in range(values):
        table.append(pa.table({"x": [value]}))
    return table


def rewritten(path: Path) -> Table:
    """Return a table with two files that a rewrite replaced by one."""
    table = table_at(path)
    plan = table.plan()
    table.commit(plan, execute(plan))
    return table


def age(directory: Path, days: float) -> None:
    """Make everything in a directory older, and what the log says of it too."""
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            continue
        if path.suffix == ".json":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            for action in lines:
                if "remove" in action:
                    action["remove"]["deletionTimestamp"] -= int(days * DAY_S * 1000)
            path.write_text("".join(json.dumps(action) + "\n" for action in lines))
        written_s = path.stat().st_mtime - days * DAY_S
        os.utime(path, (written_s, written_s))


def there(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()} - {
        str(p.relative_to(directory)) for p in (directory / "_delta_log").rglob("*")
    }


def reasons(done: operation.Vacuumed) -> dict[str, int]:
    return {one.reason: one.files for one in done.kept}


def files_at(table: Table, version: int) -> set[str]:
    return set(table.snapshot(version).files["path"].to_pylist())


def leave(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(b"12345")


def test_removed_files_go_after_the_retention_and_live_ones_stay(tmp_path: Path) -> None:
    table = rewritten(tmp_path)
    gone = files_at(table, 2)
    age(tmp_path, 8)
    rehearsed = Table.open(tmp_path).vacuum(dry_run=True)
    assert {file.path for file in rehearsed.files} == gone
    assert there(tmp_path) > gone
    done = Table.open(tmp_path).vacuum()
    assert done.files == rehearsed.files
    assert reasons(done) == {operation._NEEDED: 1}
    assert there(tmp_path) == files_at(table, 3)
    assert done.deleted_bytes == sum(row["size_bytes"] for row in done.rows())
    assert table.vacuum().versions == ()


def rows_at(table: Table, version: int) -> int:
    paths = files_at(table, version)
    return sum(pq.read_metadata(f"{table.uri}/{path}").num_rows for path in paths)


def test_a_removal_without_a_time_counts_from_its_commit(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    age(tmp_path, 30)
    (path, _) = sorted(files_at(table, 2))
    commit = tmp_path / "_delta_log" / f"{3:020d}.json"
    commit.write_text(json.dumps({"remove": {"path": path, "dataChange": True}}))
    assert Table.open(tmp_path).vacuum().deleted_files == 0
    os.utime(commit, (0, 0))
    assert Table.open(tmp_path).vacuum().deleted_files == 0, "its time is not known"
    written_s = (tmp_path / path).stat().st_mtime
    os.utime(commit, (written_s, written_s))
    assert [file.path for file in Table.open(tmp_path).vacuum().files] == [path]


def test_a_longer_retention_keeps_what_a_checkpoint_says_was_removed(tmp_path: Path) -> None:
    table = rewritten(tmp_path)
    table.checkpoint()
    for version in range(4):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    later = clock_of("later").now_ms() + 8 * DAY_S * 1000
    clock = Clock(now_ms=lambda: later, new_id=clock_of("B").new_id)
    kept = as_table(OpenedTable(LocalTableStore(tmp_path), clock)).vacuum(
        retain="30d", dry_run=True
    )
    assert kept.deleted_files == 0
    gone = as_table(OpenedTable(LocalTableStore(tmp_path), clock)).vacuum(retain="7d", dry_run=True)
    assert gone.deleted_files == 2


@pytest.mark.parametrize(
    ("property_text", "retain", "allowed"),
    [
        (None, "168h", True),
        (None, "167h", False),
        ("interval 30 days", "168h", False),
        ("interval 30 days", "30d", True),
        ("interval 1 hour", None, True),
        ("interval 1 hour", "2h", False),
    ],
)
def test_a_short_retention_is_refused(
    tmp_path: Path, property_text: str | None, retain: str | None, *, allowed: bool
) -> None:
    table = table_at(tmp_path)
    if property_text is not None:
        table.set_properties({RETENTION: property_text})
    version = table.snapshot().version
    if allowed:
        assert table.vacuum(retain=retain).deleted_files == 0
        return
    with pytest.raises(UsageError) as error:
        table.vacuum(retain=retain)
    assert error.value.arguments.keys() == {"retain_ms", "least_ms"}
    assert table.vacuum(retain=retain, allow_short_retention=True).versions == ()
    assert table.snapshot().version == version


def test_an_unknown_retention_is_refused() -> None:
    with pytest.raises(UsageError):
        operation.retention_to_keep({RETENTION: "a while"}, None, allow_short=True)


def test_a_table_that_we_may_not_write_is_refused(tmp_path: Path) -> None:
    rewritten(tmp_path)
    commit = tmp_path / "_delta_log" / f"{4:020d}.json"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["fromTheFuture"]}
    commit.write_text(json.dumps({"protocol": protocol}))
    before = there(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedFeatureError):
            Table.open(tmp_path).vacuum(**SHORT, dry_run=dry_run)
    assert there(tmp_path) == before


def test_files_of_runs_stay_however_old_they_are(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    plan = table.plan()
    result = execute(plan)
    dead = Run(str(tmp_path), "0123456789ab")
    dead.begin()
    leave(tmp_path, dead.file_name(0, "x", "zstd"))
    age(tmp_path, 30)
    done = Table.open(tmp_path).vacuum(**SHORT)
    assert (done.deleted_files, reasons(done)[operation._RUN]) == (0, 2)
    for path in tmp_path.iterdir():
        os.utime(path)
    table.commit(plan, result)
    assert Table.open(tmp_path).vacuum(**SHORT).deleted_files == 2
    assert rows_at(table, table.snapshot().version) == 2


def test_what_an_unknown_writer_left_goes_when_it_is_old(tmp_path: Path) -> None:
    vector = "ab/deletion_vector_00000000-0000-4000-8000-000000000000.bin"
    names = ("part-0.parquet", "x=1/part-1.parquet", vector)
    table = table_at(tmp_path)
    leave(tmp_path, *names, "notes.txt", "_hidden.parquet", ".part.parquet.crc", "_tmp/a.parquet")
    leave(tmp_path, "metadata/1.parquet", "_change_data/cdc-1.parquet", ".x/a.parquet")
    assert table.vacuum().deleted_files == 0
    age(tmp_path, 8)
    done = Table.open(tmp_path).vacuum()
    assert {file.path for file in done.files} == {*names, "_change_data/cdc-1.parquet"}
    assert reasons(done) == {operation._NEEDED: 2, operation._OTHER: 1}
    assert (tmp_path / "_tmp" / "a.parquet").exists()


def test_links_and_other_tables_are_left_alone(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "table", tmp_path / "elsewhere"
    table = table_at(directory)
    leave(elsewhere, "a.parquet")
    inner = table_at(directory / "archive" / "inner")
    leave(directory, "archive/inner/stray.parquet", "archive/stray.parquet")
    (directory / "linked").symlink_to(elsewhere)
    (directory / "link.parquet").symlink_to(elsewhere / "a.parquet")
    age(tmp_path, 8)
    done = Table.open(directory).vacuum()
    assert {file.path for file in done.files} == {"archive/stray.parquet"}
    assert reasons(done)[operation._ANOTHER_TABLE] == 3
    assert reasons(done)[operation._ODD] == 2
    assert rows_at(inner, 2) == rows_at(table, 2) == 2
    assert (elsewhere / "a.parquet").exists()


def test_a_live_file_behind_a_link_is_found_by_its_name(tmp_path: Path) -> None:
    """The log names link/a, the listing has real/a: one file with two paths."""
    table = table_at(tmp_path)
    (name, other) = sorted(files_at(table, 2))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    shutil.copy(tmp_path / name, tmp_path / "real" / name)
    add = live_adds(tmp_path)[name]
    remove = {"path": name, "deletionTimestamp": 1, "dataChange": True}
    write_actions(tmp_path, 3, {"remove": remove}, {"add": {**add, "path": f"link/{name}"}})
    age(tmp_path, 8)
    done = Table.open(tmp_path).vacuum()
    assert done.deleted_files == 0
    assert rows_at(table, 3) == 2
    assert other in there(tmp_path)


@pytest.mark.parametrize("spelled", ["a b=1/{}", "a%20b=1/{}", "A B=1/{}", "./a b=1/{}"])
def test_a_live_file_is_found_however_the_log_spells_it(tmp_path: Path, spelled: str) -> None:
    table = table_at(tmp_path, 1)
    (name,) = files_at(table, 1)
    (tmp_path / "a b=1").mkdir()
    (tmp_path / name).rename(tmp_path / "a b=1" / name)
    leave(tmp_path, f"a b=2/{name}")
    for path in (tmp_path / "_delta_log").glob("*.json"):
        path.write_text(path.read_text().replace(f'"{name}"', f'"{spelled.format(name)}"'))
    age(tmp_path, 8)
    done = Table.open(tmp_path).vacuum(dry_run=True)
    expected = set() if spelled.startswith("./") else {f"a b=2/{name}"}
    assert {file.path for file in done.files} <= {f"a b=2/{name}"}
    assert {file.path for file in done.files} >= expected


def test_change_data_stays_as_long_as_its_commit(tmp_path: Path) -> None:
    table_at(tmp_path, 1)
    leave(tmp_path, "_change_data/cdc-1.parquet")
    age(tmp_path, 8)
    cdc = {"path": "_change_data/cdc-1.parquet", "partitionValues": {}, "size": 5}
    commit = tmp_path / "_delta_log" / f"{2:020d}.json"
    commit.write_text(json.dumps({"cdc": {**cdc, "dataChange": False}}))
    assert Table.open(tmp_path).vacuum().deleted_files == 0
    old_s = commit.stat().st_mtime - 8 * DAY_S
    os.utime(commit, (old_s, old_s))
    assert Table.open(tmp_path).vacuum().deleted_files == 1


def test_nothing_goes_by_a_clock_that_is_far_ahead(tmp_path: Path) -> None:
    rewritten(tmp_path)
    ahead = clock_of("A").now_ms() + 30 * DAY_S * 1000
    clock = Clock(now_ms=lambda: ahead, new_id=clock_of("A").new_id)
    before = there(tmp_path)
    with pytest.raises(StorageError, match="clock"):
        as_table(OpenedTable(LocalTableStore(tmp_path), clock)).vacuum()
    assert there(tmp_path) == before
    ended = Table.open(tmp_path).history(limit=1)[0]
    assert ended["operationParameters"] == {"status": "FAILED"}


def test_what_another_engine_restores_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rewritten(tmp_path)
    restored = min(files_at(table, 2))
    wait = operation._require_one_time

    def restore(*arguments: Any) -> None:
        wait(*arguments)
        add = {"path": restored, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
        size = (tmp_path / restored).stat().st_size
        commit = tmp_path / "_delta_log" / f"{5:020d}.json"
        commit.write_text(json.dumps({"add": {**add, "size": size}}))

    monkeypatch.setattr(operation, "_require_one_time", restore)
    done = table.vacuum(**SHORT)
    assert done.deleted_files == 1
    assert done.versions == (4, 6)
    assert (tmp_path / restored).exists()


def test_a_failed_deletion_is_said_and_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rewritten(tmp_path)
    delete = LocalTableStore.delete_file
    failing = sorted(files_at(table, 2))[1]

    def refuse(store: LocalTableStore, path: str) -> None:
        if path == failing:
            raise StorageError(path, "cannot be deleted")
        delete(store, path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalTableStore, "delete_file", refuse)
        with pytest.raises(StorageError):
            table.vacuum(**SHORT)
    assert table.history(limit=1)[0]["operationParameters"] == {"status": "FAILED"}
    assert [file.path for file in table.vacuum(**SHORT).files] == [failing]
