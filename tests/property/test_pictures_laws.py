"""Pictures against drawing every file by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health import pictures as module
from liquidlog.clustering.health.pictures import Pictures, pictures
from liquidlog.clustering.keyspace.widths import KeySpace, key_space
from support.snapshots import FileSpec, bounds_of, snapshot_of

Range = tuple[int, int]

_range = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda r: (min(r), max(r)))
_files = st.lists(st.tuples(_range, _range), min_size=1, max_size=25)


def drawn(files: list[tuple[Range, Range]], *, most: int) -> tuple[Pictures, KeySpace]:
    specs = [
        FileSpec(
            path=f"{n:02d}",
            size=2**n + 1 if n % 2 else 100,
            bounds={"x": x, "y": y},
            cube=f"c{n % 3}" if n % 4 else None,
            zorder_by=("x", "y") if n % 4 else None,
        )
        for n, (x, y) in enumerate(files)
    ]
    snapshot = snapshot_of(specs, cluster_by=[["x"], ["y"]])
    columns = clustering_state(snapshot).columns
    bounds = bounds_of(snapshot)([column.leaf for column in columns])
    space = key_space(bounds, np.array([spec.size for spec in specs]))
    with pytest.MonkeyPatch().context() as limits:
        limits.setattr(module, "FILES_SHOWN", most)
        return pictures(snapshot, columns, bounds, min_cube_bytes=1), space


@given(files=_files)
def test_files_and_cubes_lie_where_their_rows_are(files: list[tuple[Range, Range]]) -> None:
    found, space = drawn(files, most=100)
    for axis, spans in zip(found.columns, space.columns, strict=True):
        places = [*zip(spans.low.tolist(), spans.high.tolist(), strict=True)]
        by_path = {span.label: (span.low, span.high) for span in axis.files}
        assert by_path == {f"{n:02d}": place for n, place in enumerate(places)}
        assert [span.low for span in axis.files] == sorted(span.low for span in axis.files)
        members: dict[str, list[tuple[float, float]]] = {}
        for n, place in enumerate(places):
            if n % 4:
                members.setdefault(f"c{n % 3}", []).append(place)
        assert {cube.label: (cube.low, cube.high, cube.weight) for cube in axis.cubes} == {
            name: (min(low for low, _ in inside), max(high for _, high in inside), len(inside))
            for name, inside in members.items()
        }
        assert axis.cube_count == len(members)
    assert sum(count for _, count in found.sizes) == len(files)


@given(files=_files)
def test_values_that_no_file_has_leave_no_gap(files: list[tuple[Range, Range]]) -> None:
    found, _ = drawn(files, most=100)
    for number, axis in enumerate(found.columns):
        ranges = [file[number] for file in files]
        inner = {low for low, _ in ranges} | {high for _, high in ranges}
        by_path = {span.label: span for span in axis.files}
        for n, (_, high) in enumerate(ranges):
            after = [value for value in inner if value > high]
            if not after or any(low <= high and min(after) <= top for low, top in ranges):
                continue
            for other, (low, _) in enumerate(ranges):
                if low == min(after):
                    assert by_path[f"{other:02d}"].low == pytest.approx(by_path[f"{n:02d}"].high)


@given(files=_files)
def test_grids_count_the_files_that_reach_into_a_cell(files: list[tuple[Range, Range]]) -> None:
    found, space = drawn(files, most=0)
    bins = module.GRID_BINS
    for axis, spans in zip(found.columns, space.columns, strict=True):
        assert axis.files == ()
        places = [*zip(spans.low.tolist(), spans.high.tolist(), strict=True)]
        order = sorted(range(len(files)), key=lambda n: (places[n], n))
        rows = min(module.GRID_ROWS, len(files))
        wanted = [[0] * bins for _ in range(rows)]
        for place, n in enumerate(order):
            low, high = places[n]
            reached = [
                cell
                for cell in range(bins)
                if low * bins < cell + 1 - 1e-8 and high * bins > cell + 1e-8
            ]
            point = min(int(low * bins + 1e-8), bins - 1)
            for cell in reached or [point]:
                wanted[place * rows // len(files)][cell] += 1
        assert [list(row) for row in axis.grid] == wanted
        assert max(map(max, wanted)) <= axis.files_in_row
