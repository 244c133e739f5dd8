"""Table features: what we read, write and refuse, and what each asks of schemas and files.

*Inspect* needs only the log: detail, history, files, cubes, health, plan. *Write* is a rewrite, an
append, or a change of clustering. A feature is listed for a use only if we meet all obligations
that PROTOCOL.md states for it; all other features are refused by name.

Source: PROTOCOL.md, "Table Features"; "Valid Feature Names in Table Features"; PROTOCOL.md,
"Iceberg Compatibility V1" and "Iceberg Compatibility V2"; Delta Spark, IcebergCompat; PROTOCOL.md,
"Type Widening".
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import structs

from liquidlog.errors import CorruptLogError
from liquidlog.spec.actions import FEATURE_ALIASES, Metadata, Protocol
from liquidlog.spec.arrow import CHAR_VARCHAR, INTERVALS, physical_partition_columns
from liquidlog.spec.bounds import NUM_INDEXED_COLUMNS, STATS_COLUMNS
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_COLUMN_ID,
    MODE,
    NESTED_IDS,
    PHYSICAL_NAME,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MappingMode,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    data_type_at,
    fields_with_paths,
    mapping_mode,
    mapping_problems,
    nested_ids,
    nested_parts,
    parse_schema,
    parse_type,
    quote_path,
)
from liquidlog.spec.text import CODEC_PROPERTY

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
        *(CATALOG_MANAGED, COLUMN_MAPPING, DELETION_VECTORS, *SHREDDING, "geospatial"),
        *("timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint"),
        *("vacuumProtocolCheck", "variantType", "variantType-preview"),
    }
)

_WRITE_FEATURES: Final = frozenset(
    {
        *("allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints"),
        *(CATALOG_MANAGED, CHECKPOINT_PROTECTION, CLUSTERING, COLUMN_MAPPING),
        *(DELETION_VECTORS, DOMAIN_METADATA),
        *("generatedColumns", ICEBERG_COMPAT_V1, ICEBERG_COMPAT_V2, "identityColumns"),
        *(IN_COMMIT_TIMESTAMP, MATERIALIZE_PARTITIONS),
        *("invariants", ROW_TRACKING, "timestampNtz", "typeWidening", "typeWidening-preview"),
        *("v2Checkpoint", "vacuumProtocolCheck", "variantType", "variantType-preview", *SHREDDING),
    }
)


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
        if needed <= writer < WRITER_FEATURE_VERSION
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
    if ROW_TRACKING in listed and DOMAIN_METADATA not in listed:
        problems.append(f"{ROW_TRACKING} (without {DOMAIN_METADATA})")
    both = (ROW_TRACKING_ENABLED, ROW_TRACKING_SUSPENDED)
    if ROW_TRACKING in listed and all(is_true(configuration, name) for name in both):
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
    asking = (PROPERTY_V1, PROPERTY_V2, "delta.writePartitionColumnsToParquet")
    return listed or any(is_true(configuration, name) for name in asking)


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
    readers, writers = protocol.reader_features or (), protocol.writer_features or ()
    return structs.replace(
        protocol,
        reader_features=tuple(name for name in readers if name != CATALOG_MANAGED),
        writer_features=tuple(name for name in writers if name != CATALOG_MANAGED),
    )


def with_catalog(protocol: Protocol) -> Protocol:
    """Return the protocol of a table that a catalog manages; inverse of without_catalog."""
    return structs.replace(
        protocol,
        reader_features=(CATALOG_MANAGED, *(protocol.reader_features or ())),
        writer_features=(CATALOG_MANAGED, *(protocol.writer_features or ())),
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


def _iceberg_problems(
    features: Collection[str],
    configuration: Mapping[str, str],
    schema: StructType,
    changes: Iterable[TypeChange],
) -> Iterator[str]:
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
        pair = str(source), str(target)
        is_known = pair == ("float", "double") or _INTEGERS.issuperset(pair)
        if isinstance(source, DecimalType) and isinstance(target, DecimalType):
            is_known = source.scale == target.scale
        if not is_known:
            yield f"{name} with a change of {quote_path(path)} to {target}"


def _v1_problems(features: Collection[str], schema: StructType) -> Iterator[str]:
    if DELETION_VECTORS in features:
        yield f"{ICEBERG_COMPAT_V1} with deletionVectors"
    for path, field in fields_with_paths(schema):
        is_odd = str(field.data_type) in {str(VOID), *INTERVALS}
        if is_odd or isinstance(field.data_type, ArrayType | MapType):
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


TYPE_CHANGES: Final = "delta.typeChanges"
"""Key of field metadata: all changes of the field's type, oldest first."""

_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "byte": frozenset({"short", "integer", "long", "double"}),
    "short": frozenset({"integer", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "long": frozenset(),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
_DIGITS: Final[Mapping[str, int]] = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Digits before the point that a decimal needs to hold an integer."""


def is_widening(source: DataType, target: DataType) -> bool:
    """Return whether `target` holds every value of `source` by the protocol."""
    match source, target:
        case PrimitiveType(name), PrimitiveType(wider):
            return wider in _WIDER.get(name, ())
        case PrimitiveType(name), DecimalType(precision, scale):
            return name in _DIGITS and precision - scale >= _DIGITS[name]
        case DecimalType(precision, scale), DecimalType(wide_precision, wide_scale):
            more_digits, more_scale = wide_precision - precision, wide_scale - scale
            return more_digits >= more_scale >= 0 and more_digits > 0
        case _:
            return False


def _type_changes(schema: StructType, *, physical: bool = False) -> Iterator[TypeChange]:
    for path, field in fields_with_paths(schema, physical=physical):
        for inner, source, target in _recorded(field):
            yield (*path, *inner), source, target


def earlier_types(schema: StructType) -> Mapping[Path, frozenset[DataType]]:
    """Return the types that files may still have for a column, by physical path."""
    found: dict[Path, set[DataType]] = {}
    for path, source, _ in _type_changes(schema, physical=True):
        found.setdefault(path, set()).add(source)
    return {path: frozenset(types) for path, types in found.items()}


def _problems(path: Path, field: StructField) -> Iterator[str]:
    newest: dict[Path, DataType] = {}
    for inner, source, target in _recorded(field):
        name = quote_path((*path, *inner))
        today = data_type_at(field.data_type, inner)
        newest[inner] = target
        if not is_widening(source, target) or today is None or not is_widening(source, today):
            yield f"the type change of {name} from {source} to {target}"
    for inner, target in newest.items():
        today = data_type_at(field.data_type, inner)
        if today is not None and target != today:
            name = quote_path((*path, *inner))
            yield f"the type of {name}, which is {today} after a change to {target}"


def _recorded(field: StructField) -> Iterator[TypeChange]:
    changes = field.metadata.get(TYPE_CHANGES) or []
    for change in changes if isinstance(changes, list) else [{}]:
        path = str(change.get("fieldPath") or "")
        types: dict[str, DataType] = {}
        for key in ("fromType", "toType"):
            types[key] = PrimitiveType(f"unreadable {key}")
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                types[key] = parse_type(change[key])
        yield tuple(path.split(".")) if path else (), types["fromType"], types["toType"]


# Changes of a schema that leave older data files valid: new nullable columns, which are null in
# every row of older files, and notes for people and for INSERT. All other changes do not.
#
# Source: PROTOCOL.md, "Reader Requirements for Column Mapping", "Default Columns" and "Identity
# Columns".

_ABOUT_INSERTS: Final = frozenset({"comment", "CURRENT_DEFAULT", "delta.identity.highWaterMark"})
"""Metadata for people and for later INSERTs; it does not concern existing rows."""
_OF_NEW_COLUMNS: Final = frozenset(
    {"comment", "CURRENT_DEFAULT", CHAR_VARCHAR, FIELD_ID, PHYSICAL_NAME, NESTED_IDS}
)
"""Metadata of new columns that demands nothing of older files, unlike generation or invariants."""


@dataclass(frozen=True, slots=True)
class NewColumn:
    """An added column: its paths and all ids in it; no ids if one field has none."""

    logical: Path
    physical: Path
    ids: tuple[int, ...]


@lru_cache(maxsize=64)
def _growth(before: str, after: str) -> tuple[NewColumn | str, ...]:
    """Return the columns added to a schema, and a clause for each other change."""
    if before == after:
        return ()
    try:
        old = parse_schema(before, where="the schema before")
        new = parse_schema(after, where="the schema after")
    except CorruptLogError as error:
        return (error.message,)
    return tuple(_differences(old, new))


def _differences(
    old: StructType, new: StructType, logical: Path = (), physical: Path = ()
) -> Iterator[NewColumn | str]:
    before = {field.name: field for field in old.fields}
    after = {field.name: field for field in new.fields}
    for field in old.fields:
        if field.name not in after:
            yield f"the column {quote_path((*logical, field.name))} was dropped or renamed"
    kept = [field.name for field in new.fields if field.name in before]
    if kept != [field.name for field in old.fields if field.name in after]:
        where = f" in {quote_path(logical)}" if logical else ""
        yield f"columns{where} changed their order"
    if len(after) < len(new.fields) or len(before) < len(old.fields):
        yield "several columns have one name"
    for field in new.fields:
        paths = (*logical, field.name), (*physical, field.physical_name)
        if field.name in before:
            yield from _field_differences(before[field.name], field, *paths)
        else:
            yield from _added(field, *paths)


def _field_differences(
    old: StructField, new: StructField, logical: Path, physical: Path
) -> Iterator[NewColumn | str]:
    name, missing = quote_path(logical), object()
    if old.nullable and not new.nullable:
        yield f"the column {name} became NOT NULL"
    changed = {
        key
        for key in (old.metadata.keys() | new.metadata.keys()) - _ABOUT_INSERTS
        if old.metadata.get(key, missing) != new.metadata.get(key, missing)
    }
    if changed:
        yield f"the column {name} has other metadata ({', '.join(sorted(changed))})"
    if isinstance(old.data_type, StructType) and isinstance(new.data_type, StructType):
        yield from _differences(old.data_type, new.data_type, logical, physical)
    elif old.data_type != new.data_type:
        yield f"the type of the column {name} changed from {old.data_type} to {new.data_type}"


def _added(field: StructField, logical: Path, physical: Path) -> Iterator[NewColumn | str]:
    inside = list(fields_with_paths(StructType((field,)), path=logical[:-1]))
    for path, inner in inside:
        name = quote_path(path)
        if not inner.nullable:
            yield f"the new column {name} is NOT NULL"
        asks = ", ".join(sorted(inner.metadata.keys() - _OF_NEW_COLUMNS))
        if asks:
            yield f"the new column {name} has metadata ({asks})"
        if inner.data_type == VOID:
            yield f"the new column {name} is void"
    ids = [inner.metadata.get(FIELD_ID) for _, inner in inside]
    ids += [number for _, inner in inside for number in nested_ids(inner).values()]
    known = tuple(number for number in ids if type(number) is int)
    yield NewColumn(logical, physical, known if len(known) == len(ids) else ())


# What features and properties demand before files may be written. Source: PROTOCOL.md, "Column
# Mapping", "Type Widening", "Void Type".

MANIFESTS: Final = "delta.compatibility.symlinkFormatManifest.enabled"


def file_problems(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return all reasons in the properties that forbid adding and removing files."""
    text = (
        f"{MANIFESTS}=true (the manifests, which Presto, Athena and others read, would go on"
        " naming the old files; set it to false, or let Delta Spark write)"
    )
    return (text,) if is_true(configuration, MANIFESTS) else ()


def schema_problems(
    protocol: Protocol, configuration: Mapping[str, str], schema: StructType
) -> tuple[str, ...]:
    """Return all reasons in the schema and properties that forbid writing files."""
    features = frozenset(table_features(protocol))
    problems = list(mapping_problems(schema, configuration))
    for path, field in fields_with_paths(schema):
        problems += _problems(path, field)
    changes = list(_type_changes(schema))
    if not features & {"typeWidening", "typeWidening-preview"}:
        names = (quote_path(path) for path in dict.fromkeys(path for path, _, _ in changes))
        problems += (f"a type change of {name} without typeWidening" for name in names)
    problems += _void_problems(schema, (), is_repeated=False)
    problems += _iceberg_problems(features, configuration, schema, changes)
    return tuple(dict.fromkeys(problems))


def _void_problems(data_type: DataType, path: Path, *, is_repeated: bool) -> Iterator[str]:
    match data_type:
        case StructType(fields):
            if fields and all(child.data_type == VOID for child in fields):
                struct = f"{quote_path(path)}: a struct of void fields only"
                yield struct if path else "a table of void columns only"
            for child in fields:
                below = (*path, child.name)
                yield from _void_problems(child.data_type, below, is_repeated=is_repeated)
        case ArrayType(element):
            yield from _void_problems(element, (*path, "element"), is_repeated=True)
        case MapType(key, value):
            yield from _void_problems(key, (*path, "key"), is_repeated=True)
            yield from _void_problems(value, (*path, "value"), is_repeated=True)
        case _ if is_repeated and data_type == VOID:
            yield f"{quote_path(path)}: void inside an array or a map"


# Whether written data files can be committed after metadata or protocol changed: yes, if the change
# would have been possible, and would not have touched the files, had they been committed just
# before it. Each property and feature that may change is listed with the reason; no other may.
#
# Source: PROTOCOL.md, "Table Features", "Requirements for Writers", "Per-file Statistics".

_LOG: Final = "it is about the log and its checkpoints, which are made of the newest version"
_LATER: Final = "it is about what writers do later"
_NEWEST: Final = "every attempt to commit takes the time that the newest version asks for"

FREE_PROPERTIES: Final[Mapping[str, str]] = {
    "delta.appendOnly": "rows may still be rearranged",
    "delta.autoOptimize": _LATER,
    "delta.autoOptimize.autoCompact": _LATER,
    "delta.autoOptimize.optimizeWrite": _LATER,
    "delta.checkpoint.writeStatsAsJson": _LOG,
    "delta.checkpoint.writeStatsAsStruct": _LOG,
    "delta.checkpointInterval": _LOG,
    "delta.checkpointPolicy": _LOG,
    "delta.checkpointRetentionDuration": _LOG,
    "delta.deletedFileRetentionDuration": "every attempt to commit compares ages with the newest",
    "delta.dropFeatureTruncateHistory.retentionDuration": _LOG,
    "delta.enableChangeDataFeed": "rearranging rows changes none, so there is nothing to record",
    "delta.enableDeletionVectors": "it allows new vectors; files without one stay as they are",
    "delta.enableExpiredLogCleanup": _LOG,
    "delta.enableFullRetentionRollback": _LOG,
    "delta.enableInCommitTimestamps": _NEWEST,
    "delta.enableTypeWidening": "it allows later changes of types",
    "delta.inCommitTimestampEnablementTimestamp": _NEWEST,
    "delta.inCommitTimestampEnablementVersion": _NEWEST,
    "delta.isolationLevel": "it is about commits that change rows",
    "delta.logRetentionDuration": _LOG,
    "delta.randomPrefixLength": "files may have any name",
    "delta.randomizeFilePrefixes": "files may have any name",
    "delta.sampleRetentionDuration": _LOG,
    "delta.setTransactionRetentionDuration": _LOG,
    "delta.targetFileSize": "it is about plans that are made later",
    MAX_COLUMN_ID: "it grows with new columns, and may not fall",
}
"""Properties that may change after files were written, with the reason.

Constraints may change too: the writer that adds one checks all rows, and the files have the same.
Properties outside `delta.` and `parquet.` may change, because they are not Delta's."""

BOUND_PROPERTIES: Final[Mapping[str, str]] = {
    CODEC_PROPERTY: "it is how files are written",
    MODE: "it is how columns are found in files",
    NUM_INDEXED_COLUMNS: "it is which columns have statistics",
    STATS_COLUMNS: "it is which columns have statistics",
    "delta.dataSkippingStringPrefixLength": "it is how long texts in statistics are",
    ROW_TRACKING_ENABLED: "files would have to keep row ids, or not",
    ROW_TRACKING_SUSPENDED: "files would have to get row ids, or not",
    "delta.rowTracking.materializedRowIdColumnName": "it is where files keep row ids",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "it is where files keep versions",
    "delta.enableIcebergCompatV1": "it asks more of every file",
    "delta.enableIcebergCompatV2": "it asks more of every file",
    "delta.enableIcebergCompatV3": "it asks more of every file",
    "delta.enableVariantShredding": "it is how files are written",
    "delta.writePartitionColumnsToParquet": "it is which columns files hold",
    "delta.enableMaterializePartitionColumnsFeature": "it is which columns files hold",
    "delta.compatibility.symlinkFormatManifest.enabled": "manifests name files",
    "delta.requireCheckpointProtectionBeforeVersion": "a feature was dropped",
}
"""Properties that may not change after files were written, with the reason. No other property in
`delta.` may change either, because its demands are unknown."""

_TYPE: Final = "it is a type that columns may have; files without such a column are as before"
_ROWS: Final = "it is about rows that change, and the files have the rows that were there"

FREE_FEATURES: Final[Mapping[str, str]] = {
    # Why, by PROTOCOL.md, an older file stays valid when the feature is added.
    "allowColumnDefaults": 'metadata that "only applies for write operations, not read operations"',
    "appendOnly": 'new log entries "may rearrange data (i.e. add and remove actions where'
    ' dataChange=false)"',
    "changeDataFeed": _ROWS,
    "checkConstraints": 'who adds one "must validate the existing data in the table"',
    DELETION_VECTORS: 'actions can optionally include a vector; tightBounds "should be treated as'
    ' true when it is not explicitly present"',
    DOMAIN_METADATA: "writers must preserve all domains, as they do anyway",
    "generatedColumns": "a column's metadata says what it asks; the schema is compared by itself",
    "identityColumns": "a column's metadata says what it asks; the schema is compared by itself",
    IN_COMMIT_TIMESTAMP: _NEWEST,
    "invariants": "a column's metadata says what it asks; the schema is compared by itself",
    "timestampNtz": _TYPE,
    "typeWidening": "it allows changes of types; the schema is compared by itself",
    "v2Checkpoint": _LOG,
    "vacuumProtocolCheck": "it is about who may run VACUUM",
    "variantType": _TYPE,
}
"""Features that may be added after files were written, with the reason; none may be removed."""


class TableTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The demands on data files besides id and schema; `features` include implied ones."""

    min_reader_version: int
    min_writer_version: int
    features: tuple[str, ...]
    properties: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTerms:
    """The demands that data files were written for; `partition_columns` are physical names."""

    table_id: str
    schema_string: str
    table: TableTerms
    partition_columns: tuple[str, ...] = ()


def table_terms(metadata: Metadata, protocol: Protocol) -> TableTerms:
    return TableTerms(
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        features=table_features(protocol),
        properties=_bound_properties(metadata),
    )


def metadata_changes(terms: FileTerms, metadata: Metadata) -> Iterator[str]:
    """Yield a clause for each reason why files written for `terms` are invalid under `metadata`."""
    if metadata.id != terms.table_id:
        yield f"the table's id is {metadata.id}, not {terms.table_id}"
    yield from partitioning_changes(terms.partition_columns, metadata)
    if metadata.format.provider not in {None, "parquet"} or metadata.format.options:
        yield "the table has another file format"
    changes = _growth(terms.schema_string, metadata.schema_string)
    yield from (change for change in changes if isinstance(change, str))
    yield from _mapping_problems(terms, metadata)
    yield from _property_changes(terms.table.properties, _bound_properties(metadata))


def protocol_changes(terms: FileTerms, protocol: Protocol) -> Iterator[str]:
    """Yield a clause for each reason why files written for `terms` are invalid under `protocol`."""
    before = terms.table
    for kind, old, new in (
        ("reader", before.min_reader_version, protocol.min_reader_version),
        ("writer", before.min_writer_version, protocol.min_writer_version),
    ):
        if new < old:
            yield f"the protocol's {kind} version fell from {old} to {new}"
    had, has = set(before.features), set(table_features(protocol))
    for name in sorted(had - has):
        yield f"the table feature {name} was removed"
    for name in sorted(has - had - FREE_FEATURES.keys()):
        yield f"the table feature {name} was added, which may ask more of files"


def new_columns(terms: FileTerms, metadata: Metadata) -> tuple[NewColumn, ...]:
    """Return the columns of `metadata` that are absent from files written for `terms`."""
    changes = _growth(terms.schema_string, metadata.schema_string)
    return tuple(change for change in changes if isinstance(change, NewColumn))


def _bound_properties(metadata: Metadata) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(metadata.configuration.items())
        if name == MAX_COLUMN_ID
        or (
            name.lower().startswith(("delta.", "parquet."))
            and not name.startswith("delta.constraints.")
            and name not in FREE_PROPERTIES
        )
    }


def partitioning_changes(before: tuple[str, ...], metadata: Metadata) -> Iterator[str]:
    """Yield a clause if the table has other partition columns than `before` (physical names)."""
    now = physical_partition_columns(metadata)
    if before == now:
        return
    if not before:
        yield "the table became partitioned"
    else:
        after = ", ".join(now) or "none"
        yield f"the table's partition columns changed from {', '.join(before)} to {after}"


def _property_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*before, *after} - {MAX_COLUMN_ID}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        reason = BOUND_PROPERTIES.get(name, "what it asks of files is not known")
        to = "was removed" if new is None else f"changed from {old} to {new}"
        yield f"the property {name} {'was set to ' + str(new) if old is None else to}: {reason}"
    if MAX_COLUMN_ID in before and _number(after) < _number(before):
        yield f"the property {MAX_COLUMN_ID} fell from {_number(before)} to {_number(after)}"


def _mapping_problems(terms: FileTerms, metadata: Metadata) -> Iterator[str]:
    """Yield why files may contain columns that look new: their ids are not fresh.

    RESTORE brings back a dropped column with its old id and physical name.
    """
    before, new = terms.table.properties, new_columns(terms, metadata)
    if before.get(MODE, MappingMode.NONE).lower() == MappingMode.NONE:
        for column in new:
            if column.ids or column.logical != column.physical:
                yield f"the new column {quote_path(column.logical)} is mapped"
        return
    highest, now = _number(before), _number(metadata.configuration)
    for column in new:
        if not column.ids or min(column.ids) <= highest or max(column.ids) > now:
            yield (
                f"the new column {quote_path(column.logical)} has no fresh column id: it may have"
                " been in the table before"
            )


def _number(properties: Mapping[str, str]) -> int:
    text = properties.get(MAX_COLUMN_ID, "")
    return int(text) if text.isdecimal() else -1
