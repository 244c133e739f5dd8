"""What queries open before and after a rewrite, and how long they wait."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.choice import pack
from liquidlog.curve.curves import places_among
from liquidlog.foresee.sample import Floats, Laid, SampledColumn
from liquidlog.predicates.workload import NotUsable, Session
from liquidlog.snapshot import FILES_SCHEMA, Snapshot
from liquidlog.spec.bounds import Bounds, Mask, concat_bounds
from liquidlog.spec.schema import Leaf
from liquidlog.spec.text import Summary

_PREDICATES_AT_ONCE: Final = 64
_FILES_AT_ONCE: Final = 400_000
_Amount = TypeVar("_Amount", float, NDArray[np.float64])

_BYTES_OF_A_REQUEST: Final = 16 << 20
"""A request reads this much; a file of more takes more requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProfile:
    """The speed of a store and of rewrites.

    The store answers a request after `latency_seconds`; `requests_at_once` share
    `bytes_per_second`. A query sends `requests_of_a_file`, and more for many bytes. A rewrite takes
    `start_seconds`, then handles `rewritten_bytes_per_second`.
    """

    latency_seconds: float
    bytes_per_second: float
    requests_at_once: float
    requests_of_a_file: float = 2.0
    rewritten_bytes_per_second: float = 60e6
    start_seconds: float = 2.0

    def requests(self, files: _Amount, size_bytes: _Amount) -> _Amount:
        return self.requests_of_a_file * files + size_bytes / _BYTES_OF_A_REQUEST

    def seconds(self, files: _Amount, size_bytes: _Amount) -> _Amount:
        waits = self.requests(files, size_bytes) * (self.latency_seconds / self.requests_at_once)
        return waits + size_bytes / self.bytes_per_second

    def rewrite_seconds(self, files: float, size_bytes: float) -> float:
        """Return how long a rewrite takes, by the files and bytes that it reads and writes."""
        if not files:
            return 0.0
        waits = self.requests_of_a_file * files * self.latency_seconds / self.requests_at_once
        return self.start_seconds + waits + size_bytes / self.rewritten_bytes_per_second


LOCAL_DISK: Final = StoreProfile(
    latency_seconds=0.005, bytes_per_second=800e6, requests_at_once=2.0
)
"""Engines take about 5 ms to plan and start a task that opens a file."""

OBJECT_STORE: Final = StoreProfile(
    latency_seconds=0.03, bytes_per_second=100e6, requests_at_once=2.0, requests_of_a_file=3.0
)
"""A store that takes 30 ms per request and sends 90 MB/s per connection, with two cores.

Seconds that delta-rs took for 28 files of TPC-H lineitem, and the predictions: all columns 4.5 and
4.6, one day in five files 0.54 and 0.81, one part in six files 0.58 and 0.97. pyarrow sends two
requests per file, delta-rs three, and five if it skips pages by their index.
"""


EVERYTHING: Final = "every row"
"""The name of an assumed full scan."""

ReadersFrom = Literal["workload", "assumed"]


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted number lies between `low` and `high` in nine of ten cases; `low` <= `high`."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Generic[_Amount]):
    """The files and bytes that a query opens; or each of p queries, (p,) float64 each."""

    files: _Amount
    bytes: _Amount
    profile: StoreProfile = LOCAL_DISK

    @property
    def requests(self) -> _Amount:
        return self.profile.requests(self.files, self.bytes)

    @property
    def seconds(self) -> _Amount:
        """How long the store lets a query wait."""
        return self.profile.seconds(self.files, self.bytes)

    def __add__(self, other: "Opened[_Amount]") -> "Opened[_Amount]":
        return replace(self, files=self.files + other.files, bytes=self.bytes + other.bytes)

    def times(self, factor: _Amount | float) -> "Opened[_Amount]":
        return replace(self, files=self.files * factor, bytes=self.bytes * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedReads:
    """One query before and after a plan; `share` is its share of all queries.

    `where` is the predicate, or the name of an assumed query. Ranges hold in nine of ten cases.
    `cannot_prune` has the conditions that no statistics can use. `columns` are the predicate's.
    """

    where: str
    share: float
    files_before: float
    files_after: float
    files_after_range: Range
    bytes_before: float
    bytes_after: float
    bytes_after_range: Range
    requests_before: float
    requests_after: float
    seconds_before: float
    seconds_after: float
    cannot_prune: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction(Summary):
    """The predicted effect of a plan on queries.

    `readers` is `workload`, or `assumed`: full scans and queries for one value of one column. Each
    column is then queried equally often, each value as often as it has rows. The columns are the
    plan's clustering columns; without any, the columns in which files are narrow now.

    Files, bytes, requests and seconds are means per query. A query saves `gain_per_byte` bytes per
    rewritten byte. After `break_even_reads` queries, as many bytes are saved as were rewritten;
    None if a query saves nothing. Ranges hold in nine of ten cases. The range of `break_even_reads`
    ends at infinity if a query may save nothing, and is None if no query can save anything.

    If `is_sampled`, the prediction is from `sampled_rows` of `sampled_files`, read by
    `sample_requests`, else from the bounds in the log. Groups with `predicted_share` of the plan's
    bytes were laid out; the others are assumed to be alike. `cannot_prune` lists the conditions
    that no statistics can use. `not_usable` has the predicates that are no condition on this table;
    nothing else counts them. `asked_at` is the current time (ISO 8601, UTC) if a predicate depends
    on it, else None.
    """

    readers: ReadersFrom
    is_sampled: bool
    sampled_rows: int
    sampled_files: int
    sample_requests: int
    predicted_share: float
    bytes_to_rewrite: int
    files_to_rewrite: int
    files_to_write: int
    files_before: float
    files_after: float
    files_after_range: Range
    bytes_before: float
    bytes_after: float
    bytes_after_range: Range
    requests_before: float
    requests_after: float
    requests_after_range: Range
    seconds_before: float
    seconds_after: float
    seconds_after_range: Range
    gain_per_byte: float
    gain_per_byte_range: Range
    break_even_reads: float | None
    break_even_reads_range: Range | None
    predicates: tuple[PredictedReads, ...]
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]
    asked_at: str | None

    def opened(
        self, when: Literal["before", "after", "low", "high"], profile: StoreProfile
    ) -> Opened[float]:
        """Return what the mean query opens before or after, or at an end of the range."""
        if when in {"low", "high"}:
            files, size_bytes = self.files_after_range, self.bytes_after_range
            ends = getattr(files, when), getattr(size_bytes, when)
        else:
            ends = getattr(self, f"files_{when}"), getattr(self, f"bytes_{when}")
        return Opened(files=ends[0], bytes=ends[1], profile=profile)


# What queries open of the present files, and of the files of a rewrite


def opened_by_masks(
    sizes: Floats, masks: Sequence[Mask], profile: StoreProfile, *, scale: float = 1.0
) -> Opened[Floats]:
    """Return `scale` times what queries open; a mask per query marks the files that may match."""
    return Opened(
        bytes=np.array([scale * float(sizes[mask].sum()) for mask in masks], np.float64),
        files=np.array([scale * float(mask.sum()) for mask in masks], np.float64),
        profile=profile,
    )


def shares_opened(
    column: SampledColumn, low: pa.Array, high: pa.Array, weights: Floats, own: Floats
) -> Floats:
    """Return the share of queries for one value that open each file (float64).

    Each value is queried as often as it has rows; a sampled row counts for `weights` rows of the
    table. `low` and `high` are the ends of each file; all queries open a file without ends. Each
    file has the share `own` of the table's rows.
    """
    known, values = column.codes >= 0, len(column.distinct)
    counts = np.bincount(column.codes[known], weights[known], values)
    if not counts.sum():
        return np.ones(len(low))
    begins = np.append(0.0, np.cumsum(counts)) / counts.sum()
    (first, _), (last, is_value) = (places_among(column.distinct, end) for end in (low, high))
    upto = (last + is_value).clip(0, values)
    # Queries ask for the file's own rows even if none of its values was sampled.
    found = np.maximum(begins[upto] - begins[first.clip(0)], own)
    has_ends = np.asarray(pc.and_(low.is_valid(), high.is_valid()), np.bool_)
    return np.where(has_ends, found, 1.0)


def opened_of_laid(
    snapshot: Snapshot,
    laid: Sequence[Laid],
    leaves: Sequence[Leaf],
    predicates: Sequence[str],
    session: Session,
    now: Opened[Floats],
) -> tuple[Opened[Floats], ...]:
    """Return what each predicate would open of the files of each candidate.

    A predicate that may match rows `now` opens at least one file, of the median size, since its
    rows may not be sampled. The files have bounds of `leaves`, which the predicates need; the table
    has no partition columns.
    """
    found: list[Opened[Floats]] = []
    for part in pack(np.array([len(one.size_bytes) for one in laid], np.int64), _FILES_AT_ONCE):
        found += _of_some(snapshot, laid[part], leaves, predicates, session, now.profile)
    least = []
    for one, files in zip(found, laid, strict=True):
        missed = (one.files == 0) & (now.files > 0) & bool(len(files.size_bytes))
        middle = float(np.median(files.size_bytes)) if missed.any() else 0.0
        size_bytes = np.where(missed, middle, one.bytes)
        least.append(replace(one, bytes=size_bytes, files=np.where(missed, 1.0, one.files)))
    return tuple(least)


def _of_some(
    snapshot: Snapshot,
    laid: Sequence[Laid],
    leaves: Sequence[Leaf],
    predicates: Sequence[str],
    session: Session,
    profile: StoreProfile,
) -> list[Opened[Floats]]:
    # Importing the SQL parser takes a third of a command's start; most commands need none.
    from liquidlog.predicates.matching import judged_each

    counts = np.array([len(one.size_bytes) for one in laid])
    if not counts.sum():
        nothing = np.zeros(len(predicates))
        return [Opened(bytes=nothing, files=nothing, profile=profile) for _ in laid]
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
        Opened(bytes=read[number], files=opened[number], profile=profile).times(one.scale)
        for number, one in enumerate(laid)
    ]


def imagined_files(sizes: Floats) -> pa.Table:
    """Return files of these sizes as `Snapshot.files` has them."""
    known = {
        "path": pa.array(np.char.add("laid-", np.arange(len(sizes)).astype(str))),
        "size": pa.array(sizes.astype(np.int64)),
    }
    columns = [known.get(one.name, pa.nulls(len(sizes), one.type)) for one in FILES_SCHEMA]
    return pa.table(columns, schema=FILES_SCHEMA)
