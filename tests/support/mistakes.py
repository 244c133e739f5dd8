"""The tables and files that docs/mistakes.md is about."""

import gzip
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.plan import encode_plan, encode_rewritten_group
from liquidlog.table import Table
from support.arrow_executor import execute


def prepare(home: Path) -> None:
    """Make them in an empty directory."""
    rows = pa.table(
        {
            "order_id": list(range(40)),
            "customer": [f"c{number % 7}" for number in range(40)],
            "day": pa.array([19_700 + number // 4 for number in range(40)], pa.date32()),
            "amount": [number * 1.5 for number in range(40)],
            "lines": [[{"sku": "a", "count": 1}]] * 40,
            "ship": [{"city": "Rome", "zip": 1}] * 40,
            "notes": [[("a", "b")]] * 40,
        },
        schema=_ORDERS,
    )
    pq.write_table(rows, home / "orders.parquet")
    pq.write_table(rows.drop_columns(["amount"]), home / "no_amount.parquet")
    pq.write_table(rows.rename_columns(_RENAMED), home / "other_names.parquet")
    orders = Table.create(home / "orders", schema=_ORDERS, cluster_by=["day", "customer"])
    for _ in range(3):
        orders.append(rows)
    events = Table.create(
        home / "events",
        schema=pa.schema([("at", pa.timestamp("us", "UTC")), ("kind", pa.string())]),
        properties={"delta.columnMapping.mode": "name"},
    )
    events.append(pa.table({"at": [0, 1], "kind": ["a", "b"]}, schema=events_schema()))
    Table.create(home / "sensors", schema=pa.schema([("at", pa.int64())]), cluster_by="at")
    _partitioned(home / "parts")
    _unsupported(home / "shared")
    _documents(home, orders, events)
    (home / "lake").mkdir()
    for number in range(2):
        pq.write_table(rows, home / "lake" / f"part-{number}.parquet")
    (home / "empty").mkdir()
    (home / "empty.parquet").touch()
    (home / "notes.txt").write_text("buy milk\n", encoding="utf-8")
    (home / "config.json").write_text('{"my": "only copy"}', encoding="utf-8")
    with gzip.open(home / "orders.csv.gz", "wb") as file:
        file.write(b"order_id,customer\n1,a\n")
    with zipfile.ZipFile(home / "archive.zip", "w") as archive:
        archive.writestr("a", "b")
    broken = home / "orders.parquet.part"
    broken.write_bytes((home / "orders.parquet").read_bytes()[:-9])


_ORDERS: Final = pa.schema(
    [
        ("order_id", pa.int64()),
        ("customer", pa.string()),
        ("day", pa.date32()),
        ("amount", pa.float64()),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))),
        ("ship", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("notes", pa.map_(pa.string(), pa.string())),
    ]
)
_RENAMED: Final = ["id", "customer", "day", "amount", "lines", "ship", "notes"]


def events_schema() -> pa.Schema:
    """Return the schema of the table without clustering columns."""
    return pa.schema([("at", pa.timestamp("us", "UTC")), ("kind", pa.string())])


def _partitioned(path: Path) -> None:
    _commit(path, {"partitionColumns": ["region"]}, {"minReaderVersion": 1, "minWriterVersion": 2})


def _unsupported(path: Path) -> None:
    features = ["catalogManaged", "inCommitTimestamp"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol_lists = {"readerFeatures": features[:1], "writerFeatures": features}
    _commit(path, {"partitionColumns": []}, {**protocol, **protocol_lists})


def _commit(path: Path, metadata: Mapping[str, Any], protocol: Mapping[str, Any]) -> None:
    fields: list[dict[str, Any]] = [
        {"name": n, "type": "string", "nullable": True, "metadata": {}} for n in _PARTS
    ]
    actions = [
        {"protocol": protocol},
        {
            "metaData": {
                "id": "parts",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "configuration": {},
                "createdTime": 0,
                **metadata,
            }
        },
        {"commitInfo": {"timestamp": 0, "operation": "CREATE TABLE", "operationParameters": {}}},
    ]
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")


_PARTS: Final = ("region", "name")


def _documents(home: Path, orders: Table, events: Table) -> None:
    plan = orders.plan()
    (home / "plan.json").write_bytes(encode_plan(plan))
    (home / "events.json").write_bytes(encode_plan(events.plan()))
    (home / "later.json").write_bytes(
        encode_plan(plan).replace(b'"format_version": 1', b'"format_version": 9')
    )
    (home / "result.jsonl").write_bytes(
        b"".join(encode_rewritten_group(group) for group in execute(plan).groups)
    )
    (home / "queries.jsonl").write_text('{"where": "day > "}\n', encoding="utf-8")
    (home / "queries.sql").write_text("DROP TABLE orders;\n", encoding="utf-8")
    (home / "none.sql").write_text("-- nothing yet\n", encoding="utf-8")
