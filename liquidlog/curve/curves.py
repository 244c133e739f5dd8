"""Curves: grid points to positions along them, and rows in this order; the Hilbert curve first.

Coordinate systems:

- *point*: row of `coords`, (n, d) unsigned, each coordinate in [0, 2**bits);
- *key*: (n,) uint64 position on the curve in [0, 2**(d * bits)), another one for each point;
  d * bits <= 64 so that a key is one word.

Neighbours on the curve differ by one in one coordinate. The first column is the most significant
bit of each d-bit digit of the key. For d = 1 the key is the coordinate.

Source: J. Skilling, "Programming the Hilbert curve", AIP Conf. Proc. 707, 381 (2004). His loop
works through one bit plane at a time, from the top, and what it does to the planes below is to
permute and complement the axes. Those *orientations* are few for d <= 4, so tables hold, for each
orientation and the next few bits of each coordinate, the digits of the key and the orientation
after them. O(n * bits / planes) instead of O(n * bits * d).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.curve.grid import (
    BLOCK_ROWS,
    KEY_BITS,
    Axis,
    Column,
    Coords,
    Keys,
    check_grid,
    range_boundaries,
    range_ids,
)
from liquidlog.errors import UsageError

_MAX_TABLE_DIMENSIONS: Final = 4
_MAX_TABLE_BITS: Final = 12
"""Bits of all coordinates that one table step reads; more would push tables out of L2 cache."""
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
    """What the planes above did to the planes below.

    Coordinate j below reads axis `axes[j]`, complemented if `flipped[j]`; `complemented` is
    Skilling's running parity, which complements all digits of the key.
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
        # The odd step comes first: all later ones then use the same, cached table.
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


# The Z-order (Morton) curve: the bits of all coordinates interleaved
#
# *point*: (n, d) unsigned, each in [0, 2**bits). *key*: (n,) uint64 in [0, 2**(d * bits)); the
# first column is the most significant bit of each d-bit digit. d * bits <= 64 so that a key is
# one word. O(n * d * bits / 8).

_BYTE_BITS: Final = 8


def zorder_index(coords: Coords, bits: int) -> Keys:
    """Return the position on the curve, (n,) uint64, of each point."""
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
    """Return each byte with d - 1 zeros between its bits; bits beyond 64 belong to no key."""
    spread = [sum((octet >> i & 1) << (i * d) for i in range(_BYTE_BITS)) for octet in range(256)]
    return np.array([value & (2**64 - 1) for value in spread], np.uint64)


# The linear order: sorted by the first column, then the second, and so on
#
# *point*: (n, d) unsigned, each in [0, 2**bits). *key*: (n,) uint64 in [0, 2**(d * bits)), the
# first column in its most significant bits. d * bits <= 64 so that a key is one word. O(n * d).


def linear_index(coords: Coords, bits: int) -> Keys:
    """Return the position, (n,) uint64, of each point in lexicographic order."""
    _, d = check_grid(coords, bits)
    keys = coords[:, 0].astype(np.uint64)
    for j in range(1, d):
        keys = (keys << np.uint64(bits)) | coords[:, j].astype(np.uint64)
    return keys


# The curves by name


class Curve(StrEnum):
    """Orders of grid points; `kd` is Hilbert inside the boxes of `liquidlog.curve.boxes`."""

    HILBERT = "hilbert"
    ZORDER = "zorder"
    LINEAR = "linear"
    KD = "kd"


MAX_COORDINATE_BITS: Final = 16
"""More bits would tell apart finer ranges than samples can."""

_INDEX: Final[Mapping[Curve, Callable[[Coords, int], Keys]]] = {
    Curve.HILBERT: hilbert_index,
    Curve.ZORDER: zorder_index,
    Curve.LINEAR: linear_index,
    Curve.KD: hilbert_index,
}


def parse_curve(name: str) -> Curve:
    """Return the curve of this name."""
    try:
        return Curve(name)
    except ValueError as error:
        known = ", ".join(Curve)
        raise UsageError(f"unknown curve {name!r}: expected one of {known}", curve=name) from error


def curve_index(coords: Coords, bits: int, curve: Curve) -> Keys:
    """Return the key, (n,) uint64, of each point on the curve."""
    return _INDEX[curve](coords, bits)


def coordinate_bits(dimensions: int) -> int:
    """Return how many bits each of d coordinates gets, so that a key fits in 64."""
    return min(MAX_COORDINATE_BITS, KEY_BITS // dimensions)


# Row orders: stable sorting by key, and sorting a whole batch along a curve
#
# A *row order* is (n,) int64 row indices; taking the rows in this order sorts them. Rows with
# equal keys keep their order, so that the same rows give the same files.

RowOrder = npt.NDArray[np.int64]

_EXACT_RANGES: Final = 1 << 31
"""More ranges than a batch can have rows: every distinct value gets its own."""
_RADIX_BITS: Final = 16


def order_rows(columns: Sequence[Column], curve: str) -> RowOrder:
    """Return the row order of `sort_rows`."""
    return sort_rows(columns, curve)[0]


def sort_rows(columns: Sequence[Column], curve: str) -> tuple[RowOrder, Keys]:
    """Return the row order, (n,) int64, that sorts a batch along a curve, and its keys.

    Ranks come from the batch itself: exact for one column and for the linear curve. Nulls first,
    NaN last. The keys never decrease; on the linear curve they are about the first column alone.
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
    """Return the row order, (n,) int64, that sorts by unsigned key, equal keys in row order.

    numpy sorts numbers of 16 bits by radix: two such sorts take half the time of one of words.
    Longer keys are sorted with their row numbers as one word, if they fit, several times faster
    than by indices.
    """
    n = len(keys)
    if n == 0:
        return np.empty(0, np.int64)
    lowest = keys.min()
    key_bits = int(keys.max() - lowest).bit_length()
    if key_bits <= 2 * _RADIX_BITS:
        return _order_by_radix((keys - lowest).astype(np.uint32), key_bits)
    row_bits = max(n - 1, 1).bit_length()
    if key_bits + row_bits > KEY_BITS:
        return np.argsort(keys, kind="stable")
    packed: Keys = (keys - lowest).astype(np.uint64)
    packed <<= np.uint64(row_bits)
    packed |= np.arange(n, dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << row_bits) - 1)
    return packed.astype(np.int64)


def _order_by_radix(keys: npt.NDArray[np.uint32], key_bits: int) -> RowOrder:
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    if key_bits <= _RADIX_BITS:
        return order
    high = (keys >> np.uint32(_RADIX_BITS)).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")]
