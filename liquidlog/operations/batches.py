"""Commit a batch of finished groups as one version, without those that cannot be committed.

Each group is looked at alone: whether it is committed already, whether its run and its files prove
what its result says, whether other writers changed its inputs. One that fails is left out, and the
others are committed without it. Rows that others deleted of its inputs are deleted from its outputs
at every attempt, on top of what earlier attempts deleted (see `reconcile`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from liquidlog.clustering.outcome.change import missing_groups
from liquidlog.commit.transaction import Landed, land_and_checkpoint, rehearse
from liquidlog.errors import (
    CommitConflictError,
    ResultMismatchError,
    TableReplacedError,
)
from liquidlog.log.store import TableStore
from liquidlog.operations.attempts import (
    REFUSALS,
    ClaimedGroup,
    CommitRun,
    LandedGroups,
    NotReconciledError,
    Refusal,
    Rewrite,
)
from liquidlog.operations.followed import ReconciledRows, passes
from liquidlog.operations.outputs import (
    Claim,
    clear_run,
    clear_runs,
    evidence_against,
    settle,
)
from liquidlog.operations.reconcile import GroupState
from liquidlog.plan import (
    ClusteringPlan,
    RewriteGroup,
    RewrittenGroup,
)
from liquidlog.version import ENGINE_INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommit:
    """What became of a batch: each of its groups is in exactly one of three places.

    `version` holds the `committed` groups, None if there are none; their outputs are those that
    it names. `skipped` were committed before. `refused` has the error of each other group, by its
    id. `reconciled` is what others had deleted of the committed groups' inputs.
    """

    version: int | None
    committed: tuple[RewrittenGroup, ...]
    skipped: tuple[int, ...]
    refused: Mapping[int, Refusal]
    reconciled: ReconciledRows = field(default_factory=ReconciledRows)


def commit_batch(
    run: CommitRun, groups: Sequence[RewrittenGroup], *, dry_run: bool = False
) -> BatchCommit:
    """Commit finished groups, each of another group of the plan, on top of the newest version.

    A group that is already committed is not committed again. Outputs are deleted only if the log
    proves that no commit can ever name them: another result of the group was committed, or other
    commits made it impossible; or if the commit's limits forbid it and nobody keeps the result.
    Otherwise they stay, listed as files of a finished run. With
    `dry_run` nothing is committed and nothing is deleted.
    """
    return _Batch(run, dry_run=dry_run).commit(groups)


class _Batch:
    """One call of commit_batch: what is known by now of groups that will not be committed.

    `states` has what is reconciled so far of each group of whose inputs others deleted rows.
    """

    def __init__(self, run: CommitRun, *, dry_run: bool) -> None:
        self._run = run
        self._dry_run = dry_run
        self._skipped: list[int] = []
        self._refused: dict[int, Refusal] = {}
        self._states: dict[int, GroupState] = {}

    def commit(self, groups: Sequence[RewrittenGroup]) -> BatchCommit:
        """Commit what can be committed of these groups."""
        left = self._with_evidence(self._not_landed(self._claimed(groups)))
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
                pending = self._not_landed(left)
                left = self._without(pending, error.refused)
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
        """Remove the traces of runs whose files are committed, and files that no version names.

        Those are outputs that copies replaced or of which no row is left, and what was written for
        attempts that were lost.
        """
        named = [claim for one in landed for claim in self._claims(one)]
        whole = {claim.run: claim for one in landed for claim in self._all_claims(one)}
        settle([claim for claim in named if claim == whole[claim.run]])
        clear_runs(self._run.store, [claim for claim in named if claim != whole[claim.run]])

    def _claims(self, claimed: ClaimedGroup) -> tuple[Claim, ...]:
        """Return what a commit of a group names of each of its runs."""
        state = self._states.get(claimed.group_id)
        return (claimed.claim,) if state is None else state.claims(claimed.claim)

    def _all_claims(self, claimed: ClaimedGroup) -> tuple[Claim, ...]:
        """Return all that the runs of a group wrote."""
        state = self._states.get(claimed.group_id)
        return (claimed.claim,) if state is None else (claimed.claim, *state.runs)

    def _claimed(self, groups: Sequence[RewrittenGroup]) -> list[ClaimedGroup]:
        claimed = []
        for group in groups:
            try:
                claimed.append(ClaimedGroup.of(self._run.store, self._run.plan, group))
            except ResultMismatchError as error:
                self._refused[group.group_id] = error
        return claimed

    def _not_landed(self, claimed: Sequence[ClaimedGroup]) -> list[ClaimedGroup]:
        """Return the groups that the log does not have; forget the runs of those that it has."""
        landed = self._run.landed.update() if claimed else frozenset()
        for one in claimed:
            if one.group_id in landed:
                self._skipped.append(one.group_id)
                self._clear(one, is_lasting=True)
        return [one for one in claimed if one.group_id not in landed]

    def _with_evidence(self, claimed: Sequence[ClaimedGroup]) -> list[ClaimedGroup]:
        groups = [one.group for one in claimed]
        against = evidence_against(self._run.store, self._run.plan, groups)
        self._refused.update(against)
        return [one for one in claimed if one.group_id not in against]

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

    def _rewrite(self, claimed: Sequence[ClaimedGroup], *, is_rehearsed: bool) -> Rewrite:
        return Rewrite(
            run=self._run,
            claimed=claimed,
            states=self._states,
            is_rehearsed=is_rehearsed,
            started_ms=self._run.clock.now_ms(),
        )

    def _attempt(self, rewrite: Rewrite) -> Landed:
        run = self._run
        if self._dry_run:
            return rehearse(run.store, rewrite.proposal())
        proposal = rewrite.proposal()
        return land_and_checkpoint(run.store, proposal, run.clock, engine_info=ENGINE_INFO)

    def _without_culprits(
        self, claimed: Sequence[ClaimedGroup], error: Refusal
    ) -> list[ClaimedGroup]:
        """Return the groups that could be committed without the others, after nothing landed.

        Groups that another process committed meanwhile are skipped; if it has removed the trace of
        their runs, the error was about that. Every other group is refused that could not be
        committed alone, and all if no group is to blame by itself: so each attempt has fewer
        groups than the one before.
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
        """Return the groups that are not refused; of the others, delete what can be deleted.

        Of a migration, all are refused if one is.
        """
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
        """Delete what no commit can name: of the executor's run only if that `is_lasting`.

        Nobody but this batch knows the other runs, and none of its puts landed.
        """
        if self._dry_run:
            return
        state = self._states.pop(claimed.group_id, None)
        if state is not None:
            clear_runs(self._run.store, state.runs)
        if is_lasting:
            clear_run(self._run.store, claimed.claim)

    def _is_lasting(self, error: Refusal) -> bool:
        """Return whether no commit can ever name a group's outputs.

        The log proves it, unless the conflicts are about limits. A commit with others might then
        follow, if somebody has the result.
        """
        if not isinstance(error, CommitConflictError) or isinstance(error, TableReplacedError):
            return False
        return not self._run.keeps_results or not all(map(passes, error.conflicts))


def committed_groups(store: TableStore, plan: ClusteringPlan) -> frozenset[int]:
    """Return the ids of the plan's groups that are committed according to the log."""
    return LandedGroups(store, plan).update()


def pending_groups(store: TableStore, plan: ClusteringPlan) -> tuple[RewriteGroup, ...]:
    """Return the groups of a plan that are still to be rewritten."""
    done = committed_groups(store, plan)
    return tuple(group for group in plan.groups if group.group_id not in done)
