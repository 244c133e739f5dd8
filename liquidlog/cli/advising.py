"""The commands that advise columns and a layout, and import what readers ask."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from liquidlog.cli.defaults import storage_defaults
from liquidlog.cli.options import (
    PERCENTAGE,
    SIZE,
    Pairs,
    bar_options,
    dry_run_option,
    files,
    json_option,
    mapping,
    offered_columns,
    output_option,
    storage_option,
    table_argument,
    verb,
    whole_number,
    workload_at,
)
from liquidlog.cli.output import emit, replace_file
from liquidlog.clustering.settings import split_names
from liquidlog.errors import UsageError
from liquidlog.report import changes
from liquidlog.report.advice import advice as report
from liquidlog.report.layout import Report
from liquidlog.report.printing import say
from liquidlog.table import Table

# Commands about what readers ask.


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
@json_option
def workload(
    action: str,
    sources: tuple[str, ...],
    output: Path,
    tables: tuple[str, ...],
    since: str | None,
    storage_options: Pairs,
    *,
    redact: bool,
    as_json: bool,
) -> None:
    """Import queries, from logs of engines and from SQL.

    Sources are Spark event logs, files of SQL, query logs of DuckDB, Databricks and Trino as CSV,
    JSON or Parquet, imported workloads, Delta tables, and directories of these.
    """
    from liquidlog.operations.workloads import import_workload
    from liquidlog.report.workloads import imported
    from liquidlog.workload.form import encode_queries

    del action
    storage_options = storage_options or storage_defaults(*sources, *tables)
    found = import_workload(
        sources,
        tables=tables,
        since=since,
        without_constants=redact,
        storage_options=mapping(storage_options) or None,
    )
    replace_file(output, encode_queries(found.queries))
    document: Any = found.document()
    emit(document if as_json else found, imported, as_json=as_json)


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
@json_option
def advise(
    table: str,
    workloads: tuple[str, ...],
    columns: str | None,
    max_columns: int | None,
    min_gain: float | None,
    max_file_size: int | None,
    bar: Mapping[str, Any],
    output: Path | None,
    storage_options: Pairs,
    *,
    apply: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Say which columns and layout suit the queries, if any.

    Layouts are measured on sampled rows: the older queries choose, the newest judge. Nothing is
    written without --apply, and no file is rewritten.
    """
    from liquidlog.advice.advice import encode_advice

    if dry_run and not apply:
        raise UsageError("--dry-run has no effect without --apply", option="dry_run")
    opened = Table.open(table, storage_options=mapping(storage_options))
    asked = tuple(
        predicate
        for source in workloads
        for predicate in workload_at(source, opened, storage_options)
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
    if apply and found.protocol_change is not None and not as_json:
        say(str(found.protocol_change))
    applied = opened.apply_advice(found, dry_run=dry_run) if apply else ()
    document = found.document()
    if apply:
        document["applied"] = list(applied)
    shown = partial(_shown, applied=applied, apply=apply, dry_run=dry_run)
    emit(document if as_json else found, shown, as_json=as_json, dry_run=dry_run)


def _shown(found: Any, *, applied: tuple[int, ...], apply: bool, dry_run: bool) -> Report:  # noqa: ANN401
    lines = report(found)
    return (*lines, *changes.applied_advice(applied, dry_run=dry_run)) if apply else lines
