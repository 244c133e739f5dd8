"""A migration is committed as a whole: every group of the plan, every live file an input.

The commit makes the table unpartitioned. A file that was not rewritten would lack its partition
values from then on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import ClusteringColumn, resolve_columns
from liquidlog.clustering.outcome.staleness import Staleness
from liquidlog.errors import ClusteringColumnError, Conflict
from liquidlog.plan import ClusteringPlan, RewrittenGroup
from liquidlog.snapshot import Snapshot, decoded_paths

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class FilesAdded(Conflict):
    """Other commits added files to a table that a migration has rewritten; paths are decoded.

    `versions` are the commits that added them, as far as the log still says.
    """

    kind = "files_added"
    versions: tuple[int, ...]
    paths: tuple[str, ...]

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        by = (
            f"version(s) {', '.join(map(str, self.versions))}" if self.versions else "other commits"
        )
        listed = ", ".join(self.paths[:_SHOWN]) + (", …" if self.paths[_SHOWN:] else "")
        return (
            f"{by} added {len(self.paths)} file(s) that the migration has not rewritten: {listed}"
        )


def not_rewritten(snapshot: Snapshot, stale: Sequence[Staleness]) -> FilesAdded | None:
    """Return the conflict if live files are inputs of no group, None if there are none.

    `stale` has the staleness of all groups of a migration against `snapshot`. Where one of them has
    reasons, an input may look like another file, so only the reasons count.
    """
    if any(one.reasons for one in stale):
        return None
    left = np.ones(snapshot.files.num_rows, np.bool_)
    for one in stale:
        left[one.rows] = False
    if not left.any():
        return None
    files = snapshot.files.filter(pa.array(left))
    versions = pc.unique(files["version"]).drop_null()
    return FilesAdded(
        tuple(sorted(versions.to_pylist())), tuple(sorted(decoded_paths(files).to_pylist()))
    )


def missing_groups(plan: ClusteringPlan, groups: Sequence[RewrittenGroup]) -> Iterator[str]:
    """Yield a sentence if groups of a migration are not among those that are to be committed."""
    missing = {group.group_id for group in plan.groups} - {group.group_id for group in groups}
    if missing:
        listed = ", ".join(map(str, sorted(missing)))
        yield (
            f"group(s) {listed} of {len(plan.groups)} are not rewritten, and a migration is"
            " committed as a whole"
        )


def columns_of(snapshot: Snapshot, plan: ClusteringPlan) -> tuple[ClusteringColumn, ...] | None:
    """Return the columns that a migration clusters by, None if the table has others by now."""
    try:
        found = resolve_columns(
            snapshot.schema,
            [column.logical for column in plan.columns],
            configuration=snapshot.metadata.configuration,
            partition_columns=(),
        )
    except ClusteringColumnError:
        return None
    physical = [column.physical for column in found]
    return found if physical == [column.physical for column in plan.columns] else None
