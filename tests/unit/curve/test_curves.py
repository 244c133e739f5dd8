"""Curves, the order that they give rows, and the words and grids that they are made of."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.curve.curves import (
    Curve,
    curve_index,
    hilbert_index,
)
from liquidlog.curve.grid import bytes_below, coordinate_ends, decimals_below
from liquidlog.errors import UsageError


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


TEXTS = ["", "a", "a\0", "a\0\0", "12345678", "12345678\0", "123456789", "z", "é"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_count_the_boundaries_below_byte_by_byte(kind: pa.DataType) -> None:
    ordered = sorted(TEXTS, key=str.encode)
    found = bytes_below(pa.array(ordered, kind), pa.array(ordered, kind))
    assert found.dtype == np.uint32
    assert found.tolist() == list(range(len(ordered)))


@pytest.mark.parametrize("scale", [0, 20])
def test_decimals_of_one_word_and_of_two_count_the_boundaries_below(scale: int) -> None:
    kind = pa.decimal128(38, 0)
    ordered = [Decimal(n) * 10**scale for n in (-7, -1, 0, 1, 9)]
    found = decimals_below(pa.array(ordered, kind), pa.array(ordered, kind))
    assert found.dtype == np.uint32
    assert found.tolist() == [0, 1, 2, 3, 4]
