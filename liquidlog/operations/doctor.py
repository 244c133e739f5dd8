"""What is wrong with a table, what mends it without a rewrite, and what a report shows."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.advice.advice import Advice
from liquidlog.clustering.choice import writer_options
from liquidlog.clustering.columns import ClusteringColumn, ClusteringState, clustering_state
from liquidlog.clustering.health import Health, measure_health
from liquidlog.clustering.maps import KeyMap, MappedFiles, key_map
from liquidlog.clustering.row_tracking import HIDDEN_COLUMNS
from liquidlog.clustering.settings import remembered_if_right, wrong_values
from liquidlog.clustering.staleness import input_rows
from liquidlog.commit.transaction import Clock, require_writable
from liquidlog.data.statistics import rescan
from liquidlog.definition.create import cluster_by_change
from liquidlog.definition.schema_changes import (
    last_whole_columns,
    lost_columns,
    past_schemas,
    plan_late_retagging,
    retagged,
)
from liquidlog.doctor.findings import (
    BROKEN_DOMAIN,
    CUT_STRINGS,
    FIXES,
    LOST_COLUMNS,
    MISSING_STATISTICS,
    RENAMED_CUBES,
    Diagnosis,
    Examined,
    Finding,
    Histories,
    asked_of,
    findings,
    with_cut_bounds,
    without_range,
)
from liquidlog.doctor.repairs import (
    NOTHING_LEFT,
    domain_repair,
    retagging_repair,
    statistics_repair,
    with_statistics,
)
from liquidlog.errors import CorruptLogError, LiquidlogError, UsageError
from liquidlog.foresee.ratios import with_ratios
from liquidlog.foresee.verdict import Criteria, Verdict
from liquidlog.log.loader import load_snapshot, past_definitions
from liquidlog.log.replay import file_keys
from liquidlog.log.segment import list_log, newest_versions, read_file_changes
from liquidlog.log.statistics import load_bounds, original_adds
from liquidlog.log.store import TableStore
from liquidlog.operations.define import commit_in_place
from liquidlog.operations.inspect import detail, judged_health
from liquidlog.operations.judge import judge
from liquidlog.operations.planned import refused
from liquidlog.operations.scan import Scan, scan
from liquidlog.plan import WriterOptions
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.actions import Change, Commit, FileKey
from liquidlog.spec.bounds import Bounds, FileStatistics, remembering
from liquidlog.spec.schema import Leaf, MappingMode, PrimitiveType, mapping_mode
from liquidlog.spec.text import Summary

# Statistics that are read from data files again
#
# Every attempt starts from the newest snapshot: files that other commits removed meanwhile are
# not added again, and deletion vectors that they added are kept.

FILES_IN_A_COMMIT: Final = 10_000
"""Files per commit; if a commit fails, the ones before it stay."""

_READ_TOGETHER: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A repair, the versions it committed, and its number of files."""

    name: str
    versions: tuple[int, ...]
    files: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rescan:
    """The files to read again, for which statistics, and whether these replace existing ones."""

    name: str
    files: pa.Table
    options: WriterOptions
    replaces: bool


def backfill(
    store: TableStore, snapshot: Snapshot, rescan_of: Rescan, clock: Clock, *, dry_run: bool
) -> Mended:
    """Read files again and commit their statistics, FILES_IN_A_COMMIT at a time."""
    name, files = rescan_of.name, rescan_of.files
    versions: list[int] = []
    mended = 0
    for start in range(0, files.num_rows, FILES_IN_A_COMMIT):
        part = files.slice(start, FILES_IN_A_COMMIT)
        derive = _StatisticsChange(store, rescan_of, _rescanned(store, snapshot, part, rescan_of))
        version = commit_in_place(
            store, snapshot, derive, clock, dry_run=dry_run, nothing_left=NOTHING_LEFT
        )
        if version is not None:
            versions.append(version)
            mended += derive.files
    return Mended(name=name, versions=tuple(versions), files=mended)


class _StatisticsChange:
    def __init__(
        self, store: TableStore, rescan_of: Rescan, found: Mapping[str, FileStatistics]
    ) -> None:
        self._store = store
        self._rescan = rescan_of
        self._found = found
        self._paths = pa.array(list(found), pa.string())
        self.files = 0

    def __call__(self, newest: Snapshot) -> Change | None:
        live = newest.files.filter(pc.is_in(decoded_paths(newest.files), value_set=self._paths))
        adds = with_statistics(
            live,
            original_adds(self._store, newest, live),
            self._found,
            replaces=self._rescan.replaces,
            tight_bounds=self._rescan.options.tight_bounds,
        )
        self.files = len(adds)
        return statistics_repair(self._rescan.name, adds) if adds else None


def _rescanned(
    store: TableStore, snapshot: Snapshot, files: pa.Table, rescan_of: Rescan
) -> Mapping[str, FileStatistics]:
    configuration = snapshot.metadata.configuration
    ignored = frozenset(configuration[key] for key in HIDDEN_COLUMNS if key in configuration)

    def read(path: str, rows: int | None) -> FileStatistics:
        return rescan(
            store.data_path(path),
            schema=snapshot.schema,
            options=rescan_of.options,
            mapping=mapping_mode(configuration),
            num_records=rows,
            ignored=ignored,
            storage=store.storage,
        )

    paths, rows = decoded_paths(files).to_pylist(), files["num_records"].to_pylist()
    with ThreadPoolExecutor(_READ_TOGETHER) as pool:
        return dict(zip(paths, pool.map(read, paths, rows), strict=True))


# Find what is wrong with a table's clustering, and repair what needs no rewrite

LONG_PREFIX_CHARS: Final = 256
"""Characters that repaired bounds keep of a string, unless the table asks for more."""


def diagnose(
    store: TableStore, snapshot: Snapshot, criteria: Criteria, *, min_cube_bytes: int | None
) -> Diagnosis:
    """Return all findings of a table, and which rewrite is worth it; see `examine`."""
    examined, _ = examine(store, snapshot, criteria, min_cube_bytes=min_cube_bytes)
    return Diagnosis(findings=findings(examined), verdict=examined.verdict, asked=examined.asked)


def examine(
    store: TableStore,
    snapshot: Snapshot,
    criteria: Criteria,
    *,
    min_cube_bytes: int | None,
) -> tuple[Examined, Advice | None]:
    """Return what the log says about the clustering, and the advice behind the verdict."""
    state, problem = _state(snapshot)
    columns = () if state is None else state.columns
    bounds_of = remembering(partial(load_bounds, store, snapshot))
    bounds = bounds_of([column.leaf for column in columns])
    past = _past(store, snapshot, state)
    histories = read_histories(store, snapshot)
    workload, now_ms = criteria.workload, criteria.now_ms
    if min_cube_bytes is None:
        min_cube_bytes = remembered_if_right(snapshot, "min_cube_bytes")
    verdict, advice, health = None, None, None
    if state is not None:
        verdict, advice = judge(store, snapshot, criteria, bounds_of=bounds_of)
        health = measure_health(
            snapshot, columns, bounds, min_cube_bytes=min_cube_bytes, measured_at_ms=now_ms
        )
    rewritten = None
    if verdict is not None and verdict.best is not None:
        rewritten = np.zeros(snapshot.files.num_rows, np.bool_)
        rewritten[np.concatenate(input_rows(snapshot, verdict.best.plan.groups))] = True
    retagging = None
    if past and mapping_mode(snapshot.metadata.configuration) is not MappingMode.NONE:
        retagging = plan_late_retagging(snapshot, past_schemas(past, snapshot.schema))
    asked = None
    if workload:
        asked = asked_of(snapshot, workload, [c.logical for c in columns], bounds_of, now_ms)
    examined = Examined(
        snapshot=snapshot,
        state=state,
        domain_problem=problem,
        bounds=bounds,
        min_cube_bytes=min_cube_bytes,
        health=health,
        retagging=retagging,
        lost=lost_columns(snapshot, past) if state is not None and _is_empty(state) else None,
        wrong_properties=wrong_values(snapshot),
        verdict=verdict,
        rewritten=rewritten,
        asked=asked,
        workload_source=criteria.workload_source,
        refused_dates=refused(store, snapshot),
        missed=histories.missed(),
        not_removed=not_removed(snapshot, histories),
    )
    return examined, advice


def read_histories(store: TableStore, snapshot: Snapshot) -> Histories:
    """Return the newest commits of the log, as many as are read soon."""
    versions = newest_versions(list_log(store), 0, snapshot.version)
    histories = Histories(is_whole=versions.start == 0)
    for commit in read_file_changes(store, versions):
        histories.take(commit)
    return histories


def not_removed(snapshot: Snapshot, histories: Histories) -> Mapping[FileKey, int]:
    """Return the live files that a version (the value) removed under another deletion vector."""
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
    store.require_writable()
    require_writable(snapshot)
    done: list[Mended] = []
    for name in (fix for fix in FIXES if fix in names):
        if not dry_run and done and done[-1].versions:
            snapshot = load_snapshot(store)
        mended = _REPAIRS[name](store, snapshot, clock, dry_run)
        if dry_run:
            # A dry run derives each repair from the current version, not from the repair before it.
            first = snapshot.version + 1 + sum(len(one.versions) for one in done)
            versions = tuple(range(first, first + len(mended.versions)))
            mended = replace(mended, versions=versions)
        done.append(mended)
    return tuple(done)


def _mend_domain(store: TableStore, snapshot: Snapshot, clock: Clock, dry_run: bool) -> Mended:  # noqa: FBT001
    past = past_definitions(store, snapshot)

    def derive(newest: Snapshot) -> Change | None:
        state, _ = _state(newest)
        if state is not None:
            return domain_repair(state.columns) if state.unresolved else None
        return domain_repair(last_whole_columns(newest, past) or ())

    return _mended(BROKEN_DOMAIN, _commit(store, snapshot, derive, clock, dry_run=dry_run))


def _mend_columns(store: TableStore, snapshot: Snapshot, clock: Clock, dry_run: bool) -> Mended:  # noqa: FBT001
    state, _ = _state(snapshot)
    past = past_definitions(store, snapshot)
    lost = lost_columns(snapshot, past) if state is not None and _is_empty(state) else None
    if lost is None:
        return _mended(LOST_COLUMNS, None)
    columns = [column.logical for column in lost.columns]
    change = partial(cluster_by_change, columns=columns)
    return _mended(LOST_COLUMNS, _commit(store, snapshot, change, clock, dry_run=dry_run))


def _mend_tags(store: TableStore, snapshot: Snapshot, clock: Clock, dry_run: bool) -> Mended:  # noqa: FBT001
    schemas = past_schemas(past_definitions(store, snapshot), snapshot.schema)
    files = 0

    def derive(newest: Snapshot) -> Change | None:
        nonlocal files
        retagging = plan_late_retagging(newest, schemas)
        files = retagging.files.num_rows
        originals = original_adds(store, newest, retagging.files)
        return retagging_repair(retagged(retagging, originals)) if files else None

    if mapping_mode(snapshot.metadata.configuration) is MappingMode.NONE:
        return _mended(RENAMED_CUBES, None)
    version = _commit(store, snapshot, derive, clock, dry_run=dry_run)
    return _mended(RENAMED_CUBES, version, files)


def _mend_statistics(store: TableStore, snapshot: Snapshot, clock: Clock, dry_run: bool) -> Mended:  # noqa: FBT001
    columns = _columns(snapshot)
    bounds = load_bounds(store, snapshot, [column.leaf for column in columns])
    rescan_of = Rescan(
        name=MISSING_STATISTICS,
        files=without_range(snapshot, bounds),
        options=writer_options(snapshot, columns),
        replaces=False,
    )
    return backfill(store, snapshot, rescan_of, clock, dry_run=dry_run)


def _mend_bounds(store: TableStore, snapshot: Snapshot, clock: Clock, dry_run: bool) -> Mended:  # noqa: FBT001
    columns = [c for c in _columns(snapshot) if c.data_type == PrimitiveType("string")]
    bounds = load_bounds(store, snapshot, [column.leaf for column in columns])
    options = writer_options(snapshot, columns)
    rescan_of = Rescan(
        name=CUT_STRINGS,
        files=with_cut_bounds(snapshot, bounds, columns),
        options=structs.replace(
            options,
            indexed=tuple(column.physical for column in columns),
            string_prefix_chars=max(options.string_prefix_chars, LONG_PREFIX_CHARS),
        ),
        replaces=True,
    )
    return backfill(store, snapshot, rescan_of, clock, dry_run=dry_run)


_REPAIRS: Final[Mapping[str, Callable[[TableStore, Snapshot, Clock, bool], Mended]]] = {
    BROKEN_DOMAIN: _mend_domain,
    LOST_COLUMNS: _mend_columns,
    RENAMED_CUBES: _mend_tags,
    MISSING_STATISTICS: _mend_statistics,
    CUT_STRINGS: _mend_bounds,
}


_commit = partial(commit_in_place, nothing_left=NOTHING_LEFT)


def _columns(snapshot: Snapshot) -> tuple[ClusteringColumn, ...]:
    state, _ = _state(snapshot)
    return () if state is None else state.columns


def _mended(name: str, version: int | None, files: int = 0) -> Mended:
    return Mended(name=name, versions=() if version is None else (version,), files=files)


def _state(snapshot: Snapshot) -> tuple[ClusteringState | None, str | None]:
    try:
        return clustering_state(snapshot), None
    except CorruptLogError as error:
        return None, error.message


def _is_empty(state: ClusteringState) -> bool:
    return state.clustered and not state.columns and not state.unresolved


def _past(
    store: TableStore, snapshot: Snapshot, state: ClusteringState | None
) -> tuple[Commit, ...]:
    """Return past definitions of a table if findings need them; they cost a read of the log."""
    if state is None:
        return ()
    mapped = mapping_mode(snapshot.metadata.configuration) is not MappingMode.NONE
    may_be_renamed = mapped and len(pc.unique(snapshot.files["zorder_by"]).drop_null()) > 0
    return past_definitions(store, snapshot) if _is_empty(state) or may_be_renamed else ()


# What a report shows: health now and before, a map and findings

_HISTORY_COMMITS: Final = 200
"""The number of newest commits that a report considers."""

_MOST_POINTS: Final = 20
_FILES_LOADED: Final = 600_000
"""The most files of past versions that a report loads."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Overview(Summary):
    """A table at one version.

    `trend` has earlier versions, in order, measured by today's columns. `key_map` has the table now
    and after the rewrite. `scan` is what readers open now, if no rewrite is shown beside it.
    """

    detail: Mapping[str, Any]
    health: Health | None
    problem: str | None
    verdict: Verdict | None
    key_map: KeyMap | None
    scan: Scan | None
    findings: tuple[Finding, ...]
    trend: tuple[Health, ...]
    advice: Advice | None = None

    def _facts(self) -> Mapping[str, object]:
        said = self.problem if self.verdict is None else self.verdict.sentence
        return {"location": self.detail["location"], "verdict": said}


def overview(
    store: TableStore,
    snapshot: Snapshot,
    criteria: Criteria,
    *,
    min_cube_bytes: int | None,
    past: bool = True,
) -> Overview:
    """Return what a report of the snapshot shows; `past` measures earlier versions too."""
    examined, advice = examine(store, snapshot, criteria, min_cube_bytes=min_cube_bytes)
    found = findings(examined)
    if examined.state is None or examined.health is None or examined.verdict is None:
        return Overview(
            detail={"version": snapshot.version, "location": snapshot.uri},
            health=None,
            problem=examined.domain_problem,
            verdict=None,
            key_map=None,
            scan=None,
            findings=found,
            trend=(),
            advice=None,
        )
    columns, min_cube_bytes = examined.state.columns, examined.min_cube_bytes
    asked = () if examined.asked is None else examined.asked.columns
    verdict = examined.verdict
    return Overview(
        detail=detail(snapshot),
        health=with_ratios(
            examined.health, snapshot, columns, examined.bounds, min_cube_bytes=min_cube_bytes
        ),
        problem=None,
        verdict=verdict,
        key_map=_key_map(snapshot, columns, examined.bounds, verdict, [one.leaf for one in asked]),
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
    asked: Sequence[Leaf],
) -> KeyMap | None:
    """Return the table now and after the shown rewrite, the most asked columns first."""
    if not columns:
        return None
    option = verdict.shown
    own = [column.logical for column in columns]
    is_by_these = option is not None and [c.logical for c in option.plan.columns] == own
    places = {leaf: place for place, leaf in enumerate(asked)}
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
    store: TableStore,
    newest: Snapshot,
    columns: Sequence[ClusteringColumn],
    *,
    min_cube_bytes: int,
) -> tuple[Health, ...]:
    """Return the health at evenly chosen versions and the last one."""
    versions = sorted(v for v in list_log(store).commits if v <= newest.version)[-_HISTORY_COMMITS:]
    points = min(_MOST_POINTS, _FILES_LOADED // max(newest.files.num_rows, 1), len(versions))
    if points < 2:  # noqa: PLR2004  one point is no trend
        return ()
    chosen = dict.fromkeys(versions[n * (len(versions) - 1) // (points - 1)] for n in range(points))
    found = (_health_at(store, version, columns, min_cube_bytes) for version in chosen)
    return tuple(health for health in found if health is not None)


def _health_at(
    store: TableStore, version: int, columns: Sequence[ClusteringColumn], min_cube_bytes: int
) -> Health | None:
    """Return the health of an earlier version by today's columns, None if unknown."""
    try:
        snapshot = load_snapshot(store, version)
        bounds = load_bounds(store, snapshot, [column.leaf for column in columns])
        return judged_health(snapshot, columns, bounds, min_cube_bytes=min_cube_bytes)
    except LiquidlogError:
        return None  # cleaned up, or from a time when another table was at the address
