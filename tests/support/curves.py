"""Points of the grid and samples for tests of curves, cuts and boxes."""

import numpy as np

from liquidlog.curve.cuts import (
    CurveSample,
)


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
