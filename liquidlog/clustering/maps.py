"""Maps of files for reports: where files lie in the key space, now and after a rewrite.

A position, from 0 to 1, is the share of the table's bytes before a value. So a length is a share
of the rows, whatever the type, and values that no file has leave no gap. Few files are shown as
boxes, many as a grid of counts, so that the map of a million files is not larger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.health import ColumnSpans, Floats, key_space, known_ends, plain_numbers
from liquidlog.spec.bounds import Bounds, Mask, concat_bounds

Ticks = tuple[tuple[float, Any], ...]
"""(position, value), in the order of positions; the first is at 0, the last at 1."""
_STEPS: Final = 4
_CLOSEST: Final = 0.12
"""The least distance between two positions that are labelled."""
_MONTH_DAYS: Final = 28
_YEAR_DAYS: Final = 365
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def axis_ticks(bounds: Bounds, number: int, spans: ColumnSpans) -> Ticks:
    """Return values along column `number` of `bounds`, at about equal distances."""
    known = bounds.known(number)
    values = pa.concat_arrays(known_ends(bounds, number))
    if not len(values):
        return ()
    order = np.asarray(pc.array_sort_indices(values), np.int64)
    values = values.take(pa.array(order))
    positions = np.concatenate([spans.low[known], spans.high[known]])[order]
    inner = _inner(values, np.maximum.accumulate(positions))
    first, last = (0.0, values[0].as_py()), (1.0, values[-1].as_py())
    ticks = [first]
    for tick in sorted(inner, key=lambda tick: tick[0]):
        if ticks[-1][0] + _CLOSEST <= tick[0] <= 1 - _CLOSEST:
            ticks.append(tick)
    return (first,) if first[1] == last[1] else (*ticks, last)


def _inner(values: pa.Array, positions: Floats) -> list[tuple[float, Any]]:
    wanted = np.arange(1, _STEPS) / _STEPS
    numbers = plain_numbers(values)
    if numbers is None or not np.isfinite(numbers).all():
        places = np.abs(positions[:, None] - wanted).argmin(axis=0)
        return [(float(positions[n]), values[int(n)].as_py()) for n in places]
    found = []
    for number in np.interp(wanted, positions, numbers):
        value, rounded = _rounded(values.type, float(number), float(numbers[-1] - numbers[0]))
        found.append((float(np.interp(rounded, numbers, positions)), value))
    return found


def _rounded(kind: pa.DataType, number: float, extent: float) -> tuple[Any, float]:
    """Return a round value of a type near a number, and its own number."""
    if pa.types.is_date32(kind):
        day = _round_day(_EPOCH + timedelta(days=number), extent)
        return day.date(), float((day - _EPOCH).days)
    if pa.types.is_timestamp(kind):
        moment = _round_day(_EPOCH + timedelta(microseconds=number), extent / 86_400_000_000)
        value = moment if kind.tz else moment.replace(tzinfo=None)
        return value, float((moment - _EPOCH) // timedelta(microseconds=1))
    # A power of ten that is below an eighth of the column.
    unit = 10.0 ** np.floor(np.log10(max(extent / 8, np.finfo(np.float64).tiny)))
    if pa.types.is_integer(kind):
        whole = round(number / max(unit, 1.0)) * round(max(unit, 1.0))
        return whole, float(whole)
    rounded = float(np.round(number / unit) * unit)
    return (Decimal(f"{rounded:.12g}") if pa.types.is_decimal(kind) else rounded), rounded


def _round_day(moment: datetime, extent_days: float) -> datetime:
    if extent_days < _STEPS:
        return (moment + timedelta(seconds=30)).replace(second=0, microsecond=0)
    midnight = (moment + timedelta(hours=12)).replace(hour=0, minute=0, second=0, microsecond=0)
    if extent_days < _STEPS * _MONTH_DAYS:
        return midnight
    if extent_days < _STEPS * _YEAR_DAYS:
        return (midnight + timedelta(days=_MONTH_DAYS // 2)).replace(day=1)
    return (midnight + timedelta(days=_YEAR_DAYS // 2)).replace(month=1, day=1)


BOXES_SHOWN: Final = 400
GRID_BINS: Final = 64
PROFILE_BINS: Final = 96
_UNSEEN: Final = 1 / 8
"""Unsampled rows may lie beside a predicted file, up to this part of its range."""
_DIAGONAL: Final = 0.98
"""The correlation of files' middles from which two columns count as one."""
_FEWEST_FILES: Final = 4
_EDGE: Final = 1e-9

Grid = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedFiles:
    """Files to draw: bounds, bytes (int64), and which are predicted; one entry per file."""

    bounds: Bounds
    size_bytes: NDArray[np.int64]
    is_predicted: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAxis:
    """One column of a map."""

    name: str
    ticks: Ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One state of a table on a map: files that are drawn, and files that lack bounds.

    `boxes` are (low x, low y, high x, high y) by the first two columns, up to 400 files; else
    `grid` counts the files in each cell, its rows upwards along the second column. `profiles` has
    per column and stretch the mean number of files that share a point.
    """

    files: int
    not_drawn: int
    boxes: tuple[tuple[float, float, float, float], ...]
    grid: Grid
    profiles: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMap:
    """A table now and after a rewrite; `after` is None if there is none to show."""

    axes: tuple[MapAxis, ...]
    now: Side
    after: Side | None


def key_map(names: Sequence[str], now: MappedFiles, after: MappedFiles | None) -> KeyMap | None:
    """Return the map of a table by the columns `names`, None if no file has bounds of them all."""
    if not now.bounds.all_known().any():
        return None
    sides = [now] if after is None else [now, after]
    bounds = concat_bounds([side.bounds for side in sides])
    # Predicted files have no bytes here, so the scale is that of the table now.
    size_bytes = [now.size_bytes] + [np.zeros_like(side.size_bytes) for side in sides[1:]]
    space = key_space(bounds, np.concatenate(size_bytes))
    low, high = space.ends()
    others = range(1, low.shape[1])
    parts = [slice(len(now.bounds)), slice(len(now.bounds), None)][: len(sides)]
    lines = [n for n in others if any(_is_line(low[s], high[s], [0, n]) for s in parts)]
    order = [0, *(n for n in others if n not in lines), *lines]
    low, high = low[:, order], high[:, order]
    ticks = [axis_ticks(bounds, number, space.columns[number]) for number in order]
    axes = tuple(MapAxis(name=names[n], ticks=its) for n, its in zip(order, ticks, strict=True))
    is_small = max(int(side.bounds.all_known().sum()) for side in sides) <= BOXES_SHOWN
    drawn = [
        _side(side, low[part], high[part], one_by_one=is_small)
        for side, part in zip(sides, parts, strict=True)
    ]
    return KeyMap(axes=axes, now=drawn[0], after=drawn[1] if drawn[1:] else None)


def _is_line(low: Floats, high: Floats, pair: Sequence[int]) -> bool:
    """Return whether files lie along a line in two columns: one is a function of the other."""
    ends = np.stack([low[:, pair], high[:, pair]])
    known = ~np.isnan(ends).any(axis=(0, 2))
    middle = ends[:, known].mean(axis=0)
    width, other = np.diff(ends[:, known], axis=0)[0].mean(axis=0)
    if known.sum() < _FEWEST_FILES or width > 1 / 2 or other > 2 * width:
        return False
    spread = middle.std(axis=0)
    return bool(spread.min() > 0 and abs(np.corrcoef(middle.T)[0, 1]) > _DIAGONAL)


def closed(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the ends of predicted boxes, moved together where no made-up row lies between them."""
    low, high = low.copy(), high.copy()
    reach = (high - low) * _UNSEEN
    meets = (low[:, None, :] < high[None]) & (low[None] < high[:, None, :])
    for column in range(low.shape[1]):
        beside = np.asarray(np.delete(meets, column, axis=2).all(axis=2), np.bool_)
        _close(low[:, column], high[:, column], reach[:, column], beside)
    return low, high


def _close(low: Floats, high: Floats, reach: Floats, beside: Mask) -> None:
    """Move the ends of boxes in one column; `beside` says which boxes meet in the others."""
    middle = (low + high) / 2
    first = ~(beside & (middle[:, None] < low[None, :])).any(axis=0)
    last = ~(beside & (middle[:, None] > high[None, :])).any(axis=0)
    # Row: the box on the left; column: the box on the right.
    gap = low[None, :] - high[:, None]
    beside = beside & (gap >= -_EDGE) & (gap <= reach[:, None] + reach[None, :])
    left = np.where(beside, high[:, None], -np.inf).max(axis=0, initial=-np.inf)
    low[:] = np.where(left > -np.inf, np.minimum(left, low), low)
    right = np.where(beside, low[None, :], np.inf).min(axis=1, initial=np.inf)
    high[:] = np.where(right < np.inf, np.maximum(right, high), high)
    low[first & (low <= reach)] = 0.0
    high[last & (high >= 1 - reach)] = 1.0


def _side(files: MappedFiles, low: Floats, high: Floats, *, one_by_one: bool) -> Side:
    drawn = files.bounds.all_known()
    low, high, predicted = low[drawn], high[drawn], files.is_predicted[drawn]
    if one_by_one and predicted.any():
        low[predicted], high[predicted] = closed(low[predicted], high[predicted])
    is_plane = low.shape[1] > 1
    boxes = np.concatenate([low[:, :2], high[:, :2]], axis=1).tolist()
    return Side(
        files=len(low),
        not_drawn=int((~drawn).sum()),
        boxes=tuple(map(tuple, boxes)) if is_plane and one_by_one else (),
        grid=_grid(low[:, :2], high[:, :2]) if is_plane and not one_by_one else (),
        profiles=tuple(_profile(low[:, n], high[:, n]) for n in range(low.shape[1])),
    )


def bins(low: Floats, high: Floats, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last of `count` equal stretches that each range meets (int64)."""
    first = np.clip(np.floor(low * count + _EDGE), 0, count - 1).astype(np.int64)
    last = np.clip(np.ceil(high * count - _EDGE) - 1, 0, count - 1).astype(np.int64)
    return first, np.maximum(first, last)


def _grid(low: Floats, high: Floats) -> Grid:
    (left, right), (bottom, top) = (bins(low[:, n], high[:, n], GRID_BINS) for n in (0, 1))
    steps = np.zeros((GRID_BINS + 1, GRID_BINS + 1), np.int64)
    np.add.at(steps, (bottom, left), 1)
    np.add.at(steps, (bottom, right + 1), -1)
    np.add.at(steps, (top + 1, left), -1)
    np.add.at(steps, (top + 1, right + 1), 1)
    counts = steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    return tuple(tuple(row) for row in counts.tolist())


def _profile(low: Floats, high: Floats) -> tuple[float, ...]:
    """Return the mean number of files over the points of each stretch."""
    edges = np.arange(PROFILE_BINS + 1) / PROFILE_BINS
    covered = np.zeros(len(edges))
    for ends, sign in ((np.sort(low), 1), (np.sort(high), -1)):
        # The summed distances of the ends before each edge.
        total = np.concatenate([[0.0], np.cumsum(ends)])
        count = np.searchsorted(ends, edges)
        covered += sign * (count * edges - total[count])
    return tuple(np.round(np.diff(covered) * PROFILE_BINS, 4).tolist())
