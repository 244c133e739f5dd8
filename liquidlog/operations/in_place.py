"""Commits that rewrite no file; every attempt derives its change from the newest snapshot."""

from collections.abc import Callable

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal, land_and_checkpoint, require_writable
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change
from liquidlog.version import ENGINE_INFO

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
    """Commit a change, if there is anything to change; return its version, else None.

    With `dry_run` everything is checked and derived, nothing is written, and the version is the
    one that the change would get now.

    `nothing_left` is committed if other commits left nothing to change after the change was first
    derived; without it, there must always be something left to change.
    """
    store.require_writable()
    require_writable(snapshot)
    if derive(snapshot) is None:
        return None
    if dry_run:
        return snapshot.version + 1

    def required(newest: Snapshot) -> Change:
        change = derive(newest) or nothing_left
        assert change is not None  # noqa: S101  the conflict rules let no such change pass
        return change

    proposal = Proposal(
        read_set=ReadSet(version=snapshot.version, domains=frozenset({CLUSTERING_DOMAIN})),
        base=snapshot,
        derive=required,
    )
    return land_and_checkpoint(store, proposal, clock, engine_info=ENGINE_INFO).version
