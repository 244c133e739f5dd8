"""Which of some files the retained log still names, live or removed, at any version.

This is the last check before files are deleted. Files, of data and of deletion vectors, are
compared by the last part of their path alone, however the log spells the directories: the names
asked for are unique to the table.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import CorruptLogError
from liquidlog.log.checkpoints import read_checkpoint
from liquidlog.log.segment import Checkpoint, LogListing, candidate_segments, list_log, read_commits
from liquidlog.log.store import TableStore
from liquidlog.log.tombstones import removed_names
from liquidlog.snapshot import decoded_paths, deletion_vector
from liquidlog.spec.actions import AddFile, AnyAction, DeletionVector, RemoveFile
from liquidlog.spec.deletion_vectors import (
    ABSOLUTE,
    ENCODED_UUID_CHARS,
    RELATIVE,
    VECTOR_PREFIX,
    vector_codes,
)
from liquidlog.spec.log_files import commit_name, log_path

_DIRECTORIES: Final = "^.*/"


def named_files(store: TableStore, names: Collection[str]) -> frozenset[str]:
    """Return the `names` that occur in the log, which is read from its oldest part to its newest.

    Args:
        store: The table.
        names: Decoded paths whose last parts are unique to the table, with or without directories.

    Raises:
        TableNotFoundError: If there is no log.
        VersionNotFoundError: If a commit was deleted while the log was read.
        CorruptLogError: If a part of the log is unreadable or not listed, so that the answer is not
            known.
    """
    last_parts = {_last_part(name): name for name in names}
    wanted = _Wanted(frozenset(last_parts), vector_codes(last_parts))
    listing = list_log(store)
    found: set[str] = set()
    for commit in read_commits(store, _versions(store, listing)):
        found.update(_of_actions(commit.actions, wanted))
    for checkpoint in listing.checkpoints:
        found.update(_of_checkpoint(store, checkpoint, wanted))
    return frozenset(last_parts[name] for name in found)


def _versions(store: TableStore, listing: LogListing) -> Sequence[int]:
    """Return the versions whose commits are in the log, without gaps.

    A listing may come from a cache, so the commits before and after it are looked up by name.

    Raises:
        CorruptLogError: If commits are missing between the oldest and the newest.
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
    """Names that are looked for; `codes` has those of files of vectors by their encoded uuids."""

    names: frozenset[str]
    codes: Mapping[str, str]

    def among(self, path: str, vector: DeletionVector | None) -> Iterator[str]:
        """Yield the names of a decoded path and of the file of a vector that are wanted."""
        if (name := _last_part(path)) in self.names:
            yield name
        if vector is None:
            return
        if vector.storage_type == RELATIVE:
            found = self.codes.get(vector.path_or_inline_dv[-ENCODED_UUID_CHARS:])
        else:
            found = _last_part(unquote(vector.path_or_inline_dv))
        if found in self.names:
            yield found


def _of_actions(actions: Iterable[AnyAction], wanted: _Wanted) -> Iterator[str]:
    for action in actions:
        if isinstance(action, AddFile | RemoveFile):
            yield from wanted.among(unquote(action.path), action.deletion_vector)


def _of_checkpoint(store: TableStore, checkpoint: Checkpoint, wanted: _Wanted) -> Iterator[str]:
    state = read_checkpoint(store, checkpoint.names)
    last_parts = pc.replace_substring_regex(decoded_paths(state.files), _DIRECTORIES, "")
    live = last_parts.filter(pc.is_in(last_parts, value_set=pa.array(wanted.names, pa.string())))
    yield from live.to_pylist()
    yield from _of_vectors(state.files["deletion_vector"], wanted)
    sidecars = (file.name for file in state.statistics.checkpoint)
    for path, vector in removed_names(store, {*checkpoint.names, *sidecars}):
        yield from wanted.among(path, vector)


def _of_vectors(vectors: pa.ChunkedArray, wanted: _Wanted) -> Iterator[str]:
    """Yield the wanted names of files that live files' vectors are in; looks at few of them."""
    if not any(name.startswith(VECTOR_PREFIX) for name in wanted.names):
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


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]
