"""Partition columns: the columns in data files, values as the log spells them, and directories.

Partition values are texts by physical name. Delta Spark compares typed values, so two spellings of
one value are one partition. Null and "" are two partitions, though the protocol reads "" as null.

Source: PROTOCOL.md, "Partition Value Serialization"; Delta Spark, PartitionUtils; Spark,
ExternalCatalogUtils.escapePathName.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from liquidlog.errors import CorruptLogError, UsageError
from liquidlog.spec.actions import Metadata
from liquidlog.spec.arrow import TIMESTAMP_NTZ, arrow_type
from liquidlog.spec.schema import (
    MODE,
    DataType,
    DecimalType,
    MappingMode,
    PrimitiveType,
    StructField,
    StructType,
    mapping_mode,
    parse_schema,
    quote_path,
)

_NO_NUMBER: Final = re.compile(r"[+-][+-]|[+-]?0[xX]")
"""Begins texts that Arrow takes for numbers and Spark does not."""

PartitionTexts = Mapping[str, str | None]
"""Partition values by physical name, spelled as in the log."""

NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
RANDOM_PREFIXES: Final = "delta.randomizeFilePrefixes"
RANDOM_PREFIX_LENGTH: Final = "delta.randomPrefixLength"

_DEFAULT_PREFIX_LENGTH: Final = 2
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


def partition_directory(values: PartitionTexts, names: Mapping[str, str]) -> str:
    """Return the directory of a partition, relative to the table, with Hive's spelling."""
    return "/".join(
        f"{_escaped(name)}={_escaped(values[physical] or NULL_DIRECTORY)}"
        for physical, name in names.items()
    )


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
    """Return the directory for new files of a partition, as Delta Spark names it."""
    if has_short_directories(configuration):
        return prefix_directory(configuration, unique_id)
    found = partition_directory(values, {name: name for name in values})
    is_too_long = any(len(part.encode()) > _LONGEST_NAME_BYTES for part in found.split("/"))
    return prefix_directory(configuration, unique_id) if is_too_long else found


def prefix_directory(configuration: Mapping[str, str], unique_id: str) -> str:
    """Return a directory of random characters from `unique_id`; the table sets their number."""
    text = configuration.get(RANDOM_PREFIX_LENGTH, "")
    length = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_PREFIX_LENGTH
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
_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
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
        name = kind.name if isinstance(kind, PrimitiveType) else str(kind)
        if name not in _FORMS.keys() | {"string"} and not isinstance(kind, DecimalType):
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
    zone = ZoneInfo(time_zone)
    return {
        name: _moment(text, zone) if name in zoneless else text for name, text in values.items()
    }


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


def _moment(text: str | None, zone: ZoneInfo) -> str | None:
    if text is None or _LOCAL.fullmatch(text) is None:
        return text
    seconds, point, fraction = text.partition(".")
    try:
        found = dt.datetime.fromisoformat(seconds).replace(tzinfo=zone).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return text  # `typed_value` refuses it
    return f"{found.replace(tzinfo=None).isoformat()}{point}{fraction}Z"


def typed_value(text: str | None, field: StructField) -> pa.Scalar:
    """Return a partition value in its column's Arrow type; None and "" become null."""
    kind = arrow_type(field.data_type)
    name = field.data_type.name if isinstance(field.data_type, PrimitiveType) else ""
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
        name = field.data_type.name if isinstance(field.data_type, PrimitiveType) else ""
        if name in _BYTES and any(one[field.physical_name] == "" for one in documents):
            yield _disagreement("", field, ": expected null or a text of at least one character")
        for text in dict.fromkeys(document[field.physical_name] for document in documents):
            try:
                found = typed_value(text, field)
            except ValueError as error:
                yield str(error)
                continue
            if not found.is_valid and not field.nullable:
                yield f"partition column {quote_path((field.name,))} takes no null, and is null"


def _decimal(text: str, kind: DecimalType) -> Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError("expected digits")
    value = Decimal(text)
    exact = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if exact != value or len(exact.as_tuple().digits) > kind.precision:
        raise ValueError(f"expected at most {kind.precision} digits, {kind.scale} after the point")
    return exact
