"""Random tables of all types, for tests of file skipping: values that lie near the edges of types.

A row is a dictionary of plain values: floats as Python floats, instants and local timestamps as
microseconds since 1970, structs as dictionaries.
"""

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from random import Random  # noqa: TID251  a test
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from liquidlog.data.writer import StatisticsCollector
from liquidlog.plan import WriterOptions
from liquidlog.snapshot import STATISTICS_TYPE, Snapshot, Statistics
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.bounds import encode_stats
from liquidlog.spec.schema import DecimalType, PrimitiveType, StructField, StructType, leaves
from support.snapshots import FileSpec, snapshot_of

Row = Mapping[str, Any]

_CHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"


def _f32(value: float) -> float:
    return float(np.float32(value))


def _us(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


_SMALL: Final = [-128, -100, -2, -1, 0, 1, 2, 5, 7, 100, 127]
_INTS: Final = [-(1 << 31), -16777217, *_SMALL, 257, 300, 16777216, 16777217, (1 << 31) - 1]
_LONGS: Final = [
    *(-(1 << 63), -(2**53) - 1, *_INTS, 5_000_000_000),
    *(2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, (1 << 63) - 1),
]
_FLOATS: Final = [
    *(-np.inf, *map(_f32, (-3.4028235e38, -16777217.3, -1.5, -1.1, -0.1)), -0.0, 0.0),
    *(_f32(1e-45), _f32(0.1), _f32(0.3), 1.0, _f32(1.1), 1.5, 5.0, 16777216.0, 16777218.0),
    *(_f32(3.4028235e38), np.inf, np.nan),
]
_MORE: Final = (-1e300, -0.1, 5e-324, 0.1, 0.3, 1.1, float(2**53), float(2**53 + 2), 1e300)
_DOUBLES: Final = [*sorted({*_FLOATS[:-1], *_MORE}), np.nan]
_CENTS: Final = (-9999999999, -500, -110, -1, 0, 1, 110, 123, 124, 150, 500, 725, 30000)
_MONEY: Final = [Decimal(cents).scaleb(-2) for cents in (*_CENTS, 1677721700, 9999999999)]
_BIG: Final = [
    Decimal("-" + "9" * 36 + ".99"),
    Decimal("-1234567890123456789012345678.91"),
    Decimal("-1234567890123456789012345678.90"),
    *_MONEY,
    Decimal("9007199254740993.00"),
    Decimal("1234567890123456789012345678.91"),
    Decimal("9" * 36 + ".99"),
]
_FINE: Final = [
    *(Decimal(text) for text in ("-5.5", "-1.1", "0", "1.1", "1.5", "5", "7.25")),
    Decimal("1.100000000000000000000000000001"),
    Decimal("99999999." + "9" * 30),
]
_TEXTS: Final = sorted(
    ["", " ", "-1", "0", "01", "1", "1.0", "1.5", "300", "5", "A", "B", "a", "a%", "a_b", "ab"]
    + ["ab ", "abc", "b", "ba", "true", "z", "ß", "ü", "\uffee", "\U0001d11e", "2024-01-31"]
    + ["common prefix of thirty-two chars" + end for end in ("", "a", "b", "\U0001d11e")],
    key=str.encode,
)
_SHORT: Final = ["", "a", "ab", "abc", "abcd", "b", "ü"]
_DAYS: Final = [
    dt.date.fromisoformat(day)
    for day in (
        *("0001-01-01", "1582-10-04", "1582-10-15", "1883-11-18", "1969-12-31", "1970-01-01"),
        *(
            "2024-01-01",
            "2024-01-30",
            "2024-01-31",
            "2024-02-01",
            "2024-02-29",
            "2024-03-10",
            "9999-12-31",
        ),
    )
]
_MOMENTS: Final = [
    _us(text)
    for text in (
        *("0001-01-01 00:00:00", "1800-01-01 12:00:00", "1883-11-18 12:03:58"),
        *("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2011-12-30 10:00:00"),
        *("2024-01-01 00:00:00", "2024-01-01 05:00:00"),
        *("2024-01-31 00:00:00", "2024-01-31 00:00:00.000500", "2024-01-31 12:00:00"),
        *("2024-01-31 23:30:00", "2024-02-01 00:00:00", "2024-03-10 02:30:00"),
        *("2024-03-10 05:00:00", "2024-03-10 07:30:00", "2024-11-03 04:30:00"),
        *("2024-11-03 05:30:00", "2024-11-03 06:30:00", "9999-12-31 23:59:59.999999"),
    )
]

_COLUMNS: Final[Mapping[str, tuple[str, Sequence[Any]]]] = {
    "b": ("tinyint", _SMALL),
    "h": ("smallint", [-32768, *_SMALL, 257, 300, 32767]),
    "i": ("int", _INTS),
    "l": ("bigint", _LONGS),
    "f": ("float", _FLOATS),
    "d": ("double", _DOUBLES),
    "n": ("decimal(38,2)", _BIG),
    "m": ("decimal(10,2)", _MONEY),
    "w": ("decimal(38,30)", sorted(_FINE)),
    "k": ("decimal(20,0)", [Decimal(n) for n in sorted({*_LONGS, 10**19, 10**20 - 1, 1 - 10**20})]),
    "s": ("string", _TEXTS),
    "v": ("varchar(40)", _TEXTS),
    "c": ("char(4)", _SHORT),
    "day": ("date", _DAYS),
    "t": ("timestamp", _MOMENTS),
    "z": ("timestamp_ntz", _MOMENTS),
    "flag": ("boolean", [False, True]),
    "st.x": ("int", _INTS),
    "st.a b": ("string", _TEXTS),
    "sc.c": ("char(4)", _SHORT),
    "st.q.r": ("double", _DOUBLES),
}
SPARK_TYPES: Final[Mapping[str, str]] = {name: kind for name, (kind, _) in _COLUMNS.items()}
"""Leaf columns, dots between parts, with their types as Spark SQL writes them."""
VALUES: Final[Mapping[str, Sequence[Any]]] = {name: found for name, (_, found) in _COLUMNS.items()}
"""The values of each column in its order."""


def random_files(random: Random, files: int, *, rows: int = 6) -> list[list[Row]]:
    """Return the rows of files: each has a narrow range of most columns, and some nulls."""
    return [_random_rows(random, 1 + random.randrange(rows)) for _ in range(files)]


def _random_rows(random: Random, count: int) -> list[Row]:
    leaves = {name: _window(random, values) for name, values in VALUES.items()}
    nulls = {name: random.choice([0.0, 0.0, 0.0, 0.3, 1.0]) for name in leaves}
    return [
        {
            name: None if random.random() < nulls[name] else random.choice(window)
            for name, window in leaves.items()
        }
        for _ in range(count)
    ]


def _window(random: Random, values: Sequence[Any]) -> Sequence[Any]:
    width = random.choice([1, 1, 2, 3, len(values)])
    start = random.randrange(max(1, len(values) - width + 1))
    return values[start : start + width]


def table_schema() -> StructType:
    """Return the schema of a table with all columns, CHAR and VARCHAR marked as Spark does."""
    flat = {name: _field(name.rpartition(".")[2], kind) for name, kind in SPARK_TYPES.items()}
    char = {_CHAR: "struct<c:char(4)>"}
    padded = StructType((StructField("c", PrimitiveType("string")),))
    inner = StructType((StructField("r", PrimitiveType("double")),))
    struct = StructType(
        (
            StructField("x", PrimitiveType("integer")),
            StructField("a b", PrimitiveType("string")),
            StructField("q", inner),
        )
    )
    top = tuple(field for name, field in flat.items() if "." not in name)
    structs = (StructField("st", struct), StructField("sc", padded, metadata=char))
    return StructType((*top, *structs))


def _field(name: str, kind: str) -> StructField:
    if kind.startswith("decimal"):
        precision, scale = kind[8:-1].split(",")
        return StructField(name, DecimalType(int(precision), int(scale)))
    if "char" in kind:
        return StructField(name, PrimitiveType("string"), metadata={_CHAR: kind})
    names = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
    return StructField(name, PrimitiveType(names.get(kind, kind)))


def arrow_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as the table's data files hold them: some texts of CHAR are padded."""
    return pa.Table.from_pylist([_nested(row) for row in rows], schema=arrow_schema(table_schema()))


def _nested(row: Row) -> dict[str, Any]:
    stored = {name: _stored(name, value) for name, value in row.items()}
    nested = {name: value for name, value in stored.items() if "." not in name}
    return nested | {
        "st": {"x": stored["st.x"], "a b": stored["st.a b"], "q": {"r": stored["st.q.r"]}},
        "sc": {"c": stored["sc.c"]},
    }


def _stored(name: str, value: Any) -> Any:
    kind = SPARK_TYPES[name]
    if isinstance(value, str) and kind.startswith("char"):
        return value if len(value) % 2 else value.ljust(int(kind[5:-1]))
    return value


# Snapshots and files of the rows of `random_tables`, as different writers describe them


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


# Random SQL conditions on these columns, and their truth, which Spark says.


OPERATORS: Final = ("=", "<>", "<", "<=", ">", ">=", "<=>", "==", "!=")


def quoted(column: str) -> str:
    """Return a column's name as SQL writes it."""
    return ".".join(part if part.isalnum() else f"`{part}`" for part in column.split("."))


def random_predicate(
    random: Random, columns: Sequence[str] = tuple(SPARK_TYPES), *, depth: int = 0
) -> str:
    """Return a condition on some of the columns: every operator, every class of literal."""
    if depth > 2 or random.random() < 0.7:
        return _atom(random, random.choice(list(columns)))
    first, second = (random_predicate(random, columns, depth=depth + 1) for _ in range(2))
    if random.random() < 0.3:
        return f"NOT ({first})"
    return f"({first}) {random.choice(['AND', 'OR'])} ({second})"


def _atom(random: Random, column: str) -> str:
    chance, name, negated = random.random(), quoted(column), random.choice(["", "", "NOT "])
    if chance < 0.16:
        return random.choice(_folded(random))
    if chance < 0.28:
        return _raw(random, column)
    if SPARK_TYPES[column] == "boolean":
        return column
    first, second = random_literal(random, column), random_literal(random, column)
    if isinstance(VALUES[column][0], str) and random.random() < 0.3:
        stem = random.choice(VALUES[column])[: random.randrange(5)].replace("%", "")
        return f"{name} {negated}LIKE '{stem}{random.choice(['%', '%', '', '%b', '_', '%a%'])}'"
    if chance < 0.6:
        sides = [name, first] if random.random() < 0.8 else [first, name]
        return f" {random.choice(OPERATORS)} ".join(sides)
    if chance < 0.75:
        return f"{name} {negated}BETWEEN {first} AND {second}"
    if chance < 0.9:
        more = [random_literal(random, column) for _ in range(random.randrange(3))]
        return f"{name} {negated}IN ({', '.join([first, second, *more])})"
    return f"{name} IS {negated}NULL"


def random_literal(random: Random, column: str) -> str:
    """Return a literal to compare a column with, mostly of its own type."""
    if random.random() < 0.06:
        return "NULL"
    value = random.choice(VALUES[column])
    if isinstance(value, str):
        return _text_literal(random, value)
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, dt.date):
        return _day_literal(random, value)
    if SPARK_TYPES[column].startswith("timestamp"):
        return _moment_literal(random, value, SPARK_TYPES[column].upper())
    return _number_literal(random, value, SPARK_TYPES[column])


def _raw(random: Random, column: str) -> str:
    name, literal = quoted(column), random_literal(random, column)
    operator = random.choice(OPERATORS)
    other = quoted(random.choice([c for c in SPARK_TYPES if SPARK_TYPES[c] != "boolean"]))
    kind = random.choice([kind for kind in SPARK_TYPES.values() if kind != "boolean"])
    return random.choice(
        [
            f"{name} {operator} CAST({literal} AS {kind})",
            f"CAST({name} AS {kind}) {operator} {literal}",
            f"CAST({literal} AS {kind}) {operator} {name}",
            f"TRY_CAST({name} AS {kind}) {operator} {literal}",
            f"{name} IN ({literal}, CAST({literal} AS {kind}))",
            f"{name} {operator} {other}",
            f"{literal} IN ({name}, {other})",
            f"{name} BETWEEN {other} AND {literal}",
            f"{literal} BETWEEN {name} AND {other}",
            f"coalesce({name}, {literal}) {operator} {literal}",
            f"CASE WHEN {name} {operator} {literal} THEN {name} END IS NULL",
            f"({name} {operator} {literal}) IS NULL",
            f"({name} {operator} {literal}) IS NOT TRUE",
            f"{name} {operator} {literal} = true",
            f"{name} + 1 {operator} 2",
            f"{name} {operator} -({literal})",
            f"{name} {operator} -(- {literal})",
            f"flag OR {name} {operator} {literal}",
            f"flag = true AND {name} {operator} {literal}",
            f"st IS NULL OR {name} {operator} {literal}",
            "i IN (1, '2')",
            "l IN (1, 9007199254740993e0)",
            "l IN (2, '01')",
            r"s LIKE 'a\_b%'",
            r"s LIKE 'a/%%' ESCAPE '/'",
            "s ILIKE 'A%'",
            r"s = '\x61'",
            r"s > 'a\nb'",
            "startswith(s, 'common')",
            f"{name} {operator} ({literal})",
            # Which operator binds more tightly.
            f"{name} {operator} {literal} OR i = 1 AND l > 2",
            f"NOT {name} {operator} {literal} AND i > 0",
            f"NOT i = 1 OR {name} {operator} {literal}",
            f"i BETWEEN 1 AND 5 AND {name} {operator} {literal} OR b = 2",
            f"NOT i BETWEEN 1 AND 5 OR {name} IS NULL",
            f"! {name} {operator} {literal}",
            f"{name} {operator} {literal} IS NULL",
            "NOT flag = true",
            "flag = i < 5",
            "flag <=> i = 1",
            "NOT i IN (1, 5) = flag",
        ]
    )


def _folded(random: Random) -> list[str]:
    """Return conditions on parts of times, and with constants to be calculated."""
    column, operator = random.choice(["day", "t", "z"]), random.choice(OPERATORS[:6])
    day, other = (random.choice(VALUES["day"]).isoformat() for _ in range(2))
    unit = random.choice(["year", "quarter", "MM", "week", "day", "hour"])
    year, month = int(day[:4]), random.randrange(14)
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(  # noqa: DTZ001  local
        microseconds=random.choice(VALUES["t"])
    )
    zone = random.choice(["", "", "+02:00", "-08:00", "Z"])
    number, factor = random.choice(VALUES["i"]), random.choice([-3, 0, 2, 1000])
    return [
        f"year({column}) {operator} {year}",
        f"year({column}) IN ({year}, {other[:4]})",
        f"year({column}) NOT IN ({year}, {other[:4]})",
        f"NOT (year({column}) BETWEEN {year} AND {other[:4]})",
        f"year({column}) = {year} AND month({column}) {operator} {month}",
        f"month({column}) NOT IN ({month}, 2) AND extract(year FROM {column}) = {year}",
        f"year({column}) = {year} AND month({column}) = 1 AND day({column}) {operator} 31",
        f"year({column}) * 100 + month({column}) {operator} {100 * year + month}",
        f"to_date({column}) {operator} DATE '{day}'",
        f"CAST({column} AS DATE) NOT IN ('{day}', '{other}')",
        f"trunc({column}, '{unit}') {operator} DATE '{day}'",
        f"date_trunc('{unit}', {column}) {operator} DATE '{day}'",
        f"date_trunc('{unit}', {column}) {operator} TIMESTAMP '{moment}{zone}'",
        f"date_trunc('{unit}', {column}) {operator} date_trunc('{unit}', DATE '{day}')",
        f"date_trunc('{unit}', {column}) IN ('{day}', '{other}')",
        f"date_trunc('{unit}', {column}) NOT IN (DATE '{day}', DATE '{other}')",
        f"{column} {operator} TIMESTAMP '{moment}{zone}' + INTERVAL {month - 7} MONTHS",
        f"{column} {operator} TIMESTAMP '{moment}{zone}' - INTERVAL '{month}' HOUR",
        f"{column} {operator} CAST(TIMESTAMP '{moment}{zone}' AS DATE)",
        f"t {operator} TIMESTAMP '{moment}{zone}' - INTERVAL {30 * month} DAYS",
        f"z {operator} TIMESTAMP_NTZ '{moment}' + INTERVAL '1' MONTH",
        f"{column} {operator} date_trunc('{unit}', TIMESTAMP '{moment}{zone}')",
        f"day {operator} DATE '{day}' + INTERVAL '{month - 7}' MONTH",
        f"day {operator} DATE '{day}' - INTERVAL {month} DAYS",
        f"day {operator} date_sub('{day}', {month})",
        f"day {operator} add_months(DATE '{day}', {month - 7})",
        f"day {operator} last_day('{day}')",
        f"day {operator} trunc('{day}', '{unit}')",
        f"day {operator} to_date('{day}', 'yyyy-MM-dd')",
        f"t {operator} to_timestamp('{moment}{zone}')",
        f"i {operator} {number} + {factor}",
        f"l {operator} {number} * {factor}",
        f"d {operator} {number} / {factor}",
        f"i {operator} {number} DIV {factor} - 1",
        f"i {operator} {number} % {factor}",
        f"m {operator} {factor} * 1.25 - 0.05",
        f"b {operator} CAST('{factor}' AS INT)",
        "s LIKE 'a!%%' ESCAPE '!'",
        "s LIKE 'a_b%'",
        r"s LIKE 'a\_%'",
        "startswith(s, 'a%')",
        "NOT startswith(s, 'a')",
    ]


def _text_literal(random: Random, value: str) -> str:
    if random.random() < 0.1:
        return str(random.choice([0, 1, 5, 300]))
    text = value + random.choice(["", "", "", "", " ", "a", "\u007f"])
    return f"'{text[:-1] if random.random() < 0.1 else text}'"


def _day_literal(random: Random, value: dt.date) -> str:
    text = value.isoformat()
    return random.choice(
        [
            f"DATE '{text}'",
            f"'{text}'",
            f"CAST('{text}' AS DATE)",
            f"TIMESTAMP '{text} 00:00:00'",
            f"TIMESTAMP_NTZ '{text} 12:00:00'",
        ]
    )


def _moment_literal(random: Random, value: int, name: str) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)  # noqa: DTZ001  local
    text = moment.isoformat(sep=" ")
    zoned = text + random.choice(["", "", "Z", "+00:00", "+02:00", "-08:00", "+14:00"])
    return random.choice(
        [
            f"{name} '{text}'",
            f"{name} '{zoned}'",
            f"TIMESTAMP '{zoned}'",
            f"TIMESTAMP_NTZ '{zoned}'",
            f"CAST('{zoned}' AS {name})",
            f"'{zoned}'",
            f"'{text}'",
            f"DATE '{moment.date()}'",
            f"'{moment.date()}'",
        ]
    )


def _number_literal(random: Random, value: Any, kind: str) -> str:
    number = _near(random, value)
    if number is None:
        text = random.choice(["NaN", "Infinity", "-Infinity"])
        return random.choice([f"'{text}'", f"CAST('{text}' AS DOUBLE)"])
    whole = number.to_integral_value() if abs(number) < 10**30 else number
    plain, double = format(number, "f"), repr(float(number))
    fraction = plain if "." in plain else f"{plain}.0"
    exponent = double if "e" in double else f"{double}e0"
    if random.random() < 0.5:
        is_exact = kind.startswith("decimal")
        return fraction if is_exact else f"{whole:f}" if kind.endswith("int") else exponent
    odd = [f" {plain}", f"{plain} ", f"0{plain}", f"+{plain}", "nine", ""]
    spelled = [f"{whole:f}", fraction, exponent, f"{double}D", f"{plain}BD"]
    spelled += [f"'{random.choice(odd)}'", f"'{plain}'", f"'{whole:f}'", f"'{double}'"]
    spelled += [f"{double}F"] * (abs(number) < 10**38) + [f"{whole:f}L"] * (abs(whole) < 2**63)
    return random.choice(spelled)


def _near(random: Random, value: Any) -> Decimal | None:
    number = Decimal(repr(value) if isinstance(value, float) else value)
    if not number.is_finite():
        return None
    steps = [Decimal(text) for text in ("0", "0", "0", "0", "0", "1", "-1", "0.5", "0.001")]
    return number + random.choice(steps) if number.adjusted() < 20 else number


# The truth, in sessions of Spark.

FOR_SMALL_QUERIES: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.subexpressionElimination.enabled": "false",
    # What fails is to fail where it is caught, not while the query is planned.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding",
}
"""Settings that plan and run a query of many columns and few rows quickly."""

ANSI, ZONE = SWITCHED = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")
IN_ONE_JOB: Final = 100
Truth = tuple[str, frozenset[int], frozenset[int]]
"""A condition, the files that hold rows of which it is true, and those with no other rows."""


def truths(spark: SparkSession, rows: DataFrame, texts: Sequence[str]) -> Iterator[Truth]:
    """Yield conditions on rows, which say their `file`, with their truth in the session."""
    for start in range(0, len(texts), IN_ONE_JOB):
        yield from _true_in(spark, rows, texts[start : start + IN_ONE_JOB])


def _true_in(spark: SparkSession, rows: DataFrame, texts: Sequence[str]) -> Iterator[Truth]:
    columns = _accepted(spark, rows, texts)
    if not columns:
        return
    known = [sf.coalesce(column, sf.expr("false")) for column in columns.values()]
    try:
        found = rows.select("file", *(one.alias(f"p{n}") for n, one in enumerate(known))).toArrow()
    except PySparkException:  # one of them fails while the query is planned
        half = len(columns) // 2
        for part in ([*columns][:half], [*columns][half:]) if half else ():
            yield from _true_in(spark, rows, part)
        return
    file, *masks = (column.to_numpy() for column in found.columns)
    for text, mask in zip(columns, masks, strict=True):
        holding, lacking = frozenset(file[mask].tolist()), frozenset(file[~mask].tolist())
        yield text, holding, frozenset(file.tolist()) - lacking


def _accepted(spark: SparkSession, rows: DataFrame, texts: Sequence[str]) -> dict[str, Column]:
    """Return those of the texts that the engine takes for conditions on the rows, as columns."""
    found = {}
    for text in texts:
        with suppress(Exception):  # whatever the engine finds wrong with it
            column = _condition(spark, text)
            rows.select(column)
            found[text] = column
    return found


def _condition(spark: Any, text: str) -> Any:
    """Return a condition as a column that is null where it fails, which ends whole queries else."""
    jvm = spark._jvm.org.apache.spark.sql
    parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
    return Column(jvm.classic.ExpressionUtils.column(jvm.catalyst.expressions.TryEval(parsed)))
