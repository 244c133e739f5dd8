"""Depth and overlaps against counting every pair and every point."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.clustering.keyspace.depth import column_ranges, depths, key_ranges, overlaps
from support.effort import effort

_key = st.tuples(st.integers(0, 6), st.integers(0, 3))
_ranges = st.lists(st.tuples(_key, _key).map(sorted), max_size=30)


@settings(max_examples=effort(60, 3_000))
@given(ranges=_ranges)
def test_depths_and_overlaps_of_keys(ranges: list[list[tuple[int, int]]]) -> None:
    columns = [
        column_ranges(
            pa.array([low[part] for low, _ in ranges], pa.int64()),
            pa.array([high[part] for _, high in ranges], pa.int64()),
        )
        for part in (0, 1)
    ]
    found = key_ranges(columns)
    points = [(left, right) for left in range(7) for right in range(4)]
    cover = {point: sum(low <= point <= high for low, high in ranges) for point in points}
    assert depths(found).tolist() == [
        max(cover[point] for point in points if tuple(low) <= point <= tuple(high))
        for low, high in ranges
    ]
    assert overlaps(found).tolist() == [
        sum(low <= other_high and other_low <= high for other_low, other_high in ranges) - 1
        for low, high in ranges
    ]


def test_nan_is_the_largest_number() -> None:
    low = pa.array([1.0, 5.0, float("nan")])
    high = pa.array([float("nan"), 6.0, float("nan")])
    found = key_ranges([column_ranges(low, high)])
    assert depths(found).tolist() == [2, 2, 2]
    assert overlaps(found).tolist() == [2, 1, 1]
