"""An open Parquet file whose every failure is one of our errors and whose values are checked.

Types are the file's own; `reader` makes them the table's.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.data.parquet_types import (
    calendar_problems,
    dictionary_candidates,
    found_schema,
    has_nanoseconds,
    needs_precision_check,
)
from liquidlog.errors import DataFileError, StorageError
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.storage.files import open_input
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_BUFFERS_BYTES: Final = 64 << 20
"""Of all columns together that are read page by page."""
_MIN_BUFFER_BYTES: Final = 64 << 10
_MAX_BUFFER_BYTES: Final = 8 << 20


class ParquetFile:
    """Row groups of one file in the file's own types, INT96 as microseconds."""

    def __init__(
        self,
        path: str,
        *,
        dictionaries: frozenset[str] = frozenset(),
        storage: StorageOptions = NO_OPTIONS,
    ) -> None:
        """Open a local path or a URI; columns in `dictionaries` stay encoded.

        Raises:
            DataFileError: If the file is missing or is not Parquet.
        """
        self.path = path
        self.dictionaries = dictionaries
        self._storage = storage
        with self._refusing():
            self._parquet = _open(path, storage, dictionaries=dictionaries)
            self.schema = found_schema(self._parquet)
            self._nanoseconds = (
                _open(path, storage, int96_unit="ns")
                if needs_precision_check(self._parquet)
                else None
            )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; reading is no longer possible."""
        for parquet in (self._parquet, self._nanoseconds):
            if parquet is not None:
                parquet.close(force=True)

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer."""
        return self._parquet.metadata

    def calendar_problems(self) -> tuple[str, ...]:
        """Return why dates or timestamps would have to be moved to today's calendar."""
        return tuple(calendar_problems(self._parquet))

    def dictionary_candidates(self, wanted: pa.Schema) -> frozenset[str]:
        """Return the top-level string columns that the file keeps in small dictionaries."""
        return dictionary_candidates(self._parquet, wanted)

    def read(self, row_groups: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows of some row groups; `columns` are dotted Parquet paths or their beginnings.

        Raises:
            DataFileError: If a page is corrupt, rows are missing, or an INT96 timestamp has
                nanoseconds.
        """
        groups, names = list(row_groups), None if columns is None else list(columns)
        rows = sum(self.metadata.row_group(group).num_rows for group in groups)
        with self._refusing():
            table = _read(self._parquet, groups, names)
            if table.num_rows != rows:
                raise DataFileError(
                    self.path, f"has {table.num_rows} rows where its footer says {rows}"
                )
            if self._nanoseconds is None:
                return table
            nanoseconds = _read(self._nanoseconds, groups, names)
            if has_nanoseconds(table, nanoseconds):
                raise DataFileError(self.path, "holds timestamps with nanoseconds")
        return table

    def read_in_parts(
        self, row_group: int, columns: Sequence[str] | None, *, max_rows: int
    ) -> Iterator[pa.Table]:
        """Yield the rows of one row group as `read`, at most `max_rows` at a time.

        Needs memory for the rows of a part and a page of each column, not for the row group.

        Raises:
            DataFileError: As `read`.
        """
        names = None if columns is None else list(columns)
        rows = 0
        with self._refusing(), ExitStack() as stack:
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
                if nanoseconds and has_nanoseconds(part, nanoseconds[0]):
                    raise DataFileError(self.path, "holds timestamps with nanoseconds")
                yield part
        expected = self.metadata.row_group(row_group).num_rows
        if rows != expected:
            raise DataFileError(self.path, f"has {rows} rows where its footer says {expected}")

    @contextmanager
    def _streamed(self, int96_unit: str, buffer_bytes: int) -> Iterator[pq.ParquetFile]:
        """Context manager: the file once more, opened to be read page by page."""
        parquet = _open(
            self.path,
            self._storage,
            int96_unit=int96_unit,
            dictionaries=self.dictionaries,
            buffer_bytes=buffer_bytes,
        )
        try:
            yield parquet
        finally:
            parquet.close(force=True)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn every way in which reading Parquet fails into one error.

        Raises:
            DataFileError: If the body fails because of the file.
        """
        try:
            yield
        except FileNotFoundError as error:
            raise DataFileError(self.path, "does not exist") from error
        except StorageError as error:
            raise DataFileError(self.path, error.detail) from None
        except (pa.ArrowException, OSError, EOFError) as error:
            raise DataFileError(self.path, self._problem(error)) from error

    def _problem(self, error: Exception) -> str:
        """Return what is there instead of a Parquet file, else what Arrow says."""
        local = Path(local_path(self.path)) if is_local(self.path) else None
        if local is not None and local.is_dir():
            return "is a directory, and a Parquet file is needed; name the files in it"
        if local is not None and local.is_file() and not local.stat().st_size:
            return "is empty, and a Parquet file is needed"
        if "magic bytes" in str(error):
            return "is not a Parquet file, or was cut off: it does not end as one does"
        return f"cannot be read as Parquet: {str(error).partition(chr(10))[0]}"


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
    path: str,
    storage: StorageOptions,
    *,
    int96_unit: str = "us",
    dictionaries: frozenset[str] = frozenset(),
    buffer_bytes: int = 0,
) -> pq.ParquetFile:
    source = open_input(path, storage)
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
