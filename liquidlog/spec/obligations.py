"""What a table demands, by its features and properties, before files may be written.

Source: PROTOCOL.md, "Column Mapping", "Type Widening", "Iceberg Compatibility V1", "Void Type".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from liquidlog.spec.actions import Protocol
from liquidlog.spec.features import is_true, table_features
from liquidlog.spec.fields import fields_with_paths
from liquidlog.spec.mapping import MappingMode, mapping_mode, mapping_problems
from liquidlog.spec.schema import (
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Path,
    PrimitiveType,
    StructType,
    quote_path,
)
from liquidlog.spec.widening import type_change_problems, type_changes

ICEBERG_COMPAT_V1: Final = "icebergCompatV1"

MANIFESTS: Final = "delta.compatibility.symlinkFormatManifest.enabled"
_MATERIALIZING: Final = (
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    "delta.writePartitionColumnsToParquet",
    "delta.enableMaterializePartitionColumnsFeature",
)
"""Properties that ask for data files with the partition columns in them."""

_WIDENING: Final = frozenset({"typeWidening", "typeWidening-preview"})
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})


def file_problems(
    partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> tuple[str, ...]:
    """Return every reason in the properties why data files may be neither added nor removed."""
    problems = [
        f"{name} with partition columns, which data files must then hold too"
        for name in _MATERIALIZING
        if partition_columns and is_true(configuration, name)
    ]
    if is_true(configuration, MANIFESTS):
        problems.append(
            f"{MANIFESTS}=true (the manifests, which Presto, Athena and others read, would go on"
            " naming the old files; set it to false, or let Delta Spark write)"
        )
    return tuple(problems)


def schema_problems(
    protocol: Protocol, configuration: Mapping[str, str], schema: StructType
) -> tuple[str, ...]:
    """Return every reason in the schema and properties why no file may be written."""
    features = frozenset(table_features(protocol))
    problems = list(mapping_problems(schema, configuration))
    problems += type_change_problems(schema)
    changed = dict.fromkeys(path for path, _, _ in type_changes(schema))
    if not features & _WIDENING:
        names = (quote_path(path) for path in changed)
        problems += (f"a type change of {name} without typeWidening" for name in names)
    problems += _void_problems(schema)
    if ICEBERG_COMPAT_V1 in features and is_true(configuration, "delta.enableIcebergCompatV1"):
        problems += _iceberg_problems(features, configuration, schema)
    return tuple(dict.fromkeys(problems))


def _void_problems(schema: StructType) -> Iterator[str]:
    if _only_void(schema):
        yield "a table of void columns only"
    for path, field in fields_with_paths(schema):
        yield from _void_inside(field.data_type, path)


def _void_inside(data_type: DataType, path: Path) -> Iterator[str]:
    match data_type:
        case StructType() if _only_void(data_type):
            yield f"{quote_path(path)}: a struct of void fields only"
        case ArrayType(element):
            yield from _void_part(element, (*path, "element"))
        case MapType(key, value):
            yield from _void_part(key, (*path, "key"))
            yield from _void_part(value, (*path, "value"))
        case _:
            return


def _void_part(data_type: DataType, path: Path) -> Iterator[str]:
    # The fields of a struct inside an array or a map are visited with their own paths.
    if data_type == VOID:
        yield f"{quote_path(path)}: void inside an array or a map"
    yield from _void_inside(data_type, path)
    if isinstance(data_type, StructType):
        for inner, field in fields_with_paths(data_type):
            if field.data_type == VOID:
                yield f"{quote_path((*path, *inner))}: void inside an array or a map"


def _only_void(struct: StructType) -> bool:
    return bool(struct.fields) and all(child.data_type == VOID for child in struct.fields)


def _iceberg_problems(
    features: frozenset[str], configuration: Mapping[str, str], schema: StructType
) -> Iterator[str]:
    """Yield what IcebergCompatV1 forbids. The statistics it wants are always written."""
    if mapping_mode(configuration) is MappingMode.NONE:
        yield f"{ICEBERG_COMPAT_V1} without column mapping"
    if "deletionVectors" in features:
        yield f"{ICEBERG_COMPAT_V1} with deletionVectors"
    for path, field in fields_with_paths(schema):
        if isinstance(field.data_type, ArrayType | MapType) or field.data_type == VOID:
            yield f"{ICEBERG_COMPAT_V1} with {quote_path(path)}: {field.data_type}"
    for path, source, target in type_changes(schema):
        if not _iceberg_widens(source, target):
            yield f"{ICEBERG_COMPAT_V1} with a change of {quote_path(path)} to {target}"


def _iceberg_widens(source: DataType, target: DataType) -> bool:
    match source, target:
        case PrimitiveType(name), PrimitiveType(wider):
            return (name in _INTEGERS and wider in _INTEGERS) or (name, wider) == (
                "float",
                "double",
            )
        case DecimalType(_, scale), DecimalType(_, wide_scale):
            return scale == wide_scale
        case _:
            return False
