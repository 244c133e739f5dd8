"""The layout of a group: boundaries, curve and cuts, fixed before any row is moved.

The driver makes it once from the samples and sends it to every task: a row goes to the same place
in whatever order tasks run. Files are cut by rows or, if their sizes would differ much, by bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.curve.boxes import BOX_BITS, LEAST_SHARE, Boxes
from liquidlog.curve.curves import RowOrder, stable_order
from liquidlog.curve.cuts import CurveSample, Cuts, Ordinals, equal_cuts, refine_cuts
from liquidlog.curve.grid import Axis, Keys
from liquidlog.curve.layouts import KeyOrder, Prefixed, place_columns
from liquidlog.rewriting.source import Survey, WritingWork

_KEY_TYPES: Final = (pa.uint16(), pa.uint32(), pa.uint64())
_MIN_SIZE: Final = 0.4
_MAX_SIZES: Final = (1.6, 1.4, 1.4)
"""Largest output over the mean, as estimated: by rows within the first, by bytes within the others,
else cuts are equal. Chosen cuts make files of 0.5 to 1.5."""
_MIN_PIECE_BYTES: Final = 24 << 10
_MIN_PIECE_COLUMN_BYTES: Final = 256
"""Least stored bytes of a piece per column, for tables with hundreds: Arrow needs about as much to
describe a column."""
_MEASURED_PER_MEAN: Final = 64
_CHANCE: Final = 3.0
"""Standard errors by which a mean of this many widths must differ to count."""

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where rows go: `cuts` separate slices, and slice s is in output s // slices_per_output."""

    axes: tuple[Axis, ...]
    order: KeyOrder
    cuts: Cuts
    slices_per_output: int

    @property
    def outputs(self) -> int:
        """Number of output files; a prefix or readers may make it larger than planned."""
        return (len(self.cuts.keys) + 1) // self.slices_per_output

    @property
    def key_type(self) -> pa.DataType:
        """The narrowest unsigned type that holds all keys."""
        if isinstance(self.order, Prefixed):
            return pa.uint64()
        box_bits = BOX_BITS if isinstance(self.order, Boxes) else 0
        bits = box_bits + len(self.axes) * self.order.bits
        return next(kind for kind in _KEY_TYPES if bits <= kind.bit_width)

    def keys_of(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Keys:
        """Return the curve key of each row, (n,) uint64; `columns` are of n rows, one per axis."""
        coords = np.empty((len(columns[0]), len(columns)), np.uint32, order="F")
        for j, (axis, column) in enumerate(zip(self.axes, columns, strict=True)):
            coords[:, j] = axis.coordinates_of(column)
        return self.order.keys_of(coords)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How rows get to `tasks` writing tasks, of `outputs_per_task` each; regrouped in two steps."""

    tasks: int
    outputs_per_task: int
    slices_per_output: int
    in_two_steps: bool

    @property
    def slices_per_task(self) -> int:
        """Slices of one writing task."""
        return self.outputs_per_task * self.slices_per_output


def choose_route(work: WritingWork, *, slices_per_output: int) -> Route:
    """Return the route: with fewer writing tasks where pieces would be too small to describe."""
    slices = work.outputs * slices_per_output
    piece_bytes = max(_MIN_PIECE_BYTES, len(work.schema.fields) * _MIN_PIECE_COLUMN_BYTES)
    most = max(1, work.slice_bytes // piece_bytes)
    is_direct = slices <= most
    # With n slices, pieces have slice_bytes / sqrt(n) or more, in both steps.
    outputs_per_task = 1 if is_direct else -(-work.outputs // max(most, math.isqrt(slices)))
    return Route(
        tasks=-(-work.outputs // outputs_per_task),
        outputs_per_task=outputs_per_task,
        slices_per_output=slices_per_output,
        in_two_steps=not is_direct and outputs_per_task * slices_per_output > 1,
    )


def build_layout(work: WritingWork, surveys: Sequence[Survey]) -> Layout:
    """Return the layout of a group whose curve is not None."""
    assert work.curve is not None  # noqa: S101  compaction has no layout
    columns = [
        pa.concat_arrays([survey.columns[j] for survey in surveys if survey.columns])
        for j in range(len(work.columns))
    ]
    ordinals = [
        survey.rows + np.uint64(first)
        for survey, first in zip(surveys, first_ordinals(surveys), strict=True)
    ]
    measured = [
        survey.row_bytes * (survey.num_rows / max(len(survey.rows), 1)) for survey in surveys
    ]
    layout, sample = _even_layout(work, columns, np.concatenate(ordinals), np.concatenate(measured))
    work = replace(work, outputs=layout.outputs)
    slices = slices_per_output(work, memory_bytes=sum(survey.memory_bytes for survey in surveys))
    if slices == 1:
        return layout
    cuts = refine_cuts(sample, layout.cuts, slices=slices)
    return replace(layout, cuts=cuts, slices_per_output=slices)


def _even_layout(
    work: WritingWork, columns: Sequence[pa.Array], ordinals: Ordinals, measured: Weights
) -> tuple[Layout, CurveSample]:
    """Return the layout by rows, or by bytes if that would make files of very unlike sizes.

    `measured` (s,) float64 has the bytes that sampled rows stand for, NaN if not measured.
    """
    layout, sample = _fitted(work, columns, ordinals)
    if np.isnan(measured).all():
        return layout, sample
    # Each layout gives wide rows more room than the one before, hence purer neighbourhoods.
    for max_size in _MAX_SIZES:
        keys = layout.keys_of(columns)
        weights = local_means(measured, stable_order(keys))
        places = layout.cuts.parts_of(keys, ordinals)
        sizes = np.bincount(places, weights=weights, minlength=layout.outputs)
        least = _MIN_SIZE if not work.prefix else _MIN_SIZE * LEAST_SHARE
        if sizes.min() >= least * sizes.mean() and sizes.max() <= max_size * sizes.mean():
            return layout, sample
        # Rows in order, as often as they weigh.
        ends = np.cumsum(weights)
        steps = (np.arange(len(weights)) + 0.5) * (ends[-1] / len(weights))
        rows = np.minimum(np.searchsorted(ends, steps, side="right"), len(weights) - 1)
        taken = pa.array(rows)
        layout, sample = _fitted(work, [c.take(taken) for c in columns], ordinals[rows])
    if work.prefix:
        return layout, sample  # equal cuts would mix its values
    return replace(layout, cuts=equal_cuts(sample, work.outputs)), sample


def _fitted(
    work: WritingWork, columns: Sequence[pa.Array], ordinals: Ordinals
) -> tuple[Layout, CurveSample]:
    """Return the layout with one slice per output, and the sample in the order of its keys."""
    assert work.curve is not None  # noqa: S101  compaction has no layout
    conditions = None
    if work.readers is not None:
        conditions = work.readers.conditions([column.type for column in columns])
    placed = place_columns(
        columns,
        ordinals,
        work.outputs,
        curve=work.curve,
        conditions=conditions,
        prefix=work.prefix,
    )
    layout = Layout(axes=placed.axes, order=placed.order, cuts=placed.cuts, slices_per_output=1)
    return layout, placed.sample


def local_means(measured: Weights, order: RowOrder) -> Weights:
    """Return a weight for every sampled row: the mean of the bytes measured near it on the curve.

    A weight is 1 where it differs by no more than chance. `measured` has NaN for rows that were not
    measured; `order` (s,) int64 has the rows along the curve.
    """
    along = measured[order]
    known = np.flatnonzero(~np.isnan(along))
    values = along[known] / along[known].mean()
    count = max(1, len(known) // _MEASURED_PER_MEAN)
    edges = np.arange(count) * len(known) // count
    numbers = np.diff(np.append(edges, len(known)))
    means = np.add.reduceat(values, edges) / numbers
    variances = np.add.reduceat(values**2, edges) / numbers - means**2
    errors = np.sqrt(np.maximum(variances, 0) / numbers)
    means[np.abs(means - 1) <= _CHANCE * errors] = 1.0
    starts = known[edges]
    starts[0] = 0
    weights = np.empty(len(measured))
    weights[order] = np.repeat(means, np.diff(np.append(starts, len(along))))
    return weights


def slices_per_output(work: WritingWork, *, memory_bytes: int) -> int:
    """Return how many slices each output is sorted in, so that a slice takes `memory_bytes`."""
    by_stored = -(-work.size_bytes // (work.outputs * work.slice_bytes))
    by_memory = -(-memory_bytes // (work.outputs * work.slice_memory_bytes))
    return max(1, by_stored, by_memory)


def first_ordinals(surveys: Sequence[Survey]) -> list[int]:
    """Return the ordinal of the first row of each input, surveys in file order."""
    return [0, *accumulate(survey.num_rows for survey in surveys)][:-1]
