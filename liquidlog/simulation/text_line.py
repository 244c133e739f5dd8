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
_KINDS: Final = ("09", "AZ", "az")


class TextLine:
    """The characters behind a common beginning, as many as a double holds, read as digits.

    Digits count the characters between the smallest and the largest that known texts have in these
    places, and others of their kind: where there is a 1, there may be a 7. Unless all known texts
    are of one length, the digit 0 is the end of a text.
    """

    def __init__(self, known: pa.Array) -> None:
        """Take the known texts: sorted, at least one, without nulls."""
        self._first, self._last = known[0].as_py(), known[-1].as_py()
        self._beginning = _common(self._first, self._last)
        lengths = pc.min_max(pc.utf8_length(known)).as_py()
        rest = lengths["max"] - len(self._beginning)
        self._ends = int(lengths["min"] < lengths["max"] or not rest)
        codes = self._codes(known, _MOST_CHARACTERS)
        used = codes[codes > 0]
        self._smallest = _kind(int(used.min()), 0) if len(used) else 1
        largest = _kind(int(used.max()), 1) if len(used) else 1
        self._base = max(2, largest - self._smallest + 1 + self._ends)
        most = _MOST_CHARACTERS if self._ends else min(rest, _MOST_CHARACTERS)
        self._digits = min(most, int(_EXACT_BITS / np.log2(self._base)))
        self._weights = float(self._base) ** np.arange(self._digits - 1, -1, -1)

    def numbers(self, texts: pa.Array) -> Points:
        """Return a number per text (float64); texts outside of the known ones get the ends."""
        inside = pc.min_element_wise(pc.max_element_wise(texts, self._first), self._last)
        codes = self._codes(inside, self._digits).astype(np.int64)
        digits = np.where(codes > 0, codes - self._smallest + self._ends, 0)
        return np.asarray(np.clip(digits, 0, self._base - 1) @ self._weights, np.float64)

    def texts(self, numbers: Points) -> pa.Array:
        """Return the text per number, no smaller or larger than the known ones."""
        rest = np.clip(np.floor(numbers), 0, float(self._base) ** self._digits - 1)
        digits = np.empty((len(rest), self._digits), np.int64)
        for place, weight in enumerate(self._weights):
            digits[:, place] = np.floor(rest / weight)
            rest = rest - digits[:, place] * weight
        codes = digits - self._ends + self._smallest
        if self._ends:
            codes[np.logical_or.accumulate(digits == 0, axis=1)] = 0
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


def _kind(code: int, end: int) -> int:
    """Return the first or the last character of the kind of one: digits, or letters of a case."""
    for kind in _KINDS:
        if ord(kind[0]) <= code <= ord(kind[1]):
            return ord(kind[end])
    return code
