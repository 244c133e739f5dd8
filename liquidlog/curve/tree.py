"""Trees of planes that divide the grid into boxes, and those planes that part single values.

A *prefix* is one or several columns of few values that come first: rows are parted by their values,
column by column, before anything else divides them. A value whose rows would make a file of less
than a quarter of the mean size is grouped with its neighbours, and what is grouped is parted no
further by the prefix.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from liquidlog.curve.grid import Coords

Rows = npt.NDArray[np.int64]

LEAST_SHARE: Final = 0.25
"""Of the mean rows per file, what a single value must have to get files of its own."""


class Node(NamedTuple):
    """A box while the tree grows; `axis` is -1 where it is not divided.

    Rows whose coordinate on `axis` is below `at` go to node `first_child`, others to the next one.
    A box is `parts` files.
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


@dataclass(frozen=True, slots=True)
class Leaf:
    """A box of a prefix's tree: its node, its rows, and on which axes they have a single value."""

    node: int
    rows: Rows
    single: frozenset[int]


class _Group(NamedTuple):
    """Neighbouring values: coordinates from `first` to the next group's, `rows`, how many values.

    The values of a `single` group are one.
    """

    first: int
    rows: int
    values: int


def part_by_prefix(
    coords: Coords, parts: int, prefix: Sequence[int]
) -> tuple[list[Node], list[Leaf]]:
    """Return the nodes, each before its children, which stand side by side, and the boxes.

    The boxes' parts add up to `parts`, or to more if more values have enough rows for a file.

    Args:
        coords: (s, d) unsigned, the coordinates of the sample.
        parts: Files.
        prefix: The columns to part by, the first one first; none for a tree of one box.
    """
    tree = _PrefixTree(coords, len(coords) / parts)
    tree.divide(0, np.arange(len(coords)), parts, tuple(prefix), frozenset())
    return tree.nodes, tree.boxes


class _PrefixTree:
    def __init__(self, coords: Coords, rows_per_part: float) -> None:
        self._coords = coords
        self._rows_per_part = rows_per_part
        self.nodes: list[Node] = [Node(-1, 0, 0, 0, 0)]
        self.boxes: list[Leaf] = []

    def divide(
        self,
        number: int,
        rows: Rows,
        parts: int,
        prefix: tuple[int, ...],
        single: frozenset[int],
    ) -> None:
        """Part the rows of a node by the columns of a prefix."""
        if not prefix or not len(rows):
            self.nodes[number] = self.nodes[number]._replace(parts=parts)
            self.boxes.append(Leaf(number, rows, single))
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
        other = min(beside, key=lambda number: groups[number].rows)
        left, right = sorted((small, other))
        joined = _joined(groups[left], groups[right])
        groups[left : right + 1] = [joined]
    return groups


def _joined(left: _Group, right: _Group) -> _Group:
    return _Group(left.first, left.rows + right.rows, left.values + right.values)


def _apportioned(rows: Sequence[int], parts: int) -> list[int]:
    """Return how many parts each group gets: at least one, and as many as its share of the rows."""
    shares = [1] * len(rows)
    heap = [(-float(count), number) for number, count in enumerate(rows)]
    heapify(heap)
    for _ in range(parts - len(rows)):
        number = heap[0][1]
        shares[number] += 1
        heapreplace(heap, (-rows[number] / shares[number], number))
    return shares
