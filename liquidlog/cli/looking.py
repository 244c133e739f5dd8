"""Commands that look at a table and change nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from liquidlog.cli.options import (
    LOCAL_FILE,
    Address,
    bar_options,
    chosen_version,
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
    require_lines,
    say_rest,
)
from liquidlog.clustering.settings import split_names
from liquidlog.errors import EXIT_BAR_CROSSED, EXIT_OK, UsageError
from liquidlog.report.jsonable import render_line
from liquidlog.report.printing import pairs, say

if TYPE_CHECKING:
    from liquidlog.clustering.health import Health, HealthBar

# Modules that few of these commands need are imported there, since importing takes long.

_TREND_FIELDS: Final = ("table_uri", "total_file_count", "average_depth")
"""Fields in every line of a trend, whichever release wrote it."""


@verb("liquidlog detail ./sales", "liquidlog detail ./sales --timestamp 2026-01-31T12:00:00Z")
@table_argument
@version_options
def detail(table: Address, version: int | None, timestamp: str | None) -> None:
    """Show the table as DESCRIBE DETAIL does."""
    from liquidlog.report import tables

    opened = table.open()
    chosen = chosen_version(opened, version, timestamp)
    emit(opened.detail(chosen), tables.detail)


@verb("liquidlog history ./sales --limit 10")
@table_argument
@limit_option
@click.option(
    "--amplification",
    is_flag=True,
    help="Show instead the bytes that each commit added and moved, oldest first.",
)
def history(table: Address, limit: int | None, *, amplification: bool) -> None:
    """Show the commits, newest first."""
    from liquidlog.log.loader import list_log
    from liquidlog.operations.inspect import written_bytes
    from liquidlog.report import tables

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
    from liquidlog.report import tables

    opened = table.open()
    chosen = chosen_version(opened, version, timestamp)
    snapshot_version, live = opened.snapshot(chosen).version, opened.files(chosen)
    shown = first_of(live, limit)
    document = {"version": snapshot_version, "files": shown}
    emit(document if is_json() else shown, tables.files)
    say_rest(live.num_rows, limit)


@verb("liquidlog health ./sales", "liquidlog health ./sales --fail-if 'read_ratio > 1.5'")
@table_argument
@click.option(
    "--columns",
    shell_complete=offered_columns,
    help="Measure by these columns, a,b.  [default: the clustering columns]",
)
@workload_option(
    "Measure by the columns that its predicates compare most, at most four: a file of"
    " predicates (JSON lines, or .sql), or a source of `workload import`."
)
@click.option("--where", help="Measure only files that this SQL predicate may match.")
@click.option(
    "--sample",
    is_flag=True,
    help="Compare with a full rewrite by rows of up to 256 files, not by the log alone.",
)
@click.option(
    "--cubes", is_flag=True, help="List the ZCubes instead: files that were clustered together."
)
@limit_option
@click.option(
    "--fail-if",
    "bars",
    multiple=True,
    help='Exit with 6 if this is true: "read_ratio > 1.5"; repeats, one true bar suffices.',
)
@click.option(
    "--openmetrics",
    type=LOCAL_FILE,
    help="Also write the numbers to this file, for Prometheus; replaces it.",
)
@click.option(
    "--trend", type=LOCAL_FILE, help="Also append the JSON document to this file, as one line."
)
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
    from liquidlog.report import tables

    if cubes:
        given = [name for name in _WITH_CUBES if click.get_current_context().params.get(name)]
        if given:
            name = "fail-if" if given[0] == "bars" else given[0]
            raise UsageError(f"--{name} has no effect with --cubes, which only lists", option=name)
        rows = table.open().cubes()
        emit(first_of(rows, limit), tables.cubes, root="cubes")
        say_rest(rows.num_rows, limit)
        return EXIT_OK
    if limit is not None:
        raise UsageError("--limit says how many --cubes to list; give that too", option="limit")
    limits = [parse_bar(bar) for bar in bars]
    if trend is not None:
        require_lines(trend, _TREND_FIELDS, kind="a trend of health")
    opened = table.open()
    names = None if columns is None else split_names(columns)
    if columns is not None and workload is not None:
        raise UsageError("give either --columns or --workload to measure by")
    asked = workload_at(workload, opened.uri, table.options)
    measured = opened.health(names, workload=asked, where=where, sample=sample)
    if openmetrics is not None:
        from liquidlog.report.tables import openmetrics as render_openmetrics

        replace_file(openmetrics, render_openmetrics(measured))
    if trend is not None:
        append_line(trend, render_line(measured))
    emit(measured, tables.health)
    return _said(limits, measured)


def _said(bars: "Sequence[HealthBar]", measured: "Health") -> int:
    from liquidlog.clustering.health import is_crossed, is_measured, require_measured

    unmeasured = [bar for bar in bars if not is_measured(bar, measured)]
    crossed = [bar for bar in bars if bar not in unmeasured and is_crossed(bar, measured)]
    for bar in crossed:
        say(f"bar crossed: {bar.text}")
    for bar in unmeasured:
        if not crossed:  # what cannot be judged did not pass either
            require_measured(bar, measured)
        say(f"bar not judged: {bar.text}")
    return EXIT_BAR_CROSSED if crossed else EXIT_OK


_WITH_CUBES: Final = ("columns", "workload", "where", "sample", "bars", "openmetrics", "trend")


@verb("liquidlog scan ./sales --where \"day = '2026-01-31'\"")
@table_argument
@click.option("--where", help="The query's SQL predicate.")
@workload_option(
    "A file of weighted predicates (JSON lines, or .sql), or a source of `workload import`."
)
@click.option("--time-zone", help="The readers' time zone, like Europe/Berlin.  [default: any]")
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
    from liquidlog.report import tables

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
@workload_option(
    "Judge for these readers: a file of weighted predicates (JSON lines, or .sql), or a"
    " source of `workload import`.  [default: full scans, and queries for one value of a column]"
)
@bar_options
def report(table: Address, output: Path, workload: str | None, bar: Mapping[str, Any]) -> None:
    """Say whether to rewrite, and why, on one HTML page.

    The page shows what readers open now and after a rewrite, findings, health and the history of
    the table. It loads nothing from the network.
    """
    from liquidlog.report.page import page

    opened = table.open()
    asked = workload_at(workload, opened.uri, table.options)
    overview = opened.overview(workload=asked, workload_source=workload, **bar)
    content = page(overview, workload=workload or "W").encode()
    replace_file(output, content)
    done: dict[str, Any] = {
        "output": str(output),
        "version": overview.detail["version"],
        "size_bytes": len(content),
        "findings": len(overview.findings),
    }
    if is_json():
        done["verdict"] = overview.verdict
    elif overview.verdict is not None:
        done = {"answer": overview.verdict.sentence, **done}
    emit(done, pairs)
