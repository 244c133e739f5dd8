"""The read path, top to bottom: address, list, read, replay, Snapshot.

`_last_checkpoint` may be stale, missing or damaged. A listing that starts at its version is used
only if it has a complete checkpoint; otherwise the whole directory is listed.

Compacted log files are ignored, because engines lose information in them: see docs/adr/0017.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import (
    CorruptLogError,
    ManagedTableError,
    StorageError,
    TableNotFoundError,
    TableReplacedError,
    UnsupportedFeatureError,
    UsageError,
    VersionNotFoundError,
)
from liquidlog.log.checkpoints import (
    CheckpointState,
    read_checkpoint,
    read_statistics,
    struct_field,
)
from liquidlog.logs import Log, ms_since
from liquidlog.snapshot import (
    STATISTICS_TYPE,
    CheckpointFile,
    Snapshot,
    Statistics,
    TailState,
    deletion_vector,
    num_records,
    reconciled_files,
    replay_tail,
    tail_statistics,
    unsound,
)
from liquidlog.spec.actions import (
    LAST_CHECKPOINT,
    LOG_DIR,
    MAX_LOG_BYTES,
    UNREADABLE,
    VERSION_DIGITS,
    AddFile,
    Commit,
    CommitInfo,
    FileChanges,
    FileKey,
    LogFile,
    LogFileKind,
    NamedFile,
    Protocol,
    are_plain,
    commit_name,
    decode_change_line,
    decode_line,
    file_key,
    log_path,
)
from liquidlog.spec.arrow import one_array
from liquidlog.spec.bounds import (
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    Bounds,
    ColumnBounds,
    bounds_from,
    cast_where_possible,
    concat_bounds,
    parse_bounds,
)
from liquidlog.spec.features import (
    CATALOG_MANAGED,
    has_in_commit_timestamps,
    table_features,
    unsupported_for_inspection,
)
from liquidlog.spec.schema import Leaf, parse_schema
from liquidlog.spec.schema import Path as ColumnPath
from liquidlog.spec.text import address, json_scalar
from liquidlog.storage.addresses import (
    OptionsSource,
    StorageOptions,
    is_local,
    table_address,
    table_in_catalog,
)
from liquidlog.storage.files import LocalTableStore, ObjectTableStore, TableStore, what_is_there
from liquidlog.storage.unity import ManagedTableStore, NamedTable, VendedOptions

_PREFERENCE: Final = (
    LogFileKind.CLASSIC_CHECKPOINT,
    LogFileKind.V2_CHECKPOINT,
    LogFileKind.MULTIPART_CHECKPOINT,
)
"""The order in which checkpoints of one version are tried; all have the same state."""

_VERSIONS: Final = 10**VERSION_DIGITS
_NAMED: Final = 5
_MOST_COMMITS: Final = 5_000
_MOST_COMMIT_BYTES: Final = 256 << 20
"""The most commits that are read where the newest ones suffice."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of one complete checkpoint, in the order of its parts."""

    version: int
    kind: LogFileKind
    files: tuple[LogFile, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.files)


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files of one version; `commits` have no gaps, and `last_commit` is the last of them."""

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[LogFile, ...]
    last_commit: LogFile | None = None

    @property
    def mark(self) -> LogFile | None:
        """The file by which this version differs from the same version of another log."""
        if self.last_commit is None and self.checkpoint is not None:
            return self.checkpoint.files[0]
        return self.last_commit


@dataclass(frozen=True, slots=True)
class LogListing:
    """The log's commits by version, and its complete checkpoints, newest first.

    `newest` counts incomplete checkpoints too. Unless `whole`, older files may be missing.
    """

    commits: dict[int, LogFile]
    checkpoints: tuple[Checkpoint, ...]
    newest: int
    whole: bool = True

    def has(self, mark: LogFile | None) -> bool:
        """Return whether the file that a version was read from is still there, unchanged."""
        return mark is not None and self.called(mark.name) == mark

    def called(self, name: str) -> LogFile | None:
        checkpoints = (file for checkpoint in self.checkpoints for file in checkpoint.files)
        files = (*self.commits.values(), *checkpoints)
        return next((file for file in files if file.name == name), None)

    @property
    def oldest(self) -> int:
        versions = {*self.commits, *(c.version for c in self.checkpoints)}
        return min(versions, default=self.newest)


def list_log(store: TableStore) -> LogListing:
    files = store.list_log()
    if files is None:
        raise TableNotFoundError(store.uri, what_is_there(store.uri))
    if not files:
        raise TableNotFoundError(store.uri, f"its {LOG_DIR} holds no commit")
    return _listing(files, whole=True)


def list_recent_log(store: TableStore) -> LogListing:
    """Return a listing with at least the newest version and the files to load it from."""
    first = hinted_version(store)
    if first > 0:
        files = store.list_log(first)
        if files:
            listing = _listing(files, whole=False)
            if listing.checkpoints:
                return listing
    return list_log(store)


def list_log_from(store: TableStore, version: int) -> LogListing:
    files = store.list_log(version)
    return _listing(files, whole=version == 0) if files else list_log(store)


def hinted_version(store: TableStore) -> int:
    """Return the version in `_last_checkpoint`, 0 if it is missing or damaged."""
    try:
        hint = msgspec.json.decode(store.read_log(LAST_CHECKPOINT) or b"{}")
    except (StorageError, *UNREADABLE):
        return 0
    version = hint.get("version") if isinstance(hint, dict) else None
    return version if isinstance(version, int) and version < _VERSIONS else 0


def _listing(files: Sequence[LogFile], *, whole: bool) -> LogListing:
    commits = {f.version: f for f in files if f.kind is LogFileKind.COMMIT}
    for file in commits.values():
        if file.size_bytes > MAX_LOG_BYTES:
            detail = f"has {file.size_bytes} bytes; commits above {MAX_LOG_BYTES} are not read"
            raise CorruptLogError(log_path(file.name), detail)
    checkpoints = sorted(
        _complete(f for f in files if f.kind is not LogFileKind.COMMIT),
        key=lambda c: (-c.version, _PREFERENCE.index(c.kind)),
    )
    newest = max(file.version for file in files)
    return LogListing(commits, tuple(checkpoints), newest, whole=whole)


def candidate_segments(listing: LogListing, version: int | None) -> tuple[LogSegment, ...]:
    """Return the segments from which a version can be loaded, newest checkpoint first."""
    newest = listing.newest
    target = newest if version is None else version
    if target > newest or target < 0:
        raise VersionNotFoundError(target, listing.oldest, newest)
    usable = [c for c in listing.checkpoints if c.version <= target]
    segments = []
    for start in [*usable, None]:
        wanted = range(0 if start is None else start.version + 1, target + 1)
        # A file name can claim any version, so a range longer than the log is never iterated.
        is_longer = len(wanted) > len(listing.commits)
        if not is_longer and all(one in listing.commits for one in wanted):
            commits = tuple(listing.commits[one] for one in wanted)
            segments.append(LogSegment(target, start, commits, listing.commits.get(target)))
    if not segments:
        _refuse(listing, target, usable)
    return tuple(segments)


def _complete(files: Iterable[LogFile]) -> Iterator[Checkpoint]:
    def one_checkpoint(file: LogFile) -> tuple[int, str, int, str]:
        # A V2 checkpoint has a unique name; the parts of a multi-part checkpoint share `parts`.
        alone = file.name if file.kind is LogFileKind.V2_CHECKPOINT else ""
        return file.version, file.kind.value, file.parts, alone

    for _, members in groupby(sorted(files, key=one_checkpoint), key=one_checkpoint):
        parts = sorted(members, key=lambda file: file.part)
        numbered = enumerate(parts, start=1)
        if len(parts) == parts[0].parts and all(file.part == n for n, file in numbered):
            yield Checkpoint(parts[0].version, parts[0].kind, tuple(parts))


def _refuse(listing: LogListing, target: int, usable: Sequence[Checkpoint]) -> NoReturn:
    start = max((c.version + 1 for c in usable), default=0)
    gaps = _gaps(listing, start, target) or _gaps(listing, 0, target)
    if target < listing.newest and 0 in gaps:
        oldest = min((c.version for c in listing.checkpoints), default=listing.oldest)
        raise VersionNotFoundError(target, oldest, listing.newest)
    missing = ", ".join(map(str, gaps[:_NAMED])) + (", ..." if gaps[_NAMED:] else "")
    raise CorruptLogError(
        LOG_DIR,
        f"commits are missing between {start} and {target}: {missing};"
        " restore them, or a whole checkpoint at or after the last one missing",
    )


def _gaps(listing: LogListing, first: int, target: int) -> list[int]:
    missing = (version for version in range(first, target + 1) if version not in listing.commits)
    return list(islice(missing, _NAMED + 1))


_READ_TOGETHER: Final = 64
"""The most commits in memory as bytes at the same time."""


class _InfoLine(msgspec.Struct):
    info: dict[str, Any] | None = msgspec.field(default=None, name="commitInfo")


_INFO_DECODER: Final = msgspec.json.Decoder(_InfoLine)


class _Operation(msgspec.Struct):
    operation: object = None


class _FileLine(msgspec.Struct):
    add: NamedFile | None = None
    remove: NamedFile | None = None
    info: _Operation | None = msgspec.field(default=None, name="commitInfo")


_FILE_DECODER: Final = msgspec.json.Decoder(_FileLine)


def read_commit(store: TableStore, version: int) -> Commit:
    """Return the commit of `version`. An empty file is a commit without actions."""
    return next(read_commits(store, [version]))


def read_commits(store: TableStore, versions: Sequence[int]) -> Iterator[Commit]:
    for version, content in _contents(store, versions):
        yield parse_commit(content, version)


def read_infos(store: TableStore, versions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    """Yield the commitInfo per version, an empty mapping if a commit has none."""
    for version, content in _contents(store, versions):
        lines = _decoded(content, version, _INFO_DECODER.decode, holding=b'"commitInfo"')
        yield next((line.info for line in lines if line.info is not None), {})


def read_change_files(store: TableStore, versions: Sequence[int]) -> Iterator[str]:
    for version, content in _contents(store, versions):
        yield from _decoded(content, version, decode_change_line, holding=b'"cdc"')


def read_file_changes(store: TableStore, versions: Sequence[int]) -> Iterator[FileChanges]:
    for version, content in _contents(store, versions):
        lines = list(_decoded(content, version, _FILE_DECODER.decode))
        files = [file for line in lines for file in (line.add, line.remove) if file is not None]
        yield FileChanges(
            version=version,
            operation=next((str(line.info.operation) for line in lines if line.info), "unknown"),
            added=tuple(file_key(line.add) for line in lines if line.add is not None),
            removed=tuple(file_key(line.remove) for line in lines if line.remove is not None),
            is_rewrite=not any(file.data_change for file in files),
        )


def newest_versions(listing: LogListing, first: int, last: int) -> range:
    """Return the newest versions up to `last` that are in the log without gaps, not too many."""
    start, size_bytes = last + 1, 0
    while start > max(first, last + 1 - _MOST_COMMITS) and start - 1 in listing.commits:
        size_bytes += listing.commits[start - 1].size_bytes
        if size_bytes > _MOST_COMMIT_BYTES:
            break
        start -= 1
    return range(start, last + 1)


def _contents(store: TableStore, versions: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(versions), _READ_TOGETHER):
        wanted = versions[start : start + _READ_TOGETHER]
        for version, content in zip(
            wanted, store.read_logs([commit_name(version) for version in wanted]), strict=True
        ):
            if content is None:
                raise VersionNotFoundError(version, version, version)
            yield version, content


def parse_commit(content: bytes, version: int) -> Commit:
    return Commit(version, tuple(_decoded(content, version, decode_line)))


def _decoded(
    content: bytes, version: int, decode: Callable[[bytes], T | None], *, holding: bytes = b""
) -> Iterator[T]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        if holding not in line or not line.strip():
            continue
        try:
            found = decode(line)
        except UNREADABLE as error:
            where = log_path(commit_name(version))
            raise CorruptLogError(where, f"not a valid action: {error}", line=number) from error
        if found is not None:
            yield found


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
    began = time.perf_counter()
    recent = list_recent_log(store)
    try:
        loaded = _load_listed(store, recent, version)
    except (CorruptLogError, VersionNotFoundError) as error:
        if recent.whole:
            raise
        _log.info("%s: the end of the log is not enough (%s); list it all", store.uri, error)
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
    *newer, segment = candidate_segments(listing, version)
    for one in newer:
        try:
            base, segment = _checkpoint(store, one), one
            break
        except CorruptLogError as error:
            # An older checkpoint, or all commits, may still give the version.
            _log.warning("%s: a checkpoint is ignored, an older one is read: %s", store.uri, error)
    else:
        base = _checkpoint(store, segment)
    versions = [file.version for file in segment.commits[::-1]]
    return _apply(store, segment, tuple(read_commits(store, versions)), base), segment


def advance(store: TableStore, snapshot: Snapshot) -> tuple[Snapshot, tuple[Commit, ...]]:
    """Return the newest version and the commits after `snapshot`, anew if it was replaced."""
    listing = list_log_from(store, snapshot.version)
    return _advanced(store, snapshot, listing, same=listing.has(snapshot.mark))


def follow(store: TableStore, snapshot: Snapshot) -> tuple[Snapshot, tuple[Commit, ...]]:
    """Do the same as `advance`, but refuse a log that has been replaced since."""
    listing = list_log_from(store, snapshot.version)
    same = listing.has(snapshot.mark)
    # If the marked file is missing, that proves nothing, because old commits are cleaned up.
    has_another = (
        not same and snapshot.mark is not None and listing.called(snapshot.mark.name) is not None
    )
    if has_another or (not same and listing.newest < snapshot.version):
        detail = f"version {snapshot.version} is not the version that this change was made for"
        raise TableReplacedError(store.uri, detail, read_version=snapshot.version)
    newest, commits = _advanced(store, snapshot, listing, same=same)
    if not same and newest.metadata.id != snapshot.metadata.id:
        detail = _other_table(snapshot.metadata.id, newest.metadata.id)
        raise TableReplacedError(store.uri, detail, read_version=snapshot.version)
    return newest, commits


def require_same_table(snapshot: Snapshot, table_id: str) -> None:
    if snapshot.metadata.id != table_id:
        raise TableReplacedError(snapshot.uri, _other_table(table_id, snapshot.metadata.id))


def _other_table(opened: str, found: str) -> str:
    return f"the table was replaced: it has the id {found}, the opened table has {opened}"


def _advanced(
    store: TableStore, snapshot: Snapshot, listing: LogListing, *, same: bool
) -> tuple[Snapshot, tuple[Commit, ...]]:
    wanted = range(snapshot.version + 1, listing.newest + 1)
    if not same or any(v not in listing.commits for v in wanted):
        newest = load_snapshot(store)
        return newest, tuple(read_commits(store, range(snapshot.version + 1, newest.version + 1)))
    if not wanted:
        return snapshot, ()
    began = time.perf_counter()
    files = tuple(listing.commits[v] for v in wanted)
    segment = LogSegment(listing.newest, None, files, files[-1])
    commits = tuple(read_commits(store, wanted))
    newest = _apply(store, segment, commits[::-1], snapshot)
    text = "read %d commits of %s, up to version %d, in %d ms"
    _log.info(text, len(commits), store.uri, newest.version, ms_since(began))
    return newest, commits


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


_DEFINING: Final = re.compile(rb'\s*\{\s*"(?:commitInfo|metaData|domainMetadata)"\s*:')


def past_definitions(store: TableStore, newest: Snapshot) -> tuple[Commit, ...]:
    """Return the commits up to `newest` that changed metadata or domains, oldest first.

    Each commit has only these actions and its commitInfo. If commits are missing, the oldest
    loadable version comes first, as a commit.
    """
    listing = list_log(store)
    first = newest.version + 1
    while first - 1 in listing.commits:
        first -= 1
    found = []
    for version, content in _contents(store, range(first, newest.version + 1)):
        chosen = b"\n".join(line for line in content.split(b"\n") if _DEFINING.match(line))
        commit = parse_commit(chosen, version)
        if any(not isinstance(action, CommitInfo) for action in commit.actions):
            found.append(commit)
    if first == 0:
        return tuple(found)
    oldest = min((c.version for c in listing.checkpoints), default=newest.version)
    start = load_snapshot(store, oldest)
    known = Commit(oldest, (CommitInfo(), start.metadata, *start.domains.values()))
    return (known, *(commit for commit in found if commit.version > oldest))


# Bounds and statistics of a snapshot's files, and their adds as written

_TEXT: Final = ("stats",)
_PARSED: Final = "stats_parsed"

_FEW_SHARE: Final = 0.1
"""Up to this share of all files, only the statistics of the wanted ones are parsed."""


def load_bounds(store: TableStore, snapshot: Snapshot, columns: Sequence[Leaf]) -> Bounds:
    """Return the bounds of `columns` per row of `snapshot.files`; JSON takes precedence."""
    if not columns:
        return Bounds(columns=(), num_records=num_records(snapshot.files))
    rows = one_array(snapshot.files["statistics_row"])
    statistics = snapshot.statistics
    if len(rows) <= _FEW_SHARE * statistics.rows:
        return _bounds_of_few(store, snapshot, rows, columns)
    parts = [
        part
        for file in statistics.checkpoint
        for _, part in _of_checkpoint_file(store, file, columns)
    ]
    parts.append(parse_bounds(statistics.texts, columns))
    return concat_bounds(parts).take(rows)


def _bounds_of_few(
    store: TableStore, snapshot: Snapshot, rows: pa.Array, columns: Sequence[Leaf]
) -> Bounds:
    statistics = snapshot.statistics
    first_text = sum(file.adds for file in statistics.checkpoint)
    paths = one_array(snapshot.files["path"])
    found = [
        part
        for file in statistics.checkpoint
        for part in _of_checkpoint_file(store, file, columns, paths)
    ]
    # If commits and a checkpoint have the same file, the commits' statistics count.
    texts = pc.less_equal(first_text, rows)
    from_texts = pc.subtract(rows.filter(texts), first_text)
    found.append((paths.filter(texts), parse_bounds(statistics.texts.take(from_texts), columns)))
    known = pa.chunked_array([names for names, _ in found][::-1], pa.string())
    last = pc.index_in(paths, value_set=known)
    return concat_bounds([part for _, part in found][::-1]).take(last)


def _of_checkpoint_file(
    store: TableStore, file: CheckpointFile, columns: Sequence[Leaf], paths: pa.Array | None = None
) -> list[tuple[pa.Array, Bounds]]:
    sections = [
        (_PARSED, section, *leaf.physical)
        for leaf in columns
        for section in (MIN_VALUES, MAX_VALUES, NULL_COUNT)
    ]
    fields = [_TEXT, (_PARSED, NUM_RECORDS), *sections, ("path",)]

    def convert(adds: pa.StructArray) -> tuple[pa.Array, Bounds]:
        names = struct_field(adds, "path", pa.string())
        if paths is not None:
            chosen = pc.is_in(names, value_set=paths)
            adds, names = adds.filter(chosen), names.filter(chosen)
        return names, _bounds(adds, columns)

    return read_statistics(store, file, fields, convert, of_few=paths is not None)


def _bounds(adds: pa.StructArray, columns: Sequence[Leaf]) -> Bounds:
    texts = struct_field(adds, *_TEXT, STATISTICS_TYPE)
    parsed = struct_field(adds, _PARSED, pa.null())
    if not pa.types.is_struct(parsed.type):
        return parse_bounds(texts, columns)
    structs = bounds_from(columns, partial(_at, parsed))
    if texts.null_count == len(texts):
        return structs
    parts, missing = parse_bounds(texts, columns), texts.is_null()
    return Bounds(
        columns=tuple(
            ColumnBounds(*(pc.if_else(missing, *pair) for pair in zip(one, other, strict=True)))
            for one, other in zip(structs.columns, parts.columns, strict=True)
        ),
        num_records=pc.if_else(missing, structs.num_records, parts.num_records),
    )


def _at(value: pa.Array, path: ColumnPath, wanted: pa.DataType) -> pa.Array:
    for part in path:
        if not pa.types.is_struct(value.type) or value.type.get_field_index(part) < 0:
            return pa.nulls(len(value), wanted)
        value = pc.struct_field(value, part)
    return cast_where_possible(value, wanted)


_FIELDS: Final[tuple[ColumnPath, ...]] = (("path",), ("stats",), ("stats_parsed",))
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def raw_statistics(store: TableStore, snapshot: Snapshot, files: pa.Table) -> Sequence[str | None]:
    """Return the statistics of some of the snapshot's files as JSON, None if a file has none."""
    first_text = sum(file.adds for file in snapshot.statistics.checkpoint)
    rows = one_array(files["statistics_row"])
    in_checkpoint = pc.less(rows, first_text)
    paths = one_array(files["path"])
    wanted, found = paths.filter(in_checkpoint), dict[str, str]()
    for file in snapshot.statistics.checkpoint if len(wanted) else ():
        for part in read_statistics(store, file, _FIELDS, lambda adds: _texts(adds, wanted)):
            found.update(zip(part["path"].to_pylist(), part["text"].to_pylist(), strict=True))
    texts = snapshot.statistics.texts.take(
        pc.if_else(in_checkpoint, None, pc.subtract(rows, first_text))
    )
    columns = (paths.to_pylist(), in_checkpoint.to_pylist(), texts.to_pylist())
    return [found.get(path) if there else text for path, there, text in zip(*columns, strict=True)]


def statistics_texts(store: TableStore, statistics: Statistics, files: pa.Table) -> pa.ChunkedArray:
    """Return the statistics of all `files` as text of the log, null without a text."""
    texts = partial(struct_field, name="stats", data_type=STATISTICS_TYPE)
    found: list[pa.Array] = []
    for file in statistics.checkpoint:
        found += read_statistics(store, file, [("path",), ("stats",)], texts)
    together = pa.chunked_array([*found, *statistics.texts.chunks], STATISTICS_TYPE)
    return together.take(files["statistics_row"])


def _texts(adds: pa.StructArray, paths: pa.Array) -> pa.Table:
    adds = adds.filter(pc.is_in(struct_field(adds, "path", pa.string()), value_set=paths))
    texts = struct_field(adds, "stats", STATISTICS_TYPE)
    parsed = struct_field(adds, "stats_parsed", pa.null())
    if pa.types.is_struct(parsed.type):
        missing = pc.and_(texts.is_null(), parsed.is_valid())
        rendered = [rendered_statistics(row) for row in parsed.filter(missing).to_pylist()]
        texts = pc.replace_with_mask(texts, missing, pa.array(rendered, STATISTICS_TYPE))
    found = pa.table({"path": struct_field(adds, "path", pa.string()), "text": texts})
    return found.filter(texts.is_valid())


def rendered_statistics(parsed: Mapping[str, Any]) -> str:
    """Return a row of `stats_parsed` as JSON; decimals keep all digits, nulls are omitted."""
    return _ENCODER.encode(_present(parsed)).decode()


def _present(value: Any) -> Any:  # noqa: ANN401  any value of a statistics struct
    if isinstance(value, dict):
        return {key: _present(child) for key, child in value.items() if child is not None}
    return json_scalar(value, timespec="milliseconds")


_Document = dict[str, msgspec.Raw]


def original_adds(
    store: TableStore, snapshot: Snapshot, files: pa.Table
) -> Sequence[Mapping[str, msgspec.Raw]]:
    """Return the newest add of each file as raw JSON by field, with unknown fields of commits."""
    rows = files.to_pylist()
    versions = sorted({row["version"] for row in rows if row["version"] is not None})
    found = {version: _raw_adds(store, version) for version in versions}
    originals = []
    for row, text in zip(rows, raw_statistics(store, snapshot, files), strict=True):
        add, version = add_of(row, text), row["version"]
        original = (
            msgspec.json.decode(msgspec.json.encode(add), type=_Document)
            if version is None
            else found[version].get(file_key(add))
        )
        if original is None:
            detail = f"does not add {add.path} any more"
            raise CorruptLogError(log_path(commit_name(version)), detail)
        originals.append(original)
    return originals


def _raw_adds(store: TableStore, version: int) -> dict[FileKey, _Document]:
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


def add_of(row: Mapping[str, Any], statistics: str | None = None) -> AddFile:
    return AddFile(
        path=row["path"],
        partition_values=msgspec.json.decode(row["partition_values_json"] or "{}"),
        size=row["size"],
        modification_time=row["modification_time"] or 0,
        data_change=False,
        stats=statistics,
        tags=msgspec.json.decode(row["tags_json"]) if row["tags_json"] else None,
        deletion_vector=deletion_vector(row["deletion_vector"]),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        clustering_provider=row["clustering_provider"],
    )
