"""Readers in key space: which of them open a file, there or foreseen, that spans a box of it.

Files that a rewrite would write are foreseen as cells: rows are made up, spread evenly over the box
of each input in proportion to its bytes, and placed in files by the executor's own kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.widths import ColumnLine, Floats, KeySpace, column_line
from liquidlog.curve.conditions import GridPredicates, IntervalEnds, ValuePredicates
from liquidlog.curve.curves import Curve
from liquidlog.curve.grid import range_ids
from liquidlog.curve.layouts import key_order_bits, place_columns, place_rows
from liquidlog.plan import FittedWorkload, parsed_as
from liquidlog.spec.bounds import Bounds

_ROWS_IN_A_CELL: Final = 24
_MOST_ROWS: Final = 100_000

_ROWS_IN_A_CELL_OF_READERS: Final = 160
"""More, as a few predicates tell much finer than all values of a column."""

_MOST_ROWS_OF_READERS: Final = 40_000
"""Fewer, as layouts that are fitted take longer: up to a second with so many."""


@dataclass(frozen=True, slots=True, eq=False)
class SpaceReaders:
    """The readers of a workload; their weights add up to 1.

    `asked` are predicates over positions in key space, None if there are none, which have the
    `asked_share` of all readers; the other readers ask for single values of the columns, with
    `column_weights` (d,). `conditions` are all of them over positions, for layouts that are fitted
    to them.
    """

    asked: GridPredicates | None
    asked_share: float
    column_weights: Floats
    conditions: ValuePredicates

    def opened(self, space: KeySpace) -> Floats:
        """Return which share of the readers opens each file of a key space (float64, 0 to 1)."""
        lows = np.stack([spans.low for spans in space.columns], axis=1)
        highs = np.stack([spans.high for spans in space.columns], axis=1)
        return self.opened_boxes(lows, highs)

    def opened_boxes(self, lows: Floats, highs: Floats) -> Floats:
        """Return which share of the readers opens boxes (float64); both are boxes by columns."""
        single = np.asarray((highs - lows) @ self.column_weights, np.float64)
        if self.asked is None:
            return single
        return single + self.asked_share * self.asked.opened(lows, highs)


def space_readers(
    bounds: Bounds, size_bytes: NDArray[np.int64], fitted: FittedWorkload
) -> SpaceReaders:
    """Return the readers of a workload that asks something, in the key space of these files.

    `bounds` are those of the clustering columns.
    """
    sizes = size_bytes.astype(np.float64)
    lines = [column_line(bounds, number, sizes) for number in range(len(bounds.columns))]
    kinds = [column.low.type for column in bounds.columns]
    over_values = fitted.conditions([partial(parsed_as, kind) for kind in kinds])
    own = [np.flatnonzero(over_values.axes == number) for number in range(len(lines))]
    lows, ends = np.zeros(len(over_values.axes)), np.ones(len(over_values.axes))
    for number, line in enumerate(lines):
        low, high = over_values.lows[number], over_values.highs[number]
        lows[own[number]] = np.nan_to_num(_places(line, low, up=False), nan=0.0)
        ends[own[number]] = np.nan_to_num(_places(line, high, up=True), nan=1.0)
    predicates, columns = over_values.weights.sum(), over_values.column_weights.sum()
    total = predicates + columns
    conditions = replace(
        over_values,
        lows=_placed(over_values.lows, lows, own),
        highs=_placed(over_values.highs, ends, own),
    )
    asked = replace(
        over_values.between(lows, ends),
        weights=over_values.weights / max(predicates, np.finfo(np.float64).tiny),
    )
    return SpaceReaders(
        asked=asked if len(over_values.weights) else None,
        asked_share=float(predicates / total),
        column_weights=over_values.column_weights / total,
        conditions=conditions,
    )


def _placed(
    sides: Sequence[IntervalEnds], places: Floats, own: Sequence[NDArray[np.intp]]
) -> tuple[IntervalEnds, ...]:
    """Return the ends of each column's intervals as positions, unbounded where they are.

    Args:
        sides: Per column.
        places: Of all intervals.
        own: Per column the numbers of its intervals.
    """
    return tuple(
        IntervalEnds(pa.array(places[one], mask=np.asarray(side.values.is_null())), side.is_open)
        for one, side in zip(own, sides, strict=True)
    )


def _places(line: ColumnLine, ends: IntervalEnds, *, up: bool) -> Floats:
    """Return where intervals begin, or, if `up`, where they end; NaN where unbounded."""
    found = np.full(len(ends.values), np.nan)
    known = np.asarray(ends.values.is_valid(), np.bool_)
    wanted = ends.values.filter(pa.array(known))
    if not len(wanted) or not len(line.ends):
        return found
    below = range_ids(wanted, line.ends).astype(np.int64) - 1
    last = len(line.ends) - 1
    beside = line.ends.take(pa.array(np.minimum(below, last)))
    same = np.asarray(pc.fill_null(pc.equal(beside, wanted), fill_value=False), np.bool_)
    same &= below <= last
    # Slots alternate: the value of an end, the gap between it and the next, the next end's value.
    inclusive = np.asarray(ends.is_open[known] ^ up, np.bool_)
    on_end = line.edges[np.minimum(2 * below + inclusive, len(line.edges) - 1)]
    gap = np.clip(2 * below - 1, 0, max(len(line.edges) - 2, 0))
    share = line.shares(wanted, np.clip(below - 1, 0, last), np.minimum(below, last))
    share = np.where(np.isnan(share), float(up), share)
    between = line.edges[gap] + share * (line.edges[gap + 1] - line.edges[gap])
    between = np.where(below == 0, 0.0, np.where(below > last, 1.0, between))
    found[known] = np.where(same, on_end, between)
    return found


def placed(
    points: Floats, outputs: int, *, curve: str, conditions: ValuePredicates | None = None
) -> NDArray[np.int64]:
    """Return the file per row (int64, below `outputs`), as the executor would place the rows.

    Args:
        points: The keys of rows, in rows by columns; equal ones are so by chance.
        outputs: Files.
        curve: The name of a curve.
        conditions: What readers ask, over the keys, if the layout is fitted to it.
    """
    count, columns = points.shape
    kind = Curve(curve) if columns > 1 else Curve.LINEAR
    ordinals = np.arange(count, dtype=np.uint64)
    if conditions is not None:
        values = [pa.array(column) for column in points.T]
        found = place_columns(
            values, ordinals, min(outputs, count), curve=kind, conditions=conditions
        )
        return found.parts(values)[0]
    bits = key_order_bits(columns, kind)
    steps = ((np.arange(count) << bits) // max(count, 1)).astype(np.uint32)
    coords = np.empty(points.shape, np.uint32, order="F")
    for number, column in enumerate(points.T):
        coords[np.argsort(column, kind="stable"), number] = steps
    order, _, cuts = place_rows(coords, ordinals, min(outputs, count), curve=kind, bits=bits)
    return np.asarray(cuts.parts_of(order.keys_of(coords), ordinals), np.int64)


def cells(
    space: KeySpace,
    outputs: int,
    *,
    curve: str,
    readers: SpaceReaders | None = None,
    draw: int = 0,
) -> tuple[Floats, Floats]:
    """Return bytes and width of each file that a rewrite of all files of `space` would write.

    Both are float64; a width is the mean share of a column that the file spans. With `readers`, the
    layout is fitted to them, and it is the share of them that opens the file. The same files have
    the same cells at every call for the same `draw`.
    """
    files = max(outputs, len(space.size_bytes))
    rows = min(_MOST_ROWS, _ROWS_IN_A_CELL * files)
    if readers is not None:
        rows = max(files, min(_MOST_ROWS_OF_READERS, _ROWS_IN_A_CELL_OF_READERS * files))
    total = float(space.size_bytes.sum())
    wanted = np.maximum(1, np.round(space.size_bytes * (rows / max(total, 1.0))))
    owner = np.repeat(np.arange(len(wanted)), wanted.astype(np.int64))
    random = np.random.default_rng((len(owner), draw) if draw else len(owner)).random(
        (len(owner), len(space.columns))
    )
    low, width = (
        np.stack([end[owner] for end in ends], axis=1)
        for ends in zip(*((spans.low, spans.width) for spans in space.columns), strict=True)
    )
    points = low + random * width
    parts = placed(
        points, outputs, curve=curve, conditions=None if readers is None else readers.conditions
    )
    numbers, part = np.unique(parts, return_inverse=True)
    shape = len(numbers), points.shape[1]
    first, last = np.full(shape, np.inf), np.zeros(shape)
    np.minimum.at(first, part, points)
    np.maximum.at(last, part, points)
    count = np.bincount(part).astype(np.float64)
    # The range of n even rows falls short of their cell by this much.
    unseen = (count + 1) / np.maximum(count - 1, 1)
    size = total * count / len(owner)
    if readers is None:
        return size, np.minimum((last - first).mean(axis=1) * unseen, 1.0)
    more = (last - first) * (unseen[:, np.newaxis] - 1) / 2
    return size, readers.opened_boxes(np.maximum(first - more, 0.0), np.minimum(last + more, 1.0))
