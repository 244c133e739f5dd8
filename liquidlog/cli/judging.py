"""The verdict on a plan that was made, or on the table that it is made of."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from liquidlog.foresee.candidates import command
from liquidlog.foresee.verdict import Criteria, Verdict
from liquidlog.operations.judge import criteria_of, judge_opened, judge_plan
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.table import Table


def asked_of(made: ClusteringPlan, asked: Workload) -> Workload:
    """Return what readers ask of a plan: that of its `where` if nothing else is known.

    A `where` that only says which partitions are rewritten asks nothing.
    """
    where = made.policy.where
    if asked or where is None or made.partitioned_by:
        return asked
    return (WeightedPredicate(where),)


def criteria_for(
    opened: Table,
    asked: Workload,
    workload_source: str | None,
    *,
    sample: bool = True,
    **bar: Any,  # noqa: ANN401  as criteria_of takes it
) -> Criteria:
    """Return for whom a plan is judged: readers as `asked_of` says them.

    Args:
        opened: The table.
        asked: What readers ask.
        workload_source: Where a command finds that.
        sample: Whether to predict from rows.
        **bar: Criteria that were given.
    """
    return replace(criteria_of(opened.opened, asked, workload_source, **bar), reads_rows=sample)


def judged(
    opened: Table, made: ClusteringPlan, criteria: Criteria, *, policy: Mapping[str, Any]
) -> Verdict:
    """Return the verdict on the table; on the plan itself if `policy` asked for it with options."""
    if policy:
        source = criteria.workload_source if made.readers is not None else None
        words = command(opened.uri, policy, source)
        return judge_plan(opened.opened, made, criteria, command=words)
    snapshot = opened.opened.of_plan(made)
    return judge_opened(opened.opened, snapshot, criteria, made=made).verdict
