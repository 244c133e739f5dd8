"""Limits: bounds that allow for how they were written, in the type of a comparison; never narrower.

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
"""1973-01-01; from then on, the offsets of all time zones are whole minutes."""

_MINUTE_US: Final = 60_000_000

_DECIMAL_ERROR: Final = 1e-14
"""More than the relative error of a decimal that was converted to a double."""

_DOUBLE_ERROR: Final = 2.0**-52
"""Twice the largest relative error of a double."""

Limits = tuple[pa.Array, pa.Array]


def as_written(low: pa.Array, high: pa.Array, *, was_float: bool) -> Limits:
    """Return bounds from the log, moved apart where their text may not show the whole value.

    `was_float` says that the column's type was widened from float to double: floats are written
    with only as many digits as distinguish them from other floats. Large decimals may have been
    written as doubles.
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
    """Return bounds of one side as `wanted`; decimals that become doubles move towards `end`."""
    if pa.types.is_floating(values.type):
        # Spark treats NaN as the largest number; comparisons here would be false.
        largest = pa.scalar(float("inf"), values.type)
        values = pc.if_else(pc.is_nan(values), largest, values)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(wanted):
        doubles = pc.cast(values, wanted)
        error = pc.multiply(pc.abs(doubles), _DECIMAL_ERROR)
        return pc.add(doubles, error) if end > 0 else pc.subtract(doubles, error)
    if pa.types.is_decimal(values.type):
        return cast_where_possible(values, wanted)
    # An integer becomes the nearest double, as in Spark, which preserves the order of values.
    return pc.cast(values, wanted, safe=not pa.types.is_floating(wanted))


def _moved_early(values: pa.Array, step_us: int) -> pa.Array:
    """Return the instants; those whose offset was written without its seconds are moved."""
    micros = pc.cast(values, pa.int64())
    early = pc.less(micros, _NO_SECONDS_IN_OFFSETS_US)
    floor = np.iinfo(np.int64).min + _MINUTE_US
    moved = pc.add(pc.max_element_wise(micros, floor, skip_nulls=False), step_us)
    return pc.cast(pc.if_else(early, moved, micros), values.type)


def _moved_large(values: pa.Array, move: Callable[[pa.Array, pa.Array], pa.Array]) -> pa.Array:
    """Return the decimals; those that their nearest double does not determine are moved.

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
