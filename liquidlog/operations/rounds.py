"""OPTIMIZE in rounds, for as long as each lowers the table's average depth enough."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from liquidlog.clustering.health.measure import Health
from liquidlog.clustering.settings import policy_settings, settle
from liquidlog.errors import UsageError
from liquidlog.operations.strategies import strategy_names
from liquidlog.plan import ClusteringPlan
from liquidlog.snapshot import Snapshot

DEFAULT_MIN_GAIN: Final = 0.1
"""The least amount by which a round must lower the average depth."""

_STRATEGY: Final = "overlap"

Done = TypeVar("Done")


class Plannable(Protocol):
    """The methods of `Table` that rounds need."""

    def plan(self, *args: Any, **policy: Any) -> ClusteringPlan:  # noqa: ANN401  as Table.plan
        """Return the plan of what OPTIMIZE would rewrite."""
        ...

    def health(self) -> Health:
        """Return how well the table is clustered."""
        ...

    def predicted_health(self, plan: ClusteringPlan) -> Health:
        """Return the health that the table would have after a plan."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Generic[Done]):
    """One round: the return value of executing its plan, and the average depth afterwards.

    The depth is None if it is not measured.
    """

    done: Done
    average_depth: float | None


def require_rounds(strategy: str) -> None:
    """Refuse strategies that leave nothing for a second round."""
    if strategy != _STRATEGY:
        raise UsageError(
            f"rounds are for the strategy {_STRATEGY}; the strategy cube is done in one round",
            option="final",
        )


def require_rounds_of(snapshot: Snapshot, policy: Mapping[str, Any]) -> None:
    """Refuse arguments of a plan if their strategy, or else the table's, is not one for rounds."""
    given = policy_settings({"strategy": policy.get("strategy")})
    require_rounds(settle(snapshot, given, strategy_names).strategy)


def depth_after_round(
    table: Plannable, plan: ClusteringPlan, depth: float | None, min_gain: float = DEFAULT_MIN_GAIN
) -> float | None:
    """Return the predicted average depth after a plan, None if the plan gains too little.

    Args:
        table: The table of the plan.
        plan: The plan.
        depth: The table's average depth before it; if that is not measured, nothing is gained.
        min_gain: By how much the plan must lower it.
    """
    if not plan.groups or depth is None:
        return None
    after = table.predicted_health(plan).average_depth
    return after if after is not None and after <= depth - min_gain else None


def optimize_in_rounds(
    table: Plannable,
    execute: Callable[[ClusteringPlan], Done],
    policy: Mapping[str, Any],
    *,
    min_gain: float = DEFAULT_MIN_GAIN,
    first: ClusteringPlan | None = None,
) -> Iterator[Round[Done]]:
    """Yield each round once it is committed, until a round would not, or did not, gain enough.

    Args:
        table: The table.
        execute: Rewrites and commits a plan, as
            `lambda plan: table.commit(plan, liquidspark.execute(spark, plan))` does.
        policy: The arguments of `Table.plan`. The strategy is "overlap", there or in the table.
        min_gain: By how much a round must lower the average depth.
        first: The plan of the first round, if it has already been made.
    """
    plan = table.plan(**policy) if first is None else first
    require_rounds(plan.strategy)
    depth = table.health().average_depth
    while depth_after_round(table, plan, depth, min_gain) is not None:
        done = execute(plan)
        before, depth = depth, table.health().average_depth
        yield Round(done=done, average_depth=depth)
        if before is None or depth is None or depth > before - min_gain:
            return
        plan = table.plan(**policy)
