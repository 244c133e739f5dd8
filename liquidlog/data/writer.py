"""Writing one data file: Parquet as the table wants it, and the facts about it.

Everything is nullable, timestamps are INT64 microseconds, names and field ids are physical, and the
footer says that the calendar is today's, as the reference engine's readers expect.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.curve.grid import Keys
from liquidlog.data.bloom import (
    EncodedRowGroup,
    FilteringWriter,
    read_encoded,
    require_possible,
    writer_arguments,
)
from liquidlog.data.file_encoding import FileEncoding
from liquidlog.data.footer import FooterSchema, read_footer
from liquidlog.data.row_groups import RowGroups, matching
from liquidlog.data.statistics import StatisticsCollector
from liquidlog.errors import StorageError
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.calendars import TODAYS_FOOTER
from liquidlog.spec.codecs import parse_codec
from liquidlog.spec.schema import Path, StructType
from liquidlog.spec.stats import encode_stats
from liquidlog.storage.files import Output, create
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_BUFFER_BYTES: Final = 1 << 20
"""Bytes gathered before the file is written to. Arrow writes each page and its header by itself,
and a call into Python for each takes a tenth of the time of encoding lineitem."""


class DataFileWriter:
    """Writes slices of rows into one new file; a context manager that deletes it on failure.

    Slices are gathered into row groups, so their size does not matter; where rows come with keys,
    row groups are cut where the largest boxes of these keys meet. The file exists only if
    `finish` returned: leaving the block without it deletes the file.
    """

    def __init__(
        self,
        path: str,
        *,
        schema: StructType,
        options: WriterOptions,
        storage: StorageOptions = NO_OPTIONS,
        level_bits: int = 1,
    ) -> None:
        """Create the file at a local path that must not exist yet, or at a URI nobody else uses.

        Args:
            path: Of the file.
            schema: The table's.
            options: How it is written.
            storage: Creates the file.
            level_bits: As for `curve.nested.rows_until_cut`, of the keys that come with rows.
        """
        self._path = path
        self._schema = arrow_schema(schema, physical=True)
        self._options = options
        parse_codec(options.compression)
        require_possible(options.bloom_filters)
        self._statistics = StatisticsCollector(schema, options)
        self._row_groups = RowGroups(
            self._schema, compression=options.compression, level_bits=level_bits
        )
        self._num_rows = 0
        self._writer: pq.ParquetWriter | FilteringWriter | None = None
        self._file = create(path, storage)
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(_Kept(self._file), "w"), _BUFFER_BYTES)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the file unless it was finished."""
        if not self._file.closed:
            self.discard()

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._num_rows + self._row_groups.pending_rows

    @property
    def written_bytes(self) -> int:
        """Bytes of the row groups written so far."""
        return int(self._buffer.tell())

    def write(self, table: pa.Table, keys: Keys | None = None) -> None:
        """Append rows with physical names; strings may be dictionary-encoded.

        Args:
            table: n rows.
            keys: (n,) uint64, if the rows are sorted by them, and so are all since the last call of
                `end_row_group`.
        """
        for rows in self._row_groups.add(table, keys):
            self._write_row_group(rows)

    def end_row_group(self) -> None:
        """Let the next rows begin a row group: they are not in one order with those before."""
        for rows in self._row_groups.rest():
            self._write_row_group(rows)

    def finish(self, relative_path: str) -> WrittenFile:
        """Complete the file, make it durable and return its facts under the given path."""
        self.end_row_group()
        writer = self._writer or self._open_writer(self._schema.empty_table())
        try:
            writer.close()
            self._buffer.flush()
            facts = self._file.finish()
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error
        return WrittenFile(
            path=relative_path,
            size_bytes=facts.size_bytes,
            modification_time_ms=facts.modification_time_ms,
            num_records=self._num_rows,
            stats=encode_stats(self._statistics.finish(), tight_bounds=self._options.tight_bounds),
        )

    def discard(self) -> None:
        """Close and delete the file."""
        with suppress(OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._buffer.close()
        self._file.discard()

    def _write_row_group(self, table: pa.Table) -> None:
        """Write rows as one row group."""
        self._statistics.add(table)
        try:
            if self._writer is None:
                self._writer = self._open_writer(table)
            table = matching(table, self._writer.schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error
        self._num_rows += table.num_rows

    def _open_writer(self, first: pa.Table) -> pq.ParquetWriter | FilteringWriter:
        encoding, filters = self._row_groups.encoding(first), self._options.bloom_filters
        if filters and first.num_rows:
            encode = partial(encoded_row_group, encoding=encoding, bloom_filters=filters)
            return FilteringWriter(self._buffer.write, first.schema, encode)
        return _parquet_writer(self._buffer, first, encoding)


class _Kept:
    """An output as a file for Arrow, which stays open when Arrow closes it."""

    closed = False

    def __init__(self, output: Output) -> None:
        self.write = output.write

    def flush(self) -> None:
        """Do nothing: the output is finished by its owner."""

    def close(self) -> None:
        """Do nothing: the output is closed by its owner."""


def encoded_row_group(
    table: pa.Table, encoding: FileEncoding, bloom_filters: Sequence[Path]
) -> EncodedRowGroup:
    """Return rows as one row group, as a `DataFileWriter` would write them.

    Args:
        table: Rows that `RowGroups` gathered; at least one.
        encoding: Of the file.
        bloom_filters: The leaves that may have filters, the most wanted first.
    """
    filters = writer_arguments(table, bloom_filters)
    return read_encoded(_encoded(table, encoding, filters), bloom_filters)


def footer_schema(empty: pa.Table, compression: str) -> FooterSchema:
    """Return the Parquet schema of the files that a `DataFileWriter` writes; takes no rows."""
    encoding = FileEncoding.measure(empty, compression=compression)
    source = pa.BufferReader(_encoded(empty, encoding))
    return read_footer(source, source.size())[0].schema


def encoded_bytes(table: pa.Table, options: WriterOptions) -> int:
    """Return how many bytes a file of these rows would have."""
    return len(_encoded(table, FileEncoding.measure(table, compression=options.compression)))


def _encoded(
    table: pa.Table, encoding: FileEncoding, filters: Mapping[str, Any] = MappingProxyType({})
) -> pa.Buffer:
    """Return a Parquet file of one row group, of none without rows."""
    sink = pa.BufferOutputStream()
    with _parquet_writer(sink, table, encoding, filters) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)
    return sink.getvalue()


def _parquet_writer(
    sink: object,
    first: pa.Table,
    encoding: FileEncoding,
    filters: Mapping[str, Any] = MappingProxyType({}),
) -> pq.ParquetWriter:
    writer = pq.ParquetWriter(
        sink,
        first.schema,
        write_page_checksum=True,
        **encoding.arguments(first.num_rows),
        **filters,
    )
    writer.add_key_value_metadata(TODAYS_FOOTER)
    return writer
