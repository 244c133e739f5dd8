"""Where sampled rows go: the order of keys and the cuts, for any curve by name."""

from typing import TypeAlias

from liquidlog.curve.curves import Curve, coordinate_bits
from liquidlog.curve.cuts import CurveSample, Cuts, Ordinals
from liquidlog.curve.fit import CurveGrid, fit_curve
from liquidlog.curve.grid import Coords
from liquidlog.curve.kd import Boxes, fit_boxes, kd_bits

KeyOrder: TypeAlias = CurveGrid | Boxes
"""What gives rows their keys, by `keys_of(coords)`."""


def key_order_bits(dimensions: int, curve: Curve) -> int:
    """Return how many bits each of d coordinates gets."""
    bits = coordinate_bits(dimensions)
    return kd_bits(dimensions, bits) if curve is Curve.KD else bits


def place_rows(
    coords: Coords, ordinals: Ordinals, parts: int, *, curve: Curve, bits: int
) -> tuple[KeyOrder, CurveSample, Cuts]:
    """Return the order of keys, the sample in that order, and the cuts into files.

    Args:
        coords: (s, d) unsigned, the coordinates of the sample, each below 2**bits.
        ordinals: (s,) uint64, the ordinals of the sampled rows, increasing.
        parts: Files.
        curve: Any curve.
        bits: Bits of a coordinate, as `key_order_bits` returns for the curve.
    """
    if curve is Curve.KD:
        return fit_boxes(coords, ordinals, parts, bits=bits)
    return fit_curve(coords, ordinals, parts, curve=curve, bits=bits)
