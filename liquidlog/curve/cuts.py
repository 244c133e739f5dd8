"""Cuts along a curve: which rows go into which file.

Rows are totally ordered by (key, ordinal), the ordinal being a row's number in the whole input. A
*cut* is such a pair; rows at or after it lie on its right. A cut falls inside a run of equal keys
only where the run is too long to be kept together.

Equal numbers of rows make ragged boxes: a segment of a Hilbert curve that ends inside a quadrant
reaches across it. `choose_cuts` lets sizes vary from half to one and a half times the mean and
takes the cuts with the smallest sum, over all files, of rows times box extents, the expected rows
that a narrow predicate on one of the columns reads. By dynamic programming over a sorted sample,
O(sample * d + files**2) in blocks of at most `_BLOCK_PARTS` files.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.curve.grid import Coords, Keys
from liquidlog.curve.order import stable_order
from liquidlog.curve.search import positions_in

Ordinals = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

_UNITS_PER_PART: Final = 16
_MIN_ROWS_PER_UNIT: Final = 4
"""With fewer sampled rows in a unit its box says little; cuts are equal then."""

_BLOCK_PARTS: Final = 64
"""Files chosen together; between blocks cuts are equal. Bounds the quadratic cost."""

_ORDINAL_BITS: Final = 40

_EVENNESS: Final = 0.1
"""Weight of equal sizes, small beside extents: decides where boxes do not differ."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts in order: `keys` and `ordinals`, (parts - 1,) uint64 each; ordinals below 2**40."""

    keys: Keys
    ordinals: Ordinals

    def parts_of(self, keys: Keys, ordinals: Ordinals) -> npt.NDArray[np.int64]:
        """Return the part of each row, (n,) in [0, len(cuts)]."""
        parts = positions_in(self.keys, keys, "right")
        if len(self.keys) == 0:
            return parts
        tied = np.flatnonzero(self.keys[np.maximum(parts, 1) - 1] == keys)
        if len(tied):
            distinct, numbers = np.unique(self.keys, return_inverse=True)
            shift = np.uint64(_ORDINAL_BITS)
            cuts = (numbers.astype(np.uint64) << shift) | self.ordinals
            rows = np.searchsorted(distinct, keys[tied]).astype(np.uint64) << shift
            parts[tied] = np.searchsorted(cuts, rows | ordinals[tied], side="right")
        return parts


@dataclass(frozen=True, slots=True)
class CurveSample:
    """Sampled rows, sorted by (key, ordinal); `extent` is (s, d) coordinates as shares of 1."""

    keys: Keys
    ordinals: Ordinals
    extent: npt.NDArray[np.float64]

    @classmethod
    def sort(cls, keys: Keys, ordinals: Ordinals, *, coords: Coords, bits: int) -> "CurveSample":
        """Return the sample of these rows, whose ordinals must be increasing."""
        order = stable_order(keys)
        return cls(keys[order], ordinals[order], coords[order] / float(1 << bits))


def equal_cuts(sample: CurveSample, parts: int) -> Cuts:
    """Return cuts into `parts` files of nearly equal numbers of rows."""
    return _cuts_at(sample, _even_positions(sample.keys, parts)[1:-1])


def choose_cuts(sample: CurveSample, parts: int) -> Cuts:
    """Return cuts into `parts` files whose boxes are small, each 0.5 to 1.5 times the mean size."""
    blocks = -(-parts // _BLOCK_PARTS)
    firsts = np.arange(blocks + 1) * parts // blocks
    units = _even_positions(sample.keys, parts * _UNITS_PER_PART)
    if np.diff(units).min() < _MIN_ROWS_PER_UNIT or parts == 1:
        return equal_cuts(sample, parts)
    chosen = [
        _best_units(sample.extent, units[first * _UNITS_PER_PART : last * _UNITS_PER_PART + 1])
        for first, last in pairwise(firsts)
    ]
    return _cuts_at(sample, np.concatenate(chosen)[:-1])


def refine_cuts(sample: CurveSample, cuts: Cuts, *, slices: int) -> Cuts:
    """Return cuts that also cut each part into `slices` of nearly equal numbers of rows.

    Part p of `cuts` is parts p * slices to p * slices + slices - 1 of the result.
    """
    inner = cuts.parts_of(sample.keys, sample.ordinals)
    edges = np.searchsorted(inner, np.arange(len(cuts.keys) + 2))
    keys, ordinals = [], []
    for part, (start, stop) in enumerate(pairwise(edges.tolist())):
        inside = _cuts_at(sample, start + _even_positions(sample.keys[start:stop], slices)[1:-1])
        keys += [inside.keys, cuts.keys[part : part + 1]]
        ordinals += [inside.ordinals, cuts.ordinals[part : part + 1]]
    return Cuts(np.concatenate(keys), np.concatenate(ordinals))


def _cuts_at(sample: CurveSample, positions: Positions) -> Cuts:
    """Return the cuts before these sampled rows; position s is after the last one."""
    s = len(sample.keys)
    if s == 0:
        return Cuts(np.zeros(len(positions), np.uint64), np.zeros(len(positions), np.uint64))
    rows = np.minimum(positions, s - 1)
    keys, ordinals = sample.keys[rows], sample.ordinals[rows]
    # A run of equal keys that starts here starts with rows the sample does not hold.
    starts_run = (rows == 0) | (sample.keys[rows - 1] != keys)
    ordinals = np.where(starts_run, np.uint64(0), ordinals)
    after_last = sample.ordinals[-1] + np.uint64(1)
    return Cuts(keys, np.where(positions == s, after_last, ordinals))


def _even_positions(keys: Keys, count: int) -> Positions:
    """Return count + 1 positions from 0 to s, moved to where the key changes if one is near."""
    s = len(keys)
    even = np.arange(count + 1) * s // count
    if s == 0:
        return even
    changes = np.flatnonzero(np.append(keys[1:] != keys[:-1], True)) + 1
    after = changes[np.minimum(np.searchsorted(changes, even), len(changes) - 1)]
    before = changes[np.maximum(np.searchsorted(changes, even, side="right") - 1, 0)]
    nearest = np.where(after - even <= even - before, after, before)
    reach = s // (4 * count)
    moved = np.where(np.abs(nearest - even) <= reach, nearest, even)
    moved[0], moved[-1] = 0, s
    return moved


def _best_units(extent: npt.NDArray[np.float64], units: Positions) -> Positions:
    """Return the positions where the parts of one block end, the block's end included."""
    count = len(units) - 1
    parts = count // _UNITS_PER_PART
    widths = range(_UNITS_PER_PART // 2, _UNITS_PER_PART * 3 // 2 + 1)
    costs = _window_costs(extent, units, widths=widths)
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    chosen = np.zeros((parts, count + 1), np.int64)
    for part in range(parts):
        options = np.full((len(widths), count + 1), np.inf)
        for i, width in enumerate(widths):
            options[i, width:] = best[:-width] + costs[i, width:]
        chosen[part] = options.argmin(axis=0)
        best = options.min(axis=0)
    ends, end = [], count
    for part in range(parts - 1, -1, -1):
        ends.append(end)
        end -= widths[int(chosen[part, end])]
    positions: Positions = units[np.array(ends[::-1])]
    return positions


def _window_costs(
    extent: npt.NDArray[np.float64], units: Positions, *, widths: range
) -> npt.NDArray[np.float64]:
    """Return rows times summed box extents of the `width` units that end at each unit edge.

    (len(widths), units) with inf where the window would start before the first unit.
    """
    lows = np.minimum.reduceat(extent[: units[-1]], units[:-1], axis=0)
    highs = np.maximum.reduceat(extent[: units[-1]], units[:-1], axis=0)
    costs = np.full((len(widths), len(units)), np.inf)
    low, high = lows.copy(), highs.copy()
    for width in range(1, widths[-1] + 1):
        if width > 1:
            low = np.minimum(low[1:], lows[: len(low) - 1])
            high = np.maximum(high[1:], highs[: len(high) - 1])
        if width >= widths[0]:
            rows = units[width:] - units[:-width]
            reach = (high - low).sum(axis=1) + _EVENNESS * rows / len(extent)
            costs[width - widths[0], width:] = rows * reach
    return costs
