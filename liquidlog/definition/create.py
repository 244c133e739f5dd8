"""New tables and clustering columns: properties that a user may set, features they need.

Source: PROTOCOL.md, "Table Features"; Delta Spark, DeltaConfigs and TableFeature.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from msgspec import structs

from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    ClusteringColumn,
    clustering_domain,
    clustering_state,
    resolve_columns,
)
from liquidlog.clustering.row_tracking import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from liquidlog.definition.property_rules import canonical_key, layout_problems
from liquidlog.errors import ClusteringColumnError, UnsupportedFeatureError, UsageError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AnyAction, Change, DomainMetadata, Format, Metadata, Protocol
from liquidlog.spec.arguments import CODEC_NAMES, CODEC_PROPERTY
from liquidlog.spec.evolution import file_problems, schema_problems
from liquidlog.spec.features import (
    DOMAIN_METADATA,
    ROW_TRACKING,
    clustering_upgrade,
    new_table_protocol,
    switched_feature,
    table_features,
    unsupported_for_writing,
)
from liquidlog.spec.partitions import unwritable_partitions
from liquidlog.spec.schema import (
    MAX_COLUMN_ID,
    MODE,
    ArrayType,
    DataType,
    DecimalType,
    MappingMode,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    find_column,
    mapping_mode,
    quote_path,
    schema_json,
    with_fields,
    with_new_mapping,
    without_mapping,
)
from liquidlog.spec.text import unknown_columns

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


def _check_properties(properties: Mapping[str, str]) -> None:
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


def _table_configuration(properties: Mapping[str, str]) -> dict[str, str]:
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


# CREATE TABLE and ALTER TABLE ... CLUSTER BY as changes. No data is ever rewritten
#
# Source: Delta Spark, CreateDeltaTableCommand and AlterTableClusterByDeltaCommand.


def create_change(
    schema: StructType,
    *,
    cluster_by: Sequence[Path],
    partition_by: Sequence[Path] = (),
    properties: Mapping[str, str],
    new_id: Callable[[], str],
    now_ms: int,
    description: str | None = None,
) -> Change:
    """Return the change that is version 0 of a new, empty table.

    Without `cluster_by` the table is not clustered, without `partition_by` not partitioned. Column
    names are case-sensitive, as in the reference engine's CREATE TABLE. If the properties ask for
    column mapping, every column gets an id and a physical name of its own.
    """
    properties = {canonical_key(name): value for name, value in properties.items()}
    _check_properties(properties)
    problems = [str(one) for one in layout_problems(properties, properties, schema)]
    if cluster_by and partition_by:
        problems.append("a table has clustering columns or partition columns, not both")
    problems += _partition_problems(schema, partition_by)
    if problems:
        raise UsageError("; ".join(problems), problems=problems)
    table_id = new_id()
    schema, configuration = _mapped(schema, _table_configuration(properties), new_id)
    columns = resolve_columns(
        schema,
        cluster_by,
        configuration=configuration,
        partition_columns=(),
        case_sensitive=True,
    )
    partition_columns = tuple(name for (name,) in partition_by)
    features = {**properties, **configuration}
    protocol = _new_protocol(schema, features, partition_columns, clustered=bool(columns))
    metadata = _metadata(schema, configuration, partition_columns, description, table_id, now_ms)
    return _create(metadata, protocol, columns)


def like_change(source: Snapshot, *, new_id: Callable[[], str], now_ms: int) -> Change:
    """Return the change that is version 0 of an empty table with the definition of `source`.

    It gets the schema, the properties, and the clustering or partition columns; the reference
    engine's CREATE TABLE LIKE loses the clustering columns. State that belongs only to the source
    is left out: high-water marks, column ids and physical names. With column mapping, columns get
    new ids and names.
    """
    state = clustering_state(source)
    table_id = new_id()
    kept, configuration = without_state(source.schema, source.metadata.configuration)
    schema, properties = _mapped(kept, configuration, new_id)
    if state.unresolved:
        names = ", ".join(quote_path(path) for path in state.unresolved)
        raise ClusteringColumnError(
            (f"the source is clustered by {names}, which its schema no longer has",)
        )
    columns = resolve_columns(
        schema,
        [column.logical for column in state.columns],
        configuration=properties,
        partition_columns=(),
        limit=len(state.columns),
    )
    partitions, description = source.metadata.partition_columns, source.metadata.description
    protocol = _new_protocol(schema, properties, partitions, clustered=state.clustered)
    metadata = _metadata(schema, properties, partitions, description, table_id, now_ms)
    return _create(metadata, protocol, columns)


def _metadata(
    schema: StructType,
    configuration: Mapping[str, str],
    partition_columns: tuple[str, ...],
    description: str | None,
    table_id: str,
    now_ms: int,
) -> Metadata:
    return Metadata(
        id=table_id,
        description=description,
        format=Format(provider="parquet", options={}),
        schema_string=schema_json(schema),
        partition_columns=partition_columns,
        configuration=configuration,
        created_time=now_ms,
    )


def cluster_by_change(snapshot: Snapshot, columns: Sequence[Path] | None) -> Change | None:
    """Return the change that sets the clustering columns; without `columns` it clears them.

    Returns None if there is nothing to change: the domain lists these columns already, or it would
    be cleared on a table that never had the feature. A commit without a change would still conflict
    with every running rewrite. On a table without the feature, the same commit upgrades the
    protocol. The reference engine then also repeats the unchanged metaData, which would needlessly
    conflict with other writers. Existing cubes are left alone.
    """
    state = clustering_state(snapshot)
    if columns is None and not state.clustered:
        return None
    if columns is not None and not columns:
        raise ClusteringColumnError(("no clustering column is given; --none clears them",))
    resolved = resolve_columns(
        snapshot.schema,
        columns or (),
        configuration=snapshot.metadata.configuration,
        partition_columns=snapshot.metadata.partition_columns,
    )
    domain = clustering_domain(resolved)
    if state.clustered and snapshot.domains.get(CLUSTERING_DOMAIN) == domain:
        return None
    old = (*state.names, *(quote_path(path) for path in state.unresolved))
    actions: tuple[AnyAction, ...] = (domain,)
    if not state.clustered:
        actions = (clustering_upgrade(snapshot.protocol), *actions)
    return Change(
        operation="CLUSTER BY",
        parameters={
            "oldClusteringColumns": ",".join(old),
            "newClusteringColumns": ",".join(column.name for column in resolved),
        },
        actions=actions,
        is_blind_append=True,
    )


def _mapped(
    schema: StructType, configuration: Mapping[str, str], new_id: Callable[[], str]
) -> tuple[StructType, dict[str, str]]:
    """Return schema and properties, with a new column mapping if the properties ask for one."""
    mode = mapping_mode(configuration)
    if mode is MappingMode.NONE:
        return without_mapping(schema), dict(configuration)
    mapped, largest = with_new_mapping(schema, new_id)
    return mapped, {**configuration, MODE: mode.value, MAX_COLUMN_ID: str(largest)}


def _partition_problems(schema: StructType, partition_by: Sequence[Path]) -> Iterator[str]:
    fields = {(field.name,): field for field in schema.fields}
    unknown = [path for path in partition_by if path not in fields]
    inside = [path for path in unknown if len(path) > 1 and find_column(schema, path)]
    for path in inside:
        yield f"{quote_path(path)} lies inside a struct; a partition column is a whole column"
    missing = [quote_path(path) for path in unknown if path not in inside]
    yield from unknown_columns(missing, schema)
    for path in dict.fromkeys(path for path in partition_by if partition_by.count(path) > 1):
        yield f"{quote_path(path)} is named more than once"
    found = [fields[path] for path in partition_by if path in fields]
    for problem in unwritable_partitions(found):
        yield f"{problem}: it must be a number, a date, a timestamp, a string or a boolean"
    if fields and set(partition_by) >= fields.keys():
        yield "all columns are partition columns; data files need one more to hold"


def _new_protocol(
    schema: StructType,
    properties: Mapping[str, str],
    partition_columns: Sequence[str],
    *,
    clustered: bool,
) -> Protocol:
    features = needed_features(schema, properties)
    if clustered:
        features = tuple(name for name in features if name != DOMAIN_METADATA)
    protocol = new_table_protocol(features, clustered=clustered)
    problems = (
        *unsupported_for_writing(protocol, properties),
        *schema_problems(protocol, properties, schema),
        *(file_problems(partition_columns, properties) if partition_columns else ()),
    )
    if problems:
        raise UnsupportedFeatureError("the new table", "created", problems)
    return protocol


def _create(metadata: Metadata, protocol: Protocol, columns: Sequence[ClusteringColumn]) -> Change:
    configuration = with_row_tracking_columns(
        metadata.configuration, table_features(protocol), metadata.id
    )
    metadata = structs.replace(metadata, configuration=configuration)
    domains: tuple[DomainMetadata, ...] = (clustering_domain(columns),) if columns else ()
    return Change(
        operation="CREATE TABLE",
        parameters={
            "partitionBy": _json(metadata.partition_columns),
            "clusterBy": _json([column.name for column in columns]),
            "description": metadata.description,
            "isManaged": "false",
            "properties": _json(metadata.configuration),
        },
        actions=(metadata, protocol, *domains),
        is_blind_append=True,
    )


def _json(value: Any) -> str:  # noqa: ANN401  any JSON value
    return msgspec.json.encode(value).decode()
