"""Checks that a planned group can still be committed, also without rows that others deleted.

A commit *follows* deletions: it deletes the same rows from the group's outputs. That is possible if
others only deleted rows, and not too many.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import clustering_state, planned_row_tracking
from liquidlog.errors import Conflict, CorruptLogError, UnsupportedFeatureError
from liquidlog.plan import (
    ClusteringPlan,
    InputFile,
    InputFiles,
    RewriteGroup,
    RewriteMode,
    RewrittenGroup,
)
from liquidlog.snapshot import Snapshot, deletion_vector, distinct_values
from liquidlog.spec.actions import Course, DeletionVector, Fate, FileKey
from liquidlog.spec.arrow import one_array
from liquidlog.spec.bounds import Mask
from liquidlog.spec.evolution import (
    FileTerms,
    NewColumn,
    metadata_changes,
    new_columns,
    partitioning_changes,
    protocol_changes,
)
from liquidlog.spec.partitions import READ_AS, in_zone, same_value
from liquidlog.spec.schema import parse_schema, quote_path

Courses = Callable[[FileKey, int], Course]
"""Function from a logical file and the number of rows that its vector deletes to its course."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcilable:
    """The deletions that a commit can follow: up to a share of the rows, by the files' courses."""

    course: Courses
    max_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedInput:
    """An input of which others deleted `rows`; `vector` is the newest, None without the file."""

    file: InputFile
    vector: DeletionVector | None
    rows: int | None
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TooManyDeletedRows(Conflict):
    """Other commits deleted more of a group's rows than its commit may delete from its outputs."""

    kind = "too_many_deleted_rows"
    rows: int
    live_rows: int
    max_share: float

    def __str__(self) -> str:
        return (
            f"other commits deleted {self.rows} of the {self.live_rows} rows of the inputs, more"
            f" than {100 * self.max_share:g} %; max_reconciled_share says how many may be deleted"
            " from the outputs"
        )


def input_key(file: InputFile) -> tuple[FileKey, int]:
    """Return the logical file of a planned input, and how many rows its vector deletes."""
    vector = file.deletion_vector
    if vector is None:
        return (file.path, None), 0
    return (file.path, vector.descriptor.unique_id), vector.cardinality


def deleted_input(
    file: InputFile, vector: DeletionVector | None, reconcilable: Reconcilable
) -> DeletedInput | None:
    """Return the deletions from a changed input, None if they are not clear."""
    key, deleted_before = input_key(file)
    course = reconcilable.course(key, deleted_before)
    if course.fate is Fate.REMOVED and vector is None:
        records = file.num_records
        rows = None if records is None else records - deleted_before
    elif course.fate is Fate.DELETED_FROM and vector is not None and course.vector == vector:
        rows = vector.cardinality - deleted_before
    else:
        return None
    return DeletedInput(file=file, vector=vector, rows=rows, versions=course.versions)


def deleted_inputs(group: RewriteGroup, reconcilable: Reconcilable) -> tuple[DeletedInput, ...]:
    found = (
        deleted_input(file, reconcilable.course(*input_key(file)).vector, reconcilable)
        for file in group.inputs
    )
    return tuple(one for one in found if one is not None)


def lasting_reasons(group: RewriteGroup, deleted: Sequence[DeletedInput]) -> Iterator[str]:
    """Yield why no commit can ever follow these deletions, however many rows it may delete."""
    if not deleted:
        return
    removals = sorted({one.versions[-1] for one in deleted if one.vector is None})
    gone = sum(one.vector is None for one in deleted)
    if gone == len(group.inputs):
        versions = ", ".join(map(str, removals))
        yield f"none of the {gone} input file(s) is left: version(s) {versions} removed them"
        return
    rows = deleted_rows(deleted)
    if rows is None or group.live_rows is None:
        yield "other commits deleted rows of inputs, and the log does not say of how many"
    elif rows >= group.live_rows:
        yield f"other commits deleted all {group.live_rows} rows of the inputs"


def excess(
    group: RewriteGroup, deleted: Sequence[DeletedInput], reconcilable: Reconcilable
) -> TooManyDeletedRows | None:
    """Return the conflict if more rows were deleted than a commit may follow, else None."""
    rows, live_rows, most = deleted_rows(deleted), group.live_rows, reconcilable.max_share
    if rows is None or live_rows is None or rows <= most * live_rows:
        return None
    if any(lasting_reasons(group, deleted)):
        return None
    return TooManyDeletedRows(rows, live_rows, most)


def deleted_rows(deleted: Sequence[DeletedInput]) -> int | None:
    """Return how many live rows of the plan were deleted in all, None if that is not known."""
    rows = [one.rows for one in deleted]
    return None if None in rows else sum(count for count in rows if count is not None)


def partition_mismatches(
    plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup
) -> Iterator[str]:
    """Yield why a finished group's outputs are not in the planned group's partition."""
    found = group.partition_values or {}
    if found != planned.partition_values:
        yield (
            f"the outputs of group {group.group_id} have the partition values {found}, expected"
            f" {planned.partition_values}"
        )
    if set(planned.partition_values) != set(plan.partitioned_by):
        listed = ", ".join(plan.partitioned_by) or "none"
        yield f"group {group.group_id} has values of other partition columns than {listed}"


def partition_changes(
    snapshot: Snapshot, group: RewriteGroup, inputs: NDArray[np.int64]
) -> Iterator[str]:
    """Yield a sentence if inputs are in another partition than the group's outputs will be."""
    kinds = {field.physical_name: field.data_type for field in snapshot.schema.fields}
    if not group.partition_values or group.partition_values.keys() - kinds.keys():
        return  # other partition columns are a change of the table, which is found elsewhere
    for document in distinct_values(snapshot.files.take(pa.array(inputs))).documents:
        if any(
            same_value(document.get(name), kinds[name]) != same_value(text, kinds[name])
            for name, text in group.partition_values.items()
        ):
            yield (
                f"inputs of group {group.group_id} have the partition values {document}, expected"
                f" {group.partition_values}"
            )
            return


def value_changes(
    snapshot: Snapshot,
    group: RewriteGroup,
    positions: NDArray[np.int64],
    is_changed: Mask,
    time_zone: str,
) -> Iterator[str]:
    """Yield a sentence if inputs have other partition values than the outputs hold."""
    values = group.inputs.columns["partition_values"]
    if values.null_count == len(values):
        return
    there = (positions >= 0) & ~is_changed
    planned = values.filter(pa.array(there)).to_pylist(maps_as_pydicts="strict")
    found = distinct_values(snapshot.files.take(pa.array(positions[there])))
    documents = [in_zone(one, snapshot.schema.fields, time_zone) for one in found.documents]
    for number, expected in zip(found.number.tolist(), planned, strict=True):
        if documents[number] != expected:
            yield (
                f"inputs of group {group.group_id} have the partition values"
                f" {documents[number]}, expected {expected}"
            )
            return


_VECTOR_ID: Final = {
    "storage_type": "storageType",
    "path_or_inline_dv": "pathOrInlineDv",
    "offset": "offset",
}
"""Fields that identify a deletion vector: their names in plans and in snapshots."""
_KEPT: Final = {"size_bytes": "size", **{n: n for n in ("num_records", "zcube_id", "zorder_by")}}
"""Fields of a kept file that must not change: their names in plans and in snapshots."""
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Placed:
    """The rows (`positions`) of a group's files in Snapshot.files, -1 where a path is not live.

    `is_missing` marks files that should be live, `is_changed` files that are not as planned.
    """

    paths: pa.Array
    positions: NDArray[np.int64]
    is_missing: Mask
    is_changed: Mask

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row numbers of the live files that are as planned."""
        return self.positions[(self.positions >= 0) & ~self.is_changed]

    def named(self, mask: Mask) -> tuple[str, ...]:
        return tuple(self.paths.filter(pa.array(mask)).to_pylist())


def _other_vector(planned: pa.Table, live: pa.Table) -> Mask:
    expected, found = (one_array(table["deletion_vector"]) for table in (planned, live))
    pairs = _VECTOR_ID.items()
    return _differ([(pc.struct_field(expected, a), pc.struct_field(found, b)) for a, b in pairs])


def _other_kept(planned: pa.Table, live: pa.Table) -> Mask:
    return _differ([(planned[name], live[twin]) for name, twin in _KEPT.items()])


def _located(
    snapshot: Snapshot, groups: Sequence[pa.Table], differs: Callable[[pa.Table, pa.Table], Mask]
) -> Iterator[_Placed]:
    """Yield the places of each group's files; live files that differ are changed."""
    lengths = [files.num_rows for files in groups]
    planned = pa.concat_tables(groups)
    paths = one_array(planned["path"])
    positions = _positions(paths, snapshot.paths()) if len(paths) else np.zeros(0, np.int64)
    live = positions >= 0
    changed = np.zeros(len(positions), np.bool_)
    if live.any():
        found = snapshot.files.take(pa.array(positions[live]))
        changed[live] = differs(planned.filter(pa.array(live)), found)
    starts = np.cumsum([0, *lengths]).tolist()
    for start, stop in pairwise(starts):
        part = slice(start, stop)
        yield _Placed(
            paths=paths[part],
            positions=positions[part],
            is_missing=~live[part],
            is_changed=changed[part],
        )


def input_rows(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> tuple[NDArray[np.int64], ...]:
    """Return per group the row of Snapshot.files that is each input (int64), in its order."""
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
    """Return the position of each of few `paths` among many `live` ones (int64), or -1."""
    rows = np.flatnonzero(pc.is_in(live, value_set=paths))
    found = pc.index_in(paths, value_set=live.take(pa.array(rows)))
    among = pc.fill_null(found, -1).to_numpy()
    return np.where(among < 0, -1, np.append(rows, -1)[among])


def _differ(columns: Sequence[tuple[pa.Array, pa.Array]]) -> Mask:
    """Return a mask of the rows where two columns of a pair differ; null equals null."""
    unequal = np.zeros(len(columns[0][0]), np.bool_)
    for values, others in columns:
        found = pc.cast(others, values.type)
        apart = pc.fill_null(pc.not_equal(values, found), fill_value=False)
        unequal |= np.asarray(pc.or_(apart, pc.xor(values.is_null(), found.is_null())), np.bool_)
    return unequal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staleness:
    """The reasons that prevent the commit of a planned group on top of `snapshot`.

    `rows` and `kept` (int64) are rows of Snapshot.files: inputs and kept files. No input may have
    one of the `new_columns`. If others `deleted` rows of inputs, the group can be committed only
    without these rows, and not if there is an `excess` of them. Files in `gone` were removed.
    """

    snapshot: Snapshot
    rows: NDArray[np.int64]
    kept: NDArray[np.int64]
    reasons: tuple[str, ...]
    new_columns: tuple[NewColumn, ...] = ()
    deleted: tuple[DeletedInput, ...] = ()
    excess: TooManyDeletedRows | None = None
    gone: tuple[str, ...] = ()

    @property
    def conflicts(self) -> tuple[str | TooManyDeletedRows, ...]:
        """The reasons, and the excess of deleted rows."""
        return self.reasons if self.excess is None else (*self.reasons, self.excess)


def written_for(plan: ClusteringPlan) -> FileTerms | None:
    """Return the terms that the outputs of a plan are written for, None if the plan has none."""
    if not plan.terms:
        return None
    return FileTerms(
        table_id=plan.table_id,
        schema_string=plan.schema_string,
        table=plan.terms,
        partition_columns=plan.partitioned_by or plan.formerly_partitioned_by,
    )


def staleness_of(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    groups: Sequence[RewriteGroup],
    reconcilable: Reconcilable | None = None,
) -> tuple[Staleness, ...]:
    """Return, for each group, every reason why it cannot be committed on top of `snapshot`."""
    terms = written_for(plan)
    new = () if terms is None else new_columns(terms, snapshot.metadata)
    changes = tuple(table_changes(snapshot, plan))
    zone = plan.policy.partition_time_zone or READ_AS

    def changed_kept(planned: pa.Table, live: pa.Table) -> Mask:
        is_deleted_from = np.asarray(pc.is_valid(live["deletion_vector"]), np.bool_)
        return _other_kept(planned, live) | is_deleted_from

    inputs_of = _located(snapshot, [one.inputs.columns for one in groups], _other_vector)
    kept_of = _located(snapshot, [one.kept.columns for one in groups], changed_kept)
    stale = []
    for group, *placed in zip(groups, inputs_of, kept_of, strict=True):
        inputs, kept = placed
        deleted: tuple[DeletedInput, ...] = ()
        if reconcilable is not None:
            inputs, deleted = _without_deleted(snapshot, group, inputs, reconcilable)
            kept = _without_deleted_kept(snapshot, group, kept, reconcilable)
        reasons = (
            *_file_changes(inputs, "with the rows that were read (deletions)"),
            *partition_changes(snapshot, group, inputs.rows),
            *value_changes(snapshot, group, inputs.positions, inputs.is_changed, zone),
            *_row_tracking_changes(snapshot, plan, group, inputs),
            *changes,
            *_file_changes(kept, "with the rows or in the cube of the plan"),
            *lasting_reasons(group, deleted),
        )
        stale.append(
            Staleness(
                snapshot=snapshot,
                rows=inputs.rows,
                kept=kept.rows,
                reasons=reasons,
                new_columns=new,
                deleted=deleted,
                gone=tuple(
                    path
                    for one in (inputs, kept)
                    for path in one.named((one.positions < 0) & ~one.is_missing)
                ),
                excess=None if reconcilable is None else excess(group, deleted, reconcilable),
            )
        )
    return tuple(stale)


def _without_deleted(
    snapshot: Snapshot, group: RewriteGroup, inputs: _Placed, reconcilable: Reconcilable
) -> tuple[_Placed, tuple[DeletedInput, ...]]:
    numbers = np.flatnonzero(inputs.is_missing | _with_other_vector(snapshot, group, inputs))
    files = InputFiles(group.inputs.columns.take(pa.array(numbers)))
    found = [
        deleted_input(file, vector, reconcilable)
        for file, vector in zip(files, _vectors(snapshot, inputs, numbers), strict=True)
    ]
    clear = numbers[[one is not None for one in found]]
    return _cleared(inputs, clear), tuple(one for one in found if one is not None)


def _with_other_vector(snapshot: Snapshot, group: RewriteGroup, inputs: _Placed) -> Mask:
    """Return a mask of the changed inputs that differ only in their vectors."""
    mask = inputs.is_changed.copy()
    numbers = np.flatnonzero(mask)
    planned = group.inputs.columns.take(pa.array(numbers))
    live = snapshot.files.take(pa.array(inputs.positions[numbers]))
    # Rows that one of the two does not count may be the same.
    same_rows = pc.fill_null(pc.equal(planned["num_records"], live["num_records"]), fill_value=True)
    mask[numbers] = np.asarray(pc.and_(pc.equal(planned["size_bytes"], live["size"]), same_rows))
    return mask


def _without_deleted_kept(
    snapshot: Snapshot, group: RewriteGroup, kept: _Placed, reconcilable: Reconcilable
) -> _Placed:
    numbers = np.flatnonzero(kept.is_missing | kept.is_changed)
    changed = numbers[kept.is_changed[numbers]]
    live = snapshot.files.take(pa.array(kept.positions[changed]))
    other = np.zeros(len(kept.positions), np.bool_)
    other[changed] = _other_kept(group.kept.columns.take(pa.array(changed)), live)
    vectors = _vectors(snapshot, kept, numbers)
    paths = kept.paths.take(pa.array(numbers)).to_pylist()
    courses = [reconcilable.course((path, None), 0) for path in paths]
    clear = [
        course.fate is (Fate.REMOVED if row < 0 else Fate.DELETED_FROM) and course.vector == vector
        for course, vector, row in zip(courses, vectors, kept.positions[numbers], strict=True)
    ]
    return _cleared(kept, numbers[np.array(clear, np.bool_) & ~other[numbers]])


def _vectors(
    snapshot: Snapshot, files: _Placed, numbers: NDArray[np.int64]
) -> list[DeletionVector | None]:
    rows = files.positions[numbers]
    live = snapshot.files["deletion_vector"].take(pa.array(rows[rows >= 0])).to_pylist()
    found = iter(live)
    return [None if row < 0 else deletion_vector(next(found)) for row in rows]


def _cleared(files: _Placed, numbers: NDArray[np.int64]) -> _Placed:
    is_missing, is_changed = files.is_missing.copy(), files.is_changed.copy()
    is_missing[numbers] = is_changed[numbers] = False
    return replace(files, is_missing=is_missing, is_changed=is_changed)


def _file_changes(files: _Placed, as_planned: str) -> Iterator[str]:
    for mask, where in ((files.is_missing, "in the table"), (files.is_changed, as_planned)):
        paths = files.named(mask)
        if paths:
            rest = len(paths) - _NAMED
            more = f" and {rest} more" if rest > 0 else ""
            verb = "is" if len(paths) == 1 else "are"
            yield f"{', '.join(paths[:_NAMED])}{more} {verb} no longer {where}"


def _row_tracking_changes(
    snapshot: Snapshot, plan: ClusteringPlan, group: RewriteGroup, inputs: _Placed
) -> Iterator[str]:
    """Yield every change since the plan that makes the written row ids, or their absence, wrong."""
    try:
        now = planned_row_tracking(snapshot)
    except UnsupportedFeatureError as error:
        yield f"the table uses {', '.join(error.features)}"
        return
    if now != plan.row_tracking:
        yield "the table's row tracking changed"
    if now is None or not now.preserved or (inputs.is_missing | inputs.is_changed).any():
        return
    rows = snapshot.files.take(pa.array(inputs.rows))
    planned = group.inputs.columns.filter(pa.array(inputs.positions >= 0))
    names = ("base_row_id", "default_row_commit_version")
    renumbered = int(_differ([(planned[name], rows[name]) for name in names]).sum())
    if renumbered:
        yield f"{renumbered} input file(s) got other row ids"


def table_changes(snapshot: Snapshot, plan: ClusteringPlan) -> Iterator[str]:
    """Yield every change since a plan that makes its written files invalid."""
    terms = written_for(plan)
    if terms is not None:
        yield from metadata_changes(terms, snapshot.metadata)
        yield from protocol_changes(terms, snapshot.protocol)
    else:
        if snapshot.metadata.id != plan.table_id:
            yield f"the table's id is {snapshot.metadata.id}, not {plan.table_id}"
        schema = None
        with suppress(CorruptLogError):
            schema = parse_schema(plan.schema_string, where="the plan")
        if schema != snapshot.schema:
            yield "the table's schema changed"
        yield from partitioning_changes(plan.partitioned_by, snapshot.metadata)
    state = clustering_state(snapshot)
    now = tuple((column.logical, column.physical) for column in state.columns)
    planned = tuple((column.logical, column.physical) for column in plan.columns)
    is_clustered = plan.mode is RewriteMode.CLUSTERING and not plan.is_migration
    expected = planned if is_clustered else ()
    if now != expected or state.unresolved:
        before = ", ".join(quote_path(logical) for logical, _ in expected) or "none"
        after = ", ".join(state.names) or "none"
        yield f"the table's clustering columns changed from {before} to {after}"
