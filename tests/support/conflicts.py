"""What stands in the way of a commit: of a whole list of winners, and of one group."""

from collections.abc import Iterable

from liquidlog.clustering.staleness import Reconcilable, Staleness, staleness_of
from liquidlog.commit.conflicts import ReadSet, WinnerConflict, Winners
from liquidlog.plan import ClusteringPlan, RewriteGroup
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Commit


def check_conflicts(read_set: ReadSet, winners: Iterable[Commit]) -> tuple[WinnerConflict, ...]:
    """Return every conflict with commits, in order, that landed after `read_set.version`."""
    known = Winners(read_set.version, read_set.terms)
    known.take(winners)
    return known.conflicts(read_set)


def staleness(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    group: RewriteGroup,
    reconcilable: Reconcilable | None = None,
) -> Staleness:
    """Return every reason why `group` cannot be committed on top of `snapshot`."""
    return staleness_of(snapshot, plan, [group], reconcilable)[0]
