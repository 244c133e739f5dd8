"""CREATE TABLE and ALTER TABLE ... CLUSTER BY as changes. No data is ever rewritten.

Source: Delta Spark, CreateDeltaTableCommand and AlterTableClusterByDeltaCommand.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    ClusteringColumn,
    clustering_domain,
    clustering_state,
    resolve_columns,
)
from liquidlog.clustering.settings import StrategyNames, built_in
from liquidlog.definition.new_table import (
    check_properties,
    needed_features,
    table_configuration,
    with_row_tracking_columns,
    without_state,
)
from liquidlog.definition.property_rules import canonical_key, layout_problems
from liquidlog.errors import ClusteringColumnError, UnsupportedFeatureError, UsageError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AnyAction, DomainMetadata, Format, Metadata, Protocol
from liquidlog.spec.change import Change
from liquidlog.spec.features import (
    DOMAIN_METADATA,
    clustering_upgrade,
    new_table_protocol,
    table_features,
    unsupported_for_writing,
)
from liquidlog.spec.mapping import (
    MAX_COLUMN_ID,
    MODE,
    MappingMode,
    mapping_mode,
    with_new_mapping,
    without_mapping,
)
from liquidlog.spec.obligations import schema_problems
from liquidlog.spec.schema import Path, StructType, quote_path, schema_json


def create_change(
    schema: StructType,
    *,
    cluster_by: Sequence[Path],
    properties: Mapping[str, str],
    new_id: Callable[[], str],
    now_ms: int,
    description: str | None = None,
    strategies: StrategyNames = built_in,
) -> Change:
    """Return the change that is version 0 of a new, empty table.

    Without `cluster_by` the table is not clustered. Column names are case-sensitive, as in the
    reference engine's CREATE TABLE. If the properties ask for column mapping, every column gets an
    id and a physical name of its own. `strategies` are those that a property may name.
    """
    properties = {canonical_key(name): value for name, value in properties.items()}
    check_properties(properties)
    problems = [str(one) for one in layout_problems(properties, properties, schema, strategies)]
    if problems:
        raise UsageError("; ".join(problems), problems=problems)
    table_id = new_id()
    schema, configuration = _mapped(schema, table_configuration(properties), new_id)
    columns = resolve_columns(
        schema,
        cluster_by,
        configuration=configuration,
        partition_columns=(),
        case_sensitive=True,
    )
    protocol = _new_protocol(schema, {**properties, **configuration}, clustered=bool(columns))
    metadata = Metadata(
        id=table_id,
        description=description,
        format=Format(provider="parquet", options={}),
        schema_string=schema_json(schema),
        partition_columns=(),
        configuration=with_row_tracking_columns(configuration, table_features(protocol), table_id),
        created_time=now_ms,
    )
    return _create(metadata, protocol, columns)


def like_change(source: Snapshot, *, new_id: Callable[[], str], now_ms: int) -> Change:
    """Return the change that is version 0 of an empty table with the definition of `source`.

    It gets the schema, the properties and the clustering columns; the reference engine's CREATE
    TABLE LIKE loses the clustering columns. State that belongs only to the source is left out:
    high-water marks, column ids and physical names. With column mapping, columns get new ids and
    names.
    """
    if source.metadata.partition_columns:
        raise UnsupportedFeatureError(source.uri, "copied", ("partition columns",))
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
    protocol = _new_protocol(schema, properties, clustered=state.clustered)
    metadata = Metadata(
        id=table_id,
        description=source.metadata.description,
        format=Format(provider="parquet", options={}),
        schema_string=schema_json(schema),
        partition_columns=(),
        configuration=with_row_tracking_columns(properties, table_features(protocol), table_id),
        created_time=now_ms,
    )
    return _create(metadata, protocol, columns)


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


def _new_protocol(
    schema: StructType, properties: Mapping[str, str], *, clustered: bool
) -> Protocol:
    features = needed_features(schema, properties)
    if clustered:
        features = tuple(name for name in features if name != DOMAIN_METADATA)
    protocol = new_table_protocol(features, clustered=clustered)
    problems = (
        *unsupported_for_writing(protocol, properties),
        *schema_problems(protocol, properties, schema),
    )
    if problems:
        raise UnsupportedFeatureError("the new table", "created", problems)
    return protocol


def _create(metadata: Metadata, protocol: Protocol, columns: Sequence[ClusteringColumn]) -> Change:
    domains: tuple[DomainMetadata, ...] = (clustering_domain(columns),) if columns else ()
    return Change(
        operation="CREATE TABLE",
        parameters={
            "partitionBy": "[]",
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
