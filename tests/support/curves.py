"""Points of the grid and samples for tests of curves, cuts and boxes."""

from collections.abc import Mapping, Sequence

import numpy as np

from liquidlog.curve.conditions import GridPredicates
from liquidlog.curve.cuts import CurveSample


def as_sample(keys: list[int]) -> CurveSample:
    numbers = np.array(keys, np.uint64)
    shares = (numbers[:, None] >> np.uint64(40)) / (1 << 24)
    rows = np.arange(len(keys), dtype=np.uint64)
    return CurveSample.sort(numbers, rows, lows=shares, highs=shares)


Array = np.ndarray


def spread(rows: int, columns: int, *, values: int = 1 << 16, seed: int = 5) -> Array:
    """Evenly spread coordinates of 16 bits, as many different ones as `values` a column."""
    step = (1 << 16) // values
    numbers = np.random.default_rng(seed).integers(0, values, (rows, columns))
    return np.asfortranarray((numbers * step).astype(np.uint32))


def ordinals_of(coords: Array) -> Array:
    return np.arange(len(coords), dtype=np.uint64)


def asked_of(
    predicates: Sequence[tuple[float, Sequence[Mapping[int, Sequence[tuple[float, float]]]]]],
) -> GridPredicates:
    """What weighted predicates ask: alternatives of intervals (shares) by column."""
    flat: list[tuple[int, float, float]] = []
    terms: list[int] = []
    alternatives: list[int] = []
    starts: list[int] = []
    for _, any_of in predicates:
        starts.append(len(alternatives))
        for alternative in any_of:
            alternatives.append(len(terms))
            for axis, intervals in alternative.items():
                terms.append(len(flat))
                flat += [(axis, low, end) for low, end in intervals]
    weights = np.array([weight for weight, _ in predicates])
    return GridPredicates(
        axes=np.array([axis for axis, _, _ in flat]),
        lows=np.array([low for _, low, _ in flat]),
        ends=np.array([end for _, _, end in flat]),
        terms=np.array(terms),
        alternatives=np.array(alternatives),
        predicates=np.array(starts),
        weights=weights / weights.sum(),
    )
