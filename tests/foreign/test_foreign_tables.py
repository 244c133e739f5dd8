"""Tables of other projects' test suites, read by us, by delta-rs, and as their own tests expect.

LIQUID_FOREIGN_TABLES names a directory with such tables anywhere below it, for example checkouts of
delta-io/delta, delta-kernel-rs and delta-rs with their archives unpacked; nothing of them is kept
here. Of each table, the newest version and earlier ones are compared: schema, protocol, properties,
live files, history, and the newest rows. No verb may end in a traceback.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from msgspec import structs

from liquidlog.errors import LiquidlogError
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.snapshot import Snapshot, decoded_paths, num_records
from liquidlog.spec.schema import schema_json
from liquidlog.table import Table
from support.commands import said
from support.table_rows import live_rows

T = TypeVar("T")

DIRECTORY = os.environ.get("LIQUID_FOREIGN_TABLES", "")
MOST_VERSIONS = 30
MOST_ROWS = 200_000
"""Rows of tables with more are counted."""

REFUSED = {
    # What we refuse and delta-rs reads, by the words of the refusal; docs/reference/tables.md says
    # why.
    "not a valid action: Input data was truncated": "an action over several lines"
}
OTHERWISE = {
    # Where delta-rs is known to differ.
    "canonicalized-paths-": "delta-rs takes file:/a and /a for two files; Delta Spark for one"
}
WRITTEN_IN = {"golden_data/data-reader-": "America/Los_Angeles"}
"""The zone of the Spark session that wrote timestamps without one, where shipped rows are of it."""

OTHER_ROWS = {
    "table_with_edge_timestamps": "delta-rs takes 9999-12-30 of an INT96 for a day of 1816"
}

HISTORY = ("operation", "operationParameters", "operationMetrics", "readVersion", "isBlindAppend")
VERBS = (
    *(["detail"], ["files"], ["health"], ["plan"], ["history"], ["doctor"], ["orphans"]),
    *(["vacuum", "--dry-run"], ["checkpoint", "--dry-run"]),
)
DONE, FAILED, REFUSES = 0, 1, 5


def tables() -> list[Path]:
    """Return every directory with a log."""
    found = sorted(os.walk(DIRECTORY)) if DIRECTORY else []
    return [Path(root) for root, directories, _ in found if "_delta_log" in directories]


pytestmark = pytest.mark.skipif(
    not DIRECTORY, reason="LIQUID_FOREIGN_TABLES names no directory with tables of other projects"
)
each_table = pytest.mark.parametrize(
    "table", tables(), ids=lambda path: str(path.relative_to(DIRECTORY))
)


@each_table
def test_versions_are_those_that_delta_rs_reads(table: Path) -> None:
    newest = compared(table, None)
    for version in range(newest - 1, max(newest - MOST_VERSIONS, -1), -1):
        theirs, _ = of_others(lambda: facts_of_theirs(table, version))  # noqa: B023  called at once
        if theirs is not None:
            assert_same(facts(table, version), theirs)


@each_table
def test_history_is_what_delta_rs_tells(table: Path) -> None:
    compared(table, None)
    ours = {row["version"]: row for row in Table.open(str(table)).history()}
    theirs, why = of_others(lambda: {row["version"]: row for row in DeltaTable(table).history()})
    if theirs is None:
        pytest.skip(f"delta-rs has no history: {why}")
    if ours and max(ours) - min(ours) >= len(ours):
        pytest.skip("delta-rs counts on across a gap")
    for version in theirs:
        for name in HISTORY:
            mine, other = (shown(row[version].get(name)) or None for row in (ours, theirs))
            assert mine == other, f"version {version}, {name}"


@each_table
def test_rows_are_those_that_others_read(table: Path) -> None:
    compared(table, None)
    known = next((why for part, why in OTHER_ROWS.items() if part in str(table)), None)
    if known is not None:
        pytest.skip(known)
    expected, zone = shipped(table), None
    if expected is not None:
        zone = next((zone for part, zone in WRITTEN_IN.items() if part in str(table)), None)
    if expected is None:
        expected, why = of_others(
            lambda: pa.RecordBatchReader.from_stream(DeltaTable(table).scan()).read_all()
        )
        if expected is None:
            pytest.skip(f"delta-rs reads no rows: {why}")
    store = open_store(str(table))
    try:
        found = live_rows(store, in_zone(load_snapshot(store), zone))
    except LiquidlogError as error:
        skip_if_known(error)
        raise
    assert found.num_rows == expected.num_rows
    if found.num_rows <= MOST_ROWS:
        expected = expected.select(found.column_names)
        assert list(rows(found)) == list(rows(expected))


@each_table
def test_no_verb_ends_in_a_traceback(table: Path) -> None:
    before = files_of(table)
    for verb, *options in VERBS:
        status, out, err = said(verb, str(table), *options)
        assert status in {DONE, FAILED, REFUSES}, verb
        assert "Traceback" not in out + err, verb
        assert status == DONE or err.startswith("error: "), verb
    assert files_of(table) == before


def files_of(table: Path) -> list[tuple[Path, int]]:
    found = (path for path in table.rglob("*") if path.is_file())
    return sorted((path, path.stat().st_mtime_ns) for path in found)


def compared(table: Path, version: int | None) -> int:
    """Compare a version and return its number; skip what delta-rs does not read."""
    theirs, why = of_others(lambda: facts_of_theirs(table, version))
    if theirs is None:
        pytest.skip(f"delta-rs does not read it: {why}")
    known = next((why for part, why in OTHERWISE.items() if part in str(table)), None)
    if known is not None:
        pytest.skip(known)
    try:
        ours = facts(table, version)
    except LiquidlogError as error:
        skip_if_known(error)
        raise
    assert_same(ours, theirs)
    return int(ours["version"])


def skip_if_known(error: LiquidlogError) -> None:
    why = next((why for words, why in REFUSED.items() if words in error.message), None)
    if why is not None:
        pytest.skip(f"refused by us: {why}")


def of_others(read: Callable[[], T]) -> tuple[T | None, str]:
    """Return what another engine reads, or None and why it does not."""
    try:
        return read(), ""
    except BaseException as error:  # panics of Rust are no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return None, f"{error!s:.200}"


def assert_same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    for name in ours.keys() - {"files"}:
        assert ours[name] == theirs[name], name
    files = zip(ours["files"], theirs["files"], strict=True)
    for (*mine, count), (*other, their_count) in files:
        assert mine == other
        assert None in {count, their_count} or count == their_count


def facts(table: Path, version: int | None) -> dict[str, Any]:
    snapshot = Table.open(str(table)).snapshot(version)
    live = snapshot.files
    columns = (decoded_paths(live), live["size"], num_records(live))
    return {
        **facts_of(snapshot.protocol, snapshot.metadata, schema_json(snapshot.schema)),
        "version": snapshot.version,
        "files": in_order(zip(*(column.to_pylist() for column in columns), strict=True)),
    }


def facts_of_theirs(table: Path, version: int | None) -> dict[str, Any]:
    opened = DeltaTable(table, version=version)
    live = pa.table(opened.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records")
    columns = [live[name].to_pylist() for name in names]
    files = ((unquote(path), *others) for path, *others in zip(*columns, strict=True))
    return {
        **facts_of(opened.protocol(), opened.metadata(), opened.schema().to_json()),
        "version": opened.version(),
        "files": in_order(files),
    }


def in_order(files: Iterator[Any]) -> list[Any]:
    return sorted(files, key=lambda file: file[:2])


def facts_of(protocol: Any, metadata: Any, schema: str) -> dict[str, Any]:
    return {
        "protocol": (protocol.min_reader_version, protocol.min_writer_version),
        "readers": sorted(protocol.reader_features or ()),
        "writers": sorted(protocol.writer_features or ()),
        "schema": json.loads(schema),
        "id": metadata.id,
        "partitions": list(metadata.partition_columns),
        "properties": dict(metadata.configuration),
    }


def shipped(table: Path) -> pa.Table | None:
    """Return the rows that the table's own project says it has, None if it does not say."""
    expected = table.parent / "expected"
    files = sorted((expected / "latest" / "table_content").glob("**/*.parquet"))
    files = files or sorted(expected.glob("*.parquet"))
    return pa.concat_tables(map(pq.read_table, files)) if files else None


def in_zone(snapshot: Snapshot, zone: str | None) -> Snapshot:
    """Return the table as if it named the zone of timestamps in partition values."""
    named = {} if zone is None else {"liquidlog.partitionTimeZone": zone}
    configuration = {**snapshot.metadata.configuration, **named}
    metadata = structs.replace(snapshot.metadata, configuration=configuration)
    return replace(snapshot, metadata=metadata)


def shown(value: Any) -> Any:
    """Return maps as maps of strings to strings, without what is null."""
    if not isinstance(value, dict):
        return value
    return {
        name: item if isinstance(item, str) else json.dumps(item, separators=(",", ":"))
        for name, item in value.items()
        if item is not None
    }


def rows(table: pa.Table) -> Iterator[str]:
    """Yield the rows as texts, in order, without the names of fields, which may be physical."""
    columns = [column.to_pylist() for column in table.columns]
    yield from sorted(repr([values_only(v) for v in row]) for row in zip(*columns, strict=True))


def values_only(value: Any) -> Any:
    if isinstance(value, dict):
        # The two parts of a variant may come in either order.
        names = sorted(value) if value.keys() == {"metadata", "value"} else list(value)
        return [values_only(value[name]) for name in names]
    if isinstance(value, list | tuple):
        return [values_only(item) for item in value]
    return value
