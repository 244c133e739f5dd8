"""Reading a table's rows in Spark's Python workers: files to tasks, rows to batches."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from liquidlog.data.exact import convert_chunks
from liquidlog.data.table_rows import FilePart, TableRows
from liquidlog.data.vectors import vector_location
from liquidlog.errors import CorruptLogError, DataFileError, SchemaMismatchError
from liquidlog.plan import InputFile, ReadPlan
from liquidlog.spec.arrow import without_void
from liquidlog.spec.schema import StructType, parse_schema, quote_path, render_schema
from liquidlog.storage.addresses import file_address
from liquidlog.table import Table
from liquidspark.aligning import sql_type
from liquidspark.mapping import prepare_worker
from liquidspark.versions import spark_arrow_schema

_TASK_BYTES: Final = 32 << 20
_MOST_TASK_BYTES: Final = 48 << 20
_FILE_COST_BYTES: Final = 1 << 20
"""Bytes as stored that a task reads, about and at most, and that opening a file counts as."""

_HELD_BYTES: Final = 64 << 20
_BATCH_ROWS: Final = 1 << 15
"""Rows in memory are read so many bytes, and given to Spark so many rows, at a time."""


class FilesOfTask(InputPartition):
    """What one task reads, and how."""

    def __init__(self, rows: TableRows, parts: tuple[FilePart, ...]) -> None:
        super().__init__(len(parts))
        self.rows = rows
        self.parts = parts


class TableReader(DataSourceReader):
    """Reads the columns of a schema from one version of a table, which `require_columns` checked.

    Tasks are sent the schema; the table stays where files are chosen. Filters are not pushed down:
    up to Spark 4.3 the files that one query chose stay those of every other query of a DataFrame,
    of the branches of one union even (PythonDataSourceV2.setReadInfo), which then lacks rows.
    """

    def __init__(self, table: Table, schema: SparkStruct, where: str | None) -> None:
        self._schema = schema
        self._table: Table | None = table
        self._version = table.snapshot().version
        self._where = where

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks are sent."""
        return {"_schema": self._schema}

    def partitions(self) -> Sequence[InputPartition]:
        """Return what tasks read: the files that may have rows of which `where` is true.

        Raises:
            LiquidlogError: If the table cannot be read.
        """
        assert self._table is not None  # noqa: S101  tasks do not ask for partitions
        plan = self._table.plan_read(self._where, self._version)
        rows = TableRows.of_plan(
            plan, self._schema.names, storage=self._table.storage, max_bytes=_HELD_BYTES
        )
        return [FilesOfTask(rows, parts) for parts in _of_tasks(_parts(plan))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        Raises:
            DataFileError: If a file is not what the log says, or cannot be read exactly.
        """
        if not isinstance(partition, FilesOfTask):  # Spark makes one up where there is none
            return
        prepare_worker()
        wanted = spark_arrow_schema(self._schema)
        for part in partition.parts:
            for table in partition.rows.read(part):
                columns = map(convert_chunks, table.columns, wanted.types)
                rows = pa.Table.from_arrays(list(columns), schema=wanted)
                yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


def require_columns(schema: StructType, given: SparkStruct) -> None:
    """Refuse a schema that has other columns than a table, or other types for them.

    Raises:
        SchemaMismatchError: With every difference.
    """
    known = {one.name: one.data_type for one in without_void(schema).fields}
    asked = parse_schema(json.dumps(given.jsonValue()), where="the schema that is read")
    problems = []
    for field in asked.fields:
        name = quote_path((field.name,))
        if field.name not in known:
            problems.append(f"column {name} is not in the table")
        elif sql_type(field.data_type) != sql_type(known[field.name]):
            problems.append(f"column {name} is {known[field.name]}, not {field.data_type}")
    if len({one.name for one in asked.fields}) < len(asked.fields):
        problems.append("a column is there twice")
    if problems:
        raise SchemaMismatchError(
            "the schema that is read", render_schema(schema), render_schema(asked), tuple(problems)
        )


def _parts(plan: ReadPlan) -> Iterator[FilePart]:
    """Yield the files of a plan, large ones in parts.

    Raises:
        CorruptLogError: If the log does not say where a deletion vector is.
    """
    for file, number in zip(plan.files, plan.partition_numbers, strict=True):
        whole = FilePart(
            file=file,
            path=file_address(plan.table_uri, file.path),
            vector_path=_vector_location(plan, file),
            values=plan.partitions[number],
            parts=max(1, round(file.size_bytes / _TASK_BYTES)),
        )
        yield from (replace(whole, part=part) for part in range(whole.parts))


def _of_tasks(parts: Iterable[FilePart]) -> Iterator[tuple[FilePart, ...]]:
    """Yield as many parts at a time as a task reads."""
    held: list[FilePart] = []
    held_bytes = 0
    for part in parts:
        part_bytes = part.file.size_bytes // part.parts + _FILE_COST_BYTES
        if held and held_bytes + part_bytes > _MOST_TASK_BYTES:
            yield tuple(held)
            held, held_bytes = [], 0
        held.append(part)
        held_bytes += part_bytes
    if held:
        yield tuple(held)


def _vector_location(plan: ReadPlan, file: InputFile) -> str | None:
    try:
        return vector_location(plan.table_uri, file)
    except DataFileError as error:
        raise CorruptLogError(plan.table_uri, error.message) from error
