"""Layouts of rows by the name of a curve: plain, with a prefix, or fitted to queries.

Trees of planes that divide the grid into boxes, first at the single values of a prefix.

A *prefix* is one or several columns of few values. Rows are first divided by their values, column
by column. If a value's rows would make a file of less than a quarter of the mean size, the value is
grouped with its neighbours, and later columns of the prefix do not divide such a group.

Cells hold equally many rows, or end at constants of queries. The effect of all possible numbers of
cells along the axes is first predicted, as if columns were independent; the best are tried on a
part of the sample.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace, nsmallest
from itertools import permutations, product
from math import prod
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.curve.curves import (
    BLOCK_ROWS,
    KEY_BITS,
    Axis,
    Column,
    Coords,
    Curve,
    CurveSample,
    Cuts,
    GridPredicates,
    KeyOrder,
    Keys,
    Ordinals,
    Placed,
    Reach,
    Shares,
    ValuePredicates,
    asked_share,
    choose_cuts,
    choose_cuts_each,
    coordinate_bits,
    coordinate_ends,
    curve_index,
    equal_cuts,
    hilbert_index,
    opened_shares,
    range_ids,
    stable_order,
)

Rows = npt.NDArray[np.int64]

LEAST_SHARE: Final = 0.25
"""A value with this share of a file's mean rows gets its own files."""


class Node(NamedTuple):
    """A box while the tree grows, of `parts` files; `axis` is -1 where it is not divided.

    Rows whose coordinate on `axis` is below `at` go to node `first_child`, others to the next one.
    """

    axis: int
    at: int
    first_child: int
    parts: int
    depth: int


def leaves(nodes: Sequence[Node]) -> Iterator[int]:
    """Yield the numbers of boxes from left to right."""
    waiting = [0]
    while waiting:
        number = waiting.pop()
        node = nodes[number]
        if node.axis < 0:
            yield number
        else:
            waiting += [node.first_child + 1, node.first_child]


class TreeLeaf(NamedTuple):
    """A box of a prefix's tree: its node, its rows, and the axes on which they have one value."""

    node: int
    rows: Rows
    single: frozenset[int]


class _Group(NamedTuple):
    """Neighbouring values from the coordinate `first` on: the numbers of rows and of values."""

    first: int
    rows: int
    values: int


def part_by_prefix(
    coords: Coords, parts: int, prefix: Sequence[int]
) -> tuple[list[Node], list[TreeLeaf]]:
    """Return the nodes, with the two children of each side by side after it, and the boxes."""
    tree = _PrefixTree(coords, len(coords) / parts)
    tree.divide(0, np.arange(len(coords)), parts, tuple(prefix), frozenset())
    return tree.nodes, tree.boxes


class _PrefixTree:
    def __init__(self, coords: Coords, rows_per_part: float) -> None:
        self._coords = coords
        self._rows_per_part = rows_per_part
        self.nodes: list[Node] = [Node(-1, 0, 0, 0, 0)]
        self.boxes: list[TreeLeaf] = []

    def divide(
        self, number: int, rows: Rows, parts: int, prefix: tuple[int, ...], single: frozenset[int]
    ) -> None:
        if not prefix or not len(rows):
            self.nodes[number] = self.nodes[number]._replace(parts=parts)
            self.boxes.append(TreeLeaf(number, rows, single))
            return
        axis = prefix[0]
        values, counts = np.unique(self._coords[rows, axis], return_counts=True)
        groups = _grouped(values, counts, LEAST_SHARE * self._rows_per_part)
        shares = _apportioned([group.rows for group in groups], parts)
        self._halve(number, rows, list(zip(groups, shares, strict=True)), prefix, single)

    def _halve(
        self,
        number: int,
        rows: Rows,
        groups: list[tuple[_Group, int]],
        prefix: tuple[int, ...],
        single: frozenset[int],
    ) -> None:
        if len(groups) == 1:
            group, parts = groups[0]
            is_single = group.values == 1
            left = prefix[1:] if is_single else ()
            self.divide(number, rows, parts, left, single | {prefix[0]} if is_single else single)
            return
        middle, node, first_child = len(groups) // 2, self.nodes[number], len(self.nodes)
        at = groups[middle][0].first
        self.nodes[number] = node._replace(
            axis=prefix[0], at=at, first_child=first_child, parts=sum(p for _, p in groups)
        )
        self.nodes += [Node(-1, 0, 0, 0, node.depth + 1)] * 2
        below = self._coords[rows, prefix[0]] < at
        self._halve(first_child, rows[below], groups[:middle], prefix, single)
        self._halve(first_child + 1, rows[~below], groups[middle:], prefix, single)


def _grouped(
    values: npt.NDArray[np.unsignedinteger], counts: npt.NDArray[np.int64], least: float
) -> list[_Group]:
    """Return neighbouring values in groups of at least `least` rows, large values alone."""
    groups: list[_Group] = []
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        last = groups[-1] if groups else None
        if last is not None and last.rows < least and count < least:
            groups[-1] = _Group(last.first, last.rows + count, last.values + 1)
        else:
            groups.append(_Group(value, count, 1))
    while len(groups) > 1:
        small = min(range(len(groups)), key=lambda number: groups[number].rows)
        if groups[small].rows >= least:
            break
        beside = [number for number in (small - 1, small + 1) if 0 <= number < len(groups)]
        start = min(small, min(beside, key=lambda number: groups[number].rows))
        left, right = groups[start : start + 2]
        groups[start : start + 2] = [
            _Group(left.first, left.rows + right.rows, left.values + right.values)
        ]
    return groups


def _apportioned(rows: Sequence[int], parts: int) -> list[int]:
    """Return the parts of each group by its share of the rows, at least one."""
    shares = [1] * len(rows)
    heap = [(-float(count), number) for number, count in enumerate(rows)]
    heapify(heap)
    for _ in range(parts - len(rows)):
        number = heap[0][1]
        shares[number] += 1
        heapreplace(heap, (-rows[number] / shares[number], number))
    return shares


# A balanced k-d tree. A node is a box of the grid with sampled rows for some files. A plane across
# its longest side divides it where the rows on either side are nearest to whole files, until a box
# is one file or cannot be divided. A row's key is its box's number, from left to right, then its
# Hilbert key on a grid that fills the box. O(sample * log files) to build, O(rows * log files) to
# find boxes.
#
# Source: J. L. Bentley, "Multidimensional Binary Search Trees Used for Associative Searching",
# 1975.

BOX_BITS: Final = 16
"""Bits of a key that number the box."""
_MAX_UNEVENNESS: Final = 0.25
"""How far a plane may take rows per file from the mean, as a share of it."""
_LEAST_FILL: Final = 0.5
_MOST_FILL: Final = 1.5
"""Rows per file over the mean; planes that are each even enough can add up to less or more."""
_LOPSIDED: Final = 1e-3
"""Weight of even sides; it decides between planes with which readers open the same."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """A tree of m nodes; its leaves are the boxes.

    A row goes from node i to `children[i, 0]` if its coordinate on axis `axes[i]` is below `at[i]`,
    else to `children[i, 1]`; `depth` steps lead to its box. A box is its own child, and has a
    number in `numbers`. The grid of box b begins at `lows[b]`, with steps of `1 / scales[b]`.
    """

    axes: npt.NDArray[np.int64]
    at: npt.NDArray[np.uint64]
    children: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    depth: int
    bits: int
    lows: npt.NDArray[np.float64]
    scales: npt.NDArray[np.float64]

    def keys_of(self, coords: Coords) -> Keys:
        shift = np.uint64(coords.shape[1] * self.bits)
        keys = np.empty(len(coords), np.uint64)
        for start in range(0, len(coords), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            numbers = self.numbers_of(coords[block])
            inside = (coords[block] - self.lows[numbers]) * self.scales[numbers]
            np.clip(inside, 0, (1 << self.bits) - 1, out=inside)
            keys[block] = hilbert_index(inside.astype(np.uint32), self.bits)
            keys[block] |= numbers << shift
        return keys

    def numbers_of(self, coords: Coords) -> npt.NDArray[np.uint64]:
        """Return the number of each row's box, (n,) uint64."""
        nodes = np.zeros(len(coords), np.int64)
        rows = np.arange(len(coords))
        for _ in range(self.depth):
            above = coords[rows, self.axes[nodes]] >= self.at[nodes]
            nodes = self.children[nodes, above.astype(np.int64)]
        return self.numbers[nodes].astype(np.uint64)


def fit_boxes(
    rows: "CurveRows", parts: int, *, reach: Reach | None = None, prefix: Sequence[int] = ()
) -> Placed:
    """Return where sampled rows go by boxes; if all rows of a box are equal, keys divide it.

    With `reach`, planes are where queries open little. A prefix may make more than `parts` files.
    """
    coords, bits = rows.coords, rows.bits
    ends = coordinate_ends(coords, bits)
    chooser = _widest if reach is None else _Least(reach, 1 << bits)
    grown = _grow(coords, ends, parts, prefix, chooser)
    boxes = _with_grids(boxes_of(grown, bits), coords, ends)
    sample = rows.sorted_on(boxes)
    return Placed(boxes, sample, _cuts(sample, grown, shift=coords.shape[1] * bits))


def _grow(
    coords: Coords, ends: Coords, parts: int, prefix: Sequence[int], chooser: "_Chooser"
) -> list[Node]:
    nodes, boxes = part_by_prefix(coords, parts, prefix)
    waiting = [(box.node, box.rows, len(box.rows) / nodes[box.node].parts) for box in boxes]
    while waiting:
        number, rows, mean_rows = waiting.pop()
        node = nodes[number]
        if node.parts == 1 or not len(rows):
            continue
        plane = chooser(coords[rows], ends[rows], node.parts, mean_rows)
        if plane is None:
            continue
        first_child = len(nodes)
        nodes[number] = node._replace(axis=plane.axis, at=plane.at, first_child=first_child)
        below = coords[rows, plane.axis] < plane.at
        for part_count, members in (
            (plane.parts_below, rows[below]),
            (node.parts - plane.parts_below, rows[~below]),
        ):
            waiting.append((len(nodes), members, mean_rows))
            nodes.append(Node(-1, 0, 0, part_count, node.depth + 1))
    return nodes


class _Plane(NamedTuple):
    """Divides a box: rows whose coordinate on `axis` is below `at` are `parts_below` files."""

    axis: int
    at: int
    parts_below: int


_Chooser = Callable[[Coords, Coords, int, float], _Plane | None]
"""Returns the plane that divides rows (coordinates, ends) into so many files of mean rows."""


def _widest(inside: Coords, ends: Coords, parts: int, _mean_rows: float) -> _Plane | None:
    """Return an even enough plane across the longest possible side; None if there is none."""
    sides = ends.max(axis=0).astype(np.int64) - inside.min(axis=0).astype(np.int64)
    for axis in np.argsort(-sides, kind="stable").tolist():
        planes = _Planes.through(np.sort(inside[:, axis]), axis, parts)
        if len(planes.at):
            return planes[planes.most_even]
    return None


@dataclass(frozen=True, slots=True)
class _Planes:
    """Planes across one axis that leave files of about equal rows on either side, (p,) each."""

    axis: int
    at: npt.NDArray[np.int64]
    rows_below: npt.NDArray[np.int64]
    parts_below: npt.NDArray[np.int64]
    unevenness: npt.NDArray[np.float64]

    @classmethod
    def through(cls, values: npt.NDArray[np.unsignedinteger], axis: int, parts: int) -> "_Planes":
        """Return the planes between different coordinates; `values` are sorted."""
        changes = np.flatnonzero(values[1:] != values[:-1]) + 1
        shares = changes * parts / len(values)
        whole = np.clip(np.rint(shares), 1, parts - 1)
        below, above = shares / whole, (parts - shares) / (parts - whole)
        uneven = np.maximum(np.abs(below - 1), np.abs(above - 1))
        possible = np.flatnonzero(uneven <= _MAX_UNEVENNESS)
        off_middle = np.abs(shares - parts / 2) / parts
        return cls(
            axis,
            values[changes[possible]].astype(np.int64),
            changes[possible],
            whole[possible].astype(np.int64),
            (uneven + off_middle)[possible],
        )

    def fills(self, rows: int, parts: int, mean_rows: float) -> npt.NDArray[np.bool_]:
        """Return which planes leave files of nearly the mean of rows on either side, (p,)."""
        below = self.rows_below / self.parts_below
        above = (rows - self.rows_below) / (parts - self.parts_below)
        is_full = np.minimum(below, above) >= _LEAST_FILL * mean_rows
        return np.asarray(is_full & (np.maximum(below, above) <= _MOST_FILL * mean_rows), np.bool_)

    @property
    def most_even(self) -> int:
        """The number of the plane with the most even files, near the middle."""
        return int(np.argmin(self.unevenness))

    def __getitem__(self, number: int) -> _Plane:
        return _Plane(self.axis, int(self.at[number]), int(self.parts_below[number]))

    def some(self, numbers: npt.NDArray[np.int64]) -> "_Planes":
        at, rows, parts = self.at[numbers], self.rows_below[numbers], self.parts_below[numbers]
        return _Planes(self.axis, at, rows, parts, self.unevenness[numbers])


@dataclass(frozen=True, slots=True, eq=False)
class _Least:
    """Chooses the plane with which readers open the fewest rows.

    It tries the middle of each axis, and the ends of intervals in queries.
    """

    reach: Reach
    side: int

    def __call__(self, inside: Coords, ends: Coords, parts: int, mean_rows: float) -> _Plane | None:
        low, high = inside.min(axis=0) / self.side, ends.max(axis=0) / self.side
        through = [
            _Planes.through(np.sort(inside[:, axis]), axis, parts)
            for axis in range(inside.shape[1])
        ]
        full = [np.flatnonzero(one.fills(len(inside), parts, mean_rows)) for one in through]
        if any(map(len, full)):
            through = [one.some(rows) for one, rows in zip(through, full, strict=True)]
        best, least = None, np.inf
        for planes in map(self._tried, through):
            costs = self._costs(planes, low, high, len(inside))
            if costs.min(initial=np.inf) < least:
                number = int(costs.argmin())
                best, least = planes[number], costs[number]
        return best

    def _tried(self, planes: _Planes) -> _Planes:
        if not len(planes.at):
            return planes
        numbers = [planes.most_even]
        if self.reach.asked is not None:
            borders = (self.reach.asked.borders(planes.axis)[0] * self.side).astype(np.int64)
            at_borders = np.searchsorted(planes.at, borders)
            numbers += at_borders[at_borders < len(planes.at)].tolist()
        return planes.some(np.unique(numbers))

    def _costs(
        self,
        planes: _Planes,
        low: npt.NDArray[np.float64],
        high: npt.NDArray[np.float64],
        rows: int,
    ) -> npt.NDArray[np.float64]:
        """Return the share of the rows that readers open after each plane, (p,)."""
        count = len(planes.at)
        lows, highs = np.tile(low, (2 * count, 1)), np.tile(high, (2 * count, 1))
        highs[:count, planes.axis] = planes.at / self.side
        lows[count:, planes.axis] = planes.at / self.side
        reached = self.reach.of(lows, highs)
        below = planes.rows_below / rows
        opened = below * reached[:count] + (1 - below) * reached[count:]
        return np.asarray(opened + _LOPSIDED * planes.unevenness, np.float64)


def boxes_of(nodes: Sequence[Node], bits: int) -> Boxes:
    """Return the tree of these nodes, without grids: it can only number rows."""
    numbers = np.full(len(nodes), -1, np.int64)
    for number, node in enumerate(leaves(nodes)):
        numbers[node] = number
    children = np.array(
        [[i, i] if n.axis < 0 else [n.first_child, n.first_child + 1] for i, n in enumerate(nodes)],
        np.int64,
    )
    return Boxes(
        axes=np.array([max(node.axis, 0) for node in nodes], np.int64),
        at=np.array([node.at for node in nodes], np.uint64),
        children=children,
        numbers=numbers,
        depth=max(node.depth for node in nodes),
        bits=bits,
        lows=np.zeros((0, 0)),
        scales=np.zeros((0, 0)),
    )


def _with_grids(boxes: Boxes, coords: Coords, ends: Coords) -> Boxes:
    """Return the boxes with grids from the first to the last of the sampled rows in each."""
    numbers = boxes.numbers_of(coords)
    count = int(boxes.numbers.max()) + 1
    lows = np.zeros((count, coords.shape[1]))
    scales = np.ones((count, coords.shape[1]))
    order = stable_order(numbers)
    found, starts = np.unique(numbers[order], return_index=True)
    if len(found):
        lows[found] = np.minimum.reduceat(coords[order], starts, axis=0)
        sides = np.maximum.reduceat(ends[order], starts, axis=0) - lows[found]
        scales[found] = (1 << boxes.bits) / sides
    return replace(boxes, lows=lows, scales=scales)


def _cuts(sample: CurveSample, nodes: list[Node], *, shift: int) -> Cuts:
    found = []
    for number, leaf in enumerate(leaves(nodes)):
        ends = np.array([number << shift, (number + 1) << shift], np.uint64)
        start, stop = np.searchsorted(sample.keys, ends)
        if number:
            found.append(Cuts(ends[:1], np.zeros(1, np.uint64)))
        found.append(equal_cuts(sample.between(start, stop), nodes[leaf].parts))
    return Cuts.joined(found)


# How far rows spread over a curve's grid, so that files are whole cells. A stretch of a curve is a
# square only if it is a whole quadrant, and there are 1, 4, 16, 64 … quadrants. So rows are spread
# over `cells[j]` of the 2**k steps of each axis, with the smallest k that holds them all: for 25
# files, over 5 x 5 of 8 x 8. Then each cell is a quadrant, so one stretch of the curve.
#
# `fit_curve` tries some numbers of cells whose product is near the number of files on a part of
# the sample, O(grids * (sample + files)), and the best three on all of it.

MAX_FITTED_DIMENSIONS: Final = 4
MAX_FITTED_PARTS: Final = 1024
"""With more, rows fill the whole grid: there are too many grids, or trials take seconds."""
MAX_GRIDS: Final = 24
FINALISTS: Final = 3
"""The best grids on a part of the sample, which are tried on all of it."""

_TRIED_ROWS_PER_PART: Final = 512
_ROWS_TOGETHER: Final = 1 << 20
"""Rows of all samples that are cut together; this limits the memory."""
CELLS_PER_PART: Final = (0.75, 1.1)
"""With more cells than files, some files are two cells; with fewer, some cells are divided."""
_MAX_STRETCH: Final = 1.6
"""How many times more or fewer cells an axis may have than an axis of a cube."""


@dataclass(frozen=True, slots=True)
class CurveGrid:
    """A curve over a grid; the rows fill `cells[j]` steps of axis j, or all of it if all are one.

    Cells are of equal width, or begin and end at `edges`: cells[j] + 1 coordinates for axis j.
    """

    curve: Curve
    bits: int
    cells: tuple[int, ...]
    axes: tuple[int, ...] = ()
    edges: tuple[tuple[int, ...], ...] = ()

    def keys_of(self, coords: Coords) -> Keys:
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
class CurveRows:
    """Rows of the sample in the order of ordinals, with coordinates of `bits` bits."""

    coords: Coords
    ordinals: Ordinals
    lows: Shares
    highs: Shares
    bits: int

    @classmethod
    def of(cls, coords: Coords, ordinals: Ordinals, bits: int) -> "CurveRows":
        side = float(1 << bits)
        lows, highs = coords / side, coordinate_ends(coords, bits) / side
        return cls(coords, ordinals, np.ascontiguousarray(lows), np.ascontiguousarray(highs), bits)

    def take(self, rows: npt.NDArray[np.int64] | slice) -> "CurveRows":
        lows, highs = self.lows[rows], self.highs[rows]
        return CurveRows(self.coords[rows], self.ordinals[rows], lows, highs, self.bits)

    def tried(self, parts: int) -> "CurveRows":
        """Return some rows, evenly spread, enough to try grids for so many files."""
        step = max(1, len(self.coords) // (parts * _TRIED_ROWS_PER_PART))
        return self.take(slice(None, None, step))

    def sorted_on(self, grid: KeyOrder) -> CurveSample:
        keys = grid.keys_of(self.coords)
        return CurveSample.sort(keys, self.ordinals, lows=self.lows, highs=self.highs)


def fit_curve(rows: CurveRows, parts: int, curve: Curve) -> Placed:
    """Return where sampled rows go on the grid on which narrow predicates open the fewest rows."""
    best = CurveGrid(curve, rows.bits, (1,) * rows.coords.shape[1])
    if curve is Curve.LINEAR:
        sample = rows.sorted_on(best)
        return Placed(best, sample, equal_cuts(sample, parts))
    tried = rows.tried(parts)
    likely = [CurveGrid(curve, rows.bits, cells) for cells in _likely_cells(tried.coords, parts)]
    grids = _finalists([best, *likely], tried, parts) if likely else [best]
    samples = [rows.sorted_on(grid) for grid in grids]
    placed = [Placed(*one, choose_cuts(one[1], parts)) for one in zip(grids, samples, strict=True)]
    return min(placed, key=lambda one: _opened(one.sample, one.cuts))


def _opened(sample: CurveSample, cuts: Cuts) -> float:
    """Return what narrow predicates open: the quadratic mean over the columns, up to a factor.

    A quadratic mean prefers grids that serve all columns alike.
    """
    return float(np.linalg.norm(opened_shares(sample, cuts)))


def _finalists(grids: Sequence[CurveGrid], tried: CurveRows, parts: int) -> list[CurveGrid]:
    """Return the grids on which narrow predicates open the fewest of some rows, best first.

    All rows must decide between them: if columns depend on each other, a few rows can widen boxes.
    """
    opened: list[float] = []
    together = max(1, _ROWS_TOGETHER // max(1, len(tried.coords)))
    for first in range(0, len(grids), together):
        samples = [tried.sorted_on(grid) for grid in grids[first : first + together]]
        cut = zip(samples, choose_cuts_each(samples, parts), strict=True)
        opened += [_opened(*one) for one in cut]
    return [grids[one] for one in np.argsort(opened, kind="stable")[:FINALISTS]]


def _likely_cells(coords: Coords, parts: int) -> list[tuple[int, ...]]:
    """Return numbers of cells along the axes; the numbers that open the fewest rows come first."""
    rows, dimensions = coords.shape
    if not 1 < dimensions <= MAX_FITTED_DIMENSIONS or not 1 < parts <= min(MAX_FITTED_PARTS, rows):
        return []
    distinct = [int(np.count_nonzero(np.bincount(column))) for column in coords.T]
    options = [
        range(max(1, int(cells / _MAX_STRETCH)), min(values, int(cells * _MAX_STRETCH) + 1) + 1)
        for cells, values in zip(_cells_of_a_cube(distinct, parts), distinct, strict=True)
    ]
    least, most = (share * parts for share in CELLS_PER_PART)
    possible = (
        cells for cells in product(*options) if least <= prod(cells) <= most and max(cells) > 1
    )
    return nsmallest(MAX_GRIDS, possible, key=lambda counts: sum(1 / count for count in counts))


def _cells_of_a_cube(distinct: list[int], parts: int) -> list[float]:
    cells = [1.0] * len(distinct)
    left = float(parts)
    for done, axis in enumerate(np.argsort(distinct).tolist()):
        cells[axis] = min(float(distinct[axis]), left ** (1 / (len(distinct) - done)))
        left /= cells[axis]
    return cells


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
"""How many more files than planned a layout may make, as a share, if queries gain by it."""
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
        return self.cuts.parts_of(keys, np.arange(len(keys), dtype=np.uint64)), keys


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
