"""Simulated tables: the keys of a sample of made-up rows, and the file that each row is in.

Planners see such a table as an ordinary Snapshot with exact bounds. A rewrite places the sampled
rows with the executor's own kernels, so that its files are as uneven as real ones.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.cells import placed
from liquidlog.simulation.imagined import ImaginedFiles, imagined_table
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, ColumnBounds

Points = NDArray[np.float64]
Rows = NDArray[np.int64]

NO_CUBE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedTable:
    """A sample of a table's live rows, and its files.

    Per row: `points` (float64, rows by columns) has its keys, `ids` its id in the order of arrival,
    `owner` the number of its file. Per file: `low` and `high` (float64, files by columns) are the
    bounds, `size` is in bytes, `rows` and `deleted` count sampled rows, `cube` is its cube or
    NO_CUBE, and `names` is a number that stays the same when its position changes. `cubes` and
    `made` count the cubes and files made so far.
    """

    points: Points
    ids: Rows
    owner: Rows
    low: Points
    high: Points
    size: Rows
    rows: Rows
    deleted: Rows
    cube: Rows
    names: Rows
    cubes: int = 0
    made: int = 0

    @property
    def columns(self) -> int:
        """The number of clustering columns."""
        return int(self.points.shape[1])

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return int(self.size.sum())


def empty_table(columns: int) -> SimulatedTable:
    """Return a table without rows."""
    nothing = np.zeros(0, np.int64)
    return SimulatedTable(
        points=np.zeros((0, columns)),
        ids=nothing,
        owner=nothing,
        low=np.zeros((0, columns)),
        high=np.zeros((0, columns)),
        size=nothing,
        rows=nothing,
        deleted=nothing,
        cube=nothing,
        names=nothing,
    )


def with_files(
    table: SimulatedTable,
    points: Points,
    ids: Rows,
    parts: Rows,
    size: Rows,
    *,
    cube: int = NO_CUBE,
) -> SimulatedTable:
    """Return the table with new files: row i is in file `parts[i]`, file j has `size[j]` bytes."""
    count = len(size)
    low, high = np.full((count, table.columns), np.inf), np.full((count, table.columns), -np.inf)
    np.minimum.at(low, parts, points)
    np.maximum.at(high, parts, points)
    return replace(
        table,
        points=np.concatenate([table.points, points]),
        ids=np.concatenate([table.ids, ids]),
        owner=np.concatenate([table.owner, parts + len(table.size)]),
        low=np.concatenate([table.low, low]),
        high=np.concatenate([table.high, high]),
        size=np.concatenate([table.size, size]),
        rows=np.concatenate([table.rows, np.bincount(parts, minlength=count)]),
        deleted=np.concatenate([table.deleted, np.zeros(count, np.int64)]),
        cube=np.concatenate([table.cube, np.full(count, cube)]),
        names=np.concatenate([table.names, table.made + np.arange(count)]),
        made=table.made + count,
    )


def without_rows(table: SimulatedTable, ids: Rows) -> SimulatedTable:
    """Return the table with some of its rows deleted by deletion vectors."""
    gone = np.isin(table.ids, ids)
    deleted = table.deleted + np.bincount(table.owner[gone], minlength=len(table.size))
    return replace(_with_rows(table, ~gone), deleted=deleted)


def _with_rows(table: SimulatedTable, mask: NDArray[np.bool_]) -> SimulatedTable:
    return replace(table, points=table.points[mask], ids=table.ids[mask], owner=table.owner[mask])


def rewritten(table: SimulatedTable, files: Rows, outputs: int, *, curve: str) -> SimulatedTable:
    """Return the table after a rewrite of some files into one cube of about `outputs` files."""
    kept = np.ones(len(table.size), np.bool_)
    kept[files] = False
    stays = kept[table.owner]
    points, ids = table.points[~stays], table.ids[~stays]
    live = (table.rows - table.deleted) / np.maximum(table.rows, 1)
    size = float(table.size[~kept] @ live[~kept])
    rest = _with_rows(table, stays)
    rest = replace(
        rest,
        owner=(np.cumsum(kept) - 1)[rest.owner],
        cubes=table.cubes + 1,
        **{name: getattr(table, name)[kept] for name in _FILE_ARRAYS},
    )
    if not len(points):
        return rest
    _, parts = np.unique(placed(points, outputs, curve=curve), return_inverse=True)
    made = np.maximum((size * np.bincount(parts) / len(parts)).astype(np.int64), 1)
    return with_files(rest, points, ids, parts, made, cube=table.cubes)


def in_next_cube(table: SimulatedTable, files: Rows) -> SimulatedTable:
    """Return the table with some files in the cube that the next rewrite makes."""
    cube = table.cube.copy()
    cube[files] = table.cubes
    return replace(table, cube=cube)


_FILE_ARRAYS: Final = ("low", "high", "size", "rows", "deleted", "cube", "names")


def as_snapshot(table: SimulatedTable) -> Snapshot:
    """Return the table as planners see it: a snapshot with these live files in this order."""
    cubes = [None if cube == NO_CUBE else f"cube-{cube:08d}" for cube in table.cube.tolist()]
    return imagined_table(
        [f"k{number}" for number in range(table.columns)],
        ImaginedFiles(
            paths=pa.array([f"{name:09d}" for name in table.names.tolist()], pa.string()),
            size_bytes=table.size,
            num_records=pa.array(table.rows),
            deleted_rows=table.deleted,
            zcube_id=pa.array(cubes, pa.string()),
        ),
    )


def exact_bounds(table: SimulatedTable) -> Bounds:
    """Return the bounds of all columns, one entry per file; no row is null."""
    no_nulls = pa.array(np.zeros(len(table.size), np.int64))
    return Bounds(
        columns=tuple(
            ColumnBounds(low=pa.array(low), high=pa.array(high), null_count=no_nulls)
            for low, high in zip(table.low.T, table.high.T, strict=True)
        ),
        num_records=pa.array(table.rows),
    )
