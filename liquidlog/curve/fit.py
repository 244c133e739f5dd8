"""How far rows spread over a curve's grid, so that files come out as whole cells.

A stretch of a curve is a square only where it is a whole quadrant, and there are 1, 4, 16, 64 …
quadrants. So rows are spread over `cells[j]` of the 2**k steps of each axis, with the smallest k
that holds them all: over 5 x 5 of 8 x 8 for 25 files. Each cell is a quadrant, hence one stretch;
that the curve leaves the cells in use and comes back costs nothing, as cuts fall there.

`fit_curve` tries some numbers of cells whose product is near the number of files on a part of the
sample, O(grids * (sample + files)).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import product
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.cuts import (
    CurveSample,
    Cuts,
    Ordinals,
    Shares,
    choose_cuts,
    choose_cuts_each,
    equal_cuts,
    opened_shares,
)
from liquidlog.curve.grid import Coords, Keys, coordinate_ends

MAX_FITTED_DIMENSIONS: Final = 4
MAX_FITTED_PARTS: Final = 1024
"""Beyond, rows fill the whole grid: there are too many grids, or trying them takes seconds."""

MAX_GRIDS: Final = 24

_TRIED_ROWS_PER_PART: Final = 512
_ROWS_TOGETHER: Final = 1 << 20
"""Rows of all samples that are cut together, which bounds the memory."""

CELLS_PER_PART: Final = (0.75, 1.1)
"""With more cells than files, some files are two cells; with fewer, some cells are divided."""

_MAX_STRETCH: Final = 1.6
"""How far the cells along an axis may be from those of a cube."""


@dataclass(frozen=True, slots=True)
class CurveGrid:
    """A curve over a grid; the rows fill `cells[j]` steps of axis j, or all of it if all are one.

    Coordinates have `bits` bits. The curve is over `axes`, in this order, or over all columns.
    Cells are of equal width, or begin and end at `edges`: cells[j] + 1 coordinates for axis j.
    """

    curve: Curve
    bits: int
    cells: tuple[int, ...]
    axes: tuple[int, ...] = ()
    edges: tuple[tuple[int, ...], ...] = ()

    def keys_of(self, coords: Coords) -> Keys:
        """Return the key of each row of (n, d) coordinates below 2**bits, (n,) uint64."""
        if self.axes:
            coords = np.asfortranarray(coords[:, self.axes])
        steps = np.uint32((max(self.cells) - 1).bit_length())
        if steps == 0:
            return curve_index(coords, self.bits, self.curve)
        if self.edges:
            return curve_index(self._between_edges(coords, int(steps)), self.bits, self.curve)
        filled = np.empty(coords.shape, np.uint32, order="F")
        for axis, cells in enumerate(self.cells):
            np.multiply(coords[:, axis], np.uint32(cells), out=filled[:, axis])
        filled >>= steps
        return curve_index(filled, self.bits, self.curve)

    def _between_edges(self, coords: Coords, steps: int) -> Coords:
        """Return the coordinates on the steps of the grid: each cell fills one."""
        width = np.int64(1 << (self.bits - steps))
        every = np.arange(1 << self.bits)
        filled = np.empty(coords.shape, np.uint32, order="F")
        for axis, edges in enumerate(self.edges):
            begins = np.array(edges, np.int64)
            cell = np.searchsorted(begins, every, side="right") - 1
            inside = (every - begins[cell]) * width // np.diff(begins)[cell]
            filled[:, axis] = (cell * width + inside).astype(np.uint32)[coords[:, axis]]
        return filled


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of the sample in the order of ordinals; arrays as in `CurveSample`."""

    coords: Coords
    ordinals: Ordinals
    lows: Shares
    highs: Shares

    @classmethod
    def of(cls, coords: Coords, ordinals: Ordinals, bits: int) -> "Rows":
        """Return rows with these coordinates, each below 2**bits."""
        side = float(1 << bits)
        lows, highs = coords / side, coordinate_ends(coords, bits) / side
        return cls(coords, ordinals, np.ascontiguousarray(lows), np.ascontiguousarray(highs))

    def take(self, rows: npt.NDArray[np.int64] | slice) -> "Rows":
        """Return some of the rows, in their order."""
        return Rows(self.coords[rows], self.ordinals[rows], self.lows[rows], self.highs[rows])

    def tried(self, parts: int) -> "Rows":
        """Return as many of the rows, evenly spread, as it takes to try grids for so many files."""
        return self.take(
            slice(None, None, max(1, len(self.coords) // (parts * _TRIED_ROWS_PER_PART)))
        )

    def sorted_on(self, grid: CurveGrid) -> CurveSample:
        """Return the rows in the order of their keys on a grid."""
        keys = grid.keys_of(self.coords)
        return CurveSample.sort(keys, self.ordinals, lows=self.lows, highs=self.highs)


def fit_curve(
    coords: Coords,
    ordinals: Ordinals,
    parts: int,
    *,
    curve: Curve,
    bits: int,
    grid: CurveGrid | None = None,
) -> tuple[CurveGrid, CurveSample, Cuts]:
    """Return the grid on which narrow predicates open the fewest rows.

    Args:
        coords: (s, d) unsigned, the coordinates of the sample, each below 2**bits.
        ordinals: (s,) uint64, the ordinals of the sampled rows, increasing.
        parts: Files.
        curve: Any but `kd`.
        bits: Bits of a coordinate, at most 16.
        grid: The one to take, as found for other rows of the same kind; no other is tried.

    Returns:
        The grid; the sample in the order of its keys; parts - 1 cuts.
    """
    rows = Rows.of(coords, ordinals, bits)
    best = grid or CurveGrid(curve, bits, (1,) * coords.shape[1])
    if curve is Curve.LINEAR:
        sample = rows.sorted_on(best)
        return best, sample, equal_cuts(sample, parts)
    if grid is None:
        tried = rows.tried(parts)
        likely = [CurveGrid(curve, bits, cells) for cells in _likely_cells(tried.coords, parts)]
        best = _best_grid([best, *likely], tried, parts) if likely else best
    sample = rows.sorted_on(best)
    return best, sample, choose_cuts(sample, parts)


def _best_grid(grids: Sequence[CurveGrid], tried: Rows, parts: int) -> CurveGrid:
    """Return the first of the grids with the least quadratic mean of what narrow predicates open.

    They ask for one value of one column; the quadratic mean over the columns prefers grids on
    which all are read alike.
    """
    opened: list[float] = []
    together = max(1, _ROWS_TOGETHER // max(1, len(tried.coords)))
    for first in range(0, len(grids), together):
        samples = [tried.sorted_on(grid) for grid in grids[first : first + together]]
        cut = zip(samples, choose_cuts_each(samples, parts), strict=True)
        opened += [float(np.linalg.norm(opened_shares(*one))) for one in cut]
    return grids[opened.index(min(opened))]


def _likely_cells(coords: Coords, parts: int) -> list[tuple[int, ...]]:
    """Return numbers of cells along the axes, those that would open the fewest rows first."""
    rows, dimensions = coords.shape
    if not 1 < dimensions <= MAX_FITTED_DIMENSIONS or not 1 < parts <= min(MAX_FITTED_PARTS, rows):
        return []
    return nsmallest(MAX_GRIDS, _possible_cells(coords, parts), key=_ideal_share)


def _ideal_share(cells: tuple[int, ...]) -> float:
    return sum(1 / count for count in cells)


def _possible_cells(coords: Coords, parts: int) -> Iterator[tuple[int, ...]]:
    distinct = [int(np.count_nonzero(np.bincount(column))) for column in coords.T]
    options = [
        range(max(1, int(cells / _MAX_STRETCH)), min(values, int(cells * _MAX_STRETCH) + 1) + 1)
        for cells, values in zip(_cells_of_a_cube(distinct, parts), distinct, strict=True)
    ]
    least, most = (share * parts for share in CELLS_PER_PART)
    for cells in product(*options):
        if least <= prod(cells) <= most and max(cells) > 1:
            yield cells


def _cells_of_a_cube(distinct: list[int], parts: int) -> list[float]:
    """Return the same number of cells along all axes, but no more than an axis has values."""
    cells = [1.0] * len(distinct)
    left = float(parts)
    for done, axis in enumerate(np.argsort(distinct).tolist()):
        cells[axis] = min(float(distinct[axis]), left ** (1 / (len(distinct) - done)))
        left /= cells[axis]
    return cells
