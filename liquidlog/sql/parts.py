"""What several statements have in common: names of tables, properties, conditions."""

from collections.abc import Mapping
from typing import Final

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import ParseError, SqlglotError

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import parse_condition
from liquidlog.sql.statements import TableAt, TableName, table_of
from liquidlog.sql.words import Words, refuse_at

A_TABLE: Final = "a table, as delta.`/data/sales`"
"""What stands where a table is needed, for errors."""

NO_AUTO: Final = "columns are not chosen by themselves; ADVISE says which suit readers"
"""Why there is no CLUSTER BY AUTO."""


def table_name(words: Words) -> TableName:
    """Return a table: a name, delta.`path`, or a path in quotes."""
    if words.sees_kind(TokenType.STRING):
        token = words.token
        path = words.string(A_TABLE)
        if not path:
            words.fail("the path of a table is empty", at=token)
        return TableAt(path)
    return table_of(words.path(A_TABLE))


def properties(words: Words) -> Mapping[str, str]:
    """Return properties and their values, in parentheses."""
    words.expect_kind(TokenType.L_PAREN, "( and properties")
    found: dict[str, str] = {}
    while not found or words.take_kind(TokenType.COMMA):
        token = words.token
        name = property_name(words)
        words.take_kind(TokenType.EQ)
        value = _property_value(words)
        if found.setdefault(name, value) != value:
            words.fail(f"{name} is given two values", at=token)
    words.expect_kind(TokenType.R_PAREN, ", or )")
    return found


def property_name(words: Words) -> str:
    """Return the name of a property, in quotes or as names with points between them."""
    if words.sees_kind(TokenType.STRING):
        return words.string("a property")
    return ".".join(words.path("a property, as 'delta.checkpointInterval'"))


def _property_value(words: Words) -> str:
    if words.sees_kind(TokenType.NUMBER):
        return str(words.advance().text)
    if words.sees("TRUE") or words.sees("FALSE"):
        return str(words.advance().text.lower())
    return words.string("the property's value in quotes")


def condition(words: Words, *ends: str) -> str | None:
    """Return the condition behind WHERE, which goes to one of the words `ends`, if there is one."""
    if not words.take("WHERE"):
        return None
    first, begin = words.token, words.offset
    depth = 0
    while words.token is not None and not words.sees_kind(TokenType.SEMICOLON):
        if not depth and any(words.sees(end) for end in ends):
            break
        kind = words.advance().token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
    condition = words.text[begin : words.end] if first is not None else ""
    if not condition or words.end <= begin:
        words.fail("expected a condition behind WHERE, found none")
    _check_condition(words, condition, begin, first)
    return condition


def _check_condition(words: Words, condition: str, begin: int, first: Token | None) -> None:
    try:
        sqlglot.parse(condition, dialect="spark")
        parse_condition(condition)
    except (SqlglotError, UsageError) as error:
        found = error.errors[0] if isinstance(error, ParseError) and error.errors else None
        if found is None:
            words.fail("expected a condition, as day >= '2026-01-31'", at=first)
        word = str(found.get("highlight") or "")
        shown = f", found {word}" if word else ""
        offset = begin + _offset(condition, found, word)
        refuse_at(words.text, offset, f"the condition cannot be read here{shown}")


def _offset(text: str, found: Mapping[str, object], word: str) -> int:
    """Return where a word begins, of which sqlglot tells the line and the column of the end."""
    line, column = found.get("line"), found.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return 0
    start = sum(len(one) + 1 for one in text.split("\n")[: line - 1])
    return max(0, min(start + column - len(word), len(text)))
