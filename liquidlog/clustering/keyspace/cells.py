"""Cells: the ranges of the files that a rewrite would write, foreseen from those of its inputs.

Rows are made up, spread evenly over the box of each input in proportion to its bytes, and placed in
files by the executor's own kernels.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.readers import SpaceReaders
from liquidlog.clustering.keyspace.widths import Floats, KeySpace
from liquidlog.curve.boxes import CurveGrid
from liquidlog.curve.conditions import ValuePredicates
from liquidlog.curve.curves import Curve
from liquidlog.curve.layouts import key_order_bits, place_columns, place_rows

_ROWS_IN_A_CELL: Final = 24
_MOST_ROWS: Final = 100_000

_ROWS_IN_A_CELL_OF_READERS: Final = 160
"""More, as a few predicates tell much finer than all values of a column."""

_MOST_ROWS_OF_READERS: Final = 40_000
"""Fewer, as layouts that are fitted take longer: up to a second with so many."""


def placed(
    points: Floats,
    outputs: int,
    *,
    curve: str,
    conditions: ValuePredicates | None = None,
    prefix: Sequence[int] = (),
    has_equals: bool = False,
) -> NDArray[np.int64]:
    """Return the file per row (int64), as the executor would place the rows.

    Files are numbered below `outputs`, unless more values of a prefix get files.

    Args:
        points: The keys of rows, in rows by columns.
        outputs: Files.
        curve: The name of a curve.
        conditions: What readers ask, over the keys, if the layout is fitted to it.
        prefix: Columns by whose single values rows are parted first.
        has_equals: Whether equal keys are equal values, which stay together, and not chance.
    """
    if conditions is not None or prefix or has_equals:
        return placed_values(points, outputs, curve=curve, conditions=conditions, prefix=prefix)
    return placed_on(points, outputs, curve=curve)[0]


def placed_values(
    points: Floats,
    outputs: int,
    *,
    curve: str,
    conditions: ValuePredicates | None = None,
    prefix: Sequence[int] = (),
) -> NDArray[np.int64]:
    """Return the file per row as `placed` does where equal keys are equal values."""
    count, columns = points.shape
    ordinals = np.arange(count, dtype=np.uint64)
    values = [pa.array(column) for column in points.T]
    found = place_columns(
        values,
        ordinals,
        min(outputs, count),
        curve=Curve(curve) if columns > 1 else Curve.LINEAR,
        conditions=conditions,
        prefix=prefix,
    )
    coords = np.empty(points.shape, np.uint32, order="F")
    for number, (axis, column) in enumerate(zip(found.axes, values, strict=True)):
        coords[:, number] = axis.coordinates_of(column)
    keys = found.order.keys_of(coords)
    return np.asarray(found.cuts.parts_of(keys, ordinals), np.int64)


def placed_on(
    points: Floats, outputs: int, *, curve: str, grid: CurveGrid | None = None
) -> tuple[NDArray[np.int64], CurveGrid | None]:
    """Return the file per row as `placed` does, and the grid of the curve, if it has one.

    With the `grid` that was found for other rows of the same kind, none is looked for, which takes
    most of the time.
    """
    count, columns = points.shape
    kind = Curve(curve) if columns > 1 else Curve.LINEAR
    bits = key_order_bits(columns, kind)
    steps = ((np.arange(count) << bits) // max(count, 1)).astype(np.uint32)
    coords = np.empty(points.shape, np.uint32, order="F")
    for number, column in enumerate(points.T):
        coords[np.argsort(column, kind="stable"), number] = steps
    ordinals = np.arange(count, dtype=np.uint64)
    order, _, cuts = place_rows(
        coords, ordinals, min(outputs, count), curve=kind, bits=bits, grid=grid
    )
    parts = np.asarray(cuts.parts_of(order.keys_of(coords), ordinals), np.int64)
    return parts, order if isinstance(order, CurveGrid) else None


def cells(
    space: KeySpace,
    outputs: int,
    *,
    curve: str,
    readers: SpaceReaders | None = None,
    draw: int = 0,
) -> tuple[Floats, Floats]:
    """Return bytes and width of each file that a rewrite of all files of `space` would write.

    Both are float64; a width is the mean share of a column that the file spans. With `readers`, the
    layout is fitted to them, and it is the share of them that opens the file. The same files have
    the same cells at every call for the same `draw`.
    """
    files = max(outputs, len(space.size_bytes))
    rows = min(_MOST_ROWS, _ROWS_IN_A_CELL * files)
    if readers is not None:
        rows = max(files, min(_MOST_ROWS_OF_READERS, _ROWS_IN_A_CELL_OF_READERS * files))
    total = float(space.size_bytes.sum())
    wanted = np.maximum(1, np.round(space.size_bytes * (rows / max(total, 1.0))))
    owner = np.repeat(np.arange(len(wanted)), wanted.astype(np.int64))
    random = np.random.default_rng((len(owner), draw) if draw else len(owner)).random(
        (len(owner), len(space.columns))
    )
    low, width = (
        np.stack([end[owner] for end in ends], axis=1)
        for ends in zip(*((spans.low, spans.width) for spans in space.columns), strict=True)
    )
    points = low + random * width
    parts = placed(
        points, outputs, curve=curve, conditions=None if readers is None else readers.conditions
    )
    numbers, part = np.unique(parts, return_inverse=True)
    shape = len(numbers), points.shape[1]
    first, last = np.full(shape, np.inf), np.zeros(shape)
    np.minimum.at(first, part, points)
    np.maximum.at(last, part, points)
    count = np.bincount(part).astype(np.float64)
    # The range of n even rows falls short of their cell by this much.
    unseen = (count + 1) / np.maximum(count - 1, 1)
    size = total * count / len(owner)
    if readers is None:
        return size, np.minimum((last - first).mean(axis=1) * unseen, 1.0)
    more = (last - first) * (unseen[:, np.newaxis] - 1) / 2
    return size, readers.opened_boxes(np.maximum(first - more, 0.0), np.minimum(last + more, 1.0))
