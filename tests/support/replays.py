"""Past OPTIMIZE commits beside plans for the versions before them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from liquidlog.errors import UsageError, VersionNotFoundError
from liquidlog.log.segment import list_log, read_commit
from liquidlog.log.store import TableStore
from liquidlog.plan import ClusteringPlan
from liquidlog.spec.actions import RemoveFile
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
    removed = (action.path for action in commit.actions if isinstance(action, RemoveFile))
    taken = {canonical_path(path) for path in removed}
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
