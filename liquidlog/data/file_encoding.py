"""How the columns of a file are encoded: which get dictionaries, and which codec each one.

Codes of a dictionary are packed into as many bits as they need, and random numbers fill all of
theirs: a codec takes time to write and to read such pages, and saves hardly a byte. The columns
that it shrinks least go without, as long as the file hardly grows.
"""

import inspect
from collections.abc import Mapping
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

_BYTES_WITHOUT_INDEX: Final = 4 << 20
"""Column chunks of so many bytes, uncompressed, have four pages, as Arrow ends each after 1 MiB."""

_TRIAL_ROWS: Final = 8_192
_TRIAL_BYTES: Final = 8 << 20
_TRIAL_SHARE: Final = 8
"""Rows that are encoded to know what they take: so many, or bytes in memory, or one in so many."""

_LEAST_ROWS: Final = 1_024
_LEAST_BYTES: Final = 256 << 10
"""Fewer codes, and fewer bytes of values, say too little of a codec: such a column gets it."""

_MAX_GROWTH: Final = 0.01
"""By how much, as a share, columns without the codec may make a file larger.

Measured on row groups of 41 000 rows of TPC-H lineitem: 0.4 % more bytes, 3 % less time
to read. See benchmarks/RESULTS.md, "Layout inside files".
"""

_OVERLOOKED_BYTES: Final = 128
"""What a codec may have spent on describing the few values of a trial, which many would share.

Without it, columns that are nearly always null lost the codec, and files grew by 15 %.
"""


class ColumnBytes(NamedTuple):
    """A column as encoded: its Parquet path, its bytes with the codec and without."""

    path: str
    compressed: int
    uncompressed: int
    has_dictionary: bool


class Trial(NamedTuple):
    """Rows that were encoded, and what each column takes."""

    rows: int
    columns: tuple[ColumnBytes, ...]


@dataclass(frozen=True, slots=True)
class FileEncoding:
    """The encoding of a file, judged by rows with which it begins."""

    compression: str
    sample: ColumnSample
    trial: Trial

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
        """
        sample = ColumnSample.of(table).having(instead or {})
        return cls(compression, sample, _tried(table, sample.dictionaries, compression))

    def arguments(self, rows: int) -> dict[str, Any]:
        """Return what Arrow's Parquet writer is told of pages, dictionaries and codecs.

        A page index says of pages what the footer says of column chunks: where these have hardly
        more than one page each, it would only make the footer larger, which readers fetch whole.

        Args:
            rows: Of a row group.
        """
        is_small = _HAS_PAGE_ROWS and rows <= _ROWS_OF_ONE_PAGE
        pages = {_PAGE_ROWS: _ROWS_OF_ONE_PAGE} if is_small else {}
        has_index = not is_small or self._chunk_bytes(rows) > _BYTES_WITHOUT_INDEX
        columns = {"use_dictionary": self.sample.dictionaries, "write_page_index": has_index}
        return _PAGES | pages | columns | _codecs(self.trial, self.compression)

    def _chunk_bytes(self, rows: int) -> float:
        """Return what the largest column chunk of so many rows takes before it is compressed."""
        largest = max((column.uncompressed for column in self.trial.columns), default=0)
        return largest * rows / max(1, self.trial.rows)

    def costs(self) -> RowGroupCosts:
        """Return what row groups cost."""
        stored_bytes = sum(column.compressed for column in self.trial.columns)
        return RowGroupCosts.of(
            self.sample,
            rows=self.trial.rows,
            stored_bytes=stored_bytes,
            compression=self.compression,
        )


def left_uncompressed(trial: Trial) -> frozenset[str]:
    """Return the paths of the columns that a codec shrinks least, so that a file hardly grows."""
    room = _MAX_GROWTH * sum(column.compressed for column in trial.columns)
    chosen = set()
    for column in sorted(trial.columns, key=_saved_share):
        saved = _saved(column)
        if _is_known(column, trial.rows) and saved <= room:
            room -= saved
            chosen.add(column.path)
    return frozenset(chosen)


def _is_known(column: ColumnBytes, rows: int) -> bool:
    if column.has_dictionary:
        return rows >= _LEAST_ROWS
    return column.uncompressed >= _LEAST_BYTES


def _saved(column: ColumnBytes) -> int:
    return max(0, column.uncompressed - column.compressed) + _OVERLOOKED_BYTES


def _saved_share(column: ColumnBytes) -> float:
    return _saved(column) / max(1, column.uncompressed)


def _codecs(trial: Trial, compression: str) -> dict[str, Any]:
    arguments = codec_arguments(compression)
    if parse_codec(compression) is Codec.UNCOMPRESSED:
        return arguments
    plain = left_uncompressed(trial)
    if not plain:
        return arguments
    compressed = [column.path for column in trial.columns if column.path not in plain]
    by_column = {name: dict.fromkeys(compressed, value) for name, value in arguments.items()}
    by_column["compression"] |= dict.fromkeys(plain, "none")
    return by_column


def _tried(table: pa.Table, dictionaries: list[str], compression: str) -> Trial:
    """Encode some neighbours, since what a codec finds depends on the order of rows."""
    if table.num_rows == 0:
        return Trial(0, ())
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
    return Trial(
        rows,
        tuple(
            ColumnBytes(
                chunk.path_in_schema,
                chunk.total_compressed_size,
                chunk.total_uncompressed_size,
                chunk.has_dictionary_page,
            )
            for chunk in chunks
        ),
    )
