"""The offset index of a column chunk: where its pages are in the file.

All writers give the same three fields of each page and no others. Such an index is read and moved
without a value for each field; any other one as the struct that it is.

Source: Apache Parquet format, parquet.thrift, OffsetIndex.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from liquidlog.data.thrift import (
    I32,
    I64,
    LIST,
    STRUCT,
    Items,
    Struct,
    ThriftError,
    decode_integer,
    encode_integer,
    encode_struct,
    read_struct,
)

PageLocation = tuple[int, int, int]
"""(offset, bytes, first row) of a data page."""

_PAGES, _OFFSET, _BYTES, _FIRST_ROW = 1, 1, 2, 3
_INTEGER: Final = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_SHORTER: Final = rb"[\x80-\xff]{0,3}[\x00-\x7f]"
_PAGE: Final = re.compile(rb"\x16(%b)\x15(%b)\x16(%b)\x00" % (_INTEGER, _SHORTER, _INTEGER))
_ALL: Final = re.compile(
    rb"\x19(?:\xfc(%b)|([\x0c-\xec]))((?:\x16%b\x15%b\x16%b\x00)*)\x00"
    % (_SHORTER, _INTEGER, _SHORTER, _INTEGER)
)
_OF_STRUCTS: Final = 0x0C


class _Plain(NamedTuple):
    """An index of the usual fields: what is before the first page, and each page's, encoded."""

    head: bytes
    pages: list[tuple[bytes, bytes, bytes]]


def page_locations(offset_index: bytes) -> list[PageLocation]:
    """Return where each page is by an offset index."""
    plain = _plain(offset_index)
    if plain is not None:
        number = decode_integer
        return [(number(at), number(size), number(row)) for at, size, row in plain.pages]
    return [
        (_number(page, _OFFSET, I64), _number(page, _BYTES, I32), _number(page, _FIRST_ROW, I64))
        for page in _structs(read_struct(offset_index)[0])
    ]


def moved_offset_index(offset_index: bytes, by: int) -> bytes:
    """Return the bytes of an offset index of pages that were moved by so many bytes."""
    plain = _plain(offset_index)
    if plain is not None:
        pages = (
            b"\x16%b\x15%b\x16%b\x00" % (encode_integer(decode_integer(at) + by), size, row)
            for at, size, row in plain.pages
        )
        return b"%b%b\x00" % (plain.head, b"".join(pages))
    fields, _ = read_struct(offset_index)
    moved = [
        {**page, _OFFSET: (I64, _number(page, _OFFSET, I64) + by)} for page in _structs(fields)
    ]
    return encode_struct({**fields, _PAGES: (LIST, Items(STRUCT, moved))})


@lru_cache(maxsize=16)
def _plain(offset_index: bytes) -> _Plain | None:
    found = _ALL.fullmatch(offset_index)
    if found is None:
        return None
    long, short = found[1], found[2]
    start, stop = found.span(3)
    pages = _PAGE.findall(offset_index, start, stop)
    if short is not None:
        fits = short[0] == len(pages) << 4 | _OF_STRUCTS
    else:
        fits = long == _varint(len(pages))
    return _Plain(offset_index[:start], pages) if fits else None


def _varint(count: int) -> bytes:
    """Return a count as it stands before a long list, not as an integer of either sign."""
    return encode_integer(count >> 1 if count % 2 == 0 else -(count >> 1) - 1)


def _structs(fields: Struct) -> list[Struct]:
    kind, value = fields.get(_PAGES, (0, None))
    if kind != LIST or (value.values and value.kind != STRUCT):
        raise ThriftError("an offset index has no list of pages")
    found: list[Struct] = value.values
    return found


def _number(page: Struct, number: int, kind: int) -> int:
    found, value = page.get(number, (0, None))
    if found != kind:
        raise ThriftError(f"a page of an offset index has no field {number}")
    result: int = value
    return result
