"""What narrow readers read: the model by which rewrites are judged before they run.

A reader asks for one value of one clustering column: every column equally often, every value in
proportion to its rows. One reader in 200 reads everything. Opening a file costs as much as
reading 4 MiB (Spark's openCostInBytes). A share w of the readers then reads a file of width w. If
rows that span W of each of d columns are clustered into n files, each file ideally has a width of
W / n**(1/d). Real files are wider; the model measures by what factor in the table's own cubes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.widths import Floats, KeySpace
from liquidlog.spec.bounds import Mask

OPEN_COST_BYTES: Final = 4 << 20
"""Source: Spark, spark.sql.files.openCostInBytes."""

NARROWER: Final = 4
"""How many times smaller than the maximum the files of a small cube may be, so that they are as
narrow as those of a large one."""

_SCAN_SHARE: Final = 0.005
_FEW_FILES: Final = 4
_LEAST_SHORTFALL: Final = 1.0
_MOST_SHORTFALL: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """What reading one table costs the mean reader, in bytes.

    `dimensions` counts the clustering columns. `shortfall`, at least 1, is how many times wider
    files of clustered rows are than in theory.
    """

    dimensions: int
    table_bytes: float
    max_file_bytes: int
    shortfall: float

    @property
    def full_files(self) -> float:
        """How many files a full rewrite would make."""
        return max(1.0, self.table_bytes / self.max_file_bytes)

    @property
    def ideal(self) -> float:
        """What a reader would read after a full rewrite, in bytes."""
        return self.after(self.table_bytes, 1.0, self.full_files)

    def now(self, size: Floats, widths: Floats) -> Floats:
        """Return what each file costs a reader, in bytes (float64); `size` is in bytes."""
        return np.asarray((size + OPEN_COST_BYTES) * (widths + _SCAN_SHARE), np.float64)

    def after(self, size: float, extent: float, files: float) -> float:
        """Return what `size` bytes of clustered rows in `files` files cost a reader, in bytes."""
        width = extent * min(1.0, self.shortfall * float(files ** (-1 / self.dimensions)))
        return (size + files * OPEN_COST_BYTES) * (width + _SCAN_SHARE)

    def outputs(self, size: float, extent: float) -> int:
        """Return how many files to make of `size` bytes.

        They are as narrow as the files of a full rewrite, as far as sizes allow: at most the
        maximum size, at least a fixed part of it.
        """
        fewest = max(1, int(size // self.max_file_bytes))
        most = max(fewest, int(NARROWER * size // self.max_file_bytes))
        return min(max(fewest, round(self.full_files * extent**self.dimensions)), most)


def read_model(
    space: KeySpace, cubes: NDArray[np.int64], files: Mask, max_file_bytes: int
) -> ReadModel:
    """Return the model of a table of the chosen `files` (a mask, one bool per file of `space`).

    `cubes` numbers the cube of each file (int64, -1 for none): the shortfall is measured in cubes.
    """
    return ReadModel(
        dimensions=len(space.columns),
        table_bytes=float(space.size_bytes[files].sum()),
        max_file_bytes=max_file_bytes,
        shortfall=_shortfall(space, np.where(files, cubes, -1)),
    )


def _shortfall(space: KeySpace, cubes: NDArray[np.int64]) -> float:
    rows = np.flatnonzero(cubes >= 0)
    if not len(rows):
        return 1.0
    _, cube, files = np.unique(cubes[rows], return_inverse=True, return_counts=True)
    extent = np.zeros(len(files))
    for spans in space.columns:
        low, high = np.full(len(files), np.inf), np.zeros(len(files))
        np.minimum.at(low, cube, spans.low[rows])
        np.maximum.at(high, cube, spans.high[rows])
        extent += (high - low) / len(space.columns)
    expected = extent * files ** (-1 / len(space.columns))
    counted = space.size_bytes[rows] * (files[cube] >= _FEW_FILES)
    total = float(counted @ expected[cube])
    if total <= 0:
        return 1.0
    factor = float(counted @ space.widths[rows]) / total
    return min(max(factor, _LEAST_SHORTFALL), _MOST_SHORTFALL)
