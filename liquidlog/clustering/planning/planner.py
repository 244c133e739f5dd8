"""Snapshot to plan: the mode that a table asks for, and the strategies by name."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa

from liquidlog.clustering.planning import cube, overlap
from liquidlog.clustering.planning.choice import NewId, Strategy, check_policy, check_table
from liquidlog.clustering.planning.compaction import plan_compaction, plan_zorder
from liquidlog.clustering.planning.options import (
    ALL_OPTIONS,
    CUBE_OPTIONS,
    OVERLAP_OPTIONS,
    require_effect,
)
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, repeated_inputs, repeated_message
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.schema import Leaf


def _cubes(
    snapshot: Snapshot, policy: ClusteringPolicy, new_id: NewId, _: BoundsOf
) -> ClusteringPlan:
    return cube.plan_cubes(snapshot, policy, new_id)


def no_bounds(_: Sequence[Leaf]) -> pa.Table:
    """Stand for bounds where none can be brought.

    Raises:
        UsageError: Always; a strategy that does without never calls it.
    """
    raise UsageError("this strategy needs the statistics of the files")


STRATEGIES: Final[Mapping[str, Strategy]] = {
    cube.NAME: _cubes,
    overlap.NAME: overlap.plan_overlap,
}
"""Strategies that are always there, by name."""

LISTENS: Final[Mapping[str, frozenset[str]]] = {
    cube.NAME: CUBE_OPTIONS,
    overlap.NAME: OVERLAP_OPTIONS,
}
"""The options that each of them uses. A strategy of another package is given every option of a
clustered table, and refuses with UsageError those that it does not use."""

CURVES: Final = ("hilbert", "kd", "zorder", "linear")


def plan(  # noqa: PLR0913  what a plan depends on
    snapshot: Snapshot,
    policy: ClusteringPolicy,
    *,
    new_id: NewId,
    strategy: str = cube.NAME,
    strategies: Mapping[str, Strategy] = STRATEGIES,
    bounds_of: BoundsOf = no_bounds,
    named: Collection[str] = (),
) -> ClusteringPlan:
    """Return what to rewrite at the snapshot's version.

    A table with clustering columns is clustered by the strategy named; without, it is compacted,
    or ordered by `policy.zorder_by`. The order of `snapshot.files` is the order in which files
    are considered; the same snapshot and policy give the same groups. `new_id` names the plan,
    then each group's cube; `bounds_of` brings bounds, to strategies that look at them. `named`
    are options that the caller gave, though perhaps with their defaults.

    Raises:
        UsageError: If the strategy or the curve is unknown, the policy asks for what a table of
            this kind cannot have, an option would have no effect, or the strategy lists an input
            twice.
        ClusteringColumnError: If a column cannot be clustered by, or the table's own clustering
            columns are not in its schema.
        UnsupportedFeatureError: If the table is partitioned.
        CorruptLogError: If the clustering domain cannot be read.
    """
    check_known("strategy", strategy, tuple(strategies))
    check_known("curve", policy.curve, CURVES)
    check_policy(policy)
    state = check_table(snapshot)
    listens = LISTENS.get(strategy, ALL_OPTIONS - {"zorder_by"})
    require_effect(policy, state.columns, named=named, strategy=strategy, listens=listens)
    if policy.zorder_by:
        return plan_zorder(snapshot, policy, new_id)
    if not state.columns:
        return plan_compaction(snapshot, policy, new_id)
    made = strategies[strategy](snapshot, policy, new_id, bounds_of)
    repeated = repeated_inputs(group.inputs for group in made.groups)
    if repeated:
        raise UsageError(f"the plan of the strategy {strategy} {repeated_message(repeated)}")
    return made


def check_known(kind: str, name: str, known: tuple[str, ...]) -> None:
    """Refuse a name that is not known.

    Raises:
        UsageError: With the names that are.
    """
    if name not in known:
        listed = ", ".join(sorted(known))
        raise UsageError(f"there is no {kind} {name!r}; known are {listed}", name=name)
