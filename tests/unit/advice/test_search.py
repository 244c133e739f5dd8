"""The search for a layout: which candidates are looked at, and which is chosen."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from liquidlog.advice import (
    BY_SHAPE,
    BY_TIME,
    MOST_FILES,
    NOT_AT_ALL,
    Candidate,
    Gain,
    Space,
    backtest,
    by_shape,
    by_time,
    certainty,
    chosen,
    folds,
    marginal_gains,
    measured_file_sizes,
    ordered,
    plainest,
    preferred_since,
    refusal,
    regrets,
    searched,
)
from liquidlog.curve.curves import Curve
from liquidlog.foresee.verdict import Opened, Range

A, B, C = ("a",), ("b",), ("c",)
ONE = np.ones(1)


def read(size_bytes: float) -> Opened[NDArray[np.float64]]:
    return Opened(bytes=np.array([size_bytes]), files=np.zeros(1))


def space(count: int, **changed: object) -> Space:
    columns = tuple((f"c{number:02}",) for number in range(count))
    settings = {"few_valued": (), "max_columns": 4, "sizes": (1 << 30,), **changed}
    return Space(columns=columns, **settings)  # type: ignore[arg-type]


def test_file_sizes_get_smaller_until_files_are_many_or_tiny() -> None:
    assert measured_file_sizes(1 << 30, 1 << 30, 1) == (1 << 30, 1 << 28, 1 << 26, 1 << 24)
    assert measured_file_sizes(1 << 50, 1 << 30, 1 << 20) == (1 << 30,)
    assert measured_file_sizes(1 << 20, 1 << 20, 1) == (1 << 20,)
    assert measured_file_sizes(120 << 20, 1 << 30, 30)[-1] == 4 << 20
    sizes = measured_file_sizes(1 << 36, 1 << 30, 64)
    assert all((1 << 36) // size <= MOST_FILES for size in sizes)


def test_few_columns_are_searched_whole_in_every_form_and_size() -> None:
    looked: list[Candidate] = []

    def measure(candidates: Sequence[Candidate]) -> Sequence[Opened[NDArray[np.float64]]]:
        looked.extend(candidates)
        return [read(100 / len(one.columns)) for one in candidates]

    wanted = space(3, few_valued=(("c01",),), sizes=(1 << 30, 1 << 28))
    found = searched(wanted, measure, ONE)
    assert len(looked) == len(set(looked)) == len(found)
    sets = (itertools.combinations(wanted.columns, size) for size in (1, 2, 3, 4))
    assert {one.columns for one in found} == {some for of_size in sets for some in of_size}
    assert {one.max_file_bytes for one in found} == {1 << 30, 1 << 28}
    assert {one.prefix for one in found} == {(), (("c01",),)}
    assert any(one.is_fitted for one in found)


def test_of_very_many_columns_sets_grow_from_the_best_ones() -> None:
    wanted = {("c03",), ("c17",)}
    looked = 0

    def measure(candidates: Sequence[Candidate]) -> Sequence[Opened[NDArray[np.float64]]]:
        nonlocal looked
        looked += len(candidates)
        return [read(100 - 40 * len(wanted & set(one.columns))) for one in candidates]

    columns = space(30)
    found = searched(columns, measure, ONE)
    assert not columns.is_whole
    assert set(chosen(regrets(found, found, ONE)).columns) == wanted
    assert looked < 500


def test_the_plainest_layout_is_chosen_that_is_never_far_from_the_best() -> None:
    plain, wide = plainest((A,), 1 << 30), plainest((A, B), 1 << 30)
    fitted = Candidate(columns=(A,), curve=Curve.LINEAR, max_file_bytes=1 << 30, is_fitted=True)
    close = {wide: read(99.5), plain: read(100), fitted: read(99.3)}
    assert chosen(regrets(close, close, ONE)) == plain
    assert ordered(close, ONE)[0] == fitted
    apart = {wide: read(90), plain: read(100)}
    assert chosen(regrets(apart, apart, ONE)) == wide
    known = {plain: read(110), fitted: read(100)}
    barely_worse = {plain: read(110), fitted: read(113)}
    assert chosen(regrets(known, barely_worse, ONE)) == fitted
    far_worse = {plain: read(110), fitted: read(130)}
    assert chosen(regrets(known, far_worse, ONE)) == plain
    assert regrets(known, far_worse, ONE)[fitted].cost == pytest.approx(130 / 110)


def test_a_correlated_column_brings_nothing_and_an_unmeasured_set_is_unknown() -> None:
    size = 1 << 30
    found = {
        plainest((A,), size): read(20),
        plainest((B,), size): read(20),
        plainest((A, B), size): read(20),
        replace(plainest((A, B), size), curve=Curve.KD): read(30),
        plainest((A, C), size): read(10),
    }
    now = float(read(100).seconds[0])
    abc = replace(space(0), columns=(A, B, C))
    gains = marginal_gains(found, plainest((A,), size), abc, ONE, now, now)
    assert gains == {A: pytest.approx(0.8), B: 0.0, C: pytest.approx(0.1)}
    gains = marginal_gains(found, plainest((A, C), size), abc, ONE, now, now)
    assert gains == {A: None, B: None, C: pytest.approx(0.1)}
    abc = replace(abc, one_order=[frozenset((A, B))])
    gains = marginal_gains(found, plainest((A, C), size), abc, ONE, now, now)
    assert gains == {A: None, B: 0.0, C: pytest.approx(0.1)}
    gains = marginal_gains(found, plainest((A, B), size), abc, ONE, now, now)
    assert gains == {A: 0.0, B: 0.0, C: None}


def test_other_columns_are_preferred_by_those_who_ask_now() -> None:
    older_newest = {A: (10.0, 80.0), B: (60.0, 20.0), C: (50.0, 90.0)}
    found = {
        plainest((path,), 1): Opened(bytes=np.array(both), files=np.zeros(2))
        for path, both in older_newest.items()
    }
    best = chosen(regrets(found, found, np.array([1.0, 0.0])))
    assert best.columns == (A,)
    assert preferred_since(found, best, np.array([0.0, 1.0])) == (plainest((B,), 1), 0.75)
    assert preferred_since(found, best, np.array([1.0, 0.0])) is None
    assert preferred_since({best: found[best]}, best, np.array([0.0, 1.0])) is None


@pytest.mark.parametrize(
    ("weights", "firsts", "lasts", "newest"),
    [([1] * 10, range(10), range(10), [0] * 7 + [1] * 3), ([10, 10], [0, 0], [100, 100], [3, 3])],
    ids=["one after the other", "all the time"],
)
def test_the_newest_queries_have_three_tenths_of_all_readings(
    weights: list[float], firsts: list[int], lasts: list[int], newest: list[float]
) -> None:
    found = by_time(np.array(weights, np.float64), firsts, lasts)
    assert found is not None
    assert found.by == BY_TIME
    assert found.newest == pytest.approx(newest, rel=1e-6)
    assert found.older + found.newest == pytest.approx(weights)


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
    few = by_shape(np.array([3.0, 1.0]), ["a", "b"], ["a = 1", "b = 1"])
    assert few.by == NOT_AT_ALL
    assert few.older.tolist() == few.newest.tolist() == [3, 1]


def test_folds_hold_each_query_once_and_what_is_asked_often_in_several() -> None:
    weights = np.array([1.0] * 8 + [3.0, 0.0, 2.5])
    shapes = ["a"] * 10 + ["b"]
    found = folds(weights, shapes, 4)
    assert found.sum(axis=0) == pytest.approx(weights)
    assert (found > 0).sum(axis=0).tolist() == [1] * 8 + [3, 0, 4]
    assert (found[:, :9].sum(axis=1) > 0).all()
    assert folds(weights, shapes, 4).tolist() == found.tolist()
    shares = folds(np.array([0.5, 0.1, 0.1]), ["a", "a", "a"], 4)
    assert (shares > 0).sum(axis=0).tolist() == [4, 1, 1]
    assert folds(np.zeros(2), ["a", "b"], 4).sum() == 0


def gain(
    after: float, low: float = 0.2, high: float = 0.9, older: float = 0.5, joined: float = 100.0
) -> Gain:
    return Gain(
        cost_now=100.0,
        cost_after=after,
        cost_joined=joined,
        range=Range(low, high),
        share_of_older=older,
    )


def test_a_layout_is_refused_for_its_reason() -> None:
    for found, why in (
        (gain(50), None),
        (
            gain(130),
            "saves the queries that chose it 50% of their wait, but other ones would wait 1.30",
        ),
        (gain(130, older=-0.2), "queries would wait 1.30 times as long"),
        (gain(95), "saves a query 5.0% of its wait, less than 10%"),
        (gain(50, joined=52), "joining small files, without clustering columns"),
        (gain(50, joined=60), None),
        (gain(50, low=-0.1), "but maybe nothing"),
    ):
        reason = refusal(found, min_gain=0.1)
        assert (reason is None) if why is None else (reason is not None and why in reason)


def test_the_range_of_many_alike_queries_is_narrow_and_that_of_unlike_ones_wide() -> None:
    count = 200
    weights, now = np.ones(count), np.full(count, 100.0)
    alike = certainty(weights, now, np.full(count, 20.0), np.full(count, 0.2))
    assert alike.gain.low == pytest.approx(0.8) == alike.gain.high
    after = np.where(np.arange(count) % 2, 0.0, 150.0)
    unlike = certainty(weights, now, after, after / 100)
    assert unlike.gain.low < 0.25 < unlike.gain.high
    some = certainty(weights[:12], now[:12], after[:12], after[:12] / 100)
    assert some.gain.low < unlike.gain.low < unlike.gain.high < some.gain.high
    few = certainty(weights[:4], now[:4], after[:4], after[:4] / 100)
    assert few.gain.low == few.gain.high == pytest.approx(0.25)


def test_halves_of_the_sample_that_disagree_widen_the_range() -> None:
    weights, now, after = np.ones(50), np.full(50, 100.0), np.full(50, 20.0)
    halves = [(np.full(50, cost), np.full(50, cost / 100)) for cost in (5.0, 20.0, 35.0)]
    found = certainty(weights, now, after, after / 100, halves)
    assert found.gain.low == pytest.approx(0.65)
    assert found.gain.high == pytest.approx(0.95)
    assert found.read_share.low < 0.2 < found.read_share.high


@pytest.mark.parametrize(
    ("weights", "predicted", "observed", "error"),
    [([1, 5, 1], [10, 12, 30], [10, 10, 10], 0.2), ([1], [0], [0], 0), ([1], [5], [0], 1)],
    ids=["median over scans, not queries", "nothing", "something for nothing"],
)
def test_predicted_bytes_are_held_against_observed_ones(
    weights: list[float], predicted: list[float], observed: list[float], error: float
) -> None:
    arrays = (np.array(one, np.float64) for one in (weights, predicted, observed))
    found = backtest(*arrays, on_version=np.ones(len(weights)), notes=[])
    sums = sum(weights), np.dot(weights, predicted), np.dot(weights, observed)
    assert (found.scans, found.predicted_bytes, found.observed_bytes) == sums
    assert found.median_error == error
