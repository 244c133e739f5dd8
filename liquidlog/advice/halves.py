"""The queries that a layout is chosen on, and the newer ones that it is judged on.

A layout that is fitted to the older queries suits these better than any others. So that it is not
chosen for that, they are parted once more, into folds: it is fitted without the readings of one
fold and measured by them, fold by fold.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np

from liquidlog.foresee.sample import Floats

NEWEST_SHARE: Final = 0.3
"""The share of all readings that a choice is judged on: the newest."""

BY_TIME: Final = "time"
BY_SHAPE: Final = "shape"
NOT_AT_ALL: Final = "none"

FEW: Final = 10
"""Of fewer queries, none is held back: a layout is chosen and judged on all."""

_FOLDS: Final = 4
_FOLDS_OF_MANY: Final = 2
_MANY: Final = 200
"""So many queries say enough of what readers ask if a layout is fitted to half of them."""

_STEPS: Final = 60
_SEED: Final = 20261122


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Halves:
    """The weights of p predicates among the older queries and among the newest, (p,) each.

    `by` says what parts them: `time`; `shape` if times are not known, where of predicates on the
    same columns a fixed choice is judged on; `none` if there are too few, and both are all.
    """

    older: Floats
    newest: Floats
    by: str


def by_time(
    weights: Floats, firsts_ms: Sequence[int | None], lasts_ms: Sequence[int | None]
) -> Halves | None:
    """Return the queries before and after a time; None if times are not known, or there is one.

    A query was asked evenly between its first and its last time.
    """
    if not len(lasts_ms) or any(one is None for one in lasts_ms):
        return None
    last = np.array(lasts_ms, np.float64)
    pairs = zip(firsts_ms, lasts_ms, strict=True)
    first = np.array([end if start is None else start for start, end in pairs], np.float64)
    low, high = float(first.min()), float(last.max())
    if low == high:
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        newest = float(weights @ _share_after(first, last, middle)) / float(weights.sum())
        low, high = (middle, high) if newest > NEWEST_SHARE else (low, middle)
    after = _share_after(first, last, high)
    found = Halves(older=weights * (1 - after), newest=weights * after, by=BY_TIME)
    return found if found.older.sum() > 0 and found.newest.sum() > 0 else None


def _share_after(first: Floats, last: Floats, time: float) -> Floats:
    length = last - first
    inside = np.divide(last - time, length, out=np.zeros(len(last)), where=length > 0)
    return np.where(length > 0, inside.clip(0, 1), last >= time).astype(np.float64)


def by_shape(weights: Floats, shapes: Sequence[Hashable], texts: Sequence[str]) -> Halves:
    """Return two parts of the queries in which every shape is asked; of a lone one, both have some.

    A handful of queries is not parted.
    """
    older, newest = weights.copy(), weights.copy()
    if len(weights) < FEW:
        return Halves(older=older, newest=newest, by=NOT_AT_ALL)
    places: dict[Hashable, list[int]] = {}
    for number, shape in enumerate(shapes):
        places.setdefault(shape, []).append(number)
    is_parted = False
    for some in places.values():
        if len(some) == 1:
            older[some] *= 1 - NEWEST_SHARE
            newest[some] *= NEWEST_SHARE
            continue
        order = np.array(sorted(some, key=lambda number: (crc32(texts[number].encode()), number)))
        before = np.cumsum(weights[order]) - weights[order]
        is_newest = before >= (1 - NEWEST_SHARE) * weights[order].sum()
        is_newest[-1], is_newest[0] = True, False
        older[order[is_newest]], newest[order[~is_newest]] = 0.0, 0.0
        is_parted = True
    return Halves(older=older, newest=newest, by=BY_SHAPE if is_parted else NOT_AT_ALL)


def folds(weights: Floats, shapes: Sequence[Hashable], count: int | None = None) -> Floats:
    """Return the weight of each predicate in each fold, (count, p); they add up to `weights`.

    What was asked several times is in as many folds, so that it is measured by a layout that knows
    it. A lone predicate on its columns is in all: nothing else tells of them.

    Args:
        weights: Of p predicates, (p,): numbers of readings, or, if some are below 1, shares.
        shapes: The columns of each predicate.
        count: Folds; four if None, and two where the predicates are many.
    """
    random = np.random.default_rng(_SEED)
    asked = np.flatnonzero(weights > 0)
    if count is None:
        count = _FOLDS if len(asked) < _MANY else _FOLDS_OF_MANY
    found = np.zeros((count, len(weights)))
    if not len(asked):
        return found
    readings = weights / min(1.0, float(weights[asked].min()))
    places: dict[Hashable, list[int]] = {}
    for number in asked.tolist():
        places.setdefault(shapes[number], []).append(number)
    turn = 0
    for some in places.values():
        for number in random.permutation(some).tolist():
            most = count if len(some) == 1 else min(count, max(1, int(readings[number])))
            own = (turn + np.arange(most)) % count
            found[own, number] = weights[number] / most
            turn += most
    return found
