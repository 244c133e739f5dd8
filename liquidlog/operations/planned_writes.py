"""What a table asks of rows that a cluster writes, and which files they replace.

An overwrite removes the files that have rows of which a condition is true. Those of which it is
true for some rows only are rewritten: their other rows are among the rows that are written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from numpy.typing import NDArray

from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.clustering.planning.choice import check_clustered, check_table, input_files
from liquidlog.clustering.planning.partitions import partitions_of
from liquidlog.clustering.settings import (
    PREFIX_PROPERTY,
    deciding_property,
    prefix_among,
    remembered,
)
from liquidlog.commit.transaction import Clock
from liquidlog.definition.alignment import Alignment, align
from liquidlog.errors import (
    SchemaMismatchError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.landing import (
    remembered_curve,
    remembered_writer_options,
    require_appendable,
)
from liquidlog.plan import (
    InputFiles,
    PlannedColumn,
    RowCheck,
    WritePlan,
)
from liquidlog.plan.documents import prefix_numbers
from liquidlog.predicates.conditions import at_time, require_repeatable
from liquidlog.predicates.literals import Session
from liquidlog.predicates.matching import every_row_matches, judged_each
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import remembering
from liquidlog.spec.features import ROW_TRACKING_ENABLED, is_true
from liquidlog.spec.partitions import PartitionTexts, directory_settings, physical_partition_columns
from liquidlog.spec.schema import StructType, mapping_mode, render_schema, schema_json

DEFAULT_FILE_BYTES: Final = 128 << 20
"""Files of an append are smaller than those of a rewrite: they are merged later, and many tasks
write them at once."""

_KNOWN_ROWS: Final = 10_000
"""From so many live rows on, new ones are taken to be as wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """What to write: rows of the schema `data`, in place of those of which `where` is true.

    Without `where` they are appended. `max_file_bytes` is None for what the table remembers. With
    `merge_schema`, columns that the table lacks are added to it.
    """

    data: StructType
    cluster: bool
    max_file_bytes: int | None = None
    merge_schema: bool = False
    where: str | None = None


def plan_write(
    store: TableStore, snapshot: Snapshot, request: WriteRequest, clock: Clock
) -> WritePlan:
    """Return what the table asks of the rows, and which files the commit will replace."""
    store.require_writable()
    require_appendable(snapshot, evaluates=True, parts=True)
    if request.cluster and snapshot.metadata.partition_columns:
        listed = ", ".join(snapshot.metadata.partition_columns)
        raise UsageError(f"the table is partitioned by {listed}, not clustered: say cluster=False")
    aligned = _aligned(snapshot, request, clock)
    schema_string = snapshot.metadata.schema_string
    if aligned.schema != snapshot.schema:
        schema_string = schema_json(aligned.schema)
    after = structs.replace(
        snapshot.metadata, schema_string=schema_string, configuration=aligned.configuration
    )
    columns = check_clustered(check_table(snapshot)) if request.cluster else ()
    then = replace(snapshot, metadata=after, schema=aligned.schema)
    checks = aligned.checks
    removed, rewritten = np.array([], np.int64), np.array([], np.int64)
    where = request.where
    if where is not None:
        require_repeatable(where)
        where = at_time(where, 1000 * clock.now_ms(), in_session=True)
        removed, rewritten = _replaced(store, snapshot, where)
        what = f"the condition of what is replaced ({where})"
        checks = (*checks, RowCheck(what=what, expression=where))
    return WritePlan(
        write_id=clock.new_id(),
        table_uri=snapshot.uri,
        table_id=snapshot.metadata.id,
        read_version=snapshot.version,
        schema_string=schema_string,
        mapping_mode=mapping_mode(after.configuration),
        columns=tuple(
            PlannedColumn(logical=column.logical, physical=column.physical) for column in columns
        ),
        curve=remembered_curve(snapshot) if columns else None,
        prefix=_prefix(snapshot, columns),
        zcube_id=clock.new_id() if columns else None,
        writer_options=remembered_writer_options(then),
        max_file_bytes=_max_file_bytes(snapshot, request),
        row_bytes=_row_bytes(snapshot) if aligned.schema == snapshot.schema else None,
        sources=aligned.sources,
        checks=checks,
        where=where,
        partition_columns=physical_partition_columns(after),
        directory_settings=directory_settings(after.configuration)
        if snapshot.metadata.partition_columns
        else {},
        removed=tuple(_paths(snapshot, np.concatenate([removed, rewritten]))),
        rewritten_partitions=_partitions(snapshot, rewritten),
        rewritten=(input_files(snapshot.files, [rewritten]) or [InputFiles.of()])[0],
    )


def _paths(snapshot: Snapshot, rows: NDArray[np.int64]) -> list[str]:
    paths: list[str] = snapshot.files["path"].take(pa.array(rows)).to_pylist()
    return paths


def _partitions(snapshot: Snapshot, rows: NDArray[np.int64]) -> tuple[PartitionTexts, ...]:
    """Return the partition values of some files, one each; none without partition columns."""
    if not snapshot.metadata.partition_columns or not len(rows):
        return ()
    some = replace(snapshot, files=snapshot.files.take(pa.array(rows)), plain_files=None)
    found = partitions_of(some)
    return tuple(found.values[number] for number in found.number.tolist())


def _aligned(snapshot: Snapshot, request: WriteRequest, clock: Clock) -> Alignment:
    """Return how the data becomes rows of the table."""
    aligned = align(
        snapshot.schema,
        snapshot.metadata.configuration,
        snapshot.protocol,
        request.data,
        merge=request.merge_schema,
        new_id=clock.new_id,
    )
    if aligned.problems:
        raise SchemaMismatchError(
            "the DataFrame",
            render_schema(snapshot.schema),
            render_schema(request.data),
            aligned.problems,
        )
    return aligned


def _prefix(snapshot: Snapshot, columns: Sequence[ClusteringColumn]) -> tuple[int, ...]:
    if not columns or PREFIX_PROPERTY not in snapshot.metadata.configuration:
        return ()
    paths = prefix_among(remembered(snapshot, "prefix"), columns, option=PREFIX_PROPERTY)
    return prefix_numbers(paths, [column.logical for column in columns])


def _max_file_bytes(snapshot: Snapshot, request: WriteRequest) -> int:
    if request.max_file_bytes is not None:
        if request.max_file_bytes <= 0:
            raise UsageError(f"max_file_size must be positive, not {request.max_file_bytes}")
        return request.max_file_bytes
    if deciding_property(snapshot.metadata.configuration, "max_file_bytes") is None:
        return DEFAULT_FILE_BYTES
    found: int = remembered(snapshot, "max_file_bytes")
    return found


def _row_bytes(snapshot: Snapshot) -> float | None:
    """Return the stored bytes of a live row on average, None if too few are known."""
    known = snapshot.files.filter(pc.is_valid(snapshot.files["num_records"]))
    rows = int(pc.sum(known["num_records"]).as_py() or 0)
    size_bytes = int(pc.sum(known["size"]).as_py() or 0)
    return size_bytes / rows if rows >= _KNOWN_ROWS else None


def _replaced(
    store: TableStore, snapshot: Snapshot, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows in Snapshot.files of files with only, and with some, rows to replace."""
    configuration = snapshot.metadata.configuration
    if is_true(configuration, "delta.appendOnly"):
        raise UnsupportedFeatureError(snapshot.uri, "overwritten", ("delta.appendOnly",))
    bounds_of = remembering(partial(load_bounds, store, snapshot))
    session = Session(for_rows=True)
    (some,) = judged_each(snapshot, [where], bounds_of, session)
    if some.asks_for_time:
        raise UsageError(f"a column of the table has the name of the time in {where}", where=where)
    touched = np.asarray(some.may_match, np.bool_)
    whole = every_row_matches(snapshot, where, bounds_of, session)
    rewritten = np.flatnonzero(touched & ~whole)
    if len(rewritten):
        _require_rewritable(snapshot, where, rewritten)
    return np.flatnonzero(touched & whole), rewritten


def _require_rewritable(snapshot: Snapshot, where: str, rewritten: NDArray[np.int64]) -> None:
    """Refuse to rewrite files of a table that tracks rows or records changes."""
    switches = (ROW_TRACKING_ENABLED, "delta.enableChangeDataFeed")
    on = [name for name in switches if is_true(snapshot.metadata.configuration, name)]
    if on:
        raise UsageError(
            f"where may be true for some rows only of {len(rewritten)} file(s), whose other rows"
            f" cannot be moved because the table has {' and '.join(on)}; delete the rows with an"
            " engine that records this, and append, or choose a condition on which files end",
            where=where,
        )
