"""The curves by name."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from liquidlog.curve.grid import KEY_BITS, Coords, Keys
from liquidlog.curve.hilbert import hilbert_index
from liquidlog.curve.linear import linear_index
from liquidlog.curve.zorder import zorder_index
from liquidlog.errors import UsageError


class Curve(StrEnum):
    """Orders of grid points; `kd` is Hilbert inside the boxes of `liquidlog.curve.kd`."""

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
    """Return the key of each point on the curve.

    Args:
        coords: (n, d) unsigned, each in [0, 2**bits).
        bits: Bits of a coordinate, d * bits <= 64.
        curve: Which curve.

    Returns:
        (n,) uint64, each in [0, 2**(d * bits)).
    """
    return _INDEX[curve](coords, bits)


def coordinate_bits(dimensions: int) -> int:
    """Return how many bits each of d coordinates gets, so that a key fits in 64."""
    return min(MAX_COORDINATE_BITS, KEY_BITS // dimensions)
