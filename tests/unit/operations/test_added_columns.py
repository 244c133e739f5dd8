"""Columns added: rows that are there have null in them, for us and for delta-rs."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.errors import SchemaChangeError, UsageError
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.spec.schema import FIELD_ID, PrimitiveType, StructField, StructType
from liquidlog.table import Table
from support.arrow_executor import execute

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.struct([("x", pa.int64())]))])
ROWS = pa.table({"id": [1, 2, 3], "p": [{"x": 1}, {"x": 2}, None]}, schema=SCHEMA)


def made(path: Path, **properties: str) -> Table:
    table = Table.create(path / "t", schema=SCHEMA, cluster_by=["id"], properties=properties)
    for _ in range(2):
        table.append(ROWS)
    return table


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_rows_that_are_there_have_null(mode: str, tmp_path: Path) -> None:
    properties = {} if mode == "none" else {"delta.columnMapping.mode": mode}
    table = made(tmp_path, **properties)
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
    table = made(tmp_path)
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
    table, more = made(tmp_path), pa.schema([("y", pa.int64())])
    for into, text in (("nope", "there is no column nope"), ("id", "id is no struct")):
        with pytest.raises(SchemaChangeError, match=text):
            table.add_columns(more, into=into)
    with pytest.raises(UsageError, match="nothing to add"):
        table.add_columns(pa.schema([]))


def test_a_dry_run_adds_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert table.add_columns(pa.schema([("y", pa.int64())]), dry_run=True) == 3
    assert table.snapshot().version == 2
