"""Ratios: how far a table is from what a full rewrite of the same table would reach.

The table's rows, read or made up from the log alone, are laid out in as many files as it has: its
bytes divided by the mean size of a file, weighted by bytes, so that many tiny files count little.
All curves reach nearly the same in the mean, so many files are laid out by the one that takes
least time, but for `linear`, which has its own order. Of more than MOST_FILES files, fewer are laid
out, twice, and the growth between these two numbers goes on as it was.

Files that were clustered together are what a rewrite reaches. If they hold most of the bytes, what
their own ratios are beside 1 is the error of rows that are made up, and is taken off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.clustering.health.measure import Health
from liquidlog.clustering.health.notes import DEFAULT_PREFIX_CHARS, prefix_chars, truncation
from liquidlog.clustering.keyspace.depth import (
    column_ranges,
    depths,
    key_ranges,
    weighted_depths,
)
from liquidlog.clustering.zcubes import membership
from liquidlog.curve.curves import Curve
from liquidlog.foresee.layouts import Grouping, Layout, Layouts
from liquidlog.foresee.reads import shares_opened
from liquidlog.foresee.rows import FROM_STATISTICS, made_up
from liquidlog.foresee.sample import Floats, Numbers, Sample, sampled, spread
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, Mask
from liquidlog.spec.schema import Leaf

MOST_FILES: Final = 12_288
"""The most files that are laid out; what more would reach is extrapolated."""

LEAST_RATIO: Final = 0.85
"""No rewrite makes a table so much worse: where ratios are lower, the rows are not as made up."""

MOST_UNMEASURED: Final = 0.1
"""The largest share of bytes in files without ranges with which ratios are known."""

_NOT_MEASURED_NOTE: Final = (
    "depth_ratio and read_ratio are not measured: files that do not say where their values are hold"
    f" more than {MOST_UNMEASURED:.0%} of the bytes"
)
_DEPENDENT_NOTE: Final = (
    "depth_ratio and read_ratio mean nothing here: files lie better than rows that are made up from"
    " their bounds, so columns depend on each other, which the log does not tell; sample rows"
    " (--sample)"
)
_NO_FILES_NOTE: Final = "there are no files to measure"

_MOST_ROWS: Final = 131_072
_LEAST_ROWS: Final = 2_048
_ROWS_OF_A_FILE: Final = 96
_FEW_FILES: Final = 64
"""Up to so many files, it matters which column the table's own curve parts."""

_MOST_DIMENSIONS: Final = 4
_MOST_OF_TABLE: Final = 0.5
_DECIMALS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """What is now, divided by what a full rewrite would reach; about 1 just after one.

    `depth` is of the average depth, `read` of the bytes that narrow readers open. Both are None if
    the files' ranges are not known.
    """

    depth: float | None
    read: float | None


NOT_MEASURED: Final = Ratios(depth=None, read=None)


def with_ratios(
    health: Health,
    snapshot: Snapshot,
    columns: tuple[ClusteringColumn, ...],
    bounds: Bounds,
    *,
    curve: str,
    group_bytes: int,
    mask: pa.BooleanArray | None = None,
    sample: Sample | None = None,
) -> Health:
    """Return the health with its ratios, of the same files and columns as it was measured by.

    Rows are those of the `sample`; without one, they are made up from the log alone.
    """
    found = ratios(
        [column.leaf for column in columns],
        bounds,
        np.asarray(snapshot.files["size"].to_numpy(), np.float64),
        average_depth=health.average_depth,
        is_measured=_measured_files(snapshot, columns, bounds),
        curve=curve,
        group_bytes=group_bytes,
        mask=None if mask is None else np.asarray(mask, np.bool_),
        cube=_cubes(snapshot, columns),
        prefix=prefix_chars(snapshot),
        sample=sample,
    )
    notes = health.notes
    if found.depth is not None and found.read is not None:
        if sample is None and min(found.depth, found.read) < LEAST_RATIO:
            return replace(health, notes=(*notes, _DEPENDENT_NOTE))
    elif columns:
        notes = (*notes, _NOT_MEASURED_NOTE if health.total_file_count else _NO_FILES_NOTE)
    return replace(health, depth_ratio=found.depth, read_ratio=found.read, notes=notes)


def _measured_files(
    snapshot: Snapshot, columns: tuple[ClusteringColumn, ...], bounds: Bounds
) -> Mask:
    """Return which files have ranges of all columns that tell where their values are."""
    found = bounds.all_known()
    for number, column in enumerate(columns):
        cut = truncation(bounds, number, column, prefix_chars(snapshot))
        if cut is not None:
            found &= ~cut.in_one_prefix
    return found


def _cubes(snapshot: Snapshot, columns: tuple[ClusteringColumn, ...]) -> Numbers:
    """Return the number of the cube per file that was clustered by these columns, -1 for none."""
    places = membership(snapshot.files, columns)
    return np.where(places.ours & places.same_columns, places.cube, -1)


def ratios(
    leaves: Sequence[Leaf],
    bounds: Bounds,
    size_bytes: Floats,
    *,
    average_depth: float | None,
    is_measured: Mask,
    curve: str = Curve.HILBERT,
    group_bytes: int | None = None,
    mask: Mask | None = None,
    cube: Numbers | None = None,
    prefix: int = DEFAULT_PREFIX_CHARS,
    sample: Sample | None = None,
) -> Ratios:
    """Return how the files where `mask` is true compare with the same rows after a full rewrite.

    Args:
        leaves: The columns to measure by.
        bounds: Of the columns, one entry per live file.
        size_bytes: Of each live file.
        average_depth: Of the files where `mask` is true, None if not measured.
        is_measured: Files with ranges that tell where their values are.
        curve: The table's own.
        group_bytes: The most bytes that a rewrite clusters together; None for all.
        mask: The files to compare; None for all.
        cube: The cube of each file, -1 for none; None if there are none.
        prefix: How many characters of a text statistics keep.
        sample: Rows of the table; None for made-up ones.
    """
    chosen = np.ones(len(size_bytes), np.bool_) if mask is None else mask
    nulls = np.zeros(len(size_bytes), np.bool_)
    for number in range(len(leaves)):
        nulls |= bounds.only_nulls(number)
    there = chosen & ~nulls
    unmeasured = float(size_bytes[there & ~is_measured].sum())
    total = float(size_bytes[there].sum())
    known = is_measured & (size_bytes > 0)
    if average_depth is None or not (known & chosen).any() or unmeasured > MOST_UNMEASURED * total:
        return NOT_MEASURED
    table = _Table(leaves, bounds, size_bytes, Curve(curve), prefix, sample)
    together = _most(cube, size_bytes, known & chosen)
    if together is not None and (together >= known & chosen).all() and not unmeasured:
        return Ratios(depth=1.0, read=1.0)
    groups = 1
    if group_bytes is not None:
        groups = max(1, int(np.ceil(float(size_bytes.sum()) / group_bytes)))
    found = table.compared(known, chosen, groups)
    depth, width = average_depth / found.depth, found.width_now / found.width
    if together is not None:
        own = table.compared(together, together, 1)
        depth /= table.depth_of(together) / own.depth
        width /= own.width_now / own.width
    # Readers open whatever does not say where its values are.
    opened = width * (total - unmeasured) + unmeasured / found.width
    return Ratios(depth=round(depth, _DECIMALS), read=round(opened / total, _DECIMALS))


def _most(cube: Numbers | None, size_bytes: Floats, among: Mask) -> Mask | None:
    """Return the files of the cube that holds most of the bytes, None if none does."""
    if cube is None:
        return None
    inside = among & (cube >= 0)
    if not inside.any():
        return None
    found = inside & (cube == int(np.bincount(cube[inside], size_bytes[inside]).argmax()))
    share = float(size_bytes[found].sum()) / float(size_bytes[among].sum())
    return found if share > _MOST_OF_TABLE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """Means over files after a rewrite: depth, and width, the mean share of a column from 0 to 1.

    `width_now` is the width of the files that are there.
    """

    depth: float
    width: float
    width_now: float = 1.0


class _Table:
    """A table's files, and what they would reach."""

    def __init__(
        self,
        leaves: Sequence[Leaf],
        bounds: Bounds,
        size_bytes: Floats,
        curve: Curve,
        prefix: int,
        sample: Sample | None,
    ) -> None:
        self._leaves, self._bounds, self._sizes = leaves, bounds, size_bytes
        self._curve, self._prefix, self._sample = curve, prefix, sample

    def depth_of(self, files: Mask) -> float:
        """Return the average depth of some files among themselves."""
        taken = self._bounds.filter(pa.array(files))
        return float(
            depths(key_ranges([column_ranges(one.low, one.high) for one in taken.columns])).mean()
        )

    def compared(self, known: Mask, chosen: Mask, groups: int) -> _Reached:
        """Return what the `chosen` files reach if all `known` ones are rewritten in groups."""
        size = self._sizes[known]
        files, steps = float(size.sum()) ** 2 / float(size @ size) / groups, 0
        factor = 2.0 ** min(len(self._leaves), _MOST_DIMENSIONS)
        most = MOST_FILES
        if self._sample is not None:
            most = max(1, min(most, len(self._sample) // (_ROWS_OF_A_FILE // 2)))
        while files > most:
            files, steps = files / factor, steps + 1
        if round(files) <= 1:
            return _Reached(depth=float(groups), width=1.0)
        sample = self._sample or self._made_up(known, files)
        found = self._laid_out(sample, known, chosen, round(files))
        if steps:
            fewer = self._laid_out(sample, known, chosen, max(1, round(files / factor)))
            deeper = min(max(found.depth / fewer.depth, 1.0), factor)
            narrower = min(max(fewer.width / found.width, 1.0), factor)
            found = _Reached(depth=found.depth * deeper**steps, width=found.width / narrower**steps)
        there = known & chosen
        now = self._width(sample, self._bounds.filter(pa.array(there)), self._sizes[there])
        return replace(found, depth=found.depth * groups, width_now=now)

    def _made_up(self, known: Mask, files: float) -> Sample:
        places = np.flatnonzero(known)
        places = places[spread(len(places), _MOST_ROWS)]
        ends = self._bounds.take(pa.array(places))
        ranges = [column_ranges(one.low, one.high) for one in ends.columns]
        # The order of files must not matter.
        keys = [end for one in ranges for end in (one.hi, one.lo)]
        order = np.lexsort([self._sizes[places], *keys])
        places = places[order]
        wanted = int(min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS_OF_A_FILE * files)))
        ends_at = np.cumsum(self._sizes[places])
        steps = (np.arange(wanted) + 0.5) / wanted * ends_at[-1]
        drawn = np.minimum(np.searchsorted(ends_at, steps), len(places) - 1)
        picked, rows = np.unique(drawn, return_counts=True)
        some = places[picked]
        table, owner = made_up(
            self._leaves, self._bounds.take(pa.array(some)), rows.astype(np.float64), wanted
        )
        return sampled(self._leaves, table, some[owner], source=FROM_STATISTICS, files=len(some))

    def _laid_out(self, sample: Sample, known: Mask, chosen: Mask, files: int) -> _Reached:
        """Return the means over the files into which all rows are laid out, none for a group."""
        columns = tuple(leaf.logical for leaf in self._leaves)
        is_own = files <= _FEW_FILES or self._curve is Curve.LINEAR
        curve = (self._curve if is_own else Curve.KD) if len(columns) > 1 else Curve.LINEAR
        grouping = Grouping.of(
            np.where(known, 0, -1).astype(np.int64), self._sizes, self._sizes, groups=1
        )
        if sample.source == FROM_STATISTICS:
            grouping = replace(grouping, rows_of_file=None)
        layouts = Layouts(sample, self._leaves, self._prefix)
        laid = layouts.laid(Layout(columns=columns, curve=curve), grouping, [files])
        parts = laid.parts
        assert parts is not None  # noqa: S101  every known file has rows
        is_chosen = chosen[sample.file[parts.order]].astype(np.float64)
        share = np.add.reduceat(is_chosen, parts.starts) / parts.counts
        if not share.any():
            share = np.ones(len(share))  # too small a part for a row to be among the sampled
        ends = []
        for path in columns:
            codes = sample.column(path).codes[parts.order]
            low, high = (end.reduceat(codes, parts.starts) for end in (np.minimum, np.maximum))
            ends.append(column_ranges(pa.array(low), pa.array(high)))
        depth = weighted_depths(key_ranges(ends), share)
        return _Reached(
            depth=max(1.0, float(share @ depth / share.sum())),
            width=self._width(sample, laid.bounds, laid.size_bytes, share),
        )

    def _width(
        self, sample: Sample, bounds: Bounds, sizes: Floats, share: Floats | float = 1.0
    ) -> float:
        """Return which share of files readers of one value open, weighted by their chosen bytes."""
        own, weights = sizes / float(self._sizes.sum()), sample.weights(self._sizes)
        opened = [
            shares_opened(
                sample.column(leaf.logical), bounds.low(number), bounds.high(number), weights, own
            )
            for number, leaf in enumerate(self._leaves)
        ]
        return float(np.average(np.mean(opened, axis=0), weights=sizes * share))
