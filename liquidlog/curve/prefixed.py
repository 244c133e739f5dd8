"""A prefix before a curve: rows are parted by single values first, then each part has its own grid.

A row's key is the number of its part followed by its key on the part's grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from liquidlog.curve.curves import Curve
from liquidlog.curve.cuts import CurveSample, Cuts, Reach
from liquidlog.curve.fit import CurveGrid, Rows
from liquidlog.curve.grid import Coords, Keys
from liquidlog.curve.grids import Placement, fit_grid
from liquidlog.curve.kd import BOX_BITS, Boxes, boxes_of
from liquidlog.curve.tree import part_by_prefix

_SHIFT = np.uint64(64 - BOX_BITS)


@dataclass(frozen=True, slots=True)
class Prefixed:
    """Parts of the rows, as boxes of a tree, and a grid per part; its keys have 48 bits at most.

    Coordinates have `bits` bits.
    """

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
    rows: Rows,
    parts: int,
    reach: Reach,
    *,
    prefix: Sequence[int],
    curve: Curve,
    bits: int,
) -> tuple[Prefixed, CurveSample, Cuts]:
    """Return the parts and grids on which readers open the fewest rows.

    Args:
        rows: All rows of the sample, at least one.
        parts: Files; there are more if more values of the prefix have enough rows for one.
        reach: What readers ask.
        prefix: Columns by whose single values rows are parted; see `liquidlog.curve.tree`.
        curve: Any but `kd`.
        bits: Bits of a coordinate, as `kd_bits` gives.
    """
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
    """Return the cuts of all parts, and those between them."""
    keys, ordinals = [], []
    for number, own in enumerate(cuts):
        begin = np.uint64(number) << _SHIFT
        first = np.array([begin] if number else [], np.uint64)
        keys += [first, own.keys | begin]
        ordinals += [np.zeros(len(first), np.uint64), own.ordinals]
    return Cuts(np.concatenate(keys), np.concatenate(ordinals))
