"""Refuse implausible Parquet files of checkpoints: a kilobyte can decode to terabytes.

Before anything is decoded, the rows and bytes that the footer claims are compared with the bytes in
the file. Where text could still grow beyond bounds, the length of every text is measured; text is
read as a dictionary, so that a repeated value is in memory once.
"""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.storage.files import Source

_ROWS_PER_BYTE: Final = 8
_ROWS_ALWAYS: Final = 1 << 16
"""Most rows per stored byte, and rows that are always accepted. A row names a file or is a rare
action, so even compressed it takes bytes, not fractions of one."""

_PAGES_RATIO: Final = 1024
_TEXT_RATIO: Final = 64
_BYTES_ALWAYS: Final = 1 << 26
"""Decoded bytes that are always accepted, and how many more a stored byte may decode to."""

_MEASURED_BYTES: Final = 1 << 24
"""Bytes above which text is not measured: such a file takes the sender's disk before our memory."""

_GROWING: Final = frozenset({"DELTA_BYTE_ARRAY"})
"""Encodings other than dictionaries in which a value can repeat its predecessor."""


def implausible(open_file: Callable[[], Source]) -> str | None:
    """Return why a Parquet file cannot be part of a checkpoint, None if it is plausible."""
    with pq.ParquetFile(open_file()) as file:
        metadata = file.metadata
    chunks = list(_chunks(metadata))
    stored = sum(chunk.total_compressed_size for chunk in chunks)
    decoded = sum(chunk.total_uncompressed_size for chunk in chunks)
    if any(min(c.total_compressed_size, c.total_uncompressed_size) < 0 for c in chunks):
        return "its footer claims columns of negative size"
    if metadata.num_rows > stored * _ROWS_PER_BYTE + _ROWS_ALWAYS:
        return f"it claims {metadata.num_rows} rows in {stored} bytes"
    if decoded > stored * _PAGES_RATIO + _BYTES_ALWAYS:
        return f"it claims {decoded} bytes in {stored} bytes"
    limit = stored * _TEXT_RATIO + _BYTES_ALWAYS
    if stored > _MEASURED_BYTES or sum(map(_most_bytes, chunks)) <= limit:
        return None
    text = {c.path_in_schema for c in chunks if c.physical_type == "BYTE_ARRAY"}
    if any(c.path_in_schema in text and _GROWING & set(c.encodings) for c in chunks):
        return "its text is encoded in a way that can grow beyond bounds"
    length = _text_bytes(open_file, sorted(text), limit)
    return None if length <= limit else f"its {stored} bytes stand for more than {limit} of text"


def _chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        yield from (group.column(column) for column in range(group.num_columns))


def _most_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the most bytes to which the values of a column chunk can decode."""
    if chunk.physical_type != "BYTE_ARRAY":
        return int(chunk.num_values) * 16
    return int(chunk.num_values) * int(chunk.total_uncompressed_size)


def _text_bytes(open_file: Callable[[], Source], columns: list[str], limit: int) -> int:
    """Return the bytes of all text in the file; counting stops once they exceed `limit`."""
    total = 0
    with pq.ParquetFile(open_file(), read_dictionary=columns) as file:
        for group in range(file.num_row_groups):
            for column in columns:
                read = file.read_row_group(group, columns=[column], use_threads=False)
                total += sum(_length(chunk) for chunk in read.column(0).chunks)
                if total > limit:
                    return total
    return total


def _length(array: pa.Array) -> int:
    if pa.types.is_dictionary(array.type):
        lengths = pc.cast(pc.binary_length(array.dictionary), pa.int64())
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if pa.types.is_map(array.type):
        return _length(array.keys) + _length(array.items)
    if pa.types.is_list(array.type):
        return _length(array.values)
    if pa.types.is_struct(array.type):
        # Flattening makes the required fields of a null struct null. Otherwise they would be values
        # that point into a dictionary, which may be empty.
        return sum(map(_length, array.flatten()))
    return 0
