"""Look at the log while groups are rewritten: which of them can no longer be committed.

A group whose commit another commit has made impossible for good need not be rewritten to its end.
Only what the log says counts, and only what cannot pass: a winning commit stays in the log, so a
conflict with it lasts. What newer commits could undo is left to the attempt to commit.

Looking writes nothing, and a look that fails changes nothing: the next one tries again.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.outcome.staleness import (
    Reconcilable,
    deleted_inputs,
    excess,
    lasting_reasons,
)
from liquidlog.commit.conflicts import Winners
from liquidlog.commit.transaction import Clock, system_clock
from liquidlog.errors import Conflict, LiquidlogError, Outdated
from liquidlog.log.loader import open_store
from liquidlog.log.store import TableStore
from liquidlog.logs import Log
from liquidlog.operations.attempts import LandedGroups, read_set_of
from liquidlog.operations.executors import EXECUTOR_GROUP
from liquidlog.operations.followed import reconcile_limits
from liquidlog.operations.opened import OpenedTable
from liquidlog.plan import ClusteringPlan, GroupFailure, RewriteGroup
from liquidlog.storage.options import OptionsSource

INTERVAL_MS: Final = 60_000
"""How long after a look the log is looked at again."""

_LEAST_INTERVAL_MS: Final = 5_000
"""The same if a group has ended meanwhile: groups of a compaction can end every few ms."""

_log: Final = Log(EXECUTOR_GROUP)

ConflictsOf = Callable[[Winners, ClusteringPlan, RewriteGroup], Sequence[Conflict]]
"""(winners, plan, group) -> why the group can never be committed after them; empty if it may be."""


@dataclass(frozen=True, slots=True)
class GroupConflict(Conflict):
    """A conflict that stopped one group of a plan, `cancelled` before it was rewritten or after."""

    kind = "group"
    group_id: int
    conflict: Conflict
    cancelled: bool = False

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return f"group {self.group_id}: {'cancelled: ' if self.cancelled else ''}{self.conflict}"


def lasting_conflicts(
    winners: Winners, plan: ClusteringPlan, group: RewriteGroup, max_share: float = 1.0
) -> Sequence[Conflict]:
    """Return the conflicts of a group with winners; every one of them lasts.

    Rows of its inputs that winners deleted are deleted from its outputs when it is committed: up to
    `max_share` of them. A commit that is not part of this run may allow all.
    """
    conflicts = winners.conflicts(read_set_of(plan, group, reconciled=max_share > 0))
    if not max_share:
        return conflicts
    reconcilable = Reconcilable(course=winners.course, max_share=max_share)
    deleted = deleted_inputs(group, reconcilable)
    too_many = excess(group, deleted, reconcilable)
    lasting = map(Outdated, lasting_reasons(group, deleted))
    return (*conflicts, *lasting, *(() if too_many is None else (too_many,)))


def lost_groups(
    winners: Winners,
    plan: ClusteringPlan,
    groups: Sequence[RewriteGroup],
    *,
    conflicts_of: ConflictsOf = lasting_conflicts,
) -> Mapping[int, Sequence[Conflict]]:
    """Return why groups can never be committed after `winners`, by id; none for those that may be.

    The groups of a migration are committed together, so that all are lost if one is.

    Args:
        winners: The commits since the plan's version, other than those of these groups.
        plan: The plan.
        groups: Groups of the plan that are not committed.
        conflicts_of: Judges a group of whose files winners removed some, or put deletion vectors on
            them. For the others only changes of the table count.
    """
    of_table = winners.conflicts(read_set_of(plan))
    touched = _groups_with(winners.removed_paths(), groups)
    found = {
        group.group_id: conflicts_of(winners, plan, group) if has_some else of_table
        for group, has_some in zip(groups, touched, strict=True)
    }
    lost = {group_id: conflicts for group_id, conflicts in found.items() if conflicts}
    if not plan.is_migration or not lost:
        return lost
    first = next(iter(lost.values()))
    return {group.group_id: lost.get(group.group_id, first) for group in groups}


def _groups_with(paths: Collection[str], groups: Sequence[RewriteGroup]) -> NDArray[np.bool_]:
    """Return for each group whether one of `paths` is one of its inputs or kept files."""
    touched = np.zeros(len(groups), np.bool_)
    if not paths:
        return touched
    columns = [files.columns["path"] for group in groups for files in (group.inputs, group.kept)]
    own = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    owners = np.repeat(np.arange(len(columns)) // 2, [len(column) for column in columns])
    found = pc.is_in(own, value_set=pa.array(paths, pa.string()))
    touched[owners[found.to_numpy()]] = True
    return touched


class GroupWatch:
    """Tells an executor which groups of a plan can no longer be committed; asked from any thread.

    Calling it returns sentences by group id: `liquidlog.plan.Cancelled`. Most calls cost nothing.
    The first one, the next after `INTERVAL_MS`, and one soon after a group has ended look at the
    log, from the last version that was seen; each commit is read once.
    """

    def __init__(
        self,
        store: TableStore,
        plan: ClusteringPlan,
        clock: Clock,
        *,
        conflicts_of: ConflictsOf = lasting_conflicts,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._conflicts_of = conflicts_of
        self._landed = LandedGroups(store, plan)
        self._seen = self._landed.winners, self._landed.winners.version
        self._looked_ms: int | None = None
        self._group_ended = False
        self._has_warned = False
        self._looking = threading.Lock()
        self._lost: Mapping[int, Sequence[Conflict]] = {}
        self._reasons: Mapping[int, str] = {}

    def __call__(self) -> Mapping[int, str]:
        """Return why groups can no longer be committed, a clause per group, by id.

        While another thread looks at the log, what was known before.
        """
        if self._looking.acquire(blocking=False):
            try:
                if self._is_time():
                    self._look()
            finally:
                self._looking.release()
        return self._reasons

    def group_ended(self) -> None:
        """Say that a group has ended, and perhaps is committed: time has passed, so look soon."""
        self._group_ended = True

    def conflicts(self, failure: GroupFailure) -> tuple[GroupConflict, ...]:
        """Return the conflicts because of which a group was cancelled, at least one."""
        found = self._lost.get(failure.group_id) or (Outdated(failure.reason),)
        return tuple(GroupConflict(failure.group_id, one, cancelled=True) for one in found)

    def _is_time(self) -> bool:
        if self._looked_ms is None:
            return True
        wait_ms = _LEAST_INTERVAL_MS if self._group_ended else INTERVAL_MS
        return not 0 <= self._clock.now_ms() - self._looked_ms < wait_ms  # clocks are set back

    def _look(self) -> None:
        self._looked_ms, self._group_ended = self._clock.now_ms(), False
        try:
            self._lost = self._lost_now()
        except Exception as error:  # noqa: BLE001  a courtesy must not end hours of work
            self._warn(error)
            return
        self._reasons = {
            group_id: "; ".join(map(str, conflicts)) for group_id, conflicts in self._lost.items()
        }

    def _lost_now(self) -> Mapping[int, Sequence[Conflict]]:
        """Return the groups that are lost after the newest version."""
        committed = self._landed.update()
        winners = self._landed.winners
        if self._seen == (winners, winners.version):
            return self._lost
        groups = [group for group in self._plan.groups if group.group_id not in committed]
        lost = lost_groups(winners, self._plan, groups, conflicts_of=self._conflicts_of)
        self._seen = winners, winners.version
        return lost

    def _warn(self, error: Exception) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        said = error.message if isinstance(error, LiquidlogError) else f"{error!r}"
        # Not a Python warning: a filter that makes errors of those would end the rewrite.
        _log.warning(
            "warning: the log could not be looked at while groups are rewritten, so groups which"
            " other commits make impossible may go on to their end; it is tried again: %s",
            said,
        )


def watch_for(opened: OpenedTable, plan: ClusteringPlan, max_share: float | None) -> GroupWatch:
    """Return the watch of a plan's groups for commits with this limit of deleted rows."""
    share = reconcile_limits(max_share, None).max_share
    judge = partial(lasting_conflicts, max_share=share)
    return GroupWatch(opened.store, plan, opened.clock, conflicts_of=judge)


def watch_of(plan: ClusteringPlan, storage_options: OptionsSource | None = None) -> GroupWatch:
    """Return the watch of a plan's groups at the table that the plan names; nothing is read yet."""
    return GroupWatch(open_store(plan.table_uri, storage_options), plan, system_clock())


def cancelled_conflicts(
    failure: GroupFailure, watch: GroupWatch | None
) -> tuple[GroupConflict, ...]:
    """Return why a group was cancelled, as conflicts: those that `watch` found, if it did."""
    if watch is not None:
        return watch.conflicts(failure)
    return (GroupConflict(failure.group_id, Outdated(failure.reason), cancelled=True),)
