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

from liquidlog.data.footer import (
    NO_PAGES,
    Chunk,
    Span,
    moved_offset_index,
    page_locations,
    read_footer,
)
from liquidlog.data.pages import Page
from liquidlog.data.parquet_file import ParquetFile
from liquidlog.data.thrift import Struct, ThriftError, read_struct
from liquidlog.errors import DataFileError
from liquidlog.storage.files import Source
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

READ_BYTES: Final = 32 << 20
"""Adjacent chunks are read together up to this size."""
_DIGEST_BITS: Final = 128


@dataclass(frozen=True)
class ChunkIndexes:
    """The indexes of a chunk as they are stored; None where it has none."""

    offset_index: bytes | None
    column_index: bytes | None
    bloom_filter: bytes | None

    @cached_property
    def locations(self) -> list[tuple[int, int, int]]:
        """(offset, bytes, first row) of each data page; none if it is not said.

        Raises:
            ThriftError: If the offset index is none.
        """
        return list(page_locations(self._fields))

    def moved_offset_index(self, by: int) -> bytes | None:
        """Return the offset index of the same pages, so many bytes further on."""
        return None if self.offset_index is None else moved_offset_index(self._fields, by)

    @cached_property
    def _fields(self) -> Struct:
        return NO_PAGES if self.offset_index is None else read_struct(self.offset_index)[0]

    def that_fit(self, start: int, pages: Sequence[Page]) -> "ChunkIndexes":
        """Return the indexes, without a page index that is about other pages.

        Args:
            start: Where the chunk begins in its file.
            pages: Its data pages.
        """
        expected = [(start + page, size) for page, size in pages]
        try:
            fits = [location[:2] for location in self.locations] == expected
        except ThriftError:
            fits = False
        return self if fits else ChunkIndexes(None, None, self.bloom_filter)


class RowGroupDigest:
    """Adds up what a row group is; mutable."""

    def __init__(self, footer: pq.FileMetaData, number: int) -> None:
        """Begin with what Arrow says of row group `number` as a whole."""
        self._schema = footer.schema
        self._group = group = footer.row_group(number)
        self._hash = hashlib.sha256()
        self._column = 0
        self._add(group.num_rows, group.total_byte_size, group.num_columns, group.sorting_columns)

    def add(self, pages: memoryview, indexes: ChunkIndexes) -> None:
        """Add the next column: its pages, and its indexes.

        Raises:
            ValueError: If its offset index cannot be read.
        """
        column = self._group.column(self._column)
        start = arrow_span(column)[0]
        self._add(self._column, *_type(self._schema.column(self._column)))
        self._add(*_facts(column, start))
        self._hash.update(pages)
        try:
            locations = [(page - start, *rest) for page, *rest in indexes.locations]
        except ThriftError as error:
            raise ValueError(str(error)) from error
        self._add(locations, indexes.column_index, indexes.bloom_filter)
        self._column += 1

    def total(self) -> int:
        """Return the digest of the columns that were added, a number of 128 bits."""
        self._add(self._column)
        return int.from_bytes(self._hash.digest()[: _DIGEST_BITS // 8], "big")

    def _add(self, *facts: object) -> None:
        # Texts and numbers only, each of which has one representation.
        self._hash.update(repr(facts).encode())


def stored_digests(
    path: str, row_groups: Sequence[int], storage: StorageOptions = NO_OPTIONS
) -> tuple[int, list[int]]:
    """Read row groups of a file byte by byte; return their rows and the digest of each.

    Raises:
        DataFileError: If the file cannot be read, or its footer does not say what Arrow reads.
    """
    with ParquetFile(path, storage=storage) as file, file.refusing():
        source = file.open_bytes()
        try:
            source.seek(0, 2)
            footer = read_footer(source, source.tell())[0]
            groups = footer.row_groups
            found = [
                _stored_digest(source, file.metadata, number, groups[number].chunks)
                for number in row_groups
            ]
        except (ValueError, IndexError) as error:
            raise DataFileError(path, f"cannot be proved: {error}") from error
        finally:
            source.close()
        rows = sum(file.metadata.row_group(number).num_rows for number in row_groups)
    return rows, found


def read_spans(source: Source, spans: Sequence[Span]) -> Iterator[memoryview]:
    """Yield the bytes of each span; adjacent ones are read together.

    Raises:
        EOFError: If the file ends before.
        OSError: If it cannot be read.
    """
    done = 0
    while done < len(spans):
        start, size = spans[done]
        stop, count = start + size, 1
        for next_start, next_size in spans[done + 1 :]:
            if next_start != stop or stop + next_size - start > READ_BYTES:
                break
            stop, count = stop + next_size, count + 1
        source.seek(start)
        content = memoryview(source.read(stop - start))
        if len(content) != stop - start:
            raise EOFError("the file ends inside a column chunk")
        for begin, length in spans[done : done + count]:
            yield content[begin - start : begin - start + length]
        done += count


def read_indexes(source: Source, chunks: Sequence[Chunk]) -> list[ChunkIndexes]:
    """Return the indexes of chunks.

    Raises:
        EOFError: If the file ends before.
        OSError: If it cannot be read.
    """
    columns = (
        _stored(source, [chunk.offset_index for chunk in chunks]),
        _stored(source, [chunk.column_index for chunk in chunks]),
        _stored(source, [chunk.bloom_filter for chunk in chunks]),
    )
    return [ChunkIndexes(*indexes) for indexes in zip(*columns, strict=True)]


def arrow_span(column: pq.ColumnChunkMetaData) -> Span:
    """Return where the pages of a column are, as Arrow reads the footer."""
    data, dictionary = column.data_page_offset, column.dictionary_page_offset
    start = dictionary if dictionary and 0 < dictionary < data else data
    return int(start), int(column.total_compressed_size)


def _stored_digest(
    source: Source, footer: pq.FileMetaData, number: int, chunks: Sequence[Chunk]
) -> int:
    digest, group = RowGroupDigest(footer, number), footer.row_group(number)
    columns = [group.column(place) for place in range(group.num_columns)]
    for column, chunk in zip(columns, chunks, strict=True):
        if column.has_offset_index != (chunk.offset_index is not None):
            raise ValueError("Arrow sees another offset index than there is")
    spans = [arrow_span(column) for column in columns]
    indexes = read_indexes(source, chunks)
    for pages, found in zip(read_spans(source, spans), indexes, strict=True):
        digest.add(pages, found)
    return digest.total()


def _stored(source: Source, spans: Iterable[Span | None]) -> list[bytes | None]:
    """Return the bytes of each span, None for None."""
    wanted = list(spans)
    found = read_spans(source, [span for span in wanted if span is not None])
    return [None if span is None else bytes(next(found)) for span in wanted]


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
