"""Columns that keep their values in dictionaries, joined without losing or misreading any.

Arrow joins dictionaries only if the index type that it finds holds the values of all of them, and
only if none of them holds a null. So everything that joins chunks which may differ in their
dictionaries (`combine_chunks`, `take`, a Parquet writer) works on what `concat` or `joinable`
returns.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.data.buffers import fixed_width, integer_array, null_mask

CODES: Final = pa.int32()
"""Indices of dictionaries wherever they are not on their way through a shuffle."""

_LIGHT: Final = 8
"""A dictionary of less than this share of its indices' bytes is left as it is."""

_INDEX_TYPES: Final = (pa.int8(), pa.int16(), CODES)


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables; a column stays in dictionaries if it is so in every table.

    Tables read from several files differ in that. The chunks of every column are joinable. Only
    indices that must be wider are copied, and values that must leave their dictionaries.
    """
    first = tables[0].schema
    if any(table.schema != first for table in tables[1:]):
        fields = [
            child.with_type(common_type(table.schema.field(position).type for table in tables))
            for position, child in enumerate(first)
        ]
        tables = [table.cast(pa.schema(fields)) for table in tables]
    together = pa.concat_tables(tables)
    for position, column in enumerate(together.itercolumns()):
        if isinstance(column.type, pa.DictionaryType):
            joined = joinable(column)
            field = together.field(position).with_type(joined.type)
            together = together.set_column(position, field, joined)
    return together


def joinable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary-encoded column whose chunks Arrow can join, whatever they hold.

    No dictionary of the result holds a null; indices are as wide as before or wider.
    """
    chunks = [_without_null_values(chunk) for chunk in column.chunks]
    if not chunks:
        return column
    kind = chunks[0].type.index_type
    if len(chunks) > 1:
        kind = _index_type(
            sum(len(chunk.dictionary) for chunk in chunks),
            least_bits=max(chunk.type.index_type.bit_width for chunk in chunks),
        )
    return pa.chunked_array([_with_indices(chunk, kind) for chunk in chunks])


def with_indices(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a dictionary-encoded column with indices of type `kind`, which must hold them."""
    chunks = [_with_indices(chunk, kind) for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.dictionary(kind, column.type.value_type))


def compacted(table: pa.Table) -> pa.Table:
    """Return the table without values that no row uses, in dictionaries that weigh beside the rows.

    Few rows taken out of a large table have its dictionaries, of which they need little. Types
    stay as they are; a table with nothing to leave out is returned itself.
    """
    for position, column in enumerate(table.itercolumns()):
        if isinstance(column.type, pa.DictionaryType) and any(map(_weighs, column.chunks)):
            chunks = [_compacted(chunk) for chunk in column.chunks]
            field = table.field(position)
            table = table.set_column(position, field, pa.chunked_array(chunks, column.type))
    return table


def by_first_use(table: pa.Table) -> pa.Table:
    """Return the table with one dictionary per column: its values as rows first use them.

    It says nothing of the chunks in which the rows came, or of the dictionaries that these had. A
    Parquet writer that is given dictionaries which differ gives up on them.
    """
    for position, column in enumerate(table.itercolumns()):
        if isinstance(column.type, pa.DictionaryType):
            together = column.unify_dictionaries().combine_chunks()
            chunks = together.chunks if isinstance(together, pa.ChunkedArray) else [together]
            ordered = pa.chunked_array(map(_by_first_use, chunks), column.type)
            table = table.set_column(position, table.field(position), ordered)
    return table


def decoded(table: pa.Table) -> pa.Table:
    """Return the table without dictionaries."""
    fields = [child.with_type(plain_type(child.type)) for child in table.schema]
    return table.cast(pa.schema(fields))


def common_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type that one column has in several tables: a dictionary if it is so in all."""
    first, *others = set(types)
    if not others:
        return first
    plain = plain_type(first)
    encoded = all(
        isinstance(found, pa.DictionaryType) and found.value_type == plain
        for found in (first, *others)
    )
    return pa.dictionary(CODES, plain) if encoded else plain


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values that a dictionary holds, any other type as it is."""
    return data_type.value_type if isinstance(data_type, pa.DictionaryType) else data_type


def _weighs(chunk: pa.DictionaryArray) -> bool:
    codes_bytes = len(chunk) * chunk.type.index_type.bit_width // 8
    return bool(_LIGHT * chunk.dictionary.nbytes > codes_bytes)


def _by_first_use(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    used = chunk.indices.unique().drop_null()  # in the order in which they come
    numbers = fixed_width(used.cast(pa.int64()), np.int64)
    if np.array_equal(numbers, np.arange(len(chunk.dictionary))):
        return chunk
    places = np.zeros(len(chunk.dictionary), np.int64)
    places[numbers] = np.arange(len(numbers))
    positions = pa.array(places).cast(chunk.type.index_type).take(chunk.indices)
    return pa.DictionaryArray.from_arrays(positions, chunk.dictionary.take(used))


def _compacted(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    indices = chunk.indices
    is_null = null_mask(indices)
    valid = fixed_width(indices.cast(pa.int64()), np.int64)[~is_null]
    used, places = np.unique(valid, return_inverse=True)
    if len(used) == len(chunk.dictionary):
        return chunk
    codes = np.zeros(len(chunk), np.int64)
    codes[~is_null] = places
    positions = pa.array(codes, mask=is_null).cast(indices.type)
    return pa.DictionaryArray.from_arrays(positions, chunk.dictionary.take(integer_array(used)))


def _without_null_values(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the chunk with nulls among its indices only, where `null_count` sees them."""
    return chunk.dictionary_decode().dictionary_encode() if chunk.dictionary.null_count else chunk


def _with_indices(chunk: pa.DictionaryArray, kind: pa.DataType) -> pa.DictionaryArray:
    if chunk.type.index_type == kind:
        return chunk
    return pa.DictionaryArray.from_arrays(
        chunk.indices.cast(kind, safe=False), chunk.dictionary, safe=False
    )


def _index_type(values: int, *, least_bits: int) -> pa.DataType:
    """Return the narrowest type of indices by which Arrow joins dictionaries to so many values.

    A type holds one value more, but Arrow refuses to fill it.
    """
    fitting = (
        kind
        for kind in _INDEX_TYPES
        if kind.bit_width >= least_bits and values < 1 << (kind.bit_width - 1)
    )
    return next(fitting, CODES)
