"""Predicates over values, where they lie on axes."""

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.curve.conditions import POINTS, IntervalEnds, ValuePredicates, axis_of

DAYS = pa.array([1, 2, 2, 3, 5, 5, 5, 8, None, None])


def ends(values: list[int | None], is_open: list[bool] | None = None) -> IntervalEnds:
    return IntervalEnds(pa.array(values, pa.int64()), np.array(is_open or [False] * len(values)))


def conditions(
    low: IntervalEnds, high: IntervalEnds, *, column_weight: float = 0.0
) -> ValuePredicates:
    count = np.arange(len(low.values))
    return ValuePredicates(
        axes=np.zeros(len(count), np.int64),
        lows=(low,),
        highs=(high,),
        terms=count,
        alternatives=count,
        predicates=count,
        weights=np.ones(len(count)),
        column_weights=np.array([column_weight]),
    )


@pytest.mark.parametrize(
    ("low", "high", "is_open", "rows"),
    [
        (2, 3, (False, False), [2, 2, 3]),
        (2, 5, (True, True), [3]),
        (None, 2, (False, False), [1, 2, 2]),
        (4, None, (False, False), [5, 5, 5, 8]),
        (None, None, (False, False), [1, 2, 2, 3, 5, 5, 5, 8]),
    ],
)
def test_an_interval_covers_the_rows_that_are_in_it(
    low: int | None, high: int | None, is_open: tuple[bool, bool], rows: list[int]
) -> None:
    asked = conditions(ends([low], [is_open[0]]), ends([high], [is_open[1]]))
    (between,) = asked.borders([DAYS])
    axis, coords = axis_of(DAYS, between, max_ranges=4096, bits=16)
    grid = asked.on([axis], [DAYS], 16)
    begin, end = grid.lows[0] * (1 << 16), grid.ends[0] * (1 << 16)
    inside = (coords >= begin) & (coords < end)
    assert [day for day, found in zip(DAYS.to_pylist(), inside, strict=True) if found] == rows


def test_weights_of_columns_become_points_of_all_rows() -> None:
    values = pa.array(np.arange(6_400))
    asked = conditions(ends([5]), ends([5]), column_weight=3.0)
    axis, _ = axis_of(values, None, max_ranges=4096, bits=16)
    grid = asked.on([axis], [values], 16)
    assert len(grid.weights) == 1 + POINTS
    assert grid.weights[0] == pytest.approx(0.25)
    assert np.diff(grid.lows[1:]) == pytest.approx(1 / POINTS, rel=0.05)


def test_a_sample_without_values_has_one_place() -> None:
    nulls = pa.nulls(4, pa.int64())
    asked = conditions(ends([5]), ends([7]), column_weight=1.0)
    axis, _ = axis_of(nulls, asked.borders([nulls])[0], max_ranges=4096, bits=16)
    grid = asked.on([axis], [nulls], 16)
    assert len(grid.lows) == 1
    assert 0 <= grid.lows[0] < grid.ends[0] <= 1
