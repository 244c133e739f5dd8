"""How far predictions are from what comes true: ranges from worlds and from measured model errors.

Worlds differ as the same plan may come out differently. What all worlds share, the model itself,
is wrong by an error that was measured on real rewrites, as the standard deviation of the logarithm
of true / predicted: `benchmarks/bench_prediction.py`.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from liquidlog.simulation.ranges import Range
from liquidlog.simulation.table import Points

_DEVIATIONS: Final = 1.645
"""A normal variable is within so many standard deviations of its mean in nine of ten cases."""


@dataclass(frozen=True, slots=True)
class ModelError:
    """Standard deviations of the logarithm of true / predicted bytes.

    `one` is that of a single predicate, `mean` that of the mean over a workload.
    """

    one: float
    mean: float


SAMPLED: Final = ModelError(one=0.20, mean=0.05)
"""Rows were sampled, so that values and their correlation are known."""

STATISTICS: Final = ModelError(one=0.45, mean=0.15)
"""Only the smallest and largest values of each file are known."""

TEXTS: Final = ModelError(one=0.80, mean=0.40)
"""As STATISTICS, and a clustering column has texts, of which nothing between two ends is known."""


def model_error(*, is_sampled: bool, is_text: bool) -> ModelError:
    """Return the error of predictions; `is_text` if a clustering column has texts."""
    if is_sampled:
        return SAMPLED
    return TEXTS if is_text else STATISTICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A predicted mean, and the ends of its range."""

    likely: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """Predicted numbers, one per reader (float64), and where nine of ten true ones lie.

    `fixed` is the part of `likely` that is certain, `drawn` (readers by worlds) the other part in
    drawn worlds, and `correlated` that part where columns run along with the layout. `least` is
    what a true number has at least beside the fixed part, `most` what it has at most.
    """

    likely: Points
    fixed: Points
    drawn: Points
    correlated: Points
    least: Points
    most: Points
    low: Points
    high: Points

    @classmethod
    def of(cls, worlds: Points, fixed: Points, least: Points, most: float, error: float) -> Self:
        """Return the spread of numbers (readers by worlds) whose worlds are those of `After`."""
        likely, open_ = worlds[:, 0], np.maximum(worlds - fixed[:, np.newaxis], 0.0)
        least = np.minimum(least, open_[:, 0])
        ceiling = np.maximum(np.full(len(likely), most), open_[:, 0])
        low, high = _around(open_[:, 0], open_[:, 2:], error)
        low = np.minimum(low, open_[:, 1])
        return cls(
            likely=likely,
            fixed=fixed,
            drawn=open_[:, 2:],
            correlated=open_[:, 1],
            least=least,
            most=ceiling,
            low=fixed + np.maximum(low, least),
            high=fixed + np.minimum(high, ceiling),
        )

    def range(self, place: int) -> Range:
        """Return the range of one number."""
        likely = float(self.likely[place])
        return Range(min(float(self.low[place]), likely), max(float(self.high[place]), likely))

    def mean(self, weights: Points, error: ModelError) -> Mean:
        """Return the mean, by weights that add up to 1; errors of single readers even out."""
        likely, fixed = float(weights @ self.likely), float(weights @ self.fixed)
        part = weights * (self.likely - self.fixed)
        uneven = float((part**2).sum()) / max(float(part.sum()) ** 2, np.finfo(np.float64).tiny)
        total = float(np.hypot(error.mean, error.one * np.sqrt(uneven)))
        low, high = _around(np.array([likely - fixed]), (weights @ self.drawn)[np.newaxis], total)
        least = float(weights @ self.least)
        lowest = max(min(float(low[0]), float(weights @ self.correlated)), least)
        highest = min(float(high[0]), float(weights @ self.most))
        return Mean(
            likely=likely, low=min(fixed + lowest, likely), high=max(fixed + highest, likely)
        )


def _around(likely: Points, drawn: Points, error: float) -> tuple[Points, Points]:
    """Return the ends of ranges; `drawn` is (n, worlds), `error` that of the model."""
    floor = np.maximum(likely, np.finfo(np.float64).tiny)[:, np.newaxis]
    ratios = np.where(likely[:, np.newaxis] > 0, np.log(np.maximum(drawn, 0.05 * floor) / floor), 0)
    variance = np.mean(ratios**2, axis=1) if drawn.shape[1] else np.zeros(len(likely))
    factor = np.exp(_DEVIATIONS * np.sqrt(variance + error**2))
    return likely / factor, likely * factor
