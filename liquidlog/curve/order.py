"""Row orders: stable sorting by key, and sorting a whole batch along a curve.

A *row order* is (n,) int64 row indices; taking the rows in this order sorts them. Rows with equal
keys keep their order, so that the same rows give the same files.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.curve.curves import Curve, coordinate_bits, curve_index, parse_curve
from liquidlog.curve.grid import KEY_BITS, Keys
from liquidlog.curve.ranges import Axis, Column, range_boundaries, range_ids

RowOrder = npt.NDArray[np.int64]

_EXACT_RANGES: Final = 1 << 31
"""More ranges than a batch can have rows: every distinct value gets its own."""

_RADIX_BITS: Final = 16


def order_rows(columns: Sequence[Column], curve: str) -> RowOrder:
    """Return the row order that sorts a whole batch along a curve: the first of `sort_rows`."""
    return sort_rows(columns, curve)[0]


def sort_rows(columns: Sequence[Column], curve: str) -> tuple[RowOrder, Keys]:
    """Return the row order that sorts a whole batch along a curve, and the keys in that order.

    Ranks come from the batch itself: exact for one column and for the linear curve, else equally
    frequent ranges. One column is always sorted by value. Nulls first, NaN last.

    Args:
        columns: The d >= 1 columns to sort by, n rows each, most significant first.
        curve: Name of a curve.

    Returns:
        (n,) int64 row indices; (n,) uint64 keys that never decrease. On the linear curve these are
        about the first column alone.
    """
    chosen = parse_curve(curve)
    if chosen is Curve.LINEAR or len(columns) == 1:
        ranks = [range_ids(column, range_boundaries(column, _EXACT_RANGES)) for column in columns]
        order = stable_order(ranks[0]) if len(ranks) == 1 else np.lexsort(ranks[::-1])
        return order, ranks[0][order].astype(np.uint64)
    bits = coordinate_bits(len(columns))
    coords = np.empty((len(columns[0]), len(columns)), np.uint32, order="F")
    for j, column in enumerate(columns):
        _, coords[:, j] = Axis.fit(column, max_ranges=1 << bits, bits=bits)
    keys = curve_index(coords, bits, chosen)
    order = stable_order(keys)
    return order, keys[order]


def stable_order(keys: npt.NDArray[np.unsignedinteger]) -> RowOrder:
    """Return the row order that sorts by unsigned key, equal keys in row order.

    numpy sorts numbers of 16 bits by radix: keys that span 32 bits take two such sorts, in half the
    time of one sort of words. Where longer keys and row numbers fit in one word they are sorted as
    one, which is several times faster than a stable sort of indices.

    Args:
        keys: (n,) of any unsigned dtype.

    Returns:
        (n,) int64 row indices.
    """
    n = len(keys)
    if n == 0:
        return np.empty(0, np.int64)
    lowest = keys.min()
    key_bits = int(keys.max() - lowest).bit_length()
    if key_bits <= 2 * _RADIX_BITS:
        return _order_by_radix((keys - lowest).astype(np.uint32), key_bits)
    row_bits = max(n - 1, 1).bit_length()
    if key_bits + row_bits > KEY_BITS:
        return np.argsort(keys, kind="stable")
    packed: Keys = (keys - lowest).astype(np.uint64)
    packed <<= np.uint64(row_bits)
    packed |= np.arange(n, dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << row_bits) - 1)
    return packed.astype(np.int64)


def _order_by_radix(keys: npt.NDArray[np.uint32], key_bits: int) -> RowOrder:
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    if key_bits <= _RADIX_BITS:
        return order
    high = (keys >> np.uint32(_RADIX_BITS)).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")]
