"""Binary search of many integers in few, by a table of where each stretch of values begins.

`numpy.searchsorted` takes a dozen steps per value, each a branch that the processor guesses wrong
half of the time. Boundaries between equally frequent ranges leave few in any stretch, so that one
look into the table and one or two comparisons are enough.
"""

from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer]
Positions = npt.NDArray[np.int64]
Side = Literal["left", "right"]

_TABLE_BITS: Final = 16
_LEAST_VALUES: Final = 1 << 12
"""Making the table takes as long as searching a thousand values."""
_MAX_COMPARISONS: Final = 4
"""More boundaries than these in one stretch make the table slower than a binary search."""


def positions_in(boundaries: Integers, values: Integers, side: Side = "left") -> Positions:
    """Return how many boundaries are below each value, or with side "right" not above it.

    Args:
        boundaries: (b,) integers of any dtype, sorted; duplicates are allowed.
        values: (n,) of the same dtype.
        side: As for numpy's `searchsorted`, whose result this is.

    Returns:
        (n,) int64, each in [0, b].
    """
    positions = _by_table(boundaries, values, side) if len(values) >= _LEAST_VALUES else None
    if positions is None:
        return np.searchsorted(boundaries, values, side).astype(np.int64, copy=False)
    return positions


def _by_table(boundaries: Integers, values: Integers, side: Side) -> Positions | None:
    """Return the positions; None if too many boundaries are in one stretch, or there are none."""
    if not len(boundaries):
        return None
    first, last = boundaries[0], boundaries[-1]
    shift = np.uint64(max(0, (int(last) - int(first)).bit_length() - _TABLE_BITS))
    counts = np.bincount(_stretches(boundaries, first, shift))
    comparisons = int(counts.max())
    if comparisons > _MAX_COMPARISONS:
        return None
    starts = np.cumsum(counts) - counts
    positions: Positions = starts[_stretches(np.clip(values, first, last), first, shift)]
    is_passed = np.less if side == "left" else np.less_equal
    # What lies behind the last boundary may count as passed; that is corrected at the end.
    padded = np.append(
        boundaries, np.full(comparisons + 1, np.iinfo(boundaries.dtype).max, boundaries.dtype)
    )
    for _ in range(comparisons):
        positions += is_passed(padded[positions], values)
    return np.minimum(positions, len(boundaries), out=positions)


def _stretches(values: Integers, first: np.integer, shift: np.uint64) -> Positions:
    """Return the number of each value's stretch; values are at least `first`."""
    wide = values.astype(np.uint64)
    wide -= np.array(first).astype(np.uint64)
    wide >>= shift
    return wide.view(np.int64)
