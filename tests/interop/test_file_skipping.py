"""`scan` beside the reference engine's file skipping, file by file; and its OPTIMIZE after ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.table import Table

pytestmark = pytest.mark.reference

PREDICATES = 300
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float64()),
        ("m", pa.decimal128(12, 2)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.struct([("x", pa.int32())])),
    ]
)


def rows(seed: int) -> pa.Table:
    """Return rows of a narrow range of every column; some columns are all null in some files."""
    source = np.random.default_rng(seed)
    base = seed * 7
    whole = base + source.integers(0, 12, 40)
    mask = source.random(40) < 0.1
    gone = np.full(40, fill_value=True)
    floats = np.where(source.random(40) < (0.1 if seed % 4 == 0 else 0.0), np.nan, whole / 4)
    columns = [
        pa.array(whole, pa.int32(), mask=gone if seed % 5 == 4 else mask),
        pa.array(whole * 1000, pa.int64(), mask=mask if seed % 2 else None),
        pa.array(floats, mask=mask),
        pa.array(whole * 100, pa.int64(), mask=mask)
        .cast(pa.decimal128(23, 2))
        .cast(SCHEMA[3].type),
        pa.array(
            [f"{'common prefix of thirty-two chars' * (seed % 3 == 2)}{n:03d}" for n in whole]
        ),
        pa.array(whole, pa.int32(), mask=mask).cast(pa.date32()),
        pa.array(whole * 86_400_000_000 + source.integers(0, 1000, 40), pa.timestamp("us", "UTC")),
        pa.StructArray.from_arrays([pa.array(whole, pa.int32(), mask=mask)], names=["x"]),
    ]
    return pa.table(columns, schema=SCHEMA)


class Source:
    """Random choices of plain Python values."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self._generator.integers(low, high))

    def one_of(self, options: Sequence[str]) -> str:
        return options[self.number(0, len(options))]

    def chance(self, share: float) -> bool:
        return bool(self._generator.random() < share)


def literal(source: Source, column: str) -> str:
    number = source.number(-5, 100)
    day = np.datetime64("1970-01-01") + np.timedelta64(number, "D")
    return {
        "i": str(number),
        "n.x": str(number),
        "l": source.one_of([str(number * 1000), f"{number}500", "99999999999"]),
        "f": str(number / 4),
        "m": f"{number}.25",
        "s": f"'{number:03d}'",
        "d": source.one_of([f"'{day}'", f"DATE '{day}'"]),
        "t": source.one_of([f"TIMESTAMP '{day} 00:00:00.000500'", f"'{day} 00:00:00'"]),
    }[column]


def atom(source: Source) -> str:
    column = source.one_of(["i", "l", "f", "m", "s", "d", "t", "n.x"])
    first, second = literal(source, column), literal(source, column)
    operator = source.one_of(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    return source.one_of(
        [
            f"{column} {operator} {first}",
            f"{first} {operator} {column}",
            f"{column} BETWEEN {first} AND {second}",
            f"{column} IN ({first}, {second})",
            f"{column} IS NULL",
            f"{column} IS NOT NULL",
            f"s LIKE '{source.number(0, 10):02d}%'",
            f"NOT ({column} {operator} {first})",
            folded(source),
        ]
    )


def folded(source: Source) -> str:
    """Return a condition whose constant the engine calculates before it skips files."""
    number, operator = source.number(-5, 60), source.one_of(["=", "<", "<=", ">", ">="])
    day = np.datetime64("1970-01-01") + np.timedelta64(number, "D")
    return source.one_of(
        [
            f"i {operator} {number} * 2 - 1",
            f"m {operator} {number} * 1.5",
            f"d {operator} DATE '{day}' + INTERVAL '1' MONTH",
            f"d {operator} date_sub('{day}', 3)",
            f"t {operator} TIMESTAMP '{day} 00:00:00+02:00' + INTERVAL 7 DAYS",
            f"t {operator} to_timestamp('{day}')",
            f"startswith(s, '{source.number(0, 10):02d}')",
        ]
    )


def predicate(source: Source, depth: int = 0) -> str:
    if depth > 1 or source.chance(0.5):
        return atom(source)
    join = source.one_of(["AND", "OR"])
    text = f"({predicate(source, depth + 1)}) {join} ({predicate(source, depth + 1)})"
    return f"NOT ({text})" if source.chance(0.2) else text


def opened(spark: Any, uri: str, text: str) -> set[str]:
    """Return the names of the files that the engine's scan of a filtered table lists."""
    files = spark.read.format("delta").load(uri).where(text).inputFiles()
    return {unquote(name.rsplit("/", 1)[-1]) for name in files}


def test_scan_lists_the_files_that_the_engine_opens(spark: Any, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    for seed in range(12):
        table.append(rows(seed))
    source = Source(7)
    more, fewer = [], []
    # Spark sees that 22 <= f and f <=> 16.5 contradict before any file is looked at; we do not.
    rule = "org.apache.spark.sql.catalyst.optimizer.ConstantPropagation"
    spark.conf.set("spark.sql.optimizer.excludedRules", rule)
    for _ in range(PREDICATES):
        text = predicate(source)
        ours = set(table.scan(text, time_zone="UTC").files["path"].to_pylist())
        theirs = opened(spark, table.uri, text)
        more.extend([(text, ours - theirs)] if ours - theirs else [])
        fewer.extend([(text, theirs - ours)] if theirs - ours else [])
    spark.conf.unset("spark.sql.optimizer.excludedRules")
    assert fewer == []
    assert [text for text, _ in more] == []


def test_the_engine_continues_after_an_overlap_plan(spark: Any, tmp_path: Path) -> None:
    from liquidspark.executor import execute

    table = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["i", "s"])
    for seed in range(6):
        table.append(rows(0).take(pa.array(np.random.default_rng(seed).permutation(40))))
    plan = table.plan(strategy="overlap")
    assert plan.groups
    table.commit(plan, execute(spark, plan))
    table.append(rows(1))
    before = spark.sql(f"select count(*), sum(l) from delta.`{table.uri}`").collect()
    cube = plan.groups[0].zcube_id
    assert [row["zcube_id"] for row in table.cubes().to_pylist()] == [cube]
    metrics = spark.sql(f"optimize delta.`{table.uri}`").collect()[0]["metrics"]
    stats = metrics["clusteringStats"]
    # Our cube is partial to the engine, as one of its own would be, and merged with the new file.
    assert stats["inputZCubeFiles"]["numFiles"] == plan.groups[0].expected_outputs
    assert stats["inputOtherFiles"]["numFiles"] == 1
    assert spark.sql(f"select count(*), sum(l) from delta.`{table.uri}`").collect() == before
    assert not table.plan().groups
