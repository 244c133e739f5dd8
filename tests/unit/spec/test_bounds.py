import datetime as dt
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.errors import CorruptLogError
from liquidlog.spec.bounds import (
    NULL_COUNT,
    Bounds,
    ColumnBounds,
    column_bounds,
    indexed_leaves,
    parse_bounds,
    wide_bounds,
)
from liquidlog.spec.schema import Leaf, leaves
from liquidlog.spec.schema import Path as ColumnPath
from liquidlog.spec.text import json_scalar, near_names, suggestion
from support.plans import ARRAY, STRUCT, schema_of
from support.table_rows import plain_bounds


def column(low: list[int | None], high: list[int | None], nulls: list[int | None]) -> ColumnBounds:
    arrays = (pa.array(values, pa.int64()) for values in (low, high, nulls))
    return ColumnBounds(**dict(zip(("low", "high", "null_count"), arrays, strict=True)))


def stated(kind: str, low: str, high: str, nulls: int = 0) -> Bounds:
    """Return the bounds of one file whose statistics say this of a column x, as JSON."""
    text = f'{{"numRecords":9,"minValues":{{"x":{low}}},"maxValues":{{"x":{high}}}'
    text += f',"nullCount":{{"x":{nulls}}}}}'
    return parse_bounds(pa.array([text]), list(leaves(schema_of(x=kind))))


def four_files() -> Bounds:
    """Return bounds of a file with a range, one of nulls, one half known and one unknown."""
    return Bounds(
        columns=(
            column([1, None, 3, None], [2, None, None, None], [0, 9, 0, None]),
            column([1, 1, 1, 1], [5, 5, 5, 5], [0, 0, 0, 0]),
        ),
        num_records=pa.array([9, 9, 9, 9]),
    )


def test_every_file_has_a_range_or_only_nulls_or_is_unknown() -> None:
    bounds = four_files()
    assert bounds.known(0).tolist() == [True, False, False, False]
    assert bounds.only_nulls(0).tolist() == [False, True, False, False]
    assert bounds.unknown(0).tolist() == [False, False, True, True]
    assert bounds.all_known().tolist() == bounds.known(0).tolist()
    assert bounds.select([1]).all_known().all()


@pytest.mark.parametrize(
    ("broken", "num_records"),
    [
        (column([1], [2], [0]), pa.array([1, 1])),
        (column([1], [2, 3], [0]), pa.array([1])),
        (column([1], [2], [0, 0]), pa.array([1])),
        (column([1], [2], [0]), pa.array([1.0])),
        (
            ColumnBounds(
                low=pa.chunked_array([[1]]), high=pa.chunked_array([[2]]), null_count=pa.array([0])
            ),
            pa.array([1]),
        ),
        (
            ColumnBounds(low=pa.array([1]), high=pa.array(["2"]), null_count=pa.array([0])),
            pa.array([1]),
        ),
        (
            ColumnBounds(low=pa.array([1]), high=pa.array([2]), null_count=pa.array([0.0])),
            pa.array([1]),
        ),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    broken: ColumnBounds, num_records: pa.Array
) -> None:
    with pytest.raises(ValueError, match=r"^(column 0|counts) (has|is|are)"):
        Bounds(columns=(broken,), num_records=num_records)


def test_a_maximum_at_the_end_of_time_is_unknown() -> None:
    (leaf,) = leaves(schema_of(a="timestamp"))
    last = pa.array([(1 << 63) - 1, 0])

    def values(section: str, wanted: pa.DataType) -> pa.Array:
        return pa.nulls(2, wanted) if section == NULL_COUNT else last.cast(wanted)

    found = column_bounds(leaf, values)
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
    assert stated("string", '"a"', '"abc\ufffd"').high(0)[0].as_py() == "abc\U0010ffff"
    assert stated("string", '"a"', '"abc?\ufffd"').high(0)[0].as_py() == "abc\U0010ffff"
    assert stated("string", '"a"', '"abc\ufffd\ufffd"').high(0)[0].as_py() == "abc\U0010ffff"
    for whole in ("abc", "abc?", "\ufffdabc", "abc\U0010ffff"):
        assert stated("string", '"a"', f'"{whole}"').high(0)[0].as_py() == whole


def test_null_elements_are_no_null_arrays() -> None:
    for nulls, known in ((0, 0), (1, None), (9, None)):
        text = f'{{"numRecords":9,"nullCount":{{"x":{nulls}}}}}'
        found = parse_bounds(pa.array([text]), list(leaves(schema_of(x=ARRAY))))
        assert found.null_count(0)[0].as_py() == known


def _bounds(kind: str, low: str, high: str) -> tuple[Any, Any]:
    stats = f'{{"numRecords":1,"minValues":{{"a":{low}}},"maxValues":{{"a":{high}}}}}'
    found = parse_bounds(pa.array([stats]), list(leaves(schema_of(a=kind))))
    return found.low(0)[0].as_py(), found.high(0)[0].as_py()


@pytest.mark.parametrize(
    "stats", [None, "", "{}", "{", "[]", "3", '{"minValues":3}', '{"minValues":null}', "\x00"]
)
def test_absent_or_malformed_statistics_give_nulls(stats: str | None) -> None:
    found = parse_bounds(
        pa.array([stats], pa.string()), list(leaves(schema_of(a="long", s=STRUCT)))
    )
    nothing = (None, None, None)
    assert plain_bounds(found) == [{"num_records": None, "columns": [nothing] * 3}]


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


COLUMNS = ("order_id", "customer", "day", "l_shipdate", "ship.city", "ship.zip")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("custmer", ("customer",)),
        ("CUSTOMER", ("customer",)),
        ("dya", ("day",)),
        ("shipdate", ("l_shipdate",)),
        ("ship.town", ("ship.city", "ship.zip")),
        ("price", ()),
        ("id", ()),
        ("", ()),
    ],
)
def test_only_near_names_are_named(name: str, near: tuple[str, ...]) -> None:
    assert near_names(name, COLUMNS) == near


def test_at_most_a_handful_is_listed() -> None:
    many = [f"c{number}" for number in range(1_000)]
    text = suggestion("price", many, what="columns")
    assert text == "; the columns are c0, c1, c2, c3, c4, c5, c6, c7 and 992 more"
    assert suggestion("price", [], what="columns") == "; there are no columns"
    assert len(near_names("c12", many)) <= 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (1.5, 1.5),
        ("text", "text"),
        (None, None),
        (datetime(2024, 1, 31, 12, 0, 0, 123456, tzinfo=UTC), "2024-01-31T12:00:00.123Z"),
        (datetime(2024, 1, 31, 12, 0, 0, 123456), "2024-01-31T12:00:00.123"),  # noqa: DTZ001
    ],
    ids=str,
)
def test_scalars_without_a_form_in_json_become_texts(value: object, expected: object) -> None:
    assert json_scalar(value, timespec="milliseconds") == expected


# Statistics as they are written: which columns get them, and their JSON.


def _names(found: tuple[Leaf, ...]) -> list[ColumnPath]:
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
