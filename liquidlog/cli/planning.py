"""From the planner's options to a plan."""

from collections.abc import Mapping
from typing import Any

from liquidlog.cli.common import OVERLAP_OPTIONS, split_names
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan
from liquidlog.table import Table


def make_plan(table: Table, policy: Mapping[str, Any]) -> ClusteringPlan:
    """Return the table's plan under the options given.

    Raises:
        UsageError: If an option asks for what the strategy does not do.
    """
    return table.plan(**plan_arguments(policy))


def plan_arguments(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of Table.plan that the options mean.

    Raises:
        UsageError: If an option asks for what the strategy does not do.
    """
    options = dict(policy)
    for name in OVERLAP_OPTIONS:
        if name in options and options.get("strategy", "cube") == "cube":
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"the strategy cube always takes whole cubes and knows no {option};"
                " --strategy overlap does",
                option=option,
            )
    if "zorder_by" in options:
        options["zorder_by"] = split_names(options["zorder_by"])
    return options
