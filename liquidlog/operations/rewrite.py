"""Commit finished rewrites, one commit per group, and clean up after certain failures only.

What stops a group does not stop the others: the report says what became of each.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.clustering.outcome.change import Staleness, planned_group, rewrite_change, staleness
from liquidlog.commit.clock import Clock
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import Proposal, rehearse, require_writable
from liquidlog.data.runs import Run
from liquidlog.errors import (
    CommitConflictError,
    Conflict,
    DataFileError,
    ExecutorError,
    ResultMismatchError,
    StorageError,
    TableReplacedError,
    UnsupportedFeatureError,
)
from liquidlog.log.loader import load_commits, newest_version
from liquidlog.log.second_opinion import require_agreement
from liquidlog.log.store import TableStore
from liquidlog.operations.checkpoint import land_and_checkpoint
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
    GroupFailure,
    InputFile,
    Outcome,
    RewriteGroup,
    RewrittenGroup,
    WrittenFile,
    rewrite_digest,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import FileKey
from liquidlog.spec.arrow import unsupported_types
from liquidlog.spec.change import Change
from liquidlog.spec.markup import Summary
from liquidlog.storage.options import NO_OPTIONS, StorageOptions
from liquidlog.version import __version__


@dataclass(frozen=True, slots=True)
class GroupConflict(Conflict):
    """A conflict that stopped one group of a plan."""

    kind = "group"
    group_id: int
    conflict: Conflict

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return f"group {self.group_id}: {self.conflict}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitReport(Summary):
    """What became of a plan's groups; `versions` are the commits made, in order.

    `conflicts` and `failures` (sentences) say why groups were not committed; `finished` are the
    results that this run committed. Of a dry run: what would have become of them.
    """

    read_version: int
    versions: tuple[int, ...]
    committed_groups: tuple[int, ...]
    skipped_groups: tuple[int, ...]
    finished: tuple[RewrittenGroup, ...]
    conflicts: tuple[GroupConflict, ...]
    failures: tuple[str, ...]
    dry_run: bool = False

    @property
    def rows_verified(self) -> int:
        """Rows of the committed groups: each is proved to be in their outputs exactly once."""
        return sum(group.rows_written for group in self.finished)

    def _facts(self) -> Mapping[str, object]:
        return {
            "read_version": self.read_version,
            "versions": self.versions,
            "committed_groups": self.committed_groups,
            "skipped_groups": self.skipped_groups,
            "conflicts": tuple(str(conflict) for conflict in self.conflicts),
            "failures": self.failures,
            "rows_verified": self.rows_verified,
            "dry_run": self.dry_run,
        }

    def require_success(self) -> None:
        """Raise what stopped groups, after all others were committed.

        Raises:
            CommitConflictError: If other commits made groups impossible.
            ExecutorError: If groups could not be rewritten or did not prove themselves.
        """
        if self.conflicts:
            raise CommitConflictError(self.read_version, self.conflicts)
        if self.failures:
            were = "would be" if self.dry_run else "were"
            done = f"; {len(self.committed_groups)} other group(s) {were} committed"
            raise ExecutorError("; ".join(self.failures) + done, failures=self.failures)


def require_rewritable(
    snapshot: Snapshot, plan: ClusteringPlan, storage: StorageOptions = NO_OPTIONS
) -> None:
    """Refuse a plan whose outputs could not be committed, before anything is rewritten.

    Raises:
        UnsupportedFeatureError: If the table, a type or an input is one we cannot rewrite.
        CorruptLogError: If delta-rs sees other live files than we do.
    """
    require_writable(snapshot)
    problems = list(unsupported_types(snapshot.schema))
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "rewritten", tuple(problems))
    if plan.groups:
        require_agreement(snapshot, storage)


def commit_groups(
    store: TableStore,
    plan: ClusteringPlan,
    groups: Iterable[Outcome],
    clock: Clock,
    *,
    on_commit: Callable[[int], None],
    dry_run: bool = False,
) -> CommitReport:
    """Commit each group when it arrives; one that cannot be does not stop the others.

    With `dry_run` nothing is committed, and the report is the one that would be.

    Raises:
        CommitStateUnknownError: If it cannot be told whether a commit landed.
        LiquidlogError: If the table or its storage stops every further commit.
    """
    versions: dict[int, int] = {}
    skipped: list[int] = []
    finished: list[RewrittenGroup] = []
    conflicts: list[GroupConflict] = []
    failures: list[str] = []
    base: Snapshot | None = None
    become = rehearse_group if dry_run else commit_group
    for group in groups:
        if isinstance(group, GroupFailure):
            failures.append(f"group {group.group_id}: {group.reason}")
            continue
        try:
            committed = become(store, plan, group, clock, base)
        except CommitConflictError as error:
            conflicts.extend(GroupConflict(group.group_id, found) for found in error.conflicts)
        except (ResultMismatchError, DataFileError) as error:
            failures.append(f"group {group.group_id}: {error.message}")
        else:
            base = committed.base or base
            if committed.version is None:
                skipped.append(group.group_id)
            else:
                # Rehearsed groups all stand on the version that there is.
                before = len(versions) if dry_run else 0
                versions[group.group_id] = committed.version + before
                finished.append(group)
                on_commit(group.group_id)
    return CommitReport(
        read_version=plan.read_version,
        versions=tuple(versions.values()),
        committed_groups=tuple(versions),
        skipped_groups=tuple(skipped),
        finished=tuple(finished),
        conflicts=tuple(conflicts),
        failures=tuple(failures),
        dry_run=dry_run,
    )


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
    claim = _Claim.of(store, plan, group)
    if group.group_id in committed_groups(store, plan):
        clear_run(store, claim.run, claim.digest)
        return GroupCommit(group_id=group.group_id, version=None)
    try:
        require_evidence(store, plan, group)
        rewrite = _GroupRewrite(
            store=store,
            plan=plan,
            group=group,
            claim=claim,
            clock=clock,
            started_ms=clock.now_ms(),
        )
        landed = land_and_checkpoint(store, rewrite.proposal(base), clock, engine_info=ENGINE_INFO)
    except TableReplacedError:
        raise  # what the log of another table says proves nothing
    except CommitConflictError:
        clear_run(store, claim.run, claim.digest)
        if group.group_id in committed_groups(store, plan):
            return GroupCommit(group_id=group.group_id, version=None)
        raise
    except ResultMismatchError:
        # Whoever committed the same outputs meanwhile has forgotten their run.
        if group.group_id in committed_groups(store, plan):
            return GroupCommit(group_id=group.group_id, version=None)
        raise
    settle(claim.run, group.outputs)
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
    claim = _Claim.of(store, plan, group)
    if group.group_id in committed_groups(store, plan):
        return GroupCommit(group_id=group.group_id, version=None)
    require_evidence(store, plan, group)
    rewrite = _GroupRewrite(
        store=store,
        plan=plan,
        group=group,
        claim=claim,
        clock=clock,
        started_ms=clock.now_ms(),
    )
    would = rehearse(store, rewrite.proposal(base))
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


@dataclass(frozen=True, slots=True)
class _Claim:
    """The run that a result names, and the digest that it must have left."""

    run: Run
    digest: str

    @classmethod
    def of(cls, store: TableStore, plan: ClusteringPlan, group: RewrittenGroup) -> Self:
        """Return the claim of a finished group.

        Raises:
            ResultMismatchError: If the result does not answer the plan, or names files of other
                runs.
        """
        run = run_of(store, group.run)
        digest = rewrite_digest(plan, planned_group(plan, group), group)
        require_own_names(run, group.outputs)
        return cls(run, digest)


@dataclass(slots=True, kw_only=True)
class _GroupRewrite:
    """A finished group, as the attempts to land it ask for it."""

    store: TableStore
    plan: ClusteringPlan
    group: RewrittenGroup
    claim: _Claim
    clock: Clock
    started_ms: int
    _stale: Staleness | None = None

    def proposal(self, base: Snapshot | None) -> Proposal:
        """Return the group as a proposal; `base` is a version known already."""
        return Proposal(
            read_set=read_set_of(self.plan, planned_group(self.plan, self.group)),
            derive=self._derive,
            problems=self._problems,
            before_put=self._before_put,
            base=base,
        )

    def _problems(self, snapshot: Snapshot) -> tuple[str, ...]:
        return self._staleness(snapshot).reasons

    def _derive(self, snapshot: Snapshot) -> Change:
        stale = self._staleness(snapshot)
        return rewrite_change(snapshot, self.plan, self.group, now_ms=self.started_ms, stale=stale)

    def _before_put(self, snapshot: Snapshot) -> None:
        run, digest, outputs = self.claim.run, self.claim.digest, self.group.outputs
        require_agreement(snapshot, self.store.storage)
        now_ms = self.clock.now_ms()
        require_committable(self.store, run, digest, outputs, snapshot, now_ms=now_ms)

    def _staleness(self, snapshot: Snapshot) -> Staleness:
        """Return the staleness against a snapshot, computed once per attempt."""
        if self._stale is None or self._stale.snapshot is not snapshot:
            planned = planned_group(self.plan, self.group)
            self._stale = staleness(snapshot, self.plan, planned)
        return self._stale


def _key(file: InputFile) -> FileKey:
    vector = file.deletion_vector
    if vector is None:
        return file.path, None
    return file.path, vector.descriptor.unique_id
