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
    ]
)

NOON = dt.datetime(2024, 1, 3, 12)  # noqa: DTZ001  without a zone
_days = st.integers(1, 9).map(lambda day: dt.date(2024, 1, day))
VALUES = {
    "i": st.integers(-3, 3),
    "f": st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0, float("nan")]),
    "s": st.sampled_from(["", "a", "ab", "b", "B", "ü"]),
    "d": _days,
    "n": st.integers(-150, 150).map(lambda cents: Decimal(cents).scaleb(-2)),
    "z": st.integers(-2, 2).map(lambda step: NOON + dt.timedelta(microseconds=500 * step)),
}
_rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
FILES = st.lists(st.lists(_rows, min_size=1, max_size=3), min_size=1, max_size=4)
"""Rows per file."""

LITERALS = {
    "i": st.sampled_from(["-2", "0", "1.5", "3", "NULL", "'2'"]),
    "f": st.sampled_from(["-1.5", "0", "0.25", "2", "1e9", "NULL"]),
    "s": st.sampled_from(["''", "'a'", "'aa'", "'b'", "'z'", "NULL"]),
    "d": st.sampled_from(["'2024-01-03'", "DATE '2024-01-05'", "CAST('2024-01-09' AS DATE)"]),
    "n": st.sampled_from(["-1.5", "-1", "0.00", "0.005", "1.23", "1", "99999999999", "NULL"]),
    "z": st.sampled_from(
        [f"'2024-01-03 {time}'" for time in ("11:59:59.9995", "12:00:00", "12:00:00.000500")]
    ),
}
_operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


_patterns = st.sampled_from(
    [
        f"s {word} '{pattern}'"
        for word in ("LIKE", "NOT LIKE")
        for pattern in ("a%", "ab", "a%b", "B%", "ü%", "%", "_b", "c%")
    ]
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
    _atoms(),
    lambda inner: st.one_of(
        inner.map(lambda text: f"NOT ({text})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
    ),
    max_leaves=5,
)
