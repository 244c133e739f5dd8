"""Arrow buffers as numpy arrays without a copy.

`Array.to_numpy` would do, but like `pa.scalar` and `pa.array` it imports pandas where installed,
which costs every Spark worker half a second.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SIGN: Final = np.int64(63)


def buffer_bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """Return the bytes of a buffer, (bytes,) uint8 over the same memory; none if it is absent."""
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def fixed_width(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the n values of a fixed-width array over the same memory.

    `dtype` has the width of the values, or half of it: then there are two entries per value, as for
    decimals. Entries under nulls may be anything.
    """
    width = array.type.bit_width // 8
    data = buffer_bytes(array.buffers()[1])
    return data[array.offset * width : (array.offset + len(array)) * width].view(dtype)


def null_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return where an array of n values is null, (n,) bool."""
    return fixed_width(pc.cast(array.is_null(), pa.uint8()), np.bool_)


def list_offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return where each list of a list or map array begins in its children, (n + 1,) int64."""
    if not len(array):
        return np.zeros(1, np.int64)
    offsets = array.offsets
    return fixed_width(offsets, f"<i{offsets.type.bit_width // 8}").astype(np.int64)


def integer_array(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Return (n,) int64 as an Arrow array of n values over the same memory, without nulls."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def decimal_integers(array: pa.Decimal128Array) -> pa.Int64Array | None:
    """Return the unscaled values of decimals, n values; None if one needs more than 64 bits."""
    halves = fixed_width(array, np.int64)
    values, beyond = halves[::2].copy(), halves[1::2]
    wide = (values >> _SIGN) != beyond
    validity = _validity(array)
    if array.null_count:
        wide &= ~null_mask(array)
    if wide.any():
        return None
    return pa.Array.from_buffers(pa.int64(), len(array), [validity, pa.py_buffer(values)])


def decimals_of(array: pa.Int64Array, kind: pa.Decimal128Type) -> pa.Decimal128Array:
    """Return the decimals with these unscaled values; inverse: `decimal_integers`."""
    values = fixed_width(array, np.int64)
    halves = np.empty((len(array), 2), np.int64)
    halves[:, 0] = values
    np.right_shift(values, _SIGN, out=halves[:, 1])
    return pa.Array.from_buffers(kind, len(array), [_validity(array), pa.py_buffer(halves)])


def _validity(array: pa.Array) -> pa.Buffer | None:
    if not array.null_count:
        return None
    return pa.py_buffer(np.packbits(~null_mask(array), bitorder="little"))


Bytes = npt.NDArray[np.float64]


def value_bytes(column: pa.ChunkedArray) -> Bytes:
    """Return the bytes of each value of a column, (n,) float64, without what says where it ends.

    Null texts, lists and maps take none; values in dictionaries take their indices.
    """
    return np.concatenate([np.zeros(0), *(_bytes_of(chunk) for chunk in column.chunks)])


def _bytes_of(array: pa.Array) -> Bytes:
    kind = array.type
    if isinstance(kind, pa.DictionaryType):
        return np.full(len(array), kind.index_type.bit_width / 8)
    if isinstance(kind, pa.StructType):
        total: Bytes = np.sum([np.zeros(len(array)), *map(_bytes_of, array.flatten())], axis=0)
        return total
    if isinstance(kind, pa.ListType):
        return _sums(array, _bytes_of(array.values))
    if isinstance(kind, pa.MapType):
        return _sums(array, _bytes_of(array.keys) + _bytes_of(array.items))
    if kind in {pa.string(), pa.binary()}:
        lengths = pc.fill_null(pc.binary_length(array), pa.scalar(0, pa.int32()))
        return fixed_width(lengths, np.int32).astype(np.float64)
    return np.full(len(array), kind.bit_width / 8)


def _sums(array: pa.Array, children: Bytes) -> Bytes:
    ends = np.concatenate([[0.0], np.cumsum(children)])[list_offsets(array)]
    sums: Bytes = np.diff(ends)
    return sums
