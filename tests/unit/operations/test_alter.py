"""Columns renamed and dropped, properties set: on real tables, read by delta-rs and DuckDB."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.data.statistics import columns_held
from liquidlog.errors import (
    CommitConflictError,
    DataFileError,
    ExecutorError,
    SchemaChangeError,
    UsageError,
)
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.operations.define import commit_in_place, renaming
from liquidlog.operations.rewrite import CommitReport
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import FIELD_ID, PrimitiveType, StructField, StructType
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
    rename(table, stale)
    assert tags(table) == {'["p.x","t"]'}


def test_another_change_of_the_metadata_is_a_conflict(table: Table) -> None:
    stale = table.snapshot()
    table.set_properties({"note": "1"})
    before = table.snapshot().version
    with pytest.raises(CommitConflictError):
        rename(table, stale)
    assert table.snapshot().version == before


def rename(table: Table, stale: Snapshot) -> None:
    store = table.opened.store
    commit_in_place(store, stale, renaming(store, ("s",), "t"), system_clock(), dry_run=False)


def test_a_dry_run_and_the_same_name_write_nothing(table: Table) -> None:
    version = table.snapshot().version
    assert table.rename_column("s", "t", dry_run=True) == version + 1
    assert table.rename_column("s", "s") == version
    assert table.drop_column("id", dry_run=True) == version + 1
    assert table.set_properties({"a": "b"}, dry_run=True) == version + 1
    assert table.set_properties({}, unset=["never.was"]) == version
    assert table.snapshot().version == version


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


# Columns that came after a plan: committed if no input has them, refused if one has.


IN_STRUCT = pa.struct([("a", pa.int64()), ("gone", pa.int64())])


def rows_new_columns(first: int) -> pa.Table:
    ids = list(range(first, first + 5))
    points = pa.array([{"a": n, "gone": -n} for n in ids], IN_STRUCT)
    return pa.table({"id": ids, "st": points, "gone": [10 * n for n in ids]})


def with_leftovers(path: Path) -> tuple[Table, dict[str, str]]:
    """Return a table whose files have two more columns than its schema, and their names there."""
    mapped = {"delta.columnMapping.mode": "name"}
    table = Table.create(
        str(path), schema=rows_new_columns(0).schema, cluster_by=["id"], properties=mapped
    )
    table.append(rows_new_columns(0))
    table.append(rows_new_columns(5))
    fields = {one.name: one for one in table.snapshot().schema.fields}
    inner = fields["st"].data_type
    assert isinstance(inner, StructType)
    names = {"gone": fields["gone"].physical_name, "st.gone": inner.fields[1].physical_name}
    table.drop_column("gone")
    table.drop_column("st.gone")
    return table, names


def field(name: str, number: int, physical: str = "", kind: Any = "long") -> dict[str, Any]:
    says = {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": physical or f"col-{number}",
    }
    return {"name": name, "type": kind, "nullable": True, "metadata": says}


def add(path: Path, new: dict[str, Any], *, inside: str | None = None) -> None:
    """Add a column with a fresh id, as other writers might."""
    logs = sorted((path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    metadata = [action["metaData"] for action in actions if "metaData" in action][-1]
    schema = json.loads(metadata["schemaString"])
    fields = schema["fields"]
    if inside is not None:
        fields = next(one for one in fields if one["name"] == inside)["type"]["fields"]
    fields.append(new)
    properties = {**metadata["configuration"], "delta.columnMapping.maxColumnId": "99"}
    line = {
        "metaData": {**metadata, "schemaString": json.dumps(schema), "configuration": properties}
    }
    (path / "_delta_log" / f"{len(logs):020d}.json").write_text(json.dumps(line) + "\n")


def planned(table: Table) -> tuple[ClusteringPlan, RewriteResult]:
    plan = table.plan()
    assert len(plan.groups) == 1
    return plan, execute(plan)


def read(path: Path) -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(path).scan().read_all())
    return sorted(found.to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.parametrize("spelled", [str.lower, str.upper])
def test_a_column_that_inputs_have_is_not_lost(
    tmp_path: Path, spelled: Callable[[str], str]
) -> None:
    table, names = with_leftovers(tmp_path)
    plan, result = planned(table)
    add(tmp_path, field("back", 50, spelled(names["gone"])))
    inputs = sorted(file.path for file in plan.groups[0].inputs)
    with pytest.raises(CommitConflictError) as conflict:
        table.commit(plan, result)
    assert "the column back, which the table did not have" in str(conflict.value)
    assert all(path in str(conflict.value) for path in inputs)
    assert sorted(table.snapshot().files["path"].to_pylist()) == inputs


def test_a_column_inside_a_struct_that_inputs_have_is_not_lost(tmp_path: Path) -> None:
    table, names = with_leftovers(tmp_path)
    plan, result = planned(table)
    add(tmp_path, field("back", 50, names["st.gone"]), inside="st")
    with pytest.raises(CommitConflictError, match=r"the column st\.back, which"):
        table.commit(plan, result)


def test_columns_that_no_input_has_are_null_in_what_was_rewritten(tmp_path: Path) -> None:
    table, _ = with_leftovers(tmp_path)
    plan, result = planned(table)
    kind = {"type": "struct", "fields": [field("gone", 51)]}
    add(tmp_path, field("new", 50, kind=kind))
    add(tmp_path, field("go", 52), inside="st")
    before = read(tmp_path)
    report = table.commit(plan, result, dry_run=True)
    assert report.committed_groups == (0,)
    assert table.commit(plan, result).committed_groups == (0,)
    assert read(tmp_path) == before
    assert before[3] == {"id": 3, "st": {"a": 3, "go": None}, "new": None}


def test_an_input_that_cannot_be_read_proves_nothing_and_outputs_stay(tmp_path: Path) -> None:
    table, _ = with_leftovers(tmp_path)
    plan, result = planned(table)
    add(tmp_path, field("new", 50))
    lost = plan.groups[0].inputs[0].path
    (tmp_path / lost).write_bytes(b"no longer Parquet")
    report: CommitReport = table.commit_each(plan, result.groups)
    assert not report.conflicts
    (failure,) = report.failures
    assert "whether the inputs have the new columns new cannot be found out" in failure
    assert lost in failure
    assert all((tmp_path / file.path).exists() for file in result.groups[0].outputs)
    with pytest.raises(ExecutorError):
        report.require_success()


def test_a_column_is_found_by_its_id_too(tmp_path: Path) -> None:
    inner = pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "7"})
    named = pa.field("a.b", pa.list_(pa.struct([inner])))
    schema = pa.schema([named, pa.field("c", pa.int64(), metadata={"PARQUET:field_id": "8"})])
    path = tmp_path / "f.parquet"
    pq.write_table(schema.empty_table(), path)
    size = path.stat().st_size
    asked = [
        (("x",), (7,)),
        (("y",), (9, 8)),
        (("z",), (6,)),
        (("A", "b"), ()),
        (("a",), ()),
        (("C",), ()),
    ]
    held = columns_held(str(path), asked, size_bytes=size)
    assert held == (("x",), ("y",), ("A", "b"), ("a",), ("C",))
    with pytest.raises(DataFileError):
        columns_held(str(path), asked, size_bytes=size + 1)


# Columns added: rows that are there have null in them, for us and for delta-rs.


ADDED_SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.struct([("x", pa.int64())]))])
ROWS = pa.table({"id": [1, 2, 3], "p": [{"x": 1}, {"x": 2}, None]}, schema=ADDED_SCHEMA)


def twice_appended(path: Path, **properties: str) -> Table:
    table = Table.create(path / "t", schema=ADDED_SCHEMA, cluster_by=["id"], properties=properties)
    for _ in range(2):
        table.append(ROWS)
    return table


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_rows_that_are_there_have_null(mode: str, tmp_path: Path) -> None:
    properties = {} if mode == "none" else {"delta.columnMapping.mode": mode}
    table = twice_appended(tmp_path, **properties)
    plan = table.plan()
    assert table.add_columns(pa.schema([("d", pa.date32()), ("s", pa.string())])) == 3
    assert table.add_columns(pa.schema([("y", pa.string())]), into="P") == 4
    point = [{"x": 7, "y": "new"}]
    table.append(pa.table({"id": [9], "p": point, "d": [None], "s": ["a"]}).cast(_arrow(table)))
    table.commit(plan, execute(plan))
    found = table.snapshot()
    assert [field.name for field in found.schema.fields] == ["id", "p", "d", "s"]
    last = table.history(limit=4)[-2]
    assert json.loads(last["operationParameters"]["columns"])[0]["column"]["name"] == "p.y"
    if mode == "none":
        rows = DeltaTable(table.uri).to_pyarrow_table().sort_by("id").to_pylist()
        assert rows[-1] == {"id": 9, "p": {"x": 7, "y": "new"}, "d": None, "s": "a"}
        assert [row["s"] for row in rows] == [None] * 6 + ["a"]
        return
    ids = [field.metadata[FIELD_ID] for field in found.schema.fields]
    assert len({*ids}) == len(ids)
    assert found.metadata.configuration["delta.columnMapping.maxColumnId"] == "6"


def _arrow(table: Table) -> pa.Schema:
    del table
    point = pa.struct([("x", pa.int64()), ("y", pa.string())])
    return pa.schema([("id", pa.int64()), ("p", point), ("d", pa.date32()), ("s", pa.string())])


def test_every_problem_is_listed(tmp_path: Path) -> None:
    table = twice_appended(tmp_path)
    columns = StructType(
        (
            StructField("ID", PrimitiveType("long")),
            StructField("a", PrimitiveType("long"), nullable=False),
            StructField("b", PrimitiveType("timestamp_ntz")),
            StructField("B", PrimitiveType("long")),
            StructField("_change_type", PrimitiveType("string")),
        )
    )
    with pytest.raises(SchemaChangeError) as caught:
        table.add_columns(columns)
    assert [(one.kind, one.column) for one in caught.value.reasons] == [
        (Kind.COLUMN_EXISTS, "id"),
        (Kind.SCHEMA_IS_NOT_WRITABLE, "a"),
        (Kind.FEATURE_MISSING, "b"),
        (Kind.COLUMN_EXISTS, "b"),
        (Kind.COLUMN_NAME_RESERVED, "_change_type"),
    ]
    assert table.snapshot().version == 2


def test_a_struct_must_be_there(tmp_path: Path) -> None:
    table, more = twice_appended(tmp_path), pa.schema([("y", pa.int64())])
    for into, text in (("nope", "there is no column nope"), ("id", "id is no struct")):
        with pytest.raises(SchemaChangeError, match=text):
            table.add_columns(more, into=into)
    with pytest.raises(UsageError, match="nothing to add"):
        table.add_columns(pa.schema([]))
