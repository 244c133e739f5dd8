"""Predictions of what queries open after a plan, and of a table beside a full rewrite of it.

For ratios, the table's rows, read or made up, are laid out in as many files as the table has: its
bytes divided by the mean size of a file, weighted by bytes, so that tiny files count little.
All curves except `linear` reach nearly the same mean, so the fastest curve lays out many files. For
more than MOST_FILES files, two smaller numbers are laid out, and the result is extrapolated.

Files that were clustered together have ratios of 1. If they hold most of the bytes, the error of
made-up rows shows in their measured ratios, and the result is corrected by it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import (
    ClusteringColumn,
    bounds_with_values,
    clustering_state,
    membership,
    unpartitioned,
)
from liquidlog.clustering.health import (
    DEFAULT_PREFIX_CHARS,
    Health,
    column_ranges,
    depths,
    key_ranges,
    prefix_chars,
    truncation,
)
from liquidlog.clustering.planner import input_rows
from liquidlog.clustering.settings import remembered_if_right
from liquidlog.curve.curves import Curve
from liquidlog.foresee.rows import (
    FROM_ROWS,
    FROM_STATISTICS,
    Packing,
    is_partition,
    made_up,
    rows_of,
)
from liquidlog.foresee.sample import (
    Floats,
    Grouping,
    KeptRows,
    Laid,
    Layout,
    Layouts,
    Numbers,
    Parts,
    Rows,
    Sample,
    sampled,
    spread,
)
from liquidlog.foresee.verdict import (
    EVERYTHING,
    LOCAL_DISK,
    OBJECT_STORE,
    Opened,
    PredictedReads,
    Prediction,
    Range,
    ReadersFrom,
    StoreProfile,
    imagined_files,
    opened_by_masks,
    opened_of_laid,
    shares_opened,
)
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import NotUsable, Session, Workload, shares
from liquidlog.snapshot import Snapshot, deleted_rows, num_records
from liquidlog.spec.bounds import (
    Bounds,
    BoundsOf,
    ColumnBounds,
    Mask,
    concat_bounds,
    has_bounds,
    indexed_leaves,
)
from liquidlog.spec.schema import Leaf, Path, leaves, quote_path
from liquidlog.storage.addresses import is_local
from liquidlog.storage.files import TableStore

MOST_FILES: Final = 12_288
"""The most files that are laid out; more are extrapolated."""
LEAST_RATIO: Final = 0.85
"""No rewrite makes a table worse by so much: at lower ratios, the made-up rows are wrong."""
MOST_UNMEASURED: Final = 0.1
"""Ratios are known if files without ranges hold at most this share of the bytes."""

_NOT_MEASURED_NOTE: Final = (
    "depth_ratio and read_ratio are not measured: files without bounds hold more than"
    f" {MOST_UNMEASURED:.0%} of the bytes"
)
_DEPENDENT_NOTE: Final = (
    "depth_ratio and read_ratio are not known: columns depend on each other, and the log does not"
    " show how; sample rows (--sample)"
)

_MOST_ROWS: Final = 131_072
_LEAST_ROWS: Final = 2_048
_ROWS_OF_A_FILE: Final = 96
_FEW_FILES: Final = 64
"""With at most this many files, it matters which column the table's own curve splits first."""
_DECIMALS: Final = 4


class Ratios(NamedTuple):
    """A number now, divided by the same number after a full rewrite; about 1 just after one.

    `depth` is for the average depth, `read` for the bytes that narrow queries open; None if the
    ranges of the files are not known.
    """

    depth: float | None
    read: float | None


NOT_MEASURED: Final = Ratios(depth=None, read=None)


def with_ratios(
    health: Health,
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None = None,
    sample: Sample | None = None,
) -> Health:
    """Return the health with ratios of the same files and columns."""
    is_measured, prefix = bounds.all_known(), prefix_chars(snapshot)
    for number, column in enumerate(columns):
        cut = truncation(bounds, number, column, prefix)
        if cut is not None:
            is_measured &= ~cut.in_one_prefix
    found = ratios(
        Files(
            leaves=tuple(column.leaf for column in columns),
            bounds=bounds,
            size_bytes=np.asarray(snapshot.files["size"].to_numpy(), np.float64),
            is_measured=is_measured,
            cube=membership(snapshot.files, columns).own_cube,
            prefix_chars=prefix,
        ),
        average_depth=health.average_depth,
        curve=remembered_if_right(snapshot, "curve"),
        group_bytes=max(remembered_if_right(snapshot, "target_cube_bytes"), min_cube_bytes),
        mask=None if mask is None else np.asarray(mask, np.bool_),
        sample=sample,
    )
    if found.depth is None or found.read is None:
        note = _NOT_MEASURED_NOTE if health.total_file_count else "there are no files to measure"
        return replace(health, notes=(*health.notes, note)) if columns else health
    if sample is None and min(found.depth, found.read) < LEAST_RATIO:
        return replace(health, notes=(*health.notes, _DEPENDENT_NOTE))
    return replace(health, depth_ratio=found.depth, read_ratio=found.read)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Files:
    """Live files and their bounds of the columns `leaves`.

    `is_measured` marks files with bounds of all columns; `cube` is the number of a file's cube of
    these columns, -1 without one. Statistics keep `prefix_chars` characters of a text.
    """

    leaves: tuple[Leaf, ...]
    bounds: Bounds
    size_bytes: Floats
    is_measured: Mask
    cube: Numbers
    prefix_chars: int = DEFAULT_PREFIX_CHARS

    def largest_cube(self, among: Mask) -> Mask | None:
        """Return the files of the cube with more than half of the bytes, None without one."""
        inside = among & (self.cube >= 0)
        by_cube = np.bincount(self.cube[inside], self.size_bytes[inside], minlength=1)
        found = inside & (self.cube == int(by_cube.argmax()))
        return found if by_cube.max() > self.size_bytes[among].sum() / 2 else None


def ratios(
    files: Files,
    *,
    average_depth: float | None,
    curve: str = Curve.HILBERT,
    group_bytes: int | None = None,
    mask: Mask | None = None,
    sample: Sample | None = None,
) -> Ratios:
    """Return the ratios of the files where `mask` is true.

    `average_depth` is of these files, None if not measured. A rewrite clusters at most
    `group_bytes` together, or all bytes. Without a `sample`, rows are made up.
    """
    sizes = files.size_bytes
    there = np.ones(len(sizes), np.bool_) if mask is None else mask.copy()
    for number in range(len(files.leaves)):
        there &= ~files.bounds.only_nulls(number)
    known = files.is_measured & (sizes > 0)
    chosen, total = known & there, float(sizes[there].sum())
    unmeasured = float(sizes[there & ~files.is_measured].sum())
    if average_depth is None or not chosen.any() or unmeasured > MOST_UNMEASURED * total:
        return NOT_MEASURED
    cube = files.largest_cube(chosen)
    if cube is not None and (cube >= chosen).all() and not unmeasured:
        return Ratios(depth=1.0, read=1.0)
    groups = 1 if group_bytes is None else max(1, int(np.ceil(float(sizes.sum()) / group_bytes)))
    found = _reached(files, known, chosen, Curve(curve), groups, sample)
    depth, read = average_depth / found.depth, found.width_now / found.width
    if cube is not None:
        own = _reached(files, cube, cube, Curve(curve), 1, sample)
        taken = files.bounds.filter(pa.array(cube))
        ranges = key_ranges([column_ranges(one.low, one.high) for one in taken.columns])
        depth /= float(depths(ranges).mean()) / own.depth
        read /= own.width_now / own.width
    # Queries open every file without bounds.
    read = (read * (total - unmeasured) + unmeasured / found.width) / total
    return Ratios(depth=round(depth, _DECIMALS), read=round(read, _DECIMALS))


class _Reached(NamedTuple):
    """Mean depth and width (a share of a column's values) after a rewrite, and the width now."""

    depth: float
    width: float
    width_now: float = 1.0


def _reached(
    files: Files, known: Mask, chosen: Mask, curve: Curve, groups: int, sample: Sample | None
) -> _Reached:
    """Return what the `chosen` files reach if all `known` files are rewritten in `groups`."""
    size = files.size_bytes[known]
    outputs, steps = float(size.sum()) ** 2 / float(size @ size) / groups, 0
    factor = 2.0 ** min(len(files.leaves), 4)
    most = MOST_FILES if sample is None else max(1, 2 * len(sample) // _ROWS_OF_A_FILE)
    while outputs > most:
        outputs, steps = outputs / factor, steps + 1
    if round(outputs) <= 1:
        return _Reached(depth=float(groups), width=1.0)
    sample = sample or _made_up(files, known, outputs)
    found = _laid_out(files, sample, known, chosen, curve, round(outputs))
    depth, width = found.depth, found.width
    if steps:
        less = _laid_out(files, sample, known, chosen, curve, max(1, round(outputs / factor)))
        depth *= min(max(depth / less.depth, 1.0), factor) ** steps
        width /= min(max(less.width / width, 1.0), factor) ** steps
    now = _width(files, sample, files.bounds.filter(pa.array(chosen)), files.size_bytes[chosen])
    return _Reached(depth=depth * groups, width=width, width_now=now)


def _made_up(files: Files, known: Mask, outputs: float) -> Sample:
    """Return rows made up from the bounds of files, in proportion to their bytes."""
    places = np.flatnonzero(known)
    places = places[spread(len(places), _MOST_ROWS)]
    bounds = files.bounds.take(pa.array(places))
    ranges = [column_ranges(one.low, one.high) for one in bounds.columns]
    # The order of files must not matter.
    keys = [end for one in ranges for end in (one.hi, one.lo)]
    places = places[np.lexsort([files.size_bytes[places], *keys])]
    wanted = int(min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS_OF_A_FILE * outputs)))
    total = np.cumsum(files.size_bytes[places])
    drawn = np.searchsorted(total, (np.arange(wanted) + 0.5) / wanted * total[-1])
    picked, counts = np.unique(np.minimum(drawn, len(places) - 1), return_counts=True)
    some = places[picked]
    bounds = files.bounds.take(pa.array(some))
    rows, owner = made_up(files.leaves, bounds, counts.astype(np.float64), wanted)
    return sampled(files.leaves, rows, some[owner], source=FROM_STATISTICS, files=len(some))


def _laid_out(
    files: Files, sample: Sample, known: Mask, chosen: Mask, curve: Curve, outputs: int
) -> _Reached:
    """Return the means over the files of the known rows, weighted by their chosen rows."""
    columns = tuple(leaf.logical for leaf in files.leaves)
    if len(columns) == 1:
        curve = Curve.LINEAR
    elif outputs > _FEW_FILES and curve is not Curve.LINEAR:
        curve = Curve.KD
    group = np.where(known, 0, -1).astype(np.int64)
    grouping = Grouping.of(group, files.size_bytes, files.size_bytes, groups=1)
    if sample.source == FROM_STATISTICS:
        grouping = replace(grouping, rows_of_file=None)
    layouts = Layouts(sample, files.leaves, files.prefix_chars)
    laid = layouts.laid(Layout(columns=columns, curve=curve), grouping, [outputs])
    parts = laid.parts
    if parts is None:
        return _Reached(depth=1.0, width=1.0)
    is_chosen = chosen[sample.file[parts.order]].astype(np.float64)
    share = np.add.reduceat(is_chosen, parts.starts) / parts.counts
    if not share.any():
        share = np.ones(len(share))  # none of the few chosen rows was sampled
    ends = []
    for path in columns:
        codes = sample.column(path).codes[parts.order]
        low, high = (end.reduceat(codes, parts.starts) for end in (np.minimum, np.maximum))
        ends.append(column_ranges(pa.array(low), pa.array(high)))
    depth = depths(key_ranges(ends), share)
    return _Reached(
        depth=max(1.0, float(share @ depth / share.sum())),
        width=_width(files, sample, laid.bounds, laid.size_bytes, share),
    )


def _width(
    files: Files, sample: Sample, bounds: Bounds, sizes: Floats, share: Floats | float = 1.0
) -> float:
    """Return the share of files that a query for one value opens, weighted by their bytes."""
    own, weights = sizes / float(files.size_bytes.sum()), sample.weights(files.size_bytes)
    opened = [
        shares_opened(sample.column(leaf.logical), column.low, column.high, weights, own)
        for leaf, column in zip(files.leaves, bounds.columns, strict=True)
    ]
    return float(np.average(np.mean(opened, axis=0), weights=sizes * share))


_HALVES: Final = 4
"""Halves of the sampled rows, which show the error of the sample."""
_DEVIATIONS: Final = 1.645
"""In nine of ten cases, a normal variable is at most this many deviations from its mean."""
_ERROR_OF_ONE: Final = 1.5
_ERROR_OF_MEAN: Final = 1.15
"""The factors of other errors of predictions from rows: for one query, for the mean."""
_ERROR_MADE_UP: Final = 1.35
"""A further factor if rows are made up."""
_ROUNDING: Final = 1e-9
_SURELY_PACKED: Final = 0.95
"""Packing may always save this much, whatever the prediction says."""

_NARROW: Final = 0.5
"""Files are narrow in a column if a query for one of its values opens at most this share."""
_MOST_NARROW_FILES: Final = 20_000
"""In larger tables, only clustering columns are tried."""
_MOST_NARROW_COLUMNS: Final = 32
_INPUT_FILES: Final = 192
_OTHER_FILES: Final = 64
_PAIR: Final = pc.ScalarAggregateOptions(skip_nulls=False)
_UNKNOWN_ROW_BYTES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readers:
    """The queries of a table: those of a workload, or assumed ones.

    `names` and `shares` have one entry per query. A workload has predicates, `wheres`, each with a
    mask of the files that may match. Assumed queries are for one value of each of `values`, and a
    full scan at the end.
    """

    source: ReadersFrom
    names: tuple[str, ...]
    shares: Floats
    wheres: tuple[str, ...] = ()
    masks: tuple[Mask, ...] = ()
    values: tuple[Leaf, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    blind: tuple[tuple[str, ...], ...] = ()
    columns: tuple[tuple[str, ...], ...] = ()
    not_usable: tuple[NotUsable, ...] = ()
    asked_at: str | None = None


def profile_of(uri: str) -> StoreProfile:
    return LOCAL_DISK if is_local(uri) else OBJECT_STORE


def asked_readers(
    snapshot: Snapshot, workload: Workload, bounds_of: BoundsOf, now_ms: int | None
) -> Readers:
    # Importing the SQL parser takes a third of a command's start; most commands need none.
    from liquidlog.predicates.conditions import referenced_leaves, referenced_paths_each
    from liquidlog.predicates.matching import answers

    found = answers(snapshot, workload, bounds_of, Session(now_ms))
    wheres = tuple(one.where for one in found.workload)
    named = referenced_paths_each(snapshot.schema, wheres)
    return Readers(
        source="workload",
        names=wheres,
        shares=np.array(shares(found.workload)),
        wheres=wheres,
        masks=tuple(np.asarray(one.may_match, np.bool_) for one in found.judged),
        leaves=tuple(referenced_leaves(unpartitioned(snapshot), wheres)),
        blind=tuple(one.cannot_prune for one in found.judged),
        columns=tuple(tuple(sorted(map(quote_path, set(one)))) for one in named),
        not_usable=found.not_usable,
        asked_at=found.asked_at(now_ms),
    )


def assumed_readers(
    snapshot: Snapshot, bounds_of: BoundsOf, columns: Sequence[Path] | None = None
) -> Readers:
    """Return the queries that are assumed without a workload: full scans and single values.

    The values are of `columns`, by default of the clustering columns. Without any, they are of
    columns in which files are narrow, so that a rewrite must not destroy the present order.
    """
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    own = [column.logical for column in clustering_state(snapshot).columns]
    chosen = [known[path] for path in (own if columns is None else columns)]
    chosen = chosen or _narrow_now(snapshot, bounds_of)
    names = [f"one value of {quote_path(leaf.logical)}" for leaf in chosen]
    return Readers(
        source="assumed",
        names=(*names, EVERYTHING),
        shares=np.full(len(names) + 1, 1 / (len(names) + 1)),
        values=tuple(chosen),
        leaves=tuple(chosen),
        blind=((),) * (len(names) + 1),
        columns=((),) * (len(names) + 1),
    )


def _narrow_now(snapshot: Snapshot, bounds_of: BoundsOf) -> list[Leaf]:
    count = snapshot.files.num_rows
    if not 1 < count <= _MOST_NARROW_FILES:
        return []
    names = snapshot.metadata.partition_columns
    tried = [leaf for leaf in leaves(snapshot.schema) if leaf.logical[0] in names]
    tried += indexed_leaves(snapshot.data_schema, snapshot.metadata.configuration)
    tried = [leaf for leaf in tried if has_bounds(leaf.data_type)][:_MOST_NARROW_COLUMNS]
    bounds = bounds_with_values(snapshot, bounds_of)(tried)
    return [
        leaf
        for number, leaf in enumerate(tried)
        if _share_of_one_value(bounds.low(number), bounds.high(number)) <= _NARROW
    ]


def _share_of_one_value(low: pa.Array, high: pa.Array) -> float:
    """Return the mean share of all ends of files that lie in a file's range."""
    known = pc.and_(low.is_valid(), high.is_valid())
    if not pc.all(known).as_py():
        return 1.0
    ends = pc.unique(pa.concat_arrays([low, high]))
    ends = ends.take(pc.sort_indices(ends))
    first, last = (np.asarray(pc.index_in(one, ends), np.int64) for one in (low, high))
    if len(ends) == 1 or (first < 0).any() or (last < 0).any():
        return 1.0
    return float(np.mean(last - first + 1) / len(ends))


class Foresight:
    """Predicts, from one sample of a table's rows, what queries read after its plans."""

    def __init__(
        self,
        store: TableStore,
        snapshot: Snapshot,
        bounds_of: BoundsOf,
        readers: Readers,
        plans: Sequence[ClusteringPlan],
        *,
        profile: StoreProfile,
        now_ms: int | None = None,
        reads_rows: bool = True,
        kept: KeptRows | None = None,
    ) -> None:
        self._kept = kept
        self._store, self._snapshot, self._readers = store, snapshot, readers
        self._plans, self._profile, self._reads_rows = plans, profile, reads_rows
        self._session = Session(now_ms)
        self._plain = unpartitioned(snapshot)
        known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
        keys = [known[column.logical] for plan in plans for column in plan.columns]
        self.leaves = tuple(dict.fromkeys([*readers.leaves, *keys]))
        self._bounds = bounds_with_values(snapshot, bounds_of)(self.leaves)
        self._sizes = np.asarray(snapshot.files["size"].to_numpy(), np.float64)
        self._live = live_rows(snapshot)
        self._owners = [owners_of(snapshot, plan) for plan in plans]
        self._shrunk: dict[int, float] = {}
        self._packings: dict[Sample, Packing] = {}

    @cached_property
    def rows(self) -> Rows:
        """Rows of the table, the same for all plans; no rows if the log is enough."""
        is_in_log = not self._readers.values and all(_is_joined(plan).all() for plan in self._plans)
        if is_in_log and not self._reads_rows:
            nothing = Sample(columns=(), file=np.zeros(0, np.int64), source=FROM_ROWS, files=0)
            return Rows(samples=(nothing,))
        taken = np.zeros(len(self._sizes), np.bool_)
        for owners in self._owners:
            taken |= owners >= 0
        inputs = np.flatnonzero(taken)
        others = np.flatnonzero(~taken & bool(self._readers.values))
        most = _INPUT_FILES + _OTHER_FILES
        chosen = [
            inputs[spread(len(inputs), max(_INPUT_FILES, most - len(others)))],
            others[spread(len(others), max(_OTHER_FILES, most - len(inputs)))],
        ]
        outputs = [sum(group.expected_outputs for group in plan.groups) for plan in self._plans]
        sampled = tuple(leaf for leaf in self.leaves if has_bounds(leaf.data_type))
        return rows_of(
            self._store,
            self._snapshot,
            sampled,
            outputs=max(outputs, default=1),
            among=np.sort(np.concatenate(chosen)),
            reads_rows=self._reads_rows,
            bounds=self._bounds.select([self.leaves.index(one) for one in sampled]),
            kept=self._kept,
        )

    @cached_property
    def now(self) -> Opened[Floats]:
        """What each query opens of the present table."""
        every = np.ones(len(self._sizes), np.bool_)
        return self._of_files(self.rows.samples[0] if self._readers.values else None, every)

    def _of_files(self, sample: Sample | None, mask: Mask) -> Opened[Floats]:
        if self._readers.wheres:
            masks = [one & mask for one in self._readers.masks]
            return opened_by_masks(self._sizes, masks, self._profile)
        chosen = pa.array(np.flatnonzero(mask))
        return self._of_assumed(sample, self._bounds.take(chosen), self._sizes[mask])

    def _of_assumed(self, sample: Sample | None, bounds: Bounds, sizes: Floats) -> Opened[Floats]:
        opened = []
        if sample is not None and self._readers.values:
            weights = sample.weights(self._live)
            own = sizes / max(float(self._sizes.sum()), float(sizes.sum()), 1.0)
            for leaf in self._readers.values:
                number = self.leaves.index(leaf)
                column = sample.column(leaf.logical)
                ends = bounds.low(number), bounds.high(number)
                found = shares_opened(column, *ends, weights, own)
                opened.append(np.where(bounds.only_nulls(number), 0.0, found))
        opened.append(np.ones(len(sizes)))
        return Opened(
            bytes=np.array([float(one @ sizes) for one in opened]),
            files=np.array([float(one.sum()) for one in opened]),
            profile=self._profile,
        )

    def _laid(self, number: int, layouts: Layouts) -> Laid:
        """Return the files that a plan would write, without groups that have no sampled rows."""
        plan, owners = self._plans[number], self._owners[number]
        outputs = [group.expected_outputs for group in plan.groups]
        columns = tuple(column.logical for column in plan.columns)
        prefix = tuple(columns[number] for number in plan.prefix)
        layout = Layout(columns, Curve(plan.curve), prefix, plan.readers)
        is_joined = _is_joined(plan)
        joined, part = _joined(owners, self._live_sizes, self._bounds, is_joined, outputs)
        if self.rows.stored is not None:
            joined = _with_parts(joined, part, layout, layouts)
        found = [joined]
        if not is_joined.all():
            cut = np.where((owners >= 0) & ~is_joined[owners.clip(0)], owners, -1)
            grouping = Grouping.of(cut, self._live_sizes, self._live, groups=len(plan.groups))
            found.append(layouts.laid(layout, grouping, outputs))
        size_bytes = np.concatenate([self._packed(one, layouts.sample, plan) for one in found])
        if number not in self._shrunk:
            known = sum(float(one.size_bytes.sum()) for one in found)
            self._shrunk[number] = float(size_bytes.sum()) / known if known else 1.0
        return Laid(
            size_bytes=size_bytes,
            bounds=concat_bounds([one.bounds for one in found]),
            scale=1.0,
            group=np.concatenate([one.group for one in found]),
        )

    def _packed(self, laid: Laid, sample: Sample, plan: ClusteringPlan) -> Floats:
        """Return the sizes of a plan's files after sorting and packing."""
        if self.rows.stored is None or laid.parts is None or laid.bounds.num_records.null_count:
            return laid.size_bytes
        records = np.asarray(laid.bounds.num_records.to_numpy(), np.float64)
        if sample not in self._packings:
            columns = {".".join(one.leaf.physical): one.values for one in sample.columns}
            self._packings[sample] = Packing(self.rows.stored, columns, sample.file)
        codec = plan.writer_options.compression
        return self._packings[sample].sizes(laid.parts.order, laid.parts.starts, records, codec)

    @cached_property
    def _live_sizes(self) -> Floats:
        """The bytes of each file without deleted rows."""
        files = self._snapshot.files
        rows = pc.cast(num_records(files), pa.float64())
        gone = pc.divide(pc.cast(deleted_rows(files), pa.float64()), rows)
        share = np.nan_to_num(pc.fill_null(gone, 0.0).to_numpy(zero_copy_only=False))
        return np.asarray(self._sizes * (1 - share.clip(0.0, 1.0)), np.float64)

    def _layouts(self, plan: ClusteringPlan, sample: Sample) -> Layouts:
        # Written files have bounds only of indexed columns.
        indexed = set(plan.writer_options.indexed) | {one.physical for one in plan.columns}
        sampled = tuple(
            one
            for one in sample.columns
            if one.leaf.physical in indexed or is_partition(self._snapshot, one.leaf)
        )
        kept = replace(sample, columns=sampled) if len(sampled) < len(sample.columns) else sample
        chars = plan.writer_options.string_prefix_chars
        return Layouts(sample=kept, leaves=self.leaves, prefix_chars=chars)

    def _after(self, number: int, sample: Sample) -> tuple[Opened[Floats], float]:
        """Return what queries open after a plan, and which share of its bytes was laid out."""
        plan, owners = self._plans[number], self._owners[number]
        kept = self._of_files(sample, owners < 0)
        if not plan.groups:
            return kept, 1.0
        laid = self._laid(number, self._layouts(plan, sample))
        is_laid = np.zeros(len(plan.groups) + 1, np.bool_)
        is_laid[laid.group] = True
        of_laid = self._of_files(sample, is_laid[owners])
        if self._readers.wheres:
            (found,) = opened_of_laid(
                self._plain, [laid], self.leaves, self._readers.wheres, self._session, of_laid
            )
        else:
            found = self._of_assumed(sample, laid.bounds, laid.size_bytes)
        rest = (owners >= 0) & ~is_laid[owners]
        if not rest.any():
            return kept + found, 1.0
        known = float(self._sizes[is_laid[owners]].sum())
        share = known / (known + float(self._sizes[rest].sum()))
        of_rest = self._of_files(sample, rest)
        size_bytes = of_rest.bytes * _ratios(found.bytes, of_laid.bytes)
        files = of_rest.files * _ratios(found.files, of_laid.files)
        return kept + found + replace(of_rest, bytes=size_bytes, files=files), share

    def files_after(self, number: int) -> tuple[tuple[Leaf, ...], Bounds, Floats, Mask]:
        """Return the leaves, bounds and sizes of the files after a plan, and a mask of new ones."""
        plan, owners = self._plans[number], self._owners[number]
        sample = self.rows.samples[0]
        laid = self._laid(number, self._layouts(plan, sample))
        kept = owners < 0
        bounds = concat_bounds([self._bounds.filter(pa.array(kept)), laid.bounds])
        sizes = np.concatenate([self._sizes[kept], laid.size_bytes])
        return self.leaves, bounds, sizes, np.arange(len(sizes)) >= int(kept.sum())

    def table_after(self, number: int) -> tuple[Snapshot, Bounds]:
        """Return the table after a plan, and the bounds of its files in `leaves`."""
        _, bounds, sizes, predicted = self.files_after(number)
        kept = self._snapshot.files.filter(pa.array(self._owners[number] < 0))
        files = pa.concat_tables([kept, imagined_files(sizes[predicted])])
        return replace(self._snapshot, files=files, plain_files=None), bounds

    def prediction(self, number: int, *, surely: bool = True) -> Prediction:
        """Return the effect of a plan; `surely` measures the sample's error, five times slower."""
        plan, samples = self._plans[number], self.rows.samples
        found = [self._after(number, sample) for sample in samples]
        share = found[0][1]
        if len(samples) == 1:
            after = found[0][0]
            halves = range(_HALVES) if surely and not _is_joined(plan).all() else ()
            drawn = [self._after(number, samples[0].half(seed))[0] for seed in halves] or [after]
            deviation = replace(
                after,
                files=np.std([one.files for one in drawn], axis=0),
                bytes=np.std([one.bytes for one in drawn], axis=0),
            )
            ways = [after + deviation.times(by) for by in (-_DEVIATIONS, 0.0, _DEVIATIONS)]
            errors = _ERROR_OF_ONE, _ERROR_OF_MEAN
        else:
            ways = [one for one, _ in found]
            after = (ways[0] + ways[1]).times(1 / 2)
            errors = _ERROR_OF_ONE * _ERROR_MADE_UP, _ERROR_OF_MEAN * _ERROR_MADE_UP
        owned = self._owners[number] >= 0
        kept = self._of_files(samples[0], ~owned)
        asked = self._of_files(samples[0], owned).files > 0
        least = replace(kept, files=kept.files + asked)
        shrunk = self._shrunk.get(number, 1.0)
        most = Opened(
            files=kept.files + sum(group.expected_outputs for group in plan.groups),
            bytes=kept.bytes + float(self._live_sizes[owned].sum()) * max(1.0, shrunk),
            profile=self._profile,
        )
        less = min(_SURELY_PACKED, shrunk)
        packed = less, max(less**-0.5, shrunk)
        if not plan.groups:
            errors, packed = (1.0, 1.0), (1.0, 1.0)
        ranges = _Ranges(ways=ways, least=least, most=most, errors=errors, packed=packed)
        return _prediction(plan, self._readers, self.now, after, ranges, self.rows, share)


def _is_joined(plan: ClusteringPlan) -> Mask:
    """Return which groups' files are only joined; the log has the resulting bounds."""
    outputs = np.array([group.expected_outputs for group in plan.groups], np.int64)
    is_joined: Mask = ((outputs == 1) & (not plan.prefix)) | (not plan.columns)
    return is_joined


def owners_of(snapshot: Snapshot, plan: ClusteringPlan) -> Numbers:
    """Return the group that takes each live file (int64), -1 for none."""
    owners = np.full(snapshot.files.num_rows, -1, np.int64)
    for number, rows in enumerate(input_rows(snapshot, plan.groups)):
        owners[rows] = number
    return owners


def live_rows(snapshot: Snapshot) -> Floats:
    """Return the live rows of each file, estimated from its size if they are not counted."""
    sizes = np.asarray(snapshot.files["size"].to_numpy(), np.float64)
    counted = pc.fill_null(pc.cast(num_records(snapshot.files), pa.float64()), float("nan"))
    rows = counted.to_numpy(zero_copy_only=False)
    gone = deleted_rows(snapshot.files).to_numpy(zero_copy_only=False)
    return np.asarray(np.where(np.isnan(rows), sizes / _UNKNOWN_ROW_BYTES, rows - gone), np.float64)


def joined_files(group: Numbers, sizes: Floats, outputs: Numbers) -> Numbers:
    """Return the number of each file's joined file, counted through all groups."""
    before = np.cumsum(sizes) - sizes
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    counts = np.diff(np.append(begins, len(group)))
    total = np.add.reduceat(sizes, begins) if len(group) else np.zeros(0)
    inside = before - np.repeat(before[begins], counts)
    middle = (inside + sizes / 2) / np.maximum(np.repeat(total, counts), 1.0)
    place = np.minimum(middle * outputs[group], outputs[group] - 1).astype(np.int64)
    starts = np.cumsum(outputs) - outputs
    return np.asarray(starts[group] + place, np.int64)


def _joined(
    owners: Numbers, sizes: Floats, bounds: Bounds, is_joined: Mask, outputs: Sequence[int]
) -> tuple[Laid, Numbers]:
    """Return the files that result from joining neighbours in the plan's order."""
    files = np.flatnonzero((owners >= 0) & is_joined[owners.clip(0)])
    files = files[np.argsort(owners[files], kind="stable")]
    each = np.array(outputs, np.int64)
    number, part = np.unique(joined_files(owners[files], sizes[files], each), return_inverse=True)
    columns = tuple(_spanned(one, files, part, len(number)) for one in bounds.columns)
    records = _summed(bounds.num_records, files, part, len(number))
    owner = np.searchsorted(np.cumsum(each), number, side="right").astype(np.int64)
    part_of_file = np.full(len(owners), -1, np.int64)
    part_of_file[files] = part
    joined = Laid(
        size_bytes=np.bincount(part, sizes[files], len(number)).astype(np.float64),
        bounds=Bounds(columns=columns, num_records=records),
        scale=1.0,
        group=owner,
    )
    return joined, part_of_file


def _with_parts(joined: Laid, part: Numbers, layout: Layout, layouts: Layouts) -> Laid:
    """Return joined files with their sampled rows, if each file has some."""
    of_row = part[layouts.sample.file]
    rows = np.flatnonzero(of_row >= 0)
    found, counts = np.unique(of_row[rows], return_counts=True)
    if not len(found) or len(found) < len(joined.size_bytes):
        return joined
    order = layouts.ordered(layout, rows, of_row[rows])
    return replace(joined, parts=Parts(order=order, starts=np.cumsum(counts) - counts))


def _spanned(column: ColumnBounds, files: Numbers, part: Numbers, count: int) -> ColumnBounds:
    """Return the bounds of joined files; unknown if a file's bounds are unknown."""
    taken = pa.array(files)
    grouped = pa.table(
        [pa.array(part), column.low.take(taken), column.high.take(taken)], ["part", "low", "high"]
    ).group_by("part", use_threads=False)
    ends = grouped.aggregate([("low", "min", _PAIR), ("high", "max", _PAIR)]).sort_by("part")
    kind, nulls = column.low.type, _summed(column.null_count, files, part, count)
    low, high = (pa.array(ends[end].combine_chunks(), kind) for end in ("low_min", "high_max"))
    return ColumnBounds(low=low, high=high, null_count=nulls)


def _summed(counts: pa.Array, files: Numbers, part: Numbers, count: int) -> pa.Array:
    taken = counts.take(pa.array(files))
    known = np.asarray(pc.fill_null(taken, 0).to_numpy(zero_copy_only=False), np.float64)
    unknown = np.bincount(part, np.asarray(taken.is_null()), count) > 0
    return pa.array(np.bincount(part, known, count).astype(np.int64), mask=unknown)


def _ratios(after: Floats, before: Floats) -> Floats:
    mean = float(after.sum()) / max(float(before.sum()), 1e-9) if before.sum() else 1.0
    return np.divide(after, before, out=np.full_like(after, mean), where=before > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranges:
    """Possible results of a plan, their limits, and the factors of their errors.

    Bytes may also differ by the factors `packed`: packing may save what is predicted once more, or
    half of it, and bytes may grow once more where rows lose their order.
    """

    ways: Sequence[Opened[Floats]]
    least: Opened[Floats]
    most: Opened[Floats]
    errors: tuple[float, float]
    packed: tuple[float, float]

    def each(self, name: str) -> list[Range]:
        low, high = self._ends(name, None, self.errors[0])
        if name == "files":
            low = np.floor(low + 1e-9).clip(self.least.files, None)
            high = np.ceil(high - 1e-9).clip(None, np.ceil(self.most.files))
        return [Range(float(a), float(b)) for a, b in zip(np.minimum(low, high), high, strict=True)]

    def mean(self, name: str, weights: Floats, mean: float) -> Range:
        low, high = (float(end) for end in self._ends(name, weights, self.errors[1]))
        return Range(min(low * (1 - _ROUNDING), mean), max(high * (1 + _ROUNDING), mean))

    def _ends(self, name: str, weights: Floats | None, error: float) -> tuple[Floats, Floats]:
        found = np.stack([getattr(one, name) for one in (self.least, self.most, *self.ways)])
        least, most, *drawn = found if weights is None else found @ weights
        less, more = self.packed if name == "bytes" else (1.0, 1.0)
        low = (np.min(drawn, axis=0) * less / error).clip(least, most * more)
        high = (np.max(drawn, axis=0) * more * error).clip(least, most * more)
        return low, high


def _prediction(
    plan: ClusteringPlan,
    readers: Readers,
    now: Opened[Floats],
    after: Opened[Floats],
    ranges: _Ranges,
    rows: Rows,
    share: float,
) -> Prediction:
    weights, profile = readers.shares, now.profile
    each = {
        f"{name}_{when}": getattr(one, name)
        for when, one in (("before", now), ("after", after))
        for name in ("files", "bytes", "requests", "seconds")
    }
    means = {name: float(weights @ values) for name, values in each.items()}
    files = ranges.mean("files", weights, means["files_after"])
    size_bytes = ranges.mean("bytes", weights, means["bytes_after"])
    after_bytes = means["bytes_after"], size_bytes.low, size_bytes.high
    saved, most, least = (means["bytes_before"] - one for one in after_bytes)
    cost = plan.size_bytes
    gains = [one / cost if plan.groups else 0.0 for one in (saved, least, most)]
    paid = Range(cost / most, cost / least if least > 0 else math.inf) if most > 0 else None
    ends = (files.low, files.high), (size_bytes.low, size_bytes.high)
    sample = rows.samples[0]
    each_range = zip(ranges.each("files"), ranges.each("bytes"), strict=True)
    return Prediction(
        readers=readers.source,
        is_sampled=rows.is_read,
        sampled_rows=len(sample) if rows.is_read else 0,
        sampled_files=sample.files if rows.is_read else 0,
        sample_requests=rows.requests,
        predicted_share=share,
        bytes_to_rewrite=plan.size_bytes,
        files_to_rewrite=sum(len(group.inputs) for group in plan.groups),
        files_to_write=sum(group.expected_outputs for group in plan.groups),
        **means,
        files_after_range=files,
        bytes_after_range=size_bytes,
        requests_after_range=Range(*map(profile.requests, *ends)),
        seconds_after_range=Range(*map(profile.seconds, *ends)),
        gain_per_byte=gains[0],
        gain_per_byte_range=Range(gains[1], gains[2]),
        break_even_reads=cost / saved if saved > 0 else None,
        break_even_reads_range=paid,
        predicates=tuple(
            PredictedReads(
                where=readers.names[number],
                share=float(weights[number]),
                files_after_range=of_files,
                bytes_after_range=of_bytes,
                **{field: float(values[number]) for field, values in each.items()},
                cannot_prune=readers.blind[number],
                columns=readers.columns[number],
            )
            for number, (of_files, of_bytes) in enumerate(each_range)
        ),
        cannot_prune=tuple(dict.fromkeys(text for texts in readers.blind for text in texts)),
        not_usable=readers.not_usable,
        asked_at=readers.asked_at,
    )
