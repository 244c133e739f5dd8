"""Find faults of a table, repair them without a rewrite, and collect what a report shows."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.advice import Advice
from liquidlog.clustering.building import writer_options
from liquidlog.clustering.columns import (
    HIDDEN_COLUMNS,
    ClusteringColumn,
    ClusteringState,
    clustering_state,
)
from liquidlog.clustering.health import Health, measure_health
from liquidlog.clustering.planner import input_rows
from liquidlog.clustering.settings import remembered_if_right, wrong_values
from liquidlog.commit import Clock, OpenedTable, require_writable
from liquidlog.data.writer import rescan
from liquidlog.definition.create import cluster_by_change
from liquidlog.definition.schema_changes import (
    last_whole_columns,
    lost_columns,
    past_schemas,
    plan_late_retagging,
    retagged,
)
from liquidlog.doctor import (
    BROKEN_DOMAIN,
    CUT_STRINGS,
    FIXES,
    LOST_COLUMNS,
    MISSING_STATISTICS,
    NOTHING_LEFT,
    RENAMED_CUBES,
    Examined,
    Finding,
    Histories,
    domain_repair,
    files_repair,
    findings,
    queried_of,
    with_cut_bounds,
    with_statistics,
    without_range,
)
from liquidlog.errors import CorruptLogError, LiquidlogError, UsageError
from liquidlog.foresee.plans import with_ratios
from liquidlog.foresee.verdict import Criteria, Verdict
from liquidlog.log.loader import (
    list_log,
    load_bounds,
    load_snapshot,
    newest_versions,
    original_adds,
    past_definitions,
    read_file_changes,
)
from liquidlog.operations.inspect import Scan, detail, judged_health, scan
from liquidlog.operations.planning import judge, refused
from liquidlog.operations.writes import Derive, commit_in_place
from liquidlog.plan import WriterOptions
from liquidlog.snapshot import Snapshot, decoded_paths, file_keys
from liquidlog.spec.actions import Change, FileKey
from liquidlog.spec.bounds import Bounds, FileStatistics
from liquidlog.spec.schema import Leaf, MappingMode, PrimitiveType, mapping_mode
from liquidlog.spec.text import Summary
from liquidlog.storage.files import Maintenance, TableStore

if TYPE_CHECKING:
    from liquidlog.clustering.maps import KeyMap

FILES_IN_A_COMMIT: Final = 10_000
"""The most files whose statistics one commit repairs; if it fails, earlier commits stay."""
LONG_PREFIX_CHARS: Final = 256
"""Characters that repaired bounds keep of a string, unless the table keeps more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A repair, the versions that it committed, and its number of files."""

    name: str
    versions: tuple[int, ...]
    files: int


def _rescanned(
    store: TableStore, snapshot: Snapshot, files: pa.Table, options: WriterOptions
) -> Mapping[str, FileStatistics]:
    configuration = snapshot.metadata.configuration
    ignored = frozenset(configuration[key] for key in HIDDEN_COLUMNS if key in configuration)

    def read(path: str, rows: int | None) -> FileStatistics:
        return rescan(
            store.data_path(path),
            schema=snapshot.schema,
            options=options,
            mapping=mapping_mode(configuration),
            num_records=rows,
            ignored=ignored,
            storage=store.storage,
        )

    paths, rows = decoded_paths(files).to_pylist(), files["num_records"].to_pylist()
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(paths, pool.map(read, paths, rows), strict=True))


def examine(
    opened: OpenedTable, criteria: Criteria, *, min_cube_bytes: int | None
) -> tuple[Examined, Advice | None]:
    """Return the facts about a table's clustering, and the advice behind the verdict."""
    store, snapshot = opened.store, opened.snapshot()
    state, problem = _state(snapshot)
    columns, bounds_of = _columns(snapshot), opened.bounds_of(snapshot)
    bounds = bounds_of([column.leaf for column in columns])
    mapped = mapping_mode(snapshot.metadata.configuration) is not MappingMode.NONE
    may_be_renamed = mapped and len(pc.unique(snapshot.files["zorder_by"]).drop_null()) > 0
    has_lost = state is not None and _is_empty(state)
    needs_past = has_lost or (state is not None and may_be_renamed)
    past = past_definitions(store, snapshot) if needs_past else ()  # reads the log
    histories = read_histories(store, snapshot)
    workload, now_ms = criteria.workload, criteria.now_ms
    if min_cube_bytes is None:
        min_cube_bytes = remembered_if_right(snapshot, "min_cube_bytes")
    verdict, advice, health = None, None, None
    if state is not None:
        verdict, advice = judge(opened, snapshot, criteria)
        health = measure_health(
            snapshot, columns, bounds, min_cube_bytes=min_cube_bytes, measured_at_ms=now_ms
        )
    rewritten = None
    if verdict is not None and verdict.best is not None:
        rewritten = np.zeros(snapshot.files.num_rows, np.bool_)
        rewritten[np.concatenate(input_rows(snapshot, verdict.best.plan.groups))] = True
    retagging = None
    if past and mapped:
        retagging = plan_late_retagging(snapshot, past_schemas(past, snapshot.schema))
    queried = None
    if workload:
        queried = queried_of(snapshot, workload, [c.logical for c in columns], bounds_of, now_ms)
    examined = Examined(
        snapshot=snapshot,
        state=state,
        domain_problem=problem,
        bounds=bounds,
        min_cube_bytes=min_cube_bytes,
        health=health,
        retagging=retagging,
        lost=lost_columns(snapshot, past) if has_lost else None,
        wrong_properties=wrong_values(snapshot),
        verdict=verdict,
        rewritten=rewritten,
        queried=queried,
        workload_source=criteria.workload_source,
        refused_dates=refused(store, snapshot),
        missed=histories.missed(),
        not_removed=not_removed(snapshot, histories),
    )
    return examined, advice


def read_histories(store: TableStore, snapshot: Snapshot) -> Histories:
    """Return what the newest commits of the log added and removed."""
    versions = newest_versions(list_log(store), 0, snapshot.version)
    histories = Histories(is_whole=versions.start == 0)
    for commit in read_file_changes(store, versions):
        histories.take(commit)
    return histories


def not_removed(snapshot: Snapshot, histories: Histories) -> Mapping[FileKey, int]:
    """Return the live files that a version, the value, removed with another deletion vector."""
    suspects = pa.array(histories.suspects, pa.string())
    files = snapshot.files.filter(pc.is_in(snapshot.paths(), value_set=suspects))
    return histories.left_with_another_vector(file_keys(files))


def mend(
    store: TableStore,
    snapshot: Snapshot,
    names: Sequence[str],
    clock: Clock,
    *,
    dry_run: bool = False,
) -> tuple[Mended, ...]:
    """Make the repairs `names`, each in its own commits."""
    unknown = [name for name in names if name not in FIXES]
    if unknown:
        raise UsageError(f"there is no fix {', '.join(unknown)}; the fixes are {', '.join(FIXES)}")
    store.require_permitted(Maintenance.REWRITE)
    store.require_writable()
    require_writable(snapshot)
    done: list[Mended] = []
    for name in (fix for fix in FIXES if fix in names):
        if not dry_run and done and done[-1].versions:
            snapshot = load_snapshot(store)
        mended = _REPAIRS[name](_Mending(store, snapshot, clock, dry_run))
        if dry_run:
            # A dry run derives each repair from the current version, not from the repair before it.
            first = snapshot.version + 1 + sum(len(one.versions) for one in done)
            versions = tuple(range(first, first + len(mended.versions)))
            mended = replace(mended, versions=versions)
        done.append(mended)
    return tuple(done)


@dataclass(frozen=True, slots=True)
class _Mending:
    store: TableStore
    snapshot: Snapshot
    clock: Clock
    dry_run: bool

    def commit(self, name: str, derive: Derive, files: Callable[[], int] = lambda: 0) -> Mended:
        """Commit a change, if there is one; `files` counts the files of the last attempt."""
        version = commit_in_place(
            self.store,
            self.snapshot,
            derive,
            self.clock,
            dry_run=self.dry_run,
            nothing_left=NOTHING_LEFT,
        )
        versions = () if version is None else (version,)
        return Mended(name=name, versions=versions, files=files())

    def domain(self) -> Mended:
        past = past_definitions(self.store, self.snapshot)

        def derive(newest: Snapshot) -> Change | None:
            state, _ = _state(newest)
            if state is not None:
                return domain_repair(state.columns) if state.unresolved else None
            return domain_repair(last_whole_columns(newest, past) or ())

        return self.commit(BROKEN_DOMAIN, derive)

    def columns(self) -> Mended:
        state, _ = _state(self.snapshot)
        lost = None
        if state is not None and _is_empty(state):
            lost = lost_columns(self.snapshot, past_definitions(self.store, self.snapshot))
        if lost is None:
            return Mended(name=LOST_COLUMNS, versions=(), files=0)
        columns = [column.logical for column in lost.columns]
        return self.commit(LOST_COLUMNS, partial(cluster_by_change, columns=columns))

    def tags(self) -> Mended:
        if mapping_mode(self.snapshot.metadata.configuration) is MappingMode.NONE:
            return Mended(name=RENAMED_CUBES, versions=(), files=0)
        past = past_definitions(self.store, self.snapshot)
        schemas, files = past_schemas(past, self.snapshot.schema), 0

        def derive(newest: Snapshot) -> Change | None:
            nonlocal files
            retagging = plan_late_retagging(newest, schemas)
            files = retagging.files.num_rows
            originals = original_adds(self.store, newest, retagging.files)
            return files_repair(RENAMED_CUBES, retagged(retagging, originals)) if files else None

        return self.commit(RENAMED_CUBES, derive, lambda: files)

    def statistics(self) -> Mended:
        columns = _columns(self.snapshot)
        bounds = load_bounds(self.store, self.snapshot, [column.leaf for column in columns])
        files = without_range(self.snapshot, bounds)
        options = writer_options(self.snapshot, columns)
        return self.rescanned(MISSING_STATISTICS, files, options, replaces=False)

    def bounds(self) -> Mended:
        columns = [c for c in _columns(self.snapshot) if c.data_type == PrimitiveType("string")]
        bounds = load_bounds(self.store, self.snapshot, [column.leaf for column in columns])
        options = writer_options(self.snapshot, columns)
        options = structs.replace(
            options,
            indexed=tuple(column.physical for column in columns),
            string_prefix_chars=max(options.string_prefix_chars, LONG_PREFIX_CHARS),
        )
        files = with_cut_bounds(self.snapshot, bounds, columns)
        return self.rescanned(CUT_STRINGS, files, options, replaces=True)

    def rescanned(
        self, name: str, files: pa.Table, options: WriterOptions, *, replaces: bool
    ) -> Mended:
        """Read files again and commit their statistics, FILES_IN_A_COMMIT at a time."""
        done = Mended(name=name, versions=(), files=0)
        for start in range(0, files.num_rows, FILES_IN_A_COMMIT):
            part = files.slice(start, FILES_IN_A_COMMIT)
            found = _rescanned(self.store, self.snapshot, part, options)
            tight = options.tight_bounds
            one = self.with_statistics(name, found, tight=tight, replaces=replaces)
            if one.versions:
                versions, count = (*done.versions, *one.versions), done.files + one.files
                done = replace(done, versions=versions, files=count)
        return done

    def with_statistics(
        self, name: str, found: Mapping[str, FileStatistics], *, tight: bool, replaces: bool
    ) -> Mended:
        """Commit statistics by path, for files that are still live."""
        paths, count = pa.array(list(found), pa.string()), 0

        def derive(newest: Snapshot) -> Change | None:
            nonlocal count
            live = newest.files.filter(pc.is_in(newest.paths(), value_set=paths))
            originals = original_adds(self.store, newest, live)
            adds = with_statistics(live, originals, found, replaces=replaces, tight_bounds=tight)
            count = len(adds)
            return files_repair(name, adds) if adds else None

        return self.commit(name, derive, lambda: count)


_REPAIRS: Final[Mapping[str, Callable[[_Mending], Mended]]] = {
    BROKEN_DOMAIN: _Mending.domain,
    LOST_COLUMNS: _Mending.columns,
    RENAMED_CUBES: _Mending.tags,
    MISSING_STATISTICS: _Mending.statistics,
    CUT_STRINGS: _Mending.bounds,
}


def _columns(snapshot: Snapshot) -> tuple[ClusteringColumn, ...]:
    state, _ = _state(snapshot)
    return () if state is None else state.columns


def _state(snapshot: Snapshot) -> tuple[ClusteringState | None, str | None]:
    try:
        return clustering_state(snapshot), None
    except CorruptLogError as error:
        return None, error.message


def _is_empty(state: ClusteringState) -> bool:
    return state.clustered and not state.columns and not state.unresolved


# What a report shows

_HISTORY_COMMITS: Final = 200
"""The number of newest commits that a report considers."""
_MOST_POINTS: Final = 20
_FILES_LOADED: Final = 600_000
"""The most files of past versions that a report loads."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Overview(Summary):
    """A report of a table: `trend` has the health of earlier versions by today's columns.

    `key_map` shows the table now and after the rewrite. Without a rewrite, `scan` is shown.
    """

    detail: Mapping[str, Any]
    findings: tuple[Finding, ...]
    health: Health | None = None
    problem: str | None = None
    verdict: Verdict | None = None
    key_map: "KeyMap | None" = None
    scan: Scan | None = None
    trend: tuple[Health, ...] = ()
    advice: Advice | None = None

    def _facts(self) -> Mapping[str, object]:
        verdict = self.problem if self.verdict is None else self.verdict.sentence
        return {"location": self.uri, "verdict": verdict}

    @property
    def uri(self) -> str:
        """The table's address, as commands take it."""
        return str(self.detail["location"]) if self.health is None else self.health.table_uri


def overview(
    opened: OpenedTable, criteria: Criteria, *, min_cube_bytes: int | None, past: bool = True
) -> Overview:
    """Return what a report of the snapshot shows; `past` measures earlier versions too."""
    examined, advice = examine(opened, criteria, min_cube_bytes=min_cube_bytes)
    store, snapshot = opened.store, examined.snapshot
    found = findings(examined)
    if examined.state is None or examined.health is None or examined.verdict is None:
        where = {"version": snapshot.version, "location": snapshot.uri}
        return Overview(detail=where, findings=found, problem=examined.domain_problem)
    columns, min_cube_bytes = examined.state.columns, examined.min_cube_bytes
    queried = () if examined.queried is None else [one.leaf for one in examined.queried.columns]
    verdict = examined.verdict
    return Overview(
        detail=detail(snapshot),
        health=with_ratios(
            examined.health, snapshot, columns, examined.bounds, min_cube_bytes=min_cube_bytes
        ),
        verdict=verdict,
        key_map=_key_map(snapshot, columns, examined.bounds, verdict, queried),
        scan=scan(store, snapshot, criteria.workload, now_ms=criteria.now_ms)
        if criteria.workload and verdict.shown is None
        else None,
        findings=found,
        trend=_trend(store, snapshot, columns, min_cube_bytes=min_cube_bytes) if past else (),
        advice=advice,
    )


def _key_map(
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    verdict: Verdict,
    queried: Sequence[Leaf],
) -> "KeyMap | None":
    if not columns:
        return None
    from liquidlog.clustering.maps import MappedFiles, key_map

    option = verdict.shown
    own = [column.logical for column in columns]
    is_by_these = option is not None and [c.logical for c in option.plan.columns] == own
    places = {leaf: place for place, leaf in enumerate(queried)}
    order = sorted(range(len(columns)), key=lambda n: places.get(columns[n].leaf, len(places)))
    columns = [columns[number] for number in order]
    now = MappedFiles(
        bounds=bounds.select(order),
        size_bytes=np.asarray(snapshot.files["size"].to_numpy(), np.int64),
        is_predicted=np.zeros(len(bounds), np.bool_),
    )
    after = None
    if option is not None and is_by_these and option.files_after is not None:
        leaves, known, sizes, is_predicted = option.files_after()
        numbers = [leaves.index(column.leaf) for column in columns]
        after = MappedFiles(
            bounds=known.select(numbers),
            size_bytes=sizes.astype(np.int64),
            is_predicted=is_predicted,
        )
    return key_map([column.name for column in columns], now, after)


def _trend(
    store: TableStore, newest: Snapshot, columns: Sequence[ClusteringColumn], *, min_cube_bytes: int
) -> tuple[Health, ...]:
    versions = sorted(v for v in list_log(store).commits if v <= newest.version)[-_HISTORY_COMMITS:]
    points = min(_MOST_POINTS, _FILES_LOADED // max(newest.files.num_rows, 1), len(versions))
    if points < 2:  # noqa: PLR2004  one point is no trend
        return ()
    chosen = dict.fromkeys(versions[n * (len(versions) - 1) // (points - 1)] for n in range(points))
    found: list[Health] = []
    for version in chosen:
        # The version may be cleaned up, or be of an earlier table at the address.
        with suppress(LiquidlogError):
            snapshot = load_snapshot(store, version)
            bounds = load_bounds(store, snapshot, [column.leaf for column in columns])
            found.append(judged_health(snapshot, columns, bounds, min_cube_bytes=min_cube_bytes))
    return tuple(found)
