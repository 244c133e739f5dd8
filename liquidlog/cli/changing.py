"""Commands that change or maintain a table and rewrite none of its files."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from liquidlog.cli.options import (
    Address,
    bar_options,
    dry_run_option,
    judging_workload_option,
    limit_option,
    offered_columns,
    pairs_option,
    table_argument,
    verb,
    workload_at,
)
from liquidlog.cli.options import files as parquet_files
from liquidlog.cli.output import emit, emit_change, first_of, require_consent, say_rest
from liquidlog.clustering.settings import split_names
from liquidlog.definition.create import clustering_protocol_change
from liquidlog.doctor import FIXES
from liquidlog.errors import CorruptLogError, DocumentError, UsageError
from liquidlog.operations.optimize import read_file
from liquidlog.report import changes, tables
from liquidlog.report.printing import Line
from liquidlog.rewriting.inputs import read_schema
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import MODE, StructType, parse_schema
from liquidlog.storage.addresses import StorageOptions, is_local
from liquidlog.table import Table


@verb("liquidlog create ./sales --schema-from day1.parquet --cluster-by day,store")
@table_argument
@click.option("--schema-from", help="Use the schema of this Parquet file.")
@click.option("--schema", "schema_json", help="Use the schema in this file, as Delta's JSON.")
@click.option("--like", help="Copy schema, properties, clustering and partition columns of this.")
@click.option("--cluster-by", help="Clustering columns: a,b.  [default: none, or those of --like]")
@click.option("--partition-by", help="Partition columns: a,b.  [default: none, or those of --like]")
@click.option(
    "--column-mapping",
    type=click.Choice(["name", "id"]),
    help="Column mapping mode.  [default: none]",
)
@pairs_option("--property", "properties", help_text="A table property; repeats.")
@dry_run_option
def create(
    table: Address,
    schema_from: str | None,
    schema_json: str | None,
    like: str | None,
    cluster_by: str | None,
    partition_by: str | None,
    column_mapping: str | None,
    properties: Mapping[str, str],
    *,
    dry_run: bool,
) -> None:
    """Create an empty table."""
    if sum(option is not None for option in (schema_from, schema_json, like)) != 1:
        raise UsageError("give one of --schema-from, --schema and --like")
    if column_mapping and any(name.lower() == MODE.lower() for name in properties):
        raise UsageError(f"give either --column-mapping or --property {MODE}")
    Table.create(
        table.uri,
        schema=_schema(schema_from, schema_json, table.options),
        like=None if like is None else open_other(like, table.options),
        cluster_by=None if cluster_by is None else split_names(cluster_by),
        partition_by=None if partition_by is None else split_names(partition_by),
        properties={**properties, **({MODE: column_mapping} if column_mapping else {})},
        storage_options=table.options,
        dry_run=dry_run,
    )
    emit_change({"version": 0}, changes.created, dry_run=dry_run)


@verb("liquidlog append ./sales day1.parquet day2.parquet --cluster")
@table_argument
@click.argument(
    "sources", nargs=-1, required=True, metavar="FILE.parquet...", shell_complete=parquet_files
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Sort each batch of rows along the curve through the clustering columns.",
)
@dry_run_option
def append(table: Address, sources: tuple[str, ...], *, cluster: bool, dry_run: bool) -> None:
    """Append Parquet files as new files, in one commit.

    It writes their rows again, with the statistics that clustering needs.
    """
    appended = table.open().append(sources, cluster=cluster, dry_run=dry_run)
    emit_change(appended, changes.appended, dry_run=dry_run)


@verb(
    "liquidlog cluster-by ./sales day,store",
    "liquidlog cluster-by ./sales day,store --yes",
    "liquidlog cluster-by ./sales --none",
)
@table_argument
@click.argument("columns", required=False, shell_complete=offered_columns)
@click.option("--none", is_flag=True, help="Remove the clustering columns.")
@click.option(
    "--yes", is_flag=True, help="Change the protocol without asking; it locks some writers out."
)
@dry_run_option
def cluster_by(
    table: Address, columns: str | None, *, none: bool, yes: bool = False, dry_run: bool
) -> None:
    """Set the clustering columns; rewrites no file.

    The first clustering columns change the table's protocol: writers that do not know the feature
    can no longer write. The command asks first; without a terminal it needs --yes.
    """
    if none == (columns is not None):
        raise UsageError("give either the clustering columns, as a,b, or --none")
    opened = table.open()
    names = None if columns is None else split_names(columns)
    change = None if names is None else clustering_protocol_change(opened.snapshot())
    if change is not None:
        opened.cluster_by(names, dry_run=True)  # refuses what cannot be done before it asks
        if not dry_run:
            require_consent(str(change), yes=yes)
    version = opened.cluster_by(names, dry_run=dry_run)
    is_new = version != opened.opened.seen_version
    plural = "s" if names is None or len(names) > 1 else ""
    what = f"{'no' if names is None else 'the'} clustering column{plural} {', '.join(names or ())}"
    asks = () if change is None or not dry_run else (Line(f"would ask first: {change}"),)
    protocol = None if change is None else {"before": change.before, "after": change.after}
    emit(
        {"version": version, "protocol_change": protocol},
        lambda done: (
            *asks,
            *changes.altered(done, what=what.strip(), is_new=is_new, dry_run=dry_run),
        ),
        dry_run=dry_run,
    )


@verb("liquidlog drop-feature ./sales clustering", "liquidlog drop-feature ./sales domainMetadata")
@table_argument
@click.argument("feature")
@click.option(
    "--truncate-history",
    is_flag=True,
    help="Refused: no feature that can be dropped here needs it.",
)
@dry_run_option
def drop_feature(table: Address, feature: str, *, truncate_history: bool, dry_run: bool) -> None:
    """Drop a table feature, so that other writers can write.

    Drop clustering first, then domainMetadata: delta-rs knows neither. The clustering columns are
    dropped with the feature; files and history stay.
    """
    opened = table.open()
    dropped = opened.drop_feature(feature, truncate_history=truncate_history, dry_run=dry_run)
    emit_change(dropped, changes.dropped_feature, dry_run=dry_run)


def open_other(address: str, options: Mapping[str, str]) -> Table:
    """Open a second table with the storage options of the first; on local disk without any."""
    return Table.open(address, storage_options={} if is_local(address) else options)


def _schema(
    schema_from: str | None, schema_json: str | None, storage_options: Mapping[str, str]
) -> StructType | None:
    if schema_from is not None:
        return delta_schema(read_schema(schema_from, StorageOptions.of(storage_options)))
    if schema_json is None:
        return None
    try:
        return parse_schema(read_file(schema_json).decode(), where=schema_json)
    except (CorruptLogError, UnicodeDecodeError) as error:
        raise DocumentError(
            schema_json,
            "is not a Delta schema: expected the JSON of a struct, like schemaString in a metaData"
            " action; --schema-from takes a Parquet file",
        ) from error


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
    help="Repair this fault, without rewriting a data file; repeats.",
)
@judging_workload_option
@bar_options
@dry_run_option
def doctor(
    table: Address,
    names: tuple[str, ...],
    workload: str | None,
    bar: Mapping[str, Any],
    *,
    dry_run: bool,
) -> None:
    """Find faults of the clustering, and repair them.

    The first line is the verdict on the table. Each fault comes with the command that repairs it,
    if there is one. Only --fix changes the table.
    """
    if dry_run and not names:
        raise UsageError("--dry-run has no effect without --fix")
    opened = table.open()
    asked = workload_at(workload, opened.uri, table.options)
    fixed = opened.fix(*names, dry_run=dry_run) if names else ()
    found = opened.doctor(workload=asked, workload_source=workload, **bar)
    document = {"findings": found.findings, "fixed": fixed, "verdict": found.verdict}
    emit_change({**document, "workload": found.queried}, tables.diagnosis, dry_run=dry_run)


@verb("liquidlog checkpoint ./sales")
@table_argument
@dry_run_option
def checkpoint(table: Address, *, dry_run: bool) -> None:
    """Write a checkpoint of the newest version.

    Readers then open the table without reading older commits.
    """
    made = table.open().checkpoint(dry_run=dry_run)
    emit_change(made, changes.checkpointed, dry_run=dry_run)


@verb("liquidlog orphans ./sales", "liquidlog orphans ./sales --older-than 7d --delete")
@table_argument
@click.option("--delete", is_flag=True, help="Delete the orphans.")
@click.option(
    "--older-than",
    default="1d",
    show_default=True,
    help="A run is dead if it wrote nothing for this long: 30m, 12h, 7d.",
)
@click.option(
    "--finished",
    is_flag=True,
    help="Include files of finished runs; their results could still be committed.",
)
@dry_run_option
@limit_option
def orphans(
    table: Address,
    older_than: str,
    limit: int | None,
    *,
    delete: bool,
    finished: bool,
    dry_run: bool,
) -> None:
    """List or delete files that dead or forgotten runs left.

    No version of the table names these files. Only --delete deletes them.
    """
    if dry_run and not delete:
        raise UsageError("--dry-run needs --delete")
    opened = table.open()
    rows = opened.orphans(older_than=older_than, finished=finished, delete=delete, dry_run=dry_run)
    found = [row for row in rows if row["orphan"]]
    document = {
        "files": first_of(rows, limit),
        "orphan_count": len(found),
        "orphan_bytes": sum(row["size_bytes"] for row in found),
        "deleted": delete,
    }
    gone = sum(row["deleted"] for row in rows)
    emit_change(document, partial(changes.orphans, gone=gone), dry_run=dry_run)
    say_rest(len(rows), limit)


@verb("liquidlog vacuum ./sales --dry-run", "liquidlog vacuum ./sales --retain 30d")
@table_argument
@click.option(
    "--retain",
    help="Keep the files of versions within this time: 168h, 30d."
    "  [default: delta.deletedFileRetentionDuration, or a week]",
)
@click.option(
    "--allow-short-retention",
    is_flag=True,
    help="Allow a shorter --retain than the default or a week: readers of older versions fail, and"
    " other engines lose files that they have not committed yet.",
)
@dry_run_option
@limit_option
def vacuum(
    table: Address,
    retain: str | None,
    limit: int | None,
    *,
    allow_short_retention: bool,
    dry_run: bool,
) -> None:
    """Delete files that no version within the retention needs.

    Older versions can then no longer be read. The log stays, and so do files of running rewrites,
    of saved results and of other tables.
    """
    if allow_short_retention and retain is None:
        raise UsageError("--allow-short-retention has no effect without --retain")
    opened = table.open()
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
    emit_change(document, changes.vacuumed, dry_run=dry_run)
    say_rest(len(rows), limit)
