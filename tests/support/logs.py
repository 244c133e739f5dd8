"""The log of a table on local disk, read and written by hand as an engine that is not ours does."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from liquidlog.table import Table

Action = dict[str, Any]


def added(path: str, size_bytes: int, **more: Any) -> Action:
    """Return the add of a file with new rows that is in no partition; `more` wins."""
    add = {"path": path, "partitionValues": {}, "size": size_bytes, "modificationTime": 1}
    return {"add": {**add, "dataChange": True, **more}}


def metadata_of(schema_json: str, **more: Any) -> Action:
    """Return the metadata of a table without partitions and properties; `more` wins."""
    form = {"provider": "parquet", "options": {}}
    metadata = {"id": "x", "format": form, "partitionColumns": [], "configuration": {}}
    return {"metaData": {**metadata, "schemaString": schema_json, **more}}


def log_path(table: Table | Path | str, version: int) -> Path:
    root = table.uri if isinstance(table, Table) else table
    return Path(root, "_delta_log", f"{version:020d}.json")


def actions_of(table: Table | Path | str, version: int | None = None) -> list[Action]:
    """Return the actions of a version, or of all commits, oldest first."""
    logs = log_path(table, 0).parent.glob("*.json")
    paths = sorted(logs) if version is None else [log_path(table, version)]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def write_actions(table: Table | Path | str, version: int, *actions: Mapping[str, Any]) -> None:
    log_path(table, version).write_text("".join(json.dumps(one) + "\n" for one in actions))


def commit_actions(table: Table | Path | str, *actions: Mapping[str, Any]) -> int:
    """Commit actions at the next version and return it."""
    logs = log_path(table, 0).parent.glob("*.json")
    version = max(int(path.name.partition(".")[0]) for path in logs) + 1
    info = {"timestamp": 0, "operation": "BY HAND", "operationParameters": {}}
    write_actions(table, version, {"commitInfo": info}, *actions)
    return version


def change_actions(
    table: Table | Path | str, version: int, change: Callable[[Action], object]
) -> None:
    """Write a version anew, each action changed in place."""
    actions = actions_of(table, version)
    for action in actions:
        change(action)
    write_actions(table, version, *actions)


def live_adds(table: Table | Path | str) -> dict[str, Action]:
    """Return the adds of the live files by their paths in the log; there must be no checkpoint."""
    adds: dict[str, Action] = {}
    for path in sorted(log_path(table, 0).parent.glob("*.json")):
        actions = actions_of(table, int(path.stem))
        for action in actions:
            if "remove" in action:
                adds.pop(action["remove"]["path"], None)
        adds |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    return adds
