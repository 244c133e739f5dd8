"""Find the winning commits that conflict with a change. Pure: read set x winners -> conflicts.

The matrix is the reference engine's for SnapshotIsolation, stricter in two points: a change of
metadata or protocol is a conflict unless `spec.terms` lists it as one that files outlast, and so is
a change of a domain from which the change was derived.

Source: PROTOCOL.md, "Writer Requirements"; Delta Spark, ConflictChecker.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from liquidlog.errors import Conflict
from liquidlog.spec.actions import (
    Commit,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    file_key,
)
from liquidlog.spec.terms import FileTerms, metadata_changes, protocol_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What a change depends on; none of it may have changed after `version`.

    `files` are the logical files that the change removes or adds again, `domains` the domains from
    which it was derived. `terms` are what its new files were written for; without them, any change
    of metadata or protocol is a conflict.
    """

    version: int
    files: frozenset[FileKey] = field(default_factory=frozenset)
    domains: frozenset[str] = field(default_factory=frozenset)
    terms: FileTerms | None = None


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
    """A winner changed the schema or the properties; `changes` are clauses, none if not known."""

    kind = "metadata_changed"
    version: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return f"version {self.version} changed the table's metadata{_because(self.changes)}"


@dataclass(frozen=True, slots=True)
class ProtocolChanged(Conflict):
    """A winner changed the protocol; `changes` are clauses, none if not known."""

    kind = "protocol_changed"
    version: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return f"version {self.version} changed the table's protocol{_because(self.changes)}"


@dataclass(frozen=True, slots=True)
class DomainMetadataChanged(Conflict):
    """A winner changed a domain that the change was derived from."""

    kind = "domain_metadata_changed"
    version: int
    domain: str

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return f"version {self.version} changed the domain {self.domain}"


_SHOWN: Final = 3
WinnerConflict = ConcurrentDeleteRead | MetadataChanged | ProtocolChanged | DomainMetadataChanged
"""What a winning commit did to make a change impossible; `version` is the winner's."""


class Winners:
    """The commits that landed after a version, as far as they can make a change impossible.

    What is asked of them costs as much as what was read, however many there are.
    """

    def __init__(self, version: int, terms: FileTerms | None = None) -> None:
        """Know of nothing after `version`; `terms` are those of the read sets to come, if any."""
        self.version = version
        self._terms = terms
        self._removed: dict[FileKey, tuple[int, ...]] = {}
        self._changes: list[WinnerConflict] = []
        self._outlasted: set[WinnerConflict] = set()

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
        for action in commit.actions:
            if isinstance(action, Metadata | Protocol | DomainMetadata):
                self._take_change(commit.version, action)

    def _take_change(self, version: int, action: Metadata | Protocol | DomainMetadata) -> None:
        change = _change(version, action, self._terms)
        self._changes.append(change)
        if isinstance(change, MetadataChanged | ProtocolChanged) and not change.changes:
            self._outlasted.add(change)

    def conflicts(self, read_set: ReadSet) -> tuple[WinnerConflict, ...]:
        """Return every conflict with the commits that landed after `read_set.version`.

        Appends, transaction identifiers and re-adds of the same logical file never conflict: the
        change is derived again from the newest snapshot before it is tried again. Nor does a change
        of metadata or protocol after which files written for `read_set.terms` are still valid.
        """
        removed: dict[int, set[str]] = {}
        for key in read_set.files:
            for version in self._removed.get(key, ()):
                removed.setdefault(version, set()).add(key[0])
        found: list[WinnerConflict] = [
            ConcurrentDeleteRead(version, tuple(sorted(paths)))
            for version, paths in sorted(removed.items())
        ]
        # Files that were written for something else were not asked about: nothing is outlasted.
        are_known = read_set.terms is not None and read_set.terms == self._terms
        outlasted = self._outlasted if are_known else frozenset()
        found.extend(
            change
            for change in dict.fromkeys(self._changes)
            if change not in outlasted
            and (not isinstance(change, DomainMetadataChanged) or change.domain in read_set.domains)
        )
        # Stable: within a version, what was removed comes first.
        after = (conflict for conflict in found if conflict.version > read_set.version)
        return tuple(sorted(after, key=lambda conflict: conflict.version))


def check_conflicts(read_set: ReadSet, winners: Iterable[Commit]) -> tuple[WinnerConflict, ...]:
    """Return every conflict with commits, in order, that landed after `read_set.version`."""
    known = Winners(read_set.version, read_set.terms)
    known.take(winners)
    return known.conflicts(read_set)


def _change(
    version: int, action: Metadata | Protocol | DomainMetadata, terms: FileTerms | None
) -> WinnerConflict:
    match action:
        case Metadata():
            return MetadataChanged(
                version, () if terms is None else metadata_changes(terms, action)
            )
        case Protocol():
            return ProtocolChanged(
                version, () if terms is None else protocol_changes(terms, action)
            )
        case DomainMetadata(domain=domain):
            return DomainMetadataChanged(version, domain)


def _because(changes: tuple[str, ...]) -> str:
    shown = "; ".join(changes[:_SHOWN]) + ("; …" if changes[_SHOWN:] else "")
    return f" ({shown})" if shown else ""
