"""Axes of pictures: positions along a column, and the values to write beside them.

A position, from 0 to 1, is the share of the table's bytes before a value, as `keyspace.widths` has
it. So a length is a share of the rows, whatever the type, and where no file has rows there is no
length: values that nobody stored leave no gap between files.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.widths import ColumnSpans, plain_numbers
from liquidlog.spec.bounds import Bounds

Ticks = tuple[tuple[float, Any], ...]
"""(position, value), in the order of positions; the first is at 0, the last at 1."""

_STEPS: Final = 4
_CLOSEST: Final = 0.12
"""The least distance between two positions with a value each."""

_ROUND_PARTS: Final = 8
"""Values are rounded to a power of ten that is below this part of the column."""

_MONTH_DAYS: Final = 28
_YEAR_DAYS: Final = 365
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US: Final = 86_400_000_000

Floats = NDArray[np.float64]


def axis_ticks(bounds: Bounds, number: int, spans: ColumnSpans) -> Ticks:
    """Return values along column `number` of `bounds`, at about equal distances.

    The ends are those of the column. Between them, numbers and times are round, texts are bounds of
    files. There are none if no file has bounds.
    """
    known = bounds.known(number)
    mask = pa.array(known)
    values = pa.concat_arrays([bounds.low(number).filter(mask), bounds.high(number).filter(mask)])
    if not len(values):
        return ()
    order = np.asarray(pc.array_sort_indices(values), np.int64)
    values = values.take(pa.array(order))
    positions = np.concatenate([spans.low[known], spans.high[known]])[order]
    inner = _inner(values, np.maximum.accumulate(positions))
    first, last = (0.0, values[0].as_py()), (1.0, values[-1].as_py())
    return (first,) if first[1] == last[1] else (first, *_apart(inner), last)


def _inner(values: pa.Array, positions: Floats) -> list[tuple[float, Any]]:
    """Return candidates between the ends; `values` are sorted."""
    wanted = np.arange(1, _STEPS) / _STEPS
    numbers = _numbers(values)
    if numbers is None:
        places = np.abs(positions[:, None] - wanted).argmin(axis=0)
        return [(float(positions[n]), values[int(n)].as_py()) for n in places]
    found = []
    for number in np.interp(wanted, positions, numbers):
        value, rounded = _rounded(values.type, float(number), float(numbers[-1] - numbers[0]))
        found.append((float(np.interp(rounded, numbers, positions)), value))
    return found


def _apart(found: list[tuple[float, Any]]) -> list[tuple[float, Any]]:
    kept: list[tuple[float, Any]] = []
    last = 0.0
    for position, value in sorted(found, key=lambda tick: tick[0]):
        if last + _CLOSEST <= position <= 1 - _CLOSEST:
            kept.append((position, value))
            last = position
    return kept


def _numbers(values: pa.Array) -> Floats | None:
    """Return values as numbers, None if they are of another type or not all finite."""
    numbers = plain_numbers(values)
    return numbers if numbers is not None and np.isfinite(numbers).all() else None


def _rounded(kind: pa.DataType, number: float, extent: float) -> tuple[Any, float]:
    """Return a round value near a number of its type, and its own number."""
    if pa.types.is_date32(kind):
        day = _round_day(_EPOCH + timedelta(days=number), extent)
        return day.date(), float((day - _EPOCH).days)
    if pa.types.is_timestamp(kind):
        moment = _round_day(_EPOCH + timedelta(microseconds=number), extent / _DAY_US)
        value = moment if kind.tz else moment.replace(tzinfo=None)
        return value, float((moment - _EPOCH) // timedelta(microseconds=1))
    unit = 10.0 ** np.floor(np.log10(max(extent / _ROUND_PARTS, np.finfo(np.float64).tiny)))
    if pa.types.is_integer(kind):
        whole = round(number / max(unit, 1.0)) * round(max(unit, 1.0))
        return whole, float(whole)
    rounded = float(np.round(number / unit) * unit)
    return (Decimal(f"{rounded:.12g}") if pa.types.is_decimal(kind) else rounded), rounded


def _round_day(moment: datetime, extent_days: float) -> datetime:
    """Return the nearest first day of a year, or of a month, or else the nearest day or minute."""
    if extent_days < _STEPS:
        return (moment + timedelta(seconds=30)).replace(second=0, microsecond=0)
    midnight = (moment + timedelta(hours=12)).replace(hour=0, minute=0, second=0, microsecond=0)
    if extent_days < _STEPS * _MONTH_DAYS:
        return midnight
    if extent_days < _STEPS * _YEAR_DAYS:
        return (midnight + timedelta(days=_MONTH_DAYS // 2)).replace(day=1)
    return (midnight + timedelta(days=_YEAR_DAYS // 2)).replace(month=1, day=1)
