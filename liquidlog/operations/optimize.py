"""OPTIMIZE: run the groups of a plan, watch them, commit them in batches, once or in rounds.

If another commit has made the commit of a group impossible for good, the rewrite of the group can
stop. A conflict with a winning commit lasts, since the commit stays in the log; conflicts that
newer commits could undo are left to the attempt to commit. A watch writes nothing; if it cannot
read the log, it tries again later.
"""

import os
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.advice import AdviceDocument, decode_advice
from liquidlog.clustering.change import column_names, optimize_metrics, planned_metrics
from liquidlog.clustering.columns import (
    MIGRATION,
    clustering_state,
    defining_actions,
    migrated,
    migration_parameters,
)
from liquidlog.clustering.health import measure_health
from liquidlog.clustering.planner import Reconcilable, deleted_inputs, excess, lasting_reasons
from liquidlog.clustering.settings import (
    CommitSettings,
    RewriteSettings,
    Stage,
    policy_settings,
    remembered_if_right,
    settings_of,
    settle,
)
from liquidlog.commit import Clock, OpenedTable, Winners, require_writable, system_clock
from liquidlog.doctor import listed, missed_of
from liquidlog.errors import (
    CommitConflictError,
    Conflict,
    DocumentError,
    DoubledRowsWarning,
    ExecutorError,
    LiquidlogError,
    Outdated,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.foresee.verdict import Criteria
from liquidlog.log.loader import list_log_from, newest_versions, open_store, read_file_changes
from liquidlog.logs import Log
from liquidlog.operations.batches import (
    Batch,
    CommitRun,
    LandedGroups,
    ReconciledRows,
    Refusal,
    read_set_of,
    reconcile_limits,
)
from liquidlog.operations.executors import (
    EXECUTOR_GROUP,
    LOCAL,
    Executor,
    ExecutorOf,
    active_session,
    choose_executor,
    executors_when_needed,
    open_executor,
    require_settings,
    rewrite_groups,
)
from liquidlog.operations.inspect import health
from liquidlog.operations.planning import foresight_of, snapshot_of_plan
from liquidlog.operations.writes import changed
from liquidlog.plan import (
    DEFAULT_MIN_CUBE_BYTES,
    ClusteringPlan,
    GroupFailure,
    Outcome,
    Progress,
    RewriteGroup,
    RewriteMode,
    RewriteResult,
    RewrittenGroup,
    Tasks,
    decode_plan,
    decode_result,
    encode_rewritten_group,
    rewritten_group_begins,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change
from liquidlog.spec.arrow import unsupported_types
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import Summary, whole_number
from liquidlog.storage.addresses import OptionsSource
from liquidlog.storage.files import Maintenance, TableStore

INTERVAL_MS: Final = 60_000
"""The least time between two reads of the log by a watch."""
_LEAST_INTERVAL_MS: Final = 5_000
"""The same after a group ended; groups of a compaction can end every few ms."""
_executors_log: Final = Log(EXECUTOR_GROUP)
_UNWATCHED: Final = (
    "warning: the log could not be read while groups are rewritten, so groups may be rewritten to"
    " their end although other commits make their commit impossible; it is tried again: %s"
)


@dataclass(frozen=True, slots=True)
class GroupConflict(Conflict):
    """A conflict that stopped one group of a plan; `cancelled` if it stopped the rewrite."""

    kind = "group"
    group_id: int
    conflict: Conflict
    cancelled: bool = False

    def __str__(self) -> str:
        return f"group {self.group_id}: {'cancelled: ' if self.cancelled else ''}{self.conflict}"


def lasting_conflicts(
    winners: Winners, plan: ClusteringPlan, group: RewriteGroup, max_share: float = 1.0
) -> Sequence[Conflict]:
    """Return a group's lasting conflicts; others may delete `max_share` of its inputs' rows."""
    conflicts = winners.conflicts(read_set_of(plan, group, reconciled=max_share > 0))
    if not max_share:
        return conflicts
    reconcilable = Reconcilable(course=winners.course, max_share=max_share)
    deleted = deleted_inputs(group, reconcilable)
    lasting = map(Outdated, lasting_reasons(group, deleted))
    too_many = excess(group, deleted, reconcilable)
    return (*conflicts, *lasting, *([] if too_many is None else [too_many]))


def lost_groups(
    winners: Winners, plan: ClusteringPlan, groups: Sequence[RewriteGroup], max_share: float = 1.0
) -> Mapping[int, Sequence[Conflict]]:
    """Return why groups can never be committed after `winners`; for a migration, all or none."""
    of_table = winners.conflicts(read_set_of(plan))
    touched = np.zeros(len(groups), np.bool_)
    if paths := winners.removed_paths():
        columns = [its.columns["path"] for group in groups for its in (group.inputs, group.kept)]
        own = pa.chunked_array([chunk for one in columns for chunk in one.chunks], pa.string())
        owners = np.repeat(np.arange(len(columns)) // 2, [len(column) for column in columns])
        touched[owners[pc.is_in(own, value_set=pa.array(paths, pa.string())).to_numpy()]] = True
    found = {
        group.group_id: lasting_conflicts(winners, plan, group, max_share) if has_some else of_table
        for group, has_some in zip(groups, touched, strict=True)
    }
    lost = {group_id: conflicts for group_id, conflicts in found.items() if conflicts}
    if not plan.is_migration or not lost:
        return lost
    first = next(iter(lost.values()))
    return {group.group_id: lost.get(group.group_id, first) for group in groups}


class GroupWatch:
    """Tells an executor which groups of a plan can no longer be committed; any thread may call it.

    A call reads new commits the first time, after `INTERVAL_MS`, and soon after a group ended.
    """

    def __init__(
        self, store: TableStore, plan: ClusteringPlan, clock: Clock, max_share: float = 1.0
    ) -> None:
        self._plan, self._clock, self._max_share = plan, clock, max_share
        self._landed = LandedGroups(store, plan)
        self._seen = self._landed.winners, self._landed.winners.version
        self._looked_ms: int | None = None
        self._group_ended = self._has_warned = False
        self._looking = threading.Lock()
        self._lost: Mapping[int, Sequence[Conflict]] = {}
        self._reasons: Mapping[int, str] = {}

    def __call__(self) -> Mapping[int, str]:
        """Return the clauses by group id, the last known ones while another thread reads."""
        if self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        return self._reasons

    def group_ended(self) -> None:
        """Note that a group ended, so that the log is read soon."""
        self._group_ended = True

    def conflicts(self, failure: GroupFailure) -> tuple[GroupConflict, ...]:
        found = self._lost.get(failure.group_id) or (Outdated(failure.reason),)
        return tuple(GroupConflict(failure.group_id, one, cancelled=True) for one in found)

    def _look(self) -> None:
        wait_ms = _LEAST_INTERVAL_MS if self._group_ended else INTERVAL_MS
        now_ms, looked_ms = self._clock.now_ms(), self._looked_ms
        if looked_ms is not None and 0 <= now_ms - looked_ms < wait_ms:  # clocks are set back
            return
        self._looked_ms, self._group_ended = now_ms, False
        try:
            committed = self._landed.update()
            winners = self._landed.winners
            if self._seen == (winners, winners.version):
                return
            groups = [group for group in self._plan.groups if group.group_id not in committed]
            self._lost = lost_groups(winners, self._plan, groups, self._max_share)
            self._seen = winners, winners.version
        except Exception as error:  # noqa: BLE001  a watch must not end hours of work
            if not self._has_warned:
                # Not a Python warning: a filter that makes warnings errors would end the rewrite.
                why = error.message if isinstance(error, LiquidlogError) else f"{error!r}"
                _executors_log.warning(_UNWATCHED, why)
            self._has_warned = True
            return
        self._reasons = {
            group_id: "; ".join(map(str, conflicts)) for group_id, conflicts in self._lost.items()
        }


def watch_for(opened: OpenedTable, plan: ClusteringPlan, max_share: float | None) -> GroupWatch:
    """Return the watch of a plan's groups for commits that may follow this share of deletions."""
    share = reconcile_limits(max_share, None).max_share
    return GroupWatch(opened.store, plan, opened.clock, share)


def watch_of(plan: ClusteringPlan, storage_options: OptionsSource | None = None) -> GroupWatch:
    """Return the watch of a plan at the table that the plan names; nothing is read yet."""
    return GroupWatch(open_store(plan.table_uri, storage_options), plan, system_clock())


# Commits of finished groups in batches; the report has the outcome of each group

_log: Final = Log(__name__)

_GROUPS_PER_COMMIT: Final = {RewriteMode.COMPACTION: 100}
"""A group of a compaction becomes one file, of at most 1 GiB by default; a hundred make a cube."""
_PARTITIONS_PER_COMMIT: Final = 100
"""The most partitions that are committed together if each is ordered by itself."""
_LONGEST_WAIT_MS: Final = 10 * 60_000
"""The longest time that a finished group waits; a VACUUM may take its outputs after an hour."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitReport(Summary):
    """The outcome of the commits of a plan's groups; for a dry run, of the commits to expect.

    `group_versions` has the version of each committed group, in order. `conflicts` and `failures`
    (sentences) say why groups were not committed. `finished` are the committed results, with the
    outputs that the versions name; `reconciled` sums up rows that others deleted.
    `definition_version` is the version of a migration without files, which has no group.
    """

    read_version: int
    group_versions: Mapping[int, int] = field(default_factory=dict)
    skipped_groups: tuple[int, ...] = ()
    finished: tuple[RewrittenGroup, ...] = ()
    conflicts: tuple[GroupConflict, ...] = ()
    failures: tuple[str, ...] = ()
    reconciled: ReconciledRows = field(default_factory=ReconciledRows)
    definition_version: int | None = None
    dry_run: bool = False

    @property
    def versions(self) -> tuple[int, ...]:
        """The commits made, in order."""
        if self.definition_version is not None:
            return (self.definition_version,)
        return tuple(dict.fromkeys(self.group_versions.values()))

    @property
    def committed_groups(self) -> tuple[int, ...]:
        return tuple(self.group_versions)

    @property
    def rows_verified(self) -> int:
        """Rows of the committed groups, all proved to be in the outputs, less deleted ones."""
        return sum(group.rows_written for group in self.finished) - self.reconciled.rows

    def _facts(self) -> Mapping[str, object]:
        return {
            "read_version": self.read_version,
            "versions": self.versions,
            "committed_groups": self.committed_groups,
            "skipped_groups": self.skipped_groups,
            "conflicts": tuple(str(conflict) for conflict in self.conflicts),
            "failures": self.failures,
            "rows_verified": self.rows_verified,
            "reconciled_rows": self.reconciled.rows,
            "dry_run": self.dry_run,
        }

    def require_success(self) -> None:
        """Raise an error if groups were not committed; all others have been."""
        if self.conflicts:
            raise CommitConflictError(self.read_version, self.conflicts)
        if self.failures:
            were = "would be" if self.dry_run else "were"
            done = f"; {len(self.committed_groups)} other group(s) {were} committed"
            raise ExecutorError("; ".join(self.failures) + done, failures=self.failures)


def require_rewritable(opened: OpenedTable, plan: ClusteringPlan) -> None:
    """Refuse a plan whose outputs could not be committed, before any data is rewritten."""
    opened.store.require_permitted(Maintenance.REWRITE)
    opened.store.require_writable()
    snapshot = opened.snapshot()
    require_writable(snapshot)
    problems = tuple(unsupported_types(snapshot.schema))
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "rewritten", problems)
    if plan.groups:
        opened.opinion.require(snapshot)


def groups_per_commit(plan: ClusteringPlan, settings: CommitSettings) -> int:
    """Return how many groups are committed together: the setting, else the default."""
    value = settings.get("groups_per_commit")
    if value is None:
        return default_groups_per_commit(plan)
    if plan.is_migration:
        raise UsageError(
            "groups_per_commit has no effect on a migration, which is committed as a whole",
            option="groups_per_commit",
        )
    return whole_number(value, argument="groups_per_commit", least=1)


def default_groups_per_commit(plan: ClusteringPlan) -> int:
    """Return how many groups are committed together by default; see `Table.commit`."""
    if plan.is_migration:
        return max(1, len(plan.groups))
    most = _GROUPS_PER_COMMIT.get(plan.mode, 1)
    if not plan.partitioned_by or plan.mode is RewriteMode.COMPACTION:
        return most
    largest_bytes = max((group.size_bytes for group in plan.groups), default=0)
    return max(1, min(_PARTITIONS_PER_COMMIT, DEFAULT_MIN_CUBE_BYTES // max(1, largest_bytes)))


def commit_groups(
    opened: OpenedTable,
    plan: ClusteringPlan,
    groups: Iterable[Outcome],
    settings: CommitSettings,
    *,
    on_commit: Callable[[int], None] = lambda _: None,
    watch: GroupWatch | None = None,
    tasks: Tasks | None = None,
    keeps_results: bool = False,
    dry_run: bool = False,
) -> CommitReport:
    """Commit groups as they arrive, up to `groups_per_commit` in a version.

    Waiting groups are committed at the end, also if `groups` raises an error or an interrupt, which
    is raised afterwards. With `keeps_results`, refused groups can be tried again.
    """
    limits = reconcile_limits(
        settings.get("max_reconciled_share"), settings.get("reconcile_limit"), tasks
    )
    run = CommitRun(opened, plan, limits, keeps_results=keeps_results)
    most = groups_per_commit(plan, settings)
    versions: dict[int, int] = {}
    skipped: list[int] = []
    finished: list[RewrittenGroup] = []
    conflicts: list[GroupConflict] = []
    failures: list[str] = []
    reconciled = ReconciledRows()
    rewritten = _rewritten(groups, watch, conflicts, failures)
    batches = _batches(rewritten, most, run.clock)
    for batch in [_first_of_each(rewritten)] if plan.is_migration else batches:
        done = Batch(run, dry_run=dry_run).commit(batch)
        skipped.extend(done.skipped)
        for group_id, error in _refusals(plan, done.refused):
            if isinstance(error, CommitConflictError):
                conflicts.extend(GroupConflict(group_id, found) for found in error.conflicts)
            else:
                failures.append(f"group {group_id}: {error.message}")
        if done.version is None:
            continue
        # All rehearsed batches are based on the current version.
        version = done.version + (len(set(versions.values())) if dry_run else 0)
        finished.extend(done.committed)
        reconciled = reconciled.plus(done.reconciled)
        for group in done.committed:
            versions[group.group_id] = version
            on_commit(group.group_id)
    if versions and not dry_run:
        _warn_of_doubled_rows(run, versions.values())
    return CommitReport(
        read_version=plan.read_version,
        group_versions=versions,
        skipped_groups=tuple(skipped),
        finished=tuple(finished),
        conflicts=tuple(conflicts),
        failures=tuple(failures),
        reconciled=reconciled,
        dry_run=dry_run,
    )


def _warn_of_doubled_rows(run: CommitRun, own: Collection[int]) -> None:
    store, first = run.store, run.plan.read_version + 1
    try:
        listing = list_log_from(store, first)
        if set(own).issuperset(range(first, listing.newest + 1)):
            return
        commits = read_file_changes(store, newest_versions(listing, first, listing.newest))
        doubled = [one for one in missed_of(commits) if one.are_doubled]
    except LiquidlogError as error:
        _log.info("whether other writers doubled rows of %s is not known: %s", store.uri, error)
        return
    if doubled:
        message = (
            f"{listed(map(str, doubled))}; liquidlog doctor names the files. Restore the table, and"
            " let no two writers compact it at once"
        )
        warnings.warn(message, DoubledRowsWarning, stacklevel=2)


def _first_of_each(groups: Iterable[RewrittenGroup]) -> list[RewrittenGroup]:
    found: dict[int, RewrittenGroup] = {}
    for group in groups:
        found.setdefault(group.group_id, group)
    return list(found.values())


def _refusals(
    plan: ClusteringPlan, refused: Mapping[int, Refusal]
) -> Iterator[tuple[int, Refusal]]:
    said: list[Refusal] = []
    for group_id, error in refused.items():
        if not plan.is_migration or error not in said:
            yield group_id, error
        said.append(error)


def _rewritten(
    groups: Iterable[Outcome],
    watch: GroupWatch | None,
    conflicts: list[GroupConflict],
    failures: list[str],
) -> Iterator[RewrittenGroup]:
    for outcome in groups:
        if watch is not None:
            watch.group_ended()
        if not isinstance(outcome, GroupFailure):
            yield outcome
        elif outcome.cancelled and watch is not None:
            conflicts.extend(watch.conflicts(outcome))
        elif outcome.cancelled:
            because = Outdated(outcome.reason)
            conflicts.append(GroupConflict(outcome.group_id, because, cancelled=True))
        else:
            failures.append(f"group {outcome.group_id}: {outcome.reason}")


def _batches(
    groups: Iterable[RewrittenGroup], most: int, clock: Clock
) -> Iterator[list[RewrittenGroup]]:
    """Yield lists of at most `most` groups of different ids, the waiting ones before any error."""
    waiting: list[RewrittenGroup] = []
    since_ms = 0
    try:
        for group in groups:
            if any(one.group_id == group.group_id for one in waiting):
                yield waiting
                waiting = []
            since_ms = since_ms if waiting else clock.now_ms()
            waiting.append(group)
            if len(waiting) >= most or clock.now_ms() - since_ms >= _LONGEST_WAIT_MS:
                ready, waiting = waiting, []
                yield ready
    except (Exception, KeyboardInterrupt):
        if waiting:
            yield waiting
        raise
    if waiting:
        yield waiting


# A result document, which gets a line per finished group and survives a killed writer
#
# An existing file is extended only if its content proves it to be a result of the plan. Any
# other file is refused, unchanged, before any data is rewritten.

PlanExecutor = Callable[[tuple[int, ...]], Iterable[Outcome]]
"""An executor bound to its plan: (ids of groups to rewrite) -> outcomes, each as it finishes."""


def read_plan(path: str) -> ClusteringPlan:
    return decode_plan(read_file(path), where=path)


def read_advice(path: str) -> AdviceDocument:
    return decode_advice(read_file(path), where=path)


def read_result(path: str, plan: ClusteringPlan) -> RewriteResult:
    """Return the finished groups of `plan` in a file, without a last line that was cut off."""
    return _finished(read_file(path), plan, where=path)[0]


def complete_result(
    path: str, plan: ClusteringPlan, rewrite: PlanExecutor, watch: GroupWatch | None = None
) -> RewriteResult:
    """Rewrite the groups that a result file lacks; add each to the file as it finishes."""
    done = {group.group_id: group for group in _continued(path, plan).groups}
    missing = tuple(g.group_id for g in plan.groups if g.group_id not in done)
    failures: list[str] = []
    conflicts: list[GroupConflict] = []
    for group in _rewritten(rewrite(missing) if missing else (), watch, conflicts, failures):
        with _writing(path), Path(path).open("ab") as file:
            file.write(encode_rewritten_group(group))
            file.flush()
            os.fsync(file.fileno())
        done[group.group_id] = group
    if conflicts:
        raise CommitConflictError(plan.read_version, conflicts)
    if failures:
        raise ExecutorError("; ".join(failures), failures=tuple(failures))
    return RewriteResult(plan_id=plan.plan_id, groups=tuple(done[key] for key in sorted(done)))


def result_so_far(path: str, plan: ClusteringPlan) -> RewriteResult:
    """Return the result with which `complete_result` would begin; the file is not touched."""
    _require_regular(path)
    there = Path(path).exists()
    target = Path(path) if there else Path(path).absolute().parent
    if not target.exists():
        raise StorageError(path, f"cannot be written: there is no directory {target}")
    if not os.access(target, os.W_OK):
        raise StorageError(path, "cannot be written: permission denied")
    return read_result(path, plan) if there else RewriteResult(plan_id=plan.plan_id, groups=())


def read_file(path: str) -> bytes:
    """Return the content of a file that the user named."""
    try:
        return Path(path).read_bytes()
    except IsADirectoryError as error:
        raise StorageError(path, "is a directory, and a file is needed") from error
    except OSError as error:
        raise StorageError(path, f"cannot be read: {error.strerror}") from error


def _require_regular(path: str) -> None:
    """Refuse a pipe, a device or a directory before anything waits for its content."""
    if Path(path).exists() and not Path(path).is_file():
        raise DocumentError(path, "is not a regular file, so it cannot keep a result; name another")


def _continued(path: str, plan: ClusteringPlan) -> RewriteResult:
    """Return the result in a file and remove a cut-off line; create a missing file."""
    _require_regular(path)
    with _writing(path), Path(path).open("ab+") as file:
        file.seek(0)
        content = file.read()
        result, size_bytes = _finished(content, plan, where=path)
        if size_bytes < len(content):
            file.truncate(size_bytes)
    return result


def _finished(content: bytes, plan: ClusteringPlan, *, where: str) -> tuple[RewriteResult, int]:
    """Return the result in a document of this plan, and the bytes of its complete lines."""
    size_bytes = content.rfind(b"\n") + 1
    result = decode_result(content[:size_bytes], where=where)
    if result.groups and result.plan_id != plan.plan_id:
        raise DocumentError(where, f"is the result of plan {result.plan_id}, not {plan.plan_id}")
    begins = rewritten_group_begins(plan.plan_id)
    partial = content[size_bytes:]
    is_ours = partial.startswith(begins) or begins.startswith(partial)
    if not result.groups and (not is_ours or size_bytes):
        raise DocumentError(
            where,
            f"is not a result document: it has {len(content)} bytes and no result of a group;"
            " name a new file, or delete this one if nothing needs it",
        )
    return RewriteResult(plan_id=plan.plan_id, groups=result.groups), size_bytes


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(path, f"cannot be written: {error.strerror}") from error


DEFAULT_MIN_GAIN: Final = 0.1
"""The least amount by which a round must lower the average depth."""

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Optimized(Summary):
    """A plan, its commits and Delta's metrics by name; with `rounds`, those of the last round."""

    plan: ClusteringPlan
    report: CommitReport
    metrics: Mapping[str, Any]
    seconds: float
    rounds: "tuple[Round[Optimized], ...]" = ()

    @property
    def versions(self) -> tuple[int, ...]:
        """The commits made, in order."""
        if self.rounds:
            return tuple(version for one in self.rounds for version in one.done.report.versions)
        return self.report.versions

    def _facts(self) -> Mapping[str, object]:
        groups = sum(len(one.done.report.committed_groups) for one in self.rounds)
        return {"versions": self.versions, "groups": groups or len(self.report.committed_groups)}


def no_progress(*_: object) -> None:
    """Do nothing with the progress of a group."""


def optimize(
    opened: OpenedTable,
    plan: ClusteringPlan | None,
    make: Callable[..., ClusteringPlan],
    settings: RewriteSettings,
    *,
    executor: str,
    session: object = None,
) -> Optimized:
    """Rewrite and commit a plan, by default the one that `make` returns for the settings."""
    given = settings_of(settings)
    rounds = given[Stage.ROUNDS]
    run: Mapping[str, Any] = given[Stage.RUN]
    commits: CommitSettings = given[Stage.COMMIT]  # type: ignore[assignment]  # by their names
    if plan is not None and (given[Stage.PLAN] or rounds):
        name = next(iter({**given[Stage.PLAN], **rounds}))
        raise UsageError(f"{name} has no effect on a plan that is made already", option=name)
    if not rounds.get("final") and "min_gain" in rounds:
        raise UsageError("min_gain says when rounds end: give final too", option="min_gain")
    planning = partial(make, **given[Stage.PLAN])
    if rounds.get("final"):
        strategy = policy_settings({"strategy": given[Stage.PLAN].get("strategy")})
        require_rounds(settle(opened.snapshot(), strategy).strategy)
    made = planning() if plan is None else plan
    limit_bytes = run.get("local_limit")
    require_settings(executor, {}, limit_bytes)

    def choose(plan: ClusteringPlan) -> str:
        there = active_session() if session is None else session
        return choose_executor(executor, plan, {}, session=there, limit_bytes=limit_bytes).name

    def opening(name: str) -> AbstractContextManager[Executor]:
        return open_executor(
            name,
            {},
            opened.store.storage.source(),
            verb="optimize",
            session=session,
            read_back=run.get("read_back", True),
            limit_bytes=limit_bytes if name == LOCAL else None,
        )

    with executors_when_needed(choose, opening) as started:
        execute = partial(rewrite_and_commit, opened, executor=started, commits=commits)
        if not rounds.get("final"):
            return execute(made)
        least = rounds.get("min_gain", DEFAULT_MIN_GAIN)
        done = tuple(optimize_in_rounds(opened, planning, execute, min_gain=least, first=made))
    if done:
        seconds = sum(one.done.seconds for one in done)
        return replace(done[-1].done, seconds=seconds, rounds=done)
    report = CommitReport(read_version=made.read_version)
    metrics = metrics_of(opened, made, report)
    return Optimized(plan=made, report=report, metrics=metrics, seconds=0)


def rewrite_and_commit(
    opened: OpenedTable,
    plan: ClusteringPlan,
    *,
    executor: ExecutorOf,
    commits: CommitSettings,
    on_share: Progress = no_progress,
    on_group: Callable[[int], None] = no_progress,
) -> Optimized:
    """Rewrite and commit the rest of a plan; raise the failures of groups at the end."""
    started = time.monotonic()
    report = rewritten(
        opened, plan, executor=executor, commits=commits, on_share=on_share, on_group=on_group
    )
    seconds = time.monotonic() - started
    report.require_success()
    metrics = metrics_of(opened, plan, report)
    return Optimized(plan=plan, report=report, metrics=metrics, seconds=seconds)


def rewritten(
    opened: OpenedTable,
    plan: ClusteringPlan,
    *,
    executor: ExecutorOf,
    commits: CommitSettings,
    on_share: Progress = no_progress,
    on_group: Callable[[int], None] = no_progress,
) -> CommitReport:
    """Rewrite and commit the rest of a plan; the report has the failures of groups."""
    groups_per_commit(plan, commits)
    require_rewritable(opened, plan)
    if plan.is_migration and not plan.groups:
        return migrate_empty(opened, plan)
    watch = watch_for(opened, plan, commits.get("max_reconciled_share"))
    rewrite = executor(plan)
    landed = LandedGroups(opened.store, plan).update()
    pending = [group.group_id for group in plan.groups if group.group_id not in landed]
    return commit_groups(
        opened,
        plan,
        rewrite_groups(rewrite, plan, pending, on_share, watch),
        commits,
        on_commit=on_group,
        watch=watch,
        tasks=getattr(rewrite, "tasks", None),
    )


def metrics_of(
    opened: OpenedTable, plan: ClusteringPlan, report: CommitReport
) -> Mapping[str, Any]:
    """Return the metrics of a run, by the names of Delta's OPTIMIZE metrics."""
    snapshot, commits = opened.snapshot(plan.read_version), len(report.versions)
    gone = report.reconciled.gone
    return optimize_metrics(snapshot, plan, report.finished, commits=commits, gone=gone)


def expected_metrics(
    opened: OpenedTable, plan: ClusteringPlan, commits: CommitSettings
) -> Mapping[str, Any]:
    """Return the metrics of a whole plan, None for those that are unknown before the run."""
    versions = -(-len(plan.groups) // groups_per_commit(plan, commits)) or int(plan.is_migration)
    return planned_metrics(snapshot_of_plan(opened, plan), plan, commits=versions)


def partition_where(snapshot: Snapshot, where: str) -> str:
    """Return the WHERE of an OPTIMIZE; as in Delta Spark, it may only name partition columns."""
    # The SQL parser takes a third of a command's start.
    from liquidlog.predicates.conditions import parse_condition, referenced_columns

    if clustering_state(snapshot).columns:
        raise UsageError(
            f"OPTIMIZE of a clustered table takes no WHERE, found {where}: leave it out, or rewrite"
            " what it matches with ALTER TABLE … RECLUSTER WHERE",
            where=where,
        )
    partitions = snapshot.metadata.partition_columns
    named = referenced_columns(parse_condition(where), snapshot.schema).values()
    others = [quote_path(path) for path in named if path[0] not in partitions]
    if others or not partitions:
        listed = ", ".join(partitions) or "none"
        raise UsageError(
            f"WHERE of OPTIMIZE may name partition columns only ({listed}),"
            f" found {', '.join(others) or where}: leave it out",
            where=where,
        )
    return where


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Generic[Done]):
    """The outcome of a round's plan, and the average depth afterwards."""

    done: Done
    average_depth: float | None


def require_rounds(strategy: str) -> None:
    if strategy != "overlap":
        raise UsageError(
            "rounds are for the strategy overlap; the strategy cube is done in one round",
            option="final",
        )


def average_depth(opened: OpenedTable, where: str | None) -> float | None:
    """Return the average depth of the files that `where` may match, None if not measured."""
    snapshot = opened.snapshot()
    least = remembered_if_right(snapshot, "min_cube_bytes")
    return health(opened.store, snapshot, None, where=where, min_cube_bytes=least).average_depth


def depth_after_round(
    opened: OpenedTable, plan: ClusteringPlan, depth: float | None, min_gain: float
) -> float | None:
    """Return the average depth predicted after a plan, None if it gains too little."""
    if not plan.groups or depth is None:
        return None
    snapshot = snapshot_of_plan(opened, plan)
    least = plan.policy.min_cube_bytes
    bounds_of = opened.bounds_of(snapshot)
    foresight = foresight_of(opened.store, snapshot, Criteria(), bounds_of, [plan])
    columns = clustering_state(snapshot).columns
    table, bounds = foresight.table_after(0)
    known = bounds.select([foresight.leaves.index(column.leaf) for column in columns])
    after = measure_health(table, columns, known, min_cube_bytes=least).average_depth
    return after if after is not None and after <= depth - min_gain else None


def optimize_in_rounds(
    opened: OpenedTable,
    make: Callable[[], ClusteringPlan],
    execute: Callable[[ClusteringPlan], Done],
    *,
    min_gain: float,
    first: ClusteringPlan,
) -> Iterator[Round[Done]]:
    """Yield each round once it is committed, until a round does not gain enough."""
    plan = first
    require_rounds(plan.strategy)
    where = plan.policy.where
    depth = average_depth(opened, where)
    while depth_after_round(opened, plan, depth, min_gain) is not None:
        done = execute(plan)
        before, depth = depth, average_depth(opened, where)
        yield Round(done=done, average_depth=depth)
        if before is None or depth is None or depth > before - min_gain:
            return
        plan = make()


def migrate_empty(opened: OpenedTable, made: ClusteringPlan) -> CommitReport:
    def change(newest: Snapshot) -> Change:
        if newest.files.num_rows:
            added = Outdated("files were added that the migration has not rewritten")
            raise CommitConflictError(made.read_version, [added])
        after = migrated(newest, [column.logical for column in made.columns])
        return Change(
            operation=MIGRATION,
            parameters=migration_parameters(newest, column_names(made)),
            actions=defining_actions(newest, clustering_state(after).columns),
            is_blind_append=False,
        )

    return CommitReport(
        read_version=made.read_version, definition_version=changed(opened, change, dry_run=False)
    )
