"""Maps of the key space against drawing every file by hand."""

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.health import maps as module
from liquidlog.clustering.health.maps import KeyMap, MappedFiles, closed, key_map
from liquidlog.spec.bounds import Bounds, ColumnBounds

Range = tuple[int, int]

_range = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda r: (min(r), max(r)))
_files = st.lists(st.tuples(_range, _range), min_size=1, max_size=20)
_cuts = st.lists(st.floats(0.02, 0.98), max_size=5).map(
    lambda cuts: [0.0, *sorted({round(cut, 2) for cut in cuts}), 1.0]
)


def mapped(files: Sequence[Sequence[Range]], *, predicted: bool = False) -> MappedFiles:
    columns = tuple(
        ColumnBounds(
            low=pa.array([low for low, _ in ranges], pa.int64()),
            high=pa.array([high for _, high in ranges], pa.int64()),
            null_count=pa.array([0] * len(ranges), pa.int64()),
        )
        for ranges in zip(*files, strict=True)
    )
    return MappedFiles(
        bounds=Bounds(columns=columns, num_records=pa.array([10] * len(files), pa.int64())),
        size_bytes=np.arange(1, len(files) + 1) * 100,
        is_predicted=np.full(len(files), predicted),
    )


def drawn(now: MappedFiles, after: MappedFiles | None, *, most: int = 400) -> KeyMap:
    with pytest.MonkeyPatch().context() as limits:
        limits.setattr(module, "BOXES_SHOWN", most)
        found = key_map(["x", "y"][: len(now.bounds.columns)], now, after)
    assert found is not None
    return found


@given(now=_files, after=_files)
def test_both_tables_have_one_scale(
    now: list[tuple[Range, Range]], after: list[tuple[Range, Range]]
) -> None:
    found = drawn(mapped(now), mapped(after))
    assert found.after is not None
    for column in range(2):
        ends = [
            (file[column][end], box[column + 2 * end], end)
            for files, side in ((now, found.now), (after, found.after))
            for file, box in zip(files, side.boxes, strict=True)
            for end in range(2)
        ]
        places = {(value, end): place for value, place, end in ends}
        assert all(places[value, end] == place for value, place, end in ends)
        ordered = [place for _, place in sorted(places.items())]
        assert all(one <= other + 1e-12 for one, other in pairwise(ordered))
        positions = [place for place, _ in found.axes[column].ticks]
        values = [value for _, value in found.axes[column].ticks]
        assert positions == sorted(positions)
        assert values == sorted(values)
        assert values[0] == min(file[column][0] for file in (*now, *after))
        assert values[-1] == max(file[column][1] for file in (*now, *after))


@given(now=_files)
def test_profiles_are_means_of_the_files_above_each_point(now: list[tuple[Range, Range]]) -> None:
    found = drawn(mapped(now), None)
    assert found.after is None
    bins = module.PROFILE_BINS
    for column in range(2):
        wanted = [
            sum(
                max(0.0, min(box[column + 2], (n + 1) / bins) - max(box[column], n / bins))
                for box in found.now.boxes
            )
            * bins
            for n in range(bins)
        ]
        assert found.now.profiles[column] == pytest.approx(wanted, abs=1e-3)


@given(now=_files)
def test_grids_count_the_boxes_in_each_cell(now: list[tuple[Range, Range]]) -> None:
    boxes = drawn(mapped(now), None).now.boxes
    found = drawn(mapped(now), None, most=0).now
    assert found.boxes == ()
    bins = module.GRID_BINS
    counts = [[0] * bins for _ in range(bins)]
    for left, low, right, high in boxes:
        for x, y in product(_cells(left, right, bins), _cells(low, high, bins)):
            counts[y][x] += 1
    assert [list(row) for row in found.grid] == counts


def _cells(low: float, high: float, bins: int) -> range:
    first = min(int(low * bins + 1e-9), bins - 1)
    last = min(max(first, int(np.ceil(high * bins - 1e-9)) - 1), bins - 1)
    return range(first, last + 1)


@given(across=_cuts, up=_cuts, seed=st.integers(0, 1000))
def test_gaps_where_no_row_was_made_up_are_closed(
    across: list[float], up: list[float], seed: int
) -> None:
    cells = [(x, y) for x in pairwise(across) for y in pairwise(up)]
    low = np.array([[x[0], y[0]] for x, y in cells])
    high = np.array([[x[1], y[1]] for x, y in cells])
    width = high - low
    shrunk = np.random.default_rng(seed).random((2, *low.shape)) * width / 20
    found = closed(low + shrunk[0], high - shrunk[1])
    area = np.prod(found[1] - found[0], axis=1)
    assert (found[0] <= low + shrunk[0] + 1e-12).all()
    assert (found[1] >= high - shrunk[1] - 1e-12).all()
    if len(up) == 2 or len(across) == 2:
        # One row of boxes: they tile the whole, and none lies on another.
        assert area.sum() == pytest.approx(1.0)
    assert area.sum() >= np.prod(width - shrunk[0] - shrunk[1], axis=1).sum() - 1e-12


@given(now=_files)
def test_both_sides_are_drawn_alike(now: list[tuple[Range, Range]]) -> None:
    found = drawn(mapped(now), mapped([*now, now[0]]), most=len(now))
    assert found.after is not None
    assert (found.now.boxes, found.after.boxes) == ((), ())
    assert len(found.now.grid) == len(found.after.grid) == module.GRID_BINS


def test_a_gap_as_wide_as_a_file_stays() -> None:
    low, high = np.array([[0.0], [0.6]]), np.array([[0.3], [0.9]])
    found = closed(low, high)
    assert found[0].tolist() == [[0.0], [0.6]]
    assert found[1].tolist() == [[0.3], [0.9]]


def test_boxes_that_do_not_meet_in_another_column_stay() -> None:
    low, high = np.array([[0.0, 0.0], [0.52, 0.6]]), np.array([[0.5, 0.4], [1.0, 1.0]])
    found = closed(low, high)
    assert found[1][0, 0] == 0.5
    assert found[0][1, 0] == 0.52


def test_nothing_is_drawn_without_bounds() -> None:
    files = mapped([((0, 1), (0, 1))])
    column = files.bounds.columns[0]
    nothing = ColumnBounds(
        low=pa.nulls(1, pa.int64()), high=pa.nulls(1, pa.int64()), null_count=column.null_count
    )
    bounds = Bounds(columns=(nothing, column), num_records=files.bounds.num_records)
    without = MappedFiles(
        bounds=bounds, size_bytes=files.size_bytes, is_predicted=files.is_predicted
    )
    assert key_map(["x", "y"], without, None) is None
    assert key_map(["x", "y"], files, without) is not None
