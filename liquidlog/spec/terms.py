"""What data files were written for, and whether they can still be committed after a change of it.

One rule for everybody who has written files and finds that the table's metadata or protocol is
another one by now. Every property and every feature that may change is listed with the reason;
whatever is not listed may not.

The principle: had the files been committed directly before the change, the change could have been
made all the same, and would have left them as they are.

Source: PROTOCOL.md, "Table Features", "Requirements for Writers", "Per-file Statistics".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from liquidlog.spec.actions import Metadata, Protocol
from liquidlog.spec.codecs import CODEC_PROPERTY
from liquidlog.spec.features import (
    DELETION_VECTORS,
    DOMAIN_METADATA,
    IN_COMMIT_TIMESTAMP,
    ROW_TRACKING_ENABLED,
    ROW_TRACKING_SUSPENDED,
    table_features,
)
from liquidlog.spec.growth import NewColumn, schema_growth
from liquidlog.spec.mapping import MAX_COLUMN_ID, MODE, MappingMode
from liquidlog.spec.partitions import physical_partition_columns
from liquidlog.spec.schema import quote_path
from liquidlog.spec.stats import NUM_INDEXED_COLUMNS, STATS_COLUMNS

_DELTA: Final = "delta."
_PARQUET: Final = "parquet."
_CONSTRAINT: Final = "delta.constraints."

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
"""Properties that may have changed since files were written, with the reason. Those of constraints
may too: whoever adds one has checked every row, and the files have the same rows. So may those that
do not begin with `delta.` or `parquet.`: they are not Delta's."""

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
    "delta.compatibility.symlinkFormatManifest.enabled": "manifests name files",
    "delta.requireCheckpointProtectionBeforeVersion": "a feature was dropped",
}
"""Properties that may not have changed since files were written, with the reason. Nor may any other
that begins with `delta.`: what it asks of files is not known."""

_TYPE: Final = "it is a type that columns may have; files without such a column are as before"
_ROWS: Final = "it is about rows that change, and the files have the rows that were there"

FREE_FEATURES: Final[Mapping[str, str]] = {
    # Why a file written before the feature was added is valid after, from PROTOCOL.md.
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
"""Features that may have been added since files were written, with the reason. Any other may not,
and none may have been removed."""


class TableTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What else of a table than its id and schema data files are written for.

    `features` are sorted; those that old versions of the protocol imply are listed too.
    `properties` are those that files may depend on.
    """

    min_reader_version: int
    min_writer_version: int
    features: tuple[str, ...]
    properties: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTerms:
    """What data files were written for: a table's id, its schema in JSON, and all the rest.

    `partition_columns` are physical names, in the table's order.
    """

    table_id: str
    schema_string: str
    table: TableTerms
    partition_columns: tuple[str, ...] = ()


def table_terms(metadata: Metadata, protocol: Protocol) -> TableTerms:
    """Return what files of a table with this metadata and protocol are written for."""
    return TableTerms(
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        features=table_features(protocol),
        properties=_properties(metadata),
    )


def metadata_changes(terms: FileTerms, metadata: Metadata) -> tuple[str, ...]:
    """Return a clause for each reason why files written for `terms` are not valid under `metadata`.

    Whether the files' rows have values for `new_columns` is another question.
    """
    return tuple(_metadata_changes(terms, metadata))


def protocol_changes(terms: FileTerms, protocol: Protocol) -> tuple[str, ...]:
    """Return a clause for each reason why files written for `terms` are not valid under `protocol`.

    Whether the protocol is one that we can write is another question.
    """
    return tuple(_protocol_changes(terms.table, protocol))


def new_columns(terms: FileTerms, metadata: Metadata) -> tuple[NewColumn, ...]:
    """Return the columns of `metadata` that files written for `terms` do not have."""
    return schema_growth(terms.schema_string, metadata.schema_string).new


def _properties(metadata: Metadata) -> dict[str, str]:
    found = metadata.configuration.items()
    return {name: value for name, value in sorted(found) if _matters(name) or name == MAX_COLUMN_ID}


def _matters(name: str) -> bool:
    if name in FREE_PROPERTIES or name.startswith(_CONSTRAINT):
        return False
    return name.lower().startswith((_DELTA, _PARQUET))


def _metadata_changes(terms: FileTerms, metadata: Metadata) -> Iterator[str]:
    if metadata.id != terms.table_id:
        yield f"the table's id is {metadata.id}, not {terms.table_id}"
    yield from partitioning_changes(terms.partition_columns, metadata)
    if metadata.format.provider not in {None, "parquet"} or metadata.format.options:
        yield "the table has another file format"
    growth = schema_growth(terms.schema_string, metadata.schema_string)
    yield from growth.problems
    after = _properties(metadata)
    if growth.new:
        yield from _mapping_problems(terms, metadata, growth.new)
    yield from _property_changes(terms.table.properties, after)


def partitioning_changes(before: tuple[str, ...], metadata: Metadata) -> Iterator[str]:
    """Yield a clause if files are partitioned by other columns than those (physical names)."""
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


def _mapping_problems(
    terms: FileTerms, metadata: Metadata, new: tuple[NewColumn, ...]
) -> Iterator[str]:
    """Yield why columns that look new may be in files: they have no fresh ids.

    RESTORE brings a dropped column back with the id and the physical name that it had.
    """
    before = terms.table.properties
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


def _protocol_changes(terms: TableTerms, protocol: Protocol) -> Iterator[str]:
    for kind, before, after in (
        ("reader", terms.min_reader_version, protocol.min_reader_version),
        ("writer", terms.min_writer_version, protocol.min_writer_version),
    ):
        if after < before:
            yield f"the protocol's {kind} version fell from {before} to {after}"
    old, new = set(terms.features), set(table_features(protocol))
    for name in sorted(old - new):
        yield f"the table feature {name} was removed"
    for name in sorted(new - old - FREE_FEATURES.keys()):
        yield f"the table feature {name} was added, which may ask more of files"
