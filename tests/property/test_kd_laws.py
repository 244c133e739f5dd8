"""Laws of balanced k-d cuts."""

import numpy as np
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from liquidlog.curve.boxes import fit_boxes
from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.cuts import refine_cuts
from liquidlog.curve.grid import coordinate_ends
from support.curves import ordinals_of

BITS = 10
few_values = st.integers(0, 3).map(lambda value: value * 300)
coordinates = arrays.arrays(
    np.uint32,
    st.tuples(st.integers(0, 120), st.integers(1, 4)),
    elements=few_values | st.integers(0, (1 << BITS) - 1),
)


@given(coords=coordinates, parts=st.integers(1, 20), slices=st.integers(1, 3))
def test_every_row_has_one_part_in_the_order_of_keys(
    coords: np.ndarray, parts: int, slices: int
) -> None:
    boxes, sample, cuts = fit_boxes(coords, ordinals_of(coords), parts, bits=BITS)
    assert len(cuts.keys) == parts - 1
    pairs = list(zip(cuts.keys.tolist(), cuts.ordinals.tolist(), strict=True))
    assert pairs == sorted(pairs)
    keys = boxes.keys_of(coords)
    places = cuts.parts_of(sample.keys, sample.ordinals)
    assert (np.diff(places) >= 0).all()
    assert sorted(keys.tolist()) == sample.keys.tolist()
    fine = refine_cuts(sample, cuts, slices=slices).parts_of(sample.keys, sample.ordinals)
    assert (fine // slices == places).all()


@given(coords=coordinates, parts=st.integers(1, 20))
def test_inside_a_box_keys_are_in_hilbert_order_of_its_own_grid(
    coords: np.ndarray, parts: int
) -> None:
    boxes, _, _ = fit_boxes(coords, ordinals_of(coords), parts, bits=BITS)
    keys = boxes.keys_of(coords)
    shift = np.uint64(BITS * coords.shape[1])
    numbers = keys >> shift
    assert (numbers == boxes.numbers_of(coords).astype(np.uint64)).all()
    ends = coordinate_ends(coords, BITS)
    for number in np.unique(numbers):
        members = numbers == number
        lows, highs = coords[members].min(axis=0), ends[members].max(axis=0)
        inside = (coords[members] - lows) * ((1 << BITS) / (highs - lows.astype(np.float64)))
        along = curve_index(inside.astype(np.uint32), BITS, Curve.HILBERT)
        assert (keys[members] == number << shift | along).all()


@given(coords=coordinates, others=coordinates, parts=st.integers(1, 20))
def test_rows_that_were_not_sampled_stay_in_their_box(
    coords: np.ndarray, others: np.ndarray, parts: int
) -> None:
    others = np.resize(others, (len(others), coords.shape[1]))
    boxes, _, _ = fit_boxes(coords, ordinals_of(coords), parts, bits=BITS)
    numbers = boxes.keys_of(others) >> np.uint64(BITS * coords.shape[1])
    assert numbers.tolist() == boxes.numbers_of(others).tolist()


def test_drawn_rows_have_many_boxes() -> None:
    def occurs(drawn: tuple[np.ndarray, int]) -> bool:
        coords, parts = drawn
        boxes, _, _ = fit_boxes(coords, ordinals_of(coords), parts, bits=BITS)
        numbers = boxes.keys_of(coords) >> np.uint64(BITS * coords.shape[1])
        return len(np.unique(numbers)) > 4

    search = settings(max_examples=2_000, phases=[Phase.generate], database=None, deadline=None)
    find(st.tuples(coordinates, st.integers(1, 20)), occurs, settings=search)


@given(coords=coordinates, parts=st.integers(1, 20))
def test_boxes_do_not_share_a_point(coords: np.ndarray, parts: int) -> None:
    boxes, _, _ = fit_boxes(coords, ordinals_of(coords), parts, bits=BITS)
    numbers = boxes.keys_of(coords) >> np.uint64(BITS * coords.shape[1])
    ranges = [
        (coords[numbers == box].min(axis=0), coords[numbers == box].max(axis=0))
        for box in np.unique(numbers)
    ]
    for index, (low, high) in enumerate(ranges):
        for other_low, other_high in ranges[:index]:
            assert (np.maximum(low, other_low) > np.minimum(high, other_high)).any()
