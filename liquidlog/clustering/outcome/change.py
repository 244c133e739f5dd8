"""From plan and result to a change: the actions that replace a group's inputs by its outputs.

A group is stale, and cannot be committed, if its inputs or the table differ from what was planned.

Source: PROTOCOL.md, "Add File and Remove File"; Delta Spark, OptimizeExecutor.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.row_tracking import PRESERVED_TAG, assign_row_ids, planned_row_tracking
from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.errors import (
    CommitConflictError,
    CorruptLogError,
    Outdated,
    ResultMismatchError,
    UnsupportedFeatureError,
)
from liquidlog.plan import (
    GROUP_ID_TAG,
    PLAN_ID_TAG,
    ClusteringPlan,
    PlannedColumn,
    RewriteGroup,
    RewriteMode,
    RewrittenGroup,
    WrittenFile,
    repeated_inputs,
    repeated_message,
)
from liquidlog.snapshot import Snapshot, deletion_vector
from liquidlog.spec.actions import (
    UNREADABLE,
    ZCUBE_ID,
    ZCUBE_ZORDER_BY,
    AddFile,
    RemoveFile,
)
from liquidlog.spec.change import Change
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

    Its inputs must be live with the same decoded path and deletion vector; the table, its schema
    and its clustering columns must equal those of the plan.

    Raises:
        CorruptLogError: If the clustering domain cannot be read.
    """
    inputs = _locate_inputs(snapshot, group)
    reasons = tuple(_reasons(snapshot, plan, group, inputs))
    return Staleness(snapshot=snapshot, rows=inputs.rows, reasons=reasons)


def _locate_inputs(snapshot: Snapshot, group: RewriteGroup) -> _InputRows:
    """Return the rows of a planned group's inputs among the live files."""
    inputs = group.inputs.columns
    paths = inputs["path"].combine_chunks()
    positions = _positions(paths, snapshot.paths())
    live = positions >= 0
    found = snapshot.files["deletion_vector"].take(pa.array(positions[live])).combine_chunks()
    planned = inputs["deletion_vector"].filter(pa.array(live)).combine_chunks()
    changed = np.zeros(len(positions), np.bool_)
    changed[live] = _differ(planned, _PLANNED_VECTOR_ID, found, _VECTOR_ID)
    return _InputRows(
        rows=positions[live & ~changed],
        missing=tuple(paths.filter(pa.array(~live)).to_pylist()),
        changed=tuple(paths.filter(pa.array(changed)).to_pylist()),
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


_REMOVED: Final = ("path", "size", "num_records", "base_row_id", "default_row_commit_version")
"""Columns of live files that a remove repeats unchanged."""

_PATH_SAFE: Final = "/!$&'()*+,;=:@-._~"
"""Characters that need no escape in the path of a URI. Source: RFC 2396, pchar and "/"."""


def rewrite_change(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    group: RewrittenGroup,
    *,
    now_ms: int,
    stale: Staleness | None = None,
) -> Change:
    """Return the change that commits a finished group: its adds, then the removes of its inputs.

    The removes repeat the add of each input as the current `snapshot` has it. `now_ms` (since 1970)
    becomes their deletion time. `stale` is the group's staleness against this snapshot, if the
    caller has computed it. If the table has row tracking, the adds get fresh row ids for the
    version after `snapshot`, and its high-water mark rises.

    Raises:
        ResultMismatchError: If the result belongs to another plan, or does not prove that every row
            of the inputs is in the outputs; lists every problem.
        CommitConflictError: If the table changed such that the group can no longer be committed.
        CorruptLogError: If the table's row ids contradict each other.
    """
    planned = planned_group(plan, group)
    problems = tuple(_mismatches(plan, planned, group))
    if problems:
        raise ResultMismatchError(problems)
    stale = stale or staleness(snapshot, plan, planned)
    if stale.reasons:
        conflicts = [Outdated(reason) for reason in stale.reasons]
        raise CommitConflictError(plan.read_version, conflicts)
    _check_outputs_are_new(snapshot, group)
    adds, domains = assign_row_ids(
        snapshot,
        list(_adds(plan, planned, group.outputs)),
        [file.num_records for file in group.outputs],
    )
    removes = tuple(_removes(snapshot, stale.rows, now_ms))
    return Change(
        operation="OPTIMIZE",
        parameters=_parameters(plan),
        actions=(*adds, *removes, *domains),
        metrics=_operation_metrics(adds, removes),
        is_blind_append=False,
        isolation_level="SnapshotIsolation",
        tags=_tags(plan, group),
    )


def planned_group(plan: ClusteringPlan, group: RewrittenGroup) -> RewriteGroup:
    """Return the group of the plan that a finished group is the result of.

    Raises:
        ResultMismatchError: If it belongs to another plan, or to no group of this one.
    """
    if group.plan_id != plan.plan_id:
        raise ResultMismatchError((f"the result is of plan {group.plan_id}, not {plan.plan_id}",))
    found = next((g for g in plan.groups if g.group_id == group.group_id), None)
    if found is None:
        raise ResultMismatchError((f"the plan has no group {group.group_id}",))
    return found


def _tags(plan: ClusteringPlan, group: RewrittenGroup) -> dict[str, str]:
    tags = {PLAN_ID_TAG: plan.plan_id, GROUP_ID_TAG: str(group.group_id)}
    if plan.row_tracking is not None and plan.row_tracking.preserved:
        tags[PRESERVED_TAG] = "true"
    return tags


def _check_outputs_are_new(snapshot: Snapshot, group: RewrittenGroup) -> None:
    paths = pa.array([file.path for file in group.outputs], pa.string())
    files = snapshot.paths()
    live = files.filter(pc.is_in(files, value_set=paths))
    if len(live):
        raise ResultMismatchError(
            tuple(f"the output {path} already is a file of the table" for path in live.to_pylist())
        )


def _mismatches(
    plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup
) -> Iterator[str]:
    repeated = repeated_inputs([planned.inputs])
    if repeated:
        yield f"the plan {repeated_message(repeated)}"
    yield from _row_mismatches(planned, group)
    if group.checksum_read != group.checksum_written:
        yield (
            f"the rows written are not the rows read: checksum {group.checksum_written},"
            f" expected {group.checksum_read}"
        )
    seen: set[str] = set()
    for file in group.outputs:
        if file.path in seen:
            yield f"the output {file.path} is listed twice"
        seen.add(file.path)
        yield from _output_problems(plan, file)


def _row_mismatches(planned: RewriteGroup, group: RewrittenGroup) -> Iterator[str]:
    if group.rows_read != group.rows_written:
        yield f"{group.rows_read} rows were read and {group.rows_written} written"
    counted = sum(file.num_records for file in group.outputs)
    if counted != group.rows_written:
        yield f"{group.rows_written} rows were written, the outputs hold {counted}"
    expected = planned.live_rows
    if expected is not None and expected != group.rows_read:
        yield f"the inputs hold {expected} live rows, {group.rows_read} were read"


def _output_problems(plan: ClusteringPlan, file: WrittenFile) -> Iterator[str]:
    if file.num_records <= 0 or file.size_bytes <= 0:
        yield f"the output {file.path} is empty"
    try:
        stats = msgspec.json.decode(file.stats, type=_OutputStats)
    except UNREADABLE as error:
        yield f"the statistics of {file.path} cannot be read: {error}"
        return
    if stats.num_records != file.num_records:
        yield (
            f"the statistics of {file.path} count {stats.num_records} rows, not {file.num_records}"
        )
    for column in plan.columns:
        if _at(stats.null_count, column) is None:
            yield f"{file.path} has no statistics for {quote_path(column.logical)}"


class _OutputStats(msgspec.Struct, rename="camel"):
    num_records: int
    null_count: dict[str, Any] = {}


def _at(document: Mapping[str, Any], column: PlannedColumn) -> object:
    value: Any = document
    for part in column.physical:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _adds(
    plan: ClusteringPlan, planned: RewriteGroup, outputs: Iterable[WrittenFile]
) -> Iterator[AddFile]:
    tags: dict[str, str | None] | None = None
    if planned.zcube_id is not None:
        tags = {ZCUBE_ID: planned.zcube_id, ZCUBE_ZORDER_BY: _names(plan)}
    for file in outputs:
        yield AddFile(
            path=quote(file.path, safe=_PATH_SAFE),
            partition_values={},
            size=file.size_bytes,
            modification_time=file.modification_time_ms,
            data_change=False,
            stats=file.stats,
            tags=tags,
            clustering_provider=PROVIDER if planned.zcube_id is not None else None,
        )


def _removes(snapshot: Snapshot, inputs: NDArray[np.int64], now_ms: int) -> Iterator[RemoveFile]:
    rows = snapshot.files.take(pa.array(inputs))
    columns = (rows[name].to_pylist() for name in _REMOVED)
    vectors = map(deletion_vector, rows["deletion_vector"].to_pylist())
    for path, size, records, row_id, row_version, vector, values, tags in zip(
        *columns,
        vectors,
        _decoded(rows["partition_values_json"]),
        _decoded(rows["tags_json"]),
        strict=True,
    ):
        yield RemoveFile(
            path=path,
            deletion_timestamp=now_ms,
            data_change=False,
            extended_file_metadata=True,
            partition_values=values or {},
            size=size,
            tags=tags,
            deletion_vector=vector,
            base_row_id=row_id,
            default_row_commit_version=row_version,
            stats=None if records is None else f'{{"numRecords":{records}}}',
        )


def _decoded(column: pa.ChunkedArray) -> Iterator[dict[str, str | None] | None]:
    """Yield the JSON object of each row, None for null; equal texts are decoded once."""
    values = column.combine_chunks()
    kinds = [msgspec.json.decode(text) for text in values.dictionary.to_pylist()]
    return (None if index is None else kinds[index] for index in values.indices.to_pylist())


def _names(plan: ClusteringPlan) -> str:
    return msgspec.json.encode([quote_path(column.logical) for column in plan.columns]).decode()


def _parameters(plan: ClusteringPlan) -> dict[str, object]:
    if plan.mode is RewriteMode.CLUSTERING:
        return {
            "clusterBy": _names(plan),
            "predicate": "[]",
            "auto": False,
            "isFull": plan.policy.full,
            "zOrderBy": "[]",
        }
    # The reference engine omits isFull if there are no clustering columns.
    return {"predicate": "[]", "zOrderBy": _names(plan), "clusterBy": "[]", "auto": False}


def _operation_metrics(
    adds: tuple[AddFile, ...], removes: tuple[RemoveFile, ...]
) -> dict[str, str]:
    added = sorted(file.size for file in adds)
    metrics = {
        "numRemovedFiles": len(removes),
        "numRemovedBytes": sum(file.size or 0 for file in removes),
        "numAddedFiles": len(added),
        "numAddedBytes": sum(added),
        "numDeletionVectorsRemoved": sum(file.deletion_vector is not None for file in removes),
    }
    if added:
        # Quartiles are elements, not interpolated, as in Delta Spark (FileSizeStats).
        metrics |= {
            "minFileSize": added[0],
            "p25FileSize": added[len(added) // 4],
            "p50FileSize": added[len(added) // 2],
            "p75FileSize": added[3 * len(added) // 4],
            "maxFileSize": added[-1],
        }
    return {name: str(value) for name, value in metrics.items()}
