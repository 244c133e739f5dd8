"""Trees of conditions: parsed once, and never changed by those who read them."""

import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import at_time, parse_condition
from liquidlog.predicates.literals import Session
from liquidlog.predicates.matching import judged_each
from support.one_file import ONE, SCHEMA
from support.snapshots import bounds_of, snapshot_of

PREDICATES = [
    "i = 3 + 3 AND NOT n IN (1, 2)",
    "year(d) = 2024 AND month(d) = 2 AND day(d) IN (3, 4)",
    "d > current_date - INTERVAL 7 DAYS OR t < now()",
    "s LIKE 'a%' OR s LIKE 'b!%' ESCAPE '!'",
]


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_tree_is_kept_and_nobody_changes_it(predicate: str) -> None:
    tree = parse_condition(predicate)
    before = repr(tree)
    at_time(predicate, 1_700_000_000_000_000)
    snapshot = snapshot_of(ONE, schema=SCHEMA, cluster_by=None)
    for _ in range(2):
        judged_each(snapshot, [predicate], bounds_of(snapshot), Session(1_700_000_000_000_000))
    assert parse_condition(predicate) is tree
    assert repr(tree) == before
    assert all(child.parent is not None for child in tree.iter_expressions())


def test_a_long_condition_is_not_kept() -> None:
    predicate = f"i IN ({', '.join(map(str, range(1000)))})"
    assert parse_condition(predicate) is not parse_condition(predicate)
    assert parse_condition(predicate) == parse_condition(predicate)


def test_a_refusal_is_repeated() -> None:
    for _ in range(2):
        with pytest.raises(UsageError, match="not a SQL condition"):
            parse_condition("i = ")
