"""SQL predicates as boxes over clustering columns."""

from typing import Any

import msgspec
import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.matching import MAX_INTERVALS, MAX_PREDICATES
from liquidlog.predicates.reduction import NEVER, NO_COLUMN, fitted_workload
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.spec.schema import StructType, parse_schema
from support.plans import schema_json_of

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


def schema() -> StructType:
    return parse_schema(schema_json_of(TYPES), where="the test")


def boxes(where: str) -> Any:
    found = fitted_workload((WeightedPredicate(where),), COLUMNS, schema())
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


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("d = '1995-01-01'", [{"d": ["[1995-01-01, 1995-01-01]"]}]),
        (
            "d >= DATE '1995-01-01' AND d < DATE '1996-01-01' AND o = 3",
            [{"d": ["[1995-01-01, 1995-12-31]"]}],
        ),
        ("k IN (9, 1, 5) AND s = 'b'", [{"k": ["[1, 1]", "[5, 5]", "[9, 9]"], "s": ["[b, b]"]}]),
        ("s LIKE 'ab%'", [{"s": ["[ab, ab\U0010ffff]"]}]),
        ("s >= 'b' AND s < 'd'", [{"s": ["[b, d)"]}]),
        ("k = 1 OR s > 'x'", [{"k": ["[1, 1]"]}, {"s": ["(x, ]"]}]),
        ("k = 3 OR k = 7", [{"k": ["[3, 3]", "[7, 7]"]}]),
        ("NOT (k < 5 OR m > 3.145)", [{"k": ["[5, ]"], "m": ["[, 3.14]"]}]),
        ("NOT k BETWEEN 5 AND 7", [{"k": ["[, 4]", "[8, ]"]}]),
        ("x < 1.5 AND x >= 0.1", [{"x": ["[0.1, 1.5)"]}]),
        ("k < 5.5", [{"k": ["[, 5]"]}]),
        ("5 > CAST(k AS BIGINT)", [{"k": ["[, 4]"]}]),
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
        ("k = 1 AND s LIKE '%b'", [{"k": ["[1, 1]"]}]),
    ],
)
def test_a_predicate_is_boxes(where: str, expected: Any) -> None:
    assert boxes(where) == expected


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("o = 2", NO_COLUMN),
        ("k = 1 OR o = 2", NO_COLUMN),
        ("k <> 5", NO_COLUMN),
        ("k NOT IN (1)", NO_COLUMN),
        ("year(d) = 1995", NO_COLUMN),
        ("CAST(m AS INT) = 3", NO_COLUMN),
        ("TRUE", NO_COLUMN),
        ("k BETWEEN 9 AND 3", NEVER),
        ("m = 3.145", NEVER),
        ("k = 1 AND k = 2", NEVER),
    ],
)
def test_what_no_box_can_say_is_left_out(where: str, reason: str) -> None:
    asked = (WeightedPredicate(where, 3), WeightedPredicate("k = 1", 1))
    found = fitted_workload(asked, COLUMNS, schema())
    assert [(one.reason, one.predicates, one.share) for one in found.left_out] == [
        (reason, 1, 0.75)
    ]
    assert [one.weight for one in found.predicates] == [0.25]


def test_equal_predicates_become_one() -> None:
    asked = (WeightedPredicate("k = 1"), WeightedPredicate("1 = k", 2), WeightedPredicate("k = 2"))
    found = fitted_workload(asked, COLUMNS, schema())
    assert [one.weight for one in found.predicates] == [0.75, 0.25]


def test_of_many_predicates_a_sample_keeps_the_weights_of_columns() -> None:
    asked = tuple(
        WeightedPredicate(f"{'d' if number % 5 else 'k'} = {_constant(number)}")
        for number in range(2_000)
    )
    found = fitted_workload(asked, COLUMNS, schema())
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
    (predicate,) = fitted_workload(
        (WeightedPredicate(f"k IN ({values})"),), COLUMNS, schema()
    ).predicates
    intervals = predicate.any_of[0][0].intervals
    ends = [(int(one.low or 0), int(one.high or 0)) for one in intervals]
    assert len(intervals) <= 64
    assert all(any(low <= value * 10 <= high for low, high in ends) for value in range(5_000))
    asked = tuple(
        WeightedPredicate(f"k IN ({', '.join(str(n * 1000 + v) for v in range(60))})")
        for n in range(100)
    )
    many = fitted_workload(asked, COLUMNS, schema()).predicates
    assert sum(len(one.any_of[0][0].intervals) for one in many) <= MAX_INTERVALS


def test_a_wrong_predicate_is_an_error() -> None:
    for where in ("k >", "nope = 1"):
        with pytest.raises(UsageError):
            fitted_workload((WeightedPredicate(where),), COLUMNS, schema())
