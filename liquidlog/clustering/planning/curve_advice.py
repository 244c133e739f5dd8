"""Advice on the curve of a plan.

Source: docs/curves.md, which measures both curves.
"""

from typing import Final

from liquidlog.curve.fit import MAX_FITTED_DIMENSIONS
from liquidlog.plan import ClusteringPlan

_KD_PAYS_FROM_FILES: Final = 8


def would_kd_be_narrower(plan: ClusteringPlan) -> bool:
    """Return whether the curve `kd` would write narrower files than the plan's Hilbert curve.

    It would if the plan's files cannot be fitted to the Hilbert curve and there are many of them.
    """
    outputs = sum(group.expected_outputs for group in plan.groups)
    is_fitted = len(plan.columns) <= MAX_FITTED_DIMENSIONS
    return plan.curve == "hilbert" and not is_fitted and outputs >= _KD_PAYS_FROM_FILES
