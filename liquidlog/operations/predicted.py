"""Predict what a plan would bring, from statistics or from sampled rows."""

from collections.abc import Sequence

import numpy as np

from liquidlog.clustering.migration import bounds_with_values, migrated
from liquidlog.curve.nested import GroupSizes
from liquidlog.data.dictionaries import Values, all_values
from liquidlog.data.row_groups import ROW_GROUP_ROWS, foreseen_sizes
from liquidlog.errors import UsageError
from liquidlog.log.store import TableStore
from liquidlog.operations.row_groups import OpenedRowGroups, opened_row_groups
from liquidlog.operations.sampling import sample_keys, sample_whole_rows
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.sessions import Session
from liquidlog.predicates.workload import Workload
from liquidlog.simulation.grain import FirstValues, SizeRule
from liquidlog.simulation.inside import Footers, Inside
from liquidlog.simulation.prediction import Prediction, other_leaves, predict
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf, Mask


def predicted(
    store: TableStore,
    snapshot: Snapshot,
    plan: ClusteringPlan,
    workload: Workload,
    bounds_of: BoundsOf,
    *,
    now_ms: int,
    sample: bool = False,
    row_groups: bool = False,
) -> Prediction:
    """Return what a plan of this snapshot would bring to the readers of a workload.

    With no workload, readers are narrow. With `sample`, values of clustering columns, and of
    columns that predicates name, are read from some rows of some files. With `row_groups`, they are
    too, and so are footers of some files, and what readers open inside files is predicted.
    """
    if row_groups and not workload:
        raise UsageError(
            "row_groups has no effect without a workload: its predicates open row groups",
            option="row_groups",
        )
    if (sample or row_groups) and not plan.columns:
        option = "sample" if sample else "row_groups"
        raise UsageError(f"{option} has no effect: the plan orders rows by no columns")
    inside = _inside(store, snapshot, plan, now_ms) if row_groups else None
    if plan.is_migration:
        # With partition values as bounds, both layouts are judged by the same rules.
        bounds_of = bounds_with_values(snapshot, bounds_of)
        snapshot = migrated(snapshot, [column.logical for column in plan.columns])
    if not sample and inside is None:
        return predict(snapshot, plan, workload, bounds_of, now_ms=now_ms)
    also = other_leaves(snapshot, plan, workload) if workload else ()
    usual = None if inside is None else inside.rule.smallest
    samples = sample_keys(store, snapshot, plan, also, usual=usual)
    return predict(snapshot, plan, workload, bounds_of, samples, now_ms=now_ms, inside=inside)


def _inside(store: TableStore, snapshot: Snapshot, plan: ClusteringPlan, now_ms: int) -> Inside:
    """Return what files of the plan's table say of row groups, now and after the plan."""

    def footers_of(asked: Sequence[str], opened: Sequence[Mask]) -> Footers:
        session = Session.at_ms(now_ms)
        found = opened_row_groups(store, snapshot, asked, opened, session=session)
        numbers = [_numbers(reader) for reader in found.readers]
        return Footers.of(np.array(numbers, np.float64).reshape(-1, 4).T, found.files_sampled)

    rows = sample_whole_rows(store, plan) if plan.groups else None

    def sizes_of(values: Sequence[FirstValues], leeway: float) -> GroupSizes:
        if rows is None:
            return GroupSizes.wide(ROW_GROUP_ROWS)
        codec, paths = plan.writer_options.compression, [one.physical for one in plan.columns]
        instead = {path: Values(*one) for path, one in zip(paths, values, strict=True)}
        return foreseen_sizes(rows, compression=codec, instead=instead, leeway=leeway)

    rule = SizeRule(
        first_rows=ROW_GROUP_ROWS,
        smallest=GroupSizes.wide(ROW_GROUP_ROWS).usual,
        all_values=all_values,
        sizes_of=sizes_of,
    )
    return Inside(footers_of=footers_of, rule=rule)


def _numbers(reader: OpenedRowGroups) -> tuple[float, float, float | None, float | None]:
    return reader.files, reader.files_sampled, reader.opened, reader.bytes_opened
