"""A balanced k-d tree: which rows go into which file, box by box instead of along a curve.

A node of the tree is a box of the grid that holds some files' worth of sampled rows. A plane
divides it in two across its longest side, where the rows on either side are nearest to whole files,
until a box is one file or cannot be divided. Boxes are numbered from left to right. A row's key is
its box's number followed by its Hilbert key on a grid that fills the box, so that rows are sorted
along the Hilbert curve inside files, and its quadrants there are parts of the box.

O(sample * log files) to build, O(rows * log files) to find the boxes of rows.

Source: J. L. Bentley, "Multidimensional Binary Search Trees Used for Associative Searching", 1975.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from liquidlog.curve.cuts import CurveSample, Cuts, Ordinals, Reach, equal_cuts
from liquidlog.curve.grid import BLOCK_ROWS, KEY_BITS, Coords, Keys, coordinate_ends
from liquidlog.curve.hilbert import hilbert_index
from liquidlog.curve.order import stable_order
from liquidlog.curve.tree import Node, leaves, part_by_prefix

BOX_BITS: Final = 16
"""Bits of a key that number the box."""

_MAX_UNEVENNESS: Final = 0.25
"""How far rows per file may be from the mean, as a share of it, for a plane to be taken."""

_LEAST_FILL: Final = 0.5
_MOST_FILL: Final = 1.5
"""Rows per file beside the mean of all, as chosen cuts have it. Planes that are each even enough
can still add up to files of less or more."""

_LOPSIDED: Final = 1e-3
"""Weight of even sides beside what readers open: decides where planes do not differ."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """A tree of m nodes, whose leaves are the boxes.

    Node i compares a row's coordinate on axis `axes[i]` with `at[i]`: rows below it go to node
    `children[i, 0]`, all others to `children[i, 1]`. A box is its own child; `numbers[i]` is its
    number, -1 at other nodes. `depth` steps from node 0 lead every row to its box. Coordinates
    have `bits` bits. `axes`, `at` and `numbers` are (m,), `children` (m, 2).

    Box b has a grid of its own, which begins at `lows[b]` and has steps of `1 / scales[b]`, as many
    as a coordinate has values; both are (boxes, d). What lies beyond is on its first or last step.
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
        """Return the key of each row of (n, d) coordinates below 2**bits, (n,) uint64."""
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


def kd_bits(dimensions: int, coordinate_bits: int) -> int:
    """Return how many bits each of d coordinates gets, so that a box's number fits beside them."""
    return min(coordinate_bits, (KEY_BITS - BOX_BITS) // dimensions)


def fit_boxes(
    coords: Coords,
    ordinals: Ordinals,
    parts: int,
    *,
    bits: int,
    reach: Reach | None = None,
    prefix: Sequence[int] = (),
) -> tuple[Boxes, CurveSample, Cuts]:
    """Return the boxes of sampled rows, the sample in the order of keys, and the cuts into files.

    Args:
        coords: (s, d) unsigned, the coordinates of the sample, each below 2**bits.
        ordinals: (s,) uint64, the ordinals of the sampled rows, increasing.
        parts: Files.
        bits: Bits of a coordinate, as `kd_bits` gives.
        reach: What readers ask, if planes are to be put where they open little.
        prefix: Columns by whose single values rows are parted first; see `liquidlog.curve.tree`.

    Returns:
        The boxes; the sample; parts - 1 cuts, or more if more values of a prefix get files. Where a
        box cannot be divided although it is several files, because its rows have the same
        coordinates, cuts are put along its keys.
    """
    ends = coordinate_ends(coords, bits)
    chooser = _widest if reach is None else _least(reach, coords.shape[1], 1 << bits)
    grown = _grow(coords, ends, parts, prefix, chooser)
    boxes = _with_grids(boxes_of(grown, bits), coords, ends)
    sample = CurveSample.sort(
        boxes.keys_of(coords), ordinals, lows=coords / (1 << bits), highs=ends / (1 << bits)
    )
    return boxes, sample, _cuts(sample, grown, shift=coords.shape[1] * bits)


def _grow(
    coords: Coords, ends: Coords, parts: int, prefix: Sequence[int], chooser: "_Chooser"
) -> list[Node]:
    """Return the nodes, each before its children, which stand side by side."""
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
"""Returns the plane that divides rows, by their coordinates and ends, into so many files; the last
argument is the mean of rows per file in the whole tree, or in the part of a prefix."""


def _widest(inside: Coords, ends: Coords, parts: int, _mean_rows: float) -> _Plane | None:
    """Return the first even enough plane, longest side first; None if there is none."""
    sides = ends.max(axis=0).astype(np.int64) - inside.min(axis=0).astype(np.int64)
    for axis in np.argsort(-sides, kind="stable").tolist():
        plane = _even_plane(np.sort(inside[:, axis]), axis, parts)
        if plane is not None:
            return plane
    return None


def _even_plane(values: npt.NDArray[np.unsignedinteger], axis: int, parts: int) -> _Plane | None:
    """Return the plane through sorted coordinates with the most even files, near the middle."""
    planes = _Planes.through(values, axis, parts)
    if not len(planes.at):
        return None
    return planes[int(np.argmin(planes.unevenness + planes.lopsided))]


@dataclass(frozen=True, slots=True)
class _Planes:
    """Planes across one axis that leave files of about equal rows on either side, (p,) each.

    `rows_below` of all `rows` are below a plane, as `parts_below` of the files.
    """

    axis: int
    at: npt.NDArray[np.int64]
    rows_below: npt.NDArray[np.int64]
    parts_below: npt.NDArray[np.int64]
    unevenness: npt.NDArray[np.float64]
    lopsided: npt.NDArray[np.float64]

    @classmethod
    def through(cls, values: npt.NDArray[np.unsignedinteger], axis: int, parts: int) -> "_Planes":
        """Return the planes between different coordinates; `values` are sorted."""
        changes = np.flatnonzero(values[1:] != values[:-1]) + 1
        shares = changes * parts / len(values)
        whole = np.clip(np.rint(shares), 1, parts - 1)
        below, above = shares / whole, (parts - shares) / (parts - whole)
        unevenness = np.maximum(np.abs(below - 1), np.abs(above - 1))
        lopsided = np.abs(shares - parts / 2) / parts
        possible = np.flatnonzero(unevenness <= _MAX_UNEVENNESS)
        return cls(
            axis,
            values[changes[possible]].astype(np.int64),
            changes[possible],
            whole[possible].astype(np.int64),
            unevenness[possible],
            lopsided[possible],
        )

    def fills(self, rows: int, parts: int, mean_rows: float) -> npt.NDArray[np.bool_]:
        """Return which planes leave files of nearly the mean of rows on either side, (p,)."""
        below = self.rows_below / self.parts_below
        above = (rows - self.rows_below) / (parts - self.parts_below)
        least, most = np.minimum(below, above), np.maximum(below, above)
        found: npt.NDArray[np.bool_] = (least >= _LEAST_FILL * mean_rows) & (
            most <= _MOST_FILL * mean_rows
        )
        return found

    def __getitem__(self, number: int) -> _Plane:
        return _Plane(self.axis, int(self.at[number]), int(self.parts_below[number]))

    def some(self, numbers: npt.NDArray[np.int64]) -> "_Planes":
        """Return the planes with these numbers."""
        return _Planes(
            self.axis,
            self.at[numbers],
            self.rows_below[numbers],
            self.parts_below[numbers],
            self.unevenness[numbers],
            self.lopsided[numbers],
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Least:
    """Chooses the plane on whose sides readers open the fewest rows.

    Planes are tried in the middle of each axis, and at the `borders` of what readers ask, which are
    sorted coordinates per axis.
    """

    reach: Reach
    borders: tuple[npt.NDArray[np.int64], ...]
    side: int

    def __call__(self, inside: Coords, ends: Coords, parts: int, mean_rows: float) -> _Plane | None:
        """Return the plane; None if no plane leaves files of about equal rows."""
        low, high = inside.min(axis=0) / self.side, ends.max(axis=0) / self.side
        through = [
            _Planes.through(np.sort(inside[:, axis]), axis, parts)
            for axis in range(inside.shape[1])
        ]
        full = [one.fills(len(inside), parts, mean_rows) for one in through]
        if any(map(np.any, full)):
            through = [
                one.some(np.flatnonzero(is_full))
                for one, is_full in zip(through, full, strict=True)
            ]
        best, least = None, np.inf
        for axis, all_planes in enumerate(through):
            if not len(all_planes.at):
                continue
            planes = self._tried(all_planes, axis)
            costs = self._costs(planes, low, high, len(inside))
            number = int(costs.argmin())
            if costs[number] < least:
                best, least = planes[number], costs[number]
        return best

    def _tried(self, planes: _Planes, axis: int) -> _Planes:
        at_borders = np.searchsorted(planes.at, self.borders[axis])
        at_borders = at_borders[at_borders < len(planes.at)]
        middle = int(np.argmin(planes.unevenness + planes.lopsided))
        return planes.some(np.unique(np.append(at_borders, middle)))

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
        costs: npt.NDArray[np.float64] = (
            below * reached[:count] + (1 - below) * reached[count:]
        ) + _LOPSIDED * (planes.unevenness + planes.lopsided)
        return costs


def _least(reach: Reach, dimensions: int, side: int) -> _Least:
    asked = reach.asked
    none = np.empty(0, np.int64)
    borders = tuple(
        none if asked is None else (asked.borders(axis)[0] * side).astype(np.int64)
        for axis in range(dimensions)
    )
    return _Least(reach, borders, side)


def boxes_of(nodes: Sequence[Node], bits: int) -> Boxes:
    """Return the tree of these nodes, whose boxes have no grids: it numbers rows only."""
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
    keys, ordinals = [], []
    for number, leaf in enumerate(leaves(nodes)):
        start, stop = np.searchsorted(
            sample.keys, np.array([number << shift, (number + 1) << shift], np.uint64)
        )
        if number:
            keys.append(np.array([number << shift], np.uint64))
            ordinals.append(np.zeros(1, np.uint64))
        further = equal_cuts(sample.between(start, stop), nodes[leaf].parts)
        keys.append(further.keys)
        ordinals.append(further.ordinals)
    return Cuts(np.concatenate(keys), np.concatenate(ordinals))
