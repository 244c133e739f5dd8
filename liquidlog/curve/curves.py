"""Grid points of column values, their positions along curves, and rows in this order.

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
from functools import cache
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


def _decimals_below(values: pa.Array, boundaries: pa.Array) -> Counts:
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
        return _decimals_below(values, boundaries)
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
    """Orders of grid points; `kd` is Hilbert inside the boxes of `liquidlog.curve.boxes`."""

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
