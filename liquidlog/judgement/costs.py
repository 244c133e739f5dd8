"""The costs of readings and of rewrites in one unit, bytes read, and when one pays for the other.

Opening a file costs as much as reading 4 MiB (Spark's openCostInBytes). A byte written costs as
much as a byte read.
"""

from liquidlog.clustering.planning.read_model import OPEN_COST_BYTES
from liquidlog.plan import ClusteringPlan


def reading_cost(size_bytes: float, files: float) -> float:
    """Return the cost of reading `size_bytes` in `files` files, in bytes."""
    return size_bytes + OPEN_COST_BYTES * files


def rewrite_cost(plan: ClusteringPlan) -> int:
    """Return the cost of a plan in bytes: reading and writing its inputs, opening both.

    A rewrite of all inputs is assumed to write as many bytes as it reads.
    """
    opened = sum(len(group.inputs) + group.expected_outputs for group in plan.groups)
    return 2 * plan.size_bytes + OPEN_COST_BYTES * opened


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
