"""Read every Delta table below a directory with liquidlog and with delta-rs, and compare.

python tests/interop/foreign_tables.py DIRECTORY [--rows 200000] [--versions 30] [--verbose]

For tables of other projects' test suites; nothing of them is kept here. Compared are, at the newest
version and at earlier ones, version, protocol, schema, properties, live paths with sizes and row
counts; the history; and the newest rows through our data reader. Exits with 1 if the two differ
anywhere but where this file says why.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from liquidlog.errors import LiquidlogError
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.snapshot import decoded_paths, num_records
from liquidlog.spec.schema import schema_json
from liquidlog.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script

from support.table_rows import live_rows

# Data files whose values we cannot take as they are; delta-rs reads them as if they were others.
REFUSED_FILES = {
    "in the Julian calendar": "files in the Julian calendar, refused by us (explained)",
    "the table's is timestamp[us, tz=UTC]": "timestamps without a zone, refused by us (explained)",
}

LOUD = {"CRASH", "DIFFER", "REFUSED BY US"}
QUIET = {"agree"}

HISTORY = ("operation", "operationParameters", "operationMetrics", "readVersion", "isBlindAppend")

Outcome: TypeAlias = tuple[str, str]
"""What came of a comparison, in words to count, and its detail."""


@dataclass(frozen=True)
class Reading:
    """What one implementation says of a table; `refusal` is why it says nothing."""

    facts: Mapping[str, Any]
    refusal: str | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=200_000, help="most rows to compare by value")
    parser.add_argument("--versions", type=int, default=30, help="most versions of a table")
    parser.add_argument("--verbose", action="store_true", help="also list tables that agree")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for table in tables(options.directory):
        name = str(table.relative_to(options.directory))
        for aspect, (outcome, detail) in compare(table, options):
            counts[f"{aspect}: {outcome}"] += 1
            if options.verbose or outcome not in QUIET:
                sys.stdout.write(f"{aspect}: {outcome}: {name}: {detail}\n")
    for line, number in sorted(counts.items()):
        sys.stdout.write(f"{number:5} {line}\n")
    return 1 if any(line.partition(": ")[2] in LOUD for line in counts) else 0


def tables(directory: Path) -> Iterator[Path]:
    """Yield every directory with a log, and those without one that a test suite has on purpose."""
    for root, directories, _ in sorted(os.walk(directory)):
        if "_delta_log" in directories:
            yield Path(root)


def compare(table: Path, options: argparse.Namespace) -> Iterator[tuple[str, Outcome]]:
    """Yield what was compared and what came of it."""
    newest, outcome = compare_version(table, None)
    yield "newest version", outcome
    if newest is None:
        return
    for version in range(newest - 1, max(newest - options.versions, -1), -1):
        yield "earlier version", compare_version(table, version)[1]
    yield "history", compare_history(table)
    yield "rows", compare_rows(table, options.rows)


def compare_version(table: Path, version: int | None) -> tuple[int | None, Outcome]:
    """Return the version that both read, None if one of them refuses, and the outcome."""
    try:
        ours = read_ours(table, version)
    except Exception as error:  # noqa: BLE001  this is what the script looks for
        return None, ("CRASH", repr(error)[:300])
    theirs = read_theirs(table, version)
    if ours.refusal is not None:
        if theirs.refusal is not None:
            return None, ("refused by both", f"{ours.refusal} | delta-rs: {theirs.refusal}")
        return None, ("REFUSED BY US", ours.refusal)
    if theirs.refusal is not None:
        return None, ("refused by delta-rs", theirs.refusal)
    different = [name for name in ours.facts if not same(name, ours.facts, theirs.facts)]
    if different:
        shown = (f"{n}: {ours.facts[n]!s:.300} != {theirs.facts[n]!s:.300}" for n in different)
        return None, ("DIFFER", "; ".join(shown))
    pairs = zip(ours.facts["files"], theirs.facts["files"], strict=True)
    counted = [(a[2] is not None, b[2] is not None) for a, b in pairs]
    if any(a != b for a, b in counted):
        only = "us" if any(a and not b for a, b in counted) else "delta-rs"
        return ours.facts["version"], (f"agree, some rows counted by {only} alone", "")
    return ours.facts["version"], ("agree", "")


def same(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether a fact is the same; a row count counts only where both know one."""
    if name != "files" or len(ours[name]) != len(theirs[name]):
        return bool(ours[name] == theirs[name])
    return all(
        a[:2] == b[:2] and (a[2] == b[2] or None in {a[2], b[2]})
        for a, b in zip(ours[name], theirs[name], strict=True)
    )


def read_ours(table: Path, version: int | None) -> Reading:
    try:
        snapshot = Table.open(str(table)).snapshot(version)
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


def read_theirs(table: Path, version: int | None) -> Reading:
    try:
        opened = DeltaTable(table, version=version)
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


def compare_history(table: Path) -> Outcome:
    theirs = {}
    try:
        ours = {row["version"]: row for row in Table.open(str(table)).history()}
        theirs = {row["version"]: row for row in DeltaTable(table).history()}
    except LiquidlogError as error:
        return "REFUSED BY US", error.message[:300]
    except BaseException as error:  # noqa: BLE001  panics of Rust are no Exception
        return "refused by delta-rs", str(error)[:300]
    if ours and max(ours) - min(ours) >= len(ours):
        return "not compared: delta-rs counts on across a gap", f"versions {sorted(ours)}"
    if not theirs.keys() <= ours.keys():
        return "DIFFER", f"versions {sorted(ours)} != {sorted(theirs)}"
    for version in sorted(theirs):
        for name in HISTORY:
            a, b = (shown(row[version].get(name)) or None for row in (ours, theirs))
            if a != b:
                return "DIFFER", f"version {version}, {name}: {a!r:.200} != {b!r:.200}"
    return "agree", f"{len(theirs)} commits"


def shown(value: Any) -> Any:
    """Return maps as maps of strings to strings, without what is null."""
    if not isinstance(value, dict):
        return value
    return {
        name: item if isinstance(item, str) else json.dumps(item, separators=(",", ":"))
        for name, item in value.items()
        if item is not None
    }


def compare_rows(table: Path, max_rows: int) -> Outcome:
    store = open_store(str(table))
    ours, refusal = None, ""
    try:
        ours = live_rows(store, load_snapshot(store))
    except LiquidlogError as error:
        refusal = error.message
    except Exception as error:  # noqa: BLE001  this is what the script looks for
        return "CRASH", repr(error)[:300]
    try:
        scanned = pa.RecordBatchReader.from_stream(DeltaTable(table).scan()).read_all()
    except BaseException as error:  # noqa: BLE001  see above
        outcome = "refused by both" if ours is None else "refused by delta-rs"
        return outcome, str(error)[:200].replace("\n", " ")
    if ours is None:
        known = (outcome for words, outcome in REFUSED_FILES.items() if words in refusal)
        return next(known, "REFUSED BY US"), refusal[:300]
    if ours.num_rows != scanned.num_rows:
        return "DIFFER", f"{ours.num_rows} rows != {scanned.num_rows}"
    if ours.num_rows > max_rows:
        return "counted only", f"{ours.num_rows} rows"
    pairs = list(zip(rows(ours), rows(scanned.select(ours.column_names)), strict=True))
    if any(a != b for a, b in pairs):
        first = next((a, b) for a, b in pairs if a != b)
        return "DIFFER", f"{first[0]:.200} != {first[1]:.200}"
    return "agree", f"{ours.num_rows} rows"


def rows(table: pa.Table) -> list[str]:
    """Return the rows as sorted texts, without the names of fields, which may be physical."""
    columns = [column.to_pylist() for column in table.columns]
    return sorted(repr([values_only(v) for v in row]) for row in zip(*columns, strict=True))


def values_only(value: Any) -> Any:
    if isinstance(value, dict):
        # The two parts of a variant may come in either order.
        names = sorted(value) if value.keys() == {"metadata", "value"} else list(value)
        return [values_only(value[name]) for name in names]
    if isinstance(value, list | tuple):
        return [values_only(item) for item in value]
    return value


if __name__ == "__main__":
    sys.exit(main())
