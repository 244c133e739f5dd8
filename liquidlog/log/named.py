"""Which of some files the retained log still names, and which of them its versions still need.

This is the last check before files are deleted. Files, of data and of deletion vectors, are
compared by the last part of their path alone, however the log spells the directories, and in either
case of ASCII letters. Only files below directories of the table, where names repeat, are compared
by the whole path, as long as the log spells that relative to the table.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import CorruptLogError
from liquidlog.log.checkpoints import read_checkpoint
from liquidlog.log.history import removed_names
from liquidlog.log.loader import load_snapshot
from liquidlog.log.segment import (
    Checkpoint,
    LogListing,
    candidate_segments,
    list_log,
    read_change_files,
    read_commits,
)
from liquidlog.log.store import TableStore
from liquidlog.snapshot import decoded_paths, deletion_vector
from liquidlog.spec.actions import AddFile, AnyAction, Commit, DeletionVector, RemoveFile
from liquidlog.spec.arrow import one_array
from liquidlog.spec.deletion_vectors import (
    ABSOLUTE,
    ENCODED_UUID_CHARS,
    RELATIVE,
    VECTOR_PREFIX,
    vector_codes,
)
from liquidlog.spec.paths import commit_name, is_below_table, log_path

_DIRECTORIES: Final = "^.*/"
_ALWAYS_MS: Final = 1 << 62
"""After every time: of what was removed at an unknown time."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What the log says of some files at one version, the newest then.

    `needed` are those that a version within the retention holds; `expired` those that were removed
    before it. Of the rest the log says nothing, or only that a version long gone held them.
    """

    version: int
    needed: frozenset[str]
    expired: frozenset[str]


def named_files(store: TableStore, names: Collection[str]) -> frozenset[str]:
    """Return the decoded `names` that occur in the log, read from its oldest part to its newest."""
    wanted = _Wanted.of(names)
    listing = list_log(store)
    found: set[str] = set()
    for commit in read_commits(store, _versions(store, listing)):
        found.update(_of_actions(commit.actions, wanted))
    for checkpoint in listing.checkpoints:
        found.update(_of_checkpoint(store, checkpoint, wanted))
    return frozenset(found)


def needed_files(
    store: TableStore, paths: Collection[str], *, since_ms: int, by_name: bool = False
) -> Needed:
    """Return which files are needed by versions that were the newest at `since_ms` or later.

    These are the live files, those removed since, and the change data of commits since. A file was
    removed when the action says, or when its commit was written if that is later; unknown times are
    later than all others. With `by_name`, all paths are compared by their last part, as one file
    can have several.
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
        time_ms = max(time_ms, _time_ms(commit, listing))
        if time_ms >= since_ms:
            recent.append(commit.version)
        _take_removed(commit, time_ms, since_ms, wanted, (needed, expired))
    needed.update(*(wanted.among(path, None) for path in read_change_files(store, recent)))
    for checkpoint in listing.checkpoints:
        is_recent = any(_file_ms(f.modification_time_ms) >= since_ms for f in checkpoint.files)
        if checkpoint.version < min(versions, default=last) - 1:  # the commits after it are gone
            (needed if is_recent else expired).update(_of_checkpoint(store, checkpoint, wanted))
            continue
        sidecars = read_checkpoint(store, checkpoint.names).statistics.checkpoint
        names = {*checkpoint.names, *(file.name for file in sidecars)}
        unknown_ms = since_ms if is_recent else 0
        for path, vector in removed_names(store, names):
            expired.update(wanted.among(path, vector))
        for path, vector in removed_names(
            store, names, since_ms=since_ms - 1, unknown_ms=unknown_ms
        ):
            needed.update(wanted.among(path, vector))
    live = load_snapshot(store, last)
    needed.update(_of_files(live.files, wanted))
    return Needed(last, frozenset(needed), frozenset(expired - needed))


def _take_removed(
    commit: Commit,
    time_ms: int,
    since_ms: int,
    wanted: "_Wanted",
    found: tuple[set[str], set[str]],
) -> None:
    needed, expired = found
    for action in commit.actions:
        if isinstance(action, RemoveFile):
            removed_ms = max(time_ms, action.deletion_timestamp or 0)
            paths = wanted.among(action.path, action.deletion_vector)
            (needed if removed_ms >= since_ms else expired).update(paths)


def _time_ms(commit: Commit, listing: LogListing) -> int:
    file = listing.commits.get(commit.version)
    file_ms = _ALWAYS_MS if file is None else _file_ms(file.modification_time_ms)
    return max(file_ms, commit.info.in_commit_timestamp or 0)


def _file_ms(modification_time_ms: int) -> int:
    """Return the time of a file, after every time if the storage does not say it."""
    return modification_time_ms or _ALWAYS_MS


def _versions(store: TableStore, listing: LogListing) -> Sequence[int]:
    """Return the versions whose commits are in the log, without gaps.

    A listing may come from a cache, so the commits before and after it are looked up by name.
    """
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
    """Paths that are looked for, by the last part of each in lower case.

    `codes` has those last parts that are of files of vectors by their encoded uuids; with `by_name`
    nothing else of a path is compared.
    """

    paths: Mapping[str, tuple[str, ...]]
    codes: Mapping[str, str]
    by_name: bool

    @classmethod
    def of(cls, paths: Collection[str], *, by_name: bool = False) -> "_Wanted":
        found: dict[str, tuple[str, ...]] = {}
        for path in paths:
            name = _lower(_last_part(path))
            found[name] = (*found.get(name, ()), path)
        return cls(found, vector_codes(found), by_name)

    def among(self, path: str, vector: DeletionVector | None) -> Iterator[str]:
        """Yield the paths that an action names, its own or that of its vector's file.

        `path` is encoded as in the log. What it is before decoding counts too.
        """
        for spelled in {path, unquote(path)}:
            yield from self._called(spelled)
        if vector is None:
            return
        if vector.storage_type == RELATIVE:
            name = self.codes.get(vector.path_or_inline_dv[-ENCODED_UUID_CHARS:])
            yield from self.paths.get(name or "", ())
        else:
            name = _lower(_last_part(unquote(vector.path_or_inline_dv)))
            yield from self.paths.get(name, ())

    def _called(self, path: str) -> Iterator[str]:
        found = self.paths.get(_lower(_last_part(path)))
        if found is None:
            return
        whole = _lower(path) if is_below_table(path) and not self.by_name else None
        for one in found:
            if whole is None or "/" not in one or _lower(one) == whole:
                yield one


def _of_actions(actions: Iterable[AnyAction], wanted: _Wanted) -> Iterator[str]:
    for action in actions:
        if isinstance(action, AddFile | RemoveFile):
            yield from wanted.among(action.path, action.deletion_vector)


def _of_checkpoint(store: TableStore, checkpoint: Checkpoint, wanted: _Wanted) -> Iterator[str]:
    state = read_checkpoint(store, checkpoint.names)
    yield from _of_files(state.files, wanted)
    sidecars = (file.name for file in state.statistics.checkpoint)
    for path, vector in removed_names(store, {*checkpoint.names, *sidecars}):
        yield from wanted.among(path, vector)


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
    """Yield the wanted names of files that live files' vectors are in; looks at few of them."""
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
    """Return a path with ASCII letters in lower case, as `pc.ascii_lower` has it."""
    return path.lower() if path.isascii() else path.translate(_LOWER)


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]
