"""How far rows spread over a curve's grid, so that files come out as whole cells.

A stretch of a curve is a square only where it is a whole quadrant, and there are 1, 4, 16, 64 …
quadrants. So rows are spread over `cells[j]` of the 2**k steps of each axis, with the smallest k
that holds them all: over 5 x 5 of 8 x 8 for 25 files. Each cell is a quadrant, hence one stretch;
that the curve leaves the cells in use and comes back costs nothing, as cuts fall there.

Some numbers of cells whose product is near the number of files are tried on a part of the sample.
O(grids * (sample + files)).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from itertools import product
from math import prod
from typing import Final

import numpy as np

from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.cuts import CurveSample, Cuts, Ordinals, choose_cuts, equal_cuts, opened_shares
from liquidlog.curve.grid import Coords, Keys, coordinate_ends

MAX_FITTED_DIMENSIONS: Final = 4
_MAX_FITTED_PARTS: Final = 1024
"""Beyond, rows fill the whole grid: there are too many grids, or trying them takes seconds."""

_MAX_GRIDS: Final = 24

_TRIED_ROWS_PER_PART: Final = 512

_CELLS_PER_PART: Final = (0.75, 1.1)
"""More cells than files leave files of two cells; fewer are divided."""

_MAX_STRETCH: Final = 1.6
"""How far the cells along an axis may be from those of a cube."""


@dataclass(frozen=True, slots=True)
class CurveGrid:
    """A curve over a grid of which the rows fill `cells[j]` steps of axis j; all ones: all of it.

    Coordinates have `bits` bits.
    """

    curve: Curve
    bits: int
    cells: tuple[int, ...]

    def keys_of(self, coords: Coords) -> Keys:
        """Return the key of each row of (n, d) coordinates below 2**bits, (n,) uint64."""
        steps = np.uint32((max(self.cells) - 1).bit_length())
        if steps == 0:
            return curve_index(coords, self.bits, self.curve)
        filled = np.empty(coords.shape, np.uint32, order="F")
        for axis, cells in enumerate(self.cells):
            np.multiply(coords[:, axis], np.uint32(cells), out=filled[:, axis])
        filled >>= steps
        return curve_index(filled, self.bits, self.curve)


def fit_curve(
    coords: Coords, ordinals: Ordinals, parts: int, *, curve: Curve, bits: int
) -> tuple[CurveGrid, CurveSample, Cuts]:
    """Return the grid on which narrow predicates open the fewest rows.

    Args:
        coords: (s, d) coordinates of the sample, each below 2**bits.
        ordinals: (s,) ordinals of the sampled rows, increasing.
        parts: Files.
        curve: Any but `kd`.
        bits: Bits of a coordinate, at most 16.

    Returns:
        The grid; the sample in the order of its keys; parts - 1 cuts.
    """
    side = float(1 << bits)
    lows, highs = coords / side, coordinate_ends(coords, bits) / side

    def sorted_on(grid: CurveGrid, step: int = 1) -> CurveSample:
        rows = slice(None, None, step)
        keys = grid.keys_of(coords[rows])
        return CurveSample.sort(keys, ordinals[rows], lows=lows[rows], highs=highs[rows])

    best = CurveGrid(curve, bits, (1,) * coords.shape[1])
    if curve is Curve.LINEAR:
        sample = sorted_on(best)
        return best, sample, equal_cuts(sample, parts)
    step = max(1, len(coords) // (parts * _TRIED_ROWS_PER_PART))
    likely = [CurveGrid(curve, bits, cells) for cells in _likely_cells(coords[::step], parts)]
    if likely:
        best = min([best, *likely], key=lambda grid: _opened(sorted_on(grid, step), parts))
    sample = sorted_on(best)
    return best, sample, choose_cuts(sample, parts)


def _opened(sample: CurveSample, parts: int) -> float:
    """Return what point predicates open, in the quadratic mean: rather the same on all columns."""
    return float(np.linalg.norm(opened_shares(sample, choose_cuts(sample, parts))))


def _likely_cells(coords: Coords, parts: int) -> list[tuple[int, ...]]:
    """Return numbers of cells along the axes, those that would open the fewest rows first."""
    rows, dimensions = coords.shape
    if not 1 < dimensions <= MAX_FITTED_DIMENSIONS or not 1 < parts <= min(_MAX_FITTED_PARTS, rows):
        return []
    return nsmallest(_MAX_GRIDS, _possible_cells(coords, parts), key=_ideal_share)


def _ideal_share(cells: tuple[int, ...]) -> float:
    return sum(1 / count for count in cells)


def _possible_cells(coords: Coords, parts: int) -> Iterator[tuple[int, ...]]:
    distinct = [len(np.unique(column)) for column in coords.T]
    options = [
        range(max(1, int(cells / _MAX_STRETCH)), min(values, int(cells * _MAX_STRETCH) + 1) + 1)
        for cells, values in zip(_cells_of_a_cube(distinct, parts), distinct, strict=True)
    ]
    least, most = (share * parts for share in _CELLS_PER_PART)
    for cells in product(*options):
        if least <= prod(cells) <= most and max(cells) > 1:
            yield cells


def _cells_of_a_cube(distinct: list[int], parts: int) -> list[float]:
    """Return as many cells along each axis as along the others, but no more than it has values."""
    cells = [1.0] * len(distinct)
    left = float(parts)
    for done, axis in enumerate(np.argsort(distinct).tolist()):
        cells[axis] = min(float(distinct[axis]), left ** (1 / (len(distinct) - done)))
        left /= cells[axis]
    return cells
