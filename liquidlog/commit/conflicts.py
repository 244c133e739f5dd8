"""Find the winning commits that conflict with a change. Pure: read set x winners -> conflicts.

The matrix is the reference engine's for SnapshotIsolation, stricter in two points: a change of
metadata or protocol is a conflict unless files outlast it (`spec.terms`), and so is a change of a
domain that the change depends on. It is milder in one: a writer that can delete the same rows from
its outputs lets others delete rows of its inputs (see `spec.courses`).

Source: PROTOCOL.md, "Writer Requirements"; Delta Spark, ConflictChecker.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

from liquidlog.errors import Conflict
from liquidlog.spec.actions import (
    UNCHANGED,
    AddFile,
    Commit,
    Course,
    DomainMetadata,
    Fate,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    Step,
    course_of,
    file_key,
)
from liquidlog.spec.evolution import FileTerms, metadata_changes, protocol_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What a change depends on: none of it may change after `version`.

    `files` are removed or added again. Other writers may delete rows of `reconciled` files, given
    with the number of rows that their vectors delete. Without `terms`, which the new files were
    written for, any change of metadata or protocol is a conflict.
    """

    version: int
    files: frozenset[FileKey] = field(default_factory=frozenset)
    reconciled: Mapping[FileKey, int] = field(default_factory=dict)
    domains: frozenset[str] = field(default_factory=frozenset)
    terms: FileTerms | None = None


@dataclass(frozen=True, slots=True)
class ConcurrentDeleteRead(Conflict):
    """A winner removed or rewrote files that the change removes, or gave them a deletion vector."""

    kind = "concurrent_delete_read"
    version: int
    paths: tuple[str, ...]

    def __str__(self) -> str:
        paths = _listed(self.paths)
        return f"version {self.version} removed {len(self.paths)} input file(s): {paths}"


@dataclass(frozen=True, slots=True)
class RowsMayBeBack(Conflict):
    """A winner may have restored deleted rows of files that the change removes."""

    kind = "rows_may_be_back"
    version: int
    paths: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"version {self.version} may have brought deleted rows back of {len(self.paths)} input"
            f" file(s): {_listed(self.paths)}"
        )


@dataclass(frozen=True, slots=True)
class MetadataChanged(Conflict):
    """A winner changed the schema or the properties; `changes` are clauses, if known."""

    kind = "metadata_changed"
    version: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"version {self.version} changed the table's metadata{_because(self.changes)}"


@dataclass(frozen=True, slots=True)
class ProtocolChanged(Conflict):
    """A winner changed the protocol; `changes` are clauses, if known."""

    kind = "protocol_changed"
    version: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"version {self.version} changed the table's protocol{_because(self.changes)}"


@dataclass(frozen=True, slots=True)
class DomainMetadataChanged(Conflict):
    """A winner changed a domain that the change depends on."""

    kind = "domain_metadata_changed"
    version: int
    domain: str

    def __str__(self) -> str:
        return f"version {self.version} changed the domain {self.domain}"


_SHOWN: Final = 3
WinnerConflict = (
    ConcurrentDeleteRead | RowsMayBeBack | MetadataChanged | ProtocolChanged | DomainMetadataChanged
)
"""A commit of another writer that makes a change impossible, with its version."""


class Winners:
    """The commits that landed after a version, as far as they may conflict with a change."""

    def __init__(self, version: int, terms: FileTerms | None = None) -> None:
        """Start after `version`; `terms` are the terms of the read sets to compare, if any."""
        self.version = version
        self._terms = terms
        self._removed: dict[FileKey, tuple[int, ...]] = {}
        self._steps: dict[str, list[Step]] = {}
        self._changes: list[WinnerConflict] = []
        self._outlasted: set[WinnerConflict] = set()

    def take(self, commits: Iterable[Commit]) -> None:
        """Add commits in their order; known versions are skipped."""
        for commit in commits:
            if commit.version > self.version:
                self._take(commit)
                self.version = commit.version

    def _take(self, commit: Commit) -> None:
        for key in {file_key(one) for one in commit.actions if isinstance(one, RemoveFile)}:
            self._removed[key] = (*self._removed.get(key, ()), commit.version)
        for action in commit.actions:
            if isinstance(action, RemoveFile):
                self._step(file_key(action)[0], commit.version).remove(action.deletion_vector)
            elif isinstance(action, Metadata | Protocol | DomainMetadata):
                change = _change(commit.version, action, self._terms)
                self._changes.append(change)
                if isinstance(change, MetadataChanged | ProtocolChanged) and not change.changes:
                    self._outlasted.add(change)
        # An add of a path that no winner removed is a new file or repeats what the log says.
        for action in commit.actions if self._steps else ():
            if isinstance(action, AddFile) and (path := file_key(action)[0]) in self._steps:
                self._step(path, commit.version).add(action.deletion_vector)

    def _step(self, path: str, version: int) -> Step:
        steps = self._steps.setdefault(path, [])
        if not steps or steps[-1].version != version:
            steps.append(Step(version))
        return steps[-1]

    def course(self, key: FileKey, deleted_rows: int) -> Course:
        """Return what winners did to a logical file whose vector deleted `deleted_rows` rows."""
        steps = self._steps.get(key[0])
        return UNCHANGED if steps is None else course_of(steps, key[1], deleted_rows)

    def removed_paths(self) -> frozenset[str]:
        """Return the paths of all files that were removed or got another deletion vector."""
        return frozenset(path for path, _ in self._removed)

    def conflicts(self, read_set: ReadSet) -> tuple[WinnerConflict, ...]:
        """Return every conflict with the commits after `read_set.version`.

        Appends, transaction identifiers and repeated adds never conflict, nor do changes
        after which files written for `read_set.terms` are still valid.
        """
        removed = [
            (version, key[0]) for key in read_set.files for version in self._removed.get(key, ())
        ]
        unclear = []
        for key, deleted in read_set.reconciled.items():
            course = self.course(key, deleted)
            if course.fate is Fate.UNCLEAR:
                unclear.append((course.versions[-1], key[0]))
        found: list[WinnerConflict] = [
            *(ConcurrentDeleteRead(version, paths) for version, paths in _by_version(removed)),
            *(RowsMayBeBack(version, paths) for version, paths in _by_version(unclear)),
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


def _by_version(found: Iterable[tuple[int, str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for version, those in groupby(sorted(set(found)), key=itemgetter(0)):
        yield version, tuple(path for _, path in those)


def _change(
    version: int, action: Metadata | Protocol | DomainMetadata, terms: FileTerms | None
) -> WinnerConflict:
    match action:
        case Metadata():
            changes = () if terms is None else tuple(metadata_changes(terms, action))
            return MetadataChanged(version, changes)
        case Protocol():
            changes = () if terms is None else tuple(protocol_changes(terms, action))
            return ProtocolChanged(version, changes)
        case DomainMetadata(domain=domain):
            return DomainMetadataChanged(version, domain)


def _listed(paths: tuple[str, ...]) -> str:
    return ", ".join(paths[:_SHOWN]) + (", …" if paths[_SHOWN:] else "")


def _because(changes: tuple[str, ...]) -> str:
    shown = "; ".join(changes[:_SHOWN]) + ("; …" if changes[_SHOWN:] else "")
    return f" ({shown})" if shown else ""
