"""Compare our live files with those of delta-rs, an implementation that is not ours.

The first comparison of a run covers the whole version. After that, delta-rs replays the later
commits on top of the files that they mention, and must arrive at our files. That is as good as the
whole comparison only if both sides certainly mean the same files: paths that need no decoding, no
removal of a file that is not live, no change of the schema, no checkpoint that has not been
compared. In all other cases the whole version is compared again.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import CorruptLogError, LiquidlogError
from liquidlog.log.replay import file_keys, path_order
from liquidlog.log.segment import list_log_from, parse_commit
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot, deletion_vector
from liquidlog.spec.actions import (
    AddFile,
    Commit,
    Metadata,
    Protocol,
    RemoveFile,
    encode_actions,
    file_key,
)
from liquidlog.spec.arrow import one_array
from liquidlog.spec.paths import LOG_DIR, canonical_paths, commit_name
from liquidlog.storage.addresses import is_local
from liquidlog.storage.options import NO_OPTIONS, StorageOptions, redacted

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MISREAD: Final = re.compile(r"[%\\\x00-\x1f\x7f]")
"""Characters that delta-rs decodes, replaces or refuses in a table's path, even if quoted."""

_PLAIN_PATH: Final = r"^([A-Za-z0-9_=-][A-Za-z0-9_.=-]*/)*[A-Za-z0-9_=-][A-Za-z0-9_.=-]*$"
"""A relative path that has one spelling, and means the same to every implementation."""

_MOST_COMMITS: Final = 100
"""Commits that are replayed on top of what was compared; for more, the whole version is read."""


class SecondOpinion:
    """What delta-rs has agreed to in a run: a version, from which the next ones are compared."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._agreed: Snapshot | None = None
        self._plain: bool | None = None
        """Whether all paths of the agreed version are plain; None before anybody asked."""

    def require(self, snapshot: Snapshot) -> None:
        """Compare the live files with those that delta-rs sees at the same version."""
        if self._agreed is None or not self._follows(self._agreed, snapshot):
            require_agreement(snapshot, self._store.storage)
            self._plain = None
        self._agreed = snapshot

    def _follows(self, agreed: Snapshot, snapshot: Snapshot) -> bool:
        """Return whether delta-rs gets from the version it agreed to, to this one, as we do."""
        if agreed.mark is None or agreed.metadata.id != snapshot.metadata.id:
            return False
        if snapshot.version == agreed.version:
            same_files = agreed.files is snapshot.files or _paths(agreed).equals(_paths(snapshot))
            return agreed.mark == snapshot.mark and same_files
        if not 0 < snapshot.version - agreed.version <= _MOST_COMMITS:
            return False
        if self._plain is None:
            self._plain = _plain(_paths(agreed))
        if not self._plain:
            return False
        try:
            contents = self._contents_between(agreed, snapshot)
            return contents is not None and _same_replay(agreed, snapshot, contents)
        except LiquidlogError:
            return False  # whatever is wrong, the whole comparison says it

    def _contents_between(self, agreed: Snapshot, snapshot: Snapshot) -> tuple[bytes, ...] | None:
        listing = list_log_from(self._store, agreed.version)
        known = agreed.mark is not None and listing.has(agreed.mark)
        if not known or any(found.version > agreed.version for found in listing.checkpoints):
            return None
        versions = range(agreed.version + 1, snapshot.version + 1)
        contents = self._store.read_logs([commit_name(version) for version in versions])
        found = tuple(content for content in contents if content is not None)
        return found if len(found) == len(versions) else None


def require_agreement(snapshot: Snapshot, storage: StorageOptions = NO_OPTIONS) -> None:
    """Compare the live files with those that delta-rs sees at the same version."""
    # Only few commands need a second opinion.
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        with _readable_by_delta_rs(snapshot.uri) as uri:
            options = storage.fresh().given()
            table = DeltaTable(uri, version=snapshot.version, storage_options=options or None)
            found = _paths_in(table)
    except (DeltaError, OSError, ValueError) as error:
        said = redacted(str(error), storage, os.environ)
        detail = f"delta-rs cannot read version {snapshot.version}: {said}"
        raise CorruptLogError(LOG_DIR, detail) from None
    decoded = snapshot.paths()
    if _sorted(found).equals(_sorted(decoded)):
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
    """Return whether delta-rs replays these commits as we did, on the files that they mention.

    Files that no commit mentions must be the same before and after. The agreed version has plain
    paths alone; so has the new one, if this is so.
    """
    first = agreed.version + 1
    commits = [parse_commit(content, first + n) for n, content in enumerate(contents)]
    mentioned = pa.array(sorted({a.path for c in commits for a in _file_actions(c)}), pa.string())
    old, new = _paths(agreed), _paths(snapshot)
    if not _plain(mentioned):
        return False
    was, now = (pc.is_in(paths, mentioned) for paths in (old, new))
    if not old.filter(pc.invert(was)).equals(new.filter(pc.invert(now))):
        return False
    before = agreed.files.filter(was)
    if not _only_live_removed(before, commits):
        return False
    theirs = _replayed_by_delta_rs(agreed, before, contents)
    return theirs is not None and _sorted(theirs).equals(_sorted(new.filter(now)))


def _file_actions(commit: Commit) -> Iterator[AddFile | RemoveFile]:
    return (action for action in commit.actions if isinstance(action, AddFile | RemoveFile))


def _only_live_removed(before: pa.Table, commits: Sequence[Commit]) -> bool:
    """Return whether commits change files only, and remove only such as were live or added."""
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

    rows = before.select(_ADD_COLUMNS).to_pylist()
    start = encode_actions((agreed.protocol, agreed.metadata, *map(_add, rows)))
    with TemporaryDirectory(prefix="liquidlog-second-opinion-") as directory:
        log = Path(directory) / LOG_DIR
        log.mkdir()
        for version, content in enumerate((start, *contents)):
            (log / commit_name(version)).write_bytes(content)
        try:
            return _paths_in(DeltaTable(directory))
        except (DeltaError, OSError, ValueError):
            return None


_ADD_COLUMNS: Final = [
    "path",
    "size",
    "modification_time",
    "partition_values_json",
    "deletion_vector",
]


def _add(row: dict[str, Any]) -> AddFile:
    return AddFile(
        path=row["path"],
        partition_values=msgspec.json.decode(row["partition_values_json"] or "{}"),
        size=row["size"],
        modification_time=row["modification_time"] or 0,
        data_change=False,
        deletion_vector=deletion_vector(row["deletion_vector"]),
    )


def _paths(snapshot: Snapshot) -> pa.Array:
    return one_array(snapshot.files["path"])


def _paths_in(table: "DeltaTable") -> pa.Array:
    actions = pa.table(table.get_add_actions(flatten=True))
    return canonical_paths(actions["path"].cast(pa.string()).combine_chunks())


def _sorted(paths: pa.Array) -> pa.Array:
    return paths.take(pa.array(path_order(paths)))


def _plain(paths: pa.Array) -> bool:
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
