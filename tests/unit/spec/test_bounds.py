import pyarrow as pa
import pytest

from liquidlog.errors import CorruptLogError
from liquidlog.spec.bounds import (
    NULL_COUNT,
    NUM_RECORDS,
    Bounds,
    bounds_from,
    indexed_leaves,
    parse_bounds,
    wide_bounds,
)
from liquidlog.spec.schema import Leaf, leaves
from liquidlog.spec.schema import Path as ColumnPath
from liquidlog.spec.text import near_names, suggestion
from support.plans import ARRAY, STRUCT, schema_of


def stated(kind: str, low: str, high: str, nulls: int = 0) -> Bounds:
    """Return the bounds of one file whose statistics say this of a column x, as JSON."""
    text = f'{{"numRecords":9,"minValues":{{"x":{low}}},"maxValues":{{"x":{high}}}'
    text += f',"nullCount":{{"x":{nulls}}}}}'
    return parse_bounds(pa.array([text]), list(leaves(schema_of(x=kind))))


def test_a_maximum_at_the_end_of_time_is_unknown() -> None:
    (leaf,) = leaves(schema_of(a="timestamp"))
    last = pa.array([(1 << 63) - 1, 0])

    def values(path: ColumnPath, wanted: pa.DataType) -> pa.Array:
        return pa.nulls(2, wanted) if path[0] in {NULL_COUNT, NUM_RECORDS} else last.cast(wanted)

    (found,) = bounds_from([leaf], values).columns
    assert found.low.cast(pa.int64()).to_pylist() == last.to_pylist()
    assert found.high.cast(pa.int64()).to_pylist() == [None, 999]


@pytest.mark.parametrize("end", [-(2**63), 2**63 - 1])
def test_ends_of_int64_are_no_bounds_of_wide_whole_decimals(end: int) -> None:
    for kind in ("decimal(38,0)", "decimal(19,0)"):
        found = stated(kind, str(end), str(end))
        assert (found.low(0)[0].as_py(), found.high(0)[0].as_py()) == (None, None)
    near = stated("decimal(38,0)", str(end // 2), str(end // 2))
    assert near.low(0)[0].as_py() == near.high(0)[0].as_py() == end // 2
    assert stated("long", str(end), str(end)).low(0)[0].as_py() == end
    assert stated("decimal(38,1)", str(end), str(end)).known(0)


def test_cut_texts_end_after_every_character() -> None:
    for cut in ("abc\ufffd", "abc?\ufffd", "abc\ufffd\ufffd"):
        assert stated("string", '"a"', f'"{cut}"').high(0)[0].as_py() == "abc\U0010ffff"
    for whole in ("abc?", "\ufffdabc", "abc\U0010ffff"):
        assert stated("string", '"a"', f'"{whole}"').high(0)[0].as_py() == whole


def test_null_elements_are_no_null_arrays() -> None:
    for nulls, known in ((0, 0), (1, None), (9, None)):
        text = f'{{"numRecords":9,"nullCount":{{"x":{nulls}}}}}'
        found = parse_bounds(pa.array([text]), list(leaves(schema_of(x=ARRAY))))
        assert found.null_count(0)[0].as_py() == known


def test_at_most_a_handful_is_listed() -> None:
    many = [f"c{number}" for number in range(1_000)]
    text = suggestion("price", many, what="columns")
    assert text == "; the columns are c0, c1, c2, c3, c4, c5, c6, c7 and 992 more"
    assert suggestion("price", [], what="columns") == "; there are no columns"
    assert len(near_names("c12", many)) <= 3


# Statistics as they are written: which columns get them, and their JSON.


def _names(found: tuple[Leaf, ...]) -> list[ColumnPath]:
    return [leaf.logical for leaf in found]


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
