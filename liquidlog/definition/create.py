"""New tables and clustering columns: properties that users may set, and needed features.

Source: PROTOCOL.md, "Table Features"; Delta Spark, DeltaConfigs and TableFeature.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    ClusteringColumn,
    clustering_domain,
    clustering_state,
    repeated_names,
    resolve_columns,
)
from liquidlog.clustering.row_tracking import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from liquidlog.definition.property_rules import (
    CONSTRAINT_PREFIX,
    FEATURE_PREFIX,
    FEATURE_REQUESTS,
    VERSION_PROPERTIES,
    canonical_key,
    layout_problems,
)
from liquidlog.errors import ClusteringColumnError, UnsupportedFeatureError, UsageError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AnyAction, Change, DomainMetadata, Format, Metadata
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
    StructType,
    find_column,
    mapping_mode,
    quote_path,
    schema_json,
    with_fields,
    with_mapping,
    without_mapping,
)
from liquidlog.spec.text import unknown_columns

_EVERY_TABLE: Final = frozenset({"appendOnly", "invariants"})

# Keys of field metadata, and the feature that defines each
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


def _property_problems(properties: Mapping[str, str], schema: StructType) -> Iterator[str]:
    for name, value in properties.items():
        if name.lower() in {"clusteringcolumns", f"{FEATURE_PREFIX}clustering"}:
            yield f"{name} cannot be set; give clustering columns instead"
        elif name.lower() in VERSION_PROPERTIES:
            yield f"{name} cannot be set; a new table gets the versions it needs"
        elif name == MAX_COLUMN_ID:
            yield f"{name} cannot be set; it counts the columns"
        elif name.startswith(FEATURE_PREFIX) and value not in FEATURE_REQUESTS:
            yield f"{name} must be 'supported', not {value!r}"
        elif name == CODEC_PROPERTY and value.lower() not in CODEC_NAMES:
            yield f"{name} must be one of {', '.join(CODEC_NAMES)}, not {value!r}"
    yield from map(str, layout_problems(properties, properties, schema))


def needed_features(schema: StructType, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the features that only this table needs; `type <name>` is never supported."""
    needed = dict.fromkeys([*_property_features(properties), *_schema_features(schema)])
    if ROW_TRACKING in needed:
        needed[DOMAIN_METADATA] = None
    return tuple(name for name in needed if name not in _EVERY_TABLE)


def without_state(
    schema: StructType, properties: Mapping[str, str]
) -> tuple[StructType, dict[str, str]]:
    """Return schema and properties without the state of a single table's data."""

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in _SOURCE_STATE}

    fields = with_fields(schema, lambda field: replace(field, metadata=kept(field.metadata)))
    return without_mapping(fields), kept(properties)


def _property_features(properties: Mapping[str, str]) -> Iterator[str]:
    for name, value in properties.items():
        feature = switched_feature(name, value)
        if feature is not None:
            yield feature
        if name.startswith(FEATURE_PREFIX):
            yield name.removeprefix(FEATURE_PREFIX)
        if name.startswith(CONSTRAINT_PREFIX):
            yield "checkConstraints"


def _schema_features(schema: StructType) -> Iterator[str]:
    for field in schema.fields:
        yield from (name for key, name in _FIELD_FEATURES.items() if key in field.metadata)
        yield from _type_features(field.data_type)


def _type_features(data_type: DataType) -> Iterator[str]:
    match data_type:
        case StructType():
            yield from _schema_features(data_type)
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
            return


# CREATE TABLE and ALTER TABLE ... CLUSTER BY as changes. No data is rewritten
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
    """Return version 0 of a new table; column names are case-sensitive, as in Delta Spark."""
    properties = {canonical_key(name): value for name, value in properties.items()}
    problems = list(_property_problems(properties, schema))
    if cluster_by and partition_by:
        problems.append("a table has clustering columns or partition columns, not both")
    problems += _partition_problems(schema, partition_by)
    if problems:
        raise UsageError("; ".join(problems), problems=problems)
    table_id = new_id()
    given = {name: one for name, one in properties.items() if not name.startswith(FEATURE_PREFIX)}
    schema, configuration = _mapped(schema, given, new_id)
    columns = resolve_columns(
        schema,
        cluster_by,
        configuration=configuration,
        partition_columns=(),
        case_sensitive=True,
    )
    return _create(
        schema,
        configuration,
        columns,
        needed_features(schema, {**properties, **configuration}),
        clustered=bool(columns),
        partition_columns=tuple(name for (name,) in partition_by),
        description=description,
        table_id=table_id,
        now_ms=now_ms,
    )


def like_change(source: Snapshot, *, new_id: Callable[[], str], now_ms: int) -> Change:
    """Return the change that creates an empty table with the definition of `source`.

    It has the clustering columns, which Delta Spark's CREATE TABLE LIKE loses, but not the source's
    own state: high-water marks, column ids and physical names.
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
    return _create(
        schema,
        properties,
        columns,
        needed_features(schema, properties),
        clustered=state.clustered,
        partition_columns=source.metadata.partition_columns,
        description=source.metadata.description,
        table_id=table_id,
        now_ms=now_ms,
    )


def cluster_by_change(snapshot: Snapshot, columns: Sequence[Path] | None) -> Change | None:
    """Return the change that sets or clears the clustering columns, None if nothing changes.

    An empty commit would conflict with every running rewrite; so would a repeated metaData, which
    Delta Spark writes when it upgrades the protocol. Cubes are left alone.
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
) -> tuple[StructType, Mapping[str, str]]:
    mode = mapping_mode(configuration)
    schema, configuration = numbered_columns(schema, configuration, new_id)
    is_mapped = mode is not MappingMode.NONE
    return schema, {**configuration, MODE: mode.value} if is_mapped else configuration


def numbered_columns(
    columns: StructType, configuration: Mapping[str, str], new_id: Callable[[], str]
) -> tuple[StructType, Mapping[str, str]]:
    """Return new columns as a table with these properties needs them, and its new properties."""
    if mapping_mode(configuration) is MappingMode.NONE:
        return without_mapping(columns), configuration
    first = int(configuration.get(MAX_COLUMN_ID, "0")) + 1
    mapped, largest = with_mapping(columns, lambda _: f"col-{new_id()}", first=first)
    return mapped, {**configuration, MAX_COLUMN_ID: str(largest)}


def _partition_problems(schema: StructType, partition_by: Sequence[Path]) -> Iterator[str]:
    fields = {(field.name,): field for field in schema.fields}
    unknown = [path for path in partition_by if path not in fields]
    inside = [path for path in unknown if len(path) > 1 and find_column(schema, path)]
    for path in inside:
        yield f"{quote_path(path)} lies inside a struct; a partition column is a whole column"
    missing = [quote_path(path) for path in unknown if path not in inside]
    yield from unknown_columns(missing, schema)
    yield from repeated_names(partition_by)
    found = [fields[path] for path in partition_by if path in fields]
    for problem in unwritable_partitions(found):
        yield f"{problem}: it must be a number, a date, a timestamp, a string or a boolean"
    if fields and set(partition_by) >= fields.keys():
        yield "all columns are partition columns; data files need one more to hold"


def _create(
    schema: StructType,
    configuration: Mapping[str, str],
    columns: Sequence[ClusteringColumn],
    features: tuple[str, ...],
    *,
    clustered: bool,
    partition_columns: tuple[str, ...],
    description: str | None,
    table_id: str,
    now_ms: int,
) -> Change:
    if clustered:
        features = tuple(name for name in features if name != DOMAIN_METADATA)
    protocol = new_table_protocol(features, clustered=clustered)
    problems = (
        *unsupported_for_writing(protocol, configuration),
        *schema_problems(protocol, configuration, schema),
        *(file_problems(partition_columns, configuration) if partition_columns else ()),
    )
    if problems:
        raise UnsupportedFeatureError("the new table", "created", problems)
    if ROW_TRACKING in table_features(protocol):
        # Delta Spark, too, names columns at creation, before it needs the names.
        configuration = {
            **configuration,
            ROW_ID_COLUMN: f"_row-id-col-{table_id}",
            ROW_COMMIT_VERSION_COLUMN: f"_row-commit-version-col-{table_id}",
        }
    metadata = Metadata(
        id=table_id,
        description=description,
        format=Format(provider="parquet", options={}),
        schema_string=schema_json(schema),
        partition_columns=partition_columns,
        configuration=configuration,
        created_time=now_ms,
    )
    domains: tuple[DomainMetadata, ...] = (clustering_domain(columns),) if columns else ()
    return Change(
        operation="CREATE TABLE",
        parameters={
            "partitionBy": json_text(partition_columns),
            "clusterBy": json_text([column.name for column in columns]),
            "description": description,
            "isManaged": "false",
            "properties": json_text(configuration),
        },
        actions=(metadata, protocol, *domains),
        is_blind_append=True,
    )


def json_text(value: Any) -> str:  # noqa: ANN401  any JSON value
    """Return a value as JSON text, as commit parameters have it."""
    return msgspec.json.encode(value).decode()
