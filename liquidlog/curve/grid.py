"""What all curves share: grid points and keys, and where the range of a coordinate ends."""

from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.errors import UsageError

Coords = npt.NDArray[np.unsignedinteger]
Keys = npt.NDArray[np.uint64]

KEY_BITS: Final = 64

BLOCK_ROWS: Final = 1 << 15
"""Rows that kernels work on at a time: a block's temporaries stay in L2 cache."""


def check_grid(coords: Coords, bits: int) -> tuple[int, int]:
    """Return n and d of (n, d) unsigned coordinates, if their keys fit in 64 bits."""
    n, d = coords.shape
    if d < 1 or bits < 1 or d * bits > KEY_BITS:
        raise UsageError(
            f"a curve key needs 1 to {KEY_BITS} bits, found {d} coordinates of {bits} bits"
        )
    return n, d


def coordinate_ends(coords: Coords, bits: int) -> Coords:
    """Return where each row's range ends: the next coordinate that a sampled row has.

    A box with one of seven values is a seventh wide, although its coordinates are all equal.

    Args:
        coords: (s, d) unsigned, each in [0, 2**bits).
        bits: Bits of a coordinate.

    Returns:
        (s, d) of the same dtype, each in (0, 2**bits].
    """
    ends = np.empty_like(coords)
    for axis in range(coords.shape[1]):
        distinct, numbers = np.unique(coords[:, axis], return_inverse=True)
        ends[:, axis] = np.append(distinct[1:], np.uint32(1 << bits))[numbers]
    return ends
