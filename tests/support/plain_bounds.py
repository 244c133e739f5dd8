"""Bounds as plain Python values, for comparisons in tests."""

from typing import Any

from liquidlog.spec.bounds import Bounds


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
