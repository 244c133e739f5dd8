import numpy as np
import pytest

from liquidlog.curve.curves import hilbert_index, hilbert_point

SMALL_GRIDS = [(1, 8), (2, 1), (2, 6), (3, 4), (4, 3), (5, 2), (6, 2)]


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
