"""Workloads: the predicates of a table's readers, and how often each is used."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the source of a predicate tells of its readings; None where it does not tell.

    Times are in ms since 1970. `bytes` and `files` are what one reading read, on average.
    """

    first_ms: int | None = None
    last_ms: int | None = None
    files: int | None = None
    bytes: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class WeightedPredicate:
    """A SQL condition and how often it is used, in any unit that the whole workload shares.

    `problem` says why `where` is no condition on one table; None if it may be one. `recorded` says
    when it was asked and what that read; None for a predicate that somebody wrote. `has_stand_ins`
    says that values of the table are in place of constants that were redacted: what is read can be
    predicted, but no layout can be fitted to them.
    """

    where: str
    weight: float = 1.0
    problem: str | None = None
    recorded: Recorded | None = None
    has_stand_ins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUsable:
    """A predicate that is set aside because it is no condition on the table, and the reason."""

    where: str
    weight: float
    reason: str


Workload = tuple[WeightedPredicate, ...]


def shares(workload: Workload) -> tuple[float, ...]:
    """Return the share of the workload per predicate; the shares add up to 1."""
    total = math.fsum(predicate.weight for predicate in workload)
    return tuple(predicate.weight / total for predicate in workload)
