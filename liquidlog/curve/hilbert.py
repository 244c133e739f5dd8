"""The Hilbert curve: grid points to positions along the curve, and back.

Coordinate systems:

- *point*: row of `coords`, (n, d) unsigned, each coordinate in [0, 2**bits);
- *key*: (n,) uint64 position on the curve in [0, 2**(d * bits)); `hilbert_index` and its inverse
  `hilbert_point` are a bijection between the two. d * bits <= 64 so that a key is one word.

Neighbours on the curve differ by one in one coordinate. The first column is the most significant
bit of each d-bit digit of the key. For d = 1 the key is the coordinate.

Source: J. Skilling, "Programming the Hilbert curve", AIP Conf. Proc. 707, 381 (2004). His loop
works through one bit plane at a time, from the top, and what it does to the planes below is to
permute and complement the axes. Those *orientations* are few for d <= 4, so tables hold, for each
orientation and the next few bits of each coordinate, the digits of the key and the orientation
after them. O(n * bits / planes) instead of O(n * bits * d).
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from liquidlog.curve.grid import BLOCK_ROWS, Coords, Keys, check_grid

_MAX_TABLE_DIMENSIONS: Final = 4
_MAX_TABLE_BITS: Final = 12
"""Bits of all coordinates that one table step reads; more would push tables out of L2 cache."""

_MAX_STATES: Final = 1 << 12


def hilbert_index(coords: Coords, bits: int) -> Keys:
    """Return the position on the curve of each point.

    Args:
        coords: (n, d) unsigned, each in [0, 2**bits).
        bits: Bits of a coordinate, d * bits <= 64.

    Returns:
        (n,) uint64, each in [0, 2**(d * bits)).
    """
    n, d = check_grid(coords, bits)
    if d == 1:
        return coords[:, 0].astype(np.uint64)
    keys = np.empty(n, np.uint64)
    kernel = _table_keys if d <= _MAX_TABLE_DIMENSIONS else _skilling_keys
    for start in range(0, n, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        keys[block] = kernel([coords[block, j] for j in range(d)], bits)
    return keys


def hilbert_point(keys: Keys, *, dimensions: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the point at each position on the curve; inverse of hilbert_index.

    Args:
        keys: (n,) uint64, each in [0, 2**(dimensions * bits)).
        dimensions: d, the number of coordinates.
        bits: Bits of a coordinate, d * bits <= 64 and bits <= 32.

    Returns:
        (n, d) uint32.
    """
    check_grid(np.empty((0, dimensions), np.uint32), bits)
    one = np.uint64(1)
    x = [np.zeros(len(keys), np.uint64) for _ in range(dimensions)]
    for plane in range(bits):
        for j in range(dimensions):
            shift = np.uint64(plane * dimensions + dimensions - 1 - j)
            x[j] |= ((keys >> shift) & one) << np.uint64(plane)
    last = x[-1] >> one
    for j in range(dimensions - 1, 0, -1):
        x[j] ^= x[j - 1]
    x[0] ^= last
    for plane in range(1, bits):
        for j in range(dimensions - 1, -1, -1):
            _undo_plane(x, j, plane)
    return np.stack(x, axis=1).astype(np.uint32)


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
