"""The pages of a column chunk: where they are, and that their bytes are those that were written.

Source: Apache Parquet format, parquet.thrift, PageHeader, and README.md, "Checksumming".
"""

import re
import zlib
from typing import Final, NamedTuple

from liquidlog.data.thrift import (
    I32,
    STRUCT,
    Struct,
    ThriftError,
    decode_integer,
    read_struct,
)

_TYPE, _COMPRESSED_BYTES, _CRC = 1, 3, 4
_DATA_V1, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEADERS: Final = {_DATA_V1: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""The field with what only pages of one type have."""
_NUM_VALUES: Final = 1
_WORD: Final = 0xFFFFFFFF

_SIZE: Final = rb"([\x80-\xff]{0,3}[\x00-\x7f])"
_CHECKSUM: Final = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
_USUAL: Final = re.compile(
    rb"\x15\x00\x15%b\x15%b(?:\x15%b\x1c|\x2c)\x15%b\x15%b\x15%b\x15%b\x00\x00"
    % (_SIZE, _SIZE, _CHECKSUM, *[_SIZE] * 4)
)
"""The header of a data page of the first kind without statistics: nearly all headers are such."""

Page = tuple[int, int]
"""Where a page begins in its chunk, and how many bytes it has with its header."""


class PageError(ValueError):
    """The bytes of a column chunk are not the pages that its footer promises."""


class _Header(NamedTuple):
    """A page's header: `body` is where the page begins behind it; a dictionary has 0 values."""

    kind: int
    body: int
    compressed_bytes: int
    crc: int | None
    values: int


def data_pages(chunk: memoryview, *, num_values: int) -> list[Page]:
    """Return the data pages of a chunk that fill it, behind its dictionary if there is one.

    Checksums are compared where pages have them.
    """
    pages: list[Page] = []
    start, found = 0, 0
    while start < len(chunk):
        header = _header(chunk, start)
        stop = header.body + header.compressed_bytes
        if not header.body <= stop <= len(chunk):
            raise PageError("a page ends outside its column chunk")
        if header.crc is not None and zlib.crc32(chunk[header.body : stop]) != header.crc & _WORD:
            raise PageError("a page has another checksum than its header says")
        if header.kind != _DICTIONARY:
            found += header.values
            pages.append((start, stop - start))
        elif start:
            raise PageError("a dictionary page is not the first of its column chunk")
        start = stop
    if found != num_values:
        raise PageError(f"the pages have {found} values where the footer says {num_values}")
    return pages


def _header(chunk: memoryview, start: int) -> _Header:
    usual = _USUAL.match(chunk, start)
    if usual is not None:
        _, size, crc, values, *_ = usual.groups()
        return _Header(
            _DATA_V1,
            usual.end(),
            decode_integer(size),
            None if crc is None else decode_integer(crc),
            decode_integer(values),
        )
    try:
        fields, body = read_struct(chunk, start)
    except ThriftError as error:
        raise PageError(f"the header of a page cannot be read: {error}") from error
    kind = _number(fields, _TYPE)
    if kind not in _HEADERS:
        raise PageError(f"a page has the unknown type {kind}")
    return _Header(
        kind,
        body,
        _number(fields, _COMPRESSED_BYTES),
        _number(fields, _CRC) if _CRC in fields else None,
        0 if kind == _DICTIONARY else _values(fields, kind),
    )


def _values(header: Struct, kind: int) -> int:
    found, value = header.get(_HEADERS[kind], (0, None))
    if found != STRUCT:
        raise PageError("a data page has no header of its type")
    return _number(value, _NUM_VALUES)


def _number(struct: Struct, number: int) -> int:
    kind, value = struct.get(number, (0, 0))
    if kind != I32:
        raise PageError(f"the header of a page has no field {number}")
    found: int = value
    return found
