"""As many predicates and intervals as a layout can be fitted to in a moment."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from liquidlog.plan import Interval, Term

MAX_PREDICATES: Final = 256
MAX_INTERVALS: Final = 1024
MAX_INTERVALS_OF_TERM: Final = 64

AnyOf: TypeAlias = tuple[tuple[Term, ...], ...]
"""The alternatives of a predicate, each with its terms."""

_Weighted: TypeAlias = tuple[AnyOf, float]


def bounded(weights: Mapping[AnyOf, float]) -> list[_Weighted]:
    """Return predicates with weights: all of them, or about MAX_PREDICATES, of few intervals.

    Those are kept that a systematic sample meets, in proportion to their weights, for each choice
    of columns that they narrow by. Neighbouring intervals are joined where there are too many.
    """
    return _with_few_intervals(_within_limit(weights))


def _within_limit(weights: Mapping[AnyOf, float]) -> list[_Weighted]:
    """Return the predicates, or a sample of about MAX_PREDICATES of them, with their weights."""
    if len(weights) <= MAX_PREDICATES:
        return list(weights.items())
    strata: dict[frozenset[int], list[_Weighted]] = {}
    for any_of, weight in weights.items():
        columns = frozenset(term.column for terms in any_of for term in terms)
        strata.setdefault(columns, []).append((any_of, weight))
    total = math.fsum(weights.values())
    return [one for some in strata.values() for one in _sampled(some, total)]


def _sampled(predicates: Sequence[_Weighted], total: float) -> Iterator[_Weighted]:
    """Yield the predicates that evenly spaced steps of their summed weights meet."""
    ends = np.cumsum([weight for _, weight in predicates])
    wanted = max(1, min(len(predicates), round(MAX_PREDICATES * ends[-1] / total)))
    steps = (np.arange(wanted) + 0.5) * (ends[-1] / wanted)
    met = np.minimum(np.searchsorted(ends, steps), len(predicates) - 1)
    for number, times in zip(*np.unique(met, return_counts=True), strict=True):
        yield predicates[number][0], float(ends[-1] * times / wanted)


def _with_few_intervals(predicates: Sequence[_Weighted]) -> list[_Weighted]:
    """Return the predicates with at most MAX_INTERVALS intervals, neighbours joined if needed."""
    found, most = list(predicates), MAX_INTERVALS_OF_TERM
    while most > 1 and _count(found) > MAX_INTERVALS:
        most //= 2
        found = [
            (tuple(tuple(_fewer(term, most) for term in terms) for terms in any_of), weight)
            for any_of, weight in found
        ]
    return found


def _count(predicates: Sequence[_Weighted]) -> int:
    return sum(
        len(term.intervals) for any_of, _ in predicates for terms in any_of for term in terms
    )


def _fewer(term: Term, most: int) -> Term:
    """Return a term of at most `most` intervals, which were merged in their order before."""
    count = len(term.intervals)
    if count <= most:
        return term
    edges = [number * count // most for number in range(most + 1)]
    joined = tuple(
        Interval(
            low=term.intervals[start].low,
            high=term.intervals[stop - 1].high,
            open_low=term.intervals[start].open_low,
            open_high=term.intervals[stop - 1].open_high,
        )
        for start, stop in pairwise(edges)
    )
    return Term(column=term.column, intervals=joined)
