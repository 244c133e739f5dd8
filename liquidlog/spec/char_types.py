"""The lengths of char(n) and varchar(n), which are kept beside a schema that has only strings.

The metadata of a top-level column holds its whole type as Spark's SQL writes it, such as
`struct<a:varchar(3),b:array<char(2)>>`.

Source: Spark, CharVarcharUtils and DataType.catalogString.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from liquidlog.spec.schema import (
    MAX_DEPTH,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

CHAR_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The key of the metadata."""

_SHOWN: Final = 60
_LIMIT: Final = re.compile(r"(var)?char\s*\(\s*(\d{1,9})\s*\)", re.IGNORECASE)
_WORD: Final = re.compile(r"[^<>,:`()]+(?:\([^()]*\)[^<>,:`()]*)?")
_QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`")
_PLAIN: Final = re.compile(r"[^<>,:`]+")


@dataclass(frozen=True, slots=True)
class TextLimit:
    """At most `length` characters. Where `padded` (a char), readers pad texts with spaces to it."""

    length: int
    padded: bool

    def __str__(self) -> str:
        """Return the type as SQL writes it."""
        return f"{'' if self.padded else 'var'}char({self.length})"


@dataclass(frozen=True, slots=True)
class StructLimits:
    """The limits of a struct's fields, in the type's order; None where there is none."""

    fields: tuple[tuple[str, "Limits | None"], ...]


@dataclass(frozen=True, slots=True)
class ArrayLimits:
    """The limits of an array's elements."""

    element: "Limits | None"


@dataclass(frozen=True, slots=True)
class MapLimits:
    """The limits of a map's keys and values."""

    key: "Limits | None"
    value: "Limits | None"


Limits: TypeAlias = TextLimit | StructLimits | ArrayLimits | MapLimits


class CharTypeError(ValueError):
    """The lengths of char and varchar in a column's metadata cannot be those of the column."""


def column_limits(field: StructField) -> Limits | None:
    """Return the limits of a column's texts, in the shape of its type; None without any.

    Structs have all fields of the column, in its order.
    """
    text = field.metadata.get(CHAR_VARCHAR)
    return _fitted(None if text is None else parse_limits(str(text)), field.data_type)


def parse_limits(text: str) -> Limits | None:
    """Return the limits in a type as Spark writes it, None if it has none."""
    if text.count("<") > MAX_DEPTH:
        raise CharTypeError(f"{text[:_SHOWN]!r}... is nested too deeply")
    limits, rest = _type(text.strip(), text)
    if rest:
        raise CharTypeError(f"{text!r} is not a type: {rest!r} is left over")
    return limits


def _type(text: str, whole: str) -> tuple[Limits | None, str]:
    word = _WORD.match(text)
    if word is None:
        raise CharTypeError(f"{whole!r} is not a type")
    name, rest = word[0].strip(), text[word.end() :]
    if not rest.startswith("<"):
        limit = _LIMIT.fullmatch(name)
        if limit is None and re.match(r"(?:var)?char\b", name, re.IGNORECASE):
            raise CharTypeError(f"{whole!r} is not a type: {name!r} has no length")
        return (TextLimit(int(limit[2]), padded=limit[1] is None) if limit else None), rest
    match name.lower():
        case "array":
            element, rest = _type(rest[1:].lstrip(), whole)
            return (None if element is None else ArrayLimits(element)), _after(rest, ">", whole)
        case "map":
            key, rest = _type(rest[1:].lstrip(), whole)
            value, rest = _type(_after(rest, ",", whole), whole)
            found = None if key is None and value is None else MapLimits(key, value)
            return found, _after(rest, ">", whole)
        case "struct":
            return _struct(rest[1:].lstrip(), whole)
        case other:
            raise CharTypeError(f"{whole!r} is not a type: {other!r} has no parts")


def _struct(text: str, whole: str) -> tuple[Limits | None, str]:
    fields: list[tuple[str, Limits | None]] = []
    while not text.startswith(">"):
        if fields:
            text = _after(text, ",", whole)
        quoted = _QUOTED.match(text)
        name = quoted or _PLAIN.match(text)
        if name is None:
            raise CharTypeError(f"{whole!r} is not a type: {text!r} has no field name")
        rest = _after(text[name.end() :], ":", whole)
        limits, text = _type(rest, whole)
        fields.append((quoted[1].replace("``", "`") if quoted else name[0].strip(), limits))
    limited = any(limits is not None for _, limits in fields)
    return (StructLimits(tuple(fields)) if limited else None), text[1:].lstrip()


def _after(text: str, mark: str, whole: str) -> str:
    if not text.startswith(mark):
        raise CharTypeError(f"{whole!r} is not a type: {mark!r} is missing before {text!r}")
    return text[1:].lstrip()


def _fitted(limits: Limits | None, data_type: DataType) -> Limits | None:
    """Return limits with the fields of a type, None if none is left."""
    match limits, data_type:
        case ((None | StructLimits()), StructType()):
            return _fitted_struct(() if limits is None else limits.fields, data_type)
        case ((None | ArrayLimits()), ArrayType()):
            element = _fitted(limits and limits.element, data_type.element)
            return None if element is None else ArrayLimits(element)
        case ((None | MapLimits()), MapType()):
            key = _fitted(limits and limits.key, data_type.key)
            value = _fitted(limits and limits.value, data_type.value)
            return None if key is None and value is None else MapLimits(key, value)
        case None, _:
            return None
        case TextLimit(), PrimitiveType(name="string"):
            return limits
        case _:
            raise CharTypeError("it has the lengths of char and varchar of another type")


def _fitted_struct(
    fields: tuple[tuple[str, Limits | None], ...], data_type: StructType
) -> StructLimits | None:
    known = {name.lower(): limits for name, limits in fields}
    names = {field.name.lower() for field in data_type.fields}
    lost = [name for name, limits in fields if limits is not None and name.lower() not in names]
    if lost or len(known) < len(fields):
        others = ", ".join(lost or known)
        raise CharTypeError(f"it has the lengths of char and varchar of other fields: {others}")
    found = []
    for field in data_type.fields:
        limits = known.get(field.name.lower())
        own = column_limits(field) if limits is None else _fitted(limits, field.data_type)
        found.append((field.name, own))
    return StructLimits(tuple(found)) if any(own is not None for _, own in found) else None
