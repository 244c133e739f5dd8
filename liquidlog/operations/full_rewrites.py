"""What OPTIMIZE FULL would take together if a table were clustered by other columns."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.advice.layouts import Grouping
from liquidlog.clustering.columns import CLUSTERING_DOMAIN, ClusteringColumn, clustering_domain
from liquidlog.clustering.outcome.staleness import input_rows
from liquidlog.clustering.planning.planner import plan
from liquidlog.clustering.planning.remembered import remembered_among
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot, deleted_rows, num_records
from liquidlog.spec.features import clustering_upgrade, is_clustered

_CUBE_SIZES: Final = ("min_cube_bytes", "target_cube_bytes")
_ANY_SIZE: Final = 1 << 40
"""A maximum file size: which files are taken together does not depend on it."""

_UNKNOWN_ROW_BYTES: Final = 100


def unpartitioned(snapshot: Snapshot) -> Snapshot:
    """Return the table as if it were not partitioned."""
    if not snapshot.metadata.partition_columns:
        return snapshot
    return replace(snapshot, metadata=structs.replace(snapshot.metadata, partition_columns=()))


def full_plan(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], new_id: Callable[[], str]
) -> ClusteringPlan:
    """Return the plan of OPTIMIZE FULL if the table were clustered by these columns.

    Raises:
        UsageError: If a property of the table that is needed here has a wrong value.
        UnsupportedFeatureError: If the table cannot be planned.
    """
    protocol = snapshot.protocol
    if not is_clustered(protocol):
        protocol = clustering_upgrade(protocol)
    domains = {**snapshot.domains, CLUSTERING_DOMAIN: clustering_domain(columns)}
    wanted = replace(unpartitioned(snapshot), protocol=protocol, domains=domains)
    sizes = remembered_among(snapshot, _CUBE_SIZES)
    policy = ClusteringPolicy(full=True, max_file_bytes=_ANY_SIZE, **sizes)
    return plan(wanted, policy, new_id=new_id)


def grouping(snapshot: Snapshot, made: ClusteringPlan) -> Grouping:
    """Return which live files a plan takes together."""
    group = np.full(snapshot.files.num_rows, -1, np.int64)
    for number, rows in enumerate(input_rows(snapshot, made.groups)):
        group[rows] = number
    sizes = snapshot.files["size"].to_numpy().astype(np.float64)
    known = pc.cast(num_records(snapshot.files), pa.float64())
    rows_of = pc.fill_null(known, pa.scalar(float("nan"))).to_numpy(zero_copy_only=False)
    gone = deleted_rows(snapshot.files).to_numpy(zero_copy_only=False)
    live = np.where(np.isnan(rows_of), sizes / _UNKNOWN_ROW_BYTES, rows_of - gone)
    taken, count = group >= 0, len(made.groups)
    return Grouping(
        group_of_file=group,
        size_bytes=np.bincount(group[taken], sizes[taken], count).astype(np.float64),
        num_records=np.bincount(group[taken], live[taken], count).astype(np.float64),
    )
