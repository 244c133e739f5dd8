"""How the columns of a file are encoded: pages, dictionaries, codecs, and Bloom filters.

All are judged by the rows of the first row group. A dictionary is for values that repeat. Its codes
are packed into as many bits as they need, and random numbers fill all of theirs: a codec takes time
to write and to read such pages, and saves hardly a byte. The columns that it shrinks least go
without, as long as the file hardly grows.

Source: Apache Parquet format, BloomFilter.md.
"""

import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.encodings import CODES, integer_array, plain_type
from liquidlog.errors import UsageError
from liquidlog.spec.arguments import Codec, parse_codec
from liquidlog.spec.schema import Path

_PAGES: Final = {
    "data_page_version": "1.0",
    "coerce_timestamps": "us",
    # As the reference engine; other decimals are fixed-length bytes, slower on both sides.
    "store_decimal_as_integer": True,
    "store_schema": False,
}

_PAGE_BYTES: Final = 1 << 20
"""Of a page, before it is compressed; Arrow ends pages after 20 000 rows, too.

Measured on lineitem with pages of 16, 64, 256 and 1024 KiB, CPU milliseconds of delta-rs: 2197,
1939, 1856, 1752 for all columns, 38, 42, 49, 49 for single days.
"""

_MOST_BATCH_ROWS: Final = 8_192
_LEAST_BATCH_ROWS: Final = 64
"""Rows that Arrow encodes before it looks how large a page is: those of a page of the widest column
within these limits. Its default of 1024 takes 6 % longer on lineitem than 65 536."""

_SAMPLE_ROWS: Final = 16_384
_DISTINCT_SHARE: Final = 0.75
"""Of a sample this large: about 27 000 distinct values in all, whose dictionary fits its page."""

_NARROW_DISTINCT_SHARE: Final = 0.25
"""The same for values of eight bytes or less, which compress well as they are.

Measured on 48 000 random integers, bytes per row with a dictionary and without: 1.83 and 1.80 with
5 000 distinct values (0.29 of a sample), 2.58 and 1.95 with 20 000.
"""
_NARROW_BITS: Final = 64

_LIGHT_SHARE: Final = 1 / 64
"""Dictionaries of fewer distinct values, as a share of a sample, are not worth thinking about."""

_TRIAL_ROWS: Final = 8_192
_TRIAL_BYTES: Final = 8 << 20
_TRIAL_SHARE: Final = 8
"""Rows that are encoded to know what they take: so many, or bytes in memory, or one in so many."""

_LEAST_ROWS: Final = 1_024
_LEAST_BYTES: Final = 256 << 10
"""Fewer codes, and fewer bytes of values, say too little of a codec: such a column gets it."""

_MAX_GROWTH: Final = 0.01
"""By how much, as a share, columns without the codec may make a file larger.

Measured on TPC-H lineitem: 0.4 % more bytes, 3 % less time to read.
"""

_OVERLOOKED_BYTES: Final = 128
"""What a codec may have spent on describing the few values of a trial, which many would share.

Without it, columns that are nearly always null lost the codec, and files grew by 15 %.
"""

_ARROW_NAMES: Final = {Codec.UNCOMPRESSED: "none", Codec.LZ4_RAW: "lz4"}
"""Of the codecs that Arrow calls something else."""

_ZSTD_LEVEL: Final = 1
# Measured on lineitem sorted along the curve, 374 000 rows per file, nanoseconds per row and size:
# level 1 543 ns and 9.34 MB, level 3 663 ns and 9.38 MB, snappy 379 ns and 13.7 MB. Text alone
# is 9 % smaller with level 3.

FALSE_POSITIVES: Final = 0.01
"""Of the values that a row group does not hold, this share is not seen to be absent."""
MAX_FILTER_SHARE: Final = 0.1
"""Filters take at most this share of the bytes of their row group's pages."""
_FILTER_HASHES: Final = 8
_LEAST_FILTER_BYTES: Final = 32
_FILTERS: Final = "bloom_filter_options"


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
    """The encoding of a file; `dictionaries` are the Parquet paths of leaves that get one."""

    compression: str
    dictionaries: tuple[str, ...]
    trial: Trial

    @classmethod
    def measure(cls, table: pa.Table, *, compression: str) -> "FileEncoding":
        """Return the encoding for the file of some rows: in their order, as many as are known."""
        dictionaries = tuple(worth_dictionaries(table))
        return cls(compression, dictionaries, _tried(table, dictionaries, compression))

    def arguments(self, first: pa.Table, *, bloom_filters: Sequence[Path] = ()) -> dict[str, Any]:
        """Return what Arrow's Parquet writer is told of pages, dictionaries, codecs and filters.

        The `first` row group sizes the filters, which are wanted most for the first leaves.
        """
        return {
            **_PAGES,
            **_codecs(self.trial, self.compression),
            **self._filters(first, bloom_filters),
            "use_dictionary": list(self.dictionaries),
            "data_page_size": _PAGE_BYTES,
            "write_batch_size": self._batch_rows(),
            "write_page_index": True,
            "write_page_checksum": True,
        }

    def _batch_rows(self) -> int:
        widest = max((column.uncompressed for column in self.trial.columns), default=0)
        page_rows = _PAGE_BYTES * self.trial.rows // max(1, widest)
        return min(max(page_rows, _LEAST_BATCH_ROWS), _MOST_BATCH_ROWS)

    def _filters(self, first: pa.Table, paths: Sequence[Path]) -> dict[str, Any]:
        if not paths or not first.num_rows:
            return {}
        stored = sum(column.compressed for column in self.trial.columns)
        room_bytes = MAX_FILTER_SHARE * stored * first.num_rows / self.trial.rows
        chosen = {}
        for path in paths:
            distinct = max(1, distinct_values(first, path))
            if filter_bytes(distinct) <= room_bytes:
                room_bytes -= filter_bytes(distinct)
                chosen[".".join(path)] = {"ndv": distinct, "fpp": FALSE_POSITIVES}
        return {_FILTERS: chosen} if chosen else {}


def require_possible(bloom_filters: Sequence[Path]) -> None:
    """Refuse filters that the installed pyarrow cannot make."""
    if bloom_filters and _FILTERS not in inspect.signature(pq.ParquetWriter.__init__).parameters:
        raise UsageError(
            f"Bloom filters need a newer pyarrow than {pa.__version__}, which writes none;"
            " install a newer one wherever files are written, or leave out bloom_filter",
            option="bloom_filter",
        )


def distinct_values(table: pa.Table, path: Path) -> int:
    """Return how many distinct values other than null a leaf outside lists and maps has."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [name])
    if isinstance(column.type, pa.DictionaryType):
        column = pa.chunked_array(
            [chunk.indices for chunk in column.unify_dictionaries().chunks], column.type.index_type
        )
    found: int = pc.count_distinct(column).as_py()
    return found


def filter_bytes(distinct: int) -> int:
    """Return the bytes of a filter for so many distinct values: a power of two."""
    bits = -_FILTER_HASHES * distinct / math.log(1 - FALSE_POSITIVES ** (1 / _FILTER_HASHES))
    return max(_LEAST_FILTER_BYTES, 1 << math.ceil(math.log2(bits / 8)))


def _codec_arguments(name: str) -> dict[str, Any]:
    codec = parse_codec(name)
    arguments: dict[str, Any] = {"compression": _ARROW_NAMES.get(codec, codec.value)}
    return arguments | ({"compression_level": _ZSTD_LEVEL} if codec is Codec.ZSTD else {})


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
    arguments = _codec_arguments(compression)
    if parse_codec(compression) is Codec.UNCOMPRESSED:
        return arguments
    plain = left_uncompressed(trial)
    if not plain:
        return arguments
    compressed = [column.path for column in trial.columns if column.path not in plain]
    by_column = {name: dict.fromkeys(compressed, value) for name, value in arguments.items()}
    by_column["compression"] |= dict.fromkeys(plain, "none")
    return by_column


def _tried(table: pa.Table, dictionaries: Sequence[str], compression: str) -> Trial:
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
        use_dictionary=list(dictionaries),
        **_PAGES,
        **_codec_arguments(compression),
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


def worth_dictionaries(table: pa.Table) -> Iterator[str]:
    """Yield the Parquet paths of the leaves for which a dictionary pays, judged by some rows.

    Arrow tries a dictionary on every column and gives up when it has grown too large; on TPC-H
    lineitem, leaving the hopeless columns out from the start saves a tenth of the encoding time.
    Leaves inside lists and maps are always among them.
    """
    sample = _sampled(table)
    for child, column in zip(sample.schema, sample.itercolumns(), strict=True):
        for path, values in _leaf_values(column, (child.name,)):
            if values is None or _is_repetitive(values):
                yield ".".join(path)


def with_light_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with its text columns of few values in dictionaries, as files keep them.

    Moving, checking and encoding codes takes a fraction of the time that texts take.
    """
    if table.num_rows < _SAMPLE_ROWS:
        return table
    for position, kind in enumerate(table.schema.types):
        if kind != pa.string():
            continue
        sample = _sampled(table.select([position])).column(0)
        if _distinct(sample) <= _LIGHT_SHARE * len(sample):
            column = table.column(position).combine_chunks().dictionary_encode()
            field = table.field(position).with_type(column.type)
            table = table.set_column(position, field, column)
    return table


def _is_repetitive(values: pa.ChunkedArray) -> bool:
    kind = plain_type(values.type)
    is_narrow = pa.types.is_primitive(kind) and kind.bit_width <= _NARROW_BITS
    share = _NARROW_DISTINCT_SHARE if is_narrow else _DISTINCT_SHARE
    return _distinct(values) <= max(1, share * len(values))


def _sampled(table: pa.Table) -> pa.Table:
    if table.num_rows <= _SAMPLE_ROWS:
        return table
    rows = np.linspace(0, table.num_rows - 1, _SAMPLE_ROWS, dtype=np.int64)
    return table.take(integer_array(rows))


def _leaf_values(
    column: pa.ChunkedArray, path: Path
) -> Iterator[tuple[Path, pa.ChunkedArray | None]]:
    kind = column.type
    if isinstance(kind, pa.StructType):
        for child in kind:
            yield from _leaf_values(pc.struct_field(column, [child.name]), (*path, child.name))
    elif isinstance(kind, pa.ListType | pa.MapType):
        yield from ((inner, None) for inner in _all_paths(kind, path))
    else:
        yield path, column


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


def _distinct(values: pa.ChunkedArray) -> int:
    if isinstance(values.type, pa.DictionaryType):
        values = pa.chunked_array([chunk.indices.cast(CODES) for chunk in values.chunks], CODES)
    found: int = pc.count_distinct(values).as_py()
    return found
