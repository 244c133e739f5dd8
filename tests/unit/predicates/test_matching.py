from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.matching import (
    MAX_INTERVALS,
    MAX_PREDICATES,
    NEVER,
    NO_COLUMN,
    every_row_matches,
    fitted_workload,
    matching_partitions,
    may_match,
    parse_workload,
)
from liquidlog.predicates.workload import Session, WeightedPredicate
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import PrimitiveType, StructField, StructType, parse_schema
from support.plans import schema_json_of
from support.snapshots import FileSpec, bounds_of, matches, snapshot_of, with_files


def test_files_without_a_matching_row_are_ruled_out() -> None:
    for predicate in (
        "i = 6",
        "i IN (6, 7, NULL)",
        "NULL <=> i",
        "NOT (i IS DISTINCT FROM 6)",
        "CAST((i) AS BIGINT) IN (9, 10)",
        "i IS NULL",
        "i NOT BETWEEN 1 AND 5",
        "i > 99999999999999999999",
        "NOT (i < 9 OR flag)",
        "n > 2.50",
        "s LIKE 'z%'",
        "s LIKE 'ba%' AND i = 9",
        "startswith(s, 'fop')",
        "d > DATE '2024-01-31'",
        "t > '2024-01-02 06:00:00.001'",
        "t > TIMESTAMP '2024-01-01T14:00:01+02:00'",
        "z < '2024-01-01 00:00:00'",
        "`a.b` <> 1",
        "f(i) = 1 AND i = 9",
    ):
        assert matches(predicate) == [False]


def test_files_that_may_match_stay() -> None:
    for predicate in (
        "i = 5",
        "n < 1.2500000000000000000001",
        "t >= '2024-01-01 12:00:00.0005'",
        # Not decided by statistics, or not understood.
        "flag IS NULL",
        "f(i) = 1",
        # As the reference engine: the span of the list counts, and NOT IN never does.
        "i IN (0, 7)",
        "i NOT IN (1, 2, 3, 4, 5)",
        "s NOT LIKE 'z%'",
        "s ILIKE 'Z%'",
        "NOT i <=> 9",
        "CAST(i AS SMALLINT) = 9",
        "i BETWEEN SYMMETRIC 9 AND 2",
        "i = 9 AND st.x = 1",
        "d > '2024-2-30'",
        "d > TIMESTAMP '2030-01-01 00:00:00'",
        "z > '2030-01-01 00:00:00Z'",
        "i IN (SELECT 9)",
        "f = 1e400",
    ):
        assert matches(predicate) == [True]


@pytest.mark.parametrize(
    "predicate",
    ["", "i = ", "i = 1; i = 2", "SELECT 1", "'open", "nope = 1", "f(st.nope) = 1", "a.b = 1"],
)
def test_text_that_is_no_condition_on_the_table_is_refused(predicate: str) -> None:
    with pytest.raises(UsageError):
        matches(predicate)


def test_partition_values_decide_alone() -> None:
    for predicate, expected in (
        ("P IN (1, 5)", [False, True, False]),
        ("p IS NULL", [False, False, True]),
        ("p IS NOT NULL AND x = 7", [True, True, False]),
        ("d < '2024-02-01'", [True, False, True]),
        ("d IS NULL OR p = 3", [True, False, False]),
        ("b", [True, True, True]),
    ):
        rows = (
            {"p": "3", "d": "2024-01-31", "b": "true"},
            {"p": "5", "d": "2024-02-01", "b": "false"},
            {"p": None, "d": "not a day", "b": ""},
        )
        snapshot = partitioned(rows, {"p": "integer", "d": "date", "b": "boolean", "x": "integer"})
        assert may_match(snapshot, predicate, bounds_of(snapshot)).to_pylist() == expected


def one_file(kind: str, low: object, high: object, **more: Any) -> Snapshot:
    file = FileSpec(path="a", bounds={"x": (low, high)}, rows=3, **more)
    schema = StructType((StructField("x", PrimitiveType(kind)),))
    return snapshot_of([file], schema=schema, cluster_by=None)


def test_nulls_are_less_than_what_no_integer_reaches() -> None:
    snapshot = one_file("long", None, None, nulls={"x": 3})
    for predicate, may in (
        ("x <= 9223372036854775807.001", True),
        ("x > -99999999999999999999", True),
        ("NOT (x > 99999999999999999999)", True),
        ("x > 99999999999999999999", False),
        ("x <= 9223372036854775807", False),
    ):
        assert may_match(snapshot, predicate, bounds_of(snapshot)).to_pylist() == [may], predicate


def test_instants_that_may_become_texts_rule_out_nothing() -> None:
    snapshot = one_file("timestamp", "2024-11-03T06:30:00Z", "2024-11-03T06:30:00Z")
    # Both are shown as 01:30:00 in New York.
    where = "x IN ('2024-03-10', CAST('2024-11-03 05:30:00+00:00' AS TIMESTAMP))"
    assert may_match(snapshot, where, bounds_of(snapshot)).to_pylist() == [True]


def test_nothing_is_proved_by_a_condition_with_a_half_that_may_fail() -> None:
    snapshot = one_file("integer", 200, 300)
    for where, proved in (
        ("NOT (x BETWEEN ' -127.5' AND 100)", False),
        ("NOT (x BETWEEN -127 AND 100)", True),
        ("x > 5 OR length('a') = 1", False),
    ):
        found = every_row_matches(snapshot, where, bounds_of(snapshot), Session(for_rows=True))
        assert found.tolist() == [proved], where


# Conditions on partition columns: each value is evaluated, as Spark evaluates constants.


_TYPES = {
    "p": "boolean",
    "d": "date",
    "s": "string",
    "y": "string",
    "n": "integer",
    "m": "long",
    "t": "timestamp",
    "x": "long",
}
_ROWS = (
    {"p": "true", "d": "2024-05-01", "s": "a%b", "y": "2024", "n": "3", "m": "3",
     "t": "2024-05-01 10:00:00"},
    {"p": "false", "d": "2024-05-02", "s": "Axb", "y": "2023", "n": "4", "m": "3",
     "t": "2024-05-02T00:00:00.000000Z"},
    {"p": None, "d": None, "s": None, "y": None, "n": None, "m": None, "t": None},
)  # fmt: skip


def partitioned(rows: Sequence[Mapping[str, str | None]], types: Mapping[str, str]) -> Snapshot:
    """Return a table of a file per partition; of the columns only x is in the files."""
    found = snapshot_of(
        [FileSpec(path=f"f{number}", bounds={"x": (7, 9)}) for number in range(len(rows))],
        cluster_by=None,
        schema=parse_schema(schema_json_of(types), where="test"),
        partition_columns=tuple(name for name in types if name != "x"),
    )
    texts = pa.array([msgspec.json.encode(row).decode() for row in rows]).dictionary_encode()
    place = found.files.schema.get_field_index("partition_values_json")
    return with_files(found, found.files.set_column(place, "partition_values_json", texts))


def _matching(where: str, time_zone: str = "UTC") -> list[int]:
    snapshot = partitioned(_ROWS, _TYPES)
    found = matching_partitions(snapshot, where, bounds_of(snapshot), time_zone)
    return [int(one) for one in found.nonzero()[0]]


def test_each_partition_is_decided() -> None:
    for where, expected in (
        ("NOT p", [1]),
        ("p <> 'TRUE'", [1]),
        ("p IS TRUE", [0]),
        ("p <=> NULL", [2]),
        ("d >= TIMESTAMP '2024-05-01 12:00:00+00:00' + INTERVAL '1' HOUR", [1]),
        ("d BETWEEN TIMESTAMP '2024-05-02 00:00:00Z' AND TIMESTAMP '2024-05-03 00:00:00Z'", [1]),
        ("d + INTERVAL 1 DAY = DATE '2024-05-02'", [0]),
        ("coalesce(d, DATE '2024-01-01') < DATE '2024-05-01'", [2]),
        ("year(d) = 2024 AND month(d) = 5", [0, 1]),
        ("s LIKE '%!%%' ESCAPE '!'", [0]),
        ("s ILIKE 'a%'", [0, 1]),
        ("lower(s) = 'axb'", [1]),
        ("y > 2023 OR y IS NULL", [0, 2]),
        ("n NOT IN (3, NULL)", []),
        ("t >= TIMESTAMP '2024-05-02 00:00:00'", [1]),
        ("d = t", [1]),
        ("CAST(t AS DATE) = d", [0, 1]),
    ):
        assert _matching(where) == expected


def test_times_without_a_zone_are_of_the_zone_given() -> None:
    for where, expected in (
        ("t = TIMESTAMP '2024-05-01 08:00:00Z'", [0]),
        ("t = TIMESTAMP '2024-05-02 02:00:00'", [1]),
        ("CAST(t AS DATE) = '2024-05-02'", [1]),
    ):
        assert _matching(where, "Europe/Berlin") == expected, where


def test_a_time_that_clocks_showed_twice_decides_nothing() -> None:
    assert _matching("t < '2024-10-27 02:30:00'", "Europe/Berlin") == [0, 1]
    first = "TIMESTAMP '2024-10-27 02:30:00' = TIMESTAMP '2024-10-27 00:30:00Z'"
    with pytest.raises(UsageError, match="do not decide"):
        _matching(f"p AND {first}", "Europe/Berlin")


@pytest.mark.parametrize(
    "where", ["x = 1", "d = current_date()", "udf(s) = 1", "s RLIKE 'a'", "s = n"]
)
def test_what_partition_values_do_not_decide_is_refused(where: str) -> None:
    with pytest.raises(UsageError):
        _matching(where)


# SQL predicates as boxes over clustering columns.


TYPES = {
    "d": "date",
    "k": "long",
    "s": "string",
    "x": "double",
    "m": "decimal(12,2)",
    "t": "timestamp",
    "o": "integer",
}
COLUMNS = [(name,) for name in "dksxmt"]


SCHEMA = parse_schema(schema_json_of(TYPES), where="the test")


def boxes(where: str) -> Any:
    found = fitted_workload((WeightedPredicate(where),), COLUMNS, SCHEMA)
    (predicate,) = found.predicates
    assert not found.left_out
    return [
        {"dksxmt"[term.column]: [_text(one) for one in term.intervals] for term in terms}
        for terms in predicate.any_of
    ]


def _text(interval: Any) -> str:
    found = msgspec.to_builtins(interval)
    low, high = found.get("low", ""), found.get("high", "")
    return f"{'(' if interval.open_low else '['}{low}, {high}{')' if interval.open_high else ']'}"


def test_a_predicate_is_boxes() -> None:
    for where, expected in (
        (
            "d >= DATE '1995-01-01' AND d < DATE '1996-01-01' AND o = 3",
            [{"d": ["[1995-01-01, 1995-12-31]"]}],
        ),
        ("k IN (9, 1, 5) AND s = 'b'", [{"k": ["[1, 1]", "[5, 5]", "[9, 9]"], "s": ["[b, b]"]}]),
        ("s LIKE 'ab%'", [{"s": ["[ab, ab\U0010ffff]"]}]),
        ("s >= 'b' AND s < 'd'", [{"s": ["[b, d)"]}]),
        ("NOT (k < 5 OR m > 3.145)", [{"k": ["[5, ]"], "m": ["[, 3.14]"]}]),
        ("NOT k BETWEEN 5 AND 7", [{"k": ["[, 4]", "[8, ]"]}]),
        (
            "k <= 9 AND k <= 5 AND s > 'b' AND s >= 'b' AND x < 2.5 AND x <= 2.5",
            [{"k": ["[, 5]"], "s": ["(b, ]"], "x": ["[, 2.5)"]}],
        ),
        ("x < 1.5 AND x >= 0.1", [{"x": ["[0.1, 1.5)"]}]),
        (
            "t >= '2024-01-01' AND t < '2024-01-02'",
            [{"t": ["[1704067200000000, 1704153599999999]"]}],
        ),
        (
            "k = 1 AND d = '2020-01-01' OR k = 2 AND s = 'b'",
            [
                {"d": ["[2020-01-01, 2020-01-01]"], "k": ["[1, 1]"]},
                {"k": ["[2, 2]"], "s": ["[b, b]"]},
            ],
        ),
    ):
        assert boxes(where) == expected


def test_what_no_box_can_say_is_left_out() -> None:
    for where, reason in (
        ("k = 1 OR o = 2", NO_COLUMN),
        ("year(d) = 1995", NO_COLUMN),
        ("CAST(m AS INT) = 3", NO_COLUMN),
        ("k BETWEEN 9 AND 3", NEVER),
        ("m = 3.145", NEVER),
    ):
        asked = (WeightedPredicate(where, 3), WeightedPredicate("k = 1", 1))
        found = fitted_workload(asked, COLUMNS, SCHEMA)
        assert [(one.reason, one.predicates, one.share) for one in found.left_out] == [
            (reason, 1, 0.75)
        ]
        assert [one.weight for one in found.predicates] == [0.25]


def test_of_many_predicates_a_sample_keeps_the_weights_of_columns() -> None:
    asked = tuple(
        WeightedPredicate(f"{'d' if number % 5 else 'k'} = {_constant(number)}")
        for number in range(2_000)
    )
    found = fitted_workload(asked, COLUMNS, SCHEMA)
    assert len(found.predicates) <= MAX_PREDICATES + 1
    by_column = {0: 0.0, 1: 0.0}
    for predicate in found.predicates:
        by_column[predicate.any_of[0][0].column] += predicate.weight
    assert by_column == pytest.approx({0: 0.8, 1: 0.2})


def _constant(number: int) -> str:
    if number % 5 == 0:
        return str(number)
    return f"DATE '{1900 + number // 300}-{1 + number // 25 % 12:02d}-{1 + number % 25:02d}'"


def test_long_lists_become_ranges_that_cover_them() -> None:
    values = ", ".join(str(value * 10) for value in reversed(range(5_000)))
    long = WeightedPredicate(f"k IN ({values})")
    (predicate,) = fitted_workload((long,), COLUMNS, SCHEMA).predicates
    intervals = predicate.any_of[0][0].intervals
    ends = [(int(one.low or 0), int(one.high or 0)) for one in intervals]
    assert len(intervals) <= 64
    assert all(any(low <= value * 10 <= high for low, high in ends) for value in range(5_000))
    asked = tuple(
        WeightedPredicate(f"k IN ({', '.join(str(n * 1000 + v) for v in range(60))})")
        for n in range(100)
    )
    many = fitted_workload(asked, COLUMNS, SCHEMA).predicates
    assert sum(len(one.any_of[0][0].intervals) for one in many) <= MAX_INTERVALS


def test_ranges_of_few_intervals_cover_a_long_one_before_short_ones() -> None:
    asked = tuple(
        WeightedPredicate(f"k BETWEEN {n} AND 9999 OR k IN ({', '.join(map(str, range(40)))})")
        for n in range(-50, 0)
    )
    for predicate in fitted_workload(asked, COLUMNS, SCHEMA).predicates:
        assert any(one.high == "9999" for one in predicate.any_of[0][0].intervals)


def test_json_lines_have_a_condition_and_a_weight() -> None:
    text = '{"where": "a = 1"}\n  \n{"weight": 2.5, "where": "b LIKE \'x%\'"}\n'
    found = [(one.where, one.weight) for one in parse_workload(text, source="w")]
    assert found == [("a = 1", 1.0), ("b LIKE 'x%'", 2.5)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a = 1",
        "[]",
        '{"were": "a = 1"}',
        '{"where": 1}',
        '{"where": "a = 1", "weight": 0}',
        '{"where": "a = 1", "weight": true}',
        "[" * 100_000,
    ],
)
def test_lines_that_are_no_predicate_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_workload(text, source="w.jsonl")
    assert str(refused.value.fields["where"]).startswith("w.jsonl")
