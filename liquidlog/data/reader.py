"""Opening a Parquet data file for exact copying: the table's types or a refusal, nothing else.

Columns and paths are physical names throughout.

Source: Apache Parquet format, LogicalTypes.md; Spark, DataSourceUtils (calendar rebase keys).
"""

from collections.abc import Sequence
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.exact import Leniency, convert_chunks, differences
from liquidlog.data.parquet_file import ParquetFile
from liquidlog.errors import DataFileError
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.schema import Path, StructType, quote_path
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

CHANGE_COLUMNS: Final = frozenset({"_change_type", "__is_cdc"})
"""Columns that change data capture leaves in data files; never part of a table."""

_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
_LENIENCY: Final = Leniency(missing_is_null=True)


class DataFile:
    """An open data file whose content can be had exactly in the table's types."""

    def __init__(self, file: ParquetFile, wanted: pa.Schema) -> None:
        """Use `open`; this does not check anything."""
        self.path = file.path
        self.schema = wanted
        self._file = file

    @classmethod
    def open(
        cls,
        path: str,
        *,
        schema: StructType,
        dictionary: bool = False,
        ignored: frozenset[str] = frozenset(),
        storage: StorageOptions = NO_OPTIONS,
    ) -> Self:
        """Open a local path or a URI and check that it can be read exactly.

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
        try:
            _check(file, wanted, CHANGE_COLUMNS | ignored)
        except DataFileError:
            file.close()
            raise
        dictionaries = file.dictionary_candidates(wanted) if dictionary else frozenset()
        if dictionaries:
            file.close()
            file = ParquetFile(path, dictionaries=dictionaries, storage=storage)
        return cls(file, wanted)

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

    def row_group_bytes(self, index: int) -> int:
        """Return the uncompressed bytes of one row group, encoded as in the file."""
        return int(self._file.metadata.row_group(index).total_byte_size)

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
        paths = [(name,) for name in self.schema.names] if columns is None else list(columns)
        names = self.schema.names if columns is None else [quote_path(path) for path in paths]
        held = [".".join(path) for path in paths if self._holds(path)]
        table = self._file.read(groups, held)
        arrays = [self._column(table, path, rows) for path in paths]
        return pa.table(arrays, names=names)

    def _holds(self, path: Path) -> bool:
        return _descend(self._file.schema, path) is not None

    def _column(self, table: pa.Table, path: Path, rows: int) -> pa.ChunkedArray:
        wanted = _descend(self.schema, path)
        if wanted is None:
            raise DataFileError(self.path, f"is asked for {quote_path(path)}, not in the table")
        if not self._holds(path):
            return pa.chunked_array([pa.nulls(rows, wanted)])
        column = table.column(table.schema.get_field_index(path[0]))
        if len(path) > 1:
            column = pc.struct_field(column, list(path[1:]))
        if path[0] in self._file.dictionaries and column.type == _DICTIONARY:
            return column
        try:
            return convert_chunks(column, wanted)
        except pa.ArrowInvalid as error:
            raise DataFileError(
                self.path, f"column {quote_path(path)} cannot be kept exactly: {error}"
            ) from error


def check_file(path: str, schema: StructType) -> int:
    """Return the rows of a data file after checking by its footer that it can be copied exactly.

    Raises:
        DataFileError: If it cannot; names every reason.
        UsageError: If the table itself has columns without an Arrow form.
    """
    with DataFile.open(path, schema=schema) as file:
        return file.num_rows


def _check(file: ParquetFile, wanted: pa.Schema, ignored: frozenset[str]) -> None:
    fields = pa.struct([child for child in file.schema if child.name not in ignored])
    problems = [
        *differences(fields, pa.struct(list(wanted)), (), _LENIENCY),
        *file.calendar_problems(),
    ]
    if problems:
        raise DataFileError(file.path, "; ".join(problems))


def _descend(schema: pa.Schema, path: Path) -> pa.DataType | None:
    """Return the type at a path of struct fields, None if there is none."""
    found: pa.DataType = pa.struct(list(schema))
    for part in path:
        position = found.get_field_index(part) if isinstance(found, pa.StructType) else -1
        if position < 0:
            return None
        found = found.field(position).type
    return found
