"""Functions that give all times of a period one value, like year(t), as ranges of their column.

`year(t) = 2024` holds from where 2024 begins until where 2025 begins. Where a time zone shows or
skips such a time twice, or could, the edge is not a point but holds every possible one.

Source: Spark, DateTimeUtils (truncDate, truncTimestamp), Cast.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa
from sqlglot import exp

from liquidlog.predicates.coercion import Comparable, comparables
from liquidlog.predicates.literals import (
    DAY_US,
    Moment,
    Span,
    SqlValue,
    midnight,
    midnight_us,
    moment_text,
)
from liquidlog.predicates.sessions import ANY_SHIFT_US, Session
from liquidlog.predicates.units import UNITS, begin_us, end_us, is_long, unit_of_dates
from liquidlog.spec.schema import DataType, Leaf, PrimitiveType

DATE: Final = PrimitiveType("date")
INTEGER: Final = PrimitiveType("integer")
TIMESTAMP: Final = PrimitiveType("timestamp")
LOCAL: Final = PrimitiveType("timestamp_ntz")
_TIMES: Final = (DATE, TIMESTAMP, LOCAL)

_YEAR: Final = "year"
_YEAR_AND_MONTH: Final = "year * 100 + month"
_HUNDRED: Final = 100
_MONTHS: Final = 12
_LONGEST_US: Final[Mapping[str, int]] = {
    "year": 366 * DAY_US,
    "quarter": 92 * DAY_US,
    "month": 31 * DAY_US,
    "week": 7 * DAY_US,
}


@dataclass(frozen=True, slots=True)
class Period:
    """A function of a column that depends only on the `unit` of time that its value lies in.

    `gives` is the type of its value: integer (by the rule `number`), date or timestamp.
    """

    leaf: Leaf
    unit: str
    gives: DataType
    number: str | None = None


@dataclass(frozen=True, slots=True)
class Edges:
    """Where the values of a column begin whose period is at least, and later than, a constant."""

    first: Comparable
    beyond: Comparable


_Range = tuple[int, int]
"""The earliest and the latest place of an edge, in microseconds."""


def period_of(
    node: exp.Expression, leaf_of: Callable[[exp.Expression], Leaf | None]
) -> Period | None:
    """Return the function of a column that an expression is, None if it is none of these."""
    match node:
        case exp.Paren():
            return period_of(node.this, leaf_of)
        case exp.Add():
            return _year_and_month(node, leaf_of)
        case exp.Year() | exp.Extract() | exp.Anonymous():
            leaf = _time(year_argument(node), leaf_of)
            return None if leaf is None else Period(leaf, "year", INTEGER, _YEAR)
        case exp.TsOrDsToDate() | exp.Cast():
            leaf = _time(node, leaf_of)
            return None if leaf is None else Period(leaf, "day", DATE)
        case exp.DateTrunc():
            leaf, unit = _time(node.this, leaf_of), unit_of_dates(node.text("unit"))
            return None if leaf is None or unit is None else Period(leaf, unit, DATE)
        case exp.TimestampTrunc() if node.args.get("zone") is None:
            leaf, unit = leaf_of(node.this.unnest()), UNITS.get(node.text("unit").upper())
            is_time = leaf is not None and leaf.data_type in _TIMES
            return Period(leaf, unit, TIMESTAMP) if leaf and is_time and unit else None
        case _:
            return None


def year_argument(node: exp.Expression) -> exp.Expression | None:
    """Return what an expression gives the year of, None if it is no year."""
    match node:
        case exp.Year():
            return cast("exp.Expression", node.this)
        case exp.Extract() if node.name.upper() == "YEAR":
            return cast("exp.Expression", node.expression)
        case exp.Anonymous() if node.name.lower() == "date_part" and len(node.expressions) == 2:  # noqa: PLR2004
            unit, of = node.expressions
            return of if isinstance(unit, exp.Literal) and unit.name.upper() == "YEAR" else None
        case _:
            return None


def _time(
    node: exp.Expression | None, leaf_of: Callable[[exp.Expression], Leaf | None]
) -> Leaf | None:
    """Return the column of dates or times that an expression is, or is the date of."""
    match node:
        case None:
            return None
        case exp.Paren():
            return _time(node.this, leaf_of)
        case exp.TsOrDsToDate() if node.args.get("format") is None:
            return _time(node.this, leaf_of)
        case exp.Cast() if node.to.this == exp.DataType.Type.DATE:
            return _time(node.this, leaf_of)
        case _:
            leaf = leaf_of(node)
            return leaf if leaf is not None and leaf.data_type in _TIMES else None


def _year_and_month(
    node: exp.Add, leaf_of: Callable[[exp.Expression], Leaf | None]
) -> Period | None:
    """Return `year(t) * 100 + month(t)`, in this order or the other way round."""
    years, month = node.this.unnest(), node.expression.unnest()
    if isinstance(years, exp.Month):
        years, month = month, years
    if not isinstance(years, exp.Mul) or not isinstance(month, exp.Month):
        return None
    sides = (years.this.unnest(), years.expression.unnest())
    found = [side for side in sides if isinstance(side, exp.Year)]
    factors = [side for side in sides if isinstance(side, exp.Literal) and side.name == "100"]
    if len(found) != 1 or len(factors) != 1:
        return None
    leaf = _time(found[0].this, leaf_of)
    is_same = leaf is not None and leaf == _time(month.this, leaf_of)
    return Period(leaf, "month", INTEGER, _YEAR_AND_MONTH) if leaf and is_same else None


def edges(period: Period, value: SqlValue, session: Session) -> Edges | None:
    """Return where the column's values begin whose period is `value`, and where later ones do.

    None if the comparison depends on more than that.
    """
    low, high = (value.low, value.high) if isinstance(value, Span) else (value, value)
    try:
        starts, ends = _edges(period, low, session), _edges(period, high, session)
    except (OverflowError, ValueError):  # beyond the years 1 to 9999
        return None
    if starts is None or ends is None:
        return None
    return Edges(*(_merged(one, other) for one, other in zip(starts, ends, strict=True)))


def _merged(low: Comparable, high: Comparable) -> Comparable:
    return Comparable(low.arrow_type, low.low, high.high)


def _edges(
    period: Period, value: SqlValue, session: Session
) -> tuple[Comparable, Comparable] | None:
    if period.gives == TIMESTAMP:
        return _edges_of_moment(period, value, session)
    found = comparables([value], period.gives, session.time_zone)
    if found is None:
        return None
    if period.gives == DATE:
        begin = begin_us(day_us := midnight_us(found[0].low.as_py()), period.unit)
        end = end_us(begin, period.unit)
        first, beyond = (begin if day_us == begin else end), end
    elif found[0].arrow_type != pa.int64():
        return None
    else:
        first, beyond = _numbered(period, found[0].low.as_py())
    return _among_values(period.leaf, (first, first), (beyond, beyond), session)


def _numbered(period: Period, number: int) -> tuple[int, int]:
    if period.number == _YEAR:
        begin = midnight_us(dt.date(number, 1, 1))
        return begin, end_us(begin, "year")
    year, month = divmod(number, _HUNDRED)
    begin = midnight_us(dt.date(year, 1, 1))
    if month < 1:
        return begin, begin
    if month > _MONTHS:
        end = end_us(begin, "year")
        return end, end
    begin = midnight_us(dt.date(year, month, 1))
    return begin, end_us(begin, "month")


def _edges_of_moment(
    period: Period, value: SqlValue, session: Session
) -> tuple[Comparable, Comparable] | None:
    moment = moment_text(value, is_local=False) if isinstance(value, str) else value
    if isinstance(moment, dt.date):
        moment = midnight(moment, is_local=False)
    if not isinstance(moment, Moment):
        return None
    local_us = moment.written_us
    if moment.offset_us is not None and not moment.is_local:
        instant_us = moment.written_us - moment.offset_us
        if session.time_zone is None:
            return _edges_of_instant(period, instant_us)
        local_us = session.local_us(instant_us)[0]
    first, beyond = _truncated(period, local_us, session)
    return _among_values(period.leaf, first, beyond, session)


def _truncated(period: Period, local_us: int, session: Session) -> tuple[_Range, _Range]:
    begin = begin_us(local_us, period.unit)
    end = end_us(begin, period.unit)
    is_begin = begin == local_us
    first = begin if is_begin else end
    loose = (begin - ANY_SHIFT_US, end + ANY_SHIFT_US)
    if session.has_fixed_offset:
        return (first, first), (end, end)
    if period.leaf.data_type != TIMESTAMP:
        # The column becomes an instant first, which clocks may show as another time.
        return (_around(begin), _around(end)) if is_begin else (loose, loose)
    if session.time_zone is None:
        is_plain = is_begin and is_long(period.unit)
    else:
        is_plain = all(session.shows_once(place) for place in (begin, local_us, end))
    return ((first, first), (end, end)) if is_plain else (loose, loose)


def _around(place: int) -> _Range:
    return place - ANY_SHIFT_US, place + ANY_SHIFT_US


def _edges_of_instant(period: Period, instant_us: int) -> tuple[Comparable, Comparable] | None:
    """Return the edges in any time zone: a period begins at most its length before its times."""
    if period.leaf.data_type != TIMESTAMP:
        return None
    length_us = _LONGEST_US.get(period.unit, DAY_US)
    edge = _whole(instant_us - ANY_SHIFT_US, instant_us + length_us + ANY_SHIFT_US)
    return edge, edge


def _among_values(
    leaf: Leaf, first: _Range, beyond: _Range, session: Session
) -> tuple[Comparable, Comparable]:
    """Return edges among local times as edges among the values of a column."""
    return _edge(leaf, first, session), _edge(leaf, beyond, session)


def _edge(leaf: Leaf, place: _Range, session: Session) -> Comparable:
    low, high = place
    if leaf.data_type == DATE:
        # A day is at or behind an edge from the next midnight on.
        days = (pa.scalar(-(-end // DAY_US), pa.int32()).cast(pa.date32()) for end in place)
        return Comparable(pa.date32(), *days)
    if leaf.data_type == LOCAL:
        return _whole(low, high)
    return _whole(session.instants_us(low)[0], session.instants_us(high)[1])


def _whole(low: int, high: int) -> Comparable:
    """Return microseconds from `low` to `high` as a column of times is compared with them."""
    return Comparable(pa.int64(), pa.scalar(low, pa.int64()), pa.scalar(high, pa.int64()))
