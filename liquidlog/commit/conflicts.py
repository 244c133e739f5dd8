"""Find the winning commits that conflict with a change. Pure: read set x winners -> conflicts.

The matrix is the reference engine's for SnapshotIsolation, stricter in two points: any change of
metadata or protocol is a conflict, and so is a change of a domain from which the change was
derived.

Source: PROTOCOL.md, "Writer Requirements"; Delta Spark, ConflictChecker.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from liquidlog.errors import Conflict
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    Commit,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    file_key,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What a change depends on; none of it may have changed after `version`.

    `files` are the logical files that the change removes or adds again, `domains` the domains from
    which it was derived.
    """

    version: int
    files: frozenset[FileKey] = field(default_factory=frozenset)
    domains: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class ConcurrentDeleteRead(Conflict):
    """A winner removed, rewrote or put a deletion vector on files that the change removes."""

    kind = "concurrent_delete_read"
    version: int
    paths: tuple[str, ...]

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        shown = ", ".join(self.paths[:3]) + (", …" if self.paths[3:] else "")
        return f"version {self.version} removed {len(self.paths)} input file(s): {shown}"


@dataclass(frozen=True, slots=True)
class MetadataChanged(Conflict):
    """A winner changed the schema or the properties."""

    kind = "metadata_changed"
    version: int

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return f"version {self.version} changed the table's metadata"


@dataclass(frozen=True, slots=True)
class ProtocolChanged(Conflict):
    """A winner changed the protocol."""

    kind = "protocol_changed"
    version: int

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return f"version {self.version} changed the table's protocol"


@dataclass(frozen=True, slots=True)
class DomainMetadataChanged(Conflict):
    """A winner changed a domain that the change was derived from."""

    kind = "domain_metadata_changed"
    version: int
    domain: str

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return f"version {self.version} changed the domain {self.domain}"


WinnerConflict = ConcurrentDeleteRead | MetadataChanged | ProtocolChanged | DomainMetadataChanged
"""What a winning commit did to make a change impossible; `version` is the winner's."""


class Winners:
    """The commits that landed after a version, as far as they can make a change impossible.

    What is asked of them costs as much as what was read, however many there are.
    """

    def __init__(self, version: int) -> None:
        """Know of nothing after `version`."""
        self.version = version
        self._removed: dict[FileKey, tuple[int, ...]] = {}
        self._changes: list[WinnerConflict] = []

    def take(self, commits: Iterable[Commit]) -> None:
        """Take in commits in their order; those that are known already are passed over."""
        for commit in commits:
            if commit.version > self.version:
                self._take(commit)
                self.version = commit.version

    def _take(self, commit: Commit) -> None:
        removes = (action for action in commit.actions if isinstance(action, RemoveFile))
        for key in {file_key(remove) for remove in removes}:
            self._removed[key] = (*self._removed.get(key, ()), commit.version)
        changes = (_change(action, commit.version) for action in commit.actions)
        self._changes.extend(dict.fromkeys(change for change in changes if change is not None))

    def conflicts(self, read_set: ReadSet) -> tuple[WinnerConflict, ...]:
        """Return every conflict with the commits that landed after `read_set.version`.

        Appends, transaction identifiers and re-adds of the same logical file never conflict: the
        change is derived again from the newest snapshot before it is tried again.
        """
        removed: dict[int, set[str]] = {}
        for key in read_set.files:
            for version in self._removed.get(key, ()):
                removed.setdefault(version, set()).add(key[0])
        found: list[WinnerConflict] = [
            ConcurrentDeleteRead(version, tuple(sorted(paths)))
            for version, paths in sorted(removed.items())
        ]
        found.extend(
            change
            for change in self._changes
            if not isinstance(change, DomainMetadataChanged) or change.domain in read_set.domains
        )
        # Stable: within a version, what was removed comes first.
        after = (conflict for conflict in found if conflict.version > read_set.version)
        return tuple(sorted(after, key=lambda conflict: conflict.version))


def check_conflicts(read_set: ReadSet, winners: Iterable[Commit]) -> tuple[WinnerConflict, ...]:
    """Return every conflict with commits, in order, that landed after `read_set.version`."""
    known = Winners(read_set.version)
    known.take(winners)
    return known.conflicts(read_set)


def _change(action: AnyAction, version: int) -> WinnerConflict | None:
    match action:
        case Metadata():
            return MetadataChanged(version)
        case Protocol():
            return ProtocolChanged(version)
        case DomainMetadata(domain=domain):
            return DomainMetadataChanged(version, domain)
        case AddFile() | RemoveFile() | SetTransaction() | CommitInfo():
            return None
