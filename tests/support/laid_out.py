"""Real rows laid out in files by the executor's own kernels, with the bounds of these rows."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.curves import Curve
from liquidlog.curve.layouts import place_columns
from liquidlog.foresee.ratios import Files
from liquidlog.spec.bounds import Bounds, ColumnBounds, concat_bounds
from liquidlog.spec.schema import Leaf, PrimitiveType

Random = np.random.Generator
Numbers = np.ndarray[Any, np.dtype[Any]]

DAYS = 2_526


def _texts(numbers: Numbers, pattern: str) -> pa.Array:
    return pa.array(np.char.mod(pattern, numbers).tolist())


def _dates(days: Numbers) -> pa.Array:
    return pa.array((8_000 + days).astype(np.int32)).cast(pa.date32())


def _flags(random: Random, rows: int) -> pa.Array:
    return _texts(random.choice(3, rows, p=[0.25, 0.5, 0.25]), "flag %d")


def _close(random: Random, rows: int, columns: int) -> list[pa.Array]:
    first = random.random(rows)
    return [pa.array(first + 0.01 * number * random.random(rows)) for number in range(columns)]


def _mixed(random: Random, rows: int, columns: int) -> list[pa.Array]:
    made = [
        _dates(random.integers(0, DAYS, rows)),
        _texts(random.integers(0, 10**8, rows), "key %09d"),
        _flags(random, rows),
        pa.array(random.random(rows)),
    ]
    return made[:columns]


def _each(
    made: Callable[[Random, int], pa.Array],
) -> Callable[[Random, int, int], list[pa.Array]]:
    return lambda random, rows, columns: [made(random, rows) for _ in range(columns)]


DATA: dict[str, Callable[[Random, int, int], list[pa.Array]]] = {
    "uniform": _each(lambda random, rows: pa.array(random.integers(0, 10**9, rows))),
    "skewed": _each(lambda random, rows: pa.array(np.minimum(random.zipf(1.3, rows), 10**6))),
    "spread": _each(lambda random, rows: pa.array(np.exp(3 * random.standard_normal(rows)))),
    "correlated": _close,
    "dates": _each(lambda random, rows: _dates(random.integers(0, DAYS, rows))),
    "times": _each(
        lambda random, rows: pa.array(random.integers(0, 10**15, rows)).cast(pa.timestamp("us"))
    ),
    "decimals": _each(
        lambda random, rows: pc.multiply(
            pa.array(random.integers(0, 10**6, rows)).cast(pa.decimal128(19)), Decimal("0.01")
        )
    ),
    "texts": _each(lambda random, rows: _texts(random.integers(0, 10**11, rows), "%012d")),
    "cities": _each(lambda random, rows: _texts(random.integers(0, 500, rows), "city %d")),
    "flags first": lambda random, rows, columns: [
        _flags(random, rows),
        *DATA["uniform"](random, rows, columns - 1),
    ],
    "flags last": lambda random, rows, columns: [
        *DATA["uniform"](random, rows, columns - 1),
        _flags(random, rows),
    ],
    "constant": _each(lambda _, rows: pa.array(np.full(rows, 7))),
    "mixed": _mixed,
}
"""Makes columns of a kind of data: (random numbers, rows, columns) -> the columns."""


def rows_of(data: str, columns: int, rows: int, *, seed: int = 0) -> list[pa.Array]:
    """Return made-up columns, the same at every call."""
    return DATA[data](np.random.default_rng(seed), rows, columns)


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
    found = place_columns(list(columns), ordinals, files, curve=kind)
    return np.asarray(np.unique(found.parts(columns)[0], return_inverse=True)[1], np.int64)


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


def appended(
    table: tuple[Bounds, Numbers], data: str, columns: int, *, files: int, rows: int
) -> tuple[Bounds, Numbers]:
    """Return a table with some more files of so many rows, which nobody clustered."""
    made = rows_of(data, columns, files * rows, seed=1)
    more, counts = bounds_by_file(made, np.repeat(np.arange(files), rows))
    return concat_bounds([table[0], more]), np.concatenate([table[1], 100 * counts])
