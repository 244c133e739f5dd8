"""Cuts inside files: where row groups begin, so that they are boxes of the curve as files are.

A stretch of keys between two multiples of a power of two is a box, whatever the curve: a quadrant,
or some that lie side by side. So of all places where a row group could end, the best is where the
keys before and behind differ in the highest bit. Row groups of three eighths to all of a number of
rows leave room for one such place wherever rows fill the grid evenly: dividing a quadrant by two
over and over comes to between a half and all of that number.

Rows come in order. A cut depends on the rows up to `most` behind the last one, and on how many
follow if these are few, so that the same rows are cut alike in whatever portions they come.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liquidlog.curve.grid import Keys


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """How many rows a row group has: `least` to `most`; what is left behind it, at least `behind`.

    Only the last row group of a file may be smaller.
    """

    least: int
    most: int
    behind: int

    @classmethod
    def wide(cls, most: int) -> "GroupSizes":
        """Return sizes from three eighths of `most`, so that a good place to end is among them."""
        least = max(1, most * 3 // 8)
        return cls(least, most, least)

    @classmethod
    def narrow(cls, most: int) -> "GroupSizes":
        """Return sizes from five sixths of `most`, for which few rows behind must be known."""
        return cls(max(1, most * 5 // 6), most, 1)

    def in_sampled_rows(self, rows_each: float) -> "GroupSizes":
        """Return the sizes in sampled rows, each of which stands for `rows_each` rows."""
        least = max(1, round(self.least / rows_each))
        most = max(least, round(self.most / rows_each))
        return GroupSizes(least, most, max(1, round(self.behind / rows_each)))

    @property
    def usual(self) -> int:
        """What a row group has where one place to end is as good as another."""
        return self.least + (self.most - self.least) * 2 // 5

    @property
    def ahead(self) -> int:
        """How many rows must be known before a row group is cut off while more may follow."""
        return self.most + self.behind


def rows_until_cut(keys: Keys, sizes: GroupSizes, *, level_bits: int = 1) -> int:
    """Return how many of n sorted rows make the first row group, the rest of them making others.

    Args:
        keys: (n,) uint64, the rows' keys, never decreasing; n above `sizes.most`.
        sizes: How many rows a row group may have.
        level_bits: Bits of a key whose differences count alike: 1 for curves that fill space, the
            bits of a coordinate for those that sort column by column.
    """
    first = sizes.least
    last = max(first, min(sizes.most, len(keys) - sizes.behind))
    differing = keys[first - 1 : last] ^ keys[first : last + 1]
    highest = int(differing.max())
    if highest == 0:
        return min(sizes.usual, last)
    level = (highest.bit_length() - 1) // level_bits * level_bits
    places = np.flatnonzero(differing >= np.uint64(1 << level)) + first
    return int(places[np.abs(places - sizes.usual).argmin()])


def row_group_starts(keys: Keys, sizes: GroupSizes, *, level_bits: int = 1) -> NDArray[np.int64]:
    """Return where the row groups of a file begin, int64, the first one at 0; none without rows.

    Args:
        keys: (n,) uint64, the keys of all rows of the file, never decreasing.
        sizes: As for `rows_until_cut`.
        level_bits: As for `rows_until_cut`.
    """
    starts = [0] if len(keys) else []
    while starts and len(keys) - starts[-1] > sizes.most:
        rest = keys[starts[-1] : starts[-1] + sizes.ahead]
        starts.append(starts[-1] + rows_until_cut(rest, sizes, level_bits=level_bits))
    return np.array(starts, np.int64)
