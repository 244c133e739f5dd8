"""Commands that say what to do: which layout suits readers, and what a plan would rewrite."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from liquidlog.cli.defaults import storage_defaults
from liquidlog.cli.options import (
    PERCENTAGE,
    SIZE,
    Address,
    advice_option,
    bar_options,
    dry_run_option,
    files,
    limit_option,
    offered_columns,
    output_option,
    settings_options,
    storage_option,
    table_argument,
    verb,
    whole_number,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import emit, first_of, is_json, note, replace_file, say_rest
from liquidlog.clustering.settings import WITH_OPTION, Stage, settings_of, split_names
from liquidlog.errors import UsageError
from liquidlog.foresee.verdict import Criteria, Verdict, command
from liquidlog.operations.planned import (
    criteria_of,
    explain_together,
    judge,
    judge_plan,
    predicted,
    snapshot_of_plan,
)
from liquidlog.operations.rewrite import read_advice
from liquidlog.plan import ClusteringPlan, plan_pieces
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.report import plans
from liquidlog.report.jsonable import printed_plan
from liquidlog.table import Table

_EVERY: Final = ""
"""`--why` without a path."""


def criteria_for(
    opened: Table,
    made: ClusteringPlan,
    asked: Workload,
    workload_source: str | None,
    *,
    sample: bool = True,
    **bar: Any,  # noqa: ANN401  as criteria_of takes it
) -> Criteria:
    """Return how to judge a plan; without a workload, its `where` is the only query.

    A `where` that only selects partitions to rewrite is not a query.
    """
    where = made.policy.where
    if not asked and where is not None and not made.partitioned_by:
        asked = (WeightedPredicate(where),)
    return replace(criteria_of(opened.opened, asked, workload_source, **bar), reads_rows=sample)


def judged(
    opened: Table,
    made: ClusteringPlan,
    criteria: Criteria,
    policy: Mapping[str, Any],
    advice: str | None,
) -> Verdict:
    """Return the verdict on the table, or on the plan itself if options changed it."""
    words = policy if advice is None else {**policy, "advice": advice}
    if words:
        source = criteria.workload_source if made.readers is not None else None
        said = command(opened.uri, words, source)
        return judge_plan(opened.opened, made, criteria, command=said)
    snapshot = snapshot_of_plan(opened.opened, made)
    return judge(opened.opened, snapshot, criteria, made=made).verdict


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
def plan(
    table: Address,
    settings: Mapping[str, Any],
    output: Path | None,
    workload: str | None,
    advice: str | None,
    why: str | None,
    limit: int | None,
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
    opened = table.open()
    asked = workload_at(workload, opened.uri, table.options)
    if advice is None:
        readers = None if workload is None else asked
        made = opened.plan(**policy, workload=readers, require_fit=False)
    else:
        made = opened.plan(advice=read_advice(advice), **policy)
    if why is not None:
        if output is not None:
            replace_file(output, plan_pieces(made))
        _explain(opened, made, None if why == _EVERY else why, limit)
        return
    criteria = criteria_for(opened, made, asked, workload, **judging)
    verdict = judged(opened, made, criteria, policy, advice)
    if output is not None:
        replace_file(output, plan_pieces(made))
    if not is_json():
        emit(made, partial(plans.judged_plan, verdict))
        return
    document = {**printed_plan(made), "verdict": verdict}
    if criteria.workload:
        document["prediction"] = predicted(opened.opened, made, criteria)
    emit(document, plans.plan)


def _require_sense(judging: Mapping[str, Any], why: str | None, limit: int | None) -> None:
    if limit is not None and why is None:
        raise UsageError("--limit says how many files --why lists; give that too", option="limit")
    if why is not None and judging:
        raise UsageError(f"{min(judging)} has no effect with --why", option=min(judging))


def _explain(opened: Table, made: ClusteringPlan, path: str | None, limit: int | None) -> None:
    if path is None and limit is None and not is_json():
        emit(explain_together(made, examples=3), plans.explanation)
        return
    rows = opened.explain(made, path=path)
    emit(first_of(rows, limit), plans.explained_files, root="explain")
    say_rest(len(rows), limit)


@verb(
    "liquidlog workload import ./eventlogs -o workload.jsonl --table ./sales",
    "liquidlog workload import queries.sql history.parquet -o workload.jsonl",
)
@click.argument("action", type=click.Choice(["import"]), metavar="import")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=files)
@output_option("Write the workload to this file, as JSON lines; replaces it.", required=True)
@click.option(
    "--table", "tables", multiple=True, help="Keep only what is asked of this table; repeats."
)
@click.option("--since", help="Leave out what was last asked before this time, as 2026-01-31.")
@click.option(
    "--redact", is_flag=True, help="Replace constants by their quantiles, and show no examples."
)
@storage_option
def workload(
    action: str,
    sources: tuple[str, ...],
    output: Path,
    tables: tuple[str, ...],
    since: str | None,
    storage_options: Mapping[str, str],
    *,
    redact: bool,
) -> None:
    """Import queries, from logs of engines and from SQL.

    Sources are Spark event logs, files of SQL, query logs of DuckDB, Databricks and Trino as CSV,
    JSON or Parquet, imported workloads, Delta tables, and directories of these.
    """
    from liquidlog.operations.workloads import import_workload
    from liquidlog.report.tables import imported
    from liquidlog.workload.form import encode_queries

    del action
    storage_options = storage_options or storage_defaults(*sources, *tables)
    found = import_workload(
        sources,
        tables=tables,
        since=since,
        without_constants=redact,
        storage_options=storage_options,
    )
    replace_file(output, encode_queries(found.queries))
    emit(found, imported)


@verb(
    "liquidlog advise ./sales --workload workload.jsonl",
    "liquidlog advise ./sales --workload queries.sql --columns day,store -o advice.json",
)
@table_argument
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    required=True,
    help="The queries: JSON lines, .sql, or a source of `workload import`; repeats.",
)
@click.option(
    "--columns",
    shell_complete=offered_columns,
    help="Try only these columns, a,b.  [default: all that queries compare]",
)
@click.option(
    "--max-columns", type=whole_number(1, 4), help="Most clustering columns.  [default: 4]"
)
@click.option(
    "--min-gain",
    type=PERCENTAGE,
    help="The least share of their wait that queries must save.  [default: 10%]",
)
@click.option(
    "--max-file-size",
    type=SIZE,
    help="Try only this size.  [default: the table's own and smaller ones, from 16MiB]",
)
@bar_options
@click.option("--apply", is_flag=True, help="Set the advised columns and layout properties.")
@output_option("Save the advice to this file, for `plan --advice`; replaces it.")
@dry_run_option
def advise(
    table: Address,
    workloads: tuple[str, ...],
    columns: str | None,
    max_columns: int | None,
    min_gain: float | None,
    max_file_size: int | None,
    bar: Mapping[str, Any],
    output: Path | None,
    *,
    apply: bool,
    dry_run: bool,
) -> None:
    """Say which columns and layout suit the queries, if any.

    Layouts are measured on sampled rows: the older queries choose, the newest judge. Nothing is
    written without --apply, and no file is rewritten.
    """
    from liquidlog.advice.advice import encode_advice
    from liquidlog.report.advice import advice
    from liquidlog.report.changes import applied_advice

    if dry_run and not apply:
        raise UsageError("--dry-run has no effect without --apply", option="dry_run")
    opened = table.open()
    asked = tuple(
        predicate
        for source in workloads
        for predicate in workload_at(source, opened.uri, table.options)
    )
    given: dict[str, Any] = {
        "columns": None if columns is None else split_names(columns),
        "max_columns": max_columns,
        "min_gain": min_gain,
        "max_file_size": max_file_size,
    }
    chosen = {name: one for name, one in given.items() if one is not None}
    found = opened.advise(asked, workload_source=workloads[0], **chosen, **bar)
    if output is not None:
        found = found.saved_as(str(output))
        replace_file(output, encode_advice(found))
    if apply and found.protocol_change is not None:
        note(str(found.protocol_change))
    applied = opened.apply_advice(found, dry_run=dry_run) if apply else ()
    document = found.document()
    report = advice(found)
    if apply:
        document["applied"] = list(applied)
        report = (*report, *applied_advice(applied, dry_run=dry_run))
    emit(document, lambda _: report, dry_run=dry_run)
