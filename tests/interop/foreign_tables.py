"""Read every Delta table below a directory with liquidlog and with delta-rs, and compare.

python tests/interop/foreign_tables.py DIRECTORY [--rows 200000] [--verbose]

For tables of other projects' test suites; nothing of them is kept here. Compared are version,
protocol, schema, live paths with sizes and row counts, and the rows themselves where the data
reader takes the table. Exits with 1 if the two differ anywhere.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from liquidlog.data.reader import DataFile
from liquidlog.errors import LiquidlogError
from liquidlog.log.stores import open_store
from liquidlog.snapshot import Snapshot, decoded_paths, num_records
from liquidlog.spec.schema import schema_json
from liquidlog.table import Table


@dataclass(frozen=True)
class Reading:
    """What one implementation says of a table; `refusal` is why it says nothing."""

    facts: Mapping[str, Any]
    refusal: str | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=200_000, help="most rows to compare by value")
    parser.add_argument("--verbose", action="store_true", help="also list tables that agree")
    options = parser.parse_args()
    found: list[tuple[str, str, str]] = []
    for table in tables(options.directory):
        outcome, detail = compare(table, options.rows)
        name = str(table.relative_to(options.directory))
        found.append((outcome, name, detail))
        if options.verbose or outcome not in {"agree", "agree, rows too"}:
            sys.stdout.write(f"{outcome:18} {name}: {detail}\n")
    counts = Counter(outcome for outcome, _, _ in found)
    for outcome, number in sorted(counts.items()):
        sys.stdout.write(f"{number:5} {outcome}\n")
    return 1 if counts["differ"] or counts["rows differ"] or counts["crash"] else 0


def tables(directory: Path) -> Iterator[Path]:
    """Yield every directory with a log, and those without one that a test suite has on purpose."""
    for root, directories, _ in sorted(os.walk(directory)):
        if "_delta_log" in directories:
            yield Path(root)


def compare(table: Path, max_rows: int) -> tuple[str, str]:
    """Return (outcome, detail in words)."""
    try:
        ours = read_ours(table)
    except Exception as error:  # noqa: BLE001  this is what the script looks for
        return "crash", repr(error)[:300]
    theirs = read_theirs(table)
    if ours.refusal is not None:
        if theirs.refusal is not None:
            return "refused by both", f"{ours.refusal} | delta-rs: {theirs.refusal}"
        return "refused by us", ours.refusal
    if theirs.refusal is not None:
        return "refused by delta-rs", theirs.refusal
    different = [name for name in ours.facts if not same(name, ours.facts, theirs.facts)]
    if different:
        shown = (f"{n}: {ours.facts[n]!s:.300} != {theirs.facts[n]!s:.300}" for n in different)
        return "differ", "; ".join(shown)
    return compare_rows(table, max_rows)


def same(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether a fact is the same; a row count counts only where both know one."""
    if name != "files" or len(ours[name]) != len(theirs[name]):
        return bool(ours[name] == theirs[name])
    return all(
        a[:2] == b[:2] and (a[2] == b[2] or None in {a[2], b[2]})
        for a, b in zip(ours[name], theirs[name], strict=True)
    )


def read_ours(table: Path) -> Reading:
    try:
        snapshot = Table.open(str(table)).snapshot()
        records = num_records(snapshot.files)
    except LiquidlogError as error:
        return Reading({}, f"{error.code}: {error.message[:300]}")
    protocol = snapshot.protocol
    files = zip(
        decoded_paths(snapshot.files).to_pylist(),
        snapshot.files["size"].to_pylist(),
        records.to_pylist(),
        strict=True,
    )
    return Reading(
        {
            "version": snapshot.version,
            "protocol": (protocol.min_reader_version, protocol.min_writer_version),
            "features": features(protocol.reader_features, protocol.writer_features),
            "schema": canonical(schema_json(snapshot.schema)),
            "files": sorted(files, key=lambda file: file[:2]),
            "id": snapshot.metadata.id,
            "partitions": list(snapshot.metadata.partition_columns),
            "properties": dict(snapshot.metadata.configuration),
        }
    )


def read_theirs(table: Path) -> Reading:
    try:
        opened = DeltaTable(table)
        actions = pa.table(opened.get_add_actions(flatten=True))
        metadata, protocol = opened.metadata(), opened.protocol()
        schema = canonical(opened.schema().to_json())
    except BaseException as error:  # panics of Rust are no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return Reading({}, str(error)[:300].replace("\n", " "))
    files = zip(
        (unquote(path) for path in actions["path"].to_pylist()),
        actions["size_bytes"].to_pylist(),
        actions["num_records"].to_pylist(),
        strict=True,
    )
    return Reading(
        {
            "version": opened.version(),
            "protocol": (protocol.min_reader_version, protocol.min_writer_version),
            "features": features(protocol.reader_features, protocol.writer_features),
            "schema": schema,
            "files": sorted(files, key=lambda file: file[:2]),
            "id": metadata.id,
            "partitions": metadata.partition_columns,
            "properties": metadata.configuration,
        }
    )


def features(readers: Any, writers: Any) -> tuple[list[str], list[str]]:
    return sorted(readers or ()), sorted(writers or ())


def canonical(text: str) -> Any:
    """Return a schema as JSON values, with what is only a way of writing left out."""
    return json.loads(text)


def compare_rows(table: Path, max_rows: int) -> tuple[str, str]:
    snapshot = Table.open(str(table)).snapshot()
    reason = unread(snapshot)
    if reason is not None:
        return "agree", f"rows not compared: {reason}"
    store = open_store(str(table))
    try:
        parts = [
            DataFile.open(store.data_path(path), schema=snapshot.schema).read()
            for path in decoded_paths(snapshot.files).to_pylist()
        ]
    except LiquidlogError as error:
        return "agree", f"rows not compared: {error.message[:200]}"
    try:
        scanned = pa.RecordBatchReader.from_stream(DeltaTable(table).scan()).read_all()
    except BaseException as error:  # noqa: BLE001  see above
        return "agree", f"delta-rs cannot scan: {str(error)[:200]}"
    ours = pa.concat_tables(parts) if parts else scanned.schema.empty_table()
    if ours.num_rows != scanned.num_rows:
        return "rows differ", f"{ours.num_rows} rows != {scanned.num_rows}"
    if ours.num_rows > max_rows:
        return "agree", f"{ours.num_rows} rows counted, too many to compare"
    if rows(ours) != rows(scanned.select(ours.column_names)):
        first = next((a, b) for a, b in zip(rows(ours), rows(scanned), strict=True) if a != b)
        return "rows differ", f"{first[0]:.200} != {first[1]:.200}"
    return "agree, rows too", f"{ours.num_rows} rows"


def unread(snapshot: Snapshot) -> str | None:
    if snapshot.metadata.partition_columns:
        return "partitioned"
    if snapshot.files["deletion_vector"].null_count != snapshot.files.num_rows:
        return "deletion vectors"
    if snapshot.metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        return "column mapping"
    return None


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(list(row.values())) for row in table.to_pylist())


if __name__ == "__main__":
    sys.exit(main())
