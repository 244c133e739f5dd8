"""Commands about what readers ask."""

from pathlib import Path
from typing import Any

import click

from liquidlog.cli.defaults import storage_defaults
from liquidlog.cli.options import (
    Pairs,
    files,
    json_option,
    mapping,
    output_option,
    storage_option,
    verb,
)
from liquidlog.cli.output import emit, replace_file


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
