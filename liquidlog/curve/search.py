"""Binary search of many integers in few, by a table of where each stretch of values begins.

`numpy.searchsorted` takes a dozen steps a value, each a branch that the processor guesses wrong
half of the time. Bounds that cut rows into equally frequent ranges leave few in any stretch, so
that a look into the table and one or two comparisons do.
"""

from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer]
Positions = npt.NDArray[np.int64]
Side = Literal["left", "right"]

_TABLE_BITS: Final = 16
_MAX_COMPARISONS: Final = 4
"""More bounds than these in one stretch make the table slower than a binary search."""


def positions_in(bounds: Integers, values: Integers, side: Side = "left") -> Positions:
    """Return how many bounds are below each value, or with side "right" not above it.

    Args:
        bounds: Sorted integers; duplicates are allowed.
        values: (n,) of the same type.
        side: As numpy's `searchsorted`, whose result this is.
    """
    found = _by_table(bounds, values, side) if len(values) > 1 << _TABLE_BITS else None
    if found is None:
        return np.searchsorted(bounds, values, side).astype(np.int64, copy=False)
    return found


def _by_table(bounds: Integers, values: Integers, side: Side) -> Positions | None:
    """Return the positions; None if too many bounds are in one stretch, or there are none."""
    if not len(bounds):
        return None
    first, last = bounds[0], bounds[-1]
    shift = np.uint64(max(0, (int(last) - int(first)).bit_length() - _TABLE_BITS))
    counts = np.bincount(_stretches(bounds, first, shift))
    comparisons = int(counts.max())
    if comparisons > _MAX_COMPARISONS:
        return None
    starts = np.cumsum(counts) - counts
    found: Positions = starts[_stretches(np.clip(values, first, last), first, shift)]
    is_passed = np.less if side == "left" else np.less_equal
    # What lies behind the last bound may count as passed; that is corrected at the end.
    padded = np.append(bounds, np.full(comparisons + 1, np.iinfo(bounds.dtype).max, bounds.dtype))
    for _ in range(comparisons):
        found += is_passed(padded[found], values)
    return np.minimum(found, len(bounds), out=found)


def _stretches(values: Integers, first: np.integer, shift: np.uint64) -> Positions:
    """Return the number of each value's stretch; values are at least `first`."""
    wide = values.astype(np.uint64)
    wide -= np.array(first).astype(np.uint64)
    wide >>= shift
    return wide.view(np.int64)
