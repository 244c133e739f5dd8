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
_LONG_HEAD: Final = 0x10
"""Heads below this are followed by the number of their field."""
_CONTINUED: Final = 0x80
_LONGEST_VARINT_BITS: Final = 63

Field = tuple[int, Any]
"""A field's type and value.

Integers of all widths and the bytes of lists of booleans are int, booleans bool, binaries and
doubles bytes, lists and sets Items, maps Pairs, structs Struct; what holds others may be Encoded.
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
    """A struct, a list, a set or a map that is encoded; stands for it where values are written."""

    content: bytes


def read_struct(
    content: bytes | memoryview, start: int = 0, *, levels: int = _MAX_DEPTH + 1
) -> tuple[dict[int, Field], int]:
    """Return the struct that begins at `start`, and where it ends.

    No more values are made than there are bytes. What holds other values and is nested more than
    `levels` deep is delimited, no more, and left encoded.
    """
    try:
        return _struct(content, start, STRUCT, 0, levels)
    except IndexError:
        raise ThriftError("a struct is cut off") from None


def read_items(content: bytes) -> Items:
    """Return the list or set that content is."""
    try:
        found, end = _items(content, 0, LIST, 0, _MAX_DEPTH + 1)
    except IndexError:
        raise ThriftError("a list is cut off") from None
    if end != len(content):
        raise ThriftError("something follows a list")
    return found


def encode_struct(struct: Struct) -> bytes:
    """Return a struct's bytes; inverse: read_struct."""
    sink = bytearray()
    _write_struct(sink, struct)
    return bytes(sink)


Bytes = bytes | memoryview


def decode_integer(content: bytes) -> int:
    """Return the integer that content is, as it is in a struct; inverse: encode_integer."""
    found = shift = 0
    for byte in content:
        found |= (byte & 0x7F) << shift
        shift += 7
    return (found >> 1) ^ -(found & 1)


def encode_integer(value: int) -> bytes:
    """Return an integer's bytes in a struct."""
    sink = bytearray()
    _write_integer(sink, value)
    return bytes(sink)


Reader = Callable[[Bytes, int, int, int, int], tuple[Any, int]]

# Each reader below returns a value that begins at a position, and where it ends. They raise
# IndexError at the end of the bytes. The common cases of small numbers stand in the loop itself:
# it runs for every field of footers that have hundreds of thousands.


def _struct(  # noqa: PLR0912  the forms of a field, without calls
    content: Bytes, at: int, _: int, depth: int, levels: int
) -> tuple[dict[int, Field], int]:
    nested = _delimited if depth >= levels else None
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
            read = nested if nested is not None and kind >= LIST else _VALUES[kind]
            value, at = read(content, at, kind, depth + 1, levels)
        fields[number] = kind, value


def _items(content: Bytes, at: int, _: int, depth: int, levels: int) -> tuple[Items, int]:
    kind, count, at = _list_head(content, at, depth)
    values = []
    read = _delimited if depth >= levels and kind >= LIST else _VALUES[kind]
    for _ in range(count):
        value, at = read(content, at, kind, depth + 1, levels)
        values.append(value)
    return Items(kind, values), at


def _list_head(content: Bytes, at: int, depth: int) -> tuple[int, int, int]:
    """Return the type of a list's values, their number and where they begin."""
    head = content[at]
    kind, count = head & 0x0F, head >> 4
    at += 1
    if count == _SHORT_LIST:
        count, at = _varint(content, at)
    _check_room(content, at, count, depth)
    return kind, count, at


def _pairs(content: Bytes, at: int, _: int, depth: int, levels: int) -> tuple[Pairs, int]:
    count, at = _varint(content, at)
    if not count:
        return Pairs(0, 0, []), at
    _check_room(content, at, 2 * count, depth)
    key_kind, value_kind = content[at] >> 4, content[at] & 0x0F
    at += 1
    pairs = []
    for _ in range(count):
        key, at = _VALUES[key_kind](content, at, key_kind, depth + 1, levels)
        value, at = _VALUES[value_kind](content, at, value_kind, depth + 1, levels)
        pairs.append((key, value))
    return Pairs(key_kind, value_kind, pairs), at


def _check_room(content: Bytes, at: int, values: int, depth: int) -> None:
    """Refuse more values than there are bytes, before a place is made for each."""
    if depth > _MAX_DEPTH:
        raise ThriftError(f"values are nested more than {_MAX_DEPTH} deep")
    if values > len(content) - at:
        raise ThriftError("a list is longer than what holds it")


def _binary(content: Bytes, at: int, _: int, __: int, ___: int) -> tuple[bytes, int]:
    size, at = _varint(content, at)
    return _sized(content, at, size)


def _double(content: Bytes, at: int, _: int, __: int, ___: int) -> tuple[bytes, int]:
    return _sized(content, at, _DOUBLE_BYTES)


def _sized(content: Bytes, at: int, size: int) -> tuple[bytes, int]:
    stop = at + size
    if stop > len(content):
        raise ThriftError("a value is cut off")
    return bytes(content[at:stop]), stop


def _byte(content: Bytes, at: int, _: int, __: int, ___: int) -> tuple[int, int]:
    return content[at], at + 1


def _integer(content: Bytes, at: int, kind: int, _: int = 0, __: int = 0) -> tuple[int, int]:
    found, at = _varint(content, at)
    if found >> _BITS[kind]:
        raise ThriftError(f"an integer has more than {_BITS[kind]} bits")
    return (found >> 1) ^ -(found & 1), at


def _no_type(_: Bytes, __: int, kind: int, ___: int, ____: int) -> tuple[Any, int]:
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


_VALUES: Final[Sequence[Reader]] = (
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


# What delimits values without making them: where a value ends. Of structs it takes the fields in a
# loop of its own, as most of a footer is structs in structs.


def _end_of_struct(  # noqa: PLR0912  as `_struct`
    content: Bytes, at: int, depth: int
) -> int:
    if depth > _MAX_DEPTH:
        raise ThriftError(f"values are nested more than {_MAX_DEPTH} deep")
    while True:
        head = content[at]
        at += 1
        if head == 0:
            return at
        if head < _LONG_HEAD:
            at = _end_of_varint(content, at)
        kind = head & 0x0F
        if I16 <= kind <= I64:
            while content[at] >= _CONTINUED:
                at += 1
            at += 1
        elif kind == BINARY and content[at] < _CONTINUED:
            at += 1 + content[at]
        elif kind > FALSE:
            at = _end_of(content, at, kind, depth + 1)
        elif not kind:
            _no_type(content, at, kind, depth, 0)


def _end_of(content: Bytes, at: int, kind: int, depth: int) -> int:
    """Return where a value ends that begins at a position; a boolean is one of a list."""
    if kind == STRUCT:
        return _end_of_struct(content, at, depth)
    if kind in {LIST, SET}:
        kind, count, at = _list_head(content, at, depth)
        for _ in range(count):
            at = _end_of(content, at, kind, depth + 1)
        return at
    if kind in _BITS:
        return _end_of_varint(content, at)
    return _VALUES[kind](content, at, kind, depth, 0)[1]


def _end_of_varint(content: Bytes, at: int) -> int:
    while content[at] >= _CONTINUED:
        at += 1
    return at + 1


_KNOWN_BY_BYTES: Final = 16
_MAX_KNOWN: Final = 4096
_known: dict[tuple[int, int, bytes], Encoded] = {}
"""Values that were delimited before, by what they begin with: most come again in every row group.

The bytes of a value say where it ends. So where the same bytes come again, so does the value.
"""


def _delimited(content: Bytes, at: int, kind: int, depth: int, _: int) -> tuple[Encoded, int]:
    key = kind, depth, bytes(content[at : at + _KNOWN_BY_BYTES])
    known = _known.get(key)
    if known is not None:
        end = at + len(known.content)
        if content[at:end] == known.content:
            return known, end
    end = _end_of(content, at, kind, depth)
    if end > len(content):
        raise ThriftError("a value is cut off")
    found = Encoded(bytes(content[at:end]))
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    _known[key] = found
    return found, end


def _write_struct(sink: bytearray, struct: Struct) -> None:
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
    elif isinstance(value, Encoded):
        sink += value.content
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
