import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.spec.bounds import parse_bounds
from liquidlog.spec.schema import leaves
from support.plain_bounds import plain_bounds
from support.schemas import STRUCT, schema_of


def _bounds(kind: str, low: str, high: str) -> tuple[Any, Any]:
    stats = f'{{"numRecords":1,"minValues":{{"a":{low}}},"maxValues":{{"a":{high}}}}}'
    found = parse_bounds(pa.array([stats]), list(leaves(schema_of(a=kind))))
    return found.low(0)[0].as_py(), found.high(0)[0].as_py()


def test_parsed_bounds_have_the_types_of_their_columns() -> None:
    schema = schema_of(a="byte", s=STRUCT, b="variant", c="date")
    stats = (
        '{"numRecords":7,"minValues":{"a":-1,"s":{"X":2}},"maxValues":{"a":5,"s":{"X":3}},'
        '"nullCount":{"a":1,"s":{"X":2,"y":3},"b":4}}'
    )
    found = parse_bounds(
        pa.chunked_array([[stats], [None]], pa.large_string()), list(leaves(schema))
    )
    assert [column.low.type for column in found.columns] == [
        pa.int8(),
        pa.int64(),
        pa.bool_(),
        pa.null(),
        pa.date32(),
    ]
    assert plain_bounds(found) == [
        {
            "num_records": 7,
            "columns": [
                (-1, 5, 1),
                (2, 3, 2),
                (None, None, 3),
                (None, None, 4),
                (None, None, None),
            ],
        },
        {"num_records": None, "columns": [(None, None, None)] * 5},
    ]


@pytest.mark.parametrize(
    "stats", [None, "", "{}", "{", "[]", "3", '{"minValues":3}', '{"minValues":null}', "\x00"]
)
def test_absent_or_malformed_statistics_give_nulls(stats: str | None) -> None:
    found = parse_bounds(
        pa.array([stats], pa.string()), list(leaves(schema_of(a="long", s=STRUCT)))
    )
    nothing = (None, None, None)
    assert plain_bounds(found) == [{"num_records": None, "columns": [nothing] * 3}]


def test_one_bad_value_costs_one_bound() -> None:
    good = '{"numRecords":1,"minValues":{"a":1,"s":{"X":1}},"maxValues":{"a":2,"s":{"X":2}}}'
    bad = '{"numRecords":1,"minValues":{"a":"one","s":{"X":1}},"maxValues":{"a":1e3,"s":{"X":2}}}'
    found = parse_bounds(pa.array([good, bad]), list(leaves(schema_of(a="long", s=STRUCT))))
    assert found.low(0).to_pylist() == [1, None]
    assert found.high(0).to_pylist() == [2, None]
    assert found.low(1).to_pylist() == [1, 1]


def test_no_columns_give_the_row_counts_alone() -> None:
    found = parse_bounds(pa.array(['{"numRecords":4,"minValues":{"a":1}}']), [])
    assert plain_bounds(found) == [{"num_records": 4, "columns": []}]


def test_float_bounds_keep_nan_and_infinities() -> None:
    low, high = _bounds("double", '"-Infinity"', '"NaN"')
    assert low == -math.inf
    assert math.isnan(high)
    assert _bounds("float", "0.1", '"Infinity"')[0] == pa.scalar(0.1, pa.float32()).as_py()


def test_decimal_bounds_are_exact_to_38_digits() -> None:
    digits = "99999999999999999999.999999999999999999"
    assert _bounds("decimal(38,18)", f"-{digits}", digits) == (
        Decimal(f"-{digits}"),
        Decimal(digits),
    )
    assert _bounds("decimal(10,2)", "1", "1.5E1") == (Decimal("1.00"), Decimal("15.00"))


def test_timestamp_bounds_are_instants_and_maxima_cover_the_lost_microseconds() -> None:
    low, high = _bounds(
        "timestamp", '"2024-01-01T00:00:00.123-05:00"', '"1969-12-31T23:59:59.999Z"'
    )
    assert low == dt.datetime(2024, 1, 1, 5, 0, 0, 123000, dt.UTC)
    assert high == dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)
    assert _bounds("timestamp_ntz", '"0001-01-01T00:00:00.000"', '"9999-12-31T23:59:59.999"') == (
        dt.datetime(1, 1, 1),  # noqa: DTZ001
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("date", '"+10000-01-01"'),
        ("date", '"-0001-01-01"'),
        ("timestamp", '"+294247-01-10T04:00:54.775Z"'),
        ("timestamp", '"2024-01-01T00:00:00.123"'),
        ("timestamp_ntz", '"2024-01-01T00:00:00.123Z"'),
        ("long", "true"),
        ("byte", "300"),
        ("decimal(4,2)", "1.234"),
        ("string", "5"),
        ("date", '"yesterday"'),
    ],
)
def test_bounds_that_are_not_of_the_type_are_null(kind: str, text: str) -> None:
    assert _bounds(kind, text, text) == (None, None)


def test_string_bounds_are_unescaped() -> None:
    assert _bounds("string", r'"a\"\u00e9\n"', '"\U0010ffff"') == ('a"é\n', "\U0010ffff")
