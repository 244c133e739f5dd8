"""Predicates that are none: where it is said to be wrong, never in the parser's words."""

import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import parse_condition


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("day >", "something is missing after '>' (character 5)"),
        ("day = = 3", "something is missing after '=' (character 7)"),
        ("(day = 1", ") is missing after '1' (character 8)"),
        ("a b c", "'c' is not expected there (character 5)"),
        ("day > 3\nand", "something is missing after 'and' (line 2, character 3)"),
        ("s = 'a", "a quote or a comment is not closed"),
        ("", "it is empty"),
        ("select * from t", "it is a statement; give only the condition behind its WHERE"),
        ("a = 1; b = 2", "it is 2 statements; join conditions with AND or OR"),
    ],
)
def test_it_is_said_where_and_what(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_condition(text)
    assert caught.value.message == f"{text!r} is not a SQL condition: {said}"


@pytest.mark.parametrize(
    "text",
    ["x in (1,", "x between 1", "not", "cast(x as nope) = 1", "x like", "select * from", "))"],
)
def test_no_word_of_the_parser_is_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_condition(text)
    for word in ("sqlglot", "<", "Token", "Required", "Line", "Col"):
        assert word not in caught.value.message
