"""Commands about many tables: `tick` acts by a policy, `fleet` only looks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from liquidlog.cli.options import (
    LOCAL_FILE,
    bar_options,
    directories,
    dry_run_option,
    executor_option,
    spark_conf_option,
    storage_defaults,
    storage_option,
    verb,
    workload_option,
)
from liquidlog.cli.output import emit, emit_change, executors_heard, replace_file
from liquidlog.errors import UsageError
from liquidlog.fleet.finding import is_listing
from liquidlog.fleet.policy import UpkeepPolicy, read_policy
from liquidlog.fleet.upkeep import FleetRequest, survey
from liquidlog.fleet.upkeep import tick as run_tick
from liquidlog.foresee.verdict import Bar
from liquidlog.operations.executors import (
    AUTO,
    LOCAL,
    choose_executor,
    executors_when_needed,
    find_executor,
    open_executor,
    require_settings,
)
from liquidlog.report import tables as reports
from liquidlog.report.progress import counted_progress
from liquidlog.report.tables import tick_openmetrics


@verb(
    "liquidlog tick --policy policy.toml",
    "liquidlog tick './lake/*' --dry-run",
    "liquidlog tick --policy policy.toml --plan-only -o plans/",
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...", shell_complete=directories)
@click.option(
    "--policy",
    "policy_path",
    metavar="POLICY.toml",
    help="What to do with which tables, and when.  [default: make all rewrites that are worth it]",
)
@click.option("--plan-only", is_flag=True, help="Only save plans, in the directory of -o.")
@click.option(
    "-o",
    "--output",
    "plans",
    type=click.Path(file_okay=False),
    help="The directory for the plans of --plan-only.",
)
@executor_option("What rewrites the files.  [default: auto]")
@spark_conf_option
@click.option(
    "--openmetrics",
    type=LOCAL_FILE,
    help="Also write the numbers to this file, for Prometheus; replaces it.",
)
@storage_option
@dry_run_option
def tick(
    tables: tuple[str, ...],
    policy_path: str | None,
    plans: str | None,
    executor: str | None,
    spark_conf: Mapping[str, str],
    openmetrics: Path | None,
    storage_options: Mapping[str, str],
    *,
    plan_only: bool,
    dry_run: bool,
) -> int:
    """Do for each table what a policy says is due.

    TABLE is an address; a glob, with * for one name and ** for any directories; or a listing:
    glue://database[/pattern], unity://catalog.schema[/pattern]. A run keeps nothing for the next
    one, and two runs at once never work on the same table.
    """
    _check(plans, executor, spark_conf, plan_only=plan_only, dry_run=dry_run)
    policy = UpkeepPolicy() if policy_path is None else read_policy(policy_path)
    name = executor or AUTO
    if not plan_only and policy.rewrite is not None:
        require_settings(name, spark_conf, None)
        find_executor(LOCAL if name == AUTO else name)
    storage_options = storage_options or _defaults((*policy.tables, *tables))
    waiting = executors_when_needed(
        lambda plan: choose_executor(name, plan, spark_conf).name,
        lambda one: open_executor(one, spark_conf, storage_options, verb="tick"),
    )
    options = storage_options or None
    with executors_heard(), waiting as executor_of:
        ticked = run_tick(
            policy, tables, executor_of, storage_options=options, dry_run=dry_run, plans=plans
        )
    if openmetrics is not None:
        replace_file(openmetrics, tick_openmetrics(ticked))
    emit_change(ticked, reports.ticked, dry_run=dry_run)
    return ticked.exit_status


@verb(
    "liquidlog fleet ./lake",
    "liquidlog fleet s3://bucket/warehouse -o fleet/",
    "liquidlog fleet './lake/*' --workload queries.jsonl --json",
)
@click.argument("prefixes", nargs=-1, required=True, metavar="PREFIX...")
@workload_option(
    "Judge rewrites for these queries of all tables: a workload that `workload import` saved, or a"
    " source of it.  [default: full scans, and queries for one value of a column]"
)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(file_okay=False),
    help="Write index.html into this directory, and a page for each table.",
)
@bar_options
@storage_option
def fleet(
    prefixes: tuple[str, ...],
    workload: str | None,
    directory: str | None,
    bar: Mapping[str, Any],
    storage_options: Mapping[str, str],
) -> int:
    """Say which tables are worth a rewrite, the best first.

    PREFIX is a table; a directory with tables below it; a glob, with * for one name and ** for any
    directories; or a listing of a catalog, as glue://database. Each table gets its verdict and, if
    a rewrite is worth it, the command. Only -o writes anything.
    """
    from liquidlog.report.page import fleet_page, page

    storage_options = storage_options or _defaults(prefixes)
    request = FleetRequest(
        prefixes=prefixes,
        workload=workload,
        bar=Bar(**bar),
        storage_options=storage_options or None,
        pages=directory,
        render=page,
    )
    with counted_progress("tables") as (expect, advance):
        found = survey(request, on_found=expect, on_table=lambda _: advance())
    if directory is not None:
        replace_file(Path(directory, "index.html"), fleet_page(found, ", ".join(prefixes)))
    emit(found, reports.surveyed_fleet)
    return found.exit_status


def _defaults(addresses: tuple[str, ...]) -> Mapping[str, str]:
    others = [address for address in addresses if not is_listing(address)]
    return storage_defaults(*(others or addresses))


def _check(
    plans: str | None,
    executor: str | None,
    spark_conf: Mapping[str, str],
    *,
    plan_only: bool,
    dry_run: bool,
) -> None:
    if plan_only and plans is None:
        raise UsageError("--plan-only needs -o, the directory for the plans", option="output")
    if plans is not None and not plan_only:
        raise UsageError("-o has no effect without --plan-only", option="output")
    if plan_only and dry_run:
        raise UsageError("give either --dry-run or --plan-only", option="dry_run")
    if plan_only and (executor is not None or spark_conf):
        raise UsageError(
            "--executor and --spark-conf have no effect with --plan-only", option="executor"
        )
