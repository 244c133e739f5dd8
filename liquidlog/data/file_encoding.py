"""How the columns of a file are encoded: which get dictionaries, and which codec each one.

Codes of a dictionary are packed into as many bits as they need, and random numbers fill all of
theirs: a codec takes time to write and to read such pages, and saves hardly a byte. The columns
that it shrinks least go without, as long as the file hardly grows.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.data.compression import codec_arguments
from liquidlog.data.dictionaries import ColumnSample, RowGroupCosts, Values
from liquidlog.spec.codecs import Codec, parse_codec
from liquidlog.spec.schema import Path

_BATCH_ROWS: Final = 65_536
"""Rows that Arrow encodes at a time; its default of 1024 takes 6 % longer on lineitem."""

_PAGES: Final = {
    "data_page_version": "1.0",
    "coerce_timestamps": "us",
    # As the reference engine; other decimals are fixed-length bytes, slower on both sides.
    "store_decimal_as_integer": True,
    "store_schema": False,
    "write_batch_size": _BATCH_ROWS,
}

_ROWS_OF_ONE_PAGE: Final = 65_536
_PAGE_ROWS: Final = "max_rows_per_page"
_HAS_PAGE_ROWS: Final = _PAGE_ROWS in inspect.signature(pq.ParquetWriter.__init__).parameters
"""Row groups of no more rows than these are what readers skip by: pages inside them that end after
20 000 rows, as Arrow has it, cost each reader 3 % and each file 0.8 %, on TPC-H lineitem."""

_TRIAL_ROWS: Final = 8_192
_TRIAL_BYTES: Final = 2 << 20
_TRIAL_SHARE: Final = 8
"""Rows that are encoded to know what they take: so many, or bytes in memory, or one in so many."""

_LEAST_ROWS: Final = 1_024
_LEAST_BYTES: Final = 1 << 20
"""Fewer rows that take less say too little of a codec: all columns get it."""

_MAX_GROWTH: Final = 0.0075
"""By how much, as a share, columns without the codec may make a file larger.

Measured on row groups of 41 000 rows of TPC-H lineitem: 0.5 % more bytes, 7 % less time to write
and to read. See benchmarks/RESULTS.md, "Layout inside files".
"""


class ColumnBytes(NamedTuple):
    """A column as encoded: its Parquet path, its bytes with the codec and without."""

    path: str
    compressed: int
    uncompressed: int


class _Trial(NamedTuple):
    """Rows that were encoded, and what each column takes."""

    rows: int
    columns: tuple[ColumnBytes, ...]


@dataclass(frozen=True, slots=True)
class FileEncoding:
    """The encoding of a file, judged by rows with which it begins."""

    compression: str
    sample: ColumnSample
    trial: _Trial

    @classmethod
    def measure(
        cls, table: pa.Table, *, compression: str, instead: Mapping[Path, Values] | None = None
    ) -> "FileEncoding":
        """Return the encoding for the file of some rows.

        Args:
            table: Rows in their order, as many as are known.
            compression: Name of the codec.
            instead: The values of leaves, by their Parquet paths, where the file has others than
                the table.

        Raises:
            UsageError: If the codec is unknown.
        """
        sample = ColumnSample.of(table).having(instead or {})
        return cls(compression, sample, _tried(table, sample.dictionaries, compression))

    def arguments(self, rows: int) -> dict[str, Any]:
        """Return what Arrow's Parquet writer is told of pages, dictionaries and codecs.

        Args:
            rows: Of a row group.
        """
        columns: dict[str, Any] = {"use_dictionary": self.sample.dictionaries}
        if _HAS_PAGE_ROWS and rows <= _ROWS_OF_ONE_PAGE:
            columns[_PAGE_ROWS] = _ROWS_OF_ONE_PAGE
        return _PAGES | columns | _codecs(self.trial, self.compression)

    def costs(self) -> RowGroupCosts:
        """Return what row groups cost."""
        stored_bytes = sum(column.compressed for column in self.trial.columns)
        return RowGroupCosts.of(
            self.sample,
            rows=self.trial.rows,
            stored_bytes=stored_bytes,
            compression=self.compression,
        )


def left_uncompressed(columns: Iterable[ColumnBytes]) -> frozenset[str]:
    """Return the paths of the columns that a codec shrinks least, so that a file hardly grows."""
    columns = sorted(columns, key=_saved_share)
    room = _MAX_GROWTH * sum(column.compressed for column in columns)
    chosen = set()
    for column in columns:
        saved = max(0, column.uncompressed - column.compressed)
        if saved <= room:
            room -= saved
            chosen.add(column.path)
    return frozenset(chosen)


def _saved_share(column: ColumnBytes) -> float:
    return (column.uncompressed - column.compressed) / max(1, column.uncompressed)


def _codecs(trial: _Trial, compression: str) -> dict[str, Any]:
    arguments = codec_arguments(compression)
    enough = trial.rows >= _LEAST_ROWS or _bytes_of(trial) >= _LEAST_BYTES
    plain = left_uncompressed(trial.columns) if enough else frozenset()
    if not plain or parse_codec(compression) is Codec.UNCOMPRESSED:
        return arguments
    compressed = [column.path for column in trial.columns if column.path not in plain]
    by_column = {name: dict.fromkeys(compressed, value) for name, value in arguments.items()}
    by_column["compression"] |= dict.fromkeys(plain, "none")
    return by_column


def _bytes_of(trial: _Trial) -> int:
    return sum(column.uncompressed for column in trial.columns)


def _tried(table: pa.Table, dictionaries: list[str], compression: str) -> _Trial:
    """Encode some neighbours, since what a codec finds depends on the order of rows."""
    if table.num_rows == 0:
        return _Trial(0, ())
    row_bytes = max(1, table.nbytes // table.num_rows)
    rows = min(_TRIAL_ROWS, _TRIAL_BYTES // row_bytes, table.num_rows // _TRIAL_SHARE)
    rows = max(1, rows)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.slice((table.num_rows - rows) // 2, rows),
        sink,
        use_dictionary=dictionaries,
        **_PAGES,
        **codec_arguments(compression),
    )
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return _Trial(
        rows,
        tuple(
            ColumnBytes(
                chunk.path_in_schema, chunk.total_compressed_size, chunk.total_uncompressed_size
            )
            for chunk in chunks
        ),
    )
