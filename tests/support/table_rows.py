"""All live rows of a table at a version, as its readers get them."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from liquidlog.data.reader import FilePart, Located, TableRows
from liquidlog.operations.inspect import plan_read
from liquidlog.plan import ReadPlan
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.bounds import Bounds
from liquidlog.storage.files import TableStore

_HELD_BYTES = 64 << 20


def live_rows(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return every live row, columns named and ordered as the table has them.

    Raises:
        LiquidlogError: If a file cannot be read exactly.
    """
    schema = arrow_schema(snapshot.schema)
    plan = plan_read(store, snapshot, where=None)
    reader = TableRows.of_plan(plan, schema.names, storage=store.storage, max_bytes=_HELD_BYTES)
    rows = (rows for part in _parts(plan) for rows in reader.read(part))
    return pa.concat_tables([schema.empty_table(), *rows])


def _parts(plan: ReadPlan) -> Iterator[FilePart]:
    for file, number in zip(plan.files, plan.partition_numbers, strict=True):
        yield FilePart(located=Located.of(plan.table_uri, file), values=plan.partitions[number])


# The Bloom filters of a Parquet file, as DuckDB finds them


def filters_in(path: str) -> list[dict[str, int]]:
    """Return per row group the bytes of its filters, by the names of columns joined by dots."""
    rows = duckdb.execute(
        "select row_group_id, path_in_schema, bloom_filter_length from parquet_metadata(?)", [path]
    ).fetchall()
    found: dict[int, dict[str, int]] = {group: {} for group, _, _ in rows}
    for group, name, size_bytes in rows:
        if size_bytes is not None:
            found[group][name.replace(", ", ".")] = size_bytes
    return [found[group] for group in sorted(found)]


# Bounds as plain Python values, for comparisons in tests


def plain_bounds(bounds: Bounds) -> list[dict[str, Any]]:
    """Return one document per file: its rows, and (low, high, nulls) of each column."""
    columns = [
        list(zip(*(ends.to_pylist() for ends in (c.low, c.high, c.null_count)), strict=True))
        for c in bounds.columns
    ]
    return [
        {"num_records": rows, "columns": [column[number] for column in columns]}
        for number, rows in enumerate(bounds.num_records.to_pylist())
    ]
