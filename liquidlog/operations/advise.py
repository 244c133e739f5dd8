"""Read workloads for a table, and advise on its columns and layout from sampled rows."""

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import chain, permutations
from os import PathLike
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from msgspec import structs
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.advice import (
    BY_TIME,
    FEW,
    MIN_GAIN,
    NO_COLUMNS,
    NOT_AT_ALL,
    OWN_COLUMNS,
    PARTITIONS,
    SAME,
    Advice,
    AdviceDocument,
    Backtest,
    Candidate,
    Certainty,
    Current,
    Gain,
    Halves,
    Measured,
    OpenedBy,
    Space,
    backtest,
    by_shape,
    by_time,
    certainty,
    chosen,
    costs,
    folds,
    losers,
    marginal_gains,
    measured_file_sizes,
    plainest,
    plan_arguments,
    preferred_since,
    refusal,
    regrets,
    searched,
)
from liquidlog.clustering.building import output_count, writer_options
from liquidlog.clustering.columns import (
    DEFAULT_COLUMN_LIMIT,
    ClusteringColumn,
    clustered_by,
    clustering_state,
    resolve_columns,
    unpartitioned,
)
from liquidlog.clustering.planner import plan, readers_of
from liquidlog.clustering.settings import remembered, remembered_among
from liquidlog.commit import OpenedTable
from liquidlog.definition.create import cluster_by_change
from liquidlog.definition.schema_changes import properties_change
from liquidlog.errors import (
    ClusteringColumnError,
    LiquidlogError,
    TimestampNotFoundError,
    UsageError,
)
from liquidlog.foresee.plans import joined_files, live_rows, owners_of, profile_of
from liquidlog.foresee.rows import made_up, rows_of
from liquidlog.foresee.sample import Floats, Grouping, KeptRows, Layouts, Numbers, Sample
from liquidlog.foresee.verdict import (
    LONGER,
    MANY_FILES,
    Criteria,
    Opened,
    many,
    opened_by_masks,
    opened_of_laid,
)
from liquidlog.log.history import version_at
from liquidlog.log.loader import load_bounds, load_snapshot, open_store, require_used
from liquidlog.operations.writes import Derive, changed
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, FittedWorkload
from liquidlog.predicates.conditions import column_path, referenced_leaves, referenced_paths_each
from liquidlog.predicates.matching import Answers, answers, judged_each, parse_workload
from liquidlog.predicates.workload import Recorded, Session, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot, partition_values
from liquidlog.spec.bounds import Mask
from liquidlog.spec.schema import Leaf, Path, find_column, leaves, quote_path, resolve_path
from liquidlog.spec.text import address, parse_time, several
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    StorageOptions,
    is_local,
    local_path,
    table_address,
)
from liquidlog.storage.files import TableStore
from liquidlog.workload.queries import Imported, Query, Tables, grouped, redacted
from liquidlog.workload.sources import SQL, found_in, open_table, statement_asked


def import_workload(
    sources: Sequence[str],
    *,
    tables: Sequence[str] = (),
    since: str | None = None,
    without_constants: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Imported:
    """Return the queries in sources, of all or some tables, that ran after `since`."""
    if not sources:
        raise UsageError("name a source: an event log, a query log, a file of SQL or a table")
    if all(is_local(address) for address in (*sources, *tables)):
        require_used(sources[0], storage_options)
    since_ms = None if since is None else parse_time(since)
    options = StorageOptions.of(storage_options)
    known = Tables(tuple(open_table(table_address(address), options) for address in tables))
    found = grouped(found_in(sources, known, options), since_ms=since_ms)
    return redacted(found) if without_constants else found


def _imported(
    path: str, *, table: str, storage_options: StorageOptions, problem: UsageError | None = None
) -> Imported:
    """Return the queries of a table in the source or the imported workload at an address.

    The only table of a file of SQL counts as this one. `problem` is raised if this is no source.
    """
    known = Tables((open_table(table, storage_options),))
    try:
        found = grouped(found_in([path], known, storage_options))
        if path.lower().endswith(".sql") and not found.queries and len(found.other_tables) == 1:
            found = grouped(found_in([path], Tables(), storage_options))
    except UsageError as error:
        raise (problem or error) from None
    if found.queries:
        return found
    if problem is not None and not found.other_tables:
        raise problem
    others = sorted(found.other_tables)[:5]
    instead = [f"it has queries of {', '.join(others)}"] if others else []
    instead += [f"{one.reason}: {one.example}" for one in found.not_understood[:1]]
    raise UsageError("; ".join([f"{path} has no query of {table}", *instead]), where=path)


# Stand-ins: values of the table in place of redacted constants
#
# A placeholder like `:q250` says where a constant lies among the constants that were compared with
# its column. A value at the same place among the table's values stands in for it: the files that a
# query for one value reads hardly depend on the value. How many rows are below or above a constant
# is not known, so conditions like `day >= :q250` cannot be used.

_PLACEHOLDER: Final = re.compile(r":(q[0-9]{1,4}|redacted)\b")
_PLACE: Final = re.compile(r"q([0-9]{1,4})")
_STEPS: Final = 1000
_ROWS: Final = 4096
"""Values made up from file bounds; one of them stands in for a constant."""


def is_redacted(where: str) -> bool:
    return _PLACEHOLDER.search(where) is not None


@dataclass(slots=True)
class StandIns:
    """Values of one table that stand in for redacted constants."""

    store: TableStore
    snapshot: Snapshot
    _values: dict[Path, pa.Array] = field(default_factory=dict)

    def predicate(self, redacted: WeightedPredicate) -> WeightedPredicate:
        """Return the predicate with stand-ins (placeholders as comments), or with its problem."""
        try:
            tree = sqlglot.parse_one(redacted.where, dialect="spark")
            named = list(tree.find_all(exp.Placeholder))
            found = [self._stand_in(one) for one in named if is_redacted(f":{one.name}")]
        except (SqlglotError, RecursionError, _NothingStandsInError) as error:
            why = str(error) if isinstance(error, _NothingStandsInError) else "it is not SQL"
            problem = (
                f"its constants were redacted, and no value can stand in for them: {why}; import"
                " the workload without --redact where its constants may be seen, and make the plan"
                " or the advice there"
            )
            return replace(redacted, problem=problem)
        for node, literal in found:
            literal.add_comments([f" :{node.name} "])
            node.replace(literal)
        return replace(redacted, where=tree.sql("spark"), has_stand_ins=bool(found))

    def _stand_in(self, node: exp.Placeholder) -> tuple[exp.Placeholder, exp.Expr]:
        place, parent, path = _PLACE.fullmatch(node.name), node.parent, None
        if isinstance(parent, exp.EQ | exp.NEQ | exp.NullSafeEQ | exp.In):
            other = parent.this if parent.this is not node else parent.expression
            path = column_path(other.unnest())
        if place is None or path is None:
            condition = str((parent or node).sql("spark", comments=False))
            raise _NothingStandsInError(
                f"{condition} tells only the order of constants, not how many rows match"
            )
        schema = self.snapshot.schema
        known = {leaf.logical: leaf for leaf in leaves(schema)}
        leaf = find_column(schema, path) and known.get(resolve_path(schema, path)[0])
        if not leaf:
            raise _NothingStandsInError(f"the table has no column {quote_path(path)} of one value")
        values = self._sorted(leaf)
        if not len(values):
            raise _NothingStandsInError(f"no bounds of {quote_path(path)} can be used")
        number = min(int(place[1]), _STEPS) * (len(values) - 1) // _STEPS
        return node, sqlglot.parse_one(_literal(values[number].as_py(), leaf), dialect="spark")

    def _sorted(self, leaf: Leaf) -> pa.Array:
        """Return values that the files of the table may have, sorted, without nulls."""
        if leaf.logical not in self._values:
            snapshot = self.snapshot
            if leaf.logical[0] in snapshot.metadata.partition_columns:
                values = partition_values(snapshot.files, leaf).values
            else:
                bounds = load_bounds(self.store, snapshot, [leaf])
                sizes = np.asarray(snapshot.files["size"].to_numpy(), np.float64)
                made, _ = made_up([leaf], bounds, sizes, _ROWS)
                values = made.column(0).combine_chunks()
            values = values.drop_null()
            if pa.types.is_floating(values.type):
                values = values.filter(pc.is_finite(values))
            if pa.types.is_string(values.type):
                # What these characters mean inside a constant depends on the reader's session.
                values = values.filter(pc.invert(pc.match_substring_regex(values, r"['\\]")))
            self._values[leaf.logical] = values.take(pc.sort_indices(values))
        return self._values[leaf.logical]


class _NothingStandsInError(Exception):
    """Nothing can stand in for a redacted constant; the message says why."""


def _literal(value: Any, leaf: Leaf) -> str:  # noqa: ANN401  a value of any column
    kind = str(getattr(leaf.data_type, "name", ""))
    match value:
        case bool() | bytes():
            raise _NothingStandsInError(f"{quote_path(leaf.logical)} has no bounds")
        case dt.datetime():
            zone = "Z" if kind == "timestamp" else ""
            return f"{kind.upper()} '{value.replace(tzinfo=None).isoformat(sep=' ')}{zone}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return f"{value:f}"
        case float() if math.isfinite(value):
            return f"CAST('{value!r}' AS DOUBLE)"
        case int():
            return str(value)
        case _:
            return str(exp.Literal.string(str(value)).sql("spark"))


def read_workload(
    path: str, *, table: str, storage_options: StorageOptions = NO_OPTIONS
) -> Workload:
    """Return the predicates on a table in a file of them, an imported workload, or a source."""
    written, problem = _written(path)
    if written and not any(one.problem for one in written):
        return written
    try:
        found = _imported(path, table=table, storage_options=storage_options, problem=problem)
    except UsageError:
        if written:
            return written
        raise
    return _predicates(found, path, table, storage_options)


def _predicates(
    found: Imported, where: str, table: str, storage_options: StorageOptions
) -> Workload:
    """Return the predicates of queries, and SQL statements that were not understood."""
    is_written = all(query.source == "sql" for query in found.queries)
    wrong = (
        WeightedPredicate(one.example, one.times, problem=f"{where}: {one.reason}")
        for one in (found.not_understood if is_written else ())
    )
    return (*predicates_of(found.queries, table, storage_options), *wrong)


def workload_of(found: object, table: str, storage_options: StorageOptions) -> Workload:
    """Return a workload as callers give it: a path, predicates, or statements of SQL."""
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
    known = Tables((open_table(table, storage_options),))
    queries = (statement_asked(text, known, source=SQL, dialect="") for text in texts)
    found = grouped(chain.from_iterable(queries))
    return (*written, *_predicates(found, "workload", table, storage_options))


def predicates_of(
    queries: Sequence[Query], table: str, storage_options: StorageOptions
) -> Workload:
    """Return the predicates of queries, with stand-ins for redacted constants."""
    found = tuple(
        WeightedPredicate(query.where, query.weight, recorded=_recorded(query))
        for query in queries
        if not query.reads_nothing and not (query.ambiguous and not query.conjuncts)
    )
    if not any(is_redacted(one.where) for one in found):
        return found
    store = open_store(table, None if is_local(table) else dict(storage_options.items))
    known = StandIns(store, load_snapshot(store))
    return tuple(known.predicate(one) if is_redacted(one.where) else one for one in found)


def _recorded(query: Query) -> Recorded:
    seen = query.observed
    return Recorded(
        first_ms=query.first_ms,
        last_ms=query.last_ms,
        files=None if seen is None else seen.files,
        bytes=None if seen is None else seen.bytes,
        source=query.source,
    )


def _written(path: str) -> tuple[Workload, UsageError | None]:
    is_sql = path.lower().endswith(".sql")
    if is_sql or not is_local(path) or not FilePath(local_path(path)).is_file():
        return (), None
    try:
        text = FilePath(path).read_bytes().decode()
    except UnicodeDecodeError:
        return (), UsageError(f"{path} is not UTF-8 text", where=path)
    except OSError:
        return (), None
    try:
        return parse_workload(text, source=path), None
    except UsageError as error:
        return (), error


_MOST_VERSIONS: Final = 4
"""The most versions that are loaded for scans of the past."""

_IN_COLUMNS: Final = "databricks-history"
"""A source that counts the bytes of the columns read, not of whole files."""


def backtested(
    store: TableStore, snapshot: Snapshot, workload: Workload, read_now: Floats, now_ms: int
) -> Backtest:
    """Return predicted beside observed bytes of the scans whose engine counted them.

    The four versions with the most scans are loaded; other scans are predicted on today's.
    """
    observed = {
        number: one.recorded.bytes
        for number, one in enumerate(workload)
        if one.recorded is not None and one.recorded.bytes is not None
    }
    seen = list(observed)
    scans = [workload[number] for number in seen]
    versions = _versions(store, snapshot, scans)
    past: dict[int, float] = {}
    for one, version in zip(scans, versions, strict=True):
        if version is not None and version != snapshot.version:
            past[version] = past.get(version, 0.0) + one.weight
    predicted = read_now[seen].copy() if seen else np.zeros(0)
    on_version = np.array([version == snapshot.version for version in versions], np.float64)
    for version in sorted(past, key=lambda version: -past[version])[:_MOST_VERSIONS]:
        rows = [place for place, found in enumerate(versions) if found == version]
        wheres = [scans[place].where for place in rows]
        try:
            then = load_snapshot(store, version)
            bounds_of, session = partial(load_bounds, store, then), Session(now_ms)
            found = judged_each(then, wheres, bounds_of, session)
        except LiquidlogError:
            continue  # e.g. its log files or columns are gone
        sizes = then.files["size"].to_numpy()
        predicted[rows] = [sizes[np.asarray(one.may_match, np.bool_)].sum() for one in found]
        on_version[rows] = 1.0
    return backtest(
        np.array([one.weight for one in scans]),
        predicted,
        np.array(list(observed.values()), np.float64),
        on_version=on_version,
        notes=_notes(scans, on_version, versions.count(None)),
    )


def _versions(
    store: TableStore, snapshot: Snapshot, seen: Sequence[WeightedPredicate]
) -> list[int | None]:
    """Return the version at each scan's time, None where unknown."""
    found: list[int | None] = []
    known: dict[int, int | None] = {}
    for one in seen:
        time_ms = None if one.recorded is None else one.recorded.last_ms
        if time_ms is None or time_ms >= snapshot.timestamp_ms:
            found.append(None if time_ms is None else snapshot.version)
            continue
        minute = time_ms - time_ms % 60_000
        if minute not in known:
            try:
                known[minute] = version_at(store, snapshot, time_ms)
            except TimestampNotFoundError:
                known[minute] = None
        found.append(known[minute])
    return found


def _notes(seen: Sequence[WeightedPredicate], on_version: Floats, unknown: int) -> list[str]:
    notes = []
    left = int(len(on_version) - on_version.sum())
    if left:
        why = "the table has changed since"
        if unknown == left:
            why = "the log does not tell which files the table had then"
        notes.append(
            f"{left} of {len(seen)} recorded queries are predicted on today's files: {why}"
        )
    if any(one.recorded is not None and one.recorded.source == _IN_COLUMNS for one in seen):
        notes.append(
            f"{_IN_COLUMNS} counts the bytes of the columns that were read, and predictions are of"
            " whole files: they are larger"
        )
    return notes


# What the queries of a workload read now

_MOST_FILES: Final = 200_000
"""The most files on which every predicate is evaluated; of more files, half as many are."""


def table_readers(
    store: TableStore, snapshot: Snapshot, workload: Workload, now_ms: int
) -> "TableReaders":
    session = Session(now_ms)
    count = snapshot.files.num_rows
    files: Numbers = np.arange(count)
    if count > _MOST_FILES:
        random = np.random.default_rng(count)
        files = np.sort(random.choice(count, _MOST_FILES // 2, replace=False)).astype(np.int64)
    some = replace(snapshot, files=snapshot.files.take(pa.array(files)), plain_files=None)
    some = snapshot if len(files) == count else some
    readers = answers(some, workload, partial(load_bounds, store, some), session)
    named = _named(snapshot, readers)
    sizes = np.asarray(some.files["size"].to_numpy(), np.float64)
    masks = [np.asarray(one.may_match, np.bool_) for one in readers.judged]
    total_bytes = float(snapshot.size_bytes)
    scale = total_bytes / float(sizes.sum()) if sizes.sum() > 0 else 1.0
    return TableReaders(
        store=store,
        snapshot=snapshot,
        readers=readers,
        named=named,
        halves=_halves(readers.workload, named.shapes),
        now=opened_by_masks(sizes, masks, profile_of(snapshot.location), scale=scale),
        masks=masks,
        files=files,
        scale=scale,
        total_bytes=total_bytes,
        session=session,
        now_ms=now_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedColumns:
    """The leaves and paths that all predicates name, and the paths that each names."""

    leaves: tuple[Leaf, ...]
    paths: tuple[Path, ...]
    shapes: tuple[frozenset[Path], ...]


def _named(snapshot: Snapshot, readers: Answers) -> NamedColumns:
    wheres = [one.where for one in readers.workload]
    named = referenced_paths_each(snapshot.schema, wheres)
    known = {leaf.logical for leaf in leaves(snapshot.schema)}
    paths = dict.fromkeys(path for some in named for path in some if path in known)
    return NamedColumns(
        leaves=referenced_leaves(unpartitioned(snapshot), wheres),
        paths=tuple(paths),
        shapes=tuple(map(frozenset, named)),
    )


def _halves(workload: Workload, shapes: Sequence[frozenset[Path]]) -> Halves:
    weights = np.array([one.weight for one in workload], np.float64)
    recorded = [one.recorded for one in workload]
    firsts = [None if one is None else one.first_ms for one in recorded]
    lasts = [None if one is None else one.last_ms for one in recorded]
    texts = [one.where for one in workload]
    parted = by_time(weights, firsts, lasts) if len(weights) >= FEW else None
    return parted or by_shape(weights, shapes, texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReaders:
    """The table as it is, and what its predicates read now.

    `files` are rows of `Snapshot.files`: all, or a sample of very many. `masks` have one bool for
    each of them. Sums over them are multiplied by `scale`.
    """

    store: TableStore
    snapshot: Snapshot
    readers: Answers
    named: NamedColumns
    halves: Halves
    now: Opened[Floats]
    masks: Sequence[Mask]
    files: Numbers
    scale: float
    total_bytes: float
    session: Session
    now_ms: int

    @property
    def wheres(self) -> list[str]:
        return [one.where for one in self.readers.workload]

    def mean(self, values: Floats, weights: Floats) -> float:
        return float(weights @ values) / float(weights.sum())

    def fitted_readers(self, weights: Floats, columns: Sequence[Path]) -> FittedWorkload | None:
        """Return the predicates with these weights on columns, None without any."""
        weighted = tuple(
            replace(one, weight=float(weight))
            for one, weight in zip(self.readers.workload, weights, strict=True)
            if weight > 0
        )
        found = readers_of(weighted, columns, self.snapshot.schema)
        return found if found.has_queries else None

    def joined(self, max_file_bytes: int) -> Opened[Floats]:
        """Return what predicates would read if files were joined by size in partitions."""
        some = self.snapshot.files.take(pa.array(self.files))
        sizes = np.asarray(some["size"].to_numpy(), np.float64)
        texts = some["partition_values_json"].combine_chunks()
        encoded = pc.dictionary_encode(texts, null_encoding="encode")
        partition = np.asarray(encoded.indices.to_numpy(), np.int64)
        order = np.lexsort((sizes, partition))
        outputs = [output_count(int(one), max_file_bytes) for one in np.bincount(partition, sizes)]
        number = joined_files(partition[order], sizes[order], np.array(outputs, np.int64))
        joined = np.empty(len(sizes), np.int64)
        joined[order] = np.unique(number, return_inverse=True)[1]
        count = int(joined.max(initial=-1)) + 1
        masks = [np.bincount(joined[mask], minlength=count) > 0 for mask in self.masks]
        of_joined = np.bincount(joined, sizes, count).astype(np.float64)
        return opened_by_masks(of_joined, masks, self.now.profile, scale=self.scale)

    def current(self) -> Current:
        """Return what the newest queries read."""
        weights, columns = self.halves.newest, clustering_state(self.snapshot).columns
        read = self.mean(self.now.bytes, weights)
        return Current(
            columns=tuple(column.logical for column in columns),
            read_share=read / self.total_bytes if self.total_bytes else 0.0,
            bytes_per_reading=read,
            files_per_reading=self.mean(self.now.files, weights),
        )

    def fields(self) -> dict[str, Any]:
        snapshot, readers = self.snapshot, self.readers
        tested = Backtest()
        if self.total_bytes > 0:
            read = self.now.bytes
            tested = backtested(self.store, snapshot, readers.workload, read, self.now_ms)
        return {
            "table_uri": snapshot.uri,
            "table_id": snapshot.metadata.id,
            "version": snapshot.version,
            "backtest": tested,
            "current": self.current(),
            "queries_older": int((self.halves.older > 0).sum()),
            "queries_newest": int((self.halves.newest > 0).sum()),
            "parted_by": self.halves.by,
            "cannot_prune": readers.cannot_prune,
            "not_usable": readers.not_usable,
            "asked_at": readers.asked_at(self.now_ms),
        }


# The search for the best layout

_ANY_SIZE: Final = 1 << 40
"""Any maximum file size: the grouping of files does not depend on it."""

_HALVES: Final = 4
"""How many halves of the sample are measured, for its error."""
_LAID_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of `Table.advise`. Without `reads_rows`, only the log is read."""

    columns: tuple[Path, ...] | None = None
    max_columns: int = DEFAULT_COLUMN_LIMIT
    min_gain: float = MIN_GAIN
    max_file_bytes: int | None = None
    reads_rows: bool = True

    def __post_init__(self) -> None:
        if self.max_columns > DEFAULT_COLUMN_LIMIT:
            raise UsageError(
                f"max_columns is {self.max_columns}, and a table has at most"
                f" {DEFAULT_COLUMN_LIMIT} clustering columns",
                option="max_columns",
            )


class _Judged(NamedTuple):
    """A candidate and its gain; `why_not` is None if the gain is worth the rewrite."""

    best: Candidate
    certain: Certainty
    joined: Opened[Floats]
    gain: Gain
    why_not: str | None


class LayoutSearch:
    """Measures candidates on a sample, and judges the best one."""

    def __init__(
        self,
        base: TableReaders,
        request: Request,
        columns: tuple[ClusteringColumn, ...],
        new_id: Callable[[], str],
        notes: tuple[str, ...],
        kept: KeptRows,
    ) -> None:
        self._base, self._request, self._columns = base, request, columns
        self._notes = list(notes)
        snapshot, count = base.snapshot, base.snapshot.files.num_rows
        own, own_size = clustering_state(snapshot).columns, remembered(snapshot, "max_file_bytes")
        self._own_paths = tuple(column.logical for column in own)
        self._sizes = measured_file_sizes(int(base.total_bytes), own_size, count)
        if request.max_file_bytes is not None:
            self._sizes = (request.max_file_bytes,)
        self._plain = unpartitioned(snapshot)
        # Any set of columns but the table's own gives the same groups.
        self._foreign = _grouping(snapshot, columns[::-1] if columns == own else columns, new_id)
        self._own = _grouping(snapshot, own, new_id) if own else self._foreign
        self._left = opened_by_masks(
            np.asarray(snapshot.files["size"].to_numpy(), np.float64)[base.files],
            [mask & (self._own.group_of_file[base.files] < 0) for mask in base.masks],
            base.now.profile,
            scale=base.scale,
        )
        if len(base.files) < count:
            self._notes.append(f"present reads are measured on {len(base.files)} of {count} files")
        rows = rows_of(
            base.store,
            snapshot,
            self._sampled_leaves(),
            outputs=sum(_outputs(self._foreign, self._sizes[-1])),
            among=np.flatnonzero(self._foreign.group_of_file >= 0),
            reads_rows=request.reads_rows,
            kept=kept,
        )
        self._sample = rows.samples[0]
        if rows.problem is not None:
            self._notes.append(f"rows are made up from statistics: {rows.problem}")
        self._prefix_chars = writer_options(snapshot, ()).string_prefix_chars
        self._layouts = self._layouts_of(self._sample)
        self._readers: dict[Candidate, FittedWorkload | None] = {}

    def _sampled_leaves(self) -> tuple[Leaf, ...]:
        """Return the leaves to sample: those that can have statistics."""
        configuration = self._base.snapshot.metadata.configuration
        usable = {column.logical for column in self._columns}
        found = {leaf.logical: leaf for leaf in self._base.named.leaves}
        known = {leaf.logical: leaf for leaf in leaves(self._base.snapshot.schema)}
        found |= {path: known[path] for path in (*usable, *self._own_paths)}
        for path in [path for path in found if path not in usable]:
            try:
                resolve_columns(self._base.snapshot.schema, [path], configuration=configuration)
            except ClusteringColumnError:
                del found[path]
        return tuple(found.values())

    def _layouts_of(self, sample: Sample) -> Layouts:
        return Layouts(
            sample=sample, leaves=self._base.named.leaves, prefix_chars=self._prefix_chars
        )

    def _is_own(self, candidate: Candidate) -> bool:
        return candidate.columns == self._own_paths

    def _measure(
        self,
        candidates: Sequence[Candidate],
        layouts: Layouts | None = None,
        readers: Sequence[FittedWorkload | None] | None = None,
        grouping: Grouping | None = None,
    ) -> Sequence[Opened[Floats]]:
        base, using = self._base, layouts or self._layouts
        asks = readers or [self._fitted_to(one) if one.is_fitted else None for one in candidates]
        groupings = [grouping or self._group(one) for one in candidates]
        orders = [one.layout(ask) for one, ask in zip(candidates, asks, strict=True)]
        sizes = [one.max_file_bytes for one in candidates]
        with ThreadPoolExecutor(_LAID_AT_ONCE) as pool:
            laid = list(pool.map(using.laid, orders, groupings, map(_outputs, groupings, sizes)))
        found = opened_of_laid(self._plain, laid, using.leaves, base.wheres, base.session, base.now)
        return [
            read + self._left if grouping is None and self._is_own(one) else read
            for one, read in zip(candidates, found, strict=True)
        ]

    def _fitted_to(self, candidate: Candidate) -> FittedWorkload | None:
        if candidate not in self._readers:
            older = self._base.halves.older
            self._readers[candidate] = self._base.fitted_readers(older, candidate.columns)
        return self._readers[candidate]

    def _held_back(self, found: OpenedBy) -> OpenedBy:
        """Measure fitted layouts by folds, the cheapest first; drop sure losers from `found`."""
        base, older = self._base, self._base.halves.older
        if base.halves.by == NOT_AT_ALL:
            return found
        parts, known = folds(older, base.named.shapes), costs(found, older)
        held = {one: read for one, read in found.items() if not one.is_fitted}
        least = min(known.values())
        for one in sorted(found.keys() - held.keys(), key=lambda one: (known[one], one.plainness)):
            bound = min(regrets({each: found[each] for each in held}, held, older).values()).cost
            if known[one] > least * bound * (1 + SAME):
                del found[one]
            else:
                held[one] = self._by_folds(one, parts)
        return held

    def _by_folds(self, candidate: Candidate, parts: Floats) -> Opened[Floats]:
        """Return what queries read if a candidate is fitted to all folds but the query's own."""
        older = self._base.halves.older
        readers = [self._base.fitted_readers(older - part, candidate.columns) for part in parts]
        read = self._measure([candidate] * len(parts), readers=readers)
        shares = np.divide(parts, older, out=np.zeros_like(parts), where=older > 0)
        return Opened(
            bytes=(shares * np.stack([one.bytes for one in read])).sum(axis=0),
            files=(shares * np.stack([one.files for one in read])).sum(axis=0),
            profile=self._base.now.profile,
        )

    def advice(self) -> Advice:
        base, request = self._base, self._request
        outputs = max(_outputs(self._foreign, self._sizes[-1]), default=1)
        columns = tuple(column.logical for column in self._columns)
        sampled = [one for one in self._sample.columns if one.leaf.logical in columns]
        space = Space(
            columns=columns,
            few_valued=[
                column.leaf.logical
                for column in self._sample.columns
                if 1 < len(column.distinct) <= outputs
            ],
            max_columns=request.max_columns,
            sizes=self._sizes,
            one_order=[
                frozenset((one.leaf.logical, other.leaf.logical))
                for one, other in permutations(sampled, 2)
                if one.is_in_order_of(other)
            ],
        )
        if not space.is_whole:
            self._notes.append(
                f"{len(space.columns)} columns have too many sets and forms to measure all: sets"
                " are grown from the best ones, and the best are tried in every form"
            )
        older = base.halves.older
        found = searched(space, self._measure, older)
        self._add_own(found)
        held = self._held_back(found)
        judged = self._judged(found, held, self._chosen(found, held))
        gain, is_by_time = judged.gain, base.halves.by == BY_TIME
        has_changed = is_by_time and gain.share < request.min_gain <= gain.share_of_older
        if judged.why_not is not None and has_changed:
            for_both = self._judged(found, found, self._for_all_times(found, held))
            if for_both.why_not is None and for_both.gain.share_of_older >= request.min_gain:
                judged = for_both
                self._notes.append(
                    "the layout is the best for older and newest queries together: the newest chose"
                    " it too, and do not prove it"
                )
        ranks = regrets(found, held, older)
        best, gain, certain, joined = judged.best, judged.gain, judged.certain, judged.joined
        if (known := int((base.halves.newest > 0).sum())) < FEW:
            self._notes.append(
                f"judged on {known} predicate(s): the intervals hold for these, and do not say what"
                " other queries would read"
            )
        elif is_by_time:
            self._note_what_changed(found, best)
        if base.snapshot.metadata.partition_columns:
            self._notes.append(
                "the table is partitioned by"
                f" {', '.join(base.snapshot.metadata.partition_columns)}, and can only be clustered"
                " by liquidlog migrate, which rewrites all of it: this is what queries read then"
            )
        cost_now = base.mean(base.now.seconds, older)
        weights = np.array([one.weight for one in base.readers.workload], np.float64)
        return Advice(
            **base.fields(),
            best=self._measured(best, found[best], held[best]),
            reason=judged.why_not or "",
            gain=gain.share,
            gain_interval=gain.range,
            interval=certain.read_share,
            candidates=tuple(
                self._measured(one, found[one], held[one])
                for one in sorted(found, key=lambda one: (ranks[one], one.plainness))
            ),
            columns=marginal_gains(
                found, best, space, older, cost_now, base.mean(joined.seconds, older)
            ),
            rewrite_bytes=round(self._group(best).size_bytes.sum()),
            sample=self._sample.source,
            sampled_rows=len(self._sample),
            sampled_files=self._sample.files,
            losers=losers(base.wheres, weights, base.now, found[best]),
            fitted=self._fitted_to(best) if best.is_fitted else None,
            notes=tuple(self._notes),
        )

    def _chosen(self, found: OpenedBy, held: OpenedBy) -> Candidate:
        """Return the older queries' best candidate among those that slow down few readers."""
        base = self._base
        weights = np.array([one.weight for one in base.readers.workload], np.float64)
        readers = many(weights, base.named.shapes)
        most = LONGER * (readers @ base.now.seconds)
        harmless = [one for one, read in found.items() if (readers @ read.seconds <= most).all()]
        ranks = regrets(found, held, base.halves.older)
        return chosen({one: ranks[one] for one in harmless or found})

    def _judged(self, found: OpenedBy, held: OpenedBy, best: Candidate) -> _Judged:
        base, joined = self._base, self._joined(found, best)
        certain = self._certainty(best, found[best])
        newest, older = base.halves.newest, base.halves.older
        cost_now, older_now = (base.mean(base.now.seconds, half) for half in (newest, older))
        partitions = base.snapshot.metadata.partition_columns
        cost_held = base.mean(held[best].seconds, older)
        gain = Gain(
            cost_now=cost_now,
            cost_joined=min(cost_now, base.mean(joined.seconds, newest)),
            cost_after=base.mean(found[best].seconds, newest),
            range=certain.gain,
            share_of_older=1 - cost_held / older_now if older_now else 0.0,
            joins=OWN_COLUMNS if self._own_paths else PARTITIONS if partitions else NO_COLUMNS,
            is_by_time=base.halves.by == BY_TIME,
        )
        return _Judged(best, certain, joined, gain, refusal(gain, min_gain=self._request.min_gain))

    def _for_all_times(self, found: OpenedBy, held: OpenedBy) -> Candidate:
        """Return the best candidate for all queries; a fitted one knows only the older ones."""
        plain = {one: read for one, read in found.items() if not one.is_fitted}
        every = self._base.halves.older + self._base.halves.newest
        best = chosen(regrets(plain, plain, every))
        sizes = [replace(best, max_file_bytes=size) for size in self._sizes]
        new = [one for one in sizes if one not in found]
        measured = dict(zip(new, self._measure(new), strict=True))
        found.update(measured)
        held.update(measured)
        sized = {one: found[one] for one in sizes}
        return chosen(regrets(sized, sized, every))

    def _note_what_changed(self, found: OpenedBy, best: Candidate) -> None:
        preferred = preferred_since(found, best, self._base.halves.newest)
        if preferred is not None and preferred[1] >= self._request.min_gain:
            names = ", ".join(quote_path(path) for path in preferred[0].columns)
            self._notes.append(
                f"queries have changed: the newest would cost {preferred[1]:.0%} less by {names};"
                " ask again when more of them are recorded"
            )

    def _add_own(self, found: OpenedBy) -> None:
        sizes = {one.max_file_bytes for one in found}
        if self._own_is_sampled() and not any(map(self._is_own, found)):
            new = [plainest(self._own_paths, size) for size in sorted(sizes)]
            found.update(zip(new, self._measure(new), strict=True))

    def _own_is_sampled(self) -> bool:
        known = {column.leaf.logical for column in self._sample.columns}
        return bool(self._own_paths) and known.issuperset(self._own_paths)

    def _measured(
        self, candidate: Candidate, read: Opened[Floats], held: Opened[Floats]
    ) -> Measured:
        base = self._base
        newest, older = base.halves.newest, base.halves.older
        group = self._group(candidate)
        outputs = sum(_outputs(group, candidate.max_file_bytes))
        return Measured(
            candidate=candidate,
            files=outputs + int((group.group_of_file < 0).sum()),
            read_share=base.mean(read.bytes, newest) / base.total_bytes,
            older_read_share=base.mean(held.bytes, older) / base.total_bytes,
            bytes_per_reading=base.mean(read.bytes, newest),
            files_per_reading=base.mean(read.files, newest),
        )

    def _group(self, candidate: Candidate) -> Grouping:
        return self._own if self._is_own(candidate) else self._foreign

    def _certainty(self, best: Candidate, read: Opened[Floats]) -> Certainty:
        base = self._base
        halves = []
        for seed in range(_HALVES):
            layouts = self._layouts_of(self._sample.half(seed))
            (half,) = self._measure([best], layouts)
            halves.append((half.seconds, half.bytes / base.total_bytes))
        newest, now = base.halves.newest, base.now.seconds
        return certainty(newest, now, read.seconds, read.bytes / base.total_bytes, halves)

    def _joined(self, found: OpenedBy, best: Candidate) -> Opened[Floats]:
        """Return the least that queries read without new columns, with small files joined."""
        base = self._base
        if not self._own_paths:
            joined = [base.joined(size) for size in self._sizes]
        elif self._is_own(best):
            joined = [base.now]
        else:
            joined = [base.now, *(read for one, read in found.items() if self._is_own(one))]
            # A new layout also of files in order, which OPTIMIZE leaves.
            if self._own_is_sampled():
                anew = [plainest(self._own_paths, best.max_file_bytes)]
                joined += self._measure(anew, grouping=self._foreign)
        return min(joined, key=lambda one: base.mean(one.seconds, base.halves.older))


def _outputs(grouping: Grouping, max_file_bytes: int) -> list[int]:
    return [output_count(int(size), max_file_bytes) for size in grouping.size_bytes]


def _grouping(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], new_id: Callable[[], str]
) -> Grouping:
    """Return the groups of OPTIMIZE FULL if the table were clustered by these columns."""
    sizes = remembered_among(snapshot, ("min_cube_bytes", "target_cube_bytes"))
    policy = ClusteringPolicy(full=True, max_file_bytes=_ANY_SIZE, **sizes)
    made = plan(clustered_by(snapshot, columns), policy, new_id=new_id)
    size_bytes = snapshot.files["size"].to_numpy().astype(np.float64)
    owners, rows = owners_of(snapshot, made), live_rows(snapshot)
    return Grouping.of(owners, size_bytes, rows, groups=len(made.groups))


def advised(
    opened: OpenedTable, snapshot: Snapshot, criteria: Criteria, request: Request | None = None
) -> Advice | None:
    """Return the best layout; without a `request`, None for a huge table or after an error."""
    if request is None and snapshot.files.num_rows > MANY_FILES:
        return None
    now_ms = opened.clock.now_ms() if criteria.now_ms is None else criteria.now_ms
    wanted = request or Request(reads_rows=criteria.reads_rows)
    try:
        readers = table_readers(opened.store, snapshot, criteria.workload, now_ms)
        columns, notes = _columns(snapshot, readers.named.paths, wanted.columns)
        if snapshot.files.num_rows and columns:
            new_id = opened.clock.new_id
            return LayoutSearch(readers, wanted, columns, new_id, notes, criteria.rows).advice()
        reason = "no query asks for a column that a table can be clustered by"
        reason = reason if snapshot.files.num_rows else "the table has no files"
        return Advice(**readers.fields(), reason=reason, notes=notes)
    except LiquidlogError:
        if request is not None:
            raise
        return None


def apply_advice(opened: OpenedTable, advice: Advice, *, dry_run: bool) -> tuple[int, ...]:
    """Commit the advised columns, then the properties, where they change; return the versions."""
    snapshot, best = opened.to_change(), advice.recommended
    if advice.table_id != snapshot.metadata.id:
        raise UsageError(
            f"the advice is for the table {advice.table_uri}, not for {snapshot.uri}",
            table_uri=advice.table_uri,
        )
    if best is None:
        return ()
    sets, unset = advice.sets, advice.unset
    changes: list[Derive] = [partial(cluster_by_change, columns=best.candidate.columns)]
    if sets or unset:
        changes.append(partial(properties_change, properties=sets, unset=unset))
    versions: list[int] = []
    for derive in changes:
        before = opened.to_change().version
        after = changed(opened, derive, dry_run=dry_run)
        if after != before:
            versions.append(after + len(versions) if dry_run else after)
    return tuple(versions)


def plan_advised(
    snapshot: Snapshot,
    advice: AdviceDocument,
    policy: Mapping[str, Any],
    make: Callable[..., ClusteringPlan],
) -> ClusteringPlan:
    """Return the plan that makes the layout of saved advice; `make` is Table.plan."""
    columns = tuple(column.logical for column in clustering_state(snapshot).columns)
    arguments = plan_arguments(
        advice, table_id=snapshot.metadata.id, columns=columns, uri=snapshot.uri
    )
    decided = {*arguments, "curve", "prefix", "workload"} - {"full"}
    both = sorted(name for name in decided if policy.get(name) not in (None, False))
    if both:
        raise UsageError(
            f"the advice determines {', '.join(both)}; leave out the option or the advice",
            option=both[0],
        )
    return structs.replace(make(**{**policy, **arguments}), fitted=advice.fitted_to)


def _columns(
    snapshot: Snapshot, named: Sequence[Path], given: tuple[Path, ...] | None
) -> tuple[tuple[ClusteringColumn, ...], tuple[str, ...]]:
    """Return the columns to try, today's first, and the table's notes with those on others."""
    configuration = snapshot.metadata.configuration
    resolve = partial(resolve_columns, snapshot.schema, configuration=configuration)
    found: list[ClusteringColumn] = []
    notes = list(snapshot.notes)
    if given is not None:
        found += resolve(given, limit=len(given))
    else:
        for path in named:
            try:
                found += resolve([path])
            except ClusteringColumnError as error:
                notes.append(f"{quote_path(path)} is no candidate: {error.message}")
    own = [column.logical for column in clustering_state(snapshot).columns]
    found.sort(key=lambda one: own.index(one.logical) if one.logical in own else len(own))
    return tuple(found), tuple(notes)
