"""Past commits, times and removed files, and every file that some version names."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.errors import CorruptLogError, TimestampNotFoundError
from liquidlog.log.checkpoints import read_checkpoint, struct_field
from liquidlog.log.loader import (
    Checkpoint,
    LogListing,
    LogSegment,
    candidate_segments,
    list_log,
    load_snapshot,
    read_change_files,
    read_commits,
    read_infos,
)
from liquidlog.snapshot import Snapshot, decoded_paths, deletion_vector
from liquidlog.spec.actions import (
    AddFile,
    Commit,
    DeletionVector,
    FileKey,
    RemoveFile,
    decode_line,
    file_key,
)
from liquidlog.spec.arrow import one_array
from liquidlog.spec.deletion_vectors import (
    ABSOLUTE,
    ENCODED_UUID_CHARS,
    RELATIVE,
    VECTOR_PREFIX,
    vector_codes,
)
from liquidlog.spec.features import has_in_commit_timestamps
from liquidlog.spec.paths import LogFile, canonical_path, commit_name, is_below_table, log_path
from liquidlog.spec.text import Rows, iso_time
from liquidlog.storage.files import TableStore

_SHOWN: Final = (
    "readVersion",
    "isolationLevel",
    "isBlindAppend",
    "operationMetrics",
    "userMetadata",
    "engineInfo",
)


def read_history(store: TableStore, limit: int | None = None) -> Rows:
    """Return one mapping per commit, newest first, with keys of DESCRIBE HISTORY and no nulls."""
    listing = list_log(store)
    newest_first = sorted(listing.commits.values(), key=lambda file: file.version, reverse=True)
    if limit is not None:
        newest_first = newest_first[:limit]
    infos = read_infos(store, [file.version for file in newest_first])
    return Rows(
        _row(file.version, file.modification_time_ms, info)
        for file, info in zip(newest_first, infos, strict=True)
    )


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
    return {
        key: value
        if value is None or isinstance(value, str)
        else msgspec.json.encode(value).decode()
        for key, value in values.items()
    }


_ENABLED_VERSION: Final = "delta.inCommitTimestampEnablementVersion"


def version_at(store: TableStore, newest: Snapshot, timestamp_ms: int) -> int:
    """Return the last version committed at or before a time (ms since the epoch).

    Once in-commit timestamps are enabled, commits have their own, strictly increasing times. Before
    that, a commit's time is its file's time, moved past the previous commit's if clocks ran back.
    Source: PROTOCOL.md, "In-Commit Timestamps"; Delta Spark, DeltaHistoryManager.
    """
    commits = _loadable(list_log(store))
    own = _first_with_own_time(newest)
    time_of: Callable[[LogFile], int]
    with_own = [file for file in commits if file.version >= own]
    without = [file for file in commits if file.version < own]
    if with_own and (not without or timestamp_ms >= _own_time(store, with_own[0])):
        chosen, time_of = with_own, partial(_own_time, store)
    else:
        times_ms = (file.modification_time_ms for file in without)
        rising = accumulate(times_ms, lambda last, time_ms: max(time_ms, last + 1))
        chosen, time_of = without, dict(zip(without, rising, strict=True)).__getitem__
    position = bisect_right(chosen, timestamp_ms, key=time_of) - 1
    last = _own_time(store, with_own[-1]) if with_own else time_of(commits[-1])
    if position < 0 or timestamp_ms > last:
        first = time_of(chosen[0])
        raise TimestampNotFoundError(iso_time(timestamp_ms), iso_time(first), iso_time(last))
    return chosen[position].version


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


class Removed(NamedTuple):
    """A removed file: canonical path, deletion vector, and when; None if that is not recorded."""

    path: str
    vector: DeletionVector | None
    removed_ms: int | None


def tombstones(
    store: TableStore, segment: LogSegment, sidecars: Collection[str], *, since_ms: int
) -> frozenset[FileKey]:
    """Return the files that a version's log removed after `since_ms` and still names.

    VACUUM keeps them. `sidecars` are Parquet files. Source: PROTOCOL.md, "Add File and Remove
    File".
    """
    own = () if segment.checkpoint is None else segment.checkpoint.names
    removed = removed_files(store, {*own, *sidecars})
    for commit in read_commits(store, [file.version for file in segment.commits]):
        for action in commit.actions:
            if isinstance(action, RemoveFile):
                removed[file_key(action)] = action.deletion_timestamp or 0
            elif isinstance(action, AddFile):
                removed.pop(file_key(action), None)
    return frozenset(key for key, removed_ms in removed.items() if removed_ms > since_ms)


def removed_files(store: TableStore, names: Iterable[str]) -> dict[FileKey, int]:
    """Return the files that checkpoint files say were removed, and when, 0 if they do not say."""
    return {
        (one.path, None if one.vector is None else one.vector.unique_id): one.removed_ms or 0
        for one in removed_names(store, names)
    }


def removed_names(store: TableStore, names: Iterable[str]) -> Iterator[Removed]:
    for name in names:
        if name.endswith(".json"):
            lines = (store.read_log(name) or b"").split(b"\n")
            for action in (decode_line(line) for line in lines if line.strip()):
                if isinstance(action, RemoveFile):
                    path = canonical_path(action.path)
                    yield Removed(path, action.deletion_vector, action.deletion_timestamp)
            continue
        try:
            yield from _removed(store, name)
        except (pa.ArrowException, OSError, KeyError) as error:
            detail = f"is not a readable checkpoint: {error}"
            raise CorruptLogError(log_path(name), detail) from error


def _removed(store: TableStore, name: str) -> Iterator[Removed]:
    with pq.ParquetFile(store.open_log(name)) as file:
        groups = range(file.num_row_groups) if "remove" in file.schema_arrow.names else ()
        for group in groups:
            removes = file.read_row_group(group, columns=["remove"])["remove"].combine_chunks()
            removes = removes.filter(removes.is_valid())
            # Early checkpoints lack the field: Delta 0.1 keeps the path of a remove alone.
            times = struct_field(removes, "deletionTimestamp", pa.int64())
            for row, removed_ms in zip(removes, times.to_pylist(), strict=True):
                remove = row.as_py()
                vector = deletion_vector(remove.get("deletionVector"))
                yield Removed(canonical_path(remove["path"]), vector, removed_ms)


# The last check before files are deleted: does the retained log name them, do its versions need
# them? Files are compared by the last part of their path, ignoring the case of ASCII letters,
# because logs spell directories in several ways. Only a file in a directory of the table is
# compared by its whole path, if the log has it relative.

_DIRECTORIES: Final = "^.*/"
_ALWAYS_MS: Final = 1 << 62
"""Later than every time; stands for an unknown time of removal."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Files that versions within the retention need, and those removed before, at `version`."""

    version: int
    needed: frozenset[str]
    expired: frozenset[str]


def named_files(store: TableStore, names: Collection[str]) -> frozenset[str]:
    """Return the decoded `names` that occur anywhere in the log."""
    wanted = _Wanted.of(names)
    listing = list_log(store)
    found: set[str] = set()
    for commit in read_commits(store, _versions(store, listing)):
        for action in commit.actions:
            if isinstance(action, AddFile | RemoveFile):
                found.update(wanted.among(action.path, action.deletion_vector))
    for checkpoint in listing.checkpoints:
        found.update(_of_checkpoint(store, checkpoint, wanted))
    return frozenset(found)


def needed_files(
    store: TableStore, paths: Collection[str], *, since_ms: int, by_name: bool = False
) -> Needed:
    """Return the files that are needed by versions that were the newest at `since_ms` or later.

    They are live, removed since, or change data of commits since. A file was removed at the later
    of two times: the action's and the commit's. With `by_name`, only last parts of paths count.
    """
    wanted = _Wanted.of(paths, by_name=by_name)
    listing = list_log(store)
    versions = _versions(store, listing)
    last = versions[-1] if versions else listing.newest
    needed: set[str] = set()
    expired: set[str] = set()
    recent: list[int] = []
    time_ms = 0
    for commit in read_commits(store, versions):
        file = listing.commits.get(commit.version)
        file_ms = (file and file.modification_time_ms) or _ALWAYS_MS
        time_ms = max(time_ms, file_ms, commit.info.in_commit_timestamp or 0)
        if time_ms >= since_ms:
            recent.append(commit.version)
        _take_removed(commit, time_ms, since_ms, wanted, (needed, expired))
    needed.update(*(wanted.among(path, None) for path in read_change_files(store, recent)))
    for checkpoint in listing.checkpoints:
        times_ms = (file.modification_time_ms or _ALWAYS_MS for file in checkpoint.files)
        is_recent = max(times_ms) >= since_ms
        if checkpoint.version < min(versions, default=last) - 1:  # the commits after it are gone
            (needed if is_recent else expired).update(_of_checkpoint(store, checkpoint, wanted))
            continue
        sidecars = read_checkpoint(store, checkpoint.names).statistics.checkpoint
        names = {*checkpoint.names, *(file.name for file in sidecars)}
        for path, vector, removed_ms in removed_names(store, names):
            known_ms = removed_ms or (since_ms if is_recent else 0)
            found = needed if known_ms >= since_ms else expired
            found.update(wanted.among(path, vector))
    live = load_snapshot(store, last)
    needed.update(_of_files(live.files, wanted))
    return Needed(last, frozenset(needed), frozenset(expired - needed))


def _take_removed(
    commit: Commit, time_ms: int, since_ms: int, wanted: "_Wanted", found: tuple[set[str], set[str]]
) -> None:
    needed, expired = found
    for action in commit.actions:
        if isinstance(action, RemoveFile):
            removed_ms = max(time_ms, action.deletion_timestamp or 0)
            paths = wanted.among(action.path, action.deletion_vector)
            (needed if removed_ms >= since_ms else expired).update(paths)


def _versions(store: TableStore, listing: LogListing) -> Sequence[int]:
    """Return the versions whose commits are in the log, without gaps, as a listing may be stale."""
    candidate_segments(listing, None)
    first, last = min(listing.commits, default=listing.newest + 1), listing.newest
    missing = [version for version in range(first, last + 1) if version not in listing.commits]
    if missing:
        where = log_path(commit_name(missing[0]))
        raise CorruptLogError(where, "is not listed, although commits before it are in the log")
    while first > 0 and store.read_log(commit_name(first - 1)) is not None:
        first -= 1
    while store.read_log(commit_name(last + 1)) is not None:
        last += 1
    return range(first, last + 1)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The paths to look for, by last parts alone if `by_name`, and vector files by encoded uuid."""

    paths: Mapping[str, tuple[str, ...]]
    codes: Mapping[str, str]
    by_name: bool

    @classmethod
    def of(cls, paths: Collection[str], *, by_name: bool = False) -> "_Wanted":
        found: dict[str, tuple[str, ...]] = {}
        for path in paths:
            name = _name(path)
            found[name] = (*found.get(name, ()), path)
        return cls(found, vector_codes(found), by_name)

    def among(self, path: str, vector: DeletionVector | None) -> Iterator[str]:
        """Yield the wanted paths that an action names by its path, decoded or not, or vector."""
        for spelled in {path, unquote(path)}:
            yield from self._called(spelled)
        if vector is None:
            return
        if vector.storage_type == RELATIVE:
            name = self.codes.get(vector.path_or_inline_dv[-ENCODED_UUID_CHARS:])
            yield from self.paths.get(name or "", ())
        else:
            yield from self.paths.get(_name(unquote(vector.path_or_inline_dv)), ())

    def _called(self, path: str) -> Iterator[str]:
        found = self.paths.get(_name(path), ())
        whole = _lower(path) if found and is_below_table(path) and not self.by_name else None
        for one in found:
            if whole is None or "/" not in one or _lower(one) == whole:
                yield one


def _of_checkpoint(store: TableStore, checkpoint: Checkpoint, wanted: _Wanted) -> Iterator[str]:
    state = read_checkpoint(store, checkpoint.names)
    yield from _of_files(state.files, wanted)
    sidecars = (file.name for file in state.statistics.checkpoint)
    for one in removed_names(store, {*checkpoint.names, *sidecars}):
        yield from wanted.among(one.path, one.vector)


def _of_files(files: pa.Table, wanted: _Wanted) -> Iterator[str]:
    names = pa.array(wanted.paths, pa.string())
    decoded = decoded_paths(files)
    raw = one_array(files["path"])
    for paths in (decoded,) if decoded.equals(raw) else (decoded, raw):
        last_parts = pc.ascii_lower(pc.replace_substring_regex(paths, _DIRECTORIES, ""))
        for path in paths.filter(pc.is_in(last_parts, value_set=names)).to_pylist():
            yield from wanted._called(path)  # noqa: SLF001  its own function on columns
    yield from _of_vectors(files["deletion_vector"], wanted)


def _of_vectors(vectors: pa.ChunkedArray, wanted: _Wanted) -> Iterator[str]:
    if not any(name.startswith(VECTOR_PREFIX) for name in wanted.paths):
        return
    texts = pc.struct_field(vectors, "pathOrInlineDv")
    ends = pc.utf8_slice_codeunits(texts, -ENCODED_UUID_CHARS)
    kinds = pc.struct_field(vectors, "storageType")
    own = pc.is_in(ends, value_set=pa.array(wanted.codes, pa.string()))
    suspects = pc.or_kleene(
        pc.equal(kinds, ABSOLUTE), pc.and_kleene(pc.equal(kinds, RELATIVE), own)
    )
    for row in vectors.filter(pc.fill_null(suspects, fill_value=False)).to_pylist():
        yield from wanted.among("", deletion_vector(row))


_LOWER: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def _lower(path: str) -> str:
    """Lower ASCII letters alone, as `pc.ascii_lower` does."""
    return path.lower() if path.isascii() else path.translate(_LOWER)


def _name(path: str) -> str:
    return _lower(path.rpartition("/")[2])
