"""What readers ask of a table: weighted predicates as boxes on the curve's grid.

A predicate is true in any of its *alternatives*; an alternative is true where all of its *terms*
are; a term is true in any of some intervals of one column. So `a IN (1, 5) AND b < 7 OR c = 2` has
two alternatives, the first of two terms. A file is opened by a predicate if the file's box meets
the intervals of all terms of an alternative: that is what statistics per file can tell.

Positions on a column are shares of all rows, in [0, 1], as in `liquidlog.curve.cuts`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

Shares = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

_BLOCK_CELLS: Final = 1 << 21
"""Boxes times intervals that are compared at a time: a few MiB."""


@dataclass(frozen=True, eq=False)
class Asked:
    """Predicates with weights, as k intervals in the order of their terms.

    `axes` (k,) is the column of each interval, which begins at `lows` and ends before `ends`, (k,)
    each. `terms` are the first intervals of each term, `alternatives` the first terms of each
    alternative, `predicates` the first alternatives of each predicate; all begin with 0 and
    increase. `weights` has one entry per predicate; they add up to 1.
    """

    axes: Numbers
    lows: Shares
    ends: Shares
    terms: Numbers
    alternatives: Numbers
    predicates: Numbers
    weights: Shares

    def opened(self, lows: Shares, highs: Shares) -> Shares:
        """Return which share of the readers opens each of m boxes, (m,).

        Args:
            lows: (m, d), where the boxes begin on each column.
            highs: (m, d), where they end.
        """
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
        """Return the share of the rows that the mean reader opens in each of m layouts, (m,).

        Args:
            of_intervals: (m, k), the share that each interval alone opens; columns are taken to be
                independent.
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
        """Return how much readers narrow by each column, (d,); the weights add up to 1.

        A predicate counts as much as it weighs, divided by its terms.
        """
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
        """Return where intervals of a column begin or end inside (0, 1), and how much that weighs.

        Both are (b,); positions increase.
        """
        own = np.flatnonzero(self.axes == axis)
        places = np.concatenate([self.lows[own], self.ends[own]])
        weights = np.tile(self.interval_weights[own], 2)
        distinct, numbers = np.unique(places, return_inverse=True)
        summed: Shares = np.bincount(numbers, weights, len(distinct)).astype(np.float64)
        inside = (distinct > 0) & (distinct < 1)
        return distinct[inside], summed[inside]


def _lengths(starts: Numbers, total: int) -> Numbers:
    return np.diff(np.append(starts, total))
