"""SQL literals as values, with Spark's types.

A literal has no value here if its value or type depends on a setting, or if Spark has special rules
for it. Arithmetic does not round, and its time does not grow with an exponent.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from sqlglot import exp

from liquidlog.errors import UsageError
from liquidlog.predicates.workload import ANY_OFFSET_US, ANY_SHIFT_US, Session
from liquidlog.spec.schema import DataType, DecimalType, Leaf, PrimitiveType, quote_path
from liquidlog.spec.text import floats_around

MOST_DIGITS: Final = 38
"""The precision of Spark's widest decimal."""

INTEGER_BITS: Final[Mapping[Any, int]] = {
    exp.DataType.Type.TINYINT: 8,
    exp.DataType.Type.SMALLINT: 16,
    exp.DataType.Type.INT: 32,
    exp.DataType.Type.BIGINT: 64,
}
BITS: Final[Mapping[str, int]] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
"""The widths of integer types, under sqlglot's names and the table's."""

FLIPPED: Final[Mapping[type[exp.Expr], type[exp.Expression]]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
"""Each comparison, and the same with exchanged sides."""

NEGATED: Final[Mapping[type[exp.Expr], type[exp.Expression]]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
}
"""Each comparison, and the one that is true where it is false."""

DIGITS_OF_BITS: Final[Mapping[int, int]] = {8: 3, 16: 5, 32: 10, 64: 20}
"""The decimal precision to which Spark converts an integer type."""

_INTEGER: Final = re.compile(r"[0-9]+")
_DECIMAL: Final = re.compile(r"[0-9]+\.[0-9]*|\.[0-9]+")
_DOUBLE: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+")
_NUMBER_TEXT: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER_TEXT: Final = re.compile(r"-?[1-9][0-9]*|0")

_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_MOMENT: Final = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[ T](?P<clock>(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)"
    r"(?: *(?:(?P<utc>Z|UTC|GMT|UT)|(?P<offset>[+-]\d{2}:\d{2})"
    r"|(?P<region>[A-Z][A-Za-z_]*(?:/[A-Z][A-Za-z_-]*){1,2})))?)?",
    re.ASCII,
)
_ALIKE_YEARS: Final = range(1970, 2037)
"""Years in which all editions of the time zone database in use agree."""
_MOST_GAPS: Final = 4
EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  a local time
SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_LARGEST_OFFSET: Final = dt.timedelta(hours=18)


@dataclass(frozen=True, slots=True)
class Exact:
    """A decimal with its digits before and after the point, or an integer of so many bits."""

    value: Decimal
    digits: int
    scale: int
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Floating:
    """A double, or a float between `low` and `high`."""

    low: float
    high: float
    is_float: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A date and time in microseconds since 1970 as written; TIMESTAMP_NTZ if `is_local`."""

    written_us: int
    offset_us: int | None = None
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class ValueSpan:
    """A value from `low` to `high`, both of one type; the session decides which."""

    low: "Exact | Floating | Moment | dt.date | str"
    high: "Exact | Floating | Moment | dt.date | str"


SqlValue = Exact | Floating | Moment | str | dt.date | ValueSpan


def _integer_text(text: str) -> int | None:
    is_whole = len(text) <= MOST_DIGITS and _INTEGER_TEXT.fullmatch(text) is not None
    return int(text) if is_whole else None


def date_text(text: str) -> dt.date | None:
    """Return the day of a text YYYY-MM-DD, None for other texts."""
    found = _DATE.fullmatch(text)
    try:
        return None if found is None else dt.date(*(int(part) for part in found.groups()))
    except ValueError:
        return None


def moment_text(text: str, *, is_local: bool) -> Moment | None:
    """Return the moment of a text with seconds, or midnight of a day, or None."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    try:
        written = dt.datetime.fromisoformat(
            f"{found['day']}T{found['clock'] or '00:00'}{found['offset'] or ''}"
        )
    except ValueError:  # no such day or offset
        return None
    written_us = (written.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if found["region"] is not None:
        return _in_region(written_us, found["region"], is_local=is_local)
    offset = written.utcoffset() if found["utc"] is None else dt.timedelta()
    if offset is not None and abs(offset) > _LARGEST_OFFSET:
        return None
    return Moment(written_us, None if offset is None else offset // _MICROSECOND, is_local)


def midnight(day: dt.date, *, is_local: bool = False) -> Moment:
    return Moment(midnight_us(day), None, is_local)


def midnight_us(day: dt.date) -> int:
    """Return the local time (microseconds since 1970) at the start of a day."""
    return (day.toordinal() - EPOCH_ORDINAL) * DAY_US


def _in_region(written_us: int, region: str, *, is_local: bool) -> Moment | None:
    """Return the moment, the first of two, at which a region's clocks showed a time, or None."""
    written = _EPOCH + dt.timedelta(microseconds=written_us)
    try:
        # For times that clocks skipped, both Spark and this take the offset before.
        offset = written.replace(tzinfo=ZoneInfo(region)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    if offset is None or written.year not in _ALIKE_YEARS:
        return None
    return Moment(written_us, offset // _MICROSECOND, is_local)


def adjacent_texts(node: exp.Concat) -> SqlValue | None:
    """Return the value of adjacent texts, such as `'it''s'`."""
    texts = [str(part.this) for part in node.expressions if part.is_string]
    if node.args.get("safe") or len(texts) < len(node.expressions) or len(texts) - 1 > _MOST_GAPS:
        return None
    joined = [texts[0]]
    # Two quotes without a space between them are one quote in Spark 4, nothing before.
    for text in texts[1:]:
        joined = [begun + gap + text for begun in joined for gap in ("", "'")]
    # Python orders texts by code points, which is also the order of UTF-8.
    return ValueSpan(min(joined), max(joined))


def number_text(text: str) -> SqlValue | None:
    """Return the value of a literal without quotes, None if not understood."""
    if len(text) > 2 * MOST_DIGITS:
        return None
    if _INTEGER.fullmatch(text):
        value = int(text)
        bits = 32 if value < 1 << 31 else 64
        digits = max(len(str(value)), DIGITS_OF_BITS[bits])
        exact = Exact(Decimal(value), digits, 0, bits if value < _INT64 else 0)
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


def as_number(value: SqlValue | None, target: exp.DataType) -> SqlValue | None:
    """Return the value of a cast to a number type, None if sessions differ."""
    match target.this:
        case kind if kind in INTEGER_BITS:
            whole = _integer_text(value) if isinstance(value, str) else None
            number = value if whole is None else Exact(Decimal(whole), MOST_DIGITS, 0)
            if not isinstance(number, Exact) or number.value != int(number.value):
                return None
            return integer(int(number.value), INTEGER_BITS[kind])
        case exp.DataType.Type.DECIMAL:
            return _as_decimal(value, target)
        case exp.DataType.Type.DOUBLE:
            return _as_double(value)
        case exp.DataType.Type.FLOAT if (double := _as_double(value)) is not None:
            return Floating(*floats_around(double.low, double.high), is_float=True)
        case _:
            return None


def integer(value: int, bits: int) -> Exact | None:
    """Return an integer of this width in bits, None if it does not fit."""
    fits = -(1 << (bits - 1)) <= value < 1 << (bits - 1)
    return Exact(Decimal(value), DIGITS_OF_BITS[bits], 0, bits) if fits else None


def _as_decimal(value: SqlValue | None, target: exp.DataType) -> Exact | None:
    """Return the value of a cast to a decimal, None if the cast would change it."""
    names = [parameter.name for parameter in target.expressions]
    if len(names) != 2 or not all(_INTEGER.fullmatch(name) for name in names):  # noqa: PLR2004
        return None
    precision, scale = (int(name) for name in names)
    if not 0 <= scale <= precision <= MOST_DIGITS:
        return None
    exact = number_text(value) if isinstance(value, str) else value
    if not isinstance(exact, Exact) or exact.scale > scale:
        return None
    fits = exact.value.is_zero() or exact.value.adjusted() < precision - scale
    return Exact(exact.value, precision - scale, scale) if fits else None


def _as_double(value: SqlValue | None) -> Floating | None:
    match value:
        case Exact(number):
            return Floating(float(number), float(number))
        case Floating():
            return value
        case str():
            return _double(value) if _NUMBER_TEXT.fullmatch(value) else None
        case _:
            return None


# Comparisons of a column with literals, in Spark's common type
#
# A literal becomes an interval with its values in all sessions: with ANSI mode on or off, and in
# every time zone unless one is given. docs/pruning.md has the table of these rules.
#
# Source: Spark, TypeCoercion, AnsiTypeCoercion, DecimalPrecision.

EXACT: Final = pa.decimal256(76, 38)
"""Holds every integer and decimal exactly."""
_INT64: Final = 1 << 63
_INTEGERS: Final = pa.int64()


@dataclass(frozen=True, slots=True)
class Comparable:
    """A value between `low` and `high`, and the Arrow type for its comparison with bounds."""

    arrow_type: pa.DataType
    low: pa.Scalar
    high: pa.Scalar


def comparables(
    values: Sequence[SqlValue], data_type: DataType, time_zone: dt.tzinfo | None = None
) -> tuple[Comparable, ...] | None:
    """Return a list of values as Spark compares them with a column, None if unknown."""
    if any(isinstance(value, ValueSpan) for value in values):
        return _spanning(values, data_type, time_zone)
    match data_type:
        case DecimalType(precision, scale) if all(isinstance(one, Exact) for one in values):
            return _as_decimals(values, precision - scale, scale)
        case PrimitiveType(name) if name in BITS:
            return _with_integers(values, name)
        case PrimitiveType("timestamp"):
            # Spark compares instants, or texts that differ for different instants.
            return _all(_instant(value, time_zone) for value in values)
        case PrimitiveType("date"):
            days = (date_text(one) if isinstance(one, str) else one for one in values)
            return _all(
                between(day, kind=pa.date32()) if isinstance(day, dt.date) else None for day in days
            )
        case DecimalType():
            return _each(values, _among_doubles)
        case PrimitiveType(name) if name in _CONVERTERS:
            return _each(values, _CONVERTERS[name])
        case _:
            return None


def _spanning(
    values: Sequence[SqlValue], data_type: DataType, time_zone: dt.tzinfo | None
) -> tuple[Comparable, ...] | None:
    starts = [value.low if isinstance(value, ValueSpan) else value for value in values]
    ends = [value.high if isinstance(value, ValueSpan) else value for value in values]
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
    """Return the converted values, None if a conversion fails or types differ."""
    kinds = {
        (type(one), getattr(one, "is_float", False), getattr(one, "is_local", False))
        for one in values
    }
    return _all(map(convert, values)) if len(kinds) == 1 else None


def _all(found: Iterable[Comparable | None]) -> tuple[Comparable, ...] | None:
    values = tuple(found)
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def _with_integers(values: Sequence[SqlValue], name: str) -> tuple[Comparable, ...] | None:
    exact = [value for value in values if isinstance(value, Exact)]
    if len(exact) < len(values):
        return _each(values, partial(_beside_integer, bits=BITS[name]))
    if all(not value.scale and abs(value.value) < _INT64 for value in exact):
        return tuple(between(int(value.value)) for value in exact)
    return _as_decimals(exact, DIGITS_OF_BITS[BITS[name]], 0)


def _beside_integer(value: SqlValue, bits: int) -> Comparable | None:
    match value:
        # Compared with a float, integers become floats in one mode, doubles in the other.
        case Floating(low, high, False):
            return between(low, high, pa.float64())
        case str():
            # Other spellings are an error in one mode, a number or null in the other.
            whole = _integer_text(value)
            number = None if whole is None else integer(whole, bits)
            return None if number is None else between(whole)
        case _:
            return None


def _as_decimals(
    values: Sequence[SqlValue], digits: int, scale: int
) -> tuple[Comparable, ...] | None:
    """Return the values as decimals, None if Spark's common type would round."""
    exact = [value for value in values if isinstance(value, Exact)]
    most_digits = max(digits, *(value.digits for value in exact))
    most_scale = max(scale, *(value.scale for value in exact))
    if most_digits + most_scale > MOST_DIGITS:
        return None
    return tuple(between(value.value, kind=EXACT) for value in exact)


def _among_doubles(value: SqlValue, *, is_float: bool = False) -> Comparable | None:
    """Return a number or its text as a double; for a float column, with the floats around it."""
    double = _as_double(value)
    if double is None:
        return None
    low, high = double.low, double.high
    if is_float and (isinstance(value, str) or (isinstance(value, Exact) and not value.scale)):
        low, high = floats_around(low, high)
    return between(low, high, pa.float64())


def _instant(value: SqlValue, time_zone: dt.tzinfo | None) -> Comparable | None:
    moment = moment_of(value, is_local=False)
    if moment is None:
        return None
    if moment.offset_us is not None and not moment.is_local:
        return between(moment.written_us - moment.offset_us)
    return between(*Session(time_zone=time_zone).instants_us(moment.written_us))


def _local_instant(value: SqlValue) -> Comparable | None:
    moment = moment_of(value, is_local=True)
    if moment is None:
        return None
    if moment.is_local:
        ignored = moment.offset_us is not None and isinstance(value, str)
        return None if ignored else between(moment.written_us)
    # The column is converted to an instant in the session's time zone.
    if moment.offset_us is None:
        return between(moment.written_us - ANY_SHIFT_US, moment.written_us + ANY_SHIFT_US)
    instant_us = moment.written_us - moment.offset_us
    return between(instant_us - ANY_OFFSET_US, instant_us + ANY_OFFSET_US)


def moment_of(value: SqlValue, *, is_local: bool) -> Moment | None:
    """Return a moment, that of a text, or midnight of a day; None for other values."""
    match value:
        case Moment():
            return value
        case str():
            return moment_text(value, is_local=is_local)
        case dt.date():
            return midnight(value, is_local=is_local)
        case _:
            return None


def between(low: object, high: object = None, kind: pa.DataType = _INTEGERS) -> Comparable:
    """Return a value from `low` to `high`, or `low`; whole numbers and microseconds are int64."""
    return Comparable(kind, pa.scalar(low, kind), pa.scalar(low if high is None else high, kind))


_CONVERTERS: Final[Mapping[str, Callable[[SqlValue], Comparable | None]]] = {
    "float": partial(_among_doubles, is_float=True),
    "double": _among_doubles,
    "string": lambda text: between(text, kind=pa.string()) if isinstance(text, str) else None,
    "timestamp_ntz": _local_instant,
}


# Constants of a wrong type, which no session can compare with the column
#
# Source: Spark, AnsiTypeCoercion, TypeCoercion; UTF8String (texts as numbers),
# SparkDateTimeUtils.

_NUMBERS: Final = ("byte", "short", "integer", "long", "float", "double")
_NUMBER: Final = re.compile(
    r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?|nan|inf|infinity)\s*", re.IGNORECASE
)
_DAY: Final = re.compile(r"\s*[+-]?\d{4,7}(?:-\d{1,2}(?:-\d{1,2}(?:[ T].*)?)?)?\s*", re.DOTALL)
_TIME: Final = re.compile(r"\s*(?:[+-]?\d|T\d).*", re.DOTALL)
_FULL_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_SPECIAL: Final = ("epoch", "now", "today", "tomorrow", "yesterday")

_OF_LITERALS: Final = {
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMPTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPLTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPNTZ: "timestamp_ntz",
}

_EXPECTED: Final = {
    "number": "a number like 7 or 1.5",
    "date": "a date like DATE '2024-01-31'",
    "timestamp": "a time like TIMESTAMP '2024-01-31 12:00:00'",
    "timestamp_ntz": "a time like TIMESTAMP_NTZ '2024-01-31 12:00:00'",
}


def shown_sql(node: exp.Expression) -> str:
    """Return a condition or constant as errors and reports show it."""
    return node.sql("spark", normalize_functions="lower", comments=False)


def refuse_mismatch(leaf: Leaf, data_type: DataType, value: SqlValue, node: exp.Expression) -> None:
    """Refuse a constant that cannot be compared with a column or function of this type."""
    kind = str(data_type)
    if isinstance(data_type, DecimalType) or kind in _NUMBERS:
        kind = "number"
    if kind not in _EXPECTED or not _is_wrong(kind, value):
        return
    name, found = quote_path(leaf.logical), shown_sql(node)
    subject = name if data_type == leaf.data_type else f"this function of {name}"
    cannot = f"{subject} ({data_type}) cannot be compared with {found}"
    raise UsageError(f"{cannot}: expected {_EXPECTED[kind]}", column=name, literal=found)


def refuse_impossible(condition: exp.Expression) -> None:
    """Refuse impossible literals, such as DATE '2024-13-01'."""
    for cast in condition.find_all(exp.Cast):
        kind = _OF_LITERALS.get(cast.to.this)
        is_text = isinstance(cast.this, exp.Literal) and cast.this.is_string
        if kind is None or not is_text or isinstance(cast, exp.TryCast):
            continue
        if not _can_be(kind, cast.this.name):
            found = shown_sql(cast.this)
            raise UsageError(f"{found} is not {_EXPECTED[kind]}", literal=found)


def _is_wrong(kind: str, value: SqlValue) -> bool:
    if isinstance(value, ValueSpan):
        value = value.low
    match value:
        case str():
            return not _can_be(kind, value)
        case Exact() | Floating():
            return kind != "number"
        case Moment() | dt.date():
            return kind == "number"


def _can_be(kind: str, text: str) -> bool:
    if kind == "number":
        return _NUMBER.fullmatch(text) is not None
    if text.strip().lower() in _SPECIAL:
        return True
    if _FULL_DAY.fullmatch(text):
        return date_text(text) is not None
    return (_DAY if kind == "date" else _TIME).fullmatch(text) is not None
