"""Columns on their way through the shuffle: integers in the fewest bytes that hold them all.

What the shuffle moves is copied half a dozen times between Python, the JVM and the disk. Tables
hold small numbers in wide types: keys in 64 bits, prices in decimals of 128. They travel, and are
sorted, as integers of the narrowest type that fits the rows at hand, and get their own types back
before they are written. Columns inside structs, lists and maps stay as they are. Between processes
they are Arrow IPC streams.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.buffers import decimal_integers, decimals_of
from liquidlog.data.encodings import CODES, joinable, with_indices

_NARROW: Final = tuple(
    (kind, -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
    for kind in (pa.int8(), pa.int16(), pa.int32())
)


def narrowed(table: pa.Table) -> pa.Table:
    """Return the table with narrow columns; inverse: `widened`."""
    return pa.table(list(narrow_columns(table)), names=table.column_names)


def narrow_columns(table: pa.Table) -> Iterator[pa.ChunkedArray]:
    """Yield the columns of `narrowed`, each made when it is asked for."""
    return map(_narrow, table.itercolumns())


def aligned(tables: Sequence[pa.Table], kinds: pa.Schema) -> list[pa.Table]:
    """Return tables from `narrowed` with columns in whose types they differ as wide as in any."""
    first = tables[0].schema.types
    if all(table.schema.types == first for table in tables):
        return list(tables)
    integers, others = {}, set()
    for position, name in enumerate(tables[0].column_names):
        found = {table.schema.field(position).type for table in tables}
        if len(found) == 1:
            continue
        if all(map(pa.types.is_signed_integer, found)):
            integers[name] = max(found, key=attrgetter("bit_width"))
        else:
            others.add(name)
    return [_widened(_with_types(table, integers), kinds, others) for table in tables]


def widened(table: pa.Table, kinds: pa.Schema) -> pa.Table:
    """Return the table with the types that its columns had before `narrowed`; others stay."""
    return _widened(table, kinds, set(kinds.names))


def _with_types(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    columns = [
        column.cast(types[name]) if name in types else column
        for name, column in zip(table.column_names, table.itercolumns(), strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _widened(table: pa.Table, kinds: pa.Schema, names: set[str]) -> pa.Table:
    types = {child.name: child.type for child in kinds if child.name in names}
    columns = [
        _wide(column, types[name]) if name in types else column
        for name, column in zip(table.column_names, table.itercolumns(), strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _narrow(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.DictionaryType):
        return _narrow_dictionary(column)
    if pa.types.is_date32(kind):
        return _narrow_integers(column.cast(pa.int32()), otherwise=column)
    if pa.types.is_signed_integer(kind):
        return _narrow_integers(column, otherwise=column)
    if pa.types.is_decimal128(kind):
        return _narrow_decimals(column)
    return column


def _narrow_integers(column: pa.ChunkedArray, *, otherwise: pa.ChunkedArray) -> pa.ChunkedArray:
    extremes = pc.min_max(column)
    low, high = extremes["min"].as_py() or 0, extremes["max"].as_py() or 0
    for kind, lowest, highest in _NARROW:
        if kind.bit_width < column.type.bit_width and lowest <= low and high <= highest:
            return column.cast(kind, safe=False)
    return otherwise


def _narrow_decimals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    found = [decimal_integers(chunk) for chunk in column.chunks]
    chunks = [chunk for chunk in found if chunk is not None]
    if len(chunks) < len(found):
        # Foreign files can hold more digits than their type has; they are kept.
        return column
    integers = pa.chunked_array(chunks, pa.int64())
    return _narrow_integers(integers, otherwise=integers)


def _narrow_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Row groups come with a dictionary each, whose values may need wider indices together.
    column = joinable(column).unify_dictionaries()
    largest = max((len(chunk.dictionary) for chunk in column.chunks), default=0)
    for kind, _, highest in _NARROW:
        if largest <= highest + 1:
            return with_indices(column, kind)
    return column


def _wide(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    found = column.type
    if isinstance(found, pa.DictionaryType):
        return with_indices(column, CODES)
    if found == kind or not pa.types.is_integer(found):
        return column
    if pa.types.is_decimal128(kind):
        chunks = [decimals_of(chunk, kind) for chunk in column.cast(pa.int64()).chunks]
        return pa.chunked_array(chunks, kind)
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(kind)
    return column.cast(kind)


def encode_table(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> pa.Buffer:
    """Return rows as an Arrow IPC stream; inverse: decode_table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return sink.getvalue()


def decode_table(content: bytes | pa.Buffer) -> pa.Table:
    """Return the rows in an Arrow IPC stream, without copying what is not compressed."""
    return pa.ipc.open_stream(content).read_all()
