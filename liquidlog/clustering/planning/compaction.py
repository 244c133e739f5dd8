"""Plans for tables without clustering columns: compaction, and ZORDER BY.

`planner.plan` checks that a table has none.

Source: Delta Spark, CompactionStrategy and ZOrderStrategy.
"""

from typing import Final

import numpy as np

from liquidlog.clustering.columns import resolve_columns
from liquidlog.clustering.planning.choice import (
    TAKEN,
    Choice,
    NewId,
    build_plan,
    deleted_shares,
    output_count,
    pack,
    reason_code,
)
from liquidlog.clustering.zcubes import sizes
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, RewriteMode, SkipReason
from liquidlog.snapshot import Snapshot

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


def plan_zorder(snapshot: Snapshot, policy: ClusteringPolicy, new_id: NewId) -> ClusteringPlan:
    """Return the plan that rewrites all files along `policy.zorder_by`, in one group.

    Raises:
        UsageError: If the group would be cut into too many files.
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
    rows = np.arange(snapshot.files.num_rows)
    choice = Choice(
        groups=(rows,) if len(rows) else (),
        reasons=np.full(len(rows), TAKEN, np.int64),
        expected_outputs=(output_count(snapshot.size_bytes, policy.max_file_bytes),)
        if len(rows)
        else (),
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
