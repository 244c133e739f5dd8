"""A part of a large plan, small enough to be predicted soon, that stands for the whole.

What a rewrite of one group spares readers does not depend on other groups. So the groups of a part
tell, by their share of the bytes, what all groups spare.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec import structs

from liquidlog.plan import ClusteringPlan

MOST_FILES: Final = 4_000
"""Inputs and outputs of the groups that are predicted; at least one group is."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanPart:
    """A plan with some groups of another; `share` is their share of its bytes, above 0."""

    plan: ClusteringPlan
    share: float


def part_of(plan: ClusteringPlan, most_files: int = MOST_FILES) -> PlanPart:
    """Return groups spread evenly over the plan, with at most `most_files` files if possible."""
    files = [len(group.inputs) + group.expected_outputs for group in plan.groups]
    total, size_bytes = sum(files), plan.size_bytes
    if total <= most_files or len(files) < 2 or not size_bytes:  # noqa: PLR2004  no part of one
        return PlanPart(plan, 1.0)
    wanted = max(1, len(files) * most_files // total)
    # The middle of each of `wanted` equal stretches.
    chosen = ((np.arange(wanted) + 0.5) * len(files) / wanted).astype(np.int64).tolist()
    part = structs.replace(plan, groups=tuple(plan.groups[number] for number in chosen))
    return PlanPart(part, part.size_bytes / size_bytes)
