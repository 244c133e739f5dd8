"""Joining files row group by row group: the bytes of column chunks are copied, not decoded.

A file can be a source if its row groups would be read as the same rows from any file of the table:
its columns are those of the table, in order and in the very types that the table has; its pages
have the table's codec; its writer is trusted with statistics; it has the Bloom filters that are
asked for; and its footer says nothing that we do not know. All sources of a file have the same
Parquet schema, repetition and field ids included. Rows that must be decoded go into the same file
if that schema is the one we write.

Of the key-value metadata of sources nothing is kept, as when they are decoded. It cannot say how
values are to be understood: a source has the table's types without it, and `ParquetFile` knows
which keys mean another calendar.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import pyarrow as pa

from liquidlog.curve.grid import Keys
from liquidlog.data.bloom import require_possible
from liquidlog.data.chunk_statistics import known_column
from liquidlog.data.footer import (
    Chunk,
    Footer,
    FooterSchema,
    NotMovableError,
    read_footer,
)
from liquidlog.data.pages import Page, PageError, data_pages
from liquidlog.data.reader import DataFile
from liquidlog.data.row_group_digest import (
    ChunkIndexes,
    ColumnTypes,
    RowGroupDigest,
    column_types,
    read_indexes,
    spans_of,
)
from liquidlog.data.row_group_file import RowGroupFile
from liquidlog.data.row_groups import RowGroups
from liquidlog.data.spans import Spans
from liquidlog.data.statistics import KnownColumn, StatisticsCollector
from liquidlog.data.thrift import ThriftError
from liquidlog.data.writer import encoded_row_group, footer_schema
from liquidlog.errors import DataFileError, StorageError
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.spec.arrow import VARIANT, arrow_schema, is_list
from liquidlog.spec.codecs import parse_codec
from liquidlog.spec.schema import Path, StructType
from liquidlog.spec.stats import encode_stats
from liquidlog.storage.files import create
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_PART_BYTES: Final = 128 << 20
"""Columns whose ends no footer says are read in parts of about this size in memory."""


@dataclass(frozen=True)
class CopySource:
    """An open data file whose row groups can be copied: `wanted` are those that will be."""

    file: DataFile
    footer: Footer
    wanted: Sequence[int]

    @classmethod
    def of(
        cls,
        file: DataFile,
        schema: StructType,
        options: WriterOptions,
        wanted: Sequence[int] | None = None,
    ) -> Self:
        """Return an open file as a source.

        Args:
            file: All of whose rows are live, of a table without column mapping.
            schema: The table's.
            options: How outputs are written.
            wanted: The numbers of the row groups that will be copied, in order; all if None.
        """
        parquet = file.parquet
        if not parquet.calendars.are_todays:
            raise NotMovableError("it counts dates in another calendar")
        with parquet.refusing():
            source = parquet.open_bytes()
            try:
                source.seek(0, 2)
                size_bytes = source.tell()
                footer, end = read_footer(source, size_bytes)
            except ThriftError as error:
                raise NotMovableError(f"its footer cannot be taken apart: {error}") from error
            finally:
                source.close()
        _require_types(footer, arrow_schema(schema, physical=True))
        try:
            footer.require_movable(parse_codec(options.compression), end=end)
        except ThriftError as error:
            raise NotMovableError(f"its footer cannot be taken apart: {error}") from error
        _require_filters(footer, options)
        if len(footer.row_groups) != file.num_row_groups:
            raise NotMovableError("Arrow sees other row groups in its footer")
        return cls(file, footer, range(file.num_row_groups) if wanted is None else wanted)

    @cached_property
    def column_types(self) -> ColumnTypes:
        """How Arrow understands the values of its columns."""
        return column_types(self.file.parquet.metadata)

    @cached_property
    def _spans(self) -> Spans:
        groups = [self.footer.row_groups[number] for number in self.wanted]
        return Spans(spans_of(chunk for group in groups for chunk in group.chunks))

    def chunks(self, row_group: int) -> Iterator[tuple[memoryview, ChunkIndexes]]:
        """Yield (pages, indexes) of each column chunk of a row group that is wanted, checked."""
        chunks = self.footer.row_groups[row_group].chunks
        parquet = self.file.parquet
        with parquet.refusing():
            source = parquet.open_bytes()
            try:
                for chunk in chunks:
                    indexes = read_indexes(source, chunk, self._spans)
                    data = self._spans.read(source, chunk.span)
                    yield data, indexes.that_fit(chunk.span[0], self._data_pages(chunk, data))
            finally:
                source.close()

    def _data_pages(self, chunk: Chunk, content: memoryview) -> list[Page]:
        """Return the data pages of a chunk."""
        try:
            return data_pages(content, num_values=chunk.num_values)
        except PageError as error:
            name = ".".join(chunk.path)
            raise DataFileError(self.file.path, f"column {name}: {error}") from error

    def known_columns(
        self, row_group: int, statistics: StatisticsCollector, *, exact: bool
    ) -> Mapping[Path, KnownColumn]:
        """Return what the footer says for certain of leaves in a row group."""
        chunks = {chunk.path: chunk for chunk in self.footer.row_groups[row_group].chunks}
        found = {
            leaf.physical: known_column(chunks[leaf.physical], leaf, exact=exact)
            for leaf in statistics.asked
            if leaf.physical in chunks
        }
        return {path: column for path, column in found.items() if column is not None}

    def read_columns(self, row_group: int, names: list[str]) -> Iterator[pa.Table]:
        """Yield the values of top-level columns in a row group; none for no columns."""
        if not names:
            return
        rows = self.file.row_group_rows(row_group)
        parts = max(1, self.file.row_group_memory_bytes(row_group) // _PART_BYTES)
        paths = [(name,) for name in names]
        for part in self.file.read_in_parts(paths, row_group, max_rows=max(1, -(-rows // parts))):
            yield part.rename_columns(names)


class ConcatenatedFile:
    """Writes one new file of row groups that are copied and of rows that are encoded.

    A context manager; the file exists only if `finish` returned, leaving the block without it
    deletes the file.
    """

    def __init__(
        self,
        path: str,
        *,
        schema: StructType,
        options: WriterOptions,
        footer_schema: FooterSchema,
        storage: StorageOptions = NO_OPTIONS,
    ) -> None:
        """Create the file at a local path that must not exist yet, or at a URI nobody else uses.

        Args:
            path: Of the file.
            schema: The table's.
            options: How outputs are written.
            footer_schema: The Parquet schema of all sources.
            storage: Creates the file.
        """
        self._path = path
        self._options = options
        self._schema = footer_schema
        self._statistics = StatisticsCollector(schema, options)
        kinds = arrow_schema(schema, physical=True)
        self._pending = RowGroups(kinds, compression=options.compression)
        self._copied: list[int] = []
        require_possible(options.bloom_filters)
        self._file = create(path, storage)
        self._joined = RowGroupFile(self._write)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the file unless it was finished."""
        if not self._file.closed:
            self._file.discard()

    @property
    def copied(self) -> tuple[int, ...]:
        """The numbers of the row groups that are copies."""
        return tuple(self._copied)

    @property
    def encoded(self) -> tuple[int, ...]:
        """The numbers of all other row groups."""
        numbers = range(self._joined.num_row_groups)
        return tuple(number for number in numbers if number not in self._copied)

    def copy(self, source: CopySource, row_group: int) -> int:
        """Append a row group byte by byte, behind all rows so far; return its digest."""
        self._require_schema(source.footer.schema)
        self._encode_pending()
        group = source.footer.row_groups[row_group]
        digest = RowGroupDigest(source.file.parquet.metadata, row_group, source.column_types)
        self._copied.append(self._joined.num_row_groups)
        self._joined.append(group, source.chunks(row_group), digest)
        exact = self._options.tight_bounds
        known = source.known_columns(row_group, self._statistics, exact=exact)
        others = {leaf.physical[0] for leaf in self._statistics.asked if leaf.physical not in known}
        names = [name for name in source.file.schema.names if name in others]
        rest = source.read_columns(row_group, names)
        self._statistics.add_known(group.num_rows, known, rest)
        return digest.total()

    def write(self, table: pa.Table, keys: Keys | None = None) -> None:
        """Append rows, which are encoded; columns and keys as for `DataFileWriter.write`."""
        for rows in self._pending.add(table, keys):
            self._encode(rows)

    def finish(self, relative_path: str) -> WrittenFile:
        """Complete the file, make it durable and return its facts under the given path."""
        self._encode_pending()
        self._joined.finish(self._schema)
        try:
            facts = self._file.finish()
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error
        return WrittenFile(
            path=relative_path,
            size_bytes=facts.size_bytes,
            modification_time_ms=facts.modification_time_ms,
            num_records=self._joined.num_rows,
            stats=encode_stats(self._statistics.finish(), tight_bounds=self._options.tight_bounds),
        )

    def _encode_pending(self) -> None:
        for rows in self._pending.rest():
            self._encode(rows)

    def _encode(self, table: pa.Table) -> None:
        """Append rows as one row group."""
        self._statistics.add(table)
        encoding = self._pending.encoding(table)
        made = encoded_row_group(table, encoding, self._options.bloom_filters)
        self._require_schema(made.schema)
        self._joined.append(made.group, made.chunks)

    def _require_schema(self, schema: FooterSchema) -> None:
        if schema.key != self._schema.key:
            raise ValueError(f"the row groups of {self._path} would have several schemas")

    def _write(self, content: bytes | memoryview) -> None:
        try:
            self._file.write(content)
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error


def copy_key(file: DataFile | None, schema: StructType, options: WriterOptions) -> bytes | None:
    """Return what is the same for sources whose row groups can be in one file; None if for none.

    Args:
        file: Open; None if its rows are not the live ones as they are.
        schema: The table's.
        options: How outputs are written.
    """
    if file is None:
        return None
    try:
        return CopySource.of(file, schema, options).footer.schema.digest
    except NotMovableError:
        return None


def written_schema(schema: StructType, options: WriterOptions) -> FooterSchema:
    """Return the Parquet schema that we write."""
    empty = arrow_schema(schema, physical=True).empty_table()
    return footer_schema(empty, options.compression)


def _require_filters(footer: Footer, options: WriterOptions) -> None:
    wanted = {*options.bloom_filters}
    for group in footer.row_groups:
        found = {chunk.path for chunk in group.chunks if chunk.bloom_filter is not None}
        if not wanted <= found:
            raise NotMovableError("a row group lacks a Bloom filter that is asked for")


def _require_types(footer: Footer, wanted: pa.Schema) -> None:
    try:
        found = footer.schema.arrow()
    except ThriftError as error:
        raise NotMovableError(f"its schema cannot be read by itself: {error}") from error
    if not _same(pa.struct(list(found)), pa.struct(list(wanted))):
        raise NotMovableError("its columns are not exactly those of the table")


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values are stored as the table's type, whatever may be null."""
    if wanted == VARIANT:
        return False  # variants may be shredded, which only a reader sees
    if isinstance(wanted, pa.StructType):
        return (
            isinstance(found, pa.StructType)
            and [child.name for child in found] == [child.name for child in wanted]
            and all(_same(*map(_type, pair)) for pair in zip(found, wanted, strict=True))
        )
    if isinstance(wanted, pa.MapType):
        return (
            isinstance(found, pa.MapType)
            and _same(found.key_type, wanted.key_type)
            and _same(found.item_type, wanted.item_type)
        )
    if is_list(wanted):
        return is_list(found) and _same(found.value_type, wanted.value_type)
    return bool(found == wanted)


def _type(child: pa.Field) -> pa.DataType:
    return child.type
