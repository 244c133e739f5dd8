"""Texts as numbers in their order, so that made-up texts can lie between known ones."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Points = NDArray[np.float64]

_MOST_CHARACTERS: Final = 12
_EXACT_BITS: Final = 53
_SURROGATES: Final = (0xD800, 0xDFFF)


class TextLine:
    """The characters behind a common beginning, as many as a double holds, read as digits.

    A digit counts the characters between the smallest and the largest that known texts have in
    these places; 0 is the end of a text.
    """

    def __init__(self, known: pa.Array) -> None:
        """Take the known texts: sorted, at least one, without nulls."""
        self._first, self._last = known[0].as_py(), known[-1].as_py()
        self._beginning = _common(self._first, self._last)
        codes = self._codes(known, _MOST_CHARACTERS)
        used = codes[codes > 0]
        self._smallest = int(used.min()) if len(used) else 1
        self._base = (int(used.max()) - self._smallest if len(used) else 0) + 2
        self._digits = min(_MOST_CHARACTERS, int(_EXACT_BITS / np.log2(self._base)))
        self._weights = float(self._base) ** np.arange(self._digits - 1, -1, -1)

    def numbers(self, texts: pa.Array) -> Points:
        """Return a number per text (float64); texts outside of the known ones get the ends."""
        inside = pc.min_element_wise(pc.max_element_wise(texts, self._first), self._last)
        codes = self._codes(inside, self._digits).astype(np.int64)
        digits = np.where(codes > 0, codes - self._smallest + 1, 0)
        return np.asarray(np.clip(digits, 0, self._base - 1) @ self._weights, np.float64)

    def texts(self, numbers: Points) -> pa.Array:
        """Return the text per number, no smaller or larger than the known ones."""
        rest = np.clip(np.floor(numbers), 0, float(self._base) ** self._digits - 1)
        digits = np.empty((len(rest), self._digits), np.int64)
        for place, weight in enumerate(self._weights):
            digits[:, place] = np.floor(rest / weight)
            rest = rest - digits[:, place] * weight
        codes = np.where(digits > 0, digits - 1 + self._smallest, 0)
        codes[np.logical_or.accumulate(codes == 0, axis=1)] = 0
        codes[(codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1])] = _SURROGATES[0] - 1
        ends = np.ascontiguousarray(codes, np.uint32).view(f"<U{self._digits}")[:, 0]
        made = pc.binary_join_element_wise(self._beginning, pa.array(ends, pa.string()), "")
        return pc.min_element_wise(pc.max_element_wise(made, self._first), self._last)

    def _codes(self, texts: pa.Array, characters: int) -> NDArray[np.uint32]:
        begin = len(self._beginning)
        rest = pc.utf8_slice_codeunits(texts, begin, begin + characters)
        fixed = np.asarray(rest.to_pylist(), f"<U{characters}")
        return fixed.view(np.uint32).reshape(len(texts), characters)


def _common(first: str, second: str) -> str:
    alike = (n for n, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    return first[: next(alike, min(len(first), len(second)))]
