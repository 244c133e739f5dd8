"""Workloads: the predicates of a table's readers with their weights, and readers' sessions."""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The record of queries in a source: their times (ms since 1970) and average amounts."""

    first_ms: int | None = None
    last_ms: int | None = None
    files: int | None = None
    bytes: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class WeightedPredicate:
    """A SQL condition and its frequency, in a unit that the whole workload shares.

    `problem` says why `where` is no condition on one table. `recorded` is None for a predicate that
    somebody wrote. Stand-ins are values of the table in place of redacted constants: predictions
    use them, but no layout can be fitted to them.
    """

    where: str
    weight: float = 1.0
    problem: str | None = None
    recorded: Recorded | None = None
    has_stand_ins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUsable:
    """A predicate without use on the table, and the reason."""

    where: str
    weight: float
    reason: str


Workload = tuple[WeightedPredicate, ...]

Queries: TypeAlias = Sequence[WeightedPredicate | str] | str | PathLike[str]
"""A workload from callers: a path, or predicates and SQL statements."""


def shares(workload: Workload) -> tuple[float, ...]:
    """Return each predicate's share of the workload; the sum is 1."""
    total = math.fsum(predicate.weight for predicate in workload)
    return tuple(predicate.weight / total for predicate in workload)


def said_once(workload: Workload) -> Workload:
    """Return a workload in which equal predicates are one, with their total weight."""
    found: dict[WeightedPredicate, float] = {}
    for one in workload:
        key = replace(one, weight=1.0)
        found[key] = found.get(key, 0.0) + one.weight
    return tuple(replace(one, weight=weight) for one, weight in found.items())


# Sessions of readers: their time and time zone
#
# All times are microseconds since 1970: an instant in UTC, a local time as clocks show it.

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_HOUR_US: Final = 3_600_000_000

ANY_OFFSET_US: Final = 18 * _HOUR_US
ANY_SHIFT_US: Final = 25 * _HOUR_US
"""More than the largest difference ever between two offsets of one time zone."""


@dataclass(frozen=True, slots=True)
class Session:
    """A reader's time (milliseconds since 1970) and time zone, None if any is possible.

    With `for_rows`, no row may be missed, not even a NaN that a writer left out of its bounds.
    Other Delta readers miss such a NaN, and predictions of what they read do the same.
    """

    now_ms: int | None = None
    time_zone: dt.tzinfo | None = None
    for_rows: bool = False

    def local_us(self, instant_us: int) -> tuple[int, int]:
        """Return the earliest and latest time that clocks may show at an instant."""
        if self.time_zone is None:
            return instant_us - ANY_OFFSET_US, instant_us + ANY_OFFSET_US
        shown = (_EPOCH + dt.timedelta(microseconds=instant_us)).astimezone(self.time_zone)
        local = instant_us + (shown.utcoffset() or dt.timedelta()) // _MICROSECOND
        return local, local

    def instants_us(self, written_us: int) -> tuple[int, int]:
        """Return the earliest and latest instant that a time without offset may mean."""
        if self.time_zone is None:
            return written_us - ANY_OFFSET_US, written_us + ANY_OFFSET_US
        # A time that clocks showed twice means the first one, but as text it equals both.
        offsets = self._offsets_us(written_us, self.time_zone)
        return written_us - max(offsets), written_us - min(offsets)

    def shows_once(self, written_us: int) -> bool:
        """Return whether clocks of the known time zone show a time exactly once."""
        zone = self.time_zone
        return zone is not None and len(set(self._offsets_us(written_us, zone))) == 1

    @staticmethod
    def _offsets_us(written_us: int, time_zone: dt.tzinfo) -> tuple[int, ...]:
        written = (_EPOCH + dt.timedelta(microseconds=written_us)).replace(tzinfo=time_zone)
        found = (written.replace(fold=fold).utcoffset() for fold in (0, 1))
        return tuple((offset or dt.timedelta()) // _MICROSECOND for offset in found)
