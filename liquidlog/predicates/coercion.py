"""How Spark compares a column with literals: the type it converts both to, None if that is unknown.

A literal becomes an interval that contains its value in every session: with ANSI mode on or off,
and in every time zone unless one is given. docs/pruning.md has the table of these rules.

Source: Spark, TypeCoercion, AnsiTypeCoercion, DecimalPrecision.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from liquidlog.predicates.literals import (
    MOST_DIGITS,
    Exact,
    Floating,
    Moment,
    Span,
    SqlValue,
    date_text,
    integer_text,
    midnight,
    moment_text,
    number_text,
)
from liquidlog.predicates.sessions import ANY_OFFSET_US, ANY_SHIFT_US, Session
from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType
from liquidlog.spec.text import floats_around

EXACT: Final = pa.decimal256(76, 38)
"""Holds every value of every integer and decimal type without rounding."""

_BITS: Final[Mapping[str, int]] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DIGITS: Final[Mapping[str, int]] = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_INT64: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Comparable:
    """A value between `low` and `high`, and the Arrow type in which it is compared with bounds."""

    arrow_type: pa.DataType
    low: pa.Scalar
    high: pa.Scalar


def comparables(
    values: Sequence[SqlValue], data_type: DataType, time_zone: dt.tzinfo | None = None
) -> tuple[Comparable, ...] | None:
    """Return the values that Spark compares a column of `data_type` with, None if unknown.

    Several values are those of one list, for which Spark chooses a common type. `time_zone` is the
    session's, None if it can be any.
    """
    if any(isinstance(value, Span) for value in values):
        return _spanning(values, data_type, time_zone)
    match data_type:
        case DecimalType(precision, scale):
            return _with_decimals(values, precision - scale, scale)
        case PrimitiveType(name) if name in _DIGITS:
            return _with_integers(values, name)
        case PrimitiveType("timestamp"):
            # Spark compares them as instants, or as texts that differ for different instants.
            return _all(_instant(value, time_zone) for value in values)
        case PrimitiveType("date"):
            return _all(map(_day, values))
        case PrimitiveType(name) if name in _CONVERTERS:
            return _each(values, _CONVERTERS[name])
        case _:
            return None


def _spanning(
    values: Sequence[SqlValue], data_type: DataType, time_zone: dt.tzinfo | None
) -> tuple[Comparable, ...] | None:
    starts = [value.low if isinstance(value, Span) else value for value in values]
    ends = [value.high if isinstance(value, Span) else value for value in values]
    lows = comparables(starts, data_type, time_zone)
    highs = comparables(ends, data_type, time_zone)
    if lows is None or highs is None:
        return None
    pairs = tuple(zip(lows, highs, strict=True))
    if any(low.arrow_type != high.arrow_type for low, high in pairs):
        return None
    return tuple(Comparable(low.arrow_type, low.low, high.high) for low, high in pairs)


def _each(
    values: Sequence[SqlValue], convert: Callable[[SqlValue], Comparable | None]
) -> tuple[Comparable, ...] | None:
    """Return the values converted one by one, None if a conversion fails or their kinds differ."""
    return _all(map(convert, values)) if len(set(map(_kind, values))) == 1 else None


def _all(found: Iterable[Comparable | None]) -> tuple[Comparable, ...] | None:
    values = tuple(found)
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def _kind(value: SqlValue) -> tuple[type, bool]:
    match value:
        case Moment(_, _, flag) | Floating(_, _, flag):
            return type(value), flag
        case _:
            return type(value), False


def _with_integers(values: Sequence[SqlValue], name: str) -> tuple[Comparable, ...] | None:
    if not all(isinstance(value, Exact) for value in values):
        return _each(values, lambda value: _beside_integer(value, name))
    exact = [value for value in values if isinstance(value, Exact)]
    if all(not value.scale and abs(value.value) < _INT64 for value in exact):
        return tuple(_whole(int(value.value)) for value in exact)
    return _as_decimals(exact, _DIGITS[name], 0)


def _beside_integer(value: SqlValue, name: str) -> Comparable | None:
    match value:
        # Compared with a float, integers become floats in one mode and doubles in the other.
        case Floating(low, high, False):
            return _double(low, high)
        case str():
            # Any other spelling is an error in one mode and a number or null in the other.
            whole = integer_text(value)
            limit = 1 << (_BITS[name] - 1)
            return _whole(whole) if whole is not None and -limit <= whole < limit else None
        case _:
            return None


def _with_decimals(
    values: Sequence[SqlValue], digits: int, scale: int
) -> tuple[Comparable, ...] | None:
    exact = [value for value in values if isinstance(value, Exact)]
    if len(exact) == len(values):
        return _as_decimals(exact, digits, scale)
    return _each(values, _as_double)


def _as_decimals(values: Sequence[Exact], digits: int, scale: int) -> tuple[Comparable, ...] | None:
    """Return the values as decimals, None if the decimal type that Spark chooses would round."""
    most_digits = max(digits, *(value.digits for value in values))
    most_scale = max(scale, *(value.scale for value in values))
    if most_digits + most_scale > MOST_DIGITS:
        return None
    return tuple(_point(pa.scalar(value.value, EXACT)) for value in values)


def _as_double(value: SqlValue) -> Comparable | None:
    match value:
        case Exact(number):
            return _double(float(number), float(number))
        case Floating(low, high):
            return _double(low, high)
        case str():
            text = number_text(value)
            return None if text is None else _double(text.low, text.high)
        case _:
            return None


def _as_float_or_double(value: SqlValue) -> Comparable | None:
    """Return a value that holds both comparisons of a float column: as floats and as doubles."""
    match value:
        case Exact(number, _, 0):
            return _double(*floats_around(float(number), float(number)))
        case str():
            text = number_text(value)
            return None if text is None else _double(*floats_around(text.low, text.high))
        case _:
            return _as_double(value)


def _text(value: SqlValue) -> Comparable | None:
    return _point(pa.scalar(value, pa.string())) if isinstance(value, str) else None


def _day(value: SqlValue) -> Comparable | None:
    day = date_text(value) if isinstance(value, str) else value
    return _point(pa.scalar(day, pa.date32())) if isinstance(day, dt.date) else None


def _instant(value: SqlValue, time_zone: dt.tzinfo | None) -> Comparable | None:
    moment = _moment(value, is_local=False)
    if moment is None:
        return None
    if moment.offset_us is not None and not moment.is_local:
        return _whole(moment.written_us - moment.offset_us)
    return _between(*Session(time_zone=time_zone).instants_us(moment.written_us))


def _local_instant(value: SqlValue) -> Comparable | None:
    moment = _moment(value, is_local=True)
    if moment is None:
        return None
    if moment.is_local:
        ignored = moment.offset_us is not None and isinstance(value, str)
        return None if ignored else _whole(moment.written_us)
    # The column becomes an instant in the session's time zone.
    if moment.offset_us is None:
        return _around(moment.written_us, ANY_SHIFT_US)
    return _around(moment.written_us - moment.offset_us, ANY_OFFSET_US)


def _moment(value: SqlValue, *, is_local: bool) -> Moment | None:
    match value:
        case Moment():
            return value
        case str():
            return moment_text(value, is_local=is_local)
        case dt.date():
            return midnight(value, is_local=is_local)
        case _:
            return None


def _point(value: pa.Scalar) -> Comparable:
    return Comparable(value.type, value, value)


def _whole(value: int) -> Comparable:
    return _between(value, value)


def _around(value: int, reach: int) -> Comparable:
    return _between(value - reach, value + reach)


def _between(low: int, high: int) -> Comparable:
    return Comparable(pa.int64(), pa.scalar(low, pa.int64()), pa.scalar(high, pa.int64()))


def _double(low: float, high: float) -> Comparable:
    return Comparable(pa.float64(), pa.scalar(low, pa.float64()), pa.scalar(high, pa.float64()))


_CONVERTERS: Final[Mapping[str, Callable[[SqlValue], Comparable | None]]] = {
    "float": _as_float_or_double,
    "double": _as_double,
    "string": _text,
    "timestamp_ntz": _local_instant,
}
