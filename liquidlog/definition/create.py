"""New tables and clustering columns; properties that users may set; features to add or drop.

Source: PROTOCOL.md, "Table Features"; Delta Spark, DeltaConfigs, TableFeature,
AlterTableSetPropertiesDeltaCommand, CreateDeltaTableCommand and AlterTableClusterByDeltaCommand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    ClusteringColumn,
    clustering_domain,
    clustering_state,
    repeated_names,
    resolve_columns,
)
from liquidlog.clustering.settings import BY_PROPERTY, is_unknown, unknown_text, wrong_value
from liquidlog.errors import (
    ClusteringColumnError,
    SchemaProblem,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AnyAction, Change, Format, Metadata, Protocol
from liquidlog.spec.arrow import unwritable_partitions
from liquidlog.spec.bounds import NUM_INDEXED_COLUMNS, STATS_COLUMNS
from liquidlog.spec.features import (
    CHECKPOINT_PROTECTION,
    CLUSTERING,
    COLUMN_MAPPING,
    DELETION_VECTORS,
    DOMAIN_METADATA,
    FREE_FEATURES,
    IN_COMMIT_TIMESTAMP,
    MANIFESTS,
    READER_FEATURE_VERSION,
    ROW_TRACKING,
    WRITER_FEATURE_VERSION,
    clustering_upgrade,
    feature_named,
    file_problems,
    implied_features,
    is_clustered,
    new_table_protocol,
    schema_problems,
    switched_feature,
    table_features,
    unsupported_for_writing,
    without_feature,
)
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
    quote_paths,
    schema_json,
    split_paths,
    with_fields,
    with_mapping,
    without_mapping,
)
from liquidlog.spec.text import (
    CODEC_NAMES,
    CODEC_PROPERTY,
    json_text,
    near_names,
    unknown_columns,
    unset_properties,
)

# PROTOCOL.md has no procedure to remove a feature. This follows DROP FEATURE of Delta Spark 4.4
# (AlterTableDropFeatureDeltaCommand), and also drops `clustering`. Only writer features can be
# dropped: readers of older versions need no more than before, so no history has to be truncated.

DROPPABLE: Final = (CLUSTERING, DOMAIN_METADATA)

_WITH_HISTORY: Final = frozenset(
    {
        "catalogManaged",
        COLUMN_MAPPING,
        DELETION_VECTORS,
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_WITHOUT_HISTORY: Final = frozenset(
    {"allowColumnDefaults", "checkConstraints", IN_COMMIT_TIMESTAMP, ROW_TRACKING}
)

DROP: Final = "DROP FEATURE"


@dataclass(frozen=True, slots=True)
class ProtocolChange:
    """The protocol before and after a table gets clustering columns."""

    before: Protocol
    after: Protocol

    @property
    def added(self) -> tuple[str, ...]:
        """The added features, sorted, without features that the earlier version implied."""
        return tuple(sorted({*table_features(self.after)} - {*table_features(self.before)}))

    @property
    def effect(self) -> str:
        """The change and whom it affects, as a clause of a sentence."""
        before, after = self.before, self.after
        return (
            f"this changes the table's protocol from ({before.min_reader_version},"
            f" {before.min_writer_version}) to ({after.min_reader_version},"
            f" {after.min_writer_version}), with {_listed(self.added)}: delta-rs (deltalake), Delta"
            " Spark before 3.1 and other writers that do not know these features can then no longer"
            " write to it"
        )

    def __str__(self) -> str:
        return f"{self.effect}; readers are not affected, and drop-feature takes it back"


def clustering_protocol_change(snapshot: Snapshot) -> ProtocolChange | None:
    """Return the protocol change for clustering columns, None if the table has the feature."""
    if is_clustered(snapshot.protocol):
        return None
    return ProtocolChange(snapshot.protocol, clustering_upgrade(snapshot.protocol))


def feature_to_drop(protocol: Protocol, name: str, *, truncate_history: bool) -> str:
    """Return the droppable feature with this name in any case."""
    present = table_features(protocol)
    feature = next((one for one in present if one.lower() == name.lower()), None)
    if feature is None and name.lower().startswith(DELTA_PREFIX):
        raise UsageError(
            f"{name} is a property, not a feature; remove it with ALTER TABLE …"
            f" {unset_properties([name])}",
            feature=name,
        )
    if feature is None:
        near = near_names(name, present)
        hint = f"did you mean {' or '.join(near)}" if near else f"it has {_listed(present)}"
        raise UsageError(f"the table does not have the feature {name}; {hint}", feature=name)
    if feature not in DROPPABLE:
        raise UsageError(
            f"{feature} cannot be dropped here: {_elsewhere(feature)}", feature=feature
        )
    users = (CLUSTERING, ROW_TRACKING) if feature == DOMAIN_METADATA else ()
    others = [other for other in users if other in present]
    if others:
        droppable = [one for one in others if one in DROPPABLE]
        first = f"; drop {droppable[0]} first" if droppable else f": {_elsewhere(others[0])}"
        raise UsageError(
            f"{feature} cannot be dropped while the table has {' and '.join(others)}{first}",
            feature=feature,
            needed_by=others,
        )
    if truncate_history:
        raise UsageError(
            f"no history has to be truncated to drop {feature}: only writers have to know it,"
            " older versions stay readable, and there is nothing to wait for. Leave"
            " --truncate-history out. Features that readers have to know are dropped by Delta"
            " Spark, which truncates history for them only after delta.logRetentionDuration, or"
            " after 24 hours with TRUNCATE HISTORY",
            feature=feature,
        )
    return feature


def feature_drop(snapshot: Snapshot, feature: str) -> Change:
    feature_to_drop(snapshot.protocol, feature, truncate_history=False)
    if feature == DOMAIN_METADATA and snapshot.domains:
        domains = tuple(sorted(snapshot.domains))
        raise UsageError(
            f"{feature} cannot be dropped: another writer gave the table {_listed(domains)}"
            " meanwhile; nothing was dropped, run it again if the domain is to go too",
            feature=feature,
            domains=list(domains),
        )
    protocol = without_feature(snapshot.protocol, feature)
    actions: tuple[AnyAction, ...] = (snapshot.metadata, protocol)
    if feature == CLUSTERING and CLUSTERING_DOMAIN in snapshot.domains:
        domain = snapshot.domains[CLUSTERING_DOMAIN]
        actions = (*actions, structs.replace(domain, removed=True))
    return Change(
        operation=DROP,
        parameters={"featureName": feature, "truncateHistory": False},
        actions=actions,
        is_blind_append=True,
    )


def cleanup_change(snapshot: Snapshot) -> Change | None:
    """Return the change that removes all domains, or None; it must precede the feature's drop."""
    if not snapshot.domains:
        return None
    return Change(
        operation="DOMAIN METADATA CLEANUP",
        parameters={"domainMetadataRemovedCount": len(snapshot.domains)},
        actions=tuple(structs.replace(one, removed=True) for one in snapshot.domains.values()),
        is_blind_append=True,
    )


def _elsewhere(feature: str) -> str:
    statement = f"ALTER TABLE ... DROP FEATURE {feature}"
    if feature == CHECKPOINT_PROTECTION:
        return (
            f"Delta Spark's {statement} TRUNCATE HISTORY does, 24 hours after the feature for which"
            " it came was dropped, and shortens the history"
        )
    if feature in _WITH_HISTORY:
        return (
            "readers have to know it, and files may have to be rewritten; Delta Spark's"
            f" {statement} does that and adds {CHECKPOINT_PROTECTION}, or, with TRUNCATE HISTORY,"
            " shortens the history after 24 hours instead"
        )
    if feature in _WITHOUT_HISTORY:
        return f"Delta Spark's {statement} does it"
    return "Delta Spark does not drop it either; it has no effect while nothing uses it"


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


DELTA_PREFIX: Final = "delta."
FEATURE_PREFIX: Final = "delta.feature."
CONSTRAINT_PREFIX: Final = "delta.constraints."
FEATURE_REQUESTS: Final = ("supported", "enabled")
VERSION_PROPERTIES: Final[Mapping[str, tuple[str, int]]] = {
    "delta.minreaderversion": ("reader", READER_FEATURE_VERSION),
    "delta.minwriterversion": ("writer", WRITER_FEATURE_VERSION),
}
"""Version properties in lower case: the kind of version, and the highest one."""

ADDABLE: Final = (*FREE_FEATURES, COLUMN_MAPPING)
"""Features that a table with files can get: they demand nothing of existing files."""

_BOOLEAN: Final = ("(?i)true|false", "true or false")
_INTERVAL: Final = (
    r"(?i)\s*(interval\s+)?(\d+\s+(week|day|hour|minute|second|millisecond|microsecond)s?\s*)+",
    "an interval such as '2 weeks', without months and years",
)
_COUNT: Final = (r"(?!0+$)[0-9]{1,9}", "a whole number from 1")
_ANY: Final = ("(?s).*", "text")

_SETTABLE: Final[Mapping[str, tuple[str, str]]] = {
    # The pattern of a value, and what it must be.
    **dict.fromkeys(
        (
            "delta.appendOnly",
            "delta.autoOptimize",
            "delta.autoOptimize.optimizeWrite",
            "delta.checkpoint.writeStatsAsJson",
            "delta.checkpoint.writeStatsAsStruct",
            "delta.enableChangeDataFeed",
            "delta.enableDeletionVectors",
            "delta.enableExpiredLogCleanup",
            "delta.enableFullRetentionRollback",
            "delta.enableTypeWidening",
            "delta.randomizeFilePrefixes",
        ),
        _BOOLEAN,
    ),
    **dict.fromkeys(
        (
            "delta.checkpointRetentionDuration",
            "delta.deletedFileRetentionDuration",
            "delta.dropFeatureTruncateHistory.retentionDuration",
            "delta.logRetentionDuration",
            "delta.sampleRetentionDuration",
            "delta.setTransactionRetentionDuration",
        ),
        _INTERVAL,
    ),
    "delta.autoOptimize.autoCompact": ("auto|true|false", "one of auto, true, false"),
    # If true, every writer must write manifests, which we do not.
    MANIFESTS: ("false", "false"),
    "delta.checkpointInterval": _COUNT,
    "delta.checkpointPolicy": ("classic|v2", "one of classic, v2"),
    "delta.dataSkippingStringPrefixLength": (r"[0-9]{1,9}", "a whole number from 0"),
    "delta.isolationLevel": ("Serializable", "Serializable"),
    CODEC_PROPERTY: (f"(?i){'|'.join(CODEC_NAMES)}", f"one of {', '.join(CODEC_NAMES)}"),
    "delta.randomPrefixLength": _COUNT,
    MODE: ("none|name|id", "one of none, name, id"),
    NUM_INDEXED_COLUMNS: (r"-1|[0-9]{1,9}", "a whole number from -1"),
    STATS_COLUMNS: _ANY,
    # See `layout_problems`.
    **dict.fromkeys(BY_PROPERTY, _ANY),
}

_REFUSED: Final[Mapping[str, str]] = {
    # Prefixes of keys in lower case, and why users cannot set them.
    "delta.feature.": "drop-feature takes features back",
    "delta.minreaderversion": "versions never become lower",
    "delta.minwriterversion": "versions never become lower",
    "delta.ignoreprotocoldefaults": "it has a meaning for new tables only",
    "delta.constraints.": "existing rows would have to be checked",
    "delta.columnmapping.maxcolumnid": "it counts the columns",
    "delta.enablerowtracking": "existing files would have to be given row ids",
    "delta.rowtracking": "it belongs to row tracking",
    "delta.enableincommittimestamps": "the version it begins at would have to be recorded",
    "delta.incommittimestamp": "it belongs to in-commit timestamps",
    "delta.enableicebergcompat": "existing files would have to be checked",
    "delta.universalformat.": "Iceberg metadata would have to be written",
    "delta.enablevariantshredding": "shredded variants are not written",
    "delta.coordinatedcommits.": "it belongs to the commit coordinator",
    "delta.redirect": "it moves the table",
    "delta.requirecheckpointprotectionbeforeversion": "it belongs to dropped features",
    "delta.enablematerializepartitioncolumnsfeature": "a clustered table has no partitions",
    "delta.writepartitioncolumnstoparquet": "a clustered table has no partitions",
}
_RESERVED: Final[Mapping[str, str]] = {
    "clusteringcolumns": "set clustering columns with cluster-by",
    "clusterbyauto": "it belongs to another engine's catalog",
    "location": "a table does not know its address",
    "provider": "it is always delta",
    "owner": "it belongs to a catalog",
    "external": "it belongs to a catalog",
}


def canonical_key(name: str) -> str:
    """Return a property's name in Delta Spark's spelling, for any case."""
    return _SPELLING.get(name.lower(), name)


def refusal(name: str) -> SchemaProblem | None:
    lowered = name.lower()
    reason = _RESERVED.get(lowered) or next(
        (why for start, why in _REFUSED.items() if lowered.startswith(start)), None
    )
    if reason is not None:
        text = f"{name} cannot be changed here: {reason}"
        return SchemaProblem(Kind.PROPERTY_IS_FIXED, text, property=name)
    if lowered.startswith(DELTA_PREFIX) and lowered not in _SPELLING:
        return _unknown_property(name)
    return None


def _unknown_property(name: str) -> SchemaProblem:
    delta = [spelled for spelled in _SPELLING.values() if spelled.startswith(DELTA_PREFIX)]
    known = {spelled.removeprefix(DELTA_PREFIX): spelled for spelled in delta}
    near = near_names(name[len(DELTA_PREFIX) :], known)
    hint = f"; did you mean {' or '.join(known[one] for one in near)}?" if near else ""
    text = f"{name} is not a property that Delta knows{hint}"
    return SchemaProblem(Kind.PROPERTY_UNKNOWN, text, property=name)


def new_table_problems(properties: Mapping[str, str]) -> Iterator[SchemaProblem]:
    """Yield unknown names and values that are wrong for every schema."""
    for name, value in properties.items():
        lowered = name.lower()
        known = lowered in _SPELLING or lowered.startswith(tuple(_REFUSED))
        if lowered.startswith(DELTA_PREFIX) and not known:
            yield _unknown_property(name)
        yield from _wrong_value(name, value)


def asks_for_protocol(name: str) -> bool:
    """Return whether a property requests a feature or version and is not itself stored."""
    lowered = name.lower()
    return lowered.startswith(FEATURE_PREFIX) or lowered in VERSION_PROPERTIES


def asked_features(
    asked: Mapping[str, str], protocol: Protocol
) -> tuple[frozenset[str], tuple[SchemaProblem, ...]]:
    """Return the features that `asks_for_protocol` properties request, and why some are impossible.

    Versions request the features that they imply, as in Delta Spark, unless the table has them.
    """
    found, problems = set(), []
    versions = {"reader": protocol.min_reader_version, "writer": protocol.min_writer_version}
    for name, value in asked.items():
        if name.lower() in VERSION_PROPERTIES:
            kind, highest = VERSION_PROPERTIES[name.lower()]
            if re.fullmatch("[1-9]", value) is None or int(value) > highest:
                text = f"{name} must be a whole number from 1 to {highest}, not {value!r}"
                problems.append(SchemaProblem(Kind.PROPERTY_VALUE, text, property=name))
                continue
            versions[kind] = int(value)
            continue
        feature = feature_named(name[len(FEATURE_PREFIX) :])
        if value.lower() not in FEATURE_REQUESTS:
            text = f"{name} must be supported, not {value!r}"
            problems.append(SchemaProblem(Kind.PROPERTY_VALUE, text, property=name))
        elif feature not in ADDABLE:
            text = f"{name} cannot be set here: {_not_added(feature)}"
            problems.append(SchemaProblem(Kind.PROPERTY_IS_FIXED, text, property=name))
        else:
            found.add(feature)
    reader, writer = versions.values()
    if writer < WRITER_FEATURE_VERSION:
        # Reader version 3 needs lists of features.
        asked_for = Protocol(min_reader_version=min(reader, 2), min_writer_version=writer)
        found |= {*implied_features(asked_for)} - {*table_features(protocol)}
    return frozenset(found), tuple(problems)


def _not_added(feature: str | None) -> str:
    if feature is None:
        return f"a table can be given only these features: {', '.join(ADDABLE)}"
    if feature == CLUSTERING:
        return "set clustering columns with cluster-by"
    return "existing files would have to be changed for it"


def value_problems(name: str, value: str, *, schema: StructType) -> Iterator[SchemaProblem]:
    yield from _wrong_value(name, value)
    try:
        paths = split_paths(value) if name == STATS_COLUMNS else ()
    except UsageError as error:
        text = f"{STATS_COLUMNS}: {error.message}"
        yield SchemaProblem(Kind.PROPERTY_VALUE, text, property=STATS_COLUMNS)
        return
    for column in (quote_path(path) for path in paths if find_column(schema, path) is None):
        text = f"{STATS_COLUMNS}: there is no column {column}"
        yield SchemaProblem(Kind.COLUMN_UNKNOWN, text, column=column, property=STATS_COLUMNS)


def layout_problems(
    names: Iterable[str], configuration: Mapping[str, str], schema: StructType
) -> Iterator[SchemaProblem]:
    """Yield why layout properties `names` cannot have their values in `configuration`."""
    for name in map(canonical_key, names):
        if name in BY_PROPERTY:
            value = configuration[name]
            problem = wrong_value(name, value, schema=schema, configuration=configuration)
            if problem is not None:
                text = f"{name} cannot be {value!r}: {problem}"
                yield SchemaProblem(Kind.PROPERTY_VALUE, text, property=name)


def _wrong_value(name: str, value: str) -> Iterator[SchemaProblem]:
    if is_unknown(canonical_key(name)):
        yield SchemaProblem(Kind.PROPERTY_UNKNOWN, unknown_text(name), property=name)
    pattern, expected = _SETTABLE.get(canonical_key(name), _ANY)
    if re.fullmatch(pattern, value) is None:
        text = f"{name} must be {expected}, not {value!r}"
        yield SchemaProblem(Kind.PROPERTY_VALUE, text, property=name)


_SPELLING: Final[Mapping[str, str]] = {name.lower(): name for name in _SETTABLE}


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
    """Return the features that this definition needs; `type <name>` stands for an unknown type."""
    needed: list[str] = []
    for name, value in properties.items():
        feature = switched_feature(name, value)
        needed += [] if feature is None else [feature]
        if name.startswith(FEATURE_PREFIX):
            needed.append(name.removeprefix(FEATURE_PREFIX))
        if name.startswith(CONSTRAINT_PREFIX):
            needed.append("checkConstraints")
    needed += _type_features(schema)
    if ROW_TRACKING in needed:
        needed.append(DOMAIN_METADATA)
    every_table = {"appendOnly", "invariants"}
    return tuple(name for name in dict.fromkeys(needed) if name not in every_table)


def without_state(
    schema: StructType, properties: Mapping[str, str]
) -> tuple[StructType, dict[str, str]]:
    """Return schema and properties without the state of one table."""

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in _SOURCE_STATE}

    fields = with_fields(schema, lambda field: replace(field, metadata=kept(field.metadata)))
    return without_mapping(fields), kept(properties)


def _type_features(data_type: DataType) -> Iterator[str]:
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from (name for key, name in _FIELD_FEATURES.items() if key in field.metadata)
                yield from _type_features(field.data_type)
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
    columns = resolve_columns(schema, cluster_by, configuration=configuration, case_sensitive=True)
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

    It has the clustering columns, which Delta Spark's CREATE TABLE LIKE loses, but no state of the
    source: high-water marks, column ids and physical names.
    """
    state = clustering_state(source)
    table_id = new_id()
    kept, configuration = without_state(source.schema, source.metadata.configuration)
    schema, properties = _mapped(kept, configuration, new_id)
    if state.unresolved:
        names = ", ".join(quote_paths(state.unresolved))
        raise ClusteringColumnError(
            (f"the source is clustered by {names}, but its schema has no such column any more",)
        )
    columns = resolve_columns(
        schema,
        [column.logical for column in state.columns],
        configuration=properties,
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

    An empty commit would conflict with every running rewrite. So would a repeated metaData, which
    Delta Spark writes when it upgrades the protocol. Cubes stay as they are.
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
    old = (*state.names, *quote_paths(state.unresolved))
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
    """Return new columns for a table with these properties, and its new properties."""
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
        *(file_problems(configuration) if partition_columns else ()),
    )
    if problems:
        raise UnsupportedFeatureError("the new table", "created", problems)
    if ROW_TRACKING in table_features(protocol):
        # Like Delta Spark: the columns are named at creation, before the names are needed.
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
    domains = (clustering_domain(columns),) if columns else ()
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
