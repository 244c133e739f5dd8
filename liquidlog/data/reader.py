"""Opening a Parquet data file for exact copying: the table's types or a refusal, nothing else.

Columns and paths are physical names throughout.

Source: Apache Parquet format, LogicalTypes.md; Spark, DataSourceUtils (calendar rebase keys).
"""

from collections.abc import Iterator, Sequence
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.exact import Leniency, convert_chunks, differences, nulls
from liquidlog.data.file_columns import (
    FileColumns,
    field_id_of,
    find_columns,
    position_of,
    with_names_of,
)
from liquidlog.data.parquet_file import ParquetFile
from liquidlog.errors import DataFileError
from liquidlog.spec.arrow import arrow_schema, arrow_type
from liquidlog.spec.mapping import MappingMode
from liquidlog.spec.schema import Path, StructType, quote_path
from liquidlog.spec.widening import earlier_types
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

CHANGE_COLUMNS: Final = frozenset({"_change_type", "__is_cdc"})
"""Columns that change data capture leaves in data files; never part of a table."""

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
"""Bytes in memory of a value by its physical type, at least."""

_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())


class DataFile:
    """An open data file whose content can be had exactly in the table's types."""

    def __init__(self, file: ParquetFile, wanted: pa.Schema, columns: FileColumns) -> None:
        """Use `open`; this does not check anything."""
        self.path = file.path
        self.schema = wanted
        self._file = file
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
    ) -> Self:
        """Open a local path or a URI and check that it can be read exactly.

        `mapping` is the table's column mapping: with it, columns that the table does not have
        (any more) are passed over. Columns whose type the table has widened are read as today's,
        unsigned integers as the signed ones or decimals that hold them all.
        With `dictionary`, top-level string columns that the file keeps in small dictionaries are
        read as dictionary<int32, string>; everything else has the types of
        `arrow_schema(schema, physical=True)`. Columns in `ignored` may be there and are not read.

        Raises:
            DataFileError: If the file is missing, is not sound Parquet, or holds anything that
                cannot become the table's types without loss; names every such thing.
            UsageError: If the table itself has columns without an Arrow form.
        """
        wanted = arrow_schema(schema, physical=True)
        file = ParquetFile(path, storage=storage)
        columns = find_columns(file.schema, wanted, mapping)
        try:
            own = columns.without(CHANGE_COLUMNS | ignored)
            _check(file, wanted, own, _leniency(schema, mapping))
        except DataFileError:
            file.close()
            raise
        dictionaries = _dictionary_candidates(file, wanted, columns) if dictionary else frozenset()
        if dictionaries:
            file.close()
            file = ParquetFile(path, dictionaries=dictionaries, storage=storage)
        return cls(file, wanted, columns)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; reading is no longer possible."""
        self._file.close()

    @property
    def num_rows(self) -> int:
        """Physical rows of the file."""
        return int(self._file.metadata.num_rows)

    @property
    def num_row_groups(self) -> int:
        """Row groups of the file."""
        return int(self._file.metadata.num_row_groups)

    def row_group_rows(self, index: int) -> int:
        """Return the rows of one row group."""
        return int(self._file.metadata.row_group(index).num_rows)

    def row_group_memory_bytes(self, index: int) -> int:
        """Return about how many bytes the rows of one row group take in memory.

        Fixed-width values take their width, however well they are encoded in the file.
        """
        group = self._file.metadata.row_group(index)
        columns = (group.column(number) for number in range(group.num_columns))
        return sum(
            max(column.total_uncompressed_size, column.num_values * _WIDTHS[column.physical_type])
            for column in columns
        )

    def read(
        self, columns: Sequence[Path] | None = None, row_groups: Sequence[int] | None = None
    ) -> pa.Table:
        """Return rows in file order: all columns in table order, or the asked ones.

        Asked columns come flat, one per path, in the order asked, named by `quote_path`; a null
        struct makes its fields null. A column that the file lacks is null.

        Raises:
            DataFileError: If a page is corrupt or a value cannot be kept exactly.
        """
        groups = list(range(self.num_row_groups)) if row_groups is None else list(row_groups)
        rows = sum(self.row_group_rows(group) for group in groups)
        return self._table(self._file.read(groups, self._held(columns)), columns, rows)

    def read_in_parts(
        self, columns: Sequence[Path] | None, row_group: int, *, max_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the rows of one row group as `read`, at most `max_rows` at a time.

        Raises:
            DataFileError: As `read`.
        """
        held = self._held(columns)
        if not held:
            # Without columns Parquet has no rows to give in parts; nulls take no memory.
            yield self.read(columns, [row_group])
            return
        for part in self._file.read_in_parts(row_group, held, max_rows=max_rows):
            yield self._table(part, columns, part.num_rows)

    def _held(self, columns: Sequence[Path] | None) -> list[str]:
        paths = self._paths(columns)
        held = [stored for path in paths if (stored := self._columns.stored_path(path))]
        return [".".join(path) for path in held]

    def _paths(self, columns: Sequence[Path] | None) -> list[Path]:
        return [(name,) for name in self.schema.names] if columns is None else list(columns)

    def _table(self, found: pa.Table, columns: Sequence[Path] | None, rows: int) -> pa.Table:
        paths = self._paths(columns)
        names = self.schema.names if columns is None else [quote_path(path) for path in paths]
        return pa.table([self._column(found, path, rows) for path in paths], names=names)

    def _column(self, table: pa.Table, path: Path, rows: int) -> pa.ChunkedArray:
        wanted = _descend(self.schema, path)
        if wanted is None:
            raise DataFileError(self.path, f"is asked for {quote_path(path)}, not in the table")
        stored = self._columns.stored_path(path)
        if stored is None:
            return pa.chunked_array([nulls(rows, wanted)])
        column = table.column(table.schema.get_field_index(stored[0]))
        if len(stored) > 1:
            column = pc.struct_field(column, list(stored[1:]))
        if stored[0] in self._file.dictionaries and column.type == _DICTIONARY:
            return column
        if self._columns.by_id:
            column = with_names_of(column, _descend(self._columns.named, path))
        try:
            return convert_chunks(column, wanted)
        except pa.ArrowInvalid as error:
            raise DataFileError(
                self.path, f"column {quote_path(path)} cannot be kept exactly: {error}"
            ) from error


def _check(file: ParquetFile, wanted: pa.Schema, columns: FileColumns, leniency: Leniency) -> None:
    problems = [*file.calendar_problems(), *columns.problems(wanted)]
    mapped = {child.name for child in wanted if field_id_of(child) is not None}
    if leniency.surplus_is_dropped and not mapped & set(columns.named.names):
        # Each of them could have been added after all of the file's were dropped, but a file that
        # another writer gave wrong names looks the same.
        problems.append("has none of the table's columns")
    if not problems:
        found = pa.struct(list(columns.named))
        problems.extend(differences(found, pa.struct(list(wanted)), (), leniency))
    if problems:
        raise DataFileError(file.path, "; ".join(problems))


def _leniency(schema: StructType, mapping: MappingMode) -> Leniency:
    earlier = {
        path: frozenset(map(arrow_type, types)) for path, types in earlier_types(schema).items()
    }
    mapped = mapping is not MappingMode.NONE
    return Leniency(missing_is_null=True, surplus_is_dropped=mapped, earlier=earlier, unsigned=True)


def _dictionary_candidates(
    file: ParquetFile, wanted: pa.Schema, columns: FileColumns
) -> frozenset[str]:
    stored = ((child, columns.stored_path((child.name,))) for child in wanted)
    return file.dictionary_candidates(
        pa.schema([child.with_name(path[0]) for child, path in stored if path])
    )


def _descend(schema: pa.Schema, path: Path) -> pa.DataType | None:
    """Return the type at a path of struct fields, None if there is none."""
    found: pa.Schema | pa.DataType = schema
    for part in path:
        position = position_of(found, part)
        if position is None:
            return None
        found = found.field(position).type
    return found
