"""A file that holds a matching row is never ruled out; DuckDB says which rows match."""

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, settings

from liquidlog.predicates.matching import may_match
from support.effort import effort
from support.snapshots import FileSpec, bounds_of, snapshot_of
from support.sql_predicates import ARROW, FILES, PREDICATES, SCHEMA, TYPES

CONNECTION = duckdb.connect()


def _bound(value: Any) -> Any:
    if isinstance(value, float) and value != value:  # noqa: PLR0124  NaN
        return "NaN"
    if isinstance(value, dt.datetime):
        # The log has milliseconds; what is below them is cut off.
        return value.isoformat(timespec="milliseconds")
    return str(value) if isinstance(value, dt.date | Decimal) else value


def _order(value: Any) -> Any:
    if isinstance(value, float):
        return (value != value, value)  # noqa: PLR0124  NaN is the largest
    return value.encode() if isinstance(value, str) else value


def _spec(number: int, rows: list[dict[str, Any]]) -> FileSpec:
    bounds, nulls = {}, {}
    for name in TYPES:
        present = sorted((row[name] for row in rows if row[name] is not None), key=_order)
        nulls[name] = len(rows) - len(present)
        if present and name != "b":
            bounds[name] = (_bound(present[0]), _bound(present[-1]))
    return FileSpec(path=str(number), rows=len(rows), bounds=bounds, nulls=nulls)


@settings(max_examples=effort(50, 2_000))
@given(files=FILES, predicate=PREDICATES)
def test_files_with_a_matching_row_are_never_ruled_out(
    files: list[list[dict[str, Any]]], predicate: str
) -> None:
    table = pa.Table.from_pylist(
        [{"file": number, **row} for number, rows in enumerate(files) for row in rows],
        schema=ARROW,
    )
    CONNECTION.register("rows", table)
    found = CONNECTION.execute(f"SELECT DISTINCT file FROM rows WHERE {predicate}").fetchall()
    matching = {number for (number,) in found}
    specs = [_spec(number, rows) for number, rows in enumerate(files)]
    snapshot = snapshot_of(specs, schema=SCHEMA)
    for zone in (None, dt.UTC):
        mask = may_match(snapshot, predicate, bounds_of(snapshot), time_zone=zone).to_pylist()
        assert matching <= {number for number, may in enumerate(mask) if may}
