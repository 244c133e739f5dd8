"""The search for a layout: which candidates are looked at, and which is chosen."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from liquidlog.advice.search import (
    MOST_FILES,
    Candidate,
    Space,
    chosen,
    marginal_gains,
    measured_file_sizes,
    ordered,
    plainest,
    preferred_since,
    regrets,
    searched,
    sets_of_columns,
)
from liquidlog.curve.curves import Curve
from liquidlog.foresee.reads import Readings

A, B, C = ("a",), ("b",), ("c",)
ONE = np.ones(1)


def read(size_bytes: float) -> Readings:
    return Readings(bytes=np.array([size_bytes]), files=np.zeros(1))


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

    def measure(candidates: Sequence[Candidate]) -> Sequence[Readings]:
        looked.extend(candidates)
        return [read(100 / len(one.columns)) for one in candidates]

    wanted = space(3, few_valued=(("c01",),), sizes=(1 << 30, 1 << 28))
    found = searched(wanted, measure, ONE)
    assert len(looked) == len(set(looked)) == len(found)
    assert {one.columns for one in found} == set(sets_of_columns(wanted.columns, 4))
    assert {one.max_file_bytes for one in found} == {1 << 30, 1 << 28}
    assert {one.prefix for one in found} == {(), (("c01",),)}
    assert any(one.is_fitted for one in found)


def test_of_very_many_columns_sets_grow_from_the_best_ones() -> None:
    wanted = {("c03",), ("c17",)}
    looked = 0

    def measure(candidates: Sequence[Candidate]) -> Sequence[Readings]:
        nonlocal looked
        looked += len(candidates)
        return [read(100 - 40 * len(wanted & set(one.columns))) for one in candidates]

    columns = space(30)
    found = searched(columns, measure, ONE)
    assert not columns.is_whole
    assert set(chosen(regrets(found, found, ONE)).columns) == wanted
    assert looked < 500


def test_of_layouts_that_are_as_good_the_plainest_is_chosen() -> None:
    plain, wide = plainest((A,), 1 << 30), plainest((A, B), 1 << 30)
    fitted = Candidate(columns=(A,), curve=Curve.LINEAR, max_file_bytes=1 << 30, is_fitted=True)
    close = {wide: read(99.5), plain: read(100), fitted: read(99.3)}
    assert chosen(regrets(close, close, ONE)) == plain
    assert ordered(close, ONE)[0] == fitted
    apart = {wide: read(90), plain: read(100)}
    assert chosen(regrets(apart, apart, ONE)) == wide


def test_a_layout_is_chosen_that_is_never_far_from_the_best() -> None:
    plain = plainest((A,), 1 << 30)
    fitted = Candidate(columns=(A,), curve=Curve.LINEAR, max_file_bytes=1 << 30, is_fitted=True)
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
        plainest((path,), 1): Readings(bytes=np.array(both), files=np.zeros(2))
        for path, both in older_newest.items()
    }
    best = chosen(regrets(found, found, np.array([1.0, 0.0])))
    assert best.columns == (A,)
    assert preferred_since(found, best, np.array([0.0, 1.0])) == (plainest((B,), 1), 0.75)
    assert preferred_since(found, best, np.array([1.0, 0.0])) is None
    assert preferred_since({best: found[best]}, best, np.array([0.0, 1.0])) is None
