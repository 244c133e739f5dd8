"""An open Parquet file whose every failure is one of our errors and whose values are checked.

Types are the file's own; `reader` makes them the table's. What the footer says about types is not
all in Arrow's schema of it: INT96 timestamps have no zone in Arrow and any precision; files of old
or legacy-mode Spark count days in another calendar, and their values are moved to today's as they
are read; dictionary pages show which columns have few values.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.data.encodings import fixed_width
from liquidlog.errors import DataFileError, StorageError
from liquidlog.spec.arrow import TIMESTAMP, is_list
from liquidlog.spec.calendars import SPARK_VERSION, Calendars, Stored, UnmovableError
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.storage.files import OtherSizeError, StoredFile
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_BUFFERS_BYTES: Final = 64 << 20
"""Of all columns together that are read page by page."""
_MIN_BUFFER_BYTES: Final = 64 << 10
_MAX_BUFFER_BYTES: Final = 8 << 20

_DICTIONARY_BITS: Final = 12
"""A column with at most this many bits per value counts as one of few distinct values."""


class ParquetFile:
    """Row groups of one file in the file's own types, INT96 as microseconds."""

    def __init__(
        self,
        path: str,
        *,
        dictionaries: frozenset[str] = frozenset(),
        storage: StorageOptions = NO_OPTIONS,
        size_bytes: int | None = None,
        stored: StoredFile | None = None,
    ) -> None:
        """Open a local path or a URI; columns in `dictionaries` stay encoded.

        `size_bytes` is the size that the log says; `stored` the same file, opened before.
        """
        self.path = path
        self.dictionaries = dictionaries
        self._stored = stored or StoredFile(path, storage, size_bytes=size_bytes)
        with self.refusing():
            self._parquet = _open(self._stored, dictionaries=dictionaries)
            self.schema = _found_schema(self._parquet)
            self.calendars = Calendars.of(_metadata(self._parquet))
            self._nanoseconds = (
                _open(self._stored, int96_unit="ns")
                if _needs_precision_check(self._parquet)
                else None
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; reading is no longer possible."""
        for parquet in (self._parquet, self._nanoseconds):
            if parquet is not None:
                parquet.close(force=True)

    def with_dictionaries(self, names: frozenset[str]) -> Self:
        """Return the file opened again, these columns left encoded; this one is closed."""
        self.close()
        return type(self)(self.path, dictionaries=names, stored=self._stored)

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer."""
        return self._parquet.metadata

    def refusal_of_old(self, meant: pa.DataType) -> str | None:
        """Return why old dates or timestamps, `meant` the table's type, are refused, else None."""
        if pa.types.is_date(meant):
            return self.calendars.refusal_of_old(Stored.DATE)
        is_int96 = _has_int96(self._parquet)
        return self.calendars.refusal_of_old(Stored.INT96 if is_int96 else Stored.INT64)

    def dictionary_candidates(self, wanted: pa.Schema) -> frozenset[str]:
        """Return the top-level string columns that the file keeps in small dictionaries."""
        bits: dict[str, float] = {}
        for group in range(self.metadata.num_row_groups):
            for index in range(self.metadata.num_columns):
                chunk = self.metadata.row_group(group).column(index)
                found = _bits_per_value(chunk) if chunk.has_dictionary_page else float("inf")
                bits[chunk.path_in_schema] = max(found, bits.get(chunk.path_in_schema, 0))
        return frozenset(
            child.name
            for child in wanted
            if child.type == pa.string() and bits.get(child.name, float("inf")) <= _DICTIONARY_BITS
        )

    def row_group_stored_bytes(self, row_group: int) -> dict[str, int]:
        """Return the bytes of each top-level column in one row group, as stored, in file order."""
        found = self.metadata.row_group(row_group)
        sizes = [found.column(leaf).total_compressed_size for leaf in range(found.num_columns)]
        return {
            name: sum(sizes[leaf] for leaf in leaves)
            for name, leaves in self._leaves_of_columns.items()
        }

    @cached_property
    def uneven_columns(self) -> frozenset[str]:
        """The top-level columns whose values may take more bytes in one row than another."""
        return frozenset(
            name
            for name, leaves in self._leaves_of_columns.items()
            if any(map(self._is_uneven, leaves))
        )

    def _is_uneven(self, leaf: int) -> bool:
        column = self._parquet.schema.column(leaf)
        if column.max_repetition_level:
            return True
        groups = range(self.metadata.num_row_groups)
        return column.physical_type == "BYTE_ARRAY" and any(
            _bits_per_value(self.metadata.row_group(group).column(leaf)) > _DICTIONARY_BITS
            for group in groups
        )

    @cached_property
    def _leaves_of_columns(self) -> dict[str, range]:
        counts = [len(list(_leaf_types(child.type))) for child in self.schema]
        edges = pairwise(accumulate(counts, initial=0))
        return {child.name: range(*edge) for child, edge in zip(self.schema, edges, strict=True)}

    def read(self, row_groups: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows of some row groups; `columns` are dotted Parquet paths or prefixes."""
        groups, names = list(row_groups), None if columns is None else list(columns)
        rows = sum(self.metadata.row_group(group).num_rows for group in groups)
        with self.refusing():
            table = _read(self._parquet, groups, names)
            if table.num_rows != rows:
                raise DataFileError(
                    self.path, f"has {table.num_rows} rows where its footer says {rows}"
                )
            if self._nanoseconds is not None:
                nanoseconds = _read(self._nanoseconds, groups, names)
                if _has_nanoseconds(table, nanoseconds):
                    raise DataFileError(self.path, "holds timestamps with nanoseconds")
        return self._in_todays_calendar(table)

    def read_in_parts(
        self, row_group: int, columns: Sequence[str] | None, *, max_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the rows of one row group as `read`, at most `max_rows` at a time.

        Needs memory for the rows of a part and a page of each column, not for the row group.
        """
        names = None if columns is None else list(columns)
        rows = 0
        with self.refusing(), ExitStack() as stack:
            share = _BUFFERS_BYTES // self.metadata.num_columns
            buffer_bytes = max(_MIN_BUFFER_BYTES, min(_MAX_BUFFER_BYTES, share))
            readers = [
                stack.enter_context(self._streamed(unit, buffer_bytes))
                for unit in (("us",) if self._nanoseconds is None else ("us", "ns"))
            ]
            options = {"batch_size": max_rows, "row_groups": [row_group], "columns": names}
            for batches in zip(
                *(reader.iter_batches(**options) for reader in readers), strict=True
            ):
                part, *nanoseconds = (pa.Table.from_batches([batch]) for batch in batches)
                rows += part.num_rows
                if nanoseconds and _has_nanoseconds(part, nanoseconds[0]):
                    raise DataFileError(self.path, "holds timestamps with nanoseconds")
                yield self._in_todays_calendar(part)
        expected = self.metadata.row_group(row_group).num_rows
        if rows != expected:
            raise DataFileError(self.path, f"has {rows} rows where its footer says {expected}")

    def _in_todays_calendar(self, table: pa.Table) -> pa.Table:
        if self.calendars.are_todays:
            return table
        columns = []
        for name, column in zip(table.schema.names, table.itercolumns(), strict=True):
            meant = self.schema.field(name).type
            try:
                chunks = [self.calendars.move(chunk, meant, (name,)) for chunk in column.chunks]
            except UnmovableError as error:
                raise DataFileError(self.path, str(error)) from error
            columns.append(pa.chunked_array(chunks, column.type))
        return pa.table(columns, schema=table.schema)

    @contextmanager
    def _streamed(self, int96_unit: str, buffer_bytes: int) -> Iterator[pq.ParquetFile]:
        parquet = _open(
            self._stored,
            int96_unit=int96_unit,
            dictionaries=self.dictionaries,
            buffer_bytes=buffer_bytes,
        )
        try:
            yield parquet
        finally:
            parquet.close(force=True)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Context manager: turn every way in which reading Parquet fails into one error."""
        try:
            yield
        except FileNotFoundError as error:
            raise DataFileError(self.path, "does not exist") from error
        except OtherSizeError as error:
            detail = f"has {error.size_bytes} bytes where the log says {error.expected_bytes}"
            raise DataFileError(self.path, detail) from None
        except StorageError as error:
            raise DataFileError(self.path, error.detail) from None
        except (pa.ArrowException, OSError, EOFError) as error:
            raise DataFileError(self.path, self._problem(error)) from error

    def _problem(self, error: Exception) -> str:
        local = Path(local_path(self.path)) if is_local(self.path) else None
        if local is not None and local.is_dir():
            return "is a directory, and a Parquet file is needed; name the files in it"
        if local is not None and local.is_file() and not local.stat().st_size:
            return "is empty, and a Parquet file is needed"
        if "magic bytes" in str(error):
            return "is not a Parquet file, or was cut off: it does not end as one does"
        return f"cannot be read as Parquet: {str(error).partition(chr(10))[0]}"


def _bits_per_value(chunk: pq.ColumnChunkMetaData) -> float:
    return float(8 * chunk.total_uncompressed_size / max(chunk.num_values, 1))


def _read(parquet: pq.ParquetFile, row_groups: list[int], columns: list[str] | None) -> pa.Table:
    """Return rows of some row groups, also where a nested column was in Arrow dictionaries.

    Every row group has its own, and Arrow does not read nested columns with more than one.
    """
    if len(row_groups) <= 1 or not any(map(_has_nested_dictionary, parquet.schema_arrow.types)):
        return parquet.read_row_groups(row_groups, columns=columns)
    return pa.concat_tables(
        parquet.read_row_groups([group], columns=columns) for group in row_groups
    )


def _has_nested_dictionary(found: pa.DataType) -> bool:
    children = [found.field(index).type for index in range(found.num_fields)]
    return any(
        isinstance(child, pa.DictionaryType) or _has_nested_dictionary(child) for child in children
    )


def _open(
    stored: StoredFile,
    *,
    int96_unit: str = "us",
    dictionaries: frozenset[str] = frozenset(),
    buffer_bytes: int = 0,
) -> pq.ParquetFile:
    source = stored.open()
    try:
        return pq.ParquetFile(
            source,
            read_dictionary=sorted(dictionaries),
            buffer_size=buffer_bytes,
            # Read ahead, whole column chunks would be in memory.
            pre_buffer=buffer_bytes == 0,
            coerce_int96_timestamp_unit=int96_unit,
            page_checksum_verification=True,
        )
    except BaseException:
        source.close()
        raise


def _found_schema(parquet: pq.ParquetFile) -> pa.Schema:
    """Return the Arrow schema of a file, INT96 as what it means: an instant in UTC."""
    schema = parquet.schema_arrow
    if not _has_int96(parquet):
        return schema
    leaves = iter(_physical_types(parquet))
    return pa.schema([child.with_type(_retyped(child.type, leaves)) for child in schema])


def _has_int96(parquet: pq.ParquetFile) -> bool:
    return "INT96" in _physical_types(parquet)


def _needs_precision_check(parquet: pq.ParquetFile) -> bool:
    """Return whether INT96 columns may hold nanoseconds: Spark never writes them, others may."""
    return _has_int96(parquet) and SPARK_VERSION not in _metadata(parquet)


def _has_nanoseconds(micros: pa.Table, nanos: pa.Table) -> bool:
    """Return whether the INT96 values of one read have digits below the microsecond.

    Takes the same rows read as microseconds and as nanoseconds. The latter wrap around outside
    the years 1677 to 2262, and so does the product here; their difference is right nonetheless.
    """
    pairs = zip(micros.itercolumns(), nanos.itercolumns(), strict=True)
    return any(
        _differ(*chunks)
        for column_us, column_ns in pairs
        for chunks in zip(column_us.chunks, column_ns.chunks, strict=True)
    )


def _metadata(parquet: pq.ParquetFile) -> dict[bytes, bytes]:
    return parquet.metadata.metadata or {}


def _physical_types(parquet: pq.ParquetFile) -> list[str]:
    schema = parquet.schema
    return [schema.column(index).physical_type for index in range(len(schema))]


def _leaf_types(found: pa.DataType) -> Iterator[pa.DataType]:
    if found.num_fields == 0:
        yield found.value_type if isinstance(found, pa.DictionaryType) else found
    for index in range(found.num_fields):
        yield from _leaf_types(found.field(index).type)


def _retyped(found: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """Return the type with INT96 leaves in UTC; takes one of `leaves` for each of its own."""
    if isinstance(found, pa.StructType):
        return pa.struct([child.with_type(_retyped(child.type, leaves)) for child in found])
    if isinstance(found, pa.MapType):
        return pa.map_(_retyped(found.key_type, leaves), _retyped(found.item_type, leaves))
    if is_list(found):
        return pa.list_(_retyped(found.value_type, leaves))
    return TIMESTAMP if next(leaves) == "INT96" else found


def _differ(micros: pa.Array, nanos: pa.Array) -> bool:
    kind = nanos.type
    if isinstance(kind, pa.StructType):
        pairs = zip(micros.flatten(), nanos.flatten(), strict=True)
        return any(_differ(us, ns) for us, ns in pairs)
    if isinstance(kind, (pa.ListType, pa.MapType)):
        return _differ(micros.values, nanos.values)
    if micros.type == kind or not isinstance(kind, pa.TimestampType):
        return False
    us = fixed_width(micros.drop_null(), np.uint64)
    ns = fixed_width(nanos.drop_null(), np.uint64)
    return bool(np.any(us * np.uint64(1000) != ns))
