"""What queries open of the files that are there, and of the files of a rewrite."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.grid import range_ids
from liquidlog.foresee.layouts import Laid
from liquidlog.foresee.prediction import LOCAL_DISK, StoreProfile
from liquidlog.foresee.sample import Floats, SampledColumn
from liquidlog.predicates.workload import Session
from liquidlog.snapshot import FILES_SCHEMA, Snapshot
from liquidlog.spec.bounds import Bounds, Mask, concat_bounds
from liquidlog.spec.schema import Leaf

_PREDICATES_AT_ONCE: Final = 64
_FILES_AT_ONCE: Final = 400_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """What each of p queries opens: bytes and files, (p,) float64 each."""

    bytes: Floats
    files: Floats
    profile: StoreProfile = LOCAL_DISK

    @property
    def requests(self) -> Floats:
        """The requests of each query, (p,)."""
        return self.profile.requests(self.files, self.bytes)

    @property
    def seconds(self) -> Floats:
        """How long each query waits for the store, (p,)."""
        return self.profile.seconds(self.files, self.bytes)

    def __add__(self, other: "Readings") -> "Readings":
        return replace(self, bytes=self.bytes + other.bytes, files=self.files + other.files)

    def times(self, factor: Floats | float) -> "Readings":
        """Return so many times as much."""
        return replace(self, bytes=self.bytes * factor, files=self.files * factor)


def opened_by_masks(
    sizes: Floats, masks: Sequence[Mask], profile: StoreProfile, *, scale: float = 1.0
) -> Readings:
    """Return what queries open that may match the files of each mask, times `scale`."""
    return Readings(
        bytes=np.array([scale * float(sizes[mask].sum()) for mask in masks], np.float64),
        files=np.array([scale * float(mask.sum()) for mask in masks], np.float64),
        profile=profile,
    )


def shares_opened(
    column: SampledColumn, low: pa.Array, high: pa.Array, weights: Floats, own: Floats
) -> Floats:
    """Return the share of queries for one value that open each file (float64).

    Each value is asked for as often as it has rows: a sampled row stands for `weights` rows of the
    table. `low` and `high` are the ends of each file; all queries open a file without ends. `own`
    is the share of the table's rows that each file has.
    """
    known, values = column.codes >= 0, len(column.distinct)
    counts = np.bincount(column.codes[known], weights[known], values)
    if not counts.sum():
        return np.ones(len(low))
    begins = np.append(0.0, np.cumsum(counts)) / counts.sum()
    first, last = (range_ids(end, column.distinct).astype(np.int64) - 1 for end in (low, high))
    at_end = column.distinct.take(pa.array(last.clip(0, values - 1)))
    is_value = np.asarray(pc.fill_null(pc.equal(at_end, high), fill_value=False), np.bool_)
    upto = (last + is_value).clip(0, values)
    # Every row of a file is asked for, also where none of its values was sampled.
    found = np.maximum(begins[upto] - begins[first.clip(0)], own)
    has_ends = np.asarray(pc.and_(low.is_valid(), high.is_valid()), np.bool_)
    return np.where(has_ends, found, 1.0)


def readings_of(
    snapshot: Snapshot,
    laid: Sequence[Laid],
    leaves: Sequence[Leaf],
    predicates: Sequence[str],
    session: Session,
    now: Readings,
) -> tuple[Readings, ...]:
    """Return what each predicate would open of the files of each candidate.

    A predicate that may match rows `now` opens at least one file of the middle size: there may be
    rows that were not sampled. The files have bounds of `leaves`, which the predicates need; the
    table has no partition columns.
    """
    found: list[Readings] = []
    start = 0
    while start < len(laid):
        stop, files = start, 0
        while stop < len(laid) and (
            stop == start or files + len(laid[stop].size_bytes) <= _FILES_AT_ONCE
        ):
            files += len(laid[stop].size_bytes)
            stop += 1
        some = laid[start:stop]
        found += _of_some(snapshot, some, leaves, predicates, session, now.profile)
        start = stop
    return tuple(_at_least_one(one, files, now) for one, files in zip(found, laid, strict=True))


def _of_some(
    snapshot: Snapshot,
    laid: Sequence[Laid],
    leaves: Sequence[Leaf],
    predicates: Sequence[str],
    session: Session,
    profile: StoreProfile,
) -> list[Readings]:
    # The SQL parser takes a third of a command's start; most commands have no predicate.
    from liquidlog.predicates.matching import judged_each

    counts = np.array([len(one.size_bytes) for one in laid])
    if not counts.sum():
        nothing = np.zeros(len(predicates))
        return [Readings(bytes=nothing, files=nothing, profile=profile) for _ in laid]
    sizes = np.concatenate([one.size_bytes for one in laid])
    owner = np.repeat(np.arange(len(laid)), counts)
    imagined = replace(snapshot, files=imagined_files(sizes), plain_files=None)
    bounds = concat_bounds([one.bounds for one in laid])
    numbers = {leaf: number for number, leaf in enumerate(leaves)}

    def bounds_of(wanted: Sequence[Leaf]) -> Bounds:
        return bounds.select([numbers[leaf] for leaf in wanted])

    read, opened = (np.zeros((len(laid), len(predicates))) for _ in range(2))
    for first in range(0, len(predicates), _PREDICATES_AT_ONCE):
        some = predicates[first : first + _PREDICATES_AT_ONCE]
        for number, judged in enumerate(judged_each(imagined, some, bounds_of, session), first):
            met = np.flatnonzero(np.asarray(judged.may_match, np.bool_))
            read[:, number] = np.bincount(owner[met], sizes[met], len(laid))
            opened[:, number] = np.bincount(owner[met], minlength=len(laid))
    return [
        Readings(bytes=read[number], files=opened[number], profile=profile).times(one.scale)
        for number, one in enumerate(laid)
    ]


def imagined_files(sizes: Floats) -> pa.Table:
    """Return files of these sizes as `Snapshot.files` has them."""
    columns = {
        "path": pa.array(np.char.add("laid-", np.arange(len(sizes)).astype(str))),
        "size": pa.array(sizes.astype(np.int64)),
    }
    count = len(sizes)
    return pa.table(
        [columns.get(field.name, pa.nulls(count, field.type)) for field in FILES_SCHEMA],
        schema=FILES_SCHEMA,
    )


def _at_least_one(found: Readings, laid: Laid, now: Readings) -> Readings:
    missed = (found.files == 0) & (now.files > 0)
    if not missed.any() or not len(laid.size_bytes):
        return found
    middle = float(np.median(laid.size_bytes))
    return replace(
        found,
        bytes=np.where(missed, middle, found.bytes),
        files=np.where(missed, 1.0, found.files),
    )
