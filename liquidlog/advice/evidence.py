"""The evidence for a layout: older queries choose it, newer ones judge it and its gain.

A layout that is fitted to the older queries suits these better than any others. So that this does
not decide the choice, they are split into folds: a layout is fitted without one fold and measured
by it, fold by fold.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from liquidlog.foresee.reads import Range
from liquidlog.foresee.sample import Floats

_NEWEST_SHARE: Final = 0.3
"""The share of all queries, the newest, that judges a choice."""

BY_TIME: Final = "time"
BY_SHAPE: Final = "shape"
NOT_AT_ALL: Final = "none"

FEW: Final = 10
"""Fewer queries are not split: all of them choose and judge."""

_FOLDS: Final = 4
_FOLDS_OF_MANY: Final = 2
_MANY: Final = 200
"""From so many queries on, half of them are enough to fit a layout."""

_STEPS: Final = 60
_SEED: Final = 20261122


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Halves:
    """The weights of p predicates among the older queries and among the newest, (p,) each.

    `by` says what splits them: `time`; `shape` if times are unknown, so that predicates on the same
    columns are split in a fixed way; `none` if there are too few, and both halves are all.
    """

    older: Floats
    newest: Floats
    by: str


def by_time(
    weights: Floats, firsts_ms: Sequence[int | None], lasts_ms: Sequence[int | None]
) -> Halves | None:
    """Return the queries before and after a time; None if times are unknown, or all the same."""
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
        low, high = (middle, high) if newest > _NEWEST_SHARE else (low, middle)
    after = _share_after(first, last, high)
    found = Halves(older=weights * (1 - after), newest=weights * after, by=BY_TIME)
    return found if found.older.sum() > 0 and found.newest.sum() > 0 else None


def _share_after(first: Floats, last: Floats, time: float) -> Floats:
    length = last - first
    inside = np.divide(last - time, length, out=np.zeros(len(last)), where=length > 0)
    return np.where(length > 0, inside.clip(0, 1), last >= time).astype(np.float64)


def by_shape(weights: Floats, shapes: Sequence[Hashable], texts: Sequence[str]) -> Halves:
    """Return two halves that both have every shape; few queries are not split."""
    older, newest = weights.copy(), weights.copy()
    is_parted = False
    for some in _places(shapes).values() if len(weights) >= FEW else ():
        if len(some) == 1:
            older[some] *= 1 - _NEWEST_SHARE
            newest[some] *= _NEWEST_SHARE
            continue
        order = np.array(sorted(some, key=lambda number: (crc32(texts[number].encode()), number)))
        before = np.cumsum(weights[order]) - weights[order]
        is_newest = before >= (1 - _NEWEST_SHARE) * weights[order].sum()
        is_newest[-1], is_newest[0] = True, False
        older[order[is_newest]], newest[order[~is_newest]] = 0.0, 0.0
        is_parted = True
    return Halves(older=older, newest=newest, by=BY_SHAPE if is_parted else NOT_AT_ALL)


def _places(shapes: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for number, shape in enumerate(shapes):
        places.setdefault(shape, []).append(number)
    return places


def folds(weights: Floats, shapes: Sequence[Hashable], count: int | None = None) -> Floats:
    """Return the weight of each predicate in each fold, (count, p); they add up to `weights`.

    A predicate that was asked several times is in as many folds, so that a layout that knows it
    measures it. A lone predicate on its columns is in all: no other tells of them. `weights` count
    queries, or, if some are below 1, are shares. There are four folds, two if predicates are many.
    """
    random = np.random.default_rng(_SEED)
    asked = np.flatnonzero(weights > 0)
    if count is None:
        count = _FOLDS if len(asked) < _MANY else _FOLDS_OF_MANY
    found = np.zeros((count, len(weights)))
    if not len(asked):
        return found
    readings = weights / min(1.0, float(weights[asked].min()))
    turn = 0
    for some in _places([shapes[number] for number in asked.tolist()]).values():
        for number in random.permutation(asked[some]).tolist():
            most = count if len(some) == 1 else min(count, max(1, int(readings[number])))
            own = (turn + np.arange(most)) % count
            found[own, number] = weights[number] / most
            turn += most
    return found


# How certain a gain is: a bootstrap over the queries and over halves of the sampled rows

_DRAWS: Final = 2000
_ENDS: Final = (0.05, 0.95)


class Certainty(NamedTuple):
    """The ranges of a gain and of a read share in nine of ten cases."""

    gain: Range
    read_share: Range


def certainty(
    weights: Floats,
    cost_now: Floats,
    cost_after: Floats,
    share_after: Floats,
    halves: Sequence[tuple[Floats, Floats]] = (),
) -> Certainty:
    """Return the ranges of a gain and of a read share, by a bootstrap.

    All arrays have one entry per predicate: the cost of one query now and with the layout, and the
    share of the table's bytes that it then opens. `halves` has the last two by each half of the
    sampled rows. Predicates are drawn with replacement, with their weights; every draw adds the
    distance of one half from the mean of all halves.
    """
    random = np.random.default_rng(_SEED)
    count = len(weights)
    times = random.multinomial(count, np.full(count, 1 / count), _DRAWS)
    if int((weights > 0).sum()) < FEW:
        times = np.ones_like(times)  # so few queries say nothing of others
    drawn = times * weights
    stacked = np.array(halves or [(np.zeros(count), np.zeros(count))])
    errors = stacked - stacked.mean(axis=0)
    which = random.integers(0, len(errors), _DRAWS)
    before = drawn @ cost_now
    after = np.maximum(drawn @ cost_after + (drawn * errors[which, 0]).sum(axis=1), 0.0)
    total = drawn.sum(axis=1)
    is_known = (before > 0) & (total > 0)
    if not is_known.any():
        return Certainty(gain=Range(0.0, 0.0), read_share=Range(0.0, 0.0))
    gains = 1 - after[is_known] / before[is_known]
    read = drawn @ share_after + (drawn * errors[which, 1]).sum(axis=1)
    shares = (read[is_known] / total[is_known]).clip(0.0, 1.0)
    ends = (Range(*map(float, np.quantile(values, _ENDS))) for values in (gains, shares))
    return Certainty(*ends)


# Whether a layout gains enough to set its columns, in one sentence

MIN_GAIN: Final = 0.1
"""The default least gain of a recommended layout: a tenth of the cost of reading."""

NO_COLUMNS: Final = "joining small files, without clustering columns,"
OWN_COLUMNS: Final = "laying rows out anew by the columns that the table has"
PARTITIONS: Final = "joining small files inside partitions"
"""What makes fewer files without other columns."""

_LONGER: Final = 1.005
"""Two decimals show a longer wait only from this ratio on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain of a layout for the readers that judge it.

    `cost_now` and `cost_after` are the mean seconds that one query waits for the store;
    `cost_joined` is the cost if small files were only joined, at most `cost_now`; `joins` says how.
    `range` holds the gain, a share of `cost_now`. `share_of_older` is the gain of the queries that
    chose the layout, which are older than those that judge it if `is_by_time`.
    """

    cost_now: float
    cost_after: float
    cost_joined: float
    range: Range
    share_of_older: float
    joins: str = NO_COLUMNS
    is_by_time: bool = False

    @property
    def share(self) -> float:
        """The gain as a share of the cost now."""
        return 1 - self.cost_after / self.cost_now if self.cost_now > 0 else 0.0


def refusal(gain: Gain, *, min_gain: float) -> str | None:
    """Return why a layout does not gain enough, None if it does."""
    if gain.share <= 0:
        times = gain.cost_after / gain.cost_now if gain.cost_now else 1.0
        would = f"would wait {times:.2f} times as long"
        would = "would gain nothing" if times < _LONGER else would
        if gain.share_of_older <= 0:
            return f"with the best layout that was measured, queries {would}"
        return (
            f"the best layout saves the queries that chose it {gain.share_of_older:.0%} of their"
            f" wait, but {'newer' if gain.is_by_time else 'other'} ones {would}"
        )
    if gain.share < min_gain:
        return f"the best layout gains {gain.share:.1%}, less than {min_gain:.0%}"
    beyond_joining = 1 - gain.cost_after / gain.cost_joined if gain.cost_joined > 0 else 0.0
    if beyond_joining < min_gain:
        return (
            f"{gain.joins} saves a query {1 - gain.cost_joined / gain.cost_now:.0%} of its wait,"
            f" and the best layout {gain.share:.0%}"
        )
    if gain.range.low <= 0:
        return (
            f"the best layout may gain nothing: {gain.share:.0%}, between {gain.range.low:.0%} and"
            f" {gain.range.high:.0%} in nine of ten cases"
        )
    return None


# Whether the model fits: predicted against observed bytes of recorded scans


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """The sums of predicted and observed bytes over the scans whose engine counted them.

    `median_error` is the scans' median distance of predicted from observed bytes, as a share of
    these; None if nothing was observed. `scans_on_their_version` counts the scans that were
    predicted on the files of their time; the others on today's.
    """

    scans: int = 0
    predicted_bytes: int | None = None
    observed_bytes: int | None = None
    median_error: float | None = None
    scans_on_their_version: int = 0
    notes: tuple[str, ...] = ()


def backtest(
    weights: Floats, predicted: Floats, observed: Floats, *, on_version: Floats, notes: list[str]
) -> Backtest:
    """Return the back-test of scans; all arrays have one entry per predicate.

    Bytes are those of one scan. `on_version` is 1 if its prediction is on the files of its time,
    else 0. The error of a scan that read nothing is 1 if any bytes were predicted.
    """
    if not len(weights):
        return Backtest()
    apart = np.abs(predicted - observed)
    errors = np.divide(apart, observed, out=(apart > 0).astype(np.float64), where=observed > 0)
    order = np.argsort(errors, kind="stable")
    before = np.cumsum(weights[order])
    middle = order[np.searchsorted(before, before[-1] / 2)]
    return Backtest(
        scans=round(float(weights.sum())),
        predicted_bytes=round(float(weights @ predicted)),
        observed_bytes=round(float(weights @ observed)),
        median_error=round(float(errors[middle]), 6),
        scans_on_their_version=round(float(weights @ on_version)),
        notes=tuple(notes),
    )
