"""A balanced k-d tree: which rows go into which file, box by box instead of along a curve.

A node of the tree is a box of the grid that holds some files' worth of sampled rows. A plane
divides it in two across its longest side, where the rows on either side are nearest to whole files,
until a box is one file or cannot be divided. Boxes are numbered from left to right. A row's key is
its box's number followed by its Hilbert key, so that rows are sorted along the Hilbert curve inside
files.

O(sample * log files) to build, O(rows * log files) to find the boxes of rows.

Source: J. L. Bentley, "Multidimensional Binary Search Trees Used for Associative Searching", 1975.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from liquidlog.curve.cuts import CurveSample, Cuts, Ordinals, equal_cuts
from liquidlog.curve.grid import BLOCK_ROWS, KEY_BITS, Coords, Keys, coordinate_ends
from liquidlog.curve.hilbert import hilbert_index

BOX_BITS: Final = 16
"""Bits of a key that number the box."""

_MAX_UNEVENNESS: Final = 0.25
"""How far rows per file may be from the mean, as a share of it, for a plane to be taken."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """A tree of m nodes, whose leaves are the boxes.

    Node i compares a row's coordinate on axis `axes[i]` with `at[i]`: rows below it go to node
    `children[i, 0]`, all others to `children[i, 1]`. A box is its own child; `numbers[i]` is its
    number, -1 at other nodes. `depth` steps from node 0 lead every row to its box. Coordinates
    have `bits` bits. `axes`, `at` and `numbers` are (m,), `children` (m, 2).
    """

    axes: npt.NDArray[np.int64]
    at: npt.NDArray[np.uint64]
    children: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    depth: int
    bits: int

    def keys_of(self, coords: Coords) -> Keys:
        """Return the key of each row of (n, d) coordinates below 2**bits, (n,) uint64."""
        d = coords.shape[1]
        keys = hilbert_index(coords, self.bits)
        for start in range(0, len(coords), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            keys[block] |= self._numbers_of(coords[block]) << np.uint64(d * self.bits)
        return keys

    def _numbers_of(self, coords: Coords) -> npt.NDArray[np.uint64]:
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
    coords: Coords, ordinals: Ordinals, parts: int, *, bits: int
) -> tuple[Boxes, CurveSample, Cuts]:
    """Return the boxes of sampled rows, the sample in the order of keys, and the cuts into files.

    Args:
        coords: (s, d) unsigned, the coordinates of the sample, each below 2**bits.
        ordinals: (s,) uint64, the ordinals of the sampled rows, increasing.
        parts: Files.
        bits: Bits of a coordinate, as `kd_bits` gives.

    Returns:
        The boxes; the sample; parts - 1 cuts. Where a box cannot be divided although it is several
        files, because its rows have the same coordinates, cuts are put along its keys.
    """
    ends = coordinate_ends(coords, bits)
    grown = _grow(coords, ends, parts)
    boxes = _boxes(grown, bits)
    sample = CurveSample.sort(
        boxes.keys_of(coords), ordinals, lows=coords / (1 << bits), highs=ends / (1 << bits)
    )
    return boxes, sample, _cuts(sample, grown, shift=coords.shape[1] * bits)


class _Node(NamedTuple):
    """A box while the tree grows; `axis` is -1 where it is not divided."""

    axis: int
    at: int
    first_child: int
    parts: int
    depth: int


def _grow(coords: Coords, ends: Coords, parts: int) -> list[_Node]:
    """Return the nodes, each before its children, which stand side by side."""
    nodes = [_Node(-1, 0, 0, parts, 0)]
    waiting = [(0, np.arange(len(coords)))]
    while waiting:
        number, rows = waiting.pop()
        node = nodes[number]
        plane = _best_plane(coords, ends, rows, node.parts) if node.parts > 1 else None
        if plane is None:
            continue
        first_child = len(nodes)
        nodes[number] = node._replace(axis=plane.axis, at=plane.at, first_child=first_child)
        below = coords[rows, plane.axis] < plane.at
        for part_count, members in (
            (plane.parts_below, rows[below]),
            (node.parts - plane.parts_below, rows[~below]),
        ):
            waiting.append((len(nodes), members))
            nodes.append(_Node(-1, 0, 0, part_count, node.depth + 1))
    return nodes


class _Plane(NamedTuple):
    """Divides a box: rows whose coordinate on `axis` is below `at` are `parts_below` files."""

    axis: int
    at: int
    parts_below: int


def _best_plane(
    coords: Coords, ends: Coords, rows: npt.NDArray[np.int64], parts: int
) -> _Plane | None:
    """Return the first even enough plane, longest side first; None if there is none."""
    if len(rows) == 0:
        return None
    inside = coords[rows]
    sides = ends[rows].max(axis=0).astype(np.int64) - inside.min(axis=0).astype(np.int64)
    for axis in np.argsort(-sides, kind="stable").tolist():
        plane = _even_plane(np.sort(inside[:, axis]), axis, parts)
        if plane is not None:
            return plane
    return None


def _even_plane(values: npt.NDArray[np.unsignedinteger], axis: int, parts: int) -> _Plane | None:
    """Return the plane through sorted coordinates with the most even files, near the middle."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    shares = changes * parts / len(values)
    whole = np.clip(np.rint(shares), 1, parts - 1)
    below, above = shares / whole, (parts - shares) / (parts - whole)
    unevenness = np.maximum(np.abs(below - 1), np.abs(above - 1))
    lopsided = np.abs(shares - parts / 2) / parts
    possible = np.flatnonzero(unevenness <= _MAX_UNEVENNESS)
    if not len(possible):
        return None
    chosen = possible[np.argmin((unevenness + lopsided)[possible])]
    return _Plane(axis, int(values[changes[chosen]]), int(whole[chosen]))


def _boxes(nodes: list[_Node], bits: int) -> Boxes:
    numbers = np.full(len(nodes), -1, np.int64)
    for number, node in enumerate(_leaves(nodes)):
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
    )


def _leaves(nodes: list[_Node]) -> Iterator[int]:
    """Yield the boxes from left to right."""
    waiting = [0]
    while waiting:
        number = waiting.pop()
        node = nodes[number]
        if node.axis < 0:
            yield number
        else:
            waiting += [node.first_child + 1, node.first_child]


def _cuts(sample: CurveSample, nodes: list[_Node], *, shift: int) -> Cuts:
    keys, ordinals = [], []
    for number, leaf in enumerate(_leaves(nodes)):
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
