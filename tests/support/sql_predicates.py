"""Strategies for small files of rows, and for SQL predicates about them that DuckDB knows."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType, StructField, StructType

TYPES: dict[str, DataType] = {
    "i": PrimitiveType("integer"),
    "f": PrimitiveType("double"),
    "s": PrimitiveType("string"),
    "d": PrimitiveType("date"),
    "n": DecimalType(10, 2),
    "z": PrimitiveType("timestamp_ntz"),
    "b": PrimitiveType("boolean"),
}
SCHEMA = StructType(tuple(StructField(name, kind) for name, kind in TYPES.items()))
ARROW = pa.schema(
    [
        ("file", pa.int32()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("n", pa.decimal128(10, 2)),
        ("z", pa.timestamp("us")),
        ("b", pa.bool_()),
    ]
)

NOON = dt.datetime(2024, 1, 3, 12)  # noqa: DTZ001  without a zone
_days = st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 9)) | st.dates(
    dt.date(2023, 12, 30), dt.date(2024, 3, 1)
)
_midnights = _days.map(lambda day: dt.datetime(*day.timetuple()[:3]))  # noqa: DTZ001  local
VALUES = {
    "i": st.integers(-3, 3),
    "f": st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0, float("nan")]),
    "s": st.sampled_from(["", "a", "ab", "b", "B", "ü"]),
    "d": _days,
    "n": st.integers(-150, 150).map(lambda cents: Decimal(cents).scaleb(-2)),
    "z": st.integers(-2, 2).map(lambda step: NOON + dt.timedelta(microseconds=500 * step))
    | _midnights,
    "b": st.booleans(),
}
_rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
FILES = st.lists(st.lists(_rows, min_size=1, max_size=3), min_size=1, max_size=4)
"""Rows per file."""

LITERALS = {
    "i": st.sampled_from(
        ["-2", "0", "1.5", "3", "NULL", "'2'", "1 + 2 * -1", "7 / 2", "-7 % 4", "CAST('2' AS INT)"]
    ),
    "f": st.sampled_from(["-1.5", "0", "0.25", "2", "1e9", "NULL", "1e0 / 4e0", "1e0 - 1.5e0"]),
    "s": st.sampled_from(["''", "'a'", "'aa'", "'b'", "'z'", "NULL"]),
    "d": st.sampled_from(
        [
            "'2024-01-03'",
            "DATE '2024-01-05'",
            "CAST('2024-01-09' AS DATE)",
            "DATE '2024-02-29' - INTERVAL '1' MONTH",
            "DATE '2023-12-31' + INTERVAL 1 MONTH",
            "DATE '2024-01-30' + INTERVAL 1 MONTH",
            "DATE '2024-01-01' + 4",
            "DATE '2025-01-08' - INTERVAL '1' YEAR - INTERVAL 2 DAYS",
        ]
    ),
    "n": st.sampled_from(
        ["-1.5", "-1", "0.00", "0.005", "1.23", "1", "99999999999", "NULL", "1.5 * 0.5", "2 - 0.77"]
    ),
    "z": st.sampled_from(
        [
            *(f"'2024-01-03 {time}'" for time in ("11:59:59.9995", "12:00:00", "12:00:00.000500")),
            "TIMESTAMP '2024-01-02 12:00:00' + INTERVAL 24 HOURS",
            "TIMESTAMP '2023-12-03 12:00:00' + INTERVAL '1' MONTH",
        ]
    ),
    "b": st.sampled_from(["TRUE", "FALSE", "NULL"]),
}
_operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


_patterns = st.sampled_from(
    [
        f"s {word} '{pattern}'"
        for word in ("LIKE", "NOT LIKE")
        for pattern in ("a%", "ab", "a%b", "B%", "ü%", "%", "_b", "c%", "a_", "ab_%", "%%a")
    ]
    + [f"s LIKE '{pattern}' ESCAPE '!'" for pattern in ("a!%%", "a!_", "!!%", "b%", "a!%", "%")]
)
_period_days = st.dates(dt.date(2023, 12, 30), dt.date(2024, 3, 2)).map("DATE '{}'".format)


@st.composite
def _periods(draw: st.DrawFn) -> str:
    """Return a condition on the years, months, weeks and days of a column."""
    name, operator = draw(st.sampled_from(["d", "z"])), draw(_operators)
    year, month = draw(st.integers(2023, 2025)), draw(st.integers(0, 13))
    unit = draw(st.sampled_from(["year", "quarter", "month", "week", "day"]))
    first, second = draw(_period_days), draw(_period_days)
    return draw(
        st.sampled_from(
            [
                f"year({name}) {operator} {year}",
                f"year({name}) NOT IN ({year}, {year + 1})",
                f"{year} {operator} extract(year FROM {name})",
                f"year({name}) BETWEEN {year - 1} AND {year}",
                f"year({name}) = {year} AND month({name}) {operator} {month}",
                f"NOT (month({name}) IN ({month}, 1) AND year({name}) = {year})",
                f"year({name}) = {year} AND month({name}) = {month} AND day({name}) {operator} 5",
                f"year({name}) * 100 + month({name}) {operator} {100 * year + month}",
                f"CAST({name} AS DATE) {operator} {first}",
                f"CAST({name} AS DATE) BETWEEN {first} AND {second}",
                f"date_trunc('{unit}', {name}) {operator} {first}",
                f"date_trunc('{unit}', {name}) {operator} date_trunc('{unit}', {second})",
                f"date_trunc('{unit}', {name}) IN ({first}, {second})",
                f"date_trunc('{unit}', {name}) NOT IN ({first}, {second})",
            ]
        )
    )


@st.composite
def _atoms(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(TYPES)))
    first, second = draw(LITERALS[name]), draw(LITERALS[name])
    return draw(
        st.sampled_from(
            [
                f"{name} {draw(_operators)} {first}",
                f"{first} {draw(_operators)} {name}",
                f"{name} BETWEEN {first} AND {second}",
                f"{name} NOT IN ({first}, {second})",
                f"{name} IN ({first}, {second})",
                f"{name} IS NULL",
                f"{name} IS NOT NULL",
                f"{name} IS NOT DISTINCT FROM {first}",
                f"{name} IS DISTINCT FROM {first}",
                draw(_patterns),
            ]
        )
    )


PREDICATES = st.recursive(
    _atoms() | _periods(),
    lambda inner: st.one_of(
        inner.map(lambda text: f"NOT ({text})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
    ),
    max_leaves=5,
)
