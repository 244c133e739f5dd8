"""A workload as people write it: JSON lines or SQL, and which of its predicates can be used."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import parse_condition, sql_problem
from liquidlog.predicates.matching import Judged, judged_or_refused
from liquidlog.predicates.workload import NotUsable, Session, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.text import iso_time

# Workloads as people write them, in two forms of text
#
# JSON lines: one `{"where": "day = '2024-01-31'", "weight": 3}` per line; a weight left out is
# 1. SQL: statements that end in a semicolon, each a SELECT from one table or a bare condition;
# a comment `weight: 3` in a statement gives its weight. A predicate that cannot be read keeps
# its text and says what its problem is.

_WEIGHT: Final = re.compile(r"\bweight\s*[:=]\s*([0-9.eE+-]+)")
_NARROWING: Final = ("joins", "laterals", "with_")
"""Clauses that make a SELECT read more than one table."""

_QUALIFIERS: Final = ("catalog", "db", "table")
"""The arguments where sqlglot keeps the parts of a name before the last, outermost first."""


def parse_workload(text: str, *, source: str, sql: bool) -> Workload:
    """Return the predicates of a workload; `source` names the text in errors.

    A predicate that is no condition on one table is returned with its problem.
    """
    found = tuple(_statements(text, source) if sql else _lines(text, source))
    if not found:
        raise UsageError(f"{source} holds no predicate", where=source)
    return found


def _lines(text: str, source: str) -> Iterator[WeightedPredicate]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{source} line {number}"
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(
                f"{place} is not a JSON object; a file of SQL has a name that ends in .sql",
                where=place,
            ) from error
        condition = found.get("where")
        if not isinstance(condition, str) or set(found) - {"where", "weight"}:
            raise UsageError(
                f'{place} is not of the form {{"where": "...", "weight": 1}}', where=place
            )
        weight = _weight(found.get("weight", 1), place)
        yield WeightedPredicate(condition, weight, _problem(condition, place))


def _statements(text: str, source: str) -> Iterator[WeightedPredicate]:
    try:
        statements = sqlglot.parse(text, dialect="spark")
    except SqlglotError as error:
        raise UsageError(
            f"{source} is not SQL: {sql_problem(error, text)}", where=source
        ) from error
    for number, (statement, comments) in enumerate(_commented(statements), start=1):
        place = f"{source} statement {number}"
        weights = [found[1] for text in comments if (found := _WEIGHT.search(text))]
        weight = _weight(_number(weights[0]) if weights else 1, place)
        condition = _condition(statement)
        if condition is None:
            problem = f"{place} is neither a condition nor a SELECT from one table"
            yield WeightedPredicate(statement.sql("spark", comments=False), weight, problem)
        else:
            yield WeightedPredicate(condition, weight, _problem(condition, place))


def _commented(
    statements: Sequence[exp.Expr | None],
) -> Iterator[tuple[exp.Expr, Sequence[str]]]:
    """Yield each statement with its comments.

    sqlglot treats a comment behind a semicolon, in the same line, as a statement of its own.
    """
    for statement, following in zip(statements, [*statements[1:], None], strict=True):
        if statement is None or isinstance(statement, exp.Semicolon):
            continue
        comments = [text for node in statement.walk() for text in node.comments or ()]
        behind = following.comments if isinstance(following, exp.Semicolon) else None
        yield statement, [*comments, *(behind or ())]


def _condition(statement: exp.Expr) -> str | None:
    """Return the text of a statement's condition, None if it reads not one table."""
    if isinstance(statement, exp.Condition) and not isinstance(statement, exp.Query):
        return statement.sql("spark", comments=False)
    origin = statement.args.get("from_") if isinstance(statement, exp.Select) else None
    if (
        origin is None
        or not isinstance(origin.this, exp.Table)
        or any(statement.args.get(name) for name in _NARROWING)
    ):
        return None
    found = statement.args.get("where")
    if found is None:
        return "TRUE"
    table = origin.this
    condition = found.this.copy()
    for column in condition.find_all(exp.Column):
        qualifier = next((part for part in _QUALIFIERS if column.args.get(part)), None)
        if qualifier and column.text(qualifier).lower() == table.alias_or_name.lower():
            column.set(qualifier, None)
    return str(condition.sql("spark", comments=False))


def _problem(condition: str, place: str) -> str | None:
    try:
        parse_condition(condition)
    except UsageError as error:
        return f"{place}: {error.message}"
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _weight(value: object, place: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < float(str(value)) < math.inf:
        raise UsageError(f"{place} has no positive weight but {value!r}", where=place)
    return float(str(value))


# What a whole workload says of the live files, and which of its predicates say nothing


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The predicates that are conditions on the table, each with its answer, and the others."""

    workload: Workload
    judged: tuple[Judged, ...]
    not_usable: tuple[NotUsable, ...]

    @property
    def cannot_prune(self) -> tuple[str, ...]:
        """Return the conditions of all predicates that rule out no file, each once."""
        return tuple(dict.fromkeys(text for one in self.judged for text in one.cannot_prune))

    def asked_at(self, now_ms: int | None) -> str | None:
        """Return the time (ISO 8601, UTC) that some answer depends on; None if none does."""
        return iso_time(now_ms) if self.asks_for_time and now_ms is not None else None

    @property
    def asks_for_time(self) -> bool:
        """Return whether some answer depends on the time at which it is asked."""
        return any(one.asks_for_time for one in self.judged)


def answers(
    snapshot: Snapshot, workload: Workload, bounds_of: BoundsOf, session: Session
) -> Answers:
    """Return what the predicates of a workload say of the live files.

    Predicates that are no condition on this table are set aside with the reason.
    """
    problems = [_unusable_problem(predicate) for predicate in workload]
    readable = [
        predicate.where
        for predicate, problem in zip(workload, problems, strict=True)
        if problem is None
    ]
    rest = iter(judged_or_refused(snapshot, readable, bounds_of, session))
    found = [next(rest) if problem is None else problem for problem in problems]
    pairs = list(zip(workload, found, strict=True))
    refused = [(predicate, one) for predicate, one in pairs if isinstance(one, UsageError)]
    if len(workload) == 1 and refused:
        raise refused[0][1]
    if len(refused) == len(workload):
        raise UsageError(_none_usable([error.message for _, error in refused]))
    return Answers(
        workload=tuple(predicate for predicate, one in pairs if isinstance(one, Judged)),
        judged=tuple(one for one in found if isinstance(one, Judged)),
        not_usable=tuple(
            NotUsable(where=predicate.where, weight=predicate.weight, reason=error.message)
            for predicate, error in refused
        ),
    )


def _unusable_problem(predicate: WeightedPredicate) -> UsageError | None:
    problem = predicate.problem
    return None if problem is None else UsageError(problem, predicate=predicate.where)


def _none_usable(reasons: list[str]) -> str:
    return (
        f"none of {len(reasons)} predicates is a condition on this table; the first: {reasons[0]}"
    )
