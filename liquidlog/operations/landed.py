"""Which groups of a plan the log says are committed."""

from liquidlog.commit.conflicts import Winners
from liquidlog.log.loader import load_commits
from liquidlog.log.segment import list_log_from, mark_of
from liquidlog.log.store import TableStore
from liquidlog.plan import ClusteringPlan, RewriteGroup, tagged_groups
from liquidlog.snapshot import LogMark


class LandedGroups:
    """Which groups of a plan are committed, and all commits since the plan: each is read once."""

    def __init__(self, store: TableStore, plan: ClusteringPlan) -> None:
        """Know of nothing after the plan's version; nothing is read yet."""
        self._store = store
        self._plan = plan
        self._forget()

    def _forget(self) -> None:
        self.winners = Winners(self._plan.read_version)
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
