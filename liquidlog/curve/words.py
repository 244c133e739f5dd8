"""Exact search of long keys (strings, wide decimals) in sorted boundaries, eight bytes at a time.

A key is a sequence of *words*: uint64, big-endian eight bytes, zero-padded at the end. Two keys
compare as their words do, then by how many bytes of the last word are real, because padding must
not make "a" equal to "a" followed by a zero byte. Only rows that a word leaves tied with a boundary
go on to the next word. Their *prefix group* says with which boundaries: those that share all words
before.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.curve.search import positions_in

WORD_BYTES: Final = 8

Counts = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int64]

_SIGN: Final = np.uint64(1 << 63)
# Keeps the first n bytes of a big-endian word, for n in 0..8.
_KEEP: Final = np.array([(2**64 - 1) << (64 - 8 * n) & (2**64 - 1) for n in range(9)], np.uint64)


def bytes_below(values: pa.Array, boundaries: pa.Array) -> Counts:
    """Return for each text the number of boundaries below it.

    Args:
        values: n texts, string or large_string; under nulls the result may be anything.
        boundaries: Texts of the same type, sorted by their UTF-8 bytes, distinct, without nulls.

    Returns:
        (n,) uint32, each in [0, len(boundaries)].
    """
    return _count_below(_Texts(values), _Texts(boundaries))


def decimals_below(values: pa.Array, boundaries: pa.Array) -> Counts:
    """Return for each decimal the number of boundaries below it.

    Args:
        values: n values of decimal128; under nulls the result may be anything.
        boundaries: Values of the same scale, sorted, distinct, without nulls.

    Returns:
        (n,) uint32, each in [0, len(boundaries)].
    """
    keys, boundary_keys = _Decimals(values), _Decimals(boundaries)
    if keys.fit_one_word() and boundary_keys.fit_one_word():
        return positions_in(boundary_keys.low, keys.low).astype(np.uint32)
    return _count_below(keys, boundary_keys)


class _Word(NamedTuple):
    """The words of some keys at one depth: (n,) uint64, and how many bytes of each are real."""

    words: npt.NDArray[np.uint64]
    filled: npt.NDArray[np.int64]


class _Keys(Protocol):
    """Keys that can be read word by word."""

    def __len__(self) -> int: ...
    def read(self, rows: Rows, depth: int) -> _Word: ...


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Ranks words among the distinct words of the boundaries at one depth."""

    distinct: npt.NDArray[np.uint64]

    def ranks_of(self, word: _Word, groups: Rows) -> Rows:
        """Return numbers that order words as (prefix group, word, real bytes) does."""
        place = np.searchsorted(self.distinct, word.words, side="left")
        is_boundary = self.distinct[np.minimum(place, len(self.distinct) - 1)] == word.words
        ranks: Rows = groups * (2 * len(self.distinct) + 2) + (2 * place + is_boundary)
        return ranks * (WORD_BYTES + 1) + word.filled


def _count_below(keys: _Keys, boundaries: _Keys) -> Counts:
    below = np.zeros(len(keys), np.uint32)
    if len(boundaries) == 0:
        return below
    rows: Rows = np.arange(len(keys))
    boundary_rows: Rows = np.arange(len(boundaries))
    groups = np.zeros(len(keys), np.int64)
    boundary_groups = np.zeros(len(boundaries), np.int64)
    depth = 0
    while len(rows):
        boundary_word = boundaries.read(boundary_rows, depth)
        ranking = _Ranking(np.unique(boundary_word.words))
        boundary_ranks = ranking.ranks_of(boundary_word, boundary_groups)
        word = keys.read(rows, depth)
        ranks = ranking.ranks_of(word, groups)
        below[rows] = boundary_rows[0] + np.searchsorted(boundary_ranks, ranks, side="left")
        starts = np.flatnonzero(np.append(True, boundary_ranks[1:] != boundary_ranks[:-1]))
        slot = np.searchsorted(boundary_ranks[starts], ranks, side="left")
        slot = np.minimum(slot, len(starts) - 1)
        tied = (boundary_ranks[starts][slot] == ranks) & (word.filled == WORD_BYTES)
        rows, groups = rows[tied], slot[tied]
        boundary_groups = np.repeat(
            np.arange(len(starts)), np.diff(np.append(starts, len(boundary_ranks)))
        )
        depth += 1
    return below


class _Texts:
    """UTF-8 texts as keys."""

    def __init__(self, values: pa.Array) -> None:
        width: npt.DTypeLike = np.int64 if pa.types.is_large_string(values.type) else np.int32
        _, offsets_buffer, data = values.buffers()
        if offsets_buffer is None or len(values) == 0:
            offsets = np.zeros(len(values) + 1, np.int64)
        else:
            offsets = np.frombuffer(offsets_buffer, width)[
                values.offset : values.offset + len(values) + 1
            ].astype(np.int64)
        first, last = offsets[0], offsets[-1]
        # Eight spare bytes, so that a word can be read at the end of the last text.
        padded = np.zeros(last - first + WORD_BYTES, np.uint8)
        if data is not None:
            padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        self._word_at = np.ndarray((len(padded) - WORD_BYTES + 1,), ">u8", padded.data, 0, (1,))
        self._starts, self._ends = offsets[:-1] - first, offsets[1:] - first

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, rows: Rows, depth: int) -> _Word:
        begin = self._starts[rows] + depth * WORD_BYTES
        filled = np.clip(self._ends[rows] - begin, 0, WORD_BYTES)
        words = self._word_at[np.minimum(begin, len(self._word_at) - 1)].astype(np.uint64)
        return _Word(words & _KEEP[filled], filled)


class _Decimals:
    """Values of decimal128 as keys: two words, `high` with the sign before `low`."""

    def __init__(self, values: pa.Array) -> None:
        buffer = values.buffers()[1]
        if buffer is None:
            halves = np.zeros((len(values), 2), np.int64)
        else:
            halves = np.frombuffer(buffer, np.int64).reshape(-1, 2)
            halves = halves[values.offset : values.offset + len(values)]
        if values.null_count:
            is_valid = values.is_valid().to_numpy(zero_copy_only=False)
            halves = np.where(is_valid[:, None], halves, 0)
        self.low, self.high = halves[:, 0], halves[:, 1]

    def __len__(self) -> int:
        return len(self.low)

    def fit_one_word(self) -> bool:
        """Return whether `low` alone says which value each is."""
        return bool(np.all(self.high == self.low >> 63))

    def read(self, rows: Rows, depth: int) -> _Word:
        if depth == 0:
            # Flipping the bit of the sign makes two's complement order unsigned.
            words = self.high[rows].astype(np.uint64) ^ _SIGN
        elif depth == 1:
            words = self.low[rows].astype(np.uint64)
        else:
            return _Word(np.zeros(len(rows), np.uint64), np.zeros(len(rows), np.int64))
        return _Word(words, np.full(len(rows), WORD_BYTES, np.int64))
