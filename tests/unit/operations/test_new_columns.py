"""Columns that came after a plan: committed if no input has them, refused if one has."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.data.evidence import columns_held
from liquidlog.errors import CommitConflictError, DataFileError, ExecutorError
from liquidlog.operations.rewrite import CommitReport
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.spec.schema import StructType
from liquidlog.table import Table
from support.arrow_executor import execute

IN_STRUCT = pa.struct([("a", pa.int64()), ("gone", pa.int64())])


def rows(first: int) -> pa.Table:
    ids = list(range(first, first + 5))
    points = pa.array([{"a": n, "gone": -n} for n in ids], IN_STRUCT)
    return pa.table({"id": ids, "st": points, "gone": [10 * n for n in ids]})


def with_leftovers(path: Path) -> tuple[Table, dict[str, str]]:
    """Return a table whose files have two more columns than its schema, and their names there."""
    mapped = {"delta.columnMapping.mode": "name"}
    table = Table.create(str(path), schema=rows(0).schema, cluster_by=["id"], properties=mapped)
    table.append(rows(0))
    table.append(rows(5))
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


def test_inputs_are_asked_once_however_often_a_race_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import liquidlog.operations.outputs as module

    table, _ = with_leftovers(tmp_path)
    plan, result = planned(table)
    add(tmp_path, field("new", 50))
    asked: list[str] = []

    def counted(address: str, *words: Any, **options: Any) -> Any:
        asked.append(address)
        return columns_held(address, *words, **options)

    monkeypatch.setattr(module, "columns_held", counted)
    store: Any = type(table.opened.store)
    put = store.put_log_if_absent

    def lose(*words: Any) -> bool:
        monkeypatch.setattr(store, "put_log_if_absent", put)
        Table.open(str(tmp_path)).set_properties({"team": "we"})
        return bool(put(*words))

    monkeypatch.setattr(store, "put_log_if_absent", lose)
    assert table.commit(plan, result).versions == (7,)
    assert len(asked) == len(plan.groups[0].inputs)


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
