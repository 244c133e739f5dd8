"""What the statistics of a column chunk say of its values, where that is certain.

It is not for floating-point numbers, whose statistics leave out NaN; for what is nested; and for
text, where its ends may be truncated and must not be.

Source: Apache Parquet format, parquet.thrift, Statistics.
"""

from decimal import Decimal
from typing import Any, Final

from liquidlog.data.footer import Chunk
from liquidlog.data.statistics import Ends, KnownColumn
from liquidlog.data.thrift import BINARY, I64, TRUE, Struct
from liquidlog.spec.bounds import has_bounds
from liquidlog.spec.schema import DecimalType, Leaf, PrimitiveType

_NULL_COUNT, _MAXIMUM, _MINIMUM, _MAXIMUM_IS_EXACT, _MINIMUM_IS_EXACT = 3, 5, 6, 7, 8
_INTEGER_BYTES: Final = {1: 4, 2: 8}
"""Bytes of a value by the number of its physical type: INT32, INT64."""
_BYTE_ARRAY: Final = 6
_FLOATS: Final = frozenset({"float", "double"})


def known_column(chunk: Chunk, leaf: Leaf, *, exact: bool) -> KnownColumn | None:
    """Return what the statistics of a chunk say of a leaf, None if its values must be read.

    Args:
        chunk: Of a writer that is trusted.
        leaf: What the chunk holds the values of, in the type that the file has.
        exact: Whether ends must be values of the chunk, not only around them.
    """
    statistics = chunk.statistics
    null_count = _field(statistics, _NULL_COUNT, I64)
    if chunk.path != leaf.physical or len(chunk.path) > 1 or null_count is None:
        return None
    if not 0 <= null_count <= chunk.num_values:
        return None
    if null_count == chunk.num_values or not has_bounds(leaf.data_type):
        return KnownColumn(null_count, None)
    ends = _ends(statistics, chunk.physical_type, leaf, exact=exact)
    return None if ends is None else KnownColumn(null_count, ends)


def _ends(statistics: Struct, physical_type: int, leaf: Leaf, *, exact: bool) -> Ends | None:
    low = _field(statistics, _MINIMUM, BINARY)
    high = _field(statistics, _MAXIMUM, BINARY)
    if low is None or high is None:
        return None
    found = None
    if physical_type in _INTEGER_BYTES:
        found = _integer_ends(low, high, _INTEGER_BYTES[physical_type], leaf)
    elif physical_type == _BYTE_ARRAY and leaf.data_type == PrimitiveType("string"):
        flags = (_MINIMUM_IS_EXACT, _MAXIMUM_IS_EXACT)
        whole = all(_field(statistics, flag, TRUE) is True for flag in flags)
        found = Ends(low, high) if whole or not exact else None
    return found if found is not None and found.minimum <= found.maximum else None


def _integer_ends(low: bytes, high: bytes, size: int, leaf: Leaf) -> Ends | None:
    floating = isinstance(leaf.data_type, PrimitiveType) and leaf.data_type.name in _FLOATS
    if floating or {len(low), len(high)} != {size}:
        return None
    ends = [int.from_bytes(end, "little", signed=True) for end in (low, high)]
    if isinstance(leaf.data_type, DecimalType):
        # At most 19 digits, so the context's precision does not matter.
        return Ends(*(Decimal(end).scaleb(-leaf.data_type.scale) for end in ends))
    return Ends(*ends)


def _field(struct: Struct, number: int, kind: int) -> Any:  # noqa: ANN401  any of Thrift's types
    found, value = struct.get(number, (0, None))
    return value if found == kind else None
