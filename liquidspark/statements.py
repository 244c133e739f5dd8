"""Statements of SQL on a Spark session: tables by path or by name, answers as DataFrames."""

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from liquidlog.errors import TableNotFoundError, UsageError
from liquidlog.operations.optimize import Optimized, refuse_where
from liquidlog.operations.scan import read_workload
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Workload
from liquidlog.report.jsonable import jsonable
from liquidlog.spec.schema import Path, find_column, quote_path
from liquidlog.sql.parser import parse_statement
from liquidlog.sql.statements import (
    AddColumns,
    Advise,
    ClusterBy,
    ClusteringInformation,
    CreateTable,
    CreateTableLike,
    DescribeDetail,
    DescribeHistory,
    DropColumn,
    DropFeature,
    Optimize,
    Recluster,
    RenameColumn,
    SetProperties,
    TableAt,
    TableName,
    UnsetProperties,
    Vacuum,
)
from liquidlog.storage.options import OptionsSource, StorageOptions
from liquidlog.table import Table
from liquidspark import catalog
from liquidspark.answers import (
    ADVICE,
    HEALTH,
    empty_frame,
    frame,
    optimize_frame,
)
from liquidspark.tables import DeltaTable, create_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Change = (
    ClusterBy
    | RenameColumn
    | DropColumn
    | DropFeature
    | AddColumns
    | SetProperties
    | UnsetProperties
)
"""Statements that change a table that is there, and rewrite no file."""

Answered = (
    DescribeDetail
    | DescribeHistory
    | ClusteringInformation
    | Advise
    | Optimize
    | Recluster
    | Vacuum
)
"""Statements that answer with rows."""


def sql(
    spark: "SparkSession", statement: str, *, storage_options: OptionsSource | None = None
) -> "DataFrame":
    """Run one statement about a table and return its answer, without columns if it has none.

    Tables are named by delta.`path`, by a path in quotes, or by their name in the session's
    catalog. DESCRIBE and OPTIMIZE answer with the columns that Delta Spark gives them, EXPLAIN
    OPTIMIZE with those of OPTIMIZE.

    Args:
        spark: The session that rewrites files and knows names.
        statement: One statement; docs/reference/sql.md lists them.
        storage_options: With which tables are opened.

    Raises:
        UsageError: If the text is no statement that there is; its arguments are the line and the
            column of the word. Or if the statement asks for what the table cannot have.
        TableNotFoundError: If there is no such table.
        LiquidlogError: As the method of `Table` that the statement stands for.
    """
    asked = parse_statement(statement)
    if isinstance(asked, CreateTable | CreateTableLike):
        _create(spark, asked, storage_options)
        return empty_frame(spark)
    try:
        table = open_table(spark, asked.table, storage_options)
    except TableNotFoundError:
        if isinstance(asked, Recluster) and asked.if_exists:
            return optimize_frame(spark, str(asked.table), [])
        raise
    return _answered(spark, table, asked, storage_options)


def open_table(
    spark: "SparkSession", name: TableName, storage_options: OptionsSource | None = None
) -> DeltaTable:
    """Return the table of a statement.

    Raises:
        TableNotFoundError: If there is no table.
        UsageError: If a name is not that of a Delta table.
    """
    if isinstance(name, TableAt):
        return DeltaTable.forPath(spark, name.uri, storage_options)
    return DeltaTable.forName(spark, catalog.quoted(name.parts), storage_options)


def _answered(
    spark: "SparkSession",
    opened: DeltaTable,
    asked: Answered | Change,
    storage_options: OptionsSource | None,
) -> "DataFrame":
    table = opened.table
    match asked:
        case DescribeDetail():
            return opened.detail()
        case DescribeHistory(limit=limit):
            return opened.history(limit)
        case ClusteringInformation(columns=columns):
            health = table.health(None if columns is None else _quoted(columns))
            return frame(spark, [jsonable(health)], HEALTH)
        case Advise(sources=sources):
            return _advice(spark, table, _workload(table, sources, storage_options))
        case Optimize():
            return _optimized(spark, table, asked)
        case Vacuum(retain_hours=hours, dry_run=dry_run):
            return opened.vacuumed(hours, dry_run=dry_run)
        case Recluster():
            return _reclustered(spark, table, asked)
        case _:
            _changed(table, asked)
            return empty_frame(spark)


def _optimized(spark: "SparkSession", table: Table, asked: Optimize) -> "DataFrame":
    if asked.where is not None:
        refuse_where(table.snapshot(), asked.where)
    policy: dict[str, Any] = {"full": asked.full}
    if asked.zorder_by:
        policy["zorder_by"] = _quoted(asked.zorder_by)
    if not asked.explain:
        return optimize_frame(spark, table.uri, [table.optimize(spark, **policy).metrics])
    plan = table.plan(**policy)
    table.require_writable(plan)
    return optimize_frame(spark, table.uri, [table.planned_metrics(plan)])


def _reclustered(spark: "SparkSession", table: Table, asked: Recluster) -> "DataFrame":
    policy: dict[str, Any] = {"strategy": "overlap", "where": asked.where}
    if not asked.final:
        return optimize_frame(spark, table.uri, [table.optimize(spark, **policy).metrics])
    rounds = table.optimize_in_rounds(partial(_executed, spark, table), **policy)
    return optimize_frame(spark, table.uri, [one.done.metrics for one in rounds])


def _executed(spark: "SparkSession", table: Table, plan: ClusteringPlan) -> Optimized:
    return table.rewrite_and_commit(plan, spark)


def _changed(table: Table, asked: Change) -> None:
    match asked:
        case ClusterBy(columns=columns):
            table.cluster_by(None if columns is None else _quoted(columns))
        case RenameColumn(old=old, new=new):
            table.rename_column(quote_path(old), quote_path((new,)))
        case DropColumn(column=column, if_exists=if_exists):
            if not if_exists or find_column(table.snapshot().schema, column) is not None:
                table.drop_column(quote_path(column))
        case DropFeature(feature=feature, truncate_history=truncate):
            table.drop_feature(feature, truncate_history=truncate)
        case AddColumns(columns=columns, into=into):
            table.add_columns(columns, into=quote_path(into) if into else None)
        case SetProperties(properties=properties):
            table.set_properties(properties)
        case UnsetProperties():
            _unset(table, asked)


def _unset(table: Table, asked: UnsetProperties) -> None:
    there = {name.lower() for name in table.snapshot().metadata.configuration}
    found = [name for name in asked.names if not asked.if_exists or name.lower() in there]
    if found:
        table.set_properties({}, unset=found)


def _create(
    spark: "SparkSession",
    asked: CreateTable | CreateTableLike,
    storage_options: OptionsSource | None,
) -> None:
    if isinstance(asked.table, TableAt) and asked.location is not None:
        raise UsageError(
            f"{asked.table} says where the table is; leave LOCATION out", location=asked.location
        )
    definition: dict[str, Any] = {"properties": asked.properties}
    if isinstance(asked, CreateTable):
        definition |= {
            "schema": asked.schema,
            "cluster_by": _quoted(asked.cluster_by),
            "description": asked.description,
        }
    else:
        definition["like"] = open_table(spark, asked.like, storage_options).table
    create_table(
        spark,
        name=None if isinstance(asked.table, TableAt) else asked.table.parts,
        location=asked.table.uri if isinstance(asked.table, TableAt) else asked.location,
        if_not_exists=asked.if_not_exists,
        definition=definition,
        storage_options=storage_options,
    )


def _workload(
    table: Table, sources: tuple[str, ...], storage_options: OptionsSource | None
) -> Workload:
    """Return what readers ask; without sources, what the table's own log records of them.

    Raises:
        UsageError: If a source is not a workload, or nothing is recorded.
    """
    options = StorageOptions.of(storage_options)
    named = sources or (table.uri,)
    try:
        read = [read_workload(one, table=table.uri, storage_options=options) for one in named]
    except UsageError as error:
        if sources:
            raise
        raise UsageError(
            "the table's log records no query; say where queries are recorded, as ADVISE t FROM"
            " 'queries.sql'"
        ) from error
    return tuple(predicate for one in read for predicate in one)


def _advice(spark: "SparkSession", table: Table, workload: Workload) -> "DataFrame":
    document = jsonable(table.advise(workload).document())
    recommended = document["recommended"]
    row = {
        "recommended": None if recommended is None else recommended["columns"],
        "reason": document["reason"],
        "document": json.dumps(document),
    }
    return frame(spark, [row], ADVICE)


def _quoted(columns: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(quote_path(path) for path in columns)
