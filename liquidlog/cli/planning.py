"""The command that plans: what would be rewritten, why, and what that would bring."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from liquidlog.cli.judging import asked_of, criteria_for, judged
from liquidlog.cli.options import (
    Pairs,
    advice_option,
    json_option,
    limit_option,
    mapping,
    output_option,
    settings_options,
    table_argument,
    verb,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import emit, first_of, replace_file, say_rest
from liquidlog.clustering.settings import WITH_OPTION, Stage, settings_of
from liquidlog.errors import UsageError
from liquidlog.operations.judge import predicted
from liquidlog.operations.planned import explain_together
from liquidlog.operations.rewrite import read_advice
from liquidlog.plan import ClusteringPlan, plan_pieces
from liquidlog.report import plans
from liquidlog.report.policies import printed_plan
from liquidlog.table import Table

_EVERY = ""
"""The value of `--why` without a path."""


@verb(
    "liquidlog plan ./sales -o plan.json",
    "liquidlog plan ./sales --strategy overlap --budget 50GiB",
    "liquidlog plan ./sales --why",
)
@table_argument
@settings_options(*WITH_OPTION, stages=(Stage.PLAN, Stage.JUDGE))
@output_option("Save the plan to this file; replaces it.")
@workload_option(
    "Fit the layout to these queries, and predict what they read: JSON lines, .sql, or a"
    " source of `workload import`."
)
@advice_option
@click.option(
    "--why",
    metavar="[PATH]",
    is_flag=False,
    flag_value=_EVERY,
    help="Say instead why this file would be rewritten or not; without a path, why each would.",
)
@limit_option
@json_option
def plan(
    table: str,
    settings: Mapping[str, Any],
    output: Path | None,
    workload: str | None,
    advice: str | None,
    why: str | None,
    limit: int | None,
    storage_options: Pairs,
    *,
    as_json: bool,
) -> None:
    """Show what OPTIMIZE would rewrite; writes nothing.

    The first line is the verdict on the table, or on the plan if options change it. Without a
    workload it assumes full scans and queries for one value of a column. `run` executes a saved
    plan, `commit` commits it.

    With --advice, a workload only predicts: the advice says what the layout is fitted to.
    """
    given = settings_of(settings)
    policy, judging = given[Stage.PLAN], given[Stage.JUDGE]
    _require_sense(judging, why, limit)
    opened = Table.open(table, storage_options=mapping(storage_options))
    asked = workload_at(workload, opened, storage_options)
    if advice is None:
        readers = None if workload is None else asked
        made = opened.plan(**policy, workload=readers, require_fit=False)
    else:
        made = opened.plan(advice=read_advice(advice), **policy)
    if why is not None:
        if output is not None:
            replace_file(output, plan_pieces(made))
        _explain(opened, made, None if why == _EVERY else why, limit, as_json=as_json)
        return
    asked = asked_of(made, asked)
    criteria = criteria_for(opened, asked, workload, **judging)
    verdict = judged(
        opened, made, criteria, policy=policy if advice is None else {**policy, "advice": advice}
    )
    if output is not None:
        replace_file(output, plan_pieces(made))
    if as_json:
        document = {**printed_plan(made), "verdict": verdict.document()}
        if asked:
            document["prediction"] = predicted(opened.opened, made, criteria).document()
        emit(document, plans.plan, as_json=True)
    else:
        emit(made, partial(plans.judged_plan, verdict), as_json=False)


def _require_sense(
    judging: Mapping[str, Any],
    why: str | None,
    limit: int | None,
) -> None:
    if limit is not None and why is None:
        raise UsageError("--limit says how many files --why lists; give that too", option="limit")
    if why is not None and judging:
        raise UsageError(f"{min(judging)} has no effect with --why", option=min(judging))


def _explain(
    opened: Table, made: ClusteringPlan, path: str | None, limit: int | None, *, as_json: bool
) -> None:
    if path is None and limit is None and not as_json:
        emit(explain_together(made, examples=3), plans.explanation, as_json=False)
        return
    rows = opened.explain(made, path=path)
    emit(first_of(rows, limit), plans.explained_files, as_json=as_json, root="explain")
    say_rest(len(rows), limit)
