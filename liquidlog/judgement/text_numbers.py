"""Texts as numbers that keep their order, and roughly their distances."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_CHARACTERS: Final = 16
"""How many characters after the common beginning of all texts count for distances."""

_FINEST: Final = 2.0**-44
_END_WEIGHT: Final = 0.05
"""How far a text is from the next one at least, relative to the mean distance."""


def text_numbers(low: pa.Array, high: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and the upper bounds as numbers (float64); equal texts have equal ones.

    A character counts as one of those that other bounds have at its place: digits are ten steps.
    """
    both = pa.concat_arrays([low, high])
    distinct = pc.unique(both)
    distinct = distinct.take(pc.array_sort_indices(distinct))
    gaps = np.diff(_distances(distinct))
    mean = float(gaps.sum()) / max(len(gaps), 1) or 1.0
    numbers = np.append(0.0, np.cumsum(gaps / mean + _END_WEIGHT))
    found = numbers[np.asarray(pc.index_in(both, distinct), np.int64)]
    return found[: len(low)], found[len(low) :]


def _distances(ordered: pa.Array) -> NDArray[np.float64]:
    """Return a number from 0 to 1 per text (float64), no smaller than that of a text before it."""
    first, last = ordered[0].as_py(), ordered[-1].as_py()
    begin = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    found, step = np.zeros(len(ordered)), 1.0
    for place in range(begin, begin + _CHARACTERS):
        letters = pc.utf8_slice_codeunits(ordered, place, place + 1)
        known = pc.unique(letters)
        known = known.take(pc.array_sort_indices(known))
        step /= len(known)
        found += step * np.asarray(pc.index_in(letters, known), np.float64)
        if step < _FINEST:
            break
    return found
