from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.errors import CorruptLogError, TableNotFoundError, UsageError
from liquidlog.log import history
from liquidlog.log.history import SecondOpinion
from liquidlog.operations.optimize import require_rewritable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import LOG_DIR, LogFileKind, commit_name, parse_log_file
from liquidlog.storage.files import LocalTableStore, what_is_there
from liquidlog.table import Table
from support.arrow_executor import execute
from support.logs import added, commit_actions

CHECKPOINT = "00000000000000000012.checkpoint"


def test_log_file_names() -> None:
    kinds = {
        "00000000000000000012.json": LogFileKind.COMMIT,
        f"{CHECKPOINT}.parquet": LogFileKind.CLASSIC_CHECKPOINT,
        f"{CHECKPOINT}.0000000001.0000000002.parquet": LogFileKind.MULTIPART_CHECKPOINT,
        f"{CHECKPOINT}.2b50c93e-7959-463a-a99b-b886d8a9b496.json": LogFileKind.V2_CHECKPOINT,
    }
    for name, kind in kinds.items():
        parsed = parse_log_file(name, 1, 2)
        assert parsed is not None
        assert (parsed.kind, parsed.version) == (kind, 12)
    for name in ("12.json", "000000000000000000012.json", "00000000000000000012.json.tmp"):
        assert parse_log_file(name, 1, 2) is None


def test_a_file_that_goes_away_while_it_is_listed_does_not_hide_the_log(tmp_path: Path) -> None:
    store = LocalTableStore(tmp_path)
    store.put_log_if_absent(commit_name(0), b"x")
    (tmp_path / "_delta_log" / ".00000000000000000001.json.gone.tmp").symlink_to("nowhere")
    listed = store.list_log()
    assert listed is not None
    assert [file.name for file in listed] == [commit_name(0)]


# The whole version is compared once; after that, delta-rs replays what came since.


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
    require = history.require_agreement

    def counted(snapshot: Snapshot, *arguments: Any) -> None:
        seen.append(snapshot.version)
        require(snapshot, *arguments)

    monkeypatch.setattr(history, "require_agreement", counted)
    return seen


def add(path: str, **more: Any) -> dict[str, Any]:
    return added(path, 1, stats=STATS, **more)


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **more}}


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
    commit_actions(table, add("x.parquet"))
    commit_actions(table, remove("x.parquet"))


CERTAIN: dict[str, Callable[[Table], object]] = {
    "one for another": lambda t: commit_actions(t, add("new-1.parquet"), remove(first_path(t))),
    "in a directory": lambda t: commit_actions(t, add("sub/new-1.parquet")),
    "added again": lambda t: commit_actions(t, add(first_path(t), tags={"x": "y"})),
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
        commit_actions(table)


DOUBTFUL: dict[str, Callable[[Table], object]] = {
    "encoded": lambda t: commit_actions(t, add("with%20space.parquet")),
    "dotted": lambda t: commit_actions(t, add("./dotted.parquet")),
    "never there": lambda t: commit_actions(t, remove("never-there.parquet")),
    "checkpoint": lambda t: t.checkpoint(),
    "metadata": lambda t: t.set_properties({"delta.appendOnly": "false"}),
    "many commits": write_many,
}


@pytest.mark.parametrize("change", DOUBTFUL.values(), ids=DOUBTFUL.keys())
def test_what_is_doubtful_is_compared_whole(
    table: Table, whole: list[int], change: Callable[[Table], object]
) -> None:
    opinion = opinion_of(table)
    commit_actions(table, add("plain.parquet"))
    change(table)
    opinion.require(table.snapshot())
    assert whole == [3, table.snapshot().version]


def test_a_path_of_several_spellings_is_always_compared_whole(
    table: Table, whole: list[int]
) -> None:
    commit_actions(table, add("with%20space.parquet"))
    opinion = opinion_of(table)
    commit_actions(table, add("plain.parquet"))
    opinion.require(table.snapshot())
    assert whole == [4, 5]


def test_another_log_is_compared_whole(table: Table, whole: list[int]) -> None:
    opinion = opinion_of(table)
    last = Path(table.uri, LOG_DIR, commit_name(3))
    last.write_text(last.read_text().replace(first_path(table), "other.parquet") + "\n")
    commit_actions(table, add("new.parquet"))
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
        commit_actions(table, add("new-1.parquet"), add("new-2.parquet"))
        wrong = without(table, lost)
        with pytest.raises(CorruptLogError):
            opinion.require(wrong)


def test_a_file_that_our_replay_kept_is_found(table: Table) -> None:
    opinion = opinion_of(table)
    before = table.snapshot()
    commit_actions(table, remove(first_path(table)))
    after = table.snapshot()
    with pytest.raises(CorruptLogError):
        opinion.require(replace(after, files=before.files))


def test_a_difference_is_found_again_after_it_was_refused(table: Table) -> None:
    opinion = opinion_of(table)
    commit_actions(table, add("new.parquet"))
    wrong = without(table, "new.parquet")
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            opinion.require(wrong)


def test_what_delta_rs_sees_after_the_commits_decides(
    table: Table, monkeypatch: pytest.MonkeyPatch, whole: list[int]
) -> None:
    opinion = opinion_of(table)
    commit_actions(table, add("new.parquet"))
    monkeypatch.setattr(history, "_replayed_by_delta_rs", lambda *_: pa.array(["other"]))
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
    place = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1}
    vector = {**place, "sizeInBytes": 40, "cardinality": 1}
    commit_actions(table, remove(path), add(path, deletionVector=vector))
    opinion.require(table.snapshot())
    commit_actions(table, remove(path, deletionVector=vector))
    opinion.require(table.snapshot())
    assert table.snapshot().files.num_rows == 0
    assert whole == [1]


# What is found where a table was expected.


@pytest.fixture
def home(tmp_path: Path) -> Path:
    rows = pa.table({"x": [1]})
    Table.create(tmp_path / "orders", schema=rows.schema)
    (tmp_path / "lake" / "day=1").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    pq.write_table(rows, tmp_path / "lake" / "day=1" / "part.parquet")
    for place in ("plain", "ice/data", "hudi/day=1"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, tmp_path / place / "part.parquet")
    (tmp_path / "ice" / "metadata").mkdir()
    (tmp_path / "ice" / "metadata" / "00000-c0ffee.metadata.json").write_text("{}")
    (tmp_path / "hudi" / ".hoodie").mkdir()
    pq.write_table(rows, tmp_path / "rows.parquet")
    (tmp_path / "notes").write_text("buy milk", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rows.parquet", "it is a Parquet file"),
        ("lake", "values like day=1 are not in the files; convert it"),
        ("plain", "it is a folder of Parquet files without a _delta_log; make a table"),
        ("ice", "it is an Iceberg table; only Delta tables"),
        ("ice/data/part.parquet", "ice, an Iceberg table"),
        ("hudi/day=1", "hudi, a Hudi table"),
        ("notes", "it is a file, and a table is a directory"),
        ("order", "did you mean"),
        ("orders/_delta_log/00000000000000000000.json", "it is a part of the table"),
        ("prod.sales.orders", "name of a table in a catalog"),
        ("no/such/place", "there is no directory"),
        ("empty", "it has no _delta_log directory"),
    ],
)
def test_it_is_said_what_is_there(name: str, said: str, home: Path) -> None:
    assert said in what_is_there(str(home / name))
    with pytest.raises(TableNotFoundError) as caught:
        Table.open(home / name)
    assert caught.value.uri == str(home / name)


def test_other_storages_are_not_looked_at() -> None:
    assert what_is_there("s3://bucket/prod.sales.orders") == "it has no _delta_log directory"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("dbfs:/mnt/orders", "/dbfs/mnt/orders"),
        ("s3:/lake/orders", "write s3://lake/orders"),
        ("what:/lake", "write ./what:/lake"),
        ("delta.`/lake/orders`", "give /lake/orders alone"),
        ("s4://lake/orders", "there is no storage s4://"),
    ],
)
def test_an_address_of_another_kind_is_refused_with_the_right_one(address: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Table.open(address)
    assert said in caught.value.message
