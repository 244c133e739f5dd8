"""Points of the grid and samples for tests of curves, cuts and boxes."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from liquidlog.curve.curves import CurveSample, GridPredicates, Keys, _undo_plane, check_grid


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


# Points at positions along curves: the inverses of `liquidlog.curve.curves`, for comparisons


def hilbert_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point, (n, d) uint32, at each position; inverse of hilbert_index, bits <= 32."""
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    one = np.uint64(1)
    x = [np.zeros(len(keys), np.uint64) for _ in range(dimensions)]
    for plane in range(bits):
        for j in range(dimensions):
            shift = np.uint64(plane * dimensions + dimensions - 1 - j)
            x[j] |= ((keys >> shift) & one) << np.uint64(plane)
    last = x[-1] >> one
    for j in range(dimensions - 1, 0, -1):
        x[j] ^= x[j - 1]
    x[0] ^= last
    for plane in range(1, bits):
        for j in range(dimensions - 1, -1, -1):
            _undo_plane(x, j, plane)
    return np.stack(x, axis=1).astype(np.uint32)


def zorder_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point, (n, d) uint32, at each position; inverse of zorder_index, bits <= 32."""
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    point = np.zeros((len(keys), dimensions), np.uint32)
    for plane in range(bits):
        for j in range(dimensions):
            shift = np.uint64(plane * dimensions + dimensions - 1 - j)
            bit = (keys >> shift) & np.uint64(1)
            point[:, j] |= (bit << np.uint64(plane)).astype(np.uint32)
    return point


def linear_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point, (n, d) uint32, at each position; inverse of linear_index, bits <= 32."""
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    mask = np.uint64((1 << bits) - 1)
    shifts = [np.uint64((dimensions - 1 - j) * bits) for j in range(dimensions)]
    return np.stack([(keys >> shift) & mask for shift in shifts], axis=1).astype(np.uint32)
