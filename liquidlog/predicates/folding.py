"""Values of constant expressions, and conditions on years, months and days as ranges of a column.

Arithmetic has a value only if no session fails, wraps around or rounds. Local times are
microseconds since 1970-01-01 00:00, as clocks show them.
"""

import calendar
import datetime as dt
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final, cast

import pyarrow as pa
from sqlglot import exp

from liquidlog.predicates.literals import (
    DAY_US,
    DIGITS_OF_BITS,
    EPOCH_ORDINAL,
    FLIPPED,
    MOST_DIGITS,
    SECOND_US,
    Comparable,
    Exact,
    Floating,
    Moment,
    SqlValue,
    ValueSpan,
    adjacent_texts,
    as_number,
    between,
    comparables,
    date_text,
    integer,
    midnight,
    midnight_us,
    moment_of,
    moment_text,
    number_text,
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
_DATE_UNITS: Final = {name: unit for name, unit in UNITS.items() if unit in _OF_DATES}
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


# Intervals of SQL, and times moved by intervals as in Spark
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
            return _moved_moment(midnight(value), by, session)
        case dt.date():
            return day_of(_shifted_us(midnight_us(value), by))
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
    found = midnight_us(same) + time_us + by.micros
    day_of(found)
    return found


def _moved_moment(value: Moment, by: Duration, session: Session) -> SqlValue | None:
    if value.is_local:
        return Moment(_shifted_us(value.written_us, by), value.offset_us, is_local=True)
    days = abs(by.micros) // DAY_US * (1 if by.micros > 0 else -1)
    in_days = Duration(by.months, days * DAY_US)
    rest_us = by.micros - days * DAY_US
    if session.time_zone is None:
        return _moved_anywhere(value, in_days, rest_us, session)
    starts: tuple[int, ...] = session.instants_us(value.written_us)
    if value.offset_us is not None:
        starts = (value.written_us - value.offset_us,)
    # Days and months are added to local time, hours to the instant.
    ends = [
        end + rest_us
        for start in starts
        for end in session.instants_us(_shifted_us(session.local_us(start)[0], in_days))
    ]
    return spanning(Moment(min(ends), 0), Moment(max(ends), 0))


def _moved_anywhere(value: Moment, by: Duration, rest_us: int, session: Session) -> SqlValue | None:
    if by == Duration():
        return Moment(value.written_us + rest_us, value.offset_us)
    if value.offset_us is None:
        # Where clocks skipped the written time, they showed a later one.
        low = _shifted_us(value.written_us, by) - ANY_SHIFT_US
        high = _shifted_us(value.written_us + ANY_SHIFT_US, by) + ANY_SHIFT_US
        return spanning(Moment(low + rest_us), Moment(high + rest_us))
    start = value.written_us - value.offset_us
    if not by.months:
        end = start + by.micros + rest_us
        return spanning(Moment(end - ANY_SHIFT_US, 0), Moment(end + ANY_SHIFT_US, 0))
    earliest, latest = (_shifted_us(local, by) + rest_us for local in session.local_us(start))
    return spanning(Moment(earliest), Moment(latest))


# Arithmetic on literals
#
# Source: Spark, BinaryArithmetic (operators and their types), DecimalPrecision.

_EXACTLY: Final = Context(prec=4 * MOST_DIGITS)

_OF_DECIMALS: Final[Mapping[type[exp.Expression], Callable[[Decimal, Decimal], Decimal]]] = {
    exp.Add: _EXACTLY.add,
    exp.Sub: _EXACTLY.subtract,
    exp.Mul: _EXACTLY.multiply,
}
_OF_DOUBLES: Final[Mapping[type[exp.Expression], Callable[[Any, Any], Any]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}
COMPARISONS: Final[Mapping[type[exp.Expression], Callable[[Decimal, Decimal], bool]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def calculated(kind: type[exp.Expression], left: SqlValue, right: SqlValue) -> SqlValue | None:
    """Return the value of +, -, *, /, div or %, None if sessions differ."""
    match left, right:
        case Exact(bits=one), Exact(bits=other) if one and other:
            return _of_integers(kind, left, right)
        case Exact(), Exact() if kind in _OF_DECIMALS:
            return _of_decimals(kind, left, right)
        case (Exact() | Floating(), Floating()) | (Floating(), Exact()):
            return _of_doubles(kind, _double(left), _double(right))
        case _:
            return None


def negative(value: SqlValue | None) -> SqlValue | None:
    """Return the negative value, None if it depends on the session."""
    match value:
        case Exact(number, digits, scale, bits):
            # The negative of a type's smallest integer wraps around or is an error.
            ends = number < 0 and any(-number == 1 << (size - 1) for size in DIGITS_OF_BITS)
            return None if ends else Exact(number.copy_negate(), digits, scale, bits)
        case Floating(low, high, is_float):
            return Floating(-high, -low, is_float)
        case _:
            return None


def _of_integers(kind: type[exp.Expression], left: Exact, right: Exact) -> SqlValue | None:
    one, other = int(left.value), int(right.value)
    # Spark parses minus and digits as one literal: the smallest integer is not a long.
    least = Decimal(-1 << 31)
    bits = max(32 if side.value == least else side.bits for side in (left, right))
    if kind in _OF_DECIMALS:
        return integer(int(_OF_DECIMALS[kind](left.value, right.value)), bits)
    if other == 0:
        return None
    if kind is exp.Div:
        return _of_doubles(kind, float(one), float(other))
    quotient = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    if kind is exp.IntDiv:
        return integer(quotient, 64)
    return integer(one - other * quotient, bits) if kind is exp.Mod else None


def _of_decimals(kind: type[exp.Expression], left: Exact, right: Exact) -> Exact | None:
    """Return the exact value, None if Spark's type may round it."""
    if kind is exp.Mul:
        digits, scale = left.digits + right.digits + 1, left.scale + right.scale
    else:
        digits, scale = max(left.digits, right.digits) + 1, max(left.scale, right.scale)
    # Spark parses minus and digits as one literal: the smallest long is not a decimal.
    if any(not one.scale and one.value == -(1 << 63) for one in (left, right)):
        return None
    value = _OF_DECIMALS[kind](left.value, right.value)
    return Exact(value, digits, scale) if digits + scale <= MOST_DIGITS else None


def _of_doubles(
    kind: type[exp.Expression], left: float | None, right: float | None
) -> Floating | None:
    if left is None or right is None or kind not in _OF_DOUBLES:
        return None
    if kind is exp.Div and right == 0:
        return None
    value = float(_OF_DOUBLES[kind](left, right))
    return Floating(value, value) if math.isfinite(value) else None


def _double(value: SqlValue) -> float | None:
    """Return a number as a double, None for floats, whose conversion depends on a setting."""
    match value:
        case Exact(number):
            return float(number)
        case Floating(low, high, False) if low == high:
            return low
        case _:
            return None


# Constant expressions: arithmetic, casts, dates, times and the time of the query
#
# A value that depends on the session's time zone becomes a span of its values in all zones.

_CLOCK: Final = (exp.CurrentDate, exp.CurrentTimestamp, exp.Localtimestamp)
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_TIMESTAMPS: Final = (
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
)
_ISO_DATE: Final = "%Y-%mstrict-%dstrict"


def constant_value(node: exp.Expression, session: Session) -> SqlValue | None:
    """Return the value of an expression without columns, None if it is not certain."""
    try:
        return _value(node, session)
    except OverflowError:  # beyond the years 1 to 9999
        return None


def asks_for_time(node: exp.Expression) -> bool:
    """Return whether an expression depends on the time of the query."""
    found = node.find_all(*_CLOCK, exp.Anonymous)
    return any(not isinstance(one, exp.Anonymous) or is_now(one) for one in found)


def is_now(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "now" and not node.expressions


def _value(node: exp.Expression, session: Session) -> SqlValue | None:
    match node:
        case exp.Paren():
            return _value(node.this, session)
        case exp.Literal():
            return str(node.this) if node.is_string else number_text(str(node.this))
        case exp.Concat():
            return adjacent_texts(node)
        case exp.Neg():
            return negative(_value(node.this, session))
        case exp.Cast():
            return _cast(_value(node.this, session), node.to, session)
        case exp.CurrentDate() | exp.CurrentTimestamp() | exp.Localtimestamp() | exp.Anonymous():
            return _called(node, session)
        case _ if isinstance(node, _ARITHMETIC):
            return _calculated(node, session)
        case _:
            return _of_time(node, session)


def _called(node: exp.Expression, session: Session) -> SqlValue | None:
    if isinstance(node, exp.Anonymous) and not is_now(node):
        parts = [_whole(_value(part, session)) for part in node.expressions]
        known = [part for part in parts if part is not None]
        is_date = node.name.lower() == "make_date" and len(known) == len(parts) == 3  # noqa: PLR2004
        with suppress(ValueError):
            return dt.date(*known) if is_date else None
        return None
    if session.now_ms is None or (not is_now(node) and node.args.get("this") is not None):
        return None
    now = Moment(1000 * session.now_ms, 0)
    if isinstance(node, exp.CurrentDate):
        return _as_date(now, session)
    return _as_local(now, session) if isinstance(node, exp.Localtimestamp) else now


def _of_time(node: exp.Expression, session: Session) -> SqlValue | None:
    match node:
        case exp.TsOrDsToDate():
            # With a format, some sessions refuse spellings other than yyyy-mm-dd.
            is_iso = node.text("format") == _ISO_DATE and isinstance(node.this, exp.Literal)
            is_plain = node.args.get("format") is None or is_iso
            return _as_date(_value(node.this, session), session) if is_plain else None
        case exp.DateTrunc() if unit := _DATE_UNITS.get(node.text("unit").upper()):
            day = _as_date(_value(node.this, session), session)
            return _ends(day, lambda end: day_of(begin_us(midnight_us(end), unit)))
        case exp.TimestampTrunc() if node.args.get("zone") is None:
            return _truncated(_value(node.this, session), node.text("unit"), session)
        case exp.LastDay():
            day = _as_date(_value(node.this, session), session)
            return _ends(
                day, lambda end: end.replace(day=calendar.monthrange(end.year, end.month)[1])
            )
        case exp.Year() | exp.Month() | exp.Day() | exp.DayOfMonth():
            return _part(node, session)
        case _:
            return _added(node, session)


def _added(node: exp.Expression, session: Session) -> SqlValue | None:
    match node:
        case exp.TsOrDsAdd() if node.text("unit").upper() == "DAY":
            unit = Duration(micros=DAY_US)
        case exp.AddMonths():
            unit = Duration(months=1)
        case _:
            return None
    day, count = (
        _as_date(_value(node.this, session), session),
        _whole(_value(node.expression, session)),
    )
    return None if day is None or count is None else moved(day, unit.times(count), session)


def _calculated(node: exp.Expression, session: Session) -> SqlValue | None:
    interval, sign = duration(node.expression), 1
    if isinstance(node, exp.Add) and interval is None:
        interval, other = duration(node.this), node.expression
    else:
        other, sign = node.this, -1 if isinstance(node, exp.Sub) else 1
    if interval is not None:
        value = _value(other, session) if isinstance(node, exp.Add | exp.Sub) else None
        return None if value is None else moved(value, interval.times(sign), session)
    left, right = _value(node.this, session), _value(node.expression, session)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Add) and _is_date(right):
        left, right = right, left
    if isinstance(node, exp.Add | exp.Sub) and _is_date(left):
        days = _whole(right)
        return None if days is None else moved(left, Duration(0, sign * days * DAY_US), session)
    return calculated(type(node), left, right)


def _whole(value: SqlValue | None, most_bits: int = 32) -> int | None:
    """Return the number of an integer of so many bits at most, None for other values."""
    return int(value.value) if isinstance(value, Exact) and 0 < value.bits <= most_bits else None


def _is_date(value: SqlValue) -> bool:
    return isinstance(value.low if isinstance(value, ValueSpan) else value, dt.date)


def _cast(value: SqlValue | None, target: exp.DataType, session: Session) -> SqlValue | None:
    kind = target.this
    if kind == exp.DataType.Type.DATE:
        return _as_date(value, session)
    if kind not in (*_TIMESTAMPS, exp.DataType.Type.TIMESTAMPNTZ):
        return as_number(value, target)
    is_local = kind == exp.DataType.Type.TIMESTAMPNTZ
    if isinstance(value, str):
        return moment_text(value, is_local=is_local)
    return _as_local(value, session) if is_local else _ends(value, _as_timestamp)


def _as_date(value: SqlValue | None, session: Session) -> SqlValue | None:
    match value:
        case str():
            moment = moment_text(value, is_local=True)
            # Time and offset of a text are dropped.
            return date_text(value) if moment is None else day_of(moment.written_us)
        case dt.date():
            return value
        case ValueSpan(low, high):
            return spanning(_as_date(low, session), _as_date(high, session))
        case Moment():
            earliest, latest = _shown_us(value, session)
            return spanning(day_of(earliest), day_of(latest))
        case _:
            return None


def _as_local(value: SqlValue | None, session: Session) -> SqlValue | None:
    match value:
        case ValueSpan(low, high):
            return spanning(_as_local(low, session), _as_local(high, session))
        case dt.date():
            return midnight(value, is_local=True)
        case Moment():
            earliest, latest = (
                Moment(end, None, is_local=True) for end in _shown_us(value, session)
            )
            return spanning(earliest, latest)
        case _:
            return None


def _as_timestamp(value: SqlValue) -> SqlValue | None:
    if isinstance(value, Moment):
        return Moment(value.written_us) if value.is_local else value
    return midnight(value) if isinstance(value, dt.date) else None


def _shown_us(value: Moment, session: Session) -> tuple[int, int]:
    if value.is_local:
        return value.written_us, value.written_us
    if value.offset_us is not None:
        return session.local_us(value.written_us - value.offset_us)
    if session.time_zone is None:
        # Where clocks skipped the written time, they showed a later one.
        return value.written_us, value.written_us + ANY_SHIFT_US
    shown = [session.local_us(end) for end in session.instants_us(value.written_us)]
    return min(low for low, _ in shown), max(high for _, high in shown)


def _truncated(value: SqlValue | None, name: str, session: Session) -> SqlValue | None:
    unit = UNITS.get(name.upper())
    if isinstance(value, str):
        value = moment_text(value, is_local=False)
    if unit is None:
        return None
    match _as_local(value, session):
        case Moment() as local:
            return Moment(begin_us(local.written_us, unit))
        case ValueSpan(Moment() as low, Moment() as high):
            starts = (begin_us(end.written_us, unit) for end in (low, high))
            return spanning(*map(Moment, starts))
        case _:
            return None


def _ends(value: SqlValue | None, of: Callable[[Any], SqlValue | None]) -> SqlValue | None:
    if isinstance(value, ValueSpan):
        return spanning(of(value.low), of(value.high))
    return None if value is None else of(value)


def _part(node: exp.Expression, session: Session) -> SqlValue | None:
    value = _as_date(_value(node.this, session), session)
    low, high = (value.low, value.high) if isinstance(value, ValueSpan) else (value, value)
    if not isinstance(low, dt.date) or not isinstance(high, dt.date):
        return None
    if isinstance(node, exp.Year):
        return spanning(integer(low.year, 32), integer(high.year, 32))
    part = low.month if isinstance(node, exp.Month) else low.day
    return integer(part, 32) if low == high else None


# Functions with one value for all times of a period, like year(t), as ranges of their column
#
# `year(t) = 2024` is true from the start of 2024 to the start of 2025. If clocks of a time zone may
# show such a time twice or skip it, the edge is a range with all possible points.
#
# Source: Spark, DateTimeUtils (truncDate, truncTimestamp), Cast.

DATE: Final = PrimitiveType("date")
INTEGER: Final = PrimitiveType("integer")
TIMESTAMP: Final = PrimitiveType("timestamp")
LOCAL: Final = PrimitiveType("timestamp_ntz")
_TIMES: Final = (DATE, TIMESTAMP, LOCAL)

_LONGEST_US: Final[Mapping[str, int]] = {
    "year": 366 * DAY_US,
    "quarter": 92 * DAY_US,
    "month": 31 * DAY_US,
    "week": 7 * DAY_US,
}


@dataclass(frozen=True, slots=True)
class Period:
    """A function of a column that is constant in each `unit`."""

    leaf: Leaf
    unit: str
    gives: DataType


@dataclass(frozen=True, slots=True)
class Edges:
    """The values of a column begin at `first` to have a period, and at `beyond` a later one."""

    first: Comparable
    beyond: Comparable


_Range = tuple[int, int]
"""The earliest and the latest possible edge, in microseconds."""


def period_of(
    node: exp.Expression, leaf_of: Callable[[exp.Expression], Leaf | None]
) -> Period | None:
    match node:
        case exp.Paren():
            return period_of(node.this, leaf_of)
        case exp.Add():
            return _year_and_month(node, leaf_of)
        case exp.Year() | exp.Extract() | exp.Anonymous():
            leaf = _time(_argument("YEAR", node), leaf_of)
            return None if leaf is None else Period(leaf, "year", INTEGER)
        case exp.TsOrDsToDate() | exp.Cast():
            leaf = _time(node, leaf_of)
            return None if leaf is None else Period(leaf, "day", DATE)
        case exp.DateTrunc():
            leaf, unit = _time(node.this, leaf_of), _DATE_UNITS.get(node.text("unit").upper())
            return None if leaf is None or unit is None else Period(leaf, unit, DATE)
        case exp.TimestampTrunc() if node.args.get("zone") is None:
            leaf, unit = leaf_of(node.this.unnest()), UNITS.get(node.text("unit").upper())
            is_time = leaf is not None and leaf.data_type in _TIMES
            return Period(leaf, unit, TIMESTAMP) if leaf and is_time and unit else None
        case _:
            return None


def _argument(unit: str, node: exp.Expression) -> exp.Expression | None:
    """Return the date in an expression for its YEAR or MONTH."""
    match node:
        case exp.Year() | exp.Month() if node.key.upper() == unit:
            return cast("exp.Expression", node.this)
        case exp.Extract() if node.name.upper() == unit:
            return cast("exp.Expression", node.expression)
        case exp.Anonymous() if node.name.lower() == "date_part" and len(node.expressions) == 2:  # noqa: PLR2004
            name, of = node.expressions
            return of if isinstance(name, exp.Literal) and name.name.upper() == unit else None
        case _:
            return None


def _time(
    node: exp.Expression | None, leaf_of: Callable[[exp.Expression], Leaf | None]
) -> Leaf | None:
    """Return the column in an expression that is a column of dates or times, or its date."""
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
    return Period(leaf, "month", INTEGER) if leaf and is_same else None


def edges(period: Period, value: SqlValue, session: Session) -> Edges | None:
    """Return the edges of the values with the period `value`, None if they depend on more."""
    low, high = (value.low, value.high) if isinstance(value, ValueSpan) else (value, value)
    try:
        starts, ends = _edges(period, low, session), _edges(period, high, session)
    except (OverflowError, ValueError):  # beyond the years 1 to 9999
        return None
    if starts is None or ends is None:
        return None
    pairs = zip(starts, ends, strict=True)
    return Edges(*(Comparable(one.arrow_type, one.low, other.high) for one, other in pairs))


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
    if period.unit == "year":
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
    moment = moment_of(value, is_local=False)
    if moment is None:
        return None
    local_us = moment.written_us
    if moment.offset_us is not None and not moment.is_local:
        instant_us = moment.written_us - moment.offset_us
        if session.time_zone is None:
            # In any time zone, a period begins at most its length before its times.
            length_us = _LONGEST_US.get(period.unit, DAY_US)
            edge = between(instant_us - ANY_SHIFT_US, instant_us + length_us + ANY_SHIFT_US)
            return (edge, edge) if period.leaf.data_type == TIMESTAMP else None
        local_us = session.local_us(instant_us)[0]
    first, beyond = _edges_of_local(period, local_us, session)
    return _edge(period.leaf, first, session), _edge(period.leaf, beyond, session)


def _edges_of_local(period: Period, local_us: int, session: Session) -> tuple[_Range, _Range]:
    begin = begin_us(local_us, period.unit)
    end = _end_us(begin, period.unit)
    is_begin = begin == local_us
    first = begin if is_begin else end
    loose = (begin - ANY_SHIFT_US, end + ANY_SHIFT_US)
    zone = session.time_zone
    if zone is not None and zone.utcoffset(None) is not None:  # it has only one offset
        return (first, first), (end, end)
    if period.leaf.data_type != TIMESTAMP:
        # The column becomes an instant first, for which clocks may show another time.
        low, high = ((place - ANY_SHIFT_US, place + ANY_SHIFT_US) for place in (begin, end))
        return (low, high) if is_begin else (loose, loose)
    if session.time_zone is None:
        is_plain = is_begin and period.unit in _OF_DATES
    else:
        is_plain = all(session.shows_once(place) for place in (begin, local_us, end))
    return ((first, first), (end, end)) if is_plain else (loose, loose)


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
# If one conjunct fixes the year, a conjunct on the month can become one on the date: in other
# years the conjunction is false in both forms.

_DAYS: Final = (exp.Day, exp.DayOfMonth)
_ON_PARTS: Final = (*FLIPPED, exp.Between, exp.In)
ValueOf = Callable[[exp.Expression], SqlValue | None]


def with_dates(parts: Sequence[exp.Expression], value_of: ValueOf) -> list[exp.Expression]:
    """Return the parts of a conjunction, with months and days of known years as dates."""
    years = _fixed(parts, "YEAR", value_of)
    if not years:
        return list(parts)
    months = {
        of: (years[of], month)
        for of, month in _fixed(parts, "MONTH", value_of).items()
        if of in years
    }

    def dated(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, _ON_PARTS) or node.args.get("query"):
            return node
        subject = node.this.unnest()
        argument = _argument("MONTH", subject)
        year = years.get(_key(argument))
        if argument is not None and year is not None:
            date = exp.TsOrDsToDate(this=argument.copy())
            first = exp.func("trunc", date, exp.Literal.string("MONTH"), dialect="spark")
            return _replaced(node, first, lambda month: (year, month, 1), value_of)
        known = months.get(_key(subject.this)) if isinstance(subject, _DAYS) else None
        if known is None:
            return node
        date = exp.TsOrDsToDate(this=subject.this.copy())
        return _replaced(node, date, lambda day: (*known, day), value_of)

    found = (part.transform(dated) for part in parts)
    return [part for part in found if isinstance(part, exp.Expression)]


def _fixed(parts: Sequence[exp.Expression], unit: str, value_of: ValueOf) -> Mapping[str, int]:
    """Return the value of a date's part in equations, by the SQL of the date."""
    fixed = {}
    for part in parts:
        equation = part.unnest()
        if not isinstance(equation, exp.EQ):
            continue
        sides = (equation.this, equation.expression)
        for one, other in (sides, sides[::-1]):
            argument = _argument(unit, one.unnest())
            number = _whole(value_of(other), 64) if argument is not None else None
            if argument is not None and number is not None:
                fixed[_key(argument)] = number
    return fixed


def _key(argument: exp.Expression | None) -> str:
    while isinstance(argument, exp.Paren | exp.TsOrDsToDate):
        argument = argument.this
    return "" if argument is None else argument.sql("spark").lower()


def _replaced(
    node: exp.Expr,
    subject: exp.Expr,
    date_of: Callable[[int], tuple[int, int, int]],
    value_of: ValueOf,
) -> exp.Expr:
    """Return a condition on a date's month or day as one on the date, if constants allow it."""
    made = node.copy()
    names = ("low", "high") if isinstance(made, exp.Between) else ("expression",)
    places = made.expressions if isinstance(made, exp.In) else [made.args[name] for name in names]
    for constant in list(places):
        number = _whole(value_of(constant), 64)
        try:
            day = None if number is None else dt.date(*date_of(number))
        except (ValueError, OverflowError):
            day = None
        if day is None:
            return node
        constant.replace(exp.cast(exp.Literal.string(day.isoformat()), "date"))
    made.set("this", subject)
    return made
