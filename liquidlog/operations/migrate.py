"""A partitioned table made a clustered one: the plan, what to know before, and empty tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, structs

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.migration import (
    MIGRATION,
    defining_actions,
    migrated,
    migration_parameters,
)
from liquidlog.clustering.outcome.change import column_names
from liquidlog.clustering.outcome.staleness import input_rows, table_changes
from liquidlog.clustering.planning.choice import NewId
from liquidlog.clustering.planning.planner import no_bounds, plan
from liquidlog.clustering.settings import BY_NAME, TIME_ZONE, deciding_property, partition_time_zone
from liquidlog.commit.transaction import Clock
from liquidlog.definition.property_rules import ProtocolChange, clustering_protocol_change
from liquidlog.errors import CommitConflictError, Outdated, UsageError
from liquidlog.log.loader import require_same_table
from liquidlog.log.store import TableStore
from liquidlog.operations.define import commit_in_place
from liquidlog.operations.planned import planned
from liquidlog.operations.rewrite import CommitReport
from liquidlog.plan import MIGRATING_FORMAT_VERSION, OPTION, ClusteringPlan, InputFiles
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot, distinct_values
from liquidlog.spec.actions import Change
from liquidlog.spec.evolution import table_terms
from liquidlog.spec.partitions import READ_AS, in_zone, partition_fields, zoneless_columns
from liquidlog.spec.schema import Path

_FORCED: Mapping[str, Any] = {"strategy": "cube", "skip_clustered": False}
"""Every file is rewritten, whatever the table remembers for later plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationNotice:
    """What people have to know before a table is migrated.

    `partition_columns` are those it has, by their logical names; `protocol_change` is None if the
    table has the feature already. `zoneless` are the partition columns with timestamps that name no
    zone, which the migration takes for moments in `time_zone`.
    """

    partition_columns: tuple[str, ...]
    protocol_change: ProtocolChange | None
    zoneless: tuple[str, ...] = ()
    time_zone: str = READ_AS

    def __str__(self) -> str:
        partitions = ", ".join(self.partition_columns)
        change = self.protocol_change
        protocol = "" if change is None else f"; {change.effect}, which drop-feature takes back"
        zone = (
            f"; timestamps of {', '.join(self.zoneless)} that name no zone become moments in"
            f" {self.time_zone}, which --set partition_time_zone=ZONE changes"
            if self.zoneless
            else ""
        )
        return (
            f"after this the table is no longer partitioned by {partitions}: streams that read it"
            " stop at this version and have to be begun again with a new checkpoint, and whoever"
            f" overwrites or drops single partitions has to name rows instead{protocol}{zone}"
        )


def migration_notice(snapshot: Snapshot, made: ClusteringPlan | None = None) -> MigrationNotice:
    """Return what people have to know before a table is migrated, perhaps by this plan."""
    zone = None if made is None else made.policy.partition_time_zone
    return MigrationNotice(
        partition_columns=snapshot.metadata.partition_columns,
        protocol_change=clustering_protocol_change(snapshot),
        zoneless=_zoneless(snapshot),
        time_zone=zone or partition_time_zone(snapshot),
    )


def _zoneless(snapshot: Snapshot) -> tuple[str, ...]:
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    found = zoneless_columns(distinct_values(snapshot.files).documents, fields)
    return tuple(field.name for field in fields if field.physical_name in found)


def planned_migration(
    snapshot: Snapshot,
    columns: tuple[Path, ...],
    arguments: Mapping[str, Any],
    new_id: NewId,
    workload: Workload | None = None,
) -> ClusteringPlan:
    """Return the plan that makes a partitioned table one that is clustered by these columns.

    Every file is rewritten. `arguments` are those of Table.plan_migration that were given.
    """
    if not snapshot.metadata.partition_columns:
        raise UsageError(
            "the table is not partitioned: there is nothing to migrate; cluster-by sets its"
            " clustering columns and rewrites nothing, optimize then clusters its files"
        )
    after = migrated(snapshot, columns)
    zone = arguments.get(TIME_ZONE)
    others = {name: value for name, value in arguments.items() if name != TIME_ZONE}
    made = planned(after, {**others, **_FORCED}, no_bounds, new_id, workload)
    decided_by = {name: by for name, by in made.decided_by.items() if name not in _FORCED}
    policy = made.policy
    if _zoneless(snapshot):
        asked = partition_time_zone(snapshot) if zone is None else BY_NAME[TIME_ZONE].parsed(zone)
        policy = structs.replace(policy, partition_time_zone=asked)
        by = OPTION if zone else deciding_property(snapshot.metadata.configuration, TIME_ZONE)
        decided_by |= {TIME_ZONE: by} if by else {}
    elif zone is not None:
        raise UsageError(
            f"{TIME_ZONE} has no effect: no timestamp in the table's partition values lacks a zone",
            option=TIME_ZONE,
        )
    made = structs.replace(made, policy=policy, decided_by=decided_by)
    return _of_table_as_it_is(made, snapshot)


def extended_migration(snapshot: Snapshot, made: ClusteringPlan, new_id: NewId) -> ClusteringPlan:
    """Return the plan of a migration with more groups: of the live files that it does not have.

    All else stays as it is, so that groups which are finished need not be rewritten again.
    """
    if not made.is_migration:
        raise UsageError("the plan is no migration, and only those take what others added later")
    require_same_table(snapshot, made.table_id)
    reasons = tuple(table_changes(snapshot, made))
    if reasons:
        raise CommitConflictError(made.read_version, [Outdated(reason) for reason in reasons])
    after = migrated(snapshot, [column.logical for column in made.columns])
    chunks = [c for group in made.groups for c in group.inputs.columns["path"].chunks]
    known = pa.chunked_array(chunks, pa.string()).combine_chunks()
    left = pc.invert(pc.is_in(snapshot.paths(), value_set=known))
    rest = replace(after, files=after.files.filter(left), plain_files=None)
    if _zoneless(snapshot):
        zone = made.policy.partition_time_zone or partition_time_zone(snapshot)
        made = structs.replace(made, policy=structs.replace(made.policy, partition_time_zone=zone))
    asked = structs.replace(made.policy, partition_time_zone=UNSET)
    found = structs.replace(plan(rest, asked, new_id=new_id), policy=made.policy)
    added = _of_table_as_it_is(found, snapshot)
    groups = (
        structs.replace(group, group_id=number)
        for number, group in enumerate(added.groups, start=len(made.groups))
    )
    return structs.replace(made, groups=(*made.groups, *groups))


def _of_table_as_it_is(made: ClusteringPlan, snapshot: Snapshot) -> ClusteringPlan:
    """Return a plan of a table as `migrated` returns it as a plan of the table as it is."""
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    names = tuple(field.physical_name for field in fields)
    found = distinct_values(snapshot.files)
    kind = InputFiles.schema.field("partition_values").type
    zone = made.policy.partition_time_zone or READ_AS
    documents = [in_zone(one, fields, zone) for one in found.documents]
    texts = pa.array([[(name, one[name]) for name in names] for one in documents], kind)
    places = input_rows(snapshot, made.groups)
    return structs.replace(
        made,
        format_version=MIGRATING_FORMAT_VERSION,
        former_partition_columns=names,
        terms=table_terms(snapshot.metadata, snapshot.protocol),
        groups=tuple(
            structs.replace(
                group,
                inputs=group.inputs.with_partition_values(texts.take(pa.array(found.number[rows]))),
            )
            for group, rows in zip(made.groups, places, strict=True)
        ),
    )


def migrate_empty(
    store: TableStore,
    snapshot: Snapshot,
    made: ClusteringPlan,
    clock: Clock,
    *,
    dry_run: bool = False,
) -> CommitReport:
    """Commit the definition that a migration gives a table without files."""

    def change(newest: Snapshot) -> Change:
        if newest.files.num_rows:
            added = Outdated("files were added that the migration has not rewritten")
            raise CommitConflictError(made.read_version, [added])
        after = migrated(newest, [column.logical for column in made.columns])
        return Change(
            operation=MIGRATION,
            parameters=migration_parameters(newest, column_names(made)),
            actions=defining_actions(newest, clustering_state(after).columns),
            is_blind_append=False,
        )

    version = commit_in_place(store, snapshot, change, clock, dry_run=dry_run)
    assert version is not None  # noqa: S101  a partitioned table always has something to change
    return CommitReport(
        read_version=made.read_version,
        group_versions={},
        skipped_groups=(),
        finished=(),
        conflicts=(),
        failures=(),
        definition_version=version,
        dry_run=dry_run,
    )
