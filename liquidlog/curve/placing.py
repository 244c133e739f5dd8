"""Where sampled rows go: the order of keys and the cuts, for any curve by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.curve.asked import Asked
from liquidlog.curve.conditions import Conditions, axis_of
from liquidlog.curve.curves import Curve, coordinate_bits
from liquidlog.curve.cuts import CurveSample, Cuts, Ordinals
from liquidlog.curve.fit import CurveGrid, fit_curve
from liquidlog.curve.fitted import KeyOrder, Placed, fit_layout
from liquidlog.curve.grid import Coords
from liquidlog.curve.kd import fit_boxes, kd_bits
from liquidlog.curve.ranges import Axis

__all__ = ["KeyOrder", "Placement", "key_order_bits", "place_columns", "place_rows"]

MAX_RANGES: Final = 4096
"""Ranges of each of several columns; four times the reference engine's, at no measurable cost."""

MAX_RANGES_ALONE: Final = 1 << 16
"""Ranges of a sole clustering column, of which each can straddle only two files."""


def key_order_bits(dimensions: int, curve: Curve, *, parted: bool = False) -> int:
    """Return how many bits each of d coordinates gets.

    Args:
        dimensions: d.
        curve: Any curve.
        parted: Whether keys may begin with the number of a part; see `liquidlog.curve.prefixed`.
    """
    bits = coordinate_bits(dimensions)
    return kd_bits(dimensions, bits) if parted or curve is Curve.KD else bits


def place_rows(
    coords: Coords,
    ordinals: Ordinals,
    parts: int,
    *,
    curve: Curve,
    bits: int,
    asked: Asked | None = None,
    prefix: Sequence[int] = (),
    grid: CurveGrid | None = None,
) -> Placed:
    """Return the order of keys, the sample in that order, and the cuts into files.

    Args:
        coords: (s, d) unsigned, the coordinates of the sample, each below 2**bits.
        ordinals: (s,) uint64, the ordinals of the sampled rows, increasing.
        parts: Files; a prefix or readers may make it more, see `fit_layout`.
        curve: Any curve.
        bits: Bits of a coordinate, as `key_order_bits` returns for the curve.
        asked: What readers ask, if the layout is to be fitted to it.
        prefix: Columns by whose single values rows are parted first.
        grid: As `fit_curve` takes it, where nothing is asked and nothing parted.
    """
    if len(coords) and (asked is not None or prefix):
        return fit_layout(
            coords, ordinals, parts, curve=curve, bits=bits, asked=asked, prefix=prefix
        )
    if curve is Curve.KD:
        return fit_boxes(coords, ordinals, parts, bits=bits)
    return fit_curve(coords, ordinals, parts, curve=curve, bits=bits, grid=grid)


@dataclass(frozen=True, slots=True)
class Placement:
    """The axes of some columns, the order of keys on them, the sample in it, and the cuts."""

    axes: tuple[Axis, ...]
    order: KeyOrder
    sample: CurveSample
    cuts: Cuts


def place_columns(
    columns: Sequence[pa.Array],
    ordinals: Ordinals,
    parts: int,
    *,
    curve: Curve,
    conditions: Conditions | None = None,
    prefix: Sequence[int] = (),
) -> Placement:
    """Return where rows with these values go, as `place_rows` does for coordinates.

    Args:
        columns: The sampled values of d columns, s each.
        ordinals: (s,) uint64, the ordinals of the sampled rows, increasing.
        parts: Files; there may be more, as for `place_rows`.
        curve: Any curve.
        conditions: What readers ask, if the layout is to be fitted to it.
        prefix: Columns by whose single values rows are parted first.
    """
    d = len(columns)
    bits = key_order_bits(d, curve, parted=bool(prefix) or conditions is not None)
    max_ranges = min(MAX_RANGES if d > 1 else MAX_RANGES_ALONE, 1 << bits)
    borders = [None] * d if conditions is None else conditions.borders(columns)
    axes, coords = [], np.empty((len(ordinals), d), np.uint32, order="F")
    for j, (column, between) in enumerate(zip(columns, borders, strict=True)):
        axis, coords[:, j] = axis_of(column, between, max_ranges=max_ranges, bits=bits)
        axes.append(axis)
    asked = None if conditions is None else conditions.on(axes, columns, bits)
    order, sample, cuts = place_rows(
        coords, ordinals, parts, curve=curve, bits=bits, asked=asked, prefix=prefix
    )
    return Placement(tuple(axes), order, sample, cuts)
