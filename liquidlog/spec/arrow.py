"""How values of a table are held: as Arrow types, in the log's partition values, in calendars.

This project reads and writes tables in this form only: microsecond timestamps, plain strings,
everything nullable, list items named `element`. Void columns have no Arrow form, because no data
file holds them. A variant is its two binaries and an interval its number of months or microseconds;
both are never decoded.

Partition columns: the columns in data files, values as the log spells them, and directories.

Partition values are texts by physical name. Delta Spark compares typed values, so two spellings of
one value are one partition. Null and "" are two partitions, though the protocol reads "" as null.

The calendar of dates and timestamps in a Parquet file, and their values in today's calendar.

Files from before Spark 3 are in the hybrid calendar of java.util (Julian until 1582-10-04), later
files in the proleptic Gregorian calendar, except on request; Databricks changed years later. The
calendars agree on dates since 1582-10-15, and on instants since 1900, because hybrid zones had no
local mean time.

Source: PROTOCOL.md, "Primitive Types", "Void Type", "Variant Data Type"; the RFC "Interval Types";
Delta Spark writes every Parquet column as nullable, but not the two parts of a variant;
PROTOCOL.md, "Partition Value Serialization"; Delta Spark, PartitionUtils; Spark,
ExternalCatalogUtils.escapePathName; Spark, DataSourceUtils (`datetimeRebaseSpec`,
`int96RebaseSpec`), RebaseDateTime and its julian-gregorian-rebase-micros.json,
ParquetVectorUpdaterFactory (TIMESTAMP_NTZ is never moved).
"""

import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from enum import Enum, StrEnum
from functools import lru_cache
from itertools import combinations
from typing import Any, Final, Self, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.errors import CorruptLogError, UsageError
from liquidlog.spec.actions import Metadata
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_DEPTH,
    MODE,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MappingMode,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    mapping_mode,
    nested_ids,
    parse_schema,
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
        text = f"a table cannot have columns of these types: {'; '.join(problems)}"
        raise UsageError(text, columns=problems)
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
    if pa.types.is_decimal(found) and not pa.types.is_decimal256(found):
        decimal = DecimalType(found.precision, found.scale)
        return decimal if _has_arrow_form(decimal) else None
    name = "binary" if pa.types.is_fixed_size_binary(found) else _DELTA.get(found)
    if isinstance(found, pa.TimestampType):
        name = "timestamp" if found.tz else "timestamp_ntz"
    return None if name is None else PrimitiveType(name)


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


_NO_NUMBER: Final = re.compile(r"[+-][+-]|[+-]?0[xX]")
"""Begins texts that Arrow takes for numbers and Spark does not."""

PartitionTexts = Mapping[str, str | None]
"""Partition values by physical name, spelled as in the log."""

NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
RANDOM_PREFIXES: Final = "delta.randomizeFilePrefixes"
RANDOM_PREFIX_LENGTH: Final = "delta.randomPrefixLength"
_LONGEST_NAME_BYTES: Final = 255

_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
"""Characters that Hive's directories spell as % and two hex digits."""


def partition_fields(
    schema: StructType, partition_columns: Sequence[str], *, where: str
) -> tuple[StructField, ...]:
    """Return the fields of partition columns, which are given by logical names, in order."""
    known = {field.name: field for field in schema.fields}
    missing = [name for name in partition_columns if name not in known]
    if missing:
        detail = f"the table is partitioned by {', '.join(missing)}, which its schema lacks"
        raise CorruptLogError(where, detail)
    return tuple(known[name] for name in partition_columns)


def physical_partition_columns(metadata: Metadata) -> tuple[str, ...]:
    """Return the physical names of a table's partition columns, in order."""
    if not metadata.partition_columns:
        return ()
    schema = parse_schema(metadata.schema_string, where="the metaData")
    fields = partition_fields(schema, metadata.partition_columns, where="the metaData")
    return tuple(field.physical_name for field in fields)


def data_schema(
    schema: StructType, physical: Collection[str], *, holds_partitions: bool = False
) -> StructType:
    """Return the columns of data files: all but those with these physical names, or these last."""
    if not physical:
        return schema
    known = {field.physical_name: field for field in schema.fields}
    data = (field for name, field in known.items() if name not in physical)
    held = (known[name] for name in physical if holds_partitions)
    return StructType((*data, *held))


@lru_cache(maxsize=1 << 16)
def same_value(text: str | None, data_type: DataType) -> str | None:
    """Return one spelling for all spellings of a partition value, None for null.

    A timestamp without a zone never equals one with a zone, because its moment depends on the
    reader. A text that is not of the type only equals itself.
    """
    is_text = data_type in {PrimitiveType("string"), PrimitiveType("binary")}
    if not text or is_text or _NO_NUMBER.match(text.strip()):
        return text
    plain = text.strip().removeprefix("+")
    has_no_zone = data_type == PrimitiveType("timestamp") and _LOCAL.fullmatch(plain)
    try:
        return str(pa.scalar(plain).cast(TIMESTAMP_NTZ if has_no_zone else arrow_type(data_type)))
    except (pa.ArrowException, OverflowError, UsageError):
        return text


def directory_settings(configuration: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties that `output_directory` depends on."""
    named = (RANDOM_PREFIXES, RANDOM_PREFIX_LENGTH, MODE)
    return {name: configuration[name] for name in named if name in configuration}


def has_short_directories(configuration: Mapping[str, str]) -> bool:
    """Return whether directories omit partition values, so that partitions may share one."""
    mapped = mapping_mode(configuration) is not MappingMode.NONE
    return mapped or configuration.get(RANDOM_PREFIXES, "").lower() == "true"


def output_directory(
    configuration: Mapping[str, str], values: PartitionTexts, unique_id: str
) -> str:
    """Return the directory for new files of a partition, as Delta Spark names it.

    It has Hive's spelling of the values, or random characters from `unique_id`.
    """
    names = [
        f"{_escaped(name)}={_escaped(text or NULL_DIRECTORY)}" for name, text in values.items()
    ]
    is_too_long = any(len(name.encode()) > _LONGEST_NAME_BYTES for name in names)
    if not is_too_long and not has_short_directories(configuration):
        return "/".join(names)
    text = configuration.get(RANDOM_PREFIX_LENGTH, "")
    length = int(text) if text.isdecimal() and int(text) > 0 else 2
    return hashlib.sha256(unique_id.encode()).hexdigest()[:length]


def is_safe_directory(directory: str) -> bool:
    """Return whether a directory is below the table and not its log."""
    parts = directory.split("/")
    odd = {"\\", ":", "\0"} & set(directory)
    return not odd and parts[0] != "_delta_log" and not {"", ".", ".."} & set(parts)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


# Partition values from texts in the log. A text is refused if engines read it differently: a file
# that holds one engine's value would change what others read. For a TIMESTAMP without a zone, the
# reader names the zone; delta-rs takes UTC, Spark its session's zone.
#
# Source: PROTOCOL.md, "Partition Value Serialization"; Delta Spark casts texts as Spark does.

_INTEGER: Final = re.compile(r"-?[0-9]+")
_DECIMAL_TEXT: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_NUMBER: Final = re.compile(r"-?([0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?|Infinity)|NaN")
_DATE: Final = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LOCAL: Final = re.compile(_DATE.pattern + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
_WITH_ZONE: Final = re.compile(_LOCAL.pattern + "(Z|[+-][0-9]{2}:[0-9]{2})")

_FORMS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (_INTEGER, "digits")),
    **dict.fromkeys(("float", "double"), (_NUMBER, "a number")),
    "boolean": (re.compile("true|false"), "true or false"),
    "date": (_DATE, "YYYY-MM-DD"),
    "timestamp": (_WITH_ZONE, "YYYY-MM-DDThh:mm:ss.ffffffZ"),
    "timestamp_ntz": (_LOCAL, "YYYY-MM-DD hh:mm:ss.ffffff"),
}
"""The pattern of a text for each type, and its description."""

_BYTES: Final = frozenset({"string", "binary"})
_EXACT: Final = Context(prec=400)

READ_AS: Final = "UTC"
"""The zone of timestamps without one, unless the reader names another."""


def unwritable_partitions(fields: Sequence[StructField]) -> Iterator[str]:
    """Yield each partition column whose values have no spelling that all readers agree on."""
    for field in fields:
        kind = field.data_type
        if str(kind) not in {*_FORMS, "string"} and not isinstance(kind, DecimalType):
            yield f"partition column {quote_path((field.name,))} of type {kind}"


def in_zone(
    values: PartitionTexts, fields: Sequence[StructField], time_zone: str
) -> PartitionTexts:
    """Return partition values with timestamps that lack a zone moved from `time_zone` to UTC.

    Of two moments with the same local time, the first is taken; skipped times are read as by Spark.
    """
    zoneless = zoneless_columns([values], fields)
    if not zoneless:
        return values
    zone, moved = ZoneInfo(time_zone), dict(values)
    for name in zoneless:
        seconds, point, fraction = (values[name] or "").partition(".")
        with suppress(ValueError, OverflowError):  # `typed_value` refuses such a text
            found = dt.datetime.fromisoformat(seconds).replace(tzinfo=zone).astimezone(dt.UTC)
            moved[name] = f"{found.replace(tzinfo=None).isoformat()}{point}{fraction}Z"
    return moved


def zoneless_columns(
    documents: Sequence[PartitionTexts], fields: Sequence[StructField]
) -> tuple[str, ...]:
    """Return the physical names of TIMESTAMP columns with values that lack a zone."""
    return tuple(
        field.physical_name
        for field in fields
        if field.data_type == PrimitiveType("timestamp")
        and any(_LOCAL.fullmatch(one.get(field.physical_name) or "") for one in documents)
    )


def typed_value(text: str | None, field: StructField) -> pa.Scalar:
    """Return a partition value in its column's Arrow type; None and "" become null."""
    kind, name = arrow_type(field.data_type), str(field.data_type)
    if not text:
        return pa.scalar(None, kind)
    try:
        if name in _BYTES:
            return pa.scalar(text.encode(), pa.binary()).cast(kind)
        if isinstance(field.data_type, DecimalType):
            return pa.scalar(_decimal(text, field.data_type), kind)
        pattern, expected = _FORMS[name]
        if pattern.fullmatch(text) is None:
            raise ValueError(f"expected {expected}")  # noqa: TRY301  said below as any other
        return pa.scalar(text, pa.string()).cast(kind)
    except (ValueError, KeyError, InvalidOperation) as error:
        because = f": {error}" if str(error).startswith("expected") else ""
        raise ValueError(_disagreement(text, field, because)) from error


def _disagreement(text: str, field: StructField, because: str) -> str:
    return (
        f"the value {text!r} of partition column {quote_path((field.name,))} is no"
        f" {field.data_type} on which all readers agree{because}"
    )


def untyped_values(
    documents: Sequence[PartitionTexts], fields: Sequence[StructField]
) -> Iterator[str]:
    """Yield why a text is not a value of its column, once per text.

    The empty text is refused: the protocol reads it as null, Delta Spark as "".
    """
    for field in fields:
        spelled = dict.fromkeys(document[field.physical_name] for document in documents)
        if str(field.data_type) in _BYTES and "" in spelled:
            yield _disagreement("", field, ": expected null or a text of at least one character")
        for text in spelled:
            try:
                found = typed_value(text, field)
            except ValueError as error:
                yield str(error)
                continue
            if not found.is_valid and not field.nullable:
                yield f"partition column {quote_path((field.name,))} takes no null, and is null"


def _decimal(text: str, kind: DecimalType) -> Decimal:
    if _DECIMAL_TEXT.fullmatch(text) is None:
        raise ValueError("expected digits")
    value = Decimal(text)
    exact = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if exact != value or len(exact.as_tuple().digits) > kind.precision:
        raise ValueError(f"expected at most {kind.precision} digits, {kind.scale} after the point")
    return exact


SPARK_VERSION: Final = b"org.apache.spark.version"

TODAYS_FOOTER: Final = {SPARK_VERSION: b"4.0.0"}
"""Tells Spark 3 that values are in today's calendar; without it, Spark refuses dates before
1582-10-15 and timestamps before 1900."""


class Stored(Enum):
    """How dates and instants are stored; TIMESTAMP_NTZ has no rules."""

    DATE = "date"
    INT64 = "timestamp"
    INT96 = "INT96 timestamp"


class Calendar(StrEnum):
    """The calendar of one kind of column in a file."""

    TODAYS = "today's"
    JULIAN = "the Julian"
    UNKNOWN = "an unknown"


_JULIAN: Final[Mapping[Stored, tuple[bytes, bytes]]] = {
    Stored.DATE: (b"3.0.0", b"org.apache.spark.legacyDateTime"),
    Stored.INT64: (b"3.0.0", b"org.apache.spark.legacyDateTime"),
    Stored.INT96: (b"3.1.0", b"org.apache.spark.legacyINT96"),
}
"""Spark's file is Julian if its version is lower, compared as text, or if it has the key."""

UTC_ZONES: Final = frozenset(
    {
        *("UTC", "UCT", "GMT", "Z", "Zulu", "Universal", "Greenwich"),
        *("Etc/UTC", "Etc/UCT", "Etc/GMT", "Etc/Zulu", "Etc/Universal", "Etc/Greenwich"),
    }
)
"""Zones whose instants Spark moves by whole days, like dates."""

SWITCH_DAYS: Final = np.array(
    [
        *(-719164, -682945, -646420, -609895, -536845, -500320, -463795),
        *(-390745, -354220, -317695, -244645, -208120, -171595, -141427),
    ]
)
"""Julian days since 1970-01-01 where the days to move change, 0001-01-01 to 1582-10-15."""
MOVED_DAYS: Final = np.array([2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, 0])
_AGREED_DAYS: Final = int(SWITCH_DAYS[-1])
_AGREED_ANYWHERE_DAYS: Final = -25567
"""1900-01-01: since then instants agree in every zone."""

_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


class UnmovableError(ValueError):
    """A value has no known place in today's calendar; the message names it and the reason."""


@dataclass(frozen=True, slots=True)
class Calendars:
    """The calendars of one file's columns, and the zone of its instants, None if unknown."""

    kinds: Mapping[Stored, Calendar]
    zone: str | None

    @classmethod
    def of(cls, footer: Mapping[bytes, bytes] | None) -> Self:
        """Return the calendars that a footer's key-value metadata imply."""
        found, kinds = footer or {}, {}
        version = found.get(SPARK_VERSION)
        for kind, (below, key) in _JULIAN.items():
            kinds[kind] = Calendar.TODAYS
            if version is not None and (version < below or key in found):
                kinds[kind] = Calendar.JULIAN
            # Without a version, Spark 4 assumes today's calendar.
            elif version is None and {key, b"org.apache.spark.sql.parquet.row.metadata"} & set(
                found
            ):
                kinds[kind] = Calendar.UNKNOWN
        zone = found.get(b"org.apache.spark.timeZone")
        return cls(kinds, None if zone is None else zone.decode(errors="replace"))

    @property
    def are_todays(self) -> bool:
        """Whether no value has to move."""
        return set(self.kinds.values()) == {Calendar.TODAYS}

    def move(self, array: pa.Array, meant: pa.DataType, path: Path) -> pa.Array:
        """Return values in today's calendar, the same array if none has to move; else refuse.

        `meant` is the array's type, except that INT96 is in UTC and that it may have more fields.
        """
        kind, stored = array.type, _stored(array.type, meant)
        if isinstance(kind, pa.StructType):
            found = [array.field(number) for number in range(kind.num_fields)]
            fields = [
                self.move(values, meant.field(child.name).type, (*path, child.name))
                for values, child in zip(found, kind, strict=True)
            ]
            return _with_fields(array, found, fields)
        if isinstance(kind, pa.MapType):
            self._require_agreed(array.keys, meant.key_type, (*path, "key"))
            self._require_agreed(array.items, meant.item_type, (*path, "value"))
        elif pa.types.is_nested(kind):
            self._require_agreed(array.flatten(), meant.value_type, (*path, "element"))
        if stored is None:
            return array
        moved, known = self._moved(array, stored)
        if not known.all():
            raise UnmovableError(self._refusal(array, int(np.argmin(known)), stored, path))
        return moved

    def bounds(self, ends: pa.Array) -> pa.Array:
        """Return bounds from a footer, null where calendars do not agree."""
        kind = ends.type
        if isinstance(kind, pa.StructType):
            found = [ends.field(number) for number in range(kind.num_fields)]
            return _with_fields(ends, found, list(map(self.bounds, found)))
        # A timestamp without zone can be INT96.
        stored = _stored(kind, kind) or (Stored.INT96 if pa.types.is_timestamp(kind) else None)
        if stored is None or self.kinds[stored] is Calendar.TODAYS:
            return ends
        per_day, numbers = _numbers(ends)
        agreed = pc.greater_equal(numbers, self._agreed_since(stored) * per_day)
        return pc.if_else(agreed, ends, None)

    def _require_agreed(self, array: pa.Array, meant: pa.DataType, path: Path) -> None:
        if self.move(array, meant, path) is not array:
            detail = f"column {quote_path(path)} holds dates or timestamps of the Julian calendar"
            raise UnmovableError(f"{detail} in lists or maps; rewrite the file with Spark")

    def _moved(self, array: pa.Array, stored: Stored) -> tuple[pa.Array, NDArray[np.bool_]]:
        all_known = np.ones(len(array), np.bool_)
        calendar = self.kinds[stored]
        if calendar is Calendar.TODAYS:
            return array, all_known
        per_day, numbers = _numbers(array)
        since = self._agreed_since(stored)
        lowest = pc.min(numbers).as_py()
        if lowest is None or lowest >= since * per_day:
            return array, all_known
        values = np.asarray(pc.fill_null(numbers, since * per_day))
        days = values // per_day
        place = np.searchsorted(SWITCH_DAYS, days, side="right") - 1
        known = days >= since
        if since == _AGREED_DAYS and calendar is Calendar.JULIAN:
            known |= place >= 0
        moved = pa.array(values + MOVED_DAYS[place] * per_day, mask=np.asarray(numbers.is_null()))
        if pa.types.is_date32(array.type):
            moved = moved.cast(pa.int32())
        return moved.cast(array.type), known

    def _agreed_since(self, stored: Stored) -> int:
        in_days = stored is Stored.DATE or self.zone in UTC_ZONES
        return _AGREED_DAYS if in_days else _AGREED_ANYWHERE_DAYS

    def _refusal(self, array: pa.Array, place: int, stored: Stored, path: Path) -> str:
        unit = "D" if pa.types.is_date32(array.type) else getattr(array.type, "unit", "ms")
        value = np.int64(_numbers(array)[1][place].as_py()).astype(f"datetime64[{unit}]")
        why = self.refusal_of_old(stored) or "before year 1 of the Julian calendar"
        return f"column {quote_path(path)} holds the {stored.value} {value}, {why}"

    def refusal_of_old(self, stored: Stored) -> str | None:
        """Return why values before the calendars agree are refused, None if they are not."""
        calendar = self.kinds[stored]
        if calendar is Calendar.UNKNOWN:
            return "of a calendar that the file does not say; rewrite it with Spark"
        if calendar is Calendar.TODAYS or self._agreed_since(stored) == _AGREED_DAYS:
            return None
        zone = "a zone that it does not name" if self.zone is None else f"the zone {self.zone}"
        return f"counted in the Julian calendar of {zone}; rewrite the file with Spark"


def are_old(values: pa.Array) -> NDArray[np.bool_]:
    """Return which dates or timestamps lie before the calendars agree, (n,) bool."""
    per_day, numbers = _numbers(values)
    since = _AGREED_DAYS if pa.types.is_date(values.type) else _AGREED_ANYWHERE_DAYS
    old = pc.fill_null(pc.less(numbers, since * per_day), fill_value=False)
    return np.asarray(old, np.bool_)


def _with_fields(
    array: pa.StructArray, found: Sequence[pa.Array], fields: Sequence[pa.Array]
) -> pa.StructArray:
    if all(new is old for new, old in zip(fields, found, strict=True)):
        return array
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(array.type), mask=mask)


def _stored(kind: pa.DataType, meant: pa.DataType) -> Stored | None:
    if pa.types.is_date(kind):
        return Stored.DATE
    if not isinstance(kind, pa.TimestampType) or not isinstance(meant, pa.TimestampType):
        return None
    if kind.tz is None:
        return None if meant.tz is None else Stored.INT96
    return Stored.INT64


def _numbers(array: pa.Array) -> tuple[int, Any]:
    """Return the units per day, and dates or timestamps as int64 in this unit."""
    if pa.types.is_date32(array.type):
        return 1, array.cast(pa.int32()).cast(pa.int64())
    unit = array.type.unit if isinstance(array.type, pa.TimestampType) else "ms"
    return _PER_DAY[unit], array.cast(pa.int64())
