"""Opens data files: in the table's types, without deleted rows, with the row ids they keep.

Columns and paths are physical names. A table that maps columns by id finds them by the field ids
of the file. INT96 timestamps have no zone in Arrow, and any precision. Files of old Spark, or of
its legacy mode, count days in another calendar.

*Physical* rows are the rows of the Parquet file; deletion vectors and row ids number them. *Live*
rows are not deleted; callers see only these. A column whose one value for the whole file is in the
log looks like any other column.

Source: Apache Parquet format, LogicalTypes.md; PROTOCOL.md, "Reader Requirements for Column
Mapping"; PROTOCOL.md, "Deletion Vectors" and "Reader Requirements for Row Tracking".
"""

import pathlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import structs

from liquidlog.data.encodings import (
    CODES,
    Leniency,
    convert_chunks,
    differences,
    fixed_width,
    integer_array,
    nulls,
)
from liquidlog.data.runs import Run
from liquidlog.errors import CorruptLogError, DataFileError, StorageError, UsageError
from liquidlog.plan import InputFile, ReadPlan, RowTracking, file_schema
from liquidlog.spec.actions import (
    FILE_VERSION,
    DeletionVector,
    DeletionVectorError,
    Positions,
    deleted_positions,
    encoded_payload,
    framed_bytes,
    framed_payload,
    inline_payload,
    stored_vector,
    vector_file,
    vector_file_name,
    vector_path,
)
from liquidlog.spec.arrow import (
    PARQUET_FIELD_ID,
    SPARK_VERSION,
    TIMESTAMP,
    VARIANT,
    Calendars,
    PartitionTexts,
    Stored,
    UnmovableError,
    arrow_schema,
    arrow_type,
    data_schema,
    is_list,
    typed_value,
    with_leaf_types,
    without_void,
)
from liquidlog.spec.features import earlier_types
from liquidlog.spec.schema import (
    MappingMode,
    Path,
    StructField,
    StructType,
    parse_schema,
    quote_path,
)
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    StorageOptions,
    file_address,
    is_local,
    local_path,
)
from liquidlog.storage.files import StoredFile, open_input, put_if_absent
from liquidlog.storage.objects import AmbiguousPutError, OtherSizeError

_BUFFERS_BYTES: Final = 64 << 20
"""For all columns together that are read page by page."""
_MIN_BUFFER_BYTES: Final = 64 << 10
_MAX_BUFFER_BYTES: Final = 8 << 20
_DICTIONARY_BITS: Final = 12
"""A column with at most this many bits per value counts as one of few distinct values."""


class Closing(ABC):
    """Context manager that closes an object at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class ParquetFile(Closing):
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
        """Open a local path or a URI; columns in `dictionaries` stay encoded."""
        self.path = path
        self.dictionaries = dictionaries
        self._stored = stored or StoredFile(path, storage, size_bytes=size_bytes)
        with self.refusing():
            self._parquet = _open(self._stored, dictionaries=dictionaries)
            self.metadata: pq.FileMetaData = self._parquet.metadata
            self.schema, self._has_int96 = _found_schema(self._parquet)
            written = self.metadata.metadata or {}
            self.calendars = Calendars.of(written)
            # Spark never writes nanoseconds into INT96, others may.
            may_hold = self._has_int96 and SPARK_VERSION not in written
            self._nanoseconds = _open(self._stored, int96_unit="ns") if may_hold else None

    def close(self) -> None:
        for parquet in (self._parquet, self._nanoseconds):
            if parquet is not None:
                parquet.close(force=True)

    def refusal_of_old(self, meant: pa.DataType) -> str | None:
        """Return why old dates or timestamps of the table's type `meant` are refused, else None."""
        if pa.types.is_date(meant):
            return self.calendars.refusal_of_old(Stored.DATE)
        return self.calendars.refusal_of_old(Stored.INT96 if self._has_int96 else Stored.INT64)

    def with_dictionaries(self, wanted: pa.Schema) -> Self:
        """Return the file with its top-level strings in small dictionaries encoded; close this."""
        bits: dict[str, float] = {}
        for group in range(self.metadata.num_row_groups):
            for index in range(self.metadata.num_columns):
                chunk = self.metadata.row_group(group).column(index)
                found = _bits_per_value(chunk) if chunk.has_dictionary_page else float("inf")
                bits[chunk.path_in_schema] = max(found, bits.get(chunk.path_in_schema, 0))
        names = frozenset(
            child.name
            for child in wanted
            if child.type == pa.string() and bits.get(child.name, float("inf")) <= _DICTIONARY_BITS
        )
        if not names:
            return self
        self.close()
        return type(self)(self.path, dictionaries=names, stored=self._stored)

    def row_group_stored_bytes(self, row_group: int) -> dict[str, int]:
        """Return the stored bytes of each top-level column in one row group, in file order."""
        found = self.metadata.row_group(row_group)
        sizes = [found.column(leaf).total_compressed_size for leaf in range(found.num_columns)]
        return {
            name: sum(sizes[leaf] for leaf in leaves)
            for name, leaves in self._leaves_of_columns.items()
        }

    @cached_property
    def uneven_columns(self) -> frozenset[str]:
        """The top-level columns whose values may take more bytes in one row than another."""
        groups = [self.metadata.row_group(n) for n in range(self.metadata.num_row_groups)]

        def is_uneven(leaf: int) -> bool:
            column = self._parquet.schema.column(leaf)
            return bool(column.max_repetition_level) or (
                column.physical_type == "BYTE_ARRAY"
                and any(_bits_per_value(group.column(leaf)) > _DICTIONARY_BITS for group in groups)
            )

        columns = self._leaves_of_columns.items()
        return frozenset(name for name, leaves in columns if any(map(is_uneven, leaves)))

    @cached_property
    def _leaves_of_columns(self) -> dict[str, range]:
        counts = [len(list(leaf_types(child.type, None))) for child in self.schema]
        edges = pairwise(accumulate(counts, initial=0))
        return {child.name: range(*edge) for child, edge in zip(self.schema, edges, strict=True)}

    def read(self, row_groups: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows of some row groups; `columns` are dotted Parquet paths or prefixes."""
        groups, names = list(row_groups), None if columns is None else list(columns)
        rows = sum(self.metadata.row_group(group).num_rows for group in groups)
        with self.refusing():
            table = _read(self._parquet, groups, names)
            if table.num_rows != rows:
                detail = f"has {table.num_rows} rows where its footer says {rows}"
                raise DataFileError(self.path, detail)
            nanoseconds = self._nanoseconds and _read(self._nanoseconds, groups, names)
        return self._exact(table, nanoseconds)

    def read_in_parts(
        self, row_group: int, columns: Sequence[str] | None, *, max_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the rows of one row group, at most `max_rows` and a page per column in memory."""
        names = None if columns is None else list(columns)
        rows = 0
        with self.refusing(), ExitStack() as stack:
            share = _BUFFERS_BYTES // self.metadata.num_columns
            buffer_bytes = max(_MIN_BUFFER_BYTES, min(_MAX_BUFFER_BYTES, share))
            readers = []
            for unit in ("us",) if self._nanoseconds is None else ("us", "ns"):
                parquet = _open(
                    self._stored,
                    int96_unit=unit,
                    dictionaries=self.dictionaries,
                    buffer_bytes=buffer_bytes,
                )
                stack.callback(parquet.close, force=True)
                readers.append(parquet)
            options = {"batch_size": max_rows, "row_groups": [row_group], "columns": names}
            batches_read = (reader.iter_batches(**options) for reader in readers)
            for batches in zip(*batches_read, strict=True):
                part, *nanoseconds = (pa.Table.from_batches([batch]) for batch in batches)
                rows += part.num_rows
                yield self._exact(part, *nanoseconds)
        expected = self.metadata.row_group(row_group).num_rows
        if rows != expected:
            raise DataFileError(self.path, f"has {rows} rows where its footer says {expected}")

    def _exact(self, table: pa.Table, nanoseconds: pa.Table | None = None) -> pa.Table:
        """Return the rows in today's calendar; refuse timestamps with nanoseconds."""
        if nanoseconds is not None and _has_nanoseconds(table, nanoseconds):
            raise DataFileError(self.path, "holds timestamps with nanoseconds")
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
    def refusing(self) -> Iterator[None]:
        """Context manager: turn every failure of reading Parquet into one error."""
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
        local = pathlib.Path(local_path(self.path)) if is_local(self.path) else None
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
    # Each row group has dictionaries of its own; Arrow reads no nested columns with several.
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
            # With pre-buffering, whole column chunks would be in memory.
            pre_buffer=buffer_bytes == 0,
            coerce_int96_timestamp_unit=int96_unit,
            page_checksum_verification=True,
        )
    except BaseException:
        source.close()
        raise


def _found_schema(parquet: pq.ParquetFile) -> tuple[pa.Schema, bool]:
    """Return the Arrow schema of a file, with INT96 as instants in UTC, and whether it has any."""
    schema, columns = parquet.schema_arrow, parquet.schema
    kinds = [columns.column(index).physical_type for index in range(len(columns))]
    if "INT96" not in kinds:
        return schema, False
    leaves = iter(kinds)
    typed = with_leaf_types(
        pa.struct(list(schema)), lambda found: TIMESTAMP if next(leaves) == "INT96" else found
    )
    return pa.schema(list(typed)), True


def _has_nanoseconds(micros: pa.Table, nanos: pa.Table) -> bool:
    pairs = zip(micros.itercolumns(), nanos.itercolumns(), strict=True)
    return any(
        _differ(*chunks)
        for column_us, column_ns in pairs
        for chunks in zip(column_us.chunks, column_ns.chunks, strict=True)
    )


def leaf_types(kind: pa.DataType, path: Path | None) -> Iterator[tuple[Path | None, pa.DataType]]:
    """Yield (path, type) of every leaf in the order of Parquet; the path is None inside a list."""
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    if kind.num_fields == 0:
        yield path, kind
    is_struct = isinstance(kind, pa.StructType)
    for child in (kind.field(number) for number in range(kind.num_fields)):
        below = None if path is None or not is_struct else (*path, child.name)
        yield from leaf_types(child.type, below)


def _differ(micros: pa.Array, nanos: pa.Array) -> bool:
    kind = nanos.type
    if isinstance(kind, pa.StructType):
        pairs = zip(micros.flatten(), nanos.flatten(), strict=True)
        return any(_differ(us, ns) for us, ns in pairs)
    if isinstance(kind, (pa.ListType, pa.MapType)):
        return _differ(micros.values, nanos.values)
    if micros.type == kind or not isinstance(kind, pa.TimestampType):
        return False
    # Nanoseconds wrap around outside the years 1677 to 2262, and so does the product.
    us = fixed_width(micros.drop_null(), np.uint64)
    ns = fixed_width(nanos.drop_null(), np.uint64)
    return bool(np.any(us * np.uint64(1000) != ns))


CHANGE_COLUMNS: Final = frozenset({"_change_type", "__is_cdc"})
"""Columns that change data capture leaves in data files; no table has them."""
_WIDTHS: Final = {
    "BOOLEAN": 1,
    "INT32": 4,
    "INT64": 8,
    "INT96": 8,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 4,
    "FIXED_LEN_BYTE_ARRAY": 16,
}
"""Least bytes in memory of a value by its physical type."""
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())


_Ids = list[tuple[Path, str | None]]


@dataclass(frozen=True, slots=True)
class _FileColumns:
    stored: pa.Schema
    named: pa.Schema
    ids: _Ids | None = None
    """Paths and field ids of columns that are found by id, None if columns are found by name."""

    def without(self, names: frozenset[str]) -> "_FileColumns":
        kept = [n for n, child in enumerate(self.named) if child.name not in names]
        stored, named = ([schema.field(n) for n in kept] for schema in (self.stored, self.named))
        left = {child.name for child in stored}
        ids = self.ids and [one for one in self.ids if one[0][0] in left]
        return _FileColumns(pa.schema(stored), pa.schema(named), ids)

    def problems(self) -> Iterator[str]:
        """Yield why field ids do not identify columns for certain; nothing without ids."""
        counted = Counter(field_id for _, field_id in self.ids or ())
        for path, field_id in self.ids or ():
            name = quote_path(path)
            if field_id is None:
                yield f"column {name} has no field id, and the table finds columns by it"
            elif counted[field_id] > 1:
                yield f"column {name} has the field id {field_id}, as another column has"

    def stored_path(self, path: Path) -> Path | None:
        found: list[str] = []
        stored: pa.Schema | pa.DataType = self.stored
        named: pa.Schema | pa.DataType = self.named
        for part in path:
            position = _position_of(named, part)
            if position is None:
                return None
            found.append(stored.field(position).name)
            stored, named = stored.field(position).type, named.field(position).type
        return tuple(found)


class DataFile(Closing):
    """An open data file whose rows can be read exactly, in the table's types."""

    def __init__(self, file: ParquetFile, wanted: pa.Schema, columns: _FileColumns) -> None:
        """Use `open`; this does not check anything."""
        self.path, self.parquet = file.path, file
        self.schema = wanted
        self.num_rows = int(file.metadata.num_rows)
        """Physical rows of the file."""
        self.num_row_groups = int(file.metadata.num_row_groups)
        self._columns = columns

    @classmethod
    def open(
        cls,
        path: str,
        *,
        schema: StructType,
        mapping: MappingMode = MappingMode.NONE,
        dictionary: bool = False,
        ignored: frozenset[str] = frozenset(),
        storage: StorageOptions = NO_OPTIONS,
        size_bytes: int | None = None,
    ) -> Self:
        """Open a file in the types of `arrow_schema(schema, physical=True)`, or refuse it.

        Unknown columns are left out if columns are mapped. `ignored` columns are null if the table
        has them. With `dictionary`, strings in small dictionaries stay encoded.
        """
        wanted = arrow_schema(schema, physical=True)
        file = ParquetFile(path, storage=storage, size_bytes=size_bytes)
        columns = find_columns(file.schema, wanted, mapping)
        try:
            own = columns.without(CHANGE_COLUMNS | ignored)
            earlier = earlier_types(schema)
            leniency = Leniency(
                missing_is_null=True,
                surplus_is_dropped=mapping is not MappingMode.NONE,
                earlier={path: frozenset(map(arrow_type, earlier[path])) for path in earlier},
                as_spark_reads=True,
            )
            _check(file, wanted, own, leniency)
        except DataFileError:
            file.close()
            raise
        if dictionary:
            stored = ((child, own.stored_path((child.name,))) for child in wanted)
            names = [child.with_name(path[0]) for child, path in stored if path]
            file = file.with_dictionaries(pa.schema(names))
        return cls(file, wanted, own)

    def close(self) -> None:
        self.parquet.close()

    def row_group_rows(self, index: int) -> int:
        return int(self.parquet.metadata.row_group(index).num_rows)

    def row_group_memory_bytes(self, index: int) -> int:
        """Return about how many bytes the rows of one row group take in memory."""
        group = self.parquet.metadata.row_group(index)
        chunks = map(group.column, range(group.num_columns))
        return sum(
            max(chunk.total_uncompressed_size, chunk.num_values * _WIDTHS[chunk.physical_type])
            for chunk in chunks
        )

    def uneven_columns(self, index: int) -> dict[Path, int]:
        """Return the stored bytes in one row group of the columns whose values differ in width."""
        found = self.parquet.uneven_columns
        stored_bytes = self.parquet.row_group_stored_bytes(index)
        return {
            (named.name,): stored_bytes[stored.name]
            for stored, named in zip(self._columns.stored, self._columns.named, strict=True)
            if stored.name in found and named.name in self.schema.names
        }

    def row_group_stored_bytes(self, index: int) -> int:
        return sum(self.parquet.row_group_stored_bytes(index).values())

    def stored_bytes(self, index: int, columns: Sequence[Path] | None) -> int:
        """Return the stored bytes of columns in one row group, of all if None."""
        held = {(self._columns.stored_path(path) or ("",))[0] for path in self._paths(columns)}
        sizes = self.parquet.row_group_stored_bytes(index)
        return sum(size for name, size in sizes.items() if name in held)

    def read(
        self, columns: Sequence[Path] | None = None, row_groups: Sequence[int] | None = None
    ) -> pa.Table:
        """Return rows in file order, of some row groups; columns that the file lacks are null.

        With `columns`, the result is flat and named by `quote_path`; None stands for all columns.
        """
        groups = list(range(self.num_row_groups)) if row_groups is None else list(row_groups)
        rows = sum(self.row_group_rows(group) for group in groups)
        return self._table(self.parquet.read(groups, self._held(columns)), columns, rows)

    def read_in_parts(
        self, columns: Sequence[Path] | None, row_group: int, *, max_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the rows of one row group as `read`, at most `max_rows` at a time."""
        held = self._held(columns)
        if not held:
            # Without columns Parquet has no rows to give in parts; nulls take no memory.
            yield self.read(columns, [row_group])
            return
        for part in self.parquet.read_in_parts(row_group, held, max_rows=max_rows):
            yield self._table(part, columns, part.num_rows)

    def read_bounded(
        self, columns: Sequence[Path] | None, row_group: int, *, max_bytes: int
    ) -> Iterator[pa.Table]:
        """Yield the rows of one row group as `read`, about `max_bytes` of all columns at a time."""
        memory_bytes = self.row_group_memory_bytes(row_group)
        if memory_bytes <= max_bytes:
            yield self.read(columns, [row_group])
            return
        rows = self.row_group_rows(row_group)
        max_rows = max(1, rows * max_bytes // memory_bytes)
        yield from self.read_in_parts(columns, row_group, max_rows=max_rows)

    def parts(self, *, max_bytes: int) -> Iterator[pa.Table]:
        """Yield all rows of all columns in file order, about `max_bytes` at a time."""
        for group in range(self.num_row_groups):
            yield from self.read_bounded(None, group, max_bytes=max_bytes)

    def _held(self, columns: Sequence[Path] | None) -> list[str]:
        stored = map(self._columns.stored_path, self._paths(columns))
        return [".".join(path) for path in stored if path]

    def _paths(self, columns: Sequence[Path] | None) -> list[Path]:
        return [(name,) for name in self.schema.names] if columns is None else list(columns)

    def _table(self, found: pa.Table, columns: Sequence[Path] | None, rows: int) -> pa.Table:
        paths = self._paths(columns)
        names = self.schema.names if columns is None else [quote_path(path) for path in paths]
        return pa.table([self._column(found, path, rows) for path in paths], names=names)

    def _column(self, table: pa.Table, path: Path, rows: int) -> pa.ChunkedArray:
        wanted = _descend(self.schema, path)
        if wanted is None:
            raise DataFileError(self.path, f"cannot give {quote_path(path)}: the table has no such")
        stored = self._columns.stored_path(path)
        if stored is None:
            return pa.chunked_array([nulls(rows, wanted)])
        column = table.column(table.schema.get_field_index(stored[0]))
        if len(stored) > 1:
            column = pc.struct_field(column, list(stored[1:]))
        if stored[0] in self.parquet.dictionaries and column.type == _DICTIONARY:
            return column
        if self._columns.ids is not None:
            column = with_names_of(column, _descend(self._columns.named, path))
        try:
            return convert_chunks(column, wanted)
        except pa.ArrowInvalid as error:
            detail = f"column {quote_path(path)} cannot be kept exactly: {error}"
            raise DataFileError(self.path, detail) from error


def _check(file: ParquetFile, wanted: pa.Schema, columns: _FileColumns, leniency: Leniency) -> None:
    problems = list(columns.problems())
    mapped = {child.name for child in wanted if _field_id_of(child) is not None}
    if leniency.surplus_is_dropped and not mapped & set(columns.named.names):
        # All its columns may have been dropped, but a file with wrong names looks the same.
        problems.append("has none of the table's columns")
    if not problems:
        found = pa.struct(list(columns.named))
        problems.extend(differences(found, pa.struct(list(wanted)), (), leniency))
    if problems:
        raise DataFileError(file.path, "; ".join(problems))


def _descend(schema: pa.Schema, path: Path) -> pa.DataType | None:
    found: pa.Schema | pa.DataType = schema
    for part in path:
        position = _position_of(found, part)
        if position is None:
            return None
        found = found.field(position).type
    return found


def _position_of(parent: pa.Schema | pa.DataType, name: str) -> int | None:
    is_struct = isinstance(parent, pa.Schema | pa.StructType)
    position = int(parent.get_field_index(name)) if is_struct else -1
    return position if position >= 0 else None


def find_columns(stored: pa.Schema, wanted: pa.Schema, mode: MappingMode) -> _FileColumns:
    """Return where columns are in a file: found by name or, except hidden ones, by id."""
    if mode is not MappingMode.ID:
        return _FileColumns(stored, stored)
    ids: _Ids = []
    named = _named(pa.struct(list(stored)), pa.struct(list(wanted)), (), ids)
    return _FileColumns(stored, pa.schema(list(named)), ids)


def with_names_of(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return nested values under the field names of `wanted`, which has the same parts."""
    if not pa.types.is_nested(wanted):
        return column
    return pa.chunked_array([chunk.view(wanted) for chunk in column.chunks], wanted)


def _named(stored: pa.DataType, wanted: pa.DataType, path: Path, ids: _Ids) -> pa.DataType:
    """Return a type with the names of the wanted one; add to `ids` the parts found by field id."""
    if wanted == VARIANT:
        return stored
    if isinstance(stored, pa.StructType) and isinstance(wanted, pa.StructType):
        by_id = {found: child for child in wanted if (found := _field_id_of(child)) is not None}
        hidden = frozenset(child.name for child in wanted if _field_id_of(child) is None)
        return pa.struct([_named_field(child, by_id, hidden, path, ids) for child in stored])
    if isinstance(stored, pa.MapType) and isinstance(wanted, pa.MapType):
        key = _named(stored.key_type, wanted.key_type, (*path, "key"), ids)
        return pa.map_(key, _named(stored.item_type, wanted.item_type, (*path, "value"), ids))
    if is_list(stored) and is_list(wanted):
        element = _named(stored.value_type, wanted.value_type, (*path, "element"), ids)
        return pa.list_(pa.field("element", element))
    return stored


def _named_field(
    stored: pa.Field, by_id: dict[str, pa.Field], hidden: frozenset[str], path: Path, ids: _Ids
) -> pa.Field:
    field_id, below = _field_id_of(stored), (*path, stored.name)
    if field_id is not None or stored.name not in hidden:
        ids.append((below, field_id))
    wanted = by_id.get(field_id or "")
    if wanted is not None:
        return pa.field(wanted.name, _named(stored.type, wanted.type, below, ids))
    # Other columns get names that no wanted one has.
    taken = (child.name for child in by_id.values())
    clashes = stored.name in taken or (stored.name in hidden and field_id is not None)
    name = f"{stored.name} (field id {field_id})" if clashes else stored.name
    return pa.field(name, stored.type)


def _field_id_of(field: pa.Field) -> str | None:
    found = (field.metadata or {}).get(PARQUET_FIELD_ID)
    return None if found is None else found.decode()


class Located(NamedTuple):
    """A data file: its action, its path, and the path of its deletion vector's file, if any."""

    file: InputFile
    path: str
    vector_path: str | None = None

    @classmethod
    def of(cls, table_uri: str, file: InputFile) -> Self:
        """Return the paths or URIs of a table's file."""
        planned = file.deletion_vector
        vector = None if planned is None else planned.descriptor
        vector_location = located_vector(table_uri, vector, data_file=file.path)
        return cls(file, file_address(table_uri, file.path), vector_location)


def located_vector(table_uri: str, vector: DeletionVector | None, *, data_file: str) -> str | None:
    """Return the local path or URI of the file that holds a vector, None for one in the log."""
    if vector is None:
        return None
    try:
        path = vector_path(vector)
        return None if path is None else file_address(table_uri, path)
    except DeletionVectorError as error:
        raise DataFileError(data_file, str(error)) from error
    except (UsageError, CorruptLogError) as error:
        detail = f"its deletion vector has no usable address: {error.message}"
        raise DataFileError(data_file, detail) from error


def read_deletion_vector(
    vector: DeletionVector | None,
    *,
    location: str | None,
    data_file: str,
    num_rows: int,
    storage: StorageOptions = NO_OPTIONS,
) -> Positions:
    """Return the physical rows of a data file that are deleted, (n,) uint64, increasing."""
    if vector is None:
        return np.empty(0, np.uint64)
    try:
        payload = inline_payload(vector) if location is None else _stored(vector, location, storage)
        return deleted_positions(payload, cardinality=vector.cardinality, num_rows=num_rows)
    except ValueError as error:
        raise DataFileError(data_file, str(error)) from error
    except OSError as error:
        detail = f"its deletion vector cannot be read from {location}: {error.strerror or error}"
        raise DataFileError(data_file, detail) from error
    except StorageError as error:
        detail = f"its deletion vector cannot be read: {error.message}"
        raise DataFileError(data_file, detail) from None


def _stored(vector: DeletionVector, location: str, storage: StorageOptions) -> bytes:
    offset, length = framed_bytes(vector)
    with open_input(location, storage) as file:
        version = file.read(1)
        if version != bytes([FILE_VERSION]):
            raise ValueError(f"its deletion vector is in a file of an unknown version: {location}")
        file.seek(offset)
        return framed_payload(vector, file.read(length))


def write_vector(run: Run, positions: Positions, *, unique_id: str) -> DeletionVector:
    """Write a file with one deletion vector of a run, read it back, and return its descriptor."""
    payload = encoded_payload(positions)
    uuid = run.uuid(unique_id)
    vector = stored_vector(uuid, payload, cardinality=len(positions))
    name = vector_file_name(uuid)
    address = f"{run.directory}/{name}"
    try:
        if not put_if_absent(address, vector_file(payload), run.storage):
            raise StorageError(address, "is there already, though its name is unique to one run")
    except AmbiguousPutError:
        pass  # the file that is there now decides
    with run.accepting(name):
        _require_written(vector, address, positions, run.storage)
    return vector


def _require_written(
    vector: DeletionVector, address: str, positions: Positions, storage: StorageOptions
) -> None:
    most = int(positions[-1]) + 1
    try:
        found = read_deletion_vector(
            vector, location=address, data_file=address, num_rows=most, storage=storage
        )
    except DataFileError as error:
        raise StorageError(address, f"is not what was written: {error.detail}") from error
    if not np.array_equal(found, positions):
        raise StorageError(address, "is not what was written: it deletes other rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLayout:
    """How data files of a table are read; all names are physical.

    `schema` has the columns that are read. `partition_columns` are not read, even if a file holds
    them. `constant_columns` are columns of `schema`, but the log has their values.
    """

    schema: StructType
    mapping: MappingMode = MappingMode.NONE
    row_tracking: RowTracking | None = None
    partition_columns: tuple[str, ...] = ()
    constant_columns: tuple[str, ...] = ()


Span = tuple[int, int]
"""The first row of consecutive physical rows, and the row after the last."""


class LogicalFile(Closing):
    """An open data file with its deletion vector applied."""

    def __init__(
        self,
        file: DataFile,
        deleted: Positions,
        *,
        source: InputFile,
        row_tracking: RowTracking | None,
        constants: Mapping[str, pa.Scalar],
    ) -> None:
        """Use `open`; this does not check anything."""
        self.file = file
        self._constants = constants
        self._deleted = deleted
        self._source = source
        self._row_tracking = row_tracking
        groups = range(file.num_row_groups)
        self._starts = [0, *accumulate(file.row_group_rows(group) for group in groups)]
        edges = np.searchsorted(deleted, np.array(self._starts, np.uint64))
        self._edges: list[int] = edges.tolist()
        self.num_rows = self._starts[-1] - len(deleted)
        """Live rows of the file."""

    @classmethod
    def open(
        cls,
        located: Located,
        layout: DataLayout,
        *,
        dictionary: bool = False,
        storage: StorageOptions = NO_OPTIONS,
    ) -> Self:
        """Open a file and compare it with its entry in the log."""
        source, path, vector_location = located
        row_tracking, hidden = layout.row_tracking, frozenset[str]()
        constants = _constants(located, layout, dictionary=dictionary)
        if row_tracking is not None and not row_tracking.preserved:
            hidden = frozenset({row_tracking.row_id_column, row_tracking.row_commit_version_column})
        file = DataFile.open(
            path,
            schema=file_schema(layout.schema, row_tracking),
            mapping=layout.mapping,
            dictionary=dictionary,
            ignored=hidden.union(layout.partition_columns, constants),
            storage=storage,
            size_bytes=source.size_bytes,
        )
        try:
            _check_input(file, source, row_tracking)
            deleted = read_deletion_vector(
                None if source.deletion_vector is None else source.deletion_vector.descriptor,
                location=vector_location,
                data_file=path,
                num_rows=file.num_rows,
                storage=storage,
            )
        except DataFileError:
            file.close()
            raise
        return cls(file, deleted, source=source, row_tracking=row_tracking, constants=constants)

    def close(self) -> None:
        self.file.close()

    def row_group_rows(self, index: int) -> int:
        """Return the live rows of one row group."""
        return self.row_group_physical_rows(index) - (self._edges[index + 1] - self._edges[index])

    def row_group_physical_rows(self, index: int) -> int:
        """Return the rows of one row group, with the deleted ones."""
        return self._starts[index + 1] - self._starts[index]

    def read(
        self, columns: Sequence[Path] | None = None, row_groups: Sequence[int] | None = None
    ) -> pa.Table:
        """Return live rows in file order, as `DataFile.read`; of all columns, hidden ones last."""
        wanted = range(self.file.num_row_groups) if row_groups is None else row_groups
        groups = [group for group in wanted if self.row_group_rows(group)]
        spans = [(self._starts[group], self._starts[group + 1]) for group in groups]
        return self._logical(self.file.read(columns, groups), spans, columns)

    def read_in_parts(
        self, columns: Sequence[Path] | None, row_group: int, *, max_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the live rows of one row group as `read`, of `max_rows` physical ones at a time."""
        start = self._starts[row_group]
        for part in self.file.read_in_parts(columns, row_group, max_rows=max_rows):
            span = start, start + len(part)
            yield self._logical(part, [span], columns)
            start = span[1]

    def read_rows(self, positions: Positions, *, max_bytes: int) -> Iterator[pa.Table]:
        """Yield live rows at increasing physical positions, about `max_bytes` of them at a time."""
        if np.isin(positions, self._deleted, assume_unique=True).any():
            raise ValueError(f"{self.file.path}: deleted rows cannot be read")
        if len(positions) and positions[-1] >= (rows := self._starts[-1]):
            raise ValueError(f"{self.file.path}: there is no row {positions[-1]} of {rows}")
        for group in self.row_groups_of(positions):
            start = self._starts[group]
            for part in self.file.read_bounded(None, group, max_bytes=max_bytes):
                span = start, start + len(part)
                start = span[1]
                wanted = _within(positions, span)
                if len(wanted):
                    whole = self._with_hidden(self._with_constants(part, None), [span])
                    yield whole.take(integer_array((wanted - np.uint64(span[0])).view(np.int64)))

    def row_groups_of(self, positions: Positions) -> list[int]:
        """Return the row groups that hold some of the physical rows."""
        edges = np.searchsorted(positions, np.array(self._starts, np.uint64))
        groups: list[int] = np.flatnonzero(np.diff(edges)).tolist()
        return groups

    def live_positions(self) -> Positions:
        """Return the physical rows that no deletion vector deletes."""
        return np.flatnonzero(is_live((0, self._starts[-1]), self._deleted)).astype(np.uint64)

    def _with_constants(self, table: pa.Table, columns: Sequence[Path] | None) -> pa.Table:
        for number in range(table.num_columns) if self._constants else ():
            name = table.column_names[number] if columns is None else columns[number][0]
            value = self._constants.get(name)
            if value is not None and (columns is None or len(columns[number]) == 1):
                field = table.field(number).with_type(value.type)
                table = table.set_column(number, field, pa.repeat(value, len(table)))
        return table

    def _logical(
        self, table: pa.Table, spans: Sequence[Span], columns: Sequence[Path] | None
    ) -> pa.Table:
        table = self._with_constants(table, columns)
        if columns is None:
            table = self._with_hidden(table, spans)
        if not any(len(_within(self._deleted, span)) for span in spans):
            return table
        live = np.concatenate([is_live(span, self._deleted) for span in spans])
        return table.filter(pa.array(live))

    def _with_hidden(self, table: pa.Table, spans: Sequence[Span]) -> pa.Table:
        names = self._row_tracking
        if names is None or not names.preserved:
            return table
        rows = [np.arange(start, stop) for start, stop in spans]
        first = self._source.base_row_id or 0
        ids = pa.array(np.concatenate([np.empty(0, np.int64), *rows]) + first, pa.int64())
        version = pa.scalar(self._source.default_row_commit_version, pa.int64())
        for name, default in (
            (names.row_id_column, ids),
            (names.row_commit_version_column, version),
        ):
            position = table.schema.get_field_index(name)
            filled = pc.coalesce(table.column(position), default)
            table = table.set_column(position, table.field(position), filled)
        return table


def _within(positions: Positions, span: Span) -> Positions:
    first, last = np.searchsorted(positions, np.array(span, np.uint64)).tolist()
    return positions[first:last]


def is_live(span: Span, deleted: Positions) -> npt.NDArray[np.bool_]:
    """Return which rows of a span are not in `deleted`, which increases."""
    live = np.ones(span[1] - span[0], np.bool_)
    live[_within(deleted, span) - np.uint64(span[0])] = False
    return live


def _constants(located: Located, layout: DataLayout, *, dictionary: bool) -> dict[str, pa.Scalar]:
    path, names = located.path, layout.constant_columns
    values = located.file.partition_values or {}
    if set(values) != set(names):
        found = ", ".join(sorted(values)) or "no column"
        expected = ", ".join(sorted(names)) or "no column"
        raise DataFileError(path, f"has partition values of {found}, expected {expected}")
    fields = (field for field in layout.schema.fields if field.physical_name in values)
    try:
        typed = {one.physical_name: typed_value(values[one.physical_name], one) for one in fields}
    except ValueError as error:
        raise DataFileError(path, str(error)) from error
    if len(typed) < len(values):
        raise DataFileError(path, f"has partition values of {', '.join(values)}, not in the table")
    in_one = pa.dictionary(CODES, pa.string())
    return {
        name: pa.scalar(value.as_py(), in_one)
        if dictionary and value.type == pa.string()
        else value
        for name, value in typed.items()
    }


def _check_input(file: DataFile, source: InputFile, row_tracking: RowTracking | None) -> None:
    if source.num_records is not None and source.num_records != file.num_rows:
        detail = f"has {file.num_rows} rows where the log says {source.num_records}"
        raise DataFileError(file.path, detail)
    if row_tracking is None or not row_tracking.preserved:
        return
    if source.base_row_id is None or source.default_row_commit_version is None:
        raise DataFileError(file.path, "has no row ids in the log, though row tracking is enabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Row groups of a file: share `part` of `parts`; the log spells `values` in this way."""

    located: Located
    values: PartitionTexts
    part: int = 0
    parts: int = 1

    def row_groups(self, count: int) -> range:
        """Return the numbers of the row groups in this part, out of `count`."""
        first, last = (share * count // self.parts for share in (self.part, self.part + 1))
        return range(first, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Reads live rows of a table's files, under the table's names, about `max_bytes` at a time."""

    layout: DataLayout
    fields: tuple[StructField, ...]
    storage: StorageOptions
    max_bytes: int

    @classmethod
    def of_plan(
        cls, plan: ReadPlan, columns: Sequence[str], *, storage: StorageOptions, max_bytes: int
    ) -> Self:
        """Return the reader of a plan's files."""
        schema = without_void(parse_schema(plan.schema_string, where="the plan"))
        known = {one.name: one for one in schema.fields}
        fields = tuple(known[name] for name in columns)
        constants = [one for one in fields if one.physical_name in plan.partition_columns]
        layout = DataLayout(
            schema=StructType((*data_schema(schema, plan.partition_columns).fields, *constants)),
            mapping=plan.mapping_mode,
            row_tracking=plan.row_tracking,
            partition_columns=plan.partition_columns,
            constant_columns=tuple(one.physical_name for one in constants),
        )
        return cls(layout=layout, fields=fields, storage=storage, max_bytes=max_bytes)

    def read(self, part: FilePart) -> Iterator[pa.Table]:
        """Yield the live rows of a part of a file, columns in the types of `arrow_schema`."""
        values = {name: part.values[name] for name in self.layout.constant_columns}
        source = structs.replace(part.located.file, partition_values=values)
        located = part.located._replace(file=source)
        types = [arrow_type(one.data_type) for one in self.fields]
        with LogicalFile.open(located, self.layout, storage=self.storage) as file:
            for group in part.row_groups(file.file.num_row_groups):
                for rows in self._read(file, group):
                    columns = list(map(with_names_of, rows.columns, types))
                    yield pa.table(columns, names=[one.name for one in self.fields])
                    del rows, columns  # before the next ones are read

    def _read(self, file: LogicalFile, group: int) -> Iterator[pa.Table]:
        paths = [(one.physical_name,) for one in self.fields]
        rows = file.row_group_physical_rows(group)
        memory_bytes = file.file.row_group_memory_bytes(group)
        if memory_bytes <= self.max_bytes:
            yield file.read(paths, [group])
            return
        max_rows = max(1, rows * self.max_bytes // memory_bytes)
        yield from file.read_in_parts(paths, group, max_rows=max_rows)
