"""The pages of a column chunk: where they are, and that their bytes are those that were written.

Source: Apache Parquet format, parquet.thrift, PageHeader, and README.md, "Checksumming".
"""

import zlib
from typing import Final

from liquidlog.data.thrift import I32, STRUCT, Struct, ThriftError, read_struct

_TYPE, _COMPRESSED_BYTES, _CRC = 1, 3, 4
_DATA_V1, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEADERS: Final = {_DATA_V1: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""The field with what only pages of one type have."""
_NUM_VALUES: Final = 1
_WORD: Final = 0xFFFFFFFF

Page = tuple[int, int]
"""Where a page begins in its chunk, and how many bytes it has with its header."""


class PageError(ValueError):
    """The bytes of a column chunk are not the pages that its footer promises."""


def data_pages(chunk: memoryview, *, num_values: int) -> list[Page]:
    """Return the data pages of a chunk that fill it, behind its dictionary if there is one.

    Checksums are compared where pages have them.

    Raises:
        PageError: If the pages do not fill the chunk, have not `num_values` values together, or one
            has another checksum.
    """
    pages: list[Page] = []
    start, found = 0, 0
    while start < len(chunk):
        header, body = _header(chunk, start)
        stop = body + _number(header, _COMPRESSED_BYTES)
        if not body <= stop <= len(chunk):
            raise PageError("a page ends outside its column chunk")
        if _CRC in header and zlib.crc32(chunk[body:stop]) != _number(header, _CRC) & _WORD:
            raise PageError("a page has another checksum than its header says")
        kind = _number(header, _TYPE)
        if kind == _DICTIONARY:
            if start:
                raise PageError("a dictionary page is not the first of its column chunk")
        elif kind in _HEADERS:
            found += _values(header, kind)
            pages.append((start, stop - start))
        else:
            raise PageError(f"a page has the unknown type {kind}")
        start = stop
    if found != num_values:
        raise PageError(f"the pages have {found} values where the footer says {num_values}")
    return pages


def _header(chunk: memoryview, start: int) -> tuple[Struct, int]:
    try:
        return read_struct(chunk, start)
    except ThriftError as error:
        raise PageError(f"the header of a page cannot be read: {error}") from error


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
