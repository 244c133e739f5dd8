"""How certain a gain is: a bootstrap over the queries and over halves of the sampled rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from liquidlog.advice.halves import FEW
from liquidlog.foresee.prediction import Range
from liquidlog.foresee.sample import Floats

_DRAWS: Final = 2000
_SEED: Final = 20261122
_ENDS: Final = (0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """Where a gain and a read share lie in nine of ten cases."""

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

    Predicates are drawn with replacement, each with its weight. Every draw has the error of one
    half of the sampled rows: what that half says beside the mean of all halves.

    Args:
        weights: Of p predicates, (p,).
        cost_now: The cost of one reading now, (p,).
        cost_after: The same with the layout.
        share_after: The share of the table's bytes that one reading opens with the layout.
        halves: The last two by each half of the sampled rows.
    """
    random = np.random.default_rng(_SEED)
    count = len(weights)
    times = random.multinomial(count, np.full(count, 1 / count), _DRAWS)
    if int((weights > 0).sum()) < FEW:
        times = np.ones_like(times)  # so few queries say nothing of others
    drawn = times * weights
    cost_errors, share_errors = (
        _errors([half[number] for half in halves], count) for number in range(2)
    )
    which = random.integers(0, len(cost_errors), _DRAWS)
    before = drawn @ cost_now
    after = np.maximum(drawn @ cost_after + (drawn * cost_errors[which]).sum(axis=1), 0.0)
    total = drawn.sum(axis=1)
    is_known = (before > 0) & (total > 0)
    gains = 1 - after[is_known] / before[is_known]
    read = drawn @ share_after + (drawn * share_errors[which]).sum(axis=1)
    shares = (read[is_known] / total[is_known]).clip(0.0, 1.0)
    return Certainty(gain=_range(gains), read_share=_range(shares))


def _errors(halves: Sequence[Floats], count: int) -> Floats:
    if not halves:
        return np.zeros((1, count))
    stacked = np.stack(halves)
    return np.asarray(stacked - stacked.mean(axis=0), np.float64)


def _range(values: Floats) -> Range:
    if not len(values):
        return Range(0.0, 0.0)
    low, high = np.quantile(values, _ENDS)
    return Range(float(low), float(high))
