"""Pictures of a clustering: where its cubes and files lie along each column.

Positions, from 0 to 1, are those of `axes`: shares of the table's bytes. Few files are shown one by
one, many as a grid of counts: a picture of a million files is as small as one of a thousand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import ClusteringColumn, clustering_state
from liquidlog.clustering.health.axes import Floats, Ticks, axis_ticks
from liquidlog.clustering.health.maps import Grid, bins
from liquidlog.clustering.keyspace.depth import column_ranges, depths, key_ranges
from liquidlog.clustering.keyspace.widths import ColumnSpans, key_space
from liquidlog.clustering.zcubes import file_states, membership
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.bounds import Bounds

FILES_SHOWN: Final = 150
CUBES_SHOWN: Final = 60
GRID_ROWS: Final = 60
GRID_BINS: Final = 96

_GIB_BITS: Final = 50


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
    """Cubes and files along one column.

    If there are many files, `files` is empty and `grid` counts them. The files, sorted by their
    minima, are divided evenly over the rows of the grid, at most `files_in_row` per row. A cell
    counts the files of its row that reach into a stretch of the column.
    """

    name: str
    ticks: Ticks
    cubes: tuple[Span, ...]
    cube_count: int
    files: tuple[Span, ...]
    grid: Grid
    files_in_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """All that is drawn of one version of a table; `sizes` holds (upper bound in bytes, files)."""

    columns: tuple[ColumnPicture, ...]
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
    """Return the pictures of a table; `bounds` has those of the columns, one per live file."""
    shown = _shown(snapshot, columns, bounds, min_cube_bytes)
    sizes = _sizes(snapshot.files)
    if not len(shown.cube):
        return Pictures(columns=(), sizes=sizes)
    space = key_space(shown.bounds, np.asarray(shown.files["size"].to_numpy(), np.int64))
    return Pictures(
        columns=tuple(
            _column(shown, space.columns[n], n, column.name) for n, column in enumerate(columns)
        ),
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
    ranges = [column_ranges(found.low(n), found.high(n)) for n in range(len(columns))]
    return _Shown(
        files=snapshot.files.filter(mask),
        states=file_states(snapshot, own, min_cube_bytes).filter(mask),
        cube=np.where(places.in_cube, places.cube, -1)[known],
        depth=depths(key_ranges(ranges)) if ranges else np.zeros(0, np.int64),
        bounds=found,
    )


def _column(shown: _Shown, spans: ColumnSpans, number: int, name: str) -> ColumnPicture:
    files = len(spans.low)
    one_by_one = files <= FILES_SHOWN
    rows = min(GRID_ROWS, files)
    order = np.lexsort((spans.high, spans.low))
    return ColumnPicture(
        name=name,
        ticks=axis_ticks(shown.bounds, number, spans),
        cubes=_cubes(shown, spans.low, spans.high),
        cube_count=len(np.unique(shown.cube[shown.cube >= 0])),
        files=_files(shown, spans, order) if one_by_one else (),
        grid=() if one_by_one else _grid(spans, order, rows),
        files_in_row=-(-files // rows),
    )


def _files(shown: _Shown, spans: ColumnSpans, order: NDArray[np.int64]) -> tuple[Span, ...]:
    paths = decoded_paths(shown.files).take(pa.array(order)).to_pylist()
    states = shown.states.take(pa.array(order)).to_pylist()
    return tuple(
        Span(low=low, high=high, label=path, state=state, weight=depth)
        for low, high, path, state, depth in zip(
            spans.low[order].tolist(),
            spans.high[order].tolist(),
            paths,
            states,
            shown.depth[order].tolist(),
            strict=True,
        )
    )


def _cubes(shown: _Shown, file_low: Floats, file_high: Floats) -> tuple[Span, ...]:
    inside = np.flatnonzero(shown.cube >= 0)
    if not len(inside):
        return ()
    _, first, member, count = np.unique(
        shown.cube[inside], return_index=True, return_inverse=True, return_counts=True
    )
    low, high = np.ones(len(first)), np.zeros(len(first))
    np.minimum.at(low, member, file_low[inside])
    np.maximum.at(high, member, file_high[inside])
    size = np.zeros(len(first), np.int64)
    np.add.at(size, member, np.asarray(shown.files["size"].to_numpy(), np.int64)[inside])
    largest = np.argsort(-size, kind="stable")[:CUBES_SHOWN]
    chosen = largest[np.lexsort((high[largest], low[largest]))]
    rows = pa.array(inside[first[chosen]])
    return tuple(
        Span(low=lo, high=hi, label=str(label), state=state, weight=files)
        for lo, hi, label, state, files in zip(
            low[chosen].tolist(),
            high[chosen].tolist(),
            shown.files["zcube_id"].take(rows).to_pylist(),
            shown.states.take(rows).to_pylist(),
            count[chosen].tolist(),
            strict=True,
        )
    )


def _grid(spans: ColumnSpans, order: NDArray[np.int64], rows: int) -> Grid:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    row = place * rows // len(order)
    first, last = bins(spans.low, spans.high, GRID_BINS)
    steps = np.zeros((rows, GRID_BINS + 1), np.int64)
    np.add.at(steps, (row, first), 1)
    np.add.at(steps, (row, last + 1), -1)
    return tuple(tuple(counts) for counts in steps.cumsum(axis=1)[:, :-1].tolist())


def _sizes(files: pa.Table) -> tuple[tuple[int, int], ...]:
    """Return the number of files per power of two of bytes, from the first in use to the last."""
    sizes = np.asarray(pc.fill_null(files["size"], 0).to_numpy(), np.float64)
    bits = np.clip(np.frexp(np.maximum(sizes - 1, 0))[1], 0, _GIB_BITS)
    counts = np.bincount(bits)
    used = np.flatnonzero(counts)
    if not len(used):
        return ()
    return tuple((1 << bit, int(counts[bit])) for bit in range(int(used[0]), int(used[-1]) + 1))
