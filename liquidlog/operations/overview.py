"""Collect what a report of a table shows: health now and before, a map and findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from liquidlog.advice.advice import Advice
from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.clustering.health.maps import KeyMap, MappedFiles, key_map
from liquidlog.clustering.health.measure import Health
from liquidlog.doctor.findings import Finding, findings
from liquidlog.errors import LiquidlogError
from liquidlog.foresee.ratios import with_ratios
from liquidlog.foresee.verdict import Criteria, Verdict
from liquidlog.log.loader import load_snapshot
from liquidlog.log.segment import list_log
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.detail import detail
from liquidlog.operations.doctor import examine
from liquidlog.operations.inspect import judged_health
from liquidlog.operations.scan import Scan, scan
from liquidlog.plan import ClusteringPlan
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds
from liquidlog.spec.schema import Leaf
from liquidlog.spec.text import Summary

_HISTORY_COMMITS: Final = 200
"""The number of newest commits that a report considers."""

_MOST_POINTS: Final = 20
_FILES_LOADED: Final = 600_000
"""Most files of past versions that a report loads, so fewer versions of larger tables."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Overview(Summary):
    """A table at one version; `trend` has earlier versions, measured by today's columns, in order.

    `problem` says why nothing is judged, if `verdict` is None. `key_map` has the table now and
    after the rewrite that is worth it, or else after the best of those that are not; None if there
    is no column to draw it by, or no file has statistics of all of them. `scan` is what readers of
    a given workload open now, if there is no rewrite to compare it with. `advice` is for these
    readers, None without a workload.
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
    """Return what a report of the snapshot shows.

    Without `min_cube_bytes`, the minimum cube size is the one that the table remembers, the default
    if that is wrong. Rewrites are judged by the criteria. Without `past`, no earlier version is
    measured, which takes longer than all the rest.
    """
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
    """Return the table now and after the rewrite to show, by its clustering columns.

    Those that readers ask for come first, the most asked at the beginning.
    """
    if not columns:
        return None
    option = verdict.shown
    is_by_these = option is not None and _is_by(option.plan, columns)
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


def _is_by(plan: ClusteringPlan, columns: Sequence[ClusteringColumn]) -> bool:
    return [column.logical for column in plan.columns] == [column.logical for column in columns]


def _trend(
    store: TableStore,
    newest: Snapshot,
    columns: Sequence[ClusteringColumn],
    *,
    min_cube_bytes: int,
) -> tuple[Health, ...]:
    """Return the health at some of the versions, evenly chosen and with the last."""
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
    """Return the health of an earlier version by today's columns, None if it is not known."""
    try:
        snapshot = load_snapshot(store, version)
        bounds = load_bounds(store, snapshot, [column.leaf for column in columns])
        return judged_health(snapshot, columns, bounds, min_cube_bytes=min_cube_bytes)
    except LiquidlogError:
        return None  # cleaned up, or from a time when another table was at the address
