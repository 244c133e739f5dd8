"""The ranges of files in the space of clustering keys, and measures of a clustering.

A file's *range* is a pair of ranks, lo <= hi, both inclusive. Ranks are small integers, so that
files can be counted instead of sorted. The *depth* of a file is the largest number of files, itself
included, that share one point of its range. Its *overlaps* are the other files whose ranges meet
its own. A file's *box* is the product of its ranges in all columns. Overlaps of keys say little
about the columns after the first; overlaps of boxes weigh all columns alike.

Names follow Snowflake's SYSTEM$CLUSTERING_INFORMATION where it has one.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import (
    OTHER_COLUMNS,
    OTHER_PROVIDER,
    PARTIAL,
    STABLE,
    UNCLUSTERED,
    ClusteringColumn,
    clustering_state,
    file_states,
    membership,
    unresolved_problem,
)
from liquidlog.curve.curves import (
    Curve,
    GridPredicates,
    IntervalEnds,
    ValuePredicates,
    places_among,
    sorted_values,
)
from liquidlog.curve.layouts import key_order_bits, place_columns, place_rows
from liquidlog.errors import UsageError
from liquidlog.plan import FittedWorkload
from liquidlog.predicates.workload import NotUsable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import MILLISECOND_REST_US, Bounds, ColumnBounds, Mask
from liquidlog.spec.schema import PrimitiveType, quote_path, split_path
from liquidlog.spec.text import Summary, iso_time, suggestion

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
    low, high = known_ends(bounds, number)
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


def known_ends(bounds: Bounds, number: int) -> list[pa.Array]:
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
        known = pc.unique(sorted_values(pa.concat_arrays(known_ends(bounds, number))))
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


_DECIMALS: Final = 4
_CUBES_LISTED: Final = 1_000
"""The most cubes that are listed one by one: the worst ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeHealth:
    """The health of one cube by its own files; `overlapping_cubes` counts other cubes."""

    zcube_id: str
    state: str
    files: int
    size_bytes: int
    average_depth: float
    max_depth: int
    average_overlaps: float
    overlapping_cubes: int


PREFIX_PROPERTY: Final = "delta.dataSkippingStringPrefixLength"
DEFAULT_PREFIX_CHARS: Final = 32
_TIE_BREAKERS: Final = ("\x7f", "\U0010ffff")
"""Last characters of a truncated maximum. Source: Delta Spark, StatisticsCollection."""
_DIRECT_LAKE: Final = (("F2 to F32", 1_000, 300_000_000), ("F64 to F256", 5_000, 1_500_000_000))
"""The most files of one row group, and rows of a table that Direct Lake loads, by capacity.

More rows are allowed on F128 and F256. Source: Microsoft Fabric, Direct Lake overview."""
_NEAR: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truncation:
    """Masks of the files with truncated strings as bounds of one column.

    A file is `at_limit` if a bound has as many characters as statistics keep. Both bounds of a file
    `in_one_prefix` are truncated to the same text, so such files seem to overlap.
    """

    at_limit: Mask
    in_one_prefix: Mask


def prefix_chars(snapshot: Snapshot) -> int:
    text = snapshot.metadata.configuration.get(PREFIX_PROPERTY, "")
    return int(text) if text.isdecimal() else DEFAULT_PREFIX_CHARS


def truncation(
    bounds: Bounds, number: int, column: ClusteringColumn, prefix: int
) -> Truncation | None:
    """Return which files have truncated bounds of column `number`, None if it holds no strings."""
    if column.data_type != PrimitiveType("string"):
        return None
    low, high = bounds.low(number), bounds.high(number)
    at_limit = [_mask(pc.greater_equal(pc.utf8_length(side), prefix)) for side in (low, high)]
    # A truncated maximum ends with a character that makes it large enough; without it, it equals
    # the minimum, whatever the limit was.
    ends = pc.utf8_slice_codeunits(high, -1)
    starts = pc.utf8_slice_codeunits(high, 0, -1)
    truncated = pc.and_(pc.is_in(ends, value_set=pa.array(_TIE_BREAKERS)), pc.equal(starts, low))
    return Truncation(at_limit=at_limit[0] | at_limit[1], in_one_prefix=_mask(truncated))


def _notes(snapshot: Snapshot, measured: "_Measured") -> Iterator[str]:
    columns, bounds = measured.columns, measured.bounds
    yield from snapshot.notes
    yield from map(unresolved_problem, clustering_state(snapshot).unresolved)
    if not columns:
        yield (
            "the table has no clustering columns, so there are no ranges to measure; name columns,"
            " or give a workload"
        )
    for number, column in enumerate(columns):
        if count := int(bounds.unknown(number).sum()):
            yield f"{_files(count)} without statistics for {column.name}, left out of the ranges"
        if count := int(bounds.only_nulls(number).sum()):
            yield f"{_files(count)} with only nulls in {column.name}, left out of the ranges"
    yield from _truncation_notes(columns, bounds, prefix_chars(snapshot))
    for name, what in (
        (OTHER_COLUMNS, "clustered by other columns"),
        (OTHER_PROVIDER, "clustered by another implementation"),
    ):
        if count := measured.count(name):
            yield f"{_files(count)} {what}; only a full rewrite takes them"
    vectors = measured.files["deletion_vector"]
    if count := len(vectors) - vectors.null_count:
        yield f"{_files(count)} with deleted rows; the ranges may be wider than the live rows"


def _direct_lake_notes(files: pa.Table) -> tuple[str, ...]:
    count, rows = files.num_rows, int(pc.sum(files["num_records"]).as_py() or 0)
    near = ", and ".join(
        f"{most_files:,} files and {most_rows:,} rows on {capacity}"
        for capacity, most_files, most_rows in _DIRECT_LAKE
        if count >= _NEAR * most_files or rows >= _NEAR * most_rows
    )
    text = f"{_files(count)} with {rows:,} rows; Direct Lake of Fabric loads tables of at most"
    return (f"{text} {near}, and counts row groups as it counts files",) if near else ()


def _truncation_notes(
    columns: Sequence[ClusteringColumn], bounds: Bounds, prefix: int
) -> Iterator[str]:
    for number, column in enumerate(columns):
        found = truncation(bounds, number, column, prefix)
        if found is None:
            continue
        if count := int(found.at_limit.sum()):
            yield (
                f"{_files(count)} with bounds of {column.name} cut to {prefix} characters;"
                " depths may be overstated"
            )
        if count := int(found.in_one_prefix.sum()):
            yield (
                f"{_files(count)} with all values of {column.name} beginning with the same"
                " characters, which are all that the log keeps: their depth and overlaps are not"
                " those of the values; doctor --fix cut-strings keeps more"
            )


def _mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    return np.asarray(pc.fill_null(values, fill_value=False), np.bool_)


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count} files are"


PROFILE_BINS: Final = 64
_EXACT_DEPTHS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnHealth:
    """The health of one clustering column alone.

    `overlap_ratio` is the mean share of the other files whose ranges meet a file's range, 0 if no
    ranges meet and 1 if all do. Depths and overlaps are None without any file with statistics. The
    two bounds of `files_in_one_prefix` are truncated to the same text; their depth says nothing
    about their values. `depth_profile` has the largest depth in each of up to 64 stretches from
    `min` to `max`, with equally many distinct bounds each.
    """

    name: str
    files_with_stats: int
    average_depth: float | None
    max_depth: int | None
    overlap_ratio: float | None
    average_overlaps: float | None
    average_depth_by_bytes: float | None
    files_in_one_prefix: int
    min: Any
    max: Any
    depth_profile: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Health(Summary):
    """How well a table, or a part of its files, is clustered.

    A file's range is [min key, max key] in the order of the columns. Averages and percentiles are
    of the files with statistics of all columns, None without any; percentiles are depths that
    occur. `depth_ratio` is the average depth divided by the depth after a full rewrite,
    `read_ratio` the bytes that queries for one value of one column read, divided by the bytes after
    a full rewrite; None if not measured, or without ranges. `depth_histogram` counts files by
    depth: one key per depth up to 16, then doubling upper bounds. `constant_file_count` counts
    files of a single key. Cubes count as stable or partial by the table's own clustering columns.

    `…_by_bytes` are means weighted by the files' bytes. `…_within_cubes` are means over files,
    among the files of the same cube; `…_between_cubes` are means over cubes, whose range is from
    the first to the last key. `average_box_overlaps` is the mean number of other files that meet a
    file in every column, an estimate if `box_files_measured` is smaller than the number of files;
    `box_overlaps_error` is half the width of its 95 % confidence interval.

    `cannot_prune` has the conditions that rule out no file, `not_usable` the predicates that are no
    condition on this table. `asked_at` is the current time (ISO 8601, UTC) if a predicate depends
    on it.
    """

    table_uri: str
    version: int
    committed_at: str
    measured_at: str | None
    cluster_by_keys: tuple[str, ...]
    total_file_count: int
    total_bytes: int
    unclustered_file_count: int
    unclustered_bytes: int
    constant_file_count: int
    stable_cube_count: int
    partial_cube_count: int
    files_with_stats: int
    depth_ratio: float | None = None
    read_ratio: float | None = None
    average_overlaps: float | None
    average_overlaps_by_bytes: float | None
    average_depth: float | None
    average_depth_by_bytes: float | None
    p95_depth: int | None
    p99_depth: int | None
    max_depth: int | None
    average_depth_within_cubes: float | None
    average_overlaps_within_cubes: float | None
    average_depth_between_cubes: float | None
    average_overlaps_between_cubes: float | None
    average_box_overlaps: float | None
    box_overlaps_error: float | None
    box_files_measured: int
    depth_histogram: Mapping[str, int]
    columns: tuple[ColumnHealth, ...]
    cubes: tuple[CubeHealth, ...]
    notes: tuple[str, ...]
    cannot_prune: tuple[str, ...] = ()
    not_usable: tuple[NotUsable, ...] = ()
    asked_at: str | None = None

    def _facts(self) -> Mapping[str, object]:
        return {
            "table_uri": self.table_uri,
            "version": self.version,
            "cluster_by_keys": self.cluster_by_keys,
            "total_file_count": self.total_file_count,
            "total_bytes": self.total_bytes,
            "unclustered_file_count": self.unclustered_file_count,
            "depth_ratio": self.depth_ratio,
            "read_ratio": self.read_ratio,
            "average_depth": self.average_depth,
            "max_depth": self.max_depth,
        }


def numeric_fields(of: type[Health | ColumnHealth]) -> tuple[str, ...]:
    """Return the names of the numbers of health, some of them None where not measured."""
    numbers = (int, float, int | None, float | None)
    return tuple(field.name for field in fields(of) if field.type in numbers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Measured:
    """The measured files, with `ranges` per column; `cube` (int64) is -1 outside cubes."""

    columns: tuple[ClusteringColumn, ...]
    files: pa.Table
    states: pa.Array
    cube: NDArray[np.int64]
    bounds: Bounds
    ranges: tuple[KeyRanges, ...]

    def sizes(self) -> NDArray[np.int64]:
        return np.asarray(self.files["size"].to_numpy(), np.int64)

    def count(self, state: str) -> int:
        return int(_mask(pc.equal(self.states, state)).sum())

    def cubes(self, state: str) -> int:
        return len(self.files["zcube_id"].filter(pc.equal(self.states, state)).unique())


def measure_health(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None = None,
    measured_at_ms: int | None = None,
) -> Health:
    """Return the health, by `columns`, of the files where `mask` is true."""
    measured = _measured(snapshot, columns, bounds, min_cube_bytes=min_cube_bytes, mask=mask)
    known = measured.bounds.all_known()
    by_column = [ranges.selected(known) for ranges in measured.ranges]
    none = np.zeros(0, np.int64)
    ranges = key_ranges(by_column) if by_column else KeyRanges(lo=none, hi=none)
    sizes = measured.sizes()
    boxes = box_overlaps(by_column)
    prefix = prefix_chars(snapshot)
    depth = depths(ranges)
    notes = _direct_lake_notes(measured.files) if mask is None else ()
    return Health(
        table_uri=snapshot.uri,
        version=snapshot.version,
        committed_at=iso_time(snapshot.timestamp_ms),
        measured_at=None if measured_at_ms is None else iso_time(measured_at_ms),
        cluster_by_keys=tuple(column.name for column in measured.columns),
        total_file_count=measured.files.num_rows,
        total_bytes=int(sizes.sum()),
        unclustered_file_count=measured.count(UNCLUSTERED),
        unclustered_bytes=int(sizes[_mask(pc.equal(measured.states, UNCLUSTERED))].sum()),
        constant_file_count=int(_constant(measured, known).sum()),
        stable_cube_count=measured.cubes(STABLE),
        partial_cube_count=measured.cubes(PARTIAL),
        **_means(ranges, sizes[known]),
        average_overlaps_by_bytes=_mean(overlaps(ranges), sizes[known]),
        p95_depth=_percentile(depth, 95),
        p99_depth=_percentile(depth, 99),
        **_cubes(measured, known),
        average_box_overlaps=round(boxes.average, _DECIMALS) if len(ranges) else None,
        box_overlaps_error=round(boxes.error, _DECIMALS) if len(ranges) else None,
        box_files_measured=boxes.files_measured,
        depth_histogram=_histogram(depth),
        columns=tuple(_column_health(measured, number, prefix) for number in range(len(columns))),
        notes=(*_notes(snapshot, measured), *notes),
    )


def _means(ranges: KeyRanges, sizes: NDArray[np.int64]) -> dict[str, Any]:
    """Return the measures of files that both kinds of health have."""
    depth = depths(ranges)
    return {
        "files_with_stats": len(ranges),
        "average_overlaps": _mean(overlaps(ranges)),
        "average_depth": _mean(depth),
        "average_depth_by_bytes": _mean(depth, sizes),
        "max_depth": _percentile(depth, 100),
    }


def _measured(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None,
) -> _Measured:
    # The state of a cube depends on all its files, also on those that are not measured.
    own, files = clustering_state(snapshot).columns, snapshot.files
    states, places = file_states(snapshot, own, min_cube_bytes), membership(files, own)
    cube = np.where(places.in_cube, places.cube, -1)
    if mask is not None:
        files, states, bounds = files.filter(mask), states.filter(mask), bounds.filter(mask)
        cube = cube[np.asarray(mask, np.bool_)]
    return _Measured(
        columns=tuple(columns),
        files=files,
        states=states,
        cube=cube,
        bounds=bounds,
        ranges=tuple(map(_ranges, bounds.columns)),
    )


def _ranges(column: ColumnBounds) -> KeyRanges:
    """Return the ranges of a column; null is a value below all others, as curves order it."""
    ranges = column_ranges(column.low, column.high)
    has_nulls = np.asarray(pc.fill_null(pc.greater(column.null_count, 0), fill_value=False))
    if not has_nulls.any():
        return ranges
    return KeyRanges(lo=np.where(has_nulls, 0, ranges.lo + 1), hi=ranges.hi + 1)


def _column_health(measured: _Measured, number: int, prefix: int) -> ColumnHealth:
    known = measured.bounds.known(number)
    column = measured.columns[number]
    ranges = key_ranges([measured.ranges[number].selected(known)])
    others = len(ranges) - 1
    ratio = float(overlaps(ranges).mean()) / others if others > 0 else 0.0
    truncated = truncation(measured.bounds, number, column, prefix)
    return ColumnHealth(
        name=column.name,
        **_means(ranges, measured.sizes()[known]),
        overlap_ratio=round(ratio, _DECIMALS) if len(ranges) else None,
        files_in_one_prefix=0 if truncated is None else int(truncated.in_one_prefix.sum()),
        min=_end(measured.bounds, number, known, first=True),
        max=_end(measured.bounds, number, known, first=False),
        depth_profile=tuple(depth_profile(ranges, PROFILE_BINS).tolist()),
    )


def _constant(measured: _Measured, known: Mask) -> Mask:
    """Return a mask of the files that hold one value per column, as far as the log shows."""
    constant = known.copy()
    for number, ranges in enumerate(measured.ranges):
        low, high = measured.bounds.low(number), measured.bounds.high(number)
        if pa.types.is_timestamp(low.type):
            # The log cuts timestamps to milliseconds, and maxima were raised by that much.
            widths = pc.subtract(pc.cast(high, pa.int64()), pc.cast(low, pa.int64()))
            same = pc.fill_null(pc.less_equal(widths, MILLISECOND_REST_US), fill_value=False)
            nulls = pc.fill_null(measured.bounds.null_count(number), 0)
            constant &= np.asarray(pc.and_(same, pc.equal(nulls, 0)), np.bool_)
        else:
            constant &= ranges.lo == ranges.hi
    return constant


def _end(bounds: Bounds, number: int, known: Mask, *, first: bool) -> Any:  # noqa: ANN401  a value of the column
    if not known.any():
        return None
    ranges = column_ranges(bounds.low(number), bounds.high(number)).selected(known)
    place = int(ranges.lo.argmin() if first else ranges.hi.argmax())
    values = bounds.low(number) if first else bounds.high(number)
    return values[int(np.flatnonzero(known)[place])].as_py()


def _cubes(measured: _Measured, known: Mask) -> dict[str, Any]:
    there = known & (measured.cube >= 0)
    if not there.any():
        parts = ("depth_within", "overlaps_within", "depth_between", "overlaps_between")
        return {**{f"average_{part}_cubes": None for part in parts}, "cubes": ()}
    cube, ranges = measured.cube[there], [one.selected(there) for one in measured.ranges]
    # With the cube number as outermost column, ranges of different cubes never meet.
    apart = key_ranges([KeyRanges(lo=cube, hi=cube), *ranges])
    depth, overlap = depths(apart), overlaps(apart)
    _, first, member, count = np.unique(
        cube, return_index=True, return_inverse=True, return_counts=True
    )
    files = key_ranges(ranges)
    lo, hi = np.full(len(first), np.iinfo(np.int64).max), np.zeros(len(first), np.int64)
    np.minimum.at(lo, member, files.lo)
    np.maximum.at(hi, member, files.hi)
    whole = KeyRanges(lo=lo, hi=hi)
    between = overlaps(whole)
    deepest = np.zeros(len(first), np.int64)
    np.maximum.at(deepest, member, depth)
    ones = pa.array(np.flatnonzero(there)[first])
    rows = pa.table(
        {
            "zcube_id": pc.cast(measured.files["zcube_id"].take(ones), pa.string()),
            "state": measured.states.take(ones),
            "files": count,
            "size_bytes": _sums(member, measured.sizes()[there]),
            "average_depth": np.round(_sums(member, depth) / count, _DECIMALS),
            "max_depth": deepest,
            "average_overlaps": np.round(_sums(member, overlap) / count, _DECIMALS),
            "overlapping_cubes": between,
        }
    )
    worst = ("average_depth", "overlapping_cubes", "size_bytes")
    ranked = rows.sort_by([*((name, "descending") for name in worst), ("zcube_id", "ascending")])
    return {
        "average_depth_within_cubes": _mean(depth),
        "average_overlaps_within_cubes": _mean(overlap),
        "average_depth_between_cubes": _mean(depths(whole)),
        "average_overlaps_between_cubes": _mean(between),
        "cubes": tuple(CubeHealth(**row) for row in ranked.slice(0, _CUBES_LISTED).to_pylist()),
    }


def _sums(member: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    sums = np.zeros(int(member.max()) + 1, np.int64)
    np.add.at(sums, member, values)
    return sums


def _histogram(depth: NDArray[np.int64]) -> dict[str, int]:
    # The upper bound of a bucket is the depth itself up to 16, then the next power of two.
    bucket = np.where(
        depth <= _EXACT_DEPTHS,
        depth,
        np.int64(1) << np.frexp((depth - 1).astype(np.float64))[1].astype(np.int64),
    )
    bounds = list(range(1, _EXACT_DEPTHS + 1))
    while bounds[-1] < bucket.max(initial=0):
        bounds.append(2 * bounds[-1])
    counts = dict(zip(*(part.tolist() for part in np.unique_counts(bucket)), strict=True))
    return {f"{bound:05d}": counts.get(bound, 0) for bound in bounds}


def _percentile(depth: NDArray[np.int64], percent: int) -> int | None:
    """Return the smallest depth that at least `percent` % of the files do not exceed."""
    if not len(depth):
        return None
    position = -(-percent * len(depth) // 100) - 1
    return int(np.partition(depth, position)[position])


def _mean(values: NDArray[np.int64], weights: NDArray[np.int64] | None = None) -> float | None:
    if not len(values):
        return None
    # Files of zero bytes have no weight; if there are no others, all have the same weight.
    weighs = weights is not None and weights.sum() > 0
    return round(float(np.average(values, weights=weights if weighs else None)), _DECIMALS)


# Bars for health, such as `read_ratio > 1.5`, for scripts that watch a table

_BAR: Final = re.compile(r"\s*(?P<name>.+?)\s*(?P<op><=|>=|==|!=|=|<|>)\s*(?P<value>\S+)\s*")
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthBar:
    """A limit of one number of Health; the bar is crossed if the comparison holds."""

    text: str
    name: str
    compare: Callable[[float, float], bool]
    limit: float


def parse_bar(text: str) -> HealthBar:
    """Return the bar in `NAME OPERATOR NUMBER`; NAME is a number of Health or `COLUMN.FIELD`."""
    match = _BAR.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a bar; write it like read_ratio>1.5", bar=text)
    name = match["name"]
    last = name.rpartition(".")
    known = numeric_fields(ColumnHealth if last[1] else Health)
    if last[2] not in known:
        hint = suggestion(last[2], known, what="numbers")
        raise UsageError(f"health has no number {name!r}{hint}", bar=text)
    try:
        limit = float(match["value"])
    except ValueError:
        raise UsageError(f"{match['value']!r} in {text!r} is not a number", bar=text) from None
    if not math.isfinite(limit):
        raise UsageError(f"{text!r} is never or always true; give a finite number", bar=text)
    return HealthBar(text=text, name=name, compare=_OPERATORS[match["op"]], limit=limit)


def is_crossed(bar: HealthBar, health: Health) -> bool:
    return bar.compare(require_measured(bar, health), bar.limit)


def require_measured(bar: HealthBar, health: Health) -> float:
    """Return the number of the bar, or refuse a health without it."""
    value = _value(bar, health)
    if value is not None:
        return value
    why = "; ".join(health.notes) or "no file is in a cube"
    if not health.cluster_by_keys:
        why = (
            "the table has no clustering columns; name columns with --columns, or give its queries"
            " with --workload"
        )
    elif not health.total_file_count:
        why = "there are no files"
    elif without := health.total_file_count - health.files_with_stats:
        why = (
            f"{without} of {health.total_file_count} files have no range of these columns;"
            " doctor --fix missing-statistics computes those of clustering columns"
        )
    raise UsageError(
        f"{bar.name} is not measured, so the bar {bar.text!r} says nothing: {why}", bar=bar.text
    )


def is_measured(bar: HealthBar, health: Health) -> bool:
    return _value(bar, health) is not None


def _value(bar: HealthBar, health: Health) -> float | None:
    column, _, number = bar.name.rpartition(".")
    named = {one.name.lower(): one for one in health.columns}
    of = named.get(quote_path(split_path(column)).lower()) if column else health
    if of is None:
        listed = ", ".join(known.name for known in health.columns) or "none"
        raise UsageError(
            f"health was not measured by the column {column}; its columns are {listed}"
        )
    found: float | None = getattr(of, number)
    return found
