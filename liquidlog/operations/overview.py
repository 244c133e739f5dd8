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
from liquidlog.judgement.verdicts import Criteria, Judgement
from liquidlog.log.history import read_history
from liquidlog.log.loader import load_snapshot
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.operations.advise import advised_by_the_log
from liquidlog.operations.detail import detail
from liquidlog.operations.doctor import examine
from liquidlog.operations.inspect import compared, judged_health
from liquidlog.operations.scan import Scan, scan
from liquidlog.plan import ClusteringPlan
from liquidlog.simulation.pictured import predicted_files
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds

HISTORY_COMMITS: Final = 200
"""The number of newest commits that a report considers."""

_MOST_POINTS: Final = 20
_FILES_LOADED: Final = 600_000
"""Most files of past versions that a report loads, so fewer versions of larger tables."""

_OPTIMIZE: Final = "OPTIMIZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRewrite:
    """The last OPTIMIZE, one commit or several in a row; health is None if not loaded."""

    first_version: int
    last_version: int
    timestamp: str
    metrics: Mapping[str, Any]
    before: Health | None
    after: Health | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A table at one version; `trend` has earlier versions, measured by today's columns, in order.

    `problem` says why nothing is judged, if `judgement` is None. `key_map` has the table now and
    after the rewrite that is worth it, or else after the best of those that are not; None if there
    is no column to draw it by, or no file has statistics of all of them. `scan` is what readers of
    a given workload open now, if there is no rewrite to compare it with. `advice` is for these
    readers, by statistics alone; None without a workload.
    """

    detail: Mapping[str, Any]
    health: Health | None
    problem: str | None
    judgement: Judgement | None
    key_map: KeyMap | None
    scan: Scan | None
    findings: tuple[Finding, ...]
    trend: tuple[Health, ...]
    rewrite: LastRewrite | None
    advice: Advice | None = None


def overview(
    store: TableStore,
    snapshot: Snapshot,
    criteria: Criteria,
    *,
    min_cube_bytes: int | None,
    past: bool = True,
) -> Overview:
    """Return what a report of the snapshot shows; only the log is read.

    Without `min_cube_bytes`, the minimum cube size is the one that the table remembers, the default
    if that is wrong. Rewrites are judged by the criteria. Without `past`, no earlier version is
    measured, which takes longer than all the rest.
    """
    advice = advised_by_the_log(store, snapshot, criteria)
    examined = examine(store, snapshot, criteria, min_cube_bytes=min_cube_bytes, advice=advice)
    found = findings(examined)
    if examined.state is None or examined.health is None or examined.judgement is None:
        return Overview(
            detail={"version": snapshot.version, "location": snapshot.uri},
            health=None,
            problem=examined.domain_problem,
            judgement=None,
            key_map=None,
            scan=None,
            findings=found,
            trend=(),
            rewrite=None,
            advice=None,
        )
    columns, min_cube_bytes = examined.state.columns, examined.min_cube_bytes
    judgement = examined.judgement
    earlier = _Past(store, snapshot, columns, min_cube_bytes, most=_MOST_POINTS if past else 0)
    history = read_history(store, HISTORY_COMMITS)
    return Overview(
        detail=detail(snapshot),
        health=compared(
            examined.health, snapshot, columns, examined.bounds, min_cube_bytes=min_cube_bytes
        ),
        problem=None,
        judgement=judgement,
        key_map=_key_map(snapshot, columns, examined.bounds, judgement),
        scan=scan(store, snapshot, criteria.workload, now_ms=criteria.now_ms)
        if criteria.workload and judgement.shown is None
        else None,
        findings=found,
        trend=earlier.trend(sorted(row["version"] for row in history)),
        rewrite=_last_rewrite(history, earlier),
        advice=advice,
    )


def _key_map(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], bounds: Bounds, judgement: Judgement
) -> KeyMap | None:
    """Return the table now and after the rewrite to show, by its clustering columns."""
    if not columns:
        return None
    option = judgement.shown
    is_by_these = option is not None and _is_by(option.plan, columns)
    now = MappedFiles(
        bounds=bounds,
        size_bytes=np.asarray(snapshot.files["size"].to_numpy(), np.int64),
        is_predicted=np.zeros(len(bounds), np.bool_),
    )
    after = None
    if option is not None and is_by_these:
        after = predicted_files(snapshot, option.plan, bounds, option.known)
    return key_map([column.name for column in columns], now, after)


def _is_by(plan: ClusteringPlan, columns: Sequence[ClusteringColumn]) -> bool:
    return [column.logical for column in plan.columns] == [column.logical for column in columns]


class _Past:
    """Health of earlier versions by today's columns, each measured once."""

    def __init__(
        self,
        store: TableStore,
        snapshot: Snapshot,
        columns: Sequence[ClusteringColumn],
        min_cube_bytes: int,
        *,
        most: int,
    ) -> None:
        self._store = store
        self._newest = snapshot
        self._columns = columns
        self._min_cube_bytes = min_cube_bytes
        self._known: dict[int, Health | None] = {}
        self.points = min(most, _FILES_LOADED // max(snapshot.files.num_rows, 1))

    def at(self, version: int) -> Health | None:
        """Return the health at a version, None if it cannot be measured."""
        if version not in self._known:
            self._known[version] = self._measure(version)
        return self._known[version]

    def trend(self, versions: Sequence[int]) -> tuple[Health, ...]:
        """Return the health at some of the versions, evenly chosen and with the last."""
        count = min(self.points, len(versions))
        if count < 2:  # noqa: PLR2004  one point is no trend
            return ()
        last = len(versions) - 1
        chosen = dict.fromkeys(versions[number * last // (count - 1)] for number in range(count))
        found = (self.at(version) for version in chosen if version <= self._newest.version)
        return tuple(health for health in found if health is not None)

    def _measure(self, version: int) -> Health | None:
        try:
            snapshot = load_snapshot(self._store, version)
            bounds = load_bounds(self._store, snapshot, [c.leaf for c in self._columns])
            return judged_health(
                snapshot, self._columns, bounds, min_cube_bytes=self._min_cube_bytes
            )
        except LiquidlogError:
            return None  # cleaned up, or from a time when another table was at the address


def _last_rewrite(history: Sequence[Mapping[str, Any]], past: _Past) -> LastRewrite | None:
    """Return the newest OPTIMIZE commits that follow each other; `history` is newest first."""
    newest = next(
        (n for n, row in enumerate(history) if row.get("operation") == _OPTIMIZE), len(history)
    )
    run = []
    for row in history[newest:]:
        if row.get("operation") != _OPTIMIZE:
            break
        run.append(row)
    if not run:
        return None
    first, last = run[-1]["version"], run[0]["version"]
    load = past.points > 1
    return LastRewrite(
        first_version=first,
        last_version=last,
        timestamp=run[0]["timestamp"],
        metrics=run[0].get("operationMetrics") or {},
        before=past.at(first - 1) if load and first else None,
        after=past.at(last) if load else None,
    )
