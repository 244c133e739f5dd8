"""Walking and changing the fields of a schema, those inside arrays and maps included.

Source: PROTOCOL.md, "Field Path".
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
)


def fields_with_paths(
    schema: StructType, *, physical: bool = False
) -> Iterator[tuple[Path, StructField]]:
    """Yield every field with its path, a struct before its fields.

    The parts of arrays and maps are `element`, `key` and `value` in a path.
    """
    yield from _fields(schema, (), physical=physical)


def data_type_at(data_type: DataType, path: Path) -> DataType | None:
    """Return the type at a path of `element`, `key` and `value` inside arrays and maps."""
    for part in path:
        match data_type, part:
            case ArrayType(element), "element":
                data_type = element
            case MapType(key, _), "key":
                data_type = key
            case MapType(_, value), "value":
                data_type = value
            case _:
                return None
    return data_type


def with_fields(
    schema: StructType, changed: Callable[[StructField], StructField | None]
) -> StructType:
    """Return the schema with every field in it changed, or dropped where the change is None.

    Outer fields come before inner ones.
    """

    def inside(data_type: DataType) -> DataType:
        match data_type:
            case StructType():
                return with_fields(data_type, changed)
            case ArrayType(element):
                return replace(data_type, element=inside(element))
            case MapType(key, value):
                return replace(data_type, key=inside(key), value=inside(value))
            case _:
                return data_type

    kept = (outer for field in schema.fields if (outer := changed(field)) is not None)
    return StructType(tuple(replace(outer, data_type=inside(outer.data_type)) for outer in kept))


def plain_nullable(schema: StructType) -> StructType:
    """Return the schema with names and types and nothing else: every part of it can be null."""

    def nullable(data_type: DataType) -> DataType:
        match data_type:
            case ArrayType(element):
                return ArrayType(nullable(element), contains_null=True)
            case MapType(key, value):
                return MapType(nullable(key), nullable(value), value_contains_null=True)
            case StructType(fields):
                return StructType(tuple(plain(field) for field in fields))
            case _:
                return data_type

    def plain(field: StructField) -> StructField:
        kept = nullable(field.data_type)
        return replace(field, data_type=kept, nullable=True, metadata={})

    return StructType(tuple(plain(field) for field in schema.fields))


def with_field(
    schema: StructType, path: Path, changed: Callable[[StructField], StructField | None]
) -> StructType:
    """Return the schema with one field changed, or dropped where the change is None.

    The path must exist, in the schema's spelling.
    """
    fields = []
    for field in schema.fields:
        kept: StructField | None = field
        if field.name == path[0] and len(path) == 1:
            kept = changed(field)
        elif field.name == path[0]:
            assert isinstance(field.data_type, StructType)  # noqa: S101  the path exists
            inner = with_field(field.data_type, path[1:], changed)
            kept = replace(field, data_type=inner)
        if kept is not None:
            fields.append(kept)
    return StructType(tuple(fields))


def _fields(
    data_type: DataType, path: Path, *, physical: bool
) -> Iterator[tuple[Path, StructField]]:
    match data_type:
        case StructType(fields):
            for child in fields:
                below = (*path, child.physical_name if physical else child.name)
                yield below, child
                yield from _fields(child.data_type, below, physical=physical)
        case ArrayType(element):
            yield from _fields(element, (*path, "element"), physical=physical)
        case MapType(key, value):
            yield from _fields(key, (*path, "key"), physical=physical)
            yield from _fields(value, (*path, "value"), physical=physical)
        case PrimitiveType() | DecimalType():
            return
