"""The read path, top to bottom: address, list, read, replay, Snapshot."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import (
    CorruptLogError,
    ManagedTableError,
    TableReplacedError,
    UnsupportedFeatureError,
    UsageError,
    VersionNotFoundError,
)
from liquidlog.log.checkpoints import CheckpointState, read_checkpoint
from liquidlog.log.managed import ManagedTableStore
from liquidlog.log.replay import TailState, reconciled_files, replay_tail, tail_statistics
from liquidlog.log.segment import (
    LogListing,
    LogSegment,
    candidate_segments,
    list_log,
    list_log_from,
    list_recent_log,
    read_commits,
    read_infos,
    read_selected,
)
from liquidlog.log.store import LocalTableStore, ObjectTableStore, TableStore
from liquidlog.logs import Log, ms_since
from liquidlog.snapshot import STATISTICS_TYPE, Snapshot, Statistics, unsound
from liquidlog.spec.actions import Commit, CommitInfo, Protocol
from liquidlog.spec.arguments import address
from liquidlog.spec.arrow import one_array
from liquidlog.spec.features import (
    CATALOG_MANAGED,
    has_in_commit_timestamps,
    table_features,
    unsupported_for_inspection,
)
from liquidlog.spec.paths import LOG_DIR, are_plain, commit_name, log_path
from liquidlog.spec.schema import parse_schema
from liquidlog.storage.addresses import is_local, table_address, table_in_catalog
from liquidlog.storage.options import OptionsSource, StorageOptions
from liquidlog.storage.unity import NamedTable, VendedOptions

_log: Final = Log(__name__)


def open_store(
    uri: str | os.PathLike[str], storage_options: OptionsSource | None = None
) -> TableStore:
    """Return the store of the table at `uri`; nothing is read yet."""
    options = StorageOptions.of(storage_options)
    given = address(uri, argument="a table's address")
    place = table_address(given)
    if table_in_catalog(place):
        return _in_catalog(place, options)
    if not is_local(given):
        _log.debug("open %s with %s", place, options)
        return ObjectTableStore(place, options)
    require_used(given, storage_options)
    return LocalTableStore(Path(place))


def _in_catalog(uri: str, options: StorageOptions) -> TableStore:
    """Return the store of a table that a catalog has by name; its storage is the catalog's word."""
    named = NamedTable.at(uri)
    state = named.load()
    location = table_address(state.metadata.location)
    vended = VendedOptions(named, location, options)
    files: TableStore = (
        LocalTableStore(Path(location))
        if is_local(location)
        else ObjectTableStore(location, StorageOptions.of(vended))
    )
    return ManagedTableStore(named, files, state, vended) if state.is_managed else files


def require_used(uri: str, storage_options: OptionsSource | None) -> None:
    """Refuse storage options for a table on local disk: its scheme may be mistyped."""
    options = StorageOptions.of(storage_options)
    if options and is_local(uri):
        names = [name for name, _ in options.items]
        listed = ", ".join(names) or "a callable gives some"
        raise UsageError(f"a table on local disk has no storage options: {listed}", options=names)


def load_snapshot(store: TableStore, version: int | None = None) -> Snapshot:
    """Return the table's state at `version`, or at the newest version if None."""
    snapshot, _ = load_segment(store, version)
    pa.default_memory_pool().release_unused()
    return snapshot


def load_segment(store: TableStore, version: int | None = None) -> tuple[Snapshot, LogSegment]:
    """Return the table's state at `version`, None for the newest, and the log files it is from."""
    began = time.perf_counter()
    recent = list_recent_log(store)
    try:
        loaded = _load_listed(store, recent, version)
    except (CorruptLogError, VersionNotFoundError) as error:
        if recent.whole:
            raise
        text = "%s: the end of the log is not enough (%s); all of it is listed"
        _log.info(text, store.uri, error)
        loaded = _load_listed(store, list_log(store), version)
    _say_read(*loaded, ms_since(began))
    return loaded


def _say_read(snapshot: Snapshot, segment: LogSegment, duration_ms: int) -> None:
    checkpoint, commits, files = segment.checkpoint, segment.commits, snapshot.files.num_rows
    base = (
        "no checkpoint" if checkpoint is None else f"the checkpoint of version {checkpoint.version}"
    )
    text = "read version %d of %s: %d files, from %s and %d commits, in %d ms"
    _log.info(text, snapshot.version, snapshot.uri, files, base, len(commits), duration_ms)
    for name in () if checkpoint is None else checkpoint.names:
        _log.debug("checkpoint file %s", name)
    if commits:
        _log.debug("commits %s to %s", commits[0].name, commits[-1].name)


def _load_listed(
    store: TableStore, listing: LogListing, version: int | None
) -> tuple[Snapshot, LogSegment]:
    segments = candidate_segments(listing, version)
    for segment in segments[:-1]:
        try:
            checkpoint = _checkpoint(store, segment)
        except CorruptLogError as error:
            text = "%s: a checkpoint is passed over, an older state is read: %s"
            _log.warning(text, store.uri, error)
            continue  # an older checkpoint, or all commits, may still give the version
        return _load(store, segment, checkpoint), segment
    last = segments[-1]
    return _load(store, last, _checkpoint(store, last)), last


def advance(store: TableStore, snapshot: Snapshot) -> tuple[Snapshot, tuple[Commit, ...]]:
    """Return the newest version and the commits after `snapshot`, anew if it was replaced."""
    listing = list_log_from(store, snapshot.version)
    return _advanced(store, snapshot, listing, same=_is_of(snapshot, listing))


def follow(store: TableStore, snapshot: Snapshot) -> tuple[Snapshot, tuple[Commit, ...]]:
    """Do as `advance` does, but refuse a log that has been replaced since."""
    listing = list_log_from(store, snapshot.version)
    same = _is_of(snapshot, listing)
    # That the marked file is missing proves nothing, since old commits are cleaned up.
    has_another = (
        not same and snapshot.mark is not None and listing.called(snapshot.mark.name) is not None
    )
    if has_another or (not same and listing.newest < snapshot.version):
        detail = f"version {snapshot.version} is no longer the one that this change was made for"
        raise TableReplacedError(store.uri, detail, read_version=snapshot.version)
    newest, commits = _advanced(store, snapshot, listing, same=same)
    if not same and newest.metadata.id != snapshot.metadata.id:
        detail = _other_table(snapshot.metadata.id, newest.metadata.id)
        raise TableReplacedError(store.uri, detail, read_version=snapshot.version)
    return newest, commits


def require_same_table(snapshot: Snapshot, table_id: str) -> None:
    """Refuse a table that has another id than the one expected."""
    if snapshot.metadata.id != table_id:
        raise TableReplacedError(snapshot.uri, _other_table(table_id, snapshot.metadata.id))


def _other_table(opened: str, found: str) -> str:
    return f"the table was replaced: it has the id {found}, the one that was opened {opened}"


def _advanced(
    store: TableStore, snapshot: Snapshot, listing: LogListing, *, same: bool
) -> tuple[Snapshot, tuple[Commit, ...]]:
    wanted = range(snapshot.version + 1, listing.newest + 1)
    if not same or any(v not in listing.commits for v in wanted):
        newest = load_snapshot(store)
        return newest, tuple(load_commits(store, snapshot.version + 1, newest.version))
    if not wanted:
        return snapshot, ()
    began = time.perf_counter()
    files = tuple(listing.commits[v] for v in wanted)
    segment = LogSegment(listing.newest, None, files, files[-1])
    commits = tuple(load_commits(store, wanted.start, listing.newest))
    newest = _apply(store, segment, commits[::-1], snapshot)
    text = "read %d commits of %s, up to version %d, in %d ms"
    _log.info(text, len(commits), store.uri, newest.version, ms_since(began))
    return newest, commits


def load_commits(store: TableStore, first: int, last: int) -> Iterator[Commit]:
    """Yield the commits of versions `first` to `last`, oldest first."""
    yield from read_commits(store, range(first, last + 1))


def newest_version(store: TableStore) -> int:
    """Return the newest version in the log."""
    return list_recent_log(store).newest


def _is_of(snapshot: Snapshot, listing: LogListing) -> bool:
    """Return whether the log still has the file that the snapshot's version was read from."""
    return snapshot.mark is not None and listing.has(snapshot.mark)


def _load(store: TableStore, segment: LogSegment, checkpoint: CheckpointState) -> Snapshot:
    versions = [file.version for file in segment.commits[::-1]]
    return _apply(store, segment, tuple(read_commits(store, versions)), checkpoint)


def _apply(
    store: TableStore,
    segment: LogSegment,
    newest_first: Sequence[Commit],
    base: CheckpointState | Snapshot,
) -> Snapshot:
    tail = replay_tail((commit.version, commit.actions) for commit in newest_first)
    protocol = _protocol(store, segment, tail, base)
    metadata = tail.metadata or base.metadata
    if metadata is None:
        raise CorruptLogError(_where(segment), "the log has no metaData action")
    own_times = has_in_commit_timestamps(protocol, metadata.configuration)
    texts = (*base.statistics.texts.chunks, tail_statistics(tail))
    files = reconciled_files(tail, base.files, base.statistics.rows, plain=base.plain)
    plain = _is_plain(files, base, segment)
    problems = unsound(files, store.location, plain=plain)
    if problems:
        raise CorruptLogError(_where(segment), "; ".join(problems))
    domains = {**base.domains, **tail.domains}
    return Snapshot(
        uri=store.uri,
        location=store.location,
        notes=store.notes,
        version=segment.version,
        timestamp_ms=_timestamp_ms(store, segment, newest_first, own_times=own_times),
        protocol=protocol,
        metadata=metadata,
        schema=parse_schema(metadata.schema_string, where=LOG_DIR),
        files=files,
        domains={name: domain for name, domain in domains.items() if not domain.removed},
        transactions={**base.transactions, **tail.transactions},
        statistics=Statistics(base.statistics.checkpoint, pa.chunked_array(texts, STATISTICS_TYPE)),
        mark=segment.mark,
        plain_files=files if plain else None,
    )


def _is_plain(files: pa.Table, base: CheckpointState | Snapshot, segment: LogSegment) -> bool:
    """Return whether all paths are plain; paths of a plain base are not looked at again."""
    if not base.plain:
        return are_plain(one_array(files["path"]))
    first = min((file.version for file in segment.commits), default=segment.version + 1)
    added = files["path"].filter(pc.greater_equal(files["version"], first))
    return are_plain(one_array(added))


def _checkpoint(store: TableStore, segment: LogSegment) -> CheckpointState:
    if segment.checkpoint is None:
        return CheckpointState()
    state = read_checkpoint(store, segment.checkpoint.names)
    # Decoding takes twice the memory of its result; release it before the next step takes more.
    pa.default_memory_pool().release_unused()
    return state


def _protocol(
    store: TableStore, segment: LogSegment, tail: TailState, base: CheckpointState | Snapshot
) -> Protocol:
    protocol = tail.protocol or base.protocol
    if protocol is None:
        raise CorruptLogError(_where(segment), "the log has no protocol action")
    if not store.is_managed and CATALOG_MANAGED in table_features(protocol):
        raise ManagedTableError(store.uri)
    problems = unsupported_for_inspection(protocol)
    if problems:
        raise UnsupportedFeatureError(store.uri, "read", problems)
    return protocol


def _where(segment: LogSegment) -> str:
    names = () if segment.checkpoint is None else segment.checkpoint.names
    commits = (file.name for file in segment.commits)
    return log_path(next(iter((*names, *commits)), commit_name(segment.version)))


def _timestamp_ms(
    store: TableStore, segment: LogSegment, newest_first: Sequence[Commit], *, own_times: bool
) -> int:
    last, own = segment.last_commit, None
    if newest_first:
        own = newest_first[0].info.in_commit_timestamp
    elif own_times and last is not None:
        own = next(read_infos(store, [last.version])).get("inCommitTimestamp")
    if isinstance(own, int):
        return own
    if last is not None:
        return last.modification_time_ms
    files = () if segment.checkpoint is None else segment.checkpoint.files
    return max((file.modification_time_ms for file in files), default=0)


# A table's past schemas and clustering columns, as far back as the log goes

_DEFINING: Final = re.compile(rb'\s*\{\s*"(?:commitInfo|metaData|domainMetadata)"\s*:')


def past_definitions(store: TableStore, newest: Snapshot) -> tuple[Commit, ...]:
    """Return the commits up to `newest` that changed metadata or domains, oldest first.

    Each has only these and its commitInfo; the oldest loadable version may come first as a commit.
    """
    listing = list_log(store)
    first = newest.version + 1
    while first - 1 in listing.commits:
        first -= 1
    versions = range(first, newest.version + 1)
    found = tuple(
        commit
        for commit in read_selected(store, versions, _DEFINING)
        if any(not isinstance(action, CommitInfo) for action in commit.actions)
    )
    if first == 0:
        return found
    oldest = min((c.version for c in listing.checkpoints), default=newest.version)
    start = load_snapshot(store, oldest)
    known = Commit(oldest, (CommitInfo(), start.metadata, *start.domains.values()))
    return (known, *(commit for commit in found if commit.version > oldest))
