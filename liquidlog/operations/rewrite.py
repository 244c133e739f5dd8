"""Commit finished rewrites, one commit per group, and clean up after certain failures only.

A problem of one group does not stop the others: the report has the outcome of each.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.clustering.outcome.change import planned_group, rewrite_change
from liquidlog.clustering.outcome.staleness import Staleness, staleness
from liquidlog.commit.conflicts import ReadSet
from liquidlog.commit.transaction import (
    Clock,
    Proposal,
    land_and_checkpoint,
    rehearse,
    require_writable,
)
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
from liquidlog.log.second_opinion import SecondOpinion
from liquidlog.log.store import TableStore
from liquidlog.operations.landed import LandedGroups
from liquidlog.operations.outputs import (
    clear_run,
    require_committable,
    require_evidence,
    require_own_names,
    run_of,
)
from liquidlog.plan import (
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
    """The outcome of committing a plan's groups; `versions` are the commits made, in order.

    `conflicts` and `failures` (sentences) say why groups were not committed; `finished` are the
    results that this call committed. For a dry run, the outcome that a real run would have now.
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
        """Rows of the committed groups; each is proved to be in the outputs exactly once."""
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
        """Raise an error if groups were not committed; all others have been.

        Raises:
            CommitConflictError: If other commits made groups impossible.
            ExecutorError: If groups could not be rewritten or their results were refused.
        """
        if self.conflicts:
            raise CommitConflictError(self.read_version, self.conflicts)
        if self.failures:
            were = "would be" if self.dry_run else "were"
            done = f"; {len(self.committed_groups)} other group(s) {were} committed"
            raise ExecutorError("; ".join(self.failures) + done, failures=self.failures)


def require_rewritable(snapshot: Snapshot, plan: ClusteringPlan, opinion: SecondOpinion) -> None:
    """Refuse a plan whose outputs could not be committed, before any data is rewritten.

    Raises:
        UnsupportedFeatureError: If we cannot rewrite the table, a type or an input.
        CorruptLogError: If delta-rs sees other live files than we do.
    """
    require_writable(snapshot)
    problems = list(unsupported_types(snapshot.schema))
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "rewritten", tuple(problems))
    if plan.groups:
        opinion.require(snapshot)


class CommitRun:
    """What the groups of a run share: each log file and each agreement serves all that follow."""

    def __init__(
        self, store: TableStore, plan: ClusteringPlan, clock: Clock, opinion: SecondOpinion
    ) -> None:
        self.store = store
        self.plan = plan
        self.clock = clock
        self.opinion = opinion
        self.landed = LandedGroups(store, plan)
        self.base: Snapshot | None = None


def commit_groups(
    run: CommitRun,
    groups: Iterable[Outcome],
    *,
    on_commit: Callable[[int], None],
    dry_run: bool = False,
) -> CommitReport:
    """Commit each group when it arrives; a group that cannot be committed does not stop the others.

    With `dry_run` nothing is committed, and the report is the one that a real run would return.

    Raises:
        CommitStateUnknownError: If a commit may or may not have landed.
        LiquidlogError: If the table or its storage prevents every further commit.
    """
    versions: dict[int, int] = {}
    skipped: list[int] = []
    finished: list[RewrittenGroup] = []
    conflicts: list[GroupConflict] = []
    failures: list[str] = []
    become = rehearse_group if dry_run else commit_group
    for group in groups:
        if isinstance(group, GroupFailure):
            failures.append(f"group {group.group_id}: {group.reason}")
            continue
        try:
            committed = become(run, group)
        except CommitConflictError as error:
            conflicts.extend(GroupConflict(group.group_id, found) for found in error.conflicts)
        except (ResultMismatchError, DataFileError) as error:
            failures.append(f"group {group.group_id}: {error.message}")
        else:
            run.base = committed.base or run.base
            if committed.version is None:
                skipped.append(group.group_id)
            else:
                # All rehearsed groups are based on the current version.
                before = len(versions) if dry_run else 0
                versions[group.group_id] = committed.version + before
                finished.append(group)
                on_commit(group.group_id)
    return CommitReport(
        read_version=run.plan.read_version,
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
    """A commit landed, but the trace of the run that wrote its files could not be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """The outcome of a finished group; `version` is None if the group had been committed before.

    `base` is the version of the table from which its commit was derived.
    """

    group_id: int
    version: int | None
    base: Snapshot | None = field(default=None, compare=False, repr=False)


def commit_group(run: CommitRun, group: RewrittenGroup) -> GroupCommit:
    """Commit a finished group on top of the newest version.

    A group that is already committed is not committed again. Outputs are deleted only if the log
    proves that no commit can ever name them: another result of the group was committed, or other
    commits made it impossible. Otherwise they stay, listed as files of a finished run.

    Raises:
        CommitConflictError: If other commits made it impossible; has every conflict.
        TableReplacedError: If another table is there now; nothing is deleted.
        ResultMismatchError: If the result does not match the plan or its run, or lost a row.
        DataFileError: If an output cannot be read.
        StorageError: If the storage does not answer, or refuses the commit.
        CommitStateUnknownError: If the commit may or may not have landed.
        UnsupportedFeatureError: If the table can no longer be written.
        CorruptLogError: If delta-rs reads the log differently.
    """
    store, plan, clock = run.store, run.plan, run.clock
    claim = _Claim.of(store, plan, group)
    if group.group_id in run.landed.update():
        clear_run(store, claim.run, claim.digest)
        return GroupCommit(group_id=group.group_id, version=None)
    try:
        require_evidence(store, plan, group)
        rewrite = _GroupRewrite(run, group, claim, started_ms=clock.now_ms())
        landed = land_and_checkpoint(store, rewrite.proposal(), clock, engine_info=ENGINE_INFO)
    except TableReplacedError:
        raise  # the log of another table proves nothing about this run
    except CommitConflictError:
        clear_run(store, claim.run, claim.digest)
        if group.group_id in run.landed.update():
            return GroupCommit(group_id=group.group_id, version=None)
        raise
    except ResultMismatchError:
        # The process that committed the same outputs meanwhile has removed the trace of their run.
        if group.group_id in run.landed.update():
            return GroupCommit(group_id=group.group_id, version=None)
        raise
    settle(claim.run, group.outputs)
    return GroupCommit(group_id=group.group_id, version=landed.version, base=landed.base)


def rehearse_group(run: CommitRun, group: RewrittenGroup) -> GroupCommit:
    """Return what `commit_group` would return now; nothing is committed and nothing is deleted.

    Raises:
        CommitConflictError: As `commit_group`.
        ResultMismatchError: As `commit_group`.
        DataFileError: As `commit_group`.
        StorageError: As `commit_group`.
        UnsupportedFeatureError: As `commit_group`.
        CorruptLogError: As `commit_group`.
    """
    store, plan, clock = run.store, run.plan, run.clock
    claim = _Claim.of(store, plan, group)
    if group.group_id in run.landed.update():
        return GroupCommit(group_id=group.group_id, version=None)
    require_evidence(store, plan, group)
    rewrite = _GroupRewrite(run, group, claim, started_ms=clock.now_ms())
    would = rehearse(store, rewrite.proposal())
    return GroupCommit(group_id=group.group_id, version=would.version, base=would.base)


def settle(run: Run, outputs: Sequence[WrittenFile]) -> None:
    """Remove the trace of a run whose outputs are committed; a failure is only a RunWarning.

    A trace that is left says only that the run finished. The log names its files, so they are never
    deleted.
    """
    try:
        run.forget(named={file.path for file in outputs})
    except StorageError as error:
        message = f"committed, but the trace of its run could not be removed: {error.message}"
        warnings.warn(message, RunWarning, stacklevel=3)


def read_set_of(plan: ClusteringPlan, group: RewriteGroup) -> ReadSet:
    """Return what the rewrite of a group depends on: its inputs and the clustering columns."""
    return ReadSet(
        version=plan.read_version,
        files=frozenset(_key(file) for file in group.inputs),
        domains=frozenset({CLUSTERING_DOMAIN}),
    )


@dataclass(frozen=True, slots=True)
class _Claim:
    """The run that a result names, and the digest that the run must have left."""

    run: Run
    digest: str

    @classmethod
    def of(cls, store: TableStore, plan: ClusteringPlan, group: RewrittenGroup) -> Self:
        """Return the claim of a finished group.

        Raises:
            ResultMismatchError: If the result does not match the plan, or names files of other
                runs.
        """
        run = run_of(store, group.run)
        digest = rewrite_digest(plan, planned_group(plan, group), group)
        require_own_names(run, group.outputs)
        return cls(run, digest)


@dataclass(slots=True)
class _GroupRewrite:
    """A finished group with the functions that attempts to land it call."""

    run: CommitRun
    group: RewrittenGroup
    claim: _Claim
    started_ms: int
    _stale: Staleness | None = None

    def proposal(self) -> Proposal:
        """Return the group as a proposal that builds on the commits already read in this run."""
        plan = self.run.plan
        return Proposal(
            read_set=read_set_of(plan, planned_group(plan, self.group)),
            derive=self._derive,
            problems=self._problems,
            before_put=self._before_put,
            base=self.run.base,
            winners=self.run.landed.winners,
        )

    def _problems(self, snapshot: Snapshot) -> tuple[str, ...]:
        return self._staleness(snapshot).reasons

    def _derive(self, snapshot: Snapshot) -> Change:
        stale = self._staleness(snapshot)
        plan, now_ms = self.run.plan, self.started_ms
        return rewrite_change(snapshot, plan, self.group, now_ms=now_ms, stale=stale)

    def _before_put(self, snapshot: Snapshot) -> None:
        claim, outputs = self.claim, self.group.outputs
        self.run.opinion.require(snapshot)
        now_ms = self.run.clock.now_ms()
        require_committable(
            self.run.store, claim.run, claim.digest, outputs, snapshot, now_ms=now_ms
        )

    def _staleness(self, snapshot: Snapshot) -> Staleness:
        """Return the staleness against a snapshot; it is computed once per attempt."""
        if self._stale is None or self._stale.snapshot is not snapshot:
            plan = self.run.plan
            self._stale = staleness(snapshot, plan, planned_group(plan, self.group))
        return self._stale


def _key(file: InputFile) -> FileKey:
    vector = file.deletion_vector
    if vector is None:
        return file.path, None
    return file.path, vector.descriptor.unique_id
