"""What IcebergCompatV1 and V2 ask of a table, so that its files make an Iceberg table too.

Source: PROTOCOL.md, "Iceberg Compatibility V1" and "Iceberg Compatibility V2"; Delta Spark,
IcebergCompat.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from liquidlog.spec.arrow import INTERVALS
from liquidlog.spec.features import DELETION_VECTORS, ICEBERG_COMPAT_V1, ICEBERG_COMPAT_V2, is_true
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_COLUMN_ID,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MappingMode,
    MapType,
    Path,
    PrimitiveType,
    StructType,
    fields_with_paths,
    mapping_mode,
    nested_ids,
    nested_parts,
    quote_path,
)

PROPERTY_V1: Final = "delta.enableIcebergCompatV1"
PROPERTY_V2: Final = "delta.enableIcebergCompatV2"

TypeChange = tuple[Path, DataType, DataType]
"""The path of a column, its type before and its type after."""

_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_TYPES: Final = _INTEGERS | {
    *("float", "double", "string", "binary", "boolean"),
    *("timestamp", "timestamp_ntz", "date"),
}
"""The primitive types that V2 allows, with decimals."""


def file_tags(configuration: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the tags of every new file of a table; the reference engine's upgrades look for it."""
    return {"ICEBERG_COMPAT_VERSION": "2"} if is_true(configuration, PROPERTY_V2) else {}


def iceberg_problems(
    features: Collection[str],
    configuration: Mapping[str, str],
    schema: StructType,
    changes: Iterable[TypeChange],
) -> Iterator[str]:
    """Yield what the enabled version forbids in a table's definition."""
    is_v1, is_v2 = (is_true(configuration, name) for name in (PROPERTY_V1, PROPERTY_V2))
    if is_v1 and is_v2:
        yield f"{ICEBERG_COMPAT_V1} and {ICEBERG_COMPAT_V2} at once"
    if is_v1:
        yield from _problems_of_both(ICEBERG_COMPAT_V1, configuration, changes)
        yield from _v1_problems(features, schema)
    if is_v2:
        yield from _problems_of_both(ICEBERG_COMPAT_V2, configuration, changes)
        yield from _v2_problems(features, configuration, schema)


def _problems_of_both(
    name: str, configuration: Mapping[str, str], changes: Iterable[TypeChange]
) -> Iterator[str]:
    if mapping_mode(configuration) is MappingMode.NONE:
        yield f"{name} without column mapping"
    for path, source, target in changes:
        if isinstance(source, DecimalType) and isinstance(target, DecimalType):
            is_known = source.scale == target.scale
        else:
            pair = str(source), str(target)
            is_known = pair == ("float", "double") or _INTEGERS.issuperset(pair)
        if not is_known:
            yield f"{name} with a change of {quote_path(path)} to {target}"


def _v1_problems(features: Collection[str], schema: StructType) -> Iterator[str]:
    if DELETION_VECTORS in features:
        yield f"{ICEBERG_COMPAT_V1} with deletionVectors"
    for path, field in fields_with_paths(schema):
        is_plain = str(field.data_type) not in {str(VOID), *INTERVALS}
        if isinstance(field.data_type, ArrayType | MapType) or not is_plain:
            yield f"{ICEBERG_COMPAT_V1} with {quote_path(path)}: {field.data_type}"


def _v2_problems(
    features: Collection[str], configuration: Mapping[str, str], schema: StructType
) -> Iterator[str]:
    name = ICEBERG_COMPAT_V2
    if DELETION_VECTORS in features and is_true(configuration, "delta.enableDeletionVectors"):
        yield f"{name} with delta.enableDeletionVectors=true"
    for path, field in fields_with_paths(schema):
        for inner, data_type in (((), field.data_type), *nested_parts(field.data_type)):
            if isinstance(data_type, PrimitiveType) and data_type.name not in _TYPES:
                yield f"{name} with {quote_path((*path, *inner))}: {data_type}"
        ids = nested_ids(field)
        for inner, _ in nested_parts(field.data_type):
            if type(ids.get(".".join((field.physical_name, *inner)))) is not int:
                yield f"{name} without an id of {quote_path((*path, *inner))}"
    text = configuration.get(MAX_COLUMN_ID, "")
    largest = int(text) if text.isdecimal() else 0
    for number, count in Counter(_ids(schema)).items():
        if count > 1 or not 0 <= number <= largest:
            yield f"{name} with {count} columns or parts of columns of the id {number}"


def _ids(schema: StructType) -> Iterator[int]:
    for _, field in fields_with_paths(schema):
        found = (field.metadata.get(FIELD_ID), *nested_ids(field).values())
        yield from (number for number in found if type(number) is int)
