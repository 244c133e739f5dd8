"""Snapshots and files of the rows of `random_tables`, as different writers describe them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random  # noqa: TID251  a test

import pyarrow as pa

from liquidlog.data.statistics import StatisticsCollector
from liquidlog.plan import WriterOptions
from liquidlog.snapshot import STATISTICS_TYPE, Snapshot, Statistics
from liquidlog.spec.bounds import encode_stats
from liquidlog.spec.schema import leaves
from support.random_tables import Row, arrow_table, random_files, table_schema
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


def foreign_files(seed: int, count: int) -> list[list[Row]]:
    """Return the rows of files with what writers state in their own ways: NaN, wide decimals."""
    random = Random(seed)
    files = random_files(random, count, rows=12)
    wide = [Decimal(sign * value) for sign in (1, -1) for value in (2**63, 2**64, 10**20 - 1)]
    return [
        [
            {
                **row,
                **{name: math.nan for name in ("f", "d") if random.random() < 0.1},
                **({"k": random.choice(wide)} if number % 3 == 0 and row["k"] is not None else {}),
            }
            for row in rows
        ]
        for number, rows in enumerate(files)
    ]


def flat_table(number: int, rows: Sequence[Row]) -> pa.Table:
    """Return rows without structs, whose names some writers refuse."""
    found = arrow_table(rows).drop_columns(["st", "sc"])
    return found.add_column(0, "file", pa.array([number] * len(rows), pa.int32()))
