import numpy as np
import pytest

from liquidlog.rewriting.layout import local_means, rows_by_weight


def test_rows_are_taken_as_often_as_they_weigh() -> None:
    weights = np.array([1.0, 1.0, 4.0, 0.0, 2.0, 0.0])
    rows = rows_by_weight(weights * 0.75)
    assert len(rows) == len(weights)
    assert rows.tolist() == sorted(rows.tolist())
    assert np.bincount(rows, minlength=6).tolist() == pytest.approx(weights * 6 / 8, abs=1)
    assert rows_by_weight(np.ones(9)).tolist() == list(range(9))


def test_rows_weigh_what_their_neighbours_on_the_curve_take() -> None:
    order = np.random.default_rng(1).permutation(10_000)
    along = np.where(np.arange(10_000) < 1000, 4000.0, 20.0)
    measured = np.empty(10_000)
    measured[order] = along
    measured[::7] = np.nan
    weights = local_means(measured, order)[order]
    mean = 0.1 * 4000 + 0.9 * 20
    assert weights[:900] == pytest.approx(4000 / mean, rel=0.05)
    assert weights[1100:] == pytest.approx(20 / mean, rel=0.05)


def test_rows_that_are_wide_by_chance_weigh_as_others_do() -> None:
    random = np.random.default_rng(2)
    measured = np.where(random.random(50_000) < 0.05, 4000.0, 20.0)
    weights = local_means(measured, random.permutation(50_000))
    assert (weights == 1).mean() > 0.8
    assert np.abs(np.add.reduceat(weights, range(0, 50_000, 5000)) / 5000 - 1).max() < 0.1


def test_one_measured_row_is_enough() -> None:
    assert local_means(np.array([np.nan, 5.0, np.nan]), np.array([2, 0, 1])).tolist() == [1, 1, 1]
