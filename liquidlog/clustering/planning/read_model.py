"""The read model: what narrow readers read, to judge rewrites before they run.

A reader asks for one value of one clustering column: every column equally often, every value in
proportion to its rows. One reader in 200 reads everything. Opening a file costs as much as reading
4 MiB (Spark's openCostInBytes). So a share w of the readers reads a file of width w. If rows that
span a share W of each of d columns are clustered into n files, the ideal width of a file is W /
n**(1/d). Real files are wider; the model measures the factor in the table's own cubes.

With the readers of a workload, the share of them that opens a file takes the place of its width.
What a full rewrite comes to is then foreseen by cells, which are fitted to these readers.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.readers import SpaceReaders, cells
from liquidlog.clustering.keyspace.widths import Floats, KeySpace
from liquidlog.spec.bounds import Mask

OPEN_COST_BYTES: Final = 4 << 20
"""Source: Spark, spark.sql.files.openCostInBytes."""

NARROWER: Final = 4
"""By what factor the files of a small cube may be smaller than the maximum size, to be as narrow as
those of a large cube."""

_SCAN_SHARE: Final = 0.005
_FEW_FILES: Final = 4
_LEAST_SHORTFALL: Final = 1.0
_MOST_SHORTFALL: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """The cost of reading one table for the mean reader, in bytes.

    `dimensions` is the number of clustering columns. `shortfall` (at least 1) is the factor by
    which files of clustered rows are wider than the ideal. With `readers`, `opened_share` is the
    share of them that opens a file of a full rewrite.
    """

    dimensions: int
    table_bytes: float
    max_file_bytes: int
    shortfall: float
    readers: SpaceReaders | None = None
    opened_share: float = 0.0

    def opened(self, space: KeySpace) -> Floats:
        """Return which share of the readers opens each file (float64, from 0 to 1)."""
        return space.widths if self.readers is None else self.readers.opened(space)

    @property
    def full_files(self) -> float:
        """The number of files that a full rewrite would write."""
        return max(1.0, self.table_bytes / self.max_file_bytes)

    @property
    def ideal(self) -> float:
        """The cost for the mean reader after a full rewrite, in bytes."""
        return self.after(self.table_bytes, 1.0, self.full_files)

    def now(self, size: Floats, opened: Floats) -> Floats:
        """Return the cost per file for the mean reader, in bytes (float64).

        `size` is in bytes, `opened` the share of the readers that opens a file.
        """
        return np.asarray((size + OPEN_COST_BYTES) * (opened + _SCAN_SHARE), np.float64)

    def after(self, size: float, extent: float, files: float) -> float:
        """Return the cost of `size` bytes of clustered rows in `files` files, in bytes."""
        width = extent * min(1.0, self.shortfall * float(files ** (-1 / self.dimensions)))
        if self.readers is not None:
            # Files as narrow as those of a full rewrite are opened by as many readers as those are.
            narrow = float(self.full_files ** (-1 / self.dimensions))
            relative = extent * float(files ** (-1 / self.dimensions)) / narrow
            width = min(1.0, self.opened_share * relative)
        return (size + files * OPEN_COST_BYTES) * (width + _SCAN_SHARE)

    def outputs(self, size: float, extent: float) -> int:
        """Return the number of files to write for `size` bytes.

        There are so many that they are as narrow as the files of a full rewrite, unless they would
        then be larger than the maximum size or smaller than a fixed part of it.
        """
        fewest = max(1, int(size // self.max_file_bytes))
        most = max(fewest, int(NARROWER * size // self.max_file_bytes))
        return min(max(fewest, round(self.full_files * extent**self.dimensions)), most)


def read_model(
    space: KeySpace,
    cubes: NDArray[np.int64],
    files: Mask,
    max_file_bytes: int,
    *,
    curve: str = "hilbert",
    readers: SpaceReaders | None = None,
) -> ReadModel:
    """Return the read model of the chosen `files` (a mask with one bool per file of `space`).

    `cubes` numbers the cube of each file (int64, -1 for none), for measuring the shortfall. With
    `readers`, costs are theirs, and a rewrite orders rows by the `curve`, fitted to them.
    """
    model = ReadModel(
        dimensions=len(space.columns),
        table_bytes=float(space.size_bytes[files].sum()),
        max_file_bytes=max_file_bytes,
        shortfall=_shortfall(space, np.where(files, cubes, -1)),
        readers=readers,
    )
    if readers is None or not files.any():
        return model
    outputs = max(1, round(model.full_files))
    size, opened = cells(space.part(files), outputs, curve=curve, readers=readers)
    return replace(model, opened_share=float(size @ opened) / max(float(size.sum()), 1.0))


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
