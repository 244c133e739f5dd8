"""What the readers of a workload open of a table as it is, and what was observed of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.advice.advice import Advice, Current
from liquidlog.advice.evidence import FEW, Backtest, Halves, backtest, by_shape, by_time
from liquidlog.clustering.choice import output_count
from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.migration import unpartitioned
from liquidlog.errors import LiquidlogError, TimestampNotFoundError
from liquidlog.foresee.plans import joined_files, profile_of
from liquidlog.foresee.reads import Readings, opened_by_masks
from liquidlog.foresee.sample import Floats, Numbers
from liquidlog.log.history import version_at
from liquidlog.log.loader import load_snapshot
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.plan import FittedWorkload
from liquidlog.predicates.matching import Answers, answers, judged_each
from liquidlog.predicates.workload import Session, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Mask
from liquidlog.spec.schema import Leaf, Path, leaves

_MOST_VERSIONS: Final = 4
"""The most versions that are loaded for scans of the past."""

_IN_COLUMNS: Final = "databricks-history"
"""The source that counts the bytes of the read columns, not of whole files."""


def backtested(
    store: TableStore, snapshot: Snapshot, workload: Workload, read_now: Floats, now_ms: int
) -> Backtest:
    """Return predicted beside observed bytes of the scans whose engine counted them.

    A scan is predicted on the version at its last time, if the log has it and it is one of the four
    that most scans are of; else on today's.
    """
    seen = [
        number
        for number, one in enumerate(workload)
        if one.recorded is not None and one.recorded.bytes is not None
    ]
    versions, unknown = _versions(store, snapshot, [workload[number] for number in seen])
    asked: dict[int, float] = {}
    for number, version in zip(seen, versions, strict=True):
        if version is not None and version != snapshot.version:
            asked[version] = asked.get(version, 0.0) + workload[number].weight
    predicted = read_now[seen].copy() if seen else np.zeros(0)
    on_version = np.array([version == snapshot.version for version in versions], np.float64)
    for version in sorted(asked, key=lambda version: -asked[version])[:_MOST_VERSIONS]:
        rows = [place for place, found in enumerate(versions) if found == version]
        wheres = [workload[seen[place]].where for place in rows]
        try:
            then = load_snapshot(store, version)
            bounds_of, session = partial(load_bounds, store, then), Session.at_ms(now_ms)
            found = judged_each(then, wheres, bounds_of, session)
        except LiquidlogError:
            continue  # e.g. its log files or columns are gone
        sizes = then.files["size"].to_numpy()
        predicted[rows] = [sizes[np.asarray(one.may_match, np.bool_)].sum() for one in found]
        on_version[rows] = 1.0
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


# What they open

_MOST_FILES: Final = 200_000
"""The most files on which every predicate is evaluated; of more, half as many are."""


def table_readers(
    store: TableStore, snapshot: Snapshot, workload: Workload, now_ms: int
) -> "TableReaders":
    """Return what the predicates of a workload open in a table as it is."""
    session = Session.at_ms(now_ms)
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
        asked=named,
        halves=_halves(readers.workload, named.shapes),
        now=opened_by_masks(sizes, masks, profile_of(snapshot.uri), scale=scale),
        masks=masks,
        files=files,
        scale=scale,
        total_bytes=total_bytes,
        session=session,
        now_ms=now_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The leaves and paths of all predicates, and the paths of each."""

    leaves: tuple[Leaf, ...]
    paths: tuple[Path, ...]
    shapes: tuple[frozenset[Path], ...]


def _named(snapshot: Snapshot, readers: Answers) -> Asked:
    # The SQL parser takes a third of a command's start; most commands have no predicate.
    from liquidlog.predicates.conditions import referenced_leaves, referenced_paths_each

    wheres = [one.where for one in readers.workload]
    named = referenced_paths_each(snapshot.schema, wheres)
    known = {leaf.logical for leaf in leaves(snapshot.schema)}
    paths = dict.fromkeys(path for some in named for path in some if path in known)
    return Asked(
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
    """The table as it is, and what p predicates open now.

    `masks` have one bool for each of `files`: rows of `Snapshot.files`, all or, of very many, some.
    Sums over them are multiplied by `scale`.
    """

    store: TableStore
    snapshot: Snapshot
    readers: Answers
    asked: Asked
    halves: Halves
    now: Readings
    masks: Sequence[Mask]
    files: Numbers
    scale: float
    total_bytes: float
    session: Session
    now_ms: int

    @property
    def wheres(self) -> list[str]:
        """The conditions of the predicates."""
        return [one.where for one in self.readers.workload]

    def mean(self, values: Floats, weights: Floats) -> float:
        """Return the weighted mean of a number per predicate."""
        return float(weights @ values) / float(weights.sum())

    def joined(self, max_file_bytes: int) -> Readings:
        """Return what predicates would open if files were joined by size in partitions."""
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
        """Return the fields that advice has in any case."""
        snapshot, readers = self.snapshot, self.readers
        has_files = self.total_bytes > 0
        return {
            "table_uri": snapshot.uri,
            "table_id": snapshot.metadata.id,
            "version": snapshot.version,
            "backtest": backtested(
                self.store, snapshot, readers.workload, self.now.bytes, self.now_ms
            )
            if has_files
            else Backtest(),
            "current": self.current(),
            "queries_older": int((self.halves.older > 0).sum()),
            "queries_newest": int((self.halves.newest > 0).sum()),
            "parted_by": self.halves.by,
            "cannot_prune": readers.cannot_prune,
            "not_usable": readers.not_usable,
            "asked_at": readers.asked_at(self.now_ms),
        }

    def left_alone(self, reason: str, notes: tuple[str, ...]) -> Advice:
        """Return the advice to leave the table alone, without a measured layout."""
        return Advice(**self.fields(), reason=reason, notes=notes)


def fitted_readers(
    workload: Workload, weights: Floats, columns: Sequence[Path], snapshot: Snapshot
) -> FittedWorkload | None:
    """Return what predicates with these weights ask of columns, None if nothing."""
    from liquidlog.predicates.reduction import fitted_workload

    asked = tuple(
        replace(one, weight=float(weight))
        for one, weight in zip(workload, weights, strict=True)
        if weight > 0
    )
    found = fitted_workload(asked, columns, snapshot.schema)
    return found if found.asks else None
