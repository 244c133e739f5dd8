"""What the reference engine said of a table at a version, against what we say of it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from liquidlog.clustering.domain import clustering_state
from liquidlog.errors import CorruptLogError
from liquidlog.operations.inspect import live_rows
from liquidlog.snapshot import Snapshot

_FILE_COLUMNS = {
    "path": "path",
    "size": "size",
    "numRecords": "num_records",
    "modificationTime": "modification_time",
    "clusteringProvider": "clustering_provider",
    "deletionVector": "deletion_vector",
    "baseRowId": "base_row_id",
    "defaultRowCommitVersion": "default_row_commit_version",
}
_TIDY_PARTS = ("version", "protocol", "metadata", "schema", "domains", "clustering", "files")


def differences(snapshot: Snapshot, recorded: Mapping[str, Any]) -> Iterator[str]:
    """Yield every part of the log's state in which we differ, with both answers."""
    ours, theirs = _ours(snapshot), _theirs(recorded)
    for part, expected in theirs.items():
        if ours[part] != expected:
            yield f"{part}: {_shown(ours[part], expected)}"


def _shown(ours: Any, theirs: Any) -> str:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [k for k in {**ours, **theirs} if ours.get(k) != theirs.get(k)]
        return "; ".join(f"{k}: {ours.get(k)!r} != {theirs.get(k)!r}" for k in keys[:3])
    return f"{ours!r} != {theirs!r}"


def _theirs(recorded: Mapping[str, Any]) -> dict[str, Any]:
    protocol, metadata = recorded["protocol"], recorded["metadata"]
    return {
        "version": recorded["version"],
        "protocol": (protocol["minReaderVersion"], protocol["minWriterVersion"]),
        "features": tuple(
            sorted(protocol.get(f"{side}Features") or ()) for side in ("reader", "writer")
        ),
        "metadata": dict(metadata),
        "schema": recorded["schema"],
        "domains": {d["domain"]: d["configuration"] for d in recorded["domain_metadata"]},
        "clustering": recorded["clustering_physical"],
        "num_files": recorded["num_files"],
        "size": recorded["size_in_bytes"],
        "files": {file["path"]: _their_file(file) for file in recorded["files"]},
        "rows": recorded["row_count"],
    }


def _their_file(file: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: file[name] for name in _FILE_COLUMNS},
        "tags": file["tags"] or {},
        "partitionValues": file["partitionValues"],
    }


def _ours(snapshot: Snapshot) -> dict[str, Any]:
    protocol, metadata = snapshot.protocol, snapshot.metadata
    return {
        "version": snapshot.version,
        "protocol": (protocol.min_reader_version, protocol.min_writer_version),
        "features": (
            sorted(protocol.reader_features or ()),
            sorted(protocol.writer_features or ()),
        ),
        "metadata": {
            "id": metadata.id,
            "name": metadata.name,
            "description": metadata.description,
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(metadata.configuration),
        },
        "schema": _schema(metadata.schema_string),
        "domains": {name: domain.configuration for name, domain in snapshot.domains.items()},
        "clustering": _clustering(snapshot),
        "num_files": snapshot.files.num_rows,
        "size": snapshot.size_bytes,
        "files": {file["path"]: file for file in _our_files(snapshot)},
        "rows": live_rows(snapshot.files),
    }


def _schema(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _clustering(snapshot: Snapshot) -> Any:
    try:
        state = clustering_state(snapshot)
    except CorruptLogError:
        return "refused"
    return [list(column.physical) for column in state.columns]


def _our_files(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    names = [*_FILE_COLUMNS.values(), "tags_json", "partition_values_json"]
    for row in snapshot.files.select(names).to_pylist():
        yield {
            **{theirs: row[ours] for theirs, ours in _FILE_COLUMNS.items()},
            "tags": json.loads(row["tags_json"] or "{}"),
            "partitionValues": json.loads(row["partition_values_json"] or "{}"),
        }
