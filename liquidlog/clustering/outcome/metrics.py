"""The metrics of an OPTIMIZE run, under the reference engine's names.

Source: Delta Spark, OptimizeStats, ClusteringStats and ZCubeFileStatsCollector.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.zcubes import membership, sizes
from liquidlog.plan import (
    ClusteringPlan,
    InputFiles,
    RewriteGroup,
    RewriteMode,
    RewrittenGroup,
    SkipReason,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AddFile, RemoveFile


def optimize_metrics(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    finished: Sequence[RewrittenGroup],
    *,
    commits: int,
    gone: Collection[str] = (),
) -> dict[str, object]:
    """Return the metrics of the committed groups of a plan; sizes are in bytes.

    `snapshot` is the table at the plan's read version; all its files count as considered. `commits`
    is the number of versions that hold the groups: the reference engine calls them batches. Inputs
    and kept files that are `gone`, by their paths, were removed by others and do not count.
    `numOutputZCubes` counts the cubes written. The reference engine also counts the empty cube that
    it makes before a first file larger than a whole cube, so its number can be one higher.
    """
    done = {group.group_id for group in finished}
    groups = [group for group in plan.groups if group.group_id in done]
    added = np.array([file.size_bytes for group in finished for file in group.outputs], np.int64)
    return {
        "numFilesAdded": len(added),
        "filesAdded": _size_stats(added),
        **_metrics_of_inputs(snapshot, plan, groups, commits, gone),
    }


def planned_metrics(snapshot: Snapshot, plan: ClusteringPlan, *, commits: int) -> dict[str, object]:
    """Return the metrics that the commit of a whole plan would have.

    The number and sizes of added files are None, because only the rewrite determines them.
    """
    return {
        "numFilesAdded": None,
        "filesAdded": dict.fromkeys(_size_stats(np.zeros(0, np.int64))),
        **_metrics_of_inputs(snapshot, plan, plan.groups, commits),
    }


def operation_metrics(
    adds: Sequence[AddFile], removes: Sequence[RemoveFile], kept_bytes: pa.ChunkedArray
) -> dict[str, str]:
    """Return the metrics of a commit; what its groups keep is neither added nor removed.

    `kept_bytes` has the size of each kept file.
    """
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
    inputs = pa.concat_tables(
        [InputFiles.of().columns, *(group.inputs.columns for group in groups)]
    )
    inputs = _without(inputs, gone)
    removed = inputs["size_bytes"].to_numpy()
    considered = snapshot.files.num_rows - _not_asked_for(plan)
    metrics: dict[str, object] = {
        "numFilesRemoved": len(removed),
        "filesRemoved": _size_stats(removed),
        "partitionsOptimized": len({_key(group) for group in groups}),
        "numBins": len(groups),
        "numBatches": commits,
        "totalConsideredFiles": considered,
        "totalFilesSkipped": considered - len(removed),
    }
    if plan.mode is RewriteMode.CLUSTERING:
        metrics["clusteringStats"] = _clustering_stats(snapshot, plan, removed, len(groups))
    if plan.mode is RewriteMode.ZORDER:
        metrics["zOrderStats"] = _zorder_stats(removed, len(groups))
    kept = [_without(group.kept.columns, gone) for group in groups if len(group.kept)]
    if kept:
        metrics["filesKept"] = _files(pa.concat_tables(kept)["size_bytes"].to_numpy())
    vectors = _deletion_vector_stats(inputs)
    if vectors:
        metrics["deletionVectorStats"] = vectors
    return metrics


def _key(group: RewriteGroup) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(group.partition_values.items()))


def _not_asked_for(plan: ClusteringPlan) -> int:
    if not plan.partitioned_by:
        return 0
    reasons = plan.skipped.columns["reason"]
    return int(pc.sum(pc.equal(reasons, SkipReason.NOT_ASKED_FOR.value)).as_py() or 0)


def _without(files: pa.Table, gone: Collection[str]) -> pa.Table:
    paths = files["path"]
    return files.filter(pc.invert(pc.is_in(paths, value_set=pa.array(gone, paths.type))))


def _clustering_stats(
    snapshot: Snapshot, plan: ClusteringPlan, removed: NDArray[np.int64], cubes: int
) -> dict[str, object]:
    places = membership(snapshot.files, clustering_state(snapshot).columns)
    matching = places.in_cube if plan.policy.full else places.same_columns
    size = sizes(snapshot.files)
    return {
        "inputZCubeFiles": _files(size[matching]),
        "inputOtherFiles": _files(size[~matching]),
        "inputNumZCubes": len(np.unique(places.cube[matching])),
        "mergedFiles": _files(removed),
        "numOutputZCubes": cubes,
    }


def _zorder_stats(removed: NDArray[np.int64], cubes: int) -> dict[str, object]:
    return {
        "strategyName": "all",
        "inputCubeFiles": {"num": 0, "size": 0},
        "inputOtherFiles": {"num": len(removed), "size": int(removed.sum())},
        "inputNumCubes": 0,
        "mergedFiles": {"num": len(removed), "size": int(removed.sum())},
        "numOutputCubes": cubes,
    }


def _deletion_vector_stats(inputs: pa.Table) -> dict[str, int]:
    vectors = inputs["deletion_vector"].drop_null()
    if not len(vectors):
        return {}
    return {
        "numDeletionVectorsRemoved": len(vectors),
        "numDeletionVectorRowsRemoved": pc.sum(pc.struct_field(vectors, "cardinality")).as_py(),
    }


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
