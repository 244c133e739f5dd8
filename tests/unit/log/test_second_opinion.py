"""The whole version is compared once; after that, delta-rs replays what came since."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.errors import CorruptLogError
from liquidlog.log import second_opinion
from liquidlog.log.second_opinion import SecondOpinion
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.paths import LOG_DIR, commit_name
from liquidlog.table import Table
from support.arrow_executor import execute

SCHEMA = pa.schema([("a", pa.int64())])
STATS = '{"numRecords":1}'


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["a"])
    for first in range(3):
        made.append(pa.table({"a": [first]}))
    return made


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fixture: the versions that were compared whole."""
    seen: list[int] = []
    require = second_opinion.require_agreement

    def counted(snapshot: Snapshot, *arguments: Any) -> None:
        seen.append(snapshot.version)
        require(snapshot, *arguments)

    monkeypatch.setattr(second_opinion, "require_agreement", counted)
    return seen


def add(path: str, **more: Any) -> dict[str, Any]:
    file = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "stats": STATS}
    return {"add": {**file, "dataChange": True, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **more}}


def write(table: Table, *actions: dict[str, Any]) -> None:
    version = table.snapshot().version + 1
    lines = "".join(json.dumps(action) + "\n" for action in ({"commitInfo": {}}, *actions))
    Path(table.uri, LOG_DIR, commit_name(version)).write_text(lines)


def first_path(table: Table) -> str:
    return str(table.snapshot().files["path"][0].as_py())


def opinion_of(table: Table) -> SecondOpinion:
    opinion = SecondOpinion(table.opened.store)
    opinion.require(table.snapshot())
    return opinion


def test_groups_of_a_run_share_one_whole_comparison(table: Table, whole: list[int]) -> None:
    plan = table.plan()
    require_rewritable(table.opened, plan)
    table.append(pa.table({"a": [7]}))
    assert table.commit(plan, execute(plan)).versions == (5,)
    second = table.plan(full=True)
    require_rewritable(table.opened, second)
    table.commit(second, execute(second))
    assert whole == [3]


def add_and_remove_later(table: Table) -> None:
    write(table, add("x.parquet"))
    write(table, remove("x.parquet"))


CERTAIN: dict[str, Callable[[Table], object]] = {
    "one for another": lambda t: write(t, add("new-1.parquet"), remove(first_path(t))),
    "in a directory": lambda t: write(t, add("sub/new-1.parquet")),
    "added again": lambda t: write(t, add(first_path(t), tags={"x": "y"})),
    "added and removed": add_and_remove_later,
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("change", CERTAIN.values(), ids=CERTAIN.keys())
def test_changes_that_are_certain_are_replayed_only(
    table: Table, whole: list[int], change: Callable[[Table], object]
) -> None:
    opinion = opinion_of(table)
    change(table)
    opinion.require(table.snapshot())
    assert whole == [3]


def write_many(table: Table) -> None:
    for _ in range(101):
        write(table)


DOUBTFUL: dict[str, Callable[[Table], object]] = {
    "encoded": lambda t: write(t, add("with%20space.parquet")),
    "dotted": lambda t: write(t, add("./dotted.parquet")),
    "never there": lambda t: write(t, remove("never-there.parquet")),
    "checkpoint": lambda t: t.checkpoint(),
    "metadata": lambda t: t.set_properties({"delta.appendOnly": "false"}),
    "many commits": write_many,
}


@pytest.mark.parametrize("change", DOUBTFUL.values(), ids=DOUBTFUL.keys())
def test_what_is_doubtful_is_compared_whole(
    table: Table, whole: list[int], change: Callable[[Table], object]
) -> None:
    opinion = opinion_of(table)
    write(table, add("plain.parquet"))
    change(table)
    opinion.require(table.snapshot())
    assert whole == [3, table.snapshot().version]


def test_a_table_with_a_path_of_several_spellings_is_always_compared_whole(
    table: Table, whole: list[int]
) -> None:
    write(table, add("with%20space.parquet"))
    opinion = opinion_of(table)
    write(table, add("plain.parquet"))
    opinion.require(table.snapshot())
    assert whole == [4, 5]


def test_another_log_is_compared_whole(table: Table, whole: list[int]) -> None:
    opinion = opinion_of(table)
    last = Path(table.uri, LOG_DIR, commit_name(3))
    last.write_text(last.read_text().replace(first_path(table), "other.parquet") + "\n")
    write(table, add("new.parquet"))
    opinion.require(table.snapshot())
    assert whole == [3, 4]


def without(table: Table, lost: str) -> Snapshot:
    """Return the newest version without one of its files, as a faulty replay would."""
    snapshot = table.snapshot()
    kept = [path != lost for path in snapshot.files["path"].to_pylist()]
    assert not all(kept)
    return replace(snapshot, files=snapshot.files.filter(pa.array(kept)))


def test_a_file_that_our_replay_lost_is_found(table: Table) -> None:
    for lost in ("new-1.parquet", first_path(table)):
        opinion = opinion_of(table)
        write(table, add("new-1.parquet"), add("new-2.parquet"))
        wrong = without(table, lost)
        with pytest.raises(CorruptLogError):
            opinion.require(wrong)


def test_a_file_that_our_replay_kept_is_found(table: Table) -> None:
    opinion = opinion_of(table)
    before = table.snapshot()
    write(table, remove(first_path(table)))
    after = table.snapshot()
    with pytest.raises(CorruptLogError):
        opinion.require(replace(after, files=before.files))


def test_a_difference_is_found_again_after_it_was_refused(table: Table) -> None:
    opinion = opinion_of(table)
    write(table, add("new.parquet"))
    wrong = without(table, "new.parquet")
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            opinion.require(wrong)


def test_what_delta_rs_sees_after_the_commits_decides(
    table: Table, monkeypatch: pytest.MonkeyPatch, whole: list[int]
) -> None:
    opinion = opinion_of(table)
    write(table, add("new.parquet"))
    monkeypatch.setattr(second_opinion, "_replayed_by_delta_rs", lambda *_: pa.array(["other"]))
    opinion.require(table.snapshot())
    assert whole == [3, 4]


def test_deletion_vectors_are_replayed(tmp_path: Path, whole: list[int]) -> None:
    table = Table.create(
        str(tmp_path / "v"),
        schema=SCHEMA,
        cluster_by=["a"],
        properties={"delta.enableDeletionVectors": "true"},
    )
    table.append(pa.table({"a": [1, 2]}))
    path = first_path(table)
    opinion = opinion_of(table)
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": 1,
    }
    write(table, remove(path), add(path, deletionVector=vector))
    opinion.require(table.snapshot())
    write(table, remove(path, deletionVector=vector))
    opinion.require(table.snapshot())
    assert table.snapshot().files.num_rows == 0
    assert whole == [1]
