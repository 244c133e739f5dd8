"""Exact search of long keys (strings, wide decimals) in sorted boundaries, eight bytes at a time.

A key is a sequence of *words*: uint64, big-endian eight bytes, zero-padded at the end. Two keys
compare as their words do, then by how many bytes of the last word are real, because padding must
not make "a" equal to "a" followed by a zero byte. Rows that a word leaves tied with a boundary go
on to the next word, alone; all others are done. Ties are told apart inside their *prefix group*:
the boundaries that share all words before.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.curve.search import positions_in

WORD_BYTES: Final = 8

Counts = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int64]
Word = tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]
WordReader = Callable[[Rows, int], Word]
"""(rows, depth) -> the words at this depth, and how many bytes of each are real (0 to 8)."""

_SIGN: Final = np.uint64(1 << 63)
# Keeps the first n bytes of a big-endian word, for n in 0..8.
_KEEP: Final = np.array([(2**64 - 1) << (64 - 8 * n) & (2**64 - 1) for n in range(9)], np.uint64)


def bytes_below(values: pa.Array, bounds: pa.Array) -> Counts:
    """Return for each string the number of bounds below it; slots of nulls hold anything."""
    return _count_below(_string_words(values), len(values), _string_words(bounds), len(bounds))


def decimals_below(values: pa.Array, bounds: pa.Array) -> Counts:
    """Return for each decimal128 the number of bounds below it; slots of nulls hold anything."""
    low, high = _decimal_halves(values)
    bound_low, bound_high = _decimal_halves(bounds)
    if _fits_long(low, high) and _fits_long(bound_low, bound_high):
        return positions_in(bound_low, low).astype(np.uint32)
    return _count_below(
        _decimal_words(low, high), len(values), _decimal_words(bound_low, bound_high), len(bounds)
    )


def _count_below(read: WordReader, n: int, read_bounds: WordReader, bound_count: int) -> Counts:
    below = np.zeros(n, np.uint32)
    if bound_count == 0:
        return below
    rows: Rows = np.arange(n)
    bound_rows: Rows = np.arange(bound_count)
    groups = np.zeros(n, np.int64)
    bound_groups = np.zeros(bound_count, np.int64)
    depth = 0
    while len(rows):
        bound_ranks, rank = _ranker(*read_bounds(bound_rows, depth), groups=bound_groups)
        ranks, filled = rank(*read(rows, depth), groups=groups)
        below[rows] = bound_rows[0] + np.searchsorted(bound_ranks, ranks, side="left")
        starts = np.flatnonzero(np.append(True, bound_ranks[1:] != bound_ranks[:-1]))
        slot = np.searchsorted(bound_ranks[starts], ranks, side="left")
        slot = np.minimum(slot, len(starts) - 1)
        tied = (bound_ranks[starts][slot] == ranks) & (filled == WORD_BYTES)
        rows, groups = rows[tied], slot[tied]
        bound_groups = np.repeat(
            np.arange(len(starts)), np.diff(np.append(starts, len(bound_ranks)))
        )
        depth += 1
    return below


def _ranker(
    bound_words: npt.NDArray[np.uint64], bound_filled: npt.NDArray[np.int64], *, groups: Rows
) -> tuple[Rows, Callable[..., tuple[Rows, Rows]]]:
    distinct = np.unique(bound_words)

    def rank(words: npt.NDArray[np.uint64], filled: Rows, *, groups: Rows) -> tuple[Rows, Rows]:
        place = np.searchsorted(distinct, words, side="left")
        found = distinct[np.minimum(place, len(distinct) - 1)] == words
        order = 2 * place + found
        return (groups * (2 * len(distinct) + 2) + order) * (WORD_BYTES + 1) + filled, filled

    return rank(bound_words, bound_filled, groups=groups)[0], rank


def _string_words(values: pa.Array) -> WordReader:
    width: npt.DTypeLike = np.int64 if pa.types.is_large_string(values.type) else np.int32
    _, offsets_buffer, data = values.buffers()
    if offsets_buffer is None or len(values) == 0:
        offsets = np.zeros(len(values) + 1, np.int64)
    else:
        offsets = np.frombuffer(offsets_buffer, width)[
            values.offset : values.offset + len(values) + 1
        ].astype(np.int64)
    first, last = offsets[0], offsets[-1]
    # Eight spare bytes, so that a word can be read at the end of the last string.
    padded = np.zeros(last - first + WORD_BYTES, np.uint8)
    if data is not None:
        padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    unaligned = np.ndarray((len(padded) - WORD_BYTES + 1,), ">u8", padded.data, 0, (1,))
    starts, ends = offsets[:-1] - first, offsets[1:] - first

    def read(rows: Rows, depth: int) -> Word:
        begin = starts[rows] + depth * WORD_BYTES
        filled = np.clip(ends[rows] - begin, 0, WORD_BYTES)
        words = unaligned[np.minimum(begin, len(unaligned) - 1)].astype(np.uint64)
        return words & _KEEP[filled], filled

    return read


def _decimal_halves(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    halves = np.frombuffer(buffer, np.int64).reshape(-1, 2)
    halves = halves[values.offset : values.offset + len(values)]
    if values.null_count:
        halves = np.where(values.is_valid().to_numpy(zero_copy_only=False)[:, None], halves, 0)
    return halves[:, 0], halves[:, 1]


def _fits_long(low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> bool:
    return bool(np.all(high == low >> 63))


def _decimal_words(low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> WordReader:
    # The first word carries the sign; flipping its bit makes two's complement order unsigned.
    words = (high.astype(np.uint64) ^ _SIGN, low.astype(np.uint64))

    def read(rows: Rows, depth: int) -> Word:
        filled = WORD_BYTES if depth < len(words) else 0
        chosen = words[depth][rows] if depth < len(words) else np.zeros(len(rows), np.uint64)
        return chosen, np.full(len(rows), filled, np.int64)

    return read
