"""Workloads: the predicates of a table's readers, and how often each is used."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WeightedPredicate:
    """A SQL condition and how often it is used, in any unit that the whole workload shares.

    `problem` says why `where` is no condition on one table; None if it may be one.
    """

    where: str
    weight: float = 1.0
    problem: str | None = None


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
