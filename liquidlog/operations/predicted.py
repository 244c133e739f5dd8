"""Predict what a plan would bring its readers."""

from liquidlog.foresee.plans import Foresight, asked_readers, assumed_readers
from liquidlog.foresee.prediction import Prediction
from liquidlog.foresee.stores import profile_of
from liquidlog.log.store import TableStore
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf


def predicted(
    store: TableStore,
    snapshot: Snapshot,
    plan: ClusteringPlan,
    workload: Workload,
    bounds_of: BoundsOf,
    *,
    now_ms: int,
    sample: bool = True,
) -> Prediction:
    """Return what a plan of this snapshot would bring to the readers of a workload.

    With no workload, readers are assumed. Values of clustering columns, and of columns that
    predicates name, are read from some rows of some files, unless `sample` is false.
    """
    columns = [column.logical for column in plan.columns]
    readers = (
        asked_readers(snapshot, workload, bounds_of, now_ms)
        if workload
        else assumed_readers(snapshot, bounds_of, columns)
    )
    foresight = Foresight(
        store,
        snapshot,
        bounds_of,
        readers,
        [plan],
        profile=profile_of(snapshot.uri),
        now_ms=now_ms,
        reads_rows=sample,
    )
    return foresight.prediction(0)
