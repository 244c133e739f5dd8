"""Commands that look after what is around a table's versions."""

import click

from liquidlog.cli.common import Pairs, dry_run_option, emit, json_option, mapping, table_argument
from liquidlog.report import text
from liquidlog.table import Table


@click.command()
@table_argument
@dry_run_option
@json_option
def checkpoint(table: str, storage_options: Pairs, *, dry_run: bool, as_json: bool) -> None:
    """Give the newest version a checkpoint, so that it opens without older commits."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    emit(opened.checkpoint(dry_run=dry_run), text.checkpointed, as_json=as_json)


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
@json_option
def orphans(
    table: str,
    older_than: str,
    storage_options: Pairs,
    *,
    delete: bool,
    finished: bool,
    as_json: bool,
) -> None:
    """List the files that killed and forgotten runs left, which no version names; delete them."""
    opened = Table.open(table, storage_options=mapping(storage_options))
    rows = opened.orphans(older_than=older_than, finished=finished, delete=delete)
    found = [row for row in rows if row["orphan"]]
    document = {
        "files": list(rows),
        "orphan_count": len(found),
        "orphan_bytes": sum(row["size_bytes"] for row in found),
        "deleted": delete,
    }
    emit(document, text.orphans, as_json=as_json)
