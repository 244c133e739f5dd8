"""Months and days of a known year, as dates: `year(t) = 2024 AND month(t) >= 3` is a range of t.

Where a conjunct fixes the year, another about the month may be replaced by one about the date: if
the year differs, the conjunction is not true with either.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from sqlglot import exp

from liquidlog.predicates.literals import Exact, SqlValue
from liquidlog.predicates.periods import year_argument

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_DAYS: Final = (exp.Day, exp.DayOfMonth)

ValueOf = Callable[[exp.Expression], SqlValue | None]


def with_dates(parts: Sequence[exp.Expression], value_of: ValueOf) -> list[exp.Expression]:
    """Return the parts of a conjunction, with months and days of known years as dates."""
    years = _fixed(parts, year_argument, value_of)
    if not years:
        return list(parts)
    months = {
        of: (years[of], month)
        for of, month in _fixed(parts, _month_argument, value_of).items()
        if of in years
    }

    def dated(node: exp.Expr) -> exp.Expr:
        subject = _subject(node)
        if subject is None or not isinstance(node, exp.Expression):
            return node
        argument = _month_argument(subject)
        year = years.get(_key(argument))
        if argument is not None and year is not None:
            return _replaced(node, _month_of(argument), lambda month: (year, month, 1), value_of)
        known = months.get(_key(subject.this)) if isinstance(subject, _DAYS) else None
        if known is None:
            return node
        return _replaced(node, _date_of(subject.this), lambda day: (*known, day), value_of)

    found = (part.transform(dated) for part in parts)
    return [part for part in found if isinstance(part, exp.Expression)]


def _fixed(
    parts: Sequence[exp.Expression],
    argument_of: Callable[[exp.Expression], exp.Expression | None],
    value_of: ValueOf,
) -> Mapping[str, int]:
    """Return what an equation fixes a part of a date to, by the SQL of the date."""
    fixed = {}
    for part in parts:
        equation = part.unnest()
        if not isinstance(equation, exp.EQ):
            continue
        for one, other in (
            (equation.this, equation.expression),
            (equation.expression, equation.this),
        ):
            argument = argument_of(one.unnest())
            number = _whole(value_of(other)) if argument is not None else None
            if argument is not None and number is not None:
                fixed[_key(argument)] = number
    return fixed


def _whole(value: SqlValue | None) -> int | None:
    return int(value.value) if isinstance(value, Exact) and value.bits else None


def _key(argument: exp.Expression | None) -> str:
    while isinstance(argument, exp.Paren | exp.TsOrDsToDate):
        argument = argument.this
    return "" if argument is None else argument.sql("spark").lower()


def _month_argument(node: exp.Expression) -> exp.Expression | None:
    match node:
        case exp.Month():
            return cast("exp.Expression", node.this)
        case exp.Extract() if node.name.upper() == "MONTH":
            return cast("exp.Expression", node.expression)
        case _:
            return None


def _subject(node: exp.Expr) -> exp.Expression | None:
    """Return what a condition compares with constants, None if it is none of these conditions."""
    if isinstance(node, (*_COMPARISONS, exp.Between, exp.In)) and not node.args.get("query"):
        found = node.this.unnest()
        return found if isinstance(found, exp.Expression) else None
    return None


def _month_of(argument: exp.Expression) -> exp.Expression:
    trunc = exp.func("trunc", _date_of(argument), exp.Literal.string("MONTH"), dialect="spark")
    return cast("exp.Expression", trunc)


def _date_of(argument: exp.Expression) -> exp.Expression:
    return exp.TsOrDsToDate(this=argument.copy())


def _replaced(
    node: exp.Expression,
    subject: exp.Expression,
    date_of: Callable[[int], tuple[int, int, int]],
    value_of: ValueOf,
) -> exp.Expression:
    """Return a condition about a date instead of one about its month or day, if all are dates."""
    made = node.copy()
    names = ("low", "high") if isinstance(made, exp.Between) else ("expression",)
    places = made.expressions if isinstance(made, exp.In) else [made.args[name] for name in names]
    for constant in list(places):
        number = _whole(value_of(constant))
        try:
            day = None if number is None else dt.date(*date_of(number))
        except (ValueError, OverflowError):
            day = None
        if day is None:
            return node
        constant.replace(exp.cast(exp.Literal.string(day.isoformat()), "date"))
    made.set("this", subject)
    return made
