"""From plan and result of a rewrite to the change that commits it, and its metrics.

Rows are counted here; that they are the same rows is proved where they are read (`data`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import (
    MIGRATION,
    PRESERVED_TAG,
    PROVIDER,
    assign_row_ids,
    clustering_state,
    defining_actions,
    membership,
    migration_parameters,
    resolve_columns,
    sizes,
)
from liquidlog.clustering.planner import Staleness, deleted_rows, staleness_of
from liquidlog.errors import (
    ClusteringColumnError,
    CommitConflictError,
    Conflict,
    Outdated,
    ResultMismatchError,
)
from liquidlog.plan import (
    PLAN_ID_TAG,
    ClusteringPlan,
    InputFiles,
    RewriteGroup,
    RewriteMode,
    RewrittenGroup,
    SkipReason,
    WritePlan,
    WrittenFile,
    group_tags,
    live_rows,
    repeated_inputs,
    repeated_message,
)
from liquidlog.snapshot import Snapshot, decoded_paths, deletion_vector
from liquidlog.spec.actions import (
    UNREADABLE,
    ZCUBE_ID,
    ZCUBE_ZORDER_BY,
    AddFile,
    AnyAction,
    Change,
    CopiedAdd,
    DeletionVector,
    RemoveFile,
    encoded_path,
)
from liquidlog.spec.arrow import one_array
from liquidlog.spec.bounds import wide_bounds
from liquidlog.spec.features import file_tags
from liquidlog.spec.schema import quote_path

# The metrics of an OPTIMIZE run, under the reference engine's names.
#
# The reference engine also counts an empty cube before a first file larger than a whole cube.
# Source: Delta Spark, OptimizeStats, ClusteringStats and ZCubeFileStatsCollector.


def optimize_metrics(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    finished: Sequence[RewrittenGroup],
    *,
    commits: int,
    gone: Collection[str] = (),
) -> dict[str, object]:
    """Return the metrics, in bytes, of a plan's groups in `commits`, without files in `gone`."""
    done = {group.group_id for group in finished}
    groups = [group for group in plan.groups if group.group_id in done]
    added = np.array([file.size_bytes for group in finished for file in group.outputs], np.int64)
    return {
        "numFilesAdded": len(added),
        "filesAdded": _size_stats(added),
        **_metrics_of_inputs(snapshot, plan, groups, commits, gone),
    }


def planned_metrics(snapshot: Snapshot, plan: ClusteringPlan, *, commits: int) -> dict[str, object]:
    """Return the metrics that the commit of a whole plan would have, None for added files."""
    return {
        "numFilesAdded": None,
        "filesAdded": dict.fromkeys(_size_stats(np.zeros(0, np.int64))),
        **_metrics_of_inputs(snapshot, plan, plan.groups, commits),
    }


def operation_metrics(
    adds: Sequence[AddFile], removes: Sequence[RemoveFile], kept_bytes: pa.ChunkedArray
) -> dict[str, str]:
    """Return the metrics of a commit; `kept_bytes` has the size of each kept file."""
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
    if len(kept_bytes):
        metrics["numKeptFiles"] = len(kept_bytes)
        metrics["numKeptBytes"] = pc.sum(kept_bytes).as_py()
    return {name: str(value) for name, value in metrics.items()}


def _metrics_of_inputs(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    groups: Sequence[RewriteGroup],
    commits: int,
    gone: Collection[str] = (),
) -> dict[str, object]:
    tables = [InputFiles.of().columns, *(group.inputs.columns for group in groups)]
    inputs = _without(pa.concat_tables(tables), gone)
    removed = inputs["size_bytes"].to_numpy()
    considered = snapshot.files.num_rows
    if plan.partitioned_by:
        not_asked_for = pc.equal(plan.skipped.columns["reason"], SkipReason.NOT_ASKED_FOR.value)
        considered -= pc.sum(not_asked_for).as_py() or 0
    metrics: dict[str, object] = {
        "numFilesRemoved": len(removed),
        "filesRemoved": _size_stats(removed),
        "partitionsOptimized": len({tuple(sorted(g.partition_values.items())) for g in groups}),
        "numBins": len(groups),
        "numBatches": commits,
        "totalConsideredFiles": considered,
        "totalFilesSkipped": considered - len(removed),
    }
    if plan.mode is RewriteMode.CLUSTERING:
        places = membership(snapshot.files, clustering_state(snapshot).columns)
        matching = places.in_cube if plan.policy.full else places.same_columns
        size = sizes(snapshot.files)
        metrics["clusteringStats"] = {
            "inputZCubeFiles": _files(size[matching]),
            "inputOtherFiles": _files(size[~matching]),
            "inputNumZCubes": len(np.unique(places.cube[matching])),
            "mergedFiles": _files(removed),
            "numOutputZCubes": len(groups),
        }
    if plan.mode is RewriteMode.ZORDER:
        merged = {"num": len(removed), "size": int(removed.sum())}
        metrics["zOrderStats"] = {
            "strategyName": "all",
            "inputCubeFiles": {"num": 0, "size": 0},
            "inputOtherFiles": merged,
            "inputNumCubes": 0,
            "mergedFiles": merged,
            "numOutputCubes": len(groups),
        }
    kept = [_without(group.kept.columns, gone) for group in groups if len(group.kept)]
    if kept:
        metrics["filesKept"] = _files(pa.concat_tables(kept)["size_bytes"].to_numpy())
    vectors = inputs["deletion_vector"].drop_null()
    if len(vectors):
        metrics["deletionVectorStats"] = {
            "numDeletionVectorsRemoved": len(vectors),
            "numDeletionVectorRowsRemoved": pc.sum(pc.struct_field(vectors, "cardinality")).as_py(),
        }
    return metrics


def _without(files: pa.Table, gone: Collection[str]) -> pa.Table:
    paths = files["path"]
    return files.filter(pc.invert(pc.is_in(paths, value_set=pa.array(gone, paths.type))))


def _files(size: NDArray[np.int64]) -> dict[str, int]:
    return {"numFiles": len(size), "size": int(size.sum())}


def _size_stats(size: NDArray[np.int64]) -> dict[str, object]:
    summary = pc.min_max(pa.array(size))
    return {
        "min": summary["min"].as_py(),
        "max": summary["max"].as_py(),
        "avg": float(size.mean()) if len(size) else 0.0,
        "totalFiles": len(size),
        "totalSize": int(size.sum()),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOutput:
    """An output of a group, and its vector, which deletes rows that others deleted."""

    file: WrittenFile
    vector: DeletionVector | None = None

    @property
    def live_rows(self) -> int:
        """The number of rows that the vector does not delete."""
        deleted = 0 if self.vector is None else self.vector.cardinality
        return self.file.num_records - deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The outputs with rows left, without the `rows` that other commits (`versions`) deleted.

    `files` counts the outputs with such rows, `bytes_read` and `seconds` the cost of the search.
    """

    outputs: tuple[CommittedOutput, ...]
    rows: int = 0
    files: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    versions: tuple[int, ...] = ()


def _require_reconciled(
    groups: Sequence[RewrittenGroup], stale: Sequence[Staleness], reconciled: Sequence[Reconciled]
) -> None:
    problems = []
    for group, one, its in zip(groups, stale, reconciled, strict=True):
        expected = deleted_rows(one.deleted)
        left = sum(output.live_rows for output in its.outputs)
        if expected != its.rows or left != group.rows_written - its.rows:
            problems.append(
                f"other commits deleted {expected} rows of the inputs of group {group.group_id};"
                f" of the {group.rows_written} rows written, {left} are left"
            )
            continue
        files = one.snapshot.files.take(pa.array(one.rows))
        live = live_rows(files["num_records"], files["deletion_vector"])
        if live is not None and live != left:
            problems.append(
                f"the inputs of group {group.group_id} hold {live} live rows at version"
                f" {one.snapshot.version}, its outputs {left}"
            )
    if problems:
        raise ResultMismatchError(tuple(problems))


def _reconciled_metrics(
    adds: Sequence[AddFile], reconciled: Sequence[Reconciled]
) -> dict[str, str]:
    rows = sum(one.rows for one in reconciled)
    if not rows:
        return {}
    versions = sorted({version for one in reconciled for version in one.versions})
    metrics = {
        "numDeletionVectorsAdded": sum(add.deletion_vector is not None for add in adds),
        "numReconciledRows": rows,
        "numReconciledFiles": sum(one.files for one in reconciled),
        "reconciledBytesRead": sum(one.bytes_read for one in reconciled),
        "reconcileTimeMs": round(1000 * sum(one.seconds for one in reconciled)),
        "reconciledVersions": ",".join(map(str, versions)),
    }
    return {name: str(value) for name, value in metrics.items()}


# A migration is committed as a whole: a file that was not rewritten would lack its partition values


@dataclass(frozen=True, slots=True)
class FilesAdded(Conflict):
    """Other commits (`versions`, as far as known) added files during a migration."""

    kind = "files_added"
    versions: tuple[int, ...]
    paths: tuple[str, ...]

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.versions))
        by = f"version(s) {numbers}" if self.versions else "other commits"
        listed = ", ".join(self.paths[:3]) + (", …" if self.paths[3:] else "")
        return (
            f"{by} added {len(self.paths)} file(s) that the migration has not rewritten: {listed};"
            " migrate --add-to takes them into a saved plan"
        )


def not_rewritten(snapshot: Snapshot, stale: Sequence[Staleness]) -> FilesAdded | None:
    """Return a conflict if live files are inputs of no group of a migration."""
    if any(one.reasons for one in stale):
        return None  # an input may look like another file
    left = np.ones(snapshot.files.num_rows, np.bool_)
    for one in stale:
        left[one.rows] = False
    if not left.any():
        return None
    files = snapshot.files.filter(pa.array(left))
    versions = pc.unique(files["version"]).drop_null()
    return FilesAdded(
        tuple(sorted(versions.to_pylist())), tuple(sorted(decoded_paths(files).to_pylist()))
    )


def missing_groups(plan: ClusteringPlan, groups: Sequence[RewrittenGroup]) -> Iterator[str]:
    missing = {group.group_id for group in plan.groups} - {group.group_id for group in groups}
    if missing:
        listed = ", ".join(map(str, sorted(missing)))
        yield (
            f"group(s) {listed} of {len(plan.groups)} are not rewritten, and a migration is"
            " committed as a whole"
        )


def _lost_values(
    plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup
) -> Iterator[str]:
    """Yield each former partition column that has other nulls in the outputs than in the inputs."""
    # An executor that ignores partition values writes nulls, and its checksums agree.
    if planned.live_rows is None:
        return
    inputs = planned.inputs.columns
    deleted = pc.fill_null(pc.struct_field(inputs["deletion_vector"], "cardinality"), 0)
    rows = pc.subtract(inputs["num_records"], deleted).to_pylist()
    values = inputs["partition_values"].to_pylist(maps_as_pydicts="strict")
    counted = []
    for output in group.outputs:
        with suppress(*UNREADABLE):  # which is refused elsewhere
            counted.append(msgspec.json.decode(output.stats, type=_OutputStats).null_count)
    for name in plan.formerly_partitioned_by:
        expected = sum(n for n, its in zip(rows, values, strict=True) if not its.get(name))
        found = [nulls[name] for nulls in counted if isinstance(nulls.get(name), int)]
        if len(found) == len(group.outputs) and sum(found) != expected:
            yield (
                f"the outputs of group {group.group_id} hold {sum(found)} nulls of the former"
                f" partition column {name}, the inputs {expected}: its values are lost"
            )


# From plan and result to a change: the actions that replace the inputs of groups by outputs
#
# Source: PROTOCOL.md, "Add File and Remove File"; Delta Spark, OptimizeExecutor.


_REMOVED: Final = [
    *("path", "size", "num_records"),
    *("base_row_id", "default_row_commit_version", "deletion_vector"),
]


def rewrite_change(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    *groups: RewrittenGroup,
    now_ms: int,
    stale: Sequence[Staleness] | None = None,
    kept: Sequence[Sequence[Mapping[str, msgspec.Raw]]] | None = None,
    reconciled: Sequence[Reconciled] | None = None,
) -> Change:
    """Return the change that commits finished groups: all adds, then the removes of their inputs.

    `now_ms` (since 1970) is the removes' deletion time. `kept` has the adds of kept files in the
    log, in the order of `Staleness.kept`; they are added again with the tags of the group's cube.
    """
    planned = [planned_group(plan, group) for group in groups]
    if stale is None:
        stale = staleness_of(snapshot, plan, planned)
    if reconciled is None:
        written = [tuple(CommittedOutput(file=file) for file in one.outputs) for one in groups]
        reconciled = [Reconciled(outputs=outputs) for outputs in written]
    require_sound(snapshot, plan, groups, stale)
    _require_reconciled(groups, stale, reconciled)
    outputs = [output for one in reconciled for output in one.outputs]
    pairs = zip(planned, reconciled, strict=True)
    adds, domains = assign_row_ids(
        snapshot,
        [add for of, one in pairs for add in _adds(snapshot, plan, of, one)],
        [output.file.num_records for output in outputs],
    )
    originals = [()] * len(planned) if kept is None else kept
    joining = tuple(
        add
        for of, one, files in zip(planned, stale, originals, strict=True)
        for add in joined(plan, of, files, len(one.kept))
    )
    removes = tuple(removes_of(snapshot, np.concatenate([one.rows for one in stale]), now_ms))
    kept_rows = np.concatenate([one.kept for one in stale])
    tags = {PLAN_ID_TAG: plan.plan_id, **group_tags([group.group_id for group in groups])}
    if plan.row_tracking is not None and plan.row_tracking.preserved:
        tags[PRESERVED_TAG] = "true"
    return Change(
        operation=MIGRATION if plan.is_migration else "OPTIMIZE",
        parameters=_parameters(snapshot, plan),
        actions=(*_definition(snapshot, plan), *adds, *joining, *removes, *domains),
        metrics={
            **operation_metrics(adds, removes, snapshot.files["size"].take(pa.array(kept_rows))),
            **_reconciled_metrics(adds, reconciled),
        },
        is_blind_append=False,
        isolation_level="SnapshotIsolation",
        tags=tags,
    )


def _definition(snapshot: Snapshot, plan: ClusteringPlan) -> tuple[AnyAction, ...]:
    if not plan.is_migration:
        return ()
    configuration = snapshot.metadata.configuration
    planned = [column.logical for column in plan.columns]
    try:
        columns = resolve_columns(snapshot.schema, planned, configuration=configuration)
    except ClusteringColumnError:
        columns = ()
    if [one.physical for one in columns] != [one.physical for one in plan.columns]:
        gone = Outdated("the table cannot be clustered by the planned columns any more")
        raise CommitConflictError(plan.read_version, [gone])
    return defining_actions(snapshot, columns)


def require_sound(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    groups: Sequence[RewrittenGroup],
    stale: Sequence[Staleness],
) -> None:
    """Refuse groups whose results do not match the plan, or that the table no longer allows."""
    planned = [planned_group(plan, group) for group in groups]
    problems = tuple(_mismatches(plan, planned, groups))
    if plan.is_migration:
        pairs = zip(planned, groups, strict=True)
        lost = (problem for of, group in pairs for problem in _lost_values(plan, of, group))
        problems = (*problems, *missing_groups(plan, groups), *lost)
    if problems:
        raise ResultMismatchError(problems)
    conflicts: list[Conflict] = [
        Outdated(found) if isinstance(found, str) else found
        for one in stale
        for found in one.conflicts
    ]
    added = not_rewritten(snapshot, stale) if plan.is_migration else None
    if added is not None:
        conflicts.append(added)
    if conflicts:
        raise CommitConflictError(plan.read_version, conflicts)
    written = pa.array([file.path for group in groups for file in group.outputs], pa.string())
    live = snapshot.paths()
    repeated = live.filter(pc.is_in(live, value_set=written)).to_pylist()
    if repeated:
        raise ResultMismatchError(
            tuple(f"the output {path} already is a file of the table" for path in repeated)
        )


def planned_group(plan: ClusteringPlan, group: RewrittenGroup) -> RewriteGroup:
    if group.plan_id != plan.plan_id:
        raise ResultMismatchError((f"the result is of plan {group.plan_id}, not {plan.plan_id}",))
    number = group.group_id
    # A whole plan has each group at its number; a part of one is looked through.
    likely = chain(plan.groups[number : number + 1], plan.groups)
    found = next((g for g in likely if g.group_id == number), None)
    if found is None:
        raise ResultMismatchError((f"the plan has no group {number}",))
    return found


def _mismatches(
    plan: ClusteringPlan, planned: Sequence[RewriteGroup], groups: Sequence[RewrittenGroup]
) -> Iterator[str]:
    repeated = repeated_inputs(planned)
    if repeated:
        yield f"the plan {repeated_message(repeated)}"
    seen: set[str] = set()
    for group, of in zip(groups, planned, strict=True):
        if group.rows_read != group.rows_written:
            yield f"{group.rows_read} rows were read and {group.rows_written} written"
        counted = sum(file.num_records for file in group.outputs)
        if counted != group.rows_written:
            yield f"{group.rows_written} rows were written, the outputs hold {counted}"
        expected = of.live_rows
        if expected is not None and expected != group.rows_read:
            yield f"the inputs hold {expected} live rows, {group.rows_read} were read"
        yield from _partition_mismatches(plan, of, group)
        if group.checksum_read != group.checksum_written:
            yield (
                f"the rows written are not the rows read: checksum {group.checksum_written},"
                f" expected {group.checksum_read}"
            )
        for file in group.outputs:
            if file.path in seen:
                yield f"the output {file.path} is listed twice"
            seen.add(file.path)
            yield from _output_problems(plan, file)


def _partition_mismatches(
    plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup
) -> Iterator[str]:
    found = group.partition_values or {}
    if found != planned.partition_values:
        yield (
            f"the outputs of group {group.group_id} have the partition values {found}, expected"
            f" {planned.partition_values}"
        )
    if set(planned.partition_values) != set(plan.partitioned_by):
        listed = ", ".join(plan.partitioned_by) or "none"
        yield f"group {group.group_id} has values of other partition columns than {listed}"


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
        found: Any = stats.null_count
        for part in column.physical:
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            yield f"{file.path} has no statistics for {quote_path(column.logical)}"


class _OutputStats(msgspec.Struct, rename="camel"):
    num_records: int
    null_count: dict[str, Any] = {}


def _adds(
    snapshot: Snapshot, plan: ClusteringPlan, planned: RewriteGroup, reconciled: Reconciled
) -> Iterator[AddFile]:
    tags = {**file_tags(snapshot.metadata.configuration), **_cube_tags(plan, planned)} or None
    for output in reconciled.outputs:
        file, vector = output.file, output.vector
        yield AddFile(
            path=encoded_path(file.path),
            partition_values=planned.partition_values,
            size=file.size_bytes,
            modification_time=file.modification_time_ms,
            data_change=False,
            stats=file.stats if vector is None else wide_bounds(file.stats, where=file.path),
            tags=tags,
            deletion_vector=vector,
            clustering_provider=PROVIDER if planned.zcube_id is not None else None,
        )


def removes_of(
    snapshot: Snapshot, inputs: NDArray[np.int64], now_ms: int, *, data_change: bool = False
) -> Iterator[RemoveFile]:
    """Yield the removes, at `now_ms` (since 1970), of the files at some rows of Snapshot.files."""
    files = snapshot.files.take(pa.array(inputs))
    maps = (_decoded(files[name]) for name in ("partition_values_json", "tags_json"))
    for row, values, tags in zip(files.select(_REMOVED).to_pylist(), *maps, strict=True):
        records = row["num_records"]
        yield RemoveFile(
            path=row["path"],
            deletion_timestamp=now_ms,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=values or {},
            size=row["size"],
            tags=tags,
            deletion_vector=deletion_vector(row["deletion_vector"]),
            base_row_id=row["base_row_id"],
            default_row_commit_version=row["default_row_commit_version"],
            stats=None if records is None else f'{{"numRecords":{records}}}',
        )


def _decoded(column: pa.ChunkedArray) -> Iterator[dict[str, str | None] | None]:
    """Yield the JSON object of each row, None for null; equal texts are decoded once."""
    values = one_array(column)
    kinds = [msgspec.json.decode(text) for text in values.dictionary.to_pylist()]
    return (None if index is None else kinds[index] for index in values.indices.to_pylist())


def _parameters(snapshot: Snapshot, plan: ClusteringPlan) -> dict[str, object]:
    if plan.is_migration:
        return migration_parameters(snapshot, column_names(plan))
    if plan.mode is RewriteMode.CLUSTERING:
        return {
            "clusterBy": column_names(plan),
            "predicate": "[]",
            "auto": False,
            "isFull": plan.policy.full,
            "zOrderBy": "[]",
        }
    # The reference engine omits isFull if there are no clustering columns.
    where = [] if plan.policy.where is None else [f"({plan.policy.where})"]
    return {
        "predicate": msgspec.json.encode(where).decode(),
        "zOrderBy": column_names(plan),
        "clusterBy": "[]",
        "auto": False,
    }


def column_names(plan: ClusteringPlan | WritePlan) -> str:
    return msgspec.json.encode([quote_path(column.logical) for column in plan.columns]).decode()


def _cube_tags(plan: ClusteringPlan, group: RewriteGroup) -> Mapping[str, str | None]:
    if group.zcube_id is None:
        return {}
    return {ZCUBE_ID: group.zcube_id, ZCUBE_ZORDER_BY: column_names(plan)}


def joined(
    plan: ClusteringPlan,
    group: RewriteGroup,
    originals: Sequence[Mapping[str, msgspec.Raw]],
    expected: int,
) -> tuple[CopiedAdd, ...]:
    """Return the adds of a group's `expected` kept files with the tags of its cube."""
    tags = _cube_tags(plan, group)
    if len(originals) != expected or (originals and not tags):
        detail = f"group {group.group_id} keeps {expected} files, found {len(originals)}"
        raise ResultMismatchError((detail,))
    adds = []
    for add in originals:
        before = msgspec.json.decode(add.get("tags", b"null"), type=dict[str, str | None] | None)
        tagged = {"tags": {**(before or {}), **tags}, "clusteringProvider": PROVIDER}
        document = msgspec.json.encode({**add, "dataChange": False, **tagged})
        path = msgspec.json.decode(add["path"], type=str)
        adds.append(CopiedAdd(path=path, document=msgspec.Raw(document)))
    return tuple(adds)
