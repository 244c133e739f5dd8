"""How many bytes each value of a column takes."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.buffers import fixed_width, list_offsets

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
    """Return the sum over the children of each list; null lists have none."""
    ends = np.concatenate([[0.0], np.cumsum(children)])[list_offsets(array)]
    sums: Bytes = np.diff(ends)
    return sums
