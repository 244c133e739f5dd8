"""Commit finished rewrites, one commit a group, and clean up after certain failures only."""

from dataclasses import dataclass, field
from typing import Final

from liquidlog.clustering.domain import CLUSTERING_DOMAIN
from liquidlog.clustering.outputs import planned_group, rewrite_change
from liquidlog.clustering.staleness import stale_reasons
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Clock, Proposal, rehearse
from liquidlog.errors import CommitConflictError, LiquidlogError, ResultMismatchError
from liquidlog.log.loader import load_commits, load_snapshot, newest_version
from liquidlog.log.second_opinion import require_agreement
from liquidlog.log.store import TableStore
from liquidlog.operations.checkpoint import commit_and_checkpoint
from liquidlog.plan import (
    GROUP_ID_TAG,
    PLAN_ID_TAG,
    ClusteringPlan,
    InputFile,
    RewriteGroup,
    RewrittenGroup,
)
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.actions import AddFile, FileKey, RemoveFile, file_key

ENGINE_INFO: Final = "liquidlog/0.1.0"


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

    A group of this plan that is committed already is left as it is. On a conflict, or when the
    result does not prove itself, the group's outputs are deleted: no commit can ever name them.

    Raises:
        CommitConflictError: If other commits made it impossible; names all conflicts.
        ResultMismatchError: If the result does not answer the plan, or lost a row.
        CommitStateUnknownError: If it cannot be told whether it landed; nothing is deleted.
        UnsupportedFeatureError: If the table cannot be written any more.
        CorruptLogError: If delta-rs reads the log differently.
    """
    if group.group_id in committed_groups(store, plan):
        _delete_outputs(store, plan, group)
        return GroupCommit(group_id=group.group_id, version=None)
    try:
        _require_outputs(store, group)
        proposal = _proposal(store, plan, group, clock, base)
        landed = commit_and_checkpoint(store, proposal, clock, engine_info=ENGINE_INFO)
    except CommitConflictError:
        _delete_outputs(store, plan, group)
        if group.group_id in committed_groups(store, plan):
            return GroupCommit(group_id=group.group_id, version=None)
        raise
    except ResultMismatchError:
        _delete_outputs(store, plan, group)
        raise
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
        UnsupportedFeatureError: As `commit_group`.
        CorruptLogError: As `commit_group`.
    """
    if group.group_id in committed_groups(store, plan):
        return GroupCommit(group_id=group.group_id, version=None)
    _require_outputs(store, group)
    would = rehearse(store, _proposal(store, plan, group, clock, base))
    return GroupCommit(group_id=group.group_id, version=would.version, base=would.base)


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


def _proposal(
    store: TableStore,
    plan: ClusteringPlan,
    group: RewrittenGroup,
    clock: Clock,
    base: Snapshot | None,
) -> Proposal:
    started_ms = clock.now_ms()
    planned = planned_group(plan, group)
    return Proposal(
        read_set=read_set_of(plan, planned),
        derive=lambda snapshot: rewrite_change(snapshot, plan, group, now_ms=started_ms),
        problems=lambda snapshot: stale_reasons(snapshot, plan, planned),
        before_put=lambda snapshot, _: require_agreement(snapshot, store.storage),
        base=base,
    )


def _key(file: InputFile) -> FileKey:
    vector = file.deletion_vector
    if vector is None:
        return file.path, None
    return file.path, vector.descriptor.unique_id


def _require_outputs(store: TableStore, group: RewrittenGroup) -> None:
    problems = []
    for output in group.outputs:
        if not _is_inside(output.path):
            problems.append(f"output {output.path!r} is not inside the table")
            continue
        found = store.file_size_bytes(output.path)
        if found != output.size_bytes:
            state = "is missing" if found is None else f"has {found} bytes"
            problems.append(f"output {output.path} {state}, expected {output.size_bytes} bytes")
    if problems:
        raise ResultMismatchError(tuple(problems))


def _delete_outputs(store: TableStore, plan: ClusteringPlan, group: RewrittenGroup) -> None:
    """Delete outputs that the log does not name; keep all if that cannot be told.

    A result is a document anybody can write, so a path that the log names, or that leaves the
    table's directory, is not an output of ours.
    """
    try:
        named = _named_paths(store, plan.read_version + 1)
    except LiquidlogError:
        return
    for output in group.outputs:
        if _is_inside(output.path) and output.path not in named:
            store.delete_file(output.path)


def _is_inside(path: str) -> bool:
    """Return whether a path names a data file below the table, whoever wrote it down."""
    parts = path.split("/")
    hidden = path.startswith(("_", "."))
    return not hidden and not {"", ".", ".."} & set(parts) and not {":", "\0", "\\"} & set(path)


def _named_paths(store: TableStore, first: int) -> frozenset[str]:
    snapshot = load_snapshot(store)
    since = {
        file_key(action)[0]
        for landed in load_commits(store, first, snapshot.version)
        for action in landed.actions
        if isinstance(action, AddFile | RemoveFile)
    }
    return frozenset(decoded_paths(snapshot.files).to_pylist()) | since
