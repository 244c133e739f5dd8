"""Pictures of a clustering: where cubes and files lie along each column and on the first two.

Equal lengths of a column's axis hold equally many distinct bounds, so that strings and skewed
numbers have a scale too. Positions range from 0 to 1. Few files are shown one by one, many as a
grid of counts: a picture of a million files is as small as one of a thousand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import ClusteringColumn, clustering_state
from liquidlog.clustering.keyspace.depth import KeyRanges, column_ranges, depths, key_ranges
from liquidlog.clustering.zcubes import file_states, membership
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.bounds import Bounds

FILES_SHOWN: Final = 400
CUBES_SHOWN: Final = 60
GRID_ROWS: Final = 60
GRID_BINS: Final = 96
PLANE_BINS: Final = 64

_TICKS: Final = 4
_GIB_BITS: Final = 50

Grid = tuple[tuple[int, ...], ...]
"""Counts, row by row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A cube or a file along one column; `weight` is a cube's number of files or a file's depth."""

    low: float
    high: float
    label: str
    state: str
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPicture:
    """Cubes and files along one column; `ticks` are (position, value).

    If there are many files, `files` is empty and `grid` counts them. The files, sorted by their
    minima, are divided evenly over the rows of the grid, at most `files_in_row` per row. A cell
    counts the files of its row that reach into a stretch of the column.
    """

    name: str
    ticks: tuple[tuple[float, Any], ...]
    cubes: tuple[Span, ...]
    cube_count: int
    files: tuple[Span, ...]
    grid: Grid
    files_in_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """The first two columns: boxes (low x, low y, high x, high y), or counts of boxes in a grid.

    Rows of `grid` go upwards along the second column.
    """

    boxes: tuple[tuple[float, float, float, float], ...]
    grid: Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """All that is drawn of one version of a table; `sizes` holds (upper bound in bytes, files)."""

    columns: tuple[ColumnPicture, ...]
    plane: Plane | None
    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shown:
    """The files that have ranges of all columns; all arrays have one entry per file."""

    files: pa.Table
    states: pa.Array
    cube: NDArray[np.int64]
    depth: NDArray[np.int64]
    bounds: Bounds


def pictures(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
) -> Pictures:
    """Return the pictures of a table; `bounds` has those of the columns, one entry per live file.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    shown = _shown(snapshot, columns, bounds, min_cube_bytes)
    ranges = [_range(shown.bounds, number) for number in range(len(columns))]
    sizes = _sizes(snapshot.files)
    if not len(shown.cube):
        return Pictures(columns=(), plane=None, sizes=sizes)
    return Pictures(
        columns=tuple(
            _column(shown, ranges[n], n, column.name) for n, column in enumerate(columns)
        ),
        plane=_plane(ranges[0], ranges[1]) if len(ranges) > 1 else None,
        sizes=sizes,
    )


def _shown(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    min_cube_bytes: int,
) -> _Shown:
    own = clustering_state(snapshot).columns
    known = bounds.all_known()
    mask = pa.array(known)
    places = membership(snapshot.files, own)
    found = bounds.filter(mask)
    ranges = [_range(found, number) for number in range(len(columns))]
    return _Shown(
        files=snapshot.files.filter(mask),
        states=file_states(snapshot, own, min_cube_bytes).filter(mask),
        cube=np.where(places.in_cube, places.cube, -1)[known],
        depth=depths(key_ranges(ranges)) if ranges else np.zeros(0, np.int64),
        bounds=found,
    )


def _range(bounds: Bounds, number: int) -> KeyRanges:
    return key_ranges([column_ranges(bounds.low(number), bounds.high(number))])


def _column(shown: _Shown, ranges: KeyRanges, number: int, name: str) -> ColumnPicture:
    last = max(int(ranges.hi.max()), 1)
    one_by_one = len(ranges) <= FILES_SHOWN
    count = len(np.unique(shown.cube[shown.cube >= 0]))
    rows = min(GRID_ROWS, len(ranges))
    return ColumnPicture(
        name=name,
        ticks=_ticks(shown.bounds, ranges, number),
        cubes=_cubes(shown, ranges, last),
        cube_count=count,
        files=_files(shown, ranges, last) if one_by_one else (),
        grid=() if one_by_one else _grid(ranges, rows, last),
        files_in_row=-(-len(ranges) // rows),
    )


def _ticks(bounds: Bounds, ranges: KeyRanges, number: int) -> tuple[tuple[float, Any], ...]:
    ranks, places = np.unique(np.concatenate([ranges.lo, ranges.hi]), return_index=True)
    wanted = np.unique(np.arange(_TICKS + 1) * (len(ranks) - 1) // _TICKS)
    last = max(int(ranks[-1]), 1)
    ticks = []
    for rank, place in zip(ranks[wanted].tolist(), places[wanted].tolist(), strict=True):
        is_low = place < len(ranges)
        value = bounds.low(number)[place] if is_low else bounds.high(number)[place - len(ranges)]
        ticks.append((rank / last, value.as_py()))
    return tuple(ticks)


def _files(shown: _Shown, ranges: KeyRanges, last: int) -> tuple[Span, ...]:
    order = np.lexsort((ranges.hi, ranges.lo))
    paths = decoded_paths(shown.files).take(pa.array(order)).to_pylist()
    states = shown.states.take(pa.array(order)).to_pylist()
    return tuple(
        Span(low=low / last, high=high / last, label=path, state=state, weight=depth)
        for low, high, path, state, depth in zip(
            ranges.lo[order].tolist(),
            ranges.hi[order].tolist(),
            paths,
            states,
            shown.depth[order].tolist(),
            strict=True,
        )
    )


def _cubes(shown: _Shown, ranges: KeyRanges, last: int) -> tuple[Span, ...]:
    inside = np.flatnonzero(shown.cube >= 0)
    if not len(inside):
        return ()
    _, first, member, count = np.unique(
        shown.cube[inside], return_index=True, return_inverse=True, return_counts=True
    )
    low, high = np.full(len(first), last), np.zeros(len(first), np.int64)
    np.minimum.at(low, member, ranges.lo[inside])
    np.maximum.at(high, member, ranges.hi[inside])
    size = np.zeros(len(first), np.int64)
    np.add.at(size, member, np.asarray(shown.files["size"].to_numpy(), np.int64)[inside])
    largest = np.argsort(-size, kind="stable")[:CUBES_SHOWN]
    chosen = largest[np.lexsort((high[largest], low[largest]))]
    rows = pa.array(inside[first[chosen]])
    return tuple(
        Span(low=lo / last, high=hi / last, label=str(label), state=state, weight=files)
        for lo, hi, label, state, files in zip(
            low[chosen].tolist(),
            high[chosen].tolist(),
            shown.files["zcube_id"].take(rows).to_pylist(),
            shown.states.take(rows).to_pylist(),
            count[chosen].tolist(),
            strict=True,
        )
    )


def _grid(ranges: KeyRanges, rows: int, last: int) -> Grid:
    place = np.empty(len(ranges), np.int64)
    place[np.lexsort((ranges.hi, ranges.lo))] = np.arange(len(ranges))
    row = place * rows // len(ranges)
    first, stop = (_bins(side, last, GRID_BINS) for side in (ranges.lo, ranges.hi))
    steps = np.zeros((rows, GRID_BINS + 1), np.int64)
    np.add.at(steps, (row, first), 1)
    np.add.at(steps, (row, stop + 1), -1)
    return _rows(steps.cumsum(axis=1)[:, :-1])


def _plane(x: KeyRanges, y: KeyRanges) -> Plane:
    x_last, y_last = (max(int(side.hi.max()), 1) for side in (x, y))
    if len(x) <= FILES_SHOWN:
        boxes = np.stack([x.lo / x_last, y.lo / y_last, x.hi / x_last, y.hi / y_last], axis=1)
        return Plane(boxes=tuple(tuple(box) for box in boxes.tolist()), grid=())
    left, right = (_bins(side, x_last, PLANE_BINS) for side in (x.lo, x.hi))
    low, high = (_bins(side, y_last, PLANE_BINS) for side in (y.lo, y.hi))
    steps = np.zeros((PLANE_BINS + 1, PLANE_BINS + 1), np.int64)
    np.add.at(steps, (low, left), 1)
    np.add.at(steps, (low, right + 1), -1)
    np.add.at(steps, (high + 1, left), -1)
    np.add.at(steps, (high + 1, right + 1), 1)
    return Plane(boxes=(), grid=_rows(steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]))


def _bins(ranks: NDArray[np.int64], last: int, bins: int) -> NDArray[np.int64]:
    return np.asarray(ranks * bins // (last + 1), np.int64)


def _rows(counts: NDArray[np.int64]) -> Grid:
    return tuple(tuple(row) for row in counts.tolist())


def _sizes(files: pa.Table) -> tuple[tuple[int, int], ...]:
    """Return the number of files per power of two of bytes, from the first in use to the last."""
    sizes = np.asarray(pc.fill_null(files["size"], 0).to_numpy(), np.float64)
    bits = np.clip(np.frexp(np.maximum(sizes - 1, 0))[1], 0, _GIB_BITS)
    counts = np.bincount(bits)
    used = np.flatnonzero(counts)
    if not len(used):
        return ()
    return tuple((1 << bit, int(counts[bit])) for bit in range(int(used[0]), int(used[-1]) + 1))
