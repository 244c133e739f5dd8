"""Changes that rewrite no file; every attempt derives the change from the newest snapshot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from liquidlog.clustering.columns import CLUSTERING_DOMAIN, clustering_state
from liquidlog.commit import (
    Clock,
    OpenedTable,
    Proposal,
    ReadSet,
    land_and_checkpoint,
    land_first,
    require_writable,
)
from liquidlog.definition.create import (
    cleanup_change,
    create_change,
    feature_drop,
    feature_to_drop,
    like_change,
    new_table_problems,
    without_state,
)
from liquidlog.definition.schema_changes import (
    drop_change,
    plan_rename,
    plan_retagging,
    rename_change,
    retagged,
)
from liquidlog.errors import (
    SchemaChangeError,
    SchemaProblem,
    SchemaProblemKind,
    TableExistsError,
    UsageError,
)
from liquidlog.log.checkpoints import original_adds
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change, Protocol
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.features import DOMAIN_METADATA, is_true, without_feature
from liquidlog.spec.schema import Path, StructType, find_column
from liquidlog.storage.files import TableStore

Derive = Callable[[Snapshot], Change | None]
"""Function from a snapshot to the change to commit, None if there is nothing to change."""


def commit_in_place(
    store: TableStore,
    snapshot: Snapshot,
    derive: Derive,
    clock: Clock,
    *,
    dry_run: bool,
    nothing_left: Change | None = None,
) -> int | None:
    """Commit a change, or `nothing_left` if others changed it; return the version, if any."""
    store.require_writable()
    require_writable(snapshot)
    if derive(snapshot) is None:
        return None
    if dry_run:
        return snapshot.version + 1

    def required(newest: Snapshot) -> Change:
        change = derive(newest) or nothing_left
        assert change is not None  # noqa: S101  ensured by the conflict rules
        return change

    proposal = Proposal(
        read_set=ReadSet(version=snapshot.version, domains=frozenset({CLUSTERING_DOMAIN})),
        base=snapshot,
        derive=required,
    )
    return land_and_checkpoint(store, proposal, clock).version


def changed(opened: OpenedTable, derive: Derive, *, dry_run: bool) -> int:
    """Commit a change, if there is one; return the table's version after that."""
    snapshot = opened.to_change()
    version = commit_in_place(opened.store, snapshot, derive, opened.clock, dry_run=dry_run)
    return snapshot.version if version is None else version


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of a new table; what is None comes from `like`, if that is given."""

    schema: StructType | pa.Schema | None
    like: Snapshot | None
    cluster_by: tuple[Path, ...] | None
    properties: Mapping[str, str]
    partition_by: tuple[Path, ...] | None = None
    description: str | None = None


def create(
    store: TableStore, definition: Definition, clock: Clock, *, dry_run: bool = False
) -> None:
    """Commit version 0 of a new table; with `dry_run`, only check that this is possible."""
    store.require_writable()
    if store.list_log():
        raise TableExistsError(store.uri)
    change = _creation(definition, clock)
    if not dry_run and not land_first(store, change, clock):
        raise TableExistsError(store.uri)


def _creation(definition: Definition, clock: Clock) -> Change:
    problems = [str(problem) for problem in new_table_problems(definition.properties)]
    if problems:
        raise UsageError("; ".join(problems), problems=problems)
    schema, like = definition.schema, definition.like
    properties, description = definition.properties, definition.description
    clustered: Sequence[Path] = definition.cluster_by or ()
    partitioned: Sequence[Path] = definition.partition_by or ()
    if like is not None and schema is None:
        require_writable(like)
        keeps_columns = definition.cluster_by is None and definition.partition_by is None
        if keeps_columns and description is None and not properties:
            return like_change(like, new_id=clock.new_id, now_ms=clock.now_ms())
        schema, kept = without_state(like.schema, like.metadata.configuration)
        properties = {**kept, **properties}
        description = description or like.metadata.description
        if keeps_columns:
            clustered = [column.logical for column in clustering_state(like).columns]
            partitioned = [(name,) for name in like.metadata.partition_columns]
    elif schema is None or like is not None:
        raise UsageError("a new table needs either a schema or a table to copy it from, not both")
    return create_change(
        delta_schema(schema) if isinstance(schema, pa.Schema) else schema,
        cluster_by=clustered,
        partition_by=partitioned,
        properties=properties,
        description=description,
        new_id=clock.new_id,
        now_ms=clock.now_ms(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFeature:
    """A dropped feature: the version of the commit, and the table's protocol there."""

    feature: str
    version: int
    protocol: Protocol
    removed_domains: tuple[str, ...] = ()


def drop_feature(
    opened: OpenedTable, name: str, *, truncate_history: bool = False, dry_run: bool = False
) -> DroppedFeature:
    """Commit that a table no longer has a feature; return its version and protocol after that."""
    snapshot = opened.to_change()
    feature = feature_to_drop(snapshot.protocol, name, truncate_history=truncate_history)
    domains: tuple[str, ...] = ()
    if feature == DOMAIN_METADATA:
        domains = tuple(sorted(snapshot.domains))
        cleaned = changed(opened, cleanup_change, dry_run=dry_run)
        if cleaned != snapshot.version:
            snapshot = replace(snapshot, domains={}) if dry_run else opened.to_change()
    dropping = partial(feature_drop, feature=feature)
    version = commit_in_place(opened.store, snapshot, dropping, opened.clock, dry_run=dry_run)
    assert version is not None  # noqa: S101  there is always something to drop
    return DroppedFeature(
        feature=feature,
        version=version + (1 if dry_run and domains else 0),
        protocol=without_feature(snapshot.protocol, feature),
        removed_domains=domains,
    )


_CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"


def renaming(store: TableStore, old: Path, new_name: str) -> Derive:
    """Return the change that renames a column in the schema and in the tags of files."""

    def derive(newest: Snapshot) -> Change | None:
        rename = plan_rename(newest, old, new_name)
        if rename.old == rename.new:
            return None
        retagging = plan_retagging(newest, rename)
        if retagging.files.num_rows and is_true(newest.metadata.configuration, _CHANGE_DATA_FEED):
            text = "tags of its files must change, which the change data feed forbids in a rename"
            kind = SchemaProblemKind.CHANGE_DATA_FEED_IS_ON
            raise SchemaChangeError([SchemaProblem(kind, text, property=_CHANGE_DATA_FEED)])
        originals = original_adds(store, newest, retagging.files)
        return rename_change(newest, rename, retagged(retagging, originals))

    return derive


def dropping(columns: Sequence[Path], *, if_exists: bool) -> Derive:
    """Return the change that drops columns from the schema."""

    def derive(newest: Snapshot) -> Change | None:
        there = [one for one in columns if find_column(newest.schema, one) is not None]
        wanted = there if if_exists else columns
        return drop_change(newest, *wanted) if wanted else None

    return derive
