"""Readers of a workload in key space: which share of them opens a file that spans a box of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.widths import ColumnLine, Floats, KeySpace, column_lines
from liquidlog.curve.conditions import GridPredicates, IntervalEnds, ValuePredicates
from liquidlog.curve.grid import range_ids
from liquidlog.plan import FittedWorkload, parsed_as
from liquidlog.spec.bounds import Bounds


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
    lines = column_lines(bounds, size_bytes)
    kinds = [bounds.low(number).type for number in range(len(lines))]
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
