"""Commands that only read."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from liquidlog.cli.common import (
    Pairs,
    emit,
    first_of,
    json_option,
    limit_option,
    mapping,
    policy_options,
    table_argument,
    tell_rest,
)
from liquidlog.cli.outputs import replace_file
from liquidlog.cli.planning import make_plan, plan_arguments, price_options
from liquidlog.cli.usage import WholeNumber
from liquidlog.errors import UsageError
from liquidlog.operations.scan import read_workload
from liquidlog.plan import encode_plan, plan_document
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.report import plans, tables
from liquidlog.report.layout import pairs
from liquidlog.simulation.prices import Prices, costs
from liquidlog.table import Table

P = ParamSpec("P")
R = TypeVar("R")


def version_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the two ways to name a version of a table."""
    command = click.option("--timestamp", help="As it was at this time: 2026-01-31T12:00:00Z.")(
        command
    )
    return click.option("--version", type=WholeNumber(min=0), help="At this version.")(command)


def chosen_version(table: Table, version: int | None, timestamp: str | None) -> int | None:
    """Return the version that the options name, None for the newest.

    Raises:
        UsageError: If both are given.
        TimestampNotFoundError: If the log does not tell the version at that time.
    """
    if timestamp is None:
        return version
    if version is not None:
        raise UsageError("give either --version or --timestamp")
    return table.version_at(timestamp)


@click.command()
@table_argument
@version_options
@json_option
def detail(
    table: str,
    version: int | None,
    timestamp: str | None,
    storage_options: Pairs,
    *,
    as_json: bool,
) -> None:
    """Show the table as DESCRIBE DETAIL does."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    chosen = chosen_version(opened, version, timestamp)
    emit(opened.detail(chosen), pairs, as_json=as_json)


@click.command()
@table_argument
@limit_option
@click.option("--amplification", is_flag=True, help="Bytes written new and moved, oldest first.")
@json_option
def history(
    table: str, limit: int | None, storage_options: Pairs, *, amplification: bool, as_json: bool
) -> None:
    """Show the commits, newest first."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    if amplification:
        written = opened.written_bytes()
        shown = written[-limit:] if limit else written
        emit(shown, tables.amplification, as_json=as_json, root="amplification")
        tell_rest(len(written), limit)
        return
    emit(opened.history(limit), tables.history, as_json=as_json, root="history")
    if limit is not None:
        tell_rest(opened.commit_count(), limit)


@click.command()
@table_argument
@version_options
@limit_option
@json_option
def files(
    table: str,
    version: int | None,
    timestamp: str | None,
    limit: int | None,
    storage_options: Pairs,
    *,
    as_json: bool,
) -> None:
    """List the live files and their place in the clustering."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    chosen = chosen_version(opened, version, timestamp)
    snapshot_version, live = opened.files_at(chosen)
    shown = first_of(live, limit)
    document = {"version": snapshot_version, "files": shown}
    emit(document if as_json else shown, tables.files, as_json=as_json)
    tell_rest(live.num_rows, limit)


@click.command()
@table_argument
@limit_option
@json_option
def cubes(table: str, limit: int | None, storage_options: Pairs, *, as_json: bool) -> None:
    """List the ZCubes."""
    rows = Table.open(table, storage_options=mapping(storage_options)).cubes()
    emit(first_of(rows, limit), tables.cubes, as_json=as_json, root="cubes")
    tell_rest(rows.num_rows, limit)


@click.command()
@table_argument
@click.option("--where", help="The SQL predicate that is asked with.")
@click.option("--workload", help="A file of weighted predicates: JSON lines, or .sql.")
@click.option("--time-zone", help="The readers' time zone, like Europe/Berlin; else any.")
@version_options
@limit_option
@json_option
def scan(  # noqa: PLR0913  one parameter per option
    table: str,
    where: str | None,
    workload: str | None,
    time_zone: str | None,
    version: int | None,
    timestamp: str | None,
    limit: int | None,
    storage_options: Pairs,
    *,
    as_json: bool,
) -> None:
    """List the files that a reader of a predicate must open."""
    if (where is None) == (workload is None):
        raise UsageError("give either --where or --workload")
    asked = () if workload is None else read_workload(workload)
    opened = Table.open(table, storage_options=mapping(storage_options))
    chosen = chosen_version(opened, version, timestamp)
    found = opened.scan(where, workload=asked, version=chosen, time_zone=time_zone)
    shown = replace(found, files=first_of(found.files, limit))
    emit(shown.document() if as_json else shown, tables.scan, as_json=as_json)
    tell_rest(found.files.num_rows, limit)


@click.command()
@table_argument
@policy_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Save the plan here.")
@click.option("--workload", help="Predict what its weighted predicates will read: JSONL or .sql.")
@click.option("--sample", is_flag=True, help="Predict from rows of the files, not statistics.")
@price_options
@json_option
def plan(  # noqa: PLR0913  one parameter per option
    table: str,
    policy: Mapping[str, Any],
    output: str | None,
    workload: str | None,
    prices: Prices | None,
    storage_options: Pairs,
    *,
    sample: bool,
    as_json: bool,
) -> None:
    """Show what OPTIMIZE would rewrite; writes nothing to the table."""
    if workload is None and "where" not in policy:
        _refuse_without_readers(prices, sample=sample)
    asked = () if workload is None else read_workload(workload)
    opened = Table.open(table, storage_options=mapping(storage_options))
    made = make_plan(opened, policy)
    if not asked and made.policy.where is not None:
        asked = (WeightedPredicate(made.policy.where),)
    predicted = opened.predict(made, asked, sample=sample) if asked else None
    if output is not None:
        replace_file(Path(output), encode_plan(made))
    if predicted is None:
        emit(made, plans.plan, as_json=as_json)
        return
    paid = None if prices is None else costs(predicted, prices)
    document = {**plan_document(made), "prediction": predicted.document()}
    if paid is not None:
        document["costs"] = paid.document()
    emit(document if as_json else (made, predicted, paid), plans.predicted_plan, as_json=as_json)


def _refuse_without_readers(prices: Prices | None, *, sample: bool) -> None:
    if prices is not None:
        raise UsageError("--throughput needs readers to predict for: --workload, or --where")
    if sample:
        raise UsageError("--sample needs readers to predict for: --workload, or --where")


@click.command()
@table_argument
@policy_options
@click.option("--file", "path", help="Explain only this file.")
@click.option("--all", "every", is_flag=True, help="List every file; --json always does.")
@click.option(
    "--replay", "replayed", type=WholeNumber(min=1), help="Compare with this OPTIMIZE commit."
)
@limit_option
@json_option
def explain(  # noqa: PLR0913  one parameter per option
    table: str,
    policy: Mapping[str, Any],
    path: str | None,
    replayed: int | None,
    limit: int | None,
    storage_options: Pairs,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Say why files are or are not candidates, counted by reasons, or each with --all."""
    if replayed is not None and (path is not None or every or limit is not None):
        raise UsageError("--replay compares whole plans; it goes with no --file, --all or --limit")
    opened = Table.open(table, storage_options=mapping(storage_options))
    if replayed is not None:
        if policy.get("full"):
            raise UsageError("--full has no effect with --replay: the commit tells if it was full")
        found = opened.replay(replayed, **plan_arguments(policy))
        emit(found, plans.replayed, as_json=as_json)
        return
    made = make_plan(opened, policy)
    if path is None and limit is None and not every and not as_json:
        emit(opened.explain_together(made), plans.explanation, as_json=False)
        return
    rows = opened.explain(made, path=path)
    emit(first_of(rows, limit), plans.explained_files, as_json=as_json, root="explain")
    tell_rest(len(rows), limit)
