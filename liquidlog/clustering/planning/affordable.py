"""The part of a plan that a budget pays for: as many of its first groups as fit."""

import pyarrow as pa
from msgspec import structs

from liquidlog.plan import ClusteringPlan, RewriteGroup, SkippedFiles, SkipReason


def affordable(plan: ClusteringPlan, budget_bytes: int) -> ClusteringPlan:
    """Return the plan with its first groups whose inputs have at most `budget_bytes` together.

    The files of the others are skipped as over budget.
    """
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
