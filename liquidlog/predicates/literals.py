"""SQL literals as values, with the types that Spark gives them.

A literal has no value here if its value or type depends on a setting, or if Spark parses it by
rules of its own; the caller must then treat it as unknown. No arithmetic rounds, and its time does
not grow with an exponent.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

from liquidlog.spec.text import floats_around

MOST_DIGITS: Final = 38
"""The precision of Spark's widest decimal."""

INTEGER_BITS: Final[Mapping[Any, int]] = {
    exp.DataType.Type.TINYINT: 8,
    exp.DataType.Type.SMALLINT: 16,
    exp.DataType.Type.INT: 32,
    exp.DataType.Type.BIGINT: 64,
}
DIGITS_OF_BITS: Final[Mapping[int, int]] = {8: 3, 16: 5, 32: 10, 64: 20}
"""The precision of the decimal that Spark converts an integer type to."""

_INTEGER: Final = re.compile(r"[0-9]+")
_DECIMAL: Final = re.compile(r"[0-9]+\.[0-9]*|\.[0-9]+")
_DOUBLE: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+")
_NUMBER_TEXT: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER_TEXT: Final = re.compile(r"-?[1-9][0-9]*|0")

_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_MOMENT: Final = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[ T](?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?:\.(?P<fraction>\d{1,6}))?"
    r"(?: *(?:(?P<utc>Z|UTC|GMT|UT)|(?P<sign>[+-])(?P<zone_hour>\d{2}):(?P<zone_minute>\d{2})"
    r"|(?P<region>[A-Z][A-Za-z_]*(?:/[A-Z][A-Za-z_-]*){1,2})))?)?",
    re.ASCII,
)
_ALIKE_YEARS: Final = range(1970, 2037)
"""The years in which all editions of the time zone database that readers use agree."""
_MOST_GAPS: Final = 4
EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  a local time
SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
_LARGEST_OFFSET_US: Final = 18 * 3600 * SECOND_US


@dataclass(frozen=True, slots=True)
class Exact:
    """An integer or a decimal; its type has `digits` before and `scale` digits after the point.

    `bits` is the width of an integer type, 0 for decimals.
    """

    value: Decimal
    digits: int
    scale: int
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Floating:
    """A double, or a float that lies between `low` and `high`."""

    low: float
    high: float
    is_float: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A date and time: microseconds since 1970 of the written time, and the written offset.

    `is_local` says whether its type is TIMESTAMP_NTZ. The offset is None if none was written.
    """

    written_us: int
    offset_us: int | None
    is_local: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A value from `low` to `high`, both of one type: which one depends on the session."""

    low: "Exact | Floating | Moment | dt.date | str"
    high: "Exact | Floating | Moment | dt.date | str"


SqlValue = Exact | Floating | Moment | str | dt.date | Span


def sql_value(node: exp.Expression) -> SqlValue | None:
    """Return the value of a literal, None if `node` is not a literal that is understood."""
    match node:
        case exp.Paren():
            return sql_value(node.this)
        case exp.Neg():
            return _negated(sql_value(node.this))
        case exp.Literal():
            return str(node.this) if node.is_string else _number(str(node.this))
        case exp.Cast():
            return cast_value(sql_value(node.this), node.to)
        case exp.Concat():
            return _adjacent(node)
        case _:
            return None


def integer_text(text: str) -> int | None:
    """Return the integer that a text spells in Spark's own form, None for any other text."""
    if _INTEGER_TEXT.fullmatch(text) is None or len(text) > MOST_DIGITS:
        return None
    return int(text)


def number_text(text: str) -> Floating | None:
    """Return the double that a text spells, None if it is no number or out of range."""
    return _double(text) if _NUMBER_TEXT.fullmatch(text) else None


def date_text(text: str) -> dt.date | None:
    """Return the day that a text spells as YYYY-MM-DD, None for any other text."""
    found = _DATE.fullmatch(text)
    try:
        return None if found is None else dt.date(*(int(part) for part in found.groups()))
    except ValueError:
        return None


def moment_text(text: str, *, is_local: bool) -> Moment | None:
    """Return the moment that a text spells with seconds, or the midnight of a day; else None."""
    found = _MOMENT.fullmatch(text)
    day = date_text(found["day"]) if found else None
    if found is None or day is None:
        return None
    if found["hour"] is None:
        return midnight(day, is_local=is_local)
    hour, minute, second = (int(found[part]) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004  as clocks go
        return None
    seconds = 3600 * hour + 60 * minute + second
    micros = int((found["fraction"] or "").ljust(6, "0"))
    written_us = midnight_us(day) + SECOND_US * seconds + micros
    if found["region"] is not None:
        return _in_region(written_us, found["region"], is_local=is_local)
    offset_us = _offset_us(found)
    if offset_us is not None and abs(offset_us) > _LARGEST_OFFSET_US:
        return None
    return Moment(written_us, offset_us, is_local)


def midnight(day: dt.date, *, is_local: bool) -> Moment:
    """Return the moment when a day begins."""
    return Moment(midnight_us(day), None, is_local)


def midnight_us(day: dt.date) -> int:
    """Return the local time (microseconds since 1970) when a day begins."""
    return (day.toordinal() - EPOCH_ORDINAL) * DAY_US


def _offset_us(found: re.Match[str]) -> int | None:
    if found["sign"] is None:
        return None if found["utc"] is None else 0
    minutes = 60 * int(found["zone_hour"]) + int(found["zone_minute"])
    return (-1 if found["sign"] == "-" else 1) * 60 * SECOND_US * minutes


def _in_region(written_us: int, region: str, *, is_local: bool) -> Moment | None:
    """Return the moment that clocks of a region showed, the first of two; None if not known."""
    written = _EPOCH + dt.timedelta(microseconds=written_us)
    try:
        # Of a time that clocks left out, both Spark and this take the offset before.
        offset = written.replace(tzinfo=ZoneInfo(region)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    if offset is None or written.year not in _ALIKE_YEARS:
        return None
    return Moment(written_us, offset // dt.timedelta(microseconds=1), is_local)


def _adjacent(node: exp.Concat) -> SqlValue | None:
    """Return the value of texts written side by side, as `'it''s'`.

    Spark 4 reads two quotes without a space between them as one quote, earlier ones as nothing.
    """
    texts = [str(part.this) for part in node.expressions if part.is_string]
    if node.args.get("safe") or len(texts) < len(node.expressions) or len(texts) - 1 > _MOST_GAPS:
        return None
    joined = [texts[0]]
    for text in texts[1:]:
        joined = [begun + gap + text for begun in joined for gap in ("", "'")]
    # Python orders texts by code points, which is the order of their UTF-8.
    return Span(min(joined), max(joined))


def _number(text: str) -> SqlValue | None:
    if len(text) > 2 * MOST_DIGITS:
        return None
    if _INTEGER.fullmatch(text):
        value = int(text)
        bits = 32 if value < 1 << 31 else 64
        digits = max(len(str(value)), DIGITS_OF_BITS[bits])
        is_integer = value < 1 << 63
        exact = Exact(Decimal(value), digits, 0, bits if is_integer else 0)
        return exact if digits <= MOST_DIGITS else None
    if _DECIMAL.fullmatch(text):
        whole, _, fraction = text.partition(".")
        digits = len(whole.lstrip("0"))
        fits = digits + len(fraction) <= MOST_DIGITS
        return Exact(Decimal(text), digits, len(fraction)) if fits else None
    return _double(text) if _DOUBLE.fullmatch(text) else None


def _double(text: str) -> Floating | None:
    value = float(text)
    return Floating(value, value) if math.isfinite(value) else None


def _negated(value: SqlValue | None) -> SqlValue | None:
    match value:
        # Negating the smallest integer wraps around or is an error.
        case Exact(number, digits, scale, bits) if number >= 0:
            return Exact(number.copy_negate(), digits, scale, bits)
        case Floating(low, high, is_float):
            return Floating(-high, -low, is_float)
        case _:
            return None


def cast_value(value: SqlValue | None, target: exp.DataType) -> SqlValue | None:
    """Return the value of a cast, None if it is not the same in every session."""
    if target.this in INTEGER_BITS:
        return _as_integer(value, INTEGER_BITS[target.this])
    if target.this == exp.DataType.Type.DECIMAL:
        return _as_decimal(value, target)
    convert = _CASTS.get(target.this)
    return None if value is None or convert is None else convert(value)


def _as_integer(value: SqlValue | None, bits: int) -> Exact | None:
    if isinstance(value, str) and (whole_text := integer_text(value)) is not None:
        value = Exact(Decimal(whole_text), MOST_DIGITS, 0)
    if not isinstance(value, Exact) or value.value != int(value.value):
        return None
    whole = int(value.value)
    fits = -(1 << (bits - 1)) <= whole < 1 << (bits - 1)
    return Exact(Decimal(whole), DIGITS_OF_BITS[bits], 0, bits) if fits else None


def _as_decimal(value: SqlValue | None, target: exp.DataType) -> Exact | None:
    """Return the value of a cast to a decimal, None if the cast would change it."""
    names = [parameter.name for parameter in target.expressions]
    if len(names) != 2 or not all(_INTEGER.fullmatch(name) for name in names):  # noqa: PLR2004
        return None
    precision, scale = (int(name) for name in names)
    if not 0 <= scale <= precision <= MOST_DIGITS:
        return None
    exact = _number(value) if isinstance(value, str) else value
    if not isinstance(exact, Exact) or exact.scale > scale:
        return None
    fits = exact.value.is_zero() or exact.value.adjusted() < precision - scale
    return Exact(exact.value, precision - scale, scale) if fits else None


def _as_double(value: SqlValue) -> Floating | None:
    match value:
        case Exact(number):
            return Floating(float(number), float(number))
        case Floating():
            return value
        case str():
            return number_text(value)
        case _:
            return None


def _as_float(value: SqlValue) -> Floating | None:
    double = _as_double(value)
    if double is None:
        return None
    return Floating(*floats_around(double.low, double.high), is_float=True)


def _as_date(value: SqlValue) -> dt.date | None:
    return date_text(value) if isinstance(value, str) else None


def _as_timestamp(value: SqlValue) -> Moment | None:
    return moment_text(value, is_local=False) if isinstance(value, str) else None


def _as_local_timestamp(value: SqlValue) -> Moment | None:
    return moment_text(value, is_local=True) if isinstance(value, str) else None


_CASTS: Final[Mapping[Any, Callable[[SqlValue], SqlValue | None]]] = {
    exp.DataType.Type.DOUBLE: _as_double,
    exp.DataType.Type.FLOAT: _as_float,
    exp.DataType.Type.DATE: _as_date,
    # Spark's TIMESTAMP has a time zone; these are sqlglot's names of it.
    exp.DataType.Type.TIMESTAMP: _as_timestamp,
    exp.DataType.Type.TIMESTAMPTZ: _as_timestamp,
    exp.DataType.Type.TIMESTAMPLTZ: _as_timestamp,
    exp.DataType.Type.TIMESTAMPNTZ: _as_local_timestamp,
}
