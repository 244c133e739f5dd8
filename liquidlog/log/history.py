"""Past commits, times and removed files, and checkpoints that are proved to equal the log.

delta-rs writes a checkpoint in a directory of its own. Only differences that no reader can see are
allowed: the order of keys in tags and partition values, and null or an empty map for a file without
tags. Then the checkpoint is put like a commit, and `_last_checkpoint` is replaced.

Source: PROTOCOL.md, "Checkpoints", "Last Checkpoint File"; docs/adr/0016.
"""

import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version as installed_version
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import structs

from liquidlog.errors import (
    CheckpointMismatchError,
    CorruptLogError,
    LiquidlogError,
    StorageError,
    TimestampNotFoundError,
)
from liquidlog.log.checkpoints import CheckpointState, read_checkpoint, struct_field
from liquidlog.log.loader import (
    Checkpoint,
    LogListing,
    LogSegment,
    add_of,
    candidate_segments,
    hinted_version,
    list_log,
    list_log_from,
    load_segment,
    load_snapshot,
    parse_commit,
    read_change_files,
    read_commits,
    read_infos,
    statistics_texts,
)
from liquidlog.logs import Log, ms_since
from liquidlog.snapshot import (
    Snapshot,
    decoded_paths,
    deletion_vector,
    file_keys,
    path_order,
    sorted_files,
)
from liquidlog.spec.actions import (
    ABSOLUTE,
    ENCODED_UUID_CHARS,
    LAST_CHECKPOINT,
    LOG_DIR,
    RELATIVE,
    SIDECAR_DIR,
    VECTOR_PREFIX,
    AddFile,
    Commit,
    DeletionVector,
    FileKey,
    LogFile,
    Metadata,
    Protocol,
    RemoveFile,
    canonical_path,
    canonical_paths,
    classic_checkpoint_name,
    commit_name,
    decode_line,
    encode_actions,
    file_key,
    is_below_table,
    log_path,
    vector_codes,
)
from liquidlog.spec.arrow import one_array
from liquidlog.spec.features import (
    CATALOG_MANAGED,
    has_in_commit_timestamps,
    with_catalog,
    without_catalog,
)
from liquidlog.spec.text import Rows, iso_time, retention_ms
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions, is_local, redacted
from liquidlog.storage.files import LocalTableStore, TableStore
from liquidlog.storage.objects import AmbiguousPutError

if TYPE_CHECKING:
    from deltalake import DeltaTable


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
    rows = []
    for file, info in zip(newest_first, infos, strict=True):
        own_ms = info.get("inCommitTimestamp")
        row = {
            "version": file.version,
            "timestamp": iso_time(own_ms if isinstance(own_ms, int) else file.modification_time_ms),
            "operation": info.get("operation"),
            "operationParameters": _strings(info.get("operationParameters")) or {},
            **{name: info.get(name) for name in _SHOWN},
            "operationMetrics": _strings(info.get("operationMetrics")),
        }
        row |= {name: value for name, value in info.items() if name not in row}
        rows.append({key: value for key, value in row.items() if value is not None})
    return Rows(rows)


def _strings(values: Any) -> dict[str, str | None] | None:  # noqa: ANN401  JSON
    if not isinstance(values, dict):
        return None
    return {
        key: value
        if value is None or isinstance(value, str)
        else msgspec.json.encode(value).decode()
        for key, value in values.items()
    }


def version_at(store: TableStore, newest: Snapshot, timestamp_ms: int) -> int:
    """Return the last version committed at or before a time (ms since the epoch).

    Once in-commit timestamps are enabled, commits have their own, strictly increasing times. Before
    that, a commit's time is its file's time, moved past the previous commit's if clocks ran back.
    Source: PROTOCOL.md, "In-Commit Timestamps"; Delta Spark, DeltaHistoryManager.
    """
    commits = _loadable(list_log(store))
    configuration, own = newest.metadata.configuration, newest.version + 1
    if has_in_commit_timestamps(newest.protocol, configuration):
        text = configuration.get("delta.inCommitTimestampEnablementVersion", "0")
        own = int(text) if text.isdecimal() else 0
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
            yield from self.called(spelled)
        if vector is None:
            return
        if vector.storage_type == RELATIVE:
            name = self.codes.get(vector.path_or_inline_dv[-ENCODED_UUID_CHARS:])
            yield from self.paths.get(name or "", ())
        else:
            yield from self.paths.get(_name(unquote(vector.path_or_inline_dv)), ())

    def called(self, path: str) -> Iterator[str]:
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
            yield from wanted.called(path)
    if not any(name.startswith(VECTOR_PREFIX) for name in wanted.paths):
        return
    vectors = files["deletion_vector"]
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


_MISREAD: Final = re.compile(r"[%\\\x00-\x1f\x7f]")
"""Characters that delta-rs decodes, replaces or refuses in a table's path, even if quoted."""
_PLAIN_PATH: Final = r"^([A-Za-z0-9_=-][A-Za-z0-9_.=-]*/)*[A-Za-z0-9_=-][A-Za-z0-9_.=-]*$"
"""A relative path that has one spelling, and means the same to every implementation."""
_MOST_COMMITS: Final = 100
"""After more commits than these, the whole version is compared again."""


class SecondOpinion:
    """Asks delta-rs, another implementation, whether a run's versions have the same live files.

    The first comparison covers the whole version. Later, delta-rs replays only the new commits, on
    top of the files that they mention, and must arrive at our files. That suffices if paths need no
    decoding, only live files are removed, the schema stays, and every checkpoint was compared;
    otherwise the whole version is compared again.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._agreed: Snapshot | None = None
        self._plain_paths: bool | None = None

    def require(self, snapshot: Snapshot) -> None:
        if self._agreed is None or not self._follows(self._agreed, snapshot):
            if self._store.is_managed:
                with TemporaryDirectory(prefix="liquidlog-second-opinion-") as directory:
                    _, segment = load_segment(self._store, snapshot.version)
                    _stage(self._store, snapshot, segment, Path(directory) / LOG_DIR)
                    require_agreement(replace(snapshot, location=directory))
            else:
                require_agreement(snapshot, self._store.storage)
            self._plain_paths = None
        self._agreed = snapshot

    def _follows(self, agreed: Snapshot, snapshot: Snapshot) -> bool:
        """Return whether delta-rs replays the commits since the agreed version as we do."""
        if agreed.metadata.id != snapshot.metadata.id or agreed.mark is None:
            return False
        if snapshot.version == agreed.version:
            same_files = agreed.files is snapshot.files or _paths(agreed).equals(_paths(snapshot))
            return agreed.mark == snapshot.mark and same_files
        if not 0 < snapshot.version - agreed.version <= _MOST_COMMITS:
            return False
        if self._plain_paths is None:
            self._plain_paths = _plain_paths(_paths(agreed))
        if not self._plain_paths:
            return False
        try:
            contents = self._contents_between(agreed, snapshot)
            return contents is not None and _same_replay(agreed, snapshot, contents)
        except LiquidlogError:
            return False  # the whole comparison says what is wrong

    def _contents_between(self, agreed: Snapshot, snapshot: Snapshot) -> tuple[bytes, ...] | None:
        listing = list_log_from(self._store, agreed.version)
        is_newer = any(found.version > agreed.version for found in listing.checkpoints)
        if is_newer or not listing.has(agreed.mark):
            return None
        versions = range(agreed.version + 1, snapshot.version + 1)
        contents = self._store.read_logs([commit_name(version) for version in versions])
        found = tuple(content for content in contents if content is not None)
        return found if len(found) == len(versions) else None


def require_agreement(snapshot: Snapshot, storage: StorageOptions = NO_OPTIONS) -> None:
    """Refuse a version in which delta-rs sees other live files."""
    # Only few commands need a second opinion.
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        with _readable_by_delta_rs(snapshot.location) as uri:
            options = storage.fresh().given()
            table = DeltaTable(uri, version=snapshot.version, storage_options=options or None)
            found = _paths_in(table)
    except (DeltaError, OSError, ValueError) as error:
        said = redacted(str(error), storage, os.environ)
        detail = f"delta-rs cannot read version {snapshot.version}: {said}"
        raise CorruptLogError(LOG_DIR, detail) from None
    decoded = snapshot.paths()
    if _sorted_paths(found).equals(_sorted_paths(decoded)):
        return
    theirs, ours = set(found.to_pylist()), set(decoded.to_pylist())
    if theirs == ours:
        return
    only_ours, only_theirs = sorted(ours - theirs), sorted(theirs - ours)
    raise CorruptLogError(
        LOG_DIR,
        f"delta-rs sees other live files at version {snapshot.version}:"
        f" {len(only_ours)} only here {only_ours[:3]}, {len(only_theirs)} only there"
        f" {only_theirs[:3]}; nothing was removed",
    )


def _same_replay(agreed: Snapshot, snapshot: Snapshot, contents: Sequence[bytes]) -> bool:
    """Return whether delta-rs replays commits as we did; the paths agreed on are plain."""
    first = agreed.version + 1
    commits = [parse_commit(content, first + n) for n, content in enumerate(contents)]
    mentioned = pa.array(sorted({a.path for c in commits for a in _file_actions(c)}), pa.string())
    old, new = _paths(agreed), _paths(snapshot)
    if not _plain_paths(mentioned):
        return False
    was, now = (pc.is_in(paths, mentioned) for paths in (old, new))
    # Other files must be the same before and after.
    if not old.filter(pc.invert(was)).equals(new.filter(pc.invert(now))):
        return False
    before = agreed.files.filter(was)
    if not _only_live_removed(before, commits):
        return False
    theirs = _replayed_by_delta_rs(agreed, before, contents)
    return theirs is not None and _sorted_paths(theirs).equals(_sorted_paths(new.filter(now)))


def _file_actions(commit: Commit) -> Iterator[AddFile | RemoveFile]:
    return (action for action in commit.actions if isinstance(action, AddFile | RemoveFile))


def _only_live_removed(before: pa.Table, commits: Sequence[Commit]) -> bool:
    """Return whether commits change only files, and remove only live files."""
    live = set(file_keys(before))
    for commit in commits:
        if any(isinstance(action, Metadata | Protocol) for action in commit.actions):
            return False
        removed = {file_key(a) for a in _file_actions(commit) if isinstance(a, RemoveFile)}
        if not removed <= live:
            return False
        live -= removed
        live |= {file_key(a) for a in _file_actions(commit) if isinstance(a, AddFile)}
    return True


def _replayed_by_delta_rs(
    agreed: Snapshot, before: pa.Table, contents: Sequence[bytes]
) -> pa.Array | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    adds = map(add_of, before.to_pylist())
    protocol = agreed.protocol
    if CATALOG_MANAGED in (protocol.reader_features or ()):
        protocol = without_catalog(protocol)
    start = encode_actions((protocol, agreed.metadata, *adds))
    with TemporaryDirectory(prefix="liquidlog-second-opinion-") as directory:
        log = Path(directory) / LOG_DIR
        log.mkdir()
        for version, content in enumerate((start, *contents)):
            (log / commit_name(version)).write_bytes(content)
        try:
            return _paths_in(DeltaTable(directory))
        except (DeltaError, OSError, ValueError):
            return None


def _paths(snapshot: Snapshot) -> pa.Array:
    return one_array(snapshot.files["path"])


def _paths_in(table: "DeltaTable") -> pa.Array:
    actions = pa.table(table.get_add_actions(flatten=True))
    return canonical_paths(actions["path"].cast(pa.string()).combine_chunks())


def _sorted_paths(paths: pa.Array) -> pa.Array:
    return paths.take(pa.array(path_order(paths)))


def _plain_paths(paths: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(paths, _PLAIN_PATH)).as_py() or not len(paths))


@contextmanager
def _readable_by_delta_rs(uri: str) -> Iterator[str]:
    if not is_local(uri):
        scheme, _, rest = uri.partition("://")
        place, slash, path = rest.partition("/")
        yield f"{scheme}://{place}{slash}{quote(path, safe='/@')}"
    elif not _MISREAD.search(uri):
        yield uri
    else:
        with TemporaryDirectory(prefix="liquidlog-second-opinion-") as directory:
            (Path(directory) / LOG_DIR).symlink_to(Path(uri) / LOG_DIR)
            yield directory


_COMPARED: Final = (
    "path",
    "size",
    "modification_time",
    "num_records",
    "clustering_provider",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
)
_MAPS: Final = ("partition_values_json", "tags_json")


def state_differences(
    expected: Snapshot, found: CheckpointState | Snapshot, files: pa.Table
) -> list[str]:
    """Return the differences of a checkpoint; `files` has its files in the snapshot's order."""
    differences = []
    if found.protocol is None or _protocol(found.protocol) != _protocol(expected.protocol):
        differences.append("the protocol")
    if found.metadata is None or _metadata(found.metadata) != _metadata(expected.metadata):
        differences.append("the metadata")
    if dict(found.domains) != dict(expected.domains):
        differences.append("the domains")
    if dict(found.transactions) != dict(expected.transactions):
        differences.append("the transaction identifiers")
    if files.num_rows != expected.files.num_rows:
        counts = f"{files.num_rows} live files instead of {expected.files.num_rows}"
        return [*differences, counts]
    other = [
        name
        for names, compared in ((_COMPARED, _plain), (_MAPS, _canonical))
        for name in names
        if not compared(files[name]).equals(compared(expected.files[name]))
    ]
    return [*differences, *(f"the {name} of some live file" for name in other)]


def statistics_differences(
    expected: pa.ChunkedArray, found: pa.ChunkedArray, *, as_text: bool
) -> list[str]:
    """Return the differences of two columns of JSON; `found` may be null unless `as_text`."""
    same = pc.fill_null(pc.equal(expected, found), fill_value=False)
    neither = pc.and_(expected.is_null(), found.is_null())
    other = pc.invert(pc.or_(same, neither))
    pairs = zip(expected.filter(other).to_pylist(), found.filter(other).to_pylist(), strict=True)
    for before, after in pairs:
        if before is None or (after is None and not as_text):
            continue
        if after is None or _value(before) != _value(after):
            return ["the statistics of some live file"]
    return []


def tombstone_differences(
    expected: frozenset[FileKey], found: frozenset[FileKey], live: pa.Table
) -> list[str]:
    """Return how many tombstones are missing, and how many `live` files are tombstones."""
    missing = len(expected - found)
    suspects = live.filter(
        pc.is_in(decoded_paths(live), pa.array({path for path, _ in found}, pa.string()))
    )
    revived = found.intersection(file_keys(suspects))
    lost = [f"{missing} of {len(expected)} tombstones are missing"] if missing else []
    return lost + ([f"{len(revived)} live files are tombstones"] if revived else [])


def _protocol(protocol: Protocol) -> tuple[object, ...]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
    )


def _metadata(metadata: Metadata) -> Metadata:
    options = dict(metadata.format.options or {})
    return structs.replace(metadata, format=structs.replace(metadata.format, options=options))


def _plain(column: pa.ChunkedArray) -> pa.Array:
    values = one_array(column)
    return pc.cast(values, pa.string()) if pa.types.is_dictionary(values.type) else values


def _canonical(column: pa.ChunkedArray) -> pa.Array:
    """Return JSON objects with sorted keys, {} for null; each distinct text is decoded once."""
    values = one_array(column)
    objects = map(msgspec.json.decode, values.dictionary.to_pylist())
    kinds = [msgspec.json.encode(one, order="sorted").decode() for one in objects]
    texts = pa.array(kinds, pa.string()).take(values.indices)
    return pc.fill_null(texts, "{}")


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


_log: Final = Log(__name__)

_FLOOR: Final = (1, 6, 6)
"""Older releases write checkpoints without domains."""

_TEXT_STATISTICS: Final = "delta.checkpoint.writeStatsAsJson"
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """A version with a checkpoint; `size_bytes` is known if this call `created` it."""

    version: int
    created: bool
    files: int
    size_bytes: int | None = None


def write_checkpoint(
    store: TableStore, version: int, *, now_ms: int, publish: bool = True
) -> Checkpointed:
    """Write a checkpoint of a version, unless it has one; without `publish`, only prove it."""
    snapshot, segment = load_segment(store, version)
    count = snapshot.files.num_rows
    began = time.perf_counter()
    if segment.checkpoint is not None and segment.checkpoint.version == version:
        return Checkpointed(version=version, created=False, files=count)
    name = classic_checkpoint_name(version)
    try:
        with TemporaryDirectory(prefix="liquidlog-checkpoint-") as directory:
            staged = Path(directory) / LOG_DIR
            _stage(store, snapshot, segment, staged)
            _write(Path(directory), version)
            if store.is_managed:
                there = staged / name
                there.write_bytes(_with_protocol(name, there.read_bytes(), with_catalog))
            aside = LocalTableStore(Path(directory))
            _require_same(store, snapshot, segment, aside, name, now_ms)
            content = (staged / name).read_bytes()
            hint = (staged / LAST_CHECKPOINT).read_bytes()
    except OSError as error:
        raise StorageError(name, f"cannot be prepared: {error}") from error
    if not publish:
        return Checkpointed(version=version, created=True, files=count, size_bytes=len(content))
    if not _publish(store, name, content):
        # Another writer was faster, or the checkpoint there could not be read before.
        read_checkpoint(store, [name])
        return Checkpointed(version=version, created=False, files=count)
    named = hinted_version(store)
    if named <= version or store.read_log(commit_name(named)) is None:
        store.replace_log(LAST_CHECKPOINT, hint)
    text = "wrote the checkpoint of version %d of %s: %d files, %d bytes, in %d ms"
    _log.info(text, version, store.uri, count, len(content), ms_since(began))
    return Checkpointed(version=version, created=True, files=count, size_bytes=len(content))


def _stage(store: TableStore, snapshot: Snapshot, segment: LogSegment, target: Path) -> None:
    """Copy the log files of a version; delta-rs needs no other file of the table."""
    (target / SIDECAR_DIR).mkdir(parents=True)
    checkpoint = () if segment.checkpoint is None else segment.checkpoint.names
    sidecars = (file.name for file in snapshot.statistics.checkpoint)
    for name in {*checkpoint, *sidecars, *(file.name for file in segment.commits)}:
        content = store.read_log(name)
        if content is None:
            raise CorruptLogError(name, "is not there any more")
        if store.is_managed:
            content = _with_protocol(name, content, without_catalog)
        (target / name).write_bytes(content)


def _with_protocol(name: str, content: bytes, change: Callable[[Protocol], Protocol]) -> bytes:
    """Return a file of the log with changed protocol actions.

    delta-rs opens no table that a catalog manages: it gets a copy of the log without that feature,
    and its checkpoint gets the feature back.
    """
    if name.startswith(f"{SIDECAR_DIR}/"):
        return content
    if not name.endswith(".parquet"):
        lines = content.split(b"\n")
        for number, line in enumerate(lines):
            if isinstance(action := decode_line(line) if b'"protocol"' in line else None, Protocol):
                lines[number] = encode_actions((change(action),)).rstrip(b"\n")
        return b"\n".join(lines)
    table = pq.read_table(pa.BufferReader(content))
    there = table["protocol"].combine_chunks()
    rows = np.flatnonzero(np.asarray(there.is_valid()))
    if not len(rows):
        return content  # another part of the checkpoint has the protocol
    row = int(rows[0])
    protocol = msgspec.convert(there[row].as_py(), Protocol)
    changed = pa.array([msgspec.to_builtins(change(protocol))], there.type)
    values = pa.chunked_array([there[:row], changed, there[row + 1 :]])
    out = pa.BufferOutputStream()
    pq.write_table(
        table.set_column(table.schema.get_field_index("protocol"), "protocol", values), out
    )
    return bytes(out.getvalue())


def _write(directory: Path, version: int) -> None:
    # Only one commit in many writes a checkpoint.
    from deltalake import DeltaTable

    found = tuple(int(part) for part in installed_version("deltalake").split(".")[:3])
    if found < _FLOOR:
        needed = ".".join(map(str, _FLOOR))
        raise CheckpointMismatchError(version, (f"deltalake is older than {needed}",))
    try:
        DeltaTable(str(directory), version=version).create_checkpoint()
    except BaseException as error:
        # A Rust panic is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = next(iter(str(error).splitlines()), type(error).__name__)
        detail = f"delta-rs cannot write a checkpoint of version {version}: {said}"
        raise CorruptLogError(LOG_DIR, detail) from None


def _require_same(
    store: TableStore,
    snapshot: Snapshot,
    segment: LogSegment,
    aside: TableStore,
    name: str,
    now_ms: int,
) -> None:
    written = read_checkpoint(aside, [name])
    files = sorted_files(written.files)
    differences = state_differences(snapshot, written, files)
    if files.num_rows == snapshot.files.num_rows:
        as_text = snapshot.metadata.configuration.get(_TEXT_STATISTICS, "true").lower() == "true"
        differences += statistics_differences(
            statistics_texts(store, snapshot.statistics, snapshot.files),
            statistics_texts(aside, written.statistics, files),
            as_text=as_text,
        )
    keep_ms = retention_ms(snapshot.metadata.configuration)
    # delta-rs reads the clock itself, a little later than we did.
    since_ms = -1 if keep_ms is None else now_ms - keep_ms + _MINUTE_MS
    sidecars = [file.name for file in snapshot.statistics.checkpoint]
    expected = tombstones(store, segment, sidecars, since_ms=since_ms)
    found = frozenset(removed_files(aside, [name]))
    differences += tombstone_differences(expected, found, snapshot.files)
    if differences:
        raise CheckpointMismatchError(snapshot.version, tuple(differences))


def _publish(store: TableStore, name: str, content: bytes) -> bool:
    try:
        return store.put_log_if_absent(name, content)
    except AmbiguousPutError as error:
        detail = f"may or may not have been stored, which is harmless: {error}"
        raise StorageError(name, detail) from None
