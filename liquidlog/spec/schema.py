"""Table schemas: types, field paths, logical and physical names.

A *path* is a tuple of name parts, outermost first. A *leaf* is a field that is not a struct;
arrays, maps and variants are one leaf each.

Source: PROTOCOL.md, "Schema Serialization Format", "Column Mapping" and "Field Path"; Delta Spark,
DeltaColumnMapping.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from liquidlog.errors import CorruptLogError, UsageError

Path = tuple[str, ...]

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"

MAX_DEPTH: Final = 100
"""The deepest nesting that is parsed: no engine writes more, and more would exhaust the stack."""

_DECIMAL = re.compile(r"^decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)$")
_BARE_NAME = re.compile(r"[a-zA-Z0-9_]+")
_TOKEN = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts; unknown names are kept."""

    name: str

    def __str__(self) -> str:
        return self.name


VOID: Final = PrimitiveType("void")
"""The type of columns that are always null; no data file has them."""


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of elements of one type."""

    element: "DataType"
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from keys of one type to values of another."""

    key: "DataType"
    value: "DataType"
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A named field; `metadata` is exactly as in the log."""

    name: str
    data_type: "DataType"
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def physical_name(self) -> str:
        """The name in data files, statistics and the clustering domain."""
        return str(self.metadata.get(PHYSICAL_NAME, self.name))


@dataclass(frozen=True, slots=True)
class StructType:
    """Fields in table order."""

    fields: tuple[StructField, ...]

    def __str__(self) -> str:
        return "struct<" + ",".join(f"{f.name}:{f.data_type}" for f in self.fields) + ">"


DataType = PrimitiveType | DecimalType | ArrayType | MapType | StructType


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column with both its paths."""

    logical: Path
    physical: Path
    data_type: DataType
    nullable: bool


def parse_schema(text: str, *, where: str) -> StructType:
    if not text:
        raise CorruptLogError(where, "the metaData has no schemaString")
    try:
        parsed = parse_type(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(where, f"schemaString is not a schema: {error!r}") from error
    except RecursionError as error:
        raise CorruptLogError(where, "schemaString is nested too deeply") from error
    if not isinstance(parsed, StructType):
        raise CorruptLogError(where, f"schemaString must be a struct, found {parsed}")
    return parsed


def schema_json(schema: StructType) -> str:
    """Return the schema as the protocol's JSON without spaces; `parse_schema` is the inverse."""
    return json.dumps(_type_document(schema), ensure_ascii=False, separators=(",", ":"))


def leaves(schema: StructType, logical: Path = (), physical: Path = ()) -> Iterator[Leaf]:
    """Yield the leaf columns in schema order, below these paths."""
    for child in schema.fields:
        path, real = (*logical, child.name), (*physical, child.physical_name)
        if isinstance(child.data_type, StructType):
            yield from leaves(child.data_type, path, real)
        else:
            yield Leaf(path, real, child.data_type, child.nullable)


def render_schema(schema: StructType, depth: int = 1) -> str:
    """Return the schema as indented text, one field per line."""
    lines = []
    for child in schema.fields:
        nested = child.data_type if isinstance(child.data_type, StructType) else None
        suffix = "" if child.nullable else " not null"
        kind = child.data_type if nested is None else "struct"
        lines.append(f"{'  ' * depth}{child.name}: {kind}{suffix}")
        if nested is not None and nested.fields:
            lines.append(render_schema(nested, depth + 1))
    return "\n".join(lines)


def find_column(schema: StructType, path: Path, *, physical: bool = False) -> StructField | None:
    """Return the field at `path` outside arrays and maps; an exact match comes first."""
    found = _fields_at(schema, path, physical=physical)
    return found[-1] if found else None


def resolve_path(schema: StructType, path: Path, *, physical: bool = False) -> tuple[Path, Path]:
    """Return the logical and the physical path of an existing column, in the schema's spelling."""
    found = _fields_at(schema, path, physical=physical)
    assert found is not None  # noqa: S101  find_column came first
    return tuple(one.name for one in found), tuple(one.physical_name for one in found)


def _fields_at(schema: StructType, path: Path, *, physical: bool) -> list[StructField] | None:
    """Return the structs around a field, outermost first, and the field; None if it is absent."""
    found: list[StructField] = []
    data_type: DataType = schema
    kind = "physical_name" if physical else "name"
    for part in path:
        fields = data_type.fields if isinstance(data_type, StructType) else ()
        exact = (child for child in fields if getattr(child, kind) == part)
        alike = (child for child in fields if getattr(child, kind).lower() == part.lower())
        child = next(exact, None) or next(alike, None)
        if child is None:
            return None
        found.append(child)
        data_type = child.data_type
    return found


def quote_path(path: Path) -> str:
    """Return `a.b`, with backticks where needed; inverse: `split_path`."""
    quoted = []
    for part in path:
        is_bare = _BARE_NAME.fullmatch(part) and not (part.isascii() and part.isdigit())
        quoted.append(part if is_bare else "`" + part.replace("`", "``") + "`")
    return ".".join(quoted)


def quote_paths(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(quote_path(path) for path in paths)


def split_path(text: str) -> Path:
    """Return the parts of a column's name as users write it: `a.b`, with backticks where needed."""
    if not isinstance(text, str):
        raise UsageError(f"a column name must be text, found {type(text).__name__}")
    parts: list[str] = []
    position = 0
    while not parts or position < len(text):
        if parts and text[position] != ".":
            raise UsageError(f"{text!r} is not a column name: expected a dot", column=text)
        match = _TOKEN.match(text, position + bool(parts))
        if match is None:
            problem = f"{text!r} is not a column name: expected a name or `name`"
            raise UsageError(problem, column=text)
        quoted, bare = match.groups()
        parts.append(bare.strip() if quoted is None else quoted.replace("``", "`"))
        position = match.end()
    if not all(parts):
        raise UsageError(f"{text!r} is not a column name: a part is empty", column=text)
    return tuple(parts)


def split_paths(text: str) -> tuple[Path, ...]:
    """Return the columns of a list, separated by commas outside backticks."""
    pieces = re.findall(r"(?:`(?:[^`]|``)*`|[^,`]|`)+", text)
    return tuple(split_path(piece.strip()) for piece in pieces)


def parse_type(document: Any, depth: int = 0) -> DataType:  # noqa: ANN401  JSON
    """Return the type in a part of a schema's JSON, `depth` levels below the root."""
    if depth > MAX_DEPTH:
        raise ValueError(f"types are nested deeper than {MAX_DEPTH} levels")
    if isinstance(document, str):
        decimal = _DECIMAL.match(document)
        if decimal:
            return DecimalType(int(decimal[1]), int(decimal[2]))
        return DecimalType(10, 0) if document == "decimal" else PrimitiveType(document)
    below = depth + 1
    match document["type"]:
        case "struct":
            fields = (
                StructField(
                    str(one["name"]),
                    parse_type(one["type"], below),
                    bool(one["nullable"]),
                    dict(one.get("metadata") or {}),
                )
                for one in document["fields"]
            )
            return StructType(tuple(fields))
        case "array":
            element = parse_type(document["elementType"], below)
            return ArrayType(element, bool(document["containsNull"]))
        case "map":
            key = parse_type(document["keyType"], below)
            value = parse_type(document["valueType"], below)
            return MapType(key, value, bool(document["valueContainsNull"]))
        case kind:
            raise ValueError(f"unknown type {kind!r}")


def _type_document(data_type: DataType) -> Any:  # noqa: ANN401  JSON
    match data_type:
        case PrimitiveType() | DecimalType():
            return str(data_type)
        case StructType(fields):
            return {"type": "struct", "fields": [field_document(f) for f in fields]}
        case ArrayType(element, contains_null):
            return {
                "type": "array",
                "elementType": _type_document(element),
                "containsNull": contains_null,
            }
        case MapType(key, value, value_contains_null):
            return {
                "type": "map",
                "keyType": _type_document(key),
                "valueType": _type_document(value),
                "valueContainsNull": value_contains_null,
            }


def field_document(child: StructField) -> dict[str, Any]:
    return {
        "name": child.name,
        "type": _type_document(child.data_type),
        "nullable": child.nullable,
        "metadata": dict(child.metadata),
    }


def fields_with_paths(
    schema: DataType, *, physical: bool = False, path: Path = ()
) -> Iterator[tuple[Path, StructField]]:
    """Yield every field with its path, also inside arrays and maps, a struct before its fields."""
    match schema:
        case StructType(fields):
            for child in fields:
                below = (*path, child.physical_name if physical else child.name)
                yield below, child
                yield from fields_with_paths(child.data_type, physical=physical, path=below)
        case ArrayType(element):
            yield from fields_with_paths(element, physical=physical, path=(*path, "element"))
        case MapType(key, value):
            yield from fields_with_paths(key, physical=physical, path=(*path, "key"))
            yield from fields_with_paths(value, physical=physical, path=(*path, "value"))
        case PrimitiveType() | DecimalType():
            return


def data_type_at(data_type: DataType, path: Path) -> DataType | None:
    """Return the type inside arrays and maps at a path of `element`, `key` and `value`."""
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


def nested_parts(data_type: DataType, path: Path = ()) -> Iterator[tuple[Path, DataType]]:
    """Yield the parts of arrays and maps with their paths, none from inside a struct."""
    match data_type:
        case ArrayType(element):
            parts = [("element", element)]
        case MapType(key, value):
            parts = [("key", key), ("value", value)]
        case _:
            return
    for name, part in parts:
        yield (*path, name), part
        yield from nested_parts(part, (*path, name))


def with_fields(
    schema: StructType, changed: Callable[[StructField], StructField | None]
) -> StructType:
    """Return the schema with every field changed, or dropped where the change is None."""

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
    """Return the schema with only names and types; every part is nullable."""

    def nullable(data_type: DataType) -> DataType:
        match data_type:
            case ArrayType(element):
                return ArrayType(nullable(element))
            case MapType(key, value):
                return MapType(nullable(key), nullable(value))
            case StructType():
                return plain_nullable(data_type)
            case _:
                return data_type

    fields = (StructField(field.name, nullable(field.data_type)) for field in schema.fields)
    return StructType(tuple(fields))


def with_field(
    schema: StructType, path: Path, changed: Callable[[StructField], StructField | None]
) -> StructType:
    found = find_column(schema, path)
    return with_fields(schema, lambda field: changed(field) if field is found else field)


MODE: Final = "delta.columnMapping.mode"
MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"

NESTED_IDS: Final = "delta.columnMapping.nested.ids"
"""Key of field metadata: ids of the parts of arrays and maps, as IcebergCompatV2 asks for them."""

_KEYS: Final = frozenset({FIELD_ID, PHYSICAL_NAME, NESTED_IDS})
_MAX_ID: Final = 2**31 - 1


class MappingMode(StrEnum):
    """How the columns of a data file are found."""

    NONE = "none"
    NAME = "name"
    ID = "id"


def mapping_mode(configuration: Mapping[str, str]) -> MappingMode:
    text = configuration.get(MODE, "none")
    try:
        return MappingMode(text.lower())
    except ValueError:
        raise UsageError(f"{MODE} must be none, name or id, not {text!r}", value=text) from None


def mapping_problems(schema: StructType, configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return all reasons why a table's columns cannot be found for certain."""
    try:
        mode = mapping_mode(configuration)
    except UsageError as error:
        return (error.message,)
    fields = list(fields_with_paths(schema))
    if mode is MappingMode.NONE:
        return tuple(
            f"a physical name of {quote_path(path)} without column mapping"
            for path, field in fields
            if field.physical_name != field.name
        )
    problems = [
        f"{quote_path(path)} without {key}"
        for path, field in fields
        for key in (FIELD_ID, PHYSICAL_NAME)
        if key not in field.metadata
    ]
    problems += _id_problems(fields, configuration)
    names = Counter(path for path, _ in fields_with_paths(schema, physical=True))
    problems += [
        f"{number} columns with the physical name {quote_path(path)}"
        for path, number in names.items()
        if number > 1
    ]
    return tuple(problems)


def nested_ids(field: StructField) -> Mapping[str, int]:
    """Return the ids of the parts of a field's arrays and maps, by `physical name.element`."""
    found = field.metadata.get(NESTED_IDS)
    return found if isinstance(found, dict) else {}


def with_mapping(
    schema: StructType, physical_name: Callable[[StructField], str], *, first: int = 1
) -> tuple[StructType, int]:
    """Return the schema with new names and ids from `first`, and the largest id."""
    largest = first - 1

    def numbered(field: StructField) -> StructField:
        nonlocal largest
        largest += 1
        metadata = {FIELD_ID: largest, PHYSICAL_NAME: physical_name(field)}
        return replace(field, metadata={**field.metadata, **metadata})

    return with_fields(without_mapping(schema), numbered), largest


def without_mapping(schema: StructType) -> StructType:
    def kept(metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in metadata.items() if key not in _KEYS}

    return with_fields(schema, lambda field: replace(field, metadata=kept(field.metadata)))


def _id_problems(
    fields: list[tuple[Path, StructField]], configuration: Mapping[str, str]
) -> Iterator[str]:
    ids = [(path, field.metadata[FIELD_ID]) for path, field in fields if FIELD_ID in field.metadata]
    counted = Counter(found for _, found in ids)
    text = configuration.get(MAX_COLUMN_ID, "")
    largest = int(text) if text.isdecimal() else None
    if largest is None:
        yield f"{MAX_COLUMN_ID} {text!r}"
    for path, found in ids:
        if type(found) is not int or not 0 <= found <= min(largest or _MAX_ID, _MAX_ID):
            yield f"{quote_path(path)} with the column id {found!r}"
        elif counted[found] > 1:
            yield f"{quote_path(path)} with the column id {found}, which another column has"
