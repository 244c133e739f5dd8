"""Values as Spark prints them, to SQL literals of their column's type.

Spark prints constants of plans without quotes: `2024-01-02`, `1.0`, `a, b`. Only the type of the
column that they are compared with tells what they are.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType

_WHOLE: Final = re.compile(r"-?\d{1,39}")
_DECIMAL: Final = re.compile(r"-?\d{1,38}(?:\.\d{1,38})?(?:E[+-]?\d{1,3})?")
_DOUBLE: Final = re.compile(r"-?\d{1,17}(?:\.\d{1,40})?(?:E-?\d{1,3})?")
_NOT_A_NUMBER: Final = re.compile(r"NaN|-?Infinity")
_DATE: Final = re.compile(r"-?\d{4,6}-\d\d-\d\d")
_TIMESTAMP: Final = re.compile(r"-?(?:\d{4,6}-\d\d-\d\d)[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?Z?")
_BOOLEAN: Final = re.compile(r"true|false")
_BINARY: Final = re.compile(r"0x[0-9A-Fa-f]*")
_PLAIN_DOUBLE: Final = 1e7
"""Whole doubles below are written as integers: Java prints larger ones with an exponent."""

PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), _WHOLE),
    **dict.fromkeys(("float", "double"), re.compile(f"{_DOUBLE.pattern}|{_NOT_A_NUMBER.pattern}")),
    "date": _DATE,
    "timestamp": _TIMESTAMP,
    "timestamp_ntz": _TIMESTAMP,
    "boolean": _BOOLEAN,
    "decimal": _DECIMAL,
    "binary": _BINARY,
}
"""How values of a type look, by the name of the type; text has no pattern."""


def type_name(data_type: DataType | None) -> str:
    """Return the name by which the rules here know a type, empty for any other."""
    if isinstance(data_type, DecimalType):
        return "decimal"
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    return "string" if name.startswith(("char", "varchar")) else name


def sql_text(text: str) -> str:
    """Return text as a literal of Spark SQL, in which a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def sql_literal(text: str, type_of: str) -> str | None:
    """Return a printed value as a SQL literal, None if it is no value of the type.

    `type_of` is the type's name as `type_name` has it. A timestamp keeps the zone that it names.
    """
    if type_of == "string":
        return sql_text(text)
    pattern = PATTERNS.get(type_of)
    if pattern is None or pattern.fullmatch(text) is None:
        return None
    render = _RENDERED.get(type_of)
    return text if render is None else render(text)


def _moment(text: str) -> str:
    day, _, clock = text.removesuffix("Z").replace("T", " ").partition(" ")
    clock = clock if clock.count(":") > 1 else f"{clock}:00"
    whole, point, fraction = clock.partition(".")
    fraction = fraction.rstrip("0")
    return f"{day} {whole}{point if fraction else ''}{fraction}"


def _double(text: str) -> str:
    if _NOT_A_NUMBER.fullmatch(text):
        return f"DOUBLE '{text}'"
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) < _PLAIN_DOUBLE else text


def _decimal(text: str) -> str:
    plain = f"{Decimal(text):f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


_RENDERED: Final[Mapping[str, Callable[[str], str]]] = {
    "float": _double,
    "double": _double,
    "decimal": _decimal,
    "date": lambda text: f"DATE '{text}'",
    "timestamp": lambda text: f"TIMESTAMP '{_moment(text)}{' UTC' if text.endswith('Z') else ''}'",
    "timestamp_ntz": lambda text: f"TIMESTAMP_NTZ '{_moment(text)}'",
    "boolean": str.upper,
    "binary": lambda text: f"X'{text[2:]}'",
}
