"""What readers open: each predicate on today's files, and on those that candidates would write."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.advice.layouts import Laid
from liquidlog.advice.sample import Floats
from liquidlog.judgement.costs import reading_cost
from liquidlog.predicates.literals import Session
from liquidlog.simulation.imagined import ImaginedFiles, with_imagined
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, concat_bounds
from liquidlog.spec.schema import Leaf

_PREDICATES_AT_ONCE: Final = 64
_FILES_AT_ONCE: Final = 400_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """What one reading of each of p predicates opens: bytes and files, (p,) float64 each."""

    bytes: Floats
    files: Floats

    @property
    def cost_bytes(self) -> Floats:
        """The cost of one reading in bytes, with that of opening files, (p,)."""
        return reading_cost(self.bytes, self.files)

    def __add__(self, other: "Readings") -> "Readings":
        """Return what both open together."""
        return Readings(bytes=self.bytes + other.bytes, files=self.files + other.files)


def readings_of(
    snapshot: Snapshot,
    laid: Sequence[Laid],
    leaves: Sequence[Leaf],
    predicates: Sequence[str],
    session: Session,
    now: Readings,
) -> tuple[Readings, ...]:
    """Return what each predicate would read of the files of each candidate.

    A predicate that may match rows now opens at least one file of the middle size: that no sampled
    row is near does not mean that there is none.

    Args:
        snapshot: The table, without partition columns.
        laid: The files of each candidate, with bounds of `leaves`.
        leaves: The leaves that the predicates need.
        predicates: SQL conditions on the table.
        session: The readers' time.
        now: What the predicates read now.
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
        found += _of_some(snapshot, some, leaves, predicates, session)
        start = stop
    return tuple(_at_least_one(one, files, now) for one, files in zip(found, laid, strict=True))


def _of_some(
    snapshot: Snapshot,
    laid: Sequence[Laid],
    leaves: Sequence[Leaf],
    predicates: Sequence[str],
    session: Session,
) -> list[Readings]:
    # The SQL parser takes a third of a command's start; most commands have no predicate.
    from liquidlog.predicates.matching import judged_each

    counts = np.array([len(one.size_bytes) for one in laid])
    if not counts.sum():
        nothing = np.zeros(len(predicates))
        return [Readings(bytes=nothing, files=nothing) for _ in laid]
    sizes = np.concatenate([one.size_bytes for one in laid])
    owner = np.repeat(np.arange(len(laid)), counts)
    imagined = _imagined(snapshot, sizes)
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
        Readings(bytes=one.scale * read[number], files=one.scale * opened[number])
        for number, one in enumerate(laid)
    ]


def _imagined(snapshot: Snapshot, sizes: Floats) -> Snapshot:
    files = ImaginedFiles(
        paths=pa.array(np.char.add("laid-", np.arange(len(sizes)).astype(str))),
        size_bytes=sizes.astype(np.int64),
        num_records=pa.nulls(len(sizes), pa.int64()),
    )
    none = pa.array(np.zeros(snapshot.files.num_rows, np.bool_))
    return replace(with_imagined(snapshot, none, [files]), plain_files=None)


def _at_least_one(found: Readings, laid: Laid, now: Readings) -> Readings:
    missed = (found.files == 0) & (now.files > 0)
    if not missed.any() or not len(laid.size_bytes):
        return found
    middle = float(np.median(laid.size_bytes))
    return Readings(
        bytes=np.where(missed, middle, found.bytes), files=np.where(missed, 1.0, found.files)
    )
