import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.data.statistics import StatisticsCollector, truncate_max, truncate_min
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.bounds import FileStatistics
from liquidlog.spec.schema import leaves

NAN, INF = float("nan"), float("inf")


def _collect(*slices: pa.Table, **options: Any) -> FileStatistics:
    schema = delta_schema(slices[0].schema)
    options.setdefault("indexed", tuple(leaf.physical for leaf in leaves(schema)))
    collector = StatisticsCollector(schema, WriterOptions(**options))
    for rows in slices:
        collector.add(rows)
    return collector.finish()


def _bounds(*values: Any, kind: pa.DataType) -> tuple[Any, Any]:
    """The bounds, the same whether the values come in one slice or one by one."""
    column = pa.array(values, kind)
    whole = _collect(pa.table({"a": column}))
    single = _collect(*(pa.table({"a": column.slice(row, 1)}) for row in range(len(column))))
    found = whole.min_values.get(("a",)), whole.max_values.get(("a",))
    assert repr((single.min_values.get(("a",)), single.max_values.get(("a",)))) == repr(found)
    return found


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_nan_is_the_largest_value(kind: pa.DataType) -> None:
    assert _bounds(1.5, NAN, None, -2.0, kind=kind) == (-2.0, "NaN")
    assert _bounds(NAN, None, kind=kind) == ("NaN", "NaN")
    assert _bounds(INF, NAN, kind=kind) == ("Infinity", "NaN")


def test_infinities_are_text() -> None:
    assert _bounds(-INF, 0.0, INF, kind=pa.float64()) == ("-Infinity", "Infinity")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.0, -0.0), "(-0.0, 0.0)"),
        ((-0.0, 0.0), "(-0.0, 0.0)"),
        ((-0.0,), "(-0.0, -0.0)"),
        ((0.0,), "(0.0, 0.0)"),
        ((-1.0, -0.0, 0.0), "(-1.0, 0.0)"),
        ((1.0, 0.0, -0.0), "(-0.0, 1.0)"),
    ],
)
def test_zeros_keep_the_sign_that_is_safe(values: tuple[float, ...], expected: str) -> None:
    assert repr(_bounds(*values, kind=pa.float64())) == expected


def test_float_bounds_are_the_shortest_text_of_their_width() -> None:
    assert _bounds(0.1, kind=pa.float32()) == (0.1, 0.1)
    assert _bounds(1e-45, kind=pa.float32()) == (1e-45, 1e-45)


def test_timestamps_are_floored_to_milliseconds_on_both_sides_of_the_epoch() -> None:
    kind = pa.timestamp("us", tz="UTC")
    expected = ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.001Z")
    assert _bounds(-1, 1999, kind=kind) == expected
    naive = ("1969-12-31T23:59:59.998", "1969-12-31T23:59:59.999")
    assert _bounds(-1001, -1000, kind=pa.timestamp("us")) == naive
    whole = ("2024-01-01T00:00:00.000Z",) * 2
    assert _bounds(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), kind=kind) == whole


def test_years_beyond_the_calendar_have_no_bound() -> None:
    year_10000 = 253402300800
    date, moment = pa.date32(), pa.timestamp("us", tz="UTC")
    assert _bounds(year_10000 // 86400 - 1, kind=date) == ("9999-12-31", "9999-12-31")
    assert _bounds(0, year_10000 // 86400, kind=date) == ("1970-01-01", None)
    assert _bounds(-719163, 0, kind=date) == (None, "1970-01-01")
    assert _bounds(0, year_10000 * 10**6, kind=moment) == ("1970-01-01T00:00:00.000Z", None)
    assert _bounds(2**63 - 1, -(2**63), kind=moment) == (None, None)


def test_decimals_are_exact() -> None:
    kind = pa.decimal128(38, 18)
    low = Decimal("-99999999999999999999.999999999999999999")
    assert _bounds(low, Decimal("1E-18"), kind=kind) == (low, Decimal("1E-18"))


def test_strings_are_ordered_by_code_point_and_truncated() -> None:
    assert _bounds("\uffff", "\U0001f388", "z", kind=pa.string()) == ("z", "\U0001f388")
    assert _bounds("a" * 40, kind=pa.string()) == ("a" * 32, "a" * 32 + "\x7f")
    rows = pa.table({"a": ["abcdef"]})
    assert _collect(rows, string_prefix_chars=3).max_values == {("a",): "abc\x7f"}


def test_text_that_is_not_utf8_has_no_bound() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    found = _collect(pa.table({"a": broken}))
    assert (found.num_records, found.min_values, found.max_values) == (1, {}, {})


def test_dictionaries_count_only_the_values_they_use() -> None:
    used = pa.DictionaryArray.from_arrays(pa.array([1, None, 1]), pa.array(["a", "b", "c"]))
    schema = delta_schema(pa.schema([("a", pa.string())]))
    collector = StatisticsCollector(schema, WriterOptions(indexed=(("a",),)))
    collector.add(pa.table({"a": used}))
    found = collector.finish()
    assert (found.min_values, found.max_values) == ({("a",): "b"}, {("a",): "b"})
    assert found.null_count == {("a",): 1}


def test_nulls_are_counted_for_every_indexed_leaf_through_null_structs() -> None:
    inner = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.int64())), ("b", pa.binary())])
    rows = pa.table(
        {
            "s": pa.array([{"x": 1, "l": [], "b": b""}, None, {"x": None}], inner),
            "flag": [True, None, None],
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "none": pa.array([None] * 3, pa.string()),
        }
    )
    found = _collect(rows, rows)
    assert found.num_records == 6
    assert found.null_count == {
        ("s", "x"): 4,
        ("s", "l"): 4,
        ("s", "b"): 4,
        ("flag",): 4,
        ("m",): 2,
        ("none",): 6,
    }
    assert found.min_values == found.max_values == {("s", "x"): 1}


def test_only_indexed_leaves_have_statistics() -> None:
    found = _collect(pa.table({"a": [1], "b": [2]}), indexed=(("b",),))
    assert (found.min_values, found.null_count) == ({("b",): 2}, {("b",): 0})


def test_file_without_rows_has_counts_only() -> None:
    rows = pa.table(
        {"a": pa.array([], pa.int64()), "s": pa.array([], pa.struct([("x", pa.int8())]))}
    )
    for found in (_collect(rows), _collect(rows.slice(0, 0))):
        assert (found.num_records, found.min_values) == (0, {})
        assert found.null_count == {("a",): 0, ("s", "x"): 0}


TOP = "\U0010ffff"
BALLOON = "\U0001f388"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("abcd", "abcd"),
        ("abcde", "abcd"),
        ("abc" + BALLOON + "x", "abc" + BALLOON),
        (BALLOON * 3, BALLOON * 2),
    ],
)
def test_minimum_is_the_prefix_with_whole_code_points(text: str, expected: str) -> None:
    assert truncate_min(text, 4) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("abcd", "abcd"),
        ("abcde", "abcd\x7f"),
        ("abcd\x7e", "abcd\x7f"),
        ("abcd\x7f", "abcd" + TOP),
        ("abcdé", "abcd" + TOP),
        ("abcd" + BALLOON, "abcd" + TOP),
        ("abc" + BALLOON + "x", "abc" + BALLOON + "\x7f"),
        ("abcd" + TOP + "x", "abcd" + TOP + "\x7f"),
        ("abcd" + TOP * 2, "abcd" + TOP * 2),
        ("abcd" + TOP * 2 + "x", "abcd" + TOP * 2 + "\x7f"),
        ("abcd" + TOP * 3, None),
        (TOP * 2, TOP * 2),
        ("\uffff" * 9, "\uffff" * 4 + TOP),
    ],
)
def test_maximum_is_the_prefix_and_a_larger_character(text: str, expected: str | None) -> None:
    assert truncate_max(text, 4) == expected


def test_prefix_of_no_characters_gives_no_bound() -> None:
    assert truncate_min("a", 0) is None
    assert truncate_max("a", 0) is None
