"""What readers open before and after a rewrite, with the ranges in which that will lie."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from liquidlog.predicates.workload import NotUsable
from liquidlog.spec.text import Summary

EVERYTHING: Final = "every row"
"""What an assumed reader asks for who reads all."""

ReadersFrom = Literal["workload", "assumed"]


@dataclass(frozen=True, slots=True)
class Range:
    """The ends between which a predicted number lies in nine of ten cases; `low` <= `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse ends in the wrong order."""
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
    """The reads of one reader before and after a plan; `share` is its share of all readings.

    `where` is the predicate, or says in words what an assumed reader asks for. Ranges hold what
    comes true in nine of ten cases. `cannot_prune` lists the conditions that rule out no file,
    whatever the statistics. `columns` are those that the predicate names.
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
    """The predicted effect of a plan on its readers.

    `readers` says who they are: those of a `workload`, or `assumed` ones, who read everything or
    ask for one value of one column: every column equally often, every value as often as it has
    rows. The columns are those that the plan clusters by; without any, those in which files are
    narrow now.

    Files, bytes, requests and seconds, before and after, are means per read. `gain_per_byte` is the
    number of bytes that a read saves per rewritten byte. After `break_even_reads` reads, as many
    bytes are saved as were rewritten; None if a read saves nothing. Ranges hold what comes true in
    nine of ten cases; that of `break_even_reads` ends at infinity if a read may save nothing, and
    is None if no read can.

    `is_sampled` says whether rows were read, `sampled_rows` how many, of `sampled_files`, by
    `sample_requests`; if not, only the bounds in the log speak. `predicted_share` is the share of
    the plan's bytes whose groups were laid out; the others are taken to come out alike.
    `cannot_prune` lists the conditions of all predicates that rule out no file. `not_usable` has
    the predicates that are no condition on this table, which count nowhere else. `asked_at` is the
    current time (ISO 8601, UTC) if a predicate depends on it, else None.
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
        """Return what the mean query opens before or after the plan, or an end of the latter."""
        names = [one.name for one in fields(Opened)]
        if when in {"before", "after"}:
            return Opened(**{name: getattr(self, f"{name}_{when}") for name in names})
        return Opened(
            **{name: getattr(getattr(self, f"{name}_after_range"), when) for name in names}
        )

    def document(self) -> dict[str, Any]:
        """Return the fields by name, `predicates` as PredictedReads, ready to print as JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
