"""How many rows of each input are sampled, and which.

Sampled rows are evenly spread over a file with a deterministic, low-discrepancy jitter, so that the
sample neither changes between runs nor falls in step with a period of the data.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

_GOLDEN_RATIO: Final = 0.6180339887498949


def sample_positions(rows: int, count: int) -> npt.NDArray[np.uint64]:
    """Return about `count` increasing row numbers below `rows`, (n,) uint64; all if fewer."""
    if count >= rows:
        return np.arange(rows, dtype=np.uint64)
    steps = np.arange(count)
    jitter = (steps * _GOLDEN_RATIO) % 1.0
    positions = np.floor((steps + jitter) * (rows / max(count, 1)))
    return positions[np.diff(positions, prepend=-1) > 0].astype(np.uint64)


def rows_to_sample(sizes_bytes: Sequence[int], total_rows: int) -> list[int]:
    """Return how many rows to sample from each input, in proportion to its size."""
    total_bytes = max(sum(sizes_bytes), 1)
    return [-(-total_rows * size // total_bytes) for size in sizes_bytes]
