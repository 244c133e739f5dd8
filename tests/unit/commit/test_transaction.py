import json
from dataclasses import replace
from itertools import count

import pytest
from msgspec import structs

from liquidlog.commit.conflicts import (
    ConcurrentDeleteRead,
    DomainMetadataChanged,
    MetadataChanged,
    ProtocolChanged,
    ReadSet,
)
from liquidlog.commit.transaction import Clock, Proposal, land, land_first, rehearse
from liquidlog.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    Conflict,
    Outdated,
    StorageError,
    UnsupportedFeatureError,
)
from liquidlog.log.loader import load_snapshot
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    Change,
    CommitInfo,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    encode_actions,
)
from liquidlog.spec.paths import commit_name
from liquidlog.version import ENGINE_INFO
from support.memory_store import MemoryStore

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


class CountedDerivations:
    """The proposal, and how many attempts it took: each derives the change anew."""

    attempts = 0

    def proposal(self) -> Proposal:
        return replace(proposal(), derive=self._derive)

    def _derive(self, snapshot: Snapshot) -> Change:
        self.attempts += 1
        return rewrite_of_a(snapshot)


def live(store: MemoryStore) -> list[str]:
    return list(load_snapshot(store).files["path"].to_pylist())


def test_a_commit_lands_on_the_next_version_with_a_commit_info_first() -> None:
    store = new_store()
    counted = CountedDerivations()
    assert land(store, counted.proposal(), clock()).version == 2
    assert counted.attempts == 1
    assert live(store) == ["b", "c"]
    first = json.loads(store.log[commit_name(2)].splitlines()[0])["commitInfo"]
    assert first["txnId"] == "id-0"
    assert first["readVersion"] == 1
    assert first["engineInfo"] == ENGINE_INFO
    assert "inCommitTimestamp" not in first


@pytest.mark.parametrize(
    ("winner", "expected"),
    [
        ((remove("a"),), ConcurrentDeleteRead(2, ("a",))),
        ((METADATA,), MetadataChanged(2)),
        ((PROTOCOL,), ProtocolChanged(2)),
        (
            (DomainMetadata(domain="d", configuration="", removed=False),),
            DomainMetadataChanged(2, "d"),
        ),
    ],
)
def test_a_winner_that_changes_what_was_read_is_a_conflict(
    winner: tuple[AnyAction, ...], expected: Conflict
) -> None:
    store = new_store()
    store.before_put = lambda s: put(s, 2, *winner)
    with pytest.raises(CommitConflictError) as conflict:
        land(store, proposal(), clock())
    assert conflict.value.conflicts == (expected,)
    assert conflict.value.read_version == 1
    assert commit_name(3) not in store.log


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


def test_a_table_with_an_unknown_writer_feature_is_refused_before_the_put() -> None:
    store = new_store()
    features = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("new", "x"))
    put(store, 0, features, METADATA)
    with pytest.raises(UnsupportedFeatureError) as refusal:
        land(store, proposal(), clock())
    assert refusal.value.features == ("new", "x")
    assert commit_name(2) not in store.log


def test_problems_of_the_newest_snapshot_stop_the_commit() -> None:
    store = new_store()
    stale = Proposal(
        read_set=ReadSet(version=1), derive=rewrite_of_a, problems=lambda _: ("schema changed",)
    )
    with pytest.raises(CommitConflictError) as conflict:
        land(store, stale, clock())
    assert conflict.value.conflicts == (Outdated("schema changed"),)


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


def test_an_in_commit_timestamp_is_after_the_last_commits() -> None:
    for last_ms, expected in ((10, 1_000), (1_000, 1_001), (5_000, 5_001)):
        store = timed_store(last_ms)
        land(store, proposal(), clock())
        assert in_commit_timestamp(store, 2) == expected
    store = timed_store(10)
    store.before_put = lambda s: put(s, 2, CommitInfo(in_commit_timestamp=9_000), add("x"))
    assert land(store, proposal(), clock()).version == 3
    assert in_commit_timestamp(store, 3) == 9_001


def test_a_new_table_starts_with_an_in_commit_timestamp_where_it_has_them() -> None:
    store = MemoryStore()
    change = Change(operation="CREATE TABLE", parameters={}, actions=(TIMED, TIMED_METADATA))
    assert land_first(store, change, clock())
    assert in_commit_timestamp(store, 0) == 1_000
