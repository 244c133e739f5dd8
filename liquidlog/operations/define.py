"""Create tables and change clustering columns: metadata-only commits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from liquidlog.clustering.columns import clustering_state
from liquidlog.commit.transaction import Clock, land_first, require_writable
from liquidlog.definition.create import cluster_by_change, create_change, like_change, without_state
from liquidlog.definition.property_rules import new_table_problems
from liquidlog.definition.protocols import cleanup_change, drop_change, feature_to_drop
from liquidlog.errors import TableExistsError, UsageError
from liquidlog.log.loader import load_snapshot
from liquidlog.log.store import TableStore
from liquidlog.operations.in_place import commit_in_place
from liquidlog.operations.strategies import strategy_names
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change, Protocol
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.features import DOMAIN_METADATA, without_feature
from liquidlog.spec.schema import Path, StructType
from liquidlog.version import ENGINE_INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of a new table; `cluster_by` None means the columns of `like`, if given."""

    schema: StructType | pa.Schema | None
    like: Snapshot | None
    cluster_by: tuple[Path, ...] | None
    properties: Mapping[str, str]
    description: str | None = None


def create(
    store: TableStore, definition: Definition, clock: Clock, *, dry_run: bool = False
) -> None:
    """Commit version 0 of a new table; with `dry_run`, only check that this is possible."""
    store.require_writable()
    if store.list_log():
        raise TableExistsError(store.uri)
    change = creation(definition, clock)
    if not dry_run and not land_first(store, change, clock, engine_info=ENGINE_INFO):
        raise TableExistsError(store.uri)


def creation(definition: Definition, clock: Clock) -> Change:
    """Return the change that creates a table."""
    problems = [str(problem) for problem in new_table_problems(definition.properties)]
    if problems:
        raise UsageError("; ".join(problems), problems=problems)
    schema, like = definition.schema, definition.like
    if like is not None and schema is None:
        require_writable(like)
        return _like(like, definition, clock)
    if schema is None or like is not None:
        raise UsageError("a new table needs either a schema or a table to copy it from, not both")
    return create_change(
        delta_schema(schema) if isinstance(schema, pa.Schema) else schema,
        cluster_by=definition.cluster_by or (),
        properties=definition.properties,
        description=definition.description,
        new_id=clock.new_id,
        now_ms=clock.now_ms(),
        strategies=strategy_names,
    )


def _like(source: Snapshot, definition: Definition, clock: Clock) -> Change:
    if (definition.cluster_by, definition.description) == (
        None,
        None,
    ) and not definition.properties:
        return like_change(source, new_id=clock.new_id, now_ms=clock.now_ms())
    schema, properties = without_state(source.schema, source.metadata.configuration)
    columns = [column.logical for column in clustering_state(source).columns]
    return create_change(
        schema,
        cluster_by=columns if definition.cluster_by is None else definition.cluster_by,
        properties={**properties, **definition.properties},
        description=definition.description or source.metadata.description,
        new_id=clock.new_id,
        now_ms=clock.now_ms(),
        strategies=strategy_names,
    )


def cluster_by(
    store: TableStore,
    snapshot: Snapshot,
    columns: tuple[Path, ...] | None,
    clock: Clock,
    *,
    dry_run: bool = False,
) -> int:
    """Commit new clustering columns, None to remove them; return the table's version after that.

    With `dry_run` nothing is committed; the version is the one that the table would have.
    """
    change = partial(cluster_by_change, columns=columns)
    version = commit_in_place(store, snapshot, change, clock, dry_run=dry_run)
    return snapshot.version if version is None else version


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFeature:
    """A feature that was dropped, or would be: the last version of it, and the protocol there.

    `removed_domains` are domains that nothing needed any more and that went before.
    """

    feature: str
    version: int
    protocol: Protocol
    removed_domains: tuple[str, ...] = ()


def drop_feature(
    store: TableStore,
    snapshot: Snapshot,
    name: str,
    clock: Clock,
    *,
    truncate_history: bool = False,
    dry_run: bool = False,
) -> DroppedFeature:
    """Commit that a table no longer has a feature; return its version and protocol after that.

    With `dry_run` nothing is committed; the version is the one that the table would have.
    """
    feature = feature_to_drop(snapshot.protocol, name, truncate_history=truncate_history)
    dropping = partial(drop_change, feature=feature)
    domains: tuple[str, ...] = ()
    if feature == DOMAIN_METADATA:
        domains = tuple(sorted(snapshot.domains))
        cleaned = commit_in_place(store, snapshot, cleanup_change, clock, dry_run=dry_run)
        if cleaned is not None:
            snapshot = replace(snapshot, domains={}) if dry_run else load_snapshot(store)
    version = commit_in_place(store, snapshot, dropping, clock, dry_run=dry_run)
    assert version is not None  # noqa: S101  there is always something to drop
    return DroppedFeature(
        feature=feature,
        version=version + (1 if dry_run and domains else 0),
        protocol=without_feature(snapshot.protocol, feature),
        removed_domains=domains,
    )
