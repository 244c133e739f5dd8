"""The older queries, by which a layout is chosen, and the newest, by which it is judged."""

import numpy as np
import pytest

from liquidlog.advice.halves import BY_SHAPE, BY_TIME, NOT_AT_ALL, by_shape, by_time, folds


def test_the_newest_queries_have_three_tenths_of_all_readings() -> None:
    weights = np.ones(10)
    times = list(range(10))
    found = by_time(weights, times, times)
    assert found is not None
    assert found.by == BY_TIME
    assert found.newest.tolist() == [0] * 7 + [1] * 3
    assert (found.older + found.newest).tolist() == weights.tolist()


def test_a_query_that_was_asked_all_the_time_counts_on_both_sides() -> None:
    found = by_time(np.array([10.0, 10.0]), [0, 0], [100, 100])
    assert found is not None
    assert found.newest == pytest.approx([3, 3], rel=1e-6)
    assert found.older == pytest.approx([7, 7], rel=1e-6)


@pytest.mark.parametrize("lasts", [[], [5, None], [5, 5]])
def test_without_different_times_nothing_is_older(lasts: list[int | None]) -> None:
    assert by_time(np.ones(len(lasts)), lasts, lasts) is None


def test_without_times_every_shape_is_on_both_sides() -> None:
    shapes = ["a"] * 10 + ["b"] * 2 + ["c"]
    texts = [f"{shape} = {number}" for number, shape in enumerate(shapes)]
    found = by_shape(np.ones(13), shapes, texts)
    assert found.by == BY_SHAPE
    for shape in "abc":
        own = np.array([one == shape for one in shapes])
        assert found.older[own].sum() > 0
        assert found.newest[own].sum() > 0
    assert (found.older[12], found.newest[12]) == (0.7, 0.3)
    again = by_shape(np.ones(13), shapes, texts)
    assert again.older.tolist() == found.older.tolist()


def test_predicates_that_are_all_unlike_are_not_parted() -> None:
    found = by_shape(np.array([3.0, 1.0]), ["a", "b"], ["a = 1", "b = 1"])
    assert found.by == NOT_AT_ALL
    assert found.older.tolist() == found.newest.tolist() == [3, 1]


def test_folds_hold_each_query_once_and_what_is_asked_often_in_several() -> None:
    weights = np.array([1.0] * 8 + [3.0, 0.0, 2.5])
    shapes = ["a"] * 10 + ["b"]
    found = folds(weights, shapes, 4)
    assert found.sum(axis=0) == pytest.approx(weights)
    parts = (found > 0).sum(axis=0).tolist()
    assert parts == [1] * 8 + [3, 0, 4]
    assert (found[:, :9].sum(axis=1) > 0).all()
    assert (weights - found >= 0).all()
    assert folds(weights, shapes, 4).tolist() == found.tolist()


def test_shares_below_one_count_as_readings_beside_the_least() -> None:
    found = folds(np.array([0.5, 0.1, 0.1]), ["a", "a", "a"], 4)
    assert (found > 0).sum(axis=0).tolist() == [4, 1, 1]


def test_nothing_asked_has_empty_folds() -> None:
    assert folds(np.zeros(2), ["a", "b"], 4).sum() == 0
