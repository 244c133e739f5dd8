"""Random predicates on tables of several writers: Spark says of which rows they are true.

With ANSI mode on and off and in two time zones; no filter is ever given to Spark's own scan, so
its skipping of files has no part in the answer.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random  # noqa: TID251  a test
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as sf

from liquidlog.errors import UsageError
from liquidlog.predicates.matching import every_row_matches, judged_or_refused
from liquidlog.predicates.workload import Session
from liquidlog.table import Table
from support.effort import effort
from support.random_predicates import random_predicate, sql
from support.random_tables import (
    SPARK_TYPES,
    VALUES,
    Row,
    arrow_table,
    flat_table,
    foreign_files,
    random_files,
)
from support.spark_servers import with_settings

pytestmark = pytest.mark.reference

PREDICATES = effort(300, 7_000)
"""For each of the tables."""

SEED = os.environ.get("LIQUIDLOG_SEED", "1")
FILES = 9
IN_ONE_JOB = 100
FOR_SMALL_QUERIES = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.subexpressionElimination.enabled": "false",
    # What fails is to fail where it is caught, not while the query is planned.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding",
}
"""Settings that plan and run a query of many columns and few rows quickly."""

SWITCHED = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")
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


def plain_table(spark: Any, folder: Path) -> str:
    uri = str(folder / "plain")
    create(spark, uri, SPARK_TYPES)
    for number, rows in enumerate(random_files(Random(1), FILES, rows=12)):
        write(spark, uri, number, rows, folder)
    return uri


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


def partitioned_table(spark: Any, folder: Path) -> str:
    uri = str(folder / "partitioned")
    create(spark, uri, SPARK_TYPES, PARTITIONS)
    for number, rows in enumerate(random_files(Random(3), FILES, rows=12)):
        same = [{**row, **{name: rows[0][name] for name in PARTITIONS}} for row in rows]
        write(spark, uri, number, same, folder)
    return uri


def vectors_table(spark: Any, folder: Path) -> str:
    uri = str(folder / "vectors")
    create(spark, uri, SPARK_TYPES)
    spark.sql(
        f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for number, rows in enumerate(random_files(Random(4), FILES, rows=12)):
        write(spark, uri, number, rows, folder)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE abs(hash(l, s, day, m)) % 3 = 0 AND file % 4 > 0")
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


def polars_table(_: Any, folder: Path) -> str:
    polars = pytest.importorskip("polars")
    uri = str(folder / "polars")
    for number, rows in enumerate(foreign_files(7, FILES)):
        found = flat_table(number, rows)
        if number:
            found = found.select(polars.read_delta(uri).columns)
        polars.from_arrow(found).write_delta(uri, mode="append")
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


TABLES = {
    "plain": plain_table,
    "widened": widened_table,
    "partitioned": partitioned_table,
    "vectors": vectors_table,
    "renamed": renamed_table,
    "delta_rs": delta_rs_table,
    "polars": polars_table,
    "trino_like": trino_like_table,
}
FLAT = ("delta_rs", "polars", "trino_like")


def condition(spark: Any, text: str) -> Any:
    """Return a condition as a column that is null where it fails, which ends whole queries else."""
    jvm = spark._jvm.org.apache.spark.sql
    parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
    return Column(jvm.classic.ExpressionUtils.column(jvm.catalyst.expressions.TryEval(parsed)))


def accepted(spark: Any, rows: Any, texts: Sequence[str]) -> dict[str, Any]:
    """Return those of the texts that the engine takes for conditions on the rows, as columns."""
    try:
        columns = {text: condition(spark, text) for text in texts}
        rows.select(*columns.values())
    except Exception:  # noqa: BLE001  whatever the engine finds wrong with one of them
        if len(texts) <= 1:
            return {}
        first, second = halves(texts)
        return accepted(spark, rows, first) | accepted(spark, rows, second)
    return columns


def halves(texts: Sequence[str]) -> tuple[Sequence[str], ...]:
    """Return two parts of the texts; none of a single text, which cannot be judged."""
    half = len(texts) // 2
    return (texts[:half], texts[half:]) if half else ()


Truth = tuple[str, frozenset[int], frozenset[int]]
"""A predicate, the files that hold rows of which it is true, and those with no other rows."""


def true_in(spark: Any, rows: Any, texts: Sequence[str]) -> Iterator[Truth]:
    """Yield the predicates that the engine accepts and can plan, with their truth."""
    columns = accepted(spark, rows, texts)
    if columns:
        known = [sf.coalesce(column, sf.expr("false")) for column in columns.values()]
        some = [sf.bool_or(column).alias(f"p{number}") for number, column in enumerate(known)]
        each = [sf.bool_and(column).alias(f"q{number}") for number, column in enumerate(known)]
        try:
            found = rows.groupBy("file").agg(*some, *each).collect()
        except PySparkException:  # one of them fails while the query is planned
            for part in halves([*columns]):
                yield from true_in(spark, rows, part)
            return
        for number, text in enumerate(columns):
            yield (
                text,
                frozenset(row["file"] for row in found if row[f"p{number}"]),
                frozenset(row["file"] for row in found if row[f"q{number}"]),
            )


@dataclass
class Found:
    """What a comparison brought: files skipped wrongly, or replaced unread wrongly, and counts."""

    skipped: list[tuple[str, str, str, list[str]]] = field(default_factory=list)
    lost: list[tuple[str, str, str, list[str]]] = field(default_factory=list)
    proved: int = 0
    judged: int = 0
    files: int = 0
    holding: int = 0
    kept: int = 0


def compare(spark: Any, uri: str, texts: Sequence[str], *, for_rows: bool) -> Found:
    """Compare the files that we keep, and would replace unread, with those where Spark finds rows.

    `for_rows` asks for files whose writers may leave NaN out of their statistics.
    """
    names = names_of(spark, uri)
    table = Table.open(uri)
    snapshot = table.snapshot()
    bounds_of = table.opened.bounds_of(snapshot)
    session = Session(for_rows=for_rows)
    judged = judged_or_refused(snapshot, texts, bounds_of, session)
    answers = {
        text: one
        for text, one in zip(texts, judged, strict=True)
        if not isinstance(one, UsageError)
    }
    paths = [unquote(path.rsplit("/", 1)[-1]) for path in snapshot.files["path"].to_pylist()]
    kept = {
        text: frozenset(
            path for path, may in zip(paths, one.may_match.to_pylist(), strict=True) if may
        )
        for text, one in answers.items()
    }
    whole = {
        text: frozenset(np.array(paths)[every_row_matches(snapshot, text, bounds_of, session)])
        for text in answers
    }
    rows = spark.read.format("delta").load(uri).coalesce(1).localCheckpoint()
    found = Found()
    for ansi, zone in SESSIONS:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        spark.conf.set("spark.sql.session.timeZone", zone)
        for start in range(0, len(kept), IN_ONE_JOB):
            for text, some, every in true_in(spark, rows, [*kept][start : start + IN_ONE_JOB]):
                holding = {names[number] for number in some}
                matching = {names[number] for number in every}
                skipped = sorted(holding - kept[text])
                found.skipped.extend([(text, ansi, zone, skipped)] if skipped else [])
                lost = sorted((whole[text] & kept[text]) - matching)
                found.lost.extend([(text, ansi, zone, lost)] if lost else [])
                found.proved += len(whole[text] & kept[text])
                found.judged += 1
                found.files += len(paths)
                found.holding += len(holding)
                found.kept += len(kept[text])
    return found


@pytest.mark.parametrize("kind", TABLES)
def test_no_file_with_a_row_that_spark_finds_is_skipped(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    uri = TABLES[kind](spark, tmp_path)
    random = Random(f"{SEED} {kind}")
    columns = [name for name in SPARK_TYPES if "." not in name or kind not in FLAT]
    predicates = (random_predicate(random, columns, nulls=0.1) for _ in range(PREDICATES))
    texts = list(dict.fromkeys(map(sql, predicates)))
    with with_settings(spark, FOR_SMALL_QUERIES, restored=SWITCHED):
        found = compare(spark, uri, texts, for_rows=kind in FLAT)
    logging.getLogger(__name__).info("%s: %d predicates, %s", kind, len(texts), found)
    assert found.skipped == []
    assert found.lost == []
    assert found.judged > PREDICATES
