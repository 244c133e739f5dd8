"""Layouts of rows by the name of a curve: plain, with a prefix, or fitted to queries.

Cells hold equally many rows, or end at constants of queries. The effect of all possible numbers of
cells along the axes is first predicted, as if columns were independent; the best are tried on a
part of the sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.curve.boxes import (
    BOX_BITS,
    CELLS_PER_PART,
    FINALISTS,
    MAX_FITTED_DIMENSIONS,
    MAX_FITTED_PARTS,
    MAX_GRIDS,
    Boxes,
    CurveGrid,
    CurveRows,
    boxes_of,
    fit_boxes,
    fit_curve,
    part_by_prefix,
)
from liquidlog.curve.curves import (
    KEY_BITS,
    Axis,
    Column,
    Coords,
    Curve,
    Keys,
    coordinate_bits,
    range_ids,
)
from liquidlog.curve.cuts import (
    CurveSample,
    Cuts,
    GridPredicates,
    KeyOrder,
    Ordinals,
    Placed,
    Reach,
    Shares,
    ValuePredicates,
    asked_share,
    choose_cuts,
    opened_shares,
    ordinals_from,
)

_MOST_COUNTS: Final = (1024, 64, 16)
"""Most numbers of cells to compare per axis, with two, three and four axes."""
_SNAP: Final = 0.3
"""How far, in cells, an edge moves to a constant of a query."""
OTHER_READERS: Final = 0.1
"""Weight of queries for other values of the same columns."""


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
    share_of_effort: float = 1.0,
) -> Placed:
    """Return the grid over `axes` on which queries open the fewest of some rows."""
    kind = Curve.LINEAR if len(axes) == 1 else curve
    search = _Search(rows, parts, reach, tuple(axes), kind)
    tried = rows.tried(parts)
    count = max(1, int(MAX_GRIDS * share_of_effort))
    grids = list(dict.fromkeys(search.grids(count)))
    extents = Reach(None, reach.axis_weights)

    def opened(grid: CurveGrid) -> float:
        sample = tried.sorted_on(grid)
        return _mean_opened(sample, choose_cuts(sample, parts, extents), reach)

    finalists = sorted(grids, key=opened)[:FINALISTS] if len(grids) > 1 else grids
    placed = []
    for grid in finalists:
        sample = rows.sorted_on(grid)
        placed.append(Placed(grid, sample, choose_cuts(sample, parts, extents)))
        if reach.asked is not None:
            placed.append(Placed(grid, sample, choose_cuts(sample, parts, reach)))
    return min(placed, key=lambda one: _mean_opened(one.sample, one.cuts, reach))


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """Proposes grids over `axes` for rows."""

    rows: CurveRows
    parts: int
    reach: Reach
    axes: tuple[int, ...]
    curve: Curve

    def grids(self, count: int) -> Iterator[CurveGrid]:
        """Yield about `count` grids, first the plain one."""
        ones, bits = (1,) * len(self.axes), self.rows.bits
        if self.curve is Curve.LINEAR:
            for order in permutations(self.axes) if len(self.axes) > 1 else [self.axes]:
                yield CurveGrid(self.curve, bits, ones, axes=order)
            return
        yield CurveGrid(self.curve, bits, ones, axes=self.axes)
        if not 1 < self.parts <= MAX_FITTED_PARTS or len(self.axes) > MAX_FITTED_DIMENSIONS:
            return
        values = [np.sort(self.rows.coords[:, axis]) for axis in self.axes]
        distinct = [1 + int(np.count_nonzero(np.diff(own))) for own in values]
        cells = np.array(list(_possible_cells(distinct, self.parts)), np.int64)
        if not len(cells):
            return
        best = np.argsort(self._foreseen(cells, values), kind="stable")[:count]
        snaps = [None] if self.reach.asked is None else [None, self.reach.asked]
        for counts in cells[best].tolist():
            for asked in snaps:
                edges = tuple(
                    _edges(own, cut, 1 << bits, None if asked is None else asked.borders(axis))
                    for own, cut, axis in zip(values, counts, self.axes, strict=True)
                )
                found = tuple(len(own) - 1 for own in edges)
                if max(found) > 1:
                    yield CurveGrid(self.curve, bits, found, self.axes, edges)

    def _foreseen(
        self, cells: npt.NDArray[np.int64], values: Sequence[npt.NDArray[np.unsignedinteger]]
    ) -> Shares:
        """Return what queries open with (m, d) cells, (m,), if columns are independent."""
        weights = self.reach.axis_weights[list(self.axes)]
        others: Shares = (1 / cells) @ weights
        asked = self.reach.asked
        if asked is None:
            return others
        side = 1 << self.rows.bits
        shares = np.empty((len(cells), len(asked.axes)))
        # On a column that is not cut, intervals that meet any row are always met.
        least, most = self.rows.lows.min(axis=0), self.rows.highs.max(axis=0)
        shares[:] = (least[asked.axes] < asked.ends) & (asked.lows < most[asked.axes])
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
        # The heaviest border of each edge comes last, and is kept.
        for number in np.flatnonzero(near)[np.argsort(borders[1][near], kind="stable")].tolist():
            inner[nearest[number] - 1] = at[number]
    between = np.unique(inner[(inner > 0) & (inner < side)])
    return (0, *between.tolist(), side)


# With a prefix, single values divide the rows first, and each part has its own grid. A row's key is
# the number of its part, followed by its key on the part's grid.

_SHIFT = np.uint64(64 - BOX_BITS)


@dataclass(frozen=True, slots=True)
class Prefixed:
    """Parts of the rows, as boxes of a tree, and a grid for each part, with keys of 48 bits."""

    parts: Boxes
    grids: tuple[KeyOrder, ...]
    bits: int

    def keys_of(self, coords: Coords) -> Keys:
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
    rows: CurveRows, parts: int, reach: Reach, *, prefix: Sequence[int], curve: Curve
) -> Placed:
    """Return where rows go by the parts and grids on which queries open the fewest rows."""
    nodes, boxes = part_by_prefix(rows.coords, parts, prefix)
    placed: list[Placed] = []
    for box in boxes:
        others = tuple(j for j in range(rows.coords.shape[1]) if j not in box.single)
        placed.append(
            fit_grid(
                rows.take(box.rows),
                nodes[box.node].parts,
                reach,
                axes=others or (prefix[-1],),
                curve=curve,
                share_of_effort=1 / len(boxes),
            )
        )
    order = Prefixed(boxes_of(nodes, rows.bits), tuple(one.order for one in placed), rows.bits)
    keys, cuts = [], []
    for number, (_, sample, own) in enumerate(placed):
        begin = np.uint64(number) << _SHIFT
        keys.append(sample.keys | begin)
        if number:
            cuts.append(Cuts(np.array([begin]), np.zeros(1, np.uint64)))
        cuts.append(Cuts(own.keys | begin, own.ordinals))
    ordinals, lows, highs = (
        np.concatenate([getattr(one.sample, name) for one in placed])
        for name in ("ordinals", "lows", "highs")
    )
    joined = CurveSample(np.concatenate(keys), ordinals, lows, highs)
    return Placed(order, joined, Cuts.joined(cuts))


# Layouts fitted to a workload are never worse than the even layout. Candidates are grids with other
# numbers of cells, cells and boxes that end at constants of queries, and columns of few values
# before the others. A candidate is dropped if the workload opens more of the sample than with the
# even layout. The best of the others also counts some queries for other values.
#
# Few files allow few grids: 24 files can be 8 by 3 or 12 by 2, and nothing between. So up to an
# eighth more files are tried, too, and taken if queries open less than more files alone explain.

MOST_MORE: Final = 1 / 8
"""The share of files by which there may be more than planned, if queries gain by it."""
_FEW_FILES: Final = 64
"""More files allow enough grids."""
_ROUNDING: Final = 1e-9


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
    """Return where sampled rows go.

    `coords` are (s, d) below 2**bits; `ordinals` (s,) increase. There may be more than `parts`
    files with a prefix, and up to `MOST_MORE` more with a workload.
    """
    rows, dimensions = CurveRows.of(coords, ordinals, bits), coords.shape[1]
    if (prefix and len(coords)) or curve is Curve.KD:
        alike = Reach(None, np.full(dimensions, 1 / dimensions))
        even = _parted(rows, parts, alike, prefix if len(coords) else (), curve)
    else:
        even = fit_curve(rows, parts, curve)
    if asked is None or not len(coords):
        return even
    limit = asked_share(even.sample, even.cuts, asked) * (1 + _ROUNDING)
    reach = Reach(asked, asked.axis_weights(dimensions))
    columns = max(1, int((reach.axis_weights > 0).sum()))
    best, least = even, _mean_opened(even.sample, even.cuts, reach)
    most = min(int(parts * (1 + MOST_MORE)), len(coords))
    for count in [parts, most] if parts < most and parts <= _FEW_FILES else [parts]:
        # With more files of the same shape, queries for single values open this much less.
        usual = (parts / count) ** (1 / columns)
        for placed in _fitted(rows, count, reach, prefix, even, curve):
            opened = _mean_opened(placed.sample, placed.cuts, reach) / usual
            if opened < least and asked_share(placed.sample, placed.cuts, asked) <= limit:
                best, least = placed, opened
    return best


def _fitted(
    rows: CurveRows, parts: int, reach: Reach, prefix: Sequence[int], even: Placed, curve: Curve
) -> Iterator[Placed]:
    if isinstance(even.order, CurveGrid):
        yield even._replace(cuts=choose_cuts(even.sample, parts, reach))
    if parts > MAX_FITTED_PARTS:
        return
    yield _parted(rows, parts, reach, prefix, curve)
    for axis in range(rows.coords.shape[1]) if not prefix else ():
        if not 1 < len(np.unique(rows.coords[:, axis])) <= parts:
            continue
        nodes, boxes = part_by_prefix(rows.coords, parts, (axis,))
        if len(boxes) > 1 and sum(nodes[box.node].parts for box in boxes) <= parts:
            yield _parted(rows, parts, reach, (axis,), curve)


def _parted(
    rows: CurveRows, parts: int, reach: Reach, prefix: Sequence[int], curve: Curve
) -> Placed:
    if curve is Curve.KD:
        asking = None if reach.asked is None else reach
        return fit_boxes(rows, parts, reach=asking, prefix=prefix)
    if prefix:
        return fit_prefixed(rows, parts, reach, prefix=prefix, curve=curve)
    axes = range(rows.coords.shape[1])
    return fit_grid(rows, parts, reach, axes=axes, curve=curve)


MAX_RANGES: Final = 4096
"""Ranges of each of several columns; four times as many as in the reference engine."""
MAX_RANGES_ALONE: Final = 1 << 16
"""Ranges of the only clustering column; each can lie in only two files."""
_KEY_TYPES: Final = (pa.uint16(), pa.uint32(), pa.uint64())


def key_order_bits(dimensions: int, curve: Curve, *, parted: bool = False) -> int:
    """Return the bits of each of d coordinates; a key may begin with the number of a part."""
    bits = coordinate_bits(dimensions)
    is_boxed = parted or curve is Curve.KD
    return min(bits, (KEY_BITS - BOX_BITS) // dimensions) if is_boxed else bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where rows go: `cuts` separate slices, and slice s is in output s // slices_per_output."""

    axes: tuple[Axis, ...]
    order: KeyOrder
    cuts: Cuts
    slices_per_output: int = 1

    @property
    def outputs(self) -> int:
        """Number of output files; a prefix or readers may make it larger than planned."""
        return (len(self.cuts.keys) + 1) // self.slices_per_output

    @property
    def key_type(self) -> pa.DataType:
        """The narrowest unsigned type that holds all keys."""
        if isinstance(self.order, Prefixed):
            return pa.uint64()
        box_bits = BOX_BITS if isinstance(self.order, Boxes) else 0
        bits = box_bits + len(self.axes) * self.order.bits
        return next(kind for kind in _KEY_TYPES if bits <= kind.bit_width)

    def keys_of(self, columns: Sequence[Column]) -> Keys:
        coords = np.empty((len(columns[0]), len(columns)), np.uint32, order="F")
        for j, (axis, column) in enumerate(zip(self.axes, columns, strict=True)):
            coords[:, j] = axis.coordinates[range_ids(column, axis.boundaries)]
        return self.order.keys_of(coords)

    def slices(self, columns: Sequence[Column]) -> tuple[npt.NDArray[np.int64], Keys]:
        """Return the slice of each row of all columns, in order, and the key that sorts it."""
        keys = self.keys_of(columns)
        return self.cuts.parts_of(keys, ordinals_from(0, len(keys))), keys


def place_columns(
    columns: Sequence[pa.Array],
    ordinals: Ordinals,
    parts: int,
    *,
    curve: Curve,
    conditions: ValuePredicates | None = None,
    prefix: Sequence[int] = (),
) -> tuple[Layout, CurveSample]:
    """Return where rows with these values go, and the sample, as `place_rows` for coordinates."""
    d = len(columns)
    bits = key_order_bits(d, curve, parted=bool(prefix) or conditions is not None)
    max_ranges = min(MAX_RANGES if d > 1 else MAX_RANGES_ALONE, 1 << bits)
    borders = [None] * d if conditions is None else conditions.borders(columns)
    axes, coords = [], np.empty((len(ordinals), d), np.uint32, order="F")
    for j, (column, between) in enumerate(zip(columns, borders, strict=True)):
        axis, coords[:, j] = Axis.fit(column, between, max_ranges=max_ranges, bits=bits)
        axes.append(axis)
    asked = None if conditions is None else conditions.on(axes, columns, bits)
    order, sample, cuts = place_rows(
        coords, ordinals, parts, curve=curve, bits=bits, asked=asked, prefix=prefix
    )
    return Layout(axes=tuple(axes), order=order, cuts=cuts), sample
