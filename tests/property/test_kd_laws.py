"""Laws of balanced k-d cuts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.cuts import CurveSample, choose_cuts, equal_cuts, refine_cuts
from liquidlog.curve.kd import cut_boxes, kd_bits

BITS = 10
few_values = st.integers(0, 3).map(lambda value: value * 300)
coordinates = arrays.arrays(
    np.uint32,
    st.tuples(st.integers(0, 120), st.integers(1, 4)),
    elements=few_values | st.integers(0, (1 << BITS) - 1),
)


def ordinals_of(coords: np.ndarray) -> np.ndarray:
    return np.arange(len(coords), dtype=np.uint64)


@given(coords=coordinates, parts=st.integers(1, 20), slices=st.integers(1, 3))
def test_every_row_has_one_part_in_the_order_of_keys(
    coords: np.ndarray, parts: int, slices: int
) -> None:
    boxes, sample, cuts = cut_boxes(coords, ordinals_of(coords), parts, bits=BITS)
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
def test_inside_a_box_keys_are_in_hilbert_order(coords: np.ndarray, parts: int) -> None:
    boxes, _, _ = cut_boxes(coords, ordinals_of(coords), parts, bits=BITS)
    keys = boxes.keys_of(coords)
    inside = (1 << (BITS * coords.shape[1])) - 1
    along = curve_index(coords, BITS, Curve.HILBERT)
    assert (keys & np.uint64(inside) == along).all()


@given(coords=coordinates, parts=st.integers(1, 20))
def test_boxes_do_not_share_a_point(coords: np.ndarray, parts: int) -> None:
    boxes, _, _ = cut_boxes(coords, ordinals_of(coords), parts, bits=BITS)
    numbers = boxes.keys_of(coords) >> np.uint64(BITS * coords.shape[1])
    ranges = [
        (coords[numbers == box].min(axis=0), coords[numbers == box].max(axis=0))
        for box in np.unique(numbers)
    ]
    for index, (low, high) in enumerate(ranges):
        for other_low, other_high in ranges[:index]:
            assert (np.maximum(low, other_low) > np.minimum(high, other_high)).any()


@pytest.mark.parametrize("parts", [2, 5, 24, 100])
def test_parts_of_spread_rows_are_even(parts: int) -> None:
    coords = np.random.default_rng(7).integers(0, 1 << 16, (20_000, 3)).astype(np.uint32)
    boxes, _, cuts = cut_boxes(coords, ordinals_of(coords), parts, bits=16)
    places = cuts.parts_of(boxes.keys_of(coords), ordinals_of(coords))
    counts = np.bincount(places, minlength=parts)
    assert counts.min() > 0.7 * counts.mean()
    assert counts.max() < 1.4 * counts.mean()


def test_one_point_for_all_rows_is_still_cut_evenly() -> None:
    coords = np.full((1000, 2), 7, np.uint32)
    boxes, _, cuts = cut_boxes(coords, ordinals_of(coords), 4, bits=BITS)
    places = cuts.parts_of(boxes.keys_of(coords), ordinals_of(coords))
    assert np.bincount(places).tolist() == pytest.approx([250] * 4, abs=2)


def test_boxes_are_smaller_than_segments_of_the_curve() -> None:
    coords = np.random.default_rng(3).integers(0, 1 << 16, (50_000, 2)).astype(np.uint32)
    rows = ordinals_of(coords)
    boxes, _, cuts = cut_boxes(coords, rows, 100, bits=16)
    along = curve_index(coords, 16, Curve.HILBERT)
    shares = coords / (1 << 16)
    sample = CurveSample.sort(along, rows, lows=shares, highs=shares)
    chosen = choose_cuts(sample, 100).parts_of(along, rows)
    equal = equal_cuts(sample, 100).parts_of(along, rows)
    kd = cuts.parts_of(boxes.keys_of(coords), rows)
    assert summed_sides(coords, kd) < 0.97 * summed_sides(coords, chosen)
    assert summed_sides(coords, kd) < 0.9 * summed_sides(coords, equal)


def summed_sides(coords: np.ndarray, places: np.ndarray) -> float:
    """Expected share of rows that a narrow predicate on one column reads, summed over columns."""
    total = 0.0
    for part in np.unique(places):
        inside = coords[places == part].astype(float)
        total += len(inside) * float((inside.max(axis=0) - inside.min(axis=0)).sum())
    return total


def test_a_key_has_room_for_the_number_of_a_box() -> None:
    assert [kd_bits(d, 16) for d in (1, 2, 3, 4, 8)] == [16, 16, 16, 12, 6]
