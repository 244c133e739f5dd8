"""DataFrames of tables: append, replace and read rows, and stream rows into a table.

This needs no jars of Delta: tasks of this package read and write the files, in the layout of the
table's clustering columns, and the log layer commits them. The sampling pass evaluates the
clustering columns of the DataFrame, the main pass all columns: its rows are proved to be in the
files.

Every micro-batch of a stream is one commit, exactly once: it is appended with the transaction (id
of the query, number of the batch). The checkpoint keeps the id, so a restarted query does not
repeat a committed batch. Clustering runs beside the stream, without conflicts with its appends.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4  # noqa: TID251  names the files of a run

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, expr
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType as SparkStruct

from liquidlog.data.encodings import convert_chunks, decoded
from liquidlog.data.reader import FilePart, Located, TableRows, with_names_of
from liquidlog.data.runs import Run
from liquidlog.errors import (
    CorruptLogError,
    DataFileError,
    ExecutorError,
    LiquidlogError,
    UsageError,
)
from liquidlog.logs import Log
from liquidlog.plan import GroupCosts, ReadPlan, WritePlan, WriteResult, Written
from liquidlog.rewriting.groups import with_fresh_options
from liquidlog.rewriting.inputs import DEFAULT_OPTIONS, ExecutorOptions, Survey, WritingWork
from liquidlog.rewriting.outputs import (
    Parting,
    TaskFacts,
    Timer,
    arriving_work,
    merge_facts,
    write_in_run,
)
from liquidlog.rewriting.shuffle import FACTS_SCHEMA, build_layout, choose_route, first_ordinals
from liquidlog.spec.actions import commit_name
from liquidlog.spec.arrow import (
    ArrayLimits,
    CharTypeError,
    Limits,
    MapLimits,
    StructLimits,
    TextLimit,
    arrow_schema,
    column_limits,
    has_short_directories,
    without_void,
)
from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    parse_schema,
    plain_nullable,
    schema_json,
)
from liquidlog.spec.text import address, one, refuse, texts, transaction, whole_number
from liquidlog.storage.addresses import OptionsSource, StorageOptions, file_address
from liquidlog.table import Size, Table
from liquidspark.executor import (
    MOST_OPEN,
    Arriving,
    ArrivingTasks,
    AssignedTasks,
    Batches,
    answers_of,
    assigned,
    collected,
    directories_of,
    encoded_request,
    even_sample,
    execute_groups,
    fact_batches,
    map_batches,
    partition_values,
    row_width,
    sampled,
    session_tasks,
    shuffled,
    task_attempts,
    write_plainly,
    write_whole,
)
from liquidspark.session import (
    BYTES_PER_BATCH,
    FEW_ROWS,
    ROWS_PER_BATCH,
    bounded_batches,
    cancel_tagged,
    context_of,
    failure_reason,
    has_setting,
    reads_nothing_below,
    require_frame,
    require_ready,
    setting_of,
    spark_arrow_schema,
    tagged,
)

if TYPE_CHECKING:
    from os import PathLike


_PROBED_ROWS: Final = 20_000
"""Rows whose stored width is measured if the table has too few to tell."""

_BY_BYTES: Final = {BYTES_PER_BATCH: "64m", ROWS_PER_BATCH: "65536"}
_BY_ROWS: Final = {ROWS_PER_BATCH: FEW_ROWS}
"""One number bounds rows of data and pieces, which may have 16 MiB each."""

_KEPT_PER_EVEN_SHARE: Final = 4
_LEAST_KEPT: Final = 4_096
"""A partition returns that many times its even share of the sample, or so many rows."""

_CHECK_COLUMN: Final = "\x00check "
_STORED_COLUMN: Final = "\x00stored "
"""A Delta column can have neither name."""
_NESTED: Final = (StructType, ArrayType, MapType)
_NAMES: Final[Mapping[str, str]] = {
    "long": "BIGINT",
    "integer": "INT",
    "short": "SMALLINT",
    "byte": "TINYINT",
}


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
    """Append the rows of a DataFrame in one commit; return the version, files and rows.

    With `cluster`, the files are one cube of the table's clustering columns: rows are sampled,
    placed along the curve and sorted, as in a rewrite. Otherwise rows are written in their order.
    Columns are matched by name. Missing columns get their generating expression, their default, or
    null. CHECK constraints, NOT NULL and the lengths of char and varchar hold for every row, or
    nothing is committed. Without rows there is no commit.

    Args:
        df: A DataFrame of a classic or Connect session whose workers can import this package. It is
            evaluated twice, if rows are clustered.
        table: The table, or its address.
        cluster: Whether rows are placed by the table's clustering columns.
        max_file_size: The size of the files; None for the table's property, else 128 MiB.
        merge_schema: Whether columns that the table lacks are added to it.
        txn: (application id, version): the commit sets this transaction, and if the table has this
            version or a later one, nothing is written. So an append can be repeated safely.
        blind: Whether the rows were made without reading the table. It goes to the log
            (`isBlindAppend`), and Delta Spark lets changes of other rows go on beside a blind
            append. If it is None, an append is blind if the DataFrame's plan shows that it reads
            none of the table's files; rows of Python, RDDs, caches, streams and Connect do not.
        options: How the work is divided.
        storage_options: Open the table's files, if `table` is an address.

    Raises:
        SchemaMismatchError: If the DataFrame does not fit the table's schema; has every problem.
        UsageError: If the table has no clustering columns to cluster by, or an argument is wrong.
        UnsupportedFeatureError: If the table requires more of a writer than we do.
        ExecutorError: If rows violate a rule of the table, or a job failed; nothing was committed,
            and no file is left.
        CommitConflictError: If the table changed meanwhile so that the rows do not fit it.
        CommitStateUnknownError: If the commit may or may not have landed.
    """
    opened = opened_table(table, storage_options)
    if blind is not None:
        one(blind, bool, argument="blind", expected="True or False")
    policy = {"cluster": cluster, "max_file_size": max_file_size, "merge_schema": merge_schema}
    return _write(df, opened, policy, txn=txn, options=options, blind=blind)


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
    """Replace the rows that match the condition `where` by the rows of a DataFrame, in one commit.

    `where` is a condition in SQL, "true" for all rows; every row of the DataFrame must match it.
    Files are removed if statistics prove that all their rows match. Files are rewritten if some
    rows may match: their other rows are written with the new ones. It is a conflict if others add
    rows meanwhile that may match. The other arguments are those of `append`.

    Raises:
        SchemaMismatchError: If the DataFrame does not fit the table's schema; has every problem.
        UsageError: If `where` cannot be used, or rows would have to move that cannot, as the table
            records changes or row ids; or as for `append`.
        UnsupportedFeatureError: If the table requires more of a writer than we do.
        ExecutorError: If rows violate a rule of the table, or a job failed; nothing was committed,
            and no file is left.
        CommitConflictError: If rows to replace came, went or changed meanwhile.
        CommitStateUnknownError: If the commit may or may not have landed.
    """
    opened = opened_table(table, storage_options)
    one(where, str, argument="where", expected="a condition in SQL")
    policy = {"cluster": cluster, "max_file_size": max_file_size, "merge_schema": merge_schema}
    return _write(df, opened, {**policy, "where": where}, txn=txn, options=options, blind=False)


def opened_table(table: object, storage_options: OptionsSource | None) -> Table:
    if isinstance(table, Table):
        if storage_options is not None:
            raise UsageError("storage_options are for an address; the table has its own")
        return table
    return Table.open(address(table, argument="table"), storage_options=storage_options)


def _write(
    df: DataFrame,
    table: Table,
    policy: Mapping[str, Any],
    *,
    txn: tuple[str, int] | None,
    options: ExecutorOptions,
    blind: bool | None,
) -> Written:
    require_frame(df, argument="df")
    one(options, ExecutorOptions, argument="options", expected="ExecutorOptions")
    txn = transaction(txn)
    done = None if txn is None else table.opened.last_transaction(txn[0])
    if txn is not None and done is not None and done >= txn[1]:
        return Written(version=table.snapshot().version, files=0, rows=0, skipped=True)
    plan = table.plan_write(frame_schema(df), **policy)
    directory = file_address(plan.table_uri, "").rstrip("/")
    require_ready(
        df.sparkSession,
        directory=directory,
        file=f"{directory}/_delta_log/{commit_name(plan.read_version)}",
        storage=table.opened.store.storage,
    )
    is_blind = reads_nothing_below(df, directory) if blind is None else blind
    result = write_frame(df, plan, storage=table.opened.store.storage, options=options)
    return table.commit_write(plan, result, txn=txn, blind=is_blind)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _sql_type(data_type: DataType) -> str:
    match data_type:
        case DecimalType(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case ArrayType(element):
            return f"ARRAY<{_sql_type(element)}>"
        case MapType(key, value):
            return f"MAP<{_sql_type(key)},{_sql_type(value)}>"
        case StructType(fields):
            inside = ",".join(f"{quoted(one.name)}:{_sql_type(one.data_type)}" for one in fields)
            return f"STRUCT<{inside}>"
        case PrimitiveType(name):
            return _NAMES.get(name, name.upper())


def frame_schema(frame: DataFrame) -> StructType:
    return parse_schema(json.dumps(frame.schema.jsonValue()), where="the DataFrame")


@dataclass(frozen=True, slots=True)
class Padding:
    """Columns of char(n), which Spark pads with spaces. Source: Spark, ApplyCharTypePadding."""

    columns: Mapping[str, Column]

    @classmethod
    def of(cls, spark: SparkSession, schema: StructType) -> "Padding":
        """Return the padding of a table's columns; none if the session reads texts unpadded."""
        is_off = setting_of(spark, "spark.sql.readSideCharPadding") == "false"
        if is_off or setting_of(spark, "spark.sql.legacy.charVarcharAsString") == "true":
            return cls({})
        columns = {}
        for named in schema.fields:
            text = quoted(named.name)
            if (padded := _padded(text, column_limits(named))) != text:
                metadata = dict(named.metadata)  # makes Spark pad literals beside the column
                columns[named.name] = expr(padded).alias(named.name, metadata=metadata)
        return cls(columns)

    def padded(self, rows: DataFrame) -> DataFrame:
        if not self.columns:
            return rows
        return rows.select(*(self.columns.get(name, col(quoted(name))) for name in rows.columns))

    def judged(self, rows: DataFrame, judge: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """Return the rows that `judge` returns for padded rows, with their texts unpadded."""
        if not self.columns:
            return judge(rows)
        stored = {name: f"{_STORED_COLUMN}{name}" for name in self.columns}
        both = rows.select("*", *(col(quoted(name)).alias(to) for name, to in stored.items()))
        found = judge(self.padded(both))
        left = [name for name in found.columns if name not in stored.values()]
        return found.select(*(col(quoted(stored.get(name, name))).alias(name) for name in left))


def _padded(text: str, limits: Limits | None, depth: int = 0) -> str:
    """Return a SQL expression with its texts padded, unchanged if it has no char."""
    each = f"x{depth}"
    match limits:
        case TextLimit(length, padded=True):
            return f"rpad({text}, greatest({length}, char_length({text})), ' ')"
        case StructLimits(fields):
            names = [quoted(name) for name, _ in fields]
            parts = [_padded(f"{text}.{quoted(name)}", own, depth) for name, own in fields]
            if parts != [f"{text}.{name}" for name in names]:
                listed = (f"{part} AS {name}" for part, name in zip(parts, names, strict=True))
                return f"IF({text} IS NULL, NULL, struct({', '.join(listed)}))"
        case ArrayLimits(element):
            if (part := _padded(each, element, depth + 1)) != each:
                return f"transform({text}, {each} -> {part})"
        case MapLimits(of_key, of_value):
            key = _padded(f"{each}.key", of_key, depth + 1)
            value = _padded(f"{each}.value", of_value, depth + 1)
            if (key, value) != (f"{each}.key", f"{each}.value"):
                entries = f"transform(map_entries({text}), {each} -> struct({key}, {value}))"
                return f"map_from_entries({entries})"
        case TextLimit() | None:
            pass
    return text


def aligned(frame: DataFrame, plan: WritePlan) -> DataFrame:
    """Return a DataFrame's rows as the table's: its columns in order, then a boolean per check."""
    found = {one.name: one.data_type for one in frame_schema(frame).fields}
    schema = _data_columns(plan)
    wanted = {one.name: one.data_type for one in schema.fields}
    given, computed = [], []
    for source in plan.sources:
        name, kind = quoted(source.name), wanted[source.name]
        cast = f"CAST(({source.expression}) AS {_sql_type(kind)}) AS {name}"
        computed.append(name if source.expression is None else cast)
        if source.column is not None:
            own = found[source.column] == kind or isinstance(kind, _NESTED)
            value = quoted(source.column)
            given.append(f"{value if own else f'CAST({value} AS {_sql_type(kind)})'} AS {name}")
        elif source.expression is None:
            given.append(f"CAST(NULL AS {_sql_type(kind)}) AS {name}")
    checks = [
        f"coalesce(({check.expression}), false) AS {quoted(_CHECK_COLUMN + str(number))}"
        for number, check in enumerate(plan.checks)
    ]
    # Constraints judge rows unpadded, the condition judges rows as Spark reads them.
    conditions = [] if plan.where is None else [checks.pop()]
    padding = Padding.of(frame.sparkSession, schema)
    try:
        rows = frame.selectExpr(*given).selectExpr(*computed)
        rows = rows.selectExpr(*map(quoted, wanted), *checks)
        if conditions:
            rows = padding.judged(rows, lambda these: these.selectExpr("*", *conditions))
        _ = rows.schema  # Spark Connect checks expressions only now
    except PySparkException as error:
        raise UsageError(
            f"Spark cannot evaluate an expression of the table: {failure_reason(error)}"
        ) from error
    return rows


def _conformed(arriving: Arriving, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a DataFrame with the table's names, also in structs."""
    stored = without_void(arriving.work.table_schema)
    logical, names = arrow_schema(stored), [one.physical_name for one in stored.fields]
    for table in arriving.tables(batches):
        given = decoded(pa.table(table.columns, names=names))
        columns = map(with_names_of, given.columns, logical.types)
        yield from pa.Table.from_arrays(list(columns), schema=logical).to_batches()


def _with_kept(rows: DataFrame, plan: WritePlan, storage: StorageOptions) -> DataFrame:
    spark, schema = rows.sparkSession, _data_columns(plan)
    names = [quoted(one.name) for one in schema.fields]
    passed = [f"true AS {quoted(_CHECK_COLUMN + str(n))}" for n in range(len(plan.checks))]
    kinds = _spark_schema(spark, schema)
    if any(isinstance(one.data_type, _NESTED) for one in schema.fields):
        checks = tuple(check.what for check in plan.checks)
        work = replace(arriving_work(plan, "0" * 12, storage.fresh()), slice_bytes=8 << 20)
        conform = partial(_conformed, Arriving(work, checks))
        rows = map_batches(rows, conform, kinds).selectExpr(*names, *passed)
    files = len(plan.rewritten)
    staying = ReadPlan(
        table_uri=plan.table_uri,
        table_id=plan.table_id,
        version=plan.read_version,
        schema_string=plan.schema_string,
        mapping_mode=plan.mapping_mode,
        partition_columns=plan.partition_columns,
        partitions=plan.rewritten_partitions or ({},) * files,
        files=plan.rewritten,
        partition_numbers=tuple(range(files)),
        total_files=files,
    )
    stay = Padding.of(spark, schema).judged(
        _read_by_tasks(spark, staying, kinds, storage),
        lambda these: these.where(f"NOT coalesce(({plan.where}), false)"),
    )
    return rows.union(stay.selectExpr(*names, *passed))


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRun:
    """One attempt to write rows as `aligned` returns them, to `directories` of their partitions."""

    spark: SparkSession
    frame: DataFrame
    plan: WritePlan
    storage: StorageOptions
    options: ExecutorOptions
    token: str = field(default_factory=lambda: uuid4().hex[:12])
    directories: tuple[str, ...] = ()

    def execute(self) -> WriteResult:
        directory = file_address(self.plan.table_uri, "").rstrip("/")
        run = Run(directory, self.token, self.storage, self.directories)
        return write_in_run(self.plan, run, self._written)

    @contextmanager
    def _jobs(self) -> Iterator[None]:
        """Context manager: tags the jobs of this thread, so that an interrupt can cancel them."""
        # A job group would replace the caller's group, which a stopped query uses to cancel jobs.
        tag = f"liquidspark-{self.token}"
        with tagged(self.spark, tag):
            # Without bounded bytes, one number bounds rows of data and pieces, which are large.
            bounded = has_setting(self.spark, BYTES_PER_BATCH)
            try:
                with bounded_batches(self.spark, _BY_BYTES if bounded else _BY_ROWS):
                    yield
            except BaseException as error:
                with suppress(Exception):
                    cancel_tagged(self.spark, tag)
                if isinstance(error, LiquidlogError) or not isinstance(error, Exception):
                    raise
                raise ExecutorError(
                    f"the rows were not written: {failure_reason(error)}; nothing was committed"
                ) from error

    def _work(self) -> WritingWork:
        attempts = task_attempts(self.spark)
        return arriving_work(self.plan, self.token, self.storage, self.options, attempts=attempts)

    def _written(self) -> TaskFacts:
        with self._jobs():
            if self.plan.curve is None:
                return with_fresh_options(self._work(), self._plainly, facts_of=lambda facts: facts)
            return self._along_the_curve()

    def _along_the_curve(self) -> TaskFacts:
        work, sampling = self._work(), Timer()
        with sampling.running():
            surveys, failure = with_fresh_options(work, self._sampled, facts_of=itemgetter(1))
        if failure is not None:
            return failure
        row_bytes = self.plan.row_bytes
        if row_bytes is None:
            row_bytes, failure = with_fresh_options(work, self._measured, facts_of=itemgetter(1))
            if failure is not None:
                return failure
        expected_bytes = int(sum(survey.num_rows for survey in surveys) * row_bytes)
        work = replace(
            work,
            expected_bytes=expected_bytes,
            outputs=max(1, -(-expected_bytes // self.plan.max_file_bytes)),
        )

        def main_pass(sent: WritingWork) -> TaskFacts:
            if expected_bytes > self.options.single_task_bytes:
                return self._shuffled(sent, surveys)
            rows = self.options.sample_rows_of(sent.outputs)
            tasks = partial(fact_batches, sent, partial(write_whole, self._arriving(sent), rows))
            return collected(map_batches(self.frame.repartition(1), tasks, FACTS_SCHEMA))

        facts = with_fresh_options(work, main_pass, facts_of=lambda facts: facts)
        sampled = TaskFacts(costs=GroupCosts(sample_seconds=sampling.seconds))
        return merge_facts([facts, sampled])

    def parted(self) -> "FrameRun":
        """Return the run with the directories of its rows' partitions."""
        parting = Parting.of(self.plan, self.token)
        names = [quoted(one.name) for one in parting.fields]
        # Without DISTINCT, since -0.0 and 0.0 are one value to Spark.
        keys = self.frame.selectExpr(*names)

        def listed(work: WritingWork) -> tuple[list[set[str]], TaskFacts | None]:
            return answers_of(keys, work, partial(directories_of, work, parting))

        with self._jobs():
            found, failure = with_fresh_options(self._work(), listed, facts_of=itemgetter(1))
        if failure is not None:
            raise ExecutorError(f"{failure.failure}; nothing was committed")
        return replace(self, directories=tuple(sorted(set().union(*found))))

    def _plainly(self, work: WritingWork) -> TaskFacts:
        parting, frame = Parting.of(self.plan, self.token), self.frame
        if len(self.directories) > MOST_OPEN or has_short_directories(parting.settings):
            frame = frame.sortWithinPartitions(*(quoted(one.name) for one in parting.fields))
        directories, most = frozenset(self.directories), self.plan.max_file_bytes
        write = partial(write_plainly, self._arriving(work), parting, directories, most)
        return collected(map_batches(frame, partial(fact_batches, work, write), FACTS_SCHEMA))

    def _sampled(self, work: WritingWork) -> tuple[list[Survey], TaskFacts | None]:
        paths = (".".join(map(quoted, column.logical)) for column in self.plan.columns)
        columns = [f"{path} AS c{number}" for number, path in enumerate(paths)]
        wanted = self.options.sample_rows
        # Most rows lie in about as many partitions as the session makes by default.
        context = context_of(self.spark)
        share = wanted // (1 if context is None else int(context.defaultParallelism))
        most = min(wanted, max(_LEAST_KEPT, _KEPT_PER_EVEN_SHARE * share))
        keys = self.frame.selectExpr(*columns)
        surveys, failure = answers_of(keys, work, partial(sampled, work, most))
        found = sorted((survey for survey in surveys if survey.num_rows), key=attrgetter("file"))
        return even_sample(found, wanted), failure

    def _shuffled(self, work: WritingWork, surveys: Sequence[Survey]) -> TaskFacts:
        layout = build_layout(work, surveys)
        work = replace(work, outputs=layout.outputs)
        route = choose_route(work, slices_per_output=layout.slices_per_output)
        files = [one.file for one in surveys]
        tasks = ArrivingTasks(
            work=work,
            layout=layout,
            route=route,
            targets=partition_values(route.tasks),
            arriving=self._arriving(work),
            firsts=dict(zip(files, first_ordinals(surveys), strict=True)),
        )
        return shuffled(self.frame, tasks, work, route)

    def _arriving(self, work: WritingWork) -> Arriving:
        return Arriving(work, tuple(check.what for check in self.plan.checks))

    def _measured(self, work: WritingWork) -> tuple[float, TaskFacts | None]:
        """Return about how many stored bytes a row takes, or why they cannot be measured."""
        width = partial(row_width, self._arriving(work), _PROBED_ROWS)
        # Spark looks at one partition, and at more of them only while it finds no row.
        found, failure = answers_of(self.frame, work, width, most=1)
        return (found[0] if found else 0.0), failure


def write_frame(
    frame: DataFrame, plan: WritePlan, *, storage: StorageOptions, options: ExecutorOptions
) -> WriteResult:
    """Write a DataFrame's rows for a plan, and the other rows of files to rewrite."""
    spark = frame.sparkSession
    rows = aligned(frame, plan)
    if len(plan.rewritten):
        rows = _with_kept(rows, plan, storage)
    run = FrameRun(spark=spark, frame=rows, plan=plan, storage=storage, options=options)
    return (run.parted() if plan.partition_columns else run).execute()


# Rows of a table as a DataFrame: Spark's Python workers read the files

_TASK_BYTES: Final = 32 << 20
"""The stored bytes that a task reads on average."""
_MOST_TASK_BYTES: Final = 48 << 20
_FILE_COST_BYTES: Final = 1 << 20
"""The stored bytes that opening a file counts as."""
_HELD_BYTES: Final = 64 << 20
_BATCH_ROWS: Final = 1 << 15
"""The rows that Spark gets at a time."""


def read(
    spark: SparkSession,
    table: "Table | str | PathLike[str]",
    *,
    where: str | None = None,
    columns: str | Sequence[str] | None = None,
    version: int | None = None,
    storage_options: OptionsSource | None = None,
) -> DataFrame:
    """Return the rows of a table at one version as a DataFrame, without Delta's jars.

    Python workers read the files: deletion vectors, column mapping and partition values are
    applied, texts of CHAR padded as in Spark, and every value is read exactly, or the job fails.
    All values of the columns that are read pass from Python to the JVM. `where` decides which files
    are read; later conditions on the DataFrame only filter rows.

    Args:
        spark: A classic or Connect session. The Python of its workers must be able to import this
            package.
        table: The table, or its address.
        where: A condition on the columns read; only rows that match it are returned. Files without
            such rows are not read.
        columns: Top-level columns to read, in their order; all if None.
        version: The newest version, or that of an opened table, if None.
        storage_options: Open the table's files, if `table` is an address. A callable is called now
            and not again.

    Raises:
        UsageError: If `where` cannot be used, the table lacks a column, or Spark a type.
        UnsupportedFeatureError: If the table requires more of a reader than we do.
        LiquidlogError: If the table cannot be opened.
    """
    if not all(hasattr(type(spark), name) for name in ("read", "version")):
        refuse("spark", "a SparkSession", spark)
    opened = opened_table(table, storage_options)
    if version is None:
        version = opened.snapshot().version
    if where is not None:
        one(where, str, argument="where", expected="a condition in SQL")
    plan = opened.plan_read(where, whole_number(version, argument="version"))
    chosen = _chosen(plan, columns)
    schema = _spark_schema(spark, chosen)
    try:
        padding = Padding.of(spark, chosen)
    except CharTypeError as error:
        raise CorruptLogError(plan.table_uri, str(error)) from error
    found = padding.padded(_read_by_tasks(spark, plan, schema, opened.opened.store.storage))
    return found if where is None else found.where(where)


def _spark_schema(spark: SparkSession, schema: StructType) -> SparkStruct:
    try:
        return SparkStruct.fromJson(json.loads(schema_json(plain_nullable(schema))))
    except ValueError as error:  # variants before 4.0
        raise UsageError(
            f"Spark {spark.version} has no such type: {failure_reason(error)}; name other columns"
        ) from error


def _rows(
    reader: TableRows, schema: SparkStruct, _: int, parts: tuple[FilePart, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in a task's parts of files, in Spark's types."""
    wanted = spark_arrow_schema(schema)
    for part in parts:
        for table in reader.read(part):
            columns = map(convert_chunks, table.columns, wanted.types)
            rows = pa.Table.from_arrays(list(columns), schema=wanted)
            yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


def _read_by_tasks(
    spark: SparkSession, plan: ReadPlan, schema: SparkStruct, storage: StorageOptions
) -> DataFrame:
    """Return the rows of a plan's files, in a frame that Spark never broadcasts."""
    reader = TableRows.of_plan(plan, schema.names, storage=storage.fresh(), max_bytes=_HELD_BYTES)
    task, parts = partial(_rows, reader, schema), [*_of_tasks(_parts(plan))]
    # Spark would broadcast a small frame to join it, but takes an RDD of Python to be large.
    if not parts:
        return spark.createDataFrame([], schema)
    context = context_of(spark)
    if context is None:
        return map_batches(*assigned(spark, task, parts), schema).hint("merge")
    contents = [(number, encoded_request(one)) for number, one in enumerate(parts)]
    rows = context.parallelize(contents, len(contents))
    numbered = spark.createDataFrame(rows, "id bigint, content binary")
    return map_batches(numbered, AssignedTasks(task, None), schema)


def _data_columns(plan: WritePlan | ReadPlan) -> StructType:
    return without_void(parse_schema(plan.schema_string, where="the plan"))


def _chosen(plan: ReadPlan, columns: str | Sequence[str] | None) -> StructType:
    schema = _data_columns(plan)
    if columns is None:
        return schema
    named = texts(columns, argument="columns", of="column names")
    known = {one.name: one for one in schema.fields}
    missing = [name for name in named if name not in known]
    wrong = missing or [name for name in named if named.count(name) > 1]
    if wrong:
        raise UsageError(
            f"columns names {', '.join(dict.fromkeys(wrong))},"
            f" {'which the table lacks' if missing else 'twice'}; it has {', '.join(known)}"
        )
    return StructType(tuple(known[name] for name in named))


def _parts(plan: ReadPlan) -> Iterator[FilePart]:
    for file, number in zip(plan.files, plan.partition_numbers, strict=True):
        try:
            located = Located.of(plan.table_uri, file)
        except DataFileError as error:
            raise CorruptLogError(plan.table_uri, error.message) from error
        whole = FilePart(
            located=located,
            values=plan.partitions[number],
            parts=max(1, round(file.size_bytes / _TASK_BYTES)),
        )
        yield from (replace(whole, part=part) for part in range(whole.parts))


def _of_tasks(parts: Iterable[FilePart]) -> Iterator[tuple[FilePart, ...]]:
    held: list[FilePart] = []
    held_bytes = 0
    for part in parts:
        part_bytes = part.located.file.size_bytes // part.parts + _FILE_COST_BYTES
        if held and held_bytes + part_bytes > _MOST_TASK_BYTES:
            yield tuple(held)
            held, held_bytes = [], 0
        held.append(part)
        held_bytes += part_bytes
    if held:
        yield tuple(held)


_log: Final = Log("liquidlog.streams")
"""The logger for clustering beside a stream."""
_TRIGGERS: Final = frozenset({"availableNow", "once", "processingTime"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineClustering:
    """When and how new files are clustered beside a stream.

    After every `every` batches, the strategy `overlap` plans a rewrite. It rewrites nothing as long
    as narrow queries read at most `tolerance` times the bytes that they would read after a full
    rewrite, and at most `budget` bytes at a time. None stands for the table's property, else for
    the default of `Table.plan`.

    Raises:
        UsageError: If `every` is no whole number from 1.
    """

    every: int = 10
    budget: Size | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        whole_number(self.every, argument="every", least=1)


def stream(
    df: DataFrame,
    table: "Table | str | PathLike[str]",
    *,
    checkpoint: "str | PathLike[str]",
    cluster: bool = True,
    policy: InlineClustering | None = None,
    max_file_size: Size | None = None,
    merge_schema: bool = False,
    blind: bool = False,
    trigger: Mapping[str, Any] | None = None,
    options: ExecutorOptions = DEFAULT_OPTIONS,
    storage_options: OptionsSource | None = None,
) -> StreamingQuery:
    """Start a query that appends rows, every micro-batch in one commit, exactly once.

    Each batch is appended as by `append`, which takes the other arguments; a batch without rows
    makes no commit. If the query is stopped or killed and starts again with its checkpoint, it goes
    on with the next batch. `df` is a streaming DataFrame of a classic session. `checkpoint` is a
    path or URI where Spark keeps the progress of the query. `policy` says when new files are
    clustered, None for never. A `blind` query never reads the table. `trigger` has arguments of
    `DataStreamWriter.trigger`, such as {"processingTime": "1 minute"} or {"availableNow": True};
    if it is None, the next batch starts at once.

    Raises:
        UsageError: If the DataFrame is not streaming, its session is one of Spark Connect, or an
            argument is wrong.
        SchemaMismatchError: If the DataFrame does not fit the table's schema; has every problem.
        LiquidlogError: If the table cannot be opened, or requires more of a writer than we do.
    """
    require_frame(df, argument="df")
    if not df.isStreaming:
        raise UsageError("the DataFrame is not streaming; append writes it at once")
    if context_of(df.sparkSession) is None:
        raise UsageError("a stream needs a classic session; Spark Connect runs batches elsewhere")
    one(blind, bool, argument="blind", expected="True or False")
    if policy is not None:
        one(policy, InlineClustering, argument="policy", expected="an InlineClustering")
    for name in trigger or ():
        if name not in _TRIGGERS:
            refuse("trigger", f"one of {', '.join(sorted(_TRIGGERS))}", name)
    opened = opened_table(table, storage_options)
    given: dict[str, Any] = {"cluster": cluster, "merge_schema": merge_schema}
    given["max_file_size"] = max_file_size
    opened.plan_write(frame_schema(df), **given)  # refuses now what append would refuse
    place = address(checkpoint, argument="checkpoint").rstrip("/")
    batches = _Batches(
        checkpoint=place,
        clustering=None if policy is None else _Clustering(opened, policy, options),
        append=partial(append, table=opened, blind=blind, options=options, **given),
    )
    writer = df.writeStream.option("checkpointLocation", place).foreachBatch(batches)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()


@dataclass(slots=True, kw_only=True)
class _Batches:
    """Spark calls this with each micro-batch; mutable: it remembers the query's id."""

    checkpoint: str
    append: Callable[..., object]
    clustering: "_Clustering | None"
    query_id: str | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        if self.query_id is None:
            self.query_id = query_id_of(spark, self.checkpoint)
        # Clustered rows are evaluated twice, and a stateful query must not be.
        rows = batch.persist()
        try:
            self.append(rows, txn=(self.query_id, number))
        finally:
            rows.unpersist()
        if self.clustering is not None:
            self.clustering.after(spark, number)


def query_id_of(spark: SparkSession, checkpoint: str) -> str:
    place = f"{checkpoint}/metadata"
    try:
        lines = spark.read.text(place).collect()
        found = json.loads("".join(row.value for row in lines))["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise ExecutorError(f"{place} does not say the id of the query: {error}") from error
    return f"liquidspark-{found}"


@dataclass(slots=True)
class _Clustering:
    """Clusters new files beside the stream, one rewrite at a time; mutable."""

    table: Table
    policy: InlineClustering
    options: ExecutorOptions
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="liquidspark-clustering")
    )
    _running: Future[None] | None = None

    def after(self, spark: SparkSession, number: int) -> None:
        due = (number + 1) % self.policy.every == 0
        if not due or (self._running is not None and not self._running.done()):
            return
        # A session of its own: settings of the rewrite are not those of the batches.
        self._running = self._pool.submit(self._rewrite, spark.newSession())

    def _rewrite(self, spark: SparkSession) -> None:
        given = self.table.opened.store.storage.source()
        table, policy = Table.open(self.table.uri, storage_options=given), self.policy
        try:
            plan = table.plan(strategy="overlap", budget=policy.budget, tolerance=policy.tolerance)
            if not plan.groups:
                return
            outcomes = execute_groups(spark, plan, options=self.options, storage_options=given)
            report = table.commit_each(plan, outcomes, tasks=session_tasks(spark))
            _log.info("clustered beside the stream: %s", report)
            report.require_success()
        except LiquidlogError as error:
            _log.warning("new files were not clustered beside the stream: %s", error.message)
