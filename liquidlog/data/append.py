"""A user's Arrow data as rows of a table, or a refusal that names every difference.

Source: Delta Spark's write rules, of which only the lossless part is kept: no implicit casts.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.exact import Leniency, convert_chunks, differences, matching_name
from liquidlog.data.parquet_file import ParquetFile
from liquidlog.errors import DataFileError, SchemaMismatchError
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    MapType,
    Path,
    StructField,
    StructType,
    quote_path,
    render_schema,
)
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

ArrowData: TypeAlias = pa.Table | pa.RecordBatchReader | ParquetFile

_CHAR_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
_LENGTH: Final = re.compile(r"(?:var)?char\((\d+)\)")
_SLICE_ROWS: Final = 1_000_000
_LENIENCY: Final = Leniency(ignore_case=True, widen_decimals=True)


def conform(data: ArrowData, schema: StructType, *, where: str) -> Iterator[pa.Table]:
    """Return the data slice by slice with the columns, order, types and names of the table.

    Names are matched exactly, else without case. Encodings, timestamp units and decimals of
    fewer digits are converted where that loses nothing. The schemas are compared at once, values
    (nulls, lengths, sub-microseconds) when their slice is asked for.

    Raises:
        SchemaMismatchError: If the data is not of the table's schema; shows both.
        DataFileError: If the data is a Parquet file in an older calendar, or it is corrupt.
        UsageError: If the table has columns that cannot be written.
    """
    wanted = arrow_schema(schema)
    problems = tuple(
        differences(pa.struct(list(data.schema)), pa.struct(list(wanted)), (), _LENIENCY)
    )
    if problems:
        raise SchemaMismatchError(where, render_schema(schema), _rendered(data.schema), problems)
    if isinstance(data, ParquetFile) and data.calendar_problems():
        raise DataFileError(where, "; ".join(data.calendar_problems()))
    return _conformed(data, schema, wanted, where)


def open_input(
    source: str | pa.Table | pa.RecordBatchReader,
    schema: StructType,
    storage: StorageOptions = NO_OPTIONS,
) -> Iterator[pa.Table]:
    """Return `conform` of Arrow data, or of the Parquet file at a path or URI.

    Raises:
        SchemaMismatchError: As `conform`.
        DataFileError: If the file is missing, is not Parquet, or as `conform`.
        UsageError: As `conform`.
    """
    if isinstance(source, str):
        return conform(ParquetFile(source, storage=storage), schema, where=source)
    return conform(source, schema, where="the Arrow data")


def read_schema(path: str, storage: StorageOptions = NO_OPTIONS) -> pa.Schema:
    """Return the Arrow schema of the Parquet file at a path or URI.

    Raises:
        DataFileError: If the file is missing or is not Parquet.
    """
    with ParquetFile(path, storage=storage) as file:
        return file.schema


def _conformed(
    data: ArrowData, schema: StructType, wanted: pa.Schema, where: str
) -> Iterator[pa.Table]:
    found = [matching_name(data.schema.names, name) or name for name in wanted.names]
    physical = [child.physical_name for child in schema.fields]
    for piece in _slices(data):
        converted = []
        problems: list[str] = []
        for column, child, arrow in zip(
            piece.select(found).itercolumns(), schema.fields, wanted, strict=True
        ):
            try:
                converted.append(convert_chunks(column, arrow.type))
            except pa.ArrowInvalid as error:
                problems.append(f"column {quote_path((child.name,))} would change: {error}")
                continue
            for chunk in converted[-1].chunks:
                problems.extend(_value_problems(chunk, child, (child.name,)))
        if problems:
            raise SchemaMismatchError(
                where, render_schema(schema), _rendered(data.schema), tuple(dict.fromkeys(problems))
            )
        yield pa.table(converted, names=physical)


def _slices(data: ArrowData) -> Iterator[pa.Table]:
    match data:
        case pa.Table():
            for batch in data.to_batches(max_chunksize=_SLICE_ROWS):
                yield pa.Table.from_batches([batch])
        case ParquetFile():
            for group in range(data.metadata.num_row_groups):
                yield data.read([group])
        case _:
            for batch in data:
                yield pa.Table.from_batches([batch])


def _rendered(found: pa.Schema) -> str:
    return "\n".join(
        f"  {child.name}: {child.type}{'' if child.nullable else ' not null'}" for child in found
    )


def _value_problems(array: pa.Array, field: StructField, path: Path) -> Iterator[str]:
    """Yield what makes values of the right type impossible in this field."""
    if array.null_count and not field.nullable:
        yield f"column {quote_path(path)} must not be null, {array.null_count} rows are"
    limit = _LENGTH.fullmatch(str(field.metadata.get(_CHAR_VARCHAR, "")))
    if limit and (pc.max(pc.utf8_length(array)).as_py() or 0) > int(limit[1]):
        yield f"column {quote_path(path)} holds strings longer than {limit[0]}"
    yield from _nested_problems(array, field.data_type, path)


def _nested_problems(array: pa.Array, data_type: DataType, path: Path) -> Iterator[str]:
    match data_type:
        case StructType(fields):
            # Fields of a null struct are null whatever they promise.
            valid = array.drop_null()
            for position, child in enumerate(fields):
                yield from _value_problems(valid.field(position), child, (*path, child.name))
        case ArrayType(element, contains_null):
            inside = StructField("element", element, contains_null)
            yield from _value_problems(array.flatten(), inside, (*path, "element"))
        case MapType(_, value, value_contains_null):
            items = array.drop_null()
            inside = StructField("value", value, value_contains_null)
            yield from _value_problems(_map_items(items), inside, (*path, "value"))
        case _:
            return


def _map_items(array: pa.MapArray) -> pa.Array:
    if not len(array):
        return array.items.slice(0, 0)
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return array.items.slice(start, end - start)
