"""A DataFrame's rows as those of a table, in Spark's SQL, with the rows that stay of its files."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from liquidlog.data.encodings import decoded
from liquidlog.data.reader import with_names_of
from liquidlog.errors import UsageError
from liquidlog.plan import WritePlan
from liquidlog.rewriting.groups import vector_location
from liquidlog.rewriting.source import (
    ArrivingWork,
    Assignment,
    GroupWork,
    Split,
    open_logical_file,
    read_split,
)
from liquidlog.spec.arrow import arrow_schema, without_void
from liquidlog.spec.partitions import PartitionTexts, typed_value
from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    parse_schema,
)
from liquidlog.storage.addresses import file_address
from liquidlog.storage.options import StorageOptions
from liquidspark.arriving import Arriving
from liquidspark.sending import assigned, map_batches
from liquidspark.session import failure_reason

_CHECK_COLUMN: Final = "\x00check "
"""Names that no Delta column can have."""

_KEPT_SLICE_BYTES: Final = 8 << 20

_NO_RUN: Final = "0" * 12

_NESTED: Final = (StructType, ArrayType, MapType)

_NAMES: Final[Mapping[str, str]] = {
    "long": "BIGINT",
    "integer": "INT",
    "short": "SMALLINT",
    "byte": "TINYINT",
}


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes any name."""
    return f"`{name.replace('`', '``')}`"


def sql_type(data_type: DataType) -> str:
    """Return a type as Spark's SQL writes it."""
    match data_type:
        case DecimalType(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case ArrayType(element):
            return f"ARRAY<{sql_type(element)}>"
        case MapType(key, value):
            return f"MAP<{sql_type(key)},{sql_type(value)}>"
        case StructType(fields):
            inside = ",".join(f"{quoted(one.name)}:{sql_type(one.data_type)}" for one in fields)
            return f"STRUCT<{inside}>"
        case PrimitiveType(name):
            return _NAMES.get(name, name.upper())


def frame_schema(frame: DataFrame) -> StructType:
    """Return the schema of a DataFrame; Spark's JSON of it is the protocol's."""
    return parse_schema(json.dumps(frame.schema.jsonValue()), where="the DataFrame")


def aligned(frame: DataFrame, plan: WritePlan) -> DataFrame:
    """Return a DataFrame's rows as the table's: its columns in order, then a boolean per check."""
    found = {one.name: one.data_type for one in frame_schema(frame).fields}
    schema = without_void(parse_schema(plan.schema_string, where="the plan"))
    wanted = {one.name: one.data_type for one in schema.fields}
    given, computed = [], []
    for source in plan.sources:
        name, kind = quoted(source.name), wanted[source.name]
        computed.append(
            name if source.expression is None
            else f"CAST(({source.expression}) AS {sql_type(kind)}) AS {name}"
        )  # fmt: skip
        if source.column is None:
            if source.expression is None:
                given.append(f"CAST(NULL AS {sql_type(kind)}) AS {name}")
        elif found[source.column] == kind or isinstance(kind, _NESTED):
            given.append(f"{quoted(source.column)} AS {name}")
        else:
            given.append(f"CAST({quoted(source.column)} AS {sql_type(kind)}) AS {name}")
    checks = [
        f"coalesce(({check.expression}), false) AS {quoted(_CHECK_COLUMN + str(number))}"
        for number, check in enumerate(plan.checks)
    ]
    try:
        rows = frame.selectExpr(*given).selectExpr(*computed)
        checked = rows.selectExpr(*map(quoted, wanted), *checks)
        _ = checked.schema  # which Spark Connect finds out only now
    except PySparkException as error:
        raise UsageError(
            f"Spark cannot evaluate what the table asks of its rows: {failure_reason(error)}"
        ) from error
    return checked


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTasks:
    """Reads the live rows of files to rewrite, as rows of a DataFrame; each task is sent values.

    These are the partition values of its file; None in a table without partition columns.
    """

    work: GroupWork

    def __call__(
        self, _: int, assignment: Assignment[PartitionTexts | None]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task's files, under the table's names."""
        work = assignment.work(self.work)
        whole = replace(work, partition_columns=())
        known = _values(whole.table_schema, assignment.own or {})
        for file in range(len(work.paths)):
            with open_logical_file(work, file) as opened:
                groups = tuple(range(opened.num_row_groups))
                rows = sum(map(opened.row_group_rows, groups))
            for table, _ in read_split(work, Split(file, groups, 0, rows)):
                columns = [
                    pa.repeat(known[name], len(table)) if name in known else table.column(name)
                    for name in physical_names(whole.table_schema)
                ]
                yield from _logical(columns, whole.table_schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformTasks:
    """Makes rows of the table of a DataFrame's, where their structs differ."""

    arriving: Arriving

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows under the table's names."""
        for table in self.arriving.tables(batches):
            yield from _logical(table.columns, self.arriving.work.table_schema)


def physical_names(schema: StructType) -> list[str]:
    """Return the physical names of the columns that rows have, in the table's order."""
    return [one.physical_name for one in without_void(schema).fields]


def _values(schema: StructType, texts: PartitionTexts) -> dict[str, pa.Scalar]:
    fields = [one for one in schema.fields if one.physical_name in texts]
    return {one.physical_name: typed_value(texts[one.physical_name], one) for one in fields}


def _logical(
    given: Sequence[pa.ChunkedArray | pa.Array], schema: StructType
) -> list[pa.RecordBatch]:
    """Return the columns of rows as batches with the table's names."""
    logical = arrow_schema(without_void(schema))
    table = pa.table(list(given), names=physical_names(schema))
    columns = map(with_names_of, decoded(table).columns, logical.types)
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(list(columns), schema=logical).to_batches()
    return batches


def with_kept(rows: DataFrame, plan: WritePlan, storage: StorageOptions) -> DataFrame:
    """Return rows as `aligned` returns them, with those that stay of files to rewrite."""
    inputs = tuple(plan.rewritten)
    schema = without_void(parse_schema(plan.schema_string, where="the plan"))
    common = _common(plan, storage)
    work = GroupWork(
        **common,
        inputs=inputs,
        paths=tuple(file_address(plan.table_uri, one.path) for one in inputs),
        vector_paths=tuple(vector_location(plan.table_uri, one) for one in inputs),
        partition_columns=plan.partition_columns,
    )
    kinds = ",".join(f"{quoted(one.name)} {sql_type(one.data_type)}" for one in schema.fields)
    names = [quoted(one.name) for one in schema.fields]
    passed = [f"true AS {quoted(_CHECK_COLUMN + str(n))}" for n in range(len(plan.checks))]
    if any(isinstance(one.data_type, _NESTED) for one in schema.fields):
        checks = tuple(check.what for check in plan.checks)
        conform = ConformTasks(arriving=Arriving(ArrivingWork(**common), checks))
        rows = map_batches(rows, conform, kinds).selectExpr(*names, *passed)
    values = plan.rewritten_partitions or (None,) * len(inputs)
    each = [Assignment.of(work, [number], own) for number, own in enumerate(values)]
    files, function = assigned(rows.sparkSession, KeptTasks(work=work.without_inputs()), each)
    stay = map_batches(files, function, kinds).where(f"NOT coalesce(({plan.where}), false)")
    return rows.union(stay.selectExpr(*names, *passed))


def _common(plan: WritePlan, storage: StorageOptions) -> dict[str, Any]:
    """Return what works have in common that read rows and write none."""
    return {
        "directory": file_address(plan.table_uri, "").rstrip("/"),
        "outputs": 1,
        "schema_string": plan.schema_string,
        "mapping_mode": plan.mapping_mode,
        "columns": (),
        "curve": None,
        "writer_options": plan.writer_options,
        "token": _NO_RUN,
        "storage": storage.fresh(),
        "slice_bytes": _KEPT_SLICE_BYTES,
    }
