"""Constants of the wrong type: those that no session compares with a column, or all fail on.

Source: Spark, AnsiTypeCoercion, TypeCoercion; UTF8String (texts as numbers), SparkDateTimeUtils.
"""

import datetime as dt
import re
from typing import Final

from sqlglot import exp

from liquidlog.errors import UsageError
from liquidlog.predicates.literals import Exact, Floating, Moment, Span, SqlValue, date_text
from liquidlog.spec.schema import DataType, DecimalType, Leaf, PrimitiveType, quote_path

_NUMBERS: Final = ("byte", "short", "integer", "long", "float", "double")
_TIMES: Final = ("date", "timestamp", "timestamp_ntz")

_NUMBER: Final = re.compile(
    r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?|nan|inf|infinity)\s*", re.IGNORECASE
)
_DAY: Final = re.compile(r"\s*[+-]?\d{4,7}(?:-\d{1,2}(?:-\d{1,2}(?:[ T].*)?)?)?\s*", re.DOTALL)
_TIME: Final = re.compile(r"\s*(?:[+-]?\d|T\d).*", re.DOTALL)
_FULL_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_SPECIAL: Final = ("epoch", "now", "today", "tomorrow", "yesterday")
"""Texts that older sessions read as times."""

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
    """Refuse a constant that cannot be compared with a column, or a function of it, of a type."""
    kind = _kind(data_type)
    if kind is None or not _is_wrong(kind, value):
        return
    name, found = quote_path(leaf.logical), shown_sql(node)
    subject = name if data_type == leaf.data_type else f"this function of {name}"
    raise UsageError(
        f"{subject} ({data_type}) cannot be compared with {found}: expected {_EXPECTED[kind]}",
        column=name,
        literal=found,
    )


def refuse_impossible(condition: exp.Expression) -> None:
    """Refuse literals like DATE '2024-13-01', which are no value of their own type."""
    for cast in condition.find_all(exp.Cast):
        kind = _OF_LITERALS.get(cast.to.this)
        is_text = isinstance(cast.this, exp.Literal) and cast.this.is_string
        if kind is None or not is_text or isinstance(cast, exp.TryCast):
            continue
        if not _can_be(kind, cast.this.name):
            found = shown_sql(cast.this)
            raise UsageError(f"{found} is not {_EXPECTED[kind]}", literal=found)


def _kind(data_type: DataType) -> str | None:
    match data_type:
        case DecimalType():
            return "number"
        case PrimitiveType(name) if name in _NUMBERS:
            return "number"
        case PrimitiveType(name) if name in _TIMES:
            return name
        case _:
            return None


def _is_wrong(kind: str, value: SqlValue) -> bool:
    if isinstance(value, Span):
        value = value.low
    match value:
        case str():
            return not _can_be(kind, value)
        case Exact() | Floating():
            return kind != "number"
        case Moment() | dt.date():
            return kind == "number"


def _can_be(kind: str, text: str) -> bool:
    """Return whether some session may read a text as a value."""
    if kind == "number":
        return _NUMBER.fullmatch(text) is not None
    if text.strip().lower() in _SPECIAL:
        return True
    if _FULL_DAY.fullmatch(text):
        return date_text(text) is not None
    return (_DAY if kind == "date" else _TIME).fullmatch(text) is not None
