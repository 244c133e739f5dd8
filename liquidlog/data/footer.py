"""A Parquet footer as its fields, to be taken apart, moved to another file and written anew.

Everything that says where something is in the file is known here by its field. A footer with a
field that is unknown, and so may say such a thing, can be read and written but not moved.

Source: Apache Parquet format, parquet.thrift and README.md, "File format".
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.data.spans import Span
from liquidlog.data.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Encoded,
    Field,
    Items,
    Struct,
    ThriftError,
    encode_struct,
    read_items,
    read_struct,
)
from liquidlog.data.writers import is_trusted
from liquidlog.spec.calendars import TODAYS_FOOTER
from liquidlog.spec.codecs import Codec
from liquidlog.storage.files import Source
from liquidlog.version import __version__

MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8
_MAX_FOOTER_BYTES: Final = 8 << 20
"""As fields, a footer takes up to sixty times its bytes."""
_LEVELS: Final = 5
"""A column's metadata is on this level of a footer. What is nested in it stays encoded: it is asked
for seldom and copied as it is."""
_MAX_CHUNK_BYTES: Final = 128 << 20
"""A chunk is in memory as a whole while it is copied."""
_DIGEST_BYTES: Final = 16
_MAX_ORDINAL: Final = (1 << 15) - 1
_FORMAT_VERSION: Final = 2
CREATED_BY: Final = f"liquidlog version {__version__}"

# Fields of FileMetaData, of which 8 and 9 are those of encrypted files.
_VERSION, _SCHEMA, _NUM_ROWS, _ROW_GROUPS, _KEY_VALUES, _CREATED_BY, _COLUMN_ORDERS = range(1, 8)
_FILE_FIELDS: Final = frozenset(range(1, 8))
# Of SchemaElement.
_REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 3, 4, 5, 6, 7, 8, 10
# Of RowGroup.
_COLUMNS, _BYTES, _ROWS, _GROUP_OFFSET, _COMPRESSED, _ORDINAL = 1, 2, 3, 5, 6, 7
_GROUP_FIELDS: Final = frozenset(range(1, 8))
# Of ColumnChunk; 1 names another file, 8 and 9 are those of encrypted columns.
_CHUNK_OFFSET, _META = 2, 3
_OFFSET_INDEX, _COLUMN_INDEX = (4, 5), (6, 7)
_CHUNK_FIELDS: Final = frozenset(range(2, 8))
# Of ColumnMetaData; 10 is the offset of an index page, which nobody writes.
_TYPE, _PATH, _CODEC, _NUM_VALUES, _SIZE, _DATA, _DICTIONARY = 1, 3, 4, 5, 7, 9, 11
_STATISTICS, _BLOOM = 12, (14, 15)
_COLUMN_FIELDS: Final = frozenset(range(1, 18)) - {10}

_CODECS: Final = {
    Codec.UNCOMPRESSED: 0,
    Codec.SNAPPY: 1,
    Codec.GZIP: 2,
    Codec.ZSTD: 6,
    Codec.LZ4_RAW: 7,
}


class NotMovableError(ValueError):
    """A file's row groups cannot be moved to another file as they are; the message says why."""


@dataclass(frozen=True)
class Chunk:
    """A column chunk of a footer: where its bytes are, and what they are."""

    fields: Struct
    column: Struct

    @cached_property
    def span(self) -> Span:
        """Its pages: the dictionary, where there is one, then the data."""
        data, dictionary = _integer(self.column, _DATA), _integer(self.column, _DICTIONARY, 0)
        start = dictionary if 0 < dictionary < data else data
        return start, _integer(self.column, _SIZE)

    @property
    def num_values(self) -> int:
        """How many values it has, nulls too."""
        return _integer(self.column, _NUM_VALUES)

    @property
    def physical_type(self) -> int:
        """The number of its physical type."""
        return _integer(self.column, _TYPE, kind=I32)

    @property
    def path(self) -> tuple[str, ...]:
        """The names on the way to it."""
        kind, value = self.column.get(_PATH, (0, None))
        if kind == LIST and isinstance(value, Encoded):
            return _names(value.content)
        return tuple(map(_text, _list(self.column, _PATH, BINARY)))

    @property
    def codec(self) -> int:
        """The number of its codec."""
        return _integer(self.column, _CODEC, kind=I32)

    @property
    def statistics(self) -> Struct:
        """Its statistics; without fields if it has none."""
        return _struct(self.column, _STATISTICS) if _STATISTICS in self.column else {}

    @property
    def offset_index(self) -> Span | None:
        """Where its offset index is; None if there is none."""
        return _span(self.fields, _OFFSET_INDEX, I32)

    @property
    def column_index(self) -> Span | None:
        """Where its column index is; None if there is none."""
        return _span(self.fields, _COLUMN_INDEX, I32)

    @property
    def bloom_filter(self) -> Span | None:
        """Where its Bloom filter is; None if there is none, or it is not said how long it is."""
        return _span(self.column, _BLOOM, I32)

    def moved(self, start: int, indexes: "Indexes") -> Struct:
        """Return the chunk's fields with its pages from `start` on, and these indexes."""
        by = start - self.span[0]
        column = dict(self.column)
        for number in (_DATA, _DICTIONARY):
            if _integer(column, number, 0):
                column[number] = (I64, column[number][1] + by)
        _place(column, _BLOOM, indexes.bloom_filter)
        # A copy of the column's metadata behind its pages, which nobody writes any more, is not
        # copied.
        fields = {**self.fields, _CHUNK_OFFSET: (I64, 0), _META: (STRUCT, column)}
        _place(fields, _OFFSET_INDEX, indexes.offset_index)
        _place(fields, _COLUMN_INDEX, indexes.column_index)
        return dict(sorted(fields.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexes:
    """Where the indexes of a moved chunk are; None where it has none."""

    offset_index: Span | None = None
    column_index: Span | None = None
    bloom_filter: Span | None = None


@dataclass(frozen=True)
class FooterRowGroup:
    """A row group of a footer."""

    fields: Struct

    @property
    def num_rows(self) -> int:
        """Its rows."""
        return _integer(self.fields, _ROWS)

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """Its column chunks in the order of the columns."""
        found = _list(self.fields, _COLUMNS, STRUCT)
        return tuple(Chunk(fields, _struct(fields, _META)) for fields in found)

    def moved(self, number: int, chunks: Sequence[Struct]) -> Encoded:
        """Return it as row group `number` of a file with these chunks."""
        fields = {**self.fields, _COLUMNS: (LIST, Items(STRUCT, list(chunks)))}
        fields[_GROUP_OFFSET] = (I64, Chunk(chunks[0], _struct(chunks[0], _META)).span[0])
        fields[_ORDINAL] = (I16, number)
        if number > _MAX_ORDINAL:
            del fields[_ORDINAL]
        return Encoded(encode_struct(dict(sorted(fields.items()))))


@dataclass(frozen=True)
class Footer:
    """A footer, its fields read but not checked any further."""

    fields: Struct

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Return the footer in the bytes between a file's pages and its last eight bytes."""
        fields, end = read_struct(content, levels=_LEVELS)
        if end != len(content):
            raise ThriftError("something follows the footer")
        return cls(fields)

    @cached_property
    def row_groups(self) -> tuple[FooterRowGroup, ...]:
        """Its row groups."""
        return tuple(FooterRowGroup(fields) for fields in _list(self.fields, _ROW_GROUPS, STRUCT))

    @cached_property
    def schema(self) -> "FooterSchema":
        """What must be the same in files that are joined."""
        names = (_SCHEMA, _COLUMN_ORDERS)
        return FooterSchema({name: self.fields[name] for name in names if name in self.fields})

    def encode(self) -> bytes:
        """Return its bytes; inverse: parse."""
        return encode_struct(self.fields)

    def require_movable(self, codec: Codec, *, end: int) -> None:
        """Refuse a footer whose row groups cannot be moved, or should not.

        Columns may be without a codec beside others that have it: see `file_encoding`.

        Args:
            codec: Of its pages.
            end: Where the footer begins, and so its pages end.
        """
        _require_known(self.fields, _FILE_FIELDS, "the footer")
        created_by = _value(self.fields, _CREATED_BY, BINARY) if _CREATED_BY in self.fields else b""
        if not is_trusted(created_by.decode("utf-8", "replace")):
            raise NotMovableError("its writer is not known to write right statistics")
        leaves = self.schema.num_leaves
        for group in self.row_groups:
            _require_known(group.fields, _GROUP_FIELDS, "a row group")
            chunks = group.chunks
            if len(chunks) != leaves:
                raise NotMovableError("a row group has not all columns")
            for chunk in chunks:
                _require_movable_chunk(chunk, codec, end)
        _require_compressed(self, codec)


@dataclass(frozen=True)
class FooterSchema:
    """The schema of a footer and the order of its columns' statistics."""

    fields: Struct

    @cached_property
    def key(self) -> bytes:
        """The same bytes for schemas whose row groups can be in one file.

        The name of the root has no meaning, nor have types in their old form beside the new one.
        """
        elements = _list(self.fields, _SCHEMA, STRUCT)
        parts = [_without(root, {_REPETITION, _NAME}) for root in elements[:1]]
        for element in elements[1:]:
            old = {_CONVERTED, _SCALE, _PRECISION} if _LOGICAL in element else set()
            parts.append(_without(element, old))
        return b"".join(encode_struct(part) for part in parts)

    @cached_property
    def digest(self) -> bytes:
        """A digest of the key, 16 bytes."""
        return hashlib.sha256(self.key).digest()[:_DIGEST_BYTES]

    @property
    def num_leaves(self) -> int:
        """How many columns chunks are of."""
        elements = _list(self.fields, _SCHEMA, STRUCT)
        leaves = sum(_CHILDREN not in element for element in elements)
        orders = _list(self.fields, _COLUMN_ORDERS, STRUCT) if _COLUMN_ORDERS in self.fields else []
        if len(orders) != leaves or any(list(order) != [1] for order in orders):
            raise NotMovableError("its statistics are not in the order of the columns' types")
        return leaves

    def footer(self, row_groups: Sequence[Encoded], num_rows: int) -> Footer:
        """Return the footer of a file of this schema with these row groups."""
        fields = {
            _VERSION: (I32, _FORMAT_VERSION),
            _SCHEMA: self.fields[_SCHEMA],
            _NUM_ROWS: (I64, num_rows),
            _ROW_GROUPS: (LIST, Items(STRUCT, list(row_groups))),
            _KEY_VALUES: (LIST, Items(STRUCT, _key_values())),
            _CREATED_BY: (BINARY, CREATED_BY.encode()),
        }
        if _COLUMN_ORDERS in self.fields:
            fields[_COLUMN_ORDERS] = self.fields[_COLUMN_ORDERS]
        return Footer(fields)

    def arrow(self) -> pa.Schema:
        """Return the schema as Arrow reads it where nothing but the columns' types says how."""
        content = MAGIC + framed(self.footer([], 0))
        try:
            return pq.ParquetFile(pa.BufferReader(content)).schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ThriftError(str(error)) from error


def _key_values() -> list[Encoded]:
    pairs = TODAYS_FOOTER.items()
    return [Encoded(encode_struct({1: (BINARY, k), 2: (BINARY, v)})) for k, v in pairs]


def read_footer(source: Source, size_bytes: int) -> tuple[Footer, int]:
    """Return the footer of an open file, and where it begins."""
    if size_bytes < len(MAGIC) + _TAIL_BYTES:
        raise NotMovableError("it is too short for Parquet")
    source.seek(size_bytes - _TAIL_BYTES)
    tail = bytes(source.read(_TAIL_BYTES))
    length = int.from_bytes(tail[:4], "little")
    start = size_bytes - _TAIL_BYTES - length
    if tail[4:] != MAGIC or start < len(MAGIC):
        raise NotMovableError("it has no footer in the clear")
    if length > _MAX_FOOTER_BYTES:
        raise NotMovableError(f"its footer has {length} bytes")
    source.seek(start)
    return Footer.parse(bytes(source.read(length))), start


def framed(footer: Footer) -> bytes:
    """Return what ends a file: the footer, its length and the magic bytes."""
    content = footer.encode()
    return content + len(content).to_bytes(4, "little") + MAGIC


def _require_movable_chunk(chunk: Chunk, codec: Codec, end: int) -> None:
    _require_known(chunk.fields, _CHUNK_FIELDS, "a column chunk")
    _require_known(chunk.column, _COLUMN_FIELDS, "a column's metadata")
    if chunk.codec not in {_CODECS[codec], _CODECS[Codec.UNCOMPRESSED]}:
        raise NotMovableError(f"its pages are not compressed by {codec.value}")
    start, size = chunk.span
    if not start <= _integer(chunk.column, _DATA) < start + size or start < _integer(
        chunk.column, _DICTIONARY, 0
    ):
        raise NotMovableError("a dictionary or the first data page is not inside its column chunk")
    if size > _MAX_CHUNK_BYTES:
        raise NotMovableError("a column chunk is too large to be held in memory")
    spans = (chunk.span, chunk.offset_index, chunk.column_index, chunk.bloom_filter)
    for start, size in (span for span in spans if span is not None):
        if start < len(MAGIC) or size <= 0 or start + size > end:
            raise NotMovableError("a column chunk or its index is not inside the file")


def _require_compressed(footer: Footer, codec: Codec) -> None:
    """Refuse a file without the codec; one that has it somewhere was given it column by column."""
    found = {chunk.codec for group in footer.row_groups for chunk in group.chunks}
    if found and _CODECS[codec] not in found:
        raise NotMovableError(f"none of its pages is compressed by {codec.value}")


def _require_known(struct: Struct, known: frozenset[int], where: str) -> None:
    unknown = sorted(set(struct) - known)
    if unknown:
        raise NotMovableError(f"{where} has fields that may say where something is: {unknown}")


def _without(struct: Struct, numbers: set[int]) -> Struct:
    return {number: field for number, field in struct.items() if number not in numbers}


def _place(fields: dict[int, Field], numbers: tuple[int, int], span: Span | None) -> None:
    for number, kind, value in zip(numbers, (I64, I32), span or (None, None), strict=True):
        fields.pop(number, None)
        if value is not None:
            fields[number] = (kind, value)


def _span(struct: Struct, numbers: tuple[int, int], kind: int) -> Span | None:
    if any(number not in struct for number in numbers):
        return None
    return _integer(struct, numbers[0]), _integer(struct, numbers[1], kind=kind)


def _integer(struct: Struct, number: int, default: int | None = None, *, kind: int = I64) -> int:
    if default is not None and number not in struct:
        return default
    found: int = _value(struct, number, kind)
    return found


def _struct(struct: Struct, number: int) -> Struct:
    found: Struct | Encoded = _value(struct, number, STRUCT)
    return read_struct(found.content)[0] if isinstance(found, Encoded) else found


def _list(struct: Struct, number: int, kind: int) -> list[Any]:
    value: Items | Encoded = _value(struct, number, LIST)
    found = read_items(value.content) if isinstance(value, Encoded) else value
    if found.values and found.kind != kind:
        raise ThriftError(f"field {number} is a list of type {found.kind}, not {kind}")
    return found.values


def _value(struct: Struct, number: int, kind: int) -> Any:  # noqa: ANN401  any of Thrift's types
    found, value = struct.get(number, (0, None))
    if found != kind:
        raise ThriftError(f"field {number} is {'of another type' if found else 'missing'}")
    return value


@lru_cache(maxsize=4096)
def _names(content: bytes) -> tuple[str, ...]:
    """Return the texts of an encoded list; the same paths come again in every row group."""
    found = read_items(content)
    if found.values and found.kind != BINARY:
        raise ThriftError(f"a path is a list of type {found.kind}, not {BINARY}")
    return tuple(map(_text, found.values))


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
