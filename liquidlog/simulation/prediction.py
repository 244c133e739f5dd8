"""Predictions of what a workload reads after a plan, simulated from statistics.

The rows of a group are made up: each input gets rows in proportion to its bytes, spread evenly over
its box. The executor's own kernels place these rows in the planned number of files, and the
predicates are evaluated on the bounds of those files. In columns that the plan does not cluster by,
every output has the bounds of the whole group. The only strings known are the bounds of files, so
the outputs of few inputs are predicted wider than they will be.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health.measure import Health, measure_health
from liquidlog.clustering.keyspace.cells import placed
from liquidlog.curve.ranges import range_ids
from liquidlog.plan import ClusteringPlan, RewriteGroup, parsed_as
from liquidlog.predicates.sessions import Session
from liquidlog.predicates.workload import NotUsable, Workload, shares
from liquidlog.simulation.imagined import ImaginedFiles, with_imagined
from liquidlog.simulation.table import Points, Rows
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, BoundsOf, ColumnBounds, Mask, concat_bounds
from liquidlog.spec.schema import Leaf, leaves
from liquidlog.spec.times import iso_time

if TYPE_CHECKING:
    from liquidlog.predicates.matching import Judged
    from liquidlog.predicates.readers import Answers

_ROWS_IN_A_FILE: Final = 64
_MOST_ROWS: Final = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedReads:
    """The reads of one predicate before and after a plan; `share` is its share of the workload.

    `cannot_prune` lists the conditions in it that rule out no file, whatever the statistics.
    """

    where: str
    share: float
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    cannot_prune: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted effect of a plan on a workload.

    `files_before`, `files_after`, `bytes_before` and `bytes_after` are means per read.
    `gain_per_byte` is the number of bytes that a read saves per rewritten byte. After
    `break_even_reads` reads, as many bytes are saved as were rewritten; None if a read saves
    nothing.

    `cannot_prune` lists the conditions of all predicates that rule out no file. `not_usable` has
    the predicates that are no condition on this table, which count nowhere else. `asked_at` is the
    current time (ISO 8601, UTC) if a predicate depends on it, else None.
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
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]
    asked_at: str | None

    def document(self) -> dict[str, Any]:
        """Return the fields by name, `predicates` as PredictedReads, ready to print as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def predict(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    workload: Workload,
    bounds_of: BoundsOf,
    samples: Sequence[pa.Table] | None = None,
    *,
    now_ms: int | None = None,
) -> Prediction:
    """Return the predicted effect of a plan for this snapshot on a workload.

    `samples` holds one table per group of the plan, with the clustering columns of sampled rows.
    Without samples, rows are made up. `now_ms` is the current time in predicates.

    Raises:
        UsageError: If no predicate is a condition on the table.
    """
    # The SQL parser takes a third of a command's start; most commands have no predicate.
    from liquidlog.predicates.matching import judged_each, referenced_leaves
    from liquidlog.predicates.readers import answers

    session = Session(None if now_ms is None else 1000 * now_ms)
    readers = answers(snapshot, workload, bounds_of, session)
    asked = [predicate.where for predicate in readers.workload]
    clustered = [column.logical for column in plan.columns]
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    measured = {leaf.logical: leaf for leaf in referenced_leaves(snapshot, asked)}
    measured |= {path: known[path] for path in clustered}
    bounds = bounds_of(list(measured.values()))
    places = [list(measured).index(path) for path in clustered]
    after = _after(snapshot, plan, bounds, places, samples)
    numbers = {leaf: number for number, leaf in enumerate(measured.values())}

    def bounds_after(wanted: Sequence[Leaf]) -> Bounds:
        return after.bounds.select([numbers[leaf] for leaf in wanted])

    found = judged_each(after.snapshot, asked, bounds_after, session)
    before = [_mask(one) for one in readers.judged]
    masks = [_one_per_group(after, old, _mask(one)) for old, one in zip(before, found, strict=True)]
    made = _prediction(plan, readers, (snapshot, before), (after.snapshot, masks))
    is_timed = readers.asks_for_time and now_ms is not None
    return replace(made, asked_at=iso_time(now_ms) if is_timed and now_ms is not None else None)


def predicted_health(
    snapshot: Snapshot, plan: ClusteringPlan, bounds_of: BoundsOf, *, min_cube_bytes: int
) -> Health:
    """Return the health that the table would have after the plan, by its clustering columns.

    The health counts the files that the plan would write as unclustered.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    columns = clustering_state(snapshot).columns
    bounds = bounds_of([column.leaf for column in columns])
    after = _after(snapshot, plan, bounds, range(len(columns)))
    return measure_health(after.snapshot, columns, after.bounds, min_cube_bytes=min_cube_bytes)


def _prediction(
    plan: ClusteringPlan,
    readers: "Answers",
    before: tuple[Snapshot, Sequence[Mask]],
    after: tuple[Snapshot, Sequence[Mask]],
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
            cannot_prune=judged.cannot_prune,
        )
        for predicate, judged, share, old, new in zip(
            readers.workload, readers.judged, shares(readers.workload), *read, strict=True
        )
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
        cannot_prune=readers.cannot_prune,
        not_usable=readers.not_usable,
        asked_at=None,
    )


def _mask(judged: "Judged") -> Mask:
    return np.asarray(judged.may_match, np.bool_)


def _one_per_group(after: "_After", before: Mask, mask: Mask) -> Mask:
    """Return the files that a predicate may match, at least one of each group that has its rows.

    Made-up and sampled rows leave gaps between files, where rows may lie that nobody saw.
    """
    owners, outputs = after.groups_of_inputs, after.groups_of_files
    asked = np.unique(owners[before & (owners >= 0)])
    missed = np.setdiff1d(asked, outputs[mask])
    found = mask.copy()
    size_bytes = after.snapshot.files["size"].to_numpy()
    for group in missed:
        files = np.flatnonzero(outputs == group)
        # The file of the middle size, as none is likelier than the others.
        found[files[np.argsort(size_bytes[files], kind="stable")[len(files) // 2]]] = True
    return found


def _read(snapshot: Snapshot, mask: Mask) -> tuple[int, int]:
    files = snapshot.files["size"].filter(pa.array(mask))
    return len(files), int(pc.sum(files).as_py() or 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _After:
    """The table after a plan, with the bounds of its files.

    `groups_of_inputs` has per file before the number of the group that takes it, `groups_of_files`
    per file after the number of the group that wrote it; -1 for none.
    """

    snapshot: Snapshot
    bounds: Bounds
    groups_of_inputs: Rows
    groups_of_files: Rows


def _after(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    bounds: Bounds,
    clustered: Sequence[int],
    samples: Sequence[pa.Table] | None = None,
) -> _After:
    """Return the table after the plan, which clusters by the columns `clustered` of `bounds`."""
    paths = snapshot.paths()
    inputs = [
        pc.index_in(group.inputs.columns["path"].combine_chunks(), paths) for group in plan.groups
    ]
    owners = np.full(len(paths), -1, np.int64)
    for number, rows in enumerate(inputs):
        owners[rows.to_numpy()] = number
    kept = pa.array(owners < 0)
    outputs = [
        _rewritten(plan, group, bounds.take(rows), clustered, sample)
        for group, rows, sample in zip(
            plan.groups, inputs, samples or [None] * len(inputs), strict=True
        )
    ]
    return _After(
        snapshot=with_imagined(snapshot, kept, [files for files, _ in outputs]),
        bounds=concat_bounds([bounds.filter(kept), *(made for _, made in outputs)]),
        groups_of_inputs=owners,
        groups_of_files=np.concatenate(
            [
                np.full(int((owners < 0).sum()), -1, np.int64),
                *(np.full(len(files.paths), n, np.int64) for n, (files, _) in enumerate(outputs)),
            ]
        ),
    )


def _rewritten(
    plan: ClusteringPlan,
    group: RewriteGroup,
    bounds: Bounds,
    clustered: Sequence[int],
    sample: pa.Table | None,
) -> tuple[ImaginedFiles, Bounds]:
    """Return the files that a rewrite of a group would write; `bounds` are those of its inputs."""
    size = group.inputs.columns["size_bytes"].to_numpy().astype(np.float64)
    sampled = [None] * len(clustered) if sample is None else list(sample.itercolumns())
    scales = [
        _Scale(bounds.low(number), bounds.high(number), values)
        for number, values in zip(clustered, sampled, strict=True)
    ]
    points = _points(group, size, scales) if sample is None else _sampled(scales)
    parts = np.zeros(len(points), np.int64)
    if clustered:
        placed_in = _placed(plan, group, points, scales)
        parts = np.unique(placed_in, return_inverse=True)[1]
    outputs = int(parts.max(initial=0)) + 1
    shares_of = np.bincount(parts, minlength=outputs) / len(parts)
    columns = [_mixed(column, shares_of) for column in bounds.columns]
    for number, scale, values in zip(clustered, scales, points.T, strict=bool(clustered)):
        low, high = scale.ends(values, parts, outputs)
        columns[number] = replace(columns[number], low=low, high=high)
    num_records = _divided(bounds.num_records, shares_of)
    files = ImaginedFiles(
        paths=pa.array([f"planned-{group.group_id}-{number}" for number in range(outputs)]),
        size_bytes=(size.sum() * shares_of).astype(np.int64),
        num_records=num_records,
    )
    return files, Bounds(columns=tuple(columns), num_records=num_records)


def _placed(
    plan: ClusteringPlan, group: RewriteGroup, points: Points, scales: Sequence["_Scale"]
) -> Rows:
    """Return the output of each row; made-up rows become those of values where values count."""
    readers, outputs = plan.readers, group.expected_outputs
    if readers is None and not plan.prefix:
        return placed(points, outputs, curve=plan.curve)
    for number, scale in enumerate(scales):
        points[:, number] = scale.whole(points[:, number])
    conditions = None if readers is None else readers.conditions([one.parsed for one in scales])
    return placed(points, outputs, curve=plan.curve, conditions=conditions, prefix=plan.prefix)


def _points(group: RewriteGroup, size: Points, scales: Sequence["_Scale"]) -> Points:
    """Return made-up rows (float64, rows by columns), spread evenly over the boxes of files.

    The number of rows per file is proportional to its bytes.
    """
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
    """Converts values of one column to numbers (float64) and back.

    The number of a string is its rank among the known ones: the bounds of a group's files and the
    sampled values.
    """

    def __init__(self, low: pa.Array, high: pa.Array, sampled: pa.ChunkedArray | None) -> None:
        self._type = low.type
        rows = pa.nulls(0, low.type) if sampled is None else sampled.cast(low.type).combine_chunks()
        ends = pa.concat_arrays([low, high, rows]).drop_null()
        self._ends = ends.take(pc.array_sort_indices(ends)) if len(ends) else ends
        self._is_text = pa.types.is_string(self._type) or not len(ends)
        known = self._numbers(pc.fill_null(low, self._ends[0])) if len(ends) else np.zeros(len(low))
        top = self._numbers(pc.fill_null(high, self._ends[-1])) if len(ends) else known
        self._low, self._high = known, np.maximum(known, top)
        filled = pc.fill_null(rows, self._ends[0]) if len(ends) else rows
        self.sampled = self._numbers(filled) if len(ends) else np.zeros(len(rows))

    def spread(self, owner: Rows, random: Points) -> Points:
        """Return a number per row (float64), spread evenly over the range of its file."""
        low, high = self._low[owner], self._high[owner]
        return np.asarray(low + random * (high - low), np.float64)

    def ends(self, values: Points, parts: Rows, outputs: int) -> tuple[pa.Array, pa.Array]:
        """Return lower and upper bounds, one per output, no narrower than its rows."""
        low, high = np.full(outputs, np.inf), np.full(outputs, -np.inf)
        np.minimum.at(low, parts, values)
        np.maximum.at(high, parts, values)
        return self._values(np.floor, low), self._values(np.ceil, high)

    def whole(self, numbers: Points) -> Points:
        """Return made-up numbers as those of values, where all values have whole numbers."""
        is_dense = pa.types.is_floating(self._type) or pa.types.is_decimal(self._type)
        return numbers if is_dense else np.rint(numbers)

    def parsed(self, texts: Sequence[str | None]) -> pa.Array:
        """Return the numbers of a plan's constants, null where None; between those of texts.

        Raises:
            ValueError: If a constant is no value of the column.
        """
        if not self._is_text:
            found = parsed_as(self._type, texts)
            return pa.array(self._numbers(pc.fill_null(found, self._ends[0])), mask=_nulls(found))
        if not pa.types.is_string(self._type):
            return pa.nulls(len(texts), pa.float64())
        wanted = parsed_as(self._type, texts)
        known = pc.unique(self._ends)
        places = range_ids(pc.fill_null(wanted, ""), known).astype(np.float64) - 1
        is_known = np.asarray(pc.is_in(wanted, value_set=known), np.bool_)
        return pa.array(np.where(is_known, places, places - 0.5), mask=_nulls(wanted))

    def _numbers(self, values: pa.Array) -> Points:
        if self._is_text:
            return np.asarray(pc.index_in(values, pc.unique(self._ends)), np.float64)
        return np.asarray(pc.cast(_as_number(values), pa.float64(), safe=False), np.float64)

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


def _nulls(values: pa.Array) -> Rows:
    return np.asarray(values.is_null())


def _as_number(values: pa.Array) -> pa.Array:
    if pa.types.is_date32(values.type):
        return pc.cast(values, pa.int32())
    if pa.types.is_timestamp(values.type):
        return pc.cast(values, pa.int64())
    return values


def _mixed(column: ColumnBounds, shares_of: Points) -> ColumnBounds:
    """Return the bounds of outputs that each hold rows of all inputs; `shares_of` sums to 1."""
    return ColumnBounds(
        low=_everywhere(column.low, pc.min, len(shares_of)),
        high=_everywhere(column.high, pc.max, len(shares_of)),
        null_count=_divided(column.null_count, shares_of),
    )


def _everywhere(ends: pa.Array, of: Callable[[pa.Array], pa.Scalar], outputs: int) -> pa.Array:
    """Return one end over all inputs, repeated per output; null if that of any input is unknown."""
    if not len(ends) or ends.null_count:
        return pa.nulls(outputs, ends.type)
    return pa.array([of(ends).as_py()] * outputs, ends.type)


def _divided(counts: pa.Array, shares_of: Points) -> pa.Array:
    """Return the sum of `counts`, split by the outputs' shares, rounded up; null if unknown."""
    if counts.null_count:
        return pa.nulls(len(shares_of), pa.int64())
    return pa.array(np.ceil((pc.sum(counts).as_py() or 0) * shares_of).astype(np.int64))
