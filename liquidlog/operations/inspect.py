"""Answer questions about a table: detail, files, health, and the files that match a predicate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import ClusteringColumn, clustering_state, resolve_columns
from liquidlog.clustering.health.measure import Health, measure_health
from liquidlog.clustering.zcubes import file_states
from liquidlog.foresee.ratios import with_ratios
from liquidlog.foresee.rows import rows_of
from liquidlog.foresee.sample import Rows, Sample
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.asked_columns import NOTHING_ASKED, asked_columns
from liquidlog.predicates.workload import Session, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot, decoded_paths, deleted_rows, num_records
from liquidlog.spec.bounds import Bounds
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
    workload: Workload = (),
    where: str | None,
    min_cube_bytes: int,
    reads_rows: bool = False,
    now_ms: int | None = None,
) -> Health:
    """Return how well the table is clustered, by its own columns or by `columns`.

    With a workload, it is measured by the columns that the workload compares most often. With
    `where`, only files with rows that the SQL predicate may match are measured. Ratios are from the
    log alone, unless rows are to be read.
    """
    measured = clustering_state(snapshot).columns
    asked = asked_columns(store, snapshot, workload) if workload else NOTHING_ASKED
    if workload:
        measured = asked.columns
    elif columns is not None:
        measured = resolve_columns(
            snapshot.schema,
            columns,
            configuration=snapshot.metadata.configuration,
            partition_columns=(),
            limit=len(columns),
        )
    part = _ALL if where is None else _part(store, snapshot, where, now_ms)
    leaves = [column.leaf for column in measured]
    bounds = load_bounds(store, snapshot, leaves)
    rows = None
    if reads_rows and leaves and snapshot.files.num_rows:
        outputs = snapshot.files.num_rows
        rows = rows_of(store, snapshot, leaves, outputs=outputs, bounds=bounds)
    found = judged_health(
        snapshot,
        measured,
        bounds,
        min_cube_bytes=min_cube_bytes,
        mask=part.mask,
        measured_at_ms=now_ms,
        sample=rows.samples[0] if rows is not None and rows.is_read else None,
    )
    return replace(
        found,
        notes=(*asked.notes, *found.notes, *_of_rows(rows)),
        cannot_prune=part.cannot_prune,
        not_usable=asked.not_usable,
        asked_at=part.asked_at,
    )


def judged_health(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None = None,
    measured_at_ms: int | None = None,
    sample: Sample | None = None,
) -> Health:
    """Return the health as `measure_health` does, with its ratios."""
    found = measure_health(
        snapshot,
        columns,
        bounds,
        min_cube_bytes=min_cube_bytes,
        mask=mask,
        measured_at_ms=measured_at_ms,
    )
    return with_ratios(
        found, snapshot, columns, bounds, min_cube_bytes=min_cube_bytes, mask=mask, sample=sample
    )


def _of_rows(rows: Rows | None) -> Iterator[str]:
    if rows is not None and rows.problem is not None:
        yield f"depth_ratio and read_ratio are from the log alone: {rows.problem}"
    elif rows is not None:
        count, files = len(rows.samples[0]), rows.samples[0].files
        yield f"depth_ratio and read_ratio are from {count:,} rows of {files:,} files"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """The files to measure, None for all, and what to say of the predicate that chose them."""

    mask: pa.BooleanArray | None = None
    cannot_prune: tuple[str, ...] = ()
    asked_at: str | None = None


_ALL = _Part()


def _part(store: TableStore, snapshot: Snapshot, where: str, now_ms: int | None) -> _Part:
    """Return the files that a predicate may match."""
    # Importing the SQL parser takes a third of a command's start-up; most need no predicate.
    from liquidlog.predicates.matching import answers

    session = Session.at_ms(now_ms)
    bounds_of = partial(load_bounds, store, snapshot)
    found = answers(snapshot, (WeightedPredicate(where),), bounds_of, session)
    return _Part(
        mask=found.judged[0].may_match,
        cannot_prune=found.cannot_prune,
        asked_at=found.asked_at(now_ms),
    )


def _by_column(
    columns: Sequence[ClusteringColumn], ends: Sequence[pa.Array], files: int
) -> pa.StructArray | pa.Array:
    if not columns:
        return pa.array([None] * files, pa.struct([]))
    return pa.StructArray.from_arrays(ends, names=[column.name for column in columns])
