"""Files as boxes in key space: how much of each clustering column a file's range spans.

A point on a column's axis is the share of the table's bytes before it, from 0 to 1, each file's
bytes spread evenly over its range: numbers and times by value, texts by rank among all ends. So
the whole axis is one table's worth of rows whatever the type, and a stretch is as long as many
rows are there.
A reader that asks for one value of a column opens a file with a probability of its width there.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.depth import KeyRanges, Ranks, column_ranges

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_END_WEIGHT: Final = 0.05
"""What the value of one end weighs beside the mean distance between two."""

_FEWEST_ENDS: Final = 2

_COLUMNS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Axis:
    """One clustering column: `low` and `high` are each file's ends, from 0 to 1.

    A file without bounds spans everything; one of nulls only nothing. `depth` is the mean number
    of files that share the points of a file's range, itself included. `order` are the files by
    their low ends.
    """

    low: Floats
    high: Floats
    depth: Floats
    order: NDArray[np.int64]

    @property
    def width(self) -> Floats:
        """The share of the column that each file's range spans."""
        return self.high - self.low


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeySpace:
    """All files on all clustering columns; `size` float64 is each file's bytes."""

    size: Floats
    axes: tuple[Axis, ...]

    @property
    def widths(self) -> Floats:
        """Each file's width, the mean over the columns."""
        return np.asarray(np.mean([axis.width for axis in self.axes], axis=0), np.float64)

    @property
    def depths(self) -> Floats:
        """Each file's depth on the column where that is largest."""
        return np.asarray(np.max([axis.depth for axis in self.axes], axis=0), np.float64)

    def extent(self, files: Mask) -> float:
        """Return how much of a column these files span together, the mean over the columns."""
        return float(np.mean([_union(axis, axis.order[files[axis.order]]) for axis in self.axes]))


def key_space(bounds: pa.Table, size: NDArray[np.int64], columns: int) -> KeySpace:
    """Return the place of each file in key space; `bounds` as parse_bounds spells them.

    O(files * log files) for each column, the columns side by side.
    """
    bytes_of = size.astype(np.float64)
    with ThreadPoolExecutor(_COLUMNS_AT_ONCE) as pool:
        axes = pool.map(lambda number: _axis(bounds, number, bytes_of), range(columns))
        return KeySpace(size=bytes_of, axes=tuple(axes))


def _axis(bounds: pa.Table, number: int, size: Floats) -> Axis:
    low, high = (bounds[f"{side}.{number}"].combine_chunks() for side in ("min", "max"))
    known = np.asarray(pc.and_(low.is_valid(), high.is_valid()), np.bool_)
    nulls = pc.equal(bounds[f"null_count.{number}"], bounds["num_records"])
    empty = ~known & np.asarray(pc.fill_null(nulls, fill_value=False), np.bool_)
    low, high = low.filter(pa.array(known)), high.filter(pa.array(known))
    ranges = column_ranges(low, high)
    slots = _slots(ranges, low, high)
    # Slots alternate: an end's value, what lies between it and the next, the next end's value.
    first, last = 2 * ranges.lo, 2 * np.maximum(ranges.lo, ranges.hi)
    edges = _edges(first, last, size[known], slots)
    left, right = np.zeros(len(size)), np.where(empty, 0.0, 1.0)
    left[known], right[known] = edges[first], edges[last + 1]
    depth = np.ones(len(size))
    depth[known] = _mean_depths(first, last, edges)
    return Axis(
        low=left,
        high=right,
        depth=depth + (~known & ~empty).sum(),
        order=np.argsort(left, kind="stable"),
    )


def _slots(ranges: KeyRanges, low: pa.Array, high: pa.Array) -> Floats:
    """Return the weight of each slot of an axis, by which a file's bytes are spread over it.

    Where values are numbers or times, what lies between two ends counts by their difference, so
    that a range that is a little narrower than all others is not taken for much narrower.
    """
    points = int(ranges.hi.max(initial=-1)) + 1
    points = max(points, int(ranges.lo.max(initial=-1)) + 1)
    weights = np.ones(max(0, 2 * points - 1))
    values = _numbers(pa.concat_arrays([low, high]))
    if values is None or points < _FEWEST_ENDS:
        return weights
    ends = np.zeros(points)
    ends[np.concatenate([ranges.lo, ranges.hi])] = values
    gaps = np.diff(ends)
    weights[::2] = _END_WEIGHT
    weights[1::2] = gaps * (points / max(float(gaps.sum()), np.finfo(np.float64).tiny))
    return weights + np.finfo(np.float64).eps


def _numbers(values: pa.Array) -> Floats | None:
    kind = values.type
    if pa.types.is_date32(kind):
        values = pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(kind):
        values = pc.cast(values, pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    numbers = np.asarray(pc.cast(values, pa.float64(), safe=False), np.float64)
    # Differences stay finite, and NaN is the largest number.
    most = np.finfo(np.float64).max / 4
    return np.asarray(np.clip(np.nan_to_num(numbers, nan=most), -most, most), np.float64)


def _edges(first: Ranks, last: Ranks, size: Floats, slots: Floats) -> Floats:
    """Return where each slot begins on the axis, and at the end where the last one ends."""
    count = len(slots)
    begins = np.concatenate([[0.0], np.cumsum(slots)])
    dense = size / np.maximum(begins[last + 1] - begins[first], np.finfo(np.float64).tiny)
    begun = np.bincount(first, dense, count + 1) - np.bincount(last + 1, dense, count + 1)
    # Sums of floats may leave a rest below zero where nothing is.
    mass = np.maximum(np.cumsum(begun)[:count], 0.0) * slots
    edges = np.concatenate([[0.0], np.cumsum(mass)])
    return edges / edges[-1] if edges[-1] > 0 else np.linspace(0.0, 1.0, count + 1)


def _mean_depths(first: Ranks, last: Ranks, edges: Floats) -> Floats:
    points = len(edges) - 1
    begun = np.bincount(first, minlength=points + 1) - np.bincount(last + 1, minlength=points + 1)
    depth = np.cumsum(begun)[:points]
    total = np.concatenate([[0.0], np.cumsum(depth * np.diff(edges))])
    width = edges[last + 1] - edges[first]
    summed = total[last + 1] - total[first]
    shared = np.divide(summed, width, out=depth[first].astype(np.float64), where=width > 0)
    return np.asarray(shared, np.float64)


def _union(axis: Axis, files: NDArray[np.int64]) -> float:
    """Return the length of the union of the ranges of `files`, which are in the axis's order."""
    low, high = axis.low[files], np.maximum.accumulate(axis.high[files])
    before = np.concatenate([[0.0], high[:-1]])
    return float(np.maximum(high - np.maximum(low, before), 0.0).sum())
