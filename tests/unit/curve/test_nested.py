import numpy as np
import pytest

from liquidlog.curve.curves import Curve, curve_index
from liquidlog.curve.nested import GroupSizes, row_group_starts, rows_until_cut

SIDE_BITS = 10


def row_groups(keys: np.ndarray, sizes: GroupSizes, level_bits: int = 1) -> list[slice]:
    """Cut sorted keys to the end."""
    found, start = [], 0
    while len(keys) - start > sizes.most:
        rows = rows_until_cut(keys[start : start + sizes.ahead], sizes, level_bits=level_bits)
        found.append(slice(start, start + rows))
        start += rows
    return [*found, slice(start, len(keys))]


def sorted_points(rows: int, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    coords = np.random.default_rng(1).integers(0, 1 << SIDE_BITS, (rows, 2)).astype(np.uint32)
    keys = curve_index(coords, SIDE_BITS, curve)
    order = np.argsort(keys, kind="stable")
    return coords[order].astype(np.int64), keys[order]


def opened(coords: np.ndarray, groups: list[slice]) -> float:
    """Share of the rows that a predicate for one value of a column opens, averaged over columns."""
    sides = [np.ptp(coords[group], axis=0) + 1 for group in groups]
    rows = [group.stop - group.start for group in groups]
    return float(np.average(np.array(sides) / (1 << SIDE_BITS), axis=0, weights=rows).mean())


@pytest.mark.parametrize("curve", [Curve.HILBERT, Curve.ZORDER])
def test_row_groups_of_spread_rows_are_whole_quadrants(curve: Curve) -> None:
    coords, keys = sorted_points(200_000, curve)
    groups = row_groups(keys, GroupSizes.wide(4_000))
    assert len(groups) == 64
    assert opened(coords, groups) == pytest.approx(1 / 8, rel=0.02)
    even = [slice(start, start + 4_000) for start in range(0, 200_000, 4_000)]
    assert opened(coords, groups) < 0.75 * opened(coords, even)


def test_first_column_decides_where_rows_are_sorted_column_by_column() -> None:
    _, keys = sorted_points(100_000, Curve.LINEAR)
    groups = row_groups(keys, GroupSizes.wide(1_000), level_bits=SIDE_BITS)
    firsts = keys >> np.uint64(SIDE_BITS)
    assert all(firsts[group.start - 1] != firsts[group.start] for group in groups[1:])
    sizes = [group.stop - group.start for group in groups[:-1]]
    # Not at the roundest number in reach, but next to the usual size.
    assert np.std(sizes) < 60


def test_equal_keys_are_kept_together_where_they_fit() -> None:
    keys = np.repeat(np.arange(40, dtype=np.uint64), 700)
    groups = row_groups(keys, GroupSizes.wide(1_600), level_bits=64)
    assert {group.start % 700 for group in groups} == {0}


def test_rows_of_one_key_are_cut_by_number() -> None:
    sizes = GroupSizes.wide(1_000)
    assert rows_until_cut(np.zeros(5_000, np.uint64), sizes) == sizes.usual


def test_sizes_leave_room_for_a_quadrant_or_hardly_any() -> None:
    assert GroupSizes.wide(65_536) == GroupSizes(24_576, 65_536, 24_576)
    assert GroupSizes.narrow(1_200) == GroupSizes(1_000, 1_200, 1)
    assert GroupSizes.wide(65_536).usual == 40_960
    assert GroupSizes.wide(1) == GroupSizes(1, 1, 1)


@pytest.mark.parametrize("sizes", [GroupSizes.wide(4_000), GroupSizes.narrow(1_500)])
def test_row_groups_begin_where_the_ones_before_end(sizes: GroupSizes) -> None:
    _, keys = sorted_points(50_000, Curve.HILBERT)
    starts = row_group_starts(keys, sizes)
    assert starts.tolist() == [group.start for group in row_groups(keys, sizes)]
    assert not len(row_group_starts(keys[:0], sizes))


def test_sampled_rows_are_cut_where_all_rows_are() -> None:
    coords, keys = sorted_points(200_000, Curve.HILBERT)
    sizes = GroupSizes.wide(4_000)
    starts = row_group_starts(keys[::20], sizes.in_sampled_rows(20))
    ends = [*(20 * starts).tolist()[1:], len(keys)]
    sampled = [slice(*pair) for pair in zip((20 * starts).tolist(), ends, strict=True)]
    assert len(sampled) == 64
    assert opened(coords, sampled) == pytest.approx(1 / 8, rel=0.1)
    assert sizes.in_sampled_rows(1e9) == GroupSizes(1, 1, 1)
