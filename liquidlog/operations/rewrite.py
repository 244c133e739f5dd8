"""Commit finished rewrites, in batches, and say of each group what became of it.

A problem of one group does not stop the others: the report has the outcome of each.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from liquidlog.clustering.settings import CommitSettings
from liquidlog.commit.transaction import Clock, require_writable
from liquidlog.doctor.missed import listed, missed_of
from liquidlog.errors import (
    CommitConflictError,
    DoubledRowsWarning,
    ExecutorError,
    LiquidlogError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.segment import list_log_from, newest_versions, read_file_changes
from liquidlog.logs import Log
from liquidlog.operations.attempts import CommitRun, Refusal
from liquidlog.operations.batches import commit_batch
from liquidlog.operations.followed import ReconciledRows, reconcile_limits
from liquidlog.operations.opened import OpenedTable
from liquidlog.operations.watch import GroupConflict, GroupWatch, cancelled_conflicts
from liquidlog.plan import (
    DEFAULT_MIN_CUBE_BYTES,
    ClusteringPlan,
    GroupFailure,
    Outcome,
    RewriteMode,
    RewrittenGroup,
    Tasks,
)
from liquidlog.spec.arguments import whole_number
from liquidlog.spec.arrow import unsupported_types
from liquidlog.spec.text import Summary

_log: Final = Log(__name__)

__all__ = [
    "CommitReport",
    "GroupConflict",
    "commit_groups",
    "default_groups_per_commit",
    "require_rewritable",
]

_GROUPS_PER_COMMIT: Final = {RewriteMode.COMPACTION: 100}
"""A group of a compaction becomes one file, of at most 1 GiB unless asked otherwise: a hundred of
them are about one cube, the size of other commits, so that a crash loses no more work."""

_PARTITIONS_PER_COMMIT: Final = 100
"""The most partitions that are committed together where each is ordered by itself."""

_LONGEST_WAIT_MS: Final = 10 * 60_000
"""How long a finished group waits for others, at least until another one finishes. Its outputs must
be committed before a VACUUM could take them for forgotten, which can be after an hour."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitReport(Summary):
    """The outcome of committing a plan's groups.

    `group_versions` has the version of each group that this call committed, in order; several
    groups may share one. `conflicts` and `failures` (sentences) say why groups were not committed;
    `finished` are the results that this call committed, with the outputs that the versions name.
    `reconciled` is what other commits had deleted of their inputs, and was deleted of the outputs.
    `definition_version` is that of a migration of a table without files, which has no group.
    For a dry run, the outcome that a real run would have now, as far as the log tells it.
    """

    read_version: int
    group_versions: Mapping[int, int]
    skipped_groups: tuple[int, ...]
    finished: tuple[RewrittenGroup, ...]
    conflicts: tuple[GroupConflict, ...]
    failures: tuple[str, ...]
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
        """The ids of the groups committed, in order."""
        return tuple(self.group_versions)

    @property
    def rows_verified(self) -> int:
        """Rows of the committed groups; each is proved to be in the outputs exactly once.

        Without those that other commits had deleted.
        """
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
    opened.store.require_writable()
    snapshot = opened.snapshot()
    require_writable(snapshot)
    problems = list(unsupported_types(snapshot.schema))
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "rewritten", tuple(problems))
    if plan.groups:
        opened.opinion.require(snapshot)


def groups_per_commit(plan: ClusteringPlan, settings: CommitSettings) -> int:
    """Return how many groups of a plan are committed together: the setting, else the default."""
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
    """Return how many groups of a plan are committed together, at least 1.

    Of partitions, which may be many and small, as many as together are about one cube; of a
    migration all, which no other number can change.
    """
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

    A group that cannot be committed does not stop the others. Groups that were cancelled because of
    what `watch` said are conflicts, with what it found; it hears of every group that ended. Groups
    that wait for more are committed at the end, also when `groups` ends with an error or an
    interrupt, which is then raised. The groups of a migration are committed all together at its
    end, or not at all. `tasks` read what is above the limit of reconciling; `keeps_results` says
    that refused groups can be tried again. With `dry_run` nothing is committed, and the report is
    the one that a real run would return.
    """
    run = CommitRun(
        opened.store,
        plan,
        opened.clock,
        opened.opinion,
        reconcile_limits(
            settings.get("max_reconciled_share"), settings.get("reconcile_limit"), tasks
        ),
        keeps_results=keeps_results,
    )
    most = groups_per_commit(plan, settings)
    versions: dict[int, int] = {}
    skipped: list[int] = []
    finished: list[RewrittenGroup] = []
    conflicts: list[GroupConflict] = []
    failures: list[str] = []
    reconciled = ReconciledRows()
    rewritten = _rewritten(groups, watch, conflicts, failures)
    batches = _batches(rewritten, most, run.clock)
    for batch in [_first_of_each(rewritten)] if run.plan.is_migration else batches:
        done = commit_batch(run, batch, dry_run=dry_run)
        skipped.extend(done.skipped)
        for group_id, error in _refusals(run.plan, done.refused):
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
        read_version=run.plan.read_version,
        group_versions=versions,
        skipped_groups=tuple(skipped),
        finished=tuple(finished),
        conflicts=tuple(conflicts),
        failures=tuple(failures),
        reconciled=reconciled,
        dry_run=dry_run,
    )


def _warn_of_doubled_rows(run: CommitRun, own: Collection[int]) -> None:
    """Warn if another writer, which did not look at our commits, moved the same rows.

    We cannot keep it from that, and what it wrote may be what others have read since.
    """
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
    """Return all groups, the first result of each."""
    found: dict[int, RewrittenGroup] = {}
    for group in groups:
        found.setdefault(group.group_id, group)
    return list(found.values())


def _refusals(
    plan: ClusteringPlan, refused: Mapping[int, Refusal]
) -> Iterator[tuple[int, Refusal]]:
    """Yield what to say of groups that are refused: of a migration, each reason once."""
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
    """Yield the groups that were rewritten; add what became of the others to the two lists."""
    for outcome in groups:
        if watch is not None:
            watch.group_ended()
        if not isinstance(outcome, GroupFailure):
            yield outcome
        elif outcome.cancelled:
            conflicts.extend(cancelled_conflicts(outcome, watch))
        else:
            failures.append(f"group {outcome.group_id}: {outcome.reason}")


def _batches(
    groups: Iterable[RewrittenGroup], most: int, clock: Clock
) -> Iterator[list[RewrittenGroup]]:
    """Yield groups in lists of at most `most`, none of them with two results of one group.

    If `groups` raises an error or is interrupted, what waits is yielded before that is raised.
    """
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
