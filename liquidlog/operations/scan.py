"""Find the files that readers must open, by statistics alone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.errors import StorageError, UsageError
from liquidlog.log.loader import open_store
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.rewrite import read_file
from liquidlog.predicates.workload import (
    NotUsable,
    Recorded,
    Session,
    WeightedPredicate,
    Workload,
    shares,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arguments import address, several
from liquidlog.spec.text import Summary
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

if TYPE_CHECKING:
    from liquidlog.workload.form import Imported, Query

_ASKS_FOR_TIME: Final = re.compile(r"current_|curdate|localtimestamp|now", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateScan:
    """The files that a reader with one predicate must open; `share` is its share of all queries.

    `cannot_prune` lists the conditions in it that rule out no file, whatever the statistics.
    """

    where: str
    share: float
    files: int
    bytes: int
    cannot_prune: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Scan(Summary):
    """The files that the readers of a workload must open, at one version.

    `files_read` and `bytes_read` are means over the workload. `files` has the files that a
    predicate may match: path (decoded), size_bytes, and the share of the workload that opens the
    file.

    `cannot_prune` lists the conditions of all predicates that rule out no file. `not_usable` has
    the predicates that are no condition on this table, which count nowhere else. `asked_at` is the
    current time (ISO 8601, UTC) if a predicate depends on it, else None.
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

    `time_zone` names the time zone of the readers' sessions; without it, any zone is possible.
    `now_ms` is the current time in predicates; without it, conditions on the current time rule out
    no file.
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


def read_workload(
    path: str, *, table: str, storage_options: StorageOptions = NO_OPTIONS
) -> Workload:
    """Return what the workload at an address asks of a table.

    That is a file of predicates, an imported workload, or a source that can be imported. Queries
    that no file was opened for, and those of which no condition is certain, are left out. Values of
    the table stand in for redacted constants where they can. A statement in a file of SQL that is
    not understood is a predicate with this problem.
    """
    # See `scan`.
    from liquidlog.operations.workloads import asked_at

    written, problem = _written(path)
    if written and not any(one.problem for one in written):
        return written
    try:
        found = asked_at(path, table=table, storage_options=storage_options, problem=problem)
    except UsageError:
        if written:
            return written
        raise
    return _all_asked(found, path, table, storage_options)


def _all_asked(
    found: "Imported", where: str, table: str, storage_options: StorageOptions
) -> Workload:
    """Return the predicates of queries, and of SQL as people write it what was not understood."""
    is_written = all(query.source == "sql" for query in found.queries)
    wrong = (
        WeightedPredicate(one.example, one.times, problem=f"{where}: {one.reason}")
        for one in (found.not_understood if is_written else ())
    )
    return (*predicates_of(found.queries, table, storage_options), *wrong)


def workload_of(found: object, table: str, storage_options: StorageOptions) -> Workload:
    """Return a workload of a table as callers give it: a path, predicates, or statements of SQL."""
    if isinstance(found, str | PathLike):
        path = address(found, argument="workload")
        return read_workload(path, table=table, storage_options=storage_options)
    several_of: tuple[WeightedPredicate | str, ...] = several(
        found,
        (WeightedPredicate, str),
        argument="workload",
        of="predicates or SQL statements, or the path of a workload",
    )
    written = tuple(one for one in several_of if isinstance(one, WeightedPredicate))
    texts = [one for one in several_of if isinstance(one, str)]
    if not texts:
        return written
    # See `scan`.
    from liquidlog.workload.form import Tables, grouped
    from liquidlog.workload.query_logs import SQL, statement_asked
    from liquidlog.workload.sources import open_table

    known = Tables((open_table(table, storage_options),))
    asked = (statement_asked(text, known, source=SQL, dialect="") for text in texts)
    found = grouped(chain.from_iterable(asked))
    return (*written, *_all_asked(found, "workload", table, storage_options))


def predicates_of(
    queries: "Sequence[Query]", table: str, storage_options: StorageOptions
) -> Workload:
    """Return the predicates of queries of a table.

    Queries that no file was opened for, and those of which no condition is certain, are left out.
    Values of the table stand in for redacted constants where they can.
    """
    asked = tuple(
        WeightedPredicate(query.where, query.weight, recorded=_recorded(query))
        for query in queries
        if not query.reads_nothing and not (query.ambiguous and not query.conjuncts)
    )
    from liquidlog.operations.redacted import with_stand_ins

    options = None if is_local(table) else dict(storage_options.items)
    return with_stand_ins(open_store(table, options), asked)


def _recorded(query: "Query") -> Recorded:
    seen = query.observed
    return Recorded(
        first_ms=query.first_ms,
        last_ms=query.last_ms,
        files=None if seen is None else seen.files,
        bytes=None if seen is None else seen.bytes,
        source=query.source,
    )


def _written(path: str) -> tuple[Workload, UsageError | None]:
    """Return the predicates of a local file of JSON lines, or why it has none."""
    from liquidlog.predicates.matching import parse_workload

    is_sql = path.lower().endswith(".sql")
    if is_sql or not is_local(path) or not Path(local_path(path)).is_file():
        return (), None
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError:
        return (), UsageError(f"{path} is not UTF-8 text", where=path)
    except StorageError:
        return (), None
    try:
        return parse_workload(text, source=path), None
    except UsageError as error:
        return (), error


def at_time(where: object, now_ms: int) -> object:
    """Return a predicate with the current time as a literal, and the current date as that of UTC.

    Anything but a valid predicate that asks for the time is returned as it is.
    """
    if not isinstance(where, str) or _ASKS_FOR_TIME.search(where) is None:
        return where
    # See `scan`.
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
    """Return per predicate which live files may have rows of which it is true, for their reader."""
    # See `scan`.
    from liquidlog.predicates.matching import judged_each

    bounds_of = partial(load_bounds, store, snapshot)
    session = replace(Session.at_ms(now_ms, time_zone), for_rows=True)
    found = judged_each(snapshot, predicates, bounds_of, session)
    return tuple(np.asarray(one.may_match, np.bool_) for one in found)
