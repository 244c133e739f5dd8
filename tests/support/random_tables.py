"""Random tables of all types, for tests of file skipping: values that lie near the edges of types.

A row is a dictionary of plain values: floats as Python floats, instants and local timestamps as
microseconds since 1970, structs as dictionaries.
"""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random  # noqa: TID251  a test
from typing import Any, Final

import numpy as np
import pyarrow as pa

from liquidlog.data.statistics import StatisticsCollector
from liquidlog.plan import WriterOptions
from liquidlog.snapshot import STATISTICS_TYPE, Snapshot, Statistics
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.bounds import encode_stats
from liquidlog.spec.schema import DecimalType, PrimitiveType, StructField, StructType, leaves
from support.snapshots import FileSpec, snapshot_of

Row = Mapping[str, Any]

_DAY_US: Final = 86_400_000_000
_CHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"

SPARK_TYPES: Final[Mapping[str, str]] = {
    "b": "tinyint",
    "h": "smallint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "n": "decimal(38,2)",
    "m": "decimal(10,2)",
    "w": "decimal(38,30)",
    "k": "decimal(20,0)",
    "s": "string",
    "v": "varchar(40)",
    "c": "char(4)",
    "day": "date",
    "t": "timestamp",
    "z": "timestamp_ntz",
    "flag": "boolean",
    "st.x": "int",
    "st.a b": "string",
    "sc.c": "char(4)",
    "st.q.r": "double",
}
"""Leaf columns, dots between parts, with their types as Spark SQL writes them."""


def _f32(value: float) -> float:
    return float(np.float32(value))


def _us(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


_SMALL: Final = [-128, -100, -2, -1, 0, 1, 2, 5, 7, 100, 127]
_INTS: Final = [-(1 << 31), -16777217, *_SMALL, 257, 300, 16777216, 16777217, (1 << 31) - 1]
_LARGE: Final = (5_000_000_000, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, (1 << 63) - 1)
_LONGS: Final = [-(1 << 63), -(2**53) - 1, *_INTS, *_LARGE]
_BELOW: Final = (-3.4028235e38, -16777217.3, -1.5, -1.1, -0.1, -0.0)
_ABOVE: Final = (0.0, 1e-45, 0.1, 0.3, 1.0, 1.1, 1.5, 5.0, 16777216.0, 16777218.0, 3.4028235e38)
_FLOATS: Final = [-np.inf, *map(_f32, (*_BELOW, *_ABOVE)), np.inf, np.nan]
_MORE: Final = (-1e300, -0.1, 5e-324, 0.1, 0.3, 1.1, float(2**53), float(2**53 + 2), 1e300)
_DOUBLES: Final = [*sorted({*_FLOATS[:-1], *_MORE}), np.nan]
_CENTS: Final = (-9999999999, -500, -110, -1, 0, 1, 110, 123, 124, 150, 500, 725, 30000)
_MONEY: Final = [Decimal(cents).scaleb(-2) for cents in (*_CENTS, 1677721700, 9999999999)]
_DIGITS: Final = "1234567890123456789012345678"
_BELOW_MONEY: Final = ("-" + "9" * 36 + ".99", f"-{_DIGITS}.91", f"-{_DIGITS}.90")
_ABOVE_MONEY: Final = ("9007199254740993.00", f"{_DIGITS}.91", "9" * 36 + ".99")
_BIG: Final = [*map(Decimal, _BELOW_MONEY), *_MONEY, *map(Decimal, _ABOVE_MONEY)]
_SMALLEST: Final = ("1.100000000000000000000000000001", "99999999." + "9" * 30)
_FINE: Final = [*map(Decimal, ("-5.5", "-1.1", "0", "1.1", "1.5", "5", "7.25", *_SMALLEST))]
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
        *("2024-01-30", "2024-01-31", "2024-02-01", "2024-02-29", "2024-03-10", "9999-12-31"),
    )
]
_MOMENTS: Final = [
    _us(moment)
    for moment in (
        *("0001-01-01 00:00:00", "1800-01-01 12:00:00", "1883-11-18 12:03:58"),
        *("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2024-01-31 00:00:00"),
        *("2024-01-31 00:00:00.000500", "2024-01-31 12:00:00", "2024-01-31 23:30:00"),
        *("2024-02-01 00:00:00", "2024-03-10 02:30:00", "2024-03-10 07:30:00"),
        *("2024-11-03 05:30:00", "2024-11-03 06:30:00", "9999-12-31 23:59:59.999999"),
    )
]

VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "b": _SMALL,
    "h": [-32768, *_SMALL, 257, 300, 32767],
    "i": _INTS,
    "l": _LONGS,
    "f": _FLOATS,
    "d": _DOUBLES,
    "n": _BIG,
    "m": _MONEY,
    "w": sorted(_FINE),
    "k": [Decimal(n) for n in sorted({*_LONGS, 10**19, 10**20 - 1, 1 - 10**20})],
    "s": _TEXTS,
    "v": _TEXTS,
    "c": _SHORT,
    "day": _DAYS,
    "t": _MOMENTS,
    "z": _MOMENTS,
    "flag": [False, True],
    "st.x": _INTS,
    "st.a b": _TEXTS,
    "sc.c": _SHORT,
    "st.q.r": _DOUBLES,
}
"""The values of each column in its order."""


def random_files(
    random: Random, files: int, *, rows: int = 6, columns: Sequence[str] | None = None
) -> list[list[Row]]:
    """Return the rows of files: each has a narrow range of most columns, and some nulls."""
    return [_random_rows(random, 1 + random.randrange(rows), columns) for _ in range(files)]


def _random_rows(random: Random, count: int, columns: Sequence[str] | None) -> list[Row]:
    leaves = {name: _window(random, VALUES[name]) for name in columns or VALUES}
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
        "st": {
            "x": stored["st.x"],
            "a b": stored["st.a b"],
            "q": {"r": stored["st.q.r"]},
        },
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
