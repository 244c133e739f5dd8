"""Only files that no version names and no commit can ever name are deleted."""

import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.data.logical_file import write_vector
from liquidlog.data.runs import (
    APPEND,
    Origin,
    Run,
    RunStage,
    runs_in,
)
from liquidlog.errors import LiquidlogError
from liquidlog.log.store import LocalTableStore
from liquidlog.operations import vacuum as operation
from liquidlog.operations.outputs import at_work
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.spec.deletion_vectors import vector_path
from liquidlog.table import Table
from support.arrow_executor import execute
from support.deleted import commit_vectors, positions

DAY_S = 86_400
DEAD, ALIVE = "0123456789ab", "ba9876543210"


def table_at(path: Path) -> Table:
    table = Table.create(str(path), schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    table.append(pa.table({"x": [1, 2, 3]}))
    return table


def leave(directory: Path, token: str, *, files: int, age_s: int) -> list[str]:
    """Leave what a killed run leaves: a marker and files."""
    run = Run(str(directory), token)
    run.begin()
    names = [run.file_name(n, "x", "zstd") for n in range(files)]
    for name in names:
        (directory / name).write_bytes(b"12345")
    age(directory, token, *names, seconds=age_s)
    return names


def age(directory: Path, token: str, *names: str, seconds: int) -> None:
    for path in (
        *directory.glob(f"_liquidspark-{token}*"),
        *(directory / name for name in names),
    ):
        written_s = path.stat().st_mtime - seconds
        os.utime(path, (written_s, written_s))


def listing(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def rewritten(table: Table, *, age_s: int) -> tuple[ClusteringPlan, RewriteResult]:
    """Return a plan and its result, which nobody committed."""
    table.append(pa.table({"x": [4, 5]}))
    plan = table.plan()
    result = execute(plan)
    group = result.groups[0]
    outputs = [output.path for output in group.outputs]
    age(Path(table.uri), group.run, *outputs, seconds=age_s)
    return plan, result


def rows_at(table: Table, version: int) -> int:
    files = table.snapshot(version).files["path"].to_pylist()
    return sum(pa.parquet.read_metadata(f"{table.uri}/{path}").num_rows for path in files)


def test_files_of_a_dead_run_go_and_nothing_else(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    (tmp_path / "part-01234567-other.parquet").write_bytes(b"not ours")
    (tmp_path / "_liquidspark-not-a-token").write_bytes(b"not ours")
    begin = listing(tmp_path)
    names = leave(tmp_path, DEAD, files=3, age_s=2 * DAY_S)
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
    age(tmp_path, DEAD, *names, seconds=2 * DAY_S)
    rows = {row["path"]: row for row in Table.open(str(tmp_path)).orphans(delete=True)}
    assert rows.keys() == set(names)
    kept = rows.pop(str(vector_path(named)))
    assert (kept["orphan"], kept["deleted"]) == (False, False)
    assert "a version of the table names it" in kept["reason"]
    assert rows[str(vector_path(other))]["deleted"]
    assert run.files() == (vector_path(named),)
    assert run.stage() is RunStage.GONE


def test_a_run_that_wrote_lately_is_left_alone(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    names = leave(tmp_path, ALIVE, files=2, age_s=2 * DAY_S)
    os.utime(tmp_path / names[1])
    (row, _) = table.orphans(delete=True)
    assert not row["orphan"]
    assert "may be running" in row["reason"]
    assert {*names} < listing(tmp_path)
    assert [run.token for run in runs_in(str(tmp_path))] == [ALIVE]
    table.orphans(older_than="0s", delete=True)
    assert runs_in(str(tmp_path)) == ()


def test_a_finished_run_is_left_alone_while_it_can_be_committed(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    plan, result = rewritten(table, age_s=3 * DAY_S)
    (row,) = table.orphans(older_than="0s", delete=True)
    assert not row["orphan"]
    assert "can still be committed" in row["reason"]
    assert table.commit(plan, result).versions == (3,)
    assert table.orphans(older_than="0s") == ()


def test_a_finished_run_that_nobody_may_commit_any_more_goes(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    plan, result = rewritten(table, age_s=4 * DAY_S)
    report = table.commit_each(plan, result.groups)
    assert "half of delta.deletedFileRetentionDuration" in report.failures[0]
    (row,) = table.orphans(delete=True)
    assert row["deleted"]
    assert table.history(1)[0]["operation"] == operation.OPERATION
    assert runs_in(str(tmp_path)) == ()
    assert rows_at(table, table.snapshot().version) == 5


def test_a_log_that_cannot_be_read_spares_everything(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    table.checkpoint()
    leave(tmp_path, DEAD, files=1, age_s=2 * DAY_S)
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_bytes(b"{")
    before = listing(tmp_path)
    with pytest.raises(LiquidlogError):
        table.orphans(delete=True)
    assert listing(tmp_path) == before


def test_what_killed_writers_leave_is_listed_and_goes(tmp_path: Path) -> None:
    table = table_at(tmp_path)
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
    table = table_at(tmp_path)
    rewritten(table, age_s=0)
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
    assert deleted == (table.history(1)[0]["operation"] == operation.OPERATION)


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


def age_at_work(path: Path, seconds: int) -> None:
    written = path.stat().st_mtime - seconds
    os.utime(path, (written, written))


def marker(run: Run) -> Path:
    return Path(run.directory, f"_liquidspark-{run.token}")


def test_groups_of_one_process_are_one(table: Table) -> None:
    first, second = begin(table, OLD, OTHER), begin(table, NEW, OTHER)
    third = begin(table, THIRD, Origin.here("run", now_ms=OTHER.started_ms))
    assert first.origin() == second.origin() == OTHER
    found = {one.origin: one.groups for one in at_work(table.opened.store, table.opened.clock)}
    assert found == {OTHER: 2, third.origin(): 1}


def test_age_is_since_the_process_began(table: Table) -> None:
    now_ms = begin(table, OLD, None).last_trace_ms()
    assert now_ms is not None
    begin(table, NEW, Origin(verb="run", host="h", pid=1, started_ms=now_ms - 90 * 60_000))
    begin(table, THIRD, Origin(verb="run", host="fast", pid=1, started_ms=now_ms + 10**9))
    ages = {
        one.origin and one.origin.host: one.age_ms
        for one in at_work(table.opened.store, table.opened.clock)
    }
    assert ages["fast"] == 0
    assert ages[None] < 60_000
    assert 90 * 60_000 <= ages["h"] < 91 * 60_000
    said = [str(one) for one in at_work(table.opened.store, table.opened.clock)]
    assert any("run on h, process 1, begun 1 h ago, with 1 group under way" in one for one in said)


@pytest.mark.parametrize("content", [b"", b"\n", b"{", b"[]", b'{"verb": "optimize"}', b"\xff"])
def test_a_marker_that_says_nothing_is_somebody(table: Table, content: bytes) -> None:
    run = begin(table, OLD, None)
    marker(run).write_bytes(content)
    assert [one.origin for one in at_work(table.opened.store, table.opened.clock)] == [None]
    assert "does not say who" in str(at_work(table.opened.store, table.opened.clock)[0])


def test_appends_take_no_file_from_a_rewrite(table: Table) -> None:
    begin(table, OLD, Origin.here(APPEND, now_ms=0))
    assert at_work(table.opened.store, table.opened.clock) == ()


def test_a_run_that_wrote_nothing_for_a_day_is_dead(table: Table) -> None:
    run = begin(table, OLD, OTHER)
    age_at_work(marker(run), 23 * HOUR_S)
    assert len(at_work(table.opened.store, table.opened.clock)) == 1
    age_at_work(marker(run), 2 * HOUR_S)
    assert at_work(table.opened.store, table.opened.clock) == ()
    Path(table.uri, run.file_name(0, "x", "zstd")).write_bytes(b"12345")
    assert len(at_work(table.opened.store, table.opened.clock)) == 1


def test_orphans_say_whose_files_they_are(table: Table) -> None:
    run = begin(table, OLD, OTHER)
    path = Path(table.uri, run.file_name(0, "x", "zstd"))
    path.write_bytes(b"12345")
    (kept,) = table.orphans()
    assert "optimize on host-a, process 4711" in kept["reason"]
    for one in (path, marker(run)):
        age_at_work(one, 48 * HOUR_S)
    (dead,) = table.orphans(delete=True)
    assert "optimize on host-a, process 4711" in dead["reason"]
    assert dead["deleted"]
    assert runs_in(table.uri) == ()
