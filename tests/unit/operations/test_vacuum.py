"""Only files that no version within the retention needs are deleted, and the history says so."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.commit import Clock, OpenedTable
from liquidlog.data.reader import write_vector
from liquidlog.data.runs import APPEND, Origin, Run, RunStage, runs_in
from liquidlog.errors import LiquidlogError, StorageError, UnsupportedFeatureError, UsageError
from liquidlog.operations import vacuum as operation
from liquidlog.operations.vacuum import AtWork, at_work
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.spec.actions import vector_path
from liquidlog.spec.text import RETENTION
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import Table, as_table
from support.arrow_executor import execute
from support.deleted import commit_vectors, positions
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
    (gone,) = Table.open(tmp_path).vacuum().files
    assert (gone.path, gone.reason) == (path, operation._REMOVED)


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
        ("interval 1 hour", None, True),
    ],
)
def test_a_short_retention_is_refused(
    tmp_path: Path, property_text: str | None, retain: str | None, *, allowed: bool
) -> None:
    table = table_at(tmp_path)
    if property_text is not None:
        table.set_properties({RETENTION: property_text})
    if not allowed:
        with pytest.raises(UsageError) as error:
            table.vacuum(retain=retain)
        assert error.value.arguments.keys() == {"retain_ms", "least_ms"}
    assert table.vacuum(retain=retain, allow_short_retention=not allowed).versions == ()


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
    for dry_run in (True, False):
        assert Table.open(tmp_path).vacuum(dry_run=dry_run).deleted_files == 0
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


def test_what_others_restore_meanwhile_stays(
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


def test_files_of_runs_and_of_no_age_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, run, wait = rewritten(tmp_path), Run(str(tmp_path), DEAD), operation._require_one_time
    (name,) = leave_run(tmp_path, DEAD, files=1, age_s=9 * DAY_S)
    leave(tmp_path, "part-left.parquet")
    os.utime(tmp_path / "part-left.parquet", (0, 0))
    kept = reasons(table.vacuum(dry_run=True))
    assert (kept[operation._RUN], kept[operation._AGELESS]) == (1, 1)
    run.forget(named=[name])

    def begin_after_the_first_look(*given: Any) -> None:
        run.begin()
        wait(*given)

    monkeypatch.setattr(operation, "_require_one_time", begin_after_the_first_look)
    assert name not in {file.path for file in table.vacuum(**SHORT).files}
    assert {name, "part-left.parquet"} <= there(tmp_path)


def test_a_failed_deletion_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# Only files that no version names and no commit can ever name are deleted.


DEAD, ALIVE = "0123456789ab", "ba9876543210"


def table_of_three(path: Path) -> Table:
    table = Table.create(str(path), schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    table.append(pa.table({"x": [1, 2, 3]}))
    return table


def leave_run(directory: Path, token: str, *, files: int, age_s: int) -> list[str]:
    """Leave what a killed run leaves: a marker and files."""
    run = Run(str(directory), token)
    run.begin()
    names = [run.file_name(n, "x", "zstd") for n in range(files)]
    for name in names:
        (directory / name).write_bytes(b"12345")
    age_run(directory, token, *names, seconds=age_s)
    return names


def age_run(directory: Path, token: str, *names: str, seconds: int) -> None:
    for path in (*directory.glob(f"_liquidspark-{token}*"), *(directory / name for name in names)):
        written_s = path.stat().st_mtime - seconds
        os.utime(path, (written_s, written_s))


def listing(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def uncommitted(table: Table, *, age_s: int) -> tuple[ClusteringPlan, RewriteResult]:
    """Return a plan and its result, which nobody committed."""
    table.append(pa.table({"x": [4, 5]}))
    plan = table.plan()
    result = execute(plan)
    group = result.groups[0]
    outputs = [output.path for output in group.outputs]
    age_run(Path(table.uri), group.run, *outputs, seconds=age_s)
    return plan, result


def test_files_of_a_dead_run_go_and_nothing_else(tmp_path: Path) -> None:
    table = table_of_three(tmp_path)
    (tmp_path / "part-01234567-other.parquet").write_bytes(b"not ours")
    (tmp_path / "_liquidspark-not-a-token").write_bytes(b"not ours")
    begin = listing(tmp_path)
    names = leave_run(tmp_path, DEAD, files=3, age_s=2 * DAY_S)
    rows = table.orphans()
    assert [row["path"] for row in rows] == names
    assert {row["orphan"] for row in rows} == {True}
    assert {row["size_bytes"] for row in rows} == {5}
    assert listing(tmp_path) > begin
    assert {row["deleted"] for row in table.orphans(delete=True)} == {True}
    assert listing(tmp_path) == begin
    assert Run(str(tmp_path), DEAD).has_ended()
    assert table.orphans(delete=True) == ()


def test_deletion_vectors_of_a_dead_run_go_unless_a_version_names_them(tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path),
        schema=pa.schema([("x", pa.int64())]),
        properties={"delta.enableDeletionVectors": "true"},
    )
    table.append(pa.table({"x": [1, 2, 3]}))
    run = Run(str(tmp_path), DEAD)
    run.begin()
    named, other = (write_vector(run, positions([0]), unique_id=name) for name in "ab")
    live = table.snapshot().files["path"][0].as_py()
    commit_vectors(tmp_path, {live: named})
    names = run.files()
    age_run(tmp_path, DEAD, *names, seconds=2 * DAY_S)
    rows = {row["path"]: row for row in Table.open(str(tmp_path)).orphans(delete=True)}
    assert rows.keys() == set(names)
    kept = rows.pop(str(vector_path(named)))
    assert (kept["orphan"], kept["deleted"]) == (False, False)
    assert "a version of the table names it" in kept["reason"]
    assert rows[str(vector_path(other))]["deleted"]
    assert run.files() == (vector_path(named),)
    assert run.stage() is RunStage.GONE


def test_a_run_that_wrote_lately_is_left_alone(tmp_path: Path) -> None:
    table = table_of_three(tmp_path)
    names = leave_run(tmp_path, ALIVE, files=2, age_s=2 * DAY_S)
    os.utime(tmp_path / names[1])
    (row, _) = table.orphans(delete=True)
    assert not row["orphan"]
    assert "may be running" in row["reason"]
    assert {*names} < listing(tmp_path)
    assert [run.token for run in runs_in(str(tmp_path))] == [ALIVE]
    table.orphans(older_than="0s", delete=True)
    assert runs_in(str(tmp_path)) == ()


def test_a_finished_run_is_left_alone_while_it_can_be_committed(tmp_path: Path) -> None:
    table = table_of_three(tmp_path)
    plan, result = uncommitted(table, age_s=3 * DAY_S)
    (row,) = table.orphans(older_than="0s", delete=True)
    assert not row["orphan"]
    assert "can still be committed" in row["reason"]
    assert table.commit(plan, result).versions == (3,)
    assert table.orphans(older_than="0s") == ()


def test_a_finished_run_that_nobody_may_commit_any_more_goes(tmp_path: Path) -> None:
    table = table_of_three(tmp_path)
    plan, result = uncommitted(table, age_s=4 * DAY_S)
    report = table.commit_each(plan, result.groups)
    assert "half of delta.deletedFileRetentionDuration" in report.failures[0]
    (row,) = table.orphans(delete=True)
    assert row["deleted"]
    assert table.history(1)[0]["operation"] == operation.ORPHANS
    assert runs_in(str(tmp_path)) == ()
    assert rows_at(table, table.snapshot().version) == 5


def test_a_log_that_cannot_be_read_spares_everything(tmp_path: Path) -> None:
    table = table_of_three(tmp_path)
    table.checkpoint()
    leave_run(tmp_path, DEAD, files=1, age_s=2 * DAY_S)
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_bytes(b"{")
    before = listing(tmp_path)
    with pytest.raises(LiquidlogError):
        table.orphans(delete=True)
    assert listing(tmp_path) == before


def test_what_killed_writers_leave_is_listed_and_goes(tmp_path: Path) -> None:
    table = table_of_three(tmp_path)
    log = tmp_path / "_delta_log"
    left = [log / ".00000000000000000002.json.0123456789abcdef.tmp", log / ".liquidlog-probe-1"]
    foreign = [log / ".00000000000000000002.json.crc", log / ".x.tmp"]
    for path in (*left, *foreign):
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    rows = table.orphans(delete=True)
    assert [row["path"] for row in rows] == [f"_delta_log/{path.name}" for path in left]
    assert [path.exists() for path in (*left, *foreign)] == [False, False, True, True]


@pytest.mark.parametrize("stale", range(1, 12))
def test_a_listing_of_a_cache_deletes_nothing_without_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: int
) -> None:
    table = table_of_three(tmp_path)
    uncommitted(table, age_s=0)
    listings = count(1)
    list_log = LocalTableStore.list_log

    def older(store: LocalTableStore, first: int = 0) -> Any:
        found = list_log(store, first) or ()
        newest = max(file.version for file in found)
        old = next(listings) == stale
        return tuple(file for file in found if not old or file.version < newest)

    monkeypatch.setattr(LocalTableStore, "list_log", older)
    with suppress(LiquidlogError):
        Table.open(str(tmp_path)).orphans(older_than="0s", finished=True, delete=True)
    monkeypatch.undo()
    deleted = not table.orphans(older_than="0s")
    assert deleted == (table.history(1)[0]["operation"] == operation.ORPHANS)


# Whose rewrites may be at work on a table, by what the markers of their runs say.


OTHER = Origin(verb="optimize", host="host-a", pid=4711, started_ms=0, plan_id="p")
OLD, NEW, THIRD = "0123456789ab", "ba9876543210", "0123456789ff"
HOUR_S = 3_600


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])


def begin(table: Table, token: str, origin: Origin | None) -> Run:
    run = Run(table.uri, token)
    run.begin(origin)
    return run


def working(table: Table) -> list[AtWork]:
    return list(at_work(table.opened.store, table.opened.clock))


def test_groups_of_one_process_are_one_and_appends_take_no_file(table: Table) -> None:
    first, second = begin(table, OLD, OTHER), begin(table, NEW, OTHER)
    begin(table, "0" * 12, Origin.here(APPEND, now_ms=0))
    third = begin(table, THIRD, Origin.here("run", now_ms=OTHER.started_ms))
    assert first.origin() == second.origin() == OTHER
    assert {one.origin: one.groups for one in working(table)} == {OTHER: 2, third.origin(): 1}


def test_age_is_since_the_process_began(table: Table) -> None:
    now_ms = begin(table, OLD, None).last_trace_ms()
    assert now_ms is not None
    begin(table, NEW, Origin(verb="run", host="h", pid=1, started_ms=now_ms - 90 * 60_000))
    begin(table, THIRD, Origin(verb="run", host="fast", pid=1, started_ms=now_ms + 10**9))
    ages = {one.origin and one.origin.host: one.age_ms for one in working(table)}
    assert ages["fast"] == 0
    assert (ages[None] or 0) < 60_000
    assert 90 * 60_000 <= (ages["h"] or 0) < 91 * 60_000
    told = " ".join(map(str, working(table)))
    assert "run on h, process 1, begun 1 h ago, with 1 group under way" in told


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"verb": "optimize"}', b"\xff"])
def test_a_marker_that_says_nothing_is_somebody(table: Table, content: bytes) -> None:
    run = begin(table, OLD, None)
    Path(table.uri, f"_liquidspark-{run.token}").write_bytes(content)
    (one,) = working(table)
    assert one.origin is None
    assert "does not say who" in str(one)


def test_a_run_that_wrote_nothing_for_a_day_is_dead(table: Table) -> None:
    run, home = begin(table, OLD, OTHER), Path(table.uri)
    age_run(home, OLD, seconds=23 * HOUR_S)
    assert len(working(table)) == 1
    age_run(home, OLD, seconds=2 * HOUR_S)
    assert working(table) == []
    (home / run.file_name(0, "x", "zstd")).write_bytes(b"12345")
    assert len(working(table)) == 1


def test_orphans_say_whose_files_they_are(table: Table) -> None:
    run = begin(table, OLD, OTHER)
    name = run.file_name(0, "x", "zstd")
    Path(table.uri, name).write_bytes(b"12345")
    for deleted, age_s in ((False, 0), (True, 48 * HOUR_S)):
        age_run(Path(table.uri), OLD, name, seconds=age_s)
        (one,) = table.orphans(delete=True)
        assert "optimize on host-a, process 4711" in one["reason"]
        assert one["deleted"] is deleted
    assert runs_in(table.uri) == ()
