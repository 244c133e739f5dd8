"""The strategy `overlap`: rewrites single files, as few bytes as keep narrow queries fast.

A narrow query asks for one value of one column. As long as narrow queries read at most `tolerance`
times the bytes that they would read after a full rewrite, nothing is rewritten. The widest files
cost most, so a rewrite makes one new cube of all files above some width: the width with the fewest
bytes to rewrite. Two rules keep it from rewriting the same bytes again and again: each rewrite goes
well below the tolerance, so that several appends are rewritten together, and narrow files are left
alone, however small their cube is. Files of a group that lie well join its cube with their bytes
unchanged. Stable cubes are never touched, so the reference engine finds its cubes as it left them.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.choice import (
    TAKEN,
    Choice,
    Columns,
    NewId,
    build_plan,
    deleted_shares,
    pack,
    reason_code,
)
from liquidlog.clustering.kept import ReadModel, keepable, read_model, without_kept
from liquidlog.clustering.keyspace import KeySpace, key_space
from liquidlog.clustering.zcubes import STABLE, Membership, file_states, membership, sizes
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, FittedWorkload, RewriteMode, SkipReason
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf, Mask

NAME: Final = "overlap"

_THRESHOLDS: Final = 48
_DEPTH_OF_REWRITE: Final = 0.85
"""The share of the tolerance that a rewrite aims at, so that the next appends need no rewrite."""
_LEAST_GAIN: Final = 0.02
"""The least share of the bytes read now that a rewrite must save."""
_MOST_OF_GAIN: Final = 0.9
_MUCH_CHEAPER: Final = 0.2
"""A rewrite that barely suffices is taken below this share of a deeper one's bytes."""
_MOST_DELETED_SHARE: Final = 0.25
"""A file with a larger share of deleted rows is always rewritten."""
_TOLERANCE_OF_GROUP: Final = 1.0
"""As `cube` has it; the tolerance went into the choice of the group."""
_SMALL_SHARE: Final = 0.5
"""A clustered file below this share of the maximum file size is small."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """What decides which files to rewrite; all arrays have one entry per file asked for.

    `opened` is the share of the queries that open each file, `cost` what that costs in bytes.
    `candidates` may be rewritten, `forced` must be. `cube` is -1 for none.
    """

    space: KeySpace
    model: ReadModel
    opened: NDArray[np.float64]
    cost: NDArray[np.float64]
    candidates: Mask
    forced: Mask
    cube: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Group:
    """Files that are rewritten together: `rows` has their numbers (int64), `size` is their bytes.

    The mean query reads `gain` bytes less afterwards.
    """

    rows: NDArray[np.int64]
    size: float
    outputs: int
    gain: float


def plan_overlap(
    snapshot: Snapshot,
    columns: Columns,
    policy: ClusteringPolicy,
    new_id: NewId,
    bounds_of: BoundsOf,
    *,
    readers: FittedWorkload | None = None,
) -> ClusteringPlan:
    """Return the plan that rewrites the fewest bytes that bring queries within the tolerance.

    With `full`, files of other columns and providers may be taken too. Within `budget_bytes`,
    groups with the largest gain per byte come first.
    """
    asked = _asked(snapshot, policy, bounds_of)
    rows = np.flatnonzero(asked)
    is_part = policy.where is not None
    part = replace(snapshot, files=snapshot.files.take(rows)) if is_part else snapshot
    places = membership(part.files, columns)
    states = file_states(snapshot, columns, policy.min_cube_bytes)
    stable = np.asarray(pc.equal(states, STABLE), np.bool_)[rows]
    bounds = bounds_of([column.leaf for column in columns])
    bounds = bounds.take(pa.array(rows)) if is_part else bounds
    space = key_space(bounds, sizes(part.files))
    model = read_model(space, bounds, places, policy, readers)
    table = _table(part, policy, places, stable=stable, space=space, model=model)
    choice = _choice(table, policy, _left_alone(places, stable, policy))
    may = keepable(part, places, bounds)
    found = without_kept(choice, space, model, may, tolerance=_TOLERANCE_OF_GROUP)
    return build_plan(
        snapshot,
        policy,
        mode=RewriteMode.CLUSTERING,
        strategy=NAME,
        columns=columns,
        choice=_of_all(found, rows, len(asked)),
        new_id=new_id,
    )


def _of_all(choice: Choice, rows: NDArray[np.int64], count: int) -> Choice:
    reasons = np.full(count, reason_code(SkipReason.NOT_ASKED_FOR), np.int64)
    reasons[rows] = choice.reasons
    return replace(
        choice,
        groups=tuple(rows[group] for group in choice.groups),
        reasons=reasons,
        kept=tuple(rows[kept] for kept in choice.kept),
    )


def _asked(snapshot: Snapshot, policy: ClusteringPolicy, bounds_of: BoundsOf) -> Mask:
    if policy.where is None:
        return np.ones(snapshot.files.num_rows, np.bool_)
    # The SQL parser takes a third of a command's start; most plans have no predicate.
    from liquidlog.predicates.matching import may_match

    return np.asarray(may_match(snapshot, policy.where, bounds_of), np.bool_)


def _table(
    snapshot: Snapshot,
    policy: ClusteringPolicy,
    places: Membership,
    *,
    stable: Mask,
    space: KeySpace,
    model: ReadModel,
) -> _Table:
    cube = places.own_cube
    opened = model.opened(space)
    deleted = deleted_shares(snapshot.files)
    eligible = ~stable & (places.candidates | policy.full)
    heavy = eligible & (np.nan_to_num(deleted, nan=1.0) > _MOST_DELETED_SHARE)
    small = space.size_bytes < _SMALL_SHARE * policy.max_file_bytes
    overlapping = space.mean_depths >= 1 + policy.min_overlapping_files * policy.min_overlap
    return _Table(
        space=space,
        model=model,
        opened=opened,
        cost=model.now(space.size_bytes, opened),
        candidates=eligible & ((cube < 0) | small | heavy | overlapping),
        forced=heavy,
        cube=cube,
    )


def _left_alone(places: Membership, stable: Mask, policy: ClusteringPolicy) -> NDArray[np.int64]:
    """Return the reason's code per file for not taking it (int64)."""
    reasons = np.full(len(stable), reason_code(SkipReason.WELL_CLUSTERED), np.int64)
    if not policy.full:
        foreign = places.in_cube & ~places.same_columns
        reasons[foreign] = reason_code(SkipReason.OTHER_COLUMNS)
        reasons[~places.ours] = reason_code(SkipReason.OTHER_PROVIDER)
    reasons[stable] = reason_code(SkipReason.STABLE_CUBE)
    return reasons


def _choice(table: _Table, policy: ClusteringPolicy, reasons: NDArray[np.int64]) -> Choice:
    options = _options(table, policy)
    wanted = _wanted(table, policy, options)
    reasons[wanted & table.candidates] = reason_code(SkipReason.OVER_BUDGET)
    limit = max(policy.target_cube_bytes, policy.min_cube_bytes)
    budget = policy.budget_bytes
    if budget is not None:
        limit = min(limit, budget)
        affordable = [option for option in options if option.size <= budget]
        wanted = _wanted(table, policy, affordable or options)
    taken = _within(_groups(table, wanted, limit), budget)
    for group in taken:
        reasons[group.rows] = TAKEN
    return Choice(
        groups=tuple(group.rows for group in taken),
        reasons=reasons,
        expected_outputs=tuple(group.outputs for group in taken),
    )


def _options(table: _Table, policy: ClusteringPolicy) -> list[_Group]:
    now = float(table.cost.sum())
    widths = table.opened[table.candidates]
    if now <= policy.tolerance * table.model.ideal or not len(widths):
        return []
    options = []
    enough = now - _goal(table, policy)
    steps = np.unique(np.quantile(widths, np.linspace(0, 1, _THRESHOLDS), method="lower"))
    for step in steps[::-1]:
        wide = table.candidates & (table.opened >= step)
        option = _rewrite(table, np.flatnonzero(table.forced | wide))
        if option.gain >= _LEAST_GAIN * now:
            options.append(option)
        if option.gain >= enough:
            break  # the rewrites that follow are larger
    return options


def _goal(table: _Table, policy: ClusteringPolicy) -> float:
    return max(policy.tolerance * _DEPTH_OF_REWRITE, 1.0) * table.model.ideal


def _wanted(table: _Table, policy: ClusteringPolicy, options: list[_Group]) -> Mask:
    if not options:
        return table.forced
    now = float(table.cost.sum())
    most = max(option.gain for option in options)
    allowed = policy.tolerance * table.model.ideal
    deep, shallow = (
        _cheapest(options, now - cost if most >= now - cost else _MOST_OF_GAIN * most)
        for cost in (_goal(table, policy), allowed)
    )
    chosen = shallow if shallow.size < _MUCH_CHEAPER * deep.size else deep
    return _mask(chosen.rows, len(table.cost))


def _cheapest(options: list[_Group], gain: float) -> _Group:
    return min(
        (option for option in options if option.gain >= gain), key=lambda option: option.size
    )


def _rewrite(table: _Table, rows: NDArray[np.int64]) -> _Group:
    extent = table.space.extent(_mask(rows, len(table.cost)))
    size = float(table.space.size_bytes[rows].sum())
    outputs = table.model.outputs(size, extent)
    gain = float(table.cost[rows].sum()) - table.model.after(size, extent, outputs)
    cubes = np.unique(table.cube[rows])
    if len(cubes) == 1 and cubes[0] >= 0:
        gain = 0.0  # clustered together before
    return _Group(rows=rows, size=size, outputs=outputs, gain=gain)


def _groups(table: _Table, wanted: Mask, limit_bytes: int) -> list[_Group]:
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return []
    narrowest = min(table.space.columns, key=lambda spans: float(spans.width[rows].mean()))
    middle = narrowest.low[rows] + narrowest.high[rows]
    rows = rows[np.argsort(middle, kind="stable")]
    slices = pack(table.space.size_bytes[rows].astype(np.int64), limit_bytes)
    return [_rewrite(table, rows[part]) for part in slices]


def _within(groups: list[_Group], budget_bytes: int | None) -> list[_Group]:
    if budget_bytes is None:
        return groups
    left = float(budget_bytes)
    taken = []
    for group in sorted(groups, key=lambda group: -group.gain / max(group.size, 1.0)):
        if group.size <= left:
            left -= group.size
            taken.append(group)
    return taken


def _mask(rows: NDArray[np.int64], length: int) -> Mask:
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask
