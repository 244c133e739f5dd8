"""What narrow readers read: the model by which rewrites are judged before they run.

A reader asks for one value of one clustering column, each column as often as the others, each
value as often as there are rows of it; one reader in 200 reads everything. Opening a file costs
as much as reading 4 MiB (Spark's openCostInBytes). A file of width w is then read by a share w of
the readers; n files into which rows of extent W are clustered have a width of W / n**(1/d) each,
for d columns, times what clustering of this very table has been found to fall short of that.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.widths import Floats, KeySpace, Mask

OPEN_COST_BYTES: Final = 4 << 20
"""Source: Spark, spark.sql.files.openCostInBytes."""

NARROWER: Final = 4
"""A small cube may have files this many times smaller than the maximum, to be as narrow as those
of a large one."""

_SCAN_SHARE: Final = 0.005
_FEW_FILES: Final = 4
_LEAST_SHORTFALL: Final = 1.0
_MOST_SHORTFALL: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """Reading costs of one table, in bytes a reader; `shortfall` is 1 where theory is reached."""

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
        """Bytes a reader would read after a full rewrite."""
        return self.after(self.table_bytes, 1.0, self.full_files)

    def now(self, size: Floats, widths: Floats) -> Floats:
        """Return what each file costs a reader."""
        return np.asarray((size + OPEN_COST_BYTES) * (widths + _SCAN_SHARE), np.float64)

    def after(self, size: float, extent: float, files: float) -> float:
        """Return what files of `size` bytes together cost a reader once they are clustered."""
        width = extent * min(1.0, self.shortfall * float(files ** (-1 / self.dimensions)))
        return (size + files * OPEN_COST_BYTES) * (width + _SCAN_SHARE)

    def outputs(self, size: float, extent: float) -> int:
        """Return how many files to make of `size` bytes: as narrow as those of a full rewrite.

        They are not larger than the maximum, nor smaller than a fixed part of it.
        """
        fewest = max(1, int(size // self.max_file_bytes))
        most = max(fewest, int(NARROWER * size // self.max_file_bytes))
        return min(max(fewest, round(self.full_files * extent**self.dimensions)), most)


def read_model(
    space: KeySpace, cubes: NDArray[np.int64], files: Mask, max_file_bytes: int
) -> ReadModel:
    """Return the model of the table that `files` are.

    `cubes` has each file's cube, -1 for none: how far clustering falls short is measured there.
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
    found = float(counted @ space.widths[rows]) / total
    return min(max(found, _LEAST_SHORTFALL), _MOST_SHORTFALL)
