"""Whether a planned group can still be committed: its files and the table, against the plan."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.row_tracking import planned_row_tracking
from liquidlog.errors import CorruptLogError, UnsupportedFeatureError
from liquidlog.plan import ClusteringPlan, RewriteGroup, RewriteMode
from liquidlog.snapshot import Snapshot
from liquidlog.spec.growth import NewColumn
from liquidlog.spec.schema import parse_schema, quote_path
from liquidlog.spec.terms import FileTerms, metadata_changes, new_columns, protocol_changes

_VECTOR_ID: Final = ("storageType", "pathOrInlineDv", "offset")
_PLANNED_VECTOR_ID: Final = ("storage_type", "path_or_inline_dv", "offset")
"""Fields that identify a deletion vector: their names in snapshots and in plans."""

_KEPT: Final = ("size_bytes", "num_records", "zcube_id", "zorder_by")
_LIVE: Final = ("size", "num_records", "zcube_id", "zorder_by")
"""What must still be true of a kept file: the names in plans and in snapshots."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Located:
    """The rows of Snapshot.files that are some files of a group.

    `rows` (int64) has the row number of each file that is live as planned, in the plan's order.
    `missing` lists the files whose path is not live, `changed` those that are live as something
    else.
    """

    rows: NDArray[np.int64]
    missing: tuple[str, ...]
    changed: tuple[str, ...]


def locate_inputs(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> list[Located]:
    """Return where the inputs of each group are live.

    Those with another deletion vector are changed.
    """

    def differs(live: pa.Table, planned: pa.Table) -> NDArray[np.bool_]:
        found, expected = (table["deletion_vector"].combine_chunks() for table in (live, planned))
        return differ(expected, _PLANNED_VECTOR_ID, found, _VECTOR_ID)

    return list(_located(snapshot, [group.inputs.columns for group in groups], differs))


def locate_kept(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> list[Located]:
    """Return where the kept files of each group are live.

    Those with a deletion vector, another size, another row count or in another cube are changed.
    """

    def differs(live: pa.Table, planned: pa.Table) -> NDArray[np.bool_]:
        found, expected = _struct(live, _LIVE), _struct(planned, _KEPT)
        deleted = np.asarray(pc.is_valid(live["deletion_vector"]), np.bool_)
        return deleted | differ(expected, _KEPT, found, _LIVE)

    return list(_located(snapshot, [group.kept.columns for group in groups], differs))


def _located(
    snapshot: Snapshot,
    groups: Sequence[pa.Table],
    differs: Callable[[pa.Table, pa.Table], NDArray[np.bool_]],
) -> Iterator[Located]:
    """Yield where the files of each group are; the live files are searched once for all."""
    lengths = [files.num_rows for files in groups]
    if not sum(lengths):
        yield from (Located(rows=np.zeros(0, np.int64), missing=(), changed=()) for _ in groups)
        return
    planned = pa.concat_tables(groups)
    paths = planned["path"].combine_chunks()
    positions = _positions(paths, snapshot.paths())
    live = positions >= 0
    found = snapshot.files.take(pa.array(positions[live]))
    changed = np.zeros(len(positions), np.bool_)
    changed[live] = differs(found, planned.filter(pa.array(live)))
    ends = np.cumsum(lengths)[:-1]
    parts = (np.split(values, ends) for values in (np.arange(len(paths)), positions, live, changed))
    for numbers, rows, is_live, is_changed in zip(*parts, strict=True):
        yield Located(
            rows=rows[is_live & ~is_changed],
            missing=tuple(paths.take(pa.array(numbers[~is_live])).to_pylist()),
            changed=tuple(paths.take(pa.array(numbers[is_changed])).to_pylist()),
        )


def input_rows(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> tuple[NDArray[np.int64], ...]:
    """Return per group the row of Snapshot.files that is each input (int64), in the plan's order.

    The live files are searched once for all groups.

    Raises:
        ValueError: If an input is not live: the groups are of another snapshot.
    """
    if not groups:
        return ()
    columns = [group.inputs.columns["path"] for group in groups]
    paths = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    ends = np.cumsum([len(column) for column in columns])[:-1]
    rows = _positions(paths, snapshot.paths())
    if (rows < 0).any():
        raise ValueError("the plan is not of this snapshot: an input is not live")
    return tuple(np.split(rows, ends))


def _positions(paths: pa.Array, live: pa.Array) -> NDArray[np.int64]:
    """Return the position of each of `paths` in `live` (int64), -1 if it is absent.

    The hash table is built from `paths`: there are far more live paths.
    """
    rows = np.flatnonzero(pc.is_in(live, value_set=paths))
    found = pc.index_in(paths, value_set=live.take(pa.array(rows)))
    among = pc.fill_null(found, -1).to_numpy()
    return np.where(among < 0, -1, np.append(rows, -1)[among])


def _struct(files: pa.Table, names: Sequence[str]) -> pa.StructArray:
    columns = (files[name].combine_chunks() for name in names)
    plain = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in columns
    ]
    return pa.StructArray.from_arrays(plain, names=list(names))


def differ(
    one: pa.StructArray, its: Sequence[str], other: pa.StructArray, others: Sequence[str]
) -> NDArray[np.bool_]:
    """Return a mask of the rows where fields of two struct columns differ; null equals null."""
    unequal = np.zeros(len(one), np.bool_)
    for name, twin in zip(its, others, strict=True):
        values, found = pc.struct_field(one, name), pc.struct_field(other, twin)
        apart = pc.fill_null(pc.not_equal(values, found), fill_value=False)
        unequal |= np.asarray(pc.or_(apart, pc.xor(values.is_null(), found.is_null())))
    return unequal


_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staleness:
    """The reasons that prevent the commit of a planned group on top of `snapshot`.

    `reasons` are sentences; there are none if the group can be committed. `rows` and `kept` (int64)
    number the rows of Snapshot.files that are inputs and kept files, and live as planned, in the
    plan's order. `new_columns` came to the table after the plan: the group can be committed only if
    no input has one of them.
    """

    snapshot: Snapshot
    rows: NDArray[np.int64]
    kept: NDArray[np.int64]
    reasons: tuple[str, ...]
    new_columns: tuple[NewColumn, ...] = ()


def written_for(plan: ClusteringPlan) -> FileTerms | None:
    """Return what the outputs of a plan are written for, None if the plan does not say."""
    if not plan.terms:
        return None
    return FileTerms(table_id=plan.table_id, schema_string=plan.schema_string, table=plan.terms)


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
    same rows and in the same cube; the clustering columns must equal those of the plan, and the
    table's metadata and protocol must allow what was written for the plan's, see `spec.terms`. The
    live files are searched once for the inputs of all groups.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    terms = written_for(plan)
    new = () if terms is None else new_columns(terms, snapshot.metadata)
    found = zip(groups, locate_inputs(snapshot, groups), locate_kept(snapshot, groups), strict=True)
    return tuple(
        Staleness(
            snapshot=snapshot,
            rows=inputs.rows,
            kept=kept.rows,
            reasons=(*_reasons(snapshot, plan, group, inputs), *_changes_of_kept(kept)),
            new_columns=new,
        )
        for group, inputs, kept in found
    )


def _reasons(
    snapshot: Snapshot, plan: ClusteringPlan, group: RewriteGroup, inputs: Located
) -> Iterator[str]:
    if inputs.missing:
        yield f"{_listed(inputs.missing)} no longer in the table"
    if inputs.changed:
        yield f"{_listed(inputs.changed)} no longer with the rows that were read (deletions)"
    yield from _row_tracking_changes(snapshot, plan, group, inputs)
    yield from _changes_of_table(snapshot, plan)
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


def _changes_of_table(snapshot: Snapshot, plan: ClusteringPlan) -> Iterator[str]:
    """Yield every change since the plan that makes what was written for it invalid."""
    terms = written_for(plan)
    if terms is not None:
        yield from metadata_changes(terms, snapshot.metadata)
        yield from protocol_changes(terms, snapshot.protocol)
        return
    if snapshot.metadata.id != plan.table_id:
        yield f"the table's id is {snapshot.metadata.id}, not {plan.table_id}"
    if _schema_changed(snapshot, plan):
        yield "the table's schema changed"
    if snapshot.metadata.partition_columns:
        yield "the table became partitioned"


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
