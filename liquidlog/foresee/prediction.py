"""What queries open before and after a rewrite, with ranges, and how long they wait."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from liquidlog.predicates.workload import NotUsable
from liquidlog.spec.text import Summary

_Amount = TypeVar("_Amount", float, NDArray[np.float64])

_BYTES_OF_A_REQUEST: Final = 16 << 20
"""A request reads this much; a file of more takes more requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProfile:
    """The speed of a store and of rewrites.

    A request is answered after `latency_seconds`; `requests_at_once` share `bytes_per_second`. A
    query sends `requests_of_a_file`, and more for many bytes. A rewrite takes `start_seconds`, then
    writes `rewritten_bytes_per_second`.
    """

    name: str
    latency_seconds: float
    bytes_per_second: float
    requests_at_once: float
    requests_of_a_file: float = 2.0
    rewritten_bytes_per_second: float = 60e6
    start_seconds: float = 2.0

    def requests(self, files: _Amount, size_bytes: _Amount) -> _Amount:
        """Return how many requests read so many bytes of so many files."""
        return self.requests_of_a_file * files + size_bytes / _BYTES_OF_A_REQUEST

    def seconds(self, files: _Amount, size_bytes: _Amount) -> _Amount:
        """Return how long it takes to read so many bytes of so many files."""
        waits = self.requests(files, size_bytes) * (self.latency_seconds / self.requests_at_once)
        return waits + size_bytes / self.bytes_per_second

    def rewrite_seconds(self, files: float, size_bytes: float) -> float:
        """Return how long a rewrite of so many read and written files takes; 0 without any."""
        if not files:
            return 0.0
        waits = self.requests_of_a_file * files * self.latency_seconds / self.requests_at_once
        return self.start_seconds + waits + size_bytes / self.rewritten_bytes_per_second


LOCAL_DISK: Final = StoreProfile(
    name="local disk", latency_seconds=0.005, bytes_per_second=800e6, requests_at_once=2.0
)
"""A file is opened in about 5 ms by engines that plan and start a task for it."""

OBJECT_STORE: Final = StoreProfile(
    name="object store",
    latency_seconds=0.03,
    bytes_per_second=100e6,
    requests_at_once=2.0,
    requests_of_a_file=3.0,
)
"""As two cores see a store that takes 30 ms per request and sends 90 MB/s on each connection.

Measured with delta-rs and predicted, seconds, of 28 files of TPC-H lineitem: all columns 4.5 and
4.6, one day in five files 0.54 and 0.81, one part in six 0.58 and 0.97. pyarrow sends two requests
for each file, delta-rs three, and five where it skips pages by their index.
"""


EVERYTHING: Final = "every row"
"""What an assumed full scan asks for."""

ReadersFrom = Literal["workload", "assumed"]


@dataclass(frozen=True, slots=True)
class Range:
    """The ends between which a predicted number lies in nine of ten cases; `low` <= `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"a range from {self.low} to {self.high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a query opens, and how long it waits for the store."""

    files: float
    bytes: float
    requests: float
    seconds: float

    def times(self, factor: float) -> "Opened":
        """Return so many times as much."""
        return self._each(lambda name: getattr(self, name) * factor)

    def changed(self, before: "Opened", after: "Opened", times: float) -> "Opened":
        """Return this with so many times the change from `before` to `after`, nothing at least."""

        def of(name: str) -> float:
            change: float = getattr(after, name) - getattr(before, name)
            now: float = getattr(self, name)
            return max(0.0, now + times * change)

        return self._each(of)

    def _each(self, value: Callable[[str], float]) -> "Opened":
        return Opened(**{one.name: value(one.name) for one in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedReads:
    """One query before and after a plan; `share` is its share of all queries.

    `where` is the predicate, or says in words what an assumed query asks for. Ranges are what
    happens in nine of ten cases. `cannot_prune` has the conditions that rule out no file, whatever
    the statistics. `columns` are the predicate's.
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

    `readers` is `workload`, or `assumed`: full scans and queries for one value of one column, every
    column equally often, every value as often as it has rows. The columns are the plan's clustering
    columns; without any, the columns in which files are narrow now.

    Files, bytes, requests and seconds, before and after, are means per query. `gain_per_byte` is
    the number of bytes that a query saves per rewritten byte. After `break_even_reads` queries, as
    many bytes are saved as were rewritten; None if a query saves nothing. Ranges are what happens
    in nine of ten cases; the range of `break_even_reads` ends at infinity if a query may save
    nothing, and is None if no query can save anything.

    If `is_sampled`, the prediction is from `sampled_rows` of `sampled_files`, read by
    `sample_requests`; if not, only the bounds in the log speak. `predicted_share` is the share of
    the plan's bytes whose groups were laid out; the other groups count as alike. `cannot_prune`
    lists the conditions of all predicates that rule out no file. `not_usable` has the predicates
    that are no condition on this table, and count nowhere else. `asked_at` is the current time (ISO
    8601, UTC) if a predicate depends on it, else None.
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

    def opened(self, when: Literal["before", "after", "low", "high"]) -> Opened:
        """Return what the mean query opens before or after, or at an end of the range after."""
        names = [one.name for one in fields(Opened)]
        if when in {"before", "after"}:
            return Opened(**{name: getattr(self, f"{name}_{when}") for name in names})
        return Opened(
            **{name: getattr(getattr(self, f"{name}_after_range"), when) for name in names}
        )

    def document(self) -> dict[str, Any]:
        """Return the fields by name, `predicates` as PredictedReads, ready to print as JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
