"""No file and no row group with a row that Spark finds is skipped, whatever the session.

One truth answers all: each row group of one file of the engine's holds the rows of a file, so that
bounds in the log, footers, and files replaced unread are judged by the same rows.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random  # noqa: TID251  a test
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from liquidlog.data.reader import ParquetFile
from liquidlog.data.writer import read_row_group_bounds
from liquidlog.errors import UsageError
from liquidlog.predicates.matching import every_row_matches, judged_or_refused
from liquidlog.predicates.workload import Session
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.schema import MappingMode, leaves
from support.effort import effort
from support.random_tables import (
    ANSI,
    FOR_SMALL_QUERIES,
    SPARK_TYPES,
    SWITCHED,
    ZONE,
    Row,
    arrow_table,
    random_files,
    random_predicate,
    snapshot_of_rows,
    table_schema,
    truths,
)
from support.snapshots import bounds_of
from support.spark_servers import with_settings

pytestmark = pytest.mark.spark

FILES, PREDICATES = effort((200, 300), (200, 3_000))
FLOATS = ("f", "d", "st.q.r")
ZONES = (
    "America/Havana",  # summer begins at midnight
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # half an hour of summer time
    "Pacific/Apia",  # without 2011-12-30
    "Pacific/Kiritimati",
    "UTC",
)
SESSIONS = effort(
    [("true", "America/New_York"), ("false", "America/Havana")],
    [(ansi, zone) for ansi in ("true", "false") for zone in ZONES],
)


def with_nan(random: Random, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with NaN in place of some floats."""
    chosen = [name for name in FLOATS if random.random() < 0.4]
    return [{**row, **{name: math.nan for name in chosen if random.random() < 0.3}} for row in rows]


def in_spark(spark: SparkSession, files: Sequence[Sequence[Row]], path: Path) -> DataFrame:
    """Write the rows, those of each file as a row group; return them as Spark reads them."""
    tables = [
        arrow_table(rows).add_column(0, "file", pa.array([number] * len(rows), pa.int32()))
        for number, rows in enumerate(files)
    ]
    with pq.ParquetWriter(path, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    flat = ", ".join(f"{name} {kind}" for name, kind in SPARK_TYPES.items() if "." not in name)
    structs = "st struct<x: int, `a b`: string, q: struct<r: double>>, sc struct<c: char(4)>"
    spark.sql(f"CREATE TABLE drawn (file int, {flat}, {structs}) USING parquet LOCATION '{path}'")
    try:
        return spark.table("drawn").coalesce(1).localCheckpoint()
    finally:
        spark.sql("DROP TABLE drawn")


Ways = Mapping[str, tuple[Snapshot, BoundsOf, Session]]
"""Ways to judge the files: what is known of them, and who asks."""


def ways_of(files: Sequence[Sequence[Row]], path: Path) -> Ways:
    complete, lacking = (snapshot_of_rows(files, without_nan=without) for without in (False, True))
    columns = list(leaves(table_schema()))
    with ParquetFile(str(path)) as file:
        footer = read_row_group_bounds(
            file, schema=table_schema(), mapping=MappingMode.NONE, wanted=columns
        )
    inside = bounds_of(complete)
    return {
        "bounds": (complete, inside, Session()),
        "row groups": (
            complete,
            lambda wanted: footer.select([columns.index(leaf) for leaf in wanted]),
            Session(),
        ),
        "rows": (lacking, bounds_of(lacking), Session(for_rows=True)),
        **{zone: (complete, inside, Session(time_zone=ZoneInfo(zone))) for _, zone in SESSIONS},
    }


def judged(ways: Ways, texts: Sequence[str]) -> Mapping[str, Mapping[str, frozenset[int]]]:
    """Return which files are kept, for each way and each condition that is not refused."""
    kept = {}
    for name, (snapshot, bounds, session) in ways.items():
        found = judged_or_refused(snapshot, texts, bounds, session)
        kept[name] = {
            text: frozenset(n for n, may in enumerate(one.may_match.to_pylist()) if may)
            for text, one in zip(texts, found, strict=True)
            if not isinstance(one, UsageError)
        }
    return kept


@pytest.mark.parametrize("seed", range(effort(1, 8)))
def test_no_file_with_a_row_that_spark_finds_is_skipped(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    files = [with_nan(random, rows) for rows in random_files(random, FILES)]
    rows = in_spark(spark, files, tmp_path / "rows.parquet")
    ways = ways_of(files, tmp_path / "rows.parquet")
    kept = judged(ways, [random_predicate(random) for _ in range(PREDICATES)])
    lacking, bounds, changing = ways["rows"]
    wrong, count = [], 0
    with with_settings(spark, FOR_SMALL_QUERIES, restored=SWITCHED):
        for ansi, zone in SESSIONS:
            spark.conf.set(ANSI, ansi)
            spark.conf.set(ZONE, zone)
            for text, holding, matching in truths(spark, rows, [*kept["bounds"]]):
                count += 1
                asked = ("bounds", "row groups", "rows", zone)
                skips = [name for name in asked if not holding <= kept[name][text]]
                whole = np.flatnonzero(every_row_matches(lacking, text, bounds, changing))
                if not kept["rows"][text].intersection(whole) <= matching:
                    skips.append("replaced unread")
                wrong += [(name, text, ansi, zone) for name in skips]
    assert wrong == []
    assert count > PREDICATES
