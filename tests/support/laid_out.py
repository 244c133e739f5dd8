"""Real rows laid out in files by the executor's own kernels, with the bounds of these rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.curves import Curve
from liquidlog.curve.layouts import place_columns
from liquidlog.foresee.plans import Files
from liquidlog.spec.bounds import Bounds, ColumnBounds
from liquidlog.spec.schema import Leaf, PrimitiveType

Random = np.random.Generator
Numbers = np.ndarray[Any, np.dtype[Any]]


def _texts(numbers: Numbers, pattern: str) -> pa.Array:
    return pa.array(np.char.mod(pattern, numbers).tolist())


def _dates(random: Random, rows: int) -> pa.Array:
    days = random.integers(8_000, 10_526, rows).astype(np.int32)
    return pa.array(days).cast(pa.date32())


MAKERS: Mapping[str, Sequence[Callable[[Random, int], pa.Array]]] = {
    "uniform": [lambda random, rows: pa.array(random.integers(0, 10**9, rows))] * 4,
    "texts": [lambda random, rows: _texts(random.integers(0, 10**11, rows), "%012d")] * 2,
    "mixed": [_dates, lambda random, rows: _texts(random.integers(0, 10**8, rows), "key %09d")],
}
"""What makes each column of a kind of data, of so many rows."""


def rows_of(data: str, columns: int, rows: int) -> list[pa.Array]:
    """Return made-up columns, the same at every call."""
    random = np.random.default_rng(0)
    return [make(random, rows) for make in MAKERS[data][:columns]]


def bounds_by_file(columns: Sequence[pa.Array], file: Numbers) -> tuple[Bounds, Numbers]:
    """Return the bounds of files and how many rows they have; row i is in file `file[i]`."""
    order = np.argsort(file, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(file[order]) > 0))
    rows = np.diff(np.append(starts, len(order)))
    made = []
    for column in columns:
        rank = np.asarray(pc.rank(column, tiebreaker="first"))[order].astype(np.int64) - 1
        values = column.take(pc.array_sort_indices(column))
        made.append(
            ColumnBounds(
                low=values.take(pa.array(np.minimum.reduceat(rank, starts))),
                high=values.take(pa.array(np.maximum.reduceat(rank, starts))),
                null_count=pa.array(np.zeros(len(starts), np.int64)),
            )
        )
    return Bounds(columns=tuple(made), num_records=pa.array(rows)), rows


def files_of(bounds: Bounds, size_bytes: Numbers) -> Files:
    """Return files that are in no cube; no type of a column matters."""
    names = [(f"c{number}",) for number in range(len(bounds.columns))]
    kind = PrimitiveType("long")
    return Files(
        leaves=tuple(Leaf(name, name, kind, nullable=True) for name in names),
        bounds=bounds,
        size_bytes=size_bytes,
        is_measured=bounds.all_known(),
        cube=np.full(len(bounds), -1),
    )


def file_of_rows(columns: Sequence[pa.Array], files: int, *, curve: str) -> Numbers:
    """Return the file per row (int64), as the executor places rows with these values."""
    count = len(columns[0])
    ordinals = np.arange(count, dtype=np.uint64)
    kind = Curve(curve) if len(columns) > 1 else Curve.LINEAR
    layout, _ = place_columns(list(columns), ordinals, files, curve=kind)
    return np.asarray(np.unique(layout.slices(columns)[0], return_inverse=True)[1], np.int64)


def fresh(
    data: str, columns: int, files: int, *, curve: str = "hilbert", rows_per_file: int = 100
) -> tuple[Bounds, Numbers]:
    """Return the bounds and bytes of files just after a full rewrite."""
    made = rows_of(data, columns, files * rows_per_file)
    bounds, rows = bounds_by_file(made, file_of_rows(made, files, curve=curve))
    return bounds, 100 * rows


def never_clustered(
    data: str, columns: int, files: int, *, rows_per_file: int = 100
) -> tuple[Bounds, Numbers]:
    """Return the bounds and bytes of files with rows in the order in which they were made up."""
    made = rows_of(data, columns, files * rows_per_file)
    bounds, rows = bounds_by_file(made, np.repeat(np.arange(files), rows_per_file))
    return bounds, 100 * rows
