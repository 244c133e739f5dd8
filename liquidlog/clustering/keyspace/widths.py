"""Widths: the share of each clustering column that a file's range spans.

A column is laid out from 0 to 1: the position of a value is the share of the table's bytes before
it, if each file's bytes are spread evenly over its range (numbers and times by value, strings by
rank among all ends). Whatever the column's type, the length of a stretch is then the share of rows
in it, and a reader that asks for one value of the column opens a file with a probability equal to
the file's width in that column.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.depth import KeyRanges, Ranks, column_ranges
from liquidlog.spec.bounds import Bounds, Mask

Floats = NDArray[np.float64]

_END_WEIGHT: Final = 0.05
"""The weight of an end's own value, relative to the mean distance between two ends."""

_FEWEST_ENDS: Final = 2
"""The fewest ends that have a distance between them."""

_COLUMNS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnSpans:
    """The span of each file in one clustering column; all arrays have one entry per file.

    `low` and `high` (float64, from 0 to 1) are the ends of the file's range: a file without bounds
    spans the whole column, a file of nulls nothing. `mean_depth` (float64, at least 1) is the
    number of files, itself included, that share a point of that range, on average over the range.
    `order` (int64) numbers the files by their low ends.
    """

    low: Floats
    high: Floats
    mean_depth: Floats
    order: NDArray[np.int64]

    @property
    def width(self) -> Floats:
        """The share of the column that each file's range spans (float64, from 0 to 1)."""
        return self.high - self.low


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeySpace:
    """The spans of all files in every clustering column; `size_bytes` is float64, one per file."""

    size_bytes: Floats
    columns: tuple[ColumnSpans, ...]

    @property
    def widths(self) -> Floats:
        """Each file's width, from 0 to 1: the mean over the columns (float64)."""
        return np.asarray(np.mean([spans.width for spans in self.columns], axis=0), np.float64)

    @property
    def mean_depths(self) -> Floats:
        """Each file's mean depth in the column where that is largest (float64, at least 1)."""
        return np.asarray(np.max([spans.mean_depth for spans in self.columns], axis=0), np.float64)

    def part(self, files: Mask | NDArray[np.int64]) -> "KeySpace":
        """Return the spans of some files, a mask or their numbers, in the same space."""
        columns = tuple(
            ColumnSpans(
                low=spans.low[files],
                high=spans.high[files],
                mean_depth=spans.mean_depth[files],
                order=np.argsort(spans.low[files], kind="stable"),
            )
            for spans in self.columns
        )
        return KeySpace(size_bytes=self.size_bytes[files], columns=columns)

    def together(self) -> "KeySpace":
        """Return the box around all files, as one file of all their bytes."""
        columns = tuple(
            ColumnSpans(
                low=spans.low.min(keepdims=True),
                high=spans.high.max(keepdims=True),
                mean_depth=np.ones(1),
                order=np.zeros(1, np.int64),
            )
            for spans in self.columns
        )
        return KeySpace(size_bytes=self.size_bytes.sum(keepdims=True), columns=columns)

    def extent(self, files: Mask) -> float:
        """Return the share of a column that these files span together, averaged over columns."""
        return float(
            np.mean([_union(spans, spans.order[files[spans.order]]) for spans in self.columns])
        )


def key_space(bounds: Bounds, size_bytes: NDArray[np.int64]) -> KeySpace:
    """Return the spans of all files in the columns of `bounds`; `size_bytes` is one per file.

    Takes O(files * log files) per column; two columns are computed at the same time.
    """
    sizes = size_bytes.astype(np.float64)
    with ThreadPoolExecutor(_COLUMNS_AT_ONCE) as pool:
        columns = pool.map(lambda number: _spans(bounds, number, sizes), range(len(bounds.columns)))
        return KeySpace(size_bytes=sizes, columns=tuple(columns))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnLine:
    """Where the values of a column are in key space.

    `ends` are the values at which files begin or end, sorted and distinct. `edges` (float64) are
    the positions where the first of them begins, where it ends, where the second begins, and so on.
    """

    ends: pa.Array
    edges: Floats

    def shares(self, values: pa.Array, before: Ranks, behind: Ranks) -> Floats:
        """Return how far values are on the way between two ends, by number; NaN for texts."""
        numbers, ends = finite_numbers(values), finite_numbers(self.ends)
        if numbers is None or ends is None:
            return np.full(len(values), np.nan)
        gaps = ends[behind] - ends[before]
        found = np.zeros(len(values))
        np.divide(numbers - ends[before], gaps, out=found, where=gaps > 0)
        return np.asarray(np.clip(found, 0.0, 1.0), np.float64)


def column_line(bounds: Bounds, number: int, size_bytes: Floats) -> ColumnLine:
    """Return where values of a column are in the key space of these files."""
    known = bounds.known(number)
    low, high = (ends.filter(pa.array(known)) for ends in (bounds.low(number), bounds.high(number)))
    _, _, edges = _laid_out(low, high, size_bytes[known])
    both = pa.concat_arrays([low, high])
    if pa.types.is_floating(both.type):
        both = pc.add(both, pa.scalar(0.0, both.type))  # makes -0.0 the 0.0 it is equal to
    ends = pc.unique(both)
    return ColumnLine(ends=ends.take(pc.sort_indices(ends)), edges=edges)


def _laid_out(low: pa.Array, high: pa.Array, size_bytes: Floats) -> tuple[Ranks, Ranks, Floats]:
    """Return the first and the last slot of each file, and where slots begin.

    Slots alternate: the value of an end, the gap between it and the next, the next end's value.
    """
    ranges = column_ranges(low, high)
    first, last = 2 * ranges.lo, 2 * np.maximum(ranges.lo, ranges.hi)
    return first, last, _edges(first, last, size_bytes, _slots(ranges, low, high))


def _spans(bounds: Bounds, number: int, size_bytes: Floats) -> ColumnSpans:
    known, unknown = bounds.known(number), bounds.unknown(number)
    with_ends = pa.array(known)
    low, high = bounds.low(number).filter(with_ends), bounds.high(number).filter(with_ends)
    first, last, edges = _laid_out(low, high, size_bytes[known])
    left, right = np.zeros(len(known)), np.where(unknown, 1.0, 0.0)
    left[known], right[known] = edges[first], edges[last + 1]
    mean_depth = np.ones(len(known))
    mean_depth[known] = _mean_depths(first, last, edges)
    return ColumnSpans(
        low=left,
        high=right,
        mean_depth=mean_depth + unknown.sum(),
        order=np.argsort(left, kind="stable"),
    )


def _slots(ranges: KeyRanges, low: pa.Array, high: pa.Array) -> Floats:
    """Return the weight per slot of a column (float64), by which a file's bytes are spread over it.

    For numbers and times, the gap between two ends weighs as much as their difference, so that a
    range that is a little narrower than all others does not appear much narrower.
    """
    points = int(ranges.hi.max(initial=-1)) + 1
    points = max(points, int(ranges.lo.max(initial=-1)) + 1)
    weights = np.ones(max(0, 2 * points - 1))
    values = finite_numbers(pa.concat_arrays([low, high]))
    if values is None or points < _FEWEST_ENDS:
        return weights
    ends = np.zeros(points)
    ends[np.concatenate([ranges.lo, ranges.hi])] = values
    gaps = np.diff(ends)
    weights[::2] = _END_WEIGHT
    weights[1::2] = gaps * (points / max(float(gaps.sum()), np.finfo(np.float64).tiny))
    return weights + np.finfo(np.float64).eps


def finite_numbers(values: pa.Array) -> Floats | None:
    """Return values as finite numbers, None for types that are not numbers or times."""
    found = plain_numbers(values)
    if found is None:
        return None
    # Keeps differences finite, with NaN as the largest number.
    most = np.finfo(np.float64).max / 4
    return np.asarray(np.clip(np.nan_to_num(found, nan=most), -most, most), np.float64)


def plain_numbers(values: pa.Array) -> Floats | None:
    """Return values as numbers, times in days or microseconds; None for other types (float64)."""
    kind = values.type
    if pa.types.is_date32(kind):
        values = pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(kind):
        values = pc.cast(values, pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    return np.asarray(pc.cast(values, pa.float64(), safe=False), np.float64)


def _edges(first: Ranks, last: Ranks, size_bytes: Floats, slots: Floats) -> Floats:
    """Return the position where each slot begins, followed by the end of the last one (float64)."""
    count = len(slots)
    begins = np.concatenate([[0.0], np.cumsum(slots)])
    dense = size_bytes / np.maximum(begins[last + 1] - begins[first], np.finfo(np.float64).tiny)
    begun = np.bincount(first, dense, count + 1) - np.bincount(last + 1, dense, count + 1)
    # Rounding may leave a sum slightly below zero where no bytes are.
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


def _union(spans: ColumnSpans, files: NDArray[np.int64]) -> float:
    """Return the length of the union of the ranges of `files`, sorted as in `spans`."""
    low, high = spans.low[files], np.maximum.accumulate(spans.high[files])
    before = np.concatenate([[0.0], high[:-1]])
    return float(np.maximum(high - np.maximum(low, before), 0.0).sum())
