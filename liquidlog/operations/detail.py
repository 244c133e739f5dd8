"""What DESCRIBE DETAIL says of a table."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planning.remembered import layout
from liquidlog.operations.strategies import strategy_names
from liquidlog.snapshot import Snapshot, deleted_rows, num_records
from liquidlog.spec.features import table_features
from liquidlog.spec.schema import quote_path
from liquidlog.spec.times import iso_time


def detail(snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the DESCRIBE DETAIL row; times are ISO 8601 in UTC with milliseconds.

    `numRecords` is the number of live rows, None if a file's statistics do not tell.
    `clusteringColumns` holds logical names, quoted where needed; a column that the schema no
    longer has keeps its physical name. `layout` says what the table remembers of the settings of a
    plan, and what decided it; `layoutNotes` which properties about them are wrong or not known.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    state = clustering_state(snapshot)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    remembered, notes = layout(snapshot, strategy_names)
    return {
        "version": snapshot.version,
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": snapshot.uri,
        "createdAt": None if metadata.created_time is None else iso_time(metadata.created_time),
        "lastModified": iso_time(snapshot.timestamp_ms),
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": [*state.names, *(quote_path(path) for path in state.unresolved)],
        "numFiles": snapshot.files.num_rows,
        "sizeInBytes": snapshot.size_bytes,
        "numRecords": live_rows(snapshot.files),
        "properties": dict(metadata.configuration),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": list(table_features(protocol)),
        "layout": {name: _shown(setting) for name, setting in remembered.items()},
        "layoutNotes": list(notes),
    }


def _shown(setting: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a setting with columns as in `clusteringColumns`."""
    value = setting["value"]
    if not isinstance(value, tuple):
        return setting
    return {**setting, "value": [quote_path(path) for path in value]}


def live_rows(files: pa.Table) -> int | None:
    """Return the number of rows in `files` without deleted ones, None where unknown."""
    rows = num_records(files)
    if rows.null_count:
        return None
    return int(pc.sum(pc.subtract(rows, deleted_rows(files))).as_py() or 0)
