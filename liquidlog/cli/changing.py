"""Commands that create tables, append rows, change columns and properties; none rewrites a file."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from liquidlog.cli.options import (
    PAIR,
    Pairs,
    dry_run_option,
    files,
    json_option,
    mapping,
    offered_columns,
    table_argument,
    verb,
)
from liquidlog.cli.output import emit, require_consent
from liquidlog.clustering.settings import split_names
from liquidlog.data.append import read_schema
from liquidlog.definition.property_rules import ProtocolChange, clustering_protocol_change
from liquidlog.errors import CorruptLogError, DocumentError, UsageError
from liquidlog.operations.rewrite import read_file
from liquidlog.report import changes
from liquidlog.report.layout import Line, Report
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import MODE, StructType, parse_schema
from liquidlog.storage.addresses import is_local
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table, create_table, define_table


@verb("liquidlog create ./sales --schema-from day1.parquet --cluster-by day,store")
@table_argument
@click.option("--schema-from", help="Take the schema of this Parquet file.")
@click.option("--schema", "schema_json", help="Take the schema in this file of Delta's JSON.")
@click.option("--like", help="Copy schema, properties, clustering or partition columns of it.")
@click.option("--cluster-by", help="Clustering columns: a,b.  [default: none, or those of --like]")
@click.option("--partition-by", help="Partition columns: a,b.  [default: none, or those of --like]")
@click.option(
    "--column-mapping",
    type=click.Choice(["name", "id"]),
    help="Column mapping mode.  [default: none]",
)
@click.option(
    "--property", "properties", multiple=True, type=PAIR, help="A table property; repeats."
)
@dry_run_option
@json_option
def create(
    table: str,
    schema_from: str | None,
    schema_json: str | None,
    like: str | None,
    cluster_by: str | None,
    partition_by: str | None,
    column_mapping: str | None,
    properties: Pairs,
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create an empty table."""
    if sum(option is not None for option in (schema_from, schema_json, like)) != 1:
        raise UsageError("give one of --schema-from, --schema and --like")
    options = mapping(storage_options)
    wanted = mapping(properties)
    if column_mapping and any(name.lower() == MODE.lower() for name in wanted):
        raise UsageError(f"give either --column-mapping or --property {MODE}")
    definition = define_table(
        schema=_schema(schema_from, schema_json, options),
        like=None if like is None else Table.open(like, storage_options=options_of(like, options)),
        cluster_by=None if cluster_by is None else split_names(cluster_by),
        partition_by=None if partition_by is None else split_names(partition_by),
        properties={**wanted, **({MODE: column_mapping} if column_mapping else {})},
    )
    create_table(table, definition, storage_options=options, dry_run=dry_run)
    emit_created(dry_run=dry_run, as_json=as_json)


@verb("liquidlog append ./sales day1.parquet day2.parquet --cluster")
@table_argument
@click.argument("sources", nargs=-1, required=True, metavar="FILE.parquet...", shell_complete=files)
@click.option(
    "--cluster",
    is_flag=True,
    help="Sort each batch of rows along the curve of the clustering columns.",
)
@dry_run_option
@json_option
def append(
    table: str,
    sources: tuple[str, ...],
    storage_options: Pairs,
    *,
    cluster: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Append Parquet files as new files, in one commit.

    The command writes their rows again, with the statistics that clustering needs.
    """
    opened = Table.open(table, storage_options=mapping(storage_options))
    appended = opened.append(sources, cluster=cluster, dry_run=dry_run)
    shown = partial(changes.appended, dry_run=dry_run)
    emit(appended, shown, as_json=as_json, dry_run=dry_run)


@verb(
    "liquidlog cluster-by ./sales day,store",
    "liquidlog cluster-by ./sales day,store --yes",
    "liquidlog cluster-by ./sales --none",
)
@table_argument
@click.argument("columns", required=False, shell_complete=offered_columns)
@click.option("--none", is_flag=True, help="Remove the clustering columns.")
@click.option(
    "--yes", is_flag=True, help="Do not ask before the protocol changes, which locks writers out."
)
@dry_run_option
@json_option
def cluster_by(
    table: str,
    columns: str | None,
    storage_options: Pairs,
    *,
    none: bool,
    yes: bool = False,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the clustering columns; rewrites no file.

    The first ones change the table's protocol, and writers that do not know the feature can no
    longer write. It says so and asks; where nobody can answer, it wants --yes.
    """
    if none == (columns is not None):
        raise UsageError("give either the clustering columns, as a,b, or --none")
    opened = Table.open(table, storage_options=mapping(storage_options))
    names = None if columns is None else split_names(columns)
    change = None if names is None else clustering_protocol_change(opened.snapshot())
    if change is not None:
        opened.cluster_by(names, dry_run=True)  # what cannot be done is not asked for
        if not dry_run:
            require_consent(str(change), yes=yes, can_ask=not as_json)
    version = opened.cluster_by(names, dry_run=dry_run)
    is_new = version != opened.opened.seen_version
    shown = partial(changes.clustered, names=names, is_new=is_new, dry_run=dry_run)
    protocol = None if change is None else {"before": change.before, "after": change.after}
    emit(
        {"version": version, "protocol_change": protocol},
        partial(_with_protocol, shown=shown, change=change if dry_run else None),
        as_json=as_json,
        dry_run=dry_run,
    )


def _with_protocol(
    result: Mapping[str, Any],
    *,
    shown: Callable[[Mapping[str, Any]], Report],
    change: ProtocolChange | None,
) -> Report:
    said = () if change is None else (Line(f"would ask first: {change}"),)
    return (*said, *shown(result))


@verb("liquidlog drop-feature ./sales clustering", "liquidlog drop-feature ./sales domainMetadata")
@table_argument
@click.argument("feature")
@click.option(
    "--truncate-history",
    is_flag=True,
    help="Refused, with the reason: no feature that can be dropped here asks for it.",
)
@dry_run_option
@json_option
def drop_feature(
    table: str,
    feature: str,
    storage_options: Pairs,
    *,
    truncate_history: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Drop a table feature, so that other writers can write.

    The feature is clustering, and then domainMetadata: delta-rs knows neither. Clustering columns
    go with them; no file is rewritten, no history is truncated.
    """
    opened = Table.open(table, storage_options=mapping(storage_options))
    dropped = opened.drop_feature(feature, truncate_history=truncate_history, dry_run=dry_run)
    shown = partial(changes.dropped_feature, dry_run=dry_run)
    emit(dropped, shown, as_json=as_json, dry_run=dry_run)


def emit_created(*, dry_run: bool, as_json: bool) -> None:
    """Print that a table was created, or would be."""
    shown = partial(changes.created, dry_run=dry_run)
    emit({"version": 0}, shown, as_json=as_json, dry_run=dry_run)


def emit_altered(opened: Table, version: int, what: str, *, dry_run: bool, as_json: bool) -> None:
    """Print the version of a table that has a change, or would have it."""
    is_new = version != opened.opened.seen_version
    shown = partial(changes.altered, has=f"has {what}", have=f"have {what}", is_new=is_new)
    emit({"version": version}, partial(shown, dry_run=dry_run), as_json=as_json, dry_run=dry_run)


def options_of(address: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the storage options for another table than the one they were given for."""
    return {} if is_local(address) else options


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
            "is not a Delta schema: expected the JSON of a struct, as schemaString of a metaData"
            " action has it; --schema-from takes a Parquet file",
        ) from error
