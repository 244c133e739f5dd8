"""Checkpoints on request and by themselves; what they keep, and what stops them."""

import json
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from liquidlog.commit import Clock, Proposal, ReadSet, land, land_first, rehearse
from liquidlog.errors import (
    CheckpointMismatchError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptLogError,
    StorageError,
    UnsupportedFeatureError,
)
from liquidlog.log import history
from liquidlog.log.checkpoints import CheckpointState
from liquidlog.log.history import state_differences, statistics_differences, tombstone_differences
from liquidlog.log.loader import load_snapshot
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    Change,
    CommitInfo,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    commit_name,
    encode_actions,
)
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import call
from support.logs import change_actions
from support.memory_store import MemoryStore


def rows(first: int, count: int = 10) -> pa.Table:
    return pa.table({"a": list(range(first, first + count)), "b": ["x"] * count})


def new_table(path: Path, **properties: str) -> Table:
    settings = {key.replace("__", "."): value for key, value in properties.items()}
    return Table.create(
        str(path / "t"), schema=rows(0).schema, cluster_by=["a"], properties=settings
    )


def log_of(table: Table) -> Path:
    return Path(table.uri) / "_delta_log"


def with_property(table: Table, key: str, value: str) -> None:
    """Let the first commit have a property that `create` would refuse."""

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"][key] = value

    change_actions(table, 0, change)


def checkpoints(table: Table) -> list[int]:
    return sorted(int(file.name[:20]) for file in log_of(table).glob("*.checkpoint.parquet"))


def hint(table: Table) -> int:
    return int(json.loads((log_of(table) / "_last_checkpoint").read_text())["version"])


def removes(table: Table, version: int) -> set[str]:
    found = pq.read_table(log_of(table) / f"{version:020d}.checkpoint.parquet")["remove"]
    return {row["path"] for row in found.combine_chunks().drop_null().to_pylist()}


@pytest.mark.parametrize(("interval", "made"), [("3", [3]), ("nonsense", []), ("0", [])])
def test_the_interval_is_the_tables(tmp_path: Path, interval: str, made: list[int]) -> None:
    table = new_table(tmp_path)
    with_property(table, "delta.checkpointInterval", interval)
    for number in range(4):
        table.append(rows(number))
    assert checkpoints(table) == made


def test_tombstones_survive_from_checkpoint_to_checkpoint(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    plan = table.plan(full=True)
    table.commit(plan, execute(plan))
    first = table.checkpoint().version
    table.append(rows(20))
    for file in log_of(table).glob("*.json"):
        if int(file.name[:20]) < first:
            file.unlink()
    again = Table.open(table.uri).checkpoint().version
    assert removes(table, again) == removes(table, first) != set()


def test_a_missing_tombstone_and_a_revived_file_are_seen(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    files = table.snapshot().files
    live = frozenset({(files["path"][0].as_py(), None)})
    gone = frozenset({("gone", None)})
    assert tombstone_differences(gone, gone, files) == []
    assert tombstone_differences(gone, frozenset(), files) == ["1 of 1 tombstones are missing"]
    assert tombstone_differences(frozenset(), live, files) == ["1 live files are tombstones"]


def test_statistics_are_compared_as_values_and_none_may_go() -> None:
    def differences(before: str | None, after: str | None, *, as_text: bool = True) -> list[str]:
        columns = (pa.chunked_array([[text]], pa.large_string()) for text in (before, after))
        return statistics_differences(*columns, as_text=as_text)

    named = ["the statistics of some live file"]
    assert differences('{"a":1,"b":2}', '{"b":2,"a":1}') == []
    assert differences(None, None) == differences(None, '{"a":1}') == []
    assert differences('{"a":1}', '{"a":2}') == named
    assert differences('{"a":1', '{"a":1') == []
    assert differences('{"a":1', '{"a":2') == named
    assert differences('{"a":1}', None) == named
    assert differences('{"a":1}', None, as_text=False) == []


def test_whatever_is_other_in_a_checkpoint_is_named(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    table.append(rows(9))
    snapshot = table.snapshot()
    assert state_differences(snapshot, snapshot, snapshot.files) == []
    metadata = structs.replace(snapshot.metadata, configuration={"a": "b"})
    protocol = structs.replace(snapshot.protocol, writer_features=())
    poorer = CheckpointState(protocol=protocol, metadata=metadata, transactions={"x": None})  # type: ignore[dict-item]
    assert state_differences(snapshot, poorer, snapshot.files.slice(1)) == [
        "the protocol",
        "the metadata",
        "the domains",
        "the transaction identifiers",
        "1 live files instead of 2",
    ]
    for name in ("path", "size", "num_records", "clustering_provider", "tags_json"):
        column = snapshot.files[name]
        other = pa.array(["{}" if name == "size" else '{"k":"v"}'] * 2)
        if name in {"size", "num_records"}:
            other = pa.array([1, None])
        files = snapshot.files.set_column(
            snapshot.files.schema.get_field_index(name), name, other.cast(column.type)
        )
        assert state_differences(snapshot, snapshot, files) == [f"the {name} of some live file"]


def test_what_loses_something_is_kept_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    log = log_of(table)
    before = {file.name: file.read_bytes() for file in log.iterdir()}
    real = history._write

    def without_domains(directory: Path, version: int) -> None:
        real(directory, version)
        file = directory / "_delta_log" / f"{version:020d}.checkpoint.parquet"
        pq.write_table(pq.read_table(file).drop_columns(["domainMetadata"]), file)

    monkeypatch.setattr(history, "_write", without_domains)
    with pytest.raises(CheckpointMismatchError) as refusal:
        table.checkpoint()
    assert refusal.value.problems == ("the domains",)
    assert {file.name: file.read_bytes() for file in log.iterdir()} == before


def test_a_warning_is_one_line_of_talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path, delta__checkpointInterval="1")
    source = tmp_path / "source.parquet"
    pq.write_table(rows(0), source)

    def broken(directory: Path, version: int) -> None:
        raise KeyError(f"{directory}{version}")

    monkeypatch.setattr(history, "_write", broken)
    status, document, err = call("append", table.uri, str(source))
    assert (status, document["version"]) == (0, 1)
    assert err.startswith("warning: version 1 was committed without its checkpoint")


def test_protected_versions_get_none(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with_property(table, "delta.requireCheckpointProtectionBeforeVersion", "5")
    log = log_of(table) / f"{0:020d}.json"
    named = log.read_text().replace('"clustering", ', '"clustering", "checkpointProtection", ')
    log.write_text(named)
    for number in range(4):
        table.append(rows(number))
    with pytest.raises(UnsupportedFeatureError) as refusal:
        table.checkpoint()
    assert refusal.value.features == ("checkpointProtection of versions before 5",)
    table.append(rows(4))
    assert table.checkpoint().created


def test_a_broken_checkpoint_in_the_way_is_an_error_and_no_hint_names_it(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(rows(0))
    broken = log_of(table) / f"{1:020d}.checkpoint.parquet"
    broken.write_bytes(b"PAR1 but not for long")
    with pytest.raises(CorruptLogError) as found:
        Table.open(table.uri).checkpoint()
    assert found.value.path.endswith(broken.name)
    assert not (log_of(table) / "_last_checkpoint").exists()
    broken.unlink()
    assert Table.open(table.uri).checkpoint().created


def test_a_hint_that_is_ahead_stays_one_that_lies_does_not(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(12):
        table.append(rows(number))
    assert hint(table) == 10
    history.write_checkpoint(table.opened.store, 7, now_ms=time.time_ns() // 1_000_000)
    assert (checkpoints(table), hint(table)) == ([7, 10], 10)
    (log_of(table) / "_last_checkpoint").write_text('{"version":99,"size":1}')
    table.checkpoint()
    assert hint(table) == 12


# Commits that race, or whose answer is lost.


SCHEMA = '{"type":"struct","fields":[]}'
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(
    id="t", format=Format(), schema_string=SCHEMA, partition_columns=(), configuration={}
)


def add(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)


def remove(path: str) -> RemoveFile:
    return RemoveFile(path=path, data_change=False)


def clock() -> Clock:
    numbers = count()
    return Clock(now_ms=lambda: 1_000, new_id=lambda: f"id-{next(numbers)}")


def new_store() -> MemoryStore:
    store = MemoryStore()
    put(store, 0, PROTOCOL, METADATA)
    put(store, 1, add("a"), add("b"))
    return store


def put(store: MemoryStore, version: int, *actions: AnyAction) -> None:
    store.log[commit_name(version)] = encode_actions(actions)


def rewrite_of_a(_: Snapshot) -> Change:
    return Change(operation="OPTIMIZE", parameters={}, actions=(add("c"), remove("a")))


def proposal() -> Proposal:
    read_set = ReadSet(version=1, files=frozenset({("a", None)}), domains=frozenset({"d"}))
    return Proposal(read_set=read_set, derive=rewrite_of_a)


def live(store: MemoryStore) -> list[str]:
    return list(load_snapshot(store).files["path"].to_pylist())


def test_a_rehearsal_sees_what_landed_after_the_version_that_is_loaded() -> None:
    store = new_store()
    loaded = replace(proposal(), base=load_snapshot(store))
    assert rehearse(store, loaded).version == 2
    put(store, 2, remove("a"))
    with pytest.raises(CommitConflictError):
        rehearse(store, loaded)


def test_a_refusal_after_a_lost_request_leaves_the_state_unknown() -> None:
    store = new_store()

    def lose(s: MemoryStore) -> None:
        s.lost_requests = 1
        s.before_put = refuse

    def refuse(_: MemoryStore) -> None:
        raise StorageError("memory", "is refused")

    store.before_put = lose
    with pytest.raises(CommitStateUnknownError):
        land(store, proposal(), clock())
    store.before_put = refuse
    with pytest.raises(StorageError):
        land(store, proposal(), clock())


def test_a_put_that_arrives_late_is_the_same_commit() -> None:
    store = new_store()

    def delay(s: MemoryStore) -> None:
        s.lost_requests = 1
        s.before_put = arrive

    def arrive(s: MemoryStore) -> None:
        s.log[commit_name(2)] = encode_actions((CommitInfo(txn_id="id-0"), add("late")))

    store.before_put = delay
    assert land(store, proposal(), clock()).version == 2
    assert live(store) == ["a", "b", "late"]
    assert commit_name(3) not in store.log


TIMED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",))
TIMED_METADATA = structs.replace(METADATA, configuration={"delta.enableInCommitTimestamps": "true"})


def timed_store(last_ms: int) -> MemoryStore:
    store = MemoryStore()
    put(store, 0, TIMED, TIMED_METADATA)
    put(store, 1, CommitInfo(in_commit_timestamp=last_ms), add("a"))
    return store


def in_commit_timestamp(store: MemoryStore, version: int) -> int:
    first = json.loads(store.log[commit_name(version)].splitlines()[0])
    return int(first["commitInfo"]["inCommitTimestamp"])


def test_an_in_commit_timestamp_is_after_the_last_commits_and_from_the_first_on() -> None:
    for last_ms, expected in ((10, 1_000), (1_000, 1_001), (5_000, 5_001)):
        store = timed_store(last_ms)
        land(store, proposal(), clock())
        assert in_commit_timestamp(store, 2) == expected
    store = timed_store(10)
    store.before_put = lambda s: put(s, 2, CommitInfo(in_commit_timestamp=9_000), add("x"))
    assert land(store, proposal(), clock()).version == 3
    assert in_commit_timestamp(store, 3) == 9_001
    store = MemoryStore()
    change = Change(operation="CREATE TABLE", parameters={}, actions=(TIMED, TIMED_METADATA))
    assert land_first(store, change, clock())
    assert in_commit_timestamp(store, 0) == 1_000
