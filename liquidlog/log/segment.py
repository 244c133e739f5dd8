"""The files that make up a version: one checkpoint, if any, and the commits after it, decoded.

`_last_checkpoint` may be stale, missing or damaged. A listing that starts at its version is used
only if it has a complete checkpoint; else the whole directory is listed.

Compacted log files are ignored, since engines lose information in them: see docs/adr/0017.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from liquidlog.errors import CorruptLogError, StorageError, TableNotFoundError, VersionNotFoundError
from liquidlog.log.store import TableStore, what_is_there
from liquidlog.spec.actions import (
    UNREADABLE,
    Commit,
    FileChanges,
    NamedFile,
    decode_change_line,
    decode_line,
    file_key,
)
from liquidlog.spec.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    MAX_LOG_BYTES,
    VERSION_DIGITS,
    LogFile,
    LogFileKind,
    commit_name,
    log_path,
)

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
        """The names of its files in the log directory."""
        return tuple(file.name for file in self.files)


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files of one version: `commits` have no gaps; `last_commit` is that of `version`."""

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[LogFile, ...]
    last_commit: LogFile | None = None

    @property
    def mark(self) -> LogFile | None:
        """The file that tells this version from the same version of another log."""
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

    def has(self, mark: LogFile) -> bool:
        """Return whether the marked file is still there, unchanged."""
        return self.called(mark.name) == mark

    def called(self, name: str) -> LogFile | None:
        """Return the file of a name, None if there is none."""
        checkpoints = (file for checkpoint in self.checkpoints for file in checkpoint.files)
        files = (*self.commits.values(), *checkpoints)
        return next((file for file in files if file.name == name), None)

    @property
    def oldest(self) -> int:
        """The oldest version that has a commit or a complete checkpoint."""
        versions = {*self.commits, *(c.version for c in self.checkpoints)}
        return min(versions, default=self.newest)


def list_log(store: TableStore) -> LogListing:
    """Return the listing of the whole log."""
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
    """Return a listing with at least the commits from `version` on."""
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
    segments = [_segment(listing, target, start) for start in [*usable, None]]
    found = tuple(segment for segment in segments if segment is not None)
    if not found:
        _refuse(listing, target, usable)
    return found


def _complete(files: Iterable[LogFile]) -> Iterator[Checkpoint]:
    def one_checkpoint(file: LogFile) -> tuple[int, str, int, str]:
        # Every V2 checkpoint has a unique name; the parts of a multi-part one share `parts`.
        alone = file.name if file.kind is LogFileKind.V2_CHECKPOINT else ""
        return file.version, file.kind.value, file.parts, alone

    for _, members in groupby(sorted(files, key=one_checkpoint), key=one_checkpoint):
        parts = sorted(members, key=lambda file: file.part)
        numbered = enumerate(parts, start=1)
        if len(parts) == parts[0].parts and all(file.part == n for n, file in numbered):
            yield Checkpoint(parts[0].version, parts[0].kind, tuple(parts))


def _segment(listing: LogListing, target: int, checkpoint: Checkpoint | None) -> LogSegment | None:
    first = 0 if checkpoint is None else checkpoint.version + 1
    wanted = range(first, target + 1)
    # A file name can claim any version, so a range longer than the log is never iterated.
    if target + 1 - first > len(listing.commits):
        return None
    if any(version not in listing.commits for version in wanted):
        return None
    commits = tuple(listing.commits[version] for version in wanted)
    return LogSegment(target, checkpoint, commits, listing.commits.get(target))


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
    """Yield the commits of `versions` in their order; a store may read several at once."""
    for version, content in _contents(store, versions):
        yield parse_commit(content, version)


def read_infos(store: TableStore, versions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    """Yield the commitInfo per version, an empty mapping if a commit has none."""
    for version, content in _contents(store, versions):
        lines = _decoded(content, version, _INFO_DECODER.decode, holding=b'"commitInfo"')
        yield next((line.info for line in lines if line.info is not None), {})


def read_selected(
    store: TableStore, versions: Sequence[int], lines: re.Pattern[bytes]
) -> Iterator[Commit]:
    """Yield the commits of `versions` with only the actions whose `lines` match at the start."""
    for version, content in _contents(store, versions):
        chosen = b"\n".join(line for line in content.split(b"\n") if lines.match(line))
        yield parse_commit(chosen, version)


def read_change_files(store: TableStore, versions: Sequence[int]) -> Iterator[str]:
    """Yield the encoded paths of change data files that commits name."""
    for version, content in _contents(store, versions):
        yield from _decoded(content, version, decode_change_line, holding=b'"cdc"')


def read_file_changes(store: TableStore, versions: Sequence[int]) -> Iterator[FileChanges]:
    """Yield the files that the commits of `versions` add and remove."""
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
    """Return the actions in a commit file's content; blank lines are skipped."""
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
