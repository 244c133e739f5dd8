"""What the triggers of a policy are compared with: numbers of one table, from its log alone."""

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planning.remembered import remembered_if_right
from liquidlog.clustering.zcubes import UNCLUSTERED, file_states
from liquidlog.log.store import TableStore
from liquidlog.operations.inspect import health
from liquidlog.operations.past_work import PastWork
from liquidlog.snapshot import Snapshot
from liquidlog.upkeep.decisions import SMALL_PART, Seen
from liquidlog.upkeep.policy import RewriteWhen


def seen_of(
    store: TableStore, snapshot: Snapshot, past: PastWork, when: RewriteWhen, now_ms: int
) -> Seen:
    """Return what a policy's triggers are compared with; the depth only if the policy asks for it.

    Raises:
        CorruptLogError: If statistics or the clustering domain cannot be read.
    """
    columns = clustering_state(snapshot).columns
    sizes = snapshot.files["size"]
    small = pc.less(sizes, remembered_if_right(snapshot, "max_file_bytes") // SMALL_PART)
    return Seen(
        commits=past.commits_since,
        since_last_ms=None if past.since_ms is None else max(0, now_ms - past.since_ms),
        is_since_rewrite=past.last_rewrite is not None,
        unclustered_bytes=_unclustered(snapshot) if columns else None,
        small_files=pc.sum(small).as_py() or 0,
        files=snapshot.files.num_rows,
        depth_ratio=depth_ratio(store, snapshot) if when.depth_ratio else None,
    )


def _unclustered(snapshot: Snapshot) -> int:
    states = file_states(snapshot, clustering_state(snapshot).columns, 0)
    mask = pc.equal(states, pa.scalar(UNCLUSTERED))
    return int(pc.sum(snapshot.files["size"].filter(mask)).as_py() or 0)


def depth_ratio(store: TableStore, snapshot: Snapshot) -> float | None:
    """Return the depth as a multiple of that after a full rewrite, None if it has none.

    Raises:
        CorruptLogError: If statistics or the clustering domain cannot be read.
    """
    if not snapshot.files.num_rows or not clustering_state(snapshot).columns:
        return None
    least = remembered_if_right(snapshot, "min_cube_bytes")
    return health(store, snapshot, None, where=None, min_cube_bytes=least).depth_ratio
