import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.spec.bounds import raised_maxima
from liquidlog.spec.schema import Leaf, Path, StructType, leaves, parse_schema
from liquidlog.spec.stats import (
    FileStatistics,
    encode_stats,
    has_bounds,
    indexed_leaves,
    parse_bounds,
)


def _schema(**types: str) -> StructType:
    fields = ",".join(
        f'{{"name":"{name}","type":{kind if kind.startswith("{") else chr(34) + kind + chr(34)},'
        '"nullable":true,"metadata":{}}'
        for name, kind in types.items()
    )
    return parse_schema(f'{{"type":"struct","fields":[{fields}]}}', where="test")


INNER = (
    '{"type":"struct","fields":[{"name":"X","type":"long","nullable":true},'
    '{"name":"y","type":"boolean","nullable":true}]}'
)
ARRAY = '{"type":"array","elementType":"long","containsNull":true}'


def _names(found: tuple[Leaf, ...]) -> list[Path]:
    return [leaf.logical for leaf in found]


def _bounds(kind: str, low: str, high: str) -> tuple[Any, Any]:
    stats = f'{{"numRecords":1,"minValues":{{"a":{low}}},"maxValues":{{"a":{high}}}}}'
    found = parse_bounds(pa.array([stats]), list(leaves(_schema(a=kind))))
    return found["min.0"][0].as_py(), found["max.0"][0].as_py()


def test_bounds_exist_for_ordered_types_only() -> None:
    schema = _schema(a="string", b="decimal(5,2)", c="boolean", d="binary", e=ARRAY, f="variant")
    assert [has_bounds(leaf.data_type) for leaf in leaves(schema)] == [True] * 2 + [False] * 4


def test_first_32_leaves_are_indexed_by_default() -> None:
    schema = _schema(s=INNER, **{f"c{number}": "long" for number in range(40)})
    assert _names(indexed_leaves(schema, {})) == [
        ("s", "X"),
        ("s", "y"),
        *((f"c{number}",) for number in range(30)),
    ]


@pytest.mark.parametrize(("number", "count"), [("-1", 4), ("0", 0), ("2", 2), ("9", 4)])
def test_number_of_indexed_columns_counts_leaves(number: str, count: int) -> None:
    schema = _schema(a=ARRAY, s=INNER, b="long")
    found = indexed_leaves(schema, {"delta.dataSkippingNumIndexedCols": number})
    assert found == tuple(leaves(schema))[:count]


def test_named_columns_win_and_ignore_case_and_name_whole_structs() -> None:
    schema = _schema(a="long", s=INNER, **{"x.y": "long"})
    both = {"delta.dataSkippingNumIndexedCols": "0"}
    named = {"delta.dataSkippingStatsColumns": "`X.Y`, S", **both}
    assert _names(indexed_leaves(schema, named)) == [("s", "X"), ("s", "y"), ("x.y",)]
    one = {"delta.dataSkippingStatsColumns": "s.x"}
    assert _names(indexed_leaves(schema, one)) == [("s", "X")]


def test_number_of_indexed_columns_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError):
        indexed_leaves(_schema(a="long"), {"delta.dataSkippingNumIndexedCols": "many"})


def test_encoded_statistics_nest_structs_and_write_decimals_digit_by_digit() -> None:
    stats = FileStatistics(
        num_records=3,
        min_values={("s", "a"): Decimal("0E-18"), ("s", "b"): "x", ("c",): -0.0},
        max_values={("s", "a"): Decimal("1E+5")},
        null_count={("s", "a"): 0, ("s", "b"): 1, ("c",): 2},
    )
    assert encode_stats(stats) == (
        '{"numRecords":3,"minValues":{"s":{"a":0.000000000000000000,"b":"x"},"c":-0.0},'
        '"maxValues":{"s":{"a":100000}},"nullCount":{"s":{"a":0,"b":1},"c":2}}'
    )


def test_parsed_bounds_have_the_types_of_their_columns() -> None:
    schema = _schema(a="byte", s=INNER, b="variant", c="date")
    stats = (
        '{"numRecords":7,"minValues":{"a":-1,"s":{"X":2}},"maxValues":{"a":5,"s":{"X":3}},'
        '"nullCount":{"a":1,"s":{"X":2,"y":3},"b":4}}'
    )
    found = parse_bounds(
        pa.chunked_array([[stats], [None]], pa.large_string()), list(leaves(schema))
    )
    assert found.schema.names == [
        *(f"{side}.{n}" for n in range(5) for side in ("min", "max", "null_count")),
        "num_records",
    ]
    assert found.schema.field("min.0").type == pa.int8()
    assert found.schema.field("min.2").type == pa.bool_()
    assert found.schema.field("max.3").type == pa.null()
    assert found.schema.field("max.4").type == pa.date32()
    assert found.to_pylist()[0] | {"min.4": None, "max.4": None} == found.to_pylist()[0]
    assert [found[f"{side}.1"][0].as_py() for side in ("min", "max", "null_count")] == [2, 3, 2]
    assert found["null_count.2"][0].as_py() == 3
    assert found["null_count.3"][0].as_py() == 4
    assert found["num_records"].to_pylist() == [7, None]


@pytest.mark.parametrize(
    "stats", [None, "", "{}", "{", "[]", "3", '{"minValues":3}', '{"minValues":null}', "\x00"]
)
def test_absent_or_malformed_statistics_give_nulls(stats: str | None) -> None:
    found = parse_bounds(pa.array([stats], pa.string()), list(leaves(_schema(a="long", s=INNER))))
    assert set(found.to_pylist()[0].values()) == {None}


def test_one_bad_value_costs_one_bound() -> None:
    good = '{"numRecords":1,"minValues":{"a":1,"s":{"X":1}},"maxValues":{"a":2,"s":{"X":2}}}'
    bad = '{"numRecords":1,"minValues":{"a":"one","s":{"X":1}},"maxValues":{"a":1e3,"s":{"X":2}}}'
    found = parse_bounds(pa.array([good, bad]), list(leaves(_schema(a="long", s=INNER))))
    assert found["min.0"].to_pylist() == [1, None]
    assert found["max.0"].to_pylist() == [2, None]
    assert found["min.1"].to_pylist() == [1, 1]


def test_no_columns_give_the_row_counts_alone() -> None:
    found = parse_bounds(pa.array(['{"numRecords":4,"minValues":{"a":1}}']), [])
    assert found.to_pylist() == [{"num_records": 4}]


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


def test_a_maximum_at_the_end_of_time_is_unknown() -> None:
    last = pa.array([(1 << 63) - 1, 0], pa.timestamp("us", "UTC"))
    raised = raised_maxima(pa.table({"max.0": last}))
    assert raised["max.0"].cast(pa.int64()).to_pylist() == [None, 999]
