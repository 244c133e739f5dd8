"""The command that takes a statement of SQL: each is the call of the verb that it stands for."""

from collections.abc import Mapping
from typing import Any

import click

from liquidlog.cli.defaults import storage_defaults
from liquidlog.cli.options import (
    PAIR,
    SIZE,
    Pairs,
    dry_run_option,
    executors,
    json_option,
    mapping,
    one_of,
    storage_option,
    verb,
    workload_at,
)
from liquidlog.cli.output import emit
from liquidlog.errors import TableNotFoundError, UsageError
from liquidlog.operations.executors import AUTO
from liquidlog.report.layout import Line, Report
from liquidlog.snapshot import Snapshot
from liquidlog.sql import statements as ask
from liquidlog.sql.parser import parse_statement
from liquidlog.table import Table, create_table, define_table


@verb(
    'liquidlog sql "ALTER TABLE delta.\\`./sales\\` CLUSTER BY (day, store)"',
    "liquidlog sql \"OPTIMIZE './sales'\" --dry-run",
)
@click.argument("statement")
@click.option(
    "--executor",
    shell_complete=one_of(executors),
    help="What rewrites the files.  [default: auto]",
)
@click.option("--spark-conf", multiple=True, type=PAIR, help="A Spark setting; repeats.")
@click.option("--local-limit", type=SIZE, help="With --executor local: refuse larger plans.")
@storage_option
@dry_run_option
@json_option
@click.pass_context
def sql(
    context: click.Context,
    statement: str,
    executor: str | None,
    spark_conf: Pairs,
    local_limit: int | None,
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> Any:  # noqa: ANN401  what the verb returns
    """Run one statement of SQL about a table.

    It does and prints what the verb does that it stands for. Tables are given by path, in quotes or
    as delta.`path`; without Spark there is no catalog of names.
    """
    asked = parse_statement(statement)
    engine = {"executor": executor, "spark_conf": spark_conf, "local_limit": local_limit}
    asks = executor is not None or bool(spark_conf) or local_limit is not None
    _require_effect(asked, asks_of_an_executor=asks, dry_run=dry_run)
    if isinstance(asked.table, ask.TableAt):
        storage_options = storage_options or storage_defaults(asked.table.uri)
    caller = _Caller(context, storage_options, dry_run=dry_run, as_json=as_json)
    match asked:
        case ask.RewriteStatement():
            return caller.rewrite(asked, {**engine, "executor": executor or AUTO})
        case ask.Vacuum():
            return caller.vacuum(asked)
        case ask.Question():
            return caller.look(asked)
        case ask.Alteration():
            return caller.alter(asked)
        case ask.Creation():
            return caller.create(asked)


def _require_effect(asked: ask.Statement, *, asks_of_an_executor: bool, dry_run: bool) -> None:
    if not isinstance(asked, ask.RewriteStatement) and asks_of_an_executor:
        raise UsageError(
            "--executor, --spark-conf and --local-limit have an effect on OPTIMIZE and RECLUSTER"
            " only"
        )
    if isinstance(asked, ask.Question) and dry_run:
        raise UsageError("--dry-run has no effect: the statement writes nothing", option="dry_run")


class _Caller:
    def __init__(
        self, context: click.Context, storage_options: Pairs, *, dry_run: bool, as_json: bool
    ) -> None:
        self._context = context
        self._storage_options = storage_options
        self._options = mapping(storage_options)
        self._dry_run = dry_run
        self._as_json = as_json

    def look(self, asked: ask.Question) -> Any:  # noqa: ANN401
        table = address(asked.table)
        match asked.verb:
            case "history":
                return self._call("history", table=table, limit=asked.limit)
            case "advise":
                workloads = asked.sources or self._own(table)
                return self._call("advise", table=table, workloads=workloads)
            case verb_name:
                return self._call(verb_name, table=table)

    def _own(self, table: str) -> tuple[str, ...]:
        try:
            opened = Table.open(table, storage_options=self._options)
            workload_at(table, opened, self._storage_options)
        except UsageError as error:
            raise UsageError(
                "the table's log records no query; say where queries are recorded, as ADVISE t FROM"
                " 'queries.sql'"
            ) from error
        return (table,)

    def rewrite(self, asked: ask.RewriteStatement, running: Mapping[str, Any]) -> Any:  # noqa: ANN401
        table, where = address(asked.table), asked.where
        if asked.if_exists and self._found(table) is None:
            return self._say({"versions": [], "groups": []}, f"nothing to do: no table {table}")
        self._dry_run = self._dry_run or asked.explain
        running = dict(running)
        local_limit = running.pop("local_limit")
        limit = () if local_limit is None else (f"local_limit={local_limit}",)
        policy: dict[str, Any] = {"set_": (*(["final=true"] if asked.final else []), *limit)}
        if asked.recluster:
            policy |= {"strategy": "overlap"}
        else:
            if where is not None:
                from liquidlog.operations.optimize import partition_where

                where = partition_where(self._snapshot(table), where)
            policy |= {"full": asked.full, "zorder_by": ",".join(asked.zorder_by) or None}
        return self._write("optimize", table=table, where=where, **policy, **running)

    def alter(self, asked: ask.Alteration) -> Any:  # noqa: ANN401
        table, given = address(asked.table), asked.arguments
        if asked.method == "cluster_by":
            none = given["columns"] is None
            columns = None if none else ",".join(given["columns"])
            return self._write("cluster-by", table=table, columns=columns, none=none, yes=True)
        if asked.method == "drop_feature":
            return self._write("drop-feature", table=table, **given)
        from liquidlog.cli.changing import emit_altered

        opened = Table.open(table, storage_options=self._options)
        version = getattr(opened, asked.method)(*asked.names, **given, dry_run=self._dry_run)
        return emit_altered(
            opened, version, asked.has, dry_run=self._dry_run, as_json=self._as_json
        )

    def vacuum(self, asked: ask.Vacuum) -> Any:  # noqa: ANN401
        self._dry_run = self._dry_run or asked.dry_run
        retain = None if asked.retain_hours is None else f"{asked.retain_hours}h"
        return self._write("vacuum", table=address(asked.table), retain=retain)

    def create(self, asked: ask.Creation) -> None:
        from liquidlog.cli.changing import emit_created, options_of

        if asked.location is not None:
            raise UsageError(
                "LOCATION is for tables with a name, and without Spark there is no catalog of"
                " names; leave it out, and give the path as delta.`path`",
                location=asked.location,
            )
        table = address(asked.table)
        there = self._found(table) if asked.if_not_exists else None
        if there is not None:
            version = there.snapshot().version
            self._say({"version": version}, f"nothing to do: version {version} is there already")
            return
        source = None
        if asked.like is not None:
            like = address(asked.like)
            source = Table.open(like, storage_options=options_of(like, self._options))
        definition = define_table(like=source, **asked.definition)
        create_table(table, definition, storage_options=self._options, dry_run=self._dry_run)
        emit_created(dry_run=self._dry_run, as_json=self._as_json)

    def _write(self, verb_name: str, /, **arguments: Any) -> Any:  # noqa: ANN401
        return self._call(verb_name, dry_run=self._dry_run, **arguments)

    def _call(self, verb_name: str, /, **arguments: Any) -> Any:  # noqa: ANN401
        group = self._context.find_root().command
        command = (
            group.get_command(self._context, verb_name) if isinstance(group, click.Group) else None
        )
        assert command is not None  # noqa: S101  the verbs of main
        return self._context.invoke(
            command,
            storage_options=self._storage_options,
            as_json=self._as_json,
            **arguments,
        )

    def _snapshot(self, table: str) -> Snapshot:
        return Table.open(table, storage_options=self._options).snapshot()

    def _found(self, table: str) -> Table | None:
        try:
            return Table.open(table, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _say(self, document: Mapping[str, Any], text: str) -> None:
        def shown(_: object) -> Report:
            return (Line(text),)

        emit(document, shown, as_json=self._as_json, dry_run=self._dry_run)


def address(table: ask.TableName) -> str:
    """Return the path of a table."""
    if isinstance(table, ask.TableAt):
        return table.uri
    raise UsageError(
        f"{table} is a name, and without Spark there is no catalog of names; give the table's path,"
        " as delta.`/data/sales`, or call liquidspark.sql",
        table=str(table),
    )
