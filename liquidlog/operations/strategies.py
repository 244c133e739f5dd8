"""Find planning strategies: our own, and those that other packages install as entry points."""

from collections.abc import Collection, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from liquidlog.clustering.settings import built_in
from liquidlog.errors import UsageError

# Names are asked for by commands that plan nothing, and planners take long to import.
if TYPE_CHECKING:
    from liquidlog.clustering.planning.choice import Strategy

STRATEGY_GROUP: Final = "liquidlog.strategies"
"""Group of entry points for further planning strategies, each a Strategy."""


def strategy_names() -> Collection[str]:
    """Return the names of all strategies; none of another package is loaded."""
    return (*built_in(), *entry_points(group=STRATEGY_GROUP).names)


def find_strategies(name: str) -> "Mapping[str, Strategy]":
    """Return our strategies and, if it is another, the installed one of that name."""
    from liquidlog.clustering.planning.planner import STRATEGIES
    from liquidlog.clustering.settings import check_known

    if name in STRATEGIES:
        return STRATEGIES
    installed = {point.name: point for point in entry_points(group=STRATEGY_GROUP)}
    check_known("strategy", name, (*STRATEGIES, *installed))
    try:
        return {**STRATEGIES, name: installed[name].load()}
    except Exception as error:  # importing another package may raise anything
        raise UsageError(f"the strategy {name} cannot be loaded: {error}", strategy=name) from error
