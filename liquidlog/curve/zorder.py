"""The Z-order (Morton) curve: the bits of all coordinates interleaved.

*point*: (n, d) unsigned, each in [0, 2**bits). *key*: (n,) uint64 in [0, 2**(d * bits)); the first
column is the most significant bit of each d-bit digit. d * bits <= 64 so that a key is one word.
Inverse: `zorder_point`. O(n * d * bits / 8).
"""

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.curve.grid import BLOCK_ROWS, Coords, Keys, check_grid

_BYTE_BITS: Final = 8


def zorder_index(coords: Coords, bits: int) -> Keys:
    """Return the position on the curve of each point.

    Args:
        coords: (n, d) unsigned, each in [0, 2**bits).
        bits: Bits of a coordinate, d * bits <= 64.

    Returns:
        (n,) uint64, each in [0, 2**(d * bits)).
    """
    n, d = check_grid(coords, bits)
    keys = np.zeros(n, np.uint64)
    spread = _spread_byte(d)
    for start in range(0, n, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        for j in range(d):
            column = coords[block, j].astype(np.uint64)
            for low in range(0, bits, _BYTE_BITS):
                octet = (column >> np.uint64(low)) & np.uint64(0xFF)
                keys[block] |= spread[octet] << np.uint64(low * d + d - 1 - j)
    return keys


def zorder_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point at each position on the curve; inverse of zorder_index.

    Args:
        keys: (n,) uint64, each in [0, 2**(dimensions * bits)).
        dimensions: d, the number of coordinates.
        bits: Bits of a coordinate, d * bits <= 64 and bits <= 32.

    Returns:
        (n, d) uint32.
    """
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    point = np.zeros((len(keys), dimensions), np.uint32)
    for plane in range(bits):
        for j in range(dimensions):
            shift = np.uint64(plane * dimensions + dimensions - 1 - j)
            bit = (keys >> shift) & np.uint64(1)
            point[:, j] |= (bit << np.uint64(plane)).astype(np.uint32)
    return point


@cache
def _spread_byte(d: int) -> npt.NDArray[np.uint64]:
    """Return each byte with d - 1 zeros between its bits; bits beyond 64 belong to no key."""
    spread = [sum((octet >> i & 1) << (i * d) for i in range(_BYTE_BITS)) for octet in range(256)]
    return np.array([value & (2**64 - 1) for value in spread], np.uint64)
