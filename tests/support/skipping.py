"""Snapshots of the rows of `random_tables`, with the statistics that a writer would write."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from liquidlog.data.statistics import StatisticsCollector
from liquidlog.plan import WriterOptions
from liquidlog.snapshot import STATISTICS_TYPE, Snapshot, Statistics
from liquidlog.spec.schema import leaves
from liquidlog.spec.stats import encode_stats
from support.random_tables import Row, arrow_table, table_schema
from support.snapshots import FileSpec, snapshot_of


def snapshot_of_rows(files: Sequence[Sequence[Row]], *, without_nan: bool = False) -> Snapshot:
    """Return a table with one file for each list of rows, in this order.

    The statistics are those of an append; `without_nan`, those of a writer that leaves NaN out.
    """
    described = [_without_nan(rows) if without_nan else rows for rows in files]
    snapshot = snapshot_of(
        [FileSpec(path=str(number), rows=len(rows)) for number, rows in enumerate(files)],
        schema=table_schema(),
        cluster_by=None,
    )
    texts = pa.array([_statistics(rows) for rows in described], STATISTICS_TYPE)
    return replace(snapshot, statistics=Statistics(texts=pa.chunked_array([texts])))


def _without_nan(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows with another value of the file in place of NaN, where there is one."""
    found = [dict(row) for row in rows]
    for name in rows[0]:
        numbers = [row[name] for row in rows if row[name] is not None and not is_nan(row[name])]
        for row in found:
            if is_nan(row[name]) and numbers:
                row[name] = numbers[0]
    return found


def is_nan(value: object) -> bool:
    """Return whether a value is NaN."""
    return isinstance(value, float) and math.isnan(value)


def _statistics(rows: Sequence[Row]) -> str:
    schema = table_schema()
    options = WriterOptions(indexed=tuple(leaf.physical for leaf in leaves(schema)))
    collector = StatisticsCollector(schema, options)
    collector.add(arrow_table(rows))
    return encode_stats(collector.finish())
