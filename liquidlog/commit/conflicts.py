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

    `files` are the logical files that the change removes, `domains` the domains from which it was
    derived.
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


def check_conflicts(read_set: ReadSet, winners: Iterable[Commit]) -> tuple[WinnerConflict, ...]:
    """Return all conflicts with `winners`, the commits that landed after `read_set.version`.

    Appends, transaction identifiers and re-adds of the same logical file never conflict: the
    change is derived again from the newest snapshot before it is tried again.
    """
    return tuple(conflict for winner in winners for conflict in _with_winner(read_set, winner))


def _with_winner(read_set: ReadSet, winner: Commit) -> Iterable[WinnerConflict]:
    removed = {key[0] for action in winner.actions for key in _removed(action, read_set)}
    if removed:
        yield ConcurrentDeleteRead(winner.version, tuple(sorted(removed)))
    seen: set[WinnerConflict] = set()
    for action in winner.actions:
        conflict = _with_action(read_set, winner.version, action)
        if conflict is not None and conflict not in seen:
            seen.add(conflict)
            yield conflict


def _removed(action: AnyAction, read_set: ReadSet) -> Iterable[FileKey]:
    if isinstance(action, RemoveFile) and file_key(action) in read_set.files:
        yield file_key(action)


def _with_action(read_set: ReadSet, version: int, action: AnyAction) -> WinnerConflict | None:
    match action:
        case Metadata():
            return MetadataChanged(version)
        case Protocol():
            return ProtocolChanged(version)
        case DomainMetadata(domain=domain) if domain in read_set.domains:
            return DomainMetadataChanged(version, domain)
        case AddFile() | RemoveFile() | DomainMetadata() | SetTransaction() | CommitInfo():
            return None
