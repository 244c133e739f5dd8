"""Snapshots of the rows of `random_tables`, with the statistics that an append would write."""

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


def snapshot_of_rows(files: Sequence[Sequence[Row]]) -> Snapshot:
    """Return a table with one file for each list of rows, in this order."""
    snapshot = snapshot_of(
        [FileSpec(path=str(number), rows=len(rows)) for number, rows in enumerate(files)],
        schema=table_schema(),
        cluster_by=None,
    )
    texts = pa.array([_statistics(rows) for rows in files], STATISTICS_TYPE)
    return replace(snapshot, statistics=Statistics(texts=pa.chunked_array([texts])))


def _statistics(rows: Sequence[Row]) -> str:
    schema = table_schema()
    options = WriterOptions(indexed=tuple(leaf.physical for leaf in leaves(schema)))
    collector = StatisticsCollector(schema, options)
    collector.add(arrow_table(rows))
    return encode_stats(collector.finish())
