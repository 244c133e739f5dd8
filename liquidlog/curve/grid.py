"""What all curves share: grid points and keys, and where the range of a coordinate ends."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import ClusteringColumnError, UsageError

Coords = npt.NDArray[np.unsignedinteger]
Keys = npt.NDArray[np.uint64]

KEY_BITS: Final = 64

BLOCK_ROWS: Final = 1 << 15
"""Rows that kernels work on at a time: a block's temporaries stay in L2 cache."""


def check_grid(coords: Coords, bits: int) -> tuple[int, int]:
    """Return n and d of (n, d) unsigned coordinates, if their keys fit in 64 bits."""
    n, d = coords.shape
    if d < 1 or bits < 1 or d * bits > KEY_BITS:
        raise UsageError(
            f"a curve key needs 1 to {KEY_BITS} bits, found {d} coordinates of {bits} bits"
        )
    return n, d


def coordinate_ends(coords: Coords, bits: int) -> Coords:
    """Return where each row's range ends: the next coordinate that a sampled row has.

    A box with one of seven values is a seventh wide, although its coordinates are all equal.
    `coords` are (s, d) unsigned in [0, 2**bits), the result in (0, 2**bits].
    """
    ends = np.empty_like(coords)
    for axis in range(coords.shape[1]):
        distinct, numbers = np.unique(coords[:, axis], return_inverse=True)
        ends[:, axis] = np.append(distinct[1:], np.uint32(1 << bits))[numbers]
    return ends


# Exact search of long keys (strings, wide decimals) in sorted boundaries, eight bytes at a time
#
# A key is a sequence of *words*: uint64, big-endian eight bytes, zero-padded at the end. Two
# keys compare as their words do, then by how many bytes of the last word are real, because
# padding must not make "a" equal to "a" followed by a zero byte. Only rows that a word leaves
# tied with a boundary go on to the next word. Their *prefix group* says with which boundaries:
# those that share all words before.

WORD_BYTES: Final = 8

Counts = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int64]

_SIGN: Final = np.uint64(1 << 63)
# Keeps the first n bytes of a big-endian word, for n in 0..8.
_KEEP: Final = np.array([(2**64 - 1) << (64 - 8 * n) & (2**64 - 1) for n in range(9)], np.uint64)


def bytes_below(values: pa.Array, boundaries: pa.Array) -> Counts:
    """Return for each of n texts the number of sorted boundaries below it, (n,) uint32."""
    return _count_below(_texts(values), _texts(boundaries))


def decimals_below(values: pa.Array, boundaries: pa.Array) -> Counts:
    """Return for each of n decimals the number of boundaries of its scale below it, (n,) uint32."""
    numbers, edges = _halves(values), _halves(boundaries)
    if all(np.all(high == low >> 63) for low, high in (numbers.T, edges.T)):
        return positions_in(edges[:, 0], numbers[:, 0]).astype(np.uint32)
    return _count_below(_words(numbers), _words(edges))


class _Word(NamedTuple):
    """The words of some keys at one depth: (n,) uint64, and how many bytes of each are real."""

    words: npt.NDArray[np.uint64]
    filled: npt.NDArray[np.int64]


class _Keys:
    """Keys that are the bytes between offsets, as words."""

    def __init__(self, data: npt.NDArray[np.uint8], offsets: Rows) -> None:
        first, last = offsets[0], offsets[-1]
        # Eight spare bytes, so that a word can be read at the end of the last key.
        padded = np.zeros(last - first + WORD_BYTES, np.uint8)
        padded[: last - first] = data[first:last]
        self._word_at = np.ndarray((len(padded) - WORD_BYTES + 1,), ">u8", padded.data, 0, (1,))
        self._starts, self._ends = offsets[:-1] - first, offsets[1:] - first

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, rows: Rows, depth: int) -> _Word:
        begin = self._starts[rows] + depth * WORD_BYTES
        filled = np.clip(self._ends[rows] - begin, 0, WORD_BYTES)
        words = self._word_at[np.minimum(begin, len(self._word_at) - 1)].astype(np.uint64)
        return _Word(words & _KEEP[filled], filled)


def _texts(values: pa.Array) -> _Keys:
    width: npt.DTypeLike = np.int64 if pa.types.is_large_string(values.type) else np.int32
    _, buffer, data = values.buffers()
    offsets = np.zeros(len(values) + 1, np.int64)
    if buffer is not None and len(values):
        offsets[:] = np.frombuffer(buffer, width)[values.offset :][: len(values) + 1]
    return _Keys(np.frombuffer(b"" if data is None else data, np.uint8), offsets)


def _halves(values: pa.Array) -> Rows:
    """Return the low and the high word of each of n decimals, (n, 2), 0 for null."""
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros((len(values), 2), np.int64)
    halves = np.frombuffer(buffer, np.int64).reshape(-1, 2)[values.offset :][: len(values)]
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    return np.where(is_null[:, None], 0, halves) if is_null.any() else halves


def _words(halves: Rows) -> _Keys:
    # Flipping the bit of the sign makes two's complement order unsigned.
    words = halves[:, ::-1].astype(np.uint64) ^ np.array([_SIGN, 0], np.uint64)
    return _Keys(words.astype(">u8").reshape(-1).view(np.uint8), 16 * np.arange(len(halves) + 1))


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


# Binary search of many integers in few, by a table of where each stretch of values begins
#
# `numpy.searchsorted` takes a dozen steps per value, each a branch that the processor guesses
# wrong half of the time. Boundaries between equally frequent ranges leave few in any stretch,
# so that one look into the table and one or two comparisons are enough.

Integers = npt.NDArray[np.integer]
Positions = npt.NDArray[np.int64]
Side = Literal["left", "right"]

_TABLE_BITS: Final = 16
_LEAST_VALUES: Final = 1 << 12
"""Making the table takes as long as searching a thousand values."""
_MAX_COMPARISONS: Final = 4
"""More boundaries than these in one stretch make the table slower than a binary search."""


def positions_in(boundaries: Integers, values: Integers, side: Side = "left") -> Positions:
    """Return how many boundaries are below each value, or with side "right" not above it."""
    positions = _by_table(boundaries, values, side) if len(values) >= _LEAST_VALUES else None
    if positions is None:
        return np.searchsorted(boundaries, values, side).astype(np.int64, copy=False)
    return positions


def _by_table(boundaries: Integers, values: Integers, side: Side) -> Positions | None:
    """Return the positions; None if too many boundaries are in one stretch, or there are none."""
    if not len(boundaries):
        return None
    first, last = boundaries[0], boundaries[-1]
    shift = np.uint64(max(0, (int(last) - int(first)).bit_length() - _TABLE_BITS))
    counts = np.bincount(_stretches(boundaries, first, shift))
    comparisons = int(counts.max())
    if comparisons > _MAX_COMPARISONS:
        return None
    starts = np.cumsum(counts) - counts
    positions: Positions = starts[_stretches(np.clip(values, first, last), first, shift)]
    is_passed = np.less if side == "left" else np.less_equal
    # What lies behind the last boundary may count as passed; that is corrected at the end.
    padded = np.append(
        boundaries, np.full(comparisons + 1, np.iinfo(boundaries.dtype).max, boundaries.dtype)
    )
    for _ in range(comparisons):
        positions += is_passed(padded[positions], values)
    return np.minimum(positions, len(boundaries), out=positions)


def _stretches(values: Integers, first: np.integer, shift: np.uint64) -> Positions:
    wide = values.astype(np.uint64)
    wide -= np.array(first).astype(np.uint64)
    wide >>= shift
    return wide.view(np.int64)


# Column values to range ids: equal-frequency ranges of one column, learned from a sample
#
# Coordinate systems, in the order data passes through them:
#
# - *value*: what the column holds, any eligible type, nulls allowed
# - *range id*: uint32, 0 for null, else 1 + the number of boundaries below the value (`range_ids`)
# - *coordinate*: uint32 in [0, 2**bits), increasing in the range id; equal steps hold about equal
#   numbers of rows (`spread_ids`)
# - *key*: uint64 position on the curve of all columns' coordinates (`liquidlog.curve.curves`)
#
# Order of values: numbers by value with -0.0 equal to 0.0 and NaN largest, strings by unsigned
# UTF-8 bytes over their full length, null first. O(n log ranges), no per-value Python.

Column: TypeAlias = pa.Array | pa.ChunkedArray
Ids: TypeAlias = npt.NDArray[np.uint32]
Coordinates: TypeAlias = npt.NDArray[np.uint32]

_INT_BY_BYTES: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_CODE_BITS: Final = 32
"""Of indices that no dictionary fills."""


def range_boundaries(sample: Column, max_ranges: int) -> pa.Array:
    """Return the values that divide a sample into at most `max_ranges` equally frequent ranges.

    They are sorted, distinct, without nulls; if few, all distinct values but the largest.
    """
    values = _flat(sample)
    _check_orderable(values.type)
    ordered = sorted_values(values)
    distinct = pc.unique(ordered)
    if len(distinct) < max_ranges:
        return distinct[:-1]
    positions = np.arange(1, max_ranges, dtype=np.int64) * len(ordered) // max_ranges
    return pc.unique(ordered.take(pa.array(positions)))


def sorted_values(values: pa.Array) -> pa.Array:
    """Return the values in their order, without nulls, -0.0 as the 0.0 that it is equal to."""
    values = values.drop_null()
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))
    return values.take(pc.sort_indices(values))


def range_ids(column: Column, boundaries: pa.Array) -> Ids:
    """Return the range id (uint32) of each value: 0 for null, else 1 + the boundaries below it."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    ids = [_chunk_ids(chunk, boundaries) for chunk in chunks]
    return ids[0] if len(ids) == 1 else np.concatenate([np.empty(0, np.uint32), *ids])


def places_among(values: pa.Array, wanted: pa.Array) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Return how many sorted distinct values are below each wanted one, and if it is one of them.

    That is -1 for null. There is at least one value.
    """
    below = range_ids(wanted, values).astype(np.int64) - 1
    beside = values.take(pa.array(below.clip(0, len(values) - 1)))
    same = np.asarray(pc.fill_null(pc.equal(beside, wanted), fill_value=False), np.bool_)
    return below, same & (below < len(values))


def spread_ids(sample_ids: Ids, *, max_id: int, bits: int) -> Coordinates:
    """Return the coordinate of each range id, (max_id + 1,) uint32 in [0, 2**bits).

    It is the share of sampled rows before the range: ids of a column with few or frequent values
    bunch at one end of the grid, and the curve would ignore the column until its last bits.
    """
    # Adding one to every count keeps ranges apart that the sample missed.
    weights = np.bincount(sample_ids, minlength=max_id + 1).astype(np.float64) + 1.0
    before = np.cumsum(weights) - weights
    spread: Coordinates = np.floor(before / weights.sum() * (1 << bits)).astype(np.uint32)
    return spread


@dataclass(frozen=True, slots=True)
class Axis:
    """One column as an axis of the curve's grid: boundaries of ranges, and their coordinates."""

    boundaries: pa.Array
    coordinates: Coordinates

    @classmethod
    def fit(cls, sample: Column, *, max_ranges: int, bits: int) -> tuple["Axis", Coordinates]:
        """Return the axis on which n values spread evenly, and their coordinates, (n,) uint32."""
        return cls.fit_between(sample, range_boundaries(sample, max_ranges), bits=bits)

    @classmethod
    def fit_between(
        cls, sample: Column, boundaries: pa.Array, *, bits: int
    ) -> tuple["Axis", Coordinates]:
        """Return the axis with these boundaries on which a sample spreads evenly, as `fit` does."""
        ids = range_ids(sample, boundaries)
        axis = cls(boundaries, spread_ids(ids, max_id=len(boundaries) + 1, bits=bits))
        return axis, axis.coordinates[ids]

    def coordinates_of(self, column: Column) -> Coordinates:
        """Return the coordinate of each of n values of the sample's type, (n,) uint32."""
        return self.coordinates[range_ids(column, self.boundaries)]


def _check_orderable(data_type: pa.DataType) -> None:
    inner = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    orderable = (
        pa.types.is_integer(inner)
        or pa.types.is_floating(inner)
        or pa.types.is_decimal128(inner)
        or pa.types.is_date32(inner)
        or pa.types.is_timestamp(inner)
        or pa.types.is_string(inner)
        or pa.types.is_large_string(inner)
    )
    if not orderable:
        raise ClusteringColumnError((f"values of type {data_type} cannot be clustered by",))


def _flat(column: Column) -> pa.Array:
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks)
    return flat.dictionary_decode() if isinstance(flat, pa.DictionaryArray) else flat


def _chunk_ids(values: pa.Array, boundaries: pa.Array) -> Ids:
    _check_orderable(values.type)
    if isinstance(values, pa.DictionaryArray):
        by_code = np.append(_chunk_ids(values.dictionary, boundaries), np.uint32(0))
        codes = values.indices
        if codes.null_count and codes.type.bit_width < _CODE_BITS:
            # A full dictionary leaves no index for the null behind it.
            codes = codes.cast(pa.int32())
        ids: Ids = by_code[_fixed_width(codes.fill_null(len(values.dictionary)))]
        return ids
    ids = _below(values, boundaries)
    ids += np.uint32(1)
    if values.null_count:
        ids[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return ids


def _below(values: pa.Array, boundaries: pa.Array) -> Ids:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bytes_below(values, boundaries.cast(kind))
    if pa.types.is_decimal128(kind):
        return decimals_below(values, boundaries)
    numbers, edges = _fixed_width(values), _fixed_width(boundaries)
    if pa.types.is_floating(kind):
        return np.searchsorted(edges, numbers, side="left").astype(np.uint32)
    return positions_in(edges, numbers).astype(np.uint32)


def _fixed_width(values: pa.Array) -> npt.NDArray[Any]:
    """Return n numbers, dates or timestamps as a view, (n,); what is under nulls is anything."""
    kind = values.type
    dtype: npt.DTypeLike = _INT_BY_BYTES[kind.bit_width // 8]
    if pa.types.is_floating(kind) or pa.types.is_unsigned_integer(kind):
        dtype = kind.to_pandas_dtype()
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), dtype)
    return np.frombuffer(buffer, dtype)[values.offset : values.offset + len(values)]
