"""The adds of live files as they stand in the log, including fields unknown to this project."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from liquidlog.errors import CorruptLogError, VersionNotFoundError
from liquidlog.log.raw_statistics import raw_statistics
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot, deletion_vector
from liquidlog.spec.actions import AddFile, FileKey, decode_line, file_key
from liquidlog.spec.log_files import commit_name, log_path

_Document = dict[str, msgspec.Raw]


def original_adds(
    store: TableStore, snapshot: Snapshot, files: pa.Table
) -> Sequence[Mapping[str, msgspec.Raw]]:
    """Return the newest add of each file as a JSON object whose values are raw JSON.

    For a file that only a checkpoint names, all fields of the protocol are returned.

    Args:
        store: The table.
        snapshot: A snapshot of the table.
        files: Some rows of the snapshot's files.
    """
    rows = files.to_pylist()
    versions = sorted({row["version"] for row in rows if row["version"] is not None})
    found = {version: _adds(store, version) for version in versions}
    statistics = raw_statistics(store, snapshot, files)
    return [_original(row, found, text) for row, text in zip(rows, statistics, strict=True)]


def _original(
    row: Mapping[str, Any],
    commits: Mapping[int, Mapping[FileKey, _Document]],
    statistics: str | None,
) -> Mapping[str, msgspec.Raw]:
    version = row["version"]
    add = _add(row, statistics)
    if version is None:
        return msgspec.json.decode(msgspec.json.encode(add), type=_Document)
    original = commits[version].get(file_key(add))
    if original is None:
        raise CorruptLogError(log_path(commit_name(version)), f"does not add {add.path} any more")
    return original


def _adds(store: TableStore, version: int) -> dict[FileKey, _Document]:
    """Return the adds of a commit by logical file; of several adds of a file, the last."""
    content = store.read_log(commit_name(version))
    if content is None:
        raise VersionNotFoundError(version, version, version)
    adds = {}
    for line in content.split(b"\n"):
        if b'"add"' not in line:
            continue
        action = decode_line(line)
        if isinstance(action, AddFile):
            document = msgspec.json.decode(line, type=dict[str, msgspec.Raw])["add"]
            adds[file_key(action)] = msgspec.json.decode(document, type=_Document)
    return adds


def _add(row: Mapping[str, Any], statistics: str | None) -> AddFile:
    return AddFile(
        path=row["path"],
        partition_values=msgspec.json.decode(row["partition_values_json"] or "{}"),
        size=row["size"],
        modification_time=row["modification_time"],
        data_change=False,
        stats=statistics,
        tags=msgspec.json.decode(row["tags_json"]) if row["tags_json"] else None,
        deletion_vector=deletion_vector(row["deletion_vector"]),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        clustering_provider=row["clustering_provider"],
    )
