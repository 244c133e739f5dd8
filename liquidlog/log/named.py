"""Which of some files the retained log still names, live or removed, at any version.

This is the last check before files are deleted. Files are compared by the last part of their path
alone, however the log spells the directories: the names asked for are unique to the table.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import CorruptLogError
from liquidlog.log.checkpoints import read_checkpoint
from liquidlog.log.segment import Checkpoint, LogListing, candidate_segments, list_log, read_commits
from liquidlog.log.store import TableStore
from liquidlog.log.tombstones import removed_keys
from liquidlog.snapshot import decoded_paths
from liquidlog.spec.actions import AddFile, AnyAction, RemoveFile
from liquidlog.spec.log_files import commit_name, log_path

_DIRECTORIES: Final = "^.*/"


def named_files(store: TableStore, names: Collection[str]) -> frozenset[str]:
    """Return the `names` that occur in the log, which is read from its oldest part to its newest.

    Args:
        store: The table.
        names: Last parts of decoded paths, unique to the table.

    Raises:
        TableNotFoundError: If there is no log.
        VersionNotFoundError: If a commit was deleted while the log was read.
        CorruptLogError: If a part of the log is unreadable or not listed, so that the answer is not
            known.
    """
    wanted = frozenset(names)
    listing = list_log(store)
    found: set[str] = set()
    for commit in read_commits(store, _versions(store, listing)):
        found.update(name for name in _of_actions(commit.actions) if name in wanted)
    for checkpoint in listing.checkpoints:
        found.update(_of_checkpoint(store, checkpoint, wanted))
    return frozenset(found)


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


def _of_actions(actions: Iterable[AnyAction]) -> Iterator[str]:
    for action in actions:
        if isinstance(action, AddFile | RemoveFile):
            yield _last_part(unquote(action.path))


def _of_checkpoint(
    store: TableStore, checkpoint: Checkpoint, wanted: frozenset[str]
) -> Iterator[str]:
    state = read_checkpoint(store, checkpoint.names)
    last_parts = pc.replace_substring_regex(decoded_paths(state.files), _DIRECTORIES, "")
    live = last_parts.filter(pc.is_in(last_parts, value_set=pa.array(wanted, pa.string())))
    yield from live.to_pylist()
    sidecars = (file.name for file in state.statistics.checkpoint)
    for path, _ in removed_keys(store, {*checkpoint.names, *sidecars}):
        if _last_part(path) in wanted:
            yield _last_part(path)


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]
