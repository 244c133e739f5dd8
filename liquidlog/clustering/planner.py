"""From snapshot to plan: strategies, and whether a planned group can still be committed.

A commit *follows* deletions: it deletes the same rows from the group's outputs. That is possible if
others only deleted rows, and not too many.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from numpy.typing import NDArray

from liquidlog.clustering.building import (
    TAKEN,
    Choice,
    Columns,
    NewId,
    ReadModel,
    asked_for,
    build_plan,
    check_table,
    deleted_shares,
    keepable,
    output_count,
    pack,
    pack_evenly,
    partitions_of,
    read_model,
    reason_code,
    without_kept,
)
from liquidlog.clustering.columns import (
    STABLE,
    Membership,
    clustering_state,
    file_states,
    logical_sizes,
    membership,
    planned_row_tracking,
    resolve_columns,
    sizes,
)
from liquidlog.clustering.health import KeySpace, key_space
from liquidlog.clustering.settings import (
    DEFAULT_STRATEGY,
    OVERLAP,
    check_known,
    prefix_among,
    require_effect,
)
from liquidlog.curve.curves import Curve, sort_rows
from liquidlog.errors import (
    ClusteringColumnError,
    Conflict,
    CorruptLogError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    FittedWorkload,
    InputFile,
    InputFiles,
    RewriteGroup,
    RewriteMode,
    SkippedFiles,
    SkipReason,
)
from liquidlog.predicates.workload import Workload
from liquidlog.snapshot import Snapshot, deletion_vector, distinct_values
from liquidlog.spec.actions import Course, DeletionVector, Fate, FileKey
from liquidlog.spec.arrow import READ_AS, in_zone, one_array, same_value
from liquidlog.spec.bounds import BoundsOf, Mask
from liquidlog.spec.features import (
    FileTerms,
    NewColumn,
    metadata_changes,
    new_columns,
    partitioning_changes,
    protocol_changes,
)
from liquidlog.spec.schema import Leaf, Path, StructType, parse_schema, quote_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcilable:
    """The deletions that a commit can follow: up to a share of the rows, by the files' courses.

    `course` gets a logical file and the number of rows that its vector deletes.
    """

    course: Callable[[FileKey, int], Course]
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


def partition_changes(
    snapshot: Snapshot, group: RewriteGroup, inputs: NDArray[np.int64]
) -> Iterator[str]:
    """Yield a sentence if inputs are in another partition than the group's outputs will be."""
    kinds = {field.physical_name: field.data_type for field in snapshot.schema.fields}
    if not group.partition_values or group.partition_values.keys() - kinds.keys():
        return  # other partition columns are a change of the table, which is found elsewhere
    expected = {n: same_value(text, kinds[n]) for n, text in group.partition_values.items()}
    for document in distinct_values(snapshot.files.take(pa.array(inputs))).documents:
        if expected != {name: same_value(document.get(name), kinds[name]) for name in expected}:
            yield (
                f"inputs of group {group.group_id} have the partition values {document}, expected"
                f" {group.partition_values}"
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
    planned = pa.concat_tables(groups)
    paths = one_array(planned["path"])
    positions = _positions(paths, snapshot.paths()) if len(paths) else np.zeros(0, np.int64)
    live = positions >= 0
    changed = np.zeros(len(positions), np.bool_)
    if live.any():
        found = snapshot.files.take(pa.array(positions[live]))
        changed[live] = differs(planned.filter(pa.array(live)), found)
    starts = np.cumsum([0, *(files.num_rows for files in groups)]).tolist()
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
            *_value_changes(snapshot, group, inputs, zone),
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
    changed = np.flatnonzero(inputs.is_changed)
    planned = group.inputs.columns.take(pa.array(changed))
    live = snapshot.files.take(pa.array(inputs.positions[changed]))
    # Rows that one of the two does not count may be the same.
    same_rows = pc.fill_null(pc.equal(planned["num_records"], live["num_records"]), fill_value=True)
    differs = inputs.is_missing.copy()
    differs[changed] = pc.and_(pc.equal(planned["size_bytes"], live["size"]), same_rows)
    numbers = np.flatnonzero(differs)
    files = InputFiles(group.inputs.columns.take(pa.array(numbers)))
    found = [
        deleted_input(file, vector, reconcilable)
        for file, vector in zip(files, _vectors(snapshot, inputs, numbers), strict=True)
    ]
    clear = numbers[[one is not None for one in found]]
    return _cleared(inputs, clear), tuple(one for one in found if one is not None)


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
    places = pa.array(rows, mask=rows < 0)
    return [*map(deletion_vector, snapshot.files["deletion_vector"].take(places).to_pylist())]


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


def _value_changes(
    snapshot: Snapshot, group: RewriteGroup, inputs: _Placed, time_zone: str
) -> Iterator[str]:
    """Yield a sentence if inputs have other partition values than the outputs hold."""
    values = group.inputs.columns["partition_values"]
    if values.null_count == len(values):
        return
    there = (inputs.positions >= 0) & ~inputs.is_changed
    planned = values.filter(pa.array(there)).to_pylist(maps_as_pydicts="strict")
    found = distinct_values(snapshot.files.take(pa.array(inputs.rows)))
    documents = [in_zone(one, snapshot.schema.fields, time_zone) for one in found.documents]
    for number, expected in zip(found.number.tolist(), planned, strict=True):
        if documents[number] != expected:
            yield (
                f"inputs of group {group.group_id} have the partition values"
                f" {documents[number]}, expected {expected}"
            )
            return


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


# The strategy `cube`: exactly the files and groups that the reference engine's OPTIMIZE takes
#
# Partial cubes and unclustered files are merged into new cubes; stable cubes are left alone. The
# reference engine walks over the files sorted by cube id. Here the same walk goes over *runs*:
# consecutive files of one cube, or consecutive unclustered files. The result keeps the order of the
# walk, because the order decides which files become one cube.
#
# Source: Delta Spark, ClusteringStrategy.applyMinZCube, ZCube.filterOutLargeZCubes,
# ZCube.filterOutSingleZCubes, OptimizeExecutor.groupFilesIntoBins.

_UNCLUSTERED_RUN: Final = -1

_TOLERANCE: Final = 1.03
"""The most bytes that queries read of a group, as a multiple of those after its whole rewrite."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Runs:
    """The candidates as runs: `rows` are files in the order of the walk; `starts` begins each run.

    All arrays are int64. `cube` is the cube of each run; `order` has the numbers of the runs that
    no filter has removed, in their order after the walk.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    cube: NDArray[np.int64]
    order: NDArray[np.int64]

    def files(self, runs: NDArray[np.int64]) -> NDArray[np.int64]:
        ends = np.append(self.starts[1:], len(self.rows))
        lengths = (ends - self.starts)[runs]
        offsets = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.asarray(self.rows[np.repeat(self.starts[runs], lengths) + offsets], np.int64)


def choose_cubes(
    snapshot: Snapshot,
    columns: Columns,
    policy: ClusteringPolicy,
    bounds_of: BoundsOf,
    readers: FittedWorkload | None,
) -> Choice:
    """Return the files that the reference engine's OPTIMIZE would rewrite.

    Unclustered files, then cubes below `min_cube_bytes` (logical) by their ids, are packed by their
    size on storage. A cube that would be alone in its group is left. With `full`, files of other
    columns and providers are taken too, but never stable cubes of these columns. With
    `skip_clustered`, files that are narrow for `readers` keep their bytes.
    """
    places = membership(snapshot.files, columns)
    choice = _choose(snapshot, policy, places=places)
    if policy.skip_clustered:
        bounds = bounds_of([column.leaf for column in columns])
        space = key_space(bounds, sizes(snapshot.files))
        model = read_model(space, bounds, places, policy, readers)
        may = keepable(snapshot, places, bounds)
        choice = without_kept(choice, space, model, may, tolerance=_TOLERANCE)
    return choice


def _choose(snapshot: Snapshot, policy: ClusteringPolicy, *, places: Membership) -> Choice:
    reasons = np.where(
        places.ours, reason_code(SkipReason.OTHER_COLUMNS), reason_code(SkipReason.OTHER_PROVIDER)
    )
    walk = np.argsort(places.cube, kind="stable")
    candidate = places.candidates[walk]
    foreign = walk[~candidate]
    runs = _runs(walk[candidate], places)
    runs, stable = _without_stable(runs, logical_sizes(snapshot.files), policy.min_cube_bytes)
    reasons[stable] = reason_code(SkipReason.STABLE_CUBE)
    if policy.full and len(foreign):
        taken = np.concatenate([runs.files(runs.order), foreign])
    else:
        runs, lone = _without_lone_cube(runs)
        reasons[lone] = reason_code(SkipReason.LONE_CUBE)
        taken = runs.files(runs.order)
    reasons[taken] = TAKEN
    bytes_taken = sizes(snapshot.files)[taken]
    slices = pack(bytes_taken, max(policy.target_cube_bytes, policy.min_cube_bytes))
    return Choice(
        groups=tuple(taken[part] for part in slices),
        reasons=reasons,
        expected_outputs=tuple(
            output_count(int(bytes_taken[part].sum()), policy.max_file_bytes) for part in slices
        ),
    )


def _runs(rows: NDArray[np.int64], places: Membership) -> _Runs:
    cube = np.where(places.in_cube, places.cube, _UNCLUSTERED_RUN)[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = cube[1:] != cube[:-1]
    starts = np.flatnonzero(first)
    return _Runs(rows=rows, starts=starts, cube=cube[starts], order=np.arange(len(starts)))


def _without_stable(
    runs: _Runs, logical: NDArray[np.int64], min_cube_bytes: int
) -> tuple[_Runs, NDArray[np.int64]]:
    if not len(runs.starts):
        return runs, runs.rows
    totals = np.add.reduceat(logical[runs.rows], runs.starts)
    is_stable = (runs.cube != _UNCLUSTERED_RUN) & (totals >= min_cube_bytes)
    order = _flush_order(runs)
    kept = replace(runs, order=order[~is_stable[order]])
    return kept, runs.files(np.flatnonzero(is_stable))


def _without_lone_cube(runs: _Runs) -> tuple[_Runs, NDArray[np.int64]]:
    """Return the runs without a cube that nothing can be merged with, and its rows."""
    # The reference also drops a cube before the first unclustered file, if that has a ZCUBE_ID.
    order = runs.order
    if not len(order):
        return runs, order
    cubes = runs.cube[order] != _UNCLUSTERED_RUN
    is_lone = bool(cubes[0]) and (len(order) == 1 or not cubes[1])
    flushed = _flush_order(runs)
    lone = order[:1] if is_lone else order[:0]
    return replace(runs, order=flushed[~np.isin(flushed, lone)]), runs.files(lone)


def _flush_order(runs: _Runs) -> NDArray[np.int64]:
    """Return the order (int64) in which a filter of the reference engine returns the runs it keeps.

    A last cube of one file changes places with the cube before it, which the filter holds back.
    """
    order = runs.order.copy()
    if len(order) > 1 and (runs.cube[order[-2:]] != _UNCLUSTERED_RUN).all():
        ends = np.append(runs.starts[1:], len(runs.rows))
        if ends[order[-1]] - runs.starts[order[-1]] == 1:
            order[-2:] = order[:-3:-1]
    return order


# Plans for tables without clustering columns: compaction, and ZORDER BY
#
# Source: Delta Spark, CompactionStrategy and ZOrderStrategy.

MAX_DELETED_SHARE: Final = 0.05
"""A file with a larger share of deleted rows is compacted, whatever its size.

Source: Delta Spark, spark.databricks.delta.optimize.maxDeletedRowsRatio.
"""


def choose_zorder(
    snapshot: Snapshot, policy: ClusteringPolicy, bounds_of: BoundsOf
) -> tuple[Columns, Choice]:
    """Return the columns of `policy.zorder_by`, and the choice of all files.

    The files of a partition are sorted by their bounds along the Z-order curve, and cut into as few
    groups of up to `target_cube_bytes` as possible, about equally large.
    """
    partitions = {name.casefold() for name in snapshot.metadata.partition_columns}
    named = [quote_path(one) for one in policy.zorder_by if one[0].casefold() in partitions]
    if named:
        problem = (
            "is a partition column: all rows of a file have the same value of it, so files cannot"
            " be ordered by it; order by other columns"
        )
        raise ClusteringColumnError(tuple(f"{name} {problem}" for name in named))
    asked = asked_for(snapshot, policy.where, bounds_of)
    columns = resolve_columns(
        snapshot.data_schema,
        policy.zorder_by,
        configuration=snapshot.metadata.configuration,
        limit=len(policy.zorder_by),
    )
    groups = _zorder_groups(snapshot, policy, columns, bounds_of, asked)
    size = sizes(snapshot.files)
    return columns, Choice(
        groups=groups,
        reasons=np.where(asked, TAKEN, reason_code(SkipReason.NOT_ASKED_FOR)),
        expected_outputs=tuple(
            output_count(int(size[rows].sum()), policy.max_file_bytes) for rows in groups
        ),
    )


def _zorder_groups(
    snapshot: Snapshot, policy: ClusteringPolicy, columns: Columns, bounds_of: BoundsOf, asked: Mask
) -> tuple[NDArray[np.int64], ...]:
    size = sizes(snapshot.files)
    parts = list(partitions_of(snapshot).of(np.flatnonzero(asked)))
    if all(size[rows].sum() <= policy.target_cube_bytes for rows in parts):
        return tuple(parts)
    place = _places(snapshot)
    space = key_space(bounds_of([column.leaf for column in columns]), size)
    groups: list[NDArray[np.int64]] = []
    for part in parts:
        if size[part].sum() <= policy.target_cube_bytes:
            groups.append(part)
            continue
        rows = part[np.argsort(place[part])]
        middles = [pa.array(((one.low + one.high) / 2)[rows]) for one in space.columns]
        rows = rows[sort_rows(middles, Curve.ZORDER)[0]]
        groups += (rows[cut] for cut in pack_evenly(size[rows], policy.target_cube_bytes))
    return tuple(groups)


def _places(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the place (int64) of each file among all in the order in which they were written."""
    written = np.argsort(snapshot.files["modification_time"].to_numpy(), kind="stable")
    return np.argsort(written)


def choose_small(snapshot: Snapshot, policy: ClusteringPolicy, bounds_of: BoundsOf) -> Choice:
    """Return groups of small files and files with many deleted rows; each becomes one file.

    They are packed by partition, smallest first; rows stay in the order of writing.
    """
    matching = asked_for(snapshot, policy.where, bounds_of)
    size = sizes(snapshot.files)
    shares = deleted_shares(snapshot.files)
    wanted = (size < policy.max_file_bytes) | np.isnan(shares) | (shares > MAX_DELETED_SHARE)
    reasons = np.full(len(size), reason_code(SkipReason.LARGE_ENOUGH), np.int64)
    reasons[~matching] = reason_code(SkipReason.NOT_ASKED_FOR)
    rows = np.flatnonzero(wanted & matching)
    reasons[rows] = reason_code(SkipReason.LONE_FILE)
    rows = rows[np.argsort(size[rows], kind="stable")]
    place = _places(snapshot)
    groups = tuple(
        part[cut][np.argsort(place[part[cut]])]
        for part in partitions_of(snapshot).of(rows)
        for cut in pack(size[part], policy.max_file_bytes)
        if cut.stop - cut.start > 1
    )
    for group in groups:
        reasons[group] = TAKEN
    return Choice(groups=groups, reasons=reasons, expected_outputs=(1,) * len(groups))


# The strategy `overlap`: rewrites single files, and as few bytes as possible
#
# A narrow query reads one value of one column. As long as narrow queries read at most `tolerance`
# times the bytes that they would read after a full rewrite, nothing is rewritten. The widest files
# cost most, so a rewrite makes one new cube of all files above some width: the width with the
# fewest bytes to rewrite. Two rules avoid rewriting the same bytes again and again: each rewrite
# goes well below the tolerance, so that several appends are rewritten together, and narrow files
# are left alone, however small their cube is. Narrow files of a group join its cube with their
# bytes unchanged. Stable cubes are never touched, as in the reference engine.

_THRESHOLDS: Final = 48
_DEPTH_OF_REWRITE: Final = 0.85
"""A rewrite aims at this share of the tolerance, so that the next appends need no rewrite."""
_LEAST_GAIN: Final = 0.02
"""The least share of the bytes read now that a rewrite must save."""
_MOST_OF_GAIN: Final = 0.9
_MUCH_CHEAPER: Final = 0.2
"""A rewrite that barely suffices is taken if it has below this share of a deeper one's bytes."""
_MOST_DELETED_SHARE: Final = 0.25
"""A file with a larger share of deleted rows is always rewritten."""
_TOLERANCE_OF_GROUP: Final = 1.0
"""See `_TOLERANCE` of `cube`; here the policy's tolerance has decided on the group."""
_SMALL_SHARE: Final = 0.5
"""A clustered file below this share of the maximum file size is small."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Considered:
    """The facts that decide which files to rewrite; all arrays have one entry per file.

    `opened` is the share of the queries that read each file, `cost` their cost in bytes.
    `candidates` may be rewritten, `forced` must be. `cube` is -1 for none.
    """

    space: KeySpace
    model: ReadModel
    opened: NDArray[np.float64]
    cost: NDArray[np.float64]
    candidates: Mask
    forced: Mask
    cube: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Option:
    """Files to rewrite together: rows (int64) and bytes; the mean query reads `gain` bytes less."""

    rows: NDArray[np.int64]
    size: float
    outputs: int
    gain: float


def choose_overlapping(
    snapshot: Snapshot,
    columns: Columns,
    policy: ClusteringPolicy,
    bounds_of: BoundsOf,
    readers: FittedWorkload | None,
) -> Choice:
    """Return the fewest bytes of files that must be rewritten to stay within the tolerance.

    With `full`, other columns and providers count too. A budget goes to the best gains per byte.
    """
    part, bounds = snapshot, bounds_of([column.leaf for column in columns])
    rows = np.arange(snapshot.files.num_rows)
    if policy.where is not None:
        # The SQL parser takes a third of a command's start.
        from liquidlog.predicates.matching import may_match

        rows = np.flatnonzero(np.asarray(may_match(snapshot, policy.where, bounds_of), np.bool_))
        part = replace(snapshot, files=snapshot.files.take(rows))
        bounds = bounds.take(pa.array(rows))
    places = membership(part.files, columns)
    states = file_states(snapshot, columns, policy.min_cube_bytes)
    stable = np.asarray(pc.equal(states, STABLE), np.bool_)[rows]
    space = key_space(bounds, sizes(part.files))
    model = read_model(space, bounds, places, policy, readers)
    table = _table(part, policy, places, stable=stable, space=space, model=model)
    choice = _choice(table, policy, _left_alone(places, stable, policy))
    may = keepable(part, places, bounds)
    found = without_kept(choice, space, model, may, tolerance=_TOLERANCE_OF_GROUP)
    reasons = np.full(len(states), reason_code(SkipReason.NOT_ASKED_FOR), np.int64)
    reasons[rows] = found.reasons
    return replace(
        found,
        groups=tuple(rows[group] for group in found.groups),
        reasons=reasons,
        kept=tuple(rows[kept] for kept in found.kept),
    )


def _table(
    snapshot: Snapshot,
    policy: ClusteringPolicy,
    places: Membership,
    *,
    stable: Mask,
    space: KeySpace,
    model: ReadModel,
) -> _Considered:
    cube = places.own_cube
    opened = model.opened(space)
    deleted = deleted_shares(snapshot.files)
    eligible = ~stable & (places.candidates | policy.full)
    heavy = eligible & (np.nan_to_num(deleted, nan=1.0) > _MOST_DELETED_SHARE)
    small = space.size_bytes < _SMALL_SHARE * policy.max_file_bytes
    overlapping = space.mean_depths >= 1 + policy.min_overlapping_files * policy.min_overlap
    return _Considered(
        space=space,
        model=model,
        opened=opened,
        cost=model.now(space.size_bytes, opened),
        candidates=eligible & ((cube < 0) | small | heavy | overlapping),
        forced=heavy,
        cube=cube,
    )


def _left_alone(places: Membership, stable: Mask, policy: ClusteringPolicy) -> NDArray[np.int64]:
    """Return the reason's code per file for not taking it (int64)."""
    reasons = np.full(len(stable), reason_code(SkipReason.WELL_CLUSTERED), np.int64)
    if not policy.full:
        foreign = places.in_cube & ~places.same_columns
        reasons[foreign] = reason_code(SkipReason.OTHER_COLUMNS)
        reasons[~places.ours] = reason_code(SkipReason.OTHER_PROVIDER)
    reasons[stable] = reason_code(SkipReason.STABLE_CUBE)
    return reasons


def _choice(table: _Considered, policy: ClusteringPolicy, reasons: NDArray[np.int64]) -> Choice:
    options = _options(table, policy)
    wanted = _wanted(table, policy, options)
    reasons[wanted & table.candidates] = reason_code(SkipReason.OVER_BUDGET)
    limit = max(policy.target_cube_bytes, policy.min_cube_bytes)
    budget = policy.budget_bytes
    if budget is not None:
        limit = min(limit, budget)
        affordable = [option for option in options if option.size <= budget]
        wanted = _wanted(table, policy, affordable or options)
    taken = _groups(table, wanted, limit)
    if budget is not None:
        best_first = sorted(taken, key=lambda one: -one.gain / max(one.size, 1))
        left, taken = float(budget), []
        for group in best_first:
            if group.size <= left:
                left -= group.size
                taken.append(group)
    for group in taken:
        reasons[group.rows] = TAKEN
    return Choice(
        groups=tuple(group.rows for group in taken),
        reasons=reasons,
        expected_outputs=tuple(group.outputs for group in taken),
    )


def _options(table: _Considered, policy: ClusteringPolicy) -> list[_Option]:
    now = float(table.cost.sum())
    widths = table.opened[table.candidates]
    if now <= policy.tolerance * table.model.ideal or not len(widths):
        return []
    options = []
    enough = now - _goal(table, policy)
    steps = np.unique(np.quantile(widths, np.linspace(0, 1, _THRESHOLDS), method="lower"))
    for step in steps[::-1]:
        wide = table.candidates & (table.opened >= step)
        option = _rewrite(table, np.flatnonzero(table.forced | wide))
        if option.gain >= _LEAST_GAIN * now:
            options.append(option)
        if option.gain >= enough:
            break  # the rewrites that follow are larger
    return options


def _goal(table: _Considered, policy: ClusteringPolicy) -> float:
    return max(policy.tolerance * _DEPTH_OF_REWRITE, 1.0) * table.model.ideal


def _wanted(table: _Considered, policy: ClusteringPolicy, options: list[_Option]) -> Mask:
    if not options:
        return table.forced
    now = float(table.cost.sum())
    most = max(option.gain for option in options)
    cheapest = []
    for cost in (_goal(table, policy), policy.tolerance * table.model.ideal):
        gain = now - cost if most >= now - cost else _MOST_OF_GAIN * most
        enough = (option for option in options if option.gain >= gain)
        cheapest.append(min(enough, key=lambda option: option.size))
    deep, shallow = cheapest
    chosen = shallow if shallow.size < _MUCH_CHEAPER * deep.size else deep
    return _mask(chosen.rows, len(table.cost))


def _rewrite(table: _Considered, rows: NDArray[np.int64]) -> _Option:
    extent = table.space.extent(_mask(rows, len(table.cost)))
    size = float(table.space.size_bytes[rows].sum())
    outputs = table.model.outputs(size, extent)
    gain = float(table.cost[rows].sum()) - table.model.after(size, extent, outputs)
    cubes = np.unique(table.cube[rows])
    if len(cubes) == 1 and cubes[0] >= 0:
        gain = 0.0  # clustered together before
    return _Option(rows=rows, size=size, outputs=outputs, gain=gain)


def _groups(table: _Considered, wanted: Mask, limit_bytes: int) -> list[_Option]:
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return []
    narrowest = min(table.space.columns, key=lambda spans: float(spans.width[rows].mean()))
    middle = narrowest.low[rows] + narrowest.high[rows]
    rows = rows[np.argsort(middle, kind="stable")]
    slices = pack(table.space.size_bytes[rows].astype(np.int64), limit_bytes)
    return [_rewrite(table, rows[part]) for part in slices]


def _mask(rows: NDArray[np.int64], length: int) -> Mask:
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask


def fitted_to(plan: ClusteringPlan, workload: Workload) -> ClusteringPlan:
    if not plan.columns or not workload:
        return plan
    columns = [column.logical for column in plan.columns]
    schema = parse_schema(plan.schema_string, where="the plan")
    return structs.replace(plan, fitted=readers_of(workload, columns, schema))


def readers_of(workload: Workload, columns: Sequence[Path], schema: StructType) -> FittedWorkload:
    # The SQL parser takes a third of a command's start.
    from liquidlog.predicates.matching import fitted_workload

    return fitted_workload(workload, columns, schema)


def require_fitted(plan: ClusteringPlan) -> None:
    if plan.readers is not None:
        return
    reason = "on a table without clustering columns, whose small files are only joined"
    if plan.columns:
        left_out = (plan.fitted or FittedWorkload()).left_out
        why = "; ".join(f"{one.predicates} of them: {one.reason}" for one in left_out)
        reason = f"on this table, whose layout cannot be fitted to its predicates ({why})"
    raise UsageError(f"workload has no effect {reason}", option="workload")


def affordable(plan: ClusteringPlan, budget_bytes: int) -> ClusteringPlan:
    """Return the plan's first groups whose inputs have at most `budget_bytes` together."""
    taken = 0
    for group in plan.groups:
        if group.size_bytes > budget_bytes:
            break
        budget_bytes -= group.size_bytes
        taken += 1
    left = plan.groups[taken:]
    if not left:
        return plan
    columns = [plan.skipped.columns, *(_skipped(group) for group in left)]
    return structs.replace(
        plan,
        groups=plan.groups[:taken],
        skipped=SkippedFiles(pa.concat_tables(columns).unify_dictionaries()),
    )


def _skipped(group: RewriteGroup) -> pa.Table:
    names = ["path", "size_bytes"]
    files = pa.concat_tables([its.columns.select(names) for its in (group.inputs, group.kept)])
    codes = pa.array(np.zeros(files.num_rows, np.int8))
    reasons = pa.DictionaryArray.from_arrays(codes, pa.array([SkipReason.OVER_BUDGET.value]))
    return pa.table([*files.columns, reasons], schema=SkippedFiles.schema)


def no_bounds(_: Sequence[Leaf]) -> pa.Table:
    """Refuse to return bounds, for callers that cannot load any."""
    raise UsageError("this strategy needs the statistics of the files")


STRATEGIES: Final[Mapping[str, Callable[..., Choice]]] = {
    DEFAULT_STRATEGY: choose_cubes,
    OVERLAP: choose_overlapping,
}


def plan(
    snapshot: Snapshot,
    policy: ClusteringPolicy,
    *,
    new_id: NewId,
    strategy: str = DEFAULT_STRATEGY,
    bounds_of: BoundsOf = no_bounds,
    named: Collection[str] = (),
    decided_by: Mapping[str, str] | None = None,
    readers: FittedWorkload | None = None,
) -> ClusteringPlan:
    """Return the plan for a rewrite of the table; equal arguments give equal groups.

    `new_id` makes the id of the plan, then of each cube. `named` are the caller's settings.
    """
    check_known("strategy", strategy, tuple(STRATEGIES))
    state = check_table(snapshot)
    require_effect(
        policy,
        state.columns,
        named=named,
        strategy=strategy,
        decided_by=decided_by or {},
        is_partitioned=bool(snapshot.metadata.partition_columns),
    )
    columns = state.columns
    if policy.zorder_by:
        if columns:
            raise UsageError(
                f"the table is clustered by {', '.join(state.names)} and cannot be ordered by"
                " ZORDER BY; plan it without ZORDER BY, or clear its columns with cluster-by"
                " --none",
                columns=list(state.names),
            )
        mode = RewriteMode.ZORDER
        columns, choice = choose_zorder(snapshot, policy, bounds_of)
    elif not columns:
        mode, choice = RewriteMode.COMPACTION, choose_small(snapshot, policy, bounds_of)
    else:
        mode = RewriteMode.CLUSTERING
        if policy.prefix:
            policy = structs.replace(policy, prefix=prefix_among(policy.prefix, columns))
        if readers is not None and not readers.has_queries:
            readers = None
        choice = STRATEGIES[strategy](snapshot, columns, policy, bounds_of, readers)
    return build_plan(
        snapshot,
        policy,
        mode=mode,
        strategy=strategy if mode is RewriteMode.CLUSTERING else mode.value,
        columns=columns,
        choice=choice,
        new_id=new_id,
    )
