"""The proof that a rewrite lost nothing: a checksum of the multiset of rows.

Two independent 64-bit hashes of each whole row, its *lanes*, are summed modulo 2**64 over all rows,
so the order and the slicing of rows do not matter and everything else does: the values, their
columns, which values stand in one row, how often a row occurs.

Equal values (bit by bit: NaN payloads and the sign of zero count) have equal hashes whatever
their encoding; null is a value of its own. Fixed-width values are hashed without collisions.

Rounds are `(h ^ word) * odd; h ^= h >> 32`: each is a bijection of h and of the word.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.buffers import buffer_bytes, fixed_width, list_offsets, null_mask

Lane = npt.NDArray[np.uint64]
Lanes = tuple[Lane, Lane]

_WORD_BYTES: Final = 8
_INLINE_BYTES: Final = 256
"""Longer byte strings are rare and hashed one by one."""

_HALF: Final = np.uint64(32)
_WORD_MASKS: Final = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)

_BLOCK_ROWS: Final = 32_768
"""Rows hashed at a time, so that the intermediate arrays stay in the processor's cache."""

_LANE_BITS: Final = 64
_LANE: Final = (1 << _LANE_BITS) - 1


def _scrambled(number: int) -> int:
    """Return the 64-bit finaliser of SplitMix64, a bijection with full avalanche."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _LANE
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _LANE
    return number ^ (number >> 31)


def _constant(number: int) -> np.uint64:
    """Return the `number`-th odd constant; all are unrelated."""
    return np.uint64(_scrambled((number + 1) * 0x9E3779B97F4A7C15 & _LANE) | 1)


_MULTIPLIERS: Final = (_constant(0), _constant(1))
_NULLS: Final = (_constant(2), _constant(3))
_LENGTHS: Final = (_constant(4), _constant(5))
_POSITIONS: Final = (_constant(6), _constant(7))
_ROWS: Final = (_constant(8), _constant(9))
_FIELDS: Final = 1000
"""Constants from here on belong to the fields of rows and structs, two per field."""


def multiset_checksum(table: pa.Table) -> int:
    """Return the checksum of the rows: two lanes of 64 bits in one number below 2**128.

    Dictionary-encoded columns count as what they encode; columns differ by position.
    """
    hasher = _LaneHasher()
    checksum = 0
    for batch in table.to_batches(max_chunksize=_BLOCK_ROWS):
        first, second = hasher.rows(batch.columns, batch.num_rows)
        checksum = add_checksums(checksum, _joined(int(np.sum(first)), int(np.sum(second))))
    return checksum


def add_checksums(*checksums: int) -> int:
    """Return the checksum of all rows together; the lanes are added separately."""
    return _joined(
        sum(checksum >> _LANE_BITS for checksum in checksums),
        sum(checksum & _LANE for checksum in checksums),
    )


def format_checksum(checksum: int) -> str:
    """Return the 32 hex digits that stand in documents."""
    return f"{checksum:032x}"


def _joined(first: int, second: int) -> int:
    return (first & _LANE) << _LANE_BITS | second & _LANE


class _LaneHasher:
    """Hashes arrays of one table; remembers the dictionaries it has seen while they live."""

    def __init__(self) -> None:
        self._dictionaries: dict[tuple[int, ...], tuple[pa.Array, Lanes]] = {}

    def rows(self, columns: Iterable[pa.Array], num_rows: int) -> Lanes:
        """Return the hashes of rows: of their values in this order."""
        # Never zero to begin with: a row of zeros must count too.
        rows = np.full(num_rows, _ROWS[0]), np.full(num_rows, _ROWS[1])
        for ordinal, column in enumerate(columns):
            for lane, (row, value) in enumerate(zip(rows, self.values(column), strict=True)):
                np.add(row, value * _constant(_FIELDS + 2 * ordinal + lane), out=row)
        return _finish(rows[0]), _finish(rows[1])

    def values(self, array: pa.Array) -> Lanes:
        """Return the hashes of the values, one per entry and lane."""
        lanes = self._valid_values(array)
        if array.null_count:
            is_null = null_mask(array)
            for lane, null in zip(lanes, _NULLS, strict=True):
                lane[is_null] = null
        return lanes

    def _valid_values(self, array: pa.Array) -> Lanes:
        kind = array.type
        if isinstance(kind, pa.DictionaryType):
            return self._dictionary(array)
        if isinstance(kind, pa.StructType):
            return self.rows(array.flatten(), len(array))
        if isinstance(kind, pa.ListType):
            return _sequences(list_offsets(array), self.values(_within(array, array.values)))
        if isinstance(kind, pa.MapType):
            entries = [_within(array, array.keys), _within(array, array.items)]
            return _sequences(list_offsets(array), self.rows(entries, len(entries[0])))
        if kind in {pa.string(), pa.binary()}:
            return _byte_strings(array)
        return _numbers(array)

    def _dictionary(self, array: pa.DictionaryArray) -> Lanes:
        dictionary = array.dictionary
        addresses = (buffer.address if buffer else 0 for buffer in dictionary.buffers())
        key = (dictionary.offset, len(dictionary), *addresses)
        # The dictionary is kept beside its hashes: its addresses stay taken.
        if key not in self._dictionaries:
            self._dictionaries[key] = dictionary, self.values(dictionary)
        hashes = self._dictionaries[key][1]
        if not len(dictionary):
            return np.zeros(len(array), np.uint64), np.zeros(len(array), np.uint64)
        positions = fixed_width(pc.cast(array.indices, pa.int64()), np.int64)
        if array.null_count:
            positions = np.where(null_mask(array), 0, positions)
        return hashes[0][positions], hashes[1][positions]


def _finish(lane: Lane) -> Lane:
    """Scramble in place: the finaliser above, for arrays."""
    lane ^= lane >> np.uint64(30)
    lane *= np.uint64(0xBF58476D1CE4E5B9)
    lane ^= lane >> np.uint64(27)
    lane *= np.uint64(0x94D049BB133111EB)
    lane ^= lane >> np.uint64(31)
    return lane


def _round(lane: Lane, multiplier: np.uint64) -> None:
    lane *= multiplier
    lane ^= lane >> _HALF


def _words(words: Lane) -> Lanes:
    """Return the hashes of 64-bit values."""
    first, second = words * _MULTIPLIERS[0], words * _MULTIPLIERS[1]
    first ^= first >> _HALF
    second ^= second >> _HALF
    return first, second


def _numbers(array: pa.Array) -> Lanes:
    if pa.types.is_decimal128(array.type):
        return _decimals(array)
    if pa.types.is_boolean(array.type):
        array = pc.cast(array, pa.uint8())
    values = fixed_width(array, f"<i{array.type.bit_width // 8}")
    return _words(values.astype(np.int64).view(np.uint64))


def _decimals(array: pa.Array) -> Lanes:
    words = fixed_width(array, np.uint64)
    lanes = _words(words[::2])
    for lane, multiplier in zip(lanes, _MULTIPLIERS, strict=True):
        np.bitwise_xor(lane, words[1::2], out=lane)
        _round(lane, multiplier)
    return lanes


def _byte_strings(array: pa.Array) -> Lanes:
    _, offsets_buffer, data_buffer = array.buffers()
    if not len(array):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    offsets = buffer_bytes(offsets_buffer).view(np.int32)[array.offset :][: len(array) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    words = _every_word(buffer_bytes(data_buffer), int(starts[0]), int(offsets[-1]))
    starts -= starts[0]
    lanes = _words(lengths.astype(np.uint64))
    short = lengths <= _INLINE_BYTES
    _absorb(lanes, words, starts, np.where(short, lengths, 0))
    for index in np.flatnonzero(~short):
        digest = hashlib.blake2b(array[index].as_buffer(), digest_size=16).digest()
        first, second = np.frombuffer(digest, np.uint64)
        lanes[0][index], lanes[1][index] = first, second
    return lanes


def _absorb(
    lanes: Lanes, words: Lane, starts: npt.NDArray[np.int64], lengths: npt.NDArray[Any]
) -> None:
    """Add the bytes of all strings to their hashes, eight at a time, all strings at once."""
    rows: npt.NDArray[np.intp] | slice = slice(None)
    position = 0
    while True:
        word = words[starts + position]
        word &= _WORD_MASKS[np.minimum(lengths - position, _WORD_BYTES)]
        for lane, multiplier in zip(lanes, _MULTIPLIERS, strict=True):
            current = lane[rows]
            current ^= word
            _round(current, multiplier)
            lane[rows] = current
        position += _WORD_BYTES
        left = np.flatnonzero(lengths > position)
        if not len(left):
            return
        starts, lengths = starts[left], lengths[left]
        rows = left if isinstance(rows, slice) else rows[left]


def _every_word(data: npt.NDArray[np.uint8], start: int, end: int) -> Lane:
    """Return the 64-bit word at every byte of data[start:end]; what lies behind may be anything."""
    if end + _WORD_BYTES > len(data):
        data = np.concatenate([data[start:end], np.zeros(_WORD_BYTES, np.uint8)])
        start, end = 0, end - start
    return np.ndarray(
        shape=(end - start + 1,),
        dtype=np.uint64,
        buffer=data[start : end + _WORD_BYTES],
        strides=(1,),
    )


def _sequences(offsets: npt.NDArray[np.int64], elements: Lanes) -> Lanes:
    """Return the hashes of lists of elements, which depend on their order and number."""
    offsets = offsets - offsets[0]
    counts = np.diff(offsets)
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    lanes = _words(counts.astype(np.uint64))
    for lane, element, key, length in zip(lanes, elements, _POSITIONS, _LENGTHS, strict=True):
        terms = _finish(element + positions.astype(np.uint64) * key)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        np.multiply(lane, length, out=lane)
        np.add(lane, sums[offsets[1:]] - sums[offsets[:-1]], out=lane)
        _finish(lane)
    return lanes


def _within(array: pa.Array, children: pa.Array) -> pa.Array:
    """Return the children that belong to a possibly sliced list array."""
    offsets = list_offsets(array)
    return children.slice(offsets[0], offsets[-1] - offsets[0])
