"""The read model: what narrow readers read, to judge rewrites before they run.

A reader asks for one value of one clustering column: every column equally often, every value in
proportion to its rows. One reader in 200 reads everything. Opening a file costs as much as reading
4 MiB (Spark's openCostInBytes). So a share w of the readers reads a file of width w. If rows that
span a share W of each of d columns are clustered into n files, the ideal width of a file is W /
n**(1/d). Real files are wider; the model measures the factor in the table's own cubes.

With a workload, the share of its queries that open a file takes the place of its width. A full
rewrite is then predicted by cells, which are fitted to the workload.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.choice import Choice, reason_code
from liquidlog.clustering.keyspace import (
    ColumnSpans,
    Floats,
    KeySpace,
    SpaceReaders,
    cells,
    space_readers,
)
from liquidlog.clustering.zcubes import Membership
from liquidlog.plan import ClusteringPolicy, FittedWorkload, SkipReason
from liquidlog.snapshot import Snapshot, num_records
from liquidlog.spec.bounds import Bounds, Mask

OPEN_COST_BYTES: Final = 4 << 20
"""Source: Spark, spark.sql.files.openCostInBytes."""
NARROWER: Final = 4
"""The largest factor by which files of a small cube may be below the maximum size."""
_SCAN_SHARE: Final = 0.005
_FEW_FILES: Final = 4
_LEAST_SHORTFALL: Final = 1.0
_MOST_SHORTFALL: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """The bytes that the mean query of one table costs.

    `shortfall` (at least 1) is the factor by which files of clustered rows are wider than the
    ideal. `opened_share` of the `readers` opens a file of a full rewrite.
    """

    dimensions: int
    table_bytes: float
    max_file_bytes: int
    curve: str
    shortfall: float
    readers: SpaceReaders | None = None
    opened_share: float = 0.0

    def opened(self, space: KeySpace) -> Floats:
        """Return the share of the queries that open each file (float64, from 0 to 1)."""
        return space.widths if self.readers is None else self.readers.opened(space)

    @property
    def full_files(self) -> float:
        """The number of files that a full rewrite would write."""
        return max(1.0, self.table_bytes / self.max_file_bytes)

    @property
    def ideal(self) -> float:
        """The cost of the mean query after a full rewrite, in bytes."""
        return self.after(self.table_bytes, 1.0, self.full_files)

    def now(self, size: Floats, opened: Floats) -> Floats:
        """Return the cost of each file for the mean query, in bytes (float64)."""
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
        """Return the number of files for `size` bytes, as narrow as those of a full rewrite."""
        return self.bounded(size, self.full_files * extent**self.dimensions)

    def bounded(self, size: float, outputs: float) -> int:
        """Return the number of files for `size` bytes within the limits of a file's size."""
        fewest = max(1, int(size // self.max_file_bytes))
        most = max(fewest, int(NARROWER * size // self.max_file_bytes))
        return min(max(fewest, round(outputs)), most)


def read_model(
    space: KeySpace,
    bounds: Bounds,
    places: Membership,
    policy: ClusteringPolicy,
    readers: FittedWorkload | None,
) -> ReadModel:
    """Return the read model of files with one entry each in `space`, `bounds` and `places`."""
    model = ReadModel(
        dimensions=len(space.columns),
        table_bytes=float(space.size_bytes.sum()),
        max_file_bytes=policy.max_file_bytes,
        curve=policy.curve,
        shortfall=_shortfall(space, places.own_cube),
        readers=None if readers is None else space_readers(bounds, space.size_bytes, readers),
    )
    if model.readers is None or not len(space.size_bytes):
        return model
    outputs = max(1, round(model.full_files))
    size, opened = cells(space, outputs, curve=model.curve, readers=model.readers)
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


# Kept inputs: files of a group that lie well, so that they join its cube without being rewritten
#
# A file can be kept if the log alone tells where its rows are: it has bounds and no null in
# every clustering column, no deleted row, and about the size of a rewritten file. The choice is
# one for the whole group: the widest files (for a workload, the most opened ones) are
# rewritten, alone or with all files in their region, as far as queries then read little more
# than after a rewrite of the whole group. The choice that rewrites the fewest bytes is taken.
# Rewritten files are as narrow as after the whole rewrite, so they may be smaller.

_SMALLEST: Final = 0.8 / NARROWER
_LARGEST: Final = 1.5
"""Limits of a kept file's size, as multiples of the mean size of rewritten files."""
_THRESHOLDS: Final = 16

_DRAWS: Final = 4
_FEW_OUTPUTS: Final = 64
"""Where files are few, one that a predicate opens by chance counts much."""


def keepable(snapshot: Snapshot, places: Membership, bounds: Bounds) -> Mask:
    """Return which live files may be kept, whatever their size; bounds need not be tight."""
    counted = pc.is_valid(num_records(snapshot.files))
    whole = pc.is_null(snapshot.files["deletion_vector"])
    mask = np.asarray(counted, np.bool_) & np.asarray(whole, np.bool_)
    mask &= places.candidates & bounds.all_known()
    for number in range(len(bounds.columns)):
        nulls = pc.fill_null(bounds.null_count(number), 1)
        mask &= np.asarray(pc.equal(nulls, 0), np.bool_)
    return mask


def without_kept(
    choice: Choice, space: KeySpace, model: ReadModel, may: Mask, *, tolerance: float
) -> Choice:
    """Return a choice whose groups keep the files that lie well, and rewrite the others.

    `space` and `may`, the mask of files that may be kept, have one entry per live file. `tolerance`
    limits the bytes that queries read of a group, as a multiple of those after its rewrite.
    """
    reasons = choice.reasons.copy()
    groups, outputs, kept = [], [], []
    for files, expected in zip(choice.groups, choice.expected_outputs, strict=True):
        group = _Group(space.part(files), model, expected, tolerance)
        rest = group.rewritten(may[files])
        if not rest.any():
            reasons[files] = reason_code(SkipReason.WELL_CLUSTERED)
            continue
        groups.append(files[rest])
        kept.append(files[~rest])
        outputs.append(group.outputs_of(rest))
    return Choice(
        groups=tuple(groups), reasons=reasons, expected_outputs=tuple(outputs), kept=tuple(kept)
    )


class _Group:
    """The files of a group, of which a rewrite would write `outputs`; masks have one entry each."""

    def __init__(self, space: KeySpace, model: ReadModel, outputs: int, tolerance: float) -> None:
        self._space = space
        self._model = model
        self._outputs = outputs
        self._tolerance = tolerance
        self._everything = np.ones(len(space.size_bytes), np.bool_)
        self._opened = model.opened(space)
        self._extent = space.extent(self._everything)

    def rewritten(self, may: Mask) -> Mask:
        """Return which files are rewritten, if some may be kept."""
        size = self._space.size_bytes
        mean = float(size.sum()) / self._outputs
        may = may & (size >= _SMALLEST * mean) & (size <= _LARGEST * mean)
        if self._outputs <= 1 or not may.any():
            return self._everything
        limit = self._tolerance * self._cost_of_rewrite(self._everything)
        cost = self._model.now(size, self._opened)
        options = {rest.tobytes(): rest for rest in self._options(may)}
        for rest in sorted(options.values(), key=lambda rest: float(size[rest].sum())):
            left = limit - float(cost[~rest].sum())
            if left >= 0 and self._cost_of_rewrite(rest) <= left:
                return rest
        return self._everything

    def _options(self, may: Mask) -> Iterator[Mask]:
        """Yield masks of files to rewrite: the most opened ones, then their region too."""
        widths = self._opened
        steps = np.quantile(widths[may], np.linspace(0, 1, _THRESHOLDS), method="lower")
        for step in np.unique(steps):
            wide = ~may | (widths > step)
            yield wide
            # Their region: files whose middle is where they lie, in every column.
            yield wide | (may & np.all([_covers(wide, one) for one in self._space.columns], axis=0))

    def _cost_of_rewrite(self, files: Mask) -> float:
        """Return the cost of `files` for the mean query after a rewrite of them alone, in bytes.

        Two estimates are both rather too high, so the lower counts: made-up rows of cells spread
        wider than files that overlap, and columns are taken as independent. For a workload, the
        lowest of some draws of cells counts.
        """
        if not files.any():
            return 0.0
        outputs = self.outputs_of(files)
        part = self._space.part(files)
        if self._model.readers is not None:
            draws = _DRAWS if outputs <= _FEW_OUTPUTS else 1
            return min(self._foreseen(part, outputs, draw) for draw in range(draws))
        predicted = self._model.now(*cells(part, outputs, curve=self._model.curve))
        width = self._space.extent(files) * outputs ** (-1 / len(part.columns))
        size = np.full(outputs, part.size_bytes.sum() / outputs)
        even = self._model.now(size, np.full(outputs, width))
        return min(float(predicted.sum()), float(even.sum()))

    def _foreseen(self, part: KeySpace, outputs: int, draw: int) -> float:
        readers = self._model.readers
        assert readers is not None  # noqa: S101  only for them
        size, opened = cells(part, outputs, curve=self._model.curve, readers=readers, draw=draw)
        low, high = part.ends()
        around = low.min(axis=0, keepdims=True), high.max(axis=0, keepdims=True)
        there = readers.opened_boxes(*around)
        # As if files shared evenly those who ask for any of them.
        least = self._model.now(size, np.repeat(there / len(size), len(size)))
        return max(float(self._model.now(size, opened).sum()), float(least.sum()))

    def outputs_of(self, files: Mask) -> int:
        if files.all():
            return self._outputs
        size = float(self._space.size_bytes[files].sum())
        share = self._space.extent(files) / self._extent if self._extent else 1.0
        even = self._outputs * share ** len(self._space.columns)
        return self._model.bounded(size, even)


def _covers(files: Mask, spans: ColumnSpans) -> Mask:
    """Return which files have their middle where some `files` lie in a column."""
    rows, points = spans.order[files[spans.order]], (spans.low + spans.high) / 2
    if not len(rows):
        return np.zeros(len(points), np.bool_)
    reach = np.maximum.accumulate(spans.high[rows])
    begun = np.searchsorted(spans.low[rows], points, side="right")
    return np.asarray((begun > 0) & (reach[np.maximum(begun, 1) - 1] >= points), np.bool_)
