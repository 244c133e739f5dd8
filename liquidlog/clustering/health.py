"""Clustering health: measures of how much the files' ranges of the clustering columns overlap.

Names follow Snowflake's SYSTEM$CLUSTERING_INFORMATION where it has one.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import (
    OTHER_COLUMNS,
    OTHER_PROVIDER,
    PARTIAL,
    STABLE,
    UNCLUSTERED,
    ClusteringColumn,
    clustering_state,
    file_states,
    membership,
    unresolved_problem,
)
from liquidlog.clustering.keyspace import (
    KeyRanges,
    box_overlaps,
    column_ranges,
    depth_profile,
    depths,
    key_ranges,
    overlaps,
)
from liquidlog.errors import UsageError
from liquidlog.predicates.workload import NotUsable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import MILLISECOND_REST_US, Bounds, ColumnBounds, Mask
from liquidlog.spec.schema import PrimitiveType, quote_path, split_path
from liquidlog.spec.text import Summary, iso_time, suggestion

_DECIMALS: Final = 4
_CUBES_LISTED: Final = 1_000
"""The most cubes that are listed one by one: the worst ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeHealth:
    """The health of one cube by its own files; `overlapping_cubes` counts other cubes."""

    zcube_id: str
    state: str
    files: int
    size_bytes: int
    average_depth: float
    max_depth: int
    average_overlaps: float
    overlapping_cubes: int


PREFIX_PROPERTY: Final = "delta.dataSkippingStringPrefixLength"
DEFAULT_PREFIX_CHARS: Final = 32
_TIE_BREAKERS: Final = ("\x7f", "\U0010ffff")
"""Last characters of a truncated maximum. Source: Delta Spark, StatisticsCollection."""
_DIRECT_LAKE: Final = (("F2 to F32", 1_000, 300_000_000), ("F64 to F256", 5_000, 1_500_000_000))
"""The most files of one row group, and rows of a table that Direct Lake loads, by capacity.

More rows are allowed on F128 and F256. Source: Microsoft Fabric, Direct Lake overview."""
_NEAR: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truncation:
    """Masks of the files with truncated strings as bounds of one column.

    A file is `at_limit` if a bound has as many characters as statistics keep. Both bounds of a file
    `in_one_prefix` are truncated to the same text, so such files seem to overlap.
    """

    at_limit: Mask
    in_one_prefix: Mask


def prefix_chars(snapshot: Snapshot) -> int:
    text = snapshot.metadata.configuration.get(PREFIX_PROPERTY, "")
    return int(text) if text.isdecimal() else DEFAULT_PREFIX_CHARS


def truncation(
    bounds: Bounds, number: int, column: ClusteringColumn, prefix: int
) -> Truncation | None:
    """Return which files have truncated bounds of column `number`, None if it holds no strings."""
    if column.data_type != PrimitiveType("string"):
        return None
    low, high = bounds.low(number), bounds.high(number)
    at_limit = [_mask(pc.greater_equal(pc.utf8_length(side), prefix)) for side in (low, high)]
    # A truncated maximum ends with a character that makes it large enough; without it, it equals
    # the minimum, whatever the limit was.
    ends = pc.utf8_slice_codeunits(high, -1)
    starts = pc.utf8_slice_codeunits(high, 0, -1)
    truncated = pc.and_(pc.is_in(ends, value_set=pa.array(_TIE_BREAKERS)), pc.equal(starts, low))
    return Truncation(at_limit=at_limit[0] | at_limit[1], in_one_prefix=_mask(truncated))


def _notes(snapshot: Snapshot, measured: "_Measured") -> Iterator[str]:
    columns, bounds = measured.columns, measured.bounds
    yield from snapshot.notes
    yield from map(unresolved_problem, clustering_state(snapshot).unresolved)
    if not columns:
        yield (
            "the table has no clustering columns, so there are no ranges to measure; name columns,"
            " or give a workload"
        )
    for number, column in enumerate(columns):
        if count := int(bounds.unknown(number).sum()):
            yield f"{_files(count)} without statistics for {column.name}, left out of the ranges"
        if count := int(bounds.only_nulls(number).sum()):
            yield f"{_files(count)} with only nulls in {column.name}, left out of the ranges"
    yield from _truncation_notes(columns, bounds, prefix_chars(snapshot))
    for name, what in (
        (OTHER_COLUMNS, "clustered by other columns"),
        (OTHER_PROVIDER, "clustered by another implementation"),
    ):
        if count := measured.count(name):
            yield f"{_files(count)} {what}; only a full rewrite takes them"
    vectors = measured.files["deletion_vector"]
    if count := len(vectors) - vectors.null_count:
        yield f"{_files(count)} with deleted rows; the ranges may be wider than the live rows"


def _direct_lake_notes(files: pa.Table) -> tuple[str, ...]:
    count, rows = files.num_rows, int(pc.sum(files["num_records"]).as_py() or 0)
    near = ", and ".join(
        f"{most_files:,} files and {most_rows:,} rows on {capacity}"
        for capacity, most_files, most_rows in _DIRECT_LAKE
        if count >= _NEAR * most_files or rows >= _NEAR * most_rows
    )
    text = f"{_files(count)} with {rows:,} rows; Direct Lake of Fabric loads tables of at most"
    return (f"{text} {near}, and counts row groups as it counts files",) if near else ()


def _truncation_notes(
    columns: Sequence[ClusteringColumn], bounds: Bounds, prefix: int
) -> Iterator[str]:
    for number, column in enumerate(columns):
        found = truncation(bounds, number, column, prefix)
        if found is None:
            continue
        if count := int(found.at_limit.sum()):
            yield (
                f"{_files(count)} with bounds of {column.name} cut to {prefix} characters;"
                " depths may be overstated"
            )
        if count := int(found.in_one_prefix.sum()):
            yield (
                f"{_files(count)} with all values of {column.name} beginning with the same"
                " characters, which are all that the log keeps: their depth and overlaps are not"
                " those of the values; doctor --fix cut-strings keeps more"
            )


def _mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    return np.asarray(pc.fill_null(values, fill_value=False), np.bool_)


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count} files are"


PROFILE_BINS: Final = 64
_EXACT_DEPTHS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnHealth:
    """The health of one clustering column alone.

    `overlap_ratio` is the mean share of the other files whose ranges meet a file's range, 0 if no
    ranges meet and 1 if all do. Depths and overlaps are None without any file with statistics. The
    two bounds of `files_in_one_prefix` are truncated to the same text; their depth says nothing
    about their values. `depth_profile` has the largest depth in each of up to 64 stretches from
    `min` to `max`, with equally many distinct bounds each.
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
    of the files with statistics of all columns, None without any; percentiles are depths that
    occur. `depth_ratio` is the average depth divided by the depth after a full rewrite,
    `read_ratio` the bytes that queries for one value of one column read, divided by the bytes after
    a full rewrite; None if not measured, or without ranges. `depth_histogram` counts files by
    depth: one key per depth up to 16, then doubling upper bounds. `constant_file_count` counts
    files of a single key. Cubes count as stable or partial by the table's own clustering columns.

    `…_by_bytes` are means weighted by the files' bytes. `…_within_cubes` are means over files,
    among the files of the same cube; `…_between_cubes` are means over cubes, whose range is from
    the first to the last key. `average_box_overlaps` is the mean number of other files that meet a
    file in every column, an estimate if `box_files_measured` is smaller than the number of files;
    `box_overlaps_error` is half the width of its 95 % confidence interval.

    `cannot_prune` has the conditions that rule out no file, `not_usable` the predicates that are no
    condition on this table. `asked_at` is the current time (ISO 8601, UTC) if a predicate depends
    on it.
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
        names = (
            *("table_uri", "version", "cluster_by_keys", "total_file_count", "total_bytes"),
            *("unclustered_file_count", "depth_ratio", "read_ratio", "average_depth", "max_depth"),
        )
        return {name: getattr(self, name) for name in names}


def numeric_fields(of: type[Health | ColumnHealth]) -> tuple[str, ...]:
    """Return the names of the numbers of health, some of them None where not measured."""
    numbers = (int, float, int | None, float | None)
    return tuple(field.name for field in fields(of) if field.type in numbers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Measured:
    """The measured files, with `ranges` per column; `cube` (int64) is -1 outside cubes."""

    columns: tuple[ClusteringColumn, ...]
    files: pa.Table
    states: pa.Array
    cube: NDArray[np.int64]
    bounds: Bounds
    ranges: tuple[KeyRanges, ...]

    def sizes(self) -> NDArray[np.int64]:
        return np.asarray(self.files["size"].to_numpy(), np.int64)

    def count(self, state: str) -> int:
        return int(_mask(pc.equal(self.states, state)).sum())

    def cubes(self, state: str) -> int:
        return len(self.files["zcube_id"].filter(pc.equal(self.states, state)).unique())


def measure_health(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None = None,
    measured_at_ms: int | None = None,
) -> Health:
    """Return the health, by `columns`, of the files where `mask` is true."""
    measured = _measured(snapshot, columns, bounds, min_cube_bytes=min_cube_bytes, mask=mask)
    known = measured.bounds.all_known()
    by_column = [ranges.selected(known) for ranges in measured.ranges]
    none = np.zeros(0, np.int64)
    ranges = key_ranges(by_column) if by_column else KeyRanges(lo=none, hi=none)
    sizes = measured.sizes()
    boxes = box_overlaps(by_column)
    prefix = prefix_chars(snapshot)
    depth = depths(ranges)
    notes = _direct_lake_notes(measured.files) if mask is None else ()
    return Health(
        table_uri=snapshot.uri,
        version=snapshot.version,
        committed_at=iso_time(snapshot.timestamp_ms),
        measured_at=None if measured_at_ms is None else iso_time(measured_at_ms),
        cluster_by_keys=tuple(column.name for column in measured.columns),
        total_file_count=measured.files.num_rows,
        total_bytes=int(sizes.sum()),
        unclustered_file_count=measured.count(UNCLUSTERED),
        unclustered_bytes=int(sizes[_mask(pc.equal(measured.states, UNCLUSTERED))].sum()),
        constant_file_count=int(_constant(measured, known).sum()),
        stable_cube_count=measured.cubes(STABLE),
        partial_cube_count=measured.cubes(PARTIAL),
        **_means(ranges, sizes[known]),
        average_overlaps_by_bytes=_mean(overlaps(ranges), sizes[known]),
        p95_depth=_percentile(depth, 95),
        p99_depth=_percentile(depth, 99),
        **_cubes(measured, known),
        average_box_overlaps=round(boxes.average, _DECIMALS) if len(ranges) else None,
        box_overlaps_error=round(boxes.error, _DECIMALS) if len(ranges) else None,
        box_files_measured=boxes.files_measured,
        depth_histogram=_histogram(depth),
        columns=tuple(_column_health(measured, number, prefix) for number in range(len(columns))),
        notes=(*_notes(snapshot, measured), *notes),
    )


def _means(ranges: KeyRanges, sizes: NDArray[np.int64]) -> dict[str, Any]:
    """Return the measures of files that both kinds of health have."""
    depth = depths(ranges)
    return {
        "files_with_stats": len(ranges),
        "average_overlaps": _mean(overlaps(ranges)),
        "average_depth": _mean(depth),
        "average_depth_by_bytes": _mean(depth, sizes),
        "max_depth": _percentile(depth, 100),
    }


def _measured(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None,
) -> _Measured:
    # The state of a cube depends on all its files, also on those that are not measured.
    own, files = clustering_state(snapshot).columns, snapshot.files
    states, places = file_states(snapshot, own, min_cube_bytes), membership(files, own)
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
    others = len(ranges) - 1
    ratio = float(overlaps(ranges).mean()) / others if others > 0 else 0.0
    truncated = truncation(measured.bounds, number, column, prefix)
    return ColumnHealth(
        name=column.name,
        **_means(ranges, measured.sizes()[known]),
        overlap_ratio=round(ratio, _DECIMALS) if len(ranges) else None,
        files_in_one_prefix=0 if truncated is None else int(truncated.in_one_prefix.sum()),
        min=_end(measured.bounds, number, known, first=True),
        max=_end(measured.bounds, number, known, first=False),
        depth_profile=tuple(depth_profile(ranges, PROFILE_BINS).tolist()),
    )


def _constant(measured: _Measured, known: Mask) -> Mask:
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


def _end(bounds: Bounds, number: int, known: Mask, *, first: bool) -> Any:  # noqa: ANN401  a value of the column
    if not known.any():
        return None
    ranges = column_ranges(bounds.low(number), bounds.high(number)).selected(known)
    place = int(ranges.lo.argmin() if first else ranges.hi.argmax())
    values = bounds.low(number) if first else bounds.high(number)
    return values[int(np.flatnonzero(known)[place])].as_py()


def _cubes(measured: _Measured, known: Mask) -> dict[str, Any]:
    there = known & (measured.cube >= 0)
    if not there.any():
        parts = ("depth_within", "overlaps_within", "depth_between", "overlaps_between")
        return {**{f"average_{part}_cubes": None for part in parts}, "cubes": ()}
    cube, ranges = measured.cube[there], [one.selected(there) for one in measured.ranges]
    # With the cube number as outermost column, ranges of different cubes never meet.
    apart = key_ranges([KeyRanges(lo=cube, hi=cube), *ranges])
    depth, overlap = depths(apart), overlaps(apart)
    _, first, member, count = np.unique(
        cube, return_index=True, return_inverse=True, return_counts=True
    )
    files = key_ranges(ranges)
    lo, hi = np.full(len(first), np.iinfo(np.int64).max), np.zeros(len(first), np.int64)
    np.minimum.at(lo, member, files.lo)
    np.maximum.at(hi, member, files.hi)
    whole = KeyRanges(lo=lo, hi=hi)
    between = overlaps(whole)
    deepest = np.zeros(len(first), np.int64)
    np.maximum.at(deepest, member, depth)
    ones = pa.array(np.flatnonzero(there)[first])
    rows = pa.table(
        {
            "zcube_id": pc.cast(measured.files["zcube_id"].take(ones), pa.string()),
            "state": measured.states.take(ones),
            "files": count,
            "size_bytes": _sums(member, measured.sizes()[there]),
            "average_depth": np.round(_sums(member, depth) / count, _DECIMALS),
            "max_depth": deepest,
            "average_overlaps": np.round(_sums(member, overlap) / count, _DECIMALS),
            "overlapping_cubes": between,
        }
    )
    worst = ("average_depth", "overlapping_cubes", "size_bytes")
    ranked = rows.sort_by([*((name, "descending") for name in worst), ("zcube_id", "ascending")])
    return {
        "average_depth_within_cubes": _mean(depth),
        "average_overlaps_within_cubes": _mean(overlap),
        "average_depth_between_cubes": _mean(depths(whole)),
        "average_overlaps_between_cubes": _mean(between),
        "cubes": tuple(CubeHealth(**row) for row in ranked.slice(0, _CUBES_LISTED).to_pylist()),
    }


def _sums(member: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    sums = np.zeros(int(member.max()) + 1, np.int64)
    np.add.at(sums, member, values)
    return sums


def _histogram(depth: NDArray[np.int64]) -> dict[str, int]:
    # The upper bound of a bucket is the depth itself up to 16, then the next power of two.
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


def _percentile(depth: NDArray[np.int64], percent: int) -> int | None:
    """Return the smallest depth that at least `percent` % of the files do not exceed."""
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


# Bars for health, such as `read_ratio > 1.5`, for scripts that watch a table

_BAR: Final = re.compile(r"\s*(?P<name>.+?)\s*(?P<op><=|>=|==|!=|=|<|>)\s*(?P<value>\S+)\s*")
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthBar:
    """A limit of one number of Health; the bar is crossed if the comparison holds."""

    text: str
    name: str
    compare: Callable[[float, float], bool]
    limit: float


def parse_bar(text: str) -> HealthBar:
    """Return the bar in `NAME OPERATOR NUMBER`; NAME is a number of Health or `COLUMN.FIELD`."""
    match = _BAR.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a bar; write it like read_ratio>1.5", bar=text)
    name = match["name"]
    last = name.rpartition(".")
    known = numeric_fields(ColumnHealth if last[1] else Health)
    if last[2] not in known:
        hint = suggestion(last[2], known, what="numbers")
        raise UsageError(f"health has no number {name!r}{hint}", bar=text)
    try:
        limit = float(match["value"])
    except ValueError:
        raise UsageError(f"{match['value']!r} in {text!r} is not a number", bar=text) from None
    if not math.isfinite(limit):
        raise UsageError(f"{text!r} is never or always true; give a finite number", bar=text)
    return HealthBar(text=text, name=name, compare=_OPERATORS[match["op"]], limit=limit)


def is_crossed(bar: HealthBar, health: Health) -> bool:
    return bar.compare(require_measured(bar, health), bar.limit)


def require_measured(bar: HealthBar, health: Health) -> float:
    """Return the number of the bar, or refuse a health without it."""
    value = _value(bar, health)
    if value is not None:
        return value
    why = "; ".join(health.notes) or "no file is in a cube"
    if not health.cluster_by_keys:
        why = (
            "the table has no clustering columns; name columns with --columns, or give its queries"
            " with --workload"
        )
    elif not health.total_file_count:
        why = "there are no files"
    elif without := health.total_file_count - health.files_with_stats:
        why = (
            f"{without} of {health.total_file_count} files have no range of these columns;"
            " doctor --fix missing-statistics computes those of clustering columns"
        )
    raise UsageError(
        f"{bar.name} is not measured, so the bar {bar.text!r} says nothing: {why}", bar=bar.text
    )


def is_measured(bar: HealthBar, health: Health) -> bool:
    return _value(bar, health) is not None


def _value(bar: HealthBar, health: Health) -> float | None:
    column, _, number = bar.name.rpartition(".")
    named = {one.name.lower(): one for one in health.columns}
    of = named.get(quote_path(split_path(column)).lower()) if column else health
    if of is None:
        listed = ", ".join(known.name for known in health.columns) or "none"
        raise UsageError(
            f"health was not measured by the column {column}; its columns are {listed}"
        )
    found: float | None = getattr(of, number)
    return found
