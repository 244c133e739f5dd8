"""MERGE names columns of two tables: which are the target's."""

import pytest

from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.workload.query_logs import predicates, statements_asked
from liquidlog.workload.scans import of_target
from liquidlog.workload.tables import known_table

SCHEMA = StructType(
    (StructField("id", PrimitiveType("long")), StructField("d", PrimitiveType("date")))
)


def test_columns_that_follow_each_other_are_of_one_table() -> None:
    marked, certain = of_target(
        "((id#7L = id#3L) AND (d#8 > 2024-01-03))", ["id", "d"], frozenset()
    )
    assert marked == "((id#1L = __source_id#1L) AND (d#1 > 2024-01-03))"
    assert not certain


def test_what_is_inserted_is_of_the_source() -> None:
    condition = "((id#7L = id#3L) AND (d#8 > 2024-01-03))"
    assert of_target(condition, ["id", "d"], frozenset({"3"}))[1]


def test_log_of_a_merge_has_the_targets_condition() -> None:
    info = {
        "operation": "MERGE",
        "timestamp": 5,
        "operationParameters": {"predicate": '["((id#7L = id#3L) AND (d#8 > 2024-01-03))"]'},
    }
    (found,) = statements_asked(iter([info]), known_table("/t", SCHEMA))
    assert found.conjuncts == ("d > DATE '2024-01-03'",)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ('["(a = 1)"]', ("(a = 1)",)),
        ("(a = 1)", ("(a = 1)",)),
        ("[]", ()),
        (None, ()),
        ("[x", ("[x",)),
    ],
)
def test_parameter_is_a_list_or_a_text(found: object, expected: tuple[str, ...]) -> None:
    assert predicates(found) == expected
