"""Whether a planned group can still be committed: its inputs and the table, against the plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.row_tracking import planned_row_tracking
from liquidlog.errors import CorruptLogError, UnsupportedFeatureError
from liquidlog.plan import ClusteringPlan, InputFiles, RewriteGroup, RewriteMode
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import parse_schema, quote_path

_NAMED: Final = 5

_VECTOR_ID: Final = ("storageType", "pathOrInlineDv", "offset")
_PLANNED_VECTOR_ID: Final = ("storage_type", "path_or_inline_dv", "offset")
"""Fields that identify a deletion vector: their names in snapshots and in plans."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staleness:
    """The reasons that prevent the commit of a planned group on top of `snapshot`.

    `reasons` are sentences; there are none if the group can be committed. `rows` (int64) numbers
    the rows of Snapshot.files that are inputs and live as planned, in the plan's order.
    """

    snapshot: Snapshot
    rows: NDArray[np.int64]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _InputRows:
    """The rows of Snapshot.files that are a group's inputs.

    `rows` (int64) has the row number of each live input, in the plan's order. `missing` lists the
    inputs whose path is not live, `changed` those that are live with another deletion vector.
    """

    rows: NDArray[np.int64]
    missing: tuple[str, ...]
    changed: tuple[str, ...]


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

    Its inputs must be live with the same decoded path and deletion vector; the table, its schema
    and its clustering columns must equal those of the plan. The live files are searched once for
    the inputs of all groups.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    found = _locate_inputs(snapshot, groups)
    return tuple(
        Staleness(
            snapshot=snapshot,
            rows=inputs.rows,
            reasons=tuple(_reasons(snapshot, plan, group, inputs)),
        )
        for group, inputs in zip(groups, found, strict=True)
    )


def _locate_inputs(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> Iterator[_InputRows]:
    """Yield the rows of each planned group's inputs among the live files."""
    inputs = pa.concat_tables(
        [InputFiles.of().columns, *(group.inputs.columns for group in groups)]
    )
    paths = inputs["path"].combine_chunks()
    positions = _positions(paths, snapshot.paths())
    live = positions >= 0
    found = snapshot.files["deletion_vector"].take(pa.array(positions[live])).combine_chunks()
    planned = inputs["deletion_vector"].filter(pa.array(live)).combine_chunks()
    changed = np.zeros(len(positions), np.bool_)
    changed[live] = _differ(planned, _PLANNED_VECTOR_ID, found, _VECTOR_ID)
    ends = np.cumsum([len(group.inputs) for group in groups])[:-1]
    parts = (np.split(values, ends) for values in (np.arange(len(paths)), positions, live, changed))
    for numbers, rows, is_live, is_changed in zip(*parts, strict=True):
        yield _InputRows(
            rows=rows[is_live & ~is_changed],
            missing=tuple(paths.take(pa.array(numbers[~is_live])).to_pylist()),
            changed=tuple(paths.take(pa.array(numbers[is_changed])).to_pylist()),
        )


def _positions(paths: pa.Array, live: pa.Array) -> NDArray[np.int64]:
    """Return the position of each of `paths` in `live` (int64), -1 if it is absent.

    The hash table is built from `paths`: there are far more live paths.
    """
    rows = np.flatnonzero(pc.is_in(live, value_set=paths))
    found = pc.index_in(paths, value_set=live.take(pa.array(rows)))
    among = pc.fill_null(found, -1).to_numpy()
    return np.where(among < 0, -1, np.append(rows, -1)[among])


def _reasons(
    snapshot: Snapshot, plan: ClusteringPlan, group: RewriteGroup, inputs: _InputRows
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


def _row_tracking_changes(
    snapshot: Snapshot, plan: ClusteringPlan, group: RewriteGroup, inputs: _InputRows
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
    renumbered = int(_differ(before, names, after, names).sum())
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


def _differ(
    one: pa.StructArray, its: Sequence[str], other: pa.StructArray, others: Sequence[str]
) -> NDArray[np.bool_]:
    """Return a mask of the rows where fields of two struct columns differ; null equals null."""
    differ = np.zeros(len(one), np.bool_)
    for name, twin in zip(its, others, strict=True):
        values, found = pc.struct_field(one, name), pc.struct_field(other, twin)
        unequal = pc.fill_null(pc.not_equal(values, found), fill_value=False)
        differ |= np.asarray(pc.or_(unequal, pc.xor(values.is_null(), found.is_null())))
    return differ
