"""What readers ask of a table: weighted predicates as boxes on the curve's grid.

A predicate is true in any of its *alternatives*; an alternative is true where all of its *terms*
are; a term is true in any of some intervals of one column. So `a IN (1, 5) AND b < 7 OR c = 2` has
two alternatives, the first of two terms. A file is opened by a predicate if the file's box meets
the intervals of all terms of an alternative: that is what statistics per file can tell.

Positions on a column are shares of all rows, in [0, 1], as in `liquidlog.curve.cuts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.grid import Axis, places_among, range_boundaries, range_ids, sorted_values

Shares = npt.NDArray[np.float64]
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

        `of_intervals` (m, k) is what each interval alone opens; columns count as independent.
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
        """Return how much queries narrow by each column, (d,), in all 1."""
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


# Predicates over values, as a plan carries them, and where they lie on the axes of a grid
#
# An axis tells values apart only at its boundaries. `borders` are the sampled values on either
# side of the constants that readers use: as boundaries, they let files end exactly where
# predicates do.

POINTS: Final = 64
"""Values, evenly spread over the rows, that stand for all values that readers may ask for."""


@dataclass(frozen=True, slots=True, eq=False)
class IntervalEnds:
    """One side of k intervals of a column: `values` of its type, null where unbounded."""

    values: pa.Array
    is_open: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ValuePredicates:
    """Weighted predicates over the values of d columns; arrays as in `GridPredicates`.

    `lows` and `highs` have the ends of each column's intervals. `column_weights` (d,) weigh queries
    for single values of a column. Weights need not add up to 1.
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
    """Return the predicates, with points on each column that has a weight; weights add up to 1."""
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


def axis_of(
    sample: pa.Array, borders: pa.Array | None, *, max_ranges: int, bits: int
) -> tuple[Axis, npt.NDArray[np.uint32]]:
    """Return an axis as `Axis.fit` does, with `borders` among its boundaries."""
    if borders is None or not len(borders):
        return Axis.fit(sample, max_ranges=max_ranges, bits=bits)
    boundaries = range_boundaries(sample, max_ranges)
    joined = pc.unique(sorted_values(pa.concat_arrays([boundaries, borders.cast(boundaries.type)])))
    return Axis.fit_between(sample, joined, bits=bits)
