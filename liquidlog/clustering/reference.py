"""The strategy `cube`: exactly the files and groups that the reference engine's OPTIMIZE takes.

Partial cubes and unclustered files are merged into new cubes; stable cubes are left alone. The
reference engine decides while it walks over the files sorted by cube id. Here the same walk goes
over *runs*: stretches of consecutive files of one cube, or of consecutive unclustered files. The
result keeps the order of the reference's walk, because the order decides which files become one
cube.

Source: Delta Spark, ClusteringStrategy.applyMinZCube, ZCube.filterOutLargeZCubes,
ZCube.filterOutSingleZCubes, OptimizeExecutor.groupFilesIntoBins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.clustering.choice import (
    TAKEN,
    Choice,
    Columns,
    NewId,
    asked_for,
    build_plan,
    deleted_shares,
    output_count,
    pack,
    pack_evenly,
    partitions_of,
    reason_code,
)
from liquidlog.clustering.columns import resolve_columns
from liquidlog.clustering.kept import keepable, read_model, without_kept
from liquidlog.clustering.keyspace import key_space
from liquidlog.clustering.zcubes import Membership, logical_sizes, membership, sizes
from liquidlog.curve.curves import Curve, order_rows
from liquidlog.errors import ClusteringColumnError
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, FittedWorkload, RewriteMode, SkipReason
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf, Mask
from liquidlog.spec.schema import Path, quote_path

NAME: Final = "cube"

_UNCLUSTERED_RUN: Final = -1

_TOLERANCE: Final = 1.03
"""The most bytes that queries read of a group, as a multiple of those after its whole rewrite."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Runs:
    """The candidates as runs: `rows` are files in walking order; `starts` begins each run.

    All arrays are int64. `cube` is the cube of each run; `order` numbers the runs that no filter
    has removed, as they leave the walk.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    cube: NDArray[np.int64]
    order: NDArray[np.int64]

    def files(self, runs: NDArray[np.int64]) -> NDArray[np.int64]:
        ends = np.append(self.starts[1:], len(self.rows))
        lengths = (ends - self.starts)[runs]
        offsets = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.asarray(self.rows[np.repeat(self.starts[runs], lengths) + offsets], np.int64)


def plan_cubes(
    snapshot: Snapshot,
    columns: Columns,
    policy: ClusteringPolicy,
    new_id: NewId,
    bounds_of: BoundsOf,
    *,
    readers: FittedWorkload | None = None,
) -> ClusteringPlan:
    """Return the plan that rewrites what the reference engine's OPTIMIZE would.

    Unclustered files, then cubes below `min_cube_bytes` (logical) by their ids, are packed by their
    size on storage. A cube that would be alone in its group is left. With `full`, files of other
    columns and providers are taken too, but never stable cubes of these columns. With
    `skip_clustered`, files that lie well for `readers` keep their bytes.
    """
    places = membership(snapshot.files, columns)
    choice = _choose(snapshot, policy, places=places)
    if policy.skip_clustered:
        bounds = bounds_of([column.leaf for column in columns])
        space = key_space(bounds, sizes(snapshot.files))
        model = read_model(space, bounds, places, policy, readers)
        may = keepable(snapshot, places, bounds)
        choice = without_kept(choice, space, model, may, tolerance=_TOLERANCE)
    return build_plan(
        snapshot,
        policy,
        mode=RewriteMode.CLUSTERING,
        strategy=NAME,
        columns=columns,
        choice=choice,
        new_id=new_id,
    )


def _choose(snapshot: Snapshot, policy: ClusteringPolicy, *, places: Membership) -> Choice:
    reasons = np.where(
        places.ours, reason_code(SkipReason.OTHER_COLUMNS), reason_code(SkipReason.OTHER_PROVIDER)
    )
    walk = np.argsort(places.cube, kind="stable")
    candidate = places.candidates[walk]
    foreign = walk[~candidate]
    runs = _runs(walk[candidate], places)
    runs, stable = _without_stable(runs, logical_sizes(snapshot.files), policy.min_cube_bytes)
    reasons[stable] = reason_code(SkipReason.STABLE_CUBE)
    if policy.full and len(foreign):
        taken = np.concatenate([runs.files(runs.order), foreign])
    else:
        runs, lone = _without_lone_cube(runs)
        reasons[lone] = reason_code(SkipReason.LONE_CUBE)
        taken = runs.files(runs.order)
    reasons[taken] = TAKEN
    bytes_taken = sizes(snapshot.files)[taken]
    slices = pack(bytes_taken, max(policy.target_cube_bytes, policy.min_cube_bytes))
    return Choice(
        groups=tuple(taken[part] for part in slices),
        reasons=reasons,
        expected_outputs=tuple(
            output_count(int(bytes_taken[part].sum()), policy.max_file_bytes) for part in slices
        ),
    )


def _runs(rows: NDArray[np.int64], places: Membership) -> _Runs:
    cube = np.where(places.in_cube, places.cube, _UNCLUSTERED_RUN)[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = cube[1:] != cube[:-1]
    starts = np.flatnonzero(first)
    return _Runs(rows=rows, starts=starts, cube=cube[starts], order=np.arange(len(starts)))


def _without_stable(
    runs: _Runs, logical: NDArray[np.int64], min_cube_bytes: int
) -> tuple[_Runs, NDArray[np.int64]]:
    if not len(runs.starts):
        return runs, runs.rows
    totals = np.add.reduceat(logical[runs.rows], runs.starts)
    is_stable = (runs.cube != _UNCLUSTERED_RUN) & (totals >= min_cube_bytes)
    order = _flush_order(runs)
    kept = replace(runs, order=order[~is_stable[order]])
    return kept, runs.files(np.flatnonzero(is_stable))


def _without_lone_cube(runs: _Runs) -> tuple[_Runs, NDArray[np.int64]]:
    """Return the runs without a cube that nothing can be merged with, and its rows.

    The reference also drops a cube before the first unclustered file, if that has a ZCUBE_ID.
    """
    order = runs.order
    if not len(order):
        return runs, order
    cubes = runs.cube[order] != _UNCLUSTERED_RUN
    is_lone = bool(cubes[0]) and (len(order) == 1 or not cubes[1])
    flushed = _flush_order(runs)
    lone = order[:1] if is_lone else order[:0]
    return replace(runs, order=flushed[~np.isin(flushed, lone)]), runs.files(lone)


def _flush_order(runs: _Runs) -> NDArray[np.int64]:
    """Return the order (int64) in which a filter of the reference engine returns the runs it keeps.

    It holds a cube back until the next file shows that the cube is complete, but returns the cube
    of the last file first: a last cube of one file changes places with the cube before it.
    """
    order = runs.order.copy()
    if len(order) > 1 and (runs.cube[order[-2:]] != _UNCLUSTERED_RUN).all():
        ends = np.append(runs.starts[1:], len(runs.rows))
        if ends[order[-1]] - runs.starts[order[-1]] == 1:
            order[-2:] = order[:-3:-1]
    return order


# Plans for tables without clustering columns: compaction, and ZORDER BY
#
# `planner.plan` checks that a table has none.
#
# Source: Delta Spark, CompactionStrategy and ZOrderStrategy.

MAX_DELETED_SHARE: Final = 0.05
"""A file with a larger share of deleted rows is compacted, whatever its size.

Source: Delta Spark, spark.databricks.delta.optimize.maxDeletedRowsRatio.
"""


def plan_compaction(
    snapshot: Snapshot, policy: ClusteringPolicy, new_id: NewId, bounds_of: BoundsOf
) -> ClusteringPlan:
    """Return the plan that joins small files and files with many deleted rows, each group into one.

    They are packed by partition, smallest first as the reference engine does. The rows of a group
    stay in the order in which its files were written.
    """
    return build_plan(
        snapshot,
        policy,
        mode=RewriteMode.COMPACTION,
        strategy=RewriteMode.COMPACTION.value,
        columns=(),
        choice=_choose_small(snapshot, policy, asked_for(snapshot, policy.where, bounds_of)),
        new_id=new_id,
    )


def plan_zorder(
    snapshot: Snapshot, policy: ClusteringPolicy, new_id: NewId, bounds_of: BoundsOf
) -> ClusteringPlan:
    """Return the plan that rewrites all files along `policy.zorder_by`.

    The files of a partition are cut, in the order of their bounds along the Z-order curve, into as
    few groups of up to `target_cube_bytes` as possible, about equally large. Files that share a
    place keep the order in which they were written.
    """
    _refuse_partition_columns(snapshot, policy.zorder_by)
    asked = asked_for(snapshot, policy.where, bounds_of)
    columns = resolve_columns(
        snapshot.data_schema,
        policy.zorder_by,
        configuration=snapshot.metadata.configuration,
        partition_columns=(),
        limit=len(policy.zorder_by),
    )
    groups = _zorder_groups(snapshot, policy, columns, bounds_of, asked)
    size = sizes(snapshot.files)
    choice = Choice(
        groups=groups,
        reasons=np.where(asked, TAKEN, reason_code(SkipReason.NOT_ASKED_FOR)),
        expected_outputs=tuple(
            output_count(int(size[rows].sum()), policy.max_file_bytes) for rows in groups
        ),
    )
    return build_plan(
        snapshot,
        policy,
        mode=RewriteMode.ZORDER,
        strategy=RewriteMode.ZORDER.value,
        columns=columns,
        choice=choice,
        new_id=new_id,
    )


def _refuse_partition_columns(snapshot: Snapshot, zorder_by: Sequence[Path]) -> None:
    partitions = {name.casefold() for name in snapshot.metadata.partition_columns}
    named = [quote_path(path) for path in zorder_by if path[0].casefold() in partitions]
    if named:
        raise ClusteringColumnError(
            tuple(
                f"{name} is a partition column: all rows of a file have the same value of it, so"
                " files cannot be ordered by it; order by other columns"
                for name in named
            )
        )


def _zorder_groups(
    snapshot: Snapshot, policy: ClusteringPolicy, columns: Columns, bounds_of: BoundsOf, asked: Mask
) -> tuple[NDArray[np.int64], ...]:
    size = sizes(snapshot.files)
    parts = list(partitions_of(snapshot).of(np.flatnonzero(asked)))
    if all(size[rows].sum() <= policy.target_cube_bytes for rows in parts):
        return tuple(parts)
    place = _places(snapshot)
    space = key_space(bounds_of([column.leaf for column in columns]), size)
    groups: list[NDArray[np.int64]] = []
    for part in parts:
        if size[part].sum() <= policy.target_cube_bytes:
            groups.append(part)
            continue
        rows = part[np.argsort(place[part])]
        middles = [pa.array(((one.low + one.high) / 2)[rows]) for one in space.columns]
        rows = rows[order_rows(middles, Curve.ZORDER)]
        groups += (rows[cut] for cut in pack_evenly(size[rows], policy.target_cube_bytes))
    return tuple(groups)


def _places(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the place (int64) of each file among all in the order in which they were written."""
    written = np.argsort(snapshot.files["modification_time"].to_numpy(), kind="stable")
    return np.argsort(written)


def _choose_small(snapshot: Snapshot, policy: ClusteringPolicy, asked: Mask) -> Choice:
    size = sizes(snapshot.files)
    shares = deleted_shares(snapshot.files)
    wanted = (size < policy.max_file_bytes) | np.isnan(shares) | (shares > MAX_DELETED_SHARE)
    reasons = np.full(len(size), reason_code(SkipReason.LARGE_ENOUGH), np.int64)
    reasons[~asked] = reason_code(SkipReason.NOT_ASKED_FOR)
    rows = np.flatnonzero(wanted & asked)
    reasons[rows] = reason_code(SkipReason.LONE_FILE)
    rows = rows[np.argsort(size[rows], kind="stable")]
    place = _places(snapshot)
    groups = tuple(
        part[cut][np.argsort(place[part[cut]])]
        for part in partitions_of(snapshot).of(rows)
        for cut in pack(size[part], policy.max_file_bytes)
        if cut.stop - cut.start > 1
    )
    for group in groups:
        reasons[group] = TAKEN
    return Choice(groups=groups, reasons=reasons, expected_outputs=(1,) * len(groups))
