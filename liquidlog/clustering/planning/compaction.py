"""Plans for tables without clustering columns: compaction, and ZORDER BY.

`planner.plan` checks that a table has none.

Source: Delta Spark, CompactionStrategy and ZOrderStrategy.
"""

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
    build_plan,
    deleted_shares,
    output_count,
    pack,
    pack_evenly,
    reason_code,
)
from liquidlog.clustering.zcubes import sizes
from liquidlog.curve.curves import Curve
from liquidlog.curve.order import order_rows
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, RewriteMode, SkipReason
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf

MAX_DELETED_SHARE: Final = 0.05
"""A file with a larger share of deleted rows is compacted, whatever its size.

Source: Delta Spark, spark.databricks.delta.optimize.maxDeletedRowsRatio.
"""


def plan_compaction(snapshot: Snapshot, policy: ClusteringPolicy, new_id: NewId) -> ClusteringPlan:
    """Return the plan that joins small files, each group into one file.

    Files below `max_file_bytes` and files with many deleted rows are packed, smallest first, into
    groups of at most `max_file_bytes`. A group of a single file is rewritten only if many of its
    rows are deleted.

    Raises:
        UsageError: If a property of the table asks for something that files cannot be written with.
        UnsupportedFeatureError: If the table's row ids cannot be kept.
    """
    return build_plan(
        snapshot,
        policy,
        mode=RewriteMode.COMPACTION,
        strategy=RewriteMode.COMPACTION.value,
        columns=(),
        choice=_choose_small(snapshot, policy),
        new_id=new_id,
    )


def plan_zorder(
    snapshot: Snapshot, policy: ClusteringPolicy, new_id: NewId, bounds_of: BoundsOf
) -> ClusteringPlan:
    """Return the plan that rewrites all files along `policy.zorder_by`.

    Up to `target_cube_bytes` they are one group, as in the reference engine. More are cut, in the
    order of their bounds along the Z-order curve, into as few groups of at most that size as
    possible, all about equally large. Files without bounds lie in the middle of a column; files
    that share a place keep the order in which they were written.

    Raises:
        UsageError: If a group would be cut into too many files.
        ClusteringColumnError: If rows cannot be ordered by a column, or it has no statistics.
        UnsupportedFeatureError: If the table's row ids cannot be kept.
    """
    columns = resolve_columns(
        snapshot.schema,
        policy.zorder_by,
        configuration=snapshot.metadata.configuration,
        partition_columns=(),
        limit=len(policy.zorder_by),
    )
    groups = _zorder_groups(snapshot, policy, columns, bounds_of)
    size = sizes(snapshot.files)
    choice = Choice(
        groups=groups,
        reasons=np.full(snapshot.files.num_rows, TAKEN, np.int64),
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


def _zorder_groups(
    snapshot: Snapshot, policy: ClusteringPolicy, columns: Columns, bounds_of: BoundsOf
) -> tuple[NDArray[np.int64], ...]:
    """Return the rows of Snapshot.files (int64) of each group."""
    rows = np.arange(snapshot.files.num_rows)
    size = sizes(snapshot.files)
    if size.sum() <= policy.target_cube_bytes:
        return (rows,) if len(rows) else ()
    written = np.argsort(snapshot.files["modification_time"].to_numpy(), kind="stable")
    space = key_space(bounds_of([column.leaf for column in columns]), size)
    middles = [pa.array(((one.low + one.high) / 2)[written]) for one in space.columns]
    rows = written[order_rows(middles, Curve.ZORDER)]
    return tuple(rows[part] for part in pack_evenly(size[rows], policy.target_cube_bytes))


def _choose_small(snapshot: Snapshot, policy: ClusteringPolicy) -> Choice:
    size = sizes(snapshot.files)
    shares = deleted_shares(snapshot.files)
    wanted = (size < policy.max_file_bytes) | np.isnan(shares) | (shares > MAX_DELETED_SHARE)
    reasons = np.full(len(size), reason_code(SkipReason.LARGE_ENOUGH), np.int64)
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(size[rows], kind="stable")]
    reasons[rows] = reason_code(SkipReason.LONE_FILE)
    slices = pack(size[rows], policy.max_file_bytes)
    groups = tuple(rows[part] for part in slices if part.stop - part.start > 1)
    for group in groups:
        reasons[group] = TAKEN
    return Choice(groups=groups, reasons=reasons, expected_outputs=(1,) * len(groups))
