"""Whether the model fits: predicted against observed bytes of recorded scans."""

from dataclasses import dataclass

import numpy as np

from liquidlog.foresee.sample import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Predicted and observed bytes of the scans whose engine counted them, summed over them.

    `median_error` is the median over the scans of the predicted bytes' distance from the observed
    ones, as a share of these; None if nothing was observed. `scans_on_their_version` is the number
    of scans that were predicted on the files that the table had then; the others on today's.
    """

    scans: int
    predicted_bytes: int | None
    observed_bytes: int | None
    median_error: float | None
    scans_on_their_version: int
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the fields as plain JSON values."""
        return {
            "scans": self.scans,
            "predicted_bytes": self.predicted_bytes,
            "observed_bytes": self.observed_bytes,
            "median_error": self.median_error,
            "scans_on_their_version": self.scans_on_their_version,
            "notes": list(self.notes),
        }


NOTHING_OBSERVED = Backtest(
    scans=0,
    predicted_bytes=None,
    observed_bytes=None,
    median_error=None,
    scans_on_their_version=0,
)
"""The back-test of a workload whose sources do not tell what was read."""


def backtest(
    weights: Floats, predicted: Floats, observed: Floats, *, on_version: Floats, notes: list[str]
) -> Backtest:
    """Return the back-test of scans; all arrays have one entry per predicate.

    A scan that was seen to read nothing counts as wrong by its whole if anything was predicted.

    Args:
        weights: Scans of each predicate.
        predicted: Bytes that one scan reads, by the model.
        observed: Bytes that one scan read.
        on_version: 1 where the prediction is on the files that the table had then, else 0.
        notes: What to know about it.
    """
    if not len(weights):
        return NOTHING_OBSERVED
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
