"""Explain why a planner takes a file or leaves it alone, file by file or counted by reason."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.keyspace.widths import key_space
from liquidlog.clustering.planning import overlap
from liquidlog.clustering.zcubes import sizes
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan, RewriteMode, SkipReason
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.text import Rows

_SKIP_WORDS: Final[Mapping[SkipReason, str]] = {
    SkipReason.STABLE_CUBE: "its cube has reached the minimum cube size and is left alone",
    SkipReason.OTHER_COLUMNS: "it was clustered by other columns; --full takes it",
    SkipReason.OTHER_PROVIDER: "another clustering provider owns it; --full takes it",
    SkipReason.LONE_CUBE: "all the files left belong to one cube: there is nothing to merge",
    SkipReason.LARGE_ENOUGH: "it already has at least the maximum file size",
    SkipReason.LONE_FILE: "no other small file is left to combine it with",
    SkipReason.WELL_CLUSTERED: "its range is narrow enough: rewriting it would gain too little",
    SkipReason.OVER_BUDGET: "it is worth rewriting, but the budget went to files that gain more",
    SkipReason.NOT_ASKED_FOR: "the predicate of this plan cannot touch it",
}

_GOALS: Final[Mapping[RewriteMode, str]] = {
    RewriteMode.CLUSTERING: "into new cubes",
    RewriteMode.ZORDER: "along the Z-order curve",
    RewriteMode.COMPACTION: "into larger files",
}


_KEPT: Final = "lies_well"
_KEPT_WORDS: Final = "it is narrow already: it joins the new cube with its bytes unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The files with the same decision for the same reason: count, bytes, and some paths."""

    decision: str
    reason: str
    detail: str
    files: int
    size_bytes: int
    paths: tuple[str, ...]


def explain_together(plan: ClusteringPlan, *, examples: int) -> tuple[Explained, ...]:
    """Return the planner's decisions counted by reason, rewrites first.

    Each has its first `examples` paths in sorted order. Files are counted as columns, so this is
    fast for a million files.
    """
    return tuple(_explained(plan, examples))


def _explained(plan: ClusteringPlan, examples: int) -> Iterator[Explained]:
    if plan.groups:
        inputs = (group.inputs.columns.select(["path", "size_bytes"]) for group in plan.groups)
        words = f"rewritten {_GOALS[plan.mode]}: {len(plan.groups)} group(s)"
        yield _counted("rewrite", plan.mode.value, words, pa.concat_tables(inputs), examples)
    kept = [group.kept.columns for group in plan.groups if len(group.kept)]
    if kept:
        yield _counted("keep", _KEPT, _KEPT_WORDS, pa.concat_tables(kept), examples)
    reasons = plan.skipped.columns["reason"].cast(pa.string())
    for name in sorted(pc.unique(reasons).to_pylist()):
        left = plan.skipped.columns.filter(pc.equal(reasons, name))
        yield _counted("skip", name, _SKIP_WORDS[SkipReason(name)], left, examples)


def _counted(decision: str, reason: str, detail: str, files: pa.Table, examples: int) -> Explained:
    paths = files["path"]
    first = pc.select_k_unstable(paths, examples, [("path", "ascending")])
    return Explained(
        decision=decision,
        reason=reason,
        detail=detail,
        files=files.num_rows,
        size_bytes=int(pc.sum(files["size_bytes"]).as_py() or 0),
        paths=tuple(sorted(paths.take(first).to_pylist())),
    )


def explain(
    plan: ClusteringPlan, snapshot: Snapshot, bounds_of: BoundsOf, path: str | None = None
) -> Rows:
    """Return the planner's decision on every live file, in words, sorted by path.

    `snapshot` is the table at the plan's read version. With `path`, only that file is explained.
    """
    measures = _measures(snapshot, bounds_of, path) if plan.strategy == overlap.NAME else {}
    taken = [
        {
            "path": file.path,
            "decision": "rewrite",
            "reason": plan.mode.value,
            "detail": _taken_words(plan, group.group_id, file.size_bytes)
            + measures.get(file.path, ""),
        }
        for group in plan.groups
        for file in group.inputs.named(path)
    ]
    skipped = [
        {
            "path": file.path,
            "decision": "skip",
            "reason": file.reason.value,
            "detail": f"{_SKIP_WORDS[file.reason]} ({file.size_bytes} bytes)"
            + measures.get(file.path, ""),
        }
        for file in plan.skipped.named(path)
    ]
    kept = [
        {
            "path": file.path,
            "decision": "keep",
            "reason": _KEPT,
            "detail": f"{_KEPT_WORDS} {group.zcube_id} ({file.size_bytes} bytes)"
            + measures.get(file.path, ""),
        }
        for group in plan.groups
        for file in group.kept.named(path)
    ]
    if path is not None and not (taken or kept or skipped):
        raise UsageError(
            f"{path} is not a live file of {snapshot.uri} at version {snapshot.version};"
            " give its path as files shows it",
            path=path,
        )
    return Rows(sorted([*taken, *kept, *skipped], key=lambda row: row["path"]))


def _measures(snapshot: Snapshot, bounds_of: BoundsOf, path: str | None) -> Mapping[str, str]:
    """Return by path, per live file or for one, the measures that the strategy overlap uses."""
    columns = clustering_state(snapshot).columns
    bounds = bounds_of([column.leaf for column in columns])
    space = key_space(bounds, sizes(snapshot.files))
    live = pa.table(
        {
            "path": snapshot.paths(),
            "width": pa.array(space.widths),
            "depth": pa.array(space.mean_depths),
        }
    )
    if path is not None:
        live = live.filter(pc.equal(live["path"], path))
    rows = zip(*(column.to_pylist() for column in live.columns), strict=True)
    return {
        name: f"; it spans {width:.2%} of the keys, on average beside {depth - 1:.1f} other file(s)"
        for name, width, depth in rows
    }


def _taken_words(plan: ClusteringPlan, group_id: int, size_bytes: int) -> str:
    group = plan.groups[group_id]
    others = len(group.inputs) - 1
    goal = f"into cube {group.zcube_id}" if group.zcube_id else _GOALS[plan.mode]
    return f"{size_bytes} bytes, rewritten with {others} other file(s) of group {group_id} {goal}"
