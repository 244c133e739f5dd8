"""Predicates of queries, and cuts along a curve: which rows go into which file."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from liquidlog.curve.curves import (
    Axis,
    Coords,
    Keys,
    places_among,
    positions_in,
    range_ids,
    sorted_values,
    stable_order,
)

# Weighted predicates as boxes on the curve's grid. A predicate is true if one of its *alternatives*
# is; an alternative is true if all its *terms* are; a term is true in some intervals of one column.
# So `a IN (1, 5) AND b < 7 OR c = 2` has two alternatives, and the first has two terms. A predicate
# opens a file if the file's box meets intervals of all terms of an alternative.

Shares = npt.NDArray[np.float64]
"""Shares of all rows, in [0, 1]; also positions on a column."""
Numbers = npt.NDArray[np.int64]

_BLOCK_CELLS: Final = 1 << 21
"""Boxes times intervals that are compared at a time: a few MiB."""


@dataclass(frozen=True, eq=False)
class GridPredicates:
    """Predicates with weights (they add up to 1), as k intervals in the order of their terms.

    `axes` (k,) is the column of each interval from `lows` up to `ends`. `terms` are the first
    intervals of each term, `alternatives` the first terms of each alternative, `predicates` the
    first alternatives of each predicate; all begin with 0 and increase.
    """

    axes: Numbers
    lows: Shares
    ends: Shares
    terms: Numbers
    alternatives: Numbers
    predicates: Numbers
    weights: Shares

    def opened(self, lows: Shares, highs: Shares) -> Shares:
        """Return the share of the queries that open each of m boxes, (m,), from (m, d) ends."""
        shares = np.empty(len(lows))
        step = max(1, _BLOCK_CELLS // len(self.axes))
        for start in range(0, len(lows), step):
            block = slice(start, start + step)
            begin, end = lows[block].T[self.axes], highs[block].T[self.axes]
            met = (begin < self.ends[:, None]) & (self.lows[:, None] < end)
            shares[block] = self.weights @ self._by_predicate(met)
        return shares

    def _by_predicate(self, met: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which predicates are met, (p, m), from the intervals that are, (k, m)."""
        if len(self.terms) < len(met):
            met = np.logical_or.reduceat(met, self.terms, axis=0)
        if len(self.alternatives) < len(met):
            met = np.logical_and.reduceat(met, self.alternatives, axis=0)
        if len(self.predicates) < len(met):
            met = np.logical_or.reduceat(met, self.predicates, axis=0)
        return met

    def expected(self, of_intervals: Shares) -> Shares:
        """Return the share of the rows that the mean query opens in each of m layouts, (m,).

        `of_intervals` (m, k) is what each interval alone opens. This assumes independent columns.
        """
        shares = np.minimum(np.add.reduceat(of_intervals, self.terms, axis=1), 1.0)
        shares = np.multiply.reduceat(shares, self.alternatives, axis=1)
        shares = np.minimum(np.add.reduceat(shares, self.predicates, axis=1), 1.0)
        weighed: Shares = shares @ self.weights
        return weighed

    @cached_property
    def interval_weights(self) -> Shares:
        """The weight of the predicate that each interval belongs to, (k,)."""
        alternatives = np.repeat(self.weights, _lengths(self.predicates, len(self.alternatives)))
        terms = np.repeat(alternatives, _lengths(self.alternatives, len(self.terms)))
        return np.repeat(terms, _lengths(self.terms, len(self.axes)))

    def axis_weights(self, dimensions: int) -> Shares:
        """Return how much queries narrow by each column, (d,); the sum is 1."""
        terms = _lengths(self.alternatives, len(self.terms))
        of_alternatives = np.repeat(
            self.weights / _lengths(self.predicates, len(self.alternatives)),
            _lengths(self.predicates, len(self.alternatives)),
        )
        of_terms = np.repeat(of_alternatives / terms, terms)
        weights = np.bincount(self.axes[self.terms], weights=of_terms, minlength=dimensions)
        shares: Shares = weights / weights.sum()
        return shares

    def borders(self, axis: int) -> tuple[Shares, Shares]:
        """Return where intervals of a column begin or end inside (0, 1), and their weights."""
        own = np.flatnonzero(self.axes == axis)
        places = np.concatenate([self.lows[own], self.ends[own]])
        weights = np.tile(self.interval_weights[own], 2)
        distinct, numbers = np.unique(places, return_inverse=True)
        summed: Shares = np.bincount(numbers, weights, len(distinct)).astype(np.float64)
        inside = (distinct > 0) & (distinct < 1)
        return distinct[inside], summed[inside]


def _lengths(starts: Numbers, total: int) -> Numbers:
    return np.diff(np.append(starts, total))


# Predicates over values, as in a plan, and their places on the axes of a grid. An axis separates
# values only at its boundaries. `borders` are the sampled values on either side of constants in
# queries: as boundaries, they let files end exactly where predicates do.

POINTS: Final = 64
"""How many values, evenly spread over the rows, stand for all values that queries may name."""


@dataclass(frozen=True, slots=True, eq=False)
class IntervalEnds:
    """One side of k intervals of a column: `values` of its type, null where unbounded."""

    values: pa.Array
    is_open: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ValuePredicates:
    """Weighted predicates over the values of d columns; arrays as in `GridPredicates`.

    `lows` and `highs` have the ends of each column's intervals. `column_weights` (d,) weigh queries
    for single values of a column. The sum of the weights need not be 1.
    """

    axes: Numbers
    lows: tuple[IntervalEnds, ...]
    highs: tuple[IntervalEnds, ...]
    terms: Numbers
    alternatives: Numbers
    predicates: Numbers
    weights: Shares
    column_weights: Shares

    def borders(self, samples: Sequence[pa.Array]) -> list[pa.Array]:
        """Return per column the sampled values before which, or at which, an interval ends."""
        found = []
        for sample, low, high in zip(samples, self.lows, self.highs, strict=True):
            values = _distinct(sample)
            places = np.concatenate(_spans(values, low, high)) - 1
            inside = np.unique(places[(places >= 0) & (places < len(values) - 1)])
            found.append(values.take(pa.array(inside)))
        return found

    def constants(self) -> list[pa.Array]:
        """Return per column the values at which an interval ends."""
        return [
            pc.unique(pa.concat_arrays([low.values, high.values]).drop_null())
            for low, high in zip(self.lows, self.highs, strict=True)
        ]

    def on(self, axes: Sequence[Axis], samples: Sequence[pa.Array], bits: int) -> GridPredicates:
        """Return the predicates on the grid of these axes, s sampled values each."""
        lows, ends = np.zeros(len(self.axes)), np.ones(len(self.axes))
        for number, (axis, sample) in enumerate(zip(axes, samples, strict=True)):
            own = self.axes == number
            if own.any():
                found = _ids(_distinct(sample), axis, self.lows[number], self.highs[number])
                lows[own], ends[own] = _positions(axis, *found, bits=bits)
        return _with_points(self.between(lows, ends), self.column_weights, axes, samples, bits)

    def between(self, lows: Shares, ends: Shares) -> GridPredicates:
        """Return the predicates with these ends of their intervals, (k,) each, in their order."""
        return GridPredicates(
            axes=self.axes,
            lows=lows,
            ends=ends,
            terms=self.terms,
            alternatives=self.alternatives,
            predicates=self.predicates,
            weights=self.weights,
        )


def _distinct(sample: pa.Array) -> pa.Array:
    return pc.unique(sorted_values(sample))


def _spans(values: pa.Array, lows: IntervalEnds, highs: IntervalEnds) -> tuple[Numbers, Numbers]:
    """Return the first value of each interval, and the first behind it; (k,) each."""
    first = _below(values, lows, through=lows.is_open)
    last = _below(values, highs, through=~highs.is_open)
    unbounded = highs.values.is_null().to_numpy(zero_copy_only=False)
    return first, np.where(unbounded, len(values), last)


def _below(values: pa.Array, ends: IntervalEnds, *, through: npt.NDArray[np.bool_]) -> Numbers:
    """Return how many values are below each end, or, where `through`, not above it."""
    if not len(values):
        return np.zeros(len(ends.values), np.int64)
    below, is_value = places_among(values, ends.values)
    return np.asarray(below.clip(0) + (through & is_value), np.int64)


def _ids(
    values: pa.Array, axis: Axis, lows: IntervalEnds, highs: IntervalEnds
) -> tuple[Numbers, Numbers]:
    """Return the first and the last range id of each interval, (k,) each."""
    first, behind = _spans(values, lows, highs)
    last = np.maximum(behind - 1, first)
    most = max(len(values) - 1, 0)
    ids = range_ids(values, axis.boundaries).astype(np.int64)
    if not len(ids):
        return np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    return ids[np.minimum(first, most)], ids[np.minimum(last, most)]


def _positions(axis: Axis, first: Numbers, last: Numbers, *, bits: int) -> tuple[Shares, Shares]:
    """Return where ranges begin, and where the last of them ends, as shares."""
    side = 1 << bits
    coordinates = np.append(axis.coordinates.astype(np.int64), side)
    return coordinates[first] / side, coordinates[last + 1] / side


def _with_points(
    asked: GridPredicates,
    column_weights: Shares,
    axes: Sequence[Axis],
    samples: Sequence[pa.Array],
    bits: int,
) -> GridPredicates:
    """Return the predicates and points on each column with a weight; the sum of weights is 1."""
    lows, ends, columns, weights = [asked.lows], [asked.ends], [asked.axes], [asked.weights]
    for number in np.flatnonzero(column_weights > 0).tolist():
        values = sorted_values(samples[number])
        if not len(values):
            continue
        picked = (np.arange(POINTS) * 2 + 1) * len(values) // (2 * POINTS)
        ids = range_ids(values.take(pa.array(picked)), axes[number].boundaries).astype(np.int64)
        low, end = _positions(axes[number], ids, ids, bits=bits)
        lows.append(low)
        ends.append(end)
        columns.append(np.full(POINTS, number))
        weights.append(np.full(POINTS, column_weights[number] / POINTS))
    added = sum(map(len, lows)) - len(asked.lows)
    weighed = np.concatenate(weights)
    return GridPredicates(
        axes=np.concatenate(columns),
        lows=np.concatenate(lows),
        ends=np.concatenate(ends),
        terms=_continued(asked.terms, len(asked.axes), added),
        alternatives=_continued(asked.alternatives, len(asked.terms), added),
        predicates=_continued(asked.predicates, len(asked.alternatives), added),
        weights=weighed / weighed.sum() if len(weighed) else weighed,
    )


def _continued(starts: Numbers, total: int, added: int) -> Numbers:
    return np.concatenate([starts, total + np.arange(added)])


# Cuts along a curve. Rows are ordered by (key, ordinal); the ordinal is a row's number in the whole
# input. A *cut* is such a pair; the rows from there on are on its right. A cut is inside a run of
# equal keys only if the run is too long for one file.
#
# Equal numbers of rows make ragged boxes: a segment of a Hilbert curve that ends inside a quadrant
# reaches across it. So `choose_cuts` lets sizes vary from half to one and a half times the mean,
# and minimizes the sum, over all files, of rows times box extents: the rows that a narrow predicate
# on one of the columns is expected to read. It is dynamic programming over a sorted sample,
# O(sample * d + files). If queries are known, `Reach` replaces the extents by the share of the
# queries that open a box, O(files * intervals).
#
# Between two sampled rows, a cut is where the largest quadrants meet, so that unsampled rows are on
# the side of their quadrant.

Ordinals = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

_UNITS_PER_PART: Final = 16
_WIDTHS: Final = range(_UNITS_PER_PART * 3 // 2, _UNITS_PER_PART // 2 - 1, -1)
"""Units that a part may have, most first."""
_MIN_ROWS_PER_UNIT: Final = 4
"""With fewer sampled rows in a unit, its box says little, and cuts are equal."""
_MAX_DRIFT_UNITS: Final = 8 * _UNITS_PER_PART
"""How far a cut may be from an equal cut; this limits the cost to O(files)."""
_ORDINAL_BITS: Final = 40

_EVENNESS: Final = 0.1
"""Weight of equal sizes: small, so that it decides only between equal boxes."""
_ANY_VALUE: Final = 1.0
"""Weight of extents, for values that queries did not name; with a quarter, cuts follow chance."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """How many queries open a box: the known ones, `asked`, and queries for other values."""

    asked: GridPredicates | None
    axis_weights: Shares

    def of(self, lows: Shares, highs: Shares) -> Shares:
        """Return the reach of m boxes between `lows` and `highs`, (m, d) each; (m,)."""
        extents: Shares = (highs - lows) @ self.axis_weights
        if self.asked is None:
            return extents
        return self.asked.opened(lows, highs) + _ANY_VALUE * extents


def ordinals_from(first: int, rows: int) -> Ordinals:
    return np.arange(first, first + rows, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts in order: `keys` and `ordinals`, (parts - 1,) uint64 each; ordinals below 2**40."""

    keys: Keys
    ordinals: Ordinals

    @classmethod
    def joined(cls, cuts: Sequence["Cuts"]) -> "Cuts":
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
    """Gives rows, (n, d) coordinates of `bits` bits, their keys, (n,)."""

    @property
    def bits(self) -> int: ...
    def keys_of(self, coords: Coords) -> Keys: ...


@dataclass(frozen=True, slots=True)
class CurveSample:
    """Sampled rows, sorted by (key, ordinal): (s,) uint64 each.

    On each column, a row's range of values is from `lows` to `highs`, (s, d).
    """

    keys: Keys
    ordinals: Ordinals
    lows: Shares
    highs: Shares

    @classmethod
    def sort(cls, keys: Keys, ordinals: Ordinals, *, lows: Shares, highs: Shares) -> "CurveSample":
        """Return the sample of s rows in any order of keys; ordinals increase."""
        order = stable_order(keys)
        # `np.take` copies whole rows many times faster than an index does.
        ends = (np.take(side, order, axis=0) for side in (lows, highs))
        return cls(keys[order], ordinals[order], *ends)

    def between(self, start: int, stop: int) -> "CurveSample":
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
    """Return cuts into `parts` files with small boxes, each 0.5 to 1.5 times the mean size."""
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
    # A run of equal keys may start with rows that the sample does not hold.
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
    """Return the size of the quadrants that meet before each of s sorted rows, (s + 1,)."""
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
    """Return count + 1 even positions from 0 to s, each moved to the highest level in reach."""
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
    # Follow the best way back from the end.
    edges = np.empty((count, parts), np.int64)
    end, rows = np.full(count, units), np.arange(count)
    for part in range(parts - 1, -1, -1):
        edges[:, part] = end
        drift = end - (part + 1) * _UNITS_PER_PART + _MAX_DRIFT_UNITS
        window = before[part][:, rows, drift] + costs[:, rows, end + _MAX_DRIFT_UNITS]
        end = end - np.array(_WIDTHS)[window.argmin(axis=0)]
    return edges


def _window_costs(sample: CurveSample, units: Positions, reach: Reach | None) -> Shares:
    """Return rows times summed box extents, or reach, of parts of all possible widths in units.

    (len(_WIDTHS), units) by the unit edge where a part ends; inf if it would start too early.
    """
    # Column by column, which is faster.
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
