"""The files that a table would have after a plan, to be drawn on a map."""

import numpy as np

from liquidlog.clustering.health.maps import MappedFiles
from liquidlog.plan import ClusteringPlan
from liquidlog.simulation.after import Draw, Evidence, Known, table_after
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds


def predicted_files(
    snapshot: Snapshot, plan: ClusteringPlan, bounds: Bounds, known: Known | None = None
) -> MappedFiles:
    """Return the files after a plan for this snapshot, as they most likely come out.

    `bounds` has those of the plan's columns, in order, one entry per live file; so does the result
    for the files after. What is `known` of a prediction of the same plan for narrow readers
    is not made up again.
    """
    evidence = Evidence(bounds=bounds, clustered=range(len(plan.columns)))
    after = table_after(snapshot, plan, evidence, (Draw.LIKELY,), known)
    return MappedFiles(
        bounds=after.bounds,
        size_bytes=np.asarray(after.snapshot.files["size"].to_numpy(), np.int64),
        is_predicted=after.groups >= 0,
    )
