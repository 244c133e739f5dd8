"""Points at positions along curves: the inverses of `liquidlog.curve.curves`, for comparisons."""

import numpy as np
import numpy.typing as npt

from liquidlog.curve.curves import _undo_plane
from liquidlog.curve.grid import Keys, check_grid


def hilbert_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point, (n, d) uint32, at each position; inverse of hilbert_index, bits <= 32."""
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    one = np.uint64(1)
    x = [np.zeros(len(keys), np.uint64) for _ in range(dimensions)]
    for plane in range(bits):
        for j in range(dimensions):
            shift = np.uint64(plane * dimensions + dimensions - 1 - j)
            x[j] |= ((keys >> shift) & one) << np.uint64(plane)
    last = x[-1] >> one
    for j in range(dimensions - 1, 0, -1):
        x[j] ^= x[j - 1]
    x[0] ^= last
    for plane in range(1, bits):
        for j in range(dimensions - 1, -1, -1):
            _undo_plane(x, j, plane)
    return np.stack(x, axis=1).astype(np.uint32)


def zorder_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point, (n, d) uint32, at each position; inverse of zorder_index, bits <= 32."""
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    point = np.zeros((len(keys), dimensions), np.uint32)
    for plane in range(bits):
        for j in range(dimensions):
            shift = np.uint64(plane * dimensions + dimensions - 1 - j)
            bit = (keys >> shift) & np.uint64(1)
            point[:, j] |= (bit << np.uint64(plane)).astype(np.uint32)
    return point


def linear_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point, (n, d) uint32, at each position; inverse of linear_index, bits <= 32."""
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    mask = np.uint64((1 << bits) - 1)
    shifts = [np.uint64((dimensions - 1 - j) * bits) for j in range(dimensions)]
    return np.stack([(keys >> shift) & mask for shift in shifts], axis=1).astype(np.uint32)
