"""SQL literals as values that compare with the bounds of a column, the way Spark would.

Where Spark would convert the column instead of the literal, or the outcome depends on a setting,
there is no such value: the caller then knows nothing. Timestamps without a zone are UTC.
"""

import datetime as dt
import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType

_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_FLOATS: Final = frozenset({"float", "double"})

# Wide enough for every value of every integer and decimal type, without rounding.
_EXACT: Final = pa.decimal256(76, 38)
_EXACT_DIGITS: Final = 38
_INT64: Final = 1 << 63

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?"
)

_DATE_TYPES: Final = frozenset({exp.DataType.Type.DATE})
_TIMESTAMP_TYPES: Final = frozenset(
    {
        exp.DataType.Type.TIMESTAMP,
        exp.DataType.Type.TIMESTAMPTZ,
        exp.DataType.Type.TIMESTAMPLTZ,
        exp.DataType.Type.TIMESTAMPNTZ,
    }
)
_INTEGER_TYPES: Final = frozenset(
    {
        exp.DataType.Type.TINYINT,
        exp.DataType.Type.SMALLINT,
        exp.DataType.Type.INT,
        exp.DataType.Type.BIGINT,
    }
)

SqlValue = Decimal | str | dt.date | dt.datetime
"""A number, a text, a date or a timestamp (with a zone only if it was written)."""


@dataclass(frozen=True, slots=True)
class Comparable:
    """A value and the Arrow type in which bounds and value are compared."""

    arrow_type: pa.DataType
    scalar: pa.Scalar


def sql_value(node: exp.Expression) -> SqlValue | None:
    """Return the value of a literal, None if `node` is no literal that is understood."""
    match node:
        case exp.Paren():
            return sql_value(node.this)
        case exp.Neg():
            inner = sql_value(node.this)
            return -inner if isinstance(inner, Decimal) else None
        case exp.Literal():
            return str(node.this) if node.is_string else _number(str(node.this))
        case exp.Cast():
            return _cast(sql_value(node.this), node.to.this)
        case _:
            return None


def comparable(value: SqlValue, data_type: DataType) -> Comparable | None:
    """Return `value` as a column of `data_type` compares with it, None where that is unknown."""
    match data_type:
        case DecimalType():
            return _exact(value)
        case PrimitiveType(name) if name in _INTEGERS:
            return _integer(value)
        case PrimitiveType(name) if name in _FLOATS:
            return _float(value)
        case PrimitiveType("string"):
            return Comparable(pa.string(), pa.scalar(value)) if isinstance(value, str) else None
        case PrimitiveType("date"):
            return _date(value)
        case PrimitiveType("timestamp" | "timestamp_ntz" as name):
            return _timestamp(value, zoned=name == "timestamp")
        case _:
            return None


def _cast(value: SqlValue | None, target: Any) -> SqlValue | None:  # noqa: ANN401  sqlglot's enum
    if isinstance(value, str) and target in _DATE_TYPES:
        return _parse_date(value)
    if isinstance(value, str) and target in _TIMESTAMP_TYPES:
        return _parse_timestamp(value)
    if isinstance(value, Decimal) and target in _INTEGER_TYPES and value % 1 == 0:
        return value
    return None


def _number(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def _as_number(value: SqlValue) -> Decimal | None:
    if isinstance(value, Decimal):
        return value
    return _number(value) if isinstance(value, str) else None


def _integer(value: SqlValue) -> Comparable | None:
    number = _as_number(value)
    if number is not None and abs(number) < _INT64 and number % 1 == 0:
        return Comparable(pa.int64(), pa.scalar(int(number), pa.int64()))
    return _exact(value)


def _exact(value: SqlValue) -> Comparable | None:
    number = _as_number(value)
    if number is None or number.adjusted() >= _EXACT_DIGITS:
        return None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_EXACT_DIGITS:
        return None
    return Comparable(_EXACT, pa.scalar(number, _EXACT))


def _float(value: SqlValue) -> Comparable | None:
    number = _as_number(value)
    if number is None or not math.isfinite(float(number)):
        return None
    return Comparable(pa.float64(), pa.scalar(float(number), pa.float64()))


def _date(value: SqlValue) -> Comparable | None:
    parsed = _parse_date(value) if isinstance(value, str) else value
    if not isinstance(parsed, dt.date) or isinstance(parsed, dt.datetime):
        return None
    return Comparable(pa.date32(), pa.scalar(parsed, pa.date32()))


def _timestamp(value: SqlValue, *, zoned: bool) -> Comparable | None:
    parsed = _parse_timestamp(value) if isinstance(value, str) else value
    if isinstance(parsed, dt.date) and not isinstance(parsed, dt.datetime):
        parsed = dt.datetime.combine(parsed, dt.time())
    if not isinstance(parsed, dt.datetime):
        return None
    if not zoned:
        plain = pa.timestamp("us")
        return Comparable(plain, pa.scalar(parsed, plain)) if parsed.tzinfo is None else None
    instant = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=dt.UTC)
    utc = pa.timestamp("us", "UTC")
    return Comparable(utc, pa.scalar(instant.astimezone(dt.UTC), utc))


def _parse_date(text: str) -> dt.date | None:
    if _DATE.fullmatch(text.strip()) is None:
        return None
    try:
        return dt.date.fromisoformat(text.strip())
    except ValueError:
        return None


def _parse_timestamp(text: str) -> dt.datetime | None:
    if _TIMESTAMP.fullmatch(text.strip()) is None:
        return None
    try:
        return dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
