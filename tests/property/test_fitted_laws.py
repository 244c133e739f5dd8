"""Laws of layouts that are fitted to readers, and of prefixes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.curve.boxes import LEAST_SHARE
from liquidlog.curve.conditions import GridPredicates
from liquidlog.curve.curves import Curve
from liquidlog.curve.cuts import asked_share
from liquidlog.curve.layouts import MOST_MORE, key_order_bits, place_rows
from support.curves import asked_of, ordinals_of, spread
from support.effort import effort

WORSE = 1.01

intervals = st.tuples(st.floats(0, 0.99), st.floats(0.001, 1)).map(
    lambda pair: (pair[0], min(1.0, pair[0] + pair[1] * (1 - pair[0])))
)
terms = st.dictionaries(st.integers(0, 1), st.lists(intervals, min_size=1, max_size=3), min_size=1)
predicates = st.lists(
    st.tuples(st.floats(0.01, 1), st.lists(terms, min_size=1, max_size=3)), min_size=1, max_size=12
)


@pytest.mark.parametrize("curve", list(Curve))
@settings(max_examples=effort(6, 60))
@given(asked=predicates.map(asked_of), seed=st.integers(0, 99), parts=st.integers(1, 40))
def test_fitted_is_never_worse_than_even(
    curve: Curve, asked: GridPredicates, seed: int, parts: int
) -> None:
    coords = spread(6_000, 2, values=[1 << 16, 1 << 16, 512, 16][seed % 4], seed=seed)
    bits = key_order_bits(2, curve, parted=True)
    rows = ordinals_of(coords)
    even, fitted = (
        place_rows(coords, rows, parts, curve=curve, bits=bits, asked=readers)
        for readers in (None, asked)
    )
    before, after = (asked_share(sample, cuts, asked) for _, sample, cuts in (even, fitted))
    assert after <= WORSE * before
    order, sample, cuts = fitted
    assert parts <= len(cuts.keys) + 1 <= parts * (1 + MOST_MORE)
    places = cuts.parts_of(sample.keys, sample.ordinals)
    assert (np.diff(places) >= 0).all()
    found = cuts.parts_of(order.keys_of(coords), rows)
    assert sorted(found.tolist()) == places.tolist()


@given(
    found=predicates,
    boxes=st.lists(st.tuples(intervals, intervals), min_size=1, max_size=8),
)
def test_a_box_is_opened_by_whom_its_intervals_meet(
    found: list[tuple[float, list[dict[int, list[tuple[float, float]]]]]],
    boxes: list[tuple[tuple[float, float], tuple[float, float]]],
) -> None:
    total = sum(weight for weight, _ in found)
    expected = [
        sum(
            weight / total
            for weight, any_of in found
            if any(
                all(
                    any(box[axis][0] < end and low < box[axis][1] for low, end in spans)
                    for axis, spans in terms.items()
                )
                for terms in any_of
            )
        )
        for box in boxes
    ]
    ends = np.array(boxes)
    assert asked_of(found).opened(ends[:, :, 0], ends[:, :, 1]) == pytest.approx(expected)


@pytest.mark.parametrize("curve", list(Curve))
@settings(max_examples=effort(10, 100))
@given(
    counts=st.lists(st.integers(1, 900), min_size=1, max_size=9),
    parts=st.integers(1, 12),
    fit=st.booleans(),
)
def test_values_with_enough_rows_have_files_of_their_own(
    *, curve: Curve, counts: list[int], parts: int, fit: bool
) -> None:
    few = np.repeat(np.arange(len(counts)) * 4_000, counts)
    coords = spread(len(few), 3)
    coords[:, 1] = np.random.default_rng(1).permutation(few)
    bits = key_order_bits(3, curve, parted=True)
    coords >>= np.uint32(16 - bits)
    asked = asked_of([(1.0, [{0: [(0.2, 0.4)]}])]) if fit else None
    order, _, cuts = place_rows(
        coords, ordinals_of(coords), parts, curve=curve, bits=bits, asked=asked, prefix=(1,)
    )
    outputs = len(cuts.keys) + 1
    assert parts <= outputs <= max(parts, len(counts), parts / LEAST_SHARE)
    files = cuts.parts_of(order.keys_of(coords), ordinals_of(coords))
    assert files.max() < outputs
    least = LEAST_SHARE * len(coords) / parts
    if min(counts) >= least:
        for file in np.unique(files):
            assert len(np.unique(coords[files == file, 1])) == 1
    by_value = [np.unique(files[coords[:, 1] == value]) for value in np.unique(coords[:, 1])]
    # Files of different values overlap only where values are grouped.
    shared = sum(map(len, by_value)) - len(np.unique(files))
    assert shared == 0 or min(counts) < least
