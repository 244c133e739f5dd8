"""Renames, dropped columns and properties in the recorded logs, made again from before."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from liquidlog.definition.schema_changes import (
    drop_change,
    plan_rename,
    plan_retagging,
    properties_change,
    rename_change,
    retagged,
)
from liquidlog.errors import LiquidlogError, SchemaChangeError
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.log.loader import (
    list_recent_log,
    load_snapshot,
    open_store,
    original_adds,
    read_commit,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change, Commit, Metadata, Protocol, encode_actions
from liquidlog.spec.features import table_features
from liquidlog.spec.schema import parse_schema, split_path
from liquidlog.storage.files import TableStore
from support.repository import ROOT

LOGS = ROOT / "fixtures" / "logs"
REFUSED = {
    "15_row_tracking_backfill-6": (Kind.PROPERTY_IS_FIXED, "delta.enableRowTracking"),
    "16_in_commit_timestamps_enabled_later-2": (
        Kind.PROPERTY_IS_FIXED,
        "delta.enableInCommitTimestamps",
    ),
    "33_enabled_ict-6": (Kind.PROPERTY_IS_FIXED, "delta.enableInCommitTimestamps"),
    "33_enabled_row_tracking-8": (Kind.PROPERTY_IS_FIXED, "delta.enableRowTracking"),
    "33_enabled_row_tracking_supported-6": (Kind.PROPERTY_IS_FIXED, "delta.feature.rowtracking"),
}
"""Changes for which more than metadata is due, and why not."""


def _recorded(operations: set[str]) -> Iterator[Any]:
    for directory in sorted(LOGS.glob("*/table")):
        store = open_store(str(directory))
        name = directory.parent.name
        try:
            newest = list_recent_log(store).newest
        except LiquidlogError:
            continue
        for version in range(1, newest + 1):
            try:
                commit = read_commit(store, version)
            except LiquidlogError:
                continue
            if commit.info.operation in operations:
                yield pytest.param(store, commit, f"{name}-{version}", id=f"{name}-{version}")


SCHEMA_CHANGES = list(_recorded({"RENAME COLUMN", "DROP COLUMNS"}))
PROPERTY_CHANGES = list(_recorded({"SET TBLPROPERTIES"}))


def _change(snapshot: Snapshot, operation: str, parameters: Mapping[str, str]) -> Change | None:
    if operation == "DROP COLUMNS":
        (name,) = json.loads(parameters["columns"])
        return drop_change(snapshot, split_path(name))
    if operation == "SET TBLPROPERTIES":
        return properties_change(snapshot, json.loads(parameters["properties"]), ())
    old, new = (split_path(parameters[key]) for key in ("oldColumnPath", "newColumnPath"))
    return rename_change(snapshot, plan_rename(snapshot, old, new[-1]), ())


def _facts(actions: Any) -> dict[str, Any]:
    metadata = next(action for action in actions if isinstance(action, Metadata))
    protocols = [action for action in actions if isinstance(action, Protocol)]
    return {
        "id": metadata.id,
        "created": metadata.created_time,
        "schema": parse_schema(metadata.schema_string, where="test"),
        "metadata of fields": metadata.schema_string,
        "partitions": metadata.partition_columns,
        "configuration": dict(metadata.configuration),
        "versions": [(p.min_reader_version, p.min_writer_version) for p in protocols],
    }


def _features(actions: Any) -> set[str]:
    protocols = [action for action in actions if isinstance(action, Protocol)]
    return {name for p in protocols for name in table_features(p)}


def test_there_are_recordings_of_every_kind() -> None:
    operations = {param.values[1].info.operation for param in (*SCHEMA_CHANGES, *PROPERTY_CHANGES)}
    assert operations == {"RENAME COLUMN", "DROP COLUMNS", "SET TBLPROPERTIES"}
    assert REFUSED.keys() < {param.values[2] for param in PROPERTY_CHANGES}


@pytest.mark.parametrize(("store", "commit", "name"), [*SCHEMA_CHANGES, *PROPERTY_CHANGES])
def test_change_has_the_metadata_and_protocol_of_the_engines(
    store: TableStore, commit: Commit, name: str
) -> None:
    before = load_snapshot(store, commit.version - 1)
    parameters = commit.info.operation_parameters or {}
    operation = commit.info.operation or ""
    if name in REFUSED:
        with pytest.raises(SchemaChangeError) as caught:
            _change(before, operation, parameters)
        assert REFUSED[name] in [(each.kind, each.property) for each in caught.value.reasons]
        return
    change = _change(before, operation, parameters)
    assert change is not None
    assert change.operation == operation
    assert _facts(change.actions) == _facts(commit.actions)
    assert _features(change.actions) == _features(commit.actions)
    if operation != "SET TBLPROPERTIES":
        assert change.parameters == parameters


@pytest.mark.parametrize(("store", "commit", "name"), SCHEMA_CHANGES)
def test_files_tagged_anew_differ_from_the_log_in_one_name_only(
    store: TableStore, commit: Commit, name: str
) -> None:
    if commit.info.operation != "RENAME COLUMN":
        return
    before = load_snapshot(store, commit.version - 1)
    parameters = commit.info.operation_parameters or {}
    old, new = (split_path(parameters[key]) for key in ("oldColumnPath", "newColumnPath"))
    retagging = plan_retagging(before, plan_rename(before, old, new[-1]))
    originals = original_adds(store, before, retagging.files)
    lines = encode_actions(retagged(retagging, originals)).splitlines()
    logged = {
        add["path"]: add
        for log in sorted((LOGS / name.rpartition("-")[0] / "table" / "_delta_log").glob("*.json"))
        if int(log.stem) < commit.version
        for line in log.read_text().splitlines()
        if (add := json.loads(line).get("add")) is not None
    }
    tagged = [
        path
        for path, tag in zip(
            before.files["path"].to_pylist(), before.files["zorder_by"].to_pylist(), strict=True
        )
        if tag is not None and old in {split_path(name)[: len(old)] for name in json.loads(tag)}
    ]
    assert sorted(json.loads(line)["add"]["path"] for line in lines) == sorted(tagged)
    for line in lines:
        add = json.loads(line)["add"]
        was = logged[add["path"]]
        assert add["dataChange"] is False
        names = [split_path(n) for n in json.loads(was["tags"]["ZCUBE_ZORDER_BY"])]
        expected = [(*new, *n[len(old) :]) if n[: len(old)] == old else n for n in names]
        assert [split_path(n) for n in json.loads(add["tags"]["ZCUBE_ZORDER_BY"])] == expected
        same = ("dataChange", "tags")
        assert {k: v for k, v in add.items() if k not in same} == {
            k: v for k, v in was.items() if k not in same
        }
        assert add["tags"]["ZCUBE_ID"] == was["tags"]["ZCUBE_ID"]
