"""Tables that a catalog manages: the same tests on an imitation and on a real server."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog import Table
from liquidlog.errors import (
    CorruptLogError,
    LiquidlogError,
    ManagedTableError,
    NotPermittedError,
    StorageError,
    TableNotFoundError,
    TableReplacedError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log import history
from liquidlog.log.loader import open_store
from liquidlog.report.page import page
from liquidlog.spec.features import without_catalog
from liquidlog.storage import objects as clients
from liquidlog.storage.files import LocalTableStore
from liquidlog.storage.objects import AmbiguousPutError
from liquidlog.storage.unity import ADDRESSES, TOKEN_FILE, TOKENS
from support.arrow_executor import execute
from support.unity import SCHEMA_PATH, SERVER, Catalog, Imitation, imitation, real_server

FIELDS = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "k", "type": "integer", "nullable": True, "metadata": {}},
]
ADDRESS = "unity://unity.default.t"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    if not os.environ.get(SERVER):
        pytest.skip(f"{SERVER} does not name a directory with Unity Catalog's server")
    with real_server(tmp_path_factory.mktemp("unity")) as catalog:
        yield catalog


@pytest.fixture(params=["imitation", "real"])
def catalog(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    for name in (*ADDRESSES, *TOKENS, TOKEN_FILE):
        monkeypatch.delenv(name, raising=False)
    quick = clients.BackOff(first_seconds=0.001, unknown_seconds=20, total_seconds=20)
    monkeypatch.setattr(clients, "DEFAULT_BACK_OFF", quick)
    if request.param == "real":
        found = request.getfixturevalue("real")
        found.reset()
        monkeypatch.setenv(ADDRESSES[0], found.url)
        yield found
        found.call("DELETE", f"{SCHEMA_PATH}/tables/t")
        return
    with imitation(tmp_path) as served:
        monkeypatch.setenv(ADDRESSES[0], served.url)
        yield served


@pytest.fixture
def root(catalog: Catalog) -> Path:
    return catalog.create("t", FIELDS, ["k"])


def rows(number: int, count: int = 100) -> pa.Table:
    ids = np.arange(number * count, (number + 1) * count)
    return pa.table({"id": ids, "k": pa.array(ids * 7 % 100, pa.int32())})


def appended(*numbers: int) -> Table:
    table = Table(ADDRESS)
    for number in numbers:
        table.append(rows(number))
    return table


def ids_in(root: Path, table: Table) -> list[int]:
    found = pa.concat_tables(
        pq.read_table(root / path) for path in table.files()["path"].to_pylist()
    )
    return sorted(found["id"].to_pylist())


def staged(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_delta_log" / "_staged_commits").iterdir())


def test_appends_rewrites_and_definitions_are_ratified(catalog: Catalog, root: Path) -> None:
    table = appended(*range(12))  # more than the catalog keeps unpublished
    assert ids_in(root, Table(ADDRESS)) == list(range(1200))
    done = table.optimize(executor="local")
    assert done.versions == (13,)
    assert len(table.files()) == 1
    assert ids_in(root, table) == list(range(1200))
    assert len(Table(ADDRESS, version=5).files()) == 5
    table.cluster_by(["id"])
    table.set_properties({"liquidlog.tolerance": "1.3"})
    known = catalog.load("t")
    assert known["latest-table-version"] == 15
    assert known["metadata"]["properties"]["clusteringColumns"] == '[["id"]]'
    assert known["metadata"]["properties"]["liquidlog.tolerance"] == "1.3"
    table.set_properties({}, unset=["liquidlog.tolerance"])
    assert "liquidlog.tolerance" not in catalog.load("t")["metadata"]["properties"]
    times = [one["timestamp"] for one in table.history()]
    assert times == sorted(times, reverse=True)
    assert len(times) == 17
    commits = {path.name for path in (root / "_delta_log").glob("*0.json")}
    assert len(commits) == 2, "every version is published"
    assert (root / "_delta_log" / f"{10:020d}.checkpoint.parquet").exists()
    protocol = pq.read_table(root / "_delta_log" / f"{10:020d}.checkpoint.parquet")["protocol"]
    (found,) = protocol.drop_null().to_pylist()
    assert "catalogManaged" in found["readerFeatures"]
    if isinstance(catalog, Imitation):
        assert len(catalog.etags) > 15
        assert all(catalog.etags)


def test_a_ratified_commit_is_read_before_it_is_published(root: Path) -> None:
    appended(0, 1)
    log = root / "_delta_log"
    (log / f"{2:020d}.json").unlink()
    assert len(Table(ADDRESS).files()) == 2
    table = appended(2)
    assert sorted(path.name[:20] for path in log.glob("*.json")) == [
        f"{n:020d}" for n in range(4)
    ], "who commits next publishes what was left"
    (log / f"{4:020d}.json").write_bytes((log / f"{1:020d}.json").read_bytes())
    assert table.detail()["version"] == 3, "what the catalog did not ratify is no version"
    assert open_store(ADDRESS).read_log(f"{4:020d}.json") is None


def test_a_version_that_is_nowhere_is_refused(root: Path) -> None:
    appended(0, 1)
    log = root / "_delta_log"
    (log / f"{2:020d}.json").unlink()
    for name in staged(root):
        if name.startswith(f"{2:020d}"):
            (log / "_staged_commits" / name).unlink()
    with pytest.raises(LiquidlogError) as caught:
        Table(ADDRESS).files()
    assert f"{2:020d}" in caught.value.message or "version 2" in caught.value.message


def test_a_gap_is_refused(root: Path) -> None:
    appended(0, 1, 2)
    (root / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(CorruptLogError, match="missing between"):
        Table(ADDRESS).files()


@pytest.mark.parametrize("permitted", [None, ["METADATA_CLEANUP", "data_reorganization"]])
def test_maintenance_needs_the_permission_of_the_catalog(
    catalog: Catalog, root: Path, permitted: list[str] | None
) -> None:
    table = appended(0, 1)
    catalog.permitted = permitted
    before = sorted(root.rglob("*"))
    for act in (
        lambda: table.optimize(executor="local", full=True),
        lambda: table.vacuum(retain="0h", allow_short_retention=True),
        lambda: table.orphans(delete=True),
    ):
        with pytest.raises(NotPermittedError) as caught:
            act()
        assert caught.value.exit_status == 5
        assert "administers the catalog" in caught.value.message
    assert sorted(root.rglob("*")) == before
    plan = table.plan()
    assert any("DATA_REORGANIZATION" in note for note in plan.notes)
    assert any("DATA_REORGANIZATION" in note for note in table.health().notes)
    assert "DATA_REORGANIZATION" in table.judge().sentence
    assert str(root) not in page(table.overview())
    table.append(rows(2))
    table.cluster_by(["id"])
    catalog.permitted = ["DATA_REORGANIZATION"]
    assert table.optimize(executor="local").versions
    assert not table.plan().notes
    catalog.permitted = ["DATA_CLEANUP"]
    assert table.vacuum(retain="0h", allow_short_retention=True).files
    assert ids_in(root, Table(ADDRESS)) == list(range(300))


def test_a_rewrite_is_not_committed_without_permission(catalog: Catalog, root: Path) -> None:
    table = appended(0, 1)
    plan = table.plan()
    assert plan.location == str(root)
    assert plan.table_uri == ADDRESS
    result = execute(plan)
    catalog.permitted = None
    with pytest.raises(NotPermittedError):
        table.commit(plan, result)
    catalog.permitted = ["DATA_REORGANIZATION"]
    assert Table(ADDRESS).commit(plan, result).versions == (3,)


def test_a_part_of_a_checkpoint_without_the_protocol_is_copied_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    kind = pa.struct([("minReaderVersion", pa.int32())])
    pq.write_table(pa.table({"protocol": pa.nulls(2, kind), "txn": ["a", "b"]}), path)
    content = path.read_bytes()
    assert history._with_protocol(path.name, content, without_catalog) == content


@pytest.mark.parametrize("said", [b"\xff", b"[" * 100_000, b"7", b'{"error": "x"}'])
def test_what_is_no_json_is_no_answer(said: bytes, catalog: Catalog, root: Path) -> None:
    table = appended(0)
    catalog.said = [said]
    table.append(rows(1))
    assert ids_in(root, Table(ADDRESS)) == list(range(200))


def test_the_path_of_a_managed_table_is_refused(root: Path) -> None:
    with pytest.raises(ManagedTableError, match=r"unity://catalog\.schema\.table") as caught:
        Table(str(root)).files()
    assert caught.value.exit_status == 5


@pytest.mark.parametrize("lost", ["POST", "POST, GET"])
@pytest.mark.parametrize("dropped", ["", "POST", "POST, GET", "POST, POST"])
def test_a_lost_reply_is_no_second_commit(
    catalog: Catalog, root: Path, lost: str, dropped: str
) -> None:
    table = appended(0)
    catalog.dropped = [*filter(None, dropped.split(", "))]
    catalog.lost_replies = lost.split(", ")
    table.append(rows(1))
    assert not catalog.dropped
    assert not catalog.lost_replies
    assert Table(ADDRESS).detail()["version"] == 2
    assert ids_in(root, Table(ADDRESS)) == list(range(200))


def test_a_commit_that_was_not_staged_is_not_proposed(root: Path) -> None:
    table, put = appended(0), LocalTableStore.put_log_if_absent
    lost = ["the first"]

    def once(store: LocalTableStore, name: str, content: bytes) -> bool:
        if lost and name.startswith("_staged_commits"):
            raise AmbiguousPutError(lost.pop())
        return put(store, name, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTableStore, "put_log_if_absent", once)
        table.append(rows(1))
    assert len(staged(root)) == 2
    assert ids_in(root, Table(ADDRESS)) == list(range(200))


def test_who_lost_while_nobody_answered_hears_of_it(catalog: Catalog, root: Path) -> None:
    mine, other = appended(0), Table(ADDRESS)
    once = [lambda: (other.append(rows(1)), other.append(rows(2)))]

    def first(method: str, _path: str) -> None:
        if method == "POST" and once:
            once.pop()()  # the second of these reports the first as published
            catalog.dropped = ["POST"]

    catalog.before = first
    mine.append(rows(3))
    assert Table(ADDRESS).detail()["version"] == 4
    assert ids_in(root, Table(ADDRESS)) == list(range(400))


def test_half_an_answer_is_no_answer(catalog: Catalog, root: Path) -> None:
    table = appended(0)
    catalog.garbled = ["POST"]
    table.append(rows(1))
    assert ids_in(root, Table(ADDRESS)) == list(range(200))


def test_another_commit_in_the_place_of_one_is_not_reported(catalog: Catalog, root: Path) -> None:
    appended(0, 1)
    published = root / "_delta_log" / f"{2:020d}.json"
    right = published.read_bytes()
    published.write_bytes((root / "_delta_log" / f"{1:020d}.json").read_bytes())
    assert ids_in(root, Table(ADDRESS)) == list(range(200)), "the staged one is read"
    with pytest.raises(CorruptLogError, match="not the commit that the catalog ratified"):
        Table(ADDRESS).append(rows(2))
    published.unlink()
    with pytest.raises(StorageError, match="not published"):
        Table(ADDRESS).checkpoint()
    assert [one["version"] for one in catalog.load("t")["commits"]] == [2]
    published.write_bytes(right)
    Table(ADDRESS).append(rows(2))
    assert [one["version"] for one in catalog.load("t")["commits"]] == [3]


def test_a_lost_race_is_derived_again(catalog: Catalog, root: Path) -> None:
    mine, other = appended(0), Table(ADDRESS)
    once = [lambda: other.append(rows(1))]

    def first(method: str, _path: str) -> None:
        if method == "POST" and once:
            once.pop()()

    catalog.before = first
    mine.append(rows(2))
    assert Table(ADDRESS).detail()["version"] == 3
    assert ids_in(root, Table(ADDRESS)) == list(range(300))
    at_two = [name for name in staged(root) if name.startswith(f"{2:020d}")]
    assert len(at_two) == 2
    (lost,) = (row for row in mine.orphans(older_than="0s"))
    assert lost["path"].rpartition("/")[2] in at_two
    assert lost["orphan"]
    catalog.permitted = ["DATA_CLEANUP"]
    assert [row["deleted"] for row in mine.orphans(older_than="0s", delete=True)] == [False]
    catalog.permitted = ["DATA_CLEANUP", "METADATA_CLEANUP"]
    assert [row["deleted"] for row in mine.orphans(older_than="0s", delete=True)] == [True]
    assert lost["path"].rpartition("/")[2] not in staged(root)
    assert ids_in(root, Table(ADDRESS)) == list(range(300))


@pytest.mark.usefixtures("root")
def test_a_rewrite_that_lost_to_a_change_of_its_columns_is_refused() -> None:
    mine = appended(0, 1)
    plan = mine.plan()
    result = execute(plan)
    Table(ADDRESS).cluster_by(["id"])
    with pytest.raises(LiquidlogError, match="clustering"):
        mine.commit(plan, result)
    assert Table(ADDRESS).detail()["version"] == 3


@pytest.mark.filterwarnings("ignore::liquidlog.errors.CheckpointWarning")
def test_a_full_catalog_gets_room(catalog: Catalog, root: Path) -> None:
    appended(0)
    log = root / "_delta_log"
    link, table = os.link, Table(ADDRESS)

    def no_publication(source: Any, target: Any, **given: Any) -> None:
        if "_staged_commits" not in str(target) and str(target).endswith(".json"):
            raise OSError(28, "No space left on device")
        link(source, target, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", no_publication)
        for number in range(1, 11):
            table.append(rows(number))
        assert len(catalog.load("t")["commits"]) == 10
        with pytest.raises(StorageError):
            table.append(rows(11))
    assert not (log / f"{3:020d}.json").exists()
    Table(ADDRESS).append(rows(11))
    assert (log / f"{12:020d}.json").exists()
    assert ids_in(root, Table(ADDRESS)) == list(range(1200))


@pytest.mark.usefixtures("root")
def test_another_table_under_the_name_is_refused(catalog: Catalog) -> None:
    table = appended(0)
    catalog.call("DELETE", f"{SCHEMA_PATH}/tables/t")
    with pytest.raises(TableNotFoundError, match="the catalog has none"):
        table.append(rows(1))
    with pytest.raises(UsageError, match="engine of the catalog"):
        Table.create(ADDRESS, schema=rows(0).schema)
    catalog.create("t", FIELDS, ["k"])
    with pytest.raises(TableReplacedError):
        table.append(rows(1))


@pytest.mark.usefixtures("root")
def test_properties_that_the_management_needs_stay() -> None:
    table = appended(0)
    for name in ("delta.enableInCommitTimestamps", "io.unitycatalog.tableId"):
        with pytest.raises((UnsupportedFeatureError, UsageError)):
            table.set_properties({name: "false"})
    assert table.detail()["version"] == 1


@pytest.mark.usefixtures("root")
def test_a_change_of_the_catalog_alone_does_not_stop_a_commit(catalog: Catalog) -> None:
    table = appended(0)
    known = catalog.load("t")["metadata"]
    requirement = {"type": "assert-table-uuid", "uuid": known["table-uuid"]}
    update = {"action": "set-properties", "updates": {"owner": "me"}}
    body = {"requirements": [requirement], "updates": [update]}
    once = [body]

    def change(method: str, _path: str) -> None:
        if method == "POST" and once:
            catalog.call("POST", f"{SCHEMA_PATH}/tables/t", once.pop())

    catalog.before = change
    table.append(rows(1))
    assert len(Table(ADDRESS).files()) == 2
    table.set_properties({"liquidlog.tolerance": "1.3"})
    table.set_properties({"liquidlog.curve": "hilbert"}, unset=["liquidlog.tolerance"])
    found = catalog.load("t")["metadata"]["properties"]
    assert found["owner"] == "me", "what only the catalog has stays"
    assert "liquidlog.tolerance" not in found


@pytest.mark.parametrize(
    "address", ["unity://a.b", "unity://a.b.c.d", "unity://a.b.c/d", "unity://..x"]
)
def test_addresses_name_three_parts(address: str) -> None:
    with pytest.raises(UsageError, match=r"unity://catalog\.schema\.table"):
        Table(address)


@pytest.mark.usefixtures("root")
def test_a_token_is_read_for_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    monkeypatch.setenv(TOKEN_FILE, str(path))
    with pytest.raises(UsageError, match=TOKEN_FILE):
        Table(ADDRESS)
    path.write_text("of-today\n")
    assert len(appended(0).files()) == 1


def test_the_catalog_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = clients.BackOff(first_seconds=0.001, unknown_seconds=0.01, total_seconds=0.01)
    monkeypatch.setattr(clients, "DEFAULT_BACK_OFF", quick)
    monkeypatch.setenv(ADDRESSES[0], "http://127.0.0.1:9")
    with pytest.raises(StorageError, match="cannot be opened: no answer"):
        Table(ADDRESS)
