"""Plans for tables without clustering columns: compaction, and ZORDER BY.

`planner.plan` checks that a table has none.

Source: Delta Spark, CompactionStrategy and ZOrderStrategy.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.clustering.columns import resolve_columns
from liquidlog.clustering.keyspace.widths import key_space
from liquidlog.clustering.planning.choice import (
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
from liquidlog.clustering.zcubes import sizes
from liquidlog.curve.curves import Curve, order_rows
from liquidlog.errors import ClusteringColumnError
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, RewriteMode, SkipReason
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf, Mask
from liquidlog.spec.schema import Path, quote_path

MAX_DELETED_SHARE: Final = 0.05
"""A file with a larger share of deleted rows is compacted, whatever its size.

Source: Delta Spark, spark.databricks.delta.optimize.maxDeletedRowsRatio.
"""


def plan_compaction(
    snapshot: Snapshot, policy: ClusteringPolicy, new_id: NewId, bounds_of: BoundsOf
) -> ClusteringPlan:
    """Return the plan that joins small files, each group into one file.

    Files below `max_file_bytes` and files with many deleted rows are packed, smallest first as the
    reference engine does, into groups of at most `max_file_bytes`, partition by partition. The rows
    of a group stay in the order in which its files were written. A file that would be alone in its
    group is not rewritten. With `where`, only the partitions that it asks for are looked at.
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

    Up to `target_cube_bytes` those of a partition are one group, as in the reference engine. More
    are cut, in the order of their bounds along the Z-order curve, into as few groups of at most
    that size as possible, all about equally large. Files without bounds lie in the middle of a
    column; files that share a place keep the order in which they were written. With `where`, only
    the partitions that it asks for are rewritten.
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
    """Return the rows of Snapshot.files (int64) of each group."""
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
