"""Queries without their constants: shapes, with each constant's place among those of its column."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.workload.form import Query

_STEPS: Final = 1000
"""A place is a quantile in thousandths: `:q250` lies above a quarter of the constants."""
_CONSTANTS: Final = (exp.Literal, exp.Neg, exp.HexString, exp.Concat, exp.Boolean)
_UNKNOWN: Final = ":redacted"


def redact(queries: tuple[Query, ...]) -> tuple[Query, ...]:
    """Return queries whose constants are replaced by placeholders like `:q250`.

    The number is the constant's quantile, in thousandths, among all constants that the queries
    compare with the same column of the same table, once per use. Functions and columns stay.
    """
    parsed = [(query, [_parsed(text) for text in query.conjuncts]) for query in queries]
    values: dict[tuple[str, str], dict[tuple[int, float, str], float]] = {}
    for query, trees in parsed:
        for tree in trees:
            for literal in _constants(tree):
                own = values.setdefault((query.table, _column(literal)), {})
                own[_order(literal)] = own.get(_order(literal), 0.0) + query.weight
    places = {key: _quantiles(found) for key, found in values.items()}
    return tuple(
        replace(query, conjuncts=tuple(_shape(query.table, tree, places) for tree in trees))
        for query, trees in parsed
    )


def _parsed(text: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError, ValueError):
        return None


def _constants(tree: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the constants of a tree, a typed one as a whole."""
    if tree is None:
        return
    pending: list[exp.Expr] = [tree]
    while pending:
        node = pending.pop()
        typed = isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal)
        if typed or (isinstance(node, _CONSTANTS) and (node.find(exp.Column) is None)):
            yield node
        elif not isinstance(node, exp.DataType):
            pending.extend(node.iter_expressions())


def _column(literal: exp.Expr) -> str:
    node = literal.parent
    while node is not None:
        column = node if isinstance(node, exp.Column) else node.find(exp.Column)
        if column is not None:
            return ".".join(part.name for part in column.parts).lower()
        node = node.parent
    return ""


def _order(literal: exp.Expr) -> tuple[int, float, str]:
    """Return what constants are sorted by: numbers as such, then text."""
    text = literal.sql("spark")
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text


def _quantiles(found: dict[tuple[int, float, str], float]) -> dict[tuple[int, float, str], int]:
    total = sum(found.values())
    places: dict[tuple[int, float, str], int] = {}
    below = 0.0
    for value in sorted(found):
        places[value] = round(_STEPS * (below + found[value] / 2) / total)
        below += found[value]
    return places


def _shape(
    table: str,
    tree: exp.Expr | None,
    places: dict[tuple[str, str], dict[tuple[int, float, str], int]],
) -> str:
    if tree is None:
        return _UNKNOWN
    copied = tree.copy()
    for literal in list(_constants(copied)):
        place = places[table, _column(literal)][_order(literal)]
        shape = exp.Placeholder(this=f"q{place}")
        if literal is copied:
            return _UNKNOWN
        literal.replace(shape)
    return copied.sql("spark", comments=False, normalize_functions="lower")
