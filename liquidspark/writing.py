"""DataFrames into Delta tables: appended, or in place of the rows that a condition names.

Nothing here needs Delta's jars: the files are written by this package's tasks, in the layout of the
table's clustering columns, and the log layer commits them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from liquidlog.errors import UsageError
from liquidlog.plan import WritePlan, Written
from liquidlog.rewriting.options import ExecutorOptions
from liquidlog.spec.arguments import address, one, transaction
from liquidlog.spec.paths import commit_name
from liquidlog.storage.addresses import file_address
from liquidlog.storage.options import OptionsSource
from liquidlog.table import Size, Table
from liquidspark import frames
from liquidspark.aligning import frame_schema
from liquidspark.probing import require_ready
from liquidspark.versions import reads_nothing_below, require_frame

if TYPE_CHECKING:
    from os import PathLike

DEFAULT_OPTIONS: Final = ExecutorOptions()


@dataclass(frozen=True, slots=True)
class _Request:
    """Arguments of `Table.plan_write`."""

    cluster: bool
    max_file_size: Size | None
    merge_schema: bool
    where: str | None = None

    def plan(self, table: Table, df: DataFrame) -> WritePlan:
        return table.plan_write(
            frame_schema(df),
            cluster=self.cluster,
            max_file_size=self.max_file_size,
            merge_schema=self.merge_schema,
            where=self.where,
        )


def append(
    df: DataFrame,
    table: "Table | str | PathLike[str]",
    *,
    cluster: bool = True,
    max_file_size: Size | None = None,
    merge_schema: bool = False,
    txn: tuple[str, int] | None = None,
    blind: bool | None = None,
    options: ExecutorOptions = DEFAULT_OPTIONS,
    storage_options: OptionsSource | None = None,
) -> Written:
    """Append the rows of a DataFrame in one commit, and return what that did.

    With `cluster`, the files are one cube of the table's clustering columns: rows are sampled,
    placed along the curve and sorted, as a rewrite does it. Without, rows go to files as they come.
    Columns are matched by name. Those that the DataFrame lacks get their generating expression,
    their default, or null. CHECK constraints, NOT NULL and the lengths of char and varchar hold for
    every row, or nothing is committed. Without rows there is no commit.

    Args:
        df: A DataFrame of a classic or Connect session whose workers can import this package. It is
            evaluated twice, if rows are clustered.
        table: The table, or its address.
        cluster: Whether rows are placed by the table's clustering columns.
        max_file_size: Of the files; None for what the table remembers, else 128 MiB.
        merge_schema: Whether columns that the table lacks are added to it.
        txn: (application id, version): the commit sets this transaction, and if the table has this
            version or a later one, nothing is written. So an append can be repeated safely.
        blind: Whether the rows were made without a look at the table. The log has it
            (`isBlindAppend`), and Delta Spark lets changes of other rows go on beside a blind
            append. None for True if the DataFrame's plan shows that it reads none of the table's
            files, else False: rows of Python, RDDs, caches, streams and Connect show nothing.
        options: How the work is divided.
        storage_options: Open the table's files, if `table` is an address.

    Raises:
        SchemaMismatchError: If the DataFrame does not fit the table's schema; has every problem.
        UsageError: If the table has no clustering columns to cluster by, or an argument is wrong.
        UnsupportedFeatureError: If the table requires more of a writer than we do.
        ExecutorError: If rows violate what the table asks of them, or a job failed; nothing was
            committed, and no file is left.
        CommitConflictError: If the table changed meanwhile such that the rows do not fit it.
        CommitStateUnknownError: If the commit may or may not have landed.
    """
    opened = opened_table(table, storage_options)
    request = _Request(cluster, max_file_size, merge_schema)
    if blind is not None:
        one(blind, bool, argument="blind", expected="True or False")
    return _write(df, opened, request, txn=txn, options=options, blind=blind)


def overwrite(
    df: DataFrame,
    table: "Table | str | PathLike[str]",
    *,
    where: str,
    cluster: bool = True,
    max_file_size: Size | None = None,
    merge_schema: bool = False,
    txn: tuple[str, int] | None = None,
    options: ExecutorOptions = DEFAULT_OPTIONS,
    storage_options: OptionsSource | None = None,
) -> Written:
    """Put the rows of a DataFrame in place of those of which `where` is true, in one commit.

    `where` is a condition in SQL, "true" for all rows. It must be true of every row of the
    DataFrame. Files of which statistics prove that it is true for all rows are removed; files of
    which it may be true for some are rewritten, their other rows with the new ones. Rows that
    others add meanwhile and that `where` may be true of are a conflict: after the commit, the rows
    of which it is true are those of the DataFrame.

    Args:
        df: As for `append`.
        table: The table, or its address.
        where: Which rows are replaced.
        cluster: As for `append`.
        max_file_size: As for `append`.
        merge_schema: As for `append`.
        txn: As for `append`.
        options: As for `append`.
        storage_options: As for `append`.

    Raises:
        SchemaMismatchError: If the DataFrame does not fit the table's schema; has every problem.
        UsageError: If `where` cannot be used, or rows would have to move that cannot, as the table
            records changes or row ids; or as for `append`.
        UnsupportedFeatureError: If the table requires more of a writer than we do.
        ExecutorError: If rows violate what the table asks of them, or a job failed; nothing was
            committed, and no file is left.
        CommitConflictError: If rows to replace came, went or changed meanwhile.
        CommitStateUnknownError: If the commit may or may not have landed.
    """
    opened = opened_table(table, storage_options)
    one(where, str, argument="where", expected="a condition in SQL")
    request = _Request(cluster, max_file_size, merge_schema, where)
    return _write(df, opened, request, txn=txn, options=options, blind=False)


def require_fitting(
    df: DataFrame, table: Table, *, cluster: bool, max_file_size: Size | None, merge_schema: bool
) -> None:
    """Refuse rows that `append` with the same arguments would refuse for their schema.

    Raises:
        LiquidlogError: As `append`.
    """
    _Request(cluster, max_file_size, merge_schema).plan(table, df)


def opened_table(table: object, storage_options: OptionsSource | None) -> Table:
    """Return a table, or the one at an address.

    Raises:
        UsageError: If it is neither, or there are options for a table that has its own.
        LiquidlogError: If it cannot be opened.
    """
    if isinstance(table, Table):
        if storage_options is not None:
            raise UsageError("storage_options are for an address; the table has its own")
        return table
    return Table.open(address(table, argument="table"), storage_options=storage_options)


def _write(
    df: DataFrame,
    table: Table,
    request: _Request,
    *,
    txn: tuple[str, int] | None,
    options: ExecutorOptions,
    blind: bool | None,
) -> Written:
    """Write and commit; if the commit cannot land, the files that were written are deleted."""
    require_frame(df, argument="df")
    one(options, ExecutorOptions, argument="options", expected="ExecutorOptions")
    txn = transaction(txn, argument="txn")
    done = None if txn is None else table.opened.last_transaction(txn[0])
    if txn is not None and done is not None and done >= txn[1]:
        return Written(version=table.snapshot().version, files=0, rows=0, skipped=True)
    plan = request.plan(table, df)
    directory = file_address(plan.table_uri, "").rstrip("/")
    require_ready(
        df.sparkSession,
        directory=directory,
        file=f"{directory}/_delta_log/{commit_name(plan.read_version)}",
        storage=table.opened.store.storage,
    )
    is_blind = reads_nothing_below(df, directory) if blind is None else blind
    result = frames.write_frame(df, plan, storage=table.opened.store.storage, options=options)
    return table.commit_write(plan, result, txn=txn, blind=is_blind)
