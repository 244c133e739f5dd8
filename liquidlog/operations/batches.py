"""Commits of finished groups: several groups become one version.

Every attempt begins with the newest version and derives the change anew. Rows that others deleted
from the inputs are deleted from the outputs, in addition to the rows of earlier attempts. The
deleted rows are read from the inputs, found in the outputs, and deleted there: by deletion vectors
if the table has them, else by copies of outputs without these rows. The new files belong to a run
of their own, which finishes before a commit names them. After a lost attempt, only rows that were
deleted since have to be found.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import structs

from liquidlog.clustering.change import (
    CommittedOutput,
    FilesAdded,
    Reconciled,
    missing_groups,
    not_rewritten,
    planned_group,
    require_sound,
    rewrite_change,
)
from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.clustering.planner import (
    DeletedInput,
    Reconcilable,
    Staleness,
    TooManyDeletedRows,
    deleted_rows,
    input_key,
    staleness_of,
    written_for,
)
from liquidlog.commit import (
    Clock,
    Landed,
    OpenedTable,
    Proposal,
    ReadSet,
    Winners,
    land_and_checkpoint,
    rehearse,
)
from liquidlog.data.deleted_rows import (
    DeletedRows,
    FileLayout,
    Output,
    ProvedRows,
    find_rows,
    require_found,
    write_without,
)
from liquidlog.data.reader import located_vector, read_deletion_vector, write_vector
from liquidlog.data.runs import Run, run_token
from liquidlog.errors import (
    CommitConflictError,
    Conflict,
    DataFileError,
    ExecutorError,
    Outdated,
    ReconcileLimitError,
    ResultMismatchError,
    TableReplacedError,
    UsageError,
)
from liquidlog.log.loader import list_log_from, original_adds, read_commits
from liquidlog.logs import Log
from liquidlog.operations.vacuum import (
    NewColumns,
    OutputClaim,
    VectorFile,
    clear_runs,
    evidence_against,
    require_committable,
    require_own_names,
    run_of,
    settle,
)
from liquidlog.plan import (
    GIB,
    ClusteringPlan,
    InputFile,
    RewriteGroup,
    RewrittenGroup,
    Tasks,
    rewrite_digest,
    tagged_groups,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    Change,
    DeletionVector,
    LogFile,
    Positions,
    framed_bytes,
    vector_id,
    vector_path,
)
from liquidlog.spec.features import has_deletion_vectors
from liquidlog.spec.text import number, parse_size, refuse
from liquidlog.storage.files import Maintenance, TableStore

_log: Final = Log(__name__)

_NONE: Final = np.empty(0, np.uint64)

DEFAULT_MAX_SHARE: Final = 0.2
"""Share of a group's rows that others may delete; with more, a new rewrite is cheaper."""
DEFAULT_LIMIT_BYTES: Final = 10 * GIB
"""The most bytes that are read to find the deleted rows of one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileLimits:
    """Limits of deleting, from a group's outputs, the rows that others deleted from its inputs.

    At most `max_share` of the rows; this process reads at most `limit_bytes`, and `tasks` more.
    """

    max_share: float = DEFAULT_MAX_SHARE
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    tasks: Tasks | None = None


@dataclass(frozen=True, slots=True)
class TooMuchToRead(Conflict):
    """The search for rows that others deleted would read more than is allowed."""

    kind = "too_much_to_read"
    needed_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            "other commits deleted rows of the inputs; to find them in the outputs, at least"
            f" {self.needed_bytes} bytes would be read, more than {self.limit_bytes};"
            " reconcile_limit says how many may be read"
        )


def reconcile_limits(
    max_share: float | None, limit: int | str | None, tasks: Tasks | None = None
) -> ReconcileLimits:
    """Return the limits that a caller gave; `limit` is in bytes, or a text like 10GiB."""
    share = number(
        DEFAULT_MAX_SHARE if max_share is None else max_share, argument="max_reconciled_share"
    )
    if share > 1:
        refuse("max_reconciled_share", "a number from 0 to 1", max_share)
    if limit is None:
        return ReconcileLimits(max_share=share, tasks=tasks)
    if not share:
        raise UsageError(
            "reconcile_limit has no effect: with max_reconciled_share 0, every deletion is a"
            " conflict",
            option="reconcile_limit",
        )
    return ReconcileLimits(max_share=share, limit_bytes=parse_size(limit), tasks=tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledRows:
    """Rows that others deleted from inputs of committed groups and that we deleted from outputs.

    `files` (outputs with such rows), `bytes_read` and `seconds` are None in a dry run. `versions`
    deleted the rows; `gone` are paths of removed inputs.
    """

    rows: int = 0
    files: int | None = 0
    bytes_read: int | None = 0
    seconds: float | None = 0.0
    versions: tuple[int, ...] = ()
    gone: tuple[str, ...] = ()

    @classmethod
    def of(cls, groups: Sequence[Reconciled], stale: Sequence[Staleness]) -> "ReconciledRows":
        return replace(
            cls.expected(stale),
            rows=sum(one.rows for one in groups),
            files=sum(one.files for one in groups),
            bytes_read=sum(one.bytes_read for one in groups),
            seconds=sum(one.seconds for one in groups),
        )

    @classmethod
    def expected(cls, stale: Sequence[Staleness]) -> "ReconciledRows":
        """Return the rows that were deleted from the inputs of groups, by the log."""
        deleted = [one for its in stale for one in its.deleted]
        gone = tuple(path for its in stale for path in its.gone)
        if not deleted:
            return cls(gone=gone)
        return cls(
            rows=deleted_rows(deleted) or 0,
            files=None,
            bytes_read=None,
            seconds=None,
            versions=tuple(sorted({version for one in deleted for version in one.versions})),
            gone=gone,
        )

    def plus(self, other: "ReconciledRows") -> "ReconciledRows":
        """Return the sum; a number is None if one of its terms is."""
        return ReconciledRows(
            rows=self.rows + other.rows,
            files=_sum(self.files, other.files),
            bytes_read=_sum(self.bytes_read, other.bytes_read),
            seconds=_sum(self.seconds, other.seconds),
            versions=tuple(sorted({*self.versions, *other.versions})),
            gone=(*self.gone, *other.gone),
        )


def _sum(one: float | None, other: float | None) -> Any:  # noqa: ANN401  int of two ints
    return None if one is None or other is None else one + other


class _Input(NamedTuple):
    """The reconciled rows of an input, up to this vector; None if the file was removed."""

    vector: str | None
    positions: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output(CommittedOutput):
    """An output: the file to commit, its deletion vector, and the rows that it deletes."""

    deleted: Positions = field(default_factory=_NONE.copy)

    @property
    def has_rows(self) -> bool:
        return len(self.deleted) < self.file.num_records

    @property
    def vector_file(self) -> VectorFile | None:
        path = None if self.vector is None else vector_path(self.vector)
        if self.vector is None or path is None:
            return None
        return VectorFile(path, sum(framed_bytes(self.vector)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The reconciled rows of one group so far, and the runs that wrote files for it."""

    outputs: tuple[_Output, ...]
    inputs: Mapping[str, _Input] = field(default_factory=dict)
    runs: tuple[OutputClaim, ...] = ()
    reconciled: Reconciled

    @classmethod
    def of(cls, group: RewrittenGroup) -> "GroupState":
        outputs = tuple(_Output(file=file) for file in group.outputs)
        return cls(outputs=outputs, reconciled=Reconciled(outputs=_committed(outputs)))

    def claims(self, claim: OutputClaim) -> tuple[OutputClaim, ...]:
        """Return the claims of a commit, first the given one of the executor."""
        left = [output for output in self.outputs if output.has_rows]
        files = frozenset(output.file.path for output in left)
        vectors = frozenset(found for output in left if (found := output.vector_file))
        return tuple(
            replace(
                one,
                outputs=tuple(file for file in one.outputs if file.path in files),
                vectors=tuple(file for file in one.vectors if file in vectors),
            )
            for one in (claim, *self.runs)
        )


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Deletes from a plan's outputs the rows that others deleted from its inputs."""

    store: TableStore
    plan: ClusteringPlan
    clock: Clock
    limits: ReconcileLimits

    def advance(self, state: GroupState, stale: Staleness, claim: OutputClaim) -> GroupState:
        """Return the state in which exactly the rows that `stale` names are deleted."""
        began = time.monotonic()
        self._require_same_history(state, stale)
        snapshot = stale.snapshot
        with_vectors = has_deletion_vectors(snapshot.protocol, snapshot.metadata.configuration)
        news = [
            one
            for one in stale.deleted
            if one.file.path not in state.inputs
            or state.inputs[one.file.path].vector != vector_id(one.vector)
        ]
        if not news and (with_vectors or not any(output.vector for output in state.outputs)):
            return state
        rows = [self._deleted_rows(one, state.inputs.get(one.file.path)) for one in news]
        proved, bytes_read = self._find(rows, state)
        outputs, runs = self._without(state, proved, claim, with_vectors=with_vectors)
        inputs = dict(state.inputs)
        for one, its in zip(news, rows, strict=True):
            found = _NONE if its.positions is None else its.positions
            inputs[one.file.path] = _Input(vector_id(one.vector), np.union1d(its.already, found))
        before = state.reconciled
        versions = {version for one in stale.deleted for version in one.versions}
        reconciled = Reconciled(
            outputs=_committed(outputs),
            rows=before.rows + sum(len(its.positions) for its in proved),
            files=sum(
                len(output.deleted) > 0 or output.file.path != written.path
                for written, output in zip(claim.outputs, outputs, strict=False)
            ),
            bytes_read=before.bytes_read + bytes_read,
            seconds=before.seconds + time.monotonic() - began,
            versions=tuple(sorted(versions)),
        )
        text = "group's outputs without %d rows that others deleted; %d bytes read for it"
        _log.info(text, reconciled.rows - before.rows, bytes_read)
        return GroupState(
            outputs=outputs, inputs=inputs, runs=(*state.runs, *runs), reconciled=reconciled
        )

    def _require_same_history(self, state: GroupState, stale: Staleness) -> None:
        """Refuse a log in which rows are live again that it had deleted before."""
        deleted = {one.file.path: one for one in stale.deleted}
        for path, known in state.inputs.items():
            now = deleted.get(path)
            if now is None or (known.vector is None and now.vector is not None):
                raise self._conflict(Outdated(f"deleted rows of {path} are back"))

    def _deleted_rows(self, one: DeletedInput, known: _Input | None) -> DeletedRows:
        already = _NONE if known is None else known.positions
        planned = one.file.deletion_vector
        descriptor = None if planned is None else planned.descriptor
        positions = None
        if one.vector is not None:
            before = np.union1d(self._positions(one.file, descriptor), already)
            now = self._positions(one.file, one.vector)
            positions = np.setdiff1d(now, before, assume_unique=True)
            if len(now) - len(positions) != len(before):
                detail = f"the deletion vector of {one.file.path} no longer deletes all rows that"
                raise self._conflict(Outdated(f"{detail} it deleted"))
        return DeletedRows(
            address=self.store.data_path(one.file.path),
            source=one.file,
            vector_location=self._location(one.file, descriptor),
            positions=positions,
            already=already,
        )

    def _positions(self, file: InputFile, vector: DeletionVector | None) -> Positions:
        return read_deletion_vector(
            vector,
            location=self._location(file, vector),
            data_file=self.store.data_path(file.path),
            num_rows=file.num_records or 0,
            storage=self.store.storage,
        )

    def _location(self, file: InputFile, vector: DeletionVector | None) -> str | None:
        data_file = self.store.data_path(file.path)
        return located_vector(self.store.location, vector, data_file=data_file)

    def _find(
        self, rows: Sequence[DeletedRows], state: GroupState
    ) -> tuple[tuple[ProvedRows, ...], int]:
        limit_bytes, spent_bytes = self.limits.limit_bytes, state.reconciled.bytes_read
        outputs = [self._output(output) for output in state.outputs]
        ways: dict[str, Any] = {"tasks": self.limits.tasks, "storage": self.store.storage}
        ways["layout"] = FileLayout.of(self.plan)
        try:
            left_bytes = max(0, limit_bytes - spent_bytes)
            found = find_rows(rows, outputs, limit_bytes=left_bytes, **ways)
            spent_bytes += found.bytes_read
            left_bytes = max(0, limit_bytes - spent_bytes)
            proved = require_found(outputs, found, limit_bytes=left_bytes, **ways)
        except ReconcileLimitError as error:
            found_bytes = spent_bytes + error.needed_bytes, spent_bytes + error.limit_bytes
            raise self._conflict(TooMuchToRead(*found_bytes)) from None
        except ExecutorError as error:
            raise ResultMismatchError((error.message,)) from error
        return proved, found.bytes_read + sum(its.bytes_read for its in proved)

    def _output(self, output: _Output) -> Output:
        address = self.store.data_path(output.file.path)
        return Output(address=address, file=output.file, deleted=output.deleted)

    def _without(
        self,
        state: GroupState,
        proved: Sequence[ProvedRows],
        claim: OutputClaim,
        *,
        with_vectors: bool,
    ) -> tuple[tuple[_Output, ...], tuple[OutputClaim, ...]]:
        work = [
            (number, output, rows)
            for number, (output, rows) in enumerate(zip(state.outputs, proved, strict=True))
            if len(rows.positions) or (output.vector is not None and not with_vectors)
        ]
        if not work:
            return state.outputs, ()
        written: dict[int, _Output] = {}
        run = run_of(self.store, run_token(self.clock.new_id()), claim.run.directories)
        try:
            run.begin()
            for number, output, rows in work:
                written[number] = self._written(
                    run, output, rows, str(number), with_vectors=with_vectors
                )
            touched = _committed(written.values())
            finished = _finished(run, touched, claim, with_vectors=with_vectors)
        except ExecutorError as error:
            run.discard()
            raise ResultMismatchError((error.message,)) from error
        except BaseException:
            run.discard()
            raise
        outputs = (written.get(number, output) for number, output in enumerate(state.outputs))
        return tuple(outputs), (finished,)

    def _written(
        self, run: Run, output: _Output, rows: ProvedRows, unique_id: str, *, with_vectors: bool
    ) -> _Output:
        deleted = np.union1d(output.deleted, rows.positions)
        if len(deleted) == output.file.num_records:
            return _Output(file=output.file, deleted=deleted)
        if with_vectors:
            vector = write_vector(run, deleted, unique_id=unique_id)
            path = vector_path(vector)
            found = read_deletion_vector(
                vector,
                location=None if path is None else self.store.data_path(path),
                data_file=self.store.data_path(output.file.path),
                num_rows=output.file.num_records,
                storage=self.store.storage,
            )
            if not np.array_equal(found, deleted):
                problem = f"the deletion vector of {output.file.path} deletes other rows than it"
                raise ResultMismatchError((f"{problem} should",))
            return _Output(file=output.file, deleted=deleted, vector=vector)
        copy = write_without(
            run,
            self._output(output),
            rows,
            layout=FileLayout.of(self.plan),
            unique_id=unique_id,
            storage=self.store.storage,
        )
        return _Output(file=copy)

    def _conflict(self, conflict: Conflict) -> CommitConflictError:
        return CommitConflictError(self.plan.read_version, (conflict,))


def _committed(outputs: Iterable[_Output]) -> tuple[_Output, ...]:
    return tuple(output for output in outputs if output.has_rows)


def _finished(
    run: Run, outputs: Sequence[_Output], claim: OutputClaim, *, with_vectors: bool
) -> OutputClaim:
    copies = () if with_vectors else tuple(output.file for output in outputs)
    vectors = tuple(found for output in outputs if (found := output.vector_file))
    document = (claim.run.token, claim.digest, copies, [output.vector for output in outputs])
    digest = hashlib.sha256(msgspec.json.encode(document)).hexdigest()
    written = OutputClaim(run, digest, copies, vectors)
    run.finish(digest, keep={file.path for file in written.files})
    return written


Refusal = CommitConflictError | ResultMismatchError | DataFileError
"""Why a group cannot be committed; other groups still can."""
REFUSALS: Final = (CommitConflictError, ResultMismatchError)
"""Errors that an attempt to commit raises because of some of its groups."""


class NotReconciledError(Exception):
    """Groups whose outputs still have rows that others deleted, with the reasons by id."""

    def __init__(self, refused: Mapping[int, Refusal]) -> None:
        super().__init__(refused)
        self.refused = refused


class LandedGroups:
    """The committed groups of a plan, and all commits since the plan; each is read once."""

    def __init__(self, store: TableStore, plan: ClusteringPlan) -> None:
        self._store, self._plan = store, plan
        self._forget()

    def _forget(self) -> None:
        self.winners = Winners(self._plan.read_version, written_for(self._plan))
        self._groups: set[int] = set()
        # Not the winners' version: attempts to commit add commits there, without reading tags.
        self._version = self._plan.read_version
        self._mark: LogFile | None = None

    def update(self) -> frozenset[int]:
        """Read the new commits, or all if the log was replaced; return the committed groups."""
        listing = list_log_from(self._store, self._version)
        known = self._version == self._plan.read_version
        if not known and (self._mark is None or not listing.has(self._mark)):
            self._forget()
            listing = list_log_from(self._store, self._version)
        for commit in read_commits(self._store, range(self._version + 1, listing.newest + 1)):
            self._groups |= tagged_groups(commit.info.tags or {}, self._plan.plan_id)
            self.winners.take([commit])
            self._version, self._mark = commit.version, listing.commits.get(commit.version)
        return frozenset(self._groups)


class CommitRun:
    """State that all groups of a run share, so that each log file is read once."""

    def __init__(
        self,
        opened: OpenedTable,
        plan: ClusteringPlan,
        limits: ReconcileLimits,
        *,
        keeps_results: bool,
    ) -> None:
        """Begin a run; with `keeps_results`, refused groups can be tried again."""
        self.store, self.clock, self.opinion = opened.store, opened.clock, opened.opinion
        self.plan, self.limits, self.keeps_results = plan, limits, keeps_results
        self.reconciler = Reconciler(self.store, plan, self.clock, limits)
        self.landed = LandedGroups(self.store, plan)
        self.new_columns = NewColumns(self.store)
        self.base: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class ClaimedGroup:
    """A finished group, the group of the plan, and the run with its outputs."""

    group: RewrittenGroup
    planned: RewriteGroup
    claim: OutputClaim

    @classmethod
    def of(cls, store: TableStore, plan: ClusteringPlan, group: RewrittenGroup) -> "ClaimedGroup":
        planned = planned_group(plan, group)
        run = run_of(store, group.run, planned.directories)
        digest = rewrite_digest(plan, planned, group)
        require_own_names(run, group.outputs)
        return cls(group, planned, OutputClaim(run, digest, group.outputs))

    @property
    def group_id(self) -> int:
        return self.group.group_id


def read_set_of(plan: ClusteringPlan, *groups: RewriteGroup, reconciled: bool = True) -> ReadSet:
    """Return what the commit of groups depends on; `reconciled` allows others to delete rows."""
    files = dict(input_key(file) for group in groups for file in group.inputs)
    files |= {(path, None): 0 for group in groups for path in group.kept.paths()}
    return ReadSet(
        version=plan.read_version,
        files=frozenset() if reconciled else frozenset(files),
        reconciled=files if reconciled else {},
        domains=frozenset({CLUSTERING_DOMAIN}),
        terms=written_for(plan),
    )


class _Attempt:
    """Finished groups with the functions that attempts to land them call."""

    def __init__(
        self,
        run: CommitRun,
        claimed: Sequence[ClaimedGroup],
        states: dict[int, GroupState],
        *,
        is_rehearsed: bool,
    ) -> None:
        self._run, self._claimed, self._states = run, claimed, states
        self._is_rehearsed = is_rehearsed
        self._started_ms = run.clock.now_ms()
        self._winners = run.landed.winners
        self._reconciles = run.limits.max_share > 0
        self._stale: tuple[Staleness, ...] = ()

    def proposal(self) -> Proposal:
        """Return a proposal that builds on the commits already read in this run."""
        planned = (one.planned for one in self._claimed)
        return Proposal(
            read_set=read_set_of(self._run.plan, *planned, reconciled=self._reconciles),
            derive=self._derive,
            problems=self._problems,
            prepare=self._prepare,
            before_put=self._before_put,
            base=self._run.base,
            winners=self._winners,
        )

    def reconciled(self) -> ReconciledRows:
        """Return the rows that others deleted before the last attempt."""
        if self._is_rehearsed:
            return ReconciledRows.expected(self._stale)
        found = (self._states.get(one.group_id) for one in self._claimed)
        return ReconciledRows.of([state.reconciled for state in found if state], self._stale)

    def _problems(self, snapshot: Snapshot) -> tuple[str | Conflict, ...]:
        stale = self._staleness(snapshot)
        known = tuple(dict.fromkeys(found for one in stale for found in one.conflicts))
        added = not_rewritten(snapshot, stale) if self._run.plan.is_migration else None
        if added is not None:
            return (*known, added)
        if known:
            return known
        left_out: dict[str, None] = {}
        for one, group in zip(stale, self._claimed, strict=True):
            left_out |= dict.fromkeys(self._run.new_columns.reasons(group.planned, one.new_columns))
        return tuple(left_out)

    def _prepare(self, snapshot: Snapshot) -> None:
        refused: dict[int, Refusal] = {}
        for one, stale in zip(self._claimed, self._staleness(snapshot), strict=True):
            known = self._states.get(one.group_id)
            if known is None and not stale.deleted:
                continue
            state = known or GroupState.of(one.group)
            try:
                self._states[one.group_id] = self._run.reconciler.advance(state, stale, one.claim)
            except (*REFUSALS, DataFileError) as error:
                refused[one.group_id] = error
        if refused:
            raise NotReconciledError(refused)

    def _derive(self, snapshot: Snapshot) -> Change:
        stale = self._staleness(snapshot)
        groups, plan = [one.group for one in self._claimed], self._run.plan
        if self._is_rehearsed and any(one.deleted for one in stale):
            # A rehearsal reads and writes nothing, so the outputs without these rows are not known.
            require_sound(snapshot, plan, groups, stale)
            return Change(operation="OPTIMIZE", parameters={}, actions=())
        rows = np.concatenate([one.kept for one in stale])
        files = snapshot.files.take(pa.array(rows))
        adds = iter(original_adds(self._run.store, snapshot, files) if len(rows) else ())
        states = [self._states.get(group.group_id) or GroupState.of(group) for group in groups]
        return rewrite_change(
            snapshot,
            plan,
            *groups,
            now_ms=self._started_ms,
            stale=stale,
            kept=[[*islice(adds, len(one.kept))] for one in stale],
            reconciled=[state.reconciled for state in states],
        )

    def _before_put(self, snapshot: Snapshot) -> None:
        self._run.store.require_permitted(Maintenance.REWRITE)
        self._run.opinion.require(snapshot)
        claims: list[OutputClaim] = []
        for one in self._claimed:
            state = None if self._is_rehearsed else self._states.get(one.group_id)
            claims += [one.claim] if state is None else state.claims(one.claim)
        now_ms = self._run.clock.now_ms()
        require_committable(self._run.store, claims, snapshot, now_ms=now_ms)

    def _staleness(self, snapshot: Snapshot) -> tuple[Staleness, ...]:
        if not self._stale or self._stale[0].snapshot is not snapshot:
            planned = [one.planned for one in self._claimed]
            share = self._run.limits.max_share
            reconcilable = Reconcilable(course=self._winners.course, max_share=share)
            self._stale = staleness_of(
                snapshot, self._run.plan, planned, reconcilable if self._reconciles else None
            )
        return self._stale


# Commits of a batch of finished groups as one version
#
# Each group is checked alone: whether it is committed already, whether its run and its files prove
# its result, whether other writers changed its inputs. The groups that pass are committed.


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommit:
    """The fate of a batch; `skipped` groups were committed before, `refused` has errors by id."""

    version: int | None
    committed: tuple[RewrittenGroup, ...]
    skipped: tuple[int, ...]
    refused: Mapping[int, Refusal]
    reconciled: ReconciledRows = field(default_factory=ReconciledRows)


class Batch:
    """Finished groups of different ids; `_states` has the reconciled rows so far, by group."""

    def __init__(self, run: CommitRun, *, dry_run: bool) -> None:
        self._run, self._dry_run = run, dry_run
        self._skipped: list[int] = []
        self._refused: dict[int, Refusal] = {}
        self._states: dict[int, GroupState] = {}

    def commit(self, groups: Sequence[RewrittenGroup]) -> BatchCommit:
        """Commit the groups; delete outputs that no commit can ever name."""
        run = self._run
        left = self._not_landed(self._claimed(groups))
        against = evidence_against(run.store, run.plan, [one.group for one in left])
        self._refused.update(against)
        left = [one for one in left if one.group_id not in against]
        if run.plan.is_migration:
            left = self._whole(left)
        version, reconciled = None, ReconciledRows()
        while left:
            attempt = _Attempt(run, left, self._states, is_rehearsed=self._dry_run)
            try:
                landed = self._landed(attempt.proposal())
            except TableReplacedError as error:
                # The log of another table proves nothing about these runs.
                self._refused.update(dict.fromkeys((one.group_id for one in left), error))
                left = []
            except NotReconciledError as error:
                left = self._without(self._not_landed(left), error.refused)
            except REFUSALS as error:
                left = self._without_culprits(left, error)
            else:
                run.base, version = landed.base, landed.version
                reconciled = attempt.reconciled()
                break
        if left and not self._dry_run:
            self._settle(left)
        return BatchCommit(
            version=version,
            committed=tuple(map(self._as_committed, left)),
            skipped=tuple(self._skipped),
            refused=self._refused,
            reconciled=reconciled,
        )

    def _landed(self, proposal: Proposal) -> Landed:
        run = self._run
        if self._dry_run:
            return rehearse(run.store, proposal)
        return land_and_checkpoint(run.store, proposal, run.clock)

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
            if state is None:
                whole.append(one.claim)
                continue
            claims = zip(state.claims(one.claim), (one.claim, *state.runs), strict=True)
            for named, written in claims:
                (whole if named == written else partly).append(named)
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
        """Return all groups of a migration; if one is missing, refuse all and return none."""
        missing = tuple(missing_groups(self._run.plan, [one.group for one in claimed]))
        if not missing:
            return list(claimed)
        because = next(iter(self._refused.values()), ResultMismatchError(missing))
        for one in claimed:
            self._refused[one.group_id] = because
            self._clear(one, is_lasting=not self._run.keeps_results)
        return []

    def _without_culprits(
        self, claimed: Sequence[ClaimedGroup], error: Refusal
    ) -> list[ClaimedGroup]:
        """Return the groups that could be committed without the others, if a group fails alone."""
        # Another process may have committed groups and removed their traces: these are skipped.
        pending = self._not_landed(claimed)
        found: dict[int, Refusal | None] = dict.fromkeys((one.group_id for one in pending), error)
        if len(claimed) > 1 and not self._run.plan.is_migration:
            alone: dict[int, Refusal | None] = {}
            for one in pending:
                attempt = _Attempt(self._run, [one], self._states, is_rehearsed=True)
                try:
                    rehearse(self._run.store, attempt.proposal())
                except REFUSALS as because:
                    alone[one.group_id] = because
            if len(pending) < len(claimed) or any(alone.values()):
                found = alone
        refused = {group_id: because for group_id, because in found.items() if because}
        return self._without(pending, refused)

    def _without(
        self, pending: Sequence[ClaimedGroup], refused: Mapping[int, Refusal]
    ) -> list[ClaimedGroup]:
        """Return the groups that are not refused, for a migration all or none; clear the others."""
        others = next(iter(refused.values()), None) if self._run.plan.is_migration else None
        for one in pending:
            because = refused.get(one.group_id, others)
            if because is not None:
                self._refused[one.group_id] = because
                # A kept result could be committed later, or within other limits.
                passing = (TooMuchToRead, TooManyDeletedRows, FilesAdded)
                lasts = isinstance(because, CommitConflictError) and not (
                    self._run.keeps_results
                    and all(isinstance(one, passing) for one in because.conflicts)
                )
                is_replaced = isinstance(because, TableReplacedError)
                self._clear(one, is_lasting=lasts and not is_replaced)
        return [one for one in pending if one.group_id not in self._refused]

    def _clear(self, claimed: ClaimedGroup, *, is_lasting: bool) -> None:
        """Delete files that no commit can name; those of the executor only if `is_lasting`."""
        if self._dry_run:
            return
        # Only this batch knows the runs of reconciling, and none of its puts landed.
        state = self._states.pop(claimed.group_id, None)
        if state is not None:
            clear_runs(self._run.store, state.runs)
        if is_lasting:
            clear_runs(self._run.store, [claimed.claim])
