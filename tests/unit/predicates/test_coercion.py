"""Comparisons that Spark makes in another type than the column's, with ANSI mode on or off."""

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.matching import may_match
from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from support.snapshots import FileSpec, bounds_of, snapshot_of

BIG = "1234567890123456789012345678.91"
CHAR = "__CHAR_VARCHAR_TYPE_STRING"


def keeps(data_type: DataType | str, value: Any, predicate: str, zone: str | None = None) -> bool:
    """Return whether a file is kept whose rows all have one value in the column x."""
    chosen = PrimitiveType(data_type) if isinstance(data_type, str) else data_type
    return keeps_field(StructField("x", chosen), value, predicate, zone)


def keeps_field(field: StructField, value: Any, predicate: str, zone: str | None = None) -> bool:
    file = FileSpec(path="1", bounds={"x": (value, value)}, nulls={"x": 0})
    snapshot = snapshot_of([file], schema=StructType((field,)), cluster_by=None)
    time_zone = None if zone is None else ZoneInfo(zone)
    found = may_match(snapshot, predicate, bounds_of(snapshot), time_zone=time_zone)
    return bool(found[0].as_py())


@pytest.mark.parametrize(
    ("data_type", "value", "predicate"),
    [
        ("long", 9007199254740993, "x = 9007199254740992e0"),
        ("long", 9007199254740993, "x <= 9.007199254740992e15"),
        ("long", 9007199254740993, "NOT x > 9007199254740992D"),
        ("long", 16777217, "x = 16777216F"),
        ("integer", 16777217, "x IN (16777216F)"),
        ("integer", 1, "x = '1.5'"),
        ("integer", 1, "x = CAST(257 AS TINYINT)"),
        ("integer", 1, "x < CAST(1e30 AS BIGINT)"),
        ("integer", 1, "x < 1e999999999"),
        ("integer", 1, "x < 1e999999999BD"),
        ("integer", -(1 << 31), "x = -(-2147483648)"),
        ("long", 9007199254740993, "x IN (1, 9007199254740992e0)"),
        ("float", 16777216.0, "x = 16777217"),
        ("float", 16777216.0, "x IN (16777217)"),
        ("float", 1.1, "x = '1.1'"),
        ("float", 1.1, "x = 1.1F"),
        ("float", 1.1, "x > 1.1"),
        ("float", "Infinity", "x = '1e39'"),
        ("double", 1.5, "x = '1.5'"),
        ("double", 1.100000023841858, "x = 1.1F"),
        (DecimalType(38, 2), "-" + BIG, f"x = -{BIG}"),
        (DecimalType(38, 2), "-" + BIG, f"x <= -{BIG}"),
        (DecimalType(38, 2), "-" + BIG, "x = '-1234567890123456789012345678.9'"),
        (DecimalType(38, 2), BIG, "x = 1.2345678901234568e27"),
        (DecimalType(38, 2), "1.23", "x = 1.23456"),
        (DecimalType(38, 30), "1.1", "x < 5000000000"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x = TIMESTAMP_NTZ '2024-06-01 12:00:00+02:00'"),
        (
            "timestamp",
            "2024-06-01T12:00:00.000Z",
            "x = CAST('2024-06-01 12:00:00+02:00' AS TIMESTAMP_NTZ)",
        ),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x < TIMESTAMP '9999-12-31 23:00:00-05:00'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x = '2024-06-01 22:00:00'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x = '2024-05-31 18:00:00'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x > DATE '2024-06-02'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x > '2024-06-01 11:00:60'"),
        ("timestamp_ntz", "2024-06-01T12:00:00.000", "x = TIMESTAMP '2024-06-01 20:00:00Z'"),
        ("timestamp_ntz", "2024-03-10T02:30:00.000", "x = TIMESTAMP '2024-03-10 03:30:00'"),
        (
            "timestamp_ntz",
            "2024-03-10T02:30:00.000",
            "x IN ('2024-03-10 03:30:00', TIMESTAMP '2024-03-10 03:30:00')",
        ),
        ("date", "2024-06-01", "x < TIMESTAMP '2024-06-01 00:00:00'"),
        ("string", "a", r"x = '\x61'"),
        ("string", "a", "x = 'A' COLLATE UTF8_LCASE"),
        ("string", "5", "x = 5"),
        ("string", "its", "x = 'it''s'"),
        ("string", "05", "x IN ('4', 5)"),
    ],
)
def test_what_spark_may_find_equal_is_kept(
    data_type: DataType | str, value: Any, predicate: str
) -> None:
    assert keeps(data_type, value, predicate)


@pytest.mark.parametrize(
    ("data_type", "value", "predicate"),
    [
        ("long", 9007199254740993, "x = 9007199254740992"),
        ("long", 9007199254740993, "x < 9007199254740992e0"),
        ("integer", 1, "x = 1.5"),
        ("integer", 1, "x IN ('2', '3')"),
        ("integer", 1, "x = CAST(5 AS TINYINT)"),
        ("float", 16777216.0, "x = 16777219"),
        ("float", 1.1, "x < 1.1"),
        ("float", 1.5, "x <> 1.5F"),
        ("double", 1.5, "x <> 1.5"),
        ("double", 1.5, "x > CAST('1.5' AS DOUBLE)"),
        (DecimalType(38, 2), BIG, "x < 1234567890123450000000000000.91"),
        (DecimalType(38, 2), BIG, "x > 1234567890123460000000000000BD"),
        (DecimalType(18, 2), "12345678901234.56", "x < 12345678901234.56"),
        (DecimalType(38, 2), "1.23", "x > CAST(1.23 AS DECIMAL(10, 2))"),
        (DecimalType(10, 2), "1.23", "x = '1.24'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x = '2024-06-01 12:00:00+02:00'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x > TIMESTAMP '2024-06-01 14:00:00.001+02:00'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x > '2024-06-02 12:00:00'"),
        ("timestamp_ntz", "2024-06-01T12:00:00.000", "x > TIMESTAMP '2024-06-03 12:00:00'"),
        ("timestamp_ntz", "2024-06-01T12:00:00.000", "x > DATE '2024-06-02'"),
        ("date", "2024-06-01", "x IN ('2024-06-02', DATE '2024-06-03')"),
        (
            "timestamp",
            "2024-06-01T12:00:00.000Z",
            "x IN ('2024-06-03 12:00:00', DATE '2024-06-05')",
        ),
    ],
)
def test_what_no_session_finds_equal_is_skipped(
    data_type: DataType | str, value: Any, predicate: str
) -> None:
    assert not keeps(data_type, value, predicate)


def test_a_known_time_zone_decides_about_times_without_one() -> None:
    noon = "2024-06-01T12:00:00.000Z"
    assert keeps("timestamp", noon, "x = '2024-06-01 08:00:00'", "America/New_York")
    assert not keeps("timestamp", noon, "x = '2024-06-01 12:00:00'", "America/New_York")
    assert not keeps("timestamp", noon, "x < DATE '2024-06-01'", "UTC")
    # At the end of summer time, clocks show an hour twice.
    second = "2024-11-03T06:30:00.000Z"
    assert keeps("timestamp", second, "x IN ('2024-11-03 01:30:00')", "America/New_York")


def test_bounds_of_large_decimals_may_have_been_doubles() -> None:
    money = DecimalType(38, 2)
    # As delta-rs writes 12345678901234567.89 and 1234567890123456789012345678.91.
    assert keeps(money, 1.2345678901234568e16, "x = 12345678901234567.89")
    assert keeps(money, 1.2345678901234567e27, f"x = {BIG}")
    assert not keeps(money, 1.2345678901234568e16, "x = 12345678901234500.00")
    assert not keeps(money, 123456789012.34, "x = 123456789012.35")
    assert keeps(DecimalType(38, 0), "9" * 38, "x = " + "9" * 38)


@pytest.mark.parametrize("char", ["char(5)", "CHARACTER(5)"])
def test_char_is_padded_at_every_level(char: str) -> None:
    text = PrimitiveType("string")
    top = StructField("x", text, metadata={CHAR: char})
    assert keeps_field(top, "ab   ", "x = 'ab'")
    inner = StructType((StructField("c", text),))
    nested = StructField("x", inner, metadata={CHAR: f"struct<c:{char}>"})
    file = FileSpec(path="1", bounds={"x": ({"c": "ab"}, {"c": "ab"})}, nulls={"x": {"c": 0}})  # type: ignore[dict-item]
    snapshot = snapshot_of([file], schema=StructType((nested,)), cluster_by=None)
    assert may_match(snapshot, "x.c = 'ab   '", bounds_of(snapshot)).to_pylist() == [True]


def test_varchar_compares_as_it_is() -> None:
    field = StructField("x", PrimitiveType("string"), metadata={CHAR: "varchar(5)"})
    assert not keeps_field(field, "ab", "x = 'ab '")


def test_a_column_of_nulls_equals_a_literal_that_may_be_null() -> None:
    file = FileSpec(path="1", nulls={"x": 10})
    schema = StructType((StructField("x", PrimitiveType("byte")),))
    snapshot = snapshot_of([file], schema=schema, cluster_by=None)
    # With ANSI mode off, a text that is no byte is null.
    for predicate in ("x <=> '300'", "x <=> CAST('a' AS INT)"):
        assert may_match(snapshot, predicate, bounds_of(snapshot)).to_pylist() == [True]


@pytest.mark.parametrize(
    ("value", "predicate"),
    [
        (0.1, "x > 0.1"),
        (0.1, "x = 0.10000000149011612"),
        (0.1, "x > 0.1000000001"),
        (-0.1, "x < -0.1"),
        (0.3, "x > 0.30000001"),
        (3.4028235e38, "x < 3.4028235E38"),
    ],
)
def test_bounds_of_a_double_that_was_a_float_are_moved_apart(value: float, predicate: str) -> None:
    changes = [{"fromType": "float", "toType": "double"}]
    double = PrimitiveType("double")
    widened = StructField("x", double, metadata={"delta.typeChanges": changes})
    assert keeps_field(widened, value, predicate)
    assert not keeps_field(StructField("x", double), value, predicate)
    assert not keeps_field(widened, 0.5, "x > 0.5")


def test_early_instants_may_be_off_by_the_seconds_of_an_offset() -> None:
    # Amsterdam was 00:19:32 ahead of UTC, of which the log has 00:19.
    assert keeps("timestamp", "1900-01-01T00:00:00.000+00:19", "x < '1899-12-31T23:40:59Z'")
    assert not keeps("timestamp", "2000-01-01T00:00:00.000+01:00", "x < '1999-12-31T22:59:59Z'")


@pytest.mark.parametrize(
    "predicate",
    ["x[0].y = 1", "x.y = 1", "element_at(x, 1).y = 1", "(x[0]).y IN (1)", "size(x) = 1"],
)
def test_parts_of_arrays_are_never_decided(predicate: str) -> None:
    inner = StructType((StructField("y", PrimitiveType("integer")),))
    assert keeps_field(StructField("x", ArrayType(inner)), None, predicate)


def test_long_conditions_are_judged_and_deep_ones_refused() -> None:
    long = " OR ".join(f"x = {number}" for number in range(5_000))
    field = StructField("x", PrimitiveType("integer"))
    files = [
        FileSpec(path=str(value), bounds={"x": (value, value)}, nulls={"x": 0})
        for value in (4_999, 5_000)
    ]
    snapshot = snapshot_of(files, schema=StructType((field,)), cluster_by=None)
    assert may_match(snapshot, long, bounds_of(snapshot)).to_pylist() == [True, False]
    with pytest.raises(UsageError):
        keeps("integer", 1, "(" * 3_000 + "x = 1" + ")" * 3_000)


def test_numbers_that_no_type_can_hold_are_refused_or_unknown() -> None:
    with pytest.raises(UsageError):
        keeps("integer", 1, "x < 1e99999999999999999999BD")
    assert keeps("integer", 1, "x < " + "9" * 10_000)
    assert keeps("double", 1.0, "x < " + "9" * 10_000)
