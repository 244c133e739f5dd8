"""Laws of the table-driven search: it is numpy's searchsorted, whatever the integers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.curve.grid import Side, positions_in

KINDS = (np.int8, np.int16, np.int32, np.int64, np.uint64)
ROWS = 70_000


def numbers(kind: type, seed: int, count: int, width: int) -> np.ndarray:
    """Return numbers around a random place of the type, its ends among them."""
    random = np.random.default_rng(seed)
    info = np.iinfo(kind)
    low = int(random.integers(info.min, info.max, dtype=kind))
    high = min(low + width, int(info.max))
    found = random.integers(low, high, count, dtype=kind, endpoint=True)
    found[: count // 50] = random.integers(info.min, info.max, count // 50, kind, endpoint=True)
    found[:2] = info.min, info.max
    return found


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, 5000),
    width=st.integers(0, 62).map(lambda bits: 1 << bits),
    side=st.sampled_from(["left", "right"]),
    skipped=st.sampled_from([0, ROWS // 25]),
)
def test_positions_are_those_of_a_binary_search(
    kind: type, seed: int, count: int, width: int, side: Side, skipped: int
) -> None:
    values = numbers(kind, seed, ROWS, width)
    bounds = np.sort(values[skipped:][:count])
    assert np.array_equal(positions_in(bounds, values, side), np.searchsorted(bounds, values, side))
