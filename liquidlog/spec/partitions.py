"""Partition columns: which columns files hold, values as the log spells them, and directories.

A file's partition values are texts by the columns' physical names. Two spellings of one value are
one partition to the reference engine, which compares typed values; null and "", which the protocol
reads as null, are two.

Source: PROTOCOL.md, "Partition Value Serialization"; Delta Spark, PartitionUtils; Spark,
ExternalCatalogUtils.escapePathName.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

from liquidlog.errors import CorruptLogError
from liquidlog.spec.actions import Metadata
from liquidlog.spec.mapping import MODE, MappingMode, mapping_mode
from liquidlog.spec.schema import (
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
)

PartitionTexts = Mapping[str, str | None]
"""Partition values by physical name, as the log spells them."""

NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
RANDOM_PREFIXES: Final = "delta.randomizeFilePrefixes"
RANDOM_PREFIX_LENGTH: Final = "delta.randomPrefixLength"

_DEFAULT_PREFIX_LENGTH: Final = 2
_LONGEST_NAME_BYTES: Final = 255
"""Longest name of a directory that file systems take."""

_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
"""Characters that Hive's directories hold as % and two hex digits."""

_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_BOOLEANS: Final = {"true": "true", "false": "false"}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?(Z|[+-]\d{2}:\d{2})?"
)


def partition_fields(
    schema: StructType, partition_columns: Sequence[str], *, where: str
) -> tuple[StructField, ...]:
    """Return the fields of the partition columns, whose logical names are given, in their order."""
    known = {field.name: field for field in schema.fields}
    missing = [name for name in partition_columns if name not in known]
    if missing:
        detail = f"the table is partitioned by {', '.join(missing)}, which its schema lacks"
        raise CorruptLogError(where, detail)
    return tuple(known[name] for name in partition_columns)


def physical_partition_columns(metadata: Metadata) -> tuple[str, ...]:
    """Return the physical names of the columns that a table is partitioned by, in their order."""
    if not metadata.partition_columns:
        return ()
    schema = parse_schema(metadata.schema_string, where="the metaData")
    fields = partition_fields(schema, metadata.partition_columns, where="the metaData")
    return tuple(field.physical_name for field in fields)


def data_schema(schema: StructType, physical: Collection[str]) -> StructType:
    """Return the columns that data files hold: all but the columns with these physical names."""
    if not physical:
        return schema
    return StructType(tuple(f for f in schema.fields if f.physical_name not in physical))


@lru_cache(maxsize=1 << 16)
def same_value(text: str | None, data_type: DataType) -> str | None:
    """Return one spelling for all spellings of a partition value; None for null.

    A timestamp without a zone is another one than any with a zone: which moment it is depends on
    the zone of who reads it, so a file with it is joined only with files that lack the zone too. A
    text that is no value of the type stays as it is: it is the same as itself only.
    """
    if text is None:
        return None
    try:
        return _spelled(text, data_type)
    except (ValueError, InvalidOperation, OverflowError):
        return text


def _spelled(text: str, data_type: DataType) -> str:
    if isinstance(data_type, DecimalType):
        return str(Decimal(text.strip()).quantize(Decimal(1).scaleb(-data_type.scale)))
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in _INTEGERS:
        return str(int(text.strip())) if text.strip().isascii() else text
    match name:
        case "boolean":
            return _BOOLEANS.get(text.strip().lower(), text)
        case "float" | "double":
            return repr(float(text.strip()))
        case "date":
            found = _DATE.match(text.strip())
            return text if found is None else found[0]
        case "timestamp" | "timestamp_ntz":
            return _instant(text, has_zone=name == "timestamp")
        case _:
            return text


def _instant(text: str, *, has_zone: bool) -> str:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return text
    day, clock, fraction, zone = found.groups()
    micros = (fraction or "").ljust(6, "0")
    if zone is None:
        return f"{day} {clock}.{micros}"
    if not has_zone:
        return text
    if zone == "Z":
        return f"{day}T{clock}.{micros}Z"
    moment = dt.datetime.fromisoformat(f"{day}T{clock}{zone}").astimezone(dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{micros}Z".rjust(len("0001-01-01T00:00:00.000000Z"), "0")


def partition_directory(values: PartitionTexts, names: Mapping[str, str]) -> str:
    """Return the directory of a partition as Hive names it, relative to the table.

    Args:
        values: The partition's values, by physical name.
        names: The columns' names in directories by their physical names, in the table's order.
    """
    return "/".join(
        f"{_escaped(name)}={_escaped(values[physical] or NULL_DIRECTORY)}"
        for physical, name in names.items()
    )


def directory_settings(configuration: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties that say how `output_directory` names directories."""
    named = (RANDOM_PREFIXES, RANDOM_PREFIX_LENGTH, MODE)
    return {name: configuration[name] for name in named if name in configuration}


def has_short_directories(configuration: Mapping[str, str]) -> bool:
    """Return whether directories say nothing of partition values, and partitions may share them."""
    mapped = mapping_mode(configuration) is not MappingMode.NONE
    return mapped or configuration.get(RANDOM_PREFIXES, "").lower() == "true"


def output_directory(
    configuration: Mapping[str, str], values: PartitionTexts, unique_id: str
) -> str:
    """Return where files of a partition are written: as the reference engine names it.

    Tables with column mapping or random prefixes get a short directory made from `unique_id`, and
    so do values that are too long for a name.
    """
    if has_short_directories(configuration):
        return prefix_directory(configuration, unique_id)
    found = partition_directory(values, {name: name for name in values})
    return prefix_directory(configuration, unique_id) if is_too_long(found) else found


def is_too_long(directory: str) -> bool:
    """Return whether a file system may refuse a part of a directory because of its length."""
    return any(len(part.encode()) > _LONGEST_NAME_BYTES for part in directory.split("/"))


def prefix_directory(configuration: Mapping[str, str], unique_id: str) -> str:
    """Return a directory of a few characters, as random as `unique_id`, of the table's length."""
    text = configuration.get(RANDOM_PREFIX_LENGTH, "")
    length = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_PREFIX_LENGTH
    return hashlib.sha256(unique_id.encode()).hexdigest()[:length]


def is_safe_directory(directory: str) -> bool:
    """Return whether files may be written to a directory: one below the table, and not its log."""
    parts = directory.split("/")
    odd = {"\\", ":", "\0"} & set(directory)
    return not odd and parts[0] != "_delta_log" and not {"", ".", ".."} & set(parts)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
