"""The command that makes a partitioned table a clustered one."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from liquidlog.cli.consent import require_consent
from liquidlog.cli.options import (
    Pairs,
    dry_run_option,
    json_option,
    mapping,
    output_option,
    settings_options,
    split_names,
    table_argument,
    verb,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import emit, replace_file
from liquidlog.cli.rewriting import (
    EXECUTOR_OPTION,
    SPARK_CONF_OPTION,
    executor_at_work,
    rewritten_round,
    run_settings,
    warn_of_what_is_not_read_back,
)
from liquidlog.cli.values import LOCAL_FILE
from liquidlog.clustering.planning.readers import fitted_to
from liquidlog.clustering.settings import MigrationSettings, Stage, settings_of
from liquidlog.errors import UsageError
from liquidlog.operations.executors import require_doable, require_settings
from liquidlog.operations.migrate import migration_notice
from liquidlog.operations.results import read_plan
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.plan import ClusteringPlan
from liquidlog.plan.encoding import plan_pieces
from liquidlog.report import changes
from liquidlog.report.rewrites import migration_document, would_do_round
from liquidlog.table import Table

if TYPE_CHECKING:
    from liquidlog.operations.migrate import MigrationNotice
    from liquidlog.simulation.prediction import Prediction

_OF_MIGRATIONS: Final = {
    *("read_back", "local_limit", "max_reconciled_share", "reconcile_limit", "sample"),
}
"""The settings that a migration takes besides those of its plan."""

_OF_NEW_PLANS: Final = ("output", "workload")
_ONLY_TO_REWRITE: Final = ("yes", "dry_run", "executor", "spark_conf")
"""Parameters that have no effect where the plan is only saved."""

_WORKLOAD = workload_option(
    "Fit the layout to these readers, and predict what they read: JSON lines, .sql, or a source of"
    " `workload import`."
)


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
@settings_options(
    "max_file_size", "curve", stages=(Stage.PLAN, Stage.RUN, Stage.COMMIT, Stage.JUDGE)
)
@output_option("Only save the plan to this file, for run and commit; replaces it.")
@_WORKLOAD
@EXECUTOR_OPTION
@SPARK_CONF_OPTION
@click.option(
    "--yes", is_flag=True, help="Do not ask before the table is no longer partitioned for good."
)
@dry_run_option
@json_option
def migrate(
    table: str,
    cluster_by: str | None,
    add_to: Path | None,
    settings: Mapping[str, Any],
    output: Path | None,
    workload: str | None,
    executor: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
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
    given = settings_of(settings)
    _require_sense(cluster_by, add_to, output, given)
    if add_to is not None:
        _extend(table, add_to, mapping(storage_options), as_json=as_json)
        return
    sample = given[Stage.JUDGE].get("sample", False)
    if sample and workload is None:
        raise UsageError("sample predicts for a --workload; give one", option="sample")
    run = run_settings(given)
    require_settings(executor, mapping(spark_conf), run.local_limit)
    opened = Table.open(table, storage_options=mapping(storage_options))
    started = time.monotonic()
    asked = workload_at(workload, opened, storage_options)
    made = fitted_to(
        opened.plan_migration(split_names(cluster_by or ""), **given[Stage.PLAN]), asked
    )
    predicted = opened.predict(made, asked, sample=sample) if asked else None
    notice = migration_notice(opened.snapshot(), made)
    require_rewritable(opened.opened, made)
    planned_seconds = time.monotonic() - started
    if dry_run or output is not None:
        if output is not None:
            replace_file(output, plan_pieces(made))
        elif made.groups:
            require_doable(executor, made, None, run.local_limit)
        would = would_do_round(opened, made, planned_seconds, run.commits)
        _show(made, would, notice, predicted, as_json=as_json)
        return
    require_consent(str(notice), yes=yes, can_ask=not as_json)
    warn_of_what_is_not_read_back(run, as_json=as_json)
    with executor_at_work(
        opened,
        made,
        executor,
        mapping(spark_conf),
        mapping(storage_options),
        verb="migrate",
        run=run,
        as_json=as_json,
    ) as waiting:
        done = rewritten_round(opened, waiting, run.commits, planned_seconds, made)
    emit(migration_document(made, done, notice, predicted), changes.migrated, as_json=as_json)


def _extend(table: str, path: Path, options: Mapping[str, str], *, as_json: bool) -> None:
    """Replace a saved plan by one that has the files that were added since, and show it."""
    opened = Table.open(table, storage_options=options)
    started = time.monotonic()
    made = opened.plan_migration(add_to=read_plan(str(path)))
    seconds = time.monotonic() - started
    replace_file(path, plan_pieces(made))
    would = would_do_round(opened, made, seconds, {})
    _show(made, would, migration_notice(opened.snapshot(), made), None, as_json=as_json)


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


def _require_sense(
    cluster_by: str | None,
    add_to: Path | None,
    output: Path | None,
    settings: Mapping[Stage, Mapping[str, Any]],
) -> None:
    """Refuse options and settings that do not go together, or that no migration takes."""
    foreign = [*(settings[Stage.PLAN].keys() - MigrationSettings.__annotations__.keys())]
    others = {**settings[Stage.COMMIT], **settings[Stage.JUDGE]}
    foreign += [
        name for name in ("groups_per_commit", "payback_days", "readings_per_day") if name in others
    ]
    if foreign:
        raise UsageError(f"{min(foreign)} has no effect on a migration", option=min(foreign))
    if (cluster_by is None) == (add_to is None):
        raise UsageError("give the clustering columns, --cluster-by a,b, or a plan --add-to")
    if add_to is not None:
        given = [name for one in settings.values() for name in one]
        _refuse_what_has_no_effect(
            (*_OF_NEW_PLANS, *_ONLY_TO_REWRITE), given, "--add-to, which changes a"
        )
    elif output is not None:
        given = [*settings[Stage.RUN], *settings[Stage.COMMIT]]
        _refuse_what_has_no_effect(_ONLY_TO_REWRITE, given, "-o, which only saves the")


def _refuse_what_has_no_effect(names: Sequence[str], settings: Sequence[str], why: str) -> None:
    """Refuse parameters and settings without effect on a plan that is saved."""
    context = click.get_current_context()
    on_the_line = click.core.ParameterSource.COMMANDLINE
    given = [
        *(name for name in names if context.get_parameter_source(name) is on_the_line),
        *settings,
    ]
    if given:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(
            f"{listed}: no effect with {why} plan; run and commit rewrite and commit it",
            option=given[0],
        )
