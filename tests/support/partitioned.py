"""Small partitioned tables, written by delta-rs, and their rows as it reads them."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from liquidlog.table import Table

ROWS = 4
TEXTS = ("a", "b/c d", None, "ü=%41")


def partitioned_table(
    path: Path,
    *,
    files: Mapping[str | None, int] | None = None,
    configuration: Mapping[str, str | None] | None = None,
) -> Table:
    """A table partitioned by `p` and `n`, with so many files of ROWS rows for each text of `p`.

    Every row has another `id`; `n` is 1 where `p` is a text and null where it is null.
    """
    first = 0
    for text, count in (dict.fromkeys(TEXTS, 3) if files is None else files).items():
        for _ in range(count):
            write_deltalake(
                str(path),
                rows_of(text, range(first, first + ROWS)),
                partition_by=["p", "n"],
                mode="append",
                configuration=dict(configuration or {}) if first == 0 else None,
            )
            first += ROWS
    return Table.open(str(path))


def rows_of(text: str | None, ids: range) -> pa.Table:
    """Rows of one partition, with these ids."""
    columns = {
        "id": pa.array(ids, pa.int64()),
        "p": pa.array([text] * len(ids), pa.string()),
        "n": pa.array([None if text is None else 1] * len(ids), pa.int32()),
        "v": pa.array([f"v{number % 3}" for number in ids]),
    }
    return pa.table(columns)


def rows_read(path: Path) -> Counter[str]:
    """The rows of a table as delta-rs reads them, partition values from the log."""
    rows = DeltaTable(str(path)).to_pyarrow_table()
    return Counter(map(repr, rows.select(sorted(rows.column_names)).to_pylist()))


def live_adds(path: Path) -> dict[str, dict[str, Any]]:
    """The adds of the live files, by their paths in the log; there must be no checkpoint."""
    adds: dict[str, dict[str, Any]] = {}
    for commit in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                adds.pop(action["remove"]["path"], None)
        adds |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    return adds


def map_columns(path: Path) -> None:
    """Give the columns of a table new names, under which only the log knows them."""
    first = path / "_delta_log" / f"{0:020d}.json"
    lines = []
    for line in first.read_text().splitlines():
        action = json.loads(line)
        if "metaData" in action:
            _map(action["metaData"])
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        lines.append(json.dumps(action))
    first.write_text("\n".join(lines) + "\n")


def _map(metadata: dict[str, Any]) -> None:
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], start=1):
        names = {"delta.columnMapping.physicalName": field["name"]}
        field["metadata"] = {"delta.columnMapping.id": number, **names}
        field["name"] = f"the {field['name']}"
    metadata["schemaString"] = json.dumps(schema)
    metadata["partitionColumns"] = [f"the {name}" for name in metadata["partitionColumns"]]
    metadata["configuration"] = {
        **metadata["configuration"],
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
    }
