"""Table schemas: types, field paths, logical and physical names.

A *path* is a tuple of name parts, outermost first. A *leaf* is a field that is not a struct;
arrays, maps and variants are one leaf each.

Source: PROTOCOL.md, "Schema Serialization Format" and "Column Mapping".
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from liquidlog.errors import CorruptLogError, UsageError

Path = tuple[str, ...]

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"

MAX_DEPTH: Final = 100
"""Most levels of nesting that are read: no engine writes more, and more would exhaust the stack."""

_DECIMAL = re.compile(r"^decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)$")
_BARE_NAME = re.compile(r"[a-zA-Z0-9_]+")
_TOKEN = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts; names this project does not know are kept as they are."""

    name: str

    def __str__(self) -> str:
        """Return the protocol's name of the type."""
        return self.name


VOID: Final = PrimitiveType("void")
"""The type of columns that are null in every row, which no file has."""


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        """Return the protocol's name of the type."""
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of elements of one type."""

    element: "DataType"
    contains_null: bool = True

    def __str__(self) -> str:
        """Return the type as SQL writes it."""
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from keys of one type to values of another."""

    key: "DataType"
    value: "DataType"
    value_contains_null: bool = True

    def __str__(self) -> str:
        """Return the type as SQL writes it."""
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A named field; `metadata` is kept exactly as the log has it."""

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
        """Return the type as SQL writes it."""
        return "struct<" + ",".join(f"{f.name}:{f.data_type}" for f in self.fields) + ">"


DataType = PrimitiveType | DecimalType | ArrayType | MapType | StructType


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column under both of its names."""

    logical: Path
    physical: Path
    data_type: DataType
    nullable: bool


def parse_schema(text: str, *, where: str) -> StructType:
    """Return the schema in a metaData action's `schemaString`."""
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
    """Return the schema as the protocol's JSON, without spaces; inverse of parse_schema."""
    return json.dumps(_type_document(schema), ensure_ascii=False, separators=(",", ":"))


def leaves(schema: StructType) -> Iterator[Leaf]:
    """Yield the leaf columns in schema order."""
    yield from _leaves(schema, (), ())


def render_schema(schema: StructType) -> str:
    """Return the schema as indented text, one field per line, for messages."""
    return "\n".join(_render(schema, 1))


def find_column(schema: StructType, path: Path, *, physical: bool = False) -> StructField | None:
    """Return the field at `path`, ignoring case as Spark does, an exact match first.

    Arrays and maps are not entered. None if there is no such field.
    """
    found: StructField | None = None
    data_type: DataType = schema
    for part in path:
        if not isinstance(data_type, StructType):
            return None
        found = _child(data_type, part, physical=physical)
        if found is None:
            return None
        data_type = found.data_type
    return found


def resolve_path(schema: StructType, path: Path, *, physical: bool = False) -> tuple[Path, Path]:
    """Return (logical path, physical path) of an existing column, in the schema's spelling."""
    logical: list[str] = []
    real: list[str] = []
    data_type: DataType = schema
    for part in path:
        assert isinstance(data_type, StructType)  # noqa: S101  find_column came first
        child = _child(data_type, part, physical=physical)
        assert child is not None  # noqa: S101
        logical.append(child.name)
        real.append(child.physical_name)
        data_type = child.data_type
    return tuple(logical), tuple(real)


def quote_path(path: Path) -> str:
    """Return `a.b` with backticks around parts that need them, as Spark's FieldReference.

    This is the spelling of ZCUBE_ZORDER_BY and DESCRIBE DETAIL. Inverse: split_path.
    """
    return ".".join(_quote_part(part) for part in path)


def quote_paths(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return columns as a user writes them, each as `quote_path` does."""
    return tuple(quote_path(path) for path in paths)


def split_path(text: str) -> Path:
    """Return the name parts of a column as a user writes it: `a.b`, with backticks if needed."""
    if not isinstance(text, str):
        raise UsageError(f"a column name must be text, found {type(text).__name__}")
    parts: list[str] = []
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            raise UsageError(
                f"{text!r} is not a column name: expected a name or `name`", column=text
            )
        quoted, bare = match.groups()
        parts.append(bare.strip() if quoted is None else quoted.replace("``", "`"))
        position = match.end()
        if position == len(text):
            break
        if text[position] != ".":
            raise UsageError(f"{text!r} is not a column name: expected a dot", column=text)
        position += 1
    if not all(parts):
        raise UsageError(f"{text!r} is not a column name: a part is empty", column=text)
    return tuple(parts)


def split_paths(text: str) -> tuple[Path, ...]:
    """Return the columns of a comma-separated list; commas inside backticks do not separate."""
    pieces = re.findall(r"(?:`(?:[^`]|``)*`|[^,`]|`)+", text)
    return tuple(split_path(piece.strip()) for piece in pieces)


def _quote_part(part: str) -> str:
    bare = _BARE_NAME.fullmatch(part) is not None and not (part.isascii() and part.isdigit())
    return part if bare else "`" + part.replace("`", "``") + "`"


def _child(struct: StructType, part: str, *, physical: bool) -> StructField | None:
    def name(child: StructField) -> str:
        return child.physical_name if physical else child.name

    exact = next((f for f in struct.fields if name(f) == part), None)
    if exact is not None:
        return exact
    return next((f for f in struct.fields if name(f).lower() == part.lower()), None)


def _leaves(struct: StructType, logical: Path, physical: Path) -> Iterator[Leaf]:
    for child in struct.fields:
        path = (*logical, child.name)
        real = (*physical, child.physical_name)
        if isinstance(child.data_type, StructType):
            yield from _leaves(child.data_type, path, real)
        else:
            yield Leaf(path, real, child.data_type, child.nullable)


def _render(struct: StructType, depth: int) -> Iterator[str]:
    for child in struct.fields:
        suffix = "" if child.nullable else " not null"
        nested = isinstance(child.data_type, StructType)
        yield "  " * depth + f"{child.name}: {'struct' if nested else child.data_type}{suffix}"
        if isinstance(child.data_type, StructType):
            yield from _render(child.data_type, depth + 1)


def parse_type(document: Any, depth: int = 0) -> DataType:  # noqa: ANN401  JSON
    """Return the type in a piece of a schema's JSON, which is `depth` levels below its root."""
    if depth > MAX_DEPTH:
        raise ValueError(f"types are nested deeper than {MAX_DEPTH} levels")
    if isinstance(document, str):
        decimal = _DECIMAL.match(document)
        if decimal:
            return DecimalType(int(decimal[1]), int(decimal[2]))
        return DecimalType(10, 0) if document == "decimal" else PrimitiveType(document)
    kind = document["type"]
    if kind == "struct":
        return StructType(tuple(_parse_field(f, depth + 1) for f in document["fields"]))
    if kind == "array":
        return ArrayType(
            parse_type(document["elementType"], depth + 1), bool(document["containsNull"])
        )
    if kind == "map":
        return MapType(
            parse_type(document["keyType"], depth + 1),
            parse_type(document["valueType"], depth + 1),
            bool(document["valueContainsNull"]),
        )
    raise ValueError(f"unknown type {kind!r}")


def _parse_field(document: Any, depth: int) -> StructField:  # noqa: ANN401  JSON
    return StructField(
        str(document["name"]),
        parse_type(document["type"], depth),
        bool(document["nullable"]),
        dict(document.get("metadata") or {}),
    )


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
    """Return a field as an object of the protocol's JSON."""
    return {
        "name": child.name,
        "type": _type_document(child.data_type),
        "nullable": child.nullable,
        "metadata": dict(child.metadata),
    }
