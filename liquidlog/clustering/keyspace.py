"""The ranges of files in the space of clustering keys: overlaps, the queries that read them, maps.

A file's *range* is a pair of ranks, lo <= hi, both inclusive. Ranks are small integers, so that
files can be counted instead of sorted. The *depth* of a file is the largest number of files, itself
included, that share one point of its range. Its *overlaps* are the other files whose ranges meet
its own. A file's *box* is the product of its ranges in all columns. Overlaps of keys say little
about the columns after the first; overlaps of boxes weigh all columns alike.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.curve.boxes import key_order_bits, place_columns, place_rows
from liquidlog.curve.curves import (
    Curve,
    GridPredicates,
    IntervalEnds,
    ValuePredicates,
    places_among,
    sorted_values,
)
from liquidlog.plan import FittedWorkload
from liquidlog.spec.bounds import Bounds, Mask, concat_bounds

Ranks = NDArray[np.int64]
Floats = NDArray[np.float64]

EXACT_FILES: Final = 16_384
"""Up to this many files, every box is compared with every other."""
SAMPLED_FILES: Final = 2_000
"""The size of the sample of boxes among more files; each is compared with every other box."""
_SEED: Final = 20_240_101


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyRanges:
    """The range of keys per file: `lo` and `hi` are ranks (int64, from 0), one per file."""

    lo: Ranks
    hi: Ranks

    def __len__(self) -> int:
        return len(self.lo)

    def selected(self, mask: NDArray[np.bool_]) -> "KeyRanges":
        return KeyRanges(lo=self.lo[mask], hi=self.hi[mask])


def column_ranges(low: pa.Array, high: pa.Array) -> KeyRanges:
    """Return the ranges of one column; nulls and NaN rank above every number."""
    return _ranked(pa.concat_arrays([low, high]))


def key_ranges(columns: Sequence[KeyRanges]) -> KeyRanges:
    """Return each file's range of keys (lo <= hi) of several columns, outermost first."""
    lo, hi = columns[0].lo, columns[0].hi
    for column in columns[1:]:
        # Ranks are at most 2n, so the product stays below 2**63 up to 10**9 files.
        width = int(max(column.lo.max(initial=0), column.hi.max(initial=0))) + 1
        ranked = _ranked(pa.array(np.concatenate([lo * width + column.lo, hi * width + column.hi])))
        lo, hi = ranked.lo, ranked.hi
    return KeyRanges(lo=lo, hi=np.maximum(lo, hi))


def overlaps(ranges: KeyRanges) -> Ranks:
    """Return how many other files' ranges meet each file's range (int64, one per file)."""
    begun, ended = _counts(ranges)
    return np.asarray(begun[ranges.hi] - ended[ranges.lo] - 1, np.int64)


def depths(ranges: KeyRanges, weights: Floats | None = None) -> NDArray[Any]:
    """Return the depth of each file (int64, at least 1); with weights (float64), files count so."""
    begun, ended = _counts(ranges, weights)
    cover = begun - ended[:-1]
    deepest = np.zeros(len(ranges), cover.dtype)
    # The maximum of a range is that of two windows of a power of two; frexp is exact, unlike log2.
    level_of = np.frexp((ranges.hi - ranges.lo + 1).astype(np.float64))[1] - 1
    for level in range(int(level_of.max(initial=-1)) + 1):
        here = np.flatnonzero(level_of == level)
        width = 1 << level
        last = ranges.hi[here] - width + 1
        deepest[here] = np.maximum(cover[ranges.lo[here]], cover[last])
        cover = np.maximum(cover[:-width], cover[width:])
    return deepest


def depth_profile(ranges: KeyRanges, bins: int) -> Ranks:
    """Return the largest depth per stretch of the key range, in key order (int64)."""
    begun, ended = _counts(ranges)
    cover = begun - ended[:-1]
    edges = np.unique(np.arange(bins) * len(cover) // bins)
    return np.maximum.reduceat(cover, edges) if len(cover) else cover


def _ranked(both: pa.Array) -> KeyRanges:
    rank = np.asarray(pc.rank(both, tiebreaker="dense"), np.int64) - 1
    lo, hi = np.split(rank, 2)
    return KeyRanges(lo=lo, hi=hi)


def _counts(ranges: KeyRanges, weights: Floats | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return per rank r how many ranges begin at or before r, and how many end before r."""
    points = int(ranges.hi.max(initial=-1)) + 1
    begun, ended = (
        np.cumsum(np.bincount(side, weights, points)) for side in (ranges.lo, ranges.hi)
    )
    return begun, np.concatenate([[0], ended])


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOverlaps:
    """The mean number of other files that meet a file in every column, and its 95 % error."""

    average: float
    error: float
    files_measured: int


def box_overlaps(columns: Sequence[KeyRanges]) -> BoxOverlaps:
    """Return how many boxes meet a box; of more than EXACT_FILES, some are compared."""
    count = len(columns[0]) if columns else 0
    if not count:
        return BoxOverlaps(average=0.0, error=0.0, files_measured=0)
    is_line = len(columns) == 1
    if is_line or count <= EXACT_FILES:
        meeting = overlaps(key_ranges(columns)) if is_line else _meeting(columns, np.arange(count))
        return BoxOverlaps(average=float(meeting.mean()), error=0.0, files_measured=count)
    chosen = np.random.default_rng(_SEED).choice(count, SAMPLED_FILES, replace=False)
    meeting = _meeting(columns, chosen)
    # The error of the mean of a sample drawn without replacement.
    unseen = (count - len(meeting)) / (count - 1)
    error = 1.96 * float(meeting.std(ddof=1)) * math.sqrt(unseen / len(meeting))
    return BoxOverlaps(average=float(meeting.mean()), error=error, files_measured=len(chosen))


def _meeting(columns: Sequence[KeyRanges], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    # The column that separates files best leaves the fewest boxes to compare in the others.
    sound = [replace(column, hi=np.maximum(column.lo, column.hi)) for column in columns]
    ordered = sorted(sound, key=lambda column: int(overlaps(column).sum()))
    order = np.argsort(ordered[0].lo, kind="stable")
    place = np.argsort(order)
    sides = [(c.lo[order].astype(np.int32), c.hi[order].astype(np.int32)) for c in ordered]
    low, high = sides[0]
    # Boxes before `first` end before this one begins; boxes from `last` on begin after it ends.
    first = np.searchsorted(np.maximum.accumulate(high), low[place[chosen]], side="left")
    last = np.searchsorted(low, high[place[chosen]], side="right")
    meeting = np.empty(len(chosen), np.int64)
    boxes = zip(place[chosen].tolist(), first.tolist(), last.tolist(), strict=True)
    for number, (mine, start, stop) in enumerate(boxes):
        meets = high[start:stop] >= low[mine]
        for lo, hi in sides[1:]:
            meets &= lo[start:stop] <= hi[mine]
            meets &= hi[start:stop] >= lo[mine]
        meeting[number] = np.count_nonzero(meets) - 1
    return meeting


# Widths: the share of each clustering column that a file's range spans
#
# A column is laid out from 0 to 1: the position of a value is the share of the table's bytes
# before it, if each file's bytes are spread evenly over its range (numbers and times by value,
# strings by rank among all ends). Whatever the column's type, the length of a stretch is the share
# of rows in it, and a file's width is the probability that a query for one value reads the file.

_END_WEIGHT: Final = 0.05
"""The weight of an end's own value, relative to the mean distance between two ends."""
_FEWEST_ENDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnSpans:
    """The span of each file in one clustering column; all arrays have one entry per file.

    `low` and `high` (float64, 0 to 1) are the ends of its range: the whole column without bounds,
    an empty range for nulls. `mean_depth` is the mean number of files that share a point of it.
    `order` (int64) numbers the files by their low ends.
    """

    low: Floats
    high: Floats
    mean_depth: Floats
    order: NDArray[np.int64]

    @property
    def width(self) -> Floats:
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
        """Each file's mean depth in its deepest column (float64, at least 1)."""
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

    def ends(self) -> tuple[Floats, Floats]:
        """The low and the high ends of all files, in files by columns."""
        lows, highs = zip(*((spans.low, spans.high) for spans in self.columns), strict=True)
        return np.stack(lows, axis=1), np.stack(highs, axis=1)

    def extent(self, files: Mask) -> float:
        """Return the share of a column that these files span together, averaged over columns."""
        lengths = []
        for spans in self.columns:
            rows = spans.order[files[spans.order]]
            low, high = spans.low[rows], np.maximum.accumulate(spans.high[rows])
            before = np.concatenate([[0.0], high[:-1]])
            lengths.append(np.maximum(high - np.maximum(low, before), 0.0).sum())
        return float(np.mean(lengths))


def key_space(bounds: Bounds, size_bytes: NDArray[np.int64]) -> KeySpace:
    """Return the spans of all files in the columns of `bounds`; `size_bytes` is one per file."""
    sizes = size_bytes.astype(np.float64)
    with ThreadPoolExecutor(2) as pool:
        columns = pool.map(lambda number: _spans(bounds, number, sizes), range(len(bounds.columns)))
        return KeySpace(size_bytes=sizes, columns=tuple(columns))


def _laid_out(bounds: Bounds, number: int, size_bytes: Floats) -> tuple[Ranks, Ranks, Floats]:
    """Return the first and the last slot of each file with bounds, and where slots begin."""
    # Slots alternate: the value of an end, the gap between it and the next, the next end's value.
    low, high = _known_ends(bounds, number)
    ranges = column_ranges(low, high)
    first, last = 2 * ranges.lo, 2 * np.maximum(ranges.lo, ranges.hi)
    known_bytes = size_bytes[bounds.known(number)]
    slots = _slots(ranges, finite_numbers(pa.concat_arrays([low, high])))
    begins = np.concatenate([[0.0], np.cumsum(slots)])
    dense = known_bytes / np.maximum(begins[last + 1] - begins[first], np.finfo(np.float64).tiny)
    begun = np.bincount(first, dense, len(begins)) - np.bincount(last + 1, dense, len(begins))
    # Rounding may leave a sum slightly below zero where no bytes are.
    edges = np.concatenate([[0.0], np.cumsum(np.maximum(np.cumsum(begun)[:-1], 0.0) * slots)])
    return first, last, edges / edges[-1] if edges[-1] > 0 else np.linspace(0.0, 1.0, len(edges))


def _known_ends(bounds: Bounds, number: int) -> list[pa.Array]:
    known = pa.array(bounds.known(number))
    return [ends.filter(known) for ends in (bounds.low(number), bounds.high(number))]


def _slots(ranges: KeyRanges, values: Floats | None) -> Floats:
    """Return the weight of each slot (float64); gaps between numbers weigh by their width."""
    points = int(max(ranges.lo.max(initial=-1), ranges.hi.max(initial=-1))) + 1
    weights = np.ones(max(0, 2 * points - 1))
    if values is None or points < _FEWEST_ENDS:
        return weights
    ends = np.zeros(points)
    ends[np.concatenate([ranges.lo, ranges.hi])] = values
    gaps = np.diff(ends)
    weights[::2] = _END_WEIGHT
    weights[1::2] = gaps * (points / max(float(gaps.sum()), np.finfo(np.float64).tiny))
    return weights + np.finfo(np.float64).eps


def _spans(bounds: Bounds, number: int, size_bytes: Floats) -> ColumnSpans:
    known, unknown = bounds.known(number), bounds.unknown(number)
    first, last, edges = _laid_out(bounds, number, size_bytes)
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


def _mean_depths(first: Ranks, last: Ranks, edges: Floats) -> Floats:
    points = len(edges) - 1
    begun = np.bincount(first, minlength=points + 1) - np.bincount(last + 1, minlength=points + 1)
    depth = np.cumsum(begun)[:points]
    total = np.concatenate([[0.0], np.cumsum(depth * np.diff(edges))])
    width = edges[last + 1] - edges[first]
    summed = total[last + 1] - total[first]
    shared = np.divide(summed, width, out=depth[first].astype(np.float64), where=width > 0)
    return np.asarray(shared, np.float64)


# The share of queries that read a file, now or after a rewrite
#
# Files that a rewrite would write are predicted as cells: rows are made up, spread evenly over
# the box of each input by its bytes, and placed in files by the executor's own kernels.

_ROWS_IN_A_CELL: Final = 24
_MOST_ROWS: Final = 100_000
_ROWS_IN_A_CELL_OF_READERS: Final = 160
"""For a workload more rows are needed, since its predicates are narrower than most values."""
_MOST_ROWS_OF_READERS: Final = 40_000
"""For a workload fewer rows are possible: fitting a layout to so many takes up to a second."""


@dataclass(frozen=True, slots=True, eq=False)
class SpaceReaders:
    """The queries of a workload; their weights add up to 1.

    A share `predicate_share` of them has the `predicates` over positions; the others read single
    values of the columns, with `column_weights` (d,). `conditions` has them all, to fit layouts.
    """

    predicates: GridPredicates | None
    predicate_share: float
    column_weights: Floats
    conditions: ValuePredicates

    def opened(self, space: KeySpace) -> Floats:
        """Return the share of the queries that read each file of a key space (float64, 0 to 1)."""
        return self.opened_boxes(*space.ends())

    def opened_boxes(self, lows: Floats, highs: Floats) -> Floats:
        """Return the share of the queries that read each box (float64), from (m, d) ends."""
        single = np.asarray((highs - lows) @ self.column_weights, np.float64)
        if self.predicates is None:
            return single
        return single + self.predicate_share * self.predicates.opened(lows, highs)


def space_readers(
    bounds: Bounds, size_bytes: NDArray[np.int64] | Floats, fitted: FittedWorkload
) -> SpaceReaders:
    """Return the queries of a workload in the key space of these files."""
    sizes = size_bytes.astype(np.float64)
    over_values = fitted.conditions([column.low.type for column in bounds.columns])
    lows, ends = np.zeros(len(over_values.axes)), np.ones(len(over_values.axes))
    sides: list[tuple[IntervalEnds, IntervalEnds]] = []
    for number, (low, high) in enumerate(zip(over_values.lows, over_values.highs, strict=True)):
        _, _, edges = _laid_out(bounds, number, sizes)
        known = pc.unique(sorted_values(pa.concat_arrays(_known_ends(bounds, number))))
        own = over_values.axes == number
        lows[own] = np.nan_to_num(_places(known, edges, low, up=False), nan=0.0)
        ends[own] = np.nan_to_num(_places(known, edges, high, up=True), nan=1.0)
        sides.append((_placed(low, lows[own]), _placed(high, ends[own])))
    low_sides, high_sides = zip(*sides, strict=True)
    weight = over_values.weights.sum()
    total = weight + over_values.column_weights.sum()
    predicates = replace(
        over_values.between(lows, ends),
        weights=over_values.weights / max(weight, np.finfo(np.float64).tiny),
    )
    return SpaceReaders(
        predicates=predicates if len(over_values.weights) else None,
        predicate_share=float(weight / total),
        column_weights=over_values.column_weights / total,
        conditions=replace(over_values, lows=low_sides, highs=high_sides),
    )


def _placed(ends: IntervalEnds, places: Floats) -> IntervalEnds:
    return replace(ends, values=pa.array(places, mask=np.asarray(ends.values.is_null())))


def _places(values: pa.Array, edges: Floats, ends: IntervalEnds, *, up: bool) -> Floats:
    """Return where intervals begin (or end, if `up`) among files' bounds; NaN where unbounded."""
    found = np.full(len(ends.values), np.nan)
    known = np.asarray(ends.values.is_valid(), np.bool_)
    wanted = ends.values.filter(pa.array(known))
    if not len(wanted) or not len(values):
        return found
    below, is_value = places_among(values, wanted)
    last = len(values) - 1
    before, behind = np.clip(below - 1, 0, last), np.minimum(below, last)
    inclusive = np.asarray(ends.is_open[known] ^ up, np.bool_)
    on_end = edges[np.minimum(2 * below + inclusive, len(edges) - 1)]
    share = np.full(len(wanted), float(up))  # of the gap, for texts
    numbers, points = finite_numbers(wanted), finite_numbers(values)
    if numbers is not None and points is not None:
        share[:] = 0.0
        gaps = points[behind] - points[before]
        np.divide(numbers - points[before], gaps, out=share, where=gaps > 0)
    gap = np.clip(2 * below - 1, 0, max(len(edges) - 2, 0))
    between = edges[gap] + np.clip(share, 0.0, 1.0) * (edges[gap + 1] - edges[gap])
    between = np.where(below == 0, 0.0, np.where(below > last, 1.0, between))
    found[known] = np.where(is_value, on_end, between)
    return found


def placed(
    points: Floats, outputs: int, *, curve: str, conditions: ValuePredicates | None = None
) -> NDArray[np.int64]:
    """Return the file of each row (int64, below `outputs`), as the executor would place rows."""
    count, columns = points.shape
    kind = Curve(curve) if columns > 1 else Curve.LINEAR
    ordinals = np.arange(count, dtype=np.uint64)
    if conditions is not None:
        values = [pa.array(column) for column in points.T]
        layout, _ = place_columns(
            values, ordinals, min(outputs, count), curve=kind, conditions=conditions
        )
        return layout.slices(values)[0]
    bits = key_order_bits(columns, kind)
    steps = ((np.arange(count) << bits) // max(count, 1)).astype(np.uint32)
    coords = np.empty(points.shape, np.uint32, order="F")
    for number, column in enumerate(points.T):
        coords[np.argsort(column, kind="stable"), number] = steps
    order, _, cuts = place_rows(coords, ordinals, min(outputs, count), curve=kind, bits=bits)
    return np.asarray(cuts.parts_of(order.keys_of(coords), ordinals), np.int64)


def cells(
    space: KeySpace, outputs: int, *, curve: str, readers: SpaceReaders | None = None, draw: int = 0
) -> tuple[Floats, Floats]:
    """Return bytes and width of each file that a rewrite of all files of `space` would write.

    A width is the mean share of a column that the file spans, or the share of `readers` of it.
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
    low, high = (ends[owner] for ends in space.ends())
    points = low + random * (high - low)
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


# Maps of files now and after a rewrite, in one scale
#
# A position, from 0 to 1, is the share of the table's bytes before a value. So a length is a share
# of the rows, whatever the type, and values that no file has leave no gap. Few files are shown as
# boxes, many as a grid of counts, so that the map of a million files is not larger.

Ticks = tuple[tuple[float, Any], ...]
"""(position, value), in the order of positions; the first is at 0, the last at 1."""
_STEPS: Final = 4
_CLOSEST: Final = 0.12
"""The least distance between two positions that are labelled."""
_MONTH_DAYS: Final = 28
_YEAR_DAYS: Final = 365
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def axis_ticks(bounds: Bounds, number: int, spans: ColumnSpans) -> Ticks:
    """Return values along column `number` of `bounds`, at about equal distances."""
    known = bounds.known(number)
    values = pa.concat_arrays(_known_ends(bounds, number))
    if not len(values):
        return ()
    order = np.asarray(pc.array_sort_indices(values), np.int64)
    values = values.take(pa.array(order))
    positions = np.concatenate([spans.low[known], spans.high[known]])[order]
    inner = _inner(values, np.maximum.accumulate(positions))
    first, last = (0.0, values[0].as_py()), (1.0, values[-1].as_py())
    ticks = [first]
    for tick in sorted(inner, key=lambda tick: tick[0]):
        if ticks[-1][0] + _CLOSEST <= tick[0] <= 1 - _CLOSEST:
            ticks.append(tick)
    return (first,) if first[1] == last[1] else (*ticks, last)


def _inner(values: pa.Array, positions: Floats) -> list[tuple[float, Any]]:
    wanted = np.arange(1, _STEPS) / _STEPS
    numbers = plain_numbers(values)
    if numbers is None or not np.isfinite(numbers).all():
        places = np.abs(positions[:, None] - wanted).argmin(axis=0)
        return [(float(positions[n]), values[int(n)].as_py()) for n in places]
    found = []
    for number in np.interp(wanted, positions, numbers):
        value, rounded = _rounded(values.type, float(number), float(numbers[-1] - numbers[0]))
        found.append((float(np.interp(rounded, numbers, positions)), value))
    return found


def _rounded(kind: pa.DataType, number: float, extent: float) -> tuple[Any, float]:
    """Return a round value of a type near a number, and its own number."""
    if pa.types.is_date32(kind):
        day = _round_day(_EPOCH + timedelta(days=number), extent)
        return day.date(), float((day - _EPOCH).days)
    if pa.types.is_timestamp(kind):
        moment = _round_day(_EPOCH + timedelta(microseconds=number), extent / 86_400_000_000)
        value = moment if kind.tz else moment.replace(tzinfo=None)
        return value, float((moment - _EPOCH) // timedelta(microseconds=1))
    # A power of ten that is below an eighth of the column.
    unit = 10.0 ** np.floor(np.log10(max(extent / 8, np.finfo(np.float64).tiny)))
    if pa.types.is_integer(kind):
        whole = round(number / max(unit, 1.0)) * round(max(unit, 1.0))
        return whole, float(whole)
    rounded = float(np.round(number / unit) * unit)
    return (Decimal(f"{rounded:.12g}") if pa.types.is_decimal(kind) else rounded), rounded


def _round_day(moment: datetime, extent_days: float) -> datetime:
    if extent_days < _STEPS:
        return (moment + timedelta(seconds=30)).replace(second=0, microsecond=0)
    midnight = (moment + timedelta(hours=12)).replace(hour=0, minute=0, second=0, microsecond=0)
    if extent_days < _STEPS * _MONTH_DAYS:
        return midnight
    if extent_days < _STEPS * _YEAR_DAYS:
        return (midnight + timedelta(days=_MONTH_DAYS // 2)).replace(day=1)
    return (midnight + timedelta(days=_YEAR_DAYS // 2)).replace(month=1, day=1)


BOXES_SHOWN: Final = 400
GRID_BINS: Final = 64
PROFILE_BINS: Final = 96
_UNSEEN: Final = 1 / 8
"""Unsampled rows may lie beside a predicted file, up to this part of its range."""
_DIAGONAL: Final = 0.98
"""The correlation of files' middles from which two columns count as one."""
_FEWEST_FILES: Final = 4
_EDGE: Final = 1e-9

Grid = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedFiles:
    """Files to draw: bounds, bytes (int64), and which are predicted; one entry per file."""

    bounds: Bounds
    size_bytes: NDArray[np.int64]
    is_predicted: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAxis:
    """One column of a map."""

    name: str
    ticks: Ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One state of a table on a map: files that are drawn, and files that lack bounds.

    `boxes` are (low x, low y, high x, high y) by the first two columns, up to 400 files; else
    `grid` counts the files in each cell, its rows upwards along the second column. `profiles` has
    per column and stretch the mean number of files that share a point.
    """

    files: int
    not_drawn: int
    boxes: tuple[tuple[float, float, float, float], ...]
    grid: Grid
    profiles: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMap:
    """A table now and after a rewrite; `after` is None if there is none to show."""

    axes: tuple[MapAxis, ...]
    now: Side
    after: Side | None


def key_map(names: Sequence[str], now: MappedFiles, after: MappedFiles | None) -> KeyMap | None:
    """Return the map of a table by the columns `names`, None if no file has bounds of them all."""
    if not now.bounds.all_known().any():
        return None
    sides = [now] if after is None else [now, after]
    bounds = concat_bounds([side.bounds for side in sides])
    # Predicted files have no bytes here, so the scale is that of the table now.
    size_bytes = [now.size_bytes] + [np.zeros_like(side.size_bytes) for side in sides[1:]]
    space = key_space(bounds, np.concatenate(size_bytes))
    low, high = space.ends()
    others = range(1, low.shape[1])
    parts = [slice(len(now.bounds)), slice(len(now.bounds), None)][: len(sides)]
    lines = [n for n in others if any(_is_line(low[s], high[s], [0, n]) for s in parts)]
    order = [0, *(n for n in others if n not in lines), *lines]
    low, high = low[:, order], high[:, order]
    ticks = [axis_ticks(bounds, number, space.columns[number]) for number in order]
    axes = tuple(MapAxis(name=names[n], ticks=its) for n, its in zip(order, ticks, strict=True))
    is_small = max(int(side.bounds.all_known().sum()) for side in sides) <= BOXES_SHOWN
    drawn = [
        _side(side, low[part], high[part], one_by_one=is_small)
        for side, part in zip(sides, parts, strict=True)
    ]
    return KeyMap(axes=axes, now=drawn[0], after=drawn[1] if drawn[1:] else None)


def _is_line(low: Floats, high: Floats, pair: Sequence[int]) -> bool:
    """Return whether files lie along a line in two columns: one is a function of the other."""
    ends = np.stack([low[:, pair], high[:, pair]])
    known = ~np.isnan(ends).any(axis=(0, 2))
    middle = ends[:, known].mean(axis=0)
    width, other = np.diff(ends[:, known], axis=0)[0].mean(axis=0)
    if known.sum() < _FEWEST_FILES or width > 1 / 2 or other > 2 * width:
        return False
    spread = middle.std(axis=0)
    return bool(spread.min() > 0 and abs(np.corrcoef(middle.T)[0, 1]) > _DIAGONAL)


def closed(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the ends of predicted boxes, moved together where no made-up row lies between them."""
    low, high = low.copy(), high.copy()
    reach = (high - low) * _UNSEEN
    meets = (low[:, None, :] < high[None]) & (low[None] < high[:, None, :])
    for column in range(low.shape[1]):
        beside = np.asarray(np.delete(meets, column, axis=2).all(axis=2), np.bool_)
        _close(low[:, column], high[:, column], reach[:, column], beside)
    return low, high


def _close(low: Floats, high: Floats, reach: Floats, beside: Mask) -> None:
    """Move the ends of boxes in one column; `beside` says which boxes meet in the others."""
    middle = (low + high) / 2
    first = ~(beside & (middle[:, None] < low[None, :])).any(axis=0)
    last = ~(beside & (middle[:, None] > high[None, :])).any(axis=0)
    # Row: the box on the left; column: the box on the right.
    gap = low[None, :] - high[:, None]
    beside = beside & (gap >= -_EDGE) & (gap <= reach[:, None] + reach[None, :])
    left = np.where(beside, high[:, None], -np.inf).max(axis=0, initial=-np.inf)
    low[:] = np.where(left > -np.inf, np.minimum(left, low), low)
    right = np.where(beside, low[None, :], np.inf).min(axis=1, initial=np.inf)
    high[:] = np.where(right < np.inf, np.maximum(right, high), high)
    low[first & (low <= reach)] = 0.0
    high[last & (high >= 1 - reach)] = 1.0


def _side(files: MappedFiles, low: Floats, high: Floats, *, one_by_one: bool) -> Side:
    drawn = files.bounds.all_known()
    low, high, predicted = low[drawn], high[drawn], files.is_predicted[drawn]
    if one_by_one and predicted.any():
        low[predicted], high[predicted] = closed(low[predicted], high[predicted])
    is_plane = low.shape[1] > 1
    boxes = np.concatenate([low[:, :2], high[:, :2]], axis=1).tolist()
    return Side(
        files=len(low),
        not_drawn=int((~drawn).sum()),
        boxes=tuple(map(tuple, boxes)) if is_plane and one_by_one else (),
        grid=_grid(low[:, :2], high[:, :2]) if is_plane and not one_by_one else (),
        profiles=tuple(_profile(low[:, n], high[:, n]) for n in range(low.shape[1])),
    )


def bins(low: Floats, high: Floats, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last of `count` equal stretches that each range meets (int64)."""
    first = np.clip(np.floor(low * count + _EDGE), 0, count - 1).astype(np.int64)
    last = np.clip(np.ceil(high * count - _EDGE) - 1, 0, count - 1).astype(np.int64)
    return first, np.maximum(first, last)


def _grid(low: Floats, high: Floats) -> Grid:
    (left, right), (bottom, top) = (bins(low[:, n], high[:, n], GRID_BINS) for n in (0, 1))
    steps = np.zeros((GRID_BINS + 1, GRID_BINS + 1), np.int64)
    np.add.at(steps, (bottom, left), 1)
    np.add.at(steps, (bottom, right + 1), -1)
    np.add.at(steps, (top + 1, left), -1)
    np.add.at(steps, (top + 1, right + 1), 1)
    counts = steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    return tuple(tuple(row) for row in counts.tolist())


def _profile(low: Floats, high: Floats) -> tuple[float, ...]:
    """Return the mean number of files over the points of each stretch."""
    edges = np.arange(PROFILE_BINS + 1) / PROFILE_BINS
    covered = np.zeros(len(edges))
    for ends, sign in ((np.sort(low), 1), (np.sort(high), -1)):
        # The summed distances of the ends before each edge.
        total = np.concatenate([[0.0], np.cumsum(ends)])
        count = np.searchsorted(ends, edges)
        covered += sign * (count * edges - total[count])
    return tuple(np.round(np.diff(covered) * PROFILE_BINS, 4).tolist())
