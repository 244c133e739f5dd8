"""The table after a plan, as it may come out, foreseen from statistics or from sampled rows.

The rows of a group are made up: each input gets rows in proportion to its bytes, spread evenly over
its box. The executor's own kernels place these rows, or sampled ones, in the planned number of
files. In columns that the plan does not cluster by, an output spans the inputs that its rows are
made up from. Each world is one way in which the same plan may come out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health.measure import Health, measure_health
from liquidlog.clustering.keyspace.cells import placed_on, placed_values
from liquidlog.clustering.outcome.staleness import input_rows
from liquidlog.curve.boxes import CurveGrid
from liquidlog.plan import ClusteringPlan, RewriteGroup
from liquidlog.simulation.imagined import ImaginedFiles, Points, Rows, with_imagined
from liquidlog.simulation.scales import Scale
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, BoundsOf, ColumnBounds, concat_bounds

_ROWS_IN_A_FILE: Final = 64
_FEWEST_ROWS_IN_A_FILE: Final = 16
_MOST_ROWS: Final = 400_000
_MOST_DRAWN_ROWS: Final = 50_000
_ROWS_OF_ALL_GROUPS: Final = 500_000
_MADE_UP_ROWS_OF_ALL_GROUPS: Final = 200_000
"""Rows that are made up for all groups of a plan, unless files would have too few."""

_APART_ALONE: Final = 0.45
"""Files that are cut by one column do not overlap."""

_PAIR = pc.ScalarAggregateOptions(skip_nulls=False)


class Draw(Enum):
    """How one world comes to its files.

    LIKELY is the best guess. DRAWN makes rows up anew, or samples half of the sampled rows: what is
    unlike in worlds drawn from n of 2n rows is as uncertain as the 2n rows are. CORRELATED is as
    LIKELY, and the columns that the plan does not cluster by run along with its layout.
    """

    LIKELY = auto()
    DRAWN = auto()
    CORRELATED = auto()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class After:
    """The files that a plan keeps, then those that it may write, in several worlds.

    Per file after, `worlds` has the number of its world, -1 if the plan keeps the file, and
    `groups` the number of the group that wrote it, -1 for none. `owners` has per file before the
    number of the group that takes it, -1 for none. World 0 is the likely one, world 1 has the
    largest correlation, all others are drawn; there may be only the first.
    """

    snapshot: Snapshot
    bounds: Bounds
    worlds: Rows
    groups: Rows
    owners: Rows
    draws: tuple[Draw, ...]

    @property
    def size_bytes(self) -> Points:
        """The bytes per file (float64)."""
        return np.asarray(self.snapshot.files["size"].to_numpy(), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """What is known of a plan's inputs.

    `bounds` are those of all live files; `clustered` are the numbers of its columns that the plan
    clusters by, in order. `samples` has one table per group with these columns of sampled rows, in
    the same order, and behind them those of `sampled`; None if nothing is sampled.
    """

    bounds: Bounds
    clustered: Sequence[int]
    samples: Sequence[pa.Table] | None = None
    sampled: Sequence[int] = ()


class Outputs(NamedTuple):
    """The files of a group in one world, their bounds, and the curve's grid, if it has one."""

    files: ImaginedFiles
    bounds: Bounds
    grid: CurveGrid | None


Known: TypeAlias = dict[tuple[int, int], Outputs]
"""Outputs by the numbers of their group and world, once made up for a plan and its evidence."""


def table_after(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    evidence: Evidence,
    draws: Sequence[Draw],
    known: Known | None = None,
) -> After:
    """Return the table after the plan, in one world per draw.

    What is `known` of an earlier call for the same plan, evidence and first draws is not made up
    again; what is made up is added to it.
    """
    known = {} if known is None else known
    owners = np.full(snapshot.files.num_rows, -1, np.int64)
    outputs: list[Outputs] = []
    worlds, groups = [], []
    samples = evidence.samples or [None] * len(plan.groups)
    found = input_rows(snapshot, plan.groups)
    for number, (group, rows, sample) in enumerate(zip(plan.groups, found, samples, strict=True)):
        owners[rows] = number
        rewrite = _Rewrite(plan, group, evidence, pa.array(rows), sample)
        for world, draw in enumerate(draws):
            if (number, world) not in known:
                known[number, world] = rewrite.drawn(world, draw, known.get((number, 0)))
            made = known[number, world]
            outputs.append(made)
            worlds.append(np.full(len(made.files.paths), world))
            groups.append(np.full(len(made.files.paths), number))
    kept = pa.array(owners < 0)
    none = np.full(int((owners < 0).sum()), -1, np.int64)
    return After(
        snapshot=with_imagined(snapshot, kept, [made.files for made in outputs]),
        bounds=concat_bounds([evidence.bounds.filter(kept), *(made.bounds for made in outputs)]),
        worlds=np.concatenate([none, *worlds]),
        groups=np.concatenate([none, *groups]),
        owners=owners,
        draws=tuple(draws),
    )


def predicted_health(
    snapshot: Snapshot, plan: ClusteringPlan, bounds_of: BoundsOf, *, min_cube_bytes: int
) -> Health:
    """Return the health that the table would have after the plan, by its clustering columns.

    The health counts the files that the plan would write as unclustered. With a predicate in the
    plan, it is that of these files and of those that the predicate may match.
    """
    columns = clustering_state(snapshot).columns
    bounds = bounds_of([column.leaf for column in columns])
    evidence = Evidence(bounds=bounds, clustered=range(len(columns)))
    after = table_after(snapshot, plan, evidence, [Draw.LIKELY])
    mask: pa.BooleanArray | None = None
    if plan.policy.where is not None:
        # The SQL parser takes a third of a command's start; most plans have no predicate.
        from liquidlog.predicates.matching import may_match

        asked = np.asarray(may_match(snapshot, plan.policy.where, bounds_of), np.bool_)
        mask = pa.array(
            np.concatenate([asked[after.owners < 0], np.ones((after.worlds >= 0).sum(), np.bool_)])
        )
    return measure_health(
        after.snapshot, columns, after.bounds, min_cube_bytes=min_cube_bytes, mask=mask
    )


class _Rewrite:
    """The rewrite of one group.

    `bounds` are those of its inputs. `scales` are those of the columns whose values are sampled or
    made up, by their numbers; the first `keys` of them are clustered by.
    """

    def __init__(
        self,
        plan: ClusteringPlan,
        group: RewriteGroup,
        evidence: Evidence,
        rows: pa.Array,
        sample: pa.Table | None,
    ) -> None:
        """Take the files at `rows` of the snapshot, which are the group's inputs."""
        self.plan, self.group = plan, group
        self.bounds = bounds = evidence.bounds.take(rows)
        self.size_bytes = _live_bytes(group)
        self.is_sampled = sample is not None
        self.keys = len(evidence.clustered)
        known = [*evidence.clustered, *(evidence.sampled if self.is_sampled else ())]
        values = [None] * len(known) if sample is None else list(sample.itercolumns())
        self.scales = {
            number: Scale(bounds.low(number), bounds.high(number), sampled)
            for number, sampled in zip(known, values, strict=True)
        }

    def drawn(self, world: int, draw: Draw, likely: Outputs | None) -> Outputs:
        """Return the files of one draw; `likely` are those of world 0, once they are known.

        Files are drawn on the grid of the likely world: several grids are nearly as good.
        """
        if draw is Draw.CORRELATED:
            return self._correlated(likely or self._files(0, is_drawn=False))
        is_drawn = draw is Draw.DRAWN
        return self._files(world, is_drawn=is_drawn, grid=likely.grid if likely else None)

    def _files(self, world: int, *, is_drawn: bool, grid: CurveGrid | None = None) -> Outputs:
        owner, points = self._rows(world, is_drawn=is_drawn)
        placed, grid = self._placed(owner, points, grid)
        parts = _numbered(placed)
        outputs = int(parts.max(initial=0)) + 1
        shares = np.bincount(parts, minlength=outputs) / max(len(parts), 1)
        columns = [_spanned(column, owner, parts, shares) for column in self.bounds.columns]
        for (number, scale), values in zip(self.scales.items(), points.T, strict=True):
            low, high = scale.ends(values, parts, outputs, apart=self._apart)
            columns[number] = replace(columns[number], low=low, high=high)
        num_records = _divided(self.bounds.num_records, shares)
        names = [f"planned-{self.group.group_id}-{number}" for number in range(outputs)]
        files = ImaginedFiles(
            paths=pa.array(names, pa.string()),
            size_bytes=(self.size_bytes.sum() * shares).astype(np.int64),
            num_records=num_records,
        )
        return Outputs(files, Bounds(columns=tuple(columns), num_records=num_records), grid)

    @property
    def _prefix(self) -> tuple[int, ...]:
        """The plan's prefix, unless no two made-up values of it are equal, as with texts."""
        guessed = [scale.is_guessed for scale in self.scales.values()]
        return () if any(guessed[number] for number in self.plan.prefix) else self.plan.prefix

    @property
    def _apart(self) -> float:
        """How far bounds of rows are moved apart, as `Scale.ends` takes it."""
        if self.is_sampled:
            return 0.0
        if self.plan.readers is not None or self._prefix:
            return 0.0  # Made-up rows have whole values then, and files end between them.
        return _APART_ALONE if self.keys == 1 else 1.0

    def _rows(self, world: int, *, is_drawn: bool) -> tuple[Rows | None, Points]:
        """Return the input of each row, None if unknown, and its numbers (rows by columns)."""
        if self.is_sampled:
            points = np.stack([scale.sampled for scale in self.scales.values()], axis=1)
            most = max(_ROWS_OF_ALL_GROUPS // len(self.plan.groups), 2 * _ROWS_IN_A_FILE)
            points = points[:: max(1, len(points) // most)]
            if is_drawn and len(points) > 1:
                random = np.random.default_rng((world, len(points)))
                half = random.permutation(len(points))[: (len(points) + 1) // 2]
                points = points[np.sort(half[:_MOST_DRAWN_ROWS])]
            return None, points
        outputs = max(self.group.expected_outputs, len(self.size_bytes))
        most = _MOST_DRAWN_ROWS if is_drawn else _MOST_ROWS
        every = sum(max(one.expected_outputs, len(one.inputs)) for one in self.plan.groups)
        each = min(_ROWS_IN_A_FILE, _MADE_UP_ROWS_OF_ALL_GROUPS // max(every, 1))
        wanted = min(max(most, 2 * outputs), max(each, _FEWEST_ROWS_IN_A_FILE) * outputs)
        share = self.size_bytes * (wanted / max(self.size_bytes.sum(), 1.0))
        owner = np.repeat(np.arange(len(share)), np.maximum(1, np.round(share)).astype(np.int64))
        seed = (world, len(owner)) if is_drawn else len(owner)
        shares = np.random.default_rng(seed).random((len(owner), len(self.scales)))
        columns = [
            scale.spread(owner, shares[:, j]) for j, scale in enumerate(self.scales.values())
        ]
        return owner, np.stack(columns, axis=1) if columns else shares

    def _placed(
        self, owner: Rows | None, points: Points, grid: CurveGrid | None
    ) -> tuple[Rows, CurveGrid | None]:
        """Return the output of each row, and the curve's grid.

        Made-up rows become those of values where these count. The grid is None unless one was
        looked for or given.
        """
        readers, outputs = self.plan.readers, self.group.expected_outputs
        prefix = self._prefix
        if not self.keys:
            count = 0 if owner is None else len(owner)
            return np.arange(count, dtype=np.int64) * outputs // max(count, 1), None
        if readers is None and not prefix:
            curve = self.plan.curve
            keys = points[:, : self.keys]
            if self.is_sampled:
                return placed_values(keys, outputs, curve=curve), None
            return placed_on(keys, outputs, curve=curve, grid=grid)
        scales = list(self.scales.values())[: self.keys]
        for number, scale in enumerate(scales):
            points[:, number] = scale.whole(points[:, number])
        conditions = None if readers is None else readers.conditions([one.parsed for one in scales])
        keys = points[:, : self.keys]
        curve = self.plan.curve
        found = placed_values(keys, outputs, curve=curve, conditions=conditions, prefix=prefix)
        return found, None

    def _correlated(self, likely: Outputs) -> Outputs:
        """Return the files with columns that run along with the layout, where they are known."""
        files, bounds, grid = likely
        columns = list(bounds.columns)
        for number, column in enumerate(columns):
            if number not in self.scales and not column.low.null_count:
                scale = Scale(self.bounds.low(number), self.bounds.high(number), None)
                low, high = scale.slices(len(files.paths))
                columns[number] = replace(column, low=low, high=high)
        known = Bounds(columns=tuple(columns), num_records=bounds.num_records)
        return Outputs(files, known, grid)


def _numbered(parts: Rows) -> Rows:
    """Return small numbers as their ranks among those that there are."""
    return np.asarray((np.cumsum(np.bincount(parts) > 0) - 1)[parts], np.int64)


def _live_bytes(group: RewriteGroup) -> Points:
    """Return the bytes per input without those of deleted rows (float64)."""
    columns = group.inputs.columns
    size = columns["size_bytes"].to_numpy().astype(np.float64)
    deleted = pc.struct_field(columns["deletion_vector"], "cardinality")
    share = pc.divide(pc.cast(deleted, pa.float64()), pc.cast(columns["num_records"], pa.float64()))
    live = 1.0 - np.nan_to_num(pc.fill_null(share, 0.0).to_numpy())
    return np.asarray(size * np.clip(live, 0.0, 1.0), np.float64)


def _spanned(column: ColumnBounds, owner: Rows | None, parts: Rows, shares: Points) -> ColumnBounds:
    """Return the bounds of outputs that span the inputs of their rows, or all if unknown.

    `shares` has the share of the rows per output. An end is null if that of any such input is.
    """
    if owner is None:
        owner, parts = np.arange(len(column.low)), np.zeros(len(column.low), np.int64)
    into, inputs = np.divmod(np.unique(parts * len(column.low) + owner), max(len(column.low), 1))
    grouped = pa.table(
        [pa.array(into), column.low.take(pa.array(inputs)), column.high.take(pa.array(inputs))],
        ["part", "low", "high"],
    ).group_by("part", use_threads=False)
    ends = grouped.aggregate([("low", "min", _PAIR), ("high", "max", _PAIR)])
    low, high = (ends[name].combine_chunks() for name in ("low_min", "high_max"))
    if len(low) < len(shares):
        alike = pa.array(np.zeros(len(shares), np.int64))
        low, high = low.take(alike), high.take(alike)
    return ColumnBounds(low=low, high=high, null_count=_divided(column.null_count, shares))


def _divided(counts: pa.Array, shares: Points) -> pa.Array:
    """Return the sum of `counts`, split by the outputs' shares, rounded up; null if unknown."""
    if counts.null_count:
        return pa.nulls(len(shares), pa.int64())
    return pa.array(np.ceil((pc.sum(counts).as_py() or 0) * shares).astype(np.int64))
