"""Columns and their types as SQL writes them, to those of the protocol.

Source: Spark, SQL reference, "Data Types"; PROTOCOL.md, "Primitive Types".
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlglot import TokenType

from liquidlog.spec.char_types import CHAR_VARCHAR, TextLimit
from liquidlog.spec.schema import (
    MAX_DEPTH,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
)
from liquidlog.sql.words import Words

_PRIMITIVES: Final[Mapping[str, str]] = {
    "BIGINT": "long",
    "BINARY": "binary",
    "BOOLEAN": "boolean",
    "BYTE": "byte",
    "DATE": "date",
    "DOUBLE": "double",
    "FLOAT": "float",
    "INT": "integer",
    "INTEGER": "integer",
    "LONG": "long",
    "REAL": "float",
    "SHORT": "short",
    "SMALLINT": "short",
    "STRING": "string",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "TINYINT": "byte",
    "VARIANT": "variant",
}
_DECIMALS: Final = frozenset({"DEC", "DECIMAL", "NUMERIC"})
_LIMITED: Final = frozenset({"CHAR", "CHARACTER", "VARCHAR"})
_MOST_DIGITS: Final = 38
_DEFAULT_DIGITS: Final = 10
_A_TYPE: Final = "a type, as INT or ARRAY<STRING>"
_A_NAME: Final = "a column's name"
_REFUSED: Final[Mapping[str, str]] = {
    "DEFAULT": "default values",
    "GENERATED": "generated columns",
    "CHECK": "constraints",
    "PRIMARY": "keys",
    "REFERENCES": "keys",
}


def column_list(words: Words) -> tuple[Path, ...]:
    """Return the names of columns in parentheses."""
    words.expect_kind(TokenType.L_PAREN, "( and the names of columns")
    found = [words.path(_A_NAME)]
    while words.take_kind(TokenType.COMMA):
        found.append(words.path(_A_NAME))
    words.expect_kind(TokenType.R_PAREN, ", or )")
    return tuple(found)


def definitions(words: Words) -> StructType:
    """Return the columns of a new table, in parentheses."""
    words.expect_kind(TokenType.L_PAREN, "( and columns")
    found: list[StructField] = []
    while not found or words.take_kind(TokenType.COMMA):
        token = words.token
        name = words.name(_A_NAME)
        if any(field.name.lower() == name.lower() for field in found):
            words.fail(f"there are two columns {name}", at=token)
        found.append(_field(words, name))
    words.expect_kind(TokenType.R_PAREN, ", or )")
    return StructType(tuple(found))


def added(words: Words) -> tuple[Path, StructField]:
    """Return a column to add: the path of a name or a field, and the column."""
    path = words.path(_A_NAME)
    field = _field(words, path[-1])
    if words.sees("FIRST") or words.sees("AFTER"):
        words.fail("a column can be added behind the others only; leave FIRST or AFTER out")
    return path, field


def column_type(name: str, text: str) -> StructField:
    """Return a column whose type is written as in SQL."""
    words = Words(text)
    field = _field(words, name)
    words.finish()
    return field


def _field(words: Words, name: str) -> StructField:
    metadata: dict[str, Any] = {}
    data_type = _type(words, 0)
    if isinstance(data_type, TextLimit):
        metadata[CHAR_VARCHAR] = str(data_type)
        data_type = PrimitiveType("string")
    nullable = True
    while True:
        if words.take("NOT", "NULL"):
            nullable = False
        elif words.take("COMMENT"):
            metadata["comment"] = words.string("the comment in quotes")
        else:
            break
    for word, what in _REFUSED.items():
        if words.sees(word):
            words.fail(f"{what} cannot be defined here; create the table with Delta Spark")
    return StructField(name, data_type, nullable, metadata)


def _type(words: Words, depth: int) -> DataType | TextLimit:
    """Return a type; a char or varchar, which is a string with a limit, only as a whole column."""
    if depth > MAX_DEPTH:
        words.fail(f"a type is nested more than {MAX_DEPTH} levels deep")
    token = words.token
    name = words.name(_A_TYPE).upper()
    if name in _DECIMALS:
        return _decimal(words)
    if name in _LIMITED:
        if depth:
            words.fail(f"{name} can be the type of a whole column only; use STRING", at=token)
        return _limited(words, padded=name != "VARCHAR")
    if name in {"ARRAY", "MAP", "STRUCT"}:
        return _collection(words, name, depth + 1)
    if name not in _PRIMITIVES:
        words.fail(f"expected {_A_TYPE}, found {name}", at=token)
    return PrimitiveType(_PRIMITIVES[name])


def _inner(words: Words, depth: int) -> DataType:
    found = _type(words, depth)
    assert not isinstance(found, TextLimit)  # noqa: S101  refused below the top
    return found


def _limited(words: Words, *, padded: bool) -> TextLimit:
    words.expect_kind(TokenType.L_PAREN, "( and a length")
    token = words.token
    length = words.number("a length")
    if not length:
        words.fail("a length must be at least 1", at=token)
    words.expect_kind(TokenType.R_PAREN, ")")
    return TextLimit(length, padded)


def _decimal(words: Words) -> DecimalType:
    if not words.take_kind(TokenType.L_PAREN):
        return DecimalType(_DEFAULT_DIGITS, 0)
    token = words.token
    precision, scale = words.number("the number of digits"), 0
    if words.take_kind(TokenType.COMMA):
        scale = words.number("the number of digits after the point")
    if not 1 <= precision <= _MOST_DIGITS or scale > precision:
        words.fail(
            f"a decimal has 1 to {_MOST_DIGITS} digits, and no more after the point", at=token
        )
    words.expect_kind(TokenType.R_PAREN, ")")
    return DecimalType(precision, scale)


def _collection(words: Words, name: str, depth: int) -> DataType:
    words.expect_kind(TokenType.LT, "<")
    found: DataType
    if name == "ARRAY":
        found = ArrayType(_inner(words, depth))
    elif name == "MAP":
        key = _inner(words, depth)
        words.expect_kind(TokenType.COMMA, ", and the type of values")
        found = MapType(key, _inner(words, depth))
    else:
        found = StructType(tuple(_fields(words, depth)))
    words.expect_kind(TokenType.GT, ">")
    return found


def _fields(words: Words, depth: int) -> list[StructField]:
    fields: list[StructField] = []
    while not fields or words.take_kind(TokenType.COMMA):
        token = words.token
        name = words.name("a field's name")
        if any(field.name.lower() == name.lower() for field in fields):
            words.fail(f"there are two fields {name}", at=token)
        words.take_kind(TokenType.COLON)
        data_type = _inner(words, depth)
        nullable = not words.take("NOT", "NULL")
        comment = words.string("the comment in quotes") if words.take("COMMENT") else None
        metadata = {} if comment is None else {"comment": comment}
        fields.append(StructField(name, data_type, nullable, metadata))
    return fields
