import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.curve.curves import Curve, coordinate_bits, curve_index, parse_curve
from liquidlog.curve.hilbert import hilbert_index, hilbert_point
from liquidlog.curve.linear import linear_index, linear_point
from liquidlog.curve.zorder import zorder_index, zorder_point
from liquidlog.errors import UsageError

SMALL_GRIDS = [(1, 8), (2, 1), (2, 6), (3, 4), (4, 3), (5, 2), (6, 2)]
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


def whole_curve(d: int, bits: int) -> np.ndarray:
    return hilbert_point(np.arange(1 << (d * bits), dtype=np.uint64), dimensions=d, bits=bits)


def test_hilbert_index_on_a_4x4_grid_is_the_published_curve() -> None:
    assert hilbert_index(np.array([[2, 0]], np.uint32), 2).tolist() == [14]


@pytest.mark.parametrize(("d", "bits"), SMALL_GRIDS)
def test_hilbert_visits_every_point_once(d: int, bits: int) -> None:
    points = whole_curve(d, bits)
    assert len(np.unique(points, axis=0)) == 1 << (d * bits)
    assert points.max() == (1 << bits) - 1


@pytest.mark.parametrize(("d", "bits"), SMALL_GRIDS)
def test_hilbert_neighbours_differ_by_one_in_one_coordinate(d: int, bits: int) -> None:
    steps = np.abs(np.diff(whole_curve(d, bits).astype(np.int64), axis=0))
    assert (steps.sum(axis=1) == 1).all()


@pytest.mark.parametrize(("d", "bits"), SMALL_GRIDS)
def test_hilbert_index_inverts_hilbert_point_on_the_whole_curve(d: int, bits: int) -> None:
    points = whole_curve(d, bits)
    assert (hilbert_index(points, bits) == np.arange(len(points))).all()


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
    with pytest.raises(UsageError, match="hilbert, zorder, linear"):
        parse_curve("peano")
