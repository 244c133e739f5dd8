"""Tombstones: removed files that the log still names, so that VACUUM keeps them.

Source: PROTOCOL.md, "Add File and Remove File" (tombstones), "Checkpoints".
"""

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.errors import CorruptLogError
from liquidlog.log.replay import vector_id
from liquidlog.log.segment import LogSegment, read_commits
from liquidlog.log.store import TableStore
from liquidlog.spec.actions import AddFile, AnyAction, FileKey, RemoveFile, decode_line, file_key
from liquidlog.spec.file_paths import canonical_path
from liquidlog.spec.log_files import log_path


def tombstones(
    store: TableStore, segment: LogSegment, sidecars: Collection[str], *, since_ms: int
) -> frozenset[FileKey]:
    """Return the files that, according to a version's log, were removed after `since_ms`.

    `sidecars` are the Parquet files with the checkpoint's file actions; they may be the
    checkpoint's own files.

    Raises:
        CorruptLogError: If a log file cannot be read.
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


def removed_keys(store: TableStore, names: Iterable[str]) -> Iterator[FileKey]:
    """Yield the removed files, of any age, that checkpoint files (JSON or Parquet) name.

    Raises:
        CorruptLogError: If a checkpoint file cannot be read.
    """
    for name in names:
        if name.endswith(".json"):
            removed: dict[FileKey, int] = {}
            _take(removed, _json_actions(store, name))
            yield from removed
        else:
            yield from removed_files(store, name, since_ms=-1)


def removed_files(store: TableStore, name: str, *, since_ms: int) -> frozenset[FileKey]:
    """Return the files removed after `since_ms` that a Parquet file of a checkpoint names.

    Raises:
        CorruptLogError: If the file cannot be read.
    """
    try:
        with pq.ParquetFile(store.open_log(name)) as file:
            groups = range(file.num_row_groups) if "remove" in file.schema_arrow.names else ()
            return frozenset(
                key
                for group in groups
                for key in _keys(file.read_row_group(group, columns=["remove"]), since_ms)
            )
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorruptLogError(log_path(name), f"is not a readable checkpoint: {error}") from error


def _keys(group: pa.Table, since_ms: int) -> Iterator[FileKey]:
    removes = group["remove"].combine_chunks()
    deleted = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 0)
    for row in removes.filter(pc.and_(removes.is_valid(), pc.greater(deleted, since_ms))):
        remove = row.as_py()
        vector = remove.get("deletionVector")
        yield canonical_path(remove["path"]), None if vector is None else vector_id(vector)


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
