"""Definition of a new table: properties that a user may set, and features that they need.

Source: PROTOCOL.md, "Table Features"; Delta Spark, DeltaConfigs and TableFeature.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from liquidlog.clustering.row_tracking import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from liquidlog.errors import UsageError
from liquidlog.spec.codecs import CODEC_NAMES, CODEC_PROPERTY
from liquidlog.spec.features import DOMAIN_METADATA, ROW_TRACKING, switched_feature
from liquidlog.spec.fields import with_fields
from liquidlog.spec.mapping import MAX_COLUMN_ID, without_mapping
from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_FEATURE_PREFIX: Final = "delta.feature."
_CONSTRAINT_PREFIX: Final = "delta.constraints."
_FEATURE_VALUES: Final = frozenset({"supported", "enabled"})
_EVERY_TABLE: Final = frozenset({"appendOnly", "invariants"})
_VERSIONS: Final = frozenset({"delta.minreaderversion", "delta.minwriterversion"})

# Maps a key of a field's metadata to the feature that gives the key a meaning.
_FIELD_FEATURES: Final[Mapping[str, str]] = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.identity.step": "identityColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
    "__COLLATIONS": "collations",
}

_TYPE_FEATURES: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(
        ("byte", "short", "integer", "long", "float", "double", "date", "timestamp", "string")
    ),
    **dict.fromkeys(("boolean", "binary", "void")),
    "timestamp_ntz": "timestampNtz",
    "variant": "variantType",
}

_SOURCE_STATE: Final = frozenset(
    {
        "delta.typeChanges",
        "delta.identity.highWaterMark",
        "delta.columnMapping.maxColumnId",
        ROW_ID_COLUMN,
        ROW_COMMIT_VERSION_COLUMN,
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.requireCheckpointProtectionBeforeVersion",
    }
)


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse properties that a user cannot set, or cannot set to these values."""
    problems = []
    for name, value in properties.items():
        if name.lower() in {"clusteringcolumns", f"{_FEATURE_PREFIX}clustering"}:
            problems.append(f"{name} cannot be set; give clustering columns instead")
        elif name.lower() in _VERSIONS:
            problems.append(f"{name} cannot be set; a new table gets the versions it needs")
        elif name == MAX_COLUMN_ID:
            problems.append(f"{name} cannot be set; it counts the columns")
        elif name.startswith(_FEATURE_PREFIX) and value not in _FEATURE_VALUES:
            problems.append(f"{name} must be 'supported', not {value!r}")
        elif name == CODEC_PROPERTY and value.lower() not in CODEC_NAMES:
            problems.append(f"{name} must be one of {', '.join(CODEC_NAMES)}, not {value!r}")
    if problems:
        raise UsageError("; ".join(problems), problems=problems)


def table_configuration(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the table stores: requests for features go to its protocol."""
    return {
        name: value for name, value in properties.items() if not name.startswith(_FEATURE_PREFIX)
    }


def with_row_tracking_columns(
    configuration: Mapping[str, str], features: Collection[str], table_id: str
) -> dict[str, str]:
    """Return the properties, with names of row tracking's hidden columns if they ask for it.

    The reference engine, too, names the columns at creation, although they are not needed before
    row tracking is enabled.
    """
    if ROW_TRACKING not in features:
        return dict(configuration)
    names = {
        ROW_ID_COLUMN: f"_row-id-col-{table_id}",
        ROW_COMMIT_VERSION_COLUMN: f"_row-commit-version-col-{table_id}",
    }
    return {**configuration, **names}


def needed_features(schema: StructType, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the table features that a new table's schema and properties need, without repeats.

    Features that every new table has are left out. A type without a known feature is returned as
    `type <name>`, which is never supported.
    """
    needed = dict.fromkeys([*_property_features(properties), *_type_features(schema)])
    if ROW_TRACKING in needed:
        needed[DOMAIN_METADATA] = None
    return tuple(name for name in needed if name not in _EVERY_TABLE)


def without_state(
    schema: StructType, properties: Mapping[str, str]
) -> tuple[StructType, dict[str, str]]:
    """Return schema and properties without the parts that describe the data of a single table."""
    kept = {name: value for name, value in properties.items() if name not in _SOURCE_STATE}
    return without_mapping(with_fields(schema, _field_without_state)), kept


def _property_features(properties: Mapping[str, str]) -> Iterator[str]:
    for name, value in properties.items():
        feature = switched_feature(name, value)
        if feature is not None:
            yield feature
        if name.startswith(_FEATURE_PREFIX):
            yield name.removeprefix(_FEATURE_PREFIX)
        if name.startswith(_CONSTRAINT_PREFIX):
            yield "checkConstraints"


def _type_features(data_type: DataType) -> Iterator[str]:
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from _field_features(field)
        case ArrayType(element):
            yield from _type_features(element)
        case MapType(key, value):
            yield from _type_features(key)
            yield from _type_features(value)
        case PrimitiveType(name):
            feature = _TYPE_FEATURES.get(name, f"type {name}")
            if feature is not None:
                yield feature
        case DecimalType():
            pass


def _field_features(field: StructField) -> Iterator[str]:
    for key, feature in _FIELD_FEATURES.items():
        if key in field.metadata:
            yield feature
    yield from _type_features(field.data_type)


def _field_without_state(field: StructField) -> StructField:
    metadata = {name: value for name, value in field.metadata.items() if name not in _SOURCE_STATE}
    return replace(field, metadata=metadata)
