"""A migration is committed as a whole: every group of the plan, every live file an input.

The commit makes the table unpartitioned. A file that was not rewritten would lack its partition
values from then on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import ClusteringColumn, resolve_columns
from liquidlog.clustering.outcome.staleness import Staleness
from liquidlog.errors import ClusteringColumnError, Conflict
from liquidlog.plan import ClusteringPlan, InputFiles, RewriteGroup, RewrittenGroup
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.actions import UNREADABLE

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
            f"{by} added {len(self.paths)} file(s) that the migration has not rewritten: {listed};"
            " migrate --add-to takes them into a saved plan"
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


def lost_values(
    plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup
) -> Iterator[str]:
    """Yield each former partition column whose nulls in the outputs are not those of the inputs.

    An executor that does not know of partition values writes nulls, and its checksums agree. What
    statistics do not count, and rows that the log does not count, cannot be compared.
    """
    rows = _live_rows(planned.inputs)
    values = planned.inputs.columns["partition_values"].to_pylist(maps_as_pydicts="strict")
    if rows is None:
        return
    counted = [_null_counts(output.stats) for output in group.outputs]
    for name in plan.formerly_partitioned_by:
        expected = sum(n for n, its in zip(rows, values, strict=True) if not its.get(name))
        found = [nulls[name] for nulls in counted if isinstance(nulls.get(name), int)]
        if len(found) == len(counted) and sum(found) != expected:
            yield (
                f"the outputs of group {group.group_id} hold {sum(found)} nulls of the former"
                f" partition column {name}, the inputs {expected}: its values are lost"
            )


def _live_rows(inputs: InputFiles) -> list[int] | None:
    records, vectors = inputs.columns["num_records"], inputs.columns["deletion_vector"]
    if records.null_count:
        return None
    deleted = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    counts: list[int] = pc.subtract(records, deleted).to_pylist()
    return counts


def _null_counts(stats: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(stats, type=_NullCounts).null_count
    except UNREADABLE:
        return {}  # which is refused elsewhere


class _NullCounts(msgspec.Struct, rename="camel"):
    null_count: dict[str, Any] = {}


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
