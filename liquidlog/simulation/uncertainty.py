"""How far predictions are from what comes true: ranges from worlds and from measured model errors.

Worlds differ as the same plan may come out differently. What all worlds share, the model itself,
is wrong by an error that was measured on real rewrites, as the standard deviation of the logarithm
of true / predicted. Errors were fitted to some tables of `benchmarks/bench_prediction.py` and
judged by others.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from liquidlog.simulation.imagined import Points
from liquidlog.simulation.ranges import Range

_DEVIATIONS: Final = 1.645
"""A normal variable is within so many standard deviations of its mean in nine of ten cases."""


_SMALLEST_RATIO: Final = 0.05
"""Worlds in which less than this share is read count as those with this share."""

_SORTED_BYTES: Final = 1.5
"""Bytes per row that sorting may spare in each clustering column, beyond what was predicted."""

_MOST_SPARED: Final = 0.5


@dataclass(frozen=True, slots=True)
class ModelError:
    """Standard deviations of the logarithm of true / predicted.

    `one` is that of the share of files that a single predicate opens, `mean` that of the mean over
    a workload. `size` is that of the bytes of files, which depend on how well rows compress;
    `shrunk` is added to it below the prediction, as sorted rows compress better.
    """

    one: float
    mean: float
    size: float = 0.0
    shrunk: float = 0.0

    @property
    def least(self) -> float:
        """The factor by which files may be smaller than predicted, at most 1."""
        return math.exp(-_DEVIATIONS * math.hypot(self.size, self.shrunk))

    @property
    def most(self) -> float:
        """The factor by which files may be larger than predicted, at least 1."""
        return math.exp(_DEVIATIONS * self.size)

    @property
    def of_means(self) -> Self:
        """The errors of readers each of which stands for all values of a column."""
        return replace(self, one=self.mean)

    @property
    def counted(self) -> Self:
        """The errors of numbers of files, which have no size."""
        return replace(self, size=0.0, shrunk=0.0)


EXACT: Final = ModelError(one=0.0, mean=0.0, size=0.1)
"""Readers open everything."""

SAMPLED: Final = ModelError(one=0.1, mean=0.03, size=0.08)
"""Rows were sampled, so that values and their correlation are known."""

STATISTICS: Final = ModelError(one=0.45, mean=0.25, size=0.1)
"""Only the smallest and largest values of each file are known: neither how often values between
them are, nor which values of two columns meet."""

TEXTS: Final = ModelError(one=0.7, mean=0.4, size=0.1)
"""As STATISTICS, and a clustering column has texts, of which nothing between two ends is known."""


def model_error(
    *, is_sampled: bool, is_text: bool, columns: int, bytes_per_row: float | None
) -> ModelError:
    """Return the error of predictions of a plan.

    `is_text` says whether one of its clustering `columns` has texts; `bytes_per_row` is None if
    unknown.
    """
    error = SAMPLED if is_sampled else TEXTS if is_text else STATISTICS
    if not bytes_per_row:
        return error
    spared = min(_MOST_SPARED, _SORTED_BYTES * columns / bytes_per_row)
    return replace(error, shrunk=-math.log(1 - spared) / _DEVIATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A predicted mean, and its range."""

    likely: float
    range: Range


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """Predicted numbers, one per reader (float64), and where nine of ten true ones lie.

    `fixed` is the part of `likely` that is certain, as it is in files that a plan keeps. `drawn`
    (readers by worlds) is the other part in drawn worlds, and `correlated` that part where columns
    run along with the layout. `least` is what a true number has at least beside the fixed part,
    `most` what it has at most.
    """

    likely: Points
    fixed: Points
    drawn: Points
    correlated: Points
    least: Points
    most: Points
    error: ModelError

    @classmethod
    def of(
        cls, worlds: Points, fixed: Points, least: Points, most: float, error: ModelError
    ) -> Self:
        """Return the spread of numbers (readers by worlds) whose worlds are those of `After`."""
        part = np.maximum(worlds - fixed[:, np.newaxis], 0.0)
        return cls(
            likely=worlds[:, 0],
            fixed=fixed,
            drawn=part[:, 2:],
            correlated=part[:, 1] * error.least,
            least=np.minimum(least * error.least, part[:, 0]),
            most=np.maximum(np.full(len(part), most * error.most), part[:, 0]),
            error=error,
        )

    def ranges(self) -> list[Range]:
        """Return the range of each number."""
        part = self.likely - self.fixed
        low, high = self._around(part, self.drawn, self.error.one)
        low = np.maximum(np.minimum(low, self.correlated), self.least)
        return [
            Range(min(first, middle), max(last, middle))
            for first, middle, last in zip(
                (self.fixed + low).tolist(),
                self.likely.tolist(),
                (self.fixed + np.minimum(high, self.most)).tolist(),
                strict=True,
            )
        ]

    def mean(self, weights: Points) -> Mean:
        """Return the mean, by weights that add up to 1; errors of single readers even out."""
        fixed, part = float(weights @ self.fixed), weights * (self.likely - self.fixed)
        total = float(part.sum())
        uneven = float(np.linalg.norm(part)) / total if total else 0.0
        error = math.hypot(self.error.mean, self.error.one * uneven)
        low, high = self._around(np.array([total]), (weights @ self.drawn)[np.newaxis], error)
        correlated, least, most = (
            float(weights @ each) for each in (self.correlated, self.least, self.most)
        )
        lowest, highest = max(min(float(low[0]), correlated), least), min(float(high[0]), most)
        likely = fixed + total
        ends = min(fixed + lowest, likely), max(fixed + highest, likely)
        return Mean(likely=likely, range=Range(*ends))

    def _around(self, likely: Points, drawn: Points, error: float) -> tuple[Points, Points]:
        """Return the ends of ranges around `likely` (n,), drawn in (n, worlds)."""
        floor = np.maximum(likely, np.finfo(np.float64).tiny)[:, np.newaxis]
        ratios = np.log(np.maximum(drawn, _SMALLEST_RATIO * floor) / floor)
        ratios = np.where(likely[:, np.newaxis] > 0, ratios, 0.0)
        squares = np.mean(ratios**2, axis=1) if drawn.shape[1] else np.zeros(len(likely))
        squares += error**2 + self.error.size**2
        low = np.exp(-_DEVIATIONS * np.sqrt(squares + self.error.shrunk**2))
        return likely * low, likely * np.exp(_DEVIATIONS * np.sqrt(squares))
