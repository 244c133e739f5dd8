"""Curves, the order that they give rows, and the words and grids that they are made of."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.curve.curves import (
    Curve,
    coordinate_bits,
    curve_index,
    hilbert_index,
    linear_index,
    order_rows,
    parse_curve,
    zorder_index,
)
from liquidlog.curve.grid import bytes_below, check_grid, coordinate_ends, decimals_below
from liquidlog.errors import UsageError
from support.curves import hilbert_point, linear_point, zorder_point


@pytest.mark.parametrize("curve", Curve)
@pytest.mark.parametrize(("d", "bits"), [(2, 33), (3, 22), (9, 8), (1, 0), (65, 1)])
def test_key_wider_than_64_bits_is_refused(curve: Curve, d: int, bits: int) -> None:
    with pytest.raises(UsageError):
        curve_index(np.zeros((1, d), np.uint32), bits, curve)


@pytest.mark.parametrize("d", range(1, 10))
def test_coordinate_bits_always_fit_a_key(d: int) -> None:
    assert 1 <= coordinate_bits(d) <= 16
    assert d * coordinate_bits(d) <= 64


def test_unknown_curve_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        parse_curve("peano")
    assert caught.value.fields == {"curve": "peano"}


SMALL_GRIDS = [(1, 8), (2, 1), (2, 6), (3, 4), (4, 3), (5, 2), (6, 2)]


def test_hilbert_index_on_a_4x4_grid_is_the_published_curve() -> None:
    assert hilbert_index(np.array([[2, 0]], np.uint32), 2).tolist() == [14]


@pytest.mark.parametrize(("d", "bits"), SMALL_GRIDS)
def test_hilbert_visits_every_point_once_in_single_steps(d: int, bits: int) -> None:
    points = hilbert_point(np.arange(1 << (d * bits), dtype=np.uint64), dimensions=d, bits=bits)
    assert points.max() == (1 << bits) - 1
    assert (np.abs(np.diff(points.astype(np.int64), axis=0)).sum(axis=1) == 1).all()
    assert (hilbert_index(points, bits) == np.arange(len(points))).all()


def test_bits_are_interleaved_with_the_first_column_on_top() -> None:
    points = np.array([[0, 1], [1, 0], [3, 0], [2, 3]], np.uint32)
    keys = zorder_index(points, 2)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [0b0001, 0b0010, 0b1010, 0b1101]
    assert zorder_point(keys, dimensions=2, bits=2).tolist() == points.tolist()


def test_the_first_column_is_most_significant() -> None:
    points = np.array([[0, 3], [1, 0], [2, 1]], np.uint32)
    keys = linear_index(points, 2)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [3, 4, 9]
    assert linear_point(keys, dimensions=2, bits=2).tolist() == points.tolist()


def test_order_rows_hilbert_follows_the_curve_on_a_full_grid() -> None:
    side = 16
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(side), np.arange(side)))
    order = order_rows([pa.array(x), pa.array(y)], "hilbert")
    steps = np.abs(np.diff(np.stack([x, y], axis=1)[order], axis=0)).sum(axis=1)
    assert (steps == 1).all()


def test_a_range_ends_where_the_next_sampled_one_begins() -> None:
    coords = np.array([[0], [5], [5], [2]], np.uint32)
    assert coordinate_ends(coords, 3).tolist() == [[2], [8], [8], [5]]


@pytest.mark.parametrize(("dimensions", "bits"), [(0, 1), (1, 0), (5, 13)])
def test_keys_without_bits_or_of_more_than_64_are_refused(dimensions: int, bits: int) -> None:
    with pytest.raises(UsageError):
        check_grid(np.empty((3, dimensions), np.uint32), bits)
    assert check_grid(np.empty((3, 4), np.uint32), 16) == (3, 4)


TEXTS = ["", "a", "a\0", "a\0\0", "12345678", "12345678\0", "123456789", "z", "é"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_count_the_boundaries_below_byte_by_byte(kind: pa.DataType) -> None:
    ordered = sorted(TEXTS, key=str.encode)
    found = bytes_below(pa.array(ordered, kind), pa.array(ordered, kind))
    assert found.dtype == np.uint32
    assert found.tolist() == list(range(len(ordered)))


def test_slices_of_texts_are_read_from_where_they_begin() -> None:
    texts = pa.array(["z", "b", None, "d"])
    assert bytes_below(texts.slice(1, 3), pa.array(["y", "a", "c"]).slice(1)).tolist()[::2] == [
        1,
        2,
    ]


@pytest.mark.parametrize("scale", [0, 20])
def test_decimals_of_one_word_and_of_two_count_the_boundaries_below(scale: int) -> None:
    kind = pa.decimal128(38, 0)
    ordered = [Decimal(n) * 10**scale for n in (-7, -1, 0, 1, 9)]
    found = decimals_below(pa.array(ordered, kind), pa.array(ordered, kind))
    assert found.dtype == np.uint32
    assert found.tolist() == [0, 1, 2, 3, 4]


def test_without_boundaries_none_is_below() -> None:
    assert bytes_below(pa.array(["a", None]), pa.array([], pa.string())).tolist() == [0, 0]
