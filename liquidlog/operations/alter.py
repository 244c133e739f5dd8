"""Change a table's columns and properties: metadata-only commits.

Every attempt derives its change from the newest snapshot, so a rename updates the tag of every live
file that names the column, including files that other commits added meanwhile. With `dry_run`
nothing is committed; the returned version is the one that the table would have.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from liquidlog.commit.transaction import Clock
from liquidlog.definition.schema_changes import (
    add_change,
    drop_change,
    plan_rename,
    plan_retagging,
    properties_change,
    rename_change,
    retagged,
)
from liquidlog.errors import SchemaChangeError, SchemaProblem, SchemaProblemKind
from liquidlog.log.statistics import original_adds
from liquidlog.log.store import TableStore
from liquidlog.operations.in_place import Derive, commit_in_place
from liquidlog.operations.strategies import strategy_names
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change
from liquidlog.spec.features import is_true
from liquidlog.spec.schema import Path, StructType, find_column

_CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"


def rename_column(
    store: TableStore,
    snapshot: Snapshot,
    old: Path,
    new_name: str,
    clock: Clock,
    *,
    dry_run: bool = False,
) -> int:
    """Commit a column's new name and the new tags of its cubes; return the new version."""

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

    return _commit(store, snapshot, derive, clock, dry_run=dry_run)


def drop_columns(
    store: TableStore,
    snapshot: Snapshot,
    columns: Sequence[Path],
    clock: Clock,
    *,
    if_exists: bool = False,
    dry_run: bool = False,
) -> int:
    """Commit a schema without some columns; return the table's version after that.

    With `if_exists`, those that are not there are left out.
    """

    def derive(newest: Snapshot) -> Change | None:
        there = [one for one in columns if find_column(newest.schema, one) is not None]
        wanted = there if if_exists else columns
        return drop_change(newest, *wanted) if wanted else None

    return _commit(store, snapshot, derive, clock, dry_run=dry_run)


def add_columns(
    store: TableStore,
    snapshot: Snapshot,
    columns: StructType,
    into: Path,
    clock: Clock,
    *,
    dry_run: bool = False,
) -> int:
    """Commit a schema with more columns, of the table or of a struct; return the new version."""

    def derive(newest: Snapshot) -> Change:
        return add_change(newest, columns, into, clock.new_id)

    return _commit(store, snapshot, derive, clock, dry_run=dry_run)


def set_properties(
    store: TableStore,
    snapshot: Snapshot,
    properties: Mapping[str, str],
    unset: Sequence[str],
    clock: Clock,
    *,
    dry_run: bool = False,
) -> int:
    """Commit properties, unless the table has them; return the table's version after that."""

    def derive(newest: Snapshot) -> Change | None:
        return properties_change(newest, properties, unset, strategy_names)

    return _commit(store, snapshot, derive, clock, dry_run=dry_run)


def _commit(
    store: TableStore, snapshot: Snapshot, derive: Derive, clock: Clock, *, dry_run: bool
) -> int:
    version = commit_in_place(store, snapshot, derive, clock, dry_run=dry_run)
    return snapshot.version if version is None else version
