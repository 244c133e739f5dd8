"""The digest of a row group: the same in every file that holds it byte by byte.

It covers the bytes of the pages, where the footer says that they are; what Arrow reads in the
footer about them, types and statistics included; the page index, by where pages are in their chunk;
and Bloom filters. So a row group that was copied has the digest of its source only if readers find
the same bytes described in the same words. It is computed of the finished file alone; our own code
reads only where the indexes are, as Arrow does not say it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow.parquet as pq

from liquidlog.data.footer import Chunk, Footer, read_footer
from liquidlog.data.offset_index import PageLocation, moved_offset_index, page_locations
from liquidlog.data.pages import Page
from liquidlog.data.parquet_file import ParquetFile
from liquidlog.data.spans import Span, Spans
from liquidlog.data.thrift import I32, ThriftError, read_struct
from liquidlog.errors import DataFileError
from liquidlog.storage.files import Source
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_DIGEST_BITS: Final = 128
_FILTER_BYTES: Final = 1
"""The field of a Bloom filter's header with the size of what follows."""


@dataclass(frozen=True)
class ChunkIndexes:
    """The indexes of a chunk as they are stored; None where it has none."""

    offset_index: bytes | None
    column_index: bytes | None
    bloom_filter: bytes | None

    @cached_property
    def locations(self) -> list[PageLocation]:
        """(offset, bytes, first row) of each data page; none if it is not said."""
        return [] if self.offset_index is None else page_locations(self.offset_index)

    def moved_offset_index(self, by: int) -> bytes | None:
        """Return the offset index of the same pages, so many bytes further on."""
        return None if self.offset_index is None else moved_offset_index(self.offset_index, by)

    def that_fit(self, start: int, pages: Sequence[Page]) -> "ChunkIndexes":
        """Return the indexes, without a page index of other pages or a filter that is cut off.

        Args:
            start: Where the chunk begins in its file.
            pages: Its data pages.
        """
        expected = [(start + page, size) for page, size in pages]
        try:
            fits = [location[:2] for location in self.locations] == expected
        except ThriftError:
            fits = False
        bloom = self.bloom_filter if _is_whole(self.bloom_filter) else None
        if fits and bloom is self.bloom_filter:
            return self
        of_pages = (self.offset_index, self.column_index) if fits else (None, None)
        return ChunkIndexes(*of_pages, bloom)


class RowGroupDigest:
    """Adds up what a row group is; mutable."""

    def __init__(self, footer: pq.FileMetaData, number: int, types: "ColumnTypes") -> None:
        """Begin with what Arrow says of row group `number` as a whole.

        `types` are those of the columns of the same footer; see `column_types`.
        """
        self._types = types
        self._group = group = footer.row_group(number)
        self._hash = hashlib.sha256()
        self._column = 0
        self._add(group.num_rows, group.total_byte_size, group.num_columns, group.sorting_columns)

    def add(self, pages: memoryview, indexes: ChunkIndexes) -> None:
        """Add the next column: its pages, and its indexes."""
        column = self._group.column(self._column)
        start = arrow_span(column)[0]
        self._hash.update(self._types[self._column])
        self._hash.update(pages)
        try:
            locations = [(page - start, *rest) for page, *rest in indexes.locations]
        except ThriftError as error:
            raise ValueError(str(error)) from error
        self._add(self._column, *_facts(column, start), locations)
        for index in (indexes.column_index, indexes.bloom_filter):
            self._add(None if index is None else len(index))
            self._hash.update(index or b"")
        self._column += 1

    def total(self) -> int:
        """Return the digest of the columns that were added, a number of 128 bits."""
        self._add(self._column)
        return int.from_bytes(self._hash.digest()[: _DIGEST_BITS // 8], "big")

    def _add(self, *facts: object) -> None:
        # Texts and numbers only, each of which has one representation.
        self._hash.update(repr(facts).encode())


ColumnTypes = Sequence[bytes]
"""How the values of each column are to be understood, as bytes for the digest."""


def column_types(footer: pq.FileMetaData) -> ColumnTypes:
    """Return what Arrow says of the types of a file's columns."""
    schema = footer.schema
    return [repr(_type(schema.column(number))).encode() for number in range(len(schema))]


def stored_digests(
    path: str, row_groups: Sequence[int], storage: StorageOptions = NO_OPTIONS
) -> tuple[int, list[int]]:
    """Read row groups of a file byte by byte; return their rows and the digest of each."""
    with ParquetFile(path, storage=storage) as file, file.refusing():
        source = file.open_bytes()
        try:
            source.seek(0, 2)
            footer = read_footer(source, source.tell())[0]
            stored = _Stored(file.metadata, footer, row_groups)
            found = [stored.digest(source, number) for number in row_groups]
        except (ValueError, IndexError) as error:
            raise DataFileError(path, f"cannot be proved: {error}") from error
        finally:
            source.close()
        rows = sum(file.metadata.row_group(number).num_rows for number in row_groups)
    return rows, found


def spans_of(chunks: Iterable[Chunk]) -> Iterator[Span | None]:
    """Yield where the pages and the indexes of chunks are."""
    for chunk in chunks:
        yield chunk.span
        yield from _index_spans(chunk)


def read_indexes(source: Source, chunk: Chunk, spans: Spans) -> ChunkIndexes:
    """Return the indexes of a chunk."""
    return ChunkIndexes(*spans.read_each(source, _index_spans(chunk)))


def arrow_span(column: pq.ColumnChunkMetaData) -> Span:
    """Return where the pages of a column are, as Arrow reads the footer."""
    data, dictionary = column.data_page_offset, column.dictionary_page_offset
    start = dictionary if dictionary and 0 < dictionary < data else data
    return int(start), int(column.total_compressed_size)


class _Stored:
    """Row groups of a file that is read byte by byte."""

    def __init__(self, arrow: pq.FileMetaData, footer: Footer, row_groups: Sequence[int]) -> None:
        """Take the same footer as Arrow reads it, and as we do."""
        self._arrow = arrow
        self._groups = footer.row_groups
        self._types = column_types(arrow)
        self._pages = {
            number: [arrow_span(group.column(place)) for place in range(group.num_columns)]
            for number, group in ((number, arrow.row_group(number)) for number in row_groups)
        }
        pages = (span for spans in self._pages.values() for span in spans)
        chunks = (chunk for number in row_groups for chunk in self._groups[number].chunks)
        indexes = (span for chunk in chunks for span in _index_spans(chunk))
        self._spans = Spans([*pages, *indexes])

    def digest(self, source: Source, number: int) -> int:
        """Return the digest of a row group."""
        digest = RowGroupDigest(self._arrow, number, self._types)
        group, chunks = self._arrow.row_group(number), self._groups[number].chunks
        for place, (span, chunk) in enumerate(zip(self._pages[number], chunks, strict=True)):
            if group.column(place).has_offset_index != (chunk.offset_index is not None):
                raise ValueError("Arrow sees another offset index than there is")
            indexes = read_indexes(source, chunk, self._spans)
            digest.add(self._spans.read(source, span), indexes)
        return digest.total()


def _is_whole(bloom_filter: bytes | None) -> bool:
    """Return whether a Bloom filter has as many bytes as its header says; None is whole."""
    if bloom_filter is None:
        return True
    try:
        header, end = read_struct(bloom_filter)
    except ThriftError:
        return False
    return header.get(_FILTER_BYTES) == (I32, len(bloom_filter) - end)


def _index_spans(chunk: Chunk) -> tuple[Span | None, Span | None, Span | None]:
    return chunk.offset_index, chunk.column_index, chunk.bloom_filter


def _type(column: pq.ColumnSchema) -> tuple[object, ...]:
    """Return how the values of a column are to be understood."""
    levels = (column.max_definition_level, column.max_repetition_level)
    return column.path, *levels, column.physical_type, column.length, str(column.logical_type)


def _facts(column: pq.ColumnChunkMetaData, start: int) -> tuple[object, ...]:
    """Return what Arrow says of a column chunk that begins at `start`."""
    offsets = (column.data_page_offset, column.dictionary_page_offset)
    return (
        column.path_in_schema,
        column.physical_type,
        column.num_values,
        column.compression,
        column.encodings,
        column.total_compressed_size,
        column.total_uncompressed_size,
        [offset - start if offset else None for offset in offsets],
        _statistics(column.statistics) if column.is_stats_set else None,
    )


def _statistics(found: pq.Statistics) -> tuple[object, ...]:
    ends = (found.min_raw, found.max_raw) if found.has_min_max else None
    counts = (found.null_count, found.distinct_count, found.num_values)
    return (ends, *counts)
