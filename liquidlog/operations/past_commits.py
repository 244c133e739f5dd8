"""Look at past commits: compare an OPTIMIZE with a plan, and count the bytes that commits wrote."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from liquidlog.errors import UsageError, VersionNotFoundError
from liquidlog.log.segment import list_log, read_commit, read_commits
from liquidlog.log.store import TableStore
from liquidlog.plan import ClusteringPlan
from liquidlog.spec.actions import AddFile, Commit, RemoveFile
from liquidlog.spec.paths import canonical_path

_OPTIMIZE: Final = "OPTIMIZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeComparison:
    """The files that an OPTIMIZE took, and those that a plan for the version before would take.

    `agrees` is true if the OPTIMIZE took whole groups of the plan and nothing else; one that
    commits cube by cube takes only some groups. Paths are decoded and sorted.
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
    store: TableStore,
    version: int,
    make: Callable[..., ClusteringPlan],
    settings: Mapping[str, Any],
) -> OptimizeComparison:
    """Compare the files that an OPTIMIZE took with a plan for the version before it.

    `make` makes the plan as `Table.plan` does; whether the OPTIMIZE was FULL is read from its
    commit, all other settings are `settings`.
    """
    if settings.get("full"):
        raise UsageError("full has no effect on a replay: the commit tells it")
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
    plan = make(**{**settings, "version": version - 1, "full": full})
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
