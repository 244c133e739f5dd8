"""Commit finished rewrites, one commit per group, and clean up after certain failures only."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from liquidlog.clustering.domain import CLUSTERING_DOMAIN
from liquidlog.clustering.outcome.change import planned_group, rewrite_change
from liquidlog.clustering.outcome.staleness import stale_reasons
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal, rehearse
from liquidlog.data.runs import Run
from liquidlog.errors import (
    CommitConflictError,
    ResultMismatchError,
    StorageError,
    TableReplacedError,
)
from liquidlog.log.loader import load_commits, newest_version
from liquidlog.log.second_opinion import require_agreement
from liquidlog.log.store import TableStore
from liquidlog.operations.checkpoint import commit_and_checkpoint
from liquidlog.operations.outputs import (
    clear_run,
    require_committable,
    require_evidence,
    require_own_names,
    run_of,
)
from liquidlog.plan import (
    GROUP_ID_TAG,
    PLAN_ID_TAG,
    ClusteringPlan,
    InputFile,
    RewriteGroup,
    RewrittenGroup,
    WrittenFile,
    rewrite_digest,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import FileKey
from liquidlog.version import __version__

ENGINE_INFO: Final = f"liquidlog/{__version__}"


class RunWarning(UserWarning):
    """A commit landed, but something of the run that wrote its files could not be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """What became of a finished group; `version` is None if it had been committed before.

    `base` is the version of the table that its commit was derived from.
    """

    group_id: int
    version: int | None
    base: Snapshot | None = field(default=None, compare=False, repr=False)


def commit_group(
    store: TableStore,
    plan: ClusteringPlan,
    group: RewrittenGroup,
    clock: Clock,
    base: Snapshot | None = None,
) -> GroupCommit:
    """Commit one finished group on top of the newest version; `base` is one known already.

    A group of this plan that is committed already is left as it is. Outputs are deleted only where
    the log proves that no commit can ever name them: another result of the group was committed, or
    other commits made it impossible. Else they stay, listed as the files of a finished run.

    Raises:
        CommitConflictError: If other commits made it impossible; names all conflicts.
        TableReplacedError: If another table is there now; nothing is deleted.
        ResultMismatchError: If the result does not answer the plan, lost a row, or is not what its
            run left.
        DataFileError: If an output cannot be read.
        StorageError: If the storage cannot be asked, or refuses the commit.
        CommitStateUnknownError: If it cannot be told whether it landed.
        UnsupportedFeatureError: If the table cannot be written any more.
        CorruptLogError: If delta-rs reads the log differently.
    """
    run, digest = _run_of(store, plan, group)
    if group.group_id in committed_groups(store, plan):
        clear_run(store, run, digest)
        return GroupCommit(group_id=group.group_id, version=None)
    try:
        require_evidence(store, plan, group)
        proposal = _proposal(store, plan, group, clock, base, (run, digest))
        landed = commit_and_checkpoint(store, proposal, clock, engine_info=ENGINE_INFO)
    except TableReplacedError:
        raise  # what the log of another table says proves nothing
    except CommitConflictError:
        clear_run(store, run, digest)
        if group.group_id in committed_groups(store, plan):
            return GroupCommit(group_id=group.group_id, version=None)
        raise
    except ResultMismatchError:
        # Whoever committed the same outputs meanwhile has forgotten their run.
        if group.group_id in committed_groups(store, plan):
            return GroupCommit(group_id=group.group_id, version=None)
        raise
    settle(run, group.outputs)
    return GroupCommit(group_id=group.group_id, version=landed.version, base=landed.base)


def rehearse_group(
    store: TableStore,
    plan: ClusteringPlan,
    group: RewrittenGroup,
    clock: Clock,
    base: Snapshot | None = None,
) -> GroupCommit:
    """Return what `commit_group` would do now; nothing is committed, and nothing deleted.

    Raises:
        CommitConflictError: As `commit_group`.
        ResultMismatchError: As `commit_group`.
        DataFileError: As `commit_group`.
        StorageError: As `commit_group`.
        UnsupportedFeatureError: As `commit_group`.
        CorruptLogError: As `commit_group`.
    """
    run, digest = _run_of(store, plan, group)
    if group.group_id in committed_groups(store, plan):
        return GroupCommit(group_id=group.group_id, version=None)
    require_evidence(store, plan, group)
    proposal = _proposal(store, plan, group, clock, base, (run, digest))
    would = rehearse(store, proposal)
    return GroupCommit(group_id=group.group_id, version=would.version, base=would.base)


def settle(run: Run, outputs: Sequence[WrittenFile]) -> None:
    """Forget a run whose outputs are committed; that this failed is a RunWarning.

    What is left says only that the run finished. Its files are named by the log, so that nobody
    deletes them.
    """
    try:
        run.forget(named={file.path for file in outputs})
    except StorageError as error:
        message = f"committed, but the mark of its run could not be removed: {error.message}"
        warnings.warn(message, RunWarning, stacklevel=3)


def committed_groups(store: TableStore, plan: ClusteringPlan) -> frozenset[int]:
    """Return the ids of this plan's groups that the log says are committed.

    Raises:
        VersionNotFoundError: If commits after the plan's version are gone from the log.
    """
    found = set()
    for landed in load_commits(store, plan.read_version + 1, newest_version(store)):
        tags = landed.info.tags or {}
        if tags.get(PLAN_ID_TAG) == plan.plan_id:
            found.add(int(tags[GROUP_ID_TAG]))
    return frozenset(found)


def pending_groups(store: TableStore, plan: ClusteringPlan) -> tuple[RewriteGroup, ...]:
    """Return the groups of a plan that are still to be rewritten."""
    done = committed_groups(store, plan)
    return tuple(group for group in plan.groups if group.group_id not in done)


def read_set_of(plan: ClusteringPlan, group: RewriteGroup) -> ReadSet:
    """Return what the rewrite of a group depends on: its inputs and the clustering columns."""
    return ReadSet(
        version=plan.read_version,
        files=frozenset(_key(file) for file in group.inputs),
        domains=frozenset({CLUSTERING_DOMAIN}),
    )


def _run_of(store: TableStore, plan: ClusteringPlan, group: RewrittenGroup) -> tuple[Run, str]:
    """Return the run that a result names, and the digest that it must have left.

    Raises:
        ResultMismatchError: If the result does not answer the plan, or names files of other runs.
    """
    run = run_of(store, group.run)
    digest = rewrite_digest(plan, planned_group(plan, group), group)
    require_own_names(run, group.outputs)
    return run, digest


def _proposal(
    store: TableStore,
    plan: ClusteringPlan,
    group: RewrittenGroup,
    clock: Clock,
    base: Snapshot | None,
    claim: tuple[Run, str],
) -> Proposal:
    """Return the change that commits a group; `claim` is what `_run_of` returned for it."""
    run, digest = claim
    started_ms = clock.now_ms()
    planned = planned_group(plan, group)

    def before_put(snapshot: Snapshot) -> None:
        require_agreement(snapshot, store.storage)
        require_committable(store, run, digest, group.outputs, snapshot, now_ms=clock.now_ms())

    return Proposal(
        read_set=read_set_of(plan, planned),
        derive=lambda snapshot: rewrite_change(snapshot, plan, group, now_ms=started_ms),
        problems=lambda snapshot: stale_reasons(snapshot, plan, planned),
        before_put=before_put,
        base=base,
    )


def _key(file: InputFile) -> FileKey:
    vector = file.deletion_vector
    if vector is None:
        return file.path, None
    return file.path, vector.descriptor.unique_id
