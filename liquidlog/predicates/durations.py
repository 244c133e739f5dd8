"""Intervals of SQL, and times moved by them as Spark moves them.

Source: Spark, DateTimeUtils (timestampAddMonths, timestampAddDayTime), LocalDate.plusMonths,
IntervalUtils (fromYearMonthString).
"""

import calendar
import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from liquidlog.predicates.literals import (
    DAY_US,
    EPOCH_ORDINAL,
    SECOND_US,
    Moment,
    Span,
    SqlValue,
    midnight,
)
from liquidlog.predicates.sessions import ANY_SHIFT_US, Session

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}")
_YEARS_AND_MONTHS: Final = re.compile(r"([+-]?)([0-9]{1,9})-0?([0-9]|10|11)")
_MONTHS: Final[Mapping[str, int]] = {"MONTH": 1, "YEAR": 12}
_MICROS: Final[Mapping[str, int]] = {
    "WEEK": 7 * DAY_US,
    "DAY": DAY_US,
    "HOUR": 3600 * SECOND_US,
    "MINUTE": 60 * SECOND_US,
    "SECOND": SECOND_US,
    "MILLISECOND": 1000,
    "MICROSECOND": 1,
}
_WHOLE_DAYS: Final = ("WEEK", "DAY")


@dataclass(frozen=True, slots=True)
class Duration:
    """An interval of months, or of microseconds; `has_time` says that it has units below days."""

    months: int = 0
    micros: int = 0
    has_time: bool = False

    def __neg__(self) -> "Duration":
        """Return the interval backwards."""
        return Duration(-self.months, -self.micros, self.has_time)

    def __add__(self, other: "Duration") -> "Duration | None":
        """Return the sum, None if it mixes months and days, which Spark refuses."""
        both = Duration(
            self.months + other.months, self.micros + other.micros, self.has_time or other.has_time
        )
        is_mixed = (self.months or other.months) and (self.micros or other.micros)
        return None if is_mixed else both


def duration(node: exp.Expression) -> Duration | None:
    """Return the interval that a literal spells in whole units, None for anything else."""
    match node:
        case exp.Paren():
            return duration(node.this)
        case exp.Neg():
            inner = duration(node.this)
            return None if inner is None else -inner
        case exp.Add():
            left, right = duration(node.this), duration(node.expression)
            return None if left is None or right is None else left + right
        case exp.Interval():
            return _spelled(node)
        case _:
            return None


def _spelled(node: exp.Interval) -> Duration | None:
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        names = unit.text("this").upper(), unit.text("expression").upper()
        return _years_and_months(node.this) if names == ("YEAR", "MONTH") else None
    count = _count(node.this)
    if count is None or not isinstance(unit, exp.Var):
        return None
    name = unit.name.upper().removesuffix("S")
    if name in _MONTHS:
        return Duration(months=count * _MONTHS[name])
    if name not in _MICROS:
        return None
    return Duration(micros=count * _MICROS[name], has_time=name not in _WHOLE_DAYS)


def _years_and_months(node: object) -> Duration | None:
    """Return the interval of a text like '1-2', None for anything else."""
    if isinstance(node, exp.Neg):
        inner = _years_and_months(node.this)
        return None if inner is None else -inner
    if not isinstance(node, exp.Literal):
        return None
    found = _YEARS_AND_MONTHS.fullmatch(str(node.this).strip())
    if found is None:
        return None
    sign, years, months = found.groups()
    count = 12 * int(years) + int(months)
    return Duration(months=-count if sign == "-" else count)


def _count(node: object) -> int | None:
    if isinstance(node, exp.Neg):
        inner = _count(node.this)
        return None if inner is None else -inner
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this).strip()
    return int(text) if _WHOLE.fullmatch(text) else None


def moved(value: SqlValue, by: Duration, session: Session) -> SqlValue | None:
    """Return a date or a time moved by an interval, None for any other value."""
    match value:
        case Span(low, high):
            return spanning(moved(low, by, session), moved(high, by, session))
        case Moment():
            return _moved_moment(value, by, session)
        case dt.date() if by.has_time:
            return _moved_moment(midnight(value, is_local=False), by, session)
        case dt.date():
            return day_of(shifted_us(midnight(value, is_local=True).written_us, by))
        case _:
            return None


def spanning(low: SqlValue | None, high: SqlValue | None) -> SqlValue | None:
    """Return the span from the lower end of `low` to the upper end of `high`."""
    start = low.low if isinstance(low, Span) else low
    end = high.high if isinstance(high, Span) else high
    if start is None or end is None or isinstance(start, str) or isinstance(end, str):
        return None
    return start if start == end else Span(start, end)


def day_of(local_us: int) -> dt.date:
    """Return the day of a local time."""
    try:
        return dt.date.fromordinal(local_us // DAY_US + EPOCH_ORDINAL)
    except ValueError as error:
        raise OverflowError(str(error)) from error


def shifted_us(local_us: int, by: Duration) -> int:
    """Return a local time moved by an interval; a day that a month lacks becomes its last."""
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
    """Return an instant as a timestamp with its offset."""
    return Moment(instant_us, 0, is_local=False)


def _moved_moment(value: Moment, by: Duration, session: Session) -> SqlValue | None:
    if value.is_local:
        return Moment(shifted_us(value.written_us, by), value.offset_us, is_local=True)
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
    # Days and months are added to what clocks show, hours to the instant.
    ends = [
        end + rest_us
        for start in starts
        for end in session.instants_us(shifted_us(session.local_us(start)[0], in_days))
    ]
    return spanning(instant(min(ends)), instant(max(ends)))


def _moved_anywhere(value: Moment, by: Duration, rest_us: int, session: Session) -> SqlValue | None:
    if by == Duration():
        return Moment(value.written_us + rest_us, value.offset_us, is_local=False)
    if value.offset_us is None:
        # Where clocks skipped the written time, they showed a later one.
        low = shifted_us(value.written_us, by) - ANY_SHIFT_US
        high = shifted_us(value.written_us + ANY_SHIFT_US, by) + ANY_SHIFT_US
        return spanning(_written(low + rest_us), _written(high + rest_us))
    start = value.written_us - value.offset_us
    if not by.months:
        end = start + by.micros + rest_us
        return spanning(instant(end - ANY_SHIFT_US), instant(end + ANY_SHIFT_US))
    earliest, latest = (shifted_us(local, by) + rest_us for local in session.local_us(start))
    return spanning(_written(earliest), _written(latest))


def _written(local_us: int) -> Moment:
    return Moment(local_us, None, is_local=False)
