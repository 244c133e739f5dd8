"""Layouts of rows by the name of a curve: plain, with a prefix, or fitted to readers.

Cells hold equally many rows, or end at constants that readers use. How many there are along each
axis is first foreseen, as if columns were independent, for all combinations in reach; the most
promising ones are tried on a part of the sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.curve.boxes import (
    BOX_BITS,
    CELLS_PER_PART,
    MAX_FITTED_DIMENSIONS,
    MAX_FITTED_PARTS,
    MAX_GRIDS,
    Boxes,
    CurveGrid,
    CurveRows,
    boxes_of,
    fit_boxes,
    fit_curve,
    kd_bits,
    part_by_prefix,
)
from liquidlog.curve.conditions import GridPredicates, ValuePredicates, axis_of
from liquidlog.curve.curves import Curve, coordinate_bits
from liquidlog.curve.cuts import (
    CurveSample,
    Cuts,
    Ordinals,
    Reach,
    Shares,
    asked_share,
    choose_cuts,
    opened_shares,
)
from liquidlog.curve.grid import Axis, Coords, Keys

_FINALISTS: Final = 3
_MOST_COUNTS: Final = (1024, 64, 16)
"""The most numbers of cells to compare per axis, of two, three and four axes."""
_SNAP: Final = 0.3
"""How far, in cells, an edge moves to a constant that readers use."""
OTHER_READERS: Final = 0.1
"""Weight of queries for other values of the same columns, where layouts are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A grid, the rows in the order of its keys, and the cuts into files."""

    order: CurveGrid
    sample: CurveSample
    cuts: Cuts


def _mean_opened(sample: CurveSample, cuts: Cuts, reach: Reach) -> float:
    others = float(opened_shares(sample, cuts) @ reach.axis_weights)
    asked = reach.asked
    return others if asked is None else asked_share(sample, cuts, asked) + OTHER_READERS * others


def fit_grid(
    rows: CurveRows,
    parts: int,
    reach: Reach,
    *,
    axes: Sequence[int],
    curve: Curve,
    bits: int,
    share_of_effort: float = 1.0,
) -> Placement:
    """Return the grid over `axes` on which queries open the fewest of some rows.

    `share_of_effort` is the share of the usual number of grids that is tried.
    """
    kind = Curve.LINEAR if len(axes) == 1 else curve
    search = _Search(rows, parts, reach, tuple(axes), kind, bits)
    tried = rows.tried(parts)
    count = max(1, int(MAX_GRIDS * share_of_effort))
    grids = list(dict.fromkeys(search.grids(count)))
    extents = Reach(None, reach.axis_weights)

    def opened(grid: CurveGrid) -> float:
        sample = tried.sorted_on(grid)
        return _mean_opened(sample, choose_cuts(sample, parts, extents), reach)

    finalists = sorted(grids, key=opened)[:_FINALISTS] if len(grids) > 1 else grids
    placed = [
        Placement(grid, sample, choose_cuts(sample, parts, wanted))
        for grid in finalists
        for sample in [rows.sorted_on(grid)]
        for wanted in ([reach, extents] if reach.asked is not None else [extents])
    ]
    return min(placed, key=lambda one: _mean_opened(one.sample, one.cuts, reach))


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """Proposes grids over `axes` for rows."""

    rows: CurveRows
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
        side, asked = 1 << self.bits, self.reach.asked if snap else None
        edges = [
            _edges(own, count, side, asked.borders(axis) if asked is not None else None)
            for own, count, axis in zip(values, cells, self.axes, strict=True)
        ]
        counts = tuple(len(own) - 1 for own in edges)
        if max(counts) == 1:
            return None
        return CurveGrid(self.curve, self.bits, counts, self.axes, tuple(edges))

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

    def _met(self, asked: GridPredicates) -> Shares:
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


# A prefix before a curve: rows are parted by single values first, then each part has its own grid
#
# A row's key is the number of its part followed by its key on the part's grid.

_SHIFT = np.uint64(64 - BOX_BITS)


@dataclass(frozen=True, slots=True)
class Prefixed:
    """Parts of the rows, as boxes of a tree, and a grid per part; its keys have 48 bits at most."""

    parts: Boxes
    grids: tuple[CurveGrid, ...]
    bits: int

    def keys_of(self, coords: Coords) -> Keys:
        """Return the key of each row of (n, d) coordinates below 2**bits, (n,) uint64."""
        numbers = self.parts.numbers_of(coords)
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(len(self.grids) + 1))
        keys = numbers << _SHIFT
        for grid, start, stop in zip(self.grids, edges[:-1], edges[1:], strict=True):
            if start < stop:
                rows = order[start:stop]
                keys[rows] |= grid.keys_of(coords[rows])
        return keys


def fit_prefixed(
    rows: CurveRows,
    parts: int,
    reach: Reach,
    *,
    prefix: Sequence[int],
    curve: Curve,
    bits: int,
) -> tuple[Prefixed, CurveSample, Cuts]:
    """Return the parts and grids on which queries open the fewest rows."""
    nodes, boxes = part_by_prefix(rows.coords, parts, prefix)
    placed: list[Placement] = []
    for box in boxes:
        others = tuple(j for j in range(rows.coords.shape[1]) if j not in box.single)
        placed.append(
            fit_grid(
                rows.take(box.rows),
                nodes[box.node].parts,
                reach,
                axes=others or (prefix[-1],),
                curve=curve,
                bits=bits,
                share_of_effort=1 / len(boxes),
            )
        )
    order = Prefixed(boxes_of(nodes, bits), tuple(one.order for one in placed), bits)
    return order, _joined_samples(placed), _joined_cuts([one.cuts for one in placed])


def _joined_samples(placed: Sequence[Placement]) -> CurveSample:
    samples = [one.sample for one in placed]
    keys = [sample.keys | (np.uint64(number) << _SHIFT) for number, sample in enumerate(samples)]
    return CurveSample(
        np.concatenate(keys),
        np.concatenate([sample.ordinals for sample in samples]),
        np.concatenate([sample.lows for sample in samples]),
        np.concatenate([sample.highs for sample in samples]),
    )


def _joined_cuts(cuts: Sequence[Cuts]) -> Cuts:
    keys, ordinals = [], []
    for number, own in enumerate(cuts):
        begin = np.uint64(number) << _SHIFT
        first = np.array([begin] if number else [], np.uint64)
        keys += [first, own.keys | begin]
        ordinals += [np.zeros(len(first), np.uint64), own.ordinals]
    return Cuts(np.concatenate(keys), np.concatenate(ordinals))


# Layouts fitted to a workload, or with single values first; never worse than the even one
#
# Candidates are the even layout, grids with other numbers of cells, cells and boxes that end at
# constants of queries, and columns of few values before the others. Candidates with which the
# workload opens more of the sample than with the even layout are dropped; the best of the
# others also counts a few queries for other values.
#
# Few files can be cut in few ways: 24 can be 8 by 3 or 12 by 2, and nothing between. So up to
# an eighth more files are tried, too, and taken if queries open less than the number of files
# alone explains.

KeyOrder: TypeAlias = CurveGrid | Boxes | Prefixed
"""What gives rows their keys, by `keys_of(coords)`."""

Placed: TypeAlias = tuple[KeyOrder, CurveSample, Cuts]
"""The order of keys, the sample in that order, and the cuts into files."""

MOST_MORE: Final = 1 / 8
"""The share of the files asked for by which there may be more, where queries gain by it."""
_FEW_FILES: Final = 64
"""Beyond, there are cuts enough for any readers."""
_ROUNDING: Final = 1e-9


def fit_layout(
    coords: Coords,
    ordinals: Ordinals,
    parts: int,
    *,
    curve: Curve,
    bits: int,
    asked: GridPredicates | None,
    prefix: Sequence[int],
) -> Placed:
    """Return the order of keys, the sample in that order, and the cuts into files.

    `coords` are (s, d) below 2**bits, s at least 1; `ordinals` (s,) increase. There may be more
    than `parts` files with a prefix, and up to `MOST_MORE` more with a workload.
    """
    rows = CurveRows.of(coords, ordinals, bits)
    even = _Candidates(rows, parts, curve, bits).even(prefix)
    if asked is None:
        return even
    limit = asked_share(even[1], even[2], asked) * (1 + _ROUNDING)
    reach = Reach(asked, asked.axis_weights(coords.shape[1]))
    columns = max(1, int((reach.axis_weights > 0).sum()))
    best, least = even, _mean_opened(even[1], even[2], reach)
    for count in _numbers_of_files(parts, len(coords)):
        # Readers of single values open this much less with more files of the same shape.
        usual = (parts / count) ** (1 / columns)
        candidates = _Candidates(rows, count, curve, bits)
        for placed in candidates.fitted(reach, prefix, even):
            opened = _mean_opened(placed[1], placed[2], reach) / usual
            if opened < least and asked_share(placed[1], placed[2], asked) <= limit:
                best, least = placed, opened
    return best


def _numbers_of_files(parts: int, rows: int) -> Iterator[int]:
    """Yield the numbers of files to try, for so many sampled rows."""
    yield parts
    most = min(int(parts * (1 + MOST_MORE)), rows)
    if parts < most and parts <= _FEW_FILES:
        yield most


class _Candidates:
    def __init__(self, rows: CurveRows, parts: int, curve: Curve, bits: int) -> None:
        self._rows, self._parts, self._curve, self._bits = rows, parts, curve, bits
        self._dimensions = rows.coords.shape[1]

    def even(self, prefix: Sequence[int]) -> Placed:
        """Return the layout that treats all columns alike."""
        if prefix or self._curve is Curve.KD:
            weights = np.full(self._dimensions, 1 / self._dimensions)
            return self._parted(Reach(None, weights), prefix, is_even=True)
        return fit_curve(
            self._rows.coords, self._rows.ordinals, self._parts, curve=self._curve, bits=self._bits
        )

    def fitted(self, reach: Reach, prefix: Sequence[int], even: Placed) -> Iterator[Placed]:
        if isinstance(even[0], CurveGrid):
            yield even[0], even[1], choose_cuts(even[1], self._parts, reach)
        if self._parts > MAX_FITTED_PARTS:
            return
        yield self._parted(reach, prefix)
        if prefix:
            return
        for axis in range(self._dimensions):
            if self._has_few_values(axis):
                yield self._parted(reach, (axis,))

    def _parted(self, reach: Reach, prefix: Sequence[int], *, is_even: bool = False) -> Placed:
        rows = self._rows
        if self._curve is Curve.KD:
            return fit_boxes(
                rows.coords,
                rows.ordinals,
                self._parts,
                bits=self._bits,
                reach=None if is_even else reach,
                prefix=prefix,
            )
        if prefix:
            return fit_prefixed(
                rows, self._parts, reach, prefix=prefix, curve=self._curve, bits=self._bits
            )
        axes = tuple(range(self._dimensions))
        placed = fit_grid(rows, self._parts, reach, axes=axes, curve=self._curve, bits=self._bits)
        return placed.order, placed.sample, placed.cuts

    def _has_few_values(self, axis: int) -> bool:
        """Return whether a prefix of this column parts the rows into no more than the files."""
        values = len(np.unique(self._rows.coords[:, axis]))
        if not 1 < values <= self._parts:
            return False
        nodes, boxes = part_by_prefix(self._rows.coords, self._parts, (axis,))
        return len(boxes) > 1 and sum(nodes[box.node].parts for box in boxes) <= self._parts


# Where sampled rows go: the order of keys and the cuts, for any curve by name

__all__ = ["KeyOrder", "RowPlacement", "key_order_bits", "place_columns", "place_rows"]

MAX_RANGES: Final = 4096
"""Ranges of each of several columns; four times the reference engine's, at no measurable cost."""
MAX_RANGES_ALONE: Final = 1 << 16
"""Ranges of a sole clustering column, of which each can straddle only two files."""


def key_order_bits(dimensions: int, curve: Curve, *, parted: bool = False) -> int:
    """Return the bits of each of d coordinates; keys may begin with the number of a part."""
    bits = coordinate_bits(dimensions)
    return kd_bits(dimensions, bits) if parted or curve is Curve.KD else bits


def place_rows(
    coords: Coords,
    ordinals: Ordinals,
    parts: int,
    *,
    curve: Curve,
    bits: int,
    asked: GridPredicates | None = None,
    prefix: Sequence[int] = (),
) -> Placed:
    """Return the order of keys, the sample in that order, and the cuts; see `fit_layout`."""
    if len(coords) and (asked is not None or prefix):
        return fit_layout(
            coords, ordinals, parts, curve=curve, bits=bits, asked=asked, prefix=prefix
        )
    if curve is Curve.KD:
        return fit_boxes(coords, ordinals, parts, bits=bits)
    return fit_curve(coords, ordinals, parts, curve=curve, bits=bits)


@dataclass(frozen=True, slots=True)
class RowPlacement:
    """The axes of some columns, the order of keys on them, the sample in it, and the cuts."""

    axes: tuple[Axis, ...]
    order: KeyOrder
    sample: CurveSample
    cuts: Cuts

    def parts(self, columns: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], Keys]:
        """Return the file of each row of all columns, in order, and the key that sorts it."""
        coords = np.empty((len(columns[0]), len(columns)), np.uint32, order="F")
        for number, (axis, column) in enumerate(zip(self.axes, columns, strict=True)):
            coords[:, number] = axis.coordinates_of(column)
        keys = self.order.keys_of(coords)
        ordinals = np.arange(len(coords), dtype=np.uint64)
        return np.asarray(self.cuts.parts_of(keys, ordinals), np.int64), keys


def place_columns(
    columns: Sequence[pa.Array],
    ordinals: Ordinals,
    parts: int,
    *,
    curve: Curve,
    conditions: ValuePredicates | None = None,
    prefix: Sequence[int] = (),
) -> RowPlacement:
    """Return where rows with these values go, as `place_rows` does for coordinates."""
    d = len(columns)
    bits = key_order_bits(d, curve, parted=bool(prefix) or conditions is not None)
    max_ranges = min(MAX_RANGES if d > 1 else MAX_RANGES_ALONE, 1 << bits)
    borders = [None] * d if conditions is None else conditions.borders(columns)
    axes, coords = [], np.empty((len(ordinals), d), np.uint32, order="F")
    for j, (column, between) in enumerate(zip(columns, borders, strict=True)):
        axis, coords[:, j] = axis_of(column, between, max_ranges=max_ranges, bits=bits)
        axes.append(axis)
    asked = None if conditions is None else conditions.on(axes, columns, bits)
    order, sample, cuts = place_rows(
        coords, ordinals, parts, curve=curve, bits=bits, asked=asked, prefix=prefix
    )
    return RowPlacement(tuple(axes), order, sample, cuts)
