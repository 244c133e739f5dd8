"""Clustering health: how little the files' ranges of the clustering columns overlap.

Names follow Snowflake's SYSTEM$CLUSTERING_INFORMATION where it has one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import ClusteringColumn, clustering_state
from liquidlog.clustering.health.cubes import Between, CubeFiles, CubeHealth, measure_cubes
from liquidlog.clustering.health.notes import (
    deleted_rows_note,
    direct_lake_note,
    health_notes,
    prefix_chars,
    truncation,
)
from liquidlog.clustering.keyspace.depth import (
    BoxOverlaps,
    KeyRanges,
    box_overlaps,
    column_ranges,
    depth_profile,
    depths,
    key_ranges,
    overlaps,
)
from liquidlog.clustering.zcubes import PARTIAL, STABLE, UNCLUSTERED, file_states, membership
from liquidlog.predicates.workload import NotUsable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import MILLISECOND_REST_US, Bounds, ColumnBounds
from liquidlog.spec.text import Summary, html_document, iso_time

PROFILE_BINS: Final = 64

_DECIMALS: Final = 4
_EXACT_DEPTHS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnHealth:
    """The health of one clustering column, without regard to the others.

    For each file with statistics, take the share of the other such files whose ranges of this
    column meet its own: `overlap_ratio` is the mean of these shares, 0 if no ranges meet and 1 if
    all do. Depths and overlaps are None without any file with statistics.
    `files_in_one_prefix` counts files whose two bounds are truncated to the same prefix; their
    depth says nothing about their values. `depth_profile` has the largest depth in each of up to 64
    stretches of the range from `min` to `max`; each stretch holds equally many distinct bounds.
    """

    name: str
    files_with_stats: int
    average_depth: float | None
    max_depth: int | None
    overlap_ratio: float | None
    average_overlaps: float | None
    average_depth_by_bytes: float | None
    files_in_one_prefix: int
    min: Any
    max: Any
    depth_profile: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Health(Summary):
    """How well a table, or a part of its files, is clustered.

    A file's range is [min key, max key] in the order of the columns. Averages and percentiles are
    taken over the files with statistics of all columns, and are None without any; percentiles are
    depths that occur. `depth_ratio` is the average depth divided by that which a full rewrite of
    the table would reach, `read_ratio` the bytes that readers of one value of one column open,
    divided by those after a full rewrite; None where nobody asked, or ranges are not known.
    `depth_histogram` counts files by depth: one key per depth up to 16, then doubling upper bounds.
    `constant_file_count` counts files that hold a single key. Cubes count as stable or partial by
    the table's own clustering columns.

    `…_by_bytes` are means weighted by the files' bytes. `…_within_cubes` are means over files in a
    cube, and count only files of the same cube; `…_between_cubes` are means over cubes, where each
    cube is a range from its first to its last key. `average_box_overlaps` is the mean number of
    other files that meet a file in every column. It is an estimate if `box_files_measured` is
    smaller than the number of files; `box_overlaps_error` is half the width of its 95 % confidence
    interval.

    `cannot_prune` lists the conditions of the predicates that chose files or columns which rule out
    no file, `not_usable` the predicates that are no condition on this table. `asked_at` is the
    current time (ISO 8601, UTC) if a predicate depends on it, else None.
    """

    table_uri: str
    version: int
    committed_at: str
    measured_at: str | None
    cluster_by_keys: tuple[str, ...]
    total_file_count: int
    total_bytes: int
    unclustered_file_count: int
    unclustered_bytes: int
    constant_file_count: int
    stable_cube_count: int
    partial_cube_count: int
    files_with_stats: int
    depth_ratio: float | None = None
    read_ratio: float | None = None
    average_overlaps: float | None
    average_overlaps_by_bytes: float | None
    average_depth: float | None
    average_depth_by_bytes: float | None
    p95_depth: int | None
    p99_depth: int | None
    max_depth: int | None
    average_depth_within_cubes: float | None
    average_overlaps_within_cubes: float | None
    average_depth_between_cubes: float | None
    average_overlaps_between_cubes: float | None
    average_box_overlaps: float | None
    box_overlaps_error: float | None
    box_files_measured: int
    depth_histogram: Mapping[str, int]
    columns: tuple[ColumnHealth, ...]
    cubes: tuple[CubeHealth, ...]
    notes: tuple[str, ...]
    cannot_prune: tuple[str, ...] = ()
    not_usable: tuple[NotUsable, ...] = ()
    asked_at: str | None = None

    def _facts(self) -> Mapping[str, object]:
        return {
            "table_uri": self.table_uri,
            "version": self.version,
            "cluster_by_keys": self.cluster_by_keys,
            "total_file_count": self.total_file_count,
            "total_bytes": self.total_bytes,
            "unclustered_file_count": self.unclustered_file_count,
            "depth_ratio": self.depth_ratio,
            "read_ratio": self.read_ratio,
            "average_depth": self.average_depth,
            "max_depth": self.max_depth,
        }

    def _repr_html_(self) -> str:
        """Return the health as HTML for notebooks."""
        return html_document(self)


def numeric_fields(of: type[Health | ColumnHealth]) -> tuple[str, ...]:
    """Return the names of the numbers of health, of which some are None where not measured."""
    return tuple(field.name for field in fields(of) if field.type in _NUMBERS)


_NUMBERS: Final = (int, float, int | None, float | None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Measured:
    """The measured files; every field but `columns` and `ranges` has one entry per file.

    `files` has FILES_SCHEMA; `cube` (int64) is -1 outside cubes; `ranges[i]` holds those of column
    i, one per file.
    """

    columns: tuple[ClusteringColumn, ...]
    files: pa.Table
    states: pa.Array
    cube: NDArray[np.int64]
    bounds: Bounds
    ranges: tuple[KeyRanges, ...]

    def sizes(self) -> NDArray[np.int64]:
        """Return the bytes per file (int64)."""
        return np.asarray(self.files["size"].to_numpy(), np.int64)


def measure_health(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None = None,
    measured_at_ms: int | None = None,
) -> Health:
    """Return the health, measured by `columns`, of the files where `mask` is true.

    `bounds` has those of the columns, one entry per live file.

    Averages leave out files without statistics and files that hold only nulls in a column, which
    have no range; `notes` says how many there are.
    """
    measured = _measured(snapshot, columns, bounds, min_cube_bytes=min_cube_bytes, mask=mask)
    known = measured.bounds.all_known()
    by_column = [ranges.selected(known) for ranges in measured.ranges]
    ranges = key_ranges(by_column) if by_column else _NO_RANGES
    depth, overlap = depths(ranges), overlaps(ranges)
    sizes = measured.sizes()[known]
    boxes = _boxes(by_column, overlap)
    cubes = _cubes(measured, known)
    unclustered = pc.equal(measured.states, UNCLUSTERED)
    state = clustering_state(snapshot)
    notes = health_notes(snapshot, state, columns, measured.bounds, measured.states)
    prefix = prefix_chars(snapshot)
    return Health(
        table_uri=snapshot.uri,
        version=snapshot.version,
        committed_at=iso_time(snapshot.timestamp_ms),
        measured_at=None if measured_at_ms is None else iso_time(measured_at_ms),
        cluster_by_keys=tuple(column.name for column in measured.columns),
        total_file_count=measured.files.num_rows,
        total_bytes=_total(measured.files["size"]),
        unclustered_file_count=_total(pc.cast(unclustered, pa.int64())),
        unclustered_bytes=_total(measured.files["size"].filter(unclustered)),
        constant_file_count=int(_constant(measured, known).sum()),
        stable_cube_count=_cube_count(measured, STABLE),
        partial_cube_count=_cube_count(measured, PARTIAL),
        files_with_stats=len(ranges),
        average_overlaps=_mean(overlap),
        average_overlaps_by_bytes=_mean(overlap, sizes),
        average_depth=_mean(depth),
        average_depth_by_bytes=_mean(depth, sizes),
        p95_depth=_percentile(depth, 95),
        p99_depth=_percentile(depth, 99),
        max_depth=_largest(depth),
        average_depth_within_cubes=cubes.average_depth_within,
        average_overlaps_within_cubes=cubes.average_overlaps_within,
        average_depth_between_cubes=cubes.average_depth_between,
        average_overlaps_between_cubes=cubes.average_overlaps_between,
        average_box_overlaps=round(boxes.average, _DECIMALS) if len(ranges) else None,
        box_overlaps_error=round(boxes.error, _DECIMALS) if len(ranges) else None,
        box_files_measured=boxes.files_measured,
        depth_histogram=_histogram(depth),
        columns=tuple(_column_health(measured, number, prefix) for number in range(len(columns))),
        cubes=cubes.cubes,
        notes=(
            *notes,
            *deleted_rows_note(measured.files),
            *(direct_lake_note(measured.files) if mask is None else ()),
        ),
    )


_NO_RANGES: Final = KeyRanges(lo=np.zeros(0, np.int64), hi=np.zeros(0, np.int64))


def _measured(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None,
) -> _Measured:
    # The state of a cube depends on all its files, even if only some of them are measured.
    own = clustering_state(snapshot).columns
    states = file_states(snapshot, own, min_cube_bytes)
    files = snapshot.files
    places = membership(files, own)
    cube = np.where(places.in_cube, places.cube, -1)
    if mask is not None:
        files, states, bounds = files.filter(mask), states.filter(mask), bounds.filter(mask)
        cube = cube[np.asarray(mask, np.bool_)]
    return _Measured(
        columns=tuple(columns),
        files=files,
        states=states,
        cube=cube,
        bounds=bounds,
        ranges=tuple(map(_ranges, bounds.columns)),
    )


def _ranges(column: ColumnBounds) -> KeyRanges:
    """Return the ranges of a column; null is a value below all others, as curves order it."""
    ranges = column_ranges(column.low, column.high)
    has_nulls = np.asarray(pc.fill_null(pc.greater(column.null_count, 0), fill_value=False))
    if not has_nulls.any():
        return ranges
    return KeyRanges(lo=np.where(has_nulls, 0, ranges.lo + 1), hi=ranges.hi + 1)


def _column_health(measured: _Measured, number: int, prefix: int) -> ColumnHealth:
    known = measured.bounds.known(number)
    column = measured.columns[number]
    ranges = key_ranges([measured.ranges[number].selected(known)])
    depth, overlap = depths(ranges), overlaps(ranges)
    others = len(ranges) - 1
    ratio = float(overlap.mean()) / others if others > 0 else 0.0
    truncated = truncation(measured.bounds, number, column, prefix)
    return ColumnHealth(
        name=column.name,
        files_with_stats=len(ranges),
        average_depth=_mean(depth),
        max_depth=_largest(depth),
        overlap_ratio=round(ratio, _DECIMALS) if len(ranges) else None,
        average_overlaps=_mean(overlap),
        average_depth_by_bytes=_mean(depth, measured.sizes()[known]),
        files_in_one_prefix=0 if truncated is None else int(truncated.in_one_prefix.sum()),
        min=_end(measured.bounds, number, known, first=True),
        max=_end(measured.bounds, number, known, first=False),
        depth_profile=tuple(depth_profile(ranges, PROFILE_BINS).tolist()),
    )


def _constant(measured: _Measured, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the files that hold one value per column, as far as the log shows."""
    constant = known.copy()
    for number, ranges in enumerate(measured.ranges):
        low, high = measured.bounds.low(number), measured.bounds.high(number)
        if pa.types.is_timestamp(low.type):
            # The log cuts timestamps to milliseconds, and maxima were raised by that much.
            widths = pc.subtract(pc.cast(high, pa.int64()), pc.cast(low, pa.int64()))
            same = pc.fill_null(pc.less_equal(widths, MILLISECOND_REST_US), fill_value=False)
            nulls = pc.fill_null(measured.bounds.null_count(number), 0)
            constant &= np.asarray(pc.and_(same, pc.equal(nulls, 0)), np.bool_)
        else:
            constant &= ranges.lo == ranges.hi
    return constant


def _end(bounds: Bounds, number: int, known: NDArray[np.bool_], *, first: bool) -> Any:  # noqa: ANN401  a value of the column
    """Return the smallest or the largest bound of the files, chosen by rank."""
    if not known.any():
        return None
    ranges = column_ranges(bounds.low(number), bounds.high(number)).selected(known)
    place = int(ranges.lo.argmin() if first else ranges.hi.argmax())
    values = bounds.low(number) if first else bounds.high(number)
    return values[int(np.flatnonzero(known)[place])].as_py()


def _boxes(columns: Sequence[KeyRanges], overlap: NDArray[np.int64]) -> BoxOverlaps:
    if len(columns) > 1:
        return box_overlaps(columns)
    average = float(overlap.mean()) if len(overlap) else 0.0
    return BoxOverlaps(average=average, error=0.0, files_measured=len(overlap))


def _cubes(measured: _Measured, known: NDArray[np.bool_]) -> Between:
    there = known & (measured.cube >= 0)
    taken = pa.array(there)
    return measure_cubes(
        CubeFiles(
            cube=measured.cube[there],
            zcube_id=measured.files["zcube_id"].filter(taken),
            state=measured.states.filter(taken),
            size_bytes=measured.sizes()[there],
            ranges=[ranges.selected(there) for ranges in measured.ranges],
        )
    )


def _histogram(depth: NDArray[np.int64]) -> dict[str, int]:
    # The upper bound of a bucket: the depth itself up to 16, then the next power of two.
    bucket = np.where(
        depth <= _EXACT_DEPTHS,
        depth,
        np.int64(1) << np.frexp((depth - 1).astype(np.float64))[1].astype(np.int64),
    )
    bounds = list(range(1, _EXACT_DEPTHS + 1))
    while bounds[-1] < bucket.max(initial=0):
        bounds.append(2 * bounds[-1])
    counts = dict(zip(*(part.tolist() for part in np.unique_counts(bucket)), strict=True))
    return {f"{bound:05d}": counts.get(bound, 0) for bound in bounds}


def _largest(depth: NDArray[np.int64]) -> int | None:
    return int(depth.max()) if len(depth) else None


def _percentile(depth: NDArray[np.int64], percent: int) -> int | None:
    """Return the smallest depth that at least `percent` % of the files have or stay below."""
    if not len(depth):
        return None
    position = -(-percent * len(depth) // 100) - 1
    return int(np.partition(depth, position)[position])


def _mean(values: NDArray[np.int64], weights: NDArray[np.int64] | None = None) -> float | None:
    if not len(values):
        return None
    # Files of zero bytes have no weight; if there are no others, all have the same weight.
    weighs = weights is not None and weights.sum() > 0
    return round(float(np.average(values, weights=weights if weighs else None)), _DECIMALS)


def _total(values: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)


def _cube_count(measured: _Measured, state: str) -> int:
    cubes = measured.files["zcube_id"].filter(pc.equal(measured.states, state))
    return len(cubes.unique())
