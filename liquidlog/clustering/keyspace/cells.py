"""Cells: the ranges of the files that a rewrite would write, foreseen from those of its inputs.

Rows are made up, spread evenly over the box of each input in proportion to its bytes, and placed in
files by the executor's own kernels.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.widths import Floats, KeySpace
from liquidlog.curve.conditions import Conditions
from liquidlog.curve.curves import Curve
from liquidlog.curve.fit import CurveGrid
from liquidlog.curve.placing import key_order_bits, place_columns, place_rows

_ROWS_IN_A_CELL: Final = 24
_MOST_ROWS: Final = 100_000


def placed(
    points: Floats,
    outputs: int,
    *,
    curve: str,
    conditions: Conditions | None = None,
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
    count, columns = points.shape
    kind = Curve(curve) if columns > 1 else Curve.LINEAR
    if conditions is not None or prefix or has_equals:
        ordinals = np.arange(count, dtype=np.uint64)
        values = [pa.array(column) for column in points.T]
        found = place_columns(
            values,
            ordinals,
            min(outputs, count),
            curve=kind,
            conditions=conditions,
            prefix=prefix,
        )
        coords = np.empty(points.shape, np.uint32, order="F")
        for number, (axis, column) in enumerate(zip(found.axes, values, strict=True)):
            coords[:, number] = axis.coordinates_of(column)
        parts = found.cuts.parts_of(found.order.keys_of(coords), ordinals)
        return np.asarray(parts, np.int64)
    return placed_on(points, outputs, curve=curve)[0]


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


def cells(space: KeySpace, outputs: int, *, curve: str) -> tuple[Floats, Floats]:
    """Return bytes and width of each file that a rewrite of all files of `space` would write.

    Both are float64; a width is the mean share of a column that the file spans. The same files have
    the same cells at every call.
    """
    rows = min(_MOST_ROWS, _ROWS_IN_A_CELL * max(outputs, len(space.size_bytes)))
    total = float(space.size_bytes.sum())
    wanted = np.maximum(1, np.round(space.size_bytes * (rows / max(total, 1.0))))
    owner = np.repeat(np.arange(len(wanted)), wanted.astype(np.int64))
    random = np.random.default_rng(len(owner)).random((len(owner), len(space.columns)))
    low, width = (
        np.stack([end[owner] for end in ends], axis=1)
        for ends in zip(*((spans.low, spans.width) for spans in space.columns), strict=True)
    )
    points = low + random * width
    files, part = np.unique(placed(points, outputs, curve=curve), return_inverse=True)
    shape = len(files), points.shape[1]
    first, last = np.full(shape, np.inf), np.zeros(shape)
    np.minimum.at(first, part, points)
    np.maximum.at(last, part, points)
    count = np.bincount(part).astype(np.float64)
    # The range of n even rows falls short of their cell by this much.
    unseen = (count + 1) / np.maximum(count - 1, 1)
    return total * count / len(owner), np.minimum((last - first).mean(axis=1) * unseen, 1.0)
