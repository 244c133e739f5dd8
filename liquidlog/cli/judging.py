"""The verdict on a plan that was made, or on the table that it is made of."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from liquidlog.foresee.candidates import command
from liquidlog.operations.judge import criteria_of, judge_opened, judge_plan
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.table import Table

if TYPE_CHECKING:
    from liquidlog.foresee.verdict import Verdict


def asked_of(made: ClusteringPlan, asked: Workload) -> Workload:
    """Return what readers ask of a plan: that of its `where` if nothing else is known.

    A `where` that only says which partitions are rewritten asks nothing.
    """
    where = made.policy.where
    if asked or where is None or made.partitioned_by:
        return asked
    return (WeightedPredicate(where),)


def judged(
    opened: Table,
    made: ClusteringPlan,
    *,
    policy: Mapping[str, Any],
    asked: Workload,
    workload_source: str | None,
    bar: Mapping[str, Any],
    sample: bool = True,
) -> "Verdict":
    """Return the verdict on the table; on the plan itself if it was asked for with options.

    Args:
        opened: The table.
        made: The plan.
        policy: The arguments that it was made with.
        asked: What readers ask, as `asked_of` says it.
        workload_source: Where a command finds that.
        bar: Criteria that were given.
        sample: Whether to predict from rows.
    """
    criteria = replace(criteria_of(opened.opened, asked, workload_source, **bar), reads_rows=sample)
    if policy:
        source = workload_source if made.readers is not None else None
        words = command(opened.uri, policy, source)
        return judge_plan(opened.opened, made, criteria, command=words)
    snapshot = opened.opened.of_plan(made)
    return judge_opened(opened.opened, snapshot, criteria, made=made).verdict
