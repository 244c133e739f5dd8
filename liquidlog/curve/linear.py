"""The linear order: sorted by the first column, then the second, and so on.

*point*: (n, d) unsigned, each in [0, 2**bits). *key*: (n,) uint64 in [0, 2**(d * bits)), the first
column in its most significant bits. d * bits <= 64 so that a key is one word. O(n * d).
"""

import numpy as np
import numpy.typing as npt

from liquidlog.curve.grid import Coords, Keys, check_grid


def linear_index(coords: Coords, bits: int) -> Keys:
    """Return the position of each point in lexicographic order.

    Args:
        coords: (n, d) unsigned, each in [0, 2**bits).
        bits: Bits of a coordinate, d * bits <= 64.

    Returns:
        (n,) uint64, each in [0, 2**(d * bits)).
    """
    _, d = check_grid(coords, bits)
    keys = coords[:, 0].astype(np.uint64)
    for j in range(1, d):
        keys = (keys << np.uint64(bits)) | coords[:, j].astype(np.uint64)
    return keys


def linear_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point at each position; inverse of linear_index.

    Args:
        keys: (n,) uint64, each in [0, 2**(dimensions * bits)).
        dimensions: d, the number of coordinates.
        bits: Bits of a coordinate, d * bits <= 64 and bits <= 32.

    Returns:
        (n, d) uint32.
    """
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    mask = np.uint64((1 << bits) - 1)
    shifts = [np.uint64((dimensions - 1 - j) * bits) for j in range(dimensions)]
    return np.stack([(keys >> shift) & mask for shift in shifts], axis=1).astype(np.uint32)
