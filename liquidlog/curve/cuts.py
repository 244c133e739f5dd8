"""Cuts along a curve: which rows go into which file.

Rows are totally ordered by (key, ordinal), the ordinal being a row's number in the whole input. A
*cut* is such a pair; rows at or after it lie on its right. A cut falls inside a run of equal keys
only where the run is too long to be kept together.

Equal numbers of rows make ragged boxes: a segment of a Hilbert curve that ends inside a quadrant
reaches across it. `choose_cuts` lets sizes vary from half to one and a half times the mean and
takes the cuts with the smallest sum, over all files, of rows times box extents: the rows that a
narrow predicate on one of the columns is expected to read. It finds them by dynamic programming
over a sorted sample, O(sample * d + files). Where it is known what readers ask, `Reach` replaces
the extents by the share of the readers that opens a box, O(files * intervals).

Between two sampled rows a cut is put where the largest quadrants meet, so that rows which the
sample missed fall on the side of their quadrant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from liquidlog.curve.conditions import GridPredicates
from liquidlog.curve.curves import stable_order
from liquidlog.curve.grid import Coords, Keys, positions_in

Ordinals = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

_UNITS_PER_PART: Final = 16
_WIDTHS: Final = range(_UNITS_PER_PART * 3 // 2, _UNITS_PER_PART // 2 - 1, -1)
"""Units that a part may have, most first."""
_MIN_ROWS_PER_UNIT: Final = 4
"""With fewer sampled rows in a unit its box says little; cuts are equal then."""
_MAX_DRIFT_UNITS: Final = 8 * _UNITS_PER_PART
"""How far a cut may be from where equal cuts have it. Bounds the cost to O(files)."""
_ORDINAL_BITS: Final = 40

_EVENNESS: Final = 0.1
"""Weight of equal sizes, small beside extents: decides where boxes do not differ."""
_ANY_VALUE: Final = 1.0
"""Weight of extents beside what is asked, for other values; with a quarter, cuts follow chance."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """How many readers a box reaches: those who `asked`, and those who ask for other values."""

    asked: GridPredicates | None
    axis_weights: Shares

    def of(self, lows: Shares, highs: Shares) -> Shares:
        """Return the reach of m boxes between `lows` and `highs`, (m, d) each; (m,)."""
        extents: Shares = (highs - lows) @ self.axis_weights
        if self.asked is None:
            return extents
        return self.asked.opened(lows, highs) + _ANY_VALUE * extents


def ordinals_from(first: int, rows: int) -> Ordinals:
    """Return the ordinals of `rows` consecutive rows, (rows,) uint64."""
    return np.arange(first, first + rows, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts in order: `keys` and `ordinals`, (parts - 1,) uint64 each; ordinals below 2**40."""

    keys: Keys
    ordinals: Ordinals

    @classmethod
    def joined(cls, cuts: Sequence["Cuts"]) -> "Cuts":
        """Return these cuts one after the other."""
        keys, ordinals = zip(*((one.keys, one.ordinals) for one in cuts), strict=True)
        return cls(np.concatenate(keys), np.concatenate(ordinals))

    def parts_of(self, keys: Keys, ordinals: Ordinals) -> npt.NDArray[np.int64]:
        """Return the part of each of n rows, (n,) int64 in [0, parts)."""
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


class KeyOrder(Protocol):
    """What gives rows their keys, by coordinates of `bits` bits."""

    @property
    def bits(self) -> int:
        """The bits of a coordinate."""

    def keys_of(self, coords: Coords) -> Keys:
        """Return the key of each row of (n, d) coordinates below 2**bits, (n,) uint64."""


@dataclass(frozen=True, slots=True)
class CurveSample:
    """Sampled rows, sorted by (key, ordinal): (s,) uint64 each.

    `lows` and `highs` are (s, d) float64: where a row's range of values begins and ends on each
    column, as shares of all rows.
    """

    keys: Keys
    ordinals: Ordinals
    lows: Shares
    highs: Shares

    @classmethod
    def sort(cls, keys: Keys, ordinals: Ordinals, *, lows: Shares, highs: Shares) -> "CurveSample":
        """Return the sample of s rows in any order of keys; ordinals increase."""
        order = stable_order(keys)
        # Rows taken whole are copied many times faster than by an index.
        ends = (np.take(side, order, axis=0) for side in (lows, highs))
        return cls(keys[order], ordinals[order], *ends)

    def between(self, start: int, stop: int) -> "CurveSample":
        """Return the rows from `start` up to, without, `stop`."""
        rows = slice(start, stop)
        return CurveSample(self.keys[rows], self.ordinals[rows], self.lows[rows], self.highs[rows])


class Placed(NamedTuple):
    """The order of keys, the sample in that order, and the cuts into files."""

    order: KeyOrder
    sample: CurveSample
    cuts: Cuts


def equal_cuts(sample: CurveSample, parts: int) -> Cuts:
    """Return cuts into `parts` files of nearly equal numbers of rows."""
    return _rounded_cuts_at(sample, _equal_positions(sample.keys, parts))


def choose_cuts(sample: CurveSample, parts: int, reach: Reach | None = None) -> Cuts:
    """Return cuts into `parts` files whose boxes are small, each 0.5 to 1.5 times the mean size."""
    return choose_cuts_each([sample], parts, reach)[0]


def choose_cuts_each(
    samples: Sequence[CurveSample], parts: int, reach: Reach | None = None
) -> list[Cuts]:
    """Return `choose_cuts` of several samples of equally many rows, faster."""
    count = parts * _UNITS_PER_PART
    unit_rows = len(samples[0].keys) // count
    if unit_rows < _MIN_ROWS_PER_UNIT or parts == 1:
        return [equal_cuts(sample, parts) for sample in samples]
    reaches = (unit_rows - 1) // 2
    units = [_even_positions(_levels(one.keys), count, reach=reaches) for one in samples]
    costs = np.stack(
        [_window_costs(*both, reach) for both in zip(samples, units, strict=True)], axis=1
    )
    chosen = _best_units(costs)
    return [
        _rounded_cuts_at(sample, edges[best[:-1]])
        for sample, edges, best in zip(samples, units, chosen, strict=True)
    ]


def opened_shares(sample: CurveSample, cuts: Cuts) -> Shares:
    """Return the share of the rows that a predicate for one value of each column opens, (d,)."""
    rows, lows, highs = _files(sample, cuts)
    shares: Shares = rows @ (highs - lows) / max(len(sample.keys), 1)
    return shares


def asked_share(sample: CurveSample, cuts: Cuts, asked: GridPredicates) -> float:
    """Return the share of the rows that the mean query opens."""
    rows, lows, highs = _files(sample, cuts)
    return float(rows @ asked.opened(lows, highs) / max(len(sample.keys), 1))


def _files(sample: CurveSample, cuts: Cuts) -> tuple[Positions, Shares, Shares]:
    """Return the rows of each of m files, (m,), and the ends of its box, (m, d) each."""
    parts = cuts.parts_of(sample.keys, sample.ordinals)
    starts = np.flatnonzero(np.diff(parts, prepend=-1))
    lows = np.minimum.reduceat(sample.lows, starts, axis=0)
    highs = np.maximum.reduceat(sample.highs, starts, axis=0)
    return np.diff(np.append(starts, len(parts))), lows, highs


def refine_cuts(sample: CurveSample, cuts: Cuts, *, slices: int) -> Cuts:
    """Return cuts that also cut each part into `slices` of nearly equal numbers of rows."""
    inner = cuts.parts_of(sample.keys, sample.ordinals)
    edges = np.searchsorted(inner, np.arange(len(cuts.keys) + 2))
    found = []
    for part, (start, stop) in enumerate(pairwise(edges.tolist())):
        found += [
            _cuts_at(sample, start + _equal_positions(sample.keys[start:stop], slices)),
            Cuts(cuts.keys[part : part + 1], cuts.ordinals[part : part + 1]),
        ]
    return Cuts.joined(found)


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


def _rounded_cuts_at(sample: CurveSample, positions: Positions) -> Cuts:
    """Return the cuts before these sampled rows, each where the largest quadrants meet."""
    cuts = _cuts_at(sample, positions)
    keys = cuts.keys.copy()
    inner = np.flatnonzero((positions > 0) & (positions < len(sample.keys)))
    differing = _bit_lengths(sample.keys[positions[inner] - 1] ^ keys[inner])
    zeros = np.maximum(differing - 1, 0).astype(np.uint64)
    keys[inner] = (keys[inner] >> zeros) << zeros
    return Cuts(keys, cuts.ordinals)


def _levels(keys: Keys) -> Positions:
    """Return how large the quadrants are that meet before each of s sorted rows, (s + 1,)."""
    levels = np.zeros(len(keys) + 1, np.int64)
    levels[1:-1] = _bit_lengths(keys[1:] ^ keys[:-1])
    return levels


def _bit_lengths(values: Keys) -> Positions:
    halves = values >> np.uint64(32), values & np.uint64(0xFFFF_FFFF)
    high, low = (np.frexp(half.astype(np.float64))[1].astype(np.int64) for half in halves)
    return np.where(high > 0, high + 32, low)


def _equal_positions(keys: Keys, parts: int) -> Positions:
    """Return the parts - 1 positions between equal parts, where the key changes if near."""
    changes = np.minimum(_levels(keys), 1)
    return _even_positions(changes, parts, reach=len(keys) // (4 * parts))[1:-1]


def _even_positions(levels: Positions, count: int, *, reach: int) -> Positions:
    """Return count + 1 positions from 0 to s, moved to the highest level in reach, then nearest."""
    s = len(levels) - 1
    even = np.arange(count + 1) * s // count
    nearest_first = np.array(sorted(range(-reach, reach + 1), key=abs))
    near = np.clip(even[:, None] + nearest_first, 0, s)
    moved: Positions = near[np.arange(count + 1), levels[near].argmax(axis=1)]
    moved[0], moved[-1] = 0, s
    return moved


def _best_units(costs: Shares) -> Positions:
    """Return the unit edges where the parts end, the last one included, (samples, parts)."""
    count, units = costs.shape[1], costs.shape[2] - 1
    parts, drifts = units // _UNITS_PER_PART, 2 * _MAX_DRIFT_UNITS + 1
    # Entry i is about parts that end at unit i - _MAX_DRIFT_UNITS, counted from the even end.
    costs = np.pad(costs, ((0, 0), (0, 0), (_MAX_DRIFT_UNITS,) * 2), constant_values=np.inf)
    margin = len(_WIDTHS) // 2
    least = np.full((parts + 1, count, drifts + 2 * margin), np.inf)
    least[0, :, margin + _MAX_DRIFT_UNITS] = 0.0
    before = np.moveaxis(sliding_window_view(least, len(_WIDTHS), axis=2), 3, 1)
    options = np.empty((len(_WIDTHS), count, drifts))
    for part in range(parts):
        even = (part + 1) * _UNITS_PER_PART
        np.add(before[part], costs[:, :, even : even + drifts], out=options)
        np.minimum.reduce(options, axis=0, out=least[part + 1, :, margin:-margin])
    # Only the way that led to the end is looked at again.
    edges = np.empty((count, parts), np.int64)
    end, rows = np.full(count, units), np.arange(count)
    for part in range(parts - 1, -1, -1):
        edges[:, part] = end
        drift = end - (part + 1) * _UNITS_PER_PART + _MAX_DRIFT_UNITS
        window = before[part][:, rows, drift] + costs[:, rows, end + _MAX_DRIFT_UNITS]
        end = end - np.array(_WIDTHS)[window.argmin(axis=0)]
    return edges


def _window_costs(sample: CurveSample, units: Positions, reach: Reach | None) -> Shares:
    """Return rows times summed box extents, or reach, of as many units as a part may have.

    (len(_WIDTHS), units) by the unit edge where they end, inf where they would start too early.
    """
    # Column by column, so that extents are added up soon.
    lows = np.asfortranarray(np.minimum.reduceat(sample.lows, units[:-1], axis=0))
    highs = np.asfortranarray(np.maximum.reduceat(sample.highs, units[:-1], axis=0))
    costs = np.full((len(_WIDTHS), len(units)), np.inf)
    low, high = lows, highs
    for width in range(1, _WIDTHS[0] + 1):
        if width > 1:
            low = np.minimum(low[1:], lows[: len(low) - 1])
            high = np.maximum(high[1:], highs[: len(high) - 1])
        if width in _WIDTHS:
            rows = units[width:] - units[:-width]
            extents = (high - low).sum(axis=1) if reach is None else reach.of(low, high)
            even = _EVENNESS * rows / len(sample.keys)
            costs[_WIDTHS.index(width), width:] = rows * (extents + even)
    return costs
