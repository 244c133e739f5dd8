"""Make the plan of what OPTIMIZE would rewrite: from arguments, properties and defaults."""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from liquidlog.clustering.planning.choice import NewId
from liquidlog.clustering.planning.planner import plan, policy_settings
from liquidlog.clustering.planning.readers import fitted_to, require_fitted
from liquidlog.clustering.planning.remembered import remembered_readers, settle
from liquidlog.clustering.properties import notes
from liquidlog.operations.strategies import find_strategies, strategy_names
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf


def planned(
    snapshot: Snapshot,
    arguments: Mapping[str, Any],
    bounds_of: BoundsOf,
    new_id: NewId,
    workload: Workload | None = None,
) -> ClusteringPlan:
    """Return the plan that `arguments`, by the names of Table.plan, ask for.

    Arguments that are None are what the table's properties say, else the defaults. The layout is
    fitted to the `workload`; without one, to the readers that the table remembers.

    Raises:
        UsageError: If the table cannot be planned with these arguments, an argument or the workload
            would have no effect, or a property that has an effect has a wrong value.
        ClusteringColumnError: If a column cannot be clustered by.
        UnsupportedFeatureError: If the table cannot be planned.
    """
    settled = settle(snapshot, policy_settings(arguments), strategy_names)
    made = plan(
        snapshot,
        ClusteringPolicy(**settled.settings),
        new_id=new_id,
        strategy=settled.strategy,
        strategies=find_strategies(settled.strategy),
        bounds_of=bounds_of,
        named=settled.named,
        decided_by=settled.decided_by,
    )
    made = structs.replace(
        made,
        decided_by=dict(settled.decided_by),
        notes=notes(snapshot.metadata.configuration),
    )
    if workload is None:
        readers = remembered_readers(snapshot)
        return made if readers is None else structs.replace(made, fitted=readers)
    made = fitted_to(made, workload)
    require_fitted(made)
    return made
