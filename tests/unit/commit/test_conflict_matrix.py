"""Every operation of ours against every kind of commit that can land just before it.

The winner lands between the last look at the log and the put, so that the first attempt loses.
Rows of the reference's matrix that need other features are recorded races, in tests/golden.
"""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from msgspec import UNSET, structs

from liquidlog.commit.conflicts import MetadataChanged
from liquidlog.errors import CommitConflictError
from liquidlog.log.loader import open_store
from liquidlog.operations.rewrite import GroupConflict
from liquidlog.table import Table
from support.arrow_executor import execute
from support.deleted import write_vector
from support.effort import effort
from support.table_rows import live_rows

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("s", pa.string()), ("v", pa.int64())])
ROWS = 4
Ids = list[int]


def rows(number: int) -> pa.Table:
    ids = list(range(number * ROWS, (number + 1) * ROWS))
    return pa.table([ids, [n % 7 for n in ids], [f"s{n}" for n in ids], ids], schema=SCHEMA)


def ids_of(*numbers: int) -> Ids:
    return [n for number in numbers for n in range(number * ROWS, (number + 1) * ROWS)]


CUBE, INPUTS, NEW, APPENDED = (0, 1), (2, 3), 7, 9
"""Appends that a cube holds, that the rewrite reads, of a winner, and of our append."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of one stable cube and two fresh files, with column mapping and vectors allowed."""
    path = tmp_path_factory.mktemp("matrix") / "table"
    properties = {"delta.columnMapping.mode": "name"}
    table = Table.create(str(path), schema=SCHEMA, cluster_by=["x", "s"], properties=properties)
    for number in CUBE:
        table.append(rows(number))
    plan = table.plan()
    table.commit(plan, execute(plan))
    for number in INPUTS:
        table.append(rows(number))
    land(path, {"protocol": with_feature(path, "deletionVectors")})
    return path


@dataclass(frozen=True)
class Rival:
    """Another writer of the table."""

    path: Path

    @property
    def table(self) -> Table:
        return Table.open(str(self.path))

    def live(self, *, inputs: bool) -> list[dict[str, Any]]:
        """Return the adds of the rewrite's inputs, or of the cube, as the log has them."""
        adds = [a["add"] for actions in commits(self.path) for a in actions if "add" in a]
        return [add for add in adds if ("tags" not in add) == inputs][-len(INPUTS) :]

    def land(self, *actions: dict[str, Any]) -> None:
        land(self.path, {"commitInfo": {"operation": "TEST"}}, *actions)

    def rewrite(self, **policy: Any) -> None:
        plan = self.table.plan(**policy)
        assert plan.groups
        self.table.commit(plan, execute(plan))

    def put_vectors(self, adds: Iterable[dict[str, Any]]) -> None:
        """Delete the first row of each file."""
        for number, add in enumerate(adds):
            file = self.path / f"vector-{number}.bin"
            written = write_vector(file, [0])
            vector = {
                "storageType": "p",
                "pathOrInlineDv": file.as_uri(),
                "offset": written.offset,
                "sizeInBytes": written.size_bytes,
                "cardinality": 1,
            }
            self.land(removed(add), {"add": {**add, "deletionVector": vector}})


def commits(path: Path) -> list[list[dict[str, Any]]]:
    logs = sorted((path / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def land(path: Path, *actions: dict[str, Any]) -> None:
    version = len(commits(path))
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (path / "_delta_log" / f"{version:020d}.json").write_text(lines)


def newest(path: Path, kind: str) -> dict[str, Any]:
    found = [action[kind] for actions in commits(path) for action in actions if kind in action]
    action: dict[str, Any] = found[-1]
    return action


def with_feature(path: Path, feature: str, *, for_readers: bool = True) -> dict[str, Any]:
    old = newest(path, "protocol")
    readers = {"columnMapping", *old.get("readerFeatures", []), *([feature] * for_readers)}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(readers),
        "writerFeatures": sorted({*readers, *old.get("writerFeatures", []), feature}),
    }


def removed(add: dict[str, Any]) -> dict[str, Any]:
    return {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}}


def domain(name: str, configuration: str, *, gone: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": gone}}


def delete(rival: Rival, *, inputs: bool) -> None:
    rival.land(*map(removed, rival.live(inputs=inputs)))


def overwrite(rival: Rival) -> None:
    rival.table.append(rows(NEW))
    everything = [*rival.live(inputs=False), *rival.live(inputs=True)]
    mine = newest(rival.path, "add")["path"]
    rival.land(*(removed(add) for add in everything if add["path"] != mine))
    files = rival.table.snapshot().files["path"].to_pylist()
    rival.land(*(removed({"path": path}) for path in files if path != mine))


def add_column(rival: Rival) -> None:
    metadata = newest(rival.path, "metaData")
    schema = json.loads(metadata["schemaString"])
    mapping = {"delta.columnMapping.id": 99, "delta.columnMapping.physicalName": "col-new"}
    field = {"name": "new", "type": "long", "nullable": True, "metadata": mapping}
    schema["fields"].append(field)
    configuration = {**metadata["configuration"], "delta.columnMapping.maxColumnId": "99"}
    changed = {"schemaString": json.dumps(schema), "configuration": configuration}
    rival.land({"metaData": {**metadata, **changed}})


def restore_column(rival: Rival) -> None:
    """Drop a column and bring it back with its values, as RESTORE does."""
    before = newest(rival.path, "metaData")
    rival.table.drop_column("v")
    rival.land({"metaData": before})


def change_column(rival: Rival, name: str, **changes: Any) -> None:
    metadata = newest(rival.path, "metaData")
    schema = json.loads(metadata["schemaString"])
    (field,) = (field for field in schema["fields"] if field["name"] == name)
    field["metadata"].update(changes.pop("metadata", {}))
    field.update(changes)
    rival.land({"metaData": {**metadata, "schemaString": json.dumps(schema)}})


def set_property(rival: Rival, name: str, value: str, *, feature: str | None = None) -> None:
    metadata = newest(rival.path, "metaData")
    configuration = {**metadata["configuration"], name: value}
    changed = {"metaData": {**metadata, "configuration": configuration}}
    if feature is None:
        rival.land(changed)
    else:
        rival.land(changed, {"protocol": with_feature(rival.path, feature, for_readers=False)})


def without_feature(path: Path, feature: str) -> dict[str, Any]:
    protocol = newest(path, "protocol")
    return {
        k: [n for n in v if n != feature] if isinstance(v, list) else v for k, v in protocol.items()
    }


def readd(rival: Rival) -> None:
    adds = rival.live(inputs=True)
    rival.land(*({"add": {**add, "dataChange": False, "tags": {"seen": "1"}}} for add in adds))


def txn(_: Rival) -> dict[str, Any]:
    return {"txn": {"appId": "stream", "version": 3}}


@dataclass(frozen=True)
class Winner:
    """A commit of somebody else: what it does, and the ids that are live after it."""

    act: Callable[[Rival], Any]
    ids: Ids


BASE = ids_of(*CUBE, *INPUTS)
DOMAIN = "delta.clustering"

HARMLESS = {
    "append": Winner(lambda r: r.table.append(rows(NEW)), [*BASE, *ids_of(NEW)]),
    "two appends": Winner(
        lambda r: [r.table.append(rows(n)) for n in (NEW, NEW + 1)], [*BASE, *ids_of(NEW, NEW + 1)]
    ),
    "delete of other files": Winner(lambda r: delete(r, inputs=False), ids_of(*INPUTS)),
    "vectors on other files": Winner(
        lambda r: r.put_vectors(r.live(inputs=False)[:1]), [n for n in BASE if n != BASE[0]]
    ),
    "inputs added again": Winner(readd, BASE),
    "other domain": Winner(lambda r: r.land(domain("mine", "{}")), BASE),
    "other domain gone": Winner(lambda r: r.land(domain("mine", "", gone=True)), BASE),
    "transaction": Winner(lambda r: r.land(txn(r)), BASE),
    "only a commitInfo": Winner(lambda r: r.land(), BASE),
    "no commitInfo": Winner(lambda r: land(r.path, txn(r)), BASE),
    "delete of one input": Winner(
        lambda r: r.land(removed(r.live(inputs=True)[0])), ids_of(*CUBE, INPUTS[1])
    ),
    "vectors on inputs": Winner(
        lambda r: r.put_vectors(r.live(inputs=True)),
        [n for n in BASE if n not in {ids_of(number)[0] for number in INPUTS}],
    ),
    "empty file": Winner(lambda r: land(r.path), BASE),
}
OF_INPUTS = {
    "delete of inputs": Winner(lambda r: delete(r, inputs=True), ids_of(*CUBE)),
    "rewrite of inputs": Winner(lambda r: r.rewrite(min_cube_size=1), BASE),
    "rewrite of all": Winner(lambda r: r.rewrite(), BASE),
    "overwrite": Winner(overwrite, ids_of(NEW)),
}
OF_CLUSTERING = {
    "other clustering": Winner(lambda r: r.table.cluster_by(["x"]), BASE),
    "no clustering": Winner(lambda r: r.table.cluster_by(None), BASE),
    "clustering gone": Winner(lambda r: r.land(domain(DOMAIN, "{}", gone=True)), BASE),
}
OUTLASTED = {
    "property": Winner(lambda r: r.table.set_properties({"delta.appendOnly": "false"}), BASE),
    "new column": Winner(add_column, BASE),
    "comment": Winner(lambda r: change_column(r, "v", metadata={"comment": "?"}), BASE),
    "constraint": Winner(
        lambda r: set_property(r, "delta.constraints.c", "id >= 0", feature="checkConstraints"),
        BASE,
    ),
    "same metadata": Winner(lambda r: r.land({"metaData": newest(r.path, "metaData")}), BASE),
    "same protocol": Winner(lambda r: r.land({"protocol": newest(r.path, "protocol")}), BASE),
    "new feature": Winner(
        lambda r: r.land({"protocol": with_feature(r.path, "timestampNtz")}), BASE
    ),
}
OF_FILES = {
    "renamed column": Winner(lambda r: r.table.rename_column("v", "w"), BASE),
    "dropped column": Winner(lambda r: r.table.drop_column("v"), BASE),
    "restored column": Winner(restore_column, BASE),
    "NOT NULL": Winner(lambda r: change_column(r, "v", nullable=False), BASE),
    "codec": Winner(lambda r: set_property(r, "delta.parquet.compression.codec", "gzip"), BASE),
    "unknown property": Winner(lambda r: set_property(r, "delta.fromTheFuture", "1"), BASE),
    "feature for ids": Winner(
        lambda r: r.land({"protocol": with_feature(r.path, "rowTracking", for_readers=False)}), BASE
    ),
    "feature gone": Winner(
        lambda r: r.land({"protocol": without_feature(r.path, "appendOnly")}), BASE
    ),
}
OF_TABLE = {**OUTLASTED, **OF_FILES}
WINNERS = {**HARMLESS, **OF_INPUTS, **OF_CLUSTERING, **OF_TABLE}


@dataclass(frozen=True)
class Operation:
    """One of ours: how to prepare it, what proves that it happened, what it cannot land after."""

    prepare: Callable[[Table], Callable[[], Any]]
    happened: Callable[[Table], bool]
    conflicts: frozenset[str]
    appends: int | None = None


def prepare_rewrite(table: Table) -> Callable[[], Any]:
    plan = table.plan(min_cube_size=1)
    assert sum(len(group.inputs) for group in plan.groups) == len(INPUTS)
    result = execute(plan)
    return lambda: table.commit(plan, result, max_reconciled_share=0.5)


def known(table: Table, operation: Callable[[], Any]) -> Callable[[], Any]:
    """Let an operation start from the version that is there before the winner."""
    table.snapshot()
    return operation


ALTERS = frozenset({*OF_TABLE, *OF_CLUSTERING})
OPERATIONS = {
    "append": Operation(
        lambda t: known(t, lambda: t.append(rows(APPENDED))),
        lambda t: t.history(1)[0]["operation"] == "WRITE",
        frozenset(OF_TABLE),
        appends=APPENDED,
    ),
    "rewrite": Operation(
        prepare_rewrite,
        lambda t: t.history(1)[0]["operation"] == "OPTIMIZE",
        frozenset({*OF_FILES, *OF_CLUSTERING, *OF_INPUTS}),
    ),
    "cluster by": Operation(
        lambda t: known(t, lambda: t.cluster_by(["s"])),
        lambda t: t.detail()["clusteringColumns"] == ["s"],
        ALTERS,
    ),
    "rename column": Operation(
        lambda t: known(t, lambda: t.rename_column("x", "y")),
        lambda t: (
            not any('"x"' in (tag or "") for tag in t.snapshot().files["zorder_by"].to_pylist())
        ),
        ALTERS,
    ),
    "drop column": Operation(
        lambda t: known(t, lambda: t.drop_column("v")),
        lambda t: "v" not in [field.name for field in t.snapshot().schema.fields],
        ALTERS,
    ),
    "set properties": Operation(
        lambda t: known(
            t, lambda: t.set_properties({"delta.logRetentionDuration": "interval 9 days"})
        ),
        lambda t: "delta.logRetentionDuration" in t.detail()["properties"],
        ALTERS,
    ),
}


def let_win(monkeypatch: pytest.MonkeyPatch, path: Path, winner: Winner) -> list[int]:
    """Let the winner land before the next put; return where the number of commits then stands."""
    landed: list[int] = []
    store: Any = type(open_store(str(path)))
    put = store.put_log_if_absent

    def lose(*words: Any) -> bool:
        monkeypatch.setattr(store, "put_log_if_absent", put)
        winner.act(Rival(path))
        landed.append(len(commits(path)))
        won: bool = put(*words)
        return won

    monkeypatch.setattr(store, "put_log_if_absent", lose)
    return landed


def data_files(path: Path) -> set[str]:
    return {file.name for file in path.glob("*.parquet")}


def named_files(path: Path) -> set[str]:
    return {a["add"]["path"] for actions in commits(path) for a in actions if "add" in a}


PAIRS = [
    (operation, winner)
    for row, operation in enumerate(OPERATIONS)
    for column, winner in enumerate(WINNERS)
    if (row + column) % effort(3, 1) == 0
]


@pytest.mark.parametrize(("operation", "winner"), PAIRS)
def test_a_lost_race_is_committed_on_top_or_refused_whole(
    operation: str, winner: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    shutil.copytree(template, path)
    table = Table.open(str(path))
    ours = OPERATIONS[operation]
    act = ours.prepare(table)
    landed = let_win(monkeypatch, path, WINNERS[winner])
    expected = WINNERS[winner].ids
    if winner in ours.conflicts:
        with pytest.raises(CommitConflictError) as conflict:
            act()
        assert conflict.value.conflicts
        assert len(commits(path)) == landed[0]
    else:
        act()
        assert len(commits(path)) == landed[0] + 1
        assert ours.happened(Table.open(str(path)))
        expected = [*expected, *([] if ours.appends is None else ids_of(ours.appends))]
    assert data_files(path) == named_files(path)
    store = open_store(str(path))
    assert sorted(live_rows(store, table.snapshot())["id"].to_pylist()) == sorted(expected)
    scanned = pa.table(DeltaTable(path).scan().read_all())
    assert sorted(scanned["id"].to_pylist()) == sorted(expected)


def test_a_rewrite_follows_timestamps_of_the_version_it_lands_on(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    shutil.copytree(template, path)
    table = Table.open(str(path))
    act = prepare_rewrite(table)
    future = 4_000_000_000_000

    def enable(rival: Rival) -> None:
        metadata = newest(rival.path, "metaData")
        properties = {
            **metadata["configuration"],
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": str(len(commits(path))),
            "delta.inCommitTimestampEnablementTimestamp": str(future),
        }
        land(
            rival.path,
            {"commitInfo": {"operation": "TEST", "inCommitTimestamp": future}},
            {"metaData": {**metadata, "configuration": properties}},
            {"protocol": with_feature(rival.path, "inCommitTimestamp", for_readers=False)},
        )

    let_win(monkeypatch, path, Winner(enable, BASE))
    act()
    info = newest(path, "commitInfo")
    assert info["operation"] == "OPTIMIZE"
    assert info["inCommitTimestamp"] == info["timestamp"] == future + 1
    assert next(iter(commits(path)[-1][0])) == "commitInfo"


def test_a_saved_plan_of_an_earlier_release_outlasts_nothing(
    template: Path, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    shutil.copytree(template, path)
    table = Table.open(str(path))
    plan = structs.replace(table.plan(min_cube_size=1), terms=UNSET)
    result = execute(plan)
    table.set_properties({"team": "we"})
    with pytest.raises(CommitConflictError) as conflict:
        table.commit(plan, result)
    (found,) = conflict.value.conflicts
    assert isinstance(found, GroupConflict)
    assert found.conflict == MetadataChanged(table.snapshot().version)
