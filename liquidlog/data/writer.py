"""Writing one data file: Parquet as the table wants it, and the facts about it.

Everything is nullable, timestamps are INT64 microseconds, names and field ids are physical, as
the reference engine's readers expect.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.bloom import (
    EncodedRowGroup,
    FilteringWriter,
    read_encoded,
    require_possible,
    writer_arguments,
)
from liquidlog.data.buffers import integer_array
from liquidlog.data.encodings import CODES, common_type, compacted, concat, plain_type, with_indices
from liquidlog.data.exact import convert_chunks
from liquidlog.data.footer import FooterSchema, read_footer
from liquidlog.data.statistics import StatisticsCollector
from liquidlog.errors import StorageError
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.codecs import Codec, parse_codec
from liquidlog.spec.schema import Path, StructType
from liquidlog.spec.stats import encode_stats
from liquidlog.storage.files import create
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

ROW_GROUP_BYTES: Final = 64 << 20
"""A row group is closed at this many bytes in memory: about 400 000 rows of TPC-H lineitem.

Measured there from 200 000 to 800 000 rows: same CPU time, same size to 0.4 %. Smaller ones prune
better and hold less memory.
"""
ROW_GROUP_ROWS: Final = 1_000_000
"""A row group is closed at this many rows."""

_ARROW_NAMES: Final = {Codec.UNCOMPRESSED: "none", Codec.LZ4_RAW: "lz4"}
"""Of the codecs that Arrow calls something else."""

_ZSTD_LEVEL: Final = 1
# Measured on lineitem sorted along the curve, 374 000 rows per file, nanoseconds per row and size:
# level 1 543 ns and 9.34 MB, level 3 663 ns and 9.38 MB, snappy 379 ns and 13.7 MB. Text alone
# is 9 % smaller with level 3.

_BATCH_ROWS: Final = 65_536
"""Rows that Arrow encodes at a time; its default of 1024 takes 6 % longer on lineitem."""

_SAMPLE_ROWS: Final = 16_384
_DISTINCT_SHARE: Final = 0.75
"""Of a sample this large: about 27 000 distinct values in all, whose dictionary fits its page."""


class RowGroups:
    """Gathers slices of rows into row groups, one in memory at a time; mutable."""

    def __init__(self, schema: pa.Schema) -> None:
        """Gather rows of the columns of `schema`."""
        self._schema = schema
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self.pending_rows = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the row groups that fill up as rows come in.

        Raises:
            ValueError: If the columns are not the table's.
        """
        _check_columns(table.schema, self._schema)
        row_bytes = max(1, table.nbytes // max(table.num_rows, 1))
        position = 0
        while position < table.num_rows:
            room_bytes = ROW_GROUP_BYTES - self._pending_bytes
            room = min(ROW_GROUP_ROWS - self.pending_rows, max(1, room_bytes // row_bytes))
            rows = table.slice(position, room)
            self._pending.append(rows)
            self.pending_rows += rows.num_rows
            self._pending_bytes += rows.num_rows * row_bytes
            position += rows.num_rows
            if self._is_full(row_bytes):
                yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        """Yield the rows that fill no row group yet as one, if there are any."""
        if not self._pending:
            return
        table = compacted(concat(_uniform(self._pending, self._schema)).unify_dictionaries())
        self._pending, self.pending_rows, self._pending_bytes = [], 0, 0
        yield table

    def _is_full(self, row_bytes: int) -> bool:
        fits = self._pending_bytes + row_bytes <= ROW_GROUP_BYTES
        return self.pending_rows >= ROW_GROUP_ROWS or not fits


class DataFileWriter:
    """Writes slices of rows into one new file; a context manager that deletes it on failure.

    Slices are gathered into row groups, so their size does not matter. The file exists only if
    `finish` returned: leaving the block without it deletes the file.
    """

    def __init__(
        self,
        path: str,
        *,
        schema: StructType,
        options: WriterOptions,
        storage: StorageOptions = NO_OPTIONS,
    ) -> None:
        """Create the file at a local path that must not exist yet, or at a URI nobody else uses.

        Raises:
            StorageError: If the file cannot be created.
            UsageError: If the codec is unknown, a column cannot be written, or the installed
                pyarrow makes no Bloom filters.
        """
        self._path = path
        self._schema = arrow_schema(schema, physical=True)
        self._options = options
        parse_codec(options.compression)
        require_possible(options.bloom_filters)
        self._statistics = StatisticsCollector(schema, options)
        self._row_groups = RowGroups(self._schema)
        self._num_rows = 0
        self._writer: pq.ParquetWriter | FilteringWriter | None = None
        self._file = create(path, storage)

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

    def write(self, table: pa.Table) -> None:
        """Append rows with physical names; strings may be dictionary-encoded.

        Raises:
            StorageError: If the storage refuses.
            ValueError: If the columns are not the table's.
        """
        for rows in self._row_groups.add(table):
            self._write_row_group(rows)

    def finish(self, relative_path: str) -> WrittenFile:
        """Complete the file, make it durable and return its facts under the given path.

        Raises:
            StorageError: If the storage refuses.
        """
        for rows in self._row_groups.rest():
            self._write_row_group(rows)
        writer = self._writer or self._open_writer(self._schema.empty_table())
        try:
            writer.close()
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
        self._file.discard()

    def _write_row_group(self, table: pa.Table) -> None:
        """Write rows as one row group.

        Raises:
            StorageError: If the storage refuses.
        """
        self._statistics.add(table)
        try:
            if self._writer is None:
                self._writer = self._open_writer(table)
            table = _matching(table, self._writer.schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error
        self._num_rows += table.num_rows

    def _open_writer(self, first: pa.Table) -> pq.ParquetWriter | FilteringWriter:
        if self._options.bloom_filters and first.num_rows:
            encode = partial(encoded_row_group, options=self._options)
            return FilteringWriter(self._file.write, first.schema, encode)
        return _parquet_writer(self._file, first, self._options.compression)


def encoded_row_group(table: pa.Table, options: WriterOptions) -> EncodedRowGroup:
    """Return rows as one row group, as a `DataFileWriter` would write them.

    Args:
        table: Rows that `RowGroups` gathered; at least one.
        options: How outputs are written.

    Raises:
        UsageError: If the codec is unknown.
    """
    filters = writer_arguments(table, options.bloom_filters)
    return read_encoded(_encoded(table, options.compression, filters), options.bloom_filters)


def footer_schema(empty: pa.Table, compression: str) -> FooterSchema:
    """Return the Parquet schema of the files that a `DataFileWriter` writes; takes no rows.

    Raises:
        UsageError: If the codec is unknown.
    """
    source = pa.BufferReader(_encoded(empty, compression))
    return read_footer(source, source.size())[0].schema


def _encoded(
    table: pa.Table, compression: str, filters: Mapping[str, Any] = MappingProxyType({})
) -> pa.Buffer:
    """Return a Parquet file of one row group, of none without rows."""
    sink = pa.BufferOutputStream()
    with _parquet_writer(sink, table, compression, filters) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)
    return sink.getvalue()


def _parquet_writer(
    sink: object,
    first: pa.Table,
    compression: str,
    filters: Mapping[str, Any] = MappingProxyType({}),
) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        first.schema,
        use_dictionary=repetitive_leaves(first),
        data_page_version="1.0",
        coerce_timestamps="us",
        # As the reference engine; other decimals are fixed-length bytes, slower on both sides.
        store_decimal_as_integer=True,
        store_schema=False,
        write_page_index=True,
        write_page_checksum=True,
        write_batch_size=_BATCH_ROWS,
        **_codec_arguments(compression),
        **filters,
    )


def _codec_arguments(name: str) -> dict[str, Any]:
    """Return the arguments of the Parquet writer for a codec.

    Raises:
        UsageError: If the codec is unknown.
    """
    codec = parse_codec(name)
    arguments: dict[str, Any] = {"compression": _ARROW_NAMES.get(codec, codec.value)}
    return arguments | ({"compression_level": _ZSTD_LEVEL} if codec is Codec.ZSTD else {})


def _check_columns(found: pa.Schema, wanted: pa.Schema) -> None:
    if found.names != wanted.names:
        raise ValueError(f"expected columns {wanted.names}, found {found.names}")
    for child in found:
        if plain_type(child.type) != wanted.field(child.name).type:
            raise ValueError(
                f"column {child.name} must be {wanted.field(child.name).type}, found {child.type}"
            )


def _uniform(tables: Sequence[pa.Table], wanted: pa.Schema) -> list[pa.Table]:
    """Return the tables in one schema; a column stays in dictionaries if it is so in all."""
    fields = []
    for position, child in enumerate(wanted):
        common = common_type(table.schema.field(position).type for table in tables)
        # Types that are equal may differ in field ids; only those of `wanted` are the table's.
        encoded = isinstance(common, pa.DictionaryType)
        fields.append(child.with_type(pa.dictionary(CODES, child.type)) if encoded else child)
    return [_matching(table, pa.schema(fields)) for table in tables]


def _matching(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    columns = [
        _in_dictionary(column, child.type)
        if isinstance(child.type, pa.DictionaryType)
        else convert_chunks(column, child.type)
        for column, child in zip(table.itercolumns(), wanted, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=wanted)


def _in_dictionary(column: pa.ChunkedArray, wanted: pa.DictionaryType) -> pa.ChunkedArray:
    found = column if isinstance(column.type, pa.DictionaryType) else column.dictionary_encode()
    return with_indices(found, wanted.index_type)


def repetitive_leaves(table: pa.Table) -> list[str]:
    """Return the Parquet paths of the leaves for which a dictionary pays, judged by some rows.

    Arrow tries a dictionary on every column and gives up when it has grown too large; on TPC-H
    lineitem, leaving the hopeless columns out from the start saves a tenth of the encoding time.
    Leaves inside lists and maps are always returned.
    """
    if table.num_rows > _SAMPLE_ROWS:
        rows = np.linspace(0, table.num_rows - 1, _SAMPLE_ROWS, dtype=np.int64)
        table = table.take(integer_array(rows))
    return [
        ".".join(path)
        for child, column in zip(table.schema, table.itercolumns(), strict=True)
        for path in _dictionary_paths(column, (child.name,))
    ]


def _dictionary_paths(column: pa.ChunkedArray, path: Path) -> Iterator[Path]:
    kind = column.type
    if isinstance(kind, pa.StructType):
        for child in kind:
            yield from _dictionary_paths(pc.struct_field(column, [child.name]), (*path, child.name))
    elif isinstance(kind, pa.ListType | pa.MapType):
        yield from _all_paths(kind, path)
    elif _is_repetitive(column):
        yield path


def _all_paths(kind: pa.DataType, path: Path) -> Iterator[Path]:
    if isinstance(kind, pa.StructType):
        for child in kind:
            yield from _all_paths(child.type, (*path, child.name))
    elif isinstance(kind, pa.MapType):
        yield from _all_paths(kind.key_type, (*path, "key_value", "key"))
        yield from _all_paths(kind.item_type, (*path, "key_value", "value"))
    elif isinstance(kind, pa.ListType):
        yield from _all_paths(kind.value_type, (*path, "list", "element"))
    else:
        yield path


def _is_repetitive(column: pa.ChunkedArray) -> bool:
    if isinstance(column.type, pa.DictionaryType):
        column = pa.chunked_array([chunk.indices for chunk in column.chunks], CODES)
    distinct: int = pc.count_distinct(column).as_py()
    return distinct <= max(1, _DISTINCT_SHARE * len(column))
