"""The command `sql`: parses one statement and calls the verb that does the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from liquidlog import sql as ask
from liquidlog.cli.changing import open_other
from liquidlog.cli.main import cli
from liquidlog.cli.options import (
    SIZE,
    Address,
    dry_run_option,
    executor_option,
    spark_conf_option,
    storage_defaults,
    storage_option,
    verb,
    workload_at,
)
from liquidlog.cli.output import emit, emit_change
from liquidlog.errors import TableNotFoundError, UsageError
from liquidlog.operations.executors import AUTO
from liquidlog.operations.optimize import partition_where
from liquidlog.report import changes
from liquidlog.report.printing import Line
from liquidlog.sql import parse_statement
from liquidlog.table import Table


@verb(
    'liquidlog sql "ALTER TABLE delta.\\`./sales\\` CLUSTER BY (day, store)"',
    "liquidlog sql \"OPTIMIZE './sales'\" --dry-run",
)
@click.argument("statement")
@executor_option("What rewrites the files.  [default: auto]")
@spark_conf_option
@click.option("--local-limit", type=SIZE, help="With --executor local: refuse larger plans.")
@storage_option
@dry_run_option
@click.pass_context
def sql(
    context: click.Context,
    statement: str,
    executor: str | None,
    spark_conf: Mapping[str, str],
    local_limit: int | None,
    storage_options: Mapping[str, str],
    *,
    dry_run: bool,
) -> Any:  # noqa: ANN401  what the verb returns
    """Run one statement of SQL about a table.

    It does and prints what the verb of the same purpose does. Name tables by path, in quotes or
    as delta.`path`; without Spark there is no catalog of names.
    """
    asked = parse_statement(statement)
    has_engine = executor is not None or bool(spark_conf) or local_limit is not None
    if not isinstance(asked, ask.RewriteStatement) and has_engine:
        raise UsageError(
            "--executor, --spark-conf and --local-limit are only for OPTIMIZE and RECLUSTER"
        )
    if isinstance(asked, ask.Question) and dry_run:
        raise UsageError("--dry-run has no effect: the statement writes nothing", option="dry_run")
    if isinstance(asked, ask.Creation) and asked.location is not None:
        raise UsageError(
            "LOCATION is for tables with a name, and without Spark there is no catalog of names;"
            " leave it out, and give the path as delta.`path`",
            location=asked.location,
        )
    uri = address(asked.table)
    table = Address(uri, storage_options or storage_defaults(uri))
    caller = _Caller(context, table, dry_run)
    match asked:
        case ask.RewriteStatement():
            return caller.rewrite(asked, local_limit, executor or AUTO, spark_conf)
        case ask.Vacuum():
            return caller.vacuum(asked)
        case ask.Question():
            return caller.look(asked)
        case ask.Alteration():
            return caller.alter(asked)
        case ask.Creation():
            return caller.create(asked)


@dataclass(slots=True)
class _Caller:
    context: click.Context
    table: Address
    dry_run: bool

    def look(self, asked: ask.Question) -> Any:  # noqa: ANN401
        match asked.verb:
            case "history":
                return self._call("history", limit=asked.limit)
            case "advise":
                return self._call("advise", workloads=asked.sources or self._own_log())
            case verb_name:
                return self._call(verb_name)

    def _own_log(self) -> tuple[str, ...]:
        uri = self.table.uri
        try:
            workload_at(uri, self.table.open().uri, self.table.options)
        except UsageError as error:
            raise UsageError(
                "the table's log records no query; name a source of queries, as ADVISE t FROM"
                " 'queries.sql'"
            ) from error
        return (uri,)

    def rewrite(
        self,
        asked: ask.RewriteStatement,
        local_limit: int | None,
        executor: str,
        spark_conf: Mapping[str, str],
    ) -> Any:  # noqa: ANN401
        where = asked.where
        if asked.if_exists and self._found() is None:
            self._say({"versions": [], "groups": []}, f"nothing to do: no table {self.table.uri}")
            return None
        self.dry_run = self.dry_run or asked.explain
        policy: dict[str, Any] = {"strategy": "overlap"}
        if not asked.recluster:
            if where is not None:
                where = partition_where(self.table.open().snapshot(), where)
            policy = {"full": asked.full, "zorder_by": ",".join(asked.zorder_by) or None}
        limit = [] if local_limit is None else [f"local_limit={local_limit}"]
        policy["set_"] = (*(["final=true"] if asked.final else []), *limit)
        policy |= {"executor": executor, "spark_conf": spark_conf}
        return self._write("optimize", where=where, **policy)

    def alter(self, asked: ask.Alteration) -> Any:  # noqa: ANN401
        given = asked.arguments
        if asked.method == "cluster_by":
            columns = None if given["columns"] is None else ",".join(given["columns"])
            return self._write("cluster-by", columns=columns, none=columns is None, yes=True)
        if asked.method == "drop_feature":
            return self._write("drop-feature", **given)
        opened = self.table.open()
        version = getattr(opened, asked.method)(*asked.names, **given, dry_run=self.dry_run)
        is_new = version != opened.opened.seen_version
        shown = partial(changes.altered, what=asked.has, is_new=is_new)
        return emit_change({"version": version}, shown, dry_run=self.dry_run)

    def vacuum(self, asked: ask.Vacuum) -> Any:  # noqa: ANN401
        self.dry_run = self.dry_run or asked.dry_run
        retain = None if asked.retain_hours is None else f"{asked.retain_hours}h"
        return self._write("vacuum", retain=retain)

    def create(self, asked: ask.Creation) -> None:
        options = self.table.options
        there = self._found() if asked.if_not_exists else None
        if there is not None:
            version = there.snapshot().version
            self._say({"version": version}, f"nothing to do: version {version} is there already")
            return
        source = None if asked.like is None else open_other(address(asked.like), options)
        given = {**asked.definition, "storage_options": options, "dry_run": self.dry_run}
        Table.create(self.table.uri, like=source, **given)
        emit_change({"version": 0}, changes.created, dry_run=self.dry_run)

    def _write(self, verb_name: str, /, **arguments: Any) -> Any:  # noqa: ANN401
        return self._call(verb_name, dry_run=self.dry_run, **arguments)

    def _call(self, verb_name: str, /, **arguments: Any) -> Any:  # noqa: ANN401
        command = cli.get_command(self.context, verb_name)
        assert command is not None  # noqa: S101  a verb of main
        table = {"table": self.table.uri, "storage_options": self.table.options}
        return self.context.invoke(command, **table, **arguments)

    def _found(self) -> Table | None:
        try:
            return self.table.open()
        except TableNotFoundError:
            return None

    def _say(self, document: Mapping[str, Any], text: str) -> None:
        emit(document, lambda _: (Line(text),), dry_run=self.dry_run)


def address(table: ask.TableName) -> str:
    """Return the path of a table; a name is refused."""
    if isinstance(table, ask.TableAt):
        return table.uri
    raise UsageError(
        f"{table} is a name, and without Spark there is no catalog of names; give the table's path,"
        " as delta.`/data/sales`, or call liquidspark.sql",
        table=str(table),
    )
