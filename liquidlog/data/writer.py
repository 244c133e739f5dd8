"""Writing one data file: Parquet as the table wants it, and the facts about it.

Everything is nullable, timestamps are INT64 microseconds, names and field ids are physical, and the
footer says that the calendar is today's, as the reference engine's readers expect. Row groups are
large, because each costs a reader requests of its own; inside them, readers skip pages by their
index.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.encodings import (
    CODES,
    by_first_use,
    common_type,
    concat,
    decimal_integers,
    plain_type,
    with_indices,
    with_light_indices,
)
from liquidlog.data.exact import convert_chunks
from liquidlog.data.file_encoding import FileEncoding, require_possible
from liquidlog.data.statistics import StatisticsCollector
from liquidlog.errors import StorageError
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.spec.arguments import parse_codec
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.bounds import encode_stats
from liquidlog.spec.calendars import TODAYS_FOOTER
from liquidlog.spec.schema import StructType
from liquidlog.storage.files import NewFile, create
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

ROW_GROUP_BYTES: Final = 640 << 20
"""A row group takes at most so many bytes in memory, and has at most as many rows as asked for.

Arrow writes a row group at once, so that all its rows must be there. Those of TPC-H lineitem take
about four times their stored size here: a file of up to 145 MiB is one row group.
"""

_MOST_DECIMAL64_DIGITS: Final = 18

_BUFFER_BYTES: Final = 1 << 20
"""Bytes gathered before the file is written to. Arrow writes each page and its header by itself,
and a call into Python for each takes a tenth of the time of encoding lineitem."""


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
        sorted_by: str | None = None,
        storage: StorageOptions = NO_OPTIONS,
    ) -> None:
        """Create the file at a local path that must not exist yet, or at a URI nobody else uses.

        Rows are said to come in the order of the column `sorted_by`. The footer says so, too, if
        the file is one row group that was looked at.
        """
        self._path, self._sorted_by = path, sorted_by
        self._schema = arrow_schema(schema, physical=True)
        self._options = options
        parse_codec(options.compression)
        require_possible(options.bloom_filters)
        self._statistics = StatisticsCollector(schema, options)
        self._row_groups = _RowGroups(self._schema, max_rows=options.rows_of_a_group)
        self._num_rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._file = create(path, storage)
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(_Kept(self._file), "w"), _BUFFER_BYTES)

    def __enter__(self) -> Self:
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

    @property
    def pending_bytes(self) -> int:
        """Bytes in memory of the rows that wait for their row group."""
        return self._row_groups.pending_bytes

    def write(self, table: pa.Table) -> None:
        """Append rows with physical names; strings may be dictionary-encoded."""
        for rows in self._row_groups.add(table):
            self._write_row_group(rows)

    def end_row_group(self) -> None:
        """Write the rows that wait, few as they may be."""
        if self._row_groups.pending_rows:
            self._write_row_group(self._row_groups.take())

    def finish(self, relative_path: str) -> WrittenFile:
        """Complete the file, make it durable and return its facts under the given path."""
        if self._writer is None and self._row_groups.pending_rows:
            whole = self._row_groups.take()
            self._write_row_group(whole, sorted_by=self._order_of(whole))
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

    def _write_row_group(self, table: pa.Table, *, sorted_by: str | None = None) -> None:
        self._statistics.add(table)
        try:
            if self._writer is None:
                self._writer = self._open_writer(table, sorted_by=sorted_by)
            table = _matching(table, self._writer.schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error
        self._num_rows += table.num_rows

    def _order_of(self, whole: pa.Table) -> str | None:
        name = self._sorted_by
        return name if name is not None and _is_sorted(whole.column(name)) else None

    def _open_writer(self, first: pa.Table, *, sorted_by: str | None = None) -> pq.ParquetWriter:
        return _parquet_writer(self._buffer, first, self._options, sorted_by=sorted_by)


class _Kept:
    closed = False

    def __init__(self, output: NewFile) -> None:
        self.write = output.write

    def flush(self) -> None:
        """Do nothing: the output is finished by its owner."""

    def close(self) -> None:
        """Do nothing: the output is closed by its owner."""


class _RowGroups:
    """Gathers rows into row groups, one in memory at a time; mutable."""

    def __init__(self, schema: pa.Schema, *, max_rows: int) -> None:
        self._schema, self._light = schema, _light_schema(schema)
        self._max_rows = max_rows
        self._pending: list[pa.Table] = []
        self.pending_bytes = 0
        self.pending_rows = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        _check_columns(table.schema, self._schema)
        table = _lightened(table, self._light)
        row_bytes = max(1, table.nbytes // max(1, table.num_rows))
        start = 0
        while start < table.num_rows:
            part = table.slice(start, self._room(row_bytes))
            start += part.num_rows
            self._pending.append(part)
            self.pending_rows += part.num_rows
            self.pending_bytes += part.num_rows * row_bytes
            if self._room(row_bytes) == 0:
                yield self.take()

    def take(self) -> pa.Table:
        tables = _uniform(self._pending, self._light)
        self._pending, self.pending_bytes, self.pending_rows = [], 0, 0
        return _with_codes(by_first_use(concat(tables)))

    def _room(self, row_bytes: int) -> int:
        """Return how many rows of this width are still to come: at least one in all."""
        fitting = (ROW_GROUP_BYTES - self.pending_bytes) // row_bytes
        room = min(self._max_rows - self.pending_rows, fitting)
        return max(room, 0 if self.pending_rows else 1)


def _is_sorted(column: pa.ChunkedArray) -> bool:
    """Return whether a column has its nulls first, and then ascending values.

    Of floats nothing is said: readers differ about NaN and -0.0.
    """
    column = column.cast(plain_type(column.type))
    if pa.types.is_floating(column.type):
        return False
    if pa.types.is_decimal64(column.type):
        column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    values = column.slice(column.null_count)
    if values.null_count:
        return False
    ascending = pc.less_equal(values.slice(0, max(len(values) - 1, 0)), values.slice(1))
    return bool(pc.all(ascending).as_py() is not False)


def _check_columns(found: pa.Schema, wanted: pa.Schema) -> None:
    if found.names != wanted.names:
        raise ValueError(f"expected columns {wanted.names}, found {found.names}")
    for child in found:
        if plain_type(child.type) != wanted.field(child.name).type:
            raise ValueError(
                f"column {child.name} must be {wanted.field(child.name).type}, found {child.type}"
            )


def _light_schema(wanted: pa.Schema) -> pa.Schema:
    """Return the schema with decimals in the bytes that Parquet gives them."""
    return pa.schema([child.with_type(_light_type(child.type)) for child in wanted])


def _light_type(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_decimal128(kind) or kind.precision > _MOST_DECIMAL64_DIGITS:
        return kind
    return pa.decimal64(kind.precision, kind.scale)


def _lightened(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    for position, kind in enumerate(wanted.types):
        column = table.column(position)
        if pa.types.is_decimal64(kind):
            column = _light_decimals(column, kind)
        elif isinstance(column.type, pa.DictionaryType):
            column = with_light_indices(column)
        else:
            continue
        field = table.schema.field(position).with_type(column.type)
        table = table.set_column(position, field, column)
    return table


def _light_decimals(column: pa.ChunkedArray, kind: pa.Decimal64Type) -> pa.ChunkedArray:
    column = column.cast(plain_type(column.type))
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        # Foreign files can hold more digits than their type has; they are kept.
        chunks = []
        for chunk in column.chunks:
            integers = decimal_integers(chunk)
            if integers is None:
                raise
            chunks.append(pa.Array.from_buffers(kind, len(integers), integers.buffers()))
        return pa.chunked_array(chunks, kind)


def _uniform(tables: Sequence[pa.Table], wanted: pa.Schema) -> list[pa.Table]:
    fields = []
    for position, child in enumerate(wanted):
        common = common_type(table.schema.field(position).type for table in tables)
        # Types that are equal may differ in field ids; only those of `wanted` are the table's.
        encoded = isinstance(common, pa.DictionaryType)
        kind = pa.dictionary(common.index_type, child.type) if encoded else child.type
        fields.append(child.with_type(kind))
    return [_matching(table, pa.schema(fields)) for table in tables]


def _with_codes(table: pa.Table) -> pa.Table:
    """Return the table with the indices that dictionaries of every row group have."""
    for position, column in enumerate(table.itercolumns()):
        if isinstance(column.type, pa.DictionaryType):
            coded = with_indices(column, CODES)
            field = table.schema.field(position).with_type(coded.type)
            table = table.set_column(position, field, coded)
    return table


def _matching(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    columns = [
        _encoded(column, child.type)
        if isinstance(child.type, pa.DictionaryType)
        else convert_chunks(column, child.type)
        for column, child in zip(table.itercolumns(), wanted, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=wanted)


def _encoded(column: pa.ChunkedArray, wanted: pa.DictionaryType) -> pa.ChunkedArray:
    found = column if isinstance(column.type, pa.DictionaryType) else column.dictionary_encode()
    return with_indices(found, wanted.index_type)


def encoded_bytes(table: pa.Table, options: WriterOptions) -> int:
    """Return how many bytes a file of these rows, of which there are some, would have."""
    sink = pa.BufferOutputStream()
    table = _lightened(table, _light_schema(table.schema))
    with _parquet_writer(sink, table, options) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
    return int(sink.getvalue().size)


def _parquet_writer(
    sink: pa.NativeFile, first: pa.Table, options: WriterOptions, *, sorted_by: str | None = None
) -> pq.ParquetWriter:
    encoding = FileEncoding.measure(first, compression=options.compression)
    arguments = encoding.arguments(first, bloom_filters=options.bloom_filters)
    if sorted_by is not None:
        arguments["sorting_columns"] = pq.SortingColumn.from_ordering(
            first.schema, [(sorted_by, "ascending")], null_placement="at_start"
        )
    writer = pq.ParquetWriter(sink, first.schema, **arguments)
    writer.add_key_value_metadata(TODAYS_FOOTER)
    return writer
