"""What a plan that was made brings its readers, and whether that is worth it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from liquidlog.judgement.candidates import command
from liquidlog.judgement.parts import is_soon_judged
from liquidlog.operations.judge import criteria_of, judge_plan
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.table import Table

if TYPE_CHECKING:
    from liquidlog.foresee.prediction import Prediction
    from liquidlog.judgement.verdicts import Option


def predicted_and_judged(
    opened: Table,
    made: ClusteringPlan,
    *,
    policy: Mapping[str, Any],
    asked: Workload,
    workload_source: str | None,
    bar: Mapping[str, Any],
    sample: bool = True,
) -> "tuple[Prediction | None, Option | None]":
    """Return what a plan brings readers, and the plan as judged; None each where that is unknown.

    Readers are those of `asked`, else those of the plan's `where`, unless that only says which
    partitions are rewritten. Without either, nothing is predicted; a large plan is judged only if a
    criterion is given.
    """
    if not asked and made.policy.where is not None and not made.partitioned_by:
        asked = (WeightedPredicate(made.policy.where),)
    predicted = None
    if asked:
        predicted = opened.predict(made, asked, sample=sample)
    is_judged = bool(made.groups) and (predicted is not None or is_soon_judged(made))
    if not bar and not is_judged:
        return predicted, None
    criteria = replace(criteria_of(opened.opened, **bar), reads_rows=sample)
    words = command(opened.uri, policy, workload_source if made.readers is not None else None)
    return predicted, judge_plan(opened.opened, made, criteria, command=words, prediction=predicted)
