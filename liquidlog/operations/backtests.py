"""Hold what the model predicts of recorded scans against what was observed."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from liquidlog.advice.backtests import Backtest, backtest
from liquidlog.errors import LiquidlogError, TimestampNotFoundError
from liquidlog.foresee.sample import Floats
from liquidlog.log.history import version_at
from liquidlog.log.loader import load_snapshot
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.predicates.workload import Session, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot

_MOST_VERSIONS: Final = 4
"""Versions of the table that are loaded for scans of the past."""

_IN_COLUMNS: Final = "databricks-history"
"""The source whose bytes are those of the columns that were read, not of whole files."""


def backtested(
    store: TableStore, snapshot: Snapshot, workload: Workload, read_now: Floats, now_ms: int
) -> Backtest:
    """Return predicted beside observed bytes of the scans whose engine counted them.

    A scan is predicted on the files that the table had when it was asked last, if the log still has
    that version and it is one of the four that most scans are of; else on today's.

    Args:
        store: Of the table.
        snapshot: Its newest version.
        workload: Predicates that are conditions on the table.
        read_now: Bytes that each of them reads today.
        now_ms: The current time in predicates.
    """
    seen = [
        number
        for number, one in enumerate(workload)
        if one.recorded is not None and one.recorded.bytes is not None
    ]
    versions, unknown = _versions(store, snapshot, [workload[number] for number in seen])
    kept = _most_asked(versions, [workload[number].weight for number in seen], snapshot.version)
    predicted = read_now[seen].copy() if seen else np.zeros(0)
    on_version = np.array([version == snapshot.version for version in versions], np.float64)
    for version in kept:
        rows = [place for place, found in enumerate(versions) if found == version]
        try:
            then = _read_then(
                store, version, [workload[seen[place]].where for place in rows], now_ms
            )
        except LiquidlogError:
            continue  # e.g. its log files or columns are gone
        predicted[rows], on_version[rows] = then, 1.0
    observed = [one.recorded.bytes for one in workload if one.recorded is not None]
    return backtest(
        np.array([workload[number].weight for number in seen]),
        predicted,
        np.array([one for one in observed if one is not None], np.float64),
        on_version=on_version,
        notes=_notes([workload[number] for number in seen], on_version, unknown),
    )


def _versions(
    store: TableStore, snapshot: Snapshot, seen: Sequence[WeightedPredicate]
) -> tuple[list[int | None], int]:
    """Return the version at each scan's time, None where unknown, and how many are unknown."""
    found: list[int | None] = []
    known: dict[int, int | None] = {}
    for one in seen:
        time_ms = None if one.recorded is None else one.recorded.last_ms
        if time_ms is None:
            found.append(None)
            continue
        if time_ms >= snapshot.timestamp_ms:
            found.append(snapshot.version)
            continue
        minute = time_ms - time_ms % 60_000
        if minute not in known:
            try:
                known[minute] = version_at(store, snapshot, time_ms)
            except TimestampNotFoundError:
                known[minute] = None
        found.append(known[minute])
    return found, sum(one is None for one in found)


def _most_asked(versions: Sequence[int | None], weights: Sequence[float], newest: int) -> list[int]:
    counted: dict[int, float] = {}
    for version, weight in zip(versions, weights, strict=True):
        if version is not None and version != newest:
            counted[version] = counted.get(version, 0.0) + weight
    return sorted(counted, key=lambda version: -counted[version])[:_MOST_VERSIONS]


def _read_then(store: TableStore, version: int, predicates: Sequence[str], now_ms: int) -> Floats:
    from liquidlog.predicates.matching import judged_each

    then = load_snapshot(store, version)
    sizes = then.files["size"].to_numpy()
    found = judged_each(then, predicates, partial(load_bounds, store, then), Session.at_ms(now_ms))
    return np.array(
        [float(sizes[np.asarray(one.may_match, np.bool_)].sum()) for one in found], np.float64
    )


def _notes(seen: Sequence[WeightedPredicate], on_version: Floats, unknown: int) -> list[str]:
    notes = []
    left = int(len(on_version) - on_version.sum())
    if left:
        why = (
            "the log does not tell which files the table had then"
            if unknown == left
            else "the table has changed since"
        )
        notes.append(
            f"{left} of {len(seen)} recorded queries are predicted on today's files: {why}"
        )
    sources: Mapping[str, int] = {
        one.recorded.source: 1 for one in seen if one.recorded is not None
    }
    if _IN_COLUMNS in sources:
        notes.append(
            f"{_IN_COLUMNS} counts the bytes of the columns that were read, and predictions are of"
            " whole files: they are larger"
        )
    return notes
