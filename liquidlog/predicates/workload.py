"""Workloads: the predicates of a table's readers, and how often each is used."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WeightedPredicate:
    """A SQL condition and how often it is used, in any unit that the whole workload shares."""

    where: str
    weight: float = 1.0


Workload = tuple[WeightedPredicate, ...]


def shares(workload: Workload) -> tuple[float, ...]:
    """Return the share of the workload per predicate; the shares add up to 1."""
    total = math.fsum(predicate.weight for predicate in workload)
    return tuple(predicate.weight / total for predicate in workload)
