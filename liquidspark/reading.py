"""Rows of a table as a DataFrame: files to tasks of Spark's Python workers, rows to batches."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStruct

from liquidlog.data.encodings import convert_chunks
from liquidlog.data.logical_file import FilePart, Located, TableRows
from liquidlog.errors import CorruptLogError, DataFileError, UsageError
from liquidlog.plan import ReadPlan
from liquidlog.spec.arguments import one, refuse, texts, whole_number
from liquidlog.spec.arrow import CharTypeError, without_void
from liquidlog.spec.schema import StructType, parse_schema, plain_nullable, schema_json
from liquidlog.storage.options import OptionsSource
from liquidlog.table import Table
from liquidspark.sending import AssignedTasks, TaskFunction, assigned, encoded_request, map_batches
from liquidspark.session import context_of, failure_reason, spark_arrow_schema
from liquidspark.writing import Padding, opened_table

if TYPE_CHECKING:
    from os import PathLike

_TASK_BYTES: Final = 32 << 20
_MOST_TASK_BYTES: Final = 48 << 20
_FILE_COST_BYTES: Final = 1 << 20
"""A task reads about and at most so many stored bytes; opening a file counts as the last."""

_HELD_BYTES: Final = 64 << 20
_BATCH_ROWS: Final = 1 << 15
"""Rows in memory are read so many bytes, and given to Spark so many rows, at a time."""


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
    applied, texts of CHAR padded as Spark pads them, and every value is read exactly, or the job
    fails. All values of the columns that are read pass from Python to the JVM. Which files are
    read is settled here; conditions that the DataFrame is given later filter rows, and open as
    many files.

    Args:
        spark: A classic or Connect session. The Python of its workers must be able to import this
            package.
        table: The table, or its address.
        where: Only rows of which this condition on the columns read is true. Files that cannot
            have any are not opened.
        columns: Top-level columns to read, in their order; all if None.
        version: The newest version, or that of an opened table, if None.
        storage_options: Open the table's files, if `table` is an address. What a callable returns
            now is used as long as the DataFrame is.

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
    try:
        schema = SparkStruct.fromJson(json.loads(schema_json(plain_nullable(chosen))))
    except ValueError as error:  # variants before 4.0
        raise UsageError(
            f"Spark {spark.version} has no such type: {failure_reason(error)}; name other columns"
        ) from error
    try:
        padding = Padding.of(spark, chosen)
    except CharTypeError as error:
        raise CorruptLogError(plan.table_uri, str(error)) from error
    rows = TableRows.of_plan(
        plan, schema.names, storage=opened.opened.store.storage.fresh(), max_bytes=_HELD_BYTES
    )
    parts = [*_of_tasks(_parts(plan))]
    found = padding.padded(_read_by_tasks(spark, partial(_rows, rows, schema), schema, parts))
    return found if where is None else found.where(where)


def _rows(
    reader: TableRows, schema: SparkStruct, _: int, parts: tuple[FilePart, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the parts of files that a task is sent, in Spark's types."""
    wanted = spark_arrow_schema(schema)
    for part in parts:
        for table in reader.read(part):
            columns = map(convert_chunks, table.columns, wanted.types)
            rows = pa.Table.from_arrays(list(columns), schema=wanted)
            yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


def _read_by_tasks(
    spark: SparkSession,
    task: TaskFunction[pa.RecordBatch],
    schema: SparkStruct,
    parts: Sequence[tuple[FilePart, ...]],
) -> DataFrame:
    """Return what tasks read of their parts, as a frame that Spark never takes for a small one."""
    # Spark would broadcast a small one to join it. It takes an RDD of Python to be large.
    if not parts:
        return spark.createDataFrame([], schema)
    context = context_of(spark)
    if context is None:
        return map_batches(*assigned(spark, task, parts), schema).hint("merge")
    contents = [(number, encoded_request(one)) for number, one in enumerate(parts)]
    numbered = spark.createDataFrame(
        context.parallelize(contents, len(contents)), "id bigint, content binary"
    )
    return map_batches(numbered, AssignedTasks(task, None), schema)


def _chosen(plan: ReadPlan, columns: str | Sequence[str] | None) -> StructType:
    schema = without_void(parse_schema(plan.schema_string, where="the plan"))
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
