"""A plan whose layout is fitted to what readers ask."""

from collections.abc import Sequence

from msgspec import structs

from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan, FittedWorkload
from liquidlog.predicates.workload import Workload
from liquidlog.spec.schema import Path, StructType, parse_schema


def fitted_to(plan: ClusteringPlan, workload: Workload) -> ClusteringPlan:
    """Return the plan with what a workload asks of the columns that it orders by.

    A plan that orders by no column is returned as it is. What the layout cannot be fitted to is
    counted in `plan.fitted.left_out`.
    """
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
    """Refuse a plan whose layout a workload has no effect on."""
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
