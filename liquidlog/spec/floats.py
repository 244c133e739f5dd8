"""Floats, and the doubles that are written for them."""

import numpy as np
from numpy.typing import NDArray


def floats_around(low: float, high: float) -> tuple[float, float]:
    """Return the smallest and the largest float that numbers from `low` to `high` may become.

    A number that a float represents exactly becomes that float. Any other number may also become a
    neighbour of its nearest float, since rounding twice may end there.
    """
    lows, highs = widened_to_floats(np.array([low]), np.array([high]))
    return float(lows[0]), float(highs[0])


def widened_to_floats(
    low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bounds (float64) that hold `low` and `high` and the floats that were written as them.

    A bound that a float represents exactly stays unchanged.
    """
    return _outward(low, -np.inf, np.minimum), _outward(high, np.inf, np.maximum)


def _outward(values: NDArray[np.float64], end: float, farther: np.ufunc) -> NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = values.astype(np.float32)
        neighbour = np.nextafter(nearest, np.float32(end)).astype(np.float64)
        is_float = nearest.astype(np.float64) == values
    found: NDArray[np.float64] = np.where(is_float, values, farther(values, neighbour))
    return found
