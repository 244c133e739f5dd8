"""Statements of SQL on a Spark session: tables by path or by name, answers as DataFrames."""

import json
from typing import TYPE_CHECKING, Any

from liquidlog.errors import TableNotFoundError, UsageError
from liquidlog.operations.optimize import expected_metrics, partition_where
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.operations.workloads import read_workload
from liquidlog.predicates.workload import Workload
from liquidlog.report.jsonable import jsonable
from liquidlog.sql import statements as ask
from liquidlog.sql.parser import parse_statement
from liquidlog.storage.options import OptionsSource, StorageOptions
from liquidlog.table import Table
from liquidspark.tables import (
    ADVICE,
    HEALTH,
    DeltaTable,
    create_table,
    empty_frame,
    frame,
    optimize_frame,
    quoted,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    if isinstance(asked, ask.Creation):
        _create(spark, asked, storage_options)
        return empty_frame(spark)
    try:
        opened = open_table(spark, asked.table, storage_options)
    except TableNotFoundError:
        if isinstance(asked, ask.RewriteStatement) and asked.if_exists:
            return optimize_frame(spark, str(asked.table), [])
        raise
    match asked:
        case ask.RewriteStatement():
            return _rewritten(spark, opened.table, asked)
        case ask.Vacuum(retain_hours=hours, dry_run=dry_run):
            return opened.vacuumed(hours, dry_run=dry_run)
        case ask.Alteration():
            getattr(opened.table, asked.method)(*asked.names, **asked.arguments)
            return empty_frame(spark)
        case ask.Question():
            return _answered(spark, opened, asked, storage_options)


def open_table(
    spark: "SparkSession", name: ask.TableName, storage_options: OptionsSource | None = None
) -> DeltaTable:
    """Return the table of a statement."""
    if isinstance(name, ask.TableAt):
        return DeltaTable.forPath(spark, name.uri, storage_options=storage_options)
    return DeltaTable.forName(spark, quoted(name.parts), storage_options)


def _answered(
    spark: "SparkSession",
    opened: DeltaTable,
    asked: ask.Question,
    storage_options: OptionsSource | None,
) -> "DataFrame":
    match asked.verb:
        case "detail":
            return opened.detail()
        case "history":
            return opened.history(asked.limit)
        case "health":
            return frame(spark, [jsonable(opened.table.health())], HEALTH)
        case _:
            workload = _workload(opened.table, asked.sources, storage_options)
            return _advice(spark, opened.table, workload)


def _rewritten(spark: "SparkSession", table: Table, asked: ask.RewriteStatement) -> "DataFrame":
    policy: dict[str, Any] = {"strategy": "overlap", "where": asked.where}
    if not asked.recluster:
        policy = {"full": asked.full}
        if asked.where is not None:
            policy["where"] = partition_where(table.snapshot(), asked.where)
        if asked.zorder_by:
            policy["zorder_by"] = asked.zorder_by
    if asked.explain:
        plan = table.plan(**policy)
        require_rewritable(table.opened, plan)
        return optimize_frame(spark, table.uri, [expected_metrics(table.opened, plan, {})])
    done = table.optimize(spark, final=asked.final or None, **policy)
    rounds = [one.done.metrics for one in done.rounds] if asked.final else [done.metrics]
    return optimize_frame(spark, table.uri, rounds)


def _create(
    spark: "SparkSession",
    asked: ask.Creation,
    storage_options: OptionsSource | None,
) -> None:
    if isinstance(asked.table, ask.TableAt) and asked.location is not None:
        raise UsageError(
            f"{asked.table} says where the table is; leave LOCATION out", location=asked.location
        )
    definition = dict(asked.definition)
    if asked.like is not None:
        definition["like"] = open_table(spark, asked.like, storage_options).table
    create_table(
        spark,
        name=None if isinstance(asked.table, ask.TableAt) else asked.table.parts,
        location=asked.table.uri if isinstance(asked.table, ask.TableAt) else asked.location,
        if_not_exists=asked.if_not_exists,
        definition=definition,
        storage_options=storage_options,
    )


def _workload(
    table: Table, sources: tuple[str, ...], storage_options: OptionsSource | None
) -> Workload:
    """Return the queries in sources; without sources, those that the table's log records."""
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
