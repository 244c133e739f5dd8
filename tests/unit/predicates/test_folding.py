"""Constants that are calculated, periods of columns, patterns; and what is said of the rest."""

import re
from zoneinfo import ZoneInfo

import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.literals import Session
from liquidlog.predicates.matching import judged_each
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from support.one_file import ONE, SCHEMA, matches
from support.snapshots import FileSpec, bounds_of, snapshot_of


@pytest.mark.parametrize(
    "predicate",
    [
        "i = 3 + 3",
        "i > 2 * 3 - 1",
        "i = -(-6)",
        "i = 12 / 2",
        "i = 13 DIV 2",
        "i = 13 % 7",
        "i = CAST('6' AS INT)",
        "n = 1.5 * 2",
        "1 = 2 AND flag",
        "d > DATE '2024-01-31' + INTERVAL '1' MONTH - INTERVAL 29 DAYS",
        "d > DATE '2024-02-29' - INTERVAL 1 MONTH + INTERVAL 2 DAYS",
        "d > DATE '2022-12-31' + INTERVAL '1-1' YEAR TO MONTH",
        "d < DATE '2025-03-01' - INTERVAL '1-2' YEAR TO MONTH",
        "d < DATE '2025-03-01' + INTERVAL -'1-2' YEAR TO MONTH",
        "d < DATE '2025-03-01' + INTERVAL ' -1-02 ' YEAR TO MONTH",
        "d > DATE '2022-12-31' - INTERVAL -'-1-2' YEAR TO MONTH + INTERVAL '2-3' YEAR TO MONTH",
        "t < TIMESTAMP '2025-01-01 00:00:00Z' - INTERVAL '+1-1' YEAR TO MONTH",
        "d = to_date('2024-02-01')",
        "d = to_date('2024-02-01', 'yyyy-MM-dd')",
        "d = CAST('2024-02-01 10:00:00' AS DATE)",
        "d > last_day(DATE '2024-01-03')",
        "d >= add_months(DATE '2024-01-01', 1)",
        "d < trunc(DATE '2024-01-31', 'MM')",
        "d > date_add(DATE '2024-01-01', 30)",
        "d < date_sub('2024-01-02', 1)",
        "d = make_date(2024, 2, 1)",
        "t > to_timestamp('2024-01-02 06:00:00.001')",
        "t > TIMESTAMP '2024-01-01 14:00:01+02:00' + INTERVAL 10 SECONDS",
        "z < date_trunc('DAY', TIMESTAMP_NTZ '2023-12-30 11:00:00')",
        "year(d) = 2023",
        "year(d) <> 2024",
        "NOT year(d) = 2024",
        "year(d) IN (2022, 2023)",
        "year(d) NOT IN (2023, 2024)",
        "year(d) > year(DATE '2024-05-05')",
        "year(d) BETWEEN 2020 AND 2023",
        "extract(year FROM d) < 2024",
        "date_part('year', d) >= 2025",
        "year(t) = 2022",
        "year(z) = 2023",
        "year(d) = 2024 AND month(d) = 2",
        "month(d) > 1 AND 2024 = year(d)",
        "year(d) = 2024 AND (month(d) IN (2, 3) OR i = 9)",
        "year(d) = 2023 OR year(d) = 2024 AND month(d) = 2",
        "year(z) = 2024 AND month(z) = 1 AND day(z) = 2",
        "year(d) * 100 + month(d) = 202402",
        "year(d) * 100 + month(d) > 202401",
        "trunc(d, 'MM') = DATE '2024-02-01'",
        "trunc(d, 'MM') = DATE '2024-01-02'",
        "trunc(d, 'YEAR') < '2024-01-01'",
        "date_trunc('month', d) = '2024-03-01'",
        "date_trunc('month', t) = TIMESTAMP '2024-03-01 00:00:00'",
        "date_trunc('day', t) IN ('2024-01-05', '2024-01-06')",
        "date_trunc('week', z) > DATE '2024-01-08'",
        "date(t) = '2024-01-03'",
        "CAST(t AS DATE) > DATE '2024-01-02'",
        "to_date(z) <> DATE '2024-01-01'",
        "date(z) = '2024-01-02'",
        "s LIKE 'g%'",
        "s LIKE 'b!%%' ESCAPE '!'",
        "s LIKE 'fooo_%'",
        "s LIKE 'b\\%%'",
        "s NOT LIKE '%' || 'a' OR i = 9 AND FALSE OR s LIKE 'a_b'",
        "startswith(s, 'foo%')",
    ],
)
def test_constants_and_periods_are_compared_like_literals(predicate: str) -> None:
    if "||" in predicate:
        assert matches(predicate) == [True]
    else:
        assert matches(predicate) == [False]


@pytest.mark.parametrize(
    "predicate",
    [
        "i = 1 + 1",
        "i < 2147483647 + 1",
        "i <> -(-2147483648)",
        "i = 7 / 0",
        "i > 9223372036854775807 * 2",
        "d = DATE '2024-01-31' + INTERVAL 0 DAYS",
        "d = DATE '9999-12-31' + INTERVAL 1 DAY",
        "d > DATE '2024-01-31' + INTERVAL '1-12' YEAR TO MONTH",
        "d > DATE '2024-01-31' + INTERVAL '14' YEAR TO MONTH",
        "d > DATE '2024-01-31' + INTERVAL '999999999-0' YEAR TO MONTH",
        "t > TIMESTAMP '2024-01-01 00:00:00Z' + INTERVAL '1 02' DAY TO HOUR",
        "d = current_date",
        "t > now() - INTERVAL 7 DAYS",
        "year(d) = 2024",
        "year(s) = 2023",
        "year(i) = 2023",
        "year(d) = 10000",
        "year(d) = 2023.5",
        "year(t) = 2023",
        "month(d) = 2",
        "month(d) = 2 OR year(d) = 2024",
        "year(d) = 2024 AND month(t) = 3",
        "year(d) = 2024 AND month(d) = 13",
        "trunc(d, 'DAY') = '2023-01-01'",
        "date_trunc('month', d) = '2024-01-01'",
        "date_trunc('day', t) > TIMESTAMP '2024-01-01 00:00:00'",
        "date(t) = '2024-01-02'",
        "date(t) = TIMESTAMP '2030-01-01 00:00:00'",
        "to_date(s, 'yyyy') = '2020-01-01'",
        "to_date(t, 'yyyy') = '2020-01-01'",
        "s LIKE 'f!%%' ESCAPE '!' OR s LIKE 'f%'",
        "s LIKE 'z!a' ESCAPE '!'",
        "s LIKE 'z' ESCAPE 'ab'",
        r"s LIKE 'z\\%'",
        "startswith(s, '')",
        "i = (SELECT max(nope) FROM other)",
        "EXISTS (SELECT 1 FROM other WHERE other.nope = 1)",
    ],
)
def test_what_sessions_may_take_otherwise_stays(predicate: str) -> None:
    assert matches(predicate) == [True]


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        ("i = 'nine'", "i (integer) cannot be compared with 'nine': expected a number"),
        ("i IN (1, 'x')", "i (integer) cannot be compared with 'x'"),
        ("st.x > DATE '2024-01-01'", "st.x (long) cannot be compared with CAST('2024-01-01' AS"),
        ("n = TIMESTAMP '2024-01-01'", "n (decimal(38,2)) cannot be compared with CAST("),
        ("d > 5", "d (date) cannot be compared with 5: expected a date like DATE '2024-01-31'"),
        ("d = '2024-02-30'", "d (date) cannot be compared with '2024-02-30'"),
        ("d <=> 'soon'", "d (date) cannot be compared with 'soon'"),
        ("t BETWEEN 1 AND 2", "t (timestamp) cannot be compared with 1: expected a time"),
        ("z = 'noon'", "z (timestamp_ntz) cannot be compared with 'noon'"),
        ("year(d) = 'x'", "this function of d (integer) cannot be compared with 'x'"),
        ("date(t) = 2024", "this function of t (date) cannot be compared with 2024"),
        ("d = DATE '2024-13-01'", "'2024-13-01' is not a date like DATE '2024-01-31'"),
    ],
)
def test_a_constant_of_the_wrong_type_is_refused(predicate: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        matches(predicate)


NOW_US = 1_704_585_600_000_000
"""2024-01-07T00:00:00Z."""


@pytest.mark.parametrize(
    ("predicate", "zone", "stays"),
    [
        ("d >= current_date", None, True),
        ("d >= current_date", "UTC", True),
        ("d > current_date + INTERVAL 24 DAYS", "UTC", False),
        ("d > current_date + INTERVAL 24 DAYS", "America/New_York", True),
        ("d > current_date + INTERVAL 24 DAYS", None, True),
        ("d > current_date() + 25", None, False),
        ("d > add_months(current_date, 1)", None, False),
        ("t >= current_timestamp - INTERVAL 7 DAYS", "UTC", True),
        ("t >= now() - INTERVAL 4 DAYS", None, False),
        ("t > now() - INTERVAL 131 HOURS", "UTC", False),
        ("z < localtimestamp() - INTERVAL 7 DAYS", None, False),
        ("t >= date_trunc('month', now())", "UTC", True),
        ("t < date_trunc('month', now())", "UTC", False),
        ("year(d) < year(current_date)", "UTC", False),
        ("trunc(d, 'MM') = trunc(current_date, 'MM') - INTERVAL 1 MONTH", None, False),
        ("date_trunc('month', d) = date_trunc('month', add_months(now(), 2))", None, False),
    ],
)
def test_the_current_time_is_that_of_the_session(
    predicate: str, zone: str | None, stays: object
) -> None:
    snapshot = snapshot_of(ONE, schema=SCHEMA)
    session = Session(NOW_US, None if zone is None else ZoneInfo(zone))
    (found,) = judged_each(snapshot, [predicate], bounds_of(snapshot), session)
    assert found.may_match.to_pylist() == [stays]
    assert found.asks_for_time
    assert found.cannot_prune == ()
    (unknown,) = judged_each(snapshot, [predicate], bounds_of(snapshot), Session())
    assert unknown.may_match.to_pylist() == [True]
    assert unknown.cannot_prune != ()


def test_a_column_hides_the_current_time_of_its_name() -> None:
    schema = StructType((*SCHEMA.fields, StructField("current_date", PrimitiveType("date"))))
    snapshot = snapshot_of(ONE, schema=schema)
    (found,) = judged_each(snapshot, ["d > current_date"], bounds_of(snapshot), Session(NOW_US * 2))
    assert found.may_match.to_pylist() == [True]


@pytest.mark.parametrize(
    ("predicate", "cannot"),
    [
        ("i = 1", []),
        ("1 = 1 AND i = 1", []),
        ("LOWER(s) = 'x'", ["lower(s) = 'x'"]),
        ("i = 9 AND lower(s) = 'x' AND month(d) = 3", ["lower(s) = 'x'", "month(d) = 3"]),
        ("i = 9 OR flag", ["flag"]),
        ("lower(s) = 'x' OR lower(s) = 'x'", ["lower(s) = 'x'"]),
        ("NOT (i = 9 OR lower(s) = 'x')", ["lower(s) = 'x'"]),
        ("i NOT IN (1, 2)", ["NOT i IN (1, 2)"]),
        ("i IN (1, 2) AND year(d) NOT IN (2024)", []),
        ("s LIKE '%x'", ["s LIKE '%x'"]),
        ("s LIKE 'x%' AND s NOT LIKE 'y%'", []),
        ("i BETWEEN 1 AND f", []),
        ("i BETWEEN f AND f + 1", ["i BETWEEN f AND f + 1"]),
        ("i IN (SELECT x FROM u)", ["i IN (SELECT x FROM u)"]),
        ("d > TIMESTAMP '2030-01-01 00:00:00'", ["d > CAST('2030-01-01 00:00:00' AS TIMESTAMP)"]),
    ],
)
def test_conditions_that_rule_out_no_file_are_named(predicate: str, cannot: list[str]) -> None:
    snapshot = snapshot_of(ONE, schema=SCHEMA)
    (found,) = judged_each(snapshot, [predicate], bounds_of(snapshot), Session(NOW_US))
    assert list(found.cannot_prune) == cannot


def test_files_whose_texts_all_begin_so_do_not_match_not_like() -> None:
    same = FileSpec(path="1", bounds={"s": ("abc", "abd")})
    assert matches("s NOT LIKE 'ab%'", same) == [False]
    assert matches("NOT startswith(s, 'ab')", same) == [False]
    assert matches("s NOT LIKE 'ab%c'", same) == [True]
    assert matches("s NOT LIKE 'abc%'", same) == [True]
