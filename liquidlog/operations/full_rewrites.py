"""What OPTIMIZE FULL would take together if a table were clustered by other columns."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.clustering.migration import clustered_by
from liquidlog.clustering.outcome.staleness import input_rows
from liquidlog.clustering.planning.planner import plan
from liquidlog.clustering.settings import remembered_among
from liquidlog.foresee.layouts import Grouping
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot, deleted_rows, num_records

_CUBE_SIZES: Final = ("min_cube_bytes", "target_cube_bytes")
_ANY_SIZE: Final = 1 << 40
"""A maximum file size: which files are taken together does not depend on it."""

_UNKNOWN_ROW_BYTES: Final = 100


def full_plan(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], new_id: Callable[[], str]
) -> ClusteringPlan:
    """Return the plan of OPTIMIZE FULL if the table were clustered by these columns."""
    sizes = remembered_among(snapshot, _CUBE_SIZES)
    policy = ClusteringPolicy(full=True, max_file_bytes=_ANY_SIZE, **sizes)
    return plan(clustered_by(snapshot, columns), policy, new_id=new_id)


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
        rows_of_file=live,
    )
