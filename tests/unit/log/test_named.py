"""What the log names: all that is retained is read, and what a listing leaves out is noticed."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.data.reader import write_vector
from liquidlog.data.runs import Run
from liquidlog.errors import CorruptLogError, LogError, TimestampNotFoundError, UsageError
from liquidlog.log import history
from liquidlog.log.history import Removed, named_files, needed_files, read_history, tombstones
from liquidlog.log.loader import load_segment
from liquidlog.spec.actions import LogFile, commit_name, vector_path
from liquidlog.spec.text import parse_time
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import Table
from support.arrow_executor import execute
from support.copies import copy_table
from support.deleted import commit_vectors, positions
from support.logs import actions_of
from support.memory_store import MemoryStore

VERSIONS = 4


class StaleStore(LocalTableStore):
    """A store whose listing of the log leaves some files out, as one from a cache does."""

    def __init__(self, root: Path, left_out: Callable[[LogFile], bool]) -> None:
        super().__init__(root)
        self._left_out = left_out

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...]:
        found = super().list_log(first_version) or ()
        return tuple(file for file in found if not self._left_out(file))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path), schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for value in range(2):
        made.append(pa.table({"x": [value]}))
    plan = made.plan()
    made.commit(plan, execute(plan))
    made.append(pa.table({"x": [2]}))
    return made


def files_of(table: Table) -> set[str]:
    return {path.name for path in Path(table.uri).glob("*.parquet")}


def test_live_and_removed_files_of_every_version_are_named(table: Table) -> None:
    store = LocalTableStore(Path(table.uri))
    assert len(files_of(table)) == 4
    assert named_files(store, {*files_of(table), "other"}) == files_of(table)
    table.checkpoint()
    assert named_files(store, {*files_of(table), "other"}) == files_of(table)


@pytest.mark.parametrize("count", [1, 2])
def test_the_newest_versions_are_asked_for_by_name(table: Table, count: int) -> None:
    store = StaleStore(Path(table.uri), lambda file: file.version > VERSIONS - count)
    assert named_files(store, files_of(table)) == files_of(table)


def test_so_are_the_oldest_where_a_checkpoint_makes_them_needless(table: Table) -> None:
    table.checkpoint()
    hidden = StaleStore(Path(table.uri), lambda file: "json" in file.name and file.version < 3)
    assert named_files(hidden, files_of(table)) == files_of(table)


@pytest.mark.parametrize("version", range(VERSIONS))
def test_a_version_that_is_not_listed_is_an_error(table: Table, version: int) -> None:
    hidden = StaleStore(Path(table.uri), lambda file: file.version == version)
    with pytest.raises(LogError):
        named_files(hidden, files_of(table))
    table.checkpoint()
    hidden = StaleStore(
        Path(table.uri), lambda file: "json" in file.name and file.version == version
    )
    if version:
        with pytest.raises(CorruptLogError) as caught:
            named_files(hidden, files_of(table))
        assert caught.value.path == f"_delta_log/{version:020d}.json"
    else:
        assert named_files(hidden, files_of(table)) == files_of(table)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_vectors_are_named_live_and_removed_in_all_the_log(tmp_path: Path, policy: str) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": policy}
    schema = pa.schema([("x", pa.int64())])
    table = Table.create(str(tmp_path), schema=schema, properties=properties)
    table.append(pa.table({"x": [0, 1, 2]}))
    path = table.snapshot().files["path"][0].as_py()
    run = Run(str(tmp_path), "0123456789ab")
    run.begin()
    one, other, unnamed = (
        write_vector(run, positions(rows), unique_id=str(rows)) for rows in ([0], [0, 1], [2])
    )
    absolute = f"file://{tmp_path}/{vector_path(other)}"
    moved = structs.replace(other, storage_type="p", path_or_inline_dv=absolute)
    for vector in (one, moved):
        commit_vectors(tmp_path, {path: vector})
    store, names = LocalTableStore(tmp_path), {str(vector_path(one)), str(vector_path(other))}
    assert set(run.files()) == {*names, str(vector_path(unnamed))}
    assert named_files(store, {*run.files(), "other"}) == names
    assert named_files(store, {str(vector_path(unnamed))}) == frozenset()
    Table.open(str(tmp_path)).checkpoint()
    for file in (tmp_path / "_delta_log").iterdir():
        if file.suffix == ".crc" or (file.suffix == ".json" and file.stem.isdigit()):
            file.unlink()
    assert named_files(store, {*run.files(), path}) == {*names, path}


def only_checkpoint(table: Table) -> tuple[LocalTableStore, set[str]]:
    """Leave only a checkpoint in the log; return the store, and the files that are removed."""
    removed = {one["remove"]["path"] for one in actions_of(table) if "remove" in one}
    table.checkpoint()
    for file in Path(table.uri, "_delta_log").glob("*.json"):
        file.unlink()
    return LocalTableStore(Path(table.uri)), removed


def test_a_checkpoint_alone_says_when_files_were_removed(table: Table) -> None:
    began_ms = table.snapshot().timestamp_ms - 60_000
    store, removed = only_checkpoint(table)
    assert len(removed) == 2
    assert needed_files(store, removed, since_ms=began_ms).needed == removed
    late = needed_files(store, removed, since_ms=began_ms + 3_600_000)
    assert not late.needed
    assert late.expired == removed
    _, segment = load_segment(store)
    gone = {(path, None) for path in removed}
    assert tombstones(store, segment, (), since_ms=began_ms) == gone
    assert tombstones(store, segment, (), since_ms=began_ms + 3_600_000) == frozenset()


@pytest.mark.parametrize("is_recent", [True, False])
def test_a_file_removed_at_an_unknown_time_is_needed_as_long_as_the_checkpoint_is_young(
    table: Table, monkeypatch: pytest.MonkeyPatch, *, is_recent: bool
) -> None:
    since_ms = table.snapshot().timestamp_ms - 60_000
    store, _ = only_checkpoint(table)
    if not is_recent:
        for file in Path(table.uri, "_delta_log").glob("*.checkpoint.parquet"):
            os.utime(file, (1, 1))
    monkeypatch.setattr(history, "removed_names", lambda *_: [Removed("x.parquet", None, None)])
    said = needed_files(store, {"x.parquet"}, since_ms=since_ms)
    assert ("x.parquet" in said.needed, "x.parquet" in said.expired) == (is_recent, not is_recent)


# Commits of other writers as DESCRIBE HISTORY shows them.


def history_of(*lines: str) -> dict[str, object]:
    store = MemoryStore(log={commit_name(0): "\n".join(lines).encode()})
    (row,) = read_history(store)
    return dict(row)


def test_a_null_commit_info_is_none() -> None:
    assert "operation" not in history_of('{"commitInfo":null,"add":{"path":"x"}}')


# Versions by time: recorded in-commit timestamps, and file times in every order.


HOUR_S = 3600


def with_file_times(tmp_path: Path, hours: list[int], case: str = "02_appends") -> Table:
    """A copy of a recorded log whose commits have these file times."""
    path = copy_table("logs", case, tmp_path)
    for version, hour in enumerate(hours):
        os.utime(path / "_delta_log" / commit_name(version), (hour * HOUR_S, hour * HOUR_S))
    return Table.open(str(path))


def test_the_last_commit_at_or_before_a_time_within_the_log_counts(tmp_path: Path) -> None:
    table = with_file_times(tmp_path, [1, 2, 3, 4, 5])
    times = ("01:00:00Z", "01:59:59.999Z", "02:00:00Z", "05:30:00+02:00", "05:00:00")
    assert [table.at(f"1970-01-01T{time}").version for time in times] == [0, 0, 1, 2, 4]
    for time in ("1970-01-01T00:59:59.999Z", "1970-01-01T05:00:00.001Z"):
        with pytest.raises(TimestampNotFoundError) as error:
            table.at(time)
        assert error.value.fields["oldest"] == "1970-01-01T01:00:00.000Z"
        assert error.value.fields["newest"] == "1970-01-01T05:00:00.000Z"


def test_a_clock_that_ran_backwards_does_not_hide_a_commit(tmp_path: Path) -> None:
    table = with_file_times(tmp_path, [1, 4, 2, 3, 5])
    assert table.at("1970-01-01T03:59:59.999Z").version == 0
    assert table.at("1970-01-01T04:00:00.000Z").version == 1
    assert table.at("1970-01-01T04:00:00.001Z").version == 2
    assert table.at("1970-01-01T04:59:00Z").version == 3


ENABLED_LATER = {
    "2026-11-21T02:40:26.886Z": 2,
    "2026-11-21T02:40:27.330Z": 2,
    "2026-11-21T02:40:27.331Z": 3,
    "2046-11-16T02:40:29.021Z": 4,
    "2046-11-16T02:40:29.022Z": 5,
}


def test_commits_own_times_count_from_where_they_were_enabled(tmp_path: Path) -> None:
    # As the engine's DESCRIBE HISTORY showed them; the file times contradict them.
    table = with_file_times(tmp_path, [1, 2, 9, 8, 7, 6], "16_in_commit_timestamps_enabled_later")
    assert {time: table.at(time).version for time in ENABLED_LATER} == ENABLED_LATER
    assert table.at("1970-01-01T01:30:00Z").version == 0
    assert table.at("2026-11-21T02:40:26.885Z").version == 1
    with pytest.raises(TimestampNotFoundError):
        table.at("2046-11-16T02:40:29.023Z")


def test_what_is_no_time_is_a_usage_error() -> None:
    for text in ("", "yesterday", "2026-13-01", "12:00"):
        with pytest.raises(UsageError):
            parse_time(text)
