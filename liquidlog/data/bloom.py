"""Bloom filters of row groups: for which columns, how large, and which are worth their bytes.

A filter is sized by the distinct values of its own row group, for one false positive in a hundred
absent values. All filters of a row group together take at most a tenth of the bytes of its pages:
a filter that would exceed that is left out, those asked for first come first.

Source: Apache Parquet format, BloomFilter.md.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.footer import FooterRowGroup, FooterSchema, read_footer
from liquidlog.data.row_group_digest import ChunkIndexes, read_indexes, spans_of
from liquidlog.data.row_group_file import RowGroupFile, Write
from liquidlog.data.spans import Spans
from liquidlog.errors import UsageError
from liquidlog.spec.schema import Path

FALSE_POSITIVES: Final = 0.01
"""Of the values that a row group does not hold, this share is not seen to be absent."""
MAX_SHARE: Final = 0.1
"""Filters take at most this share of the bytes of their row group's pages."""

_ARGUMENT: Final = "bloom_filter_options"


@dataclass(frozen=True, slots=True)
class EncodedRowGroup:
    """A row group as bytes: (pages, indexes) per column chunk, its fields, and its schema."""

    group: FooterRowGroup
    chunks: tuple[tuple[memoryview, ChunkIndexes], ...]
    schema: FooterSchema


def require_possible(paths: Sequence[Path]) -> None:
    """Refuse filters that the installed pyarrow cannot make."""
    if paths and _ARGUMENT not in inspect.signature(pq.ParquetWriter.__init__).parameters:
        raise UsageError(
            f"Bloom filters need a newer pyarrow than {pa.__version__}, which writes none;"
            " install a newer one wherever files are written, or leave out bloom_filter",
            option="bloom_filter",
        )


def writer_arguments(table: pa.Table, paths: Sequence[Path]) -> dict[str, Any]:
    """Return the arguments with which Arrow's Parquet writer makes filters for these rows.

    Args:
        table: The rows of one row group.
        paths: Of the leaves, outside lists and maps; none for no filters.
    """
    if not paths:
        return {}
    return {
        _ARGUMENT: {
            ".".join(path): {"ndv": max(1, distinct_values(table, path)), "fpp": FALSE_POSITIVES}
            for path in paths
        }
    }


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


def read_encoded(content: pa.Buffer, paths: Sequence[Path]) -> EncodedRowGroup:
    """Return the only row group of a file in memory, with the filters that are worth their bytes.

    Args:
        content: The file.
        paths: Of the leaves that may have filters, the most wanted first.
    """
    source = pa.BufferReader(content)
    footer, _ = read_footer(source, source.size())
    (group,) = footer.row_groups
    chunks = group.chunks
    spans = Spans(spans_of(chunks))
    pages = tuple(spans.read(source, chunk.span) for chunk in chunks)
    indexes = [read_indexes(source, chunk, spans) for chunk in chunks]
    room_bytes = int(MAX_SHARE * sum(chunk.span[1] for chunk in chunks))
    kept = _affordable(
        {chunk.path: found for chunk, found in zip(chunks, indexes, strict=True)}, paths, room_bytes
    )
    return EncodedRowGroup(
        group,
        tuple(
            (data, found if chunk.path in kept else replace(found, bloom_filter=None))
            for chunk, data, found in zip(chunks, pages, indexes, strict=True)
        ),
        footer.schema,
    )


def _affordable(
    indexes: dict[Path, ChunkIndexes], paths: Iterable[Path], room_bytes: int
) -> frozenset[Path]:
    kept = set()
    for path in paths:
        found = indexes.get(path)
        size_bytes = len((found and found.bloom_filter) or b"")
        if size_bytes <= room_bytes:
            room_bytes -= size_bytes
            kept.add(path)
    return frozenset(kept)


class FilteringWriter:
    """Writes row groups with filters of their own; used as Arrow's Parquet writer is.

    Arrow's own writer sizes all filters of a column alike, before it sees a row.
    """

    def __init__(
        self, write: Write, schema: pa.Schema, encode: Callable[[pa.Table], EncodedRowGroup]
    ) -> None:
        """Begin a file.

        Args:
            write: Appends bytes to the file.
            schema: Of the rows.
            encode: Returns rows as a row group; all of them have the same Parquet schema.
        """
        self.schema = schema
        self._file = RowGroupFile(write)
        self._encode = encode
        self._footer_schema: FooterSchema | None = None

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Append rows as one row group."""
        if row_group_size not in {None, table.num_rows}:
            raise ValueError("rows are written as one row group")
        made = self._encode(table)
        self._footer_schema = made.schema
        self._file.append(made.group, made.chunks)

    def close(self) -> None:
        """Write the footer; a file without row groups is left as it is."""
        if self._footer_schema is not None:
            self._file.finish(self._footer_schema)
