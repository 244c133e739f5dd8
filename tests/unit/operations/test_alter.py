"""Columns renamed and dropped, properties set: on real tables, read by delta-rs and DuckDB."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.errors import CommitConflictError, SchemaChangeError, UsageError
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.log.store import TableStore
from liquidlog.operations.define import rename_column
from liquidlog.table import Table, system_clock
from support.arrow_executor import execute

POINT = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema([("id", pa.int64()), ("p", POINT), ("s", pa.string())])


def rows(first: int, count: int = 40) -> pa.Table:
    ids = range(first, first + count)
    points = [{"x": n * 7 % 100, "y": f"y{n % 5}"} for n in ids]
    return pa.table([list(ids), points, [f"s{n % 9}" for n in ids]], schema=SCHEMA)


def empty(path: Path, mapping: str = "name", **properties: str) -> Table:
    settings = {"delta.columnMapping.mode": mapping, **properties}
    return Table.create(
        str(path / "t"), schema=SCHEMA, cluster_by=["p.x", "s"], properties=settings
    )


def said(error: SchemaChangeError) -> set[tuple[Kind, str | None]]:
    """Return which kinds of problem there are, each with the column or property in the way."""
    return {(reason.kind, reason.column or reason.property) for reason in error.reasons}


def made(path: Path, mapping: str = "name", **properties: str) -> Table:
    table = empty(path, mapping, **properties)
    for first in (0, 100, 200):
        table.append(rows(first))
    plan = table.plan(max_file_size=2000)
    table.commit(plan, execute(plan))
    table.append(rows(300))
    return table


@pytest.fixture(params=["name", "id"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return made(tmp_path, request.param)


def scanned(table: Table) -> list[dict[str, Any]]:
    found = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def adds(table: Table, version: int) -> list[dict[str, Any]]:
    log = Path(table.uri) / "_delta_log" / f"{version:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["add"] for line in lines if "add" in line]


def tags(table: Table) -> set[str | None]:
    return set(table.snapshot().files["zorder_by"].to_pylist())


def test_cubes_survive_the_rename_of_a_struct_that_holds_a_clustering_column(table: Table) -> None:
    before, cubes = scanned(table), table.cubes().to_pylist()
    version = table.rename_column("p", "point at")
    assert tags(table) == {None, '["`point at`.x","s"]'}
    assert table.detail()["clusteringColumns"] == ["`point at`.x", "s"]
    assert scanned(table) == [{"id": r["id"], "point at": r["p"], "s": r["s"]} for r in before]
    states = {cube["state"] for cube in table.cubes().to_pylist()}
    assert states == {"partial"} == {cube["state"] for cube in cubes}
    assert {add["dataChange"] for add in adds(table, version)} == {False}
    assert {file.reason for file in table.plan().skipped} == set()


def test_rewrite_after_a_rename_and_a_drop_keeps_every_row(table: Table) -> None:
    table.rename_column("p.x", "X 1")
    table.drop_column("p.y")
    expected = [{**row, "p": {"X 1": row["id"] * 7 % 100}} for row in scanned(table)]
    plan = table.plan(full=True, max_file_size=2000)
    table.commit(plan, execute(plan))
    assert scanned(table) == expected
    assert len(expected) == 160
    paths = [str(Path(table.uri) / path) for path in table.files()["path"].to_pylist()]
    (x,) = (f for f in table.snapshot().schema.fields[1].data_type.fields)  # type: ignore[union-attr]
    outer = table.snapshot().schema.fields[1].physical_name
    total = duckdb.read_parquet(paths).aggregate(f'sum("{outer}"."{x.physical_name}")').fetchall()
    assert total == [(sum(row["p"]["X 1"] for row in expected),)]


def test_unknown_fields_of_a_file_are_copied(table: Table) -> None:
    # The last commit adds a tagged file once more, as an engine of the future would.
    version = table.snapshot().version + 1
    tagged = next(add for add in adds(table, version - 2) if "tags" in add)
    future = {
        **tagged,
        "dataChange": False,
        "zz": {"deep": [1, 2.50, "ü"]},
        "baseRowId": 12345678901,
    }
    future["tags"] = {**tagged["tags"], "OTHER": "kept"}
    log = Path(table.uri) / "_delta_log" / f"{version:020d}.json"
    log.write_text('{"commitInfo":{}}\n' + json.dumps({"add": future}) + "\n")
    found = [a for a in adds(table, table.rename_column("s", "t")) if a["path"] == future["path"]]
    future["tags"]["ZCUBE_ZORDER_BY"] = '["p.x","t"]'
    assert found == [future]


def test_a_file_that_only_a_checkpoint_knows_is_copied(table: Table) -> None:
    old = {add["path"]: add for add in adds(table, table.snapshot().version - 1)}
    delta = DeltaTable(table.uri)
    delta.create_checkpoint()
    for log in (Path(table.uri) / "_delta_log").glob("*.json"):
        log.unlink()
    new = {add["path"]: add for add in adds(table, table.rename_column("s", "t"))}
    assert new.keys() == old.keys()
    for path, add in new.items():
        was = {**old[path], "tags": {**old[path]["tags"], "ZCUBE_ZORDER_BY": '["p.x","t"]'}}
        assert json.loads(add.pop("stats")) == json.loads(was.pop("stats"))
        assert add == was


def test_files_that_came_meanwhile_are_tagged_too(table: Table) -> None:
    stale = table.snapshot()
    plan = table.plan(full=True, max_file_size=2000)
    table.commit(plan, execute(plan))
    rename_column(store(table), stale, ("s",), "t", system_clock())
    assert tags(table) == {'["p.x","t"]'}


def test_another_change_of_the_metadata_is_a_conflict(table: Table) -> None:
    stale = table.snapshot()
    table.set_properties({"note": "1"})
    before = table.snapshot().version
    with pytest.raises(CommitConflictError):
        rename_column(store(table), stale, ("s",), "t", system_clock())
    assert table.snapshot().version == before


def store(table: Table) -> TableStore:
    return table.opened.store


def test_a_dry_run_and_the_same_name_write_nothing(table: Table) -> None:
    version = table.snapshot().version
    assert table.rename_column("s", "t", dry_run=True) == version + 1
    assert table.rename_column("s", "s") == version
    assert table.drop_column("id", dry_run=True) == version + 1
    assert table.set_properties({"a": "b"}, dry_run=True) == version + 1
    assert table.set_properties({}, unset=["never.was"]) == version
    assert table.snapshot().version == version


def test_only_the_case_of_a_name_may_change(table: Table) -> None:
    table.rename_column("S", "S")
    assert tags(table) == {None, '["p.x","S"]'}


@pytest.mark.parametrize(
    ("old", "new", "kind", "column"),
    [
        ("s", "ID", Kind.COLUMN_EXISTS, "id"),
        ("p.x", "Y", Kind.COLUMN_EXISTS, "p.y"),
        ("nope", "n", Kind.COLUMN_UNKNOWN, "nope"),
        ("id", "_change_type", Kind.COLUMN_NAME_RESERVED, "_change_type"),
    ],
)
def test_impossible_renames_are_refused(
    tmp_path: Path, old: str, new: str, kind: Kind, column: str
) -> None:
    table = empty(tmp_path)
    before = table.snapshot().version
    with pytest.raises(SchemaChangeError) as caught:
        table.rename_column(old, new)
    assert said(caught.value) == {(kind, column)}
    assert table.snapshot().version == before


@pytest.mark.parametrize(("name", "column"), [("s", "s"), ("p", "p.x"), ("p.x", "p.x")])
def test_what_the_table_is_clustered_by_cannot_be_dropped(
    tmp_path: Path, name: str, column: str
) -> None:
    table = empty(tmp_path)
    with pytest.raises(SchemaChangeError) as caught:
        table.drop_column(name)
    assert said(caught.value) == {(Kind.COLUMN_IS_CLUSTERED_BY, column)}


def test_a_new_name_has_one_part(tmp_path: Path) -> None:
    table = empty(tmp_path)
    with pytest.raises(UsageError) as caught:
        table.rename_column("p.x", "p.z")
    assert caught.value.arguments == {"value": "p.z"}


def test_without_column_mapping_the_message_says_how_to_turn_it_on(tmp_path: Path) -> None:
    table = made(tmp_path, "none")
    before = scanned(table)
    with pytest.raises(SchemaChangeError) as caught:
        table.rename_column("s", "t")
    assert said(caught.value) == {(Kind.COLUMN_MAPPING_IS_OFF, "delta.columnMapping.mode")}
    assert 'SET TBLPROPERTIES ("delta.columnMapping.mode" = "name")' in caught.value.message
    table.set_properties({"DELTA.columnMapping.MODE": "name"})
    table.rename_column("s", "t")
    table.drop_column("p.y")
    table.append(
        rows(400)
        .drop_columns(["p"])
        .append_column("p", _only_x(400))
        .rename_columns(["id", "t", "p"])
    )
    expected = [{"id": r["id"], "p": {"x": r["p"]["x"]}, "t": r["s"]} for r in before]
    assert scanned(table)[: len(expected)] == expected
    plan = table.plan(full=True)
    table.commit(plan, execute(plan))
    assert scanned(table)[: len(expected)] == expected


def _only_x(first: int) -> pa.Array:
    return pa.array([{"x": n * 7 % 100} for n in range(first, first + 40)])


def test_names_in_properties_and_constraints_follow_or_hold(tmp_path: Path) -> None:
    table = empty(tmp_path, **{"delta.dataSkippingStatsColumns": "ID,p.`x`, S"})
    table.rename_column("p.x", "`x.1`")
    named = table.snapshot().metadata.configuration["delta.dataSkippingStatsColumns"]
    assert named == "ID,p.`x.1`,S"
    table.rename_column("s", "word")
    table.drop_column("id")
    assert table.snapshot().metadata.configuration["delta.dataSkippingStatsColumns"] == (
        "p.`x.1`,word"
    )


@pytest.mark.parametrize("expression", ["id > 5", "length(`ID`) > 1", "s <> 'x' and p.y = id"])
def test_a_column_in_a_constraint_is_neither_renamed_nor_dropped(
    tmp_path: Path, expression: str
) -> None:
    table = Table.create(
        str(tmp_path / "t"),
        schema=SCHEMA,
        properties={"delta.columnMapping.mode": "name", "delta.constraints.c": expression},
    )
    with pytest.raises(SchemaChangeError) as renamed:
        table.rename_column("id", "key")
    with pytest.raises(SchemaChangeError) as dropped:
        table.drop_column("id")
    used = {(Kind.COLUMN_IS_USED, "delta.constraints.c")}
    assert said(renamed.value) == used == said(dropped.value)


def test_files_are_not_tagged_anew_under_a_change_data_feed(tmp_path: Path) -> None:
    table = made(tmp_path, **{"delta.enableChangeDataFeed": "true"})
    with pytest.raises(SchemaChangeError) as caught:
        table.rename_column("s", "t")
    assert said(caught.value) == {(Kind.CHANGE_DATA_FEED_IS_ON, "delta.enableChangeDataFeed")}
    assert table.rename_column("id", "key") == table.snapshot().version


@pytest.mark.parametrize(
    ("properties", "unset", "kind", "about"),
    [
        ({"delta.feature.clustering": "supported"}, [], Kind.PROPERTY_IS_FIXED, None),
        ({"delta.columnMapping.maxColumnId": "99"}, [], Kind.PROPERTY_IS_FIXED, None),
        ({"clusteringColumns": "id"}, [], Kind.PROPERTY_IS_FIXED, None),
        ({"delta.minReaderVersion": "4"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.feature.deletionVectors": "yes"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.feature.rowTracking": "supported"}, [], Kind.PROPERTY_IS_FIXED, None),
        ({"delta.feature.nothing": "supported"}, [], Kind.PROPERTY_IS_FIXED, None),
        ({}, ["delta.feature.deletionVectors"], Kind.PROPERTY_IS_FIXED, None),
        ({"delta.constraints.c": "id > 5"}, [], Kind.PROPERTY_IS_FIXED, None),
        ({"delta.logRetentionDuratoin": "1 day"}, [], Kind.PROPERTY_UNKNOWN, None),
        ({"delta.logRetentionDuration": "interval 1 month"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.checkpointInterval": "0"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.appendOnly": "yes"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.dataSkippingStatsColumns": "id,`p"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.columnMapping.mode": "none"}, [], Kind.COLUMN_MAPPING_IS_FIXED, None),
        ({}, ["delta.columnMapping.mode"], Kind.COLUMN_MAPPING_IS_FIXED, None),
        ({}, ["delta.columnMapping.maxColumnId"], Kind.PROPERTY_IS_FIXED, None),
        ({"a": "1"}, ["a"], Kind.PROPERTY_SET_AND_UNSET, None),
        ({"delta.dataSkippingStatsColumns": "id,zz"}, [], Kind.COLUMN_UNKNOWN, "zz"),
        ({"delta.dataSkippingNumIndexedCols": "1"}, [], Kind.COLUMN_LOSES_STATISTICS, "p.x"),
    ],
)
def test_properties_that_are_not_a_users_to_set_are_refused(
    tmp_path: Path, properties: dict[str, str], unset: list[str], kind: Kind, about: str | None
) -> None:
    table = empty(tmp_path)
    before = table.snapshot()
    with pytest.raises(SchemaChangeError) as caught:
        table.set_properties(properties, unset=unset)
    (name,) = {*properties, *unset}
    assert (kind, about or name) in said(caught.value)
    assert {found for found, _ in said(caught.value)} == {kind}
    assert table.snapshot().version == before.version


@pytest.mark.parametrize(
    ("before", "properties", "versions", "added"),
    [
        ((1, 2), {"delta.enableDeletionVectors": "true"}, (3, 7), {"deletionVectors"}),
        ((1, 2), {"delta.enableTypeWidening": "true"}, (3, 7), {"typeWidening"}),
        ((1, 2), {"delta.enableChangeDataFeed": "true"}, (1, 7), {"changeDataFeed"}),
        ((1, 2), {"delta.feature.timestampntz": "supported"}, (3, 7), {"timestampNtz"}),
        ((1, 1), {"delta.feature.appendOnly": "enabled"}, (1, 7), {"appendOnly"}),
        ((1, 2), {"delta.minWriterVersion": "3"}, (1, 3), {"checkConstraints"}),
        ((2, 5), {"delta.minReaderVersion": "1", "delta.minWriterVersion": "2"}, (2, 5), set()),
        ((2, 5), {"delta.enableDeletionVectors": "true"}, (3, 7), {"deletionVectors"}),
        ((1, 2), {"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, (1, 2), set()),
    ],
)
def test_features_come_with_the_properties_that_need_or_name_them(
    tmp_path: Path,
    before: tuple[int, int],
    properties: dict[str, str],
    versions: tuple[int, int],
    added: set[str],
) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    protocol = {"minReaderVersion": before[0], "minWriterVersion": before[1]}
    others = [line for line in log.read_text().splitlines() if "protocol" not in json.loads(line)]
    log.write_text("\n".join([json.dumps({"protocol": protocol}), *others]))
    table = Table.open(tmp_path / "t")
    known = set(table.detail()["tableFeatures"])
    table.set_properties(properties)
    found = Table.open(table.uri).snapshot()
    assert (found.protocol.min_reader_version, found.protocol.min_writer_version) == versions
    assert set(table.detail()["tableFeatures"]) == known | added
    kept = {key for key in properties if key.startswith("delta.enable")}
    assert found.metadata.configuration.keys() == kept
    if found.protocol.reader_features is not None:
        mapped = {"columnMapping"} if before == (2, 5) else set()
        assert set(found.protocol.reader_features) == added | mapped
    DeltaTable(table.uri)


def test_no_property_is_nothing_to_set(tmp_path: Path) -> None:
    with pytest.raises(SchemaChangeError) as caught:
        empty(tmp_path).set_properties({})
    assert said(caught.value) == {(Kind.PROPERTY_MISSING, None)}


def test_properties_are_set_and_unset_in_one_commit(tmp_path: Path) -> None:
    table = empty(tmp_path, note="old")
    version = table.set_properties(
        {"delta.LOGretentionduration": "interval 2 weeks", "other": "x"}, unset=["note"]
    )
    found = table.snapshot().metadata.configuration
    assert table.snapshot().version == version
    assert found["delta.logRetentionDuration"] == "interval 2 weeks"
    assert "note" not in found
    assert DeltaTable(table.uri).metadata().configuration == found


def test_several_columns_are_dropped_in_one_commit_or_none(table: Table) -> None:
    version = table.snapshot().version
    with pytest.raises(SchemaChangeError) as caught:
        table.drop_column("id", "s", "p.y")  # s and p.x are clustering columns
    assert said(caught.value) == {(Kind.COLUMN_IS_CLUSTERED_BY, "s")}
    with pytest.raises(SchemaChangeError) as caught:
        table.drop_column("id", "nope")
    assert {kind for kind, _ in said(caught.value)} == {Kind.COLUMN_UNKNOWN}
    assert table.snapshot().version == version
    assert table.drop_column("nope", if_exists=True) == version
    assert table.drop_column("id", "p.y", "nope", if_exists=True) == version + 1
    entry = table.history(1)[0]
    assert entry["operationParameters"]["columns"] == '["id","p.y"]'
    table.cluster_by(None)
    with pytest.raises(SchemaChangeError) as caught:
        table.drop_column("s", "p")  # each alone could go
    assert {kind for kind, _ in said(caught.value)} == {Kind.COLUMN_IS_THE_LAST}
