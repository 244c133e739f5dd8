"""Laws of the ratios between a table and a full rewrite of it."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.clustering.keyspace.depth import column_ranges, depths, key_ranges
from liquidlog.judgement.reached import Ratios, ratios
from liquidlog.spec.bounds import Bounds, ColumnBounds
from support.effort import effort

Ends = list[tuple[tuple[int, int], ...]]

_RANGE = st.tuples(st.integers(-50, 50), st.integers(-50, 50)).map(
    lambda ends: (min(ends), max(ends))
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Ends, list[int]]:
    """Return the ranges of files by column, and their sizes in bytes."""
    columns = draw(st.integers(1, 3))
    files = draw(st.lists(st.tuples(*[_RANGE] * columns), min_size=1, max_size=25))
    sizes = draw(
        st.lists(st.integers(1, 10**6), min_size=len(files), max_size=len(files))
        | st.just([1_000] * len(files))
    )
    return files, sizes


def ratios_of(files: Ends, sizes: list[int], *, as_text: bool = False) -> Ratios:
    columns = []
    for ranges in zip(*files, strict=True):
        sides = [[end + 50 for end in side] for side in zip(*ranges, strict=True)]
        low, high = (
            pa.array([f"{end:03d}" for end in side] if as_text else side) for side in sides
        )
        nulls = pa.array([0] * len(files), pa.int64())
        columns.append(ColumnBounds(low=low, high=high, null_count=nulls))
    bounds = Bounds(columns=tuple(columns), num_records=pa.array([1_000] * len(files)))
    by_column = [column_ranges(column.low, column.high) for column in columns]
    return ratios(
        bounds,
        np.array(sizes),
        average_depth=float(depths(key_ranges(by_column)).mean()),
        is_measured=bounds.all_known(),
    )


def found(files: Ends, sizes: list[int], *, as_text: bool = False) -> tuple[float, float]:
    made = ratios_of(files, sizes, as_text=as_text)
    assert made.depth is not None
    assert made.read is not None
    return made.depth, made.read


@settings(max_examples=effort(40, 2_000))
@given(table=tables(), as_text=st.booleans())
def test_ratios_are_positive_and_no_larger_than_all_files_together(
    table: tuple[Ends, list[int]], *, as_text: bool
) -> None:
    files, sizes = table
    depth, read = found(files, sizes, as_text=as_text)
    assert 0 < depth <= len(files)
    assert 0 <= read <= 3 * len(files)


@settings(max_examples=effort(40, 2_000))
@given(table=tables(), data=st.data())
def test_ratios_do_not_depend_on_the_order_of_files(
    table: tuple[Ends, list[int]], data: st.DataObject
) -> None:
    files, sizes = table
    places = data.draw(st.permutations(range(len(files))))
    shuffled = found([files[place] for place in places], [sizes[place] for place in places])
    assert shuffled == found(files, sizes)


@settings(max_examples=effort(40, 2_000))
@given(table=tables(), factor=st.integers(2, 1_000))
def test_ratios_do_not_depend_on_the_unit_of_sizes(
    table: tuple[Ends, list[int]], factor: int
) -> None:
    files, sizes = table
    scaled = found(files, [size * factor for size in sizes])
    assert scaled == pytest.approx(found(files, sizes), rel=0.05)


@settings(max_examples=effort(40, 2_000))
@given(count=st.integers(3, 7), columns=st.integers(1, 2))
def test_a_file_over_the_whole_range_makes_nothing_look_better(count: int, columns: int) -> None:
    steps = [(10 * number - 50, 10 * number - 41) for number in range(count)]
    files = [tuple(ranges) for ranges in product(*[steps] * columns)]
    sizes = [1_000] * len(files)
    wide = [*files, ((-50, 10 * count - 41),) * columns]
    before, after = found(files, sizes), found(wide, [*sizes, 1_000])
    assert after[0] >= 0.95 * before[0]
    assert after[1] >= 0.95 * before[1]
