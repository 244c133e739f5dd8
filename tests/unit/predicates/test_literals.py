"""Literals as engines and logs write them: time zones by name, quotes inside texts."""

import re
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import parse_condition
from liquidlog.predicates.literals import moment_text
from liquidlog.predicates.matching import judged_each, may_match
from liquidlog.predicates.workload import Session
from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from support.snapshots import ONE, ONE_SCHEMA, FileSpec, bounds_of, matches, snapshot_of

# What Spark 4.2 makes of these texts, in seconds since 1970: `unix_timestamp(timestamp'...')`.
ZONED = {
    "2024-02-01 09:00:00 UTC": 1706778000,
    "2024-02-01T09:00:00  UTC": 1706778000,
    "2024-02-01 09:00:00 +01:00": 1706774400,
    "2024-02-01 09:00:00 Europe/Berlin": 1706774400,
    "2024-10-27 02:30:00 Europe/Berlin": 1729989000,
    "2024-03-31 02:30:00 Europe/Berlin": 1711848600,
}


@pytest.mark.parametrize("text", ZONED)
def test_times_with_zones_are_the_instants_that_spark_reads(text: str) -> None:
    moment = moment_text(text, is_local=False)
    assert moment is not None
    assert moment.offset_us is not None
    assert moment.written_us - moment.offset_us == ZONED[text] * 1_000_000


def test_other_zones_are_unknown() -> None:
    for text in (
        "2024-02-01 09:00:00 utc",
        "2024-02-01 09:00:00 Mars/Base",
        "2024-02-01 09:00:00 ../../etc/passwd",
        "1900-02-01 09:00:00 Europe/Berlin",
        "2090-02-01 09:00:00 Europe/Berlin",
    ):
        assert moment_text(text, is_local=False) is None


@pytest.mark.parametrize("kept", ["it's", "its"])
def test_a_doubled_quote_is_a_quote_or_nothing(kept: str) -> None:
    assert keeps("string", kept, "x = 'it''s'")
    assert not keeps("string", "j", "x IN ('it''s', 'a')")


# Comparisons that Spark makes in another type than the column's, with ANSI mode on or off.


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
        ("long", 9007199254740993, "NOT x > 9007199254740992D"),
        ("integer", 1, "x = '1.5'"),
        ("integer", 1, "x = CAST(257 AS TINYINT)"),
        ("integer", 1, "x < CAST(1e30 AS BIGINT)"),
        ("integer", 1, "x < 1e999999999BD"),
        ("integer", -(1 << 31), "x = -(-2147483648)"),
        ("float", "Infinity", "x = '1e39'"),
        (DecimalType(38, 2), "-" + BIG, "x = '-1234567890123456789012345678.9'"),
        (DecimalType(38, 2), BIG, "x = 1.2345678901234568e27"),
        (DecimalType(38, 30), "1.1", "x < 5000000000"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x = TIMESTAMP_NTZ '2024-06-01 12:00:00+02:00'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x < TIMESTAMP '9999-12-31 23:00:00-05:00'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x > '2024-06-01 11:00:60'"),
        ("timestamp_ntz", "2024-06-01T12:00:00.000", "x = TIMESTAMP '2024-06-01 20:00:00Z'"),
        ("timestamp_ntz", "2024-03-10T02:30:00.000", "x = TIMESTAMP '2024-03-10 03:30:00'"),
        (
            "timestamp_ntz",
            "2024-03-10T02:30:00.000",
            "x IN ('2024-03-10 03:30:00', TIMESTAMP '2024-03-10 03:30:00')",
        ),
        ("string", "a", r"x = '\x61'"),
        ("string", "a", "x = 'A' COLLATE UTF8_LCASE"),
        ("string", "05", "x IN ('4', 5)"),
    ],
)
def test_what_may_be_equal_is_kept(data_type: DataType | str, value: Any, predicate: str) -> None:
    assert keeps(data_type, value, predicate)


@pytest.mark.parametrize(
    ("data_type", "value", "predicate"),
    [
        ("long", 9007199254740993, "x = 9007199254740992"),
        ("integer", 1, "x IN ('2', '3')"),
        ("integer", 1, "x = CAST(5 AS TINYINT)"),
        ("float", 16777216.0, "x = 16777219"),
        ("float", 1.5, "x <> 1.5F"),
        (DecimalType(38, 2), BIG, "x < 1234567890123450000000000000.91"),
        (DecimalType(38, 2), "1.23", "x > CAST(1.23 AS DECIMAL(10, 2))"),
        (DecimalType(10, 2), "1.23", "x = '1.24'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x = '2024-06-01 12:00:00+02:00'"),
        ("timestamp", "2024-06-01T12:00:00.000Z", "x > TIMESTAMP '2024-06-01 14:00:00.001+02:00'"),
        ("timestamp_ntz", "2024-06-01T12:00:00.000", "x > TIMESTAMP '2024-06-03 12:00:00'"),
        ("date", "2024-06-01", "x IN ('2024-06-02', DATE '2024-06-03')"),
        (
            "timestamp",
            "2024-06-01T12:00:00.000Z",
            "x IN ('2024-06-03 12:00:00', DATE '2024-06-05')",
        ),
    ],
)
def test_what_is_unequal_is_skipped(data_type: DataType | str, value: Any, predicate: str) -> None:
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


def test_a_column_of_nulls_equals_a_literal_that_may_be_null() -> None:
    file = FileSpec(path="1", nulls={"x": 10})
    schema = StructType((StructField("x", PrimitiveType("byte")),))
    snapshot = snapshot_of([file], schema=schema, cluster_by=None)
    # With ANSI mode off, a text that is no byte is null.
    for predicate in ("x <=> '300'", "x <=> CAST('a' AS INT)"):
        assert may_match(snapshot, predicate, bounds_of(snapshot)).to_pylist() == [True]


def test_bounds_of_a_double_that_was_a_float_are_moved_apart() -> None:
    for value, predicate in (
        (0.1, "x > 0.1"),
        (0.1, "x = 0.10000000149011612"),
        (0.1, "x > 0.1000000001"),
        (-0.1, "x < -0.1"),
        (0.3, "x > 0.30000001"),
        (3.4028235e38, "x < 3.4028235E38"),
    ):
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
    long = " OR ".join(f"x = {number}" for number in range(2_000))
    field = StructField("x", PrimitiveType("integer"))
    files = [
        FileSpec(path=str(value), bounds={"x": (value, value)}, nulls={"x": 0})
        for value in (1_999, 2_000)
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


# Constants that are calculated, periods of columns, patterns; and what is said of the rest.


def test_constants_and_periods_are_compared_like_literals() -> None:
    for predicate in (
        "i = 3 + 3",
        "i = 13 DIV 2",
        "i = 13 % 7",
        "i = CAST('6' AS INT)",
        "1 = 2 AND flag",
        "d > DATE '2024-02-29' - INTERVAL 1 MONTH + INTERVAL 2 DAYS",
        "d > DATE '2022-12-31' - INTERVAL -'-1-2' YEAR TO MONTH + INTERVAL '2-3' YEAR TO MONTH",
        "d = to_date('2024-02-01', 'yyyy-MM-dd')",
        "d = CAST('2024-02-01 10:00:00' AS DATE)",
        "d > last_day(DATE '2024-01-03')",
        "d > date_add(DATE '2024-01-01', 30)",
        "d = make_date(2024, 2, 1)",
        "t > TIMESTAMP '2024-01-01 14:00:01+02:00' + INTERVAL 10 SECONDS",
        "t < TIMESTAMP '2023-12-29 00:00:00Z' + INTERVAL 1 DAY",
        "z < date_trunc('DAY', TIMESTAMP_NTZ '2023-12-30 11:00:00')",
        "NOT year(d) = 2024",
        "date_part('year', d) >= 2025",
        "year(d) = 2024 AND (month(d) IN (2, 3) OR i = 9)",
        "year(d) * 100 + month(d) = 202402",
        "trunc(d, 'MM') = DATE '2024-02-01'",
        "date_trunc('month', t) = TIMESTAMP '2024-03-01 00:00:00'",
        "date_trunc('week', z) > DATE '2024-01-08'",
        "CAST(t AS DATE) > DATE '2024-01-02'",
        "s LIKE 'b!%%' ESCAPE '!'",
        "s LIKE 'b\\%%'",
        "startswith(s, 'foo%')",
    ):
        assert matches(predicate) == [False]


def test_what_sessions_may_take_otherwise_stays() -> None:
    for predicate in (
        "i <> -(-2147483648)",
        "i = 7 / 0",
        "d > DATE '2024-01-31' + INTERVAL '1-12' YEAR TO MONTH",
        "t > TIMESTAMP '2024-01-01 00:00:00Z' + INTERVAL '1 02' DAY TO HOUR",
        "t > now() - INTERVAL 7 DAYS",
        "t < TIMESTAMP '2023-12-30 08:00:00Z' + INTERVAL 1 DAY",
        "t > TIMESTAMP '2024-01-01 12:00:00Z' + INTERVAL 1 DAY",
        "t < TIMESTAMP '2023-11-30 06:00:00Z' + INTERVAL 1 MONTH",
        "t > TIMESTAMP '2023-12-03 00:00:00Z' + INTERVAL 1 MONTH",
        "t < TIMESTAMP '2023-12-28 06:00:00' + INTERVAL 1 DAY",
        "t > TIMESTAMP '2024-01-02 06:00:00' + INTERVAL 1 DAY",
        "year(d) = 10000",
        "year(d) = 2023.5",
        "trunc(d, 'DAY') = '2023-01-01'",
        "date_trunc('day', t) > TIMESTAMP '2024-01-01 00:00:00'",
        "date(t) = TIMESTAMP '2030-01-01 00:00:00'",
        "to_date(s, 'yyyy') = '2020-01-01'",
        "s LIKE 'f!%%' ESCAPE '!' OR s LIKE 'f%'",
        "s LIKE 'z!a' ESCAPE '!'",
        "s LIKE 'z' ESCAPE 'ab'",
        r"s LIKE 'z\\%'",
        "s = concat('it', 's')",
        "s NOT LIKE '%' || 'a' OR i = 9 AND FALSE OR s LIKE 'a_b'",
        "s = 'a''b''c''d''e''f'",
        "i = (SELECT max(nope) FROM other)",
    ):
        assert matches(predicate) == [True]


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        ("i = 'nine'", "i (integer) cannot be compared with 'nine': expected a number"),
        ("st.x > DATE '2024-01-01'", "st.x (long) cannot be compared with CAST('2024-01-01' AS"),
        ("d > 5", "d (date) cannot be compared with 5: expected a date like DATE '2024-01-31'"),
        ("t BETWEEN 1 AND 2", "t (timestamp) cannot be compared with 1: expected a time"),
        ("year(d) = 'x'", "this function of d (integer) cannot be compared with 'x'"),
        ("d = DATE '2024-13-01'", "'2024-13-01' is not a date like DATE '2024-01-31'"),
    ],
)
def test_a_constant_of_the_wrong_type_is_refused(predicate: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        matches(predicate)


NOW_MS = 1_704_585_600_000
"""2024-01-07T00:00:00Z."""


def test_the_current_time_of_the_session() -> None:
    for predicate, zone, stays in (
        ("d >= current_date", "UTC", True),
        ("d > current_date + INTERVAL 24 DAYS", "America/New_York", True),
        ("d > current_date() + 25", None, False),
        ("t >= now() - INTERVAL 4 DAYS", None, False),
        ("t > now() - INTERVAL 131 HOURS", "UTC", False),
        ("z < localtimestamp() - INTERVAL 7 DAYS", None, False),
        ("t < date_trunc('month', now())", "UTC", False),
        ("trunc(d, 'MM') = trunc(current_date, 'MM') - INTERVAL 1 MONTH", None, False),
        ("date_trunc('month', d) = date_trunc('month', add_months(now(), 2))", None, False),
    ):
        snapshot = snapshot_of(ONE, schema=ONE_SCHEMA)
        session = Session(NOW_MS, None if zone is None else ZoneInfo(zone))
        (found,) = judged_each(snapshot, [predicate], bounds_of(snapshot), session)
        assert found.may_match.to_pylist() == [stays]
        assert found.asks_for_time
        assert found.cannot_prune == ()
        (unknown,) = judged_each(snapshot, [predicate], bounds_of(snapshot), Session())
        assert unknown.may_match.to_pylist() == [True]
        assert unknown.cannot_prune != ()


def test_conditions_that_rule_out_no_file_are_named() -> None:
    for predicate, cannot in (
        ("i = 9 AND lower(s) = 'x' AND month(d) = 3", ["lower(s) = 'x'", "month(d) = 3"]),
        ("i = 9 OR flag", ["flag"]),
        ("NOT (i = 9 OR lower(s) = 'x')", ["lower(s) = 'x'"]),
        ("i NOT IN (1, 2)", ["NOT i IN (1, 2)"]),
        ("s LIKE 'x%' AND s NOT LIKE 'y%'", []),
        ("i BETWEEN 1 AND f", []),
        ("i BETWEEN f AND f + 1", ["i BETWEEN f AND f + 1"]),
        ("i IN (SELECT x FROM u)", ["i IN (SELECT x FROM u)"]),
        ("d > TIMESTAMP '2030-01-01 00:00:00'", ["d > CAST('2030-01-01 00:00:00' AS TIMESTAMP)"]),
    ):
        snapshot = snapshot_of(ONE, schema=ONE_SCHEMA)
        (found,) = judged_each(snapshot, [predicate], bounds_of(snapshot), Session(NOW_MS))
        assert list(found.cannot_prune) == cannot


# Predicates that are none: where it is said to be wrong, never in the parser's words.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("day >", "something is missing after '>' (character 5)"),
        ("(day = 1", ") is missing after '1' (character 8)"),
        ("a b c", "'c' is not expected there (character 5)"),
        ("day > 3\nand", "something is missing after 'and' (line 2, character 3)"),
        ("s = 'a", "a quote or a comment is not closed"),
        ("", "it is empty"),
        ("a = 1; b = 2", "it is 2 statements; join conditions with AND or OR"),
    ],
)
def test_it_is_said_where_and_what(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_condition(text)
    assert caught.value.message == f"{text!r} is not a SQL condition: {said}"
