import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.workload import WeightedPredicate, shares
from liquidlog.predicates.workload_text import parse_workload


def pairs(text: str, *, sql: bool) -> list[tuple[str, float]]:
    return [(one.where, one.weight) for one in parse_workload(text, source="w", sql=sql)]


def test_json_lines_have_a_condition_and_a_weight() -> None:
    text = '{"where": "a = 1"}\n  \n{"weight": 2.5, "where": "b LIKE \'x%\'"}\n'
    assert pairs(text, sql=False) == [("a = 1", 1.0), ("b LIKE 'x%'", 2.5)]


def test_statements_give_their_where_and_the_weight_in_a_comment() -> None:
    text = """
        -- the dashboard; weight: 10
        SELECT count(*) FROM db.sales AS s WHERE s.day = DATE '2024-01-31' AND S.part.no > 7;
        /* weight=0.5 */ a IN (1, 2);
        select * from sales where sales.a is null group by b order by c limit 3;
        SELECT * FROM sales;
        b = 1; -- weight: 3
        b = 2;
        -- weight: 4
        b = 3;  -- no weight
        b = 4 -- weight: 5
        ;
        b = 5; -- weight: 6
    """
    assert pairs(text, sql=True) == [
        ("day = CAST('2024-01-31' AS DATE) AND part.no > 7", 10.0),
        ("a IN (1, 2)", 0.5),
        ("a IS NULL", 1.0),
        ("TRUE", 1.0),
        *(("b = 1", 3.0), ("b = 2", 1.0), ("b = 3", 4.0), ("b = 4", 5.0), ("b = 5", 6.0)),
    ]


def test_shares_add_up_to_one() -> None:
    assert shares((WeightedPredicate("a", 3), WeightedPredicate("b"))) == (0.75, 0.25)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a = 1",
        "[]",
        '{"were": "a = 1"}',
        '{"where": "a = 1", "wait": 3}',
        '{"where": 1}',
        '{"where": "a = 1", "weight": 0}',
        '{"where": "a = 1", "weight": true}',
        '{"where": "a = 1", "weight": "often"}',
        "[" * 100_000,
    ],
)
def test_lines_that_are_no_predicate_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_workload(text, source="w.jsonl", sql=False)
    assert str(refused.value.fields["where"]).startswith("w.jsonl")


@pytest.mark.parametrize("text", ['{"where": "a ="}', '{"where": "SELECT 1"}', '{"where": ""}'])
def test_lines_whose_predicate_is_no_condition_say_why(text: str) -> None:
    good, bad = parse_workload('{"where": "a = 1"}\n' + text, source="w.jsonl", sql=False)
    assert good.problem is None
    assert str(bad.problem).startswith("w.jsonl line 2: ")


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t WHERE a = 1",
        "SELECT 1",
        "SELECT * FROM t JOIN u ON t.a = u.a WHERE t.a = 1",
        "SELECT * FROM t, u WHERE t.a = 1",
        "WITH t AS (SELECT 1 AS a) SELECT * FROM t WHERE a = 1",
        "SELECT a FROM t UNION SELECT a FROM u",
        "SELECT * FROM (SELECT * FROM t) WHERE a = 1",
    ],
)
def test_statements_that_ask_more_than_one_table_say_so(text: str) -> None:
    good, bad = parse_workload(f"a = 1; {text} /* weight: 3 */", source="w.sql", sql=True)
    assert good == WeightedPredicate("a = 1")
    assert bad.problem == "w.sql statement 2 is neither a condition nor a SELECT from one table"
    assert bad.weight == 3
    assert bad.where.split() != []


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "'open",
        "a = 1 -- weight: -1",
        "a = 1 -- weight: 1e999",
        "a = 1 -- weight: e",
    ],
)
def test_text_that_is_no_workload_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_workload(text, source="w.sql", sql=True)
    assert str(refused.value.fields["where"]).startswith("w.sql")
