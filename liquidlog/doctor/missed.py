"""Removes of past commits that removed nothing, and what that left in the table.

A writer whose check of conflicts passes over what others did meanwhile removes files that are not
in the table any more, or not with the deletion vector that it names. Nothing is lost: rows that it
moved are there twice, or rows that it deleted are still there.

Source: PROTOCOL.md, "Add File and Remove File", "Action Reconciliation".
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from liquidlog.spec.actions import FileChanges, FileKey

_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Files (`paths`) that a commit said to remove and that were not live, and what is left of it.

    Version `earlier` had removed them before, None if no version had had them. `files` are live and
    hold what either of the two wrote; `are_doubled` says that both moved the same rows.
    """

    version: int
    operation: str
    paths: tuple[str, ...]
    earlier: int | None
    files: tuple[str, ...]
    are_doubled: bool

    def __str__(self) -> str:
        removed = f"version {self.version} ({self.operation}) removed {len(self.paths)} file(s)"
        if self.earlier is None:
            return f"{removed} that no version had ({listed(self.paths)})"
        again = f"{removed} that version {self.earlier} had removed ({listed(self.paths)})"
        if self.are_doubled:
            return f"{again}, and both wrote their rows anew: they are in the table twice"
        return f"{again}: rows may be there twice, or still, though one of the two deleted them"


class Histories:
    """Commits taken in one after the other, and which of their removes missed."""

    def __init__(self, *, is_whole: bool) -> None:
        """Know no commit yet; `is_whole` says that the table was empty before the first one."""
        self._is_whole = is_whole
        self._live: dict[str, tuple[str | None, int]] = {}
        self._removed: dict[str, int] = {}
        self._parents: dict[int, set[int]] = {}
        self._missed: dict[tuple[int, int | None], list[str]] = {}
        self._operations: dict[int, str] = {}
        self._other_vector: dict[FileKey, int] = {}

    def take(self, commit: FileChanges) -> None:
        """Take in the next commit."""
        version = commit.version
        parents: set[int] = set()
        # Of a file that is removed with several vectors, that with its own comes first.
        removed = sorted(set(commit.removed), key=lambda key: self._vector(key[0]) != key[1])
        for path, vector in removed:
            live = self._live.get(path)
            if live is not None and live[0] == vector:
                parents.add(self._live.pop(path)[1])
                self._removed[path] = version
            elif live is not None:
                self._other_vector[path, live[0]] = version
            else:
                self._miss(path, version)
        for path, vector in commit.added:
            self._live[path] = (vector, version)
            self._removed.pop(path, None)
        if removed:
            self._operations[version] = commit.operation
            if commit.is_rewrite:
                self._parents[version] = parents

    def _vector(self, path: str) -> str | None:
        return self._live.get(path, (None, 0))[0]

    def _miss(self, path: str, version: int) -> None:
        earlier = self._removed.get(path)
        if earlier is None:
            self._removed[path] = version
        if earlier != version and (earlier is not None or self._is_whole):
            self._missed.setdefault((version, earlier), []).append(path)

    def missed(self) -> tuple[Missed, ...]:
        """Return the removes of files that were not live, as long as what they left is live."""
        by_version: dict[int, list[str]] = {}
        for path, (_, added) in self._live.items() if self._missed else ():
            by_version.setdefault(added, []).append(path)
        found = (
            self._left(version, earlier, paths, by_version)
            for (version, earlier), paths in self._missed.items()
        )
        return tuple(one for one in found if one is not None)

    def _left(
        self,
        version: int,
        earlier: int | None,
        paths: Sequence[str],
        by_version: Mapping[int, Sequence[str]],
    ) -> Missed | None:
        later, before = (
            {path for writer in self._family(first) for path in by_version.get(writer, ())}
            for first in (version, earlier)
        )
        are_doubled = earlier is not None and version in self._parents and earlier in self._parents
        # Rows that both moved are there once if what one of the two wrote is gone.
        if earlier is not None and not (later and before if are_doubled else later or before):
            return None
        return Missed(
            version=version,
            operation=self._operations[version],
            paths=tuple(sorted(paths)),
            earlier=earlier,
            files=tuple(sorted(later | before)),
            are_doubled=are_doubled,
        )

    def _family(self, version: int | None) -> Collection[int]:
        """Return a version, and those that only rewrote what it or one of these wrote."""
        family = set() if version is None else {version}
        for rewrite, parents in self._parents.items():
            if not parents.isdisjoint(family):
                family.add(rewrite)
        return family

    def left_with_another_vector(self, live: Collection[FileKey]) -> dict[FileKey, int]:
        """Return which `live` files a version, the value, removed with another vector only."""
        found = {key: self._removed[key[0]] for key in live if key[0] in self._removed}
        return found | {key: self._other_vector[key] for key in live if key in self._other_vector}

    @property
    def suspects(self) -> frozenset[str]:
        """The paths that `left_with_another_vector` needs to know about, if they are live."""
        return frozenset({*self._removed, *(path for path, _ in self._other_vector)})


def missed_of(commits: Iterable[FileChanges]) -> tuple[Missed, ...]:
    """Return the removes that missed among commits after others that are not known."""
    histories = Histories(is_whole=False)
    for commit in commits:
        histories.take(commit)
    return histories.missed()


def listed(texts: Iterable[str], most: int = _NAMED) -> str:
    """Return the first of some texts, and how many more there are."""
    shown = sorted(texts)
    rest = len(shown) - most
    return "; ".join(shown[:most]) + (f"; {rest} more" if rest > 0 else "")
