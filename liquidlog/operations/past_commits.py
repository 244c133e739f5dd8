"""Look at past commits: count the bytes that they wrote."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from liquidlog.log.segment import list_log, read_commits
from liquidlog.log.store import TableStore
from liquidlog.spec.actions import AddFile, Commit, RemoveFile


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBytes:
    """The bytes of new data that a commit at `version` added, and the bytes that it only moved.

    `write_amplification` is the bytes moved up to this version per byte of new data, None while
    there is no new data.
    """

    version: int
    operation: str | None
    new_bytes: int
    moved_bytes: int
    write_amplification: float | None


def written_bytes(store: TableStore) -> tuple[WrittenBytes, ...]:
    """Return the bytes that each commit still in the log wrote, oldest first.

    New data are files added with `dataChange` true, which includes the rows that UPDATE, DELETE and
    MERGE copy. Moved data are files added with `dataChange` false, as OPTIMIZE does.
    """
    versions = sorted(list_log(store).commits)
    return tuple(_running(read_commits(store, versions)))


def _running(commits: Iterable[Commit]) -> Iterator[WrittenBytes]:
    new_total = moved_total = 0
    for commit in commits:
        # A file that its own commit removes and adds only got a new deletion vector.
        kept = set(_removed(commit))
        adds = [one for one in commit.actions if isinstance(one, AddFile) and one.path not in kept]
        new = sum(add.size for add in adds if add.data_change)
        moved = sum(add.size for add in adds if not add.data_change)
        new_total, moved_total = new_total + new, moved_total + moved
        yield WrittenBytes(
            version=commit.version,
            operation=commit.info.operation,
            new_bytes=new,
            moved_bytes=moved,
            write_amplification=round(moved_total / new_total, 4) if new_total else None,
        )


def _removed(commit: Commit) -> list[str]:
    return [action.path for action in commit.actions if isinstance(action, RemoveFile)]
