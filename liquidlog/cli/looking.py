"""Commands that look at a table and change nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liquidlog.cli.options import (
    LOCAL_FILE,
    Address,
    bar_options,
    chosen_version,
    judging_workload_option,
    limit_option,
    offered_columns,
    output_option,
    table_argument,
    verb,
    version_options,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import (
    append_line,
    emit,
    first_of,
    is_json,
    replace_file,
    require_trend,
    say_rest,
)
from liquidlog.clustering.settings import split_names
from liquidlog.errors import EXIT_BAR_CROSSED, EXIT_OK, UsageError
from liquidlog.report import tables
from liquidlog.report.jsonable import render_line
from liquidlog.report.printing import pairs, say

if TYPE_CHECKING:
    from liquidlog.clustering.health import Health, HealthBar

# Slow imports are in the few commands that need them.


@verb("liquidlog detail ./sales", "liquidlog detail ./sales --timestamp 2026-01-31T12:00:00Z")
@table_argument
@version_options
def detail(table: Address, version: int | None, timestamp: str | None) -> None:
    """Show the table as DESCRIBE DETAIL does."""
    opened = table.open()
    chosen = chosen_version(opened, version, timestamp)
    emit(opened.detail(chosen), tables.detail)


@verb("liquidlog history ./sales --limit 10")
@table_argument
@limit_option
@click.option(
    "--amplification",
    is_flag=True,
    help="Show how many bytes each commit added and moved, oldest first.",
)
def history(table: Address, limit: int | None, *, amplification: bool) -> None:
    """Show the commits, newest first."""
    from liquidlog.log.loader import list_log
    from liquidlog.operations.inspect import written_bytes

    opened = table.open()
    if amplification:
        written = written_bytes(opened.opened.store)
        shown = written[-limit:] if limit else written
        emit(shown, tables.amplification, root="amplification")
        say_rest(len(written), limit)
        return
    emit(opened.history(limit), tables.history, root="history")
    if limit is not None:
        say_rest(len(list_log(opened.opened.store).commits), limit)


@verb("liquidlog files ./sales --limit 20")
@table_argument
@version_options
@limit_option
def files(table: Address, version: int | None, timestamp: str | None, limit: int | None) -> None:
    """List the live files and their place in the clustering."""
    opened = table.open()
    chosen = chosen_version(opened, version, timestamp)
    snapshot_version, live = opened.snapshot(chosen).version, opened.files(chosen)
    document = {"version": snapshot_version, "files": first_of(live, limit)}
    emit(document, lambda found: tables.files(found["files"]))
    say_rest(live.num_rows, limit)


@verb("liquidlog health ./sales", "liquidlog health ./sales --fail-if 'read_ratio > 1.5'")
@table_argument
@click.option(
    "--columns",
    shell_complete=offered_columns,
    help="Measure by these columns, a,b.  [default: the clustering columns]",
)
@workload_option(
    "Measure by the columns that these queries compare most, at most four: JSON lines, .sql, or a"
    " source of `workload import`."
)
@click.option("--where", help="Measure only files that may match this SQL predicate.")
@click.option(
    "--sample",
    is_flag=True,
    help="Read rows of up to 256 files to compare the table with a full rewrite.",
)
@click.option("--cubes", is_flag=True, help="List the ZCubes: files that were clustered together.")
@limit_option
@click.option(
    "--fail-if",
    "bars",
    multiple=True,
    help='Exit with status 6 if this is true: "read_ratio > 1.5"; repeats.',
)
@click.option(
    "--openmetrics",
    type=LOCAL_FILE,
    help="Also write the numbers to this file, for Prometheus; replaces it.",
)
@click.option("--trend", type=LOCAL_FILE, help="Also append the result to this file, as JSON.")
def health(
    table: Address,
    columns: str | None,
    workload: str | None,
    where: str | None,
    bars: tuple[str, ...],
    openmetrics: Path | None,
    trend: Path | None,
    limit: int | None,
    *,
    sample: bool,
    cubes: bool,
) -> int:
    """Say how well the table is clustered now."""
    from liquidlog.clustering.health import parse_bar

    if cubes:
        others = ("columns", "workload", "where", "sample", "bars", "openmetrics", "trend")
        given = [name for name in others if click.get_current_context().params.get(name)]
        if given:
            name = "fail-if" if given[0] == "bars" else given[0]
            raise UsageError(f"--{name} has no effect with --cubes", option=name)
        rows = table.open().cubes()
        emit(first_of(rows, limit), tables.cubes, root="cubes")
        say_rest(rows.num_rows, limit)
        return EXIT_OK
    if limit is not None:
        raise UsageError("--limit needs --cubes", option="limit")
    limits = [parse_bar(bar) for bar in bars]
    if trend is not None:
        require_trend(trend)
    opened = table.open()
    names = None if columns is None else split_names(columns)
    if columns is not None and workload is not None:
        raise UsageError("give either --columns or --workload")
    asked = workload_at(workload, opened.uri, table.options)
    measured = opened.health(names, workload=asked, where=where, sample=sample)
    if openmetrics is not None:
        replace_file(openmetrics, tables.openmetrics(measured))
    if trend is not None:
        append_line(trend, render_line(measured))
    emit(measured, tables.health)
    return _status(limits, measured)


def _status(bars: "Sequence[HealthBar]", measured: "Health") -> int:
    """Return the exit status, and print each crossed bar on stderr."""
    from liquidlog.clustering.health import is_crossed, is_measured, require_measured

    unmeasured = [bar for bar in bars if not is_measured(bar, measured)]
    crossed = [bar for bar in bars if bar not in unmeasured and is_crossed(bar, measured)]
    for bar in crossed:
        say(f"bar crossed: {bar.text}")
    for bar in unmeasured:
        if not crossed:
            require_measured(bar, measured)  # raises
        say(f"bar not judged: {bar.text}")
    return EXIT_BAR_CROSSED if crossed else EXIT_OK


@verb("liquidlog scan ./sales --where \"day = '2026-01-31'\"")
@table_argument
@click.option("--where", help="The query's SQL predicate.")
@workload_option("The queries, with weights: JSON lines, .sql, or a source of `workload import`.")
@click.option("--time-zone", help="The queries' time zone, like Europe/Berlin.  [default: any]")
@version_options
@limit_option
def scan(
    table: Address,
    where: str | None,
    workload: str | None,
    time_zone: str | None,
    version: int | None,
    timestamp: str | None,
    limit: int | None,
) -> None:
    """List the files that a query with a predicate must open."""
    if (where is None) == (workload is None):
        raise UsageError("give either --where or --workload")
    opened = table.open()
    asked = workload_at(workload, opened.uri, table.options)
    chosen = chosen_version(opened, version, timestamp)
    found = opened.scan(where, workload=asked, version=chosen, time_zone=time_zone)
    shown = replace(found, files=first_of(found.files, limit))
    emit(shown, tables.scan)
    say_rest(found.files.num_rows, limit)


@verb(
    "liquidlog report ./sales -o sales.html",
    "liquidlog report ./sales --workload queries.jsonl -o sales.html",
)
@table_argument
@output_option("Write the page to this file; replaces it.", required=True)
@judging_workload_option
@bar_options
def report(table: Address, output: Path, workload: str | None, bar: Mapping[str, Any]) -> None:
    """Say whether to rewrite, and why, on one HTML page.

    The page shows what queries open now and after a rewrite, the faults that doctor finds, the
    health of the table and its history. It loads nothing from the network.
    """
    from liquidlog.report.page import page

    opened = table.open()
    asked = workload_at(workload, opened.uri, table.options)
    overview = opened.overview(workload=asked, workload_source=workload, **bar)
    content = page(overview, workload=workload or "W").encode()
    replace_file(output, content)
    done: dict[str, Any] = {"output": str(output), "version": overview.detail["version"]}
    done |= {"size_bytes": len(content), "findings": len(overview.findings)}
    if is_json():
        done["verdict"] = overview.verdict
    elif overview.verdict is not None:
        done = {"answer": overview.verdict.sentence, **done}
    emit(done, pairs)
