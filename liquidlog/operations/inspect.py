"""Answer questions about a table: detail, files, health, and the files that match a predicate."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import ClusteringColumn, clustering_state, resolve_columns
from liquidlog.clustering.health.measure import Health, measure_health
from liquidlog.clustering.zcubes import file_states
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.scan import matching
from liquidlog.snapshot import Snapshot, decoded_paths, deleted_rows, num_records
from liquidlog.spec.schema import Path


def files(store: TableStore, snapshot: Snapshot, min_cube_bytes: int) -> pa.Table:
    """Return one row per live file, sorted by path, with its place in the clustering.

    Columns path (decoded), size_bytes, num_records (physical rows), zcube_id, zorder_by (the
    tag's text), clustering_provider, deleted_rows, state, and structs min and max with one
    field per clustering column.
    """
    columns = clustering_state(snapshot).columns
    shown = tuple(dict.fromkeys(columns))  # a broken domain may name a column twice
    live = snapshot.files
    bounds = load_bounds(store, snapshot, [column.leaf for column in shown])
    return pa.table(
        {
            "path": decoded_paths(live),
            "size_bytes": live["size"],
            "num_records": num_records(live),
            "zcube_id": pc.cast(live["zcube_id"], pa.string()),
            "zorder_by": pc.cast(live["zorder_by"], pa.string()),
            "clustering_provider": pc.cast(live["clustering_provider"], pa.string()),
            "deleted_rows": deleted_rows(live),
            "state": file_states(snapshot, columns, min_cube_bytes),
            "min": _by_column(shown, [column.low for column in bounds.columns], len(bounds)),
            "max": _by_column(shown, [column.high for column in bounds.columns], len(bounds)),
        }
    )


def health(
    store: TableStore,
    snapshot: Snapshot,
    columns: Sequence[Path] | None,
    *,
    where: str | None,
    min_cube_bytes: int,
    now_ms: int | None = None,
) -> Health:
    """Return how well the table is clustered, by its own columns or by `columns`.

    With `where`, only files with rows that the SQL predicate may match are measured.

    Raises:
        ClusteringColumnError: If a column cannot be measured.
        UsageError: If the predicate is not valid.
    """
    measured = clustering_state(snapshot).columns
    if columns is not None:
        measured = resolve_columns(
            snapshot.schema,
            columns,
            configuration=snapshot.metadata.configuration,
            partition_columns=(),
            limit=len(columns),
        )
    mask = None if where is None else pa.array(*matching(store, snapshot, [where]))
    bounds = load_bounds(store, snapshot, [column.leaf for column in measured])
    return measure_health(
        snapshot,
        measured,
        bounds,
        min_cube_bytes=min_cube_bytes,
        mask=mask,
        measured_at_ms=now_ms,
    )


def matching_files(store: TableStore, snapshot: Snapshot, where: str) -> pa.Table:
    """Return path (decoded) and size_bytes of the files with rows that the predicate may match.

    Raises:
        UsageError: If the predicate is not valid.
    """
    live = pa.table({"path": snapshot.paths(), "size_bytes": snapshot.files["size"]})
    return live.filter(pa.array(*matching(store, snapshot, [where])))


def _by_column(
    columns: Sequence[ClusteringColumn], ends: Sequence[pa.Array], files: int
) -> pa.StructArray | pa.Array:
    if not columns:
        return pa.array([None] * files, pa.struct([]))
    return pa.StructArray.from_arrays(ends, names=[column.name for column in columns])
