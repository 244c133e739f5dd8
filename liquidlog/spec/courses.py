"""What became of a data file over commits: a larger deletion vector, its removal, or neither.

Rows of a file are only ever deleted, as long as every vector deletes at least as many rows as the
one before, and no state comes back that the file had left. Whoever read such a file knows exactly
which of its rows are gone. Everything else (a smaller vector, a file that was removed and added
back) is unclear: rows may have come back.

Source: PROTOCOL.md, "Deletion Vectors" and "Action Reconciliation" (a logical file is a path and a
vector).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from liquidlog.spec.actions import DeletionVector, FileKey


class Fate(Enum):
    """What commits did to a file that was live with a certain deletion vector."""

    UNCHANGED = "unchanged"
    DELETED_FROM = "deleted from"
    """It is live, with another vector, which deletes at least as many rows."""
    REMOVED = "removed"
    UNCLEAR = "unclear"
    """Rows may have come back, or the commits contradict each other."""


@dataclass(slots=True)
class Step:
    """What one commit says about one path: ids of the vectors it removes, and vectors it adds."""

    version: int
    removed: set[str | None] = field(default_factory=set)
    added: dict[str | None, DeletionVector | None] = field(default_factory=dict)

    def add(self, vector: DeletionVector | None) -> None:
        """Take in an add of the path with a vector."""
        self.added[vector_id(vector)] = vector

    def remove(self, vector: DeletionVector | None) -> None:
        """Take in a remove of the path with a vector."""
        self.removed.add(vector_id(vector))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The fate of a file, and the versions that decided it, in order: those that deleted rows.

    The last version of an unclear course is the one that made it unclear. `vector` is the newest
    one of a file that rows were deleted from, None for all others.
    """

    fate: Fate
    vector: DeletionVector | None = None
    versions: tuple[int, ...] = ()


UNCHANGED = Course(fate=Fate.UNCHANGED)

_State = tuple[str | None, int]
"""The id of a file's vector, and how many rows it deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """The logical files that one commit adds and removes.

    It `is_rewrite` if no row came or went with them, as all of its actions say.
    """

    version: int
    operation: str
    added: tuple[FileKey, ...]
    removed: tuple[FileKey, ...]
    is_rewrite: bool


def vector_id(vector: DeletionVector | None) -> str | None:
    """Return the id that, with the path, makes a logical file; None without a vector."""
    return None if vector is None else vector.unique_id


def course_of(steps: Iterable[Step], vector: str | None, deleted_rows: int) -> Course:
    """Return what became of a file.

    Args:
        steps: What commits say of its path, in their order.
        vector: The id of its deletion vector before them.
        deleted_rows: How many rows that vector deletes.
    """
    course: Course = UNCHANGED
    states: list[_State] = [(vector, deleted_rows)]
    for step in steps:
        course = _after(step, course, states)
        if course.fate is Fate.UNCLEAR:
            break
    return course


def _after(step: Step, course: Course, states: list[_State]) -> Course:
    """Return the course with one more step; `states` are those that the file had, and grow."""
    current, _ = states[-1]
    versions = (*course.versions, step.version)
    unclear = Course(fate=Fate.UNCLEAR, versions=versions)
    if course.fate is Fate.REMOVED:
        return unclear if step.added else course
    if not step.added:
        is_removed = current in step.removed
        return Course(fate=Fate.REMOVED, versions=versions) if is_removed else course
    if step.added.keys() == {current} and current not in step.removed:
        return course
    added = next(iter(step.added.values()))
    if added is None or not _deletes_as_many(step, added, states):
        return unclear
    if added.cardinality == states[-1][1]:
        versions = course.versions  # if it does not delete the same rows, whoever reads it objects
    states.append((added.unique_id, added.cardinality))
    return Course(fate=Fate.DELETED_FROM, vector=added, versions=versions)


def _deletes_as_many(step: Step, added: DeletionVector, states: list[_State]) -> bool:
    """Return whether a step does nothing but replace a file's vector by a new, no smaller one."""
    current, deleted_rows = states[-1]
    is_new = all(added.unique_id != name for name, _ in states)
    replaces = len(step.added) == 1 and current in step.removed
    return is_new and replaces and added.cardinality >= deleted_rows
