"""Commands that change columns and properties; none rewrites a file."""

from functools import partial

import click

from liquidlog.cli.common import (
    PAIR,
    Pairs,
    dry_run_option,
    emit,
    json_option,
    mapping,
    table_argument,
)
from liquidlog.report import changes
from liquidlog.table import Table


@click.command("rename-column")
@table_argument
@click.argument("old")
@click.argument("new")
@dry_run_option
@json_option
def rename_column(
    table: str, old: str, new: str, storage_options: Pairs, *, dry_run: bool, as_json: bool
) -> None:
    """Rename a column; its cubes keep their place in the clustering."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    version = opened.rename_column(old, new, dry_run=dry_run)
    _emit(opened, version, f"the column {new} instead of {old}", dry_run=dry_run, as_json=as_json)


@click.command("drop-column")
@table_argument
@click.argument("name")
@dry_run_option
@json_option
def drop_column(
    table: str, name: str, storage_options: Pairs, *, dry_run: bool, as_json: bool
) -> None:
    """Drop a column that nothing depends on; its values stay in the files, unread."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    version = opened.drop_column(name, dry_run=dry_run)
    _emit(opened, version, f"no column {name}", dry_run=dry_run, as_json=as_json)


@click.command("set-properties")
@table_argument
@click.argument("properties", nargs=-1, type=PAIR, metavar="[K=V]...")
@click.option("--unset", multiple=True, help="A property to remove; repeats.")
@dry_run_option
@json_option
def set_properties(
    table: str,
    properties: Pairs,
    unset: tuple[str, ...],
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set and remove table properties, in one commit."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    version = opened.set_properties(mapping(properties), unset=unset, dry_run=dry_run)
    _emit(opened, version, "these properties", dry_run=dry_run, as_json=as_json)


def _emit(opened: Table, version: int, what: str, *, dry_run: bool, as_json: bool) -> None:
    is_new = version != opened.seen_version
    shown = partial(changes.altered, has=f"has {what}", have=f"have {what}", is_new=is_new)
    emit({"version": version}, partial(shown, dry_run=dry_run), as_json=as_json, dry_run=dry_run)
