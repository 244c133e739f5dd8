"""Commands that look after what is around a table's versions."""

from functools import partial

import click

from liquidlog.cli.common import (
    Pairs,
    dry_run_option,
    emit,
    first_of,
    json_option,
    limit_option,
    mapping,
    table_argument,
    tell_rest,
)
from liquidlog.errors import UsageError
from liquidlog.report import changes
from liquidlog.table import Table


@click.command()
@table_argument
@dry_run_option
@json_option
def checkpoint(table: str, storage_options: Pairs, *, dry_run: bool, as_json: bool) -> None:
    """Give the newest version a checkpoint, so that it opens without older commits."""
    made = Table.open(table, storage_options=mapping(storage_options)).checkpoint(dry_run=dry_run)
    shown = partial(changes.checkpointed, dry_run=dry_run)
    emit(made, shown, as_json=as_json, dry_run=dry_run)


@click.command()
@table_argument
@click.option("--delete", is_flag=True, help="Delete the orphans.")
@click.option(
    "--older-than",
    default="1d",
    show_default=True,
    help="Take a run for dead that has written nothing for so long: 30m, 12h, 7d.",
)
@click.option(
    "--finished",
    is_flag=True,
    help="Take those of finished runs, too, although their results can still be committed.",
)
@dry_run_option
@limit_option
@json_option
def orphans(  # noqa: PLR0913  one parameter per option
    table: str,
    older_than: str,
    limit: int | None,
    storage_options: Pairs,
    *,
    delete: bool,
    finished: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """List the files that killed and forgotten runs left, which no version names; delete them."""
    if dry_run and not delete:
        raise UsageError("--dry-run says what --delete would do; give --delete too")
    opened = Table.open(table, storage_options=mapping(storage_options))
    rows = opened.orphans(older_than=older_than, finished=finished, delete=delete, dry_run=dry_run)
    found = [row for row in rows if row["orphan"]]
    document = {
        "files": first_of(rows, limit),
        "orphan_count": len(found),
        "orphan_bytes": sum(row["size_bytes"] for row in found),
        "deleted": delete,
    }
    gone = sum(row["deleted"] for row in rows)
    shown = partial(changes.orphans, gone=gone, dry_run=dry_run)
    emit(document, shown, as_json=as_json, dry_run=dry_run)
    tell_rest(len(rows), limit)
