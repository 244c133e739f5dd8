"""A part of a large plan, small enough to be predicted soon, that stands for the whole.

What a rewrite of one group spares readers does not depend on other groups. So some groups tell, by
their share of the bytes, what all groups spare. Of a very large table, these groups and as large a
share of the files that the plan leaves alone are taken for a small table of the same kind.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import structs

from liquidlog.clustering.outcome.staleness import input_rows
from liquidlog.plan import ClusteringPlan
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Mask

MOST_FILES: Final = 2_000
"""Inputs and outputs of the groups that are predicted; at least one group is."""

MANY_FILES: Final = 100_000
"""Of a table with more files, the groups are predicted in a part of the table."""


_SOON_FILES: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A part of a plan, and the table or the part of it that it is for.

    `share` is the share of the plan's bytes, `table_share` that of the table, both above 0. `files`
    marks the table's live files that are in the part; None if all are.
    """

    snapshot: Snapshot
    plan: ClusteringPlan
    share: float = 1.0
    table_share: float = 1.0
    files: Mask | None = None


def part_of(snapshot: Snapshot, plan: ClusteringPlan, most_files: int = MOST_FILES) -> Part:
    """Return groups spread evenly over the plan, with at most `most_files` files if possible."""
    files = [len(group.inputs) + group.expected_outputs for group in plan.groups]
    total, size_bytes = sum(files), plan.size_bytes
    if total <= most_files or len(files) < 2 or not size_bytes:  # noqa: PLR2004  no part of one
        return Part(snapshot=snapshot, plan=plan)
    wanted = max(1, len(files) * most_files // total)
    # The middle of each of `wanted` equal stretches.
    chosen = ((np.arange(wanted) + 0.5) * len(files) / wanted).astype(np.int64).tolist()
    part = structs.replace(plan, groups=tuple(plan.groups[number] for number in chosen))
    share = part.size_bytes / size_bytes
    if snapshot.files.num_rows <= MANY_FILES:
        return Part(snapshot=snapshot, plan=part, share=share)
    mask = _files(snapshot, plan, part, share)
    kept = replace(snapshot, files=snapshot.files.filter(pa.array(mask)), plain_files=None)
    return Part(snapshot=kept, plan=part, share=share, table_share=share, files=mask)


def is_soon_judged(plan: ClusteringPlan) -> bool:
    """Return whether a plan is so small that predicting what it brings takes a moment."""
    files = sum(len(group.inputs) + group.expected_outputs for group in plan.groups)
    return files + len(plan.skipped) <= _SOON_FILES


def _files(snapshot: Snapshot, plan: ClusteringPlan, part: ClusteringPlan, share: float) -> Mask:
    """Return a mask of the live files that the part takes, and of a share of the files left."""
    count = snapshot.files.num_rows
    mask, left = np.zeros(count, np.bool_), np.ones(count, np.bool_)
    left[np.concatenate(input_rows(snapshot, plan.groups))] = False
    mask[np.concatenate(input_rows(snapshot, part.groups))] = True
    others = np.flatnonzero(left)
    wanted = round(len(others) * share)
    mask[others[((np.arange(wanted) + 0.5) * len(others) / max(wanted, 1)).astype(np.int64)]] = True
    return mask
