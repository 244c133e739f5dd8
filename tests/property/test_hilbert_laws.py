import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.curve.curves import (
    Curve,
    curve_index,
    hilbert_point,
    linear_index,
    linear_point,
    zorder_index,
    zorder_point,
)

INVERSES = {
    Curve.HILBERT: hilbert_point,
    Curve.ZORDER: zorder_point,
    Curve.LINEAR: linear_point,
    Curve.KD: hilbert_point,
}

grids = st.integers(1, 9).flatmap(
    lambda d: st.integers(1, min(32, 64 // d)).flatmap(
        lambda bits: st.tuples(
            st.just(bits),
            st.lists(
                st.lists(st.integers(0, (1 << bits) - 1), min_size=d, max_size=d),
                min_size=1,
                max_size=20,
            ),
        )
    )
)


@pytest.mark.parametrize("curve", Curve)
@given(grid=grids)
def test_point_inverts_index(curve: Curve, grid: tuple[int, list[list[int]]]) -> None:
    bits, rows = grid
    coords = np.array(rows, np.uint32)
    keys = curve_index(coords, bits, curve)
    assert keys.dtype == np.uint64
    found = INVERSES[curve](keys, dimensions=coords.shape[1], bits=bits)
    assert (found == coords).all()


@pytest.mark.parametrize("curve", Curve)
@given(values=st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_one_dimension_is_the_identity(curve: Curve, values: list[int]) -> None:
    coords = np.array(values, np.uint32)[:, None]
    assert curve_index(coords, 32, curve).tolist() == values


@given(grid=grids)
def test_linear_index_orders_like_tuples(grid: tuple[int, list[list[int]]]) -> None:
    bits, rows = grid
    keys = linear_index(np.array(rows, np.uint32), bits)
    by_key = [rows[i] for i in np.argsort(keys, kind="stable")]
    assert by_key == sorted(rows)


@given(
    rows=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1),
)
def test_zorder_index_interleaves_bits_first_column_on_top(rows: list[tuple[int, int]]) -> None:
    expected = [
        int("".join(a + b for a, b in zip(f"{x:03b}", f"{y:03b}", strict=True)), 2) for x, y in rows
    ]
    assert zorder_index(np.array(rows, np.uint32), 3).tolist() == expected
