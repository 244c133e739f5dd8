"""Predicted against observed bytes."""

import numpy as np

from liquidlog.advice.backtests import NOTHING_OBSERVED, Backtest, backtest


def held(weights: list[float], predicted: list[float], observed: list[float]) -> Backtest:
    arrays = (np.array(one, np.float64) for one in (weights, predicted, observed))
    return backtest(*arrays, on_version=np.ones(len(weights)), notes=[])


def test_the_median_is_over_scans_not_over_distinct_queries() -> None:
    found = held([1, 5, 1], [10, 12, 30], [10, 10, 10])
    assert (found.scans, found.predicted_bytes, found.observed_bytes) == (7, 100, 70)
    assert found.median_error == 0.2


def test_a_scan_of_nothing_is_wrong_only_if_something_was_predicted() -> None:
    assert held([1], [0], [0]).median_error == 0
    assert held([1], [5], [0]).median_error == 1


def test_what_nobody_observed_is_unknown() -> None:
    assert held([], [], []) == NOTHING_OBSERVED
    assert NOTHING_OBSERVED.median_error is None
