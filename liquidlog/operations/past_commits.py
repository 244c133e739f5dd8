"""What past commits did: an OPTIMIZE beside a plan for it, and the bytes that each wrote."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from liquidlog.errors import UsageError, VersionNotFoundError
from liquidlog.log.segment import list_log, read_commit, read_commits
from liquidlog.log.store import TableStore
from liquidlog.plan import ClusteringPlan
from liquidlog.spec.actions import AddFile, Commit, RemoveFile
from liquidlog.spec.file_paths import canonical_path

_OPTIMIZE: Final = "OPTIMIZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeComparison:
    """What an OPTIMIZE took beside what a plan for the version before would have taken.

    `agrees` if it took whole groups of the plan and nothing else; an OPTIMIZE that commits cube by
    cube takes some of them. Paths are decoded and sorted.
    """

    version: int
    full: bool
    taken_files: int
    planned_files: int
    agrees: bool
    only_taken: tuple[str, ...]
    only_planned: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the comparison as plain JSON values."""
        return asdict(self)


def compare_optimize(
    store: TableStore, version: int, plan_at: Callable[[int, bool], ClusteringPlan]
) -> OptimizeComparison:
    """Return how a plan for the version before an OPTIMIZE compares with what it took.

    `plan_at` makes the plan: (version, full) -> plan.

    Raises:
        UsageError: If the commit is no OPTIMIZE.
        VersionNotFoundError: If the log does not hold the commit.
    """
    listing = list_log(store)
    if version not in listing.commits:
        raise VersionNotFoundError(version, min(listing.commits, default=0), listing.newest)
    commit = read_commit(store, version)
    info = commit.info
    if info.operation != _OPTIMIZE or version == 0:
        raise UsageError(
            f"version {version} is the commit of {info.operation}, not of an OPTIMIZE",
            version=version,
        )
    full = str((info.operation_parameters or {}).get("isFull", "")).lower() == "true"
    plan = plan_at(version - 1, full)
    taken = {canonical_path(path) for path in _removed(commit)}
    groups = [set(group.inputs.columns["path"].to_pylist()) for group in plan.groups]
    planned = {path for group in groups for path in group}
    whole = {path for group in groups if group <= taken for path in group}
    return OptimizeComparison(
        version=version,
        full=full,
        taken_files=len(taken),
        planned_files=len(planned),
        agrees=taken == whole,
        only_taken=tuple(sorted(taken - planned)),
        only_planned=tuple(sorted(planned - taken)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBytes:
    """What one commit added: bytes of new data, and bytes that only moved. Both to its version.

    `write_amplification` is all that moved up to here for each byte of new data, None before any.
    """

    version: int
    operation: str | None
    new_bytes: int
    moved_bytes: int
    write_amplification: float | None


def written_bytes(store: TableStore) -> tuple[WrittenBytes, ...]:
    """Return what each commit still in the log wrote, oldest first.

    New data is what was added as a change of data; UPDATE, DELETE and MERGE copy rows, and count
    so as the log has them. What moved is what was added as none, which is what OPTIMIZE does.

    Raises:
        TableNotFoundError: If there is no table.
        CorruptLogError: If a commit is broken.
    """
    versions = sorted(list_log(store).commits)
    return tuple(_running(read_commits(store, versions)))


def _running(commits: Iterable[Commit]) -> Iterator[WrittenBytes]:
    new_total = moved_total = 0
    for commit in commits:
        # A file that comes back in its own commit only got another deletion vector.
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
