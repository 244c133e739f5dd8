"""Curves, the order that they give rows, and the words and grids that they are made of."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.curve.curves import (
    Axis,
    Curve,
    GridPredicates,
    IntervalEnds,
    Reach,
    ValuePredicates,
    coordinate_ends,
    curve_index,
    hilbert_index,
    range_boundaries,
    range_ids,
)
from liquidlog.curve.layouts import CurveRows, fit_boxes
from liquidlog.errors import ClusteringColumnError, UsageError


@pytest.mark.parametrize("curve", Curve)
@pytest.mark.parametrize(("d", "bits"), [(2, 33), (3, 22), (9, 8), (1, 0), (65, 1)])
def test_key_wider_than_64_bits_is_refused(curve: Curve, d: int, bits: int) -> None:
    with pytest.raises(UsageError):
        curve_index(np.zeros((1, d), np.uint32), bits, curve)


def test_hilbert_index_on_a_4x4_grid_is_the_published_curve() -> None:
    assert hilbert_index(np.array([[2, 0]], np.uint32), 2).tolist() == [14]


def test_a_range_ends_where_the_next_sampled_one_begins() -> None:
    coords = np.array([[0], [5], [5], [2]], np.uint32)
    assert coordinate_ends(coords, 3).tolist() == [[2], [8], [8], [5]]


@pytest.mark.parametrize(("low", "end"), [(0, 3 / 8), (3 / 8, 1), (1 / 8, 7 / 8)])
def test_planes_are_where_queries_begin_or_end(low: float, end: float) -> None:
    coords = np.array([*product(range(8), repeat=2)] * 8, np.uint32)
    nothing, ordinals = np.zeros(1, np.int64), np.arange(512, dtype=np.uint64)
    asked = GridPredicates(
        *(nothing, np.full(1, low), np.full(1, end)), *(nothing,) * 3, weights=np.ones(1)
    )
    reach = Reach(asked, np.full(2, 0.5))
    order, _, cuts = fit_boxes(CurveRows.of(coords, ordinals, 3), 8, reach=reach)
    parts = cuts.parts_of(order.keys_of(coords), ordinals)
    inside = (coords[:, 0] >= 8 * low) & (coords[:, 0] < 8 * end)
    found = set(parts[inside])
    assert len(found) == 8 * (end - low)
    assert found == set(range(min(found), max(found) + 1)) == set(range(8)) - set(parts[~inside])
    assert np.bincount(parts).min() >= 48


# Predicates over values, where they lie on axes.


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


def test_an_interval_covers_the_rows_that_are_in_it() -> None:
    for low, high, is_open, rows in (
        (2, 3, (False, False), [2, 2, 3]),
        (2, 5, (True, True), [3]),
        (None, 2, (False, False), [1, 2, 2]),
        (4, None, (False, False), [5, 5, 5, 8]),
        (None, None, (False, False), [1, 2, 2, 3, 5, 5, 5, 8]),
    ):
        asked = conditions(ends([low], [is_open[0]]), ends([high], [is_open[1]]))
        (between,) = asked.borders([DAYS])
        axis, coords = Axis.fit(DAYS, between, max_ranges=4096, bits=16)
        grid = asked.on([axis], [DAYS], 16)
        begin, end = grid.lows[0] * (1 << 16), grid.ends[0] * (1 << 16)
        inside = (coords >= begin) & (coords < end)
        assert [day for day, found in zip(DAYS.to_pylist(), inside, strict=True) if found] == rows


def test_a_sample_without_values_has_one_place() -> None:
    nulls = pa.nulls(4, pa.int64())
    asked = conditions(ends([5]), ends([7]), column_weight=1.0)
    axis, _ = Axis.fit(nulls, asked.borders([nulls])[0], max_ranges=4096, bits=16)
    grid = asked.on([axis], [nulls], 16)
    assert len(grid.lows) == 1
    assert 0 <= grid.lows[0] < grid.ends[0] <= 1


@pytest.mark.parametrize(
    "kind", [pa.bool_(), pa.binary(), pa.list_(pa.int32()), pa.struct([("a", pa.int32())])], ids=str
)
def test_type_without_an_order_is_refused(kind: pa.DataType) -> None:
    column = pa.nulls(2, kind)
    with pytest.raises(ClusteringColumnError):
        range_boundaries(column, 10)
    with pytest.raises(ClusteringColumnError):
        range_ids(column, column)
