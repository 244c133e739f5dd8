"""Commit groups as they finish, and sum up what an OPTIMIZE did."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from liquidlog.commit.transaction import Clock
from liquidlog.errors import (
    CommitConflictError,
    Conflict,
    DataFileError,
    ExecutorError,
    ResultMismatchError,
)
from liquidlog.log.store import TableStore
from liquidlog.operations.rewrite import commit_group, rehearse_group
from liquidlog.plan import ClusteringPlan, GroupFailure, RewrittenGroup
from liquidlog.snapshot import Snapshot
from liquidlog.spec.markup import Summary


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


def commit_groups(
    store: TableStore,
    plan: ClusteringPlan,
    groups: Iterable[RewrittenGroup | GroupFailure],
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
