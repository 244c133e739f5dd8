"""What DESCRIBE DETAIL says of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.settings import (
    REMEMBERED,
    deciding_property,
    default_of,
    notes,
    remembered,
    weights_text,
)
from liquidlog.errors import UsageError
from liquidlog.snapshot import Snapshot, deleted_rows, num_records
from liquidlog.spec.features import table_features
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import iso_time


def detail(snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the DESCRIBE DETAIL row; times are ISO 8601 in UTC with milliseconds.

    `numRecords` is the number of live rows, None if a file's statistics do not tell.
    `clusteringColumns` holds logical names, quoted where needed; a column that the schema no
    longer has keeps its physical name. `layout` says what the table remembers of the settings of a
    plan, and what decided it; `layoutNotes` which properties about them are wrong or not known.
    """
    state = clustering_state(snapshot)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    layout, wrong = _layout(snapshot)
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
        "layout": layout,
        "layoutNotes": [*wrong, *notes(metadata.configuration)],
    }


def _layout(snapshot: Snapshot) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[str]]:
    """Return what a table remembers of every setting, and which properties are wrong, in words.

    Per setting: `value` (None if it is wrong), `from` (property or default) and, for a property,
    its name as `property`.
    """
    found, wrong = {}, []
    for setting in (known.field for known in REMEMBERED):
        name = deciding_property(snapshot.metadata.configuration, setting)
        if name is None:
            found[setting] = {"value": _shown(default_of(setting)), "from": "default"}
            continue
        value, problem = _remembered(snapshot, setting)
        wrong.extend([problem] if problem else [])
        found[setting] = {"value": _shown(value), "from": "property", "property": name}
    return found, wrong


def _remembered(snapshot: Snapshot, setting: str) -> tuple[Any, str | None]:
    from liquidlog.operations.executors import strategy_names

    try:
        return remembered(snapshot, setting, strategy_names), None
    except UsageError as error:
        return None, error.message


def _shown(value: Any) -> Any:  # noqa: ANN401  any setting's value
    if not isinstance(value, tuple):
        return value
    if value and isinstance(value[0][-1], float):
        return [weights_text([one]) for one in value]
    return [quote_path(path) for path in value]


def live_rows(files: pa.Table) -> int | None:
    """Return the number of rows in `files` without deleted ones, None where unknown."""
    rows = num_records(files)
    if rows.null_count:
        return None
    return int(pc.sum(pc.subtract(rows, deleted_rows(files))).as_py() or 0)
