"""Workloads: the predicates that a table's readers ask with, and how often."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WeightedPredicate:
    """A SQL condition and how often it is asked, in any unit that the whole workload shares."""

    where: str
    weight: float = 1.0


Workload = tuple[WeightedPredicate, ...]


def shares(workload: Workload) -> tuple[float, ...]:
    """Return each predicate's share of all that is asked; they add up to 1."""
    total = math.fsum(predicate.weight for predicate in workload)
    return tuple(predicate.weight / total for predicate in workload)
