"""Depth and overlaps: how many ranges share a point, and how many ranges meet.

A file's *range* is a pair of ranks, lo <= hi, both inclusive. Ranks are small integers, so that
files can be counted instead of sorted. The *depth* of a file is the largest number of files, itself
included, that share one point of its range. Its *overlaps* are the other files whose ranges meet
its own.

A file's *box* is the product of its ranges in all columns, so two boxes meet only if the ranges
meet in every column. Keys are compared column by column, so their overlaps say little about the
columns after the first; overlaps of boxes weigh all columns alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ranks = NDArray[np.int64]

Values = TypeVar("Values", NDArray[np.int64], NDArray[np.float64])
"""Numbers of files: counts, or sums of weights."""

EXACT_FILES: Final = 16_384
"""Up to this many files, every box is compared with every other."""

SAMPLED_FILES: Final = 2_000
"""The size of the sample of boxes among more files; each is compared with every other box."""

_SEED: Final = 20_240_101
_NORMAL_95_PERCENT: Final = 1.96


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyRanges:
    """The range of keys per file: `lo` and `hi` are ranks (int64, from 0), one per file."""

    lo: Ranks
    hi: Ranks

    def __len__(self) -> int:
        return len(self.lo)

    def selected(self, mask: NDArray[np.bool_]) -> "KeyRanges":
        """Return the ranges of the files where `mask` is true."""
        return KeyRanges(lo=self.lo[mask], hi=self.hi[mask])


def column_ranges(low: pa.Array, high: pa.Array) -> KeyRanges:
    """Return the ranges of one column from its bounds, one entry per file.

    Nulls and NaN rank above every number.
    """
    return _ranked(pa.concat_arrays([low, high]))


def key_ranges(columns: Sequence[KeyRanges]) -> KeyRanges:
    """Return the range per file of the keys of several columns, outermost column first.

    A key is the tuple of a row's values, compared column by column. In the result lo <= hi.
    """
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


def depths(ranges: KeyRanges) -> Ranks:
    """Return the depth of each file (int64, at least 1, one per file)."""
    begun, ended = _counts(ranges)
    return _range_max(begun - ended[:-1], ranges.lo, ranges.hi)


def weighted_depths(ranges: KeyRanges, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the depth of each file (float64, one per file) where a file counts as its weight."""
    points = int(ranges.hi.max(initial=-1)) + 1
    begun = np.cumsum(np.bincount(ranges.lo, weights, points))
    ended = np.cumsum(np.bincount(ranges.hi, weights, points))
    return _range_max(begun - np.concatenate([[0.0], ended[:-1]]), ranges.lo, ranges.hi)


def depth_profile(ranges: KeyRanges, bins: int) -> Ranks:
    """Return the largest depth per stretch of the key range, in key order (int64, at most `bins`).

    Each stretch holds equally many distinct bounds. There are fewer stretches than `bins` if there
    are fewer distinct bounds.
    """
    begun, ended = _counts(ranges)
    cover = begun - ended[:-1]
    edges = np.unique(np.arange(bins) * len(cover) // bins)
    return np.maximum.reduceat(cover, edges) if len(cover) else cover


def _ranked(both: pa.Array) -> KeyRanges:
    rank = np.asarray(pc.rank(both, tiebreaker="dense"), np.int64) - 1
    lo, hi = np.split(rank, 2)
    return KeyRanges(lo=lo, hi=hi)


def _counts(ranges: KeyRanges) -> tuple[Ranks, Ranks]:
    """Return per rank r how many ranges begin at or before r, and how many end before r."""
    points = int(ranges.hi.max(initial=-1)) + 1
    begun = np.cumsum(np.bincount(ranges.lo, minlength=points))
    ended = np.concatenate([[0], np.cumsum(np.bincount(ranges.hi, minlength=points))])
    return np.asarray(begun, np.int64), np.asarray(ended, np.int64)


def _range_max(values: Values, first: Ranks, last: Ranks) -> Values:
    """Return max(values[first[i] : last[i] + 1]) per i, by doubling windows."""
    result = np.zeros(len(first), values.dtype)
    # floor(log2(length)); frexp is exact, whereas log2 rounds.
    level_of = np.frexp((last - first + 1).astype(np.float64))[1] - 1
    table = values
    for level in range(int(level_of.max(initial=-1)) + 1):
        here = np.flatnonzero(level_of == level)
        width = 1 << level
        result[here] = np.maximum(table[first[here]], table[last[here] - width + 1])
        table = np.maximum(table[:-width], table[width:])
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOverlaps:
    """The average number of other files whose boxes meet a file's box.

    `error` is half the width of the 95 % confidence interval of `average`, 0 if that is exact.
    `files_measured` counts the boxes that were compared with all others.
    """

    average: float
    error: float
    files_measured: int


def box_overlaps(columns: Sequence[KeyRanges]) -> BoxOverlaps:
    """Return how many boxes meet a box; `columns` holds the ranges per column, one per file.

    The result is exact for up to EXACT_FILES files. For more, it is estimated from a sample of
    SAMPLED_FILES boxes, which is the same at every call.
    """
    count = len(columns[0]) if columns else 0
    if not count:
        return BoxOverlaps(average=0.0, error=0.0, files_measured=0)
    chosen = np.arange(count)
    if count > EXACT_FILES:
        chosen = np.random.default_rng(_SEED).choice(count, SAMPLED_FILES, replace=False)
    meeting = _meeting(columns, chosen)
    return BoxOverlaps(
        average=float(meeting.mean()),
        error=_error(meeting, count),
        files_measured=len(chosen),
    )


def _error(meeting: NDArray[np.int64], count: int) -> float:
    """Return the error of the mean of a sample drawn without replacement."""
    if len(meeting) == count:
        return 0.0
    unseen = (count - len(meeting)) / (count - 1)
    spread = float(meeting.std(ddof=1))
    return _NORMAL_95_PERCENT * spread * math.sqrt(unseen / len(meeting))


def _meeting(columns: Sequence[KeyRanges], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of other boxes that meet each chosen box (int64)."""
    # The column that separates files best leaves the fewest boxes to compare in the others.
    ordered = sorted((_sound(column) for column in columns), key=lambda c: int(overlaps(c).sum()))
    order = np.argsort(ordered[0].lo, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    sides = [(c.lo[order].astype(np.int32), c.hi[order].astype(np.int32)) for c in ordered]
    low, high = sides[0]
    # Boxes before `first` end before this one begins; boxes from `last` on begin after it ends.
    first = np.searchsorted(np.maximum.accumulate(high), low[place[chosen]], side="left")
    last = np.searchsorted(low, high[place[chosen]], side="right")
    meeting = np.empty(len(chosen), np.int64)
    for number, (mine, start, stop) in enumerate(
        zip(place[chosen].tolist(), first.tolist(), last.tolist(), strict=True)
    ):
        meets = high[start:stop] >= low[mine]
        for lo, hi in sides[1:]:
            meets &= lo[start:stop] <= hi[mine]
            meets &= hi[start:stop] >= lo[mine]
        meeting[number] = np.count_nonzero(meets) - 1
    return meeting


def _sound(column: KeyRanges) -> KeyRanges:
    return KeyRanges(lo=column.lo, hi=np.maximum(column.lo, column.hi))
