"""The commits of a table as DESCRIBE HISTORY shows them, newest first."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.errors import CorruptLogError, TimestampNotFoundError
from liquidlog.log.checkpoints import struct_field
from liquidlog.log.segment import LogListing, LogSegment, list_log, read_commits, read_infos
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot, deletion_vector
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    DeletionVector,
    FileKey,
    RemoveFile,
    decode_line,
    file_key,
)
from liquidlog.spec.features import has_in_commit_timestamps
from liquidlog.spec.paths import LogFile, canonical_path, commit_name, log_path
from liquidlog.spec.text import Rows, iso_time

_SHOWN: Final = (
    "readVersion",
    "isolationLevel",
    "isBlindAppend",
    "operationMetrics",
    "userMetadata",
    "engineInfo",
)


def read_history(store: TableStore, limit: int | None = None) -> Rows:
    """Return one mapping per commit still in the log, newest first, at most `limit`.

    The keys are those of DESCRIBE HISTORY; keys without a value are left out. `timestamp` is ISO
    8601 in UTC: the in-commit timestamp if there is one, else the file's time. Parameters and
    metrics are strings, as the reference engine shows them. Fields of commitInfo that the reference
    engine does not show, known here or not, follow unchanged.
    """
    listing = list_log(store)
    newest_first = sorted(listing.commits.values(), key=lambda file: file.version, reverse=True)
    if limit is not None:
        newest_first = newest_first[:limit]
    infos = read_infos(store, [file.version for file in newest_first])
    return Rows(
        _row(file.version, file.modification_time_ms, info)
        for file, info in zip(newest_first, infos, strict=True)
    )


def count_commits(store: TableStore) -> int:
    """Return the number of commits still in the log."""
    return len(list_log(store).commits)


def _row(version: int, modification_time_ms: int, info: Mapping[str, Any]) -> Mapping[str, Any]:
    own_time = info.get("inCommitTimestamp")
    row = {
        "version": version,
        "timestamp": iso_time(own_time if isinstance(own_time, int) else modification_time_ms),
        "operation": info.get("operation"),
        "operationParameters": _strings(info.get("operationParameters")) or {},
        **{name: info.get(name) for name in _SHOWN},
        "operationMetrics": _strings(info.get("operationMetrics")),
    }
    others = {name: value for name, value in info.items() if name not in {*row, "timestamp"}}
    return {key: value for key, value in (row | others).items() if value is not None}


def _strings(values: Any) -> dict[str, str | None] | None:  # noqa: ANN401  JSON
    if not isinstance(values, dict):
        return None
    return {key: _string(value) for key, value in values.items()}


def _string(value: Any) -> str | None:  # noqa: ANN401  JSON
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


# Find the version that a table had at a given time
#
# From the version that enabled in-commit timestamps on, commits carry their own, strictly
# increasing times. Before that, a commit's time is its file's time, moved past the previous
# commit's where clocks ran backwards.
#
# Source: PROTOCOL.md, "In-Commit Timestamps"; Delta Spark, DeltaHistoryManager.

_ENABLED_VERSION: Final = "delta.inCommitTimestampEnablementVersion"


def version_at(store: TableStore, newest: Snapshot, timestamp_ms: int) -> int:
    """Return the last version committed at or before a time (ms since the epoch).

    `newest` is the newest snapshot; its properties say from which version on commits carry times.
    """
    commits = _loadable(list_log(store))
    own = _first_with_own_time(newest)
    time_of: Callable[[LogFile], int]
    with_own = [file for file in commits if file.version >= own]
    without = [file for file in commits if file.version < own]
    if with_own and (not without or timestamp_ms >= _own_time(store, with_own[0])):
        chosen, time_of = with_own, partial(_own_time, store)
    else:
        times = dict(zip(without, _rising([f.modification_time_ms for f in without]), strict=True))
        chosen, time_of = without, times.__getitem__
    position = bisect_right(chosen, timestamp_ms, key=time_of) - 1
    last = _time_of_last(store, with_own, time_of, commits)
    if position < 0 or timestamp_ms > last:
        first = time_of(chosen[0])
        raise TimestampNotFoundError(iso_time(timestamp_ms), iso_time(first), iso_time(last))
    return chosen[position].version


def _time_of_last(
    store: TableStore,
    with_own: Sequence[LogFile],
    time_of: Callable[[LogFile], int],
    commits: Sequence[LogFile],
) -> int:
    return _own_time(store, with_own[-1]) if with_own else time_of(commits[-1])


def _loadable(listing: LogListing) -> list[LogFile]:
    starts = [checkpoint.version for checkpoint in listing.checkpoints]
    first = 0 if 0 in listing.commits else min(starts, default=listing.newest)
    version = listing.newest
    found = []
    while version >= first and version in listing.commits:
        found.append(listing.commits[version])
        version -= 1
    if not found:
        name = commit_name(listing.newest)
        raise CorruptLogError(log_path(name), "is not there, so its time is not known")
    return found[::-1]


def _first_with_own_time(newest: Snapshot) -> int:
    configuration = newest.metadata.configuration
    if not has_in_commit_timestamps(newest.protocol, configuration):
        return newest.version + 1
    text = configuration.get(_ENABLED_VERSION, "0")
    return int(text) if text.isdecimal() else 0


def _own_time(store: TableStore, file: LogFile) -> int:
    (info,) = read_infos(store, [file.version])
    time_ms = info.get("inCommitTimestamp")
    if not isinstance(time_ms, int):
        raise CorruptLogError(log_path(file.name), "the commit does not carry its timestamp")
    return time_ms


def _rising(times_ms: Sequence[int]) -> list[int]:
    rising: list[int] = []
    for time_ms in times_ms:
        rising.append(max(time_ms, rising[-1] + 1) if rising else time_ms)
    return rising


# Tombstones: removed files that the log still names, so that VACUUM keeps them
#
# Source: PROTOCOL.md, "Add File and Remove File" (tombstones), "Checkpoints".

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
