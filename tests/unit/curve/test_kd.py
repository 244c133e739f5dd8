import numpy as np
import pytest

from liquidlog.curve.boxes import fit_boxes, kd_bits
from liquidlog.curve.conditions import GridPredicates
from liquidlog.curve.cuts import Reach
from support.curves import ordinals_of

BITS = 10


def test_one_point_for_all_rows_is_still_cut_evenly() -> None:
    coords = np.full((1000, 2), 7, np.uint32)
    boxes, _, cuts = fit_boxes(coords, ordinals_of(coords), 4, bits=BITS)
    places = cuts.parts_of(boxes.keys_of(coords), ordinals_of(coords))
    assert np.bincount(places).tolist() == pytest.approx([250] * 4, abs=2)


def test_a_key_has_room_for_the_number_of_a_box() -> None:
    assert [kd_bits(d, 16) for d in (1, 2, 3, 4, 8)] == [16, 16, 16, 12, 6]


@pytest.mark.parametrize("seed", range(8))
def test_boxes_that_end_where_readers_ask_are_of_half_to_one_and_a_half_files(seed: int) -> None:
    random = np.random.default_rng(seed)
    coords = random.integers(0, 1 << 16, (4_000, 2)).astype(np.uint32)
    lows = random.integers(0, 1 << 16, 30) / (1 << 16)
    one_each = np.arange(30)
    asked = GridPredicates(
        axes=(random.random(30) < 0.5).astype(np.int64),
        lows=lows,
        ends=lows + 1 / (1 << 16),
        terms=one_each,
        alternatives=one_each,
        predicates=one_each,
        weights=np.full(30, 1 / 30),
    )
    reach = Reach(asked, asked.axis_weights(2))
    boxes, _, cuts = fit_boxes(coords, ordinals_of(coords), 100, bits=16, reach=reach)
    places = cuts.parts_of(boxes.keys_of(coords), ordinals_of(coords))
    fills = np.bincount(places, minlength=100) / (len(coords) / 100)
    assert fills.min() >= 0.5
    assert fills.max() <= 1.5
