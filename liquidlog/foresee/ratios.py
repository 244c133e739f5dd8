"""Ratios: a table in comparison with a full rewrite of it.

The table's rows, read or made up from the log, are laid out in as many files as the table has. That
is its bytes divided by the mean size of a file, weighted by bytes, so that tiny files count little.
All curves except `linear` reach nearly the same mean, so the fastest curve lays out many files. For
more than MOST_FILES files, two smaller numbers are laid out, and the result is extrapolated.

Files that were clustered together have ratios of 1. If they hold most of the bytes, the error of
made-up rows shows in their measured ratios, and the result is corrected by it.
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
"""No rewrite makes a table worse by so much: at lower ratios, the made-up rows are wrong."""
MOST_UNMEASURED: Final = 0.1
"""Ratios are known if files without ranges hold at most this share of the bytes."""

_NOT_MEASURED_NOTE: Final = (
    "depth_ratio and read_ratio are not measured: files without bounds hold more than"
    f" {MOST_UNMEASURED:.0%} of the bytes"
)
_DEPENDENT_NOTE: Final = (
    "depth_ratio and read_ratio are not known: columns depend on each other, and the log does not"
    " show how; sample rows (--sample)"
)

_MOST_ROWS: Final = 131_072
_LEAST_ROWS: Final = 2_048
_ROWS_OF_A_FILE: Final = 96
_FEW_FILES: Final = 64
"""With at most this many files, it matters which column the table's own curve splits first."""
_DECIMALS: Final = 4


class Ratios(NamedTuple):
    """A number now, divided by the same number after a full rewrite; about 1 just after one.

    `depth` is for the average depth, `read` for the bytes that narrow queries open; None if the
    ranges of the files are not known.
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
    """Return the health with ratios of the same files and columns."""
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
        note = _NOT_MEASURED_NOTE if health.total_file_count else "there are no files to measure"
        return replace(health, notes=(*notes, note)) if columns else health
    if sample is None and min(found.depth, found.read) < LEAST_RATIO:
        return replace(health, notes=(*notes, _DEPENDENT_NOTE))
    return replace(health, depth_ratio=found.depth, read_ratio=found.read)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Files:
    """Live files and their bounds of the columns `leaves`.

    `is_measured` marks files with bounds of all columns; `cube` is the number of a file's cube of
    these columns, -1 without one. Statistics keep `prefix_chars` characters of a text.
    """

    leaves: tuple[Leaf, ...]
    bounds: Bounds
    size_bytes: Floats
    is_measured: Mask
    cube: Numbers
    prefix_chars: int = DEFAULT_PREFIX_CHARS

    def largest_cube(self, among: Mask) -> Mask | None:
        """Return the files of the cube with more than half of the bytes, None without one."""
        inside = among & (self.cube >= 0)
        if not inside.any():
            return None
        by_cube = np.bincount(self.cube[inside], self.size_bytes[inside])
        found = inside & (self.cube == int(by_cube.argmax()))
        return found if by_cube.max() > self.size_bytes[among].sum() / 2 else None


def ratios(
    files: Files,
    *,
    average_depth: float | None,
    curve: str = Curve.HILBERT,
    group_bytes: int | None = None,
    mask: Mask | None = None,
    sample: Sample | None = None,
) -> Ratios:
    """Return the ratios of the files where `mask` is true.

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
    # Queries open every file without bounds.
    read = (read * (total - unmeasured) + unmeasured / found.width) / total
    return Ratios(depth=round(depth, _DECIMALS), read=round(read, _DECIMALS))


class _Reached(NamedTuple):
    """Means over files after a rewrite: the depth, and the width, a share of a column's values.

    `width_now` is the width of the present files.
    """

    depth: float
    width: float
    width_now: float = 1.0


def _reached(
    files: Files, known: Mask, chosen: Mask, curve: Curve, groups: int, sample: Sample | None
) -> _Reached:
    """Return what the `chosen` files reach if all `known` files are rewritten in `groups`."""
    size = files.size_bytes[known]
    outputs, steps = float(size.sum()) ** 2 / float(size @ size) / groups, 0
    factor = 2.0 ** min(len(files.leaves), 4)
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
    """Return rows made up from the bounds of files, in proportion to their bytes."""
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
    """Return the means over the files of the known rows, weighted by their chosen rows."""
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
        share = np.ones(len(share))  # none of the few chosen rows was sampled
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
    """Return the share of files that a query for one value opens, weighted by their bytes."""
    own, weights = sizes / float(files.size_bytes.sum()), sample.weights(files.size_bytes)
    opened = [
        shares_opened(sample.column(leaf.logical), column.low, column.high, weights, own)
        for leaf, column in zip(files.leaves, bounds.columns, strict=True)
    ]
    return float(np.average(np.mean(opened, axis=0), weights=sizes * share))
