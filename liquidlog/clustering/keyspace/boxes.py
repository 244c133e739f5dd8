"""Boxes: the ranges of files in several columns together, and how many boxes meet.

A file's *box* is the product of its ranges in all columns, so two boxes meet only if the ranges
meet in every column. Keys are compared column by column, so their overlaps say little about the
columns after the first; overlaps of boxes weigh all columns alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.depth import KeyRanges, overlaps

EXACT_FILES: Final = 16_384
"""Up to this many files, every box is compared with every other."""

SAMPLED_FILES: Final = 2_000
"""The size of the sample of boxes among more files; each is compared with every other box."""

_SEED: Final = 20_240_101
_NORMAL_95_PERCENT: Final = 1.96


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
