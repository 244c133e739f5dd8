"""Whether rows are the same bit by bit: what the multiset checksum calls equal, without hashes.

NaNs of different payloads differ, and so do the two zeros; null is equal to null alone. How values
are encoded, and what lies under a null, does not matter.
"""

from typing import Final

import pyarrow as pa

from liquidlog.spec.arrow import is_list

_BITS: Final = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
"""Arrow compares floating-point numbers as numbers; their bits are compared as integers."""


def same_bits(first: pa.Table, second: pa.Table) -> bool:
    """Return whether two tables of the same columns hold the same rows in the same order."""
    if first.num_rows != second.num_rows or first.num_columns != second.num_columns:
        return False
    pairs = zip(first.itercolumns(), second.itercolumns(), strict=True)
    return all(_bits(left).equals(_bits(right)) for left, right in pairs)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without floating-point numbers and dictionaries."""
    if isinstance(column.type, pa.DictionaryType):
        column = column.cast(column.type.value_type)
    wanted = _bits_type(column.type)
    return pa.chunked_array([chunk.view(wanted) for chunk in column.chunks], wanted)


def _bits_type(found: pa.DataType) -> pa.DataType:
    if isinstance(found, pa.StructType):
        return pa.struct([pa.field(child.name, _bits_type(child.type)) for child in found])
    if isinstance(found, pa.MapType):
        return pa.map_(_bits_type(found.key_type), _bits_type(found.item_type))
    if is_list(found):
        return pa.list_(_bits_type(found.value_type))
    return _BITS.get(found, found)
