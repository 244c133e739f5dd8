"""What a change does to a table's protocol: features that come and go, and who is kept out.

Dropping is for features that only writers have to know: what older versions need of readers stays
as it was, so that no history has to be truncated for it. PROTOCOL.md lets no client remove a
feature and says nothing of how it is done; this follows Delta Spark's DROP FEATURE, and goes beyond
it for `clustering`, which that does not drop.

Source: Delta Spark 4.4, AlterTableDropFeatureDeltaCommand, TableFeature.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.errors import UsageError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AnyAction, Change, DomainMetadata, Protocol
from liquidlog.spec.features import (
    CHECKPOINT_PROTECTION,
    CLUSTERING,
    COLUMN_MAPPING,
    DELETION_VECTORS,
    DOMAIN_METADATA,
    IN_COMMIT_TIMESTAMP,
    ROW_TRACKING,
    clustering_upgrade,
    is_clustered,
    table_features,
    without_feature,
)
from liquidlog.spec.text import near_names, unset_properties

DROPPABLE: Final = (CLUSTERING, DOMAIN_METADATA)
"""Features that can be dropped here."""

_NEEDED_BY: Final[Mapping[str, tuple[str, ...]]] = {DOMAIN_METADATA: (CLUSTERING, ROW_TRACKING)}

_WITH_HISTORY: Final = frozenset(
    {
        "catalogManaged",
        COLUMN_MAPPING,
        DELETION_VECTORS,
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_WITHOUT_HISTORY: Final = frozenset(
    {"allowColumnDefaults", "checkConstraints", IN_COMMIT_TIMESTAMP, ROW_TRACKING}
)

DROP: Final = "DROP FEATURE"
_CLEANUP: Final = "DOMAIN METADATA CLEANUP"

_KEPT_OUT: Final = (
    "delta-rs (deltalake)",
    "Delta Spark before 3.1",
    "other writers that do not know these features",
)


@dataclass(frozen=True, slots=True)
class ProtocolChange:
    """The protocol before a change and after it; `kept_out` are writers that then refuse."""

    before: Protocol
    after: Protocol
    kept_out: tuple[str, ...] = ()

    @property
    def added(self) -> tuple[str, ...]:
        """The features that come, sorted; not those that were implied by a version before."""
        return tuple(sorted({*table_features(self.after)} - {*table_features(self.before)}))

    @property
    def effect(self) -> str:
        """What changes, and for whom, as a clause of a sentence."""
        before, after = self.before, self.after
        return (
            f"this changes the table's protocol from ({before.min_reader_version},"
            f" {before.min_writer_version}) to ({after.min_reader_version},"
            f" {after.min_writer_version}), with {_listed(self.added)}: {_listed(self.kept_out)}"
            " can then no longer write to it"
        )

    def __str__(self) -> str:
        """Return the change in words for people."""
        return f"{self.effect}; readers are not affected, and drop-feature takes it back"


def clustering_protocol_change(snapshot: Snapshot) -> ProtocolChange | None:
    """Return what clustering columns do to a table's protocol, None if it has the feature."""
    if is_clustered(snapshot.protocol):
        return None
    return ProtocolChange(snapshot.protocol, clustering_upgrade(snapshot.protocol), _KEPT_OUT)


def feature_to_drop(protocol: Protocol, name: str, *, truncate_history: bool) -> str:
    """Return the feature of a name in any case, if it can be dropped here."""
    present = table_features(protocol)
    feature = next((one for one in present if one.lower() == name.lower()), None)
    if feature is None:
        _refuse_absent(name, present)
    if feature not in DROPPABLE:
        raise UsageError(
            f"{feature} cannot be dropped here: {_elsewhere(feature)}", feature=feature
        )
    others = [other for other in _NEEDED_BY.get(feature, ()) if other in present]
    if others:
        droppable = [one for one in others if one in DROPPABLE]
        first = f"; drop {droppable[0]} first" if droppable else f": {_elsewhere(others[0])}"
        raise UsageError(
            f"{feature} cannot be dropped while the table has {' and '.join(others)}{first}",
            feature=feature,
            needed_by=others,
        )
    if truncate_history:
        raise UsageError(
            f"no history has to be truncated to drop {feature}: only writers have to know it,"
            " older versions stay readable, and there is nothing to wait for. Leave"
            " --truncate-history out. Features that readers have to know are dropped by Delta"
            " Spark, which truncates history for them only after delta.logRetentionDuration, or"
            " after 24 hours with TRUNCATE HISTORY",
            feature=feature,
        )
    return feature


def feature_drop(snapshot: Snapshot, feature: str) -> Change:
    """Return the change that drops a feature, and what of the table's state is of it alone."""
    feature_to_drop(snapshot.protocol, feature, truncate_history=False)
    if feature == DOMAIN_METADATA and snapshot.domains:
        domains = tuple(sorted(snapshot.domains))
        raise UsageError(
            f"{feature} cannot be dropped: another writer gave the table {_listed(domains)}"
            " meanwhile; nothing was dropped, run it again if the domain is to go too",
            feature=feature,
            domains=list(domains),
        )
    actions: tuple[AnyAction, ...] = (
        snapshot.metadata,
        without_feature(snapshot.protocol, feature),
    )
    if feature == CLUSTERING and CLUSTERING_DOMAIN in snapshot.domains:
        actions = (*actions, _removed(snapshot.domains[CLUSTERING_DOMAIN]))
    return Change(
        operation=DROP,
        parameters={"featureName": feature, "truncateHistory": False},
        actions=actions,
        is_blind_append=True,
    )


def cleanup_change(snapshot: Snapshot) -> Change | None:
    """Return the change that removes all domains, None if there is none.

    No feature may need one any more. It comes before the feature goes: without the feature, a
    commit may not name a domain.
    """
    if not snapshot.domains:
        return None
    return Change(
        operation=_CLEANUP,
        parameters={"domainMetadataRemovedCount": len(snapshot.domains)},
        actions=tuple(map(_removed, snapshot.domains.values())),
        is_blind_append=True,
    )


def _removed(domain: DomainMetadata) -> DomainMetadata:
    return DomainMetadata(domain=domain.domain, configuration=domain.configuration, removed=True)


def _refuse_absent(name: str, present: tuple[str, ...]) -> NoReturn:
    if name.lower().startswith("delta."):
        raise UsageError(
            f"{name} is a property, not a feature; remove it with ALTER TABLE …"
            f" {unset_properties([name])}",
            feature=name,
        )
    near = near_names(name, present)
    hint = f"did you mean {' or '.join(near)}" if near else f"it has {_listed(present)}"
    raise UsageError(f"the table does not have the feature {name}; {hint}", feature=name)


def _elsewhere(feature: str) -> str:
    statement = f"ALTER TABLE ... DROP FEATURE {feature}"
    if feature == CHECKPOINT_PROTECTION:
        return (
            f"Delta Spark's {statement} TRUNCATE HISTORY does, 24 hours after the feature for which"
            " it came was dropped, and shortens the history"
        )
    if feature in _WITH_HISTORY:
        return (
            "readers have to know it, and files may have to be rewritten; Delta Spark's"
            f" {statement} does that and adds {CHECKPOINT_PROTECTION}, or, with TRUNCATE HISTORY,"
            " shortens the history after 24 hours instead"
        )
    if feature in _WITHOUT_HISTORY:
        return f"Delta Spark's {statement} does it"
    return "Delta Spark does not drop it either; it has no effect while nothing uses it"


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
