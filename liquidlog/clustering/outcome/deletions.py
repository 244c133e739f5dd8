"""What other commits deleted of a planned group's inputs, and whether its commit can follow.

A commit follows if it deletes the same rows from the group's outputs. It can if rows were only ever
deleted, and too few to make the rewrite worthless.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from liquidlog.errors import Conflict
from liquidlog.plan import InputFile, RewriteGroup
from liquidlog.spec.actions import DeletionVector, FileKey
from liquidlog.spec.courses import Course, Fate

Courses = Callable[[FileKey, int], Course]
"""Function from a logical file and the rows that its vector deletes to what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcilable:
    """Which deletions a commit can follow: of files with a clear course, up to a share of the rows.

    `max_share`, from 0 to 1, is of a group's live rows when it was planned.
    """

    course: Courses
    max_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedInput:
    """An input of which other commits deleted rows: those of a larger vector, or all.

    `file` is as planned; `vector` is the newest one, None if the file is gone. `rows` is how many
    live rows of the plan were deleted, None if the log does not say. `versions` deleted them.
    """

    file: InputFile
    vector: DeletionVector | None
    rows: int | None
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TooManyDeletedRows(Conflict):
    """Other commits deleted more of a group's rows than its commit may delete from its outputs."""

    kind = "too_many_deleted_rows"
    rows: int
    live_rows: int
    max_share: float

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return (
            f"other commits deleted {self.rows} of the {self.live_rows} rows of the inputs, more"
            f" than {100 * self.max_share:g} %; max_reconciled_share says how many may be deleted"
            " from the outputs"
        )


def input_key(file: InputFile) -> tuple[FileKey, int]:
    """Return the logical file of an input as planned, and how many rows its vector deletes."""
    vector = file.deletion_vector
    if vector is None:
        return (file.path, None), 0
    return (file.path, vector.descriptor.unique_id), vector.cardinality


def deleted_input(
    file: InputFile, vector: DeletionVector | None, reconcilable: Reconcilable
) -> DeletedInput | None:
    """Return what was deleted of an input that is not live as planned, None if that is not clear.

    `vector` is the one with which it is live now, None if it is not live; what became of it by the
    commits must be the same.
    """
    key, deleted_before = input_key(file)
    course = reconcilable.course(key, deleted_before)
    if course.fate is Fate.REMOVED and vector is None:
        records = file.num_records
        rows = None if records is None else records - deleted_before
    elif course.fate is Fate.DELETED_FROM and vector is not None and course.vector == vector:
        rows = vector.cardinality - deleted_before
    else:
        return None
    return DeletedInput(file=file, vector=vector, rows=rows, versions=course.versions)


def deleted_inputs(group: RewriteGroup, reconcilable: Reconcilable) -> tuple[DeletedInput, ...]:
    """Return the inputs of a group of which rows were clearly deleted, by the commits alone."""
    found = (
        deleted_input(file, reconcilable.course(*input_key(file)).vector, reconcilable)
        for file in group.inputs
    )
    return tuple(one for one in found if one is not None)


def lasting_reasons(group: RewriteGroup, deleted: Sequence[DeletedInput]) -> Iterator[str]:
    """Yield why no commit can ever follow these deletions, whatever share of the rows it may."""
    if not deleted:
        return
    removals = sorted({one.versions[-1] for one in deleted if one.vector is None})
    gone = sum(one.vector is None for one in deleted)
    if gone == len(group.inputs):
        versions = ", ".join(map(str, removals))
        yield f"none of the {gone} input file(s) is left: version(s) {versions} removed them"
        return
    rows = deleted_rows(deleted)
    if rows is None or group.live_rows is None:
        yield "other commits deleted rows of inputs, and the log does not say of how many"
    elif rows >= group.live_rows:
        yield f"other commits deleted all {group.live_rows} rows of the inputs"


def excess(
    group: RewriteGroup, deleted: Sequence[DeletedInput], reconcilable: Reconcilable
) -> TooManyDeletedRows | None:
    """Return the conflict if more rows were deleted than a commit may follow, else None.

    There is none if no commit could, whatever it may: see `lasting_reasons`.
    """
    rows, live_rows, most = deleted_rows(deleted), group.live_rows, reconcilable.max_share
    if rows is None or live_rows is None or rows <= most * live_rows:
        return None
    if any(lasting_reasons(group, deleted)):
        return None
    return TooManyDeletedRows(rows, live_rows, most)


def deleted_rows(deleted: Sequence[DeletedInput]) -> int | None:
    """Return how many live rows of the plan were deleted in all, None if that is not known."""
    rows = [one.rows for one in deleted]
    return None if None in rows else sum(count for count in rows if count is not None)
