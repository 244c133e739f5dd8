"""Columns renamed and dropped, properties set: on real tables, read by delta-rs and DuckDB."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.commit import OpenedTable
from liquidlog.data.writer import columns_held
from liquidlog.errors import CommitConflictError, DataFileError, SchemaChangeError, UsageError
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.spec.schema import FIELD_ID, PrimitiveType, StructField, StructType
from liquidlog.storage.files import LocalTableStore
from liquidlog.table import Table, as_table, system_clock
from support.arrow_executor import execute
from support.logs import actions_of
from support.races import RacedStore

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


CHANGES: list[Callable[[Table], Any]] = [
    lambda table: table.cluster_by(["id"]),
    lambda table: table.rename_column("s", "t"),
    lambda table: table.drop_column("p.y"),
    lambda table: table.set_properties({"mine": "1"}),
]
"""Of which each conflicts with the others, and outlasts what becomes of files."""


def raced(path: Path, *others: Callable[[Table], Any]) -> Table:
    """Return a table that each of these changes before one of our puts."""
    table = made(path)
    landing: list[Callable[[], Any]] = [partial(other, table) for other in others]
    store = RacedStore(LocalTableStore(Path(table.uri)), landing=landing)
    return as_table(OpenedTable(store, system_clock()))


@pytest.mark.parametrize("change", range(len(CHANGES)))
def test_a_change_lands_on_rewrites_and_appends_not_on_changes(tmp_path: Path, change: int) -> None:
    for number, other in enumerate(CHANGES[:change]):
        table = raced(tmp_path / str(number), other)
        with pytest.raises(CommitConflictError):
            CHANGES[change](table)
        assert table.snapshot().version == 6
    table = raced(tmp_path, lambda table: table.append(rows(400)), rewrite)
    CHANGES[change](table)
    assert table.snapshot().version == 8
    assert len(scanned(table)) == 200
    if change == 1:
        assert tags(table) == {'["p.x","t"]'}


def test_an_append_lands_on_other_clustering_and_on_no_other_column(tmp_path: Path) -> None:
    table = raced(tmp_path / "a", CHANGES[0])
    assert table.append(rows(500)).version == 7
    table = raced(tmp_path / "b", CHANGES[1])
    with pytest.raises(CommitConflictError):
        table.append(rows(500))
    added = {action["add"]["path"] for action in actions_of(table) if "add" in action}
    assert {path.name for path in Path(table.uri).glob("*.parquet")} == added


def rewrite(table: Table) -> None:
    plan = table.plan(full=True, max_file_size=2000)
    table.commit(plan, execute(plan))


def test_a_dry_run_and_the_same_name_write_nothing(tmp_path: Path) -> None:
    table = empty(tmp_path)
    assert table.rename_column("s", "t", dry_run=True) == 1
    assert table.rename_column("s", "s") == 0
    assert table.drop_column("id", dry_run=True) == 1
    assert table.set_properties({"a": "b"}, dry_run=True) == 1
    assert table.set_properties({}, unset=["never.was"]) == 0
    assert table.snapshot().version == 0


@pytest.mark.parametrize(
    ("old", "new", "kind", "column"),
    [
        ("s", "ID", Kind.COLUMN_EXISTS, "id"),
        ("p.x", "Y", Kind.COLUMN_EXISTS, "p.y"),
        ("nope", "n", Kind.COLUMN_UNKNOWN, "nope"),
        ("id", "_change_type", Kind.COLUMN_NAME_RESERVED, "_change_type"),
    ],
)
def test_renames_are_refused(tmp_path: Path, old: str, new: str, kind: Kind, column: str) -> None:
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
    rewrite(table)
    assert scanned(table) == [
        {"id": row["id"], "p": {"x": row["p"]["x"]}, "t": row["s"]} for row in before
    ]


def test_names_in_properties_follow_or_hold(tmp_path: Path) -> None:
    table = empty(tmp_path, **{"delta.dataSkippingStatsColumns": "ID,p.`x`, S"})

    def named() -> str | None:
        return table.snapshot().metadata.configuration["delta.dataSkippingStatsColumns"]

    table.rename_column("p.x", "`x.1`")
    assert named() == "ID,p.`x.1`,S"
    table.rename_column("s", "word")
    table.drop_column("id")
    assert named() == "p.`x.1`,word"


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
        ({"delta.minReaderVersion": "4"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.feature.deletionVectors": "yes"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.feature.rowTracking": "supported"}, [], Kind.PROPERTY_IS_FIXED, None),
        ({}, ["delta.feature.deletionVectors"], Kind.PROPERTY_IS_FIXED, None),
        ({"delta.constraints.c": "id > 5"}, [], Kind.PROPERTY_IS_FIXED, None),
        ({"delta.logRetentionDuratoin": "1 day"}, [], Kind.PROPERTY_UNKNOWN, None),
        ({"delta.logRetentionDuration": "interval 1 month"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.appendOnly": "yes"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.checkpointInterval": "0"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.parquet.compression.codec": "lzo"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.dataSkippingStatsColumns": "id,`p"}, [], Kind.PROPERTY_VALUE, None),
        ({"delta.columnMapping.mode": "none"}, [], Kind.COLUMN_MAPPING_IS_FIXED, None),
        ({}, ["delta.columnMapping.mode"], Kind.COLUMN_MAPPING_IS_FIXED, None),
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
        ((1, 2), {"delta.enableChangeDataFeed": "true"}, (1, 7), {"changeDataFeed"}),
        ((1, 2), {"delta.feature.timestampntz": "supported"}, (3, 7), {"timestampNtz"}),
        ((1, 1), {"delta.feature.appendOnly": "enabled"}, (1, 7), {"appendOnly"}),
        ((1, 2), {"delta.minWriterVersion": "3"}, (1, 3), {"checkConstraints"}),
        ((2, 5), {"delta.minReaderVersion": "1", "delta.minWriterVersion": "2"}, (2, 5), set()),
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
    DeltaTable(table.uri)


def test_several_columns_are_dropped_in_one_commit_or_none(tmp_path: Path) -> None:
    table = empty(tmp_path)
    with pytest.raises(SchemaChangeError) as caught:
        table.drop_column("id", "s", "p.y")  # s and p.x are clustering columns
    assert said(caught.value) == {(Kind.COLUMN_IS_CLUSTERED_BY, "s")}
    with pytest.raises(SchemaChangeError) as caught:
        table.drop_column("id", "nope")
    assert {kind for kind, _ in said(caught.value)} == {Kind.COLUMN_UNKNOWN}
    assert table.drop_column("nope", if_exists=True) == 0
    assert table.drop_column("id", "p.y", "nope", if_exists=True) == 1
    assert table.history(1)[0]["operationParameters"]["columns"] == '["id","p.y"]'
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


@pytest.mark.parametrize(
    ("column", "spelled", "inside"),
    [("gone", str.lower, None), ("gone", str.upper, None), ("st.gone", str, "st")],
)
def test_a_column_that_inputs_have_is_not_lost(
    tmp_path: Path, column: str, spelled: Callable[[str], str], inside: str | None
) -> None:
    table, names = with_leftovers(tmp_path)
    plan, result = planned(table)
    add(tmp_path, field("back", 50, spelled(names[column])), inside=inside)
    inputs = sorted(file.path for file in plan.groups[0].inputs)
    with pytest.raises(
        CommitConflictError, match=r"back, which the table did not have"
    ) as conflict:
        table.commit(plan, result)
    assert all(path in str(conflict.value) for path in inputs)
    assert sorted(table.snapshot().files["path"].to_pylist()) == inputs


def test_columns_that_no_input_has_are_null_in_what_was_rewritten(tmp_path: Path) -> None:
    table, _ = with_leftovers(tmp_path)
    plan, result = planned(table)
    kind = {"type": "struct", "fields": [field("gone", 51)]}
    add(tmp_path, field("new", 50, kind=kind))
    add(tmp_path, field("go", 52), inside="st")
    before = scanned(table)
    report = table.commit(plan, result, dry_run=True)
    assert report.committed_groups == (0,)
    assert table.commit(plan, result).committed_groups == (0,)
    assert scanned(table) == before
    assert before[3] == {"id": 3, "st": {"a": 3, "go": None}, "new": None}


def test_an_input_that_cannot_be_read_proves_nothing_and_outputs_stay(tmp_path: Path) -> None:
    table, _ = with_leftovers(tmp_path)
    plan, result = planned(table)
    add(tmp_path, field("new", 50))
    lost = plan.groups[0].inputs[0].path
    (tmp_path / lost).write_bytes(b"no longer Parquet")
    report = table.commit_each(plan, result.groups)
    assert not report.conflicts
    (failure,) = report.failures
    assert "it is not known whether the inputs have the new columns new" in failure
    assert lost in failure
    assert all((tmp_path / file.path).exists() for file in result.groups[0].outputs)


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


def twice_appended(path: Path, mode: str = "none") -> Table:
    properties = {"delta.columnMapping.mode": mode}
    table = Table.create(path / "t", schema=ADDED_SCHEMA, cluster_by=["id"], properties=properties)
    for _ in range(2):
        table.append(ROWS)
    return table


@pytest.mark.parametrize("mode", ["none", "name"])
def test_rows_that_are_there_have_null(mode: str, tmp_path: Path) -> None:
    table = twice_appended(tmp_path, mode)
    plan = table.plan()
    assert table.add_columns(pa.schema([("d", pa.date32()), ("s", pa.string())])) == 3
    assert table.add_columns(pa.schema([("y", pa.string())]), into="P") == 4
    columns = table.history(limit=1)[0]["operationParameters"]["columns"]
    assert json.loads(columns)[0]["column"]["name"] == "p.y"
    new = {"id": 9, "p": {"x": 7, "y": "new"}, "d": None, "s": "a"}
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("p", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("d", pa.date32()),
            ("s", pa.string()),
        ]
    )
    table.append(pa.Table.from_pylist([new], schema=schema))
    table.commit(plan, execute(plan))
    found = scanned(table)
    assert found[-1] == new
    assert [row["s"] for row in found] == [None] * 6 + ["a"]
    if mode == "name":
        ids = [field.metadata[FIELD_ID] for field in table.snapshot().schema.fields]
        assert len({*ids}) == len(ids)
        properties = table.snapshot().metadata.configuration
        assert properties["delta.columnMapping.maxColumnId"] == "6"


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
