"""What the predicates of a workload would read after a plan, simulated from statistics.

The rows of a group are made up: spread evenly over the boxes of its files, as many as their bytes.
The executor's own kernels place them in the planned number of files, whose bounds then answer the
predicates. Columns that are not clustered by keep the bounds of the whole group. Of texts only the
ends of files are known, so files of few inputs are predicted wider than they will come out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health.measure import Health, measure_health
from liquidlog.plan import ClusteringPlan, RewriteGroup
from liquidlog.predicates.workload import Workload, shares
from liquidlog.simulation.table import Points, Rows, placed
from liquidlog.snapshot import FILES_SCHEMA, Snapshot, decoded_paths
from liquidlog.spec.schema import Leaf, leaves
from liquidlog.spec.stats import BoundsOf

_ROWS_IN_A_FILE: Final = 64
_MOST_ROWS: Final = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedReads:
    """What readers with one predicate read before and after; `share` is how often it is asked."""

    where: str
    share: float
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a plan would bring to a workload; bytes and files read are means over it.

    `gain_per_byte` is bytes a reader is spared for each byte rewritten. `break_even_reads` is
    after how many readers the rewrite has spared as many bytes as it rewrites, None if never.
    """

    bytes_to_rewrite: int
    files_to_rewrite: int
    files_to_write: int
    files_before: float
    files_after: float
    bytes_before: float
    bytes_after: float
    gain_per_byte: float
    break_even_reads: float | None
    predicates: tuple[PredictedReads, ...]

    def document(self) -> dict[str, Any]:
        """Return the prediction as values that can be printed."""
        return {name: getattr(self, name) for name in self.__slots__}


def predict(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    workload: Workload,
    bounds_of: BoundsOf,
    samples: Sequence[pa.Table] | None = None,
) -> Prediction:
    """Return what a plan for this snapshot would bring.

    `samples` are rows of the plan's columns, a table a group; without, rows are made up.

    Raises:
        UsageError: If a predicate cannot be understood.
    """
    # The SQL parser takes a third of a command's start; most commands have no predicate.
    from liquidlog.predicates.matching import may_match_each, referenced_leaves

    asked = [predicate.where for predicate in workload]
    before = may_match_each(snapshot, asked, bounds_of)
    clustered = [column.logical for column in plan.columns]
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    measured = {leaf.logical: leaf for leaf in referenced_leaves(snapshot, asked)}
    measured |= {path: known[path] for path in clustered}
    bounds = bounds_of(list(measured.values()))
    places = [list(measured).index(path) for path in clustered]
    after = _after(snapshot, plan, bounds, places, samples)
    ordered = list(measured.values())
    masks = may_match_each(after[0], asked, partial(_selected, after[1], ordered))
    return _prediction(plan, workload, (snapshot, before), (after[0], masks))


def predicted_health(
    snapshot: Snapshot, plan: ClusteringPlan, bounds_of: BoundsOf, *, min_cube_bytes: int
) -> Health:
    """Return the health by the plan's columns that the table would have after it.

    The files of a group count as no cube's.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    columns = clustering_state(snapshot).columns
    bounds = bounds_of([column.leaf for column in columns])
    after, found = _after(snapshot, plan, bounds, range(len(columns)))
    return measure_health(after, columns, found, min_cube_bytes=min_cube_bytes)


def _prediction(
    plan: ClusteringPlan,
    workload: Workload,
    before: tuple[Snapshot, Sequence[pa.BooleanArray]],
    after: tuple[Snapshot, Sequence[pa.BooleanArray]],
) -> Prediction:
    read = [[_read(snapshot, mask) for mask in masks] for snapshot, masks in (before, after)]
    rows = tuple(
        PredictedReads(
            where=predicate.where,
            share=share,
            files_before=old[0],
            files_after=new[0],
            bytes_before=old[1],
            bytes_after=new[1],
        )
        for predicate, share, old, new in zip(workload, shares(workload), *read, strict=True)
    )
    bytes_before = sum(row.share * row.bytes_before for row in rows)
    bytes_after = sum(row.share * row.bytes_after for row in rows)
    spared = bytes_before - bytes_after
    return Prediction(
        bytes_to_rewrite=plan.size_bytes,
        files_to_rewrite=sum(len(group.inputs) for group in plan.groups),
        files_to_write=sum(group.expected_outputs for group in plan.groups),
        files_before=sum(row.share * row.files_before for row in rows),
        files_after=sum(row.share * row.files_after for row in rows),
        bytes_before=bytes_before,
        bytes_after=bytes_after,
        gain_per_byte=spared / plan.size_bytes if plan.groups else 0.0,
        break_even_reads=plan.size_bytes / spared if spared > 0 else None,
        predicates=rows,
    )


def _read(snapshot: Snapshot, mask: pa.BooleanArray) -> tuple[int, int]:
    files = snapshot.files["size"].filter(mask)
    return len(files), int(pc.sum(files).as_py() or 0)


def _after(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    bounds: pa.Table,
    clustered: Sequence[int],
    samples: Sequence[pa.Table] | None = None,
) -> tuple[Snapshot, pa.Table]:
    """Return the table as it would be, and the bounds of its files."""
    paths = decoded_paths(snapshot.files)
    inputs = [group.inputs.columns["path"] for group in plan.groups]
    taken = [pc.index_in(group, paths).to_numpy() for group in inputs]
    numbers = np.concatenate([*taken, np.zeros(0)]).astype(np.int64)
    kept = np.ones(len(paths), np.bool_)
    kept[numbers] = False
    files = [snapshot.files.filter(pa.array(kept))]
    found = [bounds.filter(pa.array(kept))]
    start = 0
    for number, group in enumerate(plan.groups):
        rows = numbers[start : start + len(group.inputs)]
        start += len(rows)
        sample = None if samples is None else samples[number]
        made, made_bounds = _rewritten(plan, group, bounds.take(pa.array(rows)), clustered, sample)
        files.append(made)
        found.append(made_bounds)
    return replace(snapshot, files=pa.concat_tables(files)), pa.concat_tables(found)


def _rewritten(
    plan: ClusteringPlan,
    group: RewriteGroup,
    bounds: pa.Table,
    clustered: Sequence[int],
    sample: pa.Table | None,
) -> tuple[pa.Table, pa.Table]:
    size = group.inputs.columns["size_bytes"].to_numpy().astype(np.float64)
    values = [None] * len(clustered) if sample is None else list(sample.itercolumns())
    scales = [
        _Scale(bounds[f"min.{column}"], bounds[f"max.{column}"], sampled)
        for column, sampled in zip(clustered, values, strict=True)
    ]
    points = _points(group, size, scales) if sample is None else _sampled(scales)
    parts = np.zeros(len(points), np.int64)
    if clustered:
        placed_in = placed(points, group.expected_outputs, curve=plan.curve)
        parts = np.unique(placed_in, return_inverse=True)[1]
    outputs = int(parts.max(initial=0)) + 1
    shares_of = np.bincount(parts, minlength=outputs) / len(parts)
    made = _merged(bounds, outputs, shares_of)
    for column, scale, values in zip(clustered, scales, points.T, strict=bool(clustered)):
        low, high = scale.ends(values, parts, outputs)
        made[f"min.{column}"], made[f"max.{column}"] = low, high
    return _files(size.sum() * shares_of, made["num_records"]), pa.table(
        {name: made[name] for name in bounds.column_names}, schema=bounds.schema
    )


def _points(group: RewriteGroup, size: Points, scales: Sequence["_Scale"]) -> Points:
    """Return made-up rows, as many of a file as its bytes, evenly spread over its box."""
    wanted = min(_MOST_ROWS, _ROWS_IN_A_FILE * max(group.expected_outputs, len(size)))
    counts = np.maximum(1, np.round(size * (wanted / max(size.sum(), 1.0)))).astype(np.int64)
    owner = np.repeat(np.arange(len(size)), counts)
    random = np.random.default_rng(len(owner)).random((len(owner), max(1, len(scales))))
    if not scales:
        return random
    columns = [scale.spread(owner, random[:, j]) for j, scale in enumerate(scales)]
    return np.stack(columns, axis=1)


def _sampled(scales: Sequence["_Scale"]) -> Points:
    return np.stack([scale.sampled for scale in scales], axis=1)


class _Scale:
    """One column's values as numbers and back; texts are numbered among those that are known.

    Known are the ends of a group's files and the `sampled` values.
    """

    def __init__(
        self, low: pa.ChunkedArray, high: pa.ChunkedArray, sampled: pa.ChunkedArray | None
    ) -> None:
        self._type = low.type
        rows = pa.nulls(0, low.type) if sampled is None else sampled.cast(low.type).combine_chunks()
        known_values = [low.combine_chunks(), high.combine_chunks(), rows]
        ends = pa.concat_arrays(known_values).drop_null()
        self._ends = ends.take(pc.array_sort_indices(ends)) if len(ends) else ends
        self._is_text = pa.types.is_string(self._type) or not len(ends)
        known = self._numbers(pc.fill_null(low, self._ends[0])) if len(ends) else np.zeros(len(low))
        top = self._numbers(pc.fill_null(high, self._ends[-1])) if len(ends) else known
        self._low, self._high = known, np.maximum(known, top)
        filled = pc.fill_null(rows, self._ends[0]) if len(ends) else rows
        self.sampled = self._numbers(filled) if len(ends) else np.zeros(len(rows))

    def spread(self, owner: Rows, random: Points) -> Points:
        """Return a number for each row, evenly spread over the range of its file."""
        low, high = self._low[owner], self._high[owner]
        return np.asarray(low + random * (high - low), np.float64)

    def ends(self, values: Points, parts: Rows, outputs: int) -> tuple[pa.Array, pa.Array]:
        """Return the bounds of each output, no narrower than its rows."""
        low, high = np.full(outputs, np.inf), np.full(outputs, -np.inf)
        np.minimum.at(low, parts, values)
        np.maximum.at(high, parts, values)
        return self._values(np.floor, low), self._values(np.ceil, high)

    def _numbers(self, values: pa.ChunkedArray) -> Points:
        flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if self._is_text:
            return np.asarray(pc.index_in(flat, pc.unique(self._ends)), np.float64)
        return np.asarray(pc.cast(_as_number(flat), pa.float64(), safe=False), np.float64)

    def _values(self, rounded: Any, numbers: Points) -> pa.Array:  # noqa: ANN401  a ufunc
        if not len(self._ends):
            return pa.nulls(len(numbers), self._type)
        if self._is_text:
            return pc.unique(self._ends).take(pa.array(rounded(numbers).astype(np.int64)))
        if pa.types.is_floating(self._type):
            return pa.array(numbers).cast(self._type)
        if pa.types.is_decimal(self._type):
            scale = 10.0**self._type.scale
            whole = pa.array(rounded(numbers * scale) / scale)
            return pc.cast(whole, self._type, safe=False)
        wide = pa.array(rounded(numbers).astype(np.int64))
        stored = pa.int32() if pa.types.is_date32(self._type) else pa.int64()
        return pc.cast(pc.cast(wide, stored), self._type)


def _as_number(values: pa.Array) -> pa.Array:
    if pa.types.is_date32(values.type):
        return pc.cast(values, pa.int32())
    if pa.types.is_timestamp(values.type):
        return pc.cast(values, pa.int64())
    return values


def _merged(bounds: pa.Table, outputs: int, shares_of: Points) -> dict[str, pa.Array]:
    """Return the bounds of outputs that each hold rows of all inputs."""
    made: dict[str, pa.Array] = {}
    for name in bounds.column_names:
        column = bounds[name].combine_chunks()
        if name.startswith(("min.", "max.")):
            known = len(column) and not column.null_count and column.type != pa.null()
            side = pc.min(column) if name.startswith("min.") and known else None
            side = pc.max(column) if name.startswith("max.") and known else side
            value = None if side is None else side.as_py()
            made[name] = pa.array([value] * outputs, column.type)
        elif column.null_count:
            made[name] = pa.nulls(outputs, pa.int64())
        else:
            total = int(pc.sum(column).as_py() or 0)
            made[name] = pa.array(np.ceil(total * shares_of).astype(np.int64))
    return made


def _files(size: Points, records: pa.Array) -> pa.Table:
    columns = {
        "path": pa.array([f"planned-{number}" for number in range(len(size))], pa.string()),
        "size": pa.array(size.astype(np.int64)),
        "num_records": records,
    }
    return pa.table(
        [columns.get(field.name, pa.nulls(len(size), field.type)) for field in FILES_SCHEMA],
        schema=FILES_SCHEMA,
    )


def _selected(bounds: pa.Table, known: Sequence[Leaf], wanted: Sequence[Leaf]) -> pa.Table:
    """Return the bounds of some leaves in the order they are asked for."""
    columns = {}
    for number, leaf in enumerate(wanted):
        place = list(known).index(leaf)
        for name in ("min", "max", "null_count"):
            columns[f"{name}.{number}"] = bounds[f"{name}.{place}"]
    return pa.table({**columns, "num_records": bounds["num_records"]})
