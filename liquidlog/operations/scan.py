"""Files that readers must open, by statistics alone, and as a document for whoever reads them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.choice import input_files, partitions_of
from liquidlog.clustering.row_tracking import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from liquidlog.clustering.settings import partition_time_zone
from liquidlog.errors import CorruptLogError, UsageError
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.plan import InputFiles, ReadPlan, RowTracking
from liquidlog.predicates.workload import (
    NotUsable,
    Session,
    Workload,
    shares,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.partitions import in_zone, partition_fields, typed_value
from liquidlog.spec.schema import mapping_mode
from liquidlog.spec.text import Summary

if TYPE_CHECKING:
    pass


_ASKS_FOR_TIME: Final = re.compile(r"current_|curdate|localtimestamp|now", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateScan:
    """The files that readers of one predicate must open; `share` is their share of all queries.

    `cannot_prune` lists its conditions that rule out no file, whatever the statistics.
    """

    where: str
    share: float
    files: int
    bytes: int
    cannot_prune: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Scan(Summary):
    """The files that the readers of a workload must open, at one version.

    `files_read` and `bytes_read` are means over the workload. `files` has path (decoded),
    size_bytes, and the share of queries that open the file. `not_usable` lists predicates that are
    no condition on the table. `asked_at` is the time (ISO 8601, UTC) if a predicate asks for it.
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
    """Return the files that readers with the predicates of a workload must open.

    Without a `time_zone` of the sessions, any is possible; without `now_ms`, conditions on the
    current time rule out no file.
    """
    # Importing the SQL parser takes a third of a command's start-up; most need no predicate.
    from liquidlog.predicates.matching import answers

    session = Session.at_ms(now_ms, _time_zone(time_zone))
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


def at_time(where: object, now_ms: int) -> object:
    """Return a predicate with the current time as a literal in UTC; anything else as it is."""
    if not isinstance(where, str) or _ASKS_FOR_TIME.search(where) is None:
        return where
    from liquidlog.predicates.conditions import at_time as with_time

    return with_time(where, 1000 * now_ms)


def _time_zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return UTC if name.upper() == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"there is no time zone {name!r}; name one as UTC or Europe/Berlin", time_zone=name
        ) from error


def matching(
    store: TableStore,
    snapshot: Snapshot,
    predicates: Sequence[str],
    *,
    time_zone: tzinfo | None = None,
    now_ms: int | None = None,
) -> tuple[NDArray[np.bool_], ...]:
    """Return per predicate the mask of live files that may have rows of which it is true."""
    from liquidlog.predicates.matching import judged_each

    bounds_of = partial(load_bounds, store, snapshot)
    session = replace(Session.at_ms(now_ms, time_zone), for_rows=True)
    found = judged_each(snapshot, predicates, bounds_of, session)
    return tuple(np.asarray(one.may_match, np.bool_) for one in found)


def plan_read(store: TableStore, snapshot: Snapshot, *, where: str | None) -> ReadPlan:
    """Return the files of a version that may have rows of which `where` is true, by default all."""
    arrow_schema(snapshot.schema)  # refuses columns that cannot be read
    rows = np.arange(snapshot.files.num_rows, dtype=np.int64)
    if where is not None:
        rows = np.flatnonzero(*matching(store, snapshot, [where]))
    partitions = partitions_of(snapshot)
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    time_zone = partition_time_zone(snapshot)
    found = tuple(in_zone(values, fields, time_zone) for values in partitions.values)
    for values in found:
        for field in fields:
            try:
                typed_value(values[field.physical_name], field)
            except ValueError as error:
                raise CorruptLogError(snapshot.uri, str(error)) from error
    return ReadPlan(
        table_uri=snapshot.uri,
        table_id=snapshot.metadata.id,
        version=snapshot.version,
        schema_string=snapshot.metadata.schema_string,
        mapping_mode=mapping_mode(snapshot.metadata.configuration),
        row_tracking=_hidden_columns(snapshot),
        partition_columns=partitions.columns,
        partitions=found,
        files=(input_files(snapshot.files, [rows]) or [InputFiles.of()])[0],
        partition_numbers=tuple(partitions.number[rows].tolist()),
        total_files=snapshot.files.num_rows,
    )


def _hidden_columns(snapshot: Snapshot) -> RowTracking | None:
    """Return the row tracking columns of data files, which readers leave out."""
    configuration = snapshot.metadata.configuration
    names = configuration.get(ROW_ID_COLUMN), configuration.get(ROW_COMMIT_VERSION_COLUMN)
    if names[0] is None or names[1] is None:
        return None
    return RowTracking(row_id_column=names[0], row_commit_version_column=names[1], preserved=False)
