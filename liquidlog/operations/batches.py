"""Finished groups on their way into a version: what they depend on, and the change that they are.

Every attempt to land them begins with the newest version: what others deleted of the inputs is
deleted from the outputs, on top of what earlier attempts deleted (see `reconcile`), and the change
is derived anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Raw, structs
from numpy.typing import NDArray

from liquidlog.clustering.change import (
    missing_groups,
    not_rewritten,
    planned_group,
    require_sound,
    rewrite_change,
)
from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.clustering.staleness import (
    Reconcilable,
    Staleness,
    input_key,
    staleness_of,
    written_for,
)
from liquidlog.commit.conflicts import ReadSet, Winners
from liquidlog.commit.transaction import Clock, Landed, Proposal, land_and_checkpoint, rehearse
from liquidlog.errors import (
    CommitConflictError,
    Conflict,
    DataFileError,
    ResultMismatchError,
    TableReplacedError,
)
from liquidlog.log.checkpointing import SecondOpinion
from liquidlog.log.loader import load_commits
from liquidlog.log.segment import list_log_from
from liquidlog.log.statistics import original_adds
from liquidlog.log.store import TableStore
from liquidlog.operations.outputs import (
    NewColumns,
    OutputClaim,
    clear_runs,
    evidence_against,
    require_committable,
    require_own_names,
    run_of,
    settle,
)
from liquidlog.operations.reconcile import (
    GroupState,
    ReconciledRows,
    ReconcileLimits,
    Reconciler,
    passes,
)
from liquidlog.plan import (
    ClusteringPlan,
    RewriteGroup,
    RewrittenGroup,
    rewrite_digest,
    tagged_groups,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change
from liquidlog.spec.paths import LogFile
from liquidlog.version import ENGINE_INFO

Refusal = CommitConflictError | ResultMismatchError | DataFileError
"""Why a group cannot be committed; other groups still can."""

REFUSALS: Final = (CommitConflictError, ResultMismatchError)
"""What an attempt to commit raises because of some of its groups."""


class NotReconciledError(Exception):
    """The groups whose outputs still have rows that others deleted, with the reasons."""

    def __init__(self, refused: Mapping[int, Refusal]) -> None:
        super().__init__(refused)
        self.refused = refused


class LandedGroups:
    """The committed groups of a plan, and all commits since the plan; each is read once."""

    def __init__(self, store: TableStore, plan: ClusteringPlan) -> None:
        self._store = store
        self._plan = plan
        self._forget()

    def _forget(self) -> None:
        self.winners = Winners(self._plan.read_version, written_for(self._plan))
        self._groups: set[int] = set()
        # Not the winners' version: an attempt to commit takes commits in whose tags nobody read.
        self._version = self._plan.read_version
        self._mark: LogFile | None = None

    def update(self) -> frozenset[int]:
        """Read the new commits, or all if the log was replaced; return the committed groups."""
        listing = list_log_from(self._store, self._version)
        known = self._version == self._plan.read_version
        if not known and (self._mark is None or not listing.has(self._mark)):
            self._forget()
            listing = list_log_from(self._store, self._version)
        for commit in load_commits(self._store, self._version + 1, listing.newest):
            self._groups |= tagged_groups(commit.info.tags or {}, self._plan.plan_id)
            self.winners.take([commit])
            self._version, self._mark = commit.version, listing.commits.get(commit.version)
        return frozenset(self._groups)


class CommitRun:
    """What the groups of a run share: each log file and each agreement serves all that follow."""

    def __init__(
        self,
        store: TableStore,
        plan: ClusteringPlan,
        clock: Clock,
        opinion: SecondOpinion,
        limits: ReconcileLimits | None = None,
        *,
        keeps_results: bool = False,
    ) -> None:
        """`keeps_results` says that refused groups can be tried again."""
        self.store = store
        self.plan = plan
        self.clock = clock
        self.opinion = opinion
        self.limits = limits or ReconcileLimits()
        self.keeps_results = keeps_results
        self.reconciler = Reconciler(store, plan, clock, self.limits)
        self.landed = LandedGroups(store, plan)
        self.new_columns = NewColumns(store)
        self.base: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class ClaimedGroup:
    """A finished group, the group of the plan, and the run with its outputs."""

    group: RewrittenGroup
    planned: RewriteGroup
    claim: OutputClaim

    @classmethod
    def of(cls, store: TableStore, plan: ClusteringPlan, group: RewrittenGroup) -> "ClaimedGroup":
        """Return the claim of a finished group."""
        planned = planned_group(plan, group)
        run = run_of(store, group.run, planned.directories)
        digest = rewrite_digest(plan, planned, group)
        require_own_names(run, group.outputs)
        return cls(group, planned, OutputClaim(run, digest, group.outputs))

    @property
    def group_id(self) -> int:
        """The id of the group in its plan."""
        return self.group.group_id

    def claims(self, state: GroupState | None) -> tuple[OutputClaim, ...]:
        """Return what a commit names of each run; without a state, of the executor's only."""
        return (self.claim,) if state is None else state.claims(self.claim)


def _kept_adds(
    store: TableStore, snapshot: Snapshot, kept: Sequence[NDArray[np.int64]]
) -> list[Sequence[Mapping[str, Raw]]]:
    """Return each group's kept adds as the log has them, one JSON object per file."""
    rows = np.concatenate(kept)
    if not len(rows):
        return [()] * len(kept)
    adds = original_adds(store, snapshot, snapshot.files.take(pa.array(rows)))
    ends = np.cumsum([len(files) for files in kept])
    return [adds[end - len(files) : end] for files, end in zip(kept, ends, strict=True)]


def read_set_of(plan: ClusteringPlan, *groups: RewriteGroup, reconciled: bool = True) -> ReadSet:
    """Return what the rewrite of groups depends on; `reconciled` allows for deleted rows."""
    files = dict(
        [
            *(input_key(file) for group in groups for file in group.inputs),
            *(((path, None), 0) for group in groups for path in group.kept.paths()),
        ]
    )
    return ReadSet(
        version=plan.read_version,
        files=frozenset() if reconciled else frozenset(files),
        reconciled=files if reconciled else {},
        domains=frozenset({CLUSTERING_DOMAIN}),
        terms=written_for(plan),
    )


@dataclass(slots=True, kw_only=True)
class GroupsToLand:
    """Finished groups with the functions that attempts to land them call."""

    run: CommitRun
    claimed: Sequence[ClaimedGroup]
    states: dict[int, GroupState]
    is_rehearsed: bool
    started_ms: int
    _stale: tuple[Staleness, ...] = field(default=())
    _winners: Winners | None = field(default=None)

    def proposal(self) -> Proposal:
        """Return the groups as a proposal that builds on the commits already read in this run."""
        self._winners = self.run.landed.winners
        planned = (one.planned for one in self.claimed)
        return Proposal(
            read_set=read_set_of(self.run.plan, *planned, reconciled=self._reconciles),
            derive=self._derive,
            problems=self._problems,
            prepare=self._prepare,
            before_put=self._before_put,
            base=self.run.base,
            winners=self._winners,
        )

    @property
    def _reconciles(self) -> bool:
        return self.run.limits.max_share > 0

    def reconciled(self) -> ReconciledRows:
        """Return what others deleted, as of the last attempt, in a rehearsal as of the log."""
        if not self.is_rehearsed:
            found = (self.states.get(one.group_id) for one in self.claimed)
            return ReconciledRows.of([state.reconciled for state in found if state], self._stale)
        return ReconciledRows.expected(self._stale)

    def _problems(self, snapshot: Snapshot) -> tuple[str | Conflict, ...]:
        stale = self._staleness(snapshot)
        known = tuple(dict.fromkeys(found for one in stale for found in one.conflicts))
        added = not_rewritten(snapshot, stale) if self.run.plan.is_migration else None
        if added is not None:
            return (*known, added)
        if known:
            return known
        values_left_out: dict[str, None] = {}
        for one, group in zip(stale, self.claimed, strict=True):
            reasons = self.run.new_columns.reasons(group.planned, one.new_columns)
            values_left_out |= dict.fromkeys(reasons)
        return tuple(values_left_out)

    def _prepare(self, snapshot: Snapshot) -> None:
        refused: dict[int, Refusal] = {}
        for one, stale in zip(self.claimed, self._staleness(snapshot), strict=True):
            known = self.states.get(one.group_id)
            if known is None and not stale.deleted:
                continue
            state = known or GroupState.of(one.group)
            try:
                self.states[one.group_id] = self.run.reconciler.advance(state, stale, one.claim)
            except (*REFUSALS, DataFileError) as error:
                refused[one.group_id] = error
        if refused:
            raise NotReconciledError(refused)

    def _derive(self, snapshot: Snapshot) -> Change:
        stale = self._staleness(snapshot)
        groups = [one.group for one in self.claimed]
        kept = _kept_adds(self.run.store, snapshot, [one.kept for one in stale])
        if self.is_rehearsed and any(one.deleted for one in stale):
            # What would be committed of the outputs is not known: nothing was read or written.
            require_sound(snapshot, self.run.plan, groups, stale)
            return Change(operation="OPTIMIZE", parameters={}, actions=())
        states = [self.states.get(group.group_id) or GroupState.of(group) for group in groups]
        return rewrite_change(
            snapshot,
            self.run.plan,
            *groups,
            now_ms=self.started_ms,
            stale=stale,
            kept=kept,
            reconciled=[state.reconciled for state in states],
        )

    def _before_put(self, snapshot: Snapshot) -> None:
        self.run.opinion.require(snapshot)
        claims: list[OutputClaim] = []
        for one in self.claimed:
            claims += one.claims(None if self.is_rehearsed else self.states.get(one.group_id))
        now_ms = self.run.clock.now_ms()
        require_committable(self.run.store, claims, snapshot, now_ms=now_ms)

    def _staleness(self, snapshot: Snapshot) -> tuple[Staleness, ...]:
        if not self._stale or self._stale[0].snapshot is not snapshot:
            planned = [one.planned for one in self.claimed]
            winners, limits = self._winners or self.run.landed.winners, self.run.limits
            reconcilable = Reconcilable(course=winners.course, max_share=limits.max_share)
            self._stale = staleness_of(
                snapshot, self.run.plan, planned, reconcilable if self._reconciles else None
            )
        return self._stale


# Commit a batch of finished groups as one version, without those that cannot be committed
#
# Each group is looked at alone: whether it is committed already, whether its run and its files
# prove what its result says, whether other writers changed its inputs. One that fails is left
# out, and the others are committed without it. Rows that others deleted of its inputs are
# deleted from its outputs at every attempt, on top of what earlier attempts deleted (see
# `reconcile`).


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommit:
    """The fate of a batch; `skipped` groups were committed before, `refused` has errors by id."""

    version: int | None
    committed: tuple[RewrittenGroup, ...]
    skipped: tuple[int, ...]
    refused: Mapping[int, Refusal]
    reconciled: ReconciledRows = field(default_factory=ReconciledRows)


def commit_batch(
    run: CommitRun, groups: Sequence[RewrittenGroup], *, dry_run: bool = False
) -> BatchCommit:
    """Commit finished groups, each of another group of the plan, on top of the newest version.

    Outputs are deleted only if the log proves that no commit can ever name them, or if the
    commit's limits forbid it and nobody keeps the result.
    """
    return _Batch(run, dry_run=dry_run).commit(groups)


class _Batch:
    """One call of commit_batch; `_states` has what is reconciled so far, by group."""

    def __init__(self, run: CommitRun, *, dry_run: bool) -> None:
        self._run = run
        self._dry_run = dry_run
        self._skipped: list[int] = []
        self._refused: dict[int, Refusal] = {}
        self._states: dict[int, GroupState] = {}

    def commit(self, groups: Sequence[RewrittenGroup]) -> BatchCommit:
        left = self._not_landed(self._claimed(groups))
        against = evidence_against(self._run.store, self._run.plan, [one.group for one in left])
        self._refused.update(against)
        left = [one for one in left if one.group_id not in against]
        if self._run.plan.is_migration:
            left = self._whole(left)
        version, reconciled = None, ReconciledRows()
        while left:
            rewrite = self._rewrite(left, is_rehearsed=self._dry_run)
            try:
                landed = self._attempt(rewrite)
            except TableReplacedError as error:
                # The log of another table proves nothing about these runs.
                self._refused.update(dict.fromkeys((one.group_id for one in left), error))
                left = []
            except NotReconciledError as error:
                left = self._without(self._not_landed(left), error.refused)
            except REFUSALS as error:
                left = self._without_culprits(left, error)
            else:
                self._run.base, version = landed.base, landed.version
                reconciled = rewrite.reconciled()
                break
        if left and not self._dry_run:
            self._settle(left)
        return BatchCommit(
            version=version,
            committed=tuple(self._as_committed(one) for one in left),
            skipped=tuple(self._skipped),
            refused=self._refused,
            reconciled=reconciled,
        )

    def _as_committed(self, claimed: ClaimedGroup) -> RewrittenGroup:
        state = self._states.get(claimed.group_id)
        if state is None:
            return claimed.group
        outputs = tuple(output.file for output in state.reconciled.outputs)
        return structs.replace(claimed.group, outputs=outputs)

    def _settle(self, landed: Sequence[ClaimedGroup]) -> None:
        """Remove the traces of committed runs, and their files that no version names."""
        whole: list[OutputClaim] = []
        partly: list[OutputClaim] = []
        for one in landed:
            state = self._states.get(one.group_id)
            written = (one.claim,) if state is None else (one.claim, *state.runs)
            for named, all_of_it in zip(one.claims(state), written, strict=True):
                (whole if named == all_of_it else partly).append(named)
        settle(whole)
        clear_runs(self._run.store, partly)

    def _claimed(self, groups: Sequence[RewrittenGroup]) -> list[ClaimedGroup]:
        claimed = []
        for group in groups:
            try:
                claimed.append(ClaimedGroup.of(self._run.store, self._run.plan, group))
            except ResultMismatchError as error:
                self._refused[group.group_id] = error
        return claimed

    def _not_landed(self, claimed: Sequence[ClaimedGroup]) -> list[ClaimedGroup]:
        landed = self._run.landed.update() if claimed else frozenset()
        for one in claimed:
            if one.group_id in landed:
                self._skipped.append(one.group_id)
                self._clear(one, is_lasting=True)
        return [one for one in claimed if one.group_id not in landed]

    def _whole(self, claimed: Sequence[ClaimedGroup]) -> list[ClaimedGroup]:
        """Return all groups of a migration, or none: then they are refused together."""
        missing = tuple(missing_groups(self._run.plan, [one.group for one in claimed]))
        if not missing:
            return list(claimed)
        because = next(iter(self._refused.values()), ResultMismatchError(missing))
        for one in claimed:
            self._refused[one.group_id] = because
            self._clear(one, is_lasting=not self._run.keeps_results)
        return []

    def _rewrite(self, claimed: Sequence[ClaimedGroup], *, is_rehearsed: bool) -> GroupsToLand:
        return GroupsToLand(
            run=self._run,
            claimed=claimed,
            states=self._states,
            is_rehearsed=is_rehearsed,
            started_ms=self._run.clock.now_ms(),
        )

    def _attempt(self, rewrite: GroupsToLand) -> Landed:
        store, proposal = self._run.store, rewrite.proposal()
        if self._dry_run:
            return rehearse(store, proposal)
        return land_and_checkpoint(store, proposal, self._run.clock, engine_info=ENGINE_INFO)

    def _without_culprits(
        self, claimed: Sequence[ClaimedGroup], error: Refusal
    ) -> list[ClaimedGroup]:
        """Return the groups that could be committed without the others, after nothing landed.

        Groups that another process committed meanwhile are skipped: it removed their traces, which
        may have been the error. Without a culprit all are refused: each attempt has fewer groups.
        """
        pending = self._not_landed(claimed)
        found: dict[int, Refusal | None] = dict.fromkeys((one.group_id for one in pending), error)
        if len(claimed) > 1 and not self._run.plan.is_migration:
            alone = {one.group_id: self._error_alone(one) for one in pending}
            if len(pending) < len(claimed) or any(alone.values()):
                found = alone
        refused = {group_id: because for group_id, because in found.items() if because}
        return self._without(pending, refused)

    def _without(
        self, pending: Sequence[ClaimedGroup], refused: Mapping[int, Refusal]
    ) -> list[ClaimedGroup]:
        """Return the groups that are not refused, of a migration all or none; clear the others."""
        others = next(iter(refused.values()), None) if self._run.plan.is_migration else None
        for one in pending:
            because = refused.get(one.group_id, others)
            if because is not None:
                self._refused[one.group_id] = because
                self._clear(one, is_lasting=self._is_lasting(because))
        return [one for one in pending if one.group_id not in self._refused]

    def _error_alone(self, claimed: ClaimedGroup) -> Refusal | None:
        try:
            rehearse(self._run.store, self._rewrite([claimed], is_rehearsed=True).proposal())
        except REFUSALS as error:
            return error
        return None

    def _clear(self, claimed: ClaimedGroup, *, is_lasting: bool) -> None:
        """Delete what no commit can name: of the executor's run only if that `is_lasting`."""
        if self._dry_run:
            return
        # Nobody but this batch knows the runs of reconciling, and none of its puts landed.
        state = self._states.pop(claimed.group_id, None)
        if state is not None:
            clear_runs(self._run.store, state.runs)
        if is_lasting:
            clear_runs(self._run.store, [claimed.claim])

    def _is_lasting(self, error: Refusal) -> bool:
        """Whether no commit can ever name the outputs: by limits only if nobody keeps results."""
        if not isinstance(error, CommitConflictError) or isinstance(error, TableReplacedError):
            return False
        return not self._run.keeps_results or not all(map(passes, error.conflicts))


def pending_groups(store: TableStore, plan: ClusteringPlan) -> tuple[RewriteGroup, ...]:
    """Return the groups of a plan that are still to be rewritten."""
    done = LandedGroups(store, plan).update()
    return tuple(group for group in plan.groups if group.group_id not in done)
