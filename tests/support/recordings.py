"""What the reference engine said of a table at a version, against what we say of it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from liquidlog.clustering.columns import clustering_state
from liquidlog.errors import CorruptLogError
from liquidlog.plan import live_rows
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import quote_path

Facts: TypeAlias = dict[str, Any]
"""JSON values by the name of the part of a table's state that they are about."""

_FILE_COLUMNS = {
    "path": "path",
    "size": "size",
    "numRecords": "num_records",
    "modificationTime": "modification_time",
    "clusteringProvider": "clustering_provider",
    "baseRowId": "base_row_id",
    "defaultRowCommitVersion": "default_row_commit_version",
}


def recorded_facts(recorded: Mapping[str, Any]) -> Facts:
    """Return the state that the engine recorded, as facts."""
    protocol = recorded["protocol"]
    files = [_recorded_file(file) for file in recorded["files"]]
    counted = all(file["numRecords"] is not None for file in files)
    return {
        "version": recorded["version"],
        "protocol": [
            [protocol[f"min{side}Version"], sorted(protocol.get(f"{side.lower()}Features") or ())]
            for side in ("Reader", "Writer")
        ],
        "metadata": recorded["metadata"],
        "schema": recorded["schema"],
        "domains": {d["domain"]: d["configuration"] for d in recorded["domain_metadata"]},
        "clustering": _recorded_clustering(recorded["clustering_logical"]),
        "transactions": {t["appId"]: t["version"] for t in recorded.get("set_transactions") or ()},
        "files": files,
        "count": [recorded["num_files"], recorded["size_in_bytes"]],
        "rows": recorded["row_count"] if counted and "row_count" in recorded else None,
    }


def _recorded_clustering(columns: Any) -> list[str] | None:
    """Return the columns as the engine spells them, None where it failed to say."""
    return None if isinstance(columns, dict) else columns or []


def _recorded_file(file: Mapping[str, Any]) -> Facts:
    vector = file["deletionVector"] or {}
    return {
        **{name: file[name] for name in _FILE_COLUMNS},
        "tags": file["tags"] or {},
        "partitionValues": file["partitionValues"],
        "deletionVector": {key: value for key, value in vector.items() if value is not None},
    }


def snapshot_facts(snapshot: Snapshot) -> Facts:
    """Return a snapshot as facts; clustering columns are None if we refuse to say."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    assert metadata.schema_string is not None
    return {
        "version": snapshot.version,
        "protocol": [
            [protocol.min_reader_version, sorted(protocol.reader_features or ())],
            [protocol.min_writer_version, sorted(protocol.writer_features or ())],
        ],
        "metadata": {
            "id": metadata.id,
            "name": metadata.name,
            "description": metadata.description,
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(metadata.configuration),
        },
        "schema": json.loads(metadata.schema_string),
        "domains": {name: domain.configuration for name, domain in snapshot.domains.items()},
        "clustering": _clustering(snapshot),
        "transactions": {name: t.version for name, t in snapshot.transactions.items()},
        "files": list(_files(snapshot)),
        "count": [snapshot.files.num_rows, snapshot.size_bytes],
        "rows": live_rows(snapshot.files["num_records"], snapshot.files["deletion_vector"]),
    }


def _clustering(snapshot: Snapshot) -> list[str] | None:
    try:
        state = clustering_state(snapshot)
    except CorruptLogError:
        return None
    return [*state.names, *map(quote_path, state.unresolved)]


def _files(snapshot: Snapshot) -> Iterator[Facts]:
    names = [*_FILE_COLUMNS.values(), "tags_json", "partition_values_json", "deletion_vector"]
    for row in snapshot.files.select(names).to_pylist():
        vector = row["deletion_vector"] or {}
        yield {
            **{theirs: row[ours] for theirs, ours in _FILE_COLUMNS.items()},
            "tags": json.loads(row["tags_json"] or "{}"),
            "partitionValues": json.loads(row["partition_values_json"] or "{}"),
            "deletionVector": {key: value for key, value in vector.items() if value is not None},
        }


def digests(facts: Facts) -> dict[str, str]:
    """Return each fact as a short text that differs wherever the fact does, in any order."""
    return {name: _digest(_ordered(value)) for name, value in facts.items()}


def _ordered(value: Any) -> Any:
    by_path = isinstance(value, list) and value and isinstance(value[0], dict)
    return sorted(value, key=lambda file: str(file["path"])) if by_path else value


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 12 else hashlib.sha256(text.encode()).hexdigest()[:12]


def differences(ours: Facts, theirs: Facts) -> Iterator[str]:
    """Yield every fact in which the two differ: its name and where, with both values."""
    expected = digests(theirs)
    for name, digest in digests(ours).items():
        if digest != expected[name]:
            yield f"{name}: {_first_difference(_ordered(ours[name]), _ordered(theirs[name]))}"


def _first_difference(ours: Any, theirs: Any) -> str:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        return f"{keys[0]}: {_first_difference(ours.get(keys[0]), theirs.get(keys[0]))}"
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = ((a, b) for a, b in zip(ours, theirs, strict=True) if a != b)
        return _first_difference(*next(pairs))
    return f"{ours!r:.200} != {theirs!r:.200}"
