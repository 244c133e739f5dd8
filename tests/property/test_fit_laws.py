import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.curve.boxes import CurveGrid
from liquidlog.curve.curves import Curve, coordinate_bits, curve_index
from liquidlog.curve.layouts import key_order_bits, place_rows
from support.curves import ordinals_of, spread


@pytest.mark.parametrize("curve", [Curve.HILBERT, Curve.ZORDER])
@given(cells=st.lists(st.integers(1, 9), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_a_cell_is_one_stretch_of_the_curve(curve: Curve, cells: list[int], seed: int) -> None:
    bits = coordinate_bits(len(cells))
    coords = spread(500, len(cells), seed=seed) >> np.uint32(16 - bits)
    keys = CurveGrid(curve, bits, tuple(cells)).keys_of(coords)
    steps = (max(cells) - 1).bit_length()
    quadrants = keys >> np.uint64(len(cells) * (bits - steps))
    cell_of = (coords.astype(np.int64) * np.array(cells)) >> bits
    assert len(np.unique(cell_of, axis=0)) == len(np.unique(quadrants))
    joined = np.column_stack([cell_of, quadrants.astype(np.int64)])
    assert len(np.unique(joined, axis=0)) == len(np.unique(quadrants))


@given(seed=st.integers(0, 99), columns=st.integers(1, 4))
def test_ones_fill_the_whole_grid(seed: int, columns: int) -> None:
    coords = spread(200, columns, seed=seed)
    keys = CurveGrid(Curve.HILBERT, 16, (1,) * columns).keys_of(coords)
    assert (keys == curve_index(coords, 16, Curve.HILBERT)).all()


@pytest.mark.parametrize("curve", list(Curve))
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 63)), max_size=60),
    parts=st.integers(1, 9),
)
def test_any_rows_have_a_place(curve: Curve, rows: list[tuple[int, int]], parts: int) -> None:
    coords = np.asfortranarray(np.array(rows, np.uint32).reshape(-1, 2))
    bits = key_order_bits(2, curve)
    order, sample, cuts = place_rows(coords, ordinals_of(coords), parts, curve=curve, bits=bits)
    assert len(cuts.keys) == parts - 1
    places = cuts.parts_of(sample.keys, sample.ordinals)
    assert (np.diff(places) >= 0).all()
    found = cuts.parts_of(order.keys_of(coords), ordinals_of(coords))
    assert sorted(found.tolist()) == places.tolist()
