"""Questions about a table: DESCRIBE DETAIL, files, health, and the files that queries read."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.building import input_files, partitions_of
from liquidlog.clustering.columns import (
    DEFAULT_COLUMN_LIMIT,
    HIDDEN_COLUMNS,
    ClusteringColumn,
    clustering_state,
    file_states,
    resolve_columns,
)
from liquidlog.clustering.health import Health, measure_health
from liquidlog.clustering.settings import (
    REMEMBERED,
    TIME_ZONE,
    deciding_property,
    default_of,
    notes,
    remembered,
    weights_text,
    zone_named,
)
from liquidlog.errors import (
    ClusteringColumnError,
    CorruptLogError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.loader import list_log, load_bounds, read_commits
from liquidlog.plan import InputFiles, ReadPlan, RowTracking, live_rows
from liquidlog.predicates.workload import NotUsable, Session, WeightedPredicate, Workload, shares
from liquidlog.snapshot import Snapshot, decoded_paths, deleted_rows, num_records
from liquidlog.spec.actions import AddFile, RemoveFile
from liquidlog.spec.arrow import arrow_schema, in_zone, intervals, partition_fields, typed_value
from liquidlog.spec.bounds import Bounds
from liquidlog.spec.features import table_features
from liquidlog.spec.schema import Path, mapping_mode, quote_path
from liquidlog.spec.text import Summary, iso_time
from liquidlog.storage.files import TableStore

if TYPE_CHECKING:
    from liquidlog.foresee.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBytes:
    """The new bytes of a commit, and the bytes that it only moved, as OPTIMIZE does.

    `write_amplification` is moved bytes per new byte, summed up to this version; None without any.
    """

    version: int
    operation: str | None
    new_bytes: int
    moved_bytes: int
    write_amplification: float | None


def written_bytes(store: TableStore) -> tuple[WrittenBytes, ...]:
    """Return the bytes that each commit still in the log wrote, oldest first."""
    found = []
    new_total = moved_total = 0
    for commit in read_commits(store, sorted(list_log(store).commits)):
        # A file that its own commit removes and adds only got a new deletion vector.
        kept = {one.path for one in commit.actions if isinstance(one, RemoveFile)}
        adds = [one for one in commit.actions if isinstance(one, AddFile) and one.path not in kept]
        new = sum(add.size for add in adds if add.data_change)
        moved = sum(add.size for add in adds if not add.data_change)
        new_total, moved_total = new_total + new, moved_total + moved
        written = WrittenBytes(
            version=commit.version,
            operation=commit.info.operation,
            new_bytes=new,
            moved_bytes=moved,
            write_amplification=round(moved_total / new_total, 4) if new_total else None,
        )
        found.append(written)
    return tuple(found)


def detail(snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the DESCRIBE DETAIL row; times are ISO 8601 in UTC with milliseconds.

    A clustering column that the schema lacks has its physical name.
    """
    state = clustering_state(snapshot)
    metadata, protocol, files = snapshot.metadata, snapshot.protocol, snapshot.files
    layout, wrong = _layout(snapshot)
    return {
        "version": snapshot.version,
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": snapshot.location,
        "createdAt": None if metadata.created_time is None else iso_time(metadata.created_time),
        "lastModified": iso_time(snapshot.timestamp_ms),
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": [*state.names, *(quote_path(path) for path in state.unresolved)],
        "numFiles": files.num_rows,
        "sizeInBytes": snapshot.size_bytes,
        "numRecords": live_rows(files["num_records"], files["deletion_vector"]),
        "properties": dict(metadata.configuration),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": list(table_features(protocol)),
        "layout": layout,
        "layoutNotes": [*wrong, *notes(metadata.configuration)],
    }


def _layout(snapshot: Snapshot) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[str]]:
    found, wrong = {}, []
    for setting in (known.field for known in REMEMBERED):
        name = deciding_property(snapshot.metadata.configuration, setting)
        if name is None:
            found[setting] = {"value": _shown(default_of(setting)), "from": "default"}
            continue
        value = None
        try:
            value = remembered(snapshot, setting)
        except UsageError as error:
            wrong.append(error.message)
        found[setting] = {"value": _shown(value), "from": "property", "property": name}
    return found, wrong


def _shown(value: Any) -> Any:  # noqa: ANN401  any setting's value
    if not isinstance(value, tuple):
        return value
    if value and isinstance(value[0][-1], float):
        return [weights_text([one]) for one in value]
    return [quote_path(path) for path in value]


# Health by the columns of a workload, and the files of a table


def _compared_columns(
    store: TableStore, snapshot: Snapshot, workload: Workload
) -> tuple[tuple[ClusteringColumn, ...], tuple[str, ...], tuple[NotUsable, ...]]:
    """Return the columns with statistics that a workload compares most, and notes."""
    weights, not_usable = _weights(snapshot, workload)
    ranked = sorted(weights, key=lambda path: (-weights[path], path))
    configuration = snapshot.metadata.configuration
    columns: list[ClusteringColumn] = []
    for path in ranked:
        # A column's type or statistics may forbid it.
        with suppress(ClusteringColumnError):
            columns += resolve_columns(snapshot.schema, [path], configuration=configuration)
    bounds = load_bounds(store, snapshot, [column.leaf for column in columns])
    is_known = [bounds.known(number).any() or not len(bounds) for number in range(len(columns))]
    there = [column for column, known in zip(columns, is_known, strict=True) if known]
    taken = there[:DEFAULT_COLUMN_LIMIT]
    without = [path for path in ranked if path not in {column.logical for column in there}]
    if not taken:
        named = f": {_listed(without)} have none" if without else ""
        raise UsageError(
            f"the workload compares no column that has statistics{named}; name columns instead"
        )
    measured = ", ".join(f"{one.name} ({weights[one.logical]:.0%} of queries)" for one in taken)
    notes = [f"measured by the columns that the workload compares most: {measured}"]
    if without:
        notes.append(f"the workload also compares columns without statistics: {_listed(without)}")
    return tuple(taken), tuple(notes), not_usable


def _weights(
    snapshot: Snapshot, workload: Workload
) -> tuple[dict[Path, float], tuple[NotUsable, ...]]:
    """Return the share of queries that compare each column, and the predicates left out."""
    # The SQL parser takes a third of a command's start.
    from liquidlog.predicates.conditions import referenced_leaves_each

    weights: dict[Path, float] = {}
    refused: list[NotUsable] = []
    named = referenced_leaves_each(snapshot, [predicate.where for predicate in workload])
    for predicate, share, leaves in zip(workload, shares(workload), named, strict=True):
        problem = predicate.problem
        if problem is None and isinstance(leaves, UsageError):
            problem = leaves.message
        where, weight = predicate.where, predicate.weight
        if problem is not None:
            refused.append(NotUsable(where=where, weight=weight, reason=problem))
        elif not isinstance(leaves, UsageError):
            for leaf in leaves:
                weights[leaf.logical] = weights.get(leaf.logical, 0.0) + share
    if len(refused) == len(workload):
        raise UsageError(
            f"none of {len(refused)} predicates is a condition on this table; the first:"
            f" {refused[0].reason}"
        )
    return weights, tuple(refused)


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(quote_path(path) for path in paths)


def files(store: TableStore, snapshot: Snapshot, min_cube_bytes: int) -> pa.Table:
    """Return one row per live file; `num_records` are physical rows, `min`, `max` structs."""
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
    """Return the health of the files that `where` may match; see `Table.health`."""
    measured = clustering_state(snapshot).columns
    of_workload: tuple[str, ...] = ()
    not_usable: tuple[NotUsable, ...] = ()
    if workload:
        measured, of_workload, not_usable = _compared_columns(store, snapshot, workload)
    elif columns is not None:
        configuration, limit = snapshot.metadata.configuration, len(columns)
        measured = resolve_columns(
            snapshot.schema, columns, configuration=configuration, limit=limit
        )
    part = None
    if where is not None:
        from liquidlog.predicates.matching import answers

        session, bounds_of = Session(now_ms), partial(load_bounds, store, snapshot)
        part = answers(snapshot, (WeightedPredicate(where),), bounds_of, session)
    leaves = [column.leaf for column in measured]
    bounds = load_bounds(store, snapshot, leaves)
    sample, of_rows, count = None, [], snapshot.files.num_rows
    if reads_rows and leaves and count:
        from liquidlog.foresee.rows import rows_of

        rows = rows_of(store, snapshot, leaves, outputs=count, bounds=bounds)
        some = rows.samples[0]
        sample = some if rows.is_read else None
        origin = f"the log alone: {rows.problem}"
        if rows.problem is None:
            origin = f"{len(some):,} rows of {some.files:,} files"
        of_rows.append(f"depth_ratio and read_ratio are from {origin}")
    found = judged_health(
        snapshot,
        measured,
        bounds,
        min_cube_bytes=min_cube_bytes,
        mask=None if part is None else part.judged[0].may_match,
        measured_at_ms=now_ms,
        sample=sample,
    )
    return replace(
        found,
        notes=(*of_workload, *found.notes, *of_rows),
        cannot_prune=() if part is None else part.cannot_prune,
        not_usable=not_usable,
        asked_at=None if part is None else part.asked_at(now_ms),
    )


def judged_health(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None = None,
    measured_at_ms: int | None = None,
    sample: "Sample | None" = None,
) -> Health:
    # Most questions about a table predict nothing.
    from liquidlog.foresee.plans import with_ratios

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


def _by_column(
    columns: Sequence[ClusteringColumn], ends: Sequence[pa.Array], files: int
) -> pa.StructArray | pa.Array:
    if not columns:
        return pa.array([None] * files, pa.struct([]))
    return pa.StructArray.from_arrays(ends, names=[column.name for column in columns])


# The files that queries must read, by statistics alone


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateScan:
    """The files that queries with a predicate must read; `cannot_prune` conditions skip none."""

    where: str
    share: float
    files: int
    bytes: int
    cannot_prune: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Scan(Summary):
    """The files that the queries of a workload must read, at one version.

    `files_read` and `bytes_read` are means over the workload. `files` has path (decoded),
    size_bytes, and the share of queries that read the file. `not_usable` lists predicates that are
    no condition on the table. `asked_at` is the time (ISO 8601, UTC) if a predicate depends on it.
    """

    version: int
    total_files: int
    total_bytes: int
    files_read: float
    bytes_read: float
    predicates: tuple[PredicateScan, ...]
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]
    asked_at: str | None
    files: pa.Table

    def document(self) -> dict[str, Any]:
        """Return the scan as plain JSON values, with the files as a table."""
        return {name: getattr(self, name) for name in self.__slots__}


def scan(
    store: TableStore,
    snapshot: Snapshot,
    workload: Workload,
    *,
    time_zone: str | None = None,
    now_ms: int | None = None,
) -> Scan:
    """Return the files that queries with the predicates of a workload must read.

    Without `now_ms`, conditions on the current time rule out no file.
    """
    # The SQL parser takes a third of a command's start.
    from liquidlog.predicates.matching import answers

    zone: tzinfo | None = None if time_zone is None else UTC
    if time_zone is not None and time_zone.upper() != "UTC":
        zone = zone_named(time_zone, "time_zone")
    session = Session(now_ms, zone)
    found = answers(snapshot, workload, partial(load_bounds, store, snapshot), session)
    workload = found.workload
    masks = [np.asarray(one.may_match, np.bool_) for one in found.judged]
    sizes = np.asarray(snapshot.files["size"].to_numpy(), np.int64)
    weights = shares(workload)
    touched = np.zeros(len(sizes))
    for mask, share in zip(masks, weights, strict=True):
        touched += share * mask
    live = pa.table(
        {
            "path": snapshot.paths(),
            "size_bytes": snapshot.files["size"],
            "share": pc.round(pa.array(np.minimum(touched, 1.0)), 6),
        }
    )
    return Scan(
        version=snapshot.version,
        total_files=len(sizes),
        total_bytes=int(sizes.sum()),
        files_read=float(touched.sum()),
        bytes_read=float(sizes @ touched),
        predicates=tuple(
            PredicateScan(
                where=predicate.where,
                share=share,
                files=int(mask.sum()),
                bytes=int(sizes[mask].sum()),
                cannot_prune=judged.cannot_prune,
            )
            for predicate, share, mask, judged in zip(
                workload, weights, masks, found.judged, strict=True
            )
        ),
        cannot_prune=found.cannot_prune,
        not_usable=found.not_usable,
        asked_at=found.asked_at(now_ms),
        files=live.filter(pa.array(touched > 0)),
    )


def plan_read(store: TableStore, snapshot: Snapshot, *, where: str | None) -> ReadPlan:
    """Return the files of a version that may match `where`, by default all."""
    arrow_schema(snapshot.schema)  # refuses columns that cannot be read
    problems = intervals(snapshot.schema)
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "read", problems)
    rows = np.arange(snapshot.files.num_rows, dtype=np.int64)
    if where is not None:
        # The SQL parser takes a third of a command's start.
        from liquidlog.predicates.matching import judged_each

        bounds_of, session = partial(load_bounds, store, snapshot), Session(for_rows=True)
        (judged,) = judged_each(snapshot, [where], bounds_of, session)
        rows = np.flatnonzero(np.asarray(judged.may_match, np.bool_))
    partitions = partitions_of(snapshot)
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    time_zone = remembered(snapshot, TIME_ZONE)
    found = tuple(in_zone(values, fields, time_zone) for values in partitions.values)
    for values in found:
        for field in fields:
            try:
                typed_value(values[field.physical_name], field)
            except ValueError as error:
                raise CorruptLogError(snapshot.uri, str(error)) from error
    ids, versions = map(snapshot.metadata.configuration.get, HIDDEN_COLUMNS)
    hidden = None
    if ids is not None and versions is not None:
        hidden = RowTracking(row_id_column=ids, row_commit_version_column=versions, preserved=False)
    return ReadPlan(
        table_uri=snapshot.location,
        table_id=snapshot.metadata.id,
        version=snapshot.version,
        schema_string=snapshot.metadata.schema_string,
        mapping_mode=mapping_mode(snapshot.metadata.configuration),
        row_tracking=hidden,
        partition_columns=partitions.columns,
        partitions=found,
        files=(input_files(snapshot.files, [rows]) or [InputFiles.of()])[0],
        partition_numbers=tuple(partitions.number[rows].tolist()),
        total_files=snapshot.files.num_rows,
    )
