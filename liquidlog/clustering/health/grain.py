"""What narrow readers open inside files: one value of one clustering column, by row groups.

Every column is asked for equally often, every value in proportion to its rows, as in
`keyspace.widths`: a reader opens a row group with a probability equal to the row group's width.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liquidlog.clustering.keyspace.widths import Floats, key_space
from liquidlog.spec.bounds import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupHealth:
    """How many row groups and bytes the mean narrow reader opens.

    The footers of `files_sampled` of the `files` that are measured were read. `total` is the number
    of row groups in these files, `opened` and `bytes_opened` are means over readers that skip row
    groups, `file_bytes_opened` is the mean of readers that skip files only. If not all files were
    sampled, these four are estimates, in proportion to bytes; if none was, they are None.
    """

    files: int
    files_sampled: int
    total: float | None
    opened: float | None
    bytes_opened: float | None
    file_bytes_opened: float | None


def measure_row_groups(
    bounds: Bounds,
    size_bytes: NDArray[np.int64],
    file: NDArray[np.int64],
    *,
    sampled_bytes: NDArray[np.int64],
    all_bytes: NDArray[np.int64],
) -> RowGroupHealth:
    """Return what narrow readers open.

    Args:
        bounds: Of the clustering columns, one entry per row group of the sampled files.
        size_bytes: Of each row group.
        file: The number of each row group's file, an index of `sampled_bytes`.
        sampled_bytes: Sizes of the sampled files.
        all_bytes: Sizes of all measured files.
    """
    files, sampled = len(all_bytes), len(sampled_bytes)
    if files and not sampled:
        return RowGroupHealth(
            files=files,
            files_sampled=0,
            total=None,
            opened=None,
            bytes_opened=None,
            file_bytes_opened=None,
        )
    scale = float(all_bytes.sum()) / max(1.0, float(sampled_bytes.sum()))
    scale = scale if sampled < files else 1.0
    space = key_space(bounds, size_bytes)
    widths = space.widths
    of_files = np.mean(
        [_file_widths(spans.low, spans.high, file, sampled) for spans in space.columns], axis=0
    )
    return RowGroupHealth(
        files=files,
        files_sampled=sampled,
        total=round(len(size_bytes) * scale, 4),
        opened=round(float(widths.sum()) * scale, 4),
        bytes_opened=round(float(size_bytes @ widths) * scale, 4),
        file_bytes_opened=round(float(sampled_bytes @ of_files) * scale, 4),
    )


def _file_widths(low: Floats, high: Floats, file: NDArray[np.int64], files: int) -> Floats:
    """Return the width of each file (float64): from its lowest row group's end to its highest's."""
    first, last = np.full(files, np.inf), np.full(files, -np.inf)
    np.minimum.at(first, file, low)
    np.maximum.at(last, file, high)
    # A file without row groups has no rows.
    return np.asarray(np.maximum(last - first, 0.0), np.float64)
