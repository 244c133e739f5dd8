"""Structs in Thrift's compact protocol, as Parquet's footers and page headers are.

Every field is kept, known or not. So a struct that was read and is written again says the same,
byte by byte if its writer used the shortest forms, as all writers do.

Source: Apache Thrift, thrift-compact-protocol.md.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12

_BITS: Final = {I16: 16, I32: 32, I64: 64}
_MAX_DEPTH: Final = 24
"""Parquet nests eight structs at most."""
_DOUBLE_BYTES: Final = 8
_SHORT_LIST: Final = 15
_SHORT_DELTA: Final = 15
_CONTINUED: Final = 0x80
_LONGEST_VARINT_BITS: Final = 63

Field = tuple[int, Any]
"""A field's type and value.

Integers of all widths and the bytes of lists of booleans are int, booleans bool, binaries and
doubles bytes, lists and sets Items, maps Pairs, structs Struct.
"""

Struct = Mapping[int, Field]
"""The fields of a struct by their ids, in the order in which they are written."""


class ThriftError(ValueError):
    """Bytes are no struct in the compact protocol."""


class Items(NamedTuple):
    """A list or a set: the type of its values, and the values."""

    kind: int
    values: list[Any]


class Pairs(NamedTuple):
    """A map: the types of its keys and values, 0 if it is empty, and the pairs."""

    key_kind: int
    value_kind: int
    values: list[tuple[Any, Any]]


class Encoded(NamedTuple):
    """A struct that is encoded already; stands for it where structs are written."""

    content: bytes


def read_struct(content: bytes | memoryview, start: int = 0) -> tuple[dict[int, Field], int]:
    """Return the struct that begins at `start`, and where it ends.

    No more values are made than there are bytes.

    Raises:
        ThriftError: If there is none, or it is nested too deeply.
    """
    try:
        return _struct(content, start, STRUCT, 0)
    except IndexError:
        raise ThriftError("a struct is cut off") from None


def encode_struct(struct: Struct) -> bytes:
    """Return a struct's bytes; inverse: read_struct."""
    sink = bytearray()
    _write_struct(sink, struct)
    return bytes(sink)


Bytes = bytes | memoryview

# Each reader below returns a value that begins at a position, and where it ends. They raise
# IndexError at the end of the bytes. The common cases of small numbers stand in the loop itself:
# it runs for every field of footers that have hundreds of thousands.


def _struct(  # noqa: PLR0912  the forms of a field, without calls
    content: Bytes, at: int, _: int, depth: int
) -> tuple[dict[int, Field], int]:
    if depth > _MAX_DEPTH:
        raise ThriftError(f"values are nested more than {_MAX_DEPTH} deep")
    fields: dict[int, Field] = {}
    number = 0
    value: Any
    while True:
        head = content[at]
        at += 1
        if head == 0:
            return fields, at
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(content, at, I16)
        if number in fields:
            raise ThriftError(f"field {number} occurs twice")
        if I16 <= kind <= I64 and content[at] < _CONTINUED:
            value = (content[at] >> 1) ^ -(content[at] & 1)
            at += 1
        elif TRUE <= kind <= FALSE:
            value = kind == TRUE
        else:
            value, at = _VALUES[kind](content, at, kind, depth + 1)
        fields[number] = kind, value


def _items(content: Bytes, at: int, _: int, depth: int) -> tuple[Items, int]:
    head = content[at]
    kind, count = head & 0x0F, head >> 4
    at += 1
    if count == _SHORT_LIST:
        count, at = _varint(content, at)
    _check_room(content, at, count, depth)
    values = []
    read = _VALUES[kind]
    for _ in range(count):
        value, at = read(content, at, kind, depth + 1)
        values.append(value)
    return Items(kind, values), at


def _pairs(content: Bytes, at: int, _: int, depth: int) -> tuple[Pairs, int]:
    count, at = _varint(content, at)
    if not count:
        return Pairs(0, 0, []), at
    _check_room(content, at, 2 * count, depth)
    key_kind, value_kind = content[at] >> 4, content[at] & 0x0F
    at += 1
    pairs = []
    for _ in range(count):
        key, at = _VALUES[key_kind](content, at, key_kind, depth + 1)
        value, at = _VALUES[value_kind](content, at, value_kind, depth + 1)
        pairs.append((key, value))
    return Pairs(key_kind, value_kind, pairs), at


def _check_room(content: Bytes, at: int, values: int, depth: int) -> None:
    """Refuse more values than there are bytes, before a place is made for each.

    Raises:
        ThriftError: If there are more, or they are nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise ThriftError(f"values are nested more than {_MAX_DEPTH} deep")
    if values > len(content) - at:
        raise ThriftError("a list is longer than what holds it")


def _binary(content: Bytes, at: int, _: int, __: int) -> tuple[bytes, int]:
    size, at = _varint(content, at)
    return _sized(content, at, size)


def _double(content: Bytes, at: int, _: int, __: int) -> tuple[bytes, int]:
    return _sized(content, at, _DOUBLE_BYTES)


def _sized(content: Bytes, at: int, size: int) -> tuple[bytes, int]:
    stop = at + size
    if stop > len(content):
        raise ThriftError("a value is cut off")
    return bytes(content[at:stop]), stop


def _byte(content: Bytes, at: int, _: int, __: int) -> tuple[int, int]:
    return content[at], at + 1


def _integer(content: Bytes, at: int, kind: int, _: int = 0) -> tuple[int, int]:
    found, at = _varint(content, at)
    if found >> _BITS[kind]:
        raise ThriftError(f"an integer has more than {_BITS[kind]} bits")
    return (found >> 1) ^ -(found & 1), at


def _no_type(_: Bytes, __: int, kind: int, ___: int) -> tuple[Any, int]:
    raise ThriftError(f"there is no type {kind}")


def _varint(content: Bytes, at: int) -> tuple[int, int]:
    found, shift = 0, 0
    while True:
        byte = content[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < _CONTINUED:
            return found, at
        shift += 7
        if shift > _LONGEST_VARINT_BITS:
            raise ThriftError("an integer has more than 64 bits")


_VALUES: Final[Sequence[Callable[[Bytes, int, int, int], tuple[Any, int]]]] = (
    _no_type,
    *(_byte, _byte, _byte),
    *(_integer, _integer, _integer),
    _double,
    _binary,
    *(_items, _items),
    _pairs,
    _struct,
    *(_no_type, _no_type, _no_type),
)
"""What reads a value, by its type."""


def _write_struct(sink: bytearray, struct: Struct | Encoded) -> None:
    if isinstance(struct, Encoded):
        sink += struct.content
        return
    last = 0
    for number, (kind, value) in struct.items():
        delta = number - last
        if 0 < delta <= _SHORT_DELTA:
            sink.append(delta << 4 | kind)
        else:
            sink.append(kind)
            _write_integer(sink, number)
        last = number
        if kind not in {TRUE, FALSE}:
            _write_value(sink, kind, value)
    sink.append(0)


def _write_value(sink: bytearray, kind: int, value: Any) -> None:  # noqa: ANN401  as above
    if kind in _BITS:
        _write_integer(sink, value)
    elif kind == BINARY:
        _write_varint(sink, len(value))
        sink += value
    elif kind == STRUCT:
        _write_struct(sink, value)
    elif kind in {LIST, SET}:
        _write_items(sink, value)
    elif kind in {TRUE, FALSE, BYTE}:
        sink.append(value)
    elif kind == DOUBLE:
        sink += value
    else:
        _write_pairs(sink, value)


def _write_items(sink: bytearray, items: Items) -> None:
    count = len(items.values)
    sink.append(min(count, _SHORT_LIST) << 4 | items.kind)
    if count >= _SHORT_LIST:
        _write_varint(sink, count)
    for value in items.values:
        _write_value(sink, items.kind, value)


def _write_pairs(sink: bytearray, pairs: Pairs) -> None:
    _write_varint(sink, len(pairs.values))
    if pairs.values:
        sink.append(pairs.key_kind << 4 | pairs.value_kind)
    for key, value in pairs.values:
        _write_value(sink, pairs.key_kind, key)
        _write_value(sink, pairs.value_kind, value)


def _write_integer(sink: bytearray, value: int) -> None:
    _write_varint(sink, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_varint(sink: bytearray, value: int) -> None:
    while value >= _CONTINUED:
        sink.append(value & 0x7F | _CONTINUED)
        value >>= 7
    sink.append(value)
