"""Make the plan of what OPTIMIZE would rewrite: from arguments, properties and defaults."""

import time
from collections.abc import Mapping
from typing import Any, Final

import pyarrow.compute as pc
from msgspec import structs

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planning.choice import NewId
from liquidlog.clustering.planning.planner import fitted_to, plan, readers_of, require_fitted
from liquidlog.clustering.settings import notes, policy_settings, remembered_readers, settle
from liquidlog.logs import Log, ms_since
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, FittedWorkload
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import render_size

_log: Final = Log(__name__)


def planned(
    snapshot: Snapshot,
    arguments: Mapping[str, Any],
    bounds_of: BoundsOf,
    new_id: NewId,
    workload: Workload | None = None,
    *,
    quietly: bool = False,
    require_fit: bool = True,
) -> ClusteringPlan:
    """Return the plan that `arguments`, by the names of Table.plan, ask for.

    Arguments that are None are what the table's properties say, else the defaults. The layout is
    fitted to the `workload`; without one, to the readers that the table remembers. Strategies that
    judge files do it by these readers too. With `require_fit`, a workload that the layout cannot be
    fitted to is refused. A plan that is made `quietly`, to be judged, is not logged.
    """
    began = time.perf_counter()
    settled = settle(snapshot, policy_settings(arguments))
    readers = _readers(snapshot, workload)
    made = plan(
        snapshot,
        ClusteringPolicy(**settled.settings),
        new_id=new_id,
        strategy=settled.strategy,
        bounds_of=bounds_of,
        named=settled.named,
        decided_by=settled.decided_by,
        readers=readers,
    )
    made = structs.replace(
        made,
        decided_by=dict(settled.decided_by),
        notes=notes(snapshot.metadata.configuration),
    )
    if made.columns and readers is not None:
        made = structs.replace(made, fitted=readers)
    elif workload:
        made = fitted_to(made, workload)  # of other columns than the table's
    if workload is not None and require_fit:
        require_fitted(made)
    if not quietly and _log.is_heard:
        _say_planned(made, ms_since(began))
    return made


def _readers(snapshot: Snapshot, workload: Workload | None) -> FittedWorkload | None:
    """Return what is asked of the table's clustering columns, None without any."""
    if workload is None:
        return remembered_readers(snapshot)
    columns = [column.logical for column in clustering_state(snapshot).columns]
    return readers_of(workload, columns, snapshot.schema) if columns and workload else None


def _say_planned(made: ClusteringPlan, duration_ms: int) -> None:
    _log.info(
        "plan %s of version %d of %s: %s, %s by %s, %d groups of %d files (%s), %d files left, in"
        " %d ms",
        made.plan_id,
        made.read_version,
        made.table_uri,
        made.mode.value,
        made.strategy,
        ", ".join(quote_path(column.logical) for column in made.columns) or "no columns",
        len(made.groups),
        sum(len(group.inputs) for group in made.groups),
        render_size(made.size_bytes),
        len(made.skipped),
        duration_ms,
    )
    for setting, by in made.decided_by.items():
        _log.debug("%s is decided by %s", setting, by)
    for group in made.groups:
        size = render_size(group.size_bytes)
        _log.debug("group %d: %d files, %s", group.group_id, len(group.inputs), size)
    for found in pc.value_counts(made.skipped.columns["reason"]).to_pylist():
        _log.debug("left: %d files, %s", found["counts"], found["values"])
