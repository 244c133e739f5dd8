"""Table types as Arrow types, and back.

This project reads and writes tables in this form only: microsecond timestamps, plain strings,
everything nullable, list items named `element`. Void columns have no Arrow form, because no data
file holds them. A variant is its two binaries and an interval its number of months or microseconds;
both are never decoded.

Source: PROTOCOL.md, "Primitive Types", "Void Type", "Variant Data Type"; the RFC "Interval Types";
Delta Spark writes every Parquet column as nullable, but not the two parts of a variant.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.errors import UsageError
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_DEPTH,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    nested_ids,
    quote_path,
    with_fields,
)


def json_texts(values: pa.Array) -> pa.Array:
    """Return each value (integer, text, or a map or struct of them) as JSON, `null` for null."""
    kind = values.type
    if values.null_count == len(values):
        return pa.repeat("null", len(values))
    if pa.types.is_struct(kind):
        starts = (f"{',' if n else '{'}{json.dumps(field.name)}:" for n, field in enumerate(kind))
        children = map(json_texts, values.flatten())
        parts = [part for pair in zip(starts, children, strict=True) for part in pair]
        texts = pc.binary_join_element_wise(*parts, "}", "")
    elif pa.types.is_dictionary(kind):
        texts = json_texts(values.dictionary).take(values.indices)
    elif pa.types.is_map(kind):
        texts = pc.cast(json_objects(values), pa.string())
    else:
        texts = _quoted(values) if pa.types.is_string(kind) else pc.cast(values, pa.string())
    return pc.if_else(values.is_valid(), texts, "null") if values.null_count else texts


def json_objects(maps: pa.MapArray) -> pa.DictionaryArray:
    """Return each map as a JSON object; keys and values, which repeat, are quoted once."""
    offsets, keys, values = _entries(maps)
    named = pc.fill_null(_each_once(values), "null")
    entries = pc.binary_join_element_wise(_each_once(keys), named, ":")
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries)
    texts = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")
    return pc.if_else(maps.is_valid(), texts, None).dictionary_encode()


def map_values(maps: pa.MapArray, key: str) -> pa.Array:
    """Return the first value of `key` in each map, null where the key is absent."""
    # pc.map_lookup takes twenty times as long.
    offsets, keys, values = _entries(maps)
    if not len(keys):
        return pa.nulls(len(maps), maps.type.item_type)
    found = np.flatnonzero(pc.fill_null(pc.equal(keys, key), fill_value=False))[::-1]
    entry = np.full(len(maps), -1, np.int64)
    entry[np.searchsorted(offsets, found, side="right") - 1] = found
    return values.take(pa.array(entry, mask=entry < 0))


def _entries(maps: pa.MapArray) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    offsets = maps.offsets.to_numpy().astype(np.int64)
    first, entries = int(offsets[0]), int(offsets[-1] - offsets[0])
    return offsets - first, maps.keys.slice(first, entries), maps.items.slice(first, entries)


def _each_once(texts: pa.Array) -> pa.Array:
    encoded = texts.dictionary_encode()
    return _quoted(encoded.dictionary).take(encoded.indices)


def _quoted(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, r'["\\\x00-\x1f]')).as_py():
        # Control characters need other escapes; no known writer uses any.
        if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
            quoted = [None if text is None else json.dumps(text) for text in texts.to_pylist()]
            return pa.array(quoted, pa.string())
        texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise('"', texts, '"', "")


TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")

VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False),
    ]
)
"""An unshredded variant. No struct of a table equals it, because a struct's fields are nullable."""

PARQUET_FIELD_ID: Final = b"PARQUET:field_id"
_NO_IDS: Final[Mapping[str, int]] = {}

_MONTHS: Final = ("year", "month", "year to month")
_TIMES: Final = ("day", "hour", "minute", "second")
_SPANS: Final = (*_TIMES, *(f"{first} to {last}" for first, last in combinations(_TIMES, 2)))

INTERVALS: Final[Mapping[str, pa.DataType]] = {
    **{f"interval {name}": pa.int32() for name in _MONTHS},
    **{f"interval {name}": pa.int64() for name in _SPANS},
}
"""The names of interval types, which files hold as plain numbers of months or microseconds."""

_ARROW: Final[Mapping[str, pa.DataType]] = {
    **INTERVALS,
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
    **{arrow: name for name, arrow in _ARROW.items() if name not in {"variant", *INTERVALS}},
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
}


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array; only several chunks are copied."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def arrow_schema(schema: StructType, *, physical: bool = False) -> pa.Schema:
    """Return a table's Arrow schema without void columns; physical fields carry their field ids."""
    problems = unsupported_types(schema)
    if problems:
        raise UsageError(
            f"these columns cannot be read or written: {'; '.join(problems)}",
            columns=list(problems),
        )
    return pa.schema(_arrow_fields(schema, physical=physical))


def arrow_type(
    data_type: DataType,
    *,
    physical: bool = False,
    ids: Mapping[str, int] = _NO_IDS,
    place: str = "",
) -> pa.DataType:
    """Return the Arrow form of a supported type.

    `ids` are field ids of parts of arrays and maps, by the `place` of the type, `.` and the part.
    """

    def part(name: str, kind: DataType, *, nullable: bool = True) -> pa.Field:
        below = f"{place}.{name}"
        arrow = arrow_type(kind, physical=physical, ids=ids, place=below)
        return pa.field(name, arrow, nullable, metadata=_id_metadata(ids.get(below)))

    match data_type:
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element):
            return pa.list_(part("element", element))
        case MapType(key, value):
            return pa.map_(part("key", key, nullable=False), part("value", value))
        case StructType(fields):
            return pa.struct(_arrow_fields(StructType(fields), physical=physical))
        case PrimitiveType(name):
            if name not in _ARROW:
                raise UsageError(f"type {name} cannot be read or written", type=name)
            return _ARROW[name]


def unsupported_types(schema: StructType) -> tuple[str, ...]:
    """Return "column: type" for each part of the schema without an Arrow form, in order."""
    return tuple(
        f"{quote_path(path)}: {found}"
        for path, found in _parts(schema, ())
        if not _has_arrow_form(found)
    )


def intervals(schema: StructType) -> tuple[str, ...]:
    """Return "column: type" for each part of the schema that is an interval, in order."""
    return tuple(
        f"{quote_path(path)}: {found}"
        for path, found in _parts(schema, ())
        if isinstance(found, PrimitiveType) and found.name in INTERVALS
    )


def without_void(schema: StructType) -> StructType:
    """Return the schema without void fields, also inside arrays and maps."""
    return with_fields(schema, lambda field: None if field.data_type == VOID else field)


def delta_schema(schema: pa.Schema) -> StructType:
    """Return the table schema for an Arrow schema; every column is nullable."""
    problems: list[str] = []
    fields = [StructField(one.name, _delta_type((one.name,), one.type, problems)) for one in schema]
    if problems:
        raise UsageError(
            f"a table cannot have columns of these types: {'; '.join(problems)}", columns=problems
        )
    return StructType(tuple(fields))


def leaf_column(table: pa.Table, path: Path) -> pa.ChunkedArray:
    """Return the column at a path, null where an enclosing struct is null."""
    column = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _arrow_fields(struct: StructType, *, physical: bool) -> list[pa.Field]:
    fields = []
    for child in struct.fields:
        if child.data_type == VOID:
            continue
        name = child.physical_name if physical else child.name
        ids = nested_ids(child) if physical else _NO_IDS
        kind = arrow_type(child.data_type, physical=physical, ids=ids, place=name)
        own = child.metadata.get(FIELD_ID) if physical else None
        fields.append(pa.field(name, kind, metadata=_id_metadata(own)))
    return fields


def _id_metadata(field_id: int | None) -> dict[bytes, bytes] | None:
    return None if field_id is None else {PARQUET_FIELD_ID: str(field_id).encode()}


def _parts(data_type: DataType, path: Path) -> Iterator[tuple[Path, DataType]]:
    yield path, data_type
    match data_type:
        case StructType(fields):
            for child in fields:
                if child.data_type != VOID:
                    yield from _parts(child.data_type, (*path, child.name))
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
            return precision in range(1, 39) and 0 <= scale <= precision
        case StructType(fields):
            return not fields or any(child.data_type != VOID for child in fields)
        case _:
            return True


def _delta_primitive(found: pa.DataType) -> DataType | None:
    if isinstance(found, pa.TimestampType):
        return PrimitiveType("timestamp" if found.tz else "timestamp_ntz")
    if pa.types.is_decimal(found) and not pa.types.is_decimal256(found):
        decimal = DecimalType(found.precision, found.scale)
        return decimal if _has_arrow_form(decimal) else None
    if pa.types.is_fixed_size_binary(found):
        return PrimitiveType("binary")
    return PrimitiveType(_DELTA[found]) if found in _DELTA else None


def _delta_type(path: Path, found: pa.DataType, problems: list[str]) -> DataType:
    """Return the table type for an Arrow type; add a problem if there is none."""
    if isinstance(found, pa.StructType) and found.num_fields:
        children = ((one.name, _delta_type((*path, one.name), one.type, problems)) for one in found)
        return StructType(tuple(StructField(*child) for child in children))
    if isinstance(found, pa.MapType):
        key = _delta_type((*path, "key"), found.key_type, problems)
        return MapType(key, _delta_type((*path, "value"), found.item_type, problems))
    if is_list(found):
        return ArrayType(_delta_type((*path, "element"), found.value_type, problems))
    if isinstance(found, pa.DictionaryType):
        return _delta_type(path, found.value_type, problems)
    primitive = _delta_primitive(found)
    if primitive is None:
        problems.append(f"{quote_path(path)}: {found}")
    return primitive or VOID


def is_list(found: pa.DataType) -> bool:
    """Return whether an Arrow type is a list of any layout; a map is no list."""
    plain = pa.ListType | pa.LargeListType | pa.FixedSizeListType
    return isinstance(found, plain | pa.ListViewType | pa.LargeListViewType)


def with_leaf_types(
    found: pa.DataType, changed: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    """Return a type with its leaves changed, in their order; lists become plain."""
    if isinstance(found, pa.StructType):
        return pa.struct([child.with_type(with_leaf_types(child.type, changed)) for child in found])
    if isinstance(found, pa.MapType):
        key = with_leaf_types(found.key_type, changed)
        return pa.map_(key, with_leaf_types(found.item_type, changed))
    if is_list(found):
        return pa.list_(with_leaf_types(found.value_type, changed))
    return changed(found)


# The lengths of char(n) and varchar(n). Both are strings in a schema. The metadata of a top-level
# column has its whole type in Spark's SQL, for example `struct<a:varchar(3),b:array<char(2)>>`.
#
# Source: Spark, CharVarcharUtils and DataType.catalogString.

CHAR_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of column metadata: the type in SQL."""

_SHOWN: Final = 60
_LIMIT: Final = re.compile(r"(var)?char\s*\(\s*(\d{1,9})\s*\)", re.IGNORECASE)
_WORD: Final = re.compile(r"[^<>,:`()]+(?:\([^()]*\)[^<>,:`()]*)?")
_QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`")
_PLAIN: Final = re.compile(r"[^<>,:`]+")


@dataclass(frozen=True, slots=True)
class TextLimit:
    """At most `length` characters; readers pad a char (`padded`) with spaces to that length."""

    length: int
    padded: bool

    def __str__(self) -> str:
        return f"{'' if self.padded else 'var'}char({self.length})"


@dataclass(frozen=True, slots=True)
class StructLimits:
    """The limits of a struct's fields, in order."""

    fields: tuple[tuple[str, "Limits | None"], ...]


@dataclass(frozen=True, slots=True)
class ArrayLimits:
    """The limits of an array's elements."""

    element: "Limits | None"


@dataclass(frozen=True, slots=True)
class MapLimits:
    """The limits of a map's keys and values."""

    key: "Limits | None"
    value: "Limits | None"


Limits: TypeAlias = TextLimit | StructLimits | ArrayLimits | MapLimits


class CharTypeError(ValueError):
    """The char or varchar type in a column's metadata does not fit the column."""


def column_limits(field: StructField) -> Limits | None:
    """Return the limits of a column's texts, in the shape of its type, or None."""
    text = field.metadata.get(CHAR_VARCHAR)
    return _fitted(None if text is None else parse_limits(str(text)), field.data_type)


def parse_limits(text: str) -> Limits | None:
    """Return the limits in a type in Spark's SQL, or None."""
    if text.count("<") > MAX_DEPTH:
        raise CharTypeError(f"{text[:_SHOWN]!r}... is nested too deeply")
    limits, rest = _type(text.strip(), text)
    if rest:
        raise CharTypeError(f"{text!r} is not a type: {rest!r} is left over")
    return limits


def _type(text: str, whole: str) -> tuple[Limits | None, str]:
    word = _WORD.match(text)
    if word is None:
        raise CharTypeError(f"{whole!r} is not a type")
    name, rest = word[0].strip(), text[word.end() :]
    if not rest.startswith("<"):
        limit = _LIMIT.fullmatch(name)
        if limit is None and re.match(r"(?:var)?char\b", name, re.IGNORECASE):
            raise CharTypeError(f"{whole!r} is not a type: {name!r} has no length")
        return (TextLimit(int(limit[2]), padded=limit[1] is None) if limit else None), rest
    match name.lower():
        case "array":
            element, rest = _type(rest[1:].lstrip(), whole)
            return (None if element is None else ArrayLimits(element)), _after(rest, ">", whole)
        case "map":
            key, rest = _type(rest[1:].lstrip(), whole)
            value, rest = _type(_after(rest, ",", whole), whole)
            found = None if key is None and value is None else MapLimits(key, value)
            return found, _after(rest, ">", whole)
        case "struct":
            return _struct(rest[1:].lstrip(), whole)
        case other:
            raise CharTypeError(f"{whole!r} is not a type: {other!r} has no parts")


def _struct(text: str, whole: str) -> tuple[Limits | None, str]:
    fields: list[tuple[str, Limits | None]] = []
    while not text.startswith(">"):
        if fields:
            text = _after(text, ",", whole)
        quoted = _QUOTED.match(text)
        name = quoted or _PLAIN.match(text)
        if name is None:
            raise CharTypeError(f"{whole!r} is not a type: {text!r} has no field name")
        rest = _after(text[name.end() :], ":", whole)
        limits, text = _type(rest, whole)
        fields.append((quoted[1].replace("``", "`") if quoted else name[0].strip(), limits))
    limited = any(limits is not None for _, limits in fields)
    return (StructLimits(tuple(fields)) if limited else None), text[1:].lstrip()


def _after(text: str, mark: str, whole: str) -> str:
    if not text.startswith(mark):
        raise CharTypeError(f"{whole!r} is not a type: {mark!r} is missing before {text!r}")
    return text[1:].lstrip()


def _fitted(limits: Limits | None, data_type: DataType) -> Limits | None:
    match limits, data_type:
        case ((None | StructLimits()), StructType()):
            return _fitted_struct(() if limits is None else limits.fields, data_type)
        case ((None | ArrayLimits()), ArrayType()):
            element = _fitted(limits and limits.element, data_type.element)
            return None if element is None else ArrayLimits(element)
        case ((None | MapLimits()), MapType()):
            key = _fitted(limits and limits.key, data_type.key)
            value = _fitted(limits and limits.value, data_type.value)
            return None if key is None and value is None else MapLimits(key, value)
        case None, _:
            return None
        case TextLimit(), PrimitiveType(name="string"):
            return limits
        case _:
            raise CharTypeError("it has the lengths of char and varchar of another type")


def _fitted_struct(
    fields: tuple[tuple[str, Limits | None], ...], data_type: StructType
) -> StructLimits | None:
    known = {name.lower(): limits for name, limits in fields}
    names = {field.name.lower() for field in data_type.fields}
    lost = [name for name, limits in fields if limits is not None and name.lower() not in names]
    if lost or len(known) < len(fields):
        others = ", ".join(lost or known)
        raise CharTypeError(f"it has the lengths of char and varchar of other fields: {others}")
    found = []
    for field in data_type.fields:
        limits = known.get(field.name.lower())
        own = column_limits(field) if limits is None else _fitted(limits, field.data_type)
        found.append((field.name, own))
    return StructLimits(tuple(found)) if any(own is not None for _, own in found) else None
