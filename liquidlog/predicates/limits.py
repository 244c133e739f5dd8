"""Limits: bounds in the type of a comparison, never narrower."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.spec.bounds import cast_where_possible

_DECIMAL_ERROR: Final = 1e-14
"""More than the relative error of a decimal that was converted to a double."""

Limits = tuple[pa.Array, pa.Array]


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
