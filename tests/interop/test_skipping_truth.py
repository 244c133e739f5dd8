"""Random predicates on tables of several writers: Spark says of which rows they are true.

With ANSI mode on and off and in two time zones; no filter is ever given to Spark's own scan, so
its skipping of files has no part in the answer.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random  # noqa: TID251  a test
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from liquidlog.errors import UsageError
from liquidlog.predicates.matching import every_row_matches, judged_or_refused
from liquidlog.predicates.workload import Session
from liquidlog.table import Table
from support.effort import effort
from support.random_tables import (
    ANSI,
    FOR_SMALL_QUERIES,
    SPARK_TYPES,
    SWITCHED,
    VALUES,
    ZONE,
    Row,
    arrow_table,
    flat_table,
    foreign_files,
    random_files,
    random_predicate,
    truths,
)
from support.spark_servers import with_settings

pytestmark = pytest.mark.reference

PREDICATES = effort(300, 7_000)
"""For each of the tables."""

SEED = os.environ.get("LIQUIDLOG_SEED", "1")
FILES = 9
SESSIONS = [(ansi, zone) for ansi in ("true", "false") for zone in ("UTC", "America/New_York")]
PARTITIONS = ("i", "f", "m", "s", "c", "day", "t")


def is_float(value: float) -> bool:
    """Return whether a double is a float, too."""
    with np.errstate(over="ignore"):
        return bool(np.isnan(value) or float(np.float32(value)) == value)


NARROWER: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "h": ("tinyint", lambda value: abs(value) < 128),
    "i": ("smallint", lambda value: abs(value) < 32768),
    "l": ("int", lambda value: abs(value) < 2**31),
    "d": ("float", is_float),
    "m": ("decimal(6,1)", lambda value: abs(value) < 99999 and value * 10 % 1 == 0),
    "z": ("date", lambda value: value % 86_400_000_000 == 0),
}
"""Columns that were narrower once, as what, and which values they could have then."""


def write(spark: Any, uri: str, number: int, rows: Sequence[Row], folder: Path) -> None:
    """Insert rows as one file."""
    source = str(folder / f"{number}.parquet")
    pq.write_table(arrow_table(rows), source)
    spark.read.parquet(source).coalesce(1).createOrReplaceTempView("source")
    spark.sql(f"INSERT INTO delta.`{uri}` BY NAME SELECT {number} file, * FROM source")


def create(spark: Any, uri: str, types: Mapping[str, str], partitions: Sequence[str] = ()) -> None:
    flat = ", ".join(f"{name} {kind}" for name, kind in types.items() if "." not in name)
    structs = "st struct<x: int, `a b`: string, q: struct<r: double>>, sc struct<c: char(4)>"
    by = f"PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (file int, {flat}, {structs}) USING delta {by} "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true', "
        "'delta.feature.timestampNtz' = 'supported')"
    )


def names_of(spark: Any, uri: str) -> dict[int, str]:
    query = f"SELECT DISTINCT file, input_file_name() name FROM delta.`{uri}`"
    found = spark.sql(query).collect()
    return {row["file"]: unquote(row["name"].rsplit("/", 1)[-1]) for row in found}


def widened_table(spark: Any, folder: Path) -> str:
    uri = str(folder / "widened")
    create(spark, uri, {**SPARK_TYPES, **{name: kind for name, (kind, _) in NARROWER.items()}})
    random = Random(2)
    for number, rows in enumerate(random_files(random, FILES, rows=12)):
        if number == FILES - 2:
            for name in NARROWER:
                spark.sql(f"ALTER TABLE delta.`{uri}` ALTER COLUMN {name} TYPE {SPARK_TYPES[name]}")
        early = rows if number >= FILES - 2 else narrowed(random, rows)
        write(spark, uri, number, early, folder)
    return uri


def narrowed(random: Random, rows: Sequence[Row]) -> list[Row]:
    """Return rows whose values fit the narrower types, few different ones in each column."""
    few = {
        name: random.sample([value for value in VALUES[name] if fits(value)], 2)
        for name, (_, fits) in NARROWER.items()
    }
    return [{**row, **{name: random.choice(few[name]) for name in few}} for row in rows]


def engine_table(
    spark: Any,
    folder: Path,
    *,
    seed: int,
    partitions: Sequence[str] = (),
    before: str = "",
    after: str = "",
) -> str:
    """Return a table of random files, with a statement before they are written, and one after."""
    uri = str(folder / "t")
    create(spark, uri, SPARK_TYPES, partitions)
    for number, rows in enumerate(random_files(Random(seed), FILES, rows=12)):
        if before and not number:
            spark.sql(before.format(t=f"delta.`{uri}`"))
        same = [{**row, **{name: rows[0][name] for name in partitions}} for row in rows]
        write(spark, uri, number, same, folder)
    if after:
        spark.sql(after.format(t=f"delta.`{uri}`"))
    return uri


def renamed_table(spark: Any, folder: Path) -> str:
    uri = str(folder / "renamed")
    flat = {name: kind for name, kind in SPARK_TYPES.items() if "." not in name}
    create(spark, uri, {f"{name}_": kind for name, kind in flat.items()})
    for name in flat:
        spark.sql(f"ALTER TABLE delta.`{uri}` RENAME COLUMN {name}_ TO {name}")
    for number, rows in enumerate(random_files(Random(5), FILES, rows=12)):
        write(spark, uri, number, rows, folder)
    return uri


def delta_rs_table(_: Any, folder: Path) -> str:
    uri = str(folder / "delta_rs")
    for number, rows in enumerate(foreign_files(6, FILES)):
        write_deltalake(uri, flat_table(number, rows), mode="append")
    return uri


def trino_like_table(_: Any, folder: Path) -> str:
    """Return a table with statistics as Trino's: decimals as texts, none of floats with NaN."""
    uri = folder / "trino"
    files = foreign_files(8, FILES)
    table = Table.create(uri, schema=flat_table(0, files[0]).schema)
    for number, rows in enumerate(files):
        table.append(flat_table(number, rows))
        commit = uri / "_delta_log" / f"{number + 1:020}.json"
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for add in (action["add"] for action in actions if "add" in action):
            add["stats"] = as_trino(json.loads(add["stats"], parse_float=Decimal))
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return str(uri)


def as_trino(stats: dict[str, Any]) -> str:
    decimals = [name for name, kind in SPARK_TYPES.items() if kind.startswith("decimal")]
    for section in (stats["minValues"], stats["maxValues"]):
        section |= {name: f"{section[name]:f}" for name in decimals if name in section}
    for name in ("f", "d"):
        if stats["maxValues"].get(name) == "NaN":
            del stats["maxValues"][name], stats["minValues"][name]
    return json.dumps(stats, default=float)


TABLES: Mapping[str, Callable[[Any, Path], str]] = {
    "plain": partial(engine_table, seed=1),
    "widened": widened_table,
    "partitioned": partial(engine_table, seed=3, partitions=PARTITIONS),
    "vectors": partial(
        engine_table,
        seed=4,
        before="ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        after="DELETE FROM {t} WHERE abs(hash(l, s, day, m)) % 3 = 0 AND file % 4 > 0",
    ),
    "renamed": renamed_table,
    "delta_rs": delta_rs_table,
    "trino_like": trino_like_table,
}
FLAT = ("delta_rs", "trino_like")


Wrong = list[tuple[str, str, str, str, list[str]]]
"""What went wrong: how, the condition, ANSI mode, time zone, files."""


def compared(spark: Any, uri: str, texts: Sequence[str], *, for_rows: bool) -> tuple[Wrong, int]:
    """Compare the files that we keep, or would replace unread, with those where Spark finds rows.

    `for_rows` asks for files whose writers may leave NaN out of their statistics. Return also how
    many answers there were.
    """
    names = names_of(spark, uri)
    table = Table.open(uri)
    snapshot = table.snapshot()
    bounds_of = table.opened.bounds_of(snapshot)
    session = Session(for_rows=for_rows)
    paths = np.array(
        [unquote(path.rsplit("/", 1)[-1]) for path in snapshot.files["path"].to_pylist()]
    )
    kept, whole = {}, {}
    judged = judged_or_refused(snapshot, texts, bounds_of, session)
    for text, one in zip(texts, judged, strict=True):
        if not isinstance(one, UsageError):
            kept[text] = frozenset(paths[one.may_match.to_numpy(zero_copy_only=False)])
            whole[text] = frozenset(paths[every_row_matches(snapshot, text, bounds_of, session)])
    rows = spark.read.format("delta").load(uri).coalesce(1).localCheckpoint()
    wrong: Wrong = []
    count = 0
    for ansi, zone in SESSIONS:
        spark.conf.set(ANSI, ansi)
        spark.conf.set(ZONE, zone)
        for text, some, every in truths(spark, rows, [*kept]):
            count += 1
            skipped = {names[number] for number in some} - kept[text]
            lost = (whole[text] & kept[text]) - {names[number] for number in every}
            for how, files in (("skipped", skipped), ("replaced unread", lost)):
                if files:
                    wrong.append((how, text, ansi, zone, sorted(files)))
    return wrong, count


@pytest.mark.parametrize("kind", TABLES)
def test_no_file_with_a_row_that_spark_finds_is_skipped(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    uri = TABLES[kind](spark, tmp_path)
    random = Random(f"{SEED} {kind}")
    columns = [name for name in SPARK_TYPES if "." not in name or kind not in FLAT]
    texts = list(dict.fromkeys(random_predicate(random, columns) for _ in range(PREDICATES)))
    with with_settings(spark, FOR_SMALL_QUERIES, restored=SWITCHED):
        wrong, count = compared(spark, uri, texts, for_rows=kind in FLAT)
    assert wrong == []
    assert count > PREDICATES
