from decimal import Decimal

import pytest

from liquidlog.errors import CorruptLogError
from liquidlog.spec.bounds import FileStatistics, encode_stats, indexed_leaves, wide_bounds
from liquidlog.spec.schema import Leaf, Path, leaves
from support.plans import ARRAY, STRUCT, schema_of


def _names(found: tuple[Leaf, ...]) -> list[Path]:
    return [leaf.logical for leaf in found]


def test_first_32_leaves_are_indexed_by_default() -> None:
    schema = schema_of(s=STRUCT, **{f"c{number}": "long" for number in range(40)})
    assert _names(indexed_leaves(schema, {})) == [
        ("s", "X"),
        ("s", "y"),
        *((f"c{number}",) for number in range(30)),
    ]


@pytest.mark.parametrize(("number", "count"), [("-1", 4), ("0", 0), ("2", 2), ("9", 4)])
def test_number_of_indexed_columns_counts_leaves(number: str, count: int) -> None:
    schema = schema_of(a=ARRAY, s=STRUCT, b="long")
    found = indexed_leaves(schema, {"delta.dataSkippingNumIndexedCols": number})
    assert found == tuple(leaves(schema))[:count]


def test_named_columns_win_and_ignore_case_and_name_whole_structs() -> None:
    schema = schema_of(a="long", s=STRUCT, **{"x.y": "long"})
    both = {"delta.dataSkippingNumIndexedCols": "0"}
    named = {"delta.dataSkippingStatsColumns": "`X.Y`, S", **both}
    assert _names(indexed_leaves(schema, named)) == [("s", "X"), ("s", "y"), ("x.y",)]
    one = {"delta.dataSkippingStatsColumns": "s.x"}
    assert _names(indexed_leaves(schema, one)) == [("s", "X")]


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


def test_wide_bounds_keep_everything_else_as_it_is_written() -> None:
    text = (
        '{"numRecords":3,"minValues":{"d":0.10000000000000000000000000000,"s":"\\u00e9"},'
        '"nullCount":{"d":3},"unknown":[1.50]'
    )
    assert wide_bounds(text + "}", where="f") == text + ',"tightBounds":false}'
    assert wide_bounds(text + ',"tightBounds":true}', where="f") == text + ',"tightBounds":false}'


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"numRecords":null}', '{"numRecords":-1}'])
def test_statistics_without_a_number_of_rows_cannot_have_a_vector(text: str) -> None:
    with pytest.raises(CorruptLogError, match="numRecords") as caught:
        wide_bounds(text, where="f.parquet")
    assert caught.value.path == "f.parquet"
