"""Commands that maintain a table: faults, checkpoints, and files that no version needs."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from liquidlog.cli.options import (
    Pairs,
    bar_options,
    dry_run_option,
    json_option,
    limit_option,
    mapping,
    table_argument,
    verb,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import emit, first_of, say_rest
from liquidlog.doctor.findings import FIXES
from liquidlog.errors import UsageError
from liquidlog.report import changes, tables
from liquidlog.table import Table


@verb(
    "liquidlog doctor ./sales",
    "liquidlog doctor ./sales --workload w.jsonl --payback-days 7",
    "liquidlog doctor ./sales --fix broken-domain",
)
@table_argument
@click.option(
    "--fix",
    "names",
    multiple=True,
    type=click.Choice(FIXES),
    help="Repair this, without rewriting a data file; repeats.",
)
@workload_option(
    "Judge rewrites for these readers: JSON lines, .sql, or a source of `workload import`."
    "  [default: full scans, and queries for one value of a column]"
)
@bar_options
@dry_run_option
@json_option
def doctor(
    table: str,
    names: tuple[str, ...],
    workload: str | None,
    bar: Mapping[str, Any],
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Find faults of the clustering, and repair them.

    Each finding names the command that repairs it, if there is one; the first line is the
    verdict on the table. Without --fix nothing is changed.
    """
    if dry_run and not names:
        raise UsageError("--dry-run has no effect without --fix: nothing would be written anyway")
    opened = Table.open(table, storage_options=mapping(storage_options))
    asked = workload_at(workload, opened, storage_options)
    fixed = opened.fix(*names, dry_run=dry_run) if names else ()
    found = opened.doctor(workload=asked, workload_source=workload, **bar)
    document = {
        "findings": found.findings,
        "fixed": fixed,
        "verdict": None if found.verdict is None else found.verdict.document(),
        "workload": None if found.asked is None else found.asked.document(),
    }
    shown = partial(tables.diagnosis, judged=found.verdict, asked=found.asked, dry_run=dry_run)
    emit(document, shown, as_json=as_json, dry_run=dry_run)


@verb("liquidlog checkpoint ./sales")
@table_argument
@dry_run_option
@json_option
def checkpoint(table: str, storage_options: Pairs, *, dry_run: bool, as_json: bool) -> None:
    """Write a checkpoint of the newest version.

    Readers then open the table without reading older commits.
    """
    made = Table.open(table, storage_options=mapping(storage_options)).checkpoint(dry_run=dry_run)
    shown = partial(changes.checkpointed, dry_run=dry_run)
    emit(made, shown, as_json=as_json, dry_run=dry_run)


@verb("liquidlog orphans ./sales", "liquidlog orphans ./sales --older-than 7d --delete")
@table_argument
@click.option("--delete", is_flag=True, help="Delete the orphans.")
@click.option(
    "--older-than",
    default="1d",
    show_default=True,
    help="A run that has written nothing for this long is dead: 30m, 12h, 7d.",
)
@click.option(
    "--finished",
    is_flag=True,
    help="Include files of finished runs, whose results can still be committed.",
)
@dry_run_option
@limit_option
@json_option
def orphans(
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
    """List or delete files that dead or forgotten runs left.

    No version of the table names these files. They are deleted only with --delete.
    """
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
    say_rest(len(rows), limit)


@verb("liquidlog vacuum ./sales --dry-run", "liquidlog vacuum ./sales --retain 30d")
@table_argument
@click.option(
    "--retain",
    help="Keep files that a version within this time needs: 168h, 30d."
    "  [default: delta.deletedFileRetentionDuration, a week]",
)
@click.option(
    "--allow-short-retention",
    is_flag=True,
    help="Allow --retain below that property or a week: readers of older versions fail, and other"
    " engines lose files that they have not committed yet.",
)
@dry_run_option
@limit_option
@json_option
def vacuum(
    table: str,
    retain: str | None,
    limit: int | None,
    storage_options: Pairs,
    *,
    allow_short_retention: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete files that no version within the retention needs.

    Older versions can then no longer be read. Files of runs at work, of saved results and of other
    tables stay, and so does the log.
    """
    if allow_short_retention and retain is None:
        raise UsageError("--allow-short-retention has no effect without --retain")
    opened = Table.open(table, storage_options=mapping(storage_options))
    done = opened.vacuum(
        retain=retain, allow_short_retention=allow_short_retention, dry_run=dry_run
    )
    rows = done.rows()
    document = {
        "versions": done.versions,
        "retention_ms": done.retention_ms,
        "deleted_files": done.deleted_files,
        "deleted_bytes": done.deleted_bytes,
        "files": first_of(rows, limit),
        "kept": done.kept,
    }
    emit(document, partial(changes.vacuumed, dry_run=dry_run), as_json=as_json, dry_run=dry_run)
    say_rest(len(rows), limit)
