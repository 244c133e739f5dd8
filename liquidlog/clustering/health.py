"""Clustering health: how well the files' ranges of the clustering columns are kept apart.

Names are Snowflake's (SYSTEM$CLUSTERING_INFORMATION) where it has one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.clustering.depth import KeyRanges, column_ranges, depths, key_ranges, overlaps
from liquidlog.clustering.domain import clustering_state, unresolved_problem
from liquidlog.clustering.zcubes import (
    OTHER_COLUMNS,
    OTHER_PROVIDER,
    PARTIAL,
    STABLE,
    UNCLUSTERED,
    file_states,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import PrimitiveType

_DECIMALS: Final = 4
_EXACT_DEPTHS: Final = 16
_PREFIX_PROPERTY: Final = "delta.dataSkippingStringPrefixLength"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnHealth:
    """One clustering column on its own.

    `overlap_ratio` is the mean over files with statistics of the share of the other such files
    whose ranges of this column meet theirs: 0 when all are apart, 1 when all meet.
    """

    name: str
    files_with_stats: int
    average_depth: float
    max_depth: int
    overlap_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The clustering information of a table, or of some of its files.

    A file's range is [min key, max key] in the order of the columns. Averages and percentiles
    are over files with statistics of all columns, 0 if there are none; percentiles are depths
    that occur. `depth_histogram` counts files by depth: one key for each depth up to 16, then
    doubling upper bounds. `constant_file_count` are files that hold a single key. Cubes are
    counted as stable or partial by the table's own clustering columns.
    """

    cluster_by_keys: tuple[str, ...]
    total_file_count: int
    total_bytes: int
    unclustered_file_count: int
    unclustered_bytes: int
    constant_file_count: int
    stable_cube_count: int
    partial_cube_count: int
    average_overlaps: float
    average_depth: float
    p95_depth: int
    p99_depth: int
    max_depth: int
    depth_histogram: Mapping[str, int]
    columns: tuple[ColumnHealth, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the health as plain JSON values."""
        return {**asdict(self), "depth_histogram": dict(self.depth_histogram)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Measured:
    """The files that are measured; all but `columns` have one entry a file.

    `ranges[i]` and `known[i]` are of column i: its ranges, and whether it has both bounds.
    """

    snapshot: Snapshot
    columns: tuple[ClusteringColumn, ...]
    files: pa.Table
    states: pa.Array
    bounds: pa.Table
    ranges: tuple[KeyRanges, ...]
    known: tuple[NDArray[np.bool_], ...]

    def key_ranges(self) -> KeyRanges:
        """Return the ranges over all columns, of the files that have all bounds."""
        if not self.columns:
            return KeyRanges(lo=np.zeros(0, np.int64), hi=np.zeros(0, np.int64))
        known = np.logical_and.reduce(self.known)
        return key_ranges([ranges.selected(known) for ranges in self.ranges])


def measure_health(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: pa.Table,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None = None,
) -> Health:
    """Return the health of a table by `columns`, of the files where `mask` is true.

    `bounds` are those of the columns, one row a live file, as parse_bounds spells them.

    Files that hold only nulls in a column have no range there and are left out of the averages,
    like files without statistics; `notes` says how many.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    measured = _measured(snapshot, columns, bounds, min_cube_bytes=min_cube_bytes, mask=mask)
    ranges = measured.key_ranges()
    depth = depths(ranges)
    unclustered = pc.equal(measured.states, UNCLUSTERED)
    return Health(
        cluster_by_keys=tuple(column.name for column in measured.columns),
        total_file_count=measured.files.num_rows,
        total_bytes=_total(measured.files["size"]),
        unclustered_file_count=_total(pc.cast(unclustered, pa.int64())),
        unclustered_bytes=_total(measured.files["size"].filter(unclustered)),
        constant_file_count=int((ranges.lo == ranges.hi).sum()),
        stable_cube_count=_cube_count(measured, STABLE),
        partial_cube_count=_cube_count(measured, PARTIAL),
        average_overlaps=_mean(overlaps(ranges)),
        average_depth=_mean(depth),
        p95_depth=_percentile(depth, 95),
        p99_depth=_percentile(depth, 99),
        max_depth=int(depth.max(initial=0)),
        depth_histogram=_histogram(depth),
        columns=tuple(_column_health(measured, number) for number in range(len(columns))),
        notes=tuple(_notes(measured)),
    )


def _measured(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: pa.Table,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None,
) -> _Measured:
    # Cubes are whole: their states come from all files, also where only some are measured.
    states = file_states(snapshot, clustering_state(snapshot).columns, min_cube_bytes)
    files = snapshot.files
    if mask is not None:
        files, states, bounds = files.filter(mask), states.filter(mask), bounds.filter(mask)
    sides = [
        (bounds[f"min.{number}"].combine_chunks(), bounds[f"max.{number}"].combine_chunks())
        for number in range(len(columns))
    ]
    return _Measured(
        snapshot=snapshot,
        columns=tuple(columns),
        files=files,
        states=states,
        bounds=bounds,
        ranges=tuple(column_ranges(low, high) for low, high in sides),
        known=tuple(np.asarray(pc.and_(low.is_valid(), high.is_valid())) for low, high in sides),
    )


def _column_health(measured: _Measured, number: int) -> ColumnHealth:
    ranges = key_ranges([measured.ranges[number].selected(measured.known[number])])
    depth = depths(ranges)
    others = len(ranges) - 1
    ratio = float(overlaps(ranges).mean()) / others if others > 0 else 0.0
    return ColumnHealth(
        name=measured.columns[number].name,
        files_with_stats=len(ranges),
        average_depth=_mean(depth),
        max_depth=int(depth.max(initial=0)),
        overlap_ratio=round(ratio, _DECIMALS),
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


def _percentile(depth: NDArray[np.int64], percent: int) -> int:
    """Return the smallest depth that at least `percent` % of the files do not exceed."""
    if not len(depth):
        return 0
    position = -(-percent * len(depth) // 100) - 1
    return int(np.partition(depth, position)[position])


def _mean(values: NDArray[np.int64]) -> float:
    return round(float(values.mean()), _DECIMALS) if len(values) else 0.0


def _total(values: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)


def _cube_count(measured: _Measured, state: str) -> int:
    cubes = measured.files["zcube_id"].filter(pc.equal(measured.states, state))
    return len(cubes.unique())


def _notes(measured: _Measured) -> Iterator[str]:
    state = clustering_state(measured.snapshot)
    yield from (unresolved_problem(path) for path in state.unresolved)
    if not measured.columns:
        yield "the table has no clustering columns, so there are no ranges to measure"
    yield from _statistics_notes(measured)
    yield from _truncation_notes(measured)
    for name, what in (
        (OTHER_COLUMNS, "clustered by other columns"),
        (OTHER_PROVIDER, "clustered by another implementation"),
    ):
        count = _total(pc.cast(pc.equal(measured.states, name), pa.int64()))
        if count:
            yield f"{_files(count)} {what}; only a full rewrite takes them"
    deleted = measured.files.num_rows - measured.files["deletion_vector"].null_count
    if deleted:
        yield f"{_files(deleted)} with deleted rows; the ranges may be wider than the live rows"


def _statistics_notes(measured: _Measured) -> Iterator[str]:
    for number, column in enumerate(measured.columns):
        known = measured.known[number]
        nulls = pc.equal(measured.bounds[f"null_count.{number}"], measured.bounds["num_records"])
        all_null = ~known & np.asarray(pc.fill_null(nulls, fill_value=False), np.bool_)
        missing = int((~known & ~all_null).sum())
        if missing:
            yield f"{_files(missing)} without statistics for {column.name}, left out of the ranges"
        if all_null.any():
            count = int(all_null.sum())
            yield f"{_files(count)} with only nulls in {column.name}, left out of the ranges"


def _truncation_notes(measured: _Measured) -> Iterator[str]:
    text = measured.snapshot.metadata.configuration.get(_PREFIX_PROPERTY, "32")
    prefix = int(text) if text.isdecimal() else 32
    for number, column in enumerate(measured.columns):
        if column.data_type != PrimitiveType("string"):
            continue
        lengths = [pc.utf8_length(measured.bounds[f"{side}.{number}"]) for side in ("min", "max")]
        cut = [pc.fill_null(pc.greater_equal(length, prefix), False) for length in lengths]  # noqa: FBT003
        count = _total(pc.cast(pc.or_(*cut), pa.int64()))
        if count:
            yield (
                f"{_files(count)} with bounds of {column.name} cut to {prefix} characters;"
                " depths may be overstated"
            )


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count} files are"
