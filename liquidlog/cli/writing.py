"""Commands that write: to the table, or data files of a plan."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click
from msgspec import to_builtins

from liquidlog.cli.common import (
    PAIR,
    Pairs,
    dry_run_option,
    emit,
    json_option,
    mapping,
    policy_options,
    split_names,
    storage_option,
    table_argument,
)
from liquidlog.cli.executors import open_executor
from liquidlog.cli.planning import make_plan
from liquidlog.data.append import read_schema
from liquidlog.errors import (
    CorruptLogError,
    DocumentError,
    UsageError,
)
from liquidlog.operations.optimize import CommitReport
from liquidlog.operations.results import complete_result, read_file, read_plan, read_result
from liquidlog.plan import ClusteringPlan, GroupFailure, RewrittenGroup
from liquidlog.report import text
from liquidlog.report.progress import rewrite_progress
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.mapping import MODE
from liquidlog.spec.schema import StructType, parse_schema
from liquidlog.storage.addresses import is_local
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table

_EXECUTOR = click.option("--executor", default="spark", help="What rewrites the files [spark].")
_SPARK_CONF = click.option(
    "--spark-conf", multiple=True, type=PAIR, help="A Spark configuration; repeats."
)


@click.command()
@table_argument
@click.option("--schema-from", help="Take the schema of this Parquet file.")
@click.option("--schema", "schema_json", help="Take the schema in this file of Delta's JSON.")
@click.option("--like", help="Copy schema, properties and clustering columns of this table.")
@click.option("--cluster-by", help="Clustering columns: a,b")
@click.option("--column-mapping", type=click.Choice(["name", "id"]), help="Column mapping mode.")
@click.option("--property", "properties", multiple=True, type=PAIR, help="A property; repeats.")
@dry_run_option
@json_option
def create(  # noqa: PLR0913  one parameter an option
    table: str,
    schema_from: str | None,
    schema_json: str | None,
    like: str | None,
    cluster_by: str | None,
    column_mapping: str | None,
    properties: Pairs,
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create an empty table."""
    if sum(option is not None for option in (schema_from, schema_json, like)) != 1:
        raise UsageError("give one of --schema-from, --schema and --like")
    options = mapping(storage_options)
    definition = Table.definition(
        schema=_schema(schema_from, schema_json, options),
        like=None if like is None else Table.open(like, storage_options=_options_of(like, options)),
        cluster_by=None if cluster_by is None else split_names(cluster_by),
        properties={**mapping(properties), **({MODE: column_mapping} if column_mapping else {})},
    )
    Table.create_as(table, definition, storage_options=options, dry_run=dry_run)
    emit({"version": 0}, text.created, as_json=as_json)


@click.command()
@table_argument
@click.argument("sources", nargs=-1, required=True, metavar="FILE.parquet...")
@click.option("--cluster", is_flag=True, help="Sort each batch along the curve.")
@dry_run_option
@json_option
def append(
    table: str,
    sources: tuple[str, ...],
    storage_options: Pairs,
    *,
    cluster: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Append Parquet files as fresh files, in one commit."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    appended = opened.append(sources, cluster=cluster, dry_run=dry_run)
    emit(appended, text.appended, as_json=as_json)


@click.command("cluster-by")
@table_argument
@click.argument("columns", required=False)
@click.option("--none", is_flag=True, help="Have no clustering columns any more.")
@dry_run_option
@json_option
def cluster_by(
    table: str,
    columns: str | None,
    storage_options: Pairs,
    *,
    none: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the clustering columns; rewrites no file."""
    if none == (columns is not None):
        raise UsageError("give either the clustering columns, as a,b, or --none")
    opened = Table.open(table, storage_options=mapping(storage_options))
    names = None if columns is None else split_names(columns)
    version = opened.cluster_by(names, dry_run=dry_run)
    emit({"version": version}, text.clustered, as_json=as_json)


@click.command()
@table_argument
@policy_options
@_EXECUTOR
@_SPARK_CONF
@dry_run_option
@json_option
def optimize(  # noqa: PLR0913  one parameter an option
    table: str,
    policy: Mapping[str, Any],
    executor: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Plan, rewrite on Spark and commit cube by cube."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    started = time.monotonic()
    made = make_plan(opened, policy)
    planned_seconds = time.monotonic() - started
    opened.require_writable(made)
    if dry_run:
        emit(made, text.plan, as_json=as_json)
        return
    with contextlib.ExitStack() as stack:
        if made.groups:
            rewrite = stack.enter_context(
                open_executor(executor, mapping(spark_conf), mapping(storage_options))
            )
        else:
            rewrite = _nothing
        started = time.monotonic()
        with rewrite_progress(made) as progress:
            pending = opened.pending(made)
            report = opened.commit_each(
                made, rewrite(made, pending, progress.on_share), on_commit=progress.on_group
            )
    seconds = planned_seconds + time.monotonic() - started
    report.require_success()
    metrics = opened.optimize_metrics(made, report)
    emit(_optimized(made, report, metrics, seconds), text.optimized, as_json=as_json)


@click.command("run")
@click.argument("plan_path", metavar="PLAN.json")
@click.option("-o", "--output", required=True, help="The result document to write.")
@_EXECUTOR
@_SPARK_CONF
@storage_option
@json_option
def run_plan(
    plan_path: str,
    output: str,
    executor: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
    as_json: bool,
) -> None:
    """Execute a saved plan without committing; running again does only what is missing."""
    made = read_plan(plan_path)

    def rewrite(groups: tuple[int, ...]) -> Iterator[RewrittenGroup | GroupFailure]:
        with (
            open_executor(executor, mapping(spark_conf), mapping(storage_options)) as run_groups,
            rewrite_progress(made) as progress,
        ):
            for outcome in run_groups(made, groups, progress.on_share):
                progress.on_group(outcome.group_id)
                yield outcome

    emit(complete_result(output, made, rewrite), text.rewritten, as_json=as_json)


@click.command()
@click.argument("plan_path", metavar="PLAN.json")
@click.argument("result_path", metavar="RESULT.jsonl")
@storage_option
@dry_run_option
@json_option
def commit(
    plan_path: str, result_path: str, storage_options: Pairs, *, dry_run: bool, as_json: bool
) -> None:
    """Commit the finished groups of a plan that are not committed yet."""
    made = read_plan(plan_path)
    read_file(result_path)
    result = read_result(result_path, made)
    opened = Table.open(made.table_uri, storage_options=mapping(storage_options))
    if dry_run:
        pending = set(opened.pending(made))
        would = [g.group_id for g in result.groups if g.group_id in pending]
        skipped = [g.group_id for g in result.groups if g.group_id not in pending]
        report: Any = {"versions": [], "committed_groups": would, "skipped_groups": skipped}
    else:
        report = _committed(opened.commit(made, result))
    emit(report, text.committed, as_json=as_json)


def _nothing(*_: object) -> Iterator[RewrittenGroup]:
    return iter(())


def _optimized(
    plan: ClusteringPlan, report: CommitReport, metrics: Mapping[str, Any], seconds: float
) -> Mapping[str, Any]:
    costs = {group.group_id: group.costs for group in report.finished}
    return {
        "versions": report.versions,
        "groups": [
            {
                "group_id": group_id,
                "zcube_id": plan.groups[group_id].zcube_id,
                "version": version,
                "inputs": len(plan.groups[group_id].inputs),
                "costs": to_builtins(costs[group_id]),
            }
            for group_id, version in zip(report.committed_groups, report.versions, strict=True)
        ],
        "metrics": metrics,
        "rows_verified": report.rows_verified,
        "seconds": round(seconds, 3),
    }


def _committed(report: CommitReport) -> Mapping[str, Any]:
    return {
        "versions": report.versions,
        "committed_groups": report.committed_groups,
        "skipped_groups": report.skipped_groups,
    }


def _options_of(address: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options for another table than the one they were given for."""
    return {} if is_local(address) else options


def _schema(
    schema_from: str | None, schema_json: str | None, storage_options: Mapping[str, str]
) -> StructType | None:
    if schema_from is not None:
        return delta_schema(read_schema(schema_from, StorageOptions.of(storage_options)))
    if schema_json is None:
        return None
    try:
        return parse_schema(read_file(schema_json).decode(), where=schema_json)
    except (CorruptLogError, UnicodeDecodeError) as error:
        raise DocumentError(schema_json, f"is not a Delta schema: {error}") from error
