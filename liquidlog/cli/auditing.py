"""Commands that judge a table: how healthy it is, what is wrong with it."""

from functools import partial
from pathlib import Path
from typing import Final

import click

from liquidlog.cli.common import (
    Pairs,
    dry_run_option,
    emit,
    json_option,
    mapping,
    split_names,
    table_argument,
)
from liquidlog.cli.outputs import append_line, replace_file, require_lines
from liquidlog.clustering.health.bars import is_crossed, parse_bar
from liquidlog.doctor.findings import FIXES
from liquidlog.errors import EXIT_BAR_CROSSED, EXIT_OK, UsageError
from liquidlog.report import tables
from liquidlog.report.jsonable import render_line
from liquidlog.report.layout import pairs
from liquidlog.report.openmetrics import openmetrics as render_openmetrics
from liquidlog.report.page import page
from liquidlog.report.printing import say
from liquidlog.table import Table

_TREND_FIELDS: Final = ("table_uri", "total_file_count", "average_depth")
"""By which a line of a trend is known, of this release or another."""


@click.command()
@table_argument
@click.option("--columns", help="Measure by these columns instead of the clustering columns.")
@click.option("--where", help="Measure only files that this SQL predicate may match.")
@click.option(
    "--fail-if",
    "bars",
    multiple=True,
    help='Exit with 6 if true: "average_depth > 8"; repeats, any one will do.',
)
@click.option(
    "--openmetrics",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the numbers here, for Prometheus; replaces the file.",
)
@click.option(
    "--trend",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also append the document with its times to this file, as one line of JSON.",
)
@json_option
def health(  # noqa: PLR0913  one parameter per option
    table: str,
    columns: str | None,
    where: str | None,
    bars: tuple[str, ...],
    openmetrics: Path | None,
    trend: Path | None,
    storage_options: Pairs,
    *,
    as_json: bool,
) -> int:
    """Show how well the table is clustered."""
    limits = [parse_bar(bar) for bar in bars]
    if trend is not None:
        require_lines(trend, _TREND_FIELDS, kind="a trend of health")
    opened = Table.open(table, storage_options=mapping(storage_options))
    names = None if columns is None else split_names(columns)
    measured = opened.health(names, where=where)
    crossed = [limit for limit in limits if is_crossed(limit, measured)]
    if openmetrics is not None:
        replace_file(openmetrics, render_openmetrics(measured))
    if trend is not None:
        append_line(trend, render_line(measured))
    emit(measured, tables.health, as_json=as_json)
    for limit in crossed:
        say(f"bar crossed: {limit.text}")
    return EXIT_BAR_CROSSED if crossed else EXIT_OK


@click.command()
@table_argument
@click.option(
    "--fix",
    "names",
    multiple=True,
    type=click.Choice(FIXES),
    help="Mend this, without rewriting a file; repeats.",
)
@dry_run_option
@json_option
def doctor(
    table: str, names: tuple[str, ...], storage_options: Pairs, *, dry_run: bool, as_json: bool
) -> None:
    """Find what is wrong with the clustering, with the command that mends it."""
    if dry_run and not names:
        raise UsageError("--dry-run has no effect without --fix: nothing would be written anyway")
    opened = Table.open(table, storage_options=mapping(storage_options))
    fixed = opened.fix(*names, dry_run=dry_run) if names else ()
    document = {"findings": opened.doctor(), "fixed": fixed}
    shown = partial(tables.diagnosis, dry_run=dry_run)
    emit(document, shown, as_json=as_json, dry_run=dry_run)


@click.command()
@table_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Write the page here; replaces the file.",
)
@json_option
def report(table: str, output: Path, storage_options: Pairs, *, as_json: bool) -> None:
    """Write one HTML page: health, findings, pictures, the past; it needs no network."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    overview = opened.overview()
    content = page(overview).encode()
    replace_file(output, content)
    done = {
        "output": str(output),
        "version": overview.detail["version"],
        "size_bytes": len(content),
        "findings": len(overview.findings),
    }
    emit(done, pairs, as_json=as_json)
