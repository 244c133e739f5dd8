"""Arrow buffers as numpy arrays without a copy.

`Array.to_numpy` would do, but like `pa.scalar` and `pa.array` it imports pandas where installed,
which costs every Spark worker half a second.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def buffer_bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """Return the bytes of a buffer, none for an absent one."""
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def fixed_width(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values of a fixed-width array as `dtype` of the same width, or half of it.

    Half the width gives two entries a value (decimals). Entries under nulls may be anything.
    """
    width = array.type.bit_width // 8
    data = buffer_bytes(array.buffers()[1])
    return data[array.offset * width : (array.offset + len(array)) * width].view(dtype)


def null_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return True where the array is null."""
    return fixed_width(pc.cast(array.is_null(), pa.uint8()), np.bool_)


def list_bounds(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bounds of all lists of a list or map array in its children, len + 1 of them."""
    if not len(array):
        return np.zeros(1, np.int64)
    offsets = array.offsets
    return fixed_width(offsets, f"<i{offsets.type.bit_width // 8}").astype(np.int64)


def integer_array(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Return the numbers as an Arrow array over the same memory."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
