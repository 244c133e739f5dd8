"""Protocol versions and table features: what we read, what we write, what we refuse.

*Inspect* needs only the log: detail, history, files, cubes, health, plan. *Write* is a rewrite, an
append, or a change of clustering. A feature is listed for a use only if we meet all obligations
that PROTOCOL.md states for it; all other features are refused by name.

Source: PROTOCOL.md, "Table Features"; "Valid Feature Names in Table Features".
"""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import structs

from liquidlog.spec.actions import FEATURE_ALIASES, Protocol

READER_FEATURE_VERSION: Final = 3
WRITER_FEATURE_VERSION: Final = 7

CATALOG_MANAGED: Final = "catalogManaged"
CHECKPOINT_PROTECTION: Final = "checkpointProtection"
CLUSTERING: Final = "clustering"
COLUMN_MAPPING: Final = "columnMapping"
DOMAIN_METADATA: Final = "domainMetadata"
IN_COMMIT_TIMESTAMP: Final = "inCommitTimestamp"
DELETION_VECTORS: Final = "deletionVectors"
ROW_TRACKING: Final = "rowTracking"
ICEBERG_COMPAT_V1: Final = "icebergCompatV1"
ICEBERG_COMPAT_V2: Final = "icebergCompatV2"
MATERIALIZE_PARTITIONS: Final = "materializePartitionColumns"
SHREDDING: Final = ("variantShredding", "variantShredding-preview")

PREVIEW: Final = "-preview"

ROW_TRACKING_ENABLED: Final = "delta.enableRowTracking"
ROW_TRACKING_SUSPENDED: Final = "delta.rowTrackingSuspended"
"""Properties: rows keep their ids when they move; no new ids are assigned. Never both are set."""

_SWITCHES: Final[Mapping[tuple[str, str], str]] = {
    # (property, value in lower case): the feature that this enables
    ("delta.appendOnly", "true"): "appendOnly",
    ("delta.enableChangeDataFeed", "true"): "changeDataFeed",
    ("delta.enableDeletionVectors", "true"): DELETION_VECTORS,
    (ROW_TRACKING_ENABLED, "true"): ROW_TRACKING,
    ("delta.enableInCommitTimestamps", "true"): IN_COMMIT_TIMESTAMP,
    ("delta.enableTypeWidening", "true"): "typeWidening",
    ("delta.enableVariantShredding", "true"): SHREDDING[0],
    ("delta.enableIcebergCompatV1", "true"): ICEBERG_COMPAT_V1,
    ("delta.enableIcebergCompatV2", "true"): ICEBERG_COMPAT_V2,
    ("delta.enableIcebergCompatV3", "true"): "icebergCompatV3",
    ("delta.enableMaterializePartitionColumnsFeature", "true"): MATERIALIZE_PARTITIONS,
    ("delta.checkpointPolicy", "v2"): "v2Checkpoint",
    ("delta.columnMapping.mode", "name"): COLUMN_MAPPING,
    ("delta.columnMapping.mode", "id"): COLUMN_MAPPING,
}

LEGACY_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    # feature: (reader version, writer version) that imply it
    "appendOnly": (0, 2),
    "invariants": (0, 2),
    "checkConstraints": (0, 3),
    "changeDataFeed": (0, 4),
    "generatedColumns": (0, 4),
    "columnMapping": (2, 5),
    "identityColumns": (0, 6),
}

# A reader feature changes how a log or a data file is read. Here only the log is read: deletion
# vectors are counted, column mapping is resolved, types are named.
_INSPECT_READER_FEATURES: Final = frozenset(
    {
        *(
            CATALOG_MANAGED,
            COLUMN_MAPPING,
            DELETION_VECTORS,
            "timestampNtz",
            "v2Checkpoint",
            "vacuumProtocolCheck",
        ),
        *("typeWidening", "typeWidening-preview", "variantType", "variantType-preview"),
        *(*SHREDDING, "geospatial"),
    }
)

_WRITE_FEATURES: Final = frozenset(
    {
        *("allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints"),
        *(
            CATALOG_MANAGED,
            CHECKPOINT_PROTECTION,
            CLUSTERING,
            COLUMN_MAPPING,
            DELETION_VECTORS,
            DOMAIN_METADATA,
        ),
        *("generatedColumns", ICEBERG_COMPAT_V1, ICEBERG_COMPAT_V2, "identityColumns"),
        *(IN_COMMIT_TIMESTAMP, MATERIALIZE_PARTITIONS),
        *("invariants", ROW_TRACKING, "timestampNtz", "typeWidening", "typeWidening-preview"),
        *("v2Checkpoint", "vacuumProtocolCheck", "variantType", "variantType-preview", *SHREDDING),
    }
)

_MATERIALIZING: Final = (
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.writePartitionColumnsToParquet",
)
"""Properties that ask for partition columns in data files."""


def feature_named(name: str) -> str | None:
    """Return the writable feature with this name in any case, or None."""
    known = {feature.lower(): feature for feature in _WRITE_FEATURES}
    return known.get(FEATURE_ALIASES.get(name, name).lower())


def switched_feature(name: str, value: str) -> str | None:
    return _SWITCHES.get((name, value.lower()))


def table_features(protocol: Protocol) -> tuple[str, ...]:
    """Return all features of a protocol, listed or implied by its versions, sorted."""
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return tuple(sorted(listed | set(implied_features(protocol))))


def implied_features(protocol: Protocol) -> tuple[str, ...]:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    implied = {
        name
        for name, (_, needed) in LEGACY_FEATURES.items()
        if writer < WRITER_FEATURE_VERSION and writer >= needed
    }
    if reader == LEGACY_FEATURES[COLUMN_MAPPING][0]:
        implied.add(COLUMN_MAPPING)
    return tuple(sorted(implied))


def malformed(protocol: Protocol) -> tuple[str, ...]:
    """Return the reasons why a protocol action contradicts itself."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    problems = []
    if not 1 <= reader <= READER_FEATURE_VERSION:
        problems.append(f"reader version {reader}")
    if not 1 <= writer <= WRITER_FEATURE_VERSION:
        problems.append(f"writer version {writer}")
    if protocol.writer_features is not None and writer < WRITER_FEATURE_VERSION:
        problems.append(f"writerFeatures with writer version {writer}")
    if protocol.reader_features is not None and reader < READER_FEATURE_VERSION:
        problems.append(f"readerFeatures with reader version {reader}")
    if reader == READER_FEATURE_VERSION and writer < WRITER_FEATURE_VERSION:
        problems.append(f"reader version 3 with writer version {writer}")
    return tuple(problems)


def unsupported_for_inspection(protocol: Protocol) -> tuple[str, ...]:
    """Return the parts of a protocol that stop us from reading the log."""
    unknown = set(protocol.reader_features or ()) - _INSPECT_READER_FEATURES
    return (*malformed(protocol), *sorted(unknown))


def unsupported_for_writing(
    protocol: Protocol, configuration: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the parts of a protocol that stop us from committing."""
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    problems = sorted(listed - _WRITE_FEATURES)
    mode = configuration.get("delta.columnMapping.mode", "none")
    if mode != "none" and COLUMN_MAPPING not in table_features(protocol):
        problems.append("delta.columnMapping.mode without columnMapping")
    if ROW_TRACKING in listed:
        both = (ROW_TRACKING_ENABLED, ROW_TRACKING_SUSPENDED)
        if DOMAIN_METADATA not in listed:
            problems.append(f"{ROW_TRACKING} (without {DOMAIN_METADATA})")
        if all(is_true(configuration, name) for name in both):
            problems.append(f"{ROW_TRACKING} (enabled and suspended)")
    missing = set(protocol.reader_features or ()) - set(protocol.writer_features or ())
    problems.extend(f"{name} (a reader feature not in writerFeatures)" for name in sorted(missing))
    return (*malformed(protocol), *problems)


def is_true(configuration: Mapping[str, str], key: str) -> bool:
    return configuration.get(key, "").lower() == "true"


def is_clustered(protocol: Protocol) -> bool:
    return CLUSTERING in (protocol.writer_features or ())


def has_in_commit_timestamps(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Return whether every commit needs its own, increasing timestamp."""
    listed = IN_COMMIT_TIMESTAMP in (protocol.writer_features or ())
    return listed and is_true(configuration, "delta.enableInCommitTimestamps")


def has_deletion_vectors(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Return whether writers may add deletion vectors."""
    listed = DELETION_VECTORS in (protocol.writer_features or ())
    return listed and is_true(configuration, "delta.enableDeletionVectors")


def materializes_partitions(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Return whether new data files must hold the table's partition columns too."""
    listed = MATERIALIZE_PARTITIONS in (protocol.writer_features or ())
    return listed or any(is_true(configuration, name) for name in _MATERIALIZING)


def new_table_protocol(extra: tuple[str, ...] = (), *, clustered: bool) -> Protocol:
    """Return the protocol of a new table with the features `extra`, or (1, 2) without features."""
    if not clustered and not extra:
        return Protocol(min_reader_version=1, min_writer_version=2)
    base = (*((DOMAIN_METADATA, CLUSTERING) if clustered else ()), "invariants", "appendOnly")
    readers = tuple(name for name in extra if name in _INSPECT_READER_FEATURES)
    # Only column mapping had a reader version before lists of features.
    listed = () if readers == (COLUMN_MAPPING,) else readers
    legacy_version = LEGACY_FEATURES[COLUMN_MAPPING][0] if readers else 1
    return Protocol(
        min_reader_version=READER_FEATURE_VERSION if listed else legacy_version,
        min_writer_version=WRITER_FEATURE_VERSION,
        reader_features=listed or None,
        writer_features=(*base, *extra),
    )


def clustering_upgrade(protocol: Protocol) -> Protocol:
    """Return the protocol with clustering; implied features are listed to stay in effect."""
    listed = list(protocol.writer_features or implied_features(protocol))
    listed.extend(name for name in (DOMAIN_METADATA, CLUSTERING) if name not in listed)
    return structs.replace(
        protocol, min_writer_version=WRITER_FEATURE_VERSION, writer_features=tuple(listed)
    )


def column_mapping_upgrade(protocol: Protocol) -> Protocol:
    """Return the protocol with column mapping, implied or listed as by Delta Spark."""
    reader, writer = LEGACY_FEATURES[COLUMN_MAPPING]
    if COLUMN_MAPPING in table_features(protocol):
        return protocol
    if protocol.min_writer_version < WRITER_FEATURE_VERSION:
        return Protocol(
            min_reader_version=max(reader, protocol.min_reader_version),
            min_writer_version=max(writer, protocol.min_writer_version),
        )
    return with_features(protocol, {COLUMN_MAPPING})


def with_features(protocol: Protocol, features: Collection[str]) -> Protocol:
    """Return the protocol with more features, as Delta Spark merges them; versions never decrease.

    A legacy version stays one if another implies exactly these features, else everything is listed.
    Source: Delta Spark, TableFeatureSupport.merge.
    """
    listed = table_features(protocol)
    if set(features) <= set(listed):
        return protocol
    before = protocol.writer_features or listed
    names = tuple(dict.fromkeys([*before, *sorted(features)]))
    if protocol.min_writer_version < WRITER_FEATURE_VERSION:
        legacy = _legacy(frozenset(names), protocol.min_writer_version)
        if legacy is not None:
            return legacy
    known = set(protocol.reader_features or ())
    readers = tuple(name for name in names if name in _INSPECT_READER_FEATURES | known)
    is_listed = protocol.min_reader_version == READER_FEATURE_VERSION
    is_listed = is_listed or bool({*readers} - {COLUMN_MAPPING})
    mapped = max(LEGACY_FEATURES[COLUMN_MAPPING][0] if readers else 1, protocol.min_reader_version)
    return Protocol(
        min_reader_version=READER_FEATURE_VERSION if is_listed else mapped,
        min_writer_version=WRITER_FEATURE_VERSION,
        reader_features=readers if is_listed else None,
        writer_features=names,
    )


def _legacy(features: frozenset[str], least: int) -> Protocol | None:
    mapped = COLUMN_MAPPING in features
    for writer in range(least, WRITER_FEATURE_VERSION):
        legacy = Protocol(
            min_reader_version=LEGACY_FEATURES[COLUMN_MAPPING][0] if mapped else 1,
            min_writer_version=writer,
        )
        if features == set(implied_features(legacy)):
            return legacy
    return None


def without_feature(protocol: Protocol, feature: str) -> Protocol:
    """Return the protocol without a writer feature, as a legacy version if one is equal."""
    left = tuple(name for name in protocol.writer_features or () if name != feature)
    legacy = None if protocol.reader_features else _legacy(frozenset(left), 1)
    return legacy or structs.replace(
        protocol, min_writer_version=WRITER_FEATURE_VERSION, writer_features=left
    )


def without_catalog(protocol: Protocol) -> Protocol:
    """Return the protocol without the feature of managed tables, which other engines refuse."""
    return structs.replace(
        protocol,
        reader_features=tuple(n for n in protocol.reader_features or () if n != CATALOG_MANAGED),
        writer_features=tuple(n for n in protocol.writer_features or () if n != CATALOG_MANAGED),
    )


def with_catalog(protocol: Protocol) -> Protocol:
    """Return the protocol of a table that a catalog manages; inverse of without_catalog."""
    return structs.replace(
        protocol,
        reader_features=(CATALOG_MANAGED, *(protocol.reader_features or ())),
        writer_features=(CATALOG_MANAGED, *(protocol.writer_features or ())),
    )
