"""Health within and between cubes: whether a cube is sorted, and whether cubes overlap."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.depth import KeyRanges, depths, key_ranges, overlaps

CUBES_LISTED: Final = 1_000
"""The number of cubes that are listed one by one: the worst ones."""

_DECIMALS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeHealth:
    """The health of one cube: depths and overlaps count only files of the cube itself.

    `overlapping_cubes` counts other cubes. `files` and `size_bytes` cover the files of the cube
    that have statistics of all columns.
    """

    zcube_id: str
    state: str
    files: int
    size_bytes: int
    average_depth: float
    max_depth: int
    average_overlaps: float
    overlapping_cubes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CubeFiles:
    """The files that are in a cube and have ranges; all arrays have one entry per file.

    `cube` (int64) is equal for files of the same cube; `ranges` has one entry per column.
    """

    cube: NDArray[np.int64]
    zcube_id: pa.ChunkedArray
    state: pa.Array
    size_bytes: NDArray[np.int64]
    ranges: Sequence[KeyRanges]


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Means over files within their cubes, and means over cubes; None if there are no cubes."""

    average_depth_within: float | None
    average_overlaps_within: float | None
    average_depth_between: float | None
    average_overlaps_between: float | None
    cubes: tuple[CubeHealth, ...]


def measure_cubes(files: CubeFiles) -> Between:
    """Return the health within and between cubes, and that of the worst CUBES_LISTED cubes.

    The worst cubes have the deepest files; among equals, those that overlap most other cubes.
    """
    if not len(files.cube):
        return Between(
            average_depth_within=None,
            average_overlaps_within=None,
            average_depth_between=None,
            average_overlaps_between=None,
            cubes=(),
        )
    # With the cube number as outermost column, ranges of different cubes never meet.
    apart = key_ranges([KeyRanges(lo=files.cube, hi=files.cube), *files.ranges])
    depth, overlap = depths(apart), overlaps(apart)
    _, first, member, count = np.unique(
        files.cube, return_index=True, return_inverse=True, return_counts=True
    )
    whole = _ranges_of_cubes(key_ranges(files.ranges), member, len(first))
    between = overlaps(whole)
    deepest = np.zeros(len(first), np.int64)
    np.maximum.at(deepest, member, depth)
    rows = pa.table(
        {
            "zcube_id": pc.cast(files.zcube_id.take(pa.array(first)), pa.string()),
            "state": files.state.take(pa.array(first)),
            "files": count,
            "size_bytes": _sums(member, files.size_bytes),
            "average_depth": np.round(_sums(member, depth) / count, _DECIMALS),
            "max_depth": deepest,
            "average_overlaps": np.round(_sums(member, overlap) / count, _DECIMALS),
            "overlapping_cubes": between,
        }
    )
    worst = ("average_depth", "overlapping_cubes", "size_bytes")
    ranked = rows.sort_by([*((name, "descending") for name in worst), ("zcube_id", "ascending")])
    return Between(
        average_depth_within=_mean(depth),
        average_overlaps_within=_mean(overlap),
        average_depth_between=_mean(depths(whole)),
        average_overlaps_between=_mean(between),
        cubes=tuple(CubeHealth(**row) for row in ranked.slice(0, CUBES_LISTED).to_pylist()),
    )


def _ranges_of_cubes(files: KeyRanges, member: NDArray[np.int64], cubes: int) -> KeyRanges:
    """Return the range from the first to the last key per cube."""
    lo = np.full(cubes, np.iinfo(np.int64).max)
    hi = np.zeros(cubes, np.int64)
    np.minimum.at(lo, member, files.lo)
    np.maximum.at(hi, member, files.hi)
    return KeyRanges(lo=lo, hi=hi)


def _sums(member: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    sums = np.zeros(int(member.max()) + 1, np.int64)
    np.add.at(sums, member, values)
    return sums


def _mean(values: NDArray[np.int64]) -> float:
    return round(float(values.mean()), _DECIMALS)
