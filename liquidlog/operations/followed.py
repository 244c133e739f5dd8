"""How much of others' deletions the commits of a rewrite follow, and what is said of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from liquidlog.clustering.outcome.change import FilesAdded, Reconciled
from liquidlog.clustering.outcome.staleness import Staleness, TooManyDeletedRows, deleted_rows
from liquidlog.errors import Conflict, UsageError
from liquidlog.plan import GIB, Tasks
from liquidlog.spec.arguments import number, refuse
from liquidlog.spec.text import parse_size

DEFAULT_MAX_SHARE: Final = 0.2
"""Share of a group's rows that others may delete: beyond, it is cheaper to rewrite what is left
than to keep files with so many deleted rows."""

DEFAULT_LIMIT_BYTES: Final = 10 * GIB
"""Bytes that are read to find the deleted rows of one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileLimits:
    """How much of others' deletions the commit of a group follows.

    `max_share` is the share of the group's rows, from 0 to 1, that may be deleted, `limit_bytes`
    what this process may read to find them; `tasks` read what is more. With a share of 0, every
    deletion is a conflict.
    """

    max_share: float = DEFAULT_MAX_SHARE
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    tasks: Tasks | None = None


@dataclass(frozen=True, slots=True)
class TooMuchToRead(Conflict):
    """To find the rows that others deleted, more would have to be read than is allowed."""

    kind = "too_much_to_read"
    needed_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return (
            "other commits deleted rows of the inputs; to find them in the outputs, at least"
            f" {self.needed_bytes} bytes would be read, more than {self.limit_bytes};"
            " reconcile_limit says how many may be read"
        )


def reconcile_limits(
    max_share: float | None, limit: int | str | None, tasks: Tasks | None = None
) -> ReconcileLimits:
    """Return the limits that a caller gave: a share, a size in bytes or as text, and tasks."""
    share = DEFAULT_MAX_SHARE
    if max_share is not None:
        share = number(max_share, argument="max_reconciled_share")
        if share > 1:
            refuse("max_reconciled_share", "a number from 0 to 1", max_share)
    if limit is None:
        return ReconcileLimits(max_share=share, tasks=tasks)
    if not share:
        raise UsageError(
            "reconcile_limit has no effect: with max_reconciled_share 0, every deletion is a"
            " conflict",
            option="reconcile_limit",
        )
    return ReconcileLimits(max_share=share, limit_bytes=parse_size(limit), tasks=tasks)


def passes(conflict: Conflict) -> bool:
    """Return whether what was rewritten could be committed later, or within other limits.

    Files that others added beside a migration may be deleted again.
    """
    return isinstance(conflict, TooMuchToRead | TooManyDeletedRows | FilesAdded)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledRows:
    """Rows that others deleted of the inputs of committed groups, and were deleted of the outputs.

    `files` is how many outputs had such rows, `bytes_read` and `seconds` what it took to find and
    delete them: None for a dry run, which looks for none of them. `versions` deleted the rows;
    `gone` are the paths of inputs and kept files that others had removed.
    """

    rows: int = 0
    files: int | None = 0
    bytes_read: int | None = 0
    seconds: float | None = 0.0
    versions: tuple[int, ...] = ()
    gone: tuple[str, ...] = ()

    @classmethod
    def of(cls, groups: Sequence[Reconciled], stale: Sequence[Staleness]) -> "ReconciledRows":
        """Return the sum over groups, and what was deleted according to the log."""
        return replace(
            cls.expected(stale),
            rows=sum(one.rows for one in groups),
            files=sum(one.files for one in groups),
            bytes_read=sum(one.bytes_read for one in groups),
            seconds=sum(one.seconds for one in groups),
        )

    @classmethod
    def expected(cls, stale: Sequence[Staleness]) -> "ReconciledRows":
        """Return what the log says was deleted of the inputs of groups."""
        deleted = [one for its in stale for one in its.deleted]
        gone = tuple(path for its in stale for path in its.gone)
        if not deleted:
            return cls(gone=gone)
        return cls(
            rows=deleted_rows(deleted) or 0,
            files=None,
            bytes_read=None,
            seconds=None,
            versions=tuple(sorted({version for one in deleted for version in one.versions})),
            gone=gone,
        )

    def plus(self, other: "ReconciledRows") -> "ReconciledRows":
        """Return the sum of both; unknown if one of them is."""
        return ReconciledRows(
            rows=self.rows + other.rows,
            files=_sum(self.files, other.files),
            bytes_read=_sum(self.bytes_read, other.bytes_read),
            seconds=_sum(self.seconds, other.seconds),
            versions=tuple(sorted({*self.versions, *other.versions})),
            gone=(*self.gone, *other.gone),
        )


_Number = TypeVar("_Number", int, float)


def _sum(one: _Number | None, other: _Number | None) -> _Number | None:
    return None if one is None or other is None else one + other
