"""The command that takes a statement of SQL: each is the call of the verb that it stands for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from liquidlog.cli.completion import executors, one_of
from liquidlog.cli.defaults import storage_defaults
from liquidlog.cli.options import (
    Pairs,
    dry_run_option,
    json_option,
    mapping,
    storage_option,
    verb,
    workload_at,
)
from liquidlog.cli.output import emit
from liquidlog.cli.values import PAIR, SIZE
from liquidlog.errors import TableNotFoundError, UsageError
from liquidlog.operations.executors import SPARK
from liquidlog.report.layout import Line, Report
from liquidlog.spec.schema import Path, quote_path, quote_paths
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
    help="What rewrites the files.  [default: spark]",
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
    if isinstance(asked, ask.Rewrite):
        return caller.rewrite(asked, {**engine, "executor": executor or SPARK})
    if isinstance(asked, ask.Vacuum):
        return caller.vacuum(asked)
    return caller.look(asked) if isinstance(asked, ask.Question) else caller.change(asked)


def _require_effect(asked: ask.Statement, *, asks_of_an_executor: bool, dry_run: bool) -> None:
    if not isinstance(asked, ask.Rewrite) and asks_of_an_executor:
        raise UsageError(
            "--executor, --spark-conf and --local-limit have an effect on OPTIMIZE and RECLUSTER"
            " only"
        )
    if isinstance(asked, ask.Question) and dry_run:
        raise UsageError("--dry-run has no effect: the statement writes nothing", option="dry_run")


class _Caller:
    """Calls verbs with what statements ask for, and with the options that all verbs have."""

    def __init__(
        self, context: click.Context, storage_options: Pairs, *, dry_run: bool, as_json: bool
    ) -> None:
        self._context = context
        self._storage_options = storage_options
        self._dry_run = dry_run
        self._as_json = as_json

    def look(self, asked: ask.Question) -> Any:  # noqa: ANN401
        """Call the verb of a statement that writes nothing."""
        table = address(asked.table)
        match asked:
            case ask.DescribeDetail():
                return self._call("detail", table=table)
            case ask.DescribeHistory(limit=limit):
                return self._call("history", table=table, limit=limit)
            case ask.ClusteringInformation(columns=columns):
                names = None if columns is None else _listed(columns)
                return self._call("health", table=table, columns=names)
            case ask.Advise(sources=sources):
                return self._call("advise", table=table, workloads=sources or self._own(table))

    def _own(self, table: str) -> tuple[str, ...]:
        """Return a table as the source of what readers ask: its DELETEs, UPDATEs and MERGEs."""
        try:
            opened = Table.open(table, storage_options=self._options)
            workload_at(table, opened, self._storage_options)
        except UsageError as error:
            raise UsageError(
                "the table's log records no query; say where queries are recorded, as ADVISE t FROM"
                " 'queries.sql'"
            ) from error
        return (table,)

    def rewrite(self, asked: ask.Rewrite, running: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Call `optimize` for a statement that rewrites files."""
        table = address(asked.table)
        running = dict(running)
        local_limit = running.pop("local_limit")
        limit = () if local_limit is None else (f"local_limit={local_limit}",)
        if isinstance(asked, ask.Recluster):
            if asked.if_exists and self._found(table) is None:
                return self._say({"versions": [], "groups": []}, f"nothing to do: no table {table}")
            return self._write(
                "optimize",
                table=table,
                strategy="overlap",
                set_=(*(["final=true"] if asked.final else []), *limit),
                where=asked.where,
                **running,
            )
        where = None
        if asked.where is not None:
            from liquidlog.operations.optimize import partition_where

            snapshot = Table.open(table, storage_options=self._options).snapshot()
            where = partition_where(snapshot, asked.where)
        self._dry_run = self._dry_run or asked.explain
        zorder_by = _listed(asked.zorder_by) if asked.zorder_by else None
        policy = {"full": asked.full, "zorder_by": zorder_by, "where": where, "set_": limit}
        return self._write("optimize", table=table, **policy, **running)

    def change(self, asked: ask.Creation | ask.Alteration) -> Any:  # noqa: ANN401
        """Call the verb of a statement that changes a table without a rewrite."""
        if isinstance(asked, ask.Creation):
            return self._create(asked)
        table = address(asked.table)
        match asked:
            case ask.ClusterBy(columns=columns):
                names = None if columns is None else _listed(columns)
                none = columns is None
                return self._write("cluster-by", table=table, columns=names, none=none, yes=True)
            case ask.RenameColumn(old=old, new=new):
                return self._renamed(table, quote_path(old), quote_path((new,)))
            case ask.DropColumn():
                return self._drop(table, asked)
            case ask.DropFeature(feature=feature, truncate_history=truncate):
                return self._write(
                    "drop-feature", table=table, feature=feature, truncate_history=truncate
                )
            case ask.AddColumns():
                return self._add(asked)
            case ask.SetProperties(properties=properties):
                return self._properties(table, tuple(properties.items()), ())
            case ask.UnsetProperties():
                return self._unset(table, asked)

    def vacuum(self, asked: ask.Vacuum) -> Any:  # noqa: ANN401
        """Call `vacuum`."""
        self._dry_run = self._dry_run or asked.dry_run
        retain = None if asked.retain_hours is None else f"{asked.retain_hours}h"
        return self._write("vacuum", table=address(asked.table), retain=retain)

    def _create(self, asked: ask.Creation) -> None:
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
        if isinstance(asked, ask.CreateTable):
            definition = define_table(
                schema=asked.schema,
                cluster_by=quote_paths(asked.cluster_by),
                properties=asked.properties,
                description=asked.description,
            )
        else:
            like = address(asked.like)
            source = Table.open(like, storage_options=options_of(like, self._options))
            definition = define_table(like=source, properties=asked.properties)
        create_table(table, definition, storage_options=self._options, dry_run=self._dry_run)
        emit_created(dry_run=self._dry_run, as_json=self._as_json)

    def _drop(self, table: str, asked: ask.DropColumn) -> Any:  # noqa: ANN401
        name = quote_path(asked.column)
        snapshot = Table.open(table, storage_options=self._options).snapshot()
        if not asked.has_effect(snapshot.schema):
            text = f"nothing to do: version {snapshot.version} already has no column {name}"
            return self._say({"version": snapshot.version}, text)
        return self._altered(
            table, lambda it: it.drop_column(name, dry_run=self._dry_run), f"no column {name}"
        )

    def _add(self, asked: ask.AddColumns) -> None:
        into = quote_path(asked.into) if asked.into else None
        names = ", ".join(quote_path((*asked.into, one.name)) for one in asked.columns.fields)

        def change(opened: Table) -> int:
            return opened.add_columns(asked.columns, into=into, dry_run=self._dry_run)

        text = f"the new column{'s' if len(asked.columns.fields) > 1 else ''} {names}"
        self._altered(address(asked.table), change, text)

    def _unset(self, table: str, asked: ask.UnsetProperties) -> Any:  # noqa: ANN401
        snapshot = Table.open(table, storage_options=self._options).snapshot()
        names = asked.found_in(snapshot.metadata.configuration)
        if not names:
            text = f"nothing to do: version {snapshot.version} already has no such property"
            return self._say({"version": snapshot.version}, text)
        return self._properties(table, (), names)

    def _properties(self, table: str, given: Pairs, unset: tuple[str, ...]) -> Any:  # noqa: ANN401
        def change(opened: Table) -> int:
            return opened.set_properties(mapping(given), unset=unset, dry_run=self._dry_run)

        self._altered(table, change, "these properties")

    def _renamed(self, table: str, old: str, new: str) -> None:
        def change(opened: Table) -> int:
            return opened.rename_column(old, new, dry_run=self._dry_run)

        self._altered(table, change, f"the column {new} instead of {old}")

    def _altered(self, table: str, change: Callable[[Table], int], what: str) -> None:
        from liquidlog.cli.changing import emit_altered

        opened = Table.open(table, storage_options=self._options)
        version = change(opened)
        emit_altered(opened, version, what, dry_run=self._dry_run, as_json=self._as_json)

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

    @property
    def _options(self) -> Mapping[str, str]:
        return mapping(self._storage_options)

    def _found(self, table: str) -> Table | None:
        """Return a table, None if there is none."""
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


def _listed(columns: Sequence[Path]) -> str:
    return ",".join(quote_paths(columns))
