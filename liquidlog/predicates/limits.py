"""Bounds as writers meant them, and in the type that a comparison needs; never narrower.

Source: Delta Spark, StatisticsCollection (how bounds are written).
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.predicates.floats import widened_to_floats
from liquidlog.spec.bounds import cast_where_possible

_NO_SECONDS_IN_OFFSETS_US: Final = 94_694_400_000_000
"""1973-01-01: since then the offsets of all time zones are whole minutes."""

_MINUTE_US: Final = 60_000_000

_DECIMAL_ERROR: Final = 1e-14
"""More than what a decimal can be off, as a share of it, once it is a double."""

_DOUBLE_ERROR: Final = 2.0**-52
"""The most that a double is off, as a share of it, and as much again."""

Limits = tuple[pa.Array, pa.Array]


def as_written(low: pa.Array, high: pa.Array, *, was_float: bool) -> Limits:
    """Return bounds of the log, moved apart where their text is not all of the value.

    `was_float` says that the column is a double that was a float: floats are written with as few
    digits as tell them from other floats. Large decimals may have been written as doubles.
    """
    if pa.types.is_timestamp(low.type) and low.type.tz:
        return _moved_early(low, -_MINUTE_US), _moved_early(high, _MINUTE_US)
    if was_float and pa.types.is_float64(low.type):
        lows, highs = (_numbers(values) for values in (low, high))
        lows, highs = widened_to_floats(lows, highs)
        return _like(low, lows), _like(high, highs)
    if pa.types.is_decimal(low.type):
        return _moved_large(low, pc.subtract), _moved_large(high, pc.add)
    return low, high


def converted(values: pa.Array, wanted: pa.DataType, *, end: float) -> pa.Array:
    """Return one side of the bounds as `wanted`; decimals as doubles are moved towards `end`."""
    if pa.types.is_floating(values.type):
        # Spark takes NaN for the largest number; comparisons here would be false.
        largest = pa.scalar(float("inf"), values.type)
        values = pc.if_else(pc.is_nan(values), largest, values)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(wanted):
        doubles = pc.cast(values, wanted)
        error = pc.multiply(pc.abs(doubles), _DECIMAL_ERROR)
        return pc.add(doubles, error) if end > 0 else pc.subtract(doubles, error)
    if pa.types.is_decimal(values.type):
        return cast_where_possible(values, wanted)
    # An integer becomes the nearest double, as in Spark: the order of values stays.
    return pc.cast(values, wanted, safe=not pa.types.is_floating(wanted))


def _moved_early(values: pa.Array, step_us: int) -> pa.Array:
    """Return instants moved where they are so early that their offset was written too short."""
    micros = pc.cast(values, pa.int64())
    early = pc.less(micros, _NO_SECONDS_IN_OFFSETS_US)
    floor = np.iinfo(np.int64).min + _MINUTE_US
    moved = pc.add(pc.max_element_wise(micros, floor, skip_nulls=False), step_us)
    return pc.cast(pc.if_else(early, moved, micros), values.type)


def _moved_large(values: pa.Array, move: Callable[[pa.Array, pa.Array], pa.Array]) -> pa.Array:
    """Return decimals moved where the nearest double need not be rounded to them.

    Source: delta-rs writes bounds of decimals as doubles.
    """
    error = pc.multiply(pc.abs(pc.cast(values, pa.float64())), _DOUBLE_ERROR)
    coarse = pc.fill_null(pc.greater(error, 0.5 * 10.0**-values.type.scale), fill_value=False)
    if not pc.any(coarse).as_py():
        return values
    wide = pa.decimal256(values.type.precision + 2, values.type.scale)
    steps = pc.cast(pc.if_else(coarse, pc.multiply(error, 4.0), 0.0), wide)
    return move(pc.cast(values, wide), steps)


def _numbers(values: pa.Array) -> NDArray[np.float64]:
    return np.asarray(pc.fill_null(values, 0.0), np.float64)


def _like(values: pa.Array, numbers: NDArray[np.float64]) -> pa.Array:
    return pc.if_else(values.is_valid(), pa.array(numbers), pa.scalar(None, pa.float64()))
