"""Whether a planned group can still be committed: its files and the table, against the plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.outcome.located import Located, differ, locate_inputs, locate_kept
from liquidlog.clustering.row_tracking import planned_row_tracking
from liquidlog.errors import CorruptLogError, UnsupportedFeatureError
from liquidlog.plan import ClusteringPlan, RewriteGroup, RewriteMode
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import parse_schema, quote_path

_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staleness:
    """The reasons that prevent the commit of a planned group on top of `snapshot`.

    `reasons` are sentences; there are none if the group can be committed. `rows` and `kept` (int64)
    number the rows of Snapshot.files that are inputs and kept files, and live as planned, in the
    plan's order.
    """

    snapshot: Snapshot
    rows: NDArray[np.int64]
    kept: NDArray[np.int64]
    reasons: tuple[str, ...]


def staleness(snapshot: Snapshot, plan: ClusteringPlan, group: RewriteGroup) -> Staleness:
    """Return every reason why `group` cannot be committed on top of `snapshot`.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    return staleness_of(snapshot, plan, [group])[0]


def staleness_of(
    snapshot: Snapshot, plan: ClusteringPlan, groups: Sequence[RewriteGroup]
) -> tuple[Staleness, ...]:
    """Return, for each group, every reason why it cannot be committed on top of `snapshot`.

    Its inputs must be live with the same decoded path and deletion vector, its kept files with the
    same rows and in the same cube; the table, its schema and its clustering columns must equal
    those of the plan. The live files are searched once for the inputs of all groups.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    found = zip(groups, locate_inputs(snapshot, groups), locate_kept(snapshot, groups), strict=True)
    return tuple(
        Staleness(
            snapshot=snapshot,
            rows=inputs.rows,
            kept=kept.rows,
            reasons=(*_reasons(snapshot, plan, group, inputs), *_changes_of_kept(kept)),
        )
        for group, inputs, kept in found
    )


def _reasons(
    snapshot: Snapshot, plan: ClusteringPlan, group: RewriteGroup, inputs: Located
) -> Iterator[str]:
    if snapshot.metadata.id != plan.table_id:
        yield (
            f"the plan is for the table with id {plan.table_id},"
            f" this one has id {snapshot.metadata.id}"
        )
    if inputs.missing:
        yield f"{_listed(inputs.missing)} no longer in the table"
    if inputs.changed:
        yield f"{_listed(inputs.changed)} no longer with the rows that were read (deletions)"
    yield from _row_tracking_changes(snapshot, plan, group, inputs)
    if _schema_changed(snapshot, plan):
        yield "the table's schema changed"
    if snapshot.metadata.partition_columns:
        yield "the table became partitioned"
    yield from _clustering_changes(snapshot, plan)


def _changes_of_kept(kept: Located) -> Iterator[str]:
    if kept.missing:
        yield f"{_listed(kept.missing)} no longer in the table"
    if kept.changed:
        yield f"{_listed(kept.changed)} no longer with the rows or in the cube of the plan"


def _row_tracking_changes(
    snapshot: Snapshot, plan: ClusteringPlan, group: RewriteGroup, inputs: Located
) -> Iterator[str]:
    """Yield every change since the plan that makes the written row ids, or their absence, wrong."""
    try:
        now = planned_row_tracking(snapshot)
    except UnsupportedFeatureError as error:
        yield f"the table uses {', '.join(error.features)}"
        return
    if now != plan.row_tracking:
        yield "the table's row tracking changed"
    if now is None or not now.preserved or inputs.missing or inputs.changed:
        return
    rows = snapshot.files.take(pa.array(inputs.rows))
    names = ("base_row_id", "default_row_commit_version")
    before, after = (
        pa.StructArray.from_arrays([table[name].combine_chunks() for name in names], names=names)
        for table in (group.inputs.columns, rows)
    )
    renumbered = int(differ(before, names, after, names).sum())
    if renumbered:
        yield f"{renumbered} input file(s) got other row ids"


def _schema_changed(snapshot: Snapshot, plan: ClusteringPlan) -> bool:
    if snapshot.metadata.schema_string == plan.schema_string:
        return False
    try:
        return parse_schema(plan.schema_string, where="the plan") != snapshot.schema
    except CorruptLogError:
        return True


def _clustering_changes(snapshot: Snapshot, plan: ClusteringPlan) -> Iterator[str]:
    state = clustering_state(snapshot)
    now = tuple((column.logical, column.physical) for column in state.columns)
    planned = tuple((column.logical, column.physical) for column in plan.columns)
    expected = planned if plan.mode is RewriteMode.CLUSTERING else ()
    if now != expected or state.unresolved:
        before = ", ".join(quote_path(logical) for logical, _ in expected) or "none"
        after = ", ".join(state.names) or "none"
        yield f"the table's clustering columns changed from {before} to {after}"


def _listed(paths: tuple[str, ...]) -> str:
    shown = ", ".join(paths[:_NAMED])
    rest = len(paths) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"{shown}{more} {'is' if len(paths) == 1 else 'are'}"
