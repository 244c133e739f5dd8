"""Predict what a plan would bring, from statistics or from sampled rows."""

from liquidlog.clustering.migration import bounds_with_values, migrated
from liquidlog.errors import UsageError
from liquidlog.log.store import TableStore
from liquidlog.operations.sampling import sample_keys
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Workload
from liquidlog.simulation.prediction import Prediction, other_leaves, predict
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
    sample: bool = False,
) -> Prediction:
    """Return what a plan of this snapshot would bring to the readers of a workload.

    With no workload, readers are narrow. With `sample`, values of clustering columns, and of
    columns that predicates name, are read from some rows of some files.
    """
    if sample and not plan.columns:
        raise UsageError("sample has no effect: the plan orders rows by no columns")
    if plan.is_migration:
        # With partition values as bounds, both layouts are judged by the same rules.
        bounds_of = bounds_with_values(snapshot, bounds_of)
        snapshot = migrated(snapshot, [column.logical for column in plan.columns])
    if not sample:
        return predict(snapshot, plan, workload, bounds_of, now_ms=now_ms)
    also = other_leaves(snapshot, plan, workload) if workload else ()
    samples = sample_keys(store, snapshot, plan, also)
    return predict(snapshot, plan, workload, bounds_of, samples, now_ms=now_ms)
