"""What the triggers of a policy are compared with: numbers of one table, from its log alone."""

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.settings import remembered_if_right
from liquidlog.clustering.zcubes import UNCLUSTERED, file_states
from liquidlog.operations.inspect import judged_health
from liquidlog.operations.past_work import PastWork
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.upkeep.decisions import SMALL_PART, Seen
from liquidlog.upkeep.policy import RewriteWhen


def seen_of(
    snapshot: Snapshot, past: PastWork, when: RewriteWhen, bounds_of: BoundsOf, now_ms: int
) -> Seen:
    """Return what a policy's triggers are compared with; the depth only if the policy needs it."""
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
        depth_ratio=depth_ratio(snapshot, bounds_of) if when.depth_ratio else None,
    )


def _unclustered(snapshot: Snapshot) -> int:
    states = file_states(snapshot, clustering_state(snapshot).columns, 0)
    mask = pc.equal(states, pa.scalar(UNCLUSTERED))
    return int(pc.sum(snapshot.files["size"].filter(mask)).as_py() or 0)


def depth_ratio(snapshot: Snapshot, bounds_of: BoundsOf) -> float | None:
    """Return the depth as a multiple of that after a full rewrite, None if it has none."""
    columns = clustering_state(snapshot).columns
    if not snapshot.files.num_rows or not columns:
        return None
    bounds = bounds_of([column.leaf for column in columns])
    least = remembered_if_right(snapshot, "min_cube_bytes")
    return judged_health(snapshot, columns, bounds, min_cube_bytes=least).depth_ratio
