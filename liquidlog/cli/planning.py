"""From the planner's options to a plan, and to what it would bring."""

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import click

from liquidlog.cli.common import SIZE, gathered, split_names
from liquidlog.cli.usage import Number
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan
from liquidlog.simulation.prices import Prices
from liquidlog.table import Table

P = ParamSpec("P")
R = TypeVar("R")


def price_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that say what a rewrite costs; they arrive as one `prices`, or None."""
    return gathered(command, _PRICE_OPTIONS, _PRICES, "prices", _prices)


def _prices(given: Mapping[str, Any]) -> Prices | None:
    if "throughput" in given:
        return Prices(
            throughput_bytes=given["throughput"],
            per_hour=given.get("hour_price"),
            per_tib_read=given.get("tib_price"),
        )
    if given:
        raise UsageError("prices need --throughput: the bytes that the cluster rewrites a second")
    return None


_PRICES = ("throughput", "hour_price", "tib_price")
_PRICE_OPTIONS = (
    click.option("--throughput", type=SIZE, help="With a prediction: bytes rewritten a second."),
    click.option("--hour-price", type=Number(min=0), help="What the cluster costs."),
    click.option("--tib-price", type=Number(min=0), help="What reading a TiB costs."),
)


def make_plan(table: Table, policy: Mapping[str, Any]) -> ClusteringPlan:
    """Return the table's plan under the options given.

    Raises:
        UsageError: If an option has no effect, or a value that it cannot have.
    """
    return table.plan(**plan_arguments(policy))


def plan_arguments(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of Table.plan that the options mean.

    Raises:
        UsageError: If a list of columns is none.
    """
    options = dict(policy)
    if "zorder_by" in options:
        options["zorder_by"] = split_names(options["zorder_by"])
    return options
