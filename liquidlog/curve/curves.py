"""Grid points of column values, positions along curves, and cuts along them.

- *value*: what a column holds, of any eligible type, nulls allowed
- *range id*: uint32, 0 for null, else 1 + the number of boundaries below the value (`range_ids`)
- *coordinate*: uint32 in [0, 2**bits), increasing in the range id; equal steps hold about equal
  numbers of rows (`spread_ids`)
- *point*: the coordinates of all columns, a row of `coords`, (n, d)
- *key*: uint64 position of a point along a curve (`curve_index`)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

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

    So a box with one of seven values is a seventh wide, although its coordinates are all equal.
    `coords` are (s, d) unsigned in [0, 2**bits), the result in (0, 2**bits].
    """
    ends = np.empty_like(coords)
    for axis in range(coords.shape[1]):
        distinct, numbers = np.unique(coords[:, axis], return_inverse=True)
        ends[:, axis] = np.append(distinct[1:], np.uint32(1 << bits))[numbers]
    return ends


# Exact search of long keys (strings, wide decimals) in sorted boundaries, eight bytes at a time. A
# key is a sequence of *words*: uint64, big-endian eight bytes, zero-padded at the end. Keys compare
# by words, then by the number of real bytes in the last word, because padding must not make "a"
# equal to "a" and a zero byte. Rows that are still equal to a boundary go on to the next word;
# their *prefix group* names the boundaries with the same words so far.

WORD_BYTES: Final = 8

Counts = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int64]

_SIGN: Final = np.uint64(1 << 63)
# Keeps the first n bytes of a big-endian word, for n in 0..8.
_KEEP: Final = np.array([(2**64 - 1) << (64 - 8 * n) & (2**64 - 1) for n in range(9)], np.uint64)


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


def _ranks(word: _Word, groups: Rows, distinct: npt.NDArray[np.uint64]) -> Rows:
    """Return numbers that sort like (prefix group, word, real bytes); boundaries are `distinct`."""
    place = np.searchsorted(distinct, word.words, side="left")
    is_boundary = distinct[np.minimum(place, len(distinct) - 1)] == word.words
    ranks: Rows = groups * (2 * len(distinct) + 2) + (2 * place + is_boundary)
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
        distinct = np.unique(boundary_word.words)
        boundary_ranks = _ranks(boundary_word, boundary_groups, distinct)
        word = keys.read(rows, depth)
        ranks = _ranks(word, groups, distinct)
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


# Search of many integers in few, by a table of where each stretch of values begins. Boundaries
# between equally frequent ranges leave few in any stretch, so a look into the table and one or two
# comparisons are enough; `numpy.searchsorted` takes a dozen badly predicted branches.

Integers = npt.NDArray[np.integer]
Positions = npt.NDArray[np.int64]
Side = Literal["left", "right"]

_TABLE_BITS: Final = 16
_LEAST_VALUES: Final = 1 << 12
"""To make the table takes as long as a search of a thousand values."""
_MAX_COMPARISONS: Final = 4
"""With more boundaries in one stretch, a binary search is faster."""


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
    # Padding may count as passed; that is corrected at the end.
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


# Values to range ids. Order of values: numbers by value with -0.0 equal to 0.0 and NaN largest,
# strings by unsigned UTF-8 bytes over their full length, null first. O(n log ranges).

Column: TypeAlias = pa.Array | pa.ChunkedArray
Ids: TypeAlias = npt.NDArray[np.uint32]
Coordinates: TypeAlias = npt.NDArray[np.uint32]

_INT_BY_BYTES: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_CODE_BITS: Final = 32
"""Bits of indices that no dictionary can use up."""


def range_boundaries(sample: Column, max_ranges: int) -> pa.Array:
    """Return the values that divide a sample into at most `max_ranges` equally frequent ranges.

    They are sorted, distinct, without nulls. Of few values, they are all but the largest.
    """
    values = sample.combine_chunks() if isinstance(sample, pa.ChunkedArray) else sample
    values = values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values
    _check_orderable(values.type)
    ordered = sorted_values(values)
    distinct = pc.unique(ordered)
    if len(distinct) < max_ranges:
        return distinct[:-1]
    positions = np.arange(1, max_ranges, dtype=np.int64) * len(ordered) // max_ranges
    return pc.unique(ordered.take(pa.array(positions)))


def sorted_values(values: pa.Array) -> pa.Array:
    """Return the values in their order, without nulls, and with 0.0 for -0.0."""
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

    The number is -1 for null. There is at least one value.
    """
    below = range_ids(wanted, values).astype(np.int64) - 1
    beside = values.take(pa.array(below.clip(0, len(values) - 1)))
    same = np.asarray(pc.fill_null(pc.equal(beside, wanted), fill_value=False), np.bool_)
    return below, same & (below < len(values))


def spread_ids(sample_ids: Ids, *, max_id: int, bits: int) -> Coordinates:
    """Return the coordinate of each range id, (max_id + 1,) uint32 in [0, 2**bits).

    It is the share of sampled rows before the range. Otherwise, the ids of a column with few or
    frequent values would be at one end of the grid, and the curve would ignore the column.
    """
    # One more in every count keeps ranges apart that the sample missed.
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
    def fit(
        cls, sample: Column, borders: pa.Array | None = None, *, max_ranges: int, bits: int
    ) -> tuple["Axis", Coordinates]:
        """Return the axis on which n values spread evenly, and their coordinates, (n,) uint32.

        Its boundaries include `borders`.
        """
        boundaries = range_boundaries(sample, max_ranges)
        if borders is not None and len(borders):
            joined = pa.concat_arrays([boundaries, borders.cast(boundaries.type)])
            boundaries = pc.unique(sorted_values(joined))
        ids = range_ids(sample, boundaries)
        axis = cls(boundaries, spread_ids(ids, max_id=len(boundaries) + 1, bits=bits))
        return axis, axis.coordinates[ids]


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


def _chunk_ids(values: pa.Array, boundaries: pa.Array) -> Ids:
    _check_orderable(values.type)
    if isinstance(values, pa.DictionaryArray):
        by_code = np.append(_chunk_ids(values.dictionary, boundaries), np.uint32(0))
        codes = values.indices
        if codes.null_count and codes.type.bit_width < _CODE_BITS:
            # A full dictionary leaves no index for null.
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
        return _count_below(_texts(values), _texts(boundaries.cast(kind)))
    if pa.types.is_decimal128(kind):
        numbers, edges = _halves(values), _halves(boundaries)
        if all(np.all(high == low >> 63) for low, high in (numbers.T, edges.T)):
            return positions_in(edges[:, 0], numbers[:, 0]).astype(np.uint32)
        return _count_below(_words(numbers), _words(edges))
    numbers, edges = _fixed_width(values), _fixed_width(boundaries)
    if pa.types.is_floating(kind):
        return np.searchsorted(edges, numbers, side="left").astype(np.uint32)
    return positions_in(edges, numbers).astype(np.uint32)


def _fixed_width(values: pa.Array) -> npt.NDArray[Any]:
    """Return n numbers, dates or timestamps as a view, (n,); values under nulls are arbitrary."""
    kind = values.type
    dtype: npt.DTypeLike = _INT_BY_BYTES[kind.bit_width // 8]
    if pa.types.is_floating(kind) or pa.types.is_unsigned_integer(kind):
        dtype = kind.to_pandas_dtype()
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), dtype)
    return np.frombuffer(buffer, dtype)[values.offset : values.offset + len(values)]


# Points to keys: unique, in [0, 2**(d * bits)), with d * bits <= 64. The first column has the most
# significant bit of each d-bit digit or, on the linear curve, the most significant bits.
#
# The Hilbert curve: neighbours differ by one in one coordinate. Source: J. Skilling, "Programming
# the Hilbert curve", AIP Conf. Proc. 707, 381 (2004). His loop handles one bit plane after the
# other, from the top; each permutes and complements the axes of the planes below. These
# *orientations* are few for d <= 4. So tables hold, for each orientation and the next bits of each
# coordinate, the digits of the key and the next orientation. O(n * bits / planes) instead of O(n *
# bits * d).

_MAX_TABLE_DIMENSIONS: Final = 4
_MAX_TABLE_BITS: Final = 12
"""Bits of all coordinates that one step reads; larger tables would not stay in L2 cache."""
_MAX_STATES: Final = 1 << 12


def hilbert_index(coords: Coords, bits: int) -> Keys:
    """Return the position on the curve, (n,) uint64, of each point."""
    n, d = check_grid(coords, bits)
    if d == 1:
        return coords[:, 0].astype(np.uint64)
    keys = np.empty(n, np.uint64)
    kernel = _table_keys if d <= _MAX_TABLE_DIMENSIONS else _skilling_keys
    for start in range(0, n, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        keys[block] = kernel([coords[block, j] for j in range(d)], bits)
    return keys


def _undo_plane(x: list[Keys], j: int, plane: int) -> None:
    low = np.uint64((1 << plane) - 1)
    is_set = (x[j] >> np.uint64(plane)) & np.uint64(1)
    inverted = low * is_set
    exchanged = (x[0] ^ x[j]) & (low * (np.uint64(1) - is_set))
    x[0] ^= inverted | exchanged
    if j:
        x[j] ^= exchanged


def _skilling_keys(columns: list[npt.NDArray[np.unsignedinteger]], bits: int) -> Keys:
    x = [column.astype(np.uint64) for column in columns]
    d = len(x)
    one = np.uint64(1)
    for plane in range(bits - 1, 0, -1):
        for j in range(d):
            _undo_plane(x, j, plane)
    for j in range(1, d):
        x[j] ^= x[j - 1]
    flips = np.zeros_like(x[0])
    for plane in range(bits - 1, 0, -1):
        flips ^= np.uint64((1 << plane) - 1) * ((x[-1] >> np.uint64(plane)) & one)
    keys = np.zeros_like(x[0])
    for plane in range(bits - 1, -1, -1):
        for j in range(d):
            keys = (keys << one) | (((x[j] ^ flips) >> np.uint64(plane)) & one)
    return keys


@dataclass(frozen=True, slots=True)
class _Orientation:
    """How lower planes read the axes: coordinate j is axis `axes[j]`, flipped if `flipped[j]`.

    `complemented` is Skilling's running parity, which complements all digits of the key.
    """

    axes: tuple[int, ...]
    flipped: tuple[bool, ...]
    complemented: bool


def _table_keys(columns: list[npt.NDArray[np.unsignedinteger]], bits: int) -> Keys:
    d = len(columns)
    planes = _MAX_TABLE_BITS // d
    x = [column.astype(np.uint32) for column in columns]
    keys = np.zeros(len(x[0]), np.uint64)
    state = np.zeros(len(x[0]), np.uint32)
    todo = bits
    while todo:
        # The odd step comes first, so that all later ones use the same table.
        step = todo % planes or planes
        todo -= step
        table = _table(d, step)
        cell = state
        for column in x:
            cell = (cell << np.uint32(step)) | (
                (column >> np.uint32(todo)) & np.uint32((1 << step) - 1)
            )
        found = table[cell]
        width = d * step
        keys = (keys << np.uint64(width)) | (found & np.uint32((1 << width) - 1))
        state = found >> np.uint32(width)
    return keys


@cache
def _table(d: int, planes: int) -> npt.NDArray[np.uint32]:
    """Return entries of [state | next `planes` bits of each coordinate]: [state after | digits]."""
    digits, successors = _plane_table(d)
    states = len(digits)
    width = d * planes
    cells = np.arange(states << width, dtype=np.uint32)
    state = cells >> np.uint32(width)
    key = np.zeros_like(cells)
    for plane in range(planes - 1, -1, -1):
        corner = np.zeros_like(cells)
        for j in range(d):
            bit = (cells >> np.uint32((d - 1 - j) * planes + plane)) & np.uint32(1)
            corner = (corner << np.uint32(1)) | bit
        key = (key << np.uint32(d)) | digits[state, corner]
        state = successors[state, corner]
    return (state << np.uint32(width)) | key


@cache
def _plane_table(d: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return (digit, next state), each (states, 2**d), of one bit plane; state 0 is the start."""
    start = _Orientation(tuple(range(d)), (False,) * d, complemented=False)
    numbers = {start: 0}
    todo = [start]
    digits: list[list[int]] = []
    successors: list[list[int]] = []
    for orientation in todo:
        steps = [_step(orientation, corner) for corner in range(1 << d)]
        for _, after in steps:
            if after not in numbers:
                numbers[after] = len(numbers)
                todo.append(after)
        digits.append([digit for digit, _ in steps])
        successors.append([numbers[after] for _, after in steps])
    assert len(numbers) < _MAX_STATES  # noqa: S101  an entry is one uint32
    return np.array(digits, np.uint32), np.array(successors, np.uint32)


def _step(orientation: _Orientation, corner: int) -> tuple[int, _Orientation]:
    d = len(orientation.axes)
    bits = [
        bool(corner >> (d - 1 - axis) & 1) ^ flip
        for axis, flip in zip(orientation.axes, orientation.flipped, strict=True)
    ]
    axes, flipped = list(orientation.axes), list(orientation.flipped)
    for j in range(d):
        if bits[j]:
            flipped[0] = not flipped[0]
        else:
            axes[0], axes[j] = axes[j], axes[0]
            flipped[0], flipped[j] = flipped[j], flipped[0]
    gray, digit = False, 0
    for bit in bits:
        gray ^= bit
        digit = digit << 1 | (gray ^ orientation.complemented)
    after = _Orientation(tuple(axes), tuple(flipped), orientation.complemented ^ gray)
    return digit, after


_BYTE_BITS: Final = 8


def zorder_index(coords: Coords, bits: int) -> Keys:
    """Return the position on the Z-order (Morton) curve, (n,) uint64, of each point.

    It interleaves the bits of all coordinates. O(n * d * bits / 8).
    """
    n, d = check_grid(coords, bits)
    keys = np.zeros(n, np.uint64)
    spread = _spread_byte(d)
    for start in range(0, n, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        for j in range(d):
            column = coords[block, j].astype(np.uint64)
            for low in range(0, bits, _BYTE_BITS):
                octet = (column >> np.uint64(low)) & np.uint64(0xFF)
                keys[block] |= spread[octet] << np.uint64(low * d + d - 1 - j)
    return keys


@cache
def _spread_byte(d: int) -> npt.NDArray[np.uint64]:
    """Return each byte with d - 1 zeros between its bits; bits beyond 64 are dropped."""
    spread = [sum((octet >> i & 1) << (i * d) for i in range(_BYTE_BITS)) for octet in range(256)]
    return np.array([value & (2**64 - 1) for value in spread], np.uint64)


def linear_index(coords: Coords, bits: int) -> Keys:
    _, d = check_grid(coords, bits)
    keys = coords[:, 0].astype(np.uint64)
    for j in range(1, d):
        keys = (keys << np.uint64(bits)) | coords[:, j].astype(np.uint64)
    return keys


class Curve(StrEnum):
    """Orders of grid points; `kd` is Hilbert inside the boxes of `liquidlog.curve.layouts`."""

    HILBERT = "hilbert"
    ZORDER = "zorder"
    LINEAR = "linear"
    KD = "kd"


MAX_COORDINATE_BITS: Final = 16
"""More bits would tell apart finer ranges than samples can."""


def parse_curve(name: str) -> Curve:
    try:
        return Curve(name)
    except ValueError as error:
        known = ", ".join(Curve)
        raise UsageError(f"unknown curve {name!r}: expected one of {known}", curve=name) from error


def curve_index(coords: Coords, bits: int, curve: Curve) -> Keys:
    kernels = {Curve.ZORDER: zorder_index, Curve.LINEAR: linear_index}
    return kernels.get(curve, hilbert_index)(coords, bits)


def coordinate_bits(dimensions: int) -> int:
    """Return how many bits each of d coordinates gets, so that a key fits in 64."""
    return min(MAX_COORDINATE_BITS, KEY_BITS // dimensions)


RowOrder = npt.NDArray[np.int64]
"""Row indices, (n,), that sort rows; rows with equal keys keep their order."""

_EXACT_RANGES: Final = 1 << 31
"""More ranges than a batch can have rows: every distinct value gets its own."""
_RADIX_BITS: Final = 16


def sort_rows(columns: Sequence[Column], curve: str) -> tuple[RowOrder, Keys]:
    """Return the row order that sorts a batch along a curve, and the sorted keys.

    Ranks come from the batch itself; they are exact for one column and for the linear curve. Nulls
    come first, NaN last. On the linear curve, the keys are of the first column alone.
    """
    chosen = parse_curve(curve)
    if chosen is Curve.LINEAR or len(columns) == 1:
        ranks = [range_ids(column, range_boundaries(column, _EXACT_RANGES)) for column in columns]
        order = stable_order(ranks[0]) if len(ranks) == 1 else np.lexsort(ranks[::-1])
        return order, ranks[0][order].astype(np.uint64)
    bits = coordinate_bits(len(columns))
    coords = np.empty((len(columns[0]), len(columns)), np.uint32, order="F")
    for j, column in enumerate(columns):
        _, coords[:, j] = Axis.fit(column, max_ranges=1 << bits, bits=bits)
    keys = curve_index(coords, bits, chosen)
    order = stable_order(keys)
    return order, keys[order]


def stable_order(keys: npt.NDArray[np.unsignedinteger]) -> RowOrder:
    """Return the row order that sorts by unsigned key, equal keys in row order.

    numpy sorts numbers of 16 bits by radix: two such sorts take half the time of a sort of words.
    Longer keys are sorted with their row numbers as one word, if they fit, several times faster
    than by indices.
    """
    n = len(keys)
    if n == 0:
        return np.empty(0, np.int64)
    lowest = keys.min()
    key_bits = int(keys.max() - lowest).bit_length()
    if key_bits <= 2 * _RADIX_BITS:
        low = (keys - lowest).astype(np.uint32)
        order = np.argsort(low.astype(np.uint16), kind="stable")
        high = (low >> np.uint32(_RADIX_BITS)).astype(np.uint16)
        return order[np.argsort(high[order], kind="stable")] if key_bits > _RADIX_BITS else order
    row_bits = max(n - 1, 1).bit_length()
    if key_bits + row_bits > KEY_BITS:
        return np.argsort(keys, kind="stable")
    packed: Keys = (keys - lowest).astype(np.uint64)
    packed <<= np.uint64(row_bits)
    packed |= np.arange(n, dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << row_bits) - 1)
    return packed.astype(np.int64)


# Weighted predicates as boxes on the curve's grid. A predicate is true if one of its *alternatives*
# is; an alternative is true if all its *terms* are; a term is true in some intervals of one column.
# So `a IN (1, 5) AND b < 7 OR c = 2` has two alternatives, and the first has two terms. A predicate
# opens a file if the file's box meets intervals of all terms of an alternative.

Shares = npt.NDArray[np.float64]
"""Shares of all rows, in [0, 1]; also positions on a column."""
Numbers = npt.NDArray[np.int64]

_BLOCK_CELLS: Final = 1 << 21
"""Boxes times intervals that are compared at a time: a few MiB."""


@dataclass(frozen=True, eq=False)
class GridPredicates:
    """Predicates with weights (they add up to 1), as k intervals in the order of their terms.

    `axes` (k,) is the column of each interval from `lows` up to `ends`. `terms` are the first
    intervals of each term, `alternatives` the first terms of each alternative, `predicates` the
    first alternatives of each predicate; all begin with 0 and increase.
    """

    axes: Numbers
    lows: Shares
    ends: Shares
    terms: Numbers
    alternatives: Numbers
    predicates: Numbers
    weights: Shares

    def opened(self, lows: Shares, highs: Shares) -> Shares:
        """Return the share of the queries that open each of m boxes, (m,), from (m, d) ends."""
        shares = np.empty(len(lows))
        step = max(1, _BLOCK_CELLS // len(self.axes))
        for start in range(0, len(lows), step):
            block = slice(start, start + step)
            begin, end = lows[block].T[self.axes], highs[block].T[self.axes]
            met = (begin < self.ends[:, None]) & (self.lows[:, None] < end)
            # From intervals, (k, m), to predicates, (p, m).
            if len(self.terms) < len(met):
                met = np.logical_or.reduceat(met, self.terms, axis=0)
            if len(self.alternatives) < len(met):
                met = np.logical_and.reduceat(met, self.alternatives, axis=0)
            if len(self.predicates) < len(met):
                met = np.logical_or.reduceat(met, self.predicates, axis=0)
            shares[block] = self.weights @ met
        return shares

    def expected(self, of_intervals: Shares) -> Shares:
        """Return the share of the rows that the mean query opens in each of m layouts, (m,).

        `of_intervals` (m, k) is what each interval alone opens. This assumes independent columns.
        """
        shares = np.minimum(np.add.reduceat(of_intervals, self.terms, axis=1), 1.0)
        shares = np.multiply.reduceat(shares, self.alternatives, axis=1)
        shares = np.minimum(np.add.reduceat(shares, self.predicates, axis=1), 1.0)
        weighed: Shares = shares @ self.weights
        return weighed

    @cached_property
    def interval_weights(self) -> Shares:
        """The weight of the predicate that each interval belongs to, (k,)."""
        alternatives = np.repeat(self.weights, _lengths(self.predicates, len(self.alternatives)))
        terms = np.repeat(alternatives, _lengths(self.alternatives, len(self.terms)))
        return np.repeat(terms, _lengths(self.terms, len(self.axes)))

    def axis_weights(self, dimensions: int) -> Shares:
        """Return how much queries narrow by each column, (d,); the sum is 1."""
        terms = _lengths(self.alternatives, len(self.terms))
        of_alternatives = np.repeat(
            self.weights / _lengths(self.predicates, len(self.alternatives)),
            _lengths(self.predicates, len(self.alternatives)),
        )
        of_terms = np.repeat(of_alternatives / terms, terms)
        weights = np.bincount(self.axes[self.terms], weights=of_terms, minlength=dimensions)
        shares: Shares = weights / weights.sum()
        return shares

    def borders(self, axis: int) -> tuple[Shares, Shares]:
        """Return where intervals of a column begin or end inside (0, 1), and their weights."""
        own = np.flatnonzero(self.axes == axis)
        places = np.concatenate([self.lows[own], self.ends[own]])
        weights = np.tile(self.interval_weights[own], 2)
        distinct, numbers = np.unique(places, return_inverse=True)
        summed: Shares = np.bincount(numbers, weights, len(distinct)).astype(np.float64)
        inside = (distinct > 0) & (distinct < 1)
        return distinct[inside], summed[inside]


def _lengths(starts: Numbers, total: int) -> Numbers:
    return np.diff(np.append(starts, total))


# Predicates over values, as in a plan, and their places on the axes of a grid. An axis separates
# values only at its boundaries. `borders` are the sampled values on either side of constants in
# queries: as boundaries, they let files end exactly where predicates do.

POINTS: Final = 64
"""How many values, evenly spread over the rows, stand for all values that queries may name."""


@dataclass(frozen=True, slots=True, eq=False)
class IntervalEnds:
    """One side of k intervals of a column: `values` of its type, null where unbounded."""

    values: pa.Array
    is_open: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ValuePredicates:
    """Weighted predicates over the values of d columns; arrays as in `GridPredicates`.

    `lows` and `highs` have the ends of each column's intervals. `column_weights` (d,) weigh queries
    for single values of a column. The sum of the weights need not be 1.
    """

    axes: Numbers
    lows: tuple[IntervalEnds, ...]
    highs: tuple[IntervalEnds, ...]
    terms: Numbers
    alternatives: Numbers
    predicates: Numbers
    weights: Shares
    column_weights: Shares

    def borders(self, samples: Sequence[pa.Array]) -> list[pa.Array]:
        """Return per column the sampled values before which, or at which, an interval ends."""
        found = []
        for sample, low, high in zip(samples, self.lows, self.highs, strict=True):
            values = pc.unique(sorted_values(sample))
            places = np.concatenate(_spans(values, low, high)) - 1
            inside = np.unique(places[(places >= 0) & (places < len(values) - 1)])
            found.append(values.take(pa.array(inside)))
        return found

    def constants(self) -> list[pa.Array]:
        """Return per column the values at which an interval ends."""
        return [
            pc.unique(pa.concat_arrays([low.values, high.values]).drop_null())
            for low, high in zip(self.lows, self.highs, strict=True)
        ]

    def on(self, axes: Sequence[Axis], samples: Sequence[pa.Array], bits: int) -> GridPredicates:
        """Return the predicates on the grid of these axes, s sampled values each."""
        lows, ends = np.zeros(len(self.axes)), np.ones(len(self.axes))
        for number, (axis, sample) in enumerate(zip(axes, samples, strict=True)):
            own = self.axes == number
            if own.any():
                values = pc.unique(sorted_values(sample))
                found = _ids(values, axis, self.lows[number], self.highs[number])
                lows[own], ends[own] = _positions(axis, *found, bits=bits)
        return _with_points(self.between(lows, ends), self.column_weights, axes, samples, bits)

    def between(self, lows: Shares, ends: Shares) -> GridPredicates:
        """Return the predicates with these ends of their intervals, (k,) each, in their order."""
        return GridPredicates(
            axes=self.axes,
            lows=lows,
            ends=ends,
            terms=self.terms,
            alternatives=self.alternatives,
            predicates=self.predicates,
            weights=self.weights,
        )


def _spans(values: pa.Array, lows: IntervalEnds, highs: IntervalEnds) -> tuple[Numbers, Numbers]:
    """Return the first value of each interval, and the first behind it; (k,) each."""
    first = _below_ends(values, lows, through=lows.is_open)
    last = _below_ends(values, highs, through=~highs.is_open)
    unbounded = highs.values.is_null().to_numpy(zero_copy_only=False)
    return first, np.where(unbounded, len(values), last)


def _below_ends(values: pa.Array, ends: IntervalEnds, *, through: npt.NDArray[np.bool_]) -> Numbers:
    """Return how many values are below each end, or, where `through`, not above it."""
    if not len(values):
        return np.zeros(len(ends.values), np.int64)
    below, is_value = places_among(values, ends.values)
    return np.asarray(below.clip(0) + (through & is_value), np.int64)


def _ids(
    values: pa.Array, axis: Axis, lows: IntervalEnds, highs: IntervalEnds
) -> tuple[Numbers, Numbers]:
    """Return the first and the last range id of each interval, (k,) each."""
    first, behind = _spans(values, lows, highs)
    last = np.maximum(behind - 1, first)
    most = max(len(values) - 1, 0)
    ids = range_ids(values, axis.boundaries).astype(np.int64)
    if not len(ids):
        return np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    return ids[np.minimum(first, most)], ids[np.minimum(last, most)]


def _positions(axis: Axis, first: Numbers, last: Numbers, *, bits: int) -> tuple[Shares, Shares]:
    """Return where ranges begin, and where the last of them ends, as shares."""
    side = 1 << bits
    coordinates = np.append(axis.coordinates.astype(np.int64), side)
    return coordinates[first] / side, coordinates[last + 1] / side


def _with_points(
    asked: GridPredicates,
    column_weights: Shares,
    axes: Sequence[Axis],
    samples: Sequence[pa.Array],
    bits: int,
) -> GridPredicates:
    """Return the predicates and points on each column with a weight; the sum of weights is 1."""
    lows, ends, columns, weights = [asked.lows], [asked.ends], [asked.axes], [asked.weights]
    for number in np.flatnonzero(column_weights > 0).tolist():
        values = sorted_values(samples[number])
        if not len(values):
            continue
        picked = (np.arange(POINTS) * 2 + 1) * len(values) // (2 * POINTS)
        ids = range_ids(values.take(pa.array(picked)), axes[number].boundaries).astype(np.int64)
        low, end = _positions(axes[number], ids, ids, bits=bits)
        lows.append(low)
        ends.append(end)
        columns.append(np.full(POINTS, number))
        weights.append(np.full(POINTS, column_weights[number] / POINTS))
    added = sum(map(len, lows)) - len(asked.lows)
    weighed = np.concatenate(weights)
    return GridPredicates(
        axes=np.concatenate(columns),
        lows=np.concatenate(lows),
        ends=np.concatenate(ends),
        terms=_continued(asked.terms, len(asked.axes), added),
        alternatives=_continued(asked.alternatives, len(asked.terms), added),
        predicates=_continued(asked.predicates, len(asked.alternatives), added),
        weights=weighed / weighed.sum() if len(weighed) else weighed,
    )


def _continued(starts: Numbers, total: int, added: int) -> Numbers:
    return np.concatenate([starts, total + np.arange(added)])


# Cuts along a curve. Rows are ordered by (key, ordinal); the ordinal is a row's number in the whole
# input. A *cut* is such a pair; the rows from there on are on its right. A cut is inside a run of
# equal keys only if the run is too long for one file.
#
# Equal numbers of rows make ragged boxes: a segment of a Hilbert curve that ends inside a quadrant
# reaches across it. So `choose_cuts` lets sizes vary from half to one and a half times the mean,
# and minimizes the sum, over all files, of rows times box extents: the rows that a narrow predicate
# on one of the columns is expected to read. It is dynamic programming over a sorted sample,
# O(sample * d + files). If queries are known, `Reach` replaces the extents by the share of the
# queries that open a box, O(files * intervals).
#
# Between two sampled rows, a cut is where the largest quadrants meet, so that unsampled rows are on
# the side of their quadrant.

Ordinals = npt.NDArray[np.uint64]

_UNITS_PER_PART: Final = 16
_WIDTHS: Final = range(_UNITS_PER_PART * 3 // 2, _UNITS_PER_PART // 2 - 1, -1)
"""Units that a part may have, most first."""
_MIN_ROWS_PER_UNIT: Final = 4
"""With fewer sampled rows in a unit, its box says little, and cuts are equal."""
_MAX_DRIFT_UNITS: Final = 8 * _UNITS_PER_PART
"""How far a cut may be from an equal cut; this limits the cost to O(files)."""
_ORDINAL_BITS: Final = 40

_EVENNESS: Final = 0.1
"""Weight of equal sizes: small, so that it decides only between equal boxes."""
_ANY_VALUE: Final = 1.0
"""Weight of extents, for values that queries did not name; with a quarter, cuts follow chance."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """How many queries open a box: the known ones, `asked`, and queries for other values."""

    asked: GridPredicates | None
    axis_weights: Shares

    def of(self, lows: Shares, highs: Shares) -> Shares:
        """Return the reach of m boxes between `lows` and `highs`, (m, d) each; (m,)."""
        extents: Shares = (highs - lows) @ self.axis_weights
        if self.asked is None:
            return extents
        return self.asked.opened(lows, highs) + _ANY_VALUE * extents


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts in order: `keys` and `ordinals`, (parts - 1,) uint64 each; ordinals below 2**40."""

    keys: Keys
    ordinals: Ordinals

    @classmethod
    def joined(cls, cuts: Sequence["Cuts"]) -> "Cuts":
        keys, ordinals = zip(*((one.keys, one.ordinals) for one in cuts), strict=True)
        return cls(np.concatenate(keys), np.concatenate(ordinals))

    def parts_of(self, keys: Keys, ordinals: Ordinals) -> npt.NDArray[np.int64]:
        """Return the part of each of n rows, (n,) int64 in [0, parts)."""
        parts = positions_in(self.keys, keys, "right")
        if len(self.keys) == 0:
            return parts
        tied = np.flatnonzero(self.keys[np.maximum(parts, 1) - 1] == keys)
        if len(tied):
            distinct, numbers = np.unique(self.keys, return_inverse=True)
            shift = np.uint64(_ORDINAL_BITS)
            cuts = (numbers.astype(np.uint64) << shift) | self.ordinals
            rows = np.searchsorted(distinct, keys[tied]).astype(np.uint64) << shift
            parts[tied] = np.searchsorted(cuts, rows | ordinals[tied], side="right")
        return parts


class KeyOrder(Protocol):
    """Gives rows, (n, d) coordinates of `bits` bits, their keys, (n,)."""

    @property
    def bits(self) -> int: ...
    def keys_of(self, coords: Coords) -> Keys: ...


@dataclass(frozen=True, slots=True)
class CurveSample:
    """Sampled rows, sorted by (key, ordinal): (s,) uint64 each.

    On each column, a row's range of values is from `lows` to `highs`, (s, d).
    """

    keys: Keys
    ordinals: Ordinals
    lows: Shares
    highs: Shares

    @classmethod
    def sort(cls, keys: Keys, ordinals: Ordinals, *, lows: Shares, highs: Shares) -> "CurveSample":
        """Return the sample of s rows in any order of keys; ordinals increase."""
        order = stable_order(keys)
        # `np.take` copies whole rows many times faster than an index does.
        ends = (np.take(side, order, axis=0) for side in (lows, highs))
        return cls(keys[order], ordinals[order], *ends)

    def between(self, start: int, stop: int) -> "CurveSample":
        rows = slice(start, stop)
        return CurveSample(self.keys[rows], self.ordinals[rows], self.lows[rows], self.highs[rows])


class Placed(NamedTuple):
    """The order of keys, the sample in that order, and the cuts into files."""

    order: KeyOrder
    sample: CurveSample
    cuts: Cuts


def equal_cuts(sample: CurveSample, parts: int) -> Cuts:
    """Return cuts into `parts` files of nearly equal numbers of rows."""
    return _rounded_cuts_at(sample, _equal_positions(sample.keys, parts))


def choose_cuts(sample: CurveSample, parts: int, reach: Reach | None = None) -> Cuts:
    """Return cuts into `parts` files with small boxes, each 0.5 to 1.5 times the mean size."""
    return choose_cuts_each([sample], parts, reach)[0]


def choose_cuts_each(
    samples: Sequence[CurveSample], parts: int, reach: Reach | None = None
) -> list[Cuts]:
    """Return `choose_cuts` of several samples of equally many rows, faster."""
    count = parts * _UNITS_PER_PART
    unit_rows = len(samples[0].keys) // count
    if unit_rows < _MIN_ROWS_PER_UNIT or parts == 1:
        return [equal_cuts(sample, parts) for sample in samples]
    reaches = (unit_rows - 1) // 2
    units = [_even_positions(_levels(one.keys), count, reach=reaches) for one in samples]
    costs = np.stack(
        [_window_costs(*both, reach) for both in zip(samples, units, strict=True)], axis=1
    )
    chosen = _best_units(costs)
    return [
        _rounded_cuts_at(sample, edges[best[:-1]])
        for sample, edges, best in zip(samples, units, chosen, strict=True)
    ]


def opened_shares(sample: CurveSample, cuts: Cuts) -> Shares:
    """Return the share of the rows that a predicate for one value of each column opens, (d,)."""
    rows, lows, highs = _files(sample, cuts)
    shares: Shares = rows @ (highs - lows) / max(len(sample.keys), 1)
    return shares


def asked_share(sample: CurveSample, cuts: Cuts, asked: GridPredicates) -> float:
    """Return the share of the rows that the mean query opens."""
    rows, lows, highs = _files(sample, cuts)
    return float(rows @ asked.opened(lows, highs) / max(len(sample.keys), 1))


def _files(sample: CurveSample, cuts: Cuts) -> tuple[Positions, Shares, Shares]:
    """Return the rows of each of m files, (m,), and the ends of its box, (m, d) each."""
    parts = cuts.parts_of(sample.keys, sample.ordinals)
    starts = np.flatnonzero(np.diff(parts, prepend=-1))
    lows = np.minimum.reduceat(sample.lows, starts, axis=0)
    highs = np.maximum.reduceat(sample.highs, starts, axis=0)
    return np.diff(np.append(starts, len(parts))), lows, highs


def refine_cuts(sample: CurveSample, cuts: Cuts, *, slices: int) -> Cuts:
    """Return cuts that also cut each part into `slices` of nearly equal numbers of rows."""
    inner = cuts.parts_of(sample.keys, sample.ordinals)
    edges = np.searchsorted(inner, np.arange(len(cuts.keys) + 2))
    found = []
    for part, (start, stop) in enumerate(pairwise(edges.tolist())):
        found += [
            _cuts_at(sample, start + _equal_positions(sample.keys[start:stop], slices)),
            Cuts(cuts.keys[part : part + 1], cuts.ordinals[part : part + 1]),
        ]
    return Cuts.joined(found)


def _cuts_at(sample: CurveSample, positions: Positions) -> Cuts:
    """Return the cuts before these sampled rows; position s is after the last one."""
    s = len(sample.keys)
    if s == 0:
        return Cuts(np.zeros(len(positions), np.uint64), np.zeros(len(positions), np.uint64))
    rows = np.minimum(positions, s - 1)
    keys, ordinals = sample.keys[rows], sample.ordinals[rows]
    # A run of equal keys may start with rows that the sample does not hold.
    starts_run = (rows == 0) | (sample.keys[rows - 1] != keys)
    ordinals = np.where(starts_run, np.uint64(0), ordinals)
    after_last = sample.ordinals[-1] + np.uint64(1)
    return Cuts(keys, np.where(positions == s, after_last, ordinals))


def _rounded_cuts_at(sample: CurveSample, positions: Positions) -> Cuts:
    """Return the cuts before these sampled rows, each where the largest quadrants meet."""
    cuts = _cuts_at(sample, positions)
    keys = cuts.keys.copy()
    inner = np.flatnonzero((positions > 0) & (positions < len(sample.keys)))
    differing = _bit_lengths(sample.keys[positions[inner] - 1] ^ keys[inner])
    zeros = np.maximum(differing - 1, 0).astype(np.uint64)
    keys[inner] = (keys[inner] >> zeros) << zeros
    return Cuts(keys, cuts.ordinals)


def _levels(keys: Keys) -> Positions:
    """Return the size of the quadrants that meet before each of s sorted rows, (s + 1,)."""
    levels = np.zeros(len(keys) + 1, np.int64)
    levels[1:-1] = _bit_lengths(keys[1:] ^ keys[:-1])
    return levels


def _bit_lengths(values: Keys) -> Positions:
    halves = values >> np.uint64(32), values & np.uint64(0xFFFF_FFFF)
    high, low = (np.frexp(half.astype(np.float64))[1].astype(np.int64) for half in halves)
    return np.where(high > 0, high + 32, low)


def _equal_positions(keys: Keys, parts: int) -> Positions:
    """Return the parts - 1 positions between equal parts, where the key changes if near."""
    changes = np.minimum(_levels(keys), 1)
    return _even_positions(changes, parts, reach=len(keys) // (4 * parts))[1:-1]


def _even_positions(levels: Positions, count: int, *, reach: int) -> Positions:
    """Return count + 1 even positions from 0 to s, each moved to the highest level in reach."""
    s = len(levels) - 1
    even = np.arange(count + 1) * s // count
    nearest_first = np.array(sorted(range(-reach, reach + 1), key=abs))
    near = np.clip(even[:, None] + nearest_first, 0, s)
    moved: Positions = near[np.arange(count + 1), levels[near].argmax(axis=1)]
    moved[0], moved[-1] = 0, s
    return moved


def _best_units(costs: Shares) -> Positions:
    """Return the unit edges where the parts end, the last one included, (samples, parts)."""
    count, units = costs.shape[1], costs.shape[2] - 1
    parts, drifts = units // _UNITS_PER_PART, 2 * _MAX_DRIFT_UNITS + 1
    # Entry i is about parts that end at unit i - _MAX_DRIFT_UNITS, counted from the even end.
    costs = np.pad(costs, ((0, 0), (0, 0), (_MAX_DRIFT_UNITS,) * 2), constant_values=np.inf)
    margin = len(_WIDTHS) // 2
    least = np.full((parts + 1, count, drifts + 2 * margin), np.inf)
    least[0, :, margin + _MAX_DRIFT_UNITS] = 0.0
    before = np.moveaxis(sliding_window_view(least, len(_WIDTHS), axis=2), 3, 1)
    options = np.empty((len(_WIDTHS), count, drifts))
    for part in range(parts):
        even = (part + 1) * _UNITS_PER_PART
        np.add(before[part], costs[:, :, even : even + drifts], out=options)
        np.minimum.reduce(options, axis=0, out=least[part + 1, :, margin:-margin])
    # Follow the best way back from the end.
    edges = np.empty((count, parts), np.int64)
    end, rows = np.full(count, units), np.arange(count)
    for part in range(parts - 1, -1, -1):
        edges[:, part] = end
        drift = end - (part + 1) * _UNITS_PER_PART + _MAX_DRIFT_UNITS
        window = before[part][:, rows, drift] + costs[:, rows, end + _MAX_DRIFT_UNITS]
        end = end - np.array(_WIDTHS)[window.argmin(axis=0)]
    return edges


def _window_costs(sample: CurveSample, units: Positions, reach: Reach | None) -> Shares:
    """Return rows times summed box extents, or reach, of parts of all possible widths in units.

    (len(_WIDTHS), units) by the unit edge where a part ends; inf if it would start too early.
    """
    # Column by column, which is faster.
    lows = np.asfortranarray(np.minimum.reduceat(sample.lows, units[:-1], axis=0))
    highs = np.asfortranarray(np.maximum.reduceat(sample.highs, units[:-1], axis=0))
    costs = np.full((len(_WIDTHS), len(units)), np.inf)
    low, high = lows, highs
    for width in range(1, _WIDTHS[0] + 1):
        if width > 1:
            low = np.minimum(low[1:], lows[: len(low) - 1])
            high = np.maximum(high[1:], highs[: len(high) - 1])
        if width in _WIDTHS:
            rows = units[width:] - units[:-width]
            extents = (high - low).sum(axis=1) if reach is None else reach.of(low, high)
            even = _EVENNESS * rows / len(sample.keys)
            costs[_WIDTHS.index(width), width:] = rows * (extents + even)
    return costs
