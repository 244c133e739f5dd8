"""Pictures against drawing every file by hand."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health import pictures as module
from liquidlog.clustering.health.pictures import Pictures, pictures
from support.snapshots import FileSpec, bounds_of, snapshot_of

Range = tuple[int, int]

_range = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda r: (min(r), max(r)))
_files = st.lists(st.tuples(_range, _range), min_size=1, max_size=25)


def drawn(files: list[tuple[Range, Range]], *, most: int) -> Pictures:
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
    with pytest.MonkeyPatch().context() as limits:
        limits.setattr(module, "FILES_SHOWN", most)
        return pictures(snapshot, columns, bounds, min_cube_bytes=1)


def positions(values: list[Range]) -> dict[int, int]:
    return {value: rank for rank, value in enumerate(sorted({end for r in values for end in r}))}


@given(files=_files)
def test_files_and_cubes_lie_where_their_bounds_rank(files: list[tuple[Range, Range]]) -> None:
    found = drawn(files, most=100)
    for number, axis in enumerate(found.columns):
        ranges = [file[number] for file in files]
        rank = positions(ranges)
        last = max(len(rank) - 1, 1)
        by_path = {span.label: (span.low, span.high) for span in axis.files}
        assert by_path == {
            f"{n:02d}": (rank[low] / last, rank[high] / last)
            for n, (low, high) in enumerate(ranges)
        }
        assert [span.low for span in axis.files] == sorted(span.low for span in axis.files)
        members: dict[str, list[Range]] = {}
        for n, place in enumerate(ranges):
            if n % 4:
                members.setdefault(f"c{n % 3}", []).append(place)
        assert {cube.label: (cube.low, cube.high, cube.weight) for cube in axis.cubes} == {
            name: (
                rank[min(low for low, _ in inside)] / last,
                rank[max(high for _, high in inside)] / last,
                len(inside),
            )
            for name, inside in members.items()
        }
        assert axis.cube_count == len(members)
        for position, value in axis.ticks:
            assert position == rank[value] / last
    assert found.plane is not None
    assert len(found.plane.boxes) == len(files)
    assert sum(count for _, count in found.sizes) == len(files)


@given(files=_files)
def test_grids_count_the_files_that_reach_into_a_cell(files: list[tuple[Range, Range]]) -> None:
    found = drawn(files, most=0)
    assert found.plane is not None
    places = []
    for number, axis in enumerate(found.columns):
        ranges = [file[number] for file in files]
        rank = positions(ranges)
        assert axis.files == ()
        order = [n for _, n in sorted((place, n) for n, place in enumerate(ranges))]
        rows = min(module.GRID_ROWS, len(files))
        wanted = [[0] * module.GRID_BINS for _ in range(rows)]
        for place, n in enumerate(order):
            low, high = (rank[end] * module.GRID_BINS // len(rank) for end in ranges[n])
            for cell in range(low, high + 1):
                wanted[place * rows // len(files)][cell] += 1
        assert [list(row) for row in axis.grid] == wanted
        assert max(map(max, wanted)) <= axis.files_in_row
        places.append(
            [[rank[end] * module.PLANE_BINS // len(rank) for end in place] for place in ranges]
        )
    counts = [[0] * module.PLANE_BINS for _ in range(module.PLANE_BINS)]
    for (left, right), (low, high) in zip(*places, strict=True):
        for x, y in product(range(left, right + 1), range(low, high + 1)):
            counts[y][x] += 1
    assert [list(row) for row in found.plane.grid] == counts
