"""Tombstones: removed files that the log still names, so that VACUUM keeps them.

Source: PROTOCOL.md, "Add File and Remove File" (tombstones), "Checkpoints".
"""

from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.errors import CorruptLogError
from liquidlog.log.adds import struct_field
from liquidlog.log.segment import LogSegment, read_commits
from liquidlog.log.store import TableStore
from liquidlog.snapshot import deletion_vector
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    DeletionVector,
    FileKey,
    RemoveFile,
    decode_line,
    file_key,
)
from liquidlog.spec.file_paths import canonical_path
from liquidlog.spec.log_files import log_path

RemovedName: TypeAlias = tuple[str, DeletionVector | None]
"""The canonical path of a removed file, and its deletion vector."""


def tombstones(
    store: TableStore, segment: LogSegment, sidecars: Collection[str], *, since_ms: int
) -> frozenset[FileKey]:
    """Return the files that, according to a version's log, were removed after `since_ms`.

    `sidecars` are the Parquet files with the checkpoint's file actions; they may be the
    checkpoint's own files.
    """
    removed: dict[FileKey, int] = {}
    own = () if segment.checkpoint is None else segment.checkpoint.names
    for name in {*own, *sidecars}:
        if name.endswith(".json"):
            _take(removed, _json_actions(store, name))
        else:
            found = removed_files(store, name, since_ms=since_ms)
            removed.update(dict.fromkeys(found, since_ms + 1))
    for commit in read_commits(store, [file.version for file in segment.commits]):
        _take(removed, commit.actions)
    return frozenset(key for key, deleted_ms in removed.items() if deleted_ms > since_ms)


def removed_names(
    store: TableStore, names: Iterable[str], *, since_ms: int = -1, unknown_ms: int = 0
) -> Iterator[RemovedName]:
    """Yield what checkpoint files (JSON or Parquet) name as removed after `since_ms`.

    What was removed at a time that they do not say counts as removed at `unknown_ms`.
    """
    for name in names:
        if not name.endswith(".json"):
            yield from _removed(store, name, since_ms=since_ms, unknown_ms=unknown_ms)
            continue
        for action in _json_actions(store, name):
            if not isinstance(action, RemoveFile):
                continue
            if (action.deletion_timestamp or unknown_ms) > since_ms:
                yield canonical_path(action.path), action.deletion_vector


def removed_files(store: TableStore, name: str, *, since_ms: int) -> frozenset[FileKey]:
    """Return the files removed after `since_ms` that a Parquet file of a checkpoint names."""
    return frozenset(
        (path, None if vector is None else vector.unique_id)
        for path, vector in _removed(store, name, since_ms=since_ms)
    )


def _removed(
    store: TableStore, name: str, *, since_ms: int, unknown_ms: int = 0
) -> Iterator[RemovedName]:
    """Yield what a Parquet file of a checkpoint names as removed after `since_ms`."""
    try:
        with pq.ParquetFile(store.open_log(name)) as file:
            groups = range(file.num_row_groups) if "remove" in file.schema_arrow.names else ()
            for group in groups:
                yield from _names(
                    file.read_row_group(group, columns=["remove"]), since_ms, unknown_ms
                )
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorruptLogError(log_path(name), f"is not a readable checkpoint: {error}") from error


def _names(group: pa.Table, since_ms: int, unknown_ms: int) -> Iterator[RemovedName]:
    removes = group["remove"].combine_chunks()
    # Early checkpoints lack the field: Delta 0.1 keeps the path of a remove alone.
    times = struct_field(removes, "deletionTimestamp", pa.int64())
    deleted = pc.fill_null(times, unknown_ms)
    for row in removes.filter(pc.and_(removes.is_valid(), pc.greater(deleted, since_ms))):
        remove = row.as_py()
        yield canonical_path(remove["path"]), deletion_vector(remove.get("deletionVector"))


def _json_actions(store: TableStore, name: str) -> Iterator[AnyAction | None]:
    lines = (store.read_log(name) or b"").split(b"\n")
    return (decode_line(line) for line in lines if line.strip())


def _take(removed: dict[FileKey, int], actions: Iterable[AnyAction | None]) -> None:
    for action in actions:
        match action:
            case RemoveFile():
                removed[file_key(action)] = action.deletion_timestamp or 0
            case AddFile():
                removed.pop(file_key(action), None)
            case _:
                pass
