"""Grids for some rows, whatever their spread: those of a single value of a prefix, or all of them.

Cells hold equally many rows, or end at constants that readers use. How many there are along each
axis is first foreseen, as if columns were independent, for all combinations in reach; the most
promising ones are tried on a part of the sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.curve.asked import Asked
from liquidlog.curve.curves import Curve
from liquidlog.curve.cuts import (
    CurveSample,
    Cuts,
    Reach,
    Shares,
    asked_share,
    choose_cuts,
    opened_shares,
)
from liquidlog.curve.fit import (
    CELLS_PER_PART,
    MAX_FITTED_DIMENSIONS,
    MAX_FITTED_PARTS,
    MAX_GRIDS,
    CurveGrid,
    Rows,
)

_FINALISTS: Final = 3
_MOST_COUNTS: Final = (1024, 64, 16)
"""Numbers of cells that are foreseen per axis, of two, three and four."""

_SNAP: Final = 0.3
"""How far, in cells, an edge moves to a constant that readers use."""

OTHER_READERS: Final = 0.1
"""Weight of readers who ask for other values of the same columns, where layouts are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A grid, the rows in the order of its keys, and the cuts into files."""

    order: CurveGrid
    sample: CurveSample
    cuts: Cuts


def mean_opened(sample: CurveSample, cuts: Cuts, reach: Reach) -> float:
    """Return the share of the rows that readers open, those who ask for other values included."""
    others = float(opened_shares(sample, cuts) @ reach.axis_weights)
    asked = reach.asked
    return others if asked is None else asked_share(sample, cuts, asked) + OTHER_READERS * others


def fit_grid(
    rows: Rows,
    parts: int,
    reach: Reach,
    *,
    axes: Sequence[int],
    curve: Curve,
    bits: int,
    share_of_effort: float = 1.0,
) -> Placement:
    """Return the grid over `axes` on which readers open the fewest of some rows.

    Args:
        rows: The rows, at least one.
        parts: Files.
        reach: What readers ask.
        axes: The columns of the grid.
        curve: Any but `kd`.
        bits: Bits of a coordinate, at most 16.
        share_of_effort: Of the usual number of grids, how many are tried.
    """
    kind = Curve.LINEAR if len(axes) == 1 else curve
    search = _Search(rows, parts, reach, tuple(axes), kind, bits)
    tried = rows.tried(parts)
    count = max(1, int(MAX_GRIDS * share_of_effort))
    grids = list(dict.fromkeys(search.grids(count)))
    extents = Reach(None, reach.axis_weights)

    def opened(grid: CurveGrid) -> float:
        sample = tried.sorted_on(grid)
        return mean_opened(sample, choose_cuts(sample, parts, extents), reach)

    finalists = sorted(grids, key=opened)[:_FINALISTS] if len(grids) > 1 else grids
    placed = [
        Placement(grid, sample, choose_cuts(sample, parts, wanted))
        for grid in finalists
        for sample in [rows.sorted_on(grid)]
        for wanted in ([reach, extents] if reach.asked is not None else [extents])
    ]
    return min(placed, key=lambda one: mean_opened(one.sample, one.cuts, reach))


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """Proposes grids over `axes` for rows."""

    rows: Rows
    parts: int
    reach: Reach
    axes: tuple[int, ...]
    curve: Curve
    bits: int

    def grids(self, count: int) -> Iterator[CurveGrid]:
        """Yield about `count` grids, first the plain one."""
        ones = (1,) * len(self.axes)
        if self.curve is Curve.LINEAR:
            for order in permutations(self.axes) if len(self.axes) > 1 else [self.axes]:
                yield CurveGrid(self.curve, self.bits, ones, axes=order)
            return
        yield CurveGrid(self.curve, self.bits, ones, axes=self.axes)
        if not 1 < self.parts <= MAX_FITTED_PARTS or len(self.axes) > MAX_FITTED_DIMENSIONS:
            return
        values = [np.sort(self.rows.coords[:, axis]) for axis in self.axes]
        for cells in self._promising(values, count):
            for snap in (False, True) if self.reach.asked is not None else (False,):
                grid = self._grid(values, cells, snap=snap)
                if grid is not None:
                    yield grid

    def _grid(
        self,
        values: Sequence[npt.NDArray[np.unsignedinteger]],
        cells: tuple[int, ...],
        *,
        snap: bool,
    ) -> CurveGrid | None:
        side = 1 << self.bits
        edges = [
            _edges(own, count, side, self._borders(axis) if snap else None)
            for own, count, axis in zip(values, cells, self.axes, strict=True)
        ]
        counts = tuple(len(own) - 1 for own in edges)
        if max(counts) == 1:
            return None
        return CurveGrid(self.curve, self.bits, counts, self.axes, tuple(edges))

    def _borders(self, axis: int) -> tuple[Shares, Shares] | None:
        return None if self.reach.asked is None else self.reach.asked.borders(axis)

    def _promising(
        self, values: Sequence[npt.NDArray[np.unsignedinteger]], count: int
    ) -> list[tuple[int, ...]]:
        distinct = [1 + int(np.count_nonzero(np.diff(own))) for own in values]
        cells = np.array(list(_possible_cells(distinct, self.parts)), np.int64)
        if not len(cells):
            return []
        order = np.argsort(self._foreseen(cells, values), kind="stable")[:count]
        return [tuple(row) for row in cells[order].tolist()]

    def _foreseen(
        self,
        cells: npt.NDArray[np.int64],
        values: Sequence[npt.NDArray[np.unsignedinteger]],
    ) -> Shares:
        """Return what readers would open with (m, d) cells, (m,), were columns independent."""
        weights = self.reach.axis_weights[list(self.axes)]
        others: Shares = (1 / cells) @ weights
        asked = self.reach.asked
        if asked is None:
            return others
        side = 1 << self.bits
        shares = np.empty((len(cells), len(asked.axes)))
        shares[:] = self._met(asked)
        for number, (axis, own) in enumerate(zip(self.axes, values, strict=True)):
            mine = np.flatnonzero(asked.axes == axis)
            low, end = (
                np.searchsorted(own, np.rint(places[mine] * side)) / len(own)
                for places in (asked.lows, asked.ends)
            )
            distinct, numbers = np.unique(cells[:, number], return_inverse=True)
            counts = distinct[:, None]
            first, last = np.floor(low * counts), np.ceil(end * counts)
            opened = np.clip(last - first, 1, counts) / counts
            shares[:, mine] = opened[numbers]
        return np.asarray(asked.expected(shares) + OTHER_READERS * others, np.float64)

    def _met(self, asked: Asked) -> Shares:
        """Return 1 for intervals that meet the rows on their column, else 0, (k,)."""
        low, high = self.rows.lows.min(axis=0), self.rows.highs.max(axis=0)
        met = (low[asked.axes] < asked.ends) & (asked.lows < high[asked.axes])
        shares: Shares = met.astype(np.float64)
        return shares


def _possible_cells(distinct: Sequence[int], parts: int) -> Iterator[tuple[int, ...]]:
    """Yield numbers of cells along the axes whose product is near the number of files."""
    if len(distinct) == 1:
        yield (min(parts, distinct[0]),)
        return
    most = _MOST_COUNTS[len(distinct) - 2]
    options = [_counts(min(parts, values), most) for values in distinct[:-1]]
    least, largest = (share * parts for share in CELLS_PER_PART)
    for front in product(*options):
        size = prod(front)
        if size > largest:
            continue
        low = max(1, -(-int(least) // size))
        high = min(distinct[-1], int(largest / size))
        steps = max(1, (high - low) // 8)
        for last in range(min(low, high), high + 1, steps):
            yield (*front, last)


def _counts(most: int, wanted: int) -> list[int]:
    """Return numbers from 1 to `most`, about `wanted` of them, denser at the beginning."""
    spaced = (
        np.geomspace(1, most, min(wanted, 2 * most)) if wanted < most else np.arange(1, most + 1)
    )
    return np.unique(np.rint(spaced).astype(np.int64)).tolist()  # type: ignore[no-any-return]


def _edges(
    values: npt.NDArray[np.unsignedinteger],
    cells: int,
    side: int,
    borders: tuple[Shares, Shares] | None,
) -> tuple[int, ...]:
    """Return where cells begin, and the end of the last, for sorted coordinates."""
    places = np.arange(1, cells) * len(values) // cells
    inner = values[places].astype(np.int64)
    if borders is not None and len(borders[0]) and cells > 1:
        at = np.rint(borders[0] * side).astype(np.int64)
        exact = np.searchsorted(values, at) * cells / len(values)
        nearest = np.rint(exact).astype(np.int64)
        near = (np.abs(exact - nearest) <= _SNAP) & (nearest >= 1) & (nearest < cells)
        # The heaviest border of each edge comes last, and stays.
        for number in np.flatnonzero(near)[np.argsort(borders[1][near], kind="stable")].tolist():
            inner[nearest[number] - 1] = at[number]
    between = np.unique(inner[(inner > 0) & (inner < side)])
    return (0, *between.tolist(), side)
