"""The proof that a rewrite lost nothing: a checksum of the multiset of rows.

Two independent 64-bit hashes of each whole row, its *lanes*, are summed modulo 2**64 over all rows.
The order and the slicing of rows do not matter; everything else does.

Equal values (bit by bit: NaN payloads and the sign of zero count) have equal hashes in every
encoding; null has a hash of its own. Fixed-width values are hashed without collisions.

A row's hash is a sum over its columns, scrambled at the end: each value's word is folded, then
multiplied by an odd constant of its column and lane. Folding (`w = word * odd; w ^ w >> 32`), odd
multiples and scrambling are bijections. Folding spreads a difference in few high bits to all bits.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.encodings import buffer_bytes, fixed_width, list_offsets, null_mask
from liquidlog.spec.arrow import with_leaf_types

Lane = npt.NDArray[np.uint64]
Lanes = tuple[Lane, Lane]
Positions = npt.NDArray[np.int64]

_WORD_BYTES: Final = 8
_WORD_SHIFT: Final = 3
_BYTE_SHIFT: Final = 3
_WORD_BITS: Final = np.uint64(64)
_SIGN: Final = np.int64(63)
_INLINE_BYTES: Final = 256
"""Longer byte strings are rare and hashed one by one."""
_HALF: Final = np.uint64(32)
_WORD_MASKS: Final = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)
_BLOCK_ROWS: Final = 32_768
"""Rows hashed at a time, so that the intermediate arrays stay in the processor's cache."""
_LANE_BITS: Final = 64
_LANE: Final = (1 << _LANE_BITS) - 1


def _constant(number: int) -> np.uint64:
    """Return the `number`-th odd constant of SplitMix64."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & _LANE
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _LANE
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _LANE
    return np.uint64(mixed ^ (mixed >> 31) | 1)


Keys = tuple[np.uint64, np.uint64]


def _keys(number: int) -> Keys:
    return _constant(2 * number), _constant(2 * number + 1)


_MULTIPLIER: Final = _constant(14)
_ELEMENTS: Final = _keys(0)
_NULLS: Final = _keys(1)
_NULL_LANES: Final = np.full(1, _NULLS[0]), np.full(1, _NULLS[1])
_LENGTHS: Final = _keys(2)
_POSITIONS: Final = _keys(3)
_ROWS: Final = _keys(4)
_HIGH_WORDS: Final = _keys(5)
_LAST_WORDS: Final = _keys(6)
_TEXT_WORDS: Final = tuple(_keys(100 + number) for number in range(_INLINE_BYTES // _WORD_BYTES))
_FIELDS: Final = 500
"""Keys from here on belong to the fields of rows and structs."""


def multiset_checksum(table: pa.Table) -> int:
    """Return the checksum of the rows, below 2**128, with dictionaries decoded."""
    return add_checksums(*map(lanes_checksum, _lanes(table)))


def row_lanes(table: pa.Table) -> Lanes:
    """Return the two hashes of each of n rows, (n,) uint64 each; checksums are their sums."""
    found = list(_lanes(table))
    none = np.empty(0, np.uint64)
    first, second = (np.concatenate([none, *(lanes[n] for lanes in found)]) for n in (0, 1))
    return first, second


def _lanes(table: pa.Table) -> Iterator[Lanes]:
    hasher = _LaneHasher()
    for batch in table.to_batches(max_chunksize=_BLOCK_ROWS):
        yield hasher.rows(batch.columns, batch.num_rows)


def lanes_checksum(lanes: Lanes) -> int:
    first, second = (int(np.sum(lane, dtype=np.uint64)) for lane in lanes)
    return _joined(first, second)


def add_checksums(*checksums: int) -> int:
    """Return the checksum of all rows together; the lanes are added separately."""
    return _joined(
        sum(checksum >> _LANE_BITS for checksum in checksums),
        sum(checksum & _LANE for checksum in checksums),
    )


def subtract_checksums(whole: int, part: int) -> int:
    """Return the checksum of `whole` without the rows of `part`, which `whole` must hold."""
    return _joined((whole >> _LANE_BITS) - (part >> _LANE_BITS), (whole & _LANE) - (part & _LANE))


def format_checksum(checksum: int) -> str:
    """Return the checksum as documents write it: 32 hex digits."""
    return f"{checksum:032x}"


def _joined(first: int, second: int) -> int:
    return (first & _LANE) << _LANE_BITS | second & _LANE


class _LaneHasher:
    def __init__(self) -> None:
        self._dictionaries: dict[tuple[int, ...], tuple[pa.Array, Lanes]] = {}
        self._field_keys: list[Keys] = []

    def rows(self, columns: Iterable[pa.Array], num_rows: int) -> Lanes:
        # Do not begin with zero: a row of zeros must count too.
        rows = np.full(num_rows, _ROWS[0]), np.full(num_rows, _ROWS[1])
        for ordinal, column in enumerate(columns):
            for row, term in zip(rows, self._terms(column, self._keys(ordinal)), strict=True):
                np.add(row, term, out=row)
        return _finish(rows[0]), _finish(rows[1])

    def values(self, array: pa.Array) -> Lanes:
        lanes = self._valid_values(array)
        if not array.null_count:
            return lanes
        is_null = null_mask(array)
        first, second = (
            np.where(is_null, null, lane) for lane, null in zip(lanes, _NULLS, strict=True)
        )
        return first, second

    def _terms(self, array: pa.Array, keys: Keys) -> Iterator[Lane]:
        if isinstance(array.type, pa.DictionaryType) and not array.null_count:
            hashes, positions = self._dictionary(array)
            return ((lane * key)[positions] for lane, key in zip(hashes, keys, strict=True))
        return (lane * key for lane, key in zip(self.values(array), keys, strict=True))

    def _keys(self, ordinal: int) -> Keys:
        while len(self._field_keys) <= ordinal:
            self._field_keys.append(_keys(_FIELDS + len(self._field_keys)))
        return self._field_keys[ordinal]

    def _valid_values(self, array: pa.Array) -> Lanes:
        kind = array.type
        if isinstance(kind, pa.DictionaryType):
            hashes, positions = self._dictionary(array)
            return hashes[0][positions], hashes[1][positions]
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

    def _dictionary(self, array: pa.DictionaryArray) -> tuple[Lanes, Positions]:
        """Return the hashes of a dictionary's values, and each entry's position in them."""
        dictionary = array.dictionary
        addresses = (buffer.address if buffer else 0 for buffer in dictionary.buffers())
        key = (dictionary.offset, len(dictionary), *addresses)
        # The dictionary is kept with its hashes, so that no other gets its addresses.
        if key not in self._dictionaries:
            hashes = self.values(dictionary) if len(dictionary) else _NULL_LANES
            self._dictionaries[key] = dictionary, hashes
        positions = fixed_width(pc.cast(array.indices, pa.int64()), np.int64)
        if array.null_count:
            positions = np.where(null_mask(array), 0, positions)
        return self._dictionaries[key][1], positions


def _finish(lane: Lane) -> Lane:
    lane ^= lane >> np.uint64(30)
    lane *= np.uint64(0xBF58476D1CE4E5B9)
    lane ^= lane >> np.uint64(27)
    lane *= np.uint64(0x94D049BB133111EB)
    lane ^= lane >> np.uint64(31)
    return lane


def _folded(words: Lane) -> Lane:
    mixed = words * _MULTIPLIER
    mixed ^= mixed >> _HALF
    return mixed


def _numbers(array: pa.Array) -> Lanes:
    if pa.types.is_decimal128(array.type):
        return _decimals(array)
    if pa.types.is_boolean(array.type):
        array = pc.cast(array, pa.uint8())
    values = fixed_width(array, f"<i{array.type.bit_width // 8}")
    words = _folded(values.astype(np.int64, copy=False).view(np.uint64))
    return words, words


def _decimals(array: pa.Array) -> Lanes:
    halves = fixed_width(array, np.int64)
    low, high = halves[::2].copy(), halves[1::2]
    words = _folded(low.view(np.uint64))
    beyond = high ^ (low >> _SIGN)
    if not beyond.any():
        return words, words
    first, second = (words + _folded(beyond.view(np.uint64)) * key for key in _HIGH_WORDS)
    return first, second


def _byte_strings(array: pa.Array) -> Lanes:
    if not len(array):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = buffer_bytes(offsets_buffer).view(np.int32)[array.offset :][: len(array) + 1]
    data = buffer_bytes(data_buffer)[offsets[0] : offsets[-1]]
    starts, lengths = (offsets[:-1] - offsets[0]).astype(np.int64), np.diff(offsets)
    # Zeros behind the bytes, so that any word can be read.
    words = np.zeros((len(data) + _INLINE_BYTES) // _WORD_BYTES + 2, np.uint64)
    words.view(np.uint8)[: len(data)] = data
    if lengths.max() <= _INLINE_BYTES:
        return _texts(words, starts, lengths)
    is_long = lengths > _INLINE_BYTES
    lanes = _texts(words, starts, np.where(is_long, 0, lengths))
    for index in np.flatnonzero(is_long):
        digest = hashlib.blake2b(array[index].as_buffer(), digest_size=16).digest()
        lanes[0][index], lanes[1][index] = np.frombuffer(digest, np.uint64)
    return lanes


def _words_from(aligned: Lane, starts: Positions) -> Iterator[Lane]:
    """Yield the words at the starts, in bytes, (n,), then the words after them, and so on."""
    # Joining two aligned words takes half the time of reading an unaligned one.
    places = starts >> _WORD_SHIFT
    right = ((starts & (_WORD_BYTES - 1)) << _BYTE_SHIFT).astype(np.uint64)
    left = _WORD_BITS - right  # numpy shifts by 64 bits to 0
    low = aligned[places]
    while True:
        places += 1
        high = aligned[places]
        yield (low >> right) | (high << left)
        low = high


def _texts(words: Lane, starts: Positions, lengths: npt.NDArray[np.int32]) -> Lanes:
    """Return the hashes of byte strings: of the words before the last 8 bytes, and of these."""
    last = next(_words_from(words, starts + np.maximum(lengths - _WORD_BYTES, 0)))
    if (lengths < _WORD_BYTES).any():
        last &= _WORD_MASKS[np.minimum(lengths, _WORD_BYTES)]
    last = _folded(last)
    rest = _absorbed(words, starts, lengths, 0)
    counts = lengths.astype(np.uint64)
    for lane, key, length in zip(rest, _LAST_WORDS, _LENGTHS, strict=True):
        np.add(lane, last * key + counts * length, out=lane)
        np.bitwise_xor(lane, lane >> _HALF, out=lane)
    return rest


def _absorbed(words: Lane, starts: Positions, lengths: npt.NDArray[np.int32], number: int) -> Lanes:
    """Return the sums of each string's words from `number` on, without its last word."""
    sums = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
    texts = _words_from(words, starts + number * _WORD_BYTES)
    while True:
        inside = lengths > (number + 1) * _WORD_BYTES
        left = np.count_nonzero(inside)
        if left * 2 <= len(starts):
            break
        folded = _folded(next(texts))
        if left < len(starts):
            folded *= inside
        for lane, key in zip(sums, _TEXT_WORDS[number], strict=True):
            np.add(lane, folded * key, out=lane)
        number += 1
    if left:
        rows = np.flatnonzero(inside)
        others = _absorbed(words, starts[rows], lengths[rows], number)
        for lane, other in zip(sums, others, strict=True):
            lane[rows] += other
    return sums


def _sequences(offsets: npt.NDArray[np.int64], elements: Lanes) -> Lanes:
    offsets = offsets - offsets[0]
    counts = np.diff(offsets)
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    lanes = []
    for lane, element in enumerate(elements):
        places = positions.astype(np.uint64) * _POSITIONS[lane]
        terms = _finish(element * _ELEMENTS[lane] + places)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        within = sums[offsets[1:]] - sums[offsets[:-1]]
        lanes.append(_finish(counts.astype(np.uint64) * _LENGTHS[lane] + within))
    return lanes[0], lanes[1]


def _within(array: pa.Array, children: pa.Array) -> pa.Array:
    offsets = list_offsets(array)
    return children.slice(offsets[0], offsets[-1] - offsets[0])


_BITS: Final = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
"""Types whose bits are compared as integers: Arrow compares floating-point values as numbers."""


def same_bits(first: pa.Table, second: pa.Table) -> bool:
    """Return whether two tables of the same columns hold the same rows in the same order."""
    if first.num_rows != second.num_rows or first.num_columns != second.num_columns:
        return False
    pairs = zip(first.itercolumns(), second.itercolumns(), strict=True)
    return all(_bits(left).equals(_bits(right)) for left, right in pairs)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with floats as integers and without dictionaries."""
    if isinstance(column.type, pa.DictionaryType):
        column = column.cast(column.type.value_type)
    wanted = with_leaf_types(column.type, lambda found: _BITS.get(found, found))
    return pa.chunked_array([chunk.view(wanted) for chunk in column.chunks], wanted)
