"""docs/mistakes.md: what typical mistakes are answered with.

`make mistakes` writes the document anew; a meta test compares it with what is said.
"""

import gzip
import json
import os
import re
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.errors import LiquidlogError
from liquidlog.plan import encode_plan, encode_rewritten_group
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said
from support.mistake_cases import CASES, PYTHON
from support.repository import ROOT

DOCUMENT: Final = ROOT / "docs" / "mistakes.md"

_HEAD: Final = """\
# Mistakes and their messages

Every message is one sentence that says where something is wrong, what was expected, what was found
and what to do. The commands run in a directory with the tables `orders` (clustered by `day,
customer`), `events` (no clustering columns), `sensors` (clustered by `at`) and `parts`
(partitioned), and a few files. `make mistakes` writes this page, and a test compares it with what
the commands print. With `--json`, the same message is a document with its code and facts.
"""

_IDS: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIMES: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


def document() -> str:
    """Return the whole document, made of what every command says now."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place).resolve()
        prepare(home)
        with chdir(home):
            parts = [_HEAD, *_commands(home), *_calls(home)]
    return "\n".join(parts)


def prepare(home: Path) -> None:
    """Make the tables and files that the mistakes are about."""
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


def _commands(home: Path) -> Iterator[str]:
    for heading, cases in CASES.items():
        yield f"## {heading}\n"
        for title, line in cases:
            status, out, err = said(*shlex.split(line))
            shown = _normal(err or out, home)
            said_here = f"$ liquidlog {line}\n{shown}\n[exit status {status}]"
            yield f"{title}\n\n```console\n{said_here}\n```\n"


def _calls(home: Path) -> Iterator[str]:
    yield "## From Python\n"
    table = Table.open(home / "orders")
    names = {
        "Table": Table,
        "pa": pa,
        "table": table,
        "plan": table.plan(),
        "events": Table.open(home / "events"),
        "WeightedPredicate": WeightedPredicate,
    }
    for title, code in PYTHON:
        yield f"{title}\n\n```pycon\n>>> {code}\n{_normal(_raised(code, names), home)}\n```\n"


def _raised(code: str, names: dict[str, Any]) -> str:
    try:
        eval(code, names)  # noqa: S307  our own examples
    except LiquidlogError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing is wrong"


def _normal(text: str, home: Path) -> str:
    text = text.strip().replace(str(home), "/data")
    return _TIMES.sub("<time>", _IDS.sub("<id>", text))


def main(arguments: Sequence[str] = ()) -> None:
    """Write the document, or print it."""
    if "--print" in arguments:
        sys.stdout.write(document())
    else:
        DOCUMENT.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    main(sys.argv[1:])
