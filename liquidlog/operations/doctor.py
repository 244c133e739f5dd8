"""Find what is wrong with a table's clustering, and repair what needs no rewrite."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.advice.advice import Advice
from liquidlog.clustering.columns import ClusteringColumn, ClusteringState, clustering_state
from liquidlog.clustering.health.measure import measure_health
from liquidlog.clustering.outcome.staleness import input_rows
from liquidlog.clustering.planning.choice import writer_options
from liquidlog.clustering.settings import remembered_if_right, wrong_values
from liquidlog.commit.transaction import Clock, require_writable
from liquidlog.definition.create import cluster_by_change
from liquidlog.definition.schema_changes import (
    Retagging,
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
    Histories,
    asked_of,
    findings,
    with_cut_bounds,
    without_range,
)
from liquidlog.doctor.repairs import NOTHING_LEFT, domain_repair, retagging_repair
from liquidlog.errors import CorruptLogError, UsageError
from liquidlog.foresee.verdict import Criteria, Verdict
from liquidlog.log.loader import load_snapshot, past_definitions
from liquidlog.log.replay import file_keys
from liquidlog.log.segment import list_log, newest_versions, read_file_changes
from liquidlog.log.statistics import load_bounds, original_adds
from liquidlog.log.store import TableStore
from liquidlog.operations.backfill import Mended, Rescan, backfill
from liquidlog.operations.define import commit_in_place
from liquidlog.operations.judge import judge
from liquidlog.operations.old_dates import refused
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change, Commit, FileKey
from liquidlog.spec.bounds import Mask, remembering
from liquidlog.spec.schema import MappingMode, PrimitiveType, mapping_mode

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
    """Return what the log says about the table's clustering, now and in the past.

    Without `min_cube_bytes`, the minimum cube size is the one that the table remembers, the default
    if that is wrong. The advice that the verdict rests on is returned too.
    """
    state, problem = _state(snapshot)
    columns = () if state is None else state.columns
    bounds_of = remembering(partial(load_bounds, store, snapshot))
    bounds = bounds_of([column.leaf for column in columns])
    past = _past(store, snapshot, state)
    histories = read_histories(store, snapshot)
    verdict, advice = None, None
    if state is not None:
        verdict, advice = judge(store, snapshot, criteria, bounds_of=bounds_of)
    workload, now_ms = criteria.workload, criteria.now_ms
    if min_cube_bytes is None:
        min_cube_bytes = remembered_if_right(snapshot, "min_cube_bytes")
    asked = None
    if workload:
        asked = asked_of(snapshot, workload, [c.logical for c in columns], bounds_of, now_ms)
    examined = Examined(
        snapshot=snapshot,
        state=state,
        domain_problem=problem,
        bounds=bounds,
        min_cube_bytes=min_cube_bytes,
        health=None
        if state is None
        else measure_health(
            snapshot, columns, bounds, min_cube_bytes=min_cube_bytes, measured_at_ms=now_ms
        ),
        retagging=_retagging(snapshot, past),
        lost=lost_columns(snapshot, past) if state is not None and _is_empty(state) else None,
        wrong_properties=wrong_values(snapshot),
        verdict=verdict,
        rewritten=_rewritten(snapshot, verdict),
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
    """Return the live files that a version, the value, removed with another vector only."""
    suspects = pa.array(histories.suspects, pa.string())
    files = snapshot.files.filter(pc.is_in(snapshot.paths(), value_set=suspects))
    return histories.left_with_another_vector(file_keys(files))


def _rewritten(snapshot: Snapshot, verdict: Verdict | None) -> Mask | None:
    """Return a mask of the live files that the best rewrite takes, None if there is none."""
    if verdict is None or verdict.best is None:
        return None
    mask = np.zeros(snapshot.files.num_rows, np.bool_)
    mask[np.concatenate(input_rows(snapshot, verdict.best.plan.groups))] = True
    return mask


def mend(
    store: TableStore,
    snapshot: Snapshot,
    names: Sequence[str],
    clock: Clock,
    *,
    dry_run: bool = False,
) -> tuple[Mended, ...]:
    """Make the repairs `names`, each in its own commits.

    With `dry_run` everything is read and derived, nothing is committed, and the versions are those
    that the commits would get.
    """
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
    """Return past definitions if a finding may depend on them; they require reading the log."""
    if state is None or (not _is_empty(state) and not _may_be_renamed(snapshot)):
        return ()
    return past_definitions(store, snapshot)


def _may_be_renamed(snapshot: Snapshot) -> bool:
    mapped = mapping_mode(snapshot.metadata.configuration) is not MappingMode.NONE
    return mapped and len(pc.unique(snapshot.files["zorder_by"]).drop_null()) > 0


def _retagging(snapshot: Snapshot, past: Sequence[Commit]) -> Retagging | None:
    if not past or mapping_mode(snapshot.metadata.configuration) is MappingMode.NONE:
        return None
    return plan_late_retagging(snapshot, past_schemas(past, snapshot.schema))
