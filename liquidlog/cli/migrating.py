"""The command that makes a partitioned table a clustered one."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from liquidlog.cli.consent import require_consent
from liquidlog.cli.options import (
    MIGRATION_OPTIONS,
    Pairs,
    dry_run_option,
    gathered,
    json_option,
    mapping,
    migration_options,
    output_option,
    read_back_option,
    split_names,
    table_argument,
    verb,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import emit, replace_file
from liquidlog.cli.rewriting import (
    COMMIT_OPTIONS,
    EXECUTOR_OPTION,
    LOCAL_LIMIT_OPTION,
    SPARK_CONF_OPTION,
    checked_commits,
    executor_at_work,
    rewritten_round,
    warn_of_what_is_not_read_back,
)
from liquidlog.cli.values import LOCAL_FILE
from liquidlog.errors import UsageError
from liquidlog.operations.executors import ExecutorWhenNeeded, require_doable, require_settings
from liquidlog.operations.results import read_plan
from liquidlog.plan import ClusteringPlan
from liquidlog.plan.encoding import plan_pieces
from liquidlog.report import changes
from liquidlog.report.rewrites import migration_document, round_document, would_do_round
from liquidlog.table import Table

if TYPE_CHECKING:
    from liquidlog.operations.migrate import MigrationNotice
    from liquidlog.simulation.prediction import Prediction

_COMMITS = {name: COMMIT_OPTIONS[name] for name in ("max_reconciled_share", "reconcile_limit")}
_OF_NEW_PLANS: Final = (*MIGRATION_OPTIONS, "partition_time_zone", "output", "workload", "sample")
_ONLY_TO_REWRITE: Final = (
    *("yes", "dry_run", "executor", "spark_conf", "local_limit", "no_read_back"),
    *_COMMITS,
)
"""Parameters that have no effect where the plan is only saved."""

_WORKLOAD = workload_option(
    "Fit the layout to these readers, and predict what they read: JSON lines, .sql, or a source of"
    " `workload import`."
)


def _commit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add how deletions are followed; the command receives `commits`, for Table.commit_each."""
    return gathered(command, _COMMITS, "commits", checked_commits)


@verb(
    "liquidlog migrate ./sales --cluster-by day,store --workload readers.jsonl --dry-run",
    "liquidlog migrate ./sales --cluster-by day,store -o plan.json",
    "liquidlog migrate ./sales --cluster-by day,store --yes",
)
@table_argument
@click.option("--cluster-by", help="The clustering columns, a,b; partition columns may be.")
@click.option(
    "--add-to",
    type=LOCAL_FILE,
    help="Add the files that others added since to this saved plan of a migration; replaces it.",
)
@migration_options
@click.option(
    "--partition-time-zone",
    help="The zone of timestamps in partition values that name none, as Europe/Berlin."
    "  [default: as the table's property says, else UTC]",
)
@output_option("Only save the plan to this file, for run and commit; replaces it.")
@_WORKLOAD
@click.option(
    "--sample", is_flag=True, help="Predict from rows of some files instead of statistics."
)
@_commit_options
@EXECUTOR_OPTION
@SPARK_CONF_OPTION
@LOCAL_LIMIT_OPTION
@read_back_option
@click.option(
    "--yes", is_flag=True, help="Do not ask before the table is no longer partitioned for good."
)
@dry_run_option
@json_option
def migrate(
    table: str,
    cluster_by: str | None,
    add_to: Path | None,
    policy: Mapping[str, Any],
    output: Path | None,
    partition_time_zone: str | None,
    workload: str | None,
    commits: Mapping[str, Any],
    executor: str,
    spark_conf: Pairs,
    local_limit: int | None,
    storage_options: Pairs,
    *,
    sample: bool,
    no_read_back: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a partitioned table a clustered one, in one commit.

    All files are rewritten, with the values of the partition columns in them. Until that is
    committed, readers see the table as it was, and its last partitioned version stays readable
    after it. It says who is affected and asks; where nobody can answer, it wants --yes.

    With -o, the plan is saved: `run` rewrites it, and goes on where it was stopped, `commit`
    commits it once every group is there. Files that others add meanwhile are a conflict; with
    --add-to they become groups of the saved plan, for `run` to go on with.
    """
    _require_sense(cluster_by, add_to, output)
    if add_to is not None:
        _extend(table, add_to, mapping(storage_options), as_json=as_json)
        return
    if sample and workload is None:
        raise UsageError("--sample predicts for a --workload; give one", option="sample")
    require_settings(executor, mapping(spark_conf), local_limit)
    opened = Table.open(table, storage_options=mapping(storage_options))
    started = time.monotonic()
    asked = workload_at(workload, opened, storage_options)
    planned = opened.plan_migration(
        split_names(cluster_by or ""), partition_time_zone=partition_time_zone, **policy
    )
    made = opened.fitted(planned, asked)
    predicted = opened.predict(made, asked, sample=sample) if asked else None
    notice = opened.migration_notice(made)
    opened.require_writable(made)
    planned_seconds = time.monotonic() - started
    if output is not None:
        replace_file(output, plan_pieces(made))
    elif dry_run and made.groups:
        require_doable(executor, made, None, local_limit)
    if dry_run or output is not None:
        would = would_do_round(opened, made, planned_seconds, commits)
        _show(made, would, notice, predicted, as_json=as_json)
        return
    require_consent(str(notice), yes=yes, can_ask=not as_json)
    warn_of_what_is_not_read_back(no_read_back=no_read_back, as_json=as_json)
    with executor_at_work(
        opened,
        made,
        executor,
        mapping(spark_conf),
        mapping(storage_options),
        verb="migrate",
        read_back=not no_read_back,
        limit_bytes=local_limit,
        as_json=as_json,
    ) as waiting:
        done = _done(opened, made, waiting, commits, planned_seconds)
    emit(migration_document(made, done, notice, predicted), changes.migrated, as_json=as_json)


def _extend(table: str, path: Path, options: Mapping[str, str], *, as_json: bool) -> None:
    """Replace a saved plan by one that has the files that were added since, and show it."""
    opened = Table.open(table, storage_options=options)
    started = time.monotonic()
    made = opened.extend_migration(read_plan(str(path)))
    seconds = time.monotonic() - started
    replace_file(path, plan_pieces(made))
    would = would_do_round(opened, made, seconds, {})
    _show(made, would, opened.migration_notice(made), None, as_json=as_json)


def _show(
    made: ClusteringPlan,
    would: Mapping[str, Any],
    notice: "MigrationNotice",
    predicted: "Prediction | None",
    *,
    as_json: bool,
) -> None:
    """Show what a plan would do; nothing of it is done."""
    shown = partial(changes.would_migrate, made, predicted, notice)
    document = migration_document(made, would, notice, predicted)
    emit(document, shown, as_json=as_json, dry_run=True)


def _require_sense(cluster_by: str | None, add_to: Path | None, output: Path | None) -> None:
    """Refuse options that do not go together."""
    if (cluster_by is None) == (add_to is None):
        raise UsageError("give the clustering columns, --cluster-by a,b, or a plan --add-to")
    if add_to is not None:
        _refuse_what_has_no_effect(_OF_NEW_PLANS + _ONLY_TO_REWRITE, "--add-to, which changes a")
    elif output is not None:
        _refuse_what_has_no_effect(_ONLY_TO_REWRITE, "-o, which only saves the")


def _refuse_what_has_no_effect(names: Sequence[str], why: str) -> None:
    """Refuse parameters without effect on a plan that is saved."""
    context = click.get_current_context()
    given = [
        name
        for name in names
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(
            f"{listed}: no effect with {why} plan; run and commit rewrite and commit it",
            option=given[0],
        )


def _done(
    opened: Table,
    made: ClusteringPlan,
    waiting: ExecutorWhenNeeded,
    commits: Mapping[str, Any],
    planned_seconds: float,
) -> Mapping[str, Any]:
    """Migrate a table, and return the document of that; one without files at once."""
    if made.groups:
        return rewritten_round(opened, waiting, commits, planned_seconds, made)
    started = time.monotonic()
    report = opened.migrate_empty(made)
    seconds = planned_seconds + time.monotonic() - started
    return round_document(made, report, opened.optimize_metrics(made, report), seconds, commits)
