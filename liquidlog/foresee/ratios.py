"""Ratios: how far a table is from what a full rewrite of the same table would reach.

The table's rows, read or made up from the log alone, are laid out in as many files as it has: its
bytes divided by the mean size of a file, weighted by bytes, so that tiny files count little. All
curves but `linear` reach nearly the same mean, so many files are laid out by the fastest curve. Of
more than MOST_FILES files, two smaller numbers are laid out, and the growth between them is
extrapolated.

Files that were clustered together are what a rewrite reaches. If they hold most of the bytes, the
difference of their own ratios from 1 is the error of made-up rows, and corrects the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from liquidlog.clustering.columns import ClusteringColumn, membership
from liquidlog.clustering.health import DEFAULT_PREFIX_CHARS, Health, prefix_chars, truncation
from liquidlog.clustering.keyspace import column_ranges, depths, key_ranges
from liquidlog.clustering.settings import remembered_if_right
from liquidlog.curve.curves import Curve
from liquidlog.foresee.reads import shares_opened
from liquidlog.foresee.rows import FROM_STATISTICS, made_up
from liquidlog.foresee.sample import (
    Floats,
    Grouping,
    Layout,
    Layouts,
    Numbers,
    Sample,
    sampled,
    spread,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, Mask
from liquidlog.spec.schema import Leaf

MOST_FILES: Final = 12_288
"""The most files that are laid out; more are extrapolated."""
LEAST_RATIO: Final = 0.85
"""No rewrite makes a table so much worse: at lower ratios, the rows are not as made up."""
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
_MOST: Final = 0.5
_DECIMALS: Final = 4


class Ratios(NamedTuple):
    """What is now, divided by the same after a full rewrite; about 1 just after one.

    `depth` is of the average depth, `read` of the bytes that narrow queries open; None if the
    files' ranges are not known.
    """

    depth: float | None
    read: float | None


NOT_MEASURED: Final = Ratios(depth=None, read=None)


def with_ratios(
    health: Health,
    snapshot: Snapshot,
    columns: Sequence[ClusteringColumn],
    bounds: Bounds,
    *,
    min_cube_bytes: int,
    mask: pa.BooleanArray | None = None,
    sample: Sample | None = None,
) -> Health:
    """Return the health with its ratios, of the files and columns that it was measured by."""
    is_measured, prefix = bounds.all_known(), prefix_chars(snapshot)
    for number, column in enumerate(columns):
        cut = truncation(bounds, number, column, prefix)
        if cut is not None:
            is_measured &= ~cut.in_one_prefix
    found = ratios(
        Files(
            leaves=tuple(column.leaf for column in columns),
            bounds=bounds,
            size_bytes=np.asarray(snapshot.files["size"].to_numpy(), np.float64),
            is_measured=is_measured,
            cube=membership(snapshot.files, columns).own_cube,
            prefix_chars=prefix,
        ),
        average_depth=health.average_depth,
        curve=remembered_if_right(snapshot, "curve"),
        group_bytes=max(remembered_if_right(snapshot, "target_cube_bytes"), min_cube_bytes),
        mask=None if mask is None else np.asarray(mask, np.bool_),
        sample=sample,
    )
    notes = health.notes
    if found.depth is None or found.read is None:
        note = _NOT_MEASURED_NOTE if health.total_file_count else _NO_FILES_NOTE
        return replace(health, notes=(*notes, note)) if columns else health
    if sample is None and min(found.depth, found.read) < LEAST_RATIO:
        return replace(health, notes=(*notes, _DEPENDENT_NOTE))
    return replace(health, depth_ratio=found.depth, read_ratio=found.read)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Files:
    """Live files by the columns `leaves`; all but `leaves` and `prefix_chars` has one entry each.

    `is_measured` marks files with bounds of all columns; `cube` numbers the cubes of these columns,
    -1 for others. Statistics keep `prefix_chars` characters of a text.
    """

    leaves: tuple[Leaf, ...]
    bounds: Bounds
    size_bytes: Floats
    is_measured: Mask
    cube: Numbers
    prefix_chars: int = DEFAULT_PREFIX_CHARS

    def largest_cube(self, among: Mask) -> Mask | None:
        """Return the files of the cube with most of the bytes, None if none has so many."""
        inside = among & (self.cube >= 0)
        if not inside.any():
            return None
        by_cube = np.bincount(self.cube[inside], self.size_bytes[inside])
        found = inside & (self.cube == int(by_cube.argmax()))
        return found if by_cube.max() > _MOST * self.size_bytes[among].sum() else None


def ratios(
    files: Files,
    *,
    average_depth: float | None,
    curve: str = Curve.HILBERT,
    group_bytes: int | None = None,
    mask: Mask | None = None,
    sample: Sample | None = None,
) -> Ratios:
    """Return how the files where `mask` is true compare with the same rows after a full rewrite.

    `average_depth` is of these files, None if not measured. A rewrite clusters at most
    `group_bytes` together, or all bytes. Without a `sample`, rows are made up.
    """
    sizes = files.size_bytes
    there = np.ones(len(sizes), np.bool_) if mask is None else mask.copy()
    for number in range(len(files.leaves)):
        there &= ~files.bounds.only_nulls(number)
    known = files.is_measured & (sizes > 0)
    chosen, total = known & there, float(sizes[there].sum())
    unmeasured = float(sizes[there & ~files.is_measured].sum())
    if average_depth is None or not chosen.any() or unmeasured > MOST_UNMEASURED * total:
        return NOT_MEASURED
    cube = files.largest_cube(chosen)
    if cube is not None and (cube >= chosen).all() and not unmeasured:
        return Ratios(depth=1.0, read=1.0)
    groups = 1 if group_bytes is None else max(1, int(np.ceil(float(sizes.sum()) / group_bytes)))
    found = _reached(files, known, chosen, Curve(curve), groups, sample)
    depth, read = average_depth / found.depth, found.width_now / found.width
    if cube is not None:
        own = _reached(files, cube, cube, Curve(curve), 1, sample)
        taken = files.bounds.filter(pa.array(cube))
        ranges = key_ranges([column_ranges(one.low, one.high) for one in taken.columns])
        depth /= float(depths(ranges).mean()) / own.depth
        read /= own.width_now / own.width
    # Readers open whatever does not say where its values are.
    read = (read * (total - unmeasured) + unmeasured / found.width) / total
    return Ratios(depth=round(depth, _DECIMALS), read=round(read, _DECIMALS))


class _Reached(NamedTuple):
    """Means over files after a rewrite: depth, and width, the mean share of a column from 0 to 1.

    `width_now` is the width of the files that are there.
    """

    depth: float
    width: float
    width_now: float = 1.0


def _reached(
    files: Files, known: Mask, chosen: Mask, curve: Curve, groups: int, sample: Sample | None
) -> _Reached:
    """Return what the `chosen` files reach if all `known` ones are rewritten in so many groups."""
    size = files.size_bytes[known]
    outputs, steps = float(size.sum()) ** 2 / float(size @ size) / groups, 0
    factor = 2.0 ** min(len(files.leaves), _MOST_DIMENSIONS)
    most = MOST_FILES if sample is None else max(1, 2 * len(sample) // _ROWS_OF_A_FILE)
    while outputs > most:
        outputs, steps = outputs / factor, steps + 1
    if round(outputs) <= 1:
        return _Reached(depth=float(groups), width=1.0)
    sample = sample or _made_up(files, known, outputs)
    found = _laid_out(files, sample, known, chosen, curve, round(outputs))
    depth, width = found.depth, found.width
    if steps:
        fewer = max(1, round(outputs / factor))
        less = _laid_out(files, sample, known, chosen, curve, fewer)
        depth *= min(max(depth / less.depth, 1.0), factor) ** steps
        width /= min(max(less.width / width, 1.0), factor) ** steps
    now = _width(files, sample, files.bounds.filter(pa.array(chosen)), files.size_bytes[chosen])
    return _Reached(depth=depth * groups, width=width, width_now=now)


def _made_up(files: Files, known: Mask, outputs: float) -> Sample:
    """Return rows of the files, by their bounds, in proportion to their bytes."""
    places = np.flatnonzero(known)
    places = places[spread(len(places), _MOST_ROWS)]
    ranges = [
        column_ranges(one.low, one.high) for one in files.bounds.take(pa.array(places)).columns
    ]
    # The order of files must not matter.
    keys = [end for one in ranges for end in (one.hi, one.lo)]
    places = places[np.lexsort([files.size_bytes[places], *keys])]
    wanted = int(min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS_OF_A_FILE * outputs)))
    total = np.cumsum(files.size_bytes[places])
    drawn = np.searchsorted(total, (np.arange(wanted) + 0.5) / wanted * total[-1])
    picked, counts = np.unique(np.minimum(drawn, len(places) - 1), return_counts=True)
    some = places[picked]
    ends = files.bounds.take(pa.array(some))
    rows, owner = made_up(files.leaves, ends, counts.astype(np.float64), wanted)
    return sampled(files.leaves, rows, some[owner], source=FROM_STATISTICS, files=len(some))


def _laid_out(
    files: Files, sample: Sample, known: Mask, chosen: Mask, curve: Curve, outputs: int
) -> _Reached:
    """Return the means over the files that the known rows are laid out in, by chosen rows."""
    columns = tuple(leaf.logical for leaf in files.leaves)
    if len(columns) == 1:
        curve = Curve.LINEAR
    elif outputs > _FEW_FILES and curve is not Curve.LINEAR:
        curve = Curve.KD
    group = np.where(known, 0, -1).astype(np.int64)
    grouping = Grouping.of(group, files.size_bytes, files.size_bytes, groups=1)
    if sample.source == FROM_STATISTICS:
        grouping = replace(grouping, rows_of_file=None)
    layouts = Layouts(sample, files.leaves, files.prefix_chars)
    laid = layouts.laid(Layout(columns=columns, curve=curve), grouping, [outputs])
    parts = laid.parts
    if parts is None:
        return _Reached(depth=1.0, width=1.0)
    is_chosen = chosen[sample.file[parts.order]].astype(np.float64)
    share = np.add.reduceat(is_chosen, parts.starts) / parts.counts
    if not share.any():
        share = np.ones(len(share))  # too small a part for a row to be among the sampled
    ends = []
    for path in columns:
        codes = sample.column(path).codes[parts.order]
        low, high = (end.reduceat(codes, parts.starts) for end in (np.minimum, np.maximum))
        ends.append(column_ranges(pa.array(low), pa.array(high)))
    depth = depths(key_ranges(ends), share)
    return _Reached(
        depth=max(1.0, float(share @ depth / share.sum())),
        width=_width(files, sample, laid.bounds, laid.size_bytes, share),
    )


def _width(
    files: Files, sample: Sample, bounds: Bounds, sizes: Floats, share: Floats | float = 1.0
) -> float:
    """Return the share of files that a query for one value opens, weighted by chosen bytes."""
    own, weights = sizes / float(files.size_bytes.sum()), sample.weights(files.size_bytes)
    opened = [
        shares_opened(sample.column(leaf.logical), column.low, column.high, weights, own)
        for leaf, column in zip(files.leaves, bounds.columns, strict=True)
    ]
    return float(np.average(np.mean(opened, axis=0), weights=sizes * share))
