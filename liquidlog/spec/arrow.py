"""Table types as Arrow types, and back.

The Arrow form of a table is the only one this project reads and writes: microsecond timestamps,
plain strings, everything nullable, list items named `element`. Void columns have no Arrow form
because no data file holds them; a variant is its two binaries, never looked into.

Source: PROTOCOL.md, "Primitive Types", "Void Type", "Variant Data Type"; Delta Spark writes every
Parquet column as nullable, but not the two parts of a variant.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import UsageError
from liquidlog.spec.fields import with_fields
from liquidlog.spec.schema import (
    FIELD_ID,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    quote_path,
)

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")

VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False),
    ]
)
"""An unshredded variant; no struct of a table is equal to it, as those have nullable fields."""

PARQUET_FIELD_ID: Final = b"PARQUET:field_id"
"""The key under which Arrow keeps the field id of a Parquet column."""

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "variant": VARIANT,
}
_DELTA: Final[Mapping[pa.DataType, str]] = {
    **{arrow: name for name, arrow in _ARROW.items() if name != "variant"},
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
}
_MAX_PRECISION: Final = 38


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array; it is copied only if it has several chunks."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def arrow_schema(schema: StructType, *, physical: bool = False) -> pa.Schema:
    """Return the Arrow schema of a table's rows, under its logical or its physical names.

    Void columns are left out, as no data file has them.
    Physical fields carry the field ids of column mapping where the schema has them.
    """
    problems = unsupported_types(schema)
    if problems:
        raise UsageError(
            f"these columns cannot be read or written: {'; '.join(problems)}",
            columns=list(problems),
        )
    return pa.schema(_arrow_fields(schema, physical=physical))


def arrow_type(data_type: DataType, *, physical: bool = False) -> pa.DataType:
    """Return the Arrow form of one type that has one."""
    match data_type:
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element):
            return pa.list_(pa.field("element", arrow_type(element, physical=physical)))
        case MapType(key, value):
            return pa.map_(arrow_type(key, physical=physical), arrow_type(value, physical=physical))
        case StructType(fields):
            return pa.struct(_arrow_fields(StructType(fields), physical=physical))
        case PrimitiveType(name):
            if name not in _ARROW:
                raise UsageError(f"type {name} cannot be read or written", type=name)
            return _ARROW[name]


def unsupported_types(schema: StructType) -> tuple[str, ...]:
    """Return "column: type" for every part of the schema that has no Arrow form, in order.

    A void field has none but is no problem: it is left out.
    """
    return tuple(
        f"{quote_path(path)}: {found}"
        for path, found in _parts(schema, ())
        if not _has_arrow_form(found)
    )


def without_void(schema: StructType) -> StructType:
    """Return the schema without its void fields, those inside arrays and maps included."""
    return with_fields(schema, lambda field: None if field.data_type == VOID else field)


def needed_features(schema: StructType) -> tuple[str, ...]:
    """Return the table features that the types of the schema need, none for the classic types."""
    ntz = any(found == PrimitiveType("timestamp_ntz") for _, found in _parts(schema, ()))
    return ("timestampNtz",) if ntz else ()


def delta_schema(schema: pa.Schema) -> StructType:
    """Return the table schema that can hold data of an Arrow schema; every column is nullable.

    Strings in any encoding become string, timestamps of any unit timestamp (with a time zone)
    or timestamp_ntz (without one).
    """
    problems = tuple(
        f"{quote_path(path)}: {found}"
        for child in schema
        for path, found in _unsupported_arrow((child.name,), child.type)
    )
    if problems:
        raise UsageError(
            f"a table cannot have columns of these types: {'; '.join(problems)}",
            columns=list(problems),
        )
    return StructType(tuple(StructField(child.name, _delta_type(child.type)) for child in schema))


def leaf_column(table: pa.Table, path: Path) -> pa.ChunkedArray:
    """Return the column at a path of names in `table`, null where a struct around it is null."""
    column = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _arrow_fields(struct: StructType, *, physical: bool) -> list[pa.Field]:
    stored = (child for child in struct.fields if child.data_type != VOID)
    return [_arrow_field(child, physical=physical) for child in stored]


def _arrow_field(child: StructField, *, physical: bool) -> pa.Field:
    name = child.physical_name if physical else child.name
    metadata = {}
    if physical and FIELD_ID in child.metadata:
        metadata[PARQUET_FIELD_ID] = str(child.metadata[FIELD_ID]).encode()
    return pa.field(name, arrow_type(child.data_type, physical=physical), metadata=metadata or None)


def _parts(data_type: DataType, path: Path) -> Iterator[tuple[Path, DataType]]:
    """Yield every type inside `data_type` with its path, containers before their parts."""
    yield path, data_type
    match data_type:
        case StructType(fields):
            yield from chain.from_iterable(
                _parts(child.data_type, (*path, child.name))
                for child in fields
                if child.data_type != VOID
            )
        case ArrayType(element):
            yield from _parts(element, (*path, "element"))
        case MapType(key, value):
            yield from _parts(key, (*path, "key"))
            yield from _parts(value, (*path, "value"))
        case PrimitiveType() | DecimalType():
            return


def _has_arrow_form(data_type: DataType) -> bool:
    match data_type:
        case PrimitiveType(name):
            return name in _ARROW
        case DecimalType(precision, scale):
            return 1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision
        case StructType(fields):
            return not fields or any(child.data_type != VOID for child in fields)
        case _:
            return True


def _unsupported_arrow(path: Path, found: pa.DataType) -> Iterator[tuple[Path, pa.DataType]]:
    if isinstance(found, pa.StructType) and found.num_fields:
        for child in found:
            yield from _unsupported_arrow((*path, child.name), child.type)
    elif isinstance(found, pa.MapType):
        yield from _unsupported_arrow((*path, "key"), found.key_type)
        yield from _unsupported_arrow((*path, "value"), found.item_type)
    elif is_list(found):
        yield from _unsupported_arrow((*path, "element"), found.value_type)
    elif isinstance(found, pa.DictionaryType):
        yield from _unsupported_arrow(path, found.value_type)
    elif not _delta_primitive(found):
        yield path, found


def _delta_primitive(found: pa.DataType) -> DataType | None:
    if isinstance(found, pa.TimestampType):
        return PrimitiveType("timestamp" if found.tz else "timestamp_ntz")
    if pa.types.is_decimal(found) and not pa.types.is_decimal256(found):
        decimal = DecimalType(found.precision, found.scale)
        return decimal if _has_arrow_form(decimal) else None
    if pa.types.is_fixed_size_binary(found):
        return PrimitiveType("binary")
    return PrimitiveType(_DELTA[found]) if found in _DELTA else None


def _delta_type(found: pa.DataType) -> DataType:
    if isinstance(found, pa.StructType):
        return StructType(tuple(StructField(c.name, _delta_type(c.type)) for c in found))
    if isinstance(found, pa.MapType):
        return MapType(_delta_type(found.key_type), _delta_type(found.item_type))
    if is_list(found):
        return ArrayType(_delta_type(found.value_type))
    if isinstance(found, pa.DictionaryType):
        return _delta_type(found.value_type)
    primitive = _delta_primitive(found)
    assert primitive is not None  # noqa: S101  _unsupported_arrow came first
    return primitive


def is_list(found: pa.DataType) -> bool:
    """Return whether an Arrow type is a list of any layout (maps are not)."""
    checks = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(check(found) for check in checks)
