"""From snapshot to plan: the rewrite mode that suits the table, and the strategies by name."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa
from msgspec import structs

from liquidlog.clustering import overlap, reference
from liquidlog.clustering.choice import NewId, check_policy, check_table
from liquidlog.clustering.columns import ClusteringState
from liquidlog.clustering.reference import plan_compaction, plan_zorder
from liquidlog.clustering.settings import check_known, prefix_among, require_effect
from liquidlog.curve.curves import Curve
from liquidlog.errors import UsageError
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    FittedWorkload,
    RewriteGroup,
    SkippedFiles,
    SkipReason,
)
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.schema import Leaf, Path, StructType, parse_schema

# A plan whose layout is fitted to what readers ask.


def fitted_to(plan: ClusteringPlan, workload: Workload) -> ClusteringPlan:
    """Return the plan, fitted to what a workload asks of its columns."""
    if not plan.columns or not workload:
        return plan
    columns = [column.logical for column in plan.columns]
    schema = parse_schema(plan.schema_string, where="the plan")
    return structs.replace(plan, fitted=readers_of(workload, columns, schema))


def readers_of(workload: Workload, columns: Sequence[Path], schema: StructType) -> FittedWorkload:
    """Return what a workload asks of clustering columns, by their logical paths."""
    # The SQL parser takes a third of a command's start; most plans have no workload.
    from liquidlog.predicates.reduction import fitted_workload

    return fitted_workload(workload, columns, schema)


def require_fitted(plan: ClusteringPlan) -> None:
    """Refuse a plan whose layout cannot be fitted to a workload."""
    if plan.readers is not None:
        return
    if not plan.columns:
        reason = "on a table without clustering columns, whose small files are only joined"
    else:
        left_out = (plan.fitted or FittedWorkload()).left_out
        counts = [f"{one.predicates} of them: {one.reason}" for one in left_out]
        reason = (
            f"on this table, whose layout cannot be fitted to its predicates ({'; '.join(counts)})"
        )
    raise UsageError(f"workload has no effect {reason}", option="workload")


# The part of a plan that a budget pays for: as many of its first groups as fit.


def affordable(plan: ClusteringPlan, budget_bytes: int) -> ClusteringPlan:
    """Return the plan's first groups whose inputs have at most `budget_bytes` together."""
    taken = 0
    for group in plan.groups:
        if group.size_bytes > budget_bytes:
            break
        budget_bytes -= group.size_bytes
        taken += 1
    left = plan.groups[taken:]
    if not left:
        return plan
    columns = [plan.skipped.columns, *(_skipped(group) for group in left)]
    return structs.replace(
        plan,
        groups=plan.groups[:taken],
        skipped=SkippedFiles(pa.concat_tables(columns).unify_dictionaries()),
    )


def _skipped(group: RewriteGroup) -> pa.Table:
    columns = [
        pa.chunked_array(
            [chunk for files in (group.inputs, group.kept) for chunk in files.columns[name].chunks],
            SkippedFiles.schema.field(name).type,
        )
        for name in ("path", "size_bytes")
    ]
    kinds = pa.DictionaryArray.from_arrays(
        pa.array([0] * len(columns[0]), pa.int8()), pa.array([SkipReason.OVER_BUDGET.value])
    )
    return pa.table([*columns, kinds], schema=SkippedFiles.schema)


def no_bounds(_: Sequence[Leaf]) -> pa.Table:
    """Refuse to return bounds: the default for callers that cannot load any."""
    raise UsageError("this strategy needs the statistics of the files")


STRATEGIES: Final[Mapping[str, Callable[..., ClusteringPlan]]] = {
    reference.NAME: reference.plan_cubes,
    overlap.NAME: overlap.plan_overlap,
}


def plan(
    snapshot: Snapshot,
    policy: ClusteringPolicy,
    *,
    new_id: NewId,
    strategy: str = reference.NAME,
    bounds_of: BoundsOf = no_bounds,
    named: Collection[str] = (),
    decided_by: Mapping[str, str] | None = None,
    readers: FittedWorkload | None = None,
) -> ClusteringPlan:
    """Return the plan for a rewrite of the table; equal arguments give equal groups.

    `new_id` makes the id of the plan, then the id of each group's cube. `named` lists the settings
    that the caller gave; `decided_by` maps fields to the properties that decided them.
    """
    check_known("strategy", strategy, tuple(STRATEGIES))
    check_known("curve", policy.curve, tuple(Curve))
    check_policy(policy)
    state = check_table(snapshot)
    require_effect(
        policy,
        state.columns,
        named=named,
        strategy=strategy,
        decided_by=decided_by or {},
        is_partitioned=bool(snapshot.metadata.partition_columns),
    )
    if policy.zorder_by:
        _require_unclustered(state)
        return plan_zorder(snapshot, policy, new_id, bounds_of)
    if not state.columns:
        return plan_compaction(snapshot, policy, new_id, bounds_of)
    if policy.prefix:
        policy = structs.replace(policy, prefix=prefix_among(policy.prefix, state.columns))
    asking = readers if readers is not None and readers.asks else None
    return STRATEGIES[strategy](snapshot, state.columns, policy, new_id, bounds_of, readers=asking)


def _require_unclustered(state: ClusteringState) -> None:
    if state.columns:
        raise UsageError(
            f"the table is clustered by {', '.join(state.names)} and cannot be ordered by"
            " ZORDER BY; plan it without ZORDER BY, or clear its columns with cluster-by --none",
            columns=list(state.names),
        )
