"""The layout of a group: boundaries, curve and cuts, fixed before any row is moved.

Made once on the driver from the samples, then shipped to every task: each task sends a row to
the same place, whatever the order in which tasks run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.curve.cuts import Cuts, Ordinals, refine_cuts
from liquidlog.curve.grid import Keys
from liquidlog.curve.placing import KeyOrder, key_order_bits, place_rows
from liquidlog.curve.ranges import Axis
from liquidlog.spec.arrow import leaf_column
from liquidspark.source import GroupWork, Survey

MAX_RANGES: Final = 4096
"""Ranges of each of several columns; four times the reference engine's, at no measurable cost."""

MAX_RANGES_ALONE: Final = 1 << 16
"""Ranges of a sole clustering column, of which each can straddle only two files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where every row of a group goes.

    `cuts` separate slices, which are what a task sorts at a time. Each output has
    `slices_per_output` of them, so that slice s is in output s // slices_per_output.
    """

    axes: tuple[Axis, ...]
    order: KeyOrder
    cuts: Cuts
    slices_per_output: int

    def keys_of(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Keys:
        """Return the curve key of each row, (n,) uint64; `columns` are of n rows, one per axis."""
        coords = np.empty((len(columns[0]), len(columns)), np.uint32, order="F")
        for j, (axis, column) in enumerate(zip(self.axes, columns, strict=True)):
            coords[:, j] = axis.coordinates_of(column)
        return self.order.keys_of(coords)


def table_keys(work: GroupWork, layout: Layout, table: pa.Table) -> Keys:
    """Return the curve key of each row of a table, (n,) uint64."""
    return layout.keys_of([leaf_column(table, path) for path in work.columns])


def build_layout(work: GroupWork, surveys: Sequence[Survey]) -> Layout:
    """Return the layout of a group whose curve is not None.

    Args:
        work: The group.
        surveys: One per input that has rows, in file order.
    """
    assert work.curve is not None  # noqa: S101  compaction has no layout
    d = len(work.columns)
    bits = key_order_bits(d, work.curve)
    columns = [
        pa.concat_arrays([survey.columns[j] for survey in surveys if survey.columns])
        for j in range(d)
    ]
    max_ranges = min(MAX_RANGES if d > 1 else MAX_RANGES_ALONE, 1 << bits)
    axes, coords = [], np.empty((len(columns[0]), d), np.uint32, order="F")
    for j, column in enumerate(columns):
        axis, coords[:, j] = Axis.fit(column, max_ranges=max_ranges, bits=bits)
        axes.append(axis)
    order, sample, cuts = place_rows(
        coords, _ordinals(surveys), work.outputs, curve=work.curve, bits=bits
    )
    slices = slices_per_output(work, memory_bytes=sum(survey.memory_bytes for survey in surveys))
    return Layout(
        axes=tuple(axes),
        order=order,
        cuts=refine_cuts(sample, cuts, slices=slices) if slices > 1 else cuts,
        slices_per_output=slices,
    )


def slices_per_output(work: GroupWork, *, memory_bytes: int) -> int:
    """Return how many slices the rows of each output are sorted in.

    Args:
        work: The group.
        memory_bytes: About what all of its rows take in memory.
    """
    by_stored = -(-work.size_bytes // (work.outputs * work.slice_bytes))
    by_memory = -(-memory_bytes // (work.outputs * work.slice_memory_bytes))
    return max(1, by_stored, by_memory)


def first_ordinals(surveys: Sequence[Survey]) -> list[int]:
    """Return the ordinal of the first row of each input, surveys in file order."""
    return [0, *accumulate(survey.num_rows for survey in surveys)][:-1]


def _ordinals(surveys: Sequence[Survey]) -> Ordinals:
    firsts = first_ordinals(surveys)
    return np.concatenate(
        [survey.rows + np.uint64(first) for survey, first in zip(surveys, firsts, strict=True)]
    )
