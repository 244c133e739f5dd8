"""Commit a batch of finished groups as one version, without those that cannot be committed.

Each group is looked at alone: whether it is committed already, whether its run and its files prove
what its result says, whether other writers changed its inputs. One that fails is left out, and the
others are committed without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Raw
from numpy.typing import NDArray

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.clustering.outcome.change import planned_group, rewrite_change
from liquidlog.clustering.outcome.staleness import Staleness, staleness_of, written_for
from liquidlog.commit.conflicts import ReadSet, Winners
from liquidlog.commit.transaction import Clock, Landed, Proposal, land_and_checkpoint, rehearse
from liquidlog.errors import (
    CommitConflictError,
    DataFileError,
    ResultMismatchError,
    TableReplacedError,
)
from liquidlog.log.loader import load_commits
from liquidlog.log.originals import original_adds
from liquidlog.log.second_opinion import SecondOpinion
from liquidlog.log.segment import list_log_from, mark_of
from liquidlog.log.store import TableStore
from liquidlog.operations.new_columns import NewColumns
from liquidlog.operations.outputs import (
    Claim,
    clear_run,
    evidence_against,
    require_committable,
    require_own_names,
    run_of,
    settle,
)
from liquidlog.plan import (
    ClusteringPlan,
    InputFile,
    RewriteGroup,
    RewrittenGroup,
    rewrite_digest,
    tagged_groups,
)
from liquidlog.snapshot import LogMark, Snapshot
from liquidlog.spec.actions import FileKey
from liquidlog.spec.change import Change
from liquidlog.version import ENGINE_INFO

Refusal = CommitConflictError | ResultMismatchError | DataFileError
"""Why a group cannot be committed; whether others can does not depend on it."""

_REFUSALS: Final = (CommitConflictError, ResultMismatchError)
"""What an attempt to commit raises because of some of its groups."""


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
        self.new_columns = NewColumns(store)
        self.base: Snapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommit:
    """What became of a batch: each of its groups is in exactly one of three places.

    `version` holds the `committed` groups, None if there are none. `skipped` were committed before.
    `refused` has the error of each other group, by its id.
    """

    version: int | None
    committed: tuple[RewrittenGroup, ...]
    skipped: tuple[int, ...]
    refused: Mapping[int, Refusal]


def commit_batch(
    run: CommitRun, groups: Sequence[RewrittenGroup], *, dry_run: bool = False
) -> BatchCommit:
    """Commit finished groups, each of another group of the plan, on top of the newest version.

    A group that is already committed is not committed again. Outputs are deleted only if the log
    proves that no commit can ever name them: another result of the group was committed, or other
    commits made it impossible. Otherwise they stay, listed as files of a finished run. With
    `dry_run` nothing is committed and nothing is deleted.

    Raises:
        StorageError: If the storage does not answer, or refuses the commit.
        CommitStateUnknownError: If the commit may or may not have landed.
        UnsupportedFeatureError: If the table can no longer be written.
        CorruptLogError: If delta-rs reads the log differently.
    """
    return _Batch(run, dry_run=dry_run).commit(groups)


def kept_adds(
    store: TableStore, snapshot: Snapshot, kept: Sequence[NDArray[np.int64]]
) -> list[Sequence[Mapping[str, Raw]]]:
    """Return the adds of each group's kept files as the log has them, one JSON object per file.

    `kept` has the row numbers of the files in `snapshot.files`, group by group.

    Raises:
        CorruptLogError: If a commit or checkpoint that added a file can no longer be read.
    """
    rows = np.concatenate(kept)
    if not len(rows):
        return [()] * len(kept)
    adds = original_adds(store, snapshot, snapshot.files.take(pa.array(rows)))
    ends = np.cumsum([len(files) for files in kept])
    return [adds[end - len(files) : end] for files, end in zip(kept, ends, strict=True)]


def read_set_of(plan: ClusteringPlan, *groups: RewriteGroup) -> ReadSet:
    """Return what the rewrite of groups depends on: files, clustering columns, the plan's terms."""
    return ReadSet(
        version=plan.read_version,
        files=frozenset(
            [
                *(_key(file) for group in groups for file in group.inputs),
                *((path, None) for group in groups for path in group.kept.paths()),
            ]
        ),
        domains=frozenset({CLUSTERING_DOMAIN}),
        terms=written_for(plan),
    )


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A finished group, the group of the plan, and the run with its outputs."""

    group: RewrittenGroup
    planned: RewriteGroup
    claim: Claim

    @classmethod
    def of(cls, store: TableStore, plan: ClusteringPlan, group: RewrittenGroup) -> "_Claimed":
        """Return the claim of a finished group.

        Raises:
            ResultMismatchError: If the result does not match the plan, or names files of other
                runs.
        """
        planned = planned_group(plan, group)
        run = run_of(store, group.run)
        digest = rewrite_digest(plan, planned, group)
        require_own_names(run, group.outputs)
        return cls(group, planned, Claim(run, digest, group.outputs))

    @property
    def group_id(self) -> int:
        return self.group.group_id


class _Batch:
    """One call of commit_batch: what is known by now of groups that will not be committed."""

    def __init__(self, run: CommitRun, *, dry_run: bool) -> None:
        self._run = run
        self._dry_run = dry_run
        self._skipped: list[int] = []
        self._refused: dict[int, Refusal] = {}

    def commit(self, groups: Sequence[RewrittenGroup]) -> BatchCommit:
        """Commit what can be committed of these groups."""
        left = self._with_evidence(self._not_landed(self._claimed(groups)))
        version = None
        while left:
            try:
                landed = self._attempt(left)
            except TableReplacedError as error:
                # The log of another table proves nothing about these runs.
                self._refused.update(dict.fromkeys((one.group_id for one in left), error))
                left = []
            except _REFUSALS as error:
                left = self._without_culprits(left, error)
            else:
                self._run.base, version = landed.base, landed.version
                break
        if left and not self._dry_run:
            settle([one.claim for one in left])
        return BatchCommit(
            version=version,
            committed=tuple(one.group for one in left),
            skipped=tuple(self._skipped),
            refused=self._refused,
        )

    def _claimed(self, groups: Sequence[RewrittenGroup]) -> list[_Claimed]:
        claimed = []
        for group in groups:
            try:
                claimed.append(_Claimed.of(self._run.store, self._run.plan, group))
            except ResultMismatchError as error:
                self._refused[group.group_id] = error
        return claimed

    def _not_landed(self, claimed: Sequence[_Claimed]) -> list[_Claimed]:
        """Return the groups that the log does not have; forget the runs of those that it has."""
        landed = self._run.landed.update() if claimed else frozenset()
        for one in claimed:
            if one.group_id in landed:
                self._skipped.append(one.group_id)
                self._clear(one)
        return [one for one in claimed if one.group_id not in landed]

    def _with_evidence(self, claimed: Sequence[_Claimed]) -> list[_Claimed]:
        groups = [one.group for one in claimed]
        against = evidence_against(self._run.store, self._run.plan, groups)
        self._refused.update(against)
        return [one for one in claimed if one.group_id not in against]

    def _attempt(self, claimed: Sequence[_Claimed]) -> Landed:
        run = self._run
        proposal = _Rewrite(run, claimed, started_ms=run.clock.now_ms()).proposal()
        if self._dry_run:
            return rehearse(run.store, proposal)
        return land_and_checkpoint(run.store, proposal, run.clock, engine_info=ENGINE_INFO)

    def _without_culprits(self, claimed: Sequence[_Claimed], error: Refusal) -> list[_Claimed]:
        """Return the groups that could be committed without the others, after nothing landed.

        Groups that another process committed meanwhile are skipped; if it has removed the trace of
        their runs, the error was about that. Every other group is refused that could not be
        committed alone, and all if no group is to blame by itself: so each attempt has fewer
        groups than the one before.
        """
        pending = self._not_landed(claimed)
        found: dict[int, Refusal | None] = dict.fromkeys((one.group_id for one in pending), error)
        if len(claimed) > 1:
            alone = {one.group_id: self._error_alone(one) for one in pending}
            if len(pending) < len(claimed) or any(alone.values()):
                found = alone
        for one in pending:
            because = found[one.group_id]
            if because is None:
                continue
            self._refused[one.group_id] = because
            if _is_lasting(because):
                self._clear(one)
        return [one for one in pending if found[one.group_id] is None]

    def _error_alone(self, claimed: _Claimed) -> Refusal | None:
        run = self._run
        try:
            rehearse(run.store, _Rewrite(run, [claimed], started_ms=run.clock.now_ms()).proposal())
        except _REFUSALS as error:
            return error
        return None

    def _clear(self, claimed: _Claimed) -> None:
        if not self._dry_run:
            clear_run(self._run.store, claimed.claim)


def _is_lasting(error: Refusal) -> bool:
    """Return whether the log proves that no commit can ever name a group's outputs."""
    return isinstance(error, CommitConflictError) and not isinstance(error, TableReplacedError)


@dataclass(slots=True)
class _Rewrite:
    """Finished groups with the functions that attempts to land them call."""

    run: CommitRun
    claimed: Sequence[_Claimed]
    started_ms: int
    _stale: tuple[Staleness, ...] = field(default=())

    def proposal(self) -> Proposal:
        """Return the groups as a proposal that builds on the commits already read in this run."""
        return Proposal(
            read_set=read_set_of(self.run.plan, *(one.planned for one in self.claimed)),
            derive=self._derive,
            problems=self._problems,
            before_put=self._before_put,
            base=self.run.base,
            winners=self.run.landed.winners,
        )

    def _problems(self, snapshot: Snapshot) -> tuple[str, ...]:
        stale = self._staleness(snapshot)
        known = tuple(dict.fromkeys(reason for one in stale for reason in one.reasons))
        return known or self._values_left_out(stale)

    def _values_left_out(self, stale: Sequence[Staleness]) -> tuple[str, ...]:
        """Return a sentence for each column that was not rewritten though inputs have it."""
        asked = self.run.new_columns
        found = (
            reason
            for one, group in zip(stale, self.claimed, strict=True)
            for reason in asked.reasons(group.planned, one.new_columns)
        )
        return tuple(dict.fromkeys(found))

    def _derive(self, snapshot: Snapshot) -> Change:
        stale = self._staleness(snapshot)
        groups = (one.group for one in self.claimed)
        return rewrite_change(
            snapshot,
            self.run.plan,
            *groups,
            now_ms=self.started_ms,
            stale=stale,
            kept=kept_adds(self.run.store, snapshot, [one.kept for one in stale]),
        )

    def _before_put(self, snapshot: Snapshot) -> None:
        self.run.opinion.require(snapshot)
        claims = [one.claim for one in self.claimed]
        now_ms = self.run.clock.now_ms()
        require_committable(self.run.store, claims, snapshot, now_ms=now_ms)

    def _staleness(self, snapshot: Snapshot) -> tuple[Staleness, ...]:
        """Return the staleness against a snapshot; it is computed once per attempt."""
        if not self._stale or self._stale[0].snapshot is not snapshot:
            planned = [one.planned for one in self.claimed]
            self._stale = staleness_of(snapshot, self.run.plan, planned)
        return self._stale


def _key(file: InputFile) -> FileKey:
    vector = file.deletion_vector
    if vector is None:
        return file.path, None
    return file.path, vector.descriptor.unique_id


class LandedGroups:
    """Which groups of a plan are committed, and all commits since the plan: each is read once."""

    def __init__(self, store: TableStore, plan: ClusteringPlan) -> None:
        """Know of nothing after the plan's version; nothing is read yet."""
        self._store = store
        self._plan = plan
        self._forget()

    def _forget(self) -> None:
        self.winners = Winners(self._plan.read_version, written_for(self._plan))
        self._groups: set[int] = set()
        # Not the winners' version: an attempt to commit takes commits in whose tags nobody read.
        self._version = self._plan.read_version
        self._mark: LogMark | None = None

    def update(self) -> frozenset[int]:
        """Read the commits that came since the last time; return the ids of the committed groups.

        If the log does not hold the last commit that was read as it was, all are read anew.

        Raises:
            VersionNotFoundError: If commits after the plan's version are gone from the log.
        """
        listing = list_log_from(self._store, self._version)
        known = self._version == self._plan.read_version
        if not known and (self._mark is None or not listing.has(self._mark)):
            self._forget()
            listing = list_log_from(self._store, self._version)
        for commit in load_commits(self._store, self._version + 1, listing.newest):
            self._groups |= tagged_groups(commit.info.tags or {}, self._plan.plan_id)
            self.winners.take([commit])
            file = listing.commits.get(commit.version)
            self._version, self._mark = commit.version, None if file is None else mark_of(file)
        return frozenset(self._groups)


def committed_groups(store: TableStore, plan: ClusteringPlan) -> frozenset[int]:
    """Return the ids of the plan's groups that are committed according to the log.

    Raises:
        VersionNotFoundError: If commits after the plan's version are no longer in the log.
    """
    return LandedGroups(store, plan).update()


def pending_groups(store: TableStore, plan: ClusteringPlan) -> tuple[RewriteGroup, ...]:
    """Return the groups of a plan that are still to be rewritten."""
    done = committed_groups(store, plan)
    return tuple(group for group in plan.groups if group.group_id not in done)
