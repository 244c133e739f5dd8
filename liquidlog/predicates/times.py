"""Durations, and years, months and days of a column as ranges of its values.

Local times are microseconds since 1970-01-01 00:00, as clocks show them.
"""

import calendar
import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa
from sqlglot import exp

from liquidlog.predicates.literals import (
    DAY_US,
    EPOCH_ORDINAL,
    FLIPPED,
    SECOND_US,
    Comparable,
    Exact,
    Moment,
    SqlValue,
    ValueSpan,
    between,
    comparables,
    midnight,
    midnight_us,
    moment_text,
)
from liquidlog.predicates.workload import ANY_SHIFT_US, Session
from liquidlog.spec.schema import DataType, Leaf, PrimitiveType

UNITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
}

_OF_DATES: Final = ("year", "quarter", "month", "week")

_SIZES_US: Final[Mapping[str, int]] = {
    "week": 7 * DAY_US,
    "day": DAY_US,
    "hour": 3600 * SECOND_US,
    "minute": 60 * SECOND_US,
    "second": SECOND_US,
    "millisecond": 1000,
    "microsecond": 1,
}
_MONTHS: Final[Mapping[str, int]] = {"year": 12, "quarter": 3, "month": 1}


def unit_of_dates(name: str) -> str | None:
    """Return the unit of this name in `trunc`, or None."""
    unit = UNITS.get(name.upper())
    return unit if unit in _OF_DATES else None


def is_long(unit: str) -> bool:
    """Return whether a unit is longer than a day."""
    return unit in _OF_DATES


def begin_us(local_us: int, unit: str) -> int:
    """Return the start of the unit that a local time is in."""
    day = day_of(local_us)
    match unit:
        case "year" | "quarter" | "month":
            months = _MONTHS[unit]
            first = (day.month - 1) // months * months + 1
            return midnight_us(dt.date(day.year, first, 1))
        case "week":
            return midnight_us(day) - day.weekday() * DAY_US
        case _:
            return local_us - local_us % _SIZES_US[unit]


def _end_us(begin: int, unit: str) -> int:
    months = _MONTHS.get(unit, 0)
    return _shifted_us(begin, Duration(months, 0 if months else _SIZES_US[unit]))


# Intervals of SQL, and times moved by them as in Spark
#
# Source: Spark, DateTimeUtils (timestampAddMonths, timestampAddDayTime), LocalDate.plusMonths,
# IntervalUtils (fromYearMonthString).

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}")
_YEARS_AND_MONTHS: Final = re.compile(r"([+-]?)([0-9]{1,9})-0?([0-9]|10|11)")


@dataclass(frozen=True, slots=True)
class Duration:
    """An interval of months or microseconds; `has_time`: it has units below days."""

    months: int = 0
    micros: int = 0
    has_time: bool = False

    def times(self, count: int) -> "Duration":
        """Return the interval multiplied by `count`."""
        return Duration(count * self.months, count * self.micros, self.has_time)

    def __add__(self, other: "Duration") -> "Duration | None":
        months, micros = self.months + other.months, self.micros + other.micros
        is_mixed = (self.months or other.months) and (self.micros or other.micros)
        return None if is_mixed else Duration(months, micros, self.has_time or other.has_time)


def duration(node: exp.Expression) -> Duration | None:
    """Return the interval of a literal in whole units, None for other expressions."""
    match node:
        case exp.Paren():
            return duration(node.this)
        case exp.Neg():
            inner = duration(node.this)
            return None if inner is None else inner.times(-1)
        case exp.Add():
            left, right = duration(node.this), duration(node.expression)
            return None if left is None or right is None else left + right
        case exp.Interval():
            return _spelled(node)
        case _:
            return None


def _spelled(node: exp.Interval) -> Duration | None:
    number, sign = node.this, 1
    while isinstance(number, exp.Neg):
        number, sign = number.this, -sign
    text = str(number.this).strip() if isinstance(number, exp.Literal) else ""
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        names = unit.text("this").upper(), unit.text("expression").upper()
        found = _YEARS_AND_MONTHS.fullmatch(text) if names == ("YEAR", "MONTH") else None
        if found is None:
            return None
        minus, years, months = found.groups()
        return Duration(12 * int(years) + int(months)).times(-sign if minus == "-" else sign)
    if not isinstance(unit, exp.Var) or _WHOLE.fullmatch(text) is None:
        return None
    name = unit.name.lower().removesuffix("s")
    if name in ("month", "year"):
        return Duration(months=_MONTHS[name]).times(sign * int(text))
    if name not in _SIZES_US:
        return None
    has_time = name not in ("week", "day")
    return Duration(0, _SIZES_US[name], has_time).times(sign * int(text))


def moved(value: SqlValue, by: Duration, session: Session) -> SqlValue | None:
    """Return a date or time moved by an interval, None for other values."""
    match value:
        case ValueSpan(low, high):
            return spanning(moved(low, by, session), moved(high, by, session))
        case Moment():
            return _moved_moment(value, by, session)
        case dt.date() if by.has_time:
            return _moved_moment(midnight(value, is_local=False), by, session)
        case dt.date():
            return day_of(_shifted_us(midnight(value, is_local=True).written_us, by))
        case _:
            return None


def spanning(low: SqlValue | None, high: SqlValue | None) -> SqlValue | None:
    """Return the span from the lower end of `low` to the upper end of `high`."""
    start = low.low if isinstance(low, ValueSpan) else low
    end = high.high if isinstance(high, ValueSpan) else high
    if start is None or end is None or isinstance(start, str) or isinstance(end, str):
        return None
    return start if start == end else ValueSpan(start, end)


def day_of(local_us: int) -> dt.date:
    """Return the day of a local time."""
    try:
        return dt.date.fromordinal(local_us // DAY_US + EPOCH_ORDINAL)
    except ValueError as error:
        raise OverflowError(str(error)) from error


def _shifted_us(local_us: int, by: Duration) -> int:
    day, time_us = day_of(local_us), local_us % DAY_US
    month = day.year * 12 + day.month - 1 + by.months
    year, number = month // 12, month % 12 + 1
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        raise OverflowError(year)
    last = calendar.monthrange(year, number)[1]
    same = dt.date(year, number, min(day.day, last))
    found = (same.toordinal() - EPOCH_ORDINAL) * DAY_US + time_us + by.micros
    day_of(found)
    return found


def instant(instant_us: int) -> Moment:
    """Return an instant as a timestamp with offset."""
    return Moment(instant_us, 0, is_local=False)


def _moved_moment(value: Moment, by: Duration, session: Session) -> SqlValue | None:
    if value.is_local:
        return Moment(_shifted_us(value.written_us, by), value.offset_us, is_local=True)
    days = abs(by.micros) // DAY_US * (1 if by.micros > 0 else -1)
    in_days = Duration(by.months, days * DAY_US)
    rest_us = by.micros - days * DAY_US
    if session.time_zone is None:
        return _moved_anywhere(value, in_days, rest_us, session)
    starts = (
        session.instants_us(value.written_us)
        if value.offset_us is None
        else (value.written_us - value.offset_us,)
    )
    # Days and months are added to local time, hours to the instant.
    ends = [
        end + rest_us
        for start in starts
        for end in session.instants_us(_shifted_us(session.local_us(start)[0], in_days))
    ]
    return spanning(instant(min(ends)), instant(max(ends)))


def _moved_anywhere(value: Moment, by: Duration, rest_us: int, session: Session) -> SqlValue | None:
    if by == Duration():
        return Moment(value.written_us + rest_us, value.offset_us, is_local=False)
    if value.offset_us is None:
        # Where clocks skipped the written time, they showed a later one.
        low = _shifted_us(value.written_us, by) - ANY_SHIFT_US
        high = _shifted_us(value.written_us + ANY_SHIFT_US, by) + ANY_SHIFT_US
        return spanning(_written(low + rest_us), _written(high + rest_us))
    start = value.written_us - value.offset_us
    if not by.months:
        end = start + by.micros + rest_us
        return spanning(instant(end - ANY_SHIFT_US), instant(end + ANY_SHIFT_US))
    earliest, latest = (_shifted_us(local, by) + rest_us for local in session.local_us(start))
    return spanning(_written(earliest), _written(latest))


def _written(local_us: int) -> Moment:
    return Moment(local_us, None, is_local=False)


# Functions with one value for all times of a period, like year(t), as ranges of their column
#
# `year(t) = 2024` holds from the start of 2024 to the start of 2025. Where a time zone may show or
# skip such a time twice, the edge is a range with all possible points.
#
# Source: Spark, DateTimeUtils (truncDate, truncTimestamp), Cast.

DATE: Final = PrimitiveType("date")
INTEGER: Final = PrimitiveType("integer")
TIMESTAMP: Final = PrimitiveType("timestamp")
LOCAL: Final = PrimitiveType("timestamp_ntz")
_TIMES: Final = (DATE, TIMESTAMP, LOCAL)

_YEAR: Final = "year"
_YEAR_AND_MONTH: Final = "year * 100 + month"
_LONGEST_US: Final[Mapping[str, int]] = {
    "year": 366 * DAY_US,
    "quarter": 92 * DAY_US,
    "month": 31 * DAY_US,
    "week": 7 * DAY_US,
}


@dataclass(frozen=True, slots=True)
class Period:
    """A function of a column that is constant in each `unit`; `number` tells how it counts."""

    leaf: Leaf
    unit: str
    gives: DataType
    number: str | None = None


@dataclass(frozen=True, slots=True)
class Edges:
    """Where the values begin whose period is at least (`first`), or later than, a constant."""

    first: Comparable
    beyond: Comparable


_Range = tuple[int, int]
"""The earliest and latest place of an edge, in microseconds."""


def period_of(
    node: exp.Expression, leaf_of: Callable[[exp.Expression], Leaf | None]
) -> Period | None:
    """Return the period function that an expression is, or None."""
    match node:
        case exp.Paren():
            return period_of(node.this, leaf_of)
        case exp.Add():
            return _year_and_month(node, leaf_of)
        case exp.Year() | exp.Extract() | exp.Anonymous():
            leaf = _time(_year_argument(node), leaf_of)
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


def _year_argument(node: exp.Expression) -> exp.Expression | None:
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
    """Return the period of `year(t) * 100 + month(t)`, with the terms in any order."""
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
    """Return the edges of the values with the period `value`, None if they depend on more."""
    low, high = (value.low, value.high) if isinstance(value, ValueSpan) else (value, value)
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
        end = _end_us(begin, period.unit)
        first, beyond = (begin if day_us == begin else end), end
    elif found[0].arrow_type != pa.int64():
        return None
    else:
        first, beyond = _numbered(period, found[0].low.as_py())
    leaf = period.leaf
    return _edge(leaf, (first, first), session), _edge(leaf, (beyond, beyond), session)


def _numbered(period: Period, number: int) -> tuple[int, int]:
    """Return where a year, or month as `year * 100 + month`, begins and ends."""
    if period.number == _YEAR:
        begin = midnight_us(dt.date(number, 1, 1))
        return begin, _end_us(begin, "year")
    year, month = divmod(number, 100)
    begin = midnight_us(dt.date(year, 1, 1))
    if month < 1:
        return begin, begin
    if month > 12:  # noqa: PLR2004  months of a year
        return _end_us(begin, "year"), _end_us(begin, "year")
    begin = midnight_us(dt.date(year, month, 1))
    return begin, _end_us(begin, "month")


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
    return _edge(period.leaf, first, session), _edge(period.leaf, beyond, session)


def _truncated(period: Period, local_us: int, session: Session) -> tuple[_Range, _Range]:
    begin = begin_us(local_us, period.unit)
    end = _end_us(begin, period.unit)
    is_begin = begin == local_us
    first = begin if is_begin else end
    loose = (begin - ANY_SHIFT_US, end + ANY_SHIFT_US)
    if session.has_fixed_offset:
        return (first, first), (end, end)
    if period.leaf.data_type != TIMESTAMP:
        # The column becomes an instant first, for which clocks may show another time.
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
    edge = between(instant_us - ANY_SHIFT_US, instant_us + length_us + ANY_SHIFT_US)
    return edge, edge


def _edge(leaf: Leaf, place: _Range, session: Session) -> Comparable:
    if leaf.data_type == DATE:
        # A day is on or after an edge from the next midnight on.
        low, high = (-(-end // DAY_US) for end in place)
        return between(low, high, pa.date32())
    if leaf.data_type == LOCAL:
        return between(*place)
    return between(session.instants_us(place[0])[0], session.instants_us(place[1])[1])


# Months and days of a known year, as dates: `year(t) = 2024 AND month(t) >= 3` is a range of t
#
# Where one conjunct fixes the year, a conjunct on the month can become one on the date: in other
# years the conjunction is not true in either form.

_DAYS: Final = (exp.Day, exp.DayOfMonth)

ValueOf = Callable[[exp.Expression], SqlValue | None]


def with_dates(parts: Sequence[exp.Expression], value_of: ValueOf) -> list[exp.Expression]:
    """Return the parts of a conjunction, with months and days of known years as dates."""
    years = _fixed(parts, _year_argument, value_of)
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
    """Return the numbers that equations fix a part of a date to, by the SQL of the date."""
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
            number = _whole_months(value_of(other)) if argument is not None else None
            if argument is not None and number is not None:
                fixed[_key(argument)] = number
    return fixed


def _whole_months(value: SqlValue | None) -> int | None:
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
    if isinstance(node, (*FLIPPED, exp.Between, exp.In)) and not node.args.get("query"):
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
    """Return a condition on a date in place of its month or day, if all constants become dates."""
    made = node.copy()
    names = ("low", "high") if isinstance(made, exp.Between) else ("expression",)
    places = made.expressions if isinstance(made, exp.In) else [made.args[name] for name in names]
    for constant in list(places):
        number = _whole_months(value_of(constant))
        try:
            day = None if number is None else dt.date(*date_of(number))
        except (ValueError, OverflowError):
            day = None
        if day is None:
            return node
        constant.replace(exp.cast(exp.Literal.string(day.isoformat()), "date"))
    made.set("this", subject)
    return made
