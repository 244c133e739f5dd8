"""The costs of readings and of rewrites in one unit, bytes read, and when one pays for the other.

Opening a file costs as much as reading 4 MiB (Spark's openCostInBytes). A byte written costs as
much as a byte read. Before a rewrite, Spark starts, which takes as long as reading 1 GiB: 8 s at
128 MiB per second.
"""

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from liquidlog.clustering.planning.read_model import OPEN_COST_BYTES
from liquidlog.plan import ClusteringPlan

START_COST_BYTES: Final = 1 << 30
"""What a rewrite costs before it has read a byte."""

_Amount = TypeVar("_Amount", float, NDArray[np.float64])


def reading_cost(size_bytes: _Amount, files: _Amount) -> _Amount:
    """Return the cost of reading `size_bytes` in `files` files, in bytes."""
    return size_bytes + OPEN_COST_BYTES * files


def rewrite_cost(size_bytes: float, files: float) -> float:
    """Return the cost of a rewrite in bytes: its start, reading and writing, opening both.

    As many bytes are taken to be written as are read.

    Args:
        size_bytes: Of all inputs; without any, nothing is rewritten, and it costs nothing.
        files: Inputs and outputs.
    """
    return START_COST_BYTES + 2 * size_bytes + OPEN_COST_BYTES * files if files else 0.0


def plan_cost(plan: ClusteringPlan) -> int:
    """Return the cost of a plan in bytes."""
    files = sum(len(group.inputs) + group.expected_outputs for group in plan.groups)
    return round(rewrite_cost(plan.size_bytes, files))


def payback_days(cost_bytes: float, spared_bytes: float, readings_a_day: float) -> float | None:
    """Return after how many days readers have been spared what a rewrite costs.

    Args:
        cost_bytes: The cost of the rewrite.
        spared_bytes: What one reading is spared; None is returned if that is nothing.
        readings_a_day: All readings of the table in a day, of whatever predicate.
    """
    if spared_bytes <= 0 or readings_a_day <= 0:
        return None
    return cost_bytes / (spared_bytes * readings_a_day)
