"""Arithmetic on literals, only where no session fails, wraps around or rounds.

Source: Spark, BinaryArithmetic (operators and their types), DecimalPrecision.
"""

import datetime as dt
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, Final

from sqlglot import exp

from liquidlog.predicates.literals import (
    DAY_US,
    DIGITS_OF_BITS,
    MOST_DIGITS,
    Exact,
    Floating,
    Moment,
    SqlValue,
    ValueSpan,
    as_number,
    date_text,
    integer,
    literal_value,
    midnight,
    midnight_us,
    moment_text,
)
from liquidlog.predicates.times import (
    UNITS,
    Duration,
    begin_us,
    day_of,
    duration,
    instant,
    moved,
    spanning,
    unit_of_dates,
)
from liquidlog.predicates.workload import ANY_SHIFT_US, Session

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


_COMPARISONS: Final[Mapping[type[exp.Expression], Callable[[Decimal, Decimal], bool]]] = {
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


def holds(kind: type[exp.Expression], left: Exact, right: Exact) -> bool:
    """Return whether a comparison of two numbers is true."""
    return _COMPARISONS[kind](left.value, right.value)


def negative(value: SqlValue) -> SqlValue | None:
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
    bits = max(_true_bits(left), _true_bits(right))
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


def _true_bits(value: Exact) -> int:
    # Spark parses minus and digits as one literal: the smallest integer is not a long.
    return 32 if value.bits == 64 and value.value == -(1 << 31) else value.bits  # noqa: PLR2004


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


# Constant expressions as values: arithmetic, casts, dates, times and the time of the query
#
# If a value depends on the session's time zone, it becomes a span with its values in all zones.

_NOW: Final = "now"
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
    if any(node.find_all(*_CLOCK)):
        return True
    return any(is_now(found) for found in node.find_all(exp.Anonymous))


def is_now(node: exp.Expr) -> bool:
    """Return whether an expression is `now()`."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == _NOW and not node.expressions


def _value(node: exp.Expression, session: Session) -> SqlValue | None:
    match node:
        case exp.Paren():
            return _value(node.this, session)
        case exp.Literal() | exp.Concat():
            return literal_value(node)
        case exp.Neg():
            inner = _value(node.this, session)
            return None if inner is None else negative(inner)
        case exp.Cast():
            inner = _value(node.this, session)
            return None if inner is None else _cast(inner, node.to, session)
        case exp.CurrentDate() | exp.CurrentTimestamp() | exp.Localtimestamp() | exp.Anonymous():
            return _called(node, session)
        case _ if isinstance(node, _ARITHMETIC):
            return _calculated(node, session)
        case _:
            return _of_time(node, session)


def _called(node: exp.Expression, session: Session) -> SqlValue | None:
    if isinstance(node, exp.Anonymous) and not is_now(node):
        return _made_date(node, session)
    if session.now_us is None or (not is_now(node) and node.args.get("this") is not None):
        return None
    now = instant(session.now_us)
    if isinstance(node, exp.CurrentDate):
        return _as_date(now, session)
    return _as_local(now, session) if isinstance(node, exp.Localtimestamp) else now


def _made_date(node: exp.Anonymous, session: Session) -> dt.date | None:
    if node.name.lower() != "make_date" or len(node.expressions) != 3:  # noqa: PLR2004
        return None
    parts = [_whole(_value(part, session)) for part in node.expressions]
    known = [part for part in parts if part is not None]
    try:
        return dt.date(*known) if len(known) == len(parts) else None
    except ValueError:
        return None


def _of_time(node: exp.Expression, session: Session) -> SqlValue | None:
    match node:
        case exp.TsOrDsToDate():
            # With a format, some sessions refuse spellings other than yyyy-mm-dd.
            is_iso = node.text("format") == _ISO_DATE and isinstance(node.this, exp.Literal)
            is_plain = node.args.get("format") is None or is_iso
            return _date(node.this, session) if is_plain else None
        case exp.DateTrunc():
            unit = unit_of_dates(node.text("unit"))
            day = _date(node.this, session)
            return None if unit is None else _ends(day, lambda end: _begun(end, unit))
        case exp.TimestampTrunc() if node.args.get("zone") is None:
            return _truncated(_value(node.this, session), node.text("unit"), session)
        case exp.LastDay():
            return _ends(_date(node.this, session), _last_day)
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
    day, count = _date(node.this, session), _whole(_value(node.expression, session))
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
    if isinstance(node, exp.Add | exp.Sub) and _is_date(left):
        return _days_later(left, right, sign, session)
    if isinstance(node, exp.Add) and _is_date(right):
        return _days_later(right, left, 1, session)
    return calculated(type(node), left, right)


def _days_later(day: SqlValue, count: SqlValue, sign: int, session: Session) -> SqlValue | None:
    days = _whole(count)
    return None if days is None else moved(day, Duration(micros=sign * days * DAY_US), session)


def _whole(value: SqlValue | None) -> int | None:
    is_int = isinstance(value, Exact) and 0 < value.bits <= 32  # noqa: PLR2004
    return int(value.value) if is_int and isinstance(value, Exact) else None


def _is_date(value: SqlValue) -> bool:
    return isinstance(value.low if isinstance(value, ValueSpan) else value, dt.date)


def _cast(value: SqlValue, target: exp.DataType, session: Session) -> SqlValue | None:
    kind = target.this
    if kind == exp.DataType.Type.DATE:
        return _as_date(value, session)
    if kind not in (*_TIMESTAMPS, exp.DataType.Type.TIMESTAMPNTZ):
        return as_number(value, target)
    is_local = kind == exp.DataType.Type.TIMESTAMPNTZ
    if isinstance(value, str):
        return moment_text(value, is_local=is_local)
    return _as_local(value, session) if is_local else _ends(value, _as_timestamp)


def _date(node: exp.Expression, session: Session) -> SqlValue | None:
    """Return the argument of a date function as a date."""
    value = _value(node, session)
    return None if value is None else _as_date(value, session)


def _as_date(value: SqlValue, session: Session) -> SqlValue | None:
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


def _as_local(value: SqlValue, session: Session) -> SqlValue | None:
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
    match value:
        case Moment(written_us, _, True):
            return Moment(written_us, None, is_local=False)
        case Moment():
            return value
        case dt.date():
            return midnight(value, is_local=False)
        case _:
            return None


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
    if unit is None or value is None:
        return None
    match _as_local(value, session):
        case Moment() as local:
            return Moment(begin_us(local.written_us, unit), None, is_local=False)
        case ValueSpan(Moment() as low, Moment() as high):
            starts = (begin_us(end.written_us, unit) for end in (low, high))
            return spanning(*(Moment(start, None, is_local=False) for start in starts))
        case _:
            return None


def _ends(value: SqlValue | None, of: Callable[[SqlValue], SqlValue | None]) -> SqlValue | None:
    if isinstance(value, ValueSpan):
        return spanning(of(value.low), of(value.high))
    return None if value is None else of(value)


def _begun(day: SqlValue, unit: str) -> SqlValue | None:
    return day_of(begin_us(midnight_us(day), unit)) if isinstance(day, dt.date) else None


def _last_day(day: SqlValue) -> SqlValue | None:
    if not isinstance(day, dt.date):
        return None
    following = (day.replace(day=28) + dt.timedelta(days=4)).replace(day=1)
    return following - dt.timedelta(days=1)


def _part(node: exp.Expression, session: Session) -> SqlValue | None:
    value = _date(node.this, session)
    low, high = (value.low, value.high) if isinstance(value, ValueSpan) else (value, value)
    if not isinstance(low, dt.date) or not isinstance(high, dt.date):
        return None
    if isinstance(node, exp.Year):
        return spanning(integer(low.year, 32), integer(high.year, 32))
    return (
        None if low != high else integer(low.month if isinstance(node, exp.Month) else low.day, 32)
    )
