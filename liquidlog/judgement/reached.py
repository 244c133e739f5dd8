"""Ratios: how far a table is from what a full rewrite of the same table would reach.

The rewrite is imagined. Rows are made up from the files' bounds, in proportion to their bytes, and
parted into boxes of equally many rows, as many as the table has files: its bytes divided by the
mean size of a file, weighted by bytes, so that many tiny files count little. All layouts reach
nearly the same in the mean, so the boxes stand for any curve but `linear`, which has its own order.
Nothing here depends on the options of a rewrite, but on how many bytes it clusters together.

With more than MOST_CELLS files, fewer boxes are made, twice, and the growth between these two
numbers of boxes goes on as it was.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.clustering.health.measure import Health
from liquidlog.clustering.health.notes import prefix_chars, truncation
from liquidlog.clustering.keyspace.depth import column_ranges, key_ranges, weighted_depths
from liquidlog.judgement.halving import Floats, Ints, Rows, halved
from liquidlog.judgement.text_numbers import text_numbers
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import MILLISECOND_REST_US, Bounds, ColumnBounds, Mask

MOST_CELLS: Final = 12_288
"""The most files of an imagined rewrite; what more would reach is extrapolated."""

LEAST_RATIO: Final = 0.85
"""No rewrite makes a table so much worse: where ratios are lower, the rows are not as imagined."""

MOST_UNMEASURED: Final = 0.1
"""The largest share of bytes in files without ranges with which ratios are known."""

_NOT_MEASURED_NOTE: Final = (
    "depth_ratio and read_ratio are not measured: files that do not say where their values are hold"
    f" more than {MOST_UNMEASURED:.0%} of the bytes"
)
_DEPENDENT_NOTE: Final = (
    "depth_ratio and read_ratio mean nothing here: files lie better than rows that are made up from"
    " their bounds, so columns depend on each other, which the log does not tell"
)
_NO_FILES_NOTE: Final = "there are no files to measure"

_MOST_ROWS: Final = 131_072
_LEAST_ROWS: Final = 2_048
_ROWS_IN_A_CELL: Final = 48
_FEW_CELLS: Final = 16
"""Up to so many cells, it matters which of several long sides is divided: all are tried."""

_MOST_DIMENSIONS: Final = 4
_DECIMALS: Final = 4
_AT_AN_END: Final = 1 / 3
"""The share of a file's rows that hold the value of an end in which a rewrite had to cut."""

_FEWEST_ENDS: Final = 16
"""The fewest distinct ends whose common divisor divides other values too."""

_EXACT: Final = float(1 << 53)


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
) -> Health:
    """Return the health with its ratios, of the same files and columns as it was measured by."""
    found = ratios(
        bounds,
        np.asarray(snapshot.files["size"].to_numpy(), np.int64),
        average_depth=health.average_depth,
        is_measured=measured_files(snapshot, columns, bounds),
        is_linear=curve == "linear",
        group_bytes=group_bytes,
        mask=None if mask is None else np.asarray(mask, np.bool_),
    )
    notes = health.notes
    if found.depth is not None and found.read is not None:
        if min(found.depth, found.read) < LEAST_RATIO:
            return replace(health, notes=(*notes, _DEPENDENT_NOTE))
    elif columns:
        notes = (*notes, _NOT_MEASURED_NOTE if health.total_file_count else _NO_FILES_NOTE)
    return replace(health, depth_ratio=found.depth, read_ratio=found.read, notes=notes)


def measured_files(
    snapshot: Snapshot, columns: tuple[ClusteringColumn, ...], bounds: Bounds
) -> Mask:
    """Return which files have ranges of all columns that tell where their values are."""
    found = bounds.all_known()
    for number, column in enumerate(columns):
        cut = truncation(bounds, number, column, prefix_chars(snapshot))
        if cut is not None:
            found &= ~cut.in_one_prefix
    return found


def ratios(
    bounds: Bounds,
    size_bytes: Ints,
    *,
    average_depth: float | None,
    is_measured: Mask,
    is_linear: bool = False,
    group_bytes: int | None = None,
    mask: Mask | None = None,
) -> Ratios:
    """Return how the files where `mask` is true compare with the same rows after a full rewrite.

    Takes O(files + MOST_CELLS * log MOST_CELLS).

    Args:
        bounds: Of the columns to measure by, one entry per live file.
        size_bytes: Of each live file.
        average_depth: Of the files where `mask` is true, None if not measured.
        is_measured: Files with ranges that tell where their values are.
        is_linear: Whether the table's rows are sorted by the columns in their order.
        group_bytes: The most bytes that a rewrite clusters together; None for all.
        mask: The files to compare; None for all.
    """
    chosen = np.ones(len(size_bytes), np.bool_) if mask is None else mask
    nulls = np.zeros(len(size_bytes), np.bool_)
    for number in range(len(bounds.columns)):
        nulls |= bounds.only_nulls(number)
    there = chosen & ~nulls
    unmeasured = float(size_bytes[there & ~is_measured].sum())
    total = float(size_bytes[there].sum())
    known = is_measured & (size_bytes > 0)
    if average_depth is None or not (known & chosen).any() or unmeasured > MOST_UNMEASURED * total:
        return NOT_MEASURED
    files = _Files.of(bounds, size_bytes.astype(np.float64), known, chosen)
    whole = float(size_bytes.sum())
    groups = 1 if group_bytes is None else max(1, int(np.ceil(whole / group_bytes)))
    reached = files.rewritten(groups=groups, is_linear=is_linear)
    now = files.width_now() * (total - unmeasured) + unmeasured
    return Ratios(
        depth=round(float(average_depth) / max(reached.depth, 1.0), _DECIMALS),
        read=round(float(now) / max(reached.width * total, np.finfo(np.float64).tiny), _DECIMALS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """Means over cells: their depth, and their width, the mean share of a column from 0 to 1."""

    depth: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Files:
    """Files with ranges, and how many of the made-up rows each of them gets.

    `outputs` is the number of files that a rewrite would make of the table, `rows_per_output` that
    of rows in each of them.
    """

    columns: tuple["_Column", ...]
    weight: Floats
    chosen: Mask
    outputs: float
    rows_per_output: float

    @classmethod
    def of(cls, bounds: Bounds, size_bytes: Floats, known: Mask, chosen: Mask) -> "_Files":
        """Return the files that are `known`, a sample of them if they are very many."""
        size = size_bytes[known]
        outputs = float(size.sum()) ** 2 / float(size @ size)
        rows = bounds.num_records.filter(pa.array(known))
        rows_per_output = (
            np.inf if rows.null_count else max(1.0, (pc.sum(rows).as_py() or 0) / outputs)
        )
        places, weight = np.flatnonzero(known), size
        if len(places) > _MOST_ROWS:
            drawn = np.searchsorted(np.cumsum(size), _steps(_MOST_ROWS) * size.sum())
            picked, times = np.unique(drawn, return_counts=True)
            places, weight = places[picked], times.astype(np.float64)
        taken = bounds.take(pa.array(places))
        columns = tuple(_Column.of(column) for column in taken.columns)
        # The order of files must not matter.
        order = np.lexsort([weight, *(end for one in columns for end in (one.high, one.low))])
        return cls(
            columns=tuple(column.ordered(order) for column in columns),
            weight=weight[order],
            chosen=chosen[places][order],
            outputs=outputs,
            rows_per_output=rows_per_output,
        )

    def rewritten(self, *, groups: int, is_linear: bool) -> _Reached:
        """Return what files would reach after a rewrite, in groups that know nothing of others."""
        cells, steps = self.outputs / groups, 0
        factor = 2.0 ** min(len(self.columns), _MOST_DIMENSIONS)
        while cells > MOST_CELLS:
            cells, steps = cells / factor, steps + 1
        if round(cells) <= 1:
            return _Reached(depth=float(groups), width=1.0)
        made = self._made_up(cells)
        reached = _reached(made, round(cells), self.rows_per_output, is_linear=is_linear)
        if steps:
            fewer = _reached(made, round(cells / factor), self.rows_per_output, is_linear=is_linear)
            deeper = min(max(reached.depth / fewer.depth, 1.0), factor)
            narrower = min(max(fewer.width / max(reached.width, 1e-12), 1.0), factor)
            reached = _Reached(
                depth=reached.depth * deeper**steps, width=reached.width / narrower**steps
            )
        return replace(reached, depth=reached.depth * groups)

    def width_now(self) -> float:
        """Return the mean width of the chosen files as they are, weighted by bytes."""
        made = self._made_up(min(self.outputs, MOST_CELLS))
        count = len(made.owner)
        width = np.zeros(len(self.weight))
        for column, values in zip(self.columns, made.values, strict=True):
            ordered = np.sort(values)
            first = np.searchsorted(ordered, column.low, "left")
            width += (np.searchsorted(ordered, column.high, "right") - first) / count
        weight = self.weight * self.chosen
        return float(weight @ width / weight.sum()) / len(self.columns)

    def _made_up(self, cells: float) -> "_MadeUp":
        wanted = int(min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS_IN_A_CELL * cells)))
        total = np.cumsum(self.weight)
        owner = np.minimum(np.searchsorted(total, _steps(wanted) * total[-1]), len(self.weight) - 1)
        spread = _spread(wanted, len(self.columns))
        return _MadeUp(
            owner=owner,
            chosen=self.chosen[owner],
            values=tuple(
                column.values(owner, random)
                for column, random in zip(self.columns, spread.T, strict=True)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _MadeUp:
    """Made-up rows: the file of each, whether it is one of those to compare, and its values."""

    owner: Ints
    chosen: Mask
    values: tuple[Floats, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Column:
    """One column as numbers (float64), one per file; those of texts are as `text_numbers` has them.

    `step` divides all differences of values, as far as their ends tell, 0 if it is not known.
    `is_cut_low` and `is_cut_high` say whether another file goes on with the value at which this one
    begins or ends.
    """

    low: Floats
    high: Floats
    step: float
    is_cut_low: Mask
    is_cut_high: Mask

    @classmethod
    def of(cls, bounds: ColumnBounds) -> "_Column":
        low, high, step = _numbers(bounds.low, bounds.high)
        high = np.maximum(low, high)
        no = np.zeros(len(low), np.bool_)
        if step:
            return cls(low=low, high=high, step=step, is_cut_low=no, is_cut_high=no)
        is_wide = low < high
        return cls(
            low=low,
            high=high,
            step=0.0,
            is_cut_low=is_wide & np.isin(low, high[is_wide]),
            is_cut_high=is_wide & np.isin(high, low[is_wide]),
        )

    def ordered(self, order: Ints) -> "_Column":
        """Return the column of the files in another order."""
        return replace(
            self,
            low=self.low[order],
            high=self.high[order],
            is_cut_low=self.is_cut_low[order],
            is_cut_high=self.is_cut_high[order],
        )

    def values(self, owner: Ints, random: Floats) -> Floats:
        """Return a value per row, spread evenly over the range of its file."""
        low, high = self.low[owner], self.high[owner]
        if self.step:
            values = np.floor((high - low) / self.step + 1.5) * random
            return np.minimum(low + self.step * np.floor(values), high)
        begin = np.where(self.is_cut_low[owner], _AT_AN_END, 0.0)
        end = np.where(self.is_cut_high[owner], 1.0 - _AT_AN_END, 1.0)
        inside = np.clip((random - begin) / (end - begin), 0.0, 1.0)
        return np.asarray(low + inside * (high - low), np.float64)


def _numbers(low: pa.Array, high: pa.Array) -> tuple[Floats, Floats, float]:
    """Return the ends as numbers, and what divides all differences between them."""
    kind = low.type
    if pa.types.is_string(kind):
        return (*text_numbers(low, high), 0.0)
    if pa.types.is_floating(kind):
        most = np.finfo(np.float64).max / 4
        ends = [np.nan_to_num(side.to_numpy().astype(np.float64), nan=most) for side in (low, high)]
        return np.clip(ends[0], -most, most), np.clip(ends[1], -most, most), 0.0
    if pa.types.is_decimal(kind):
        scaled = [
            np.asarray(pc.cast(side, pa.float64()), np.float64) * 10.0**kind.scale
            for side in (low, high)
        ]
        if max(float(np.abs(side).max()) for side in scaled) >= _EXACT:
            return scaled[0], scaled[1], 0.0
        first, last = (np.rint(side).astype(np.int64) for side in scaled)
    else:
        first, last = _whole(low), _whole(high)
        if pa.types.is_timestamp(kind):
            last = np.maximum(first, last - MILLISECOND_REST_US)
    # Differences of signed numbers always fit unsigned ones.
    distinct = np.unique(np.concatenate([first, last])).astype(np.uint64)
    # A few ends have a common divisor by chance.
    step = int(np.gcd.reduce(distinct - distinct[0])) if len(distinct) >= _FEWEST_ENDS else 1
    return first.astype(np.float64), last.astype(np.float64), float(max(step, 1))


def _whole(values: pa.Array) -> Ints:
    if pa.types.is_date32(values.type):
        values = pc.cast(values, pa.int32())
    return np.asarray(pc.cast(values, pa.int64()), np.int64)


def _steps(count: int) -> Floats:
    return (np.arange(count) + 0.5) / count


def _spread(count: int, columns: int) -> Floats:
    """Return points (count, columns) from 0 to 1; any run of them is spread evenly.

    Source: M. Roberts, "The Unreasonable Effectiveness of Quasirandom Sequences", 2018.
    """
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (columns + 1))
    steps = root ** -np.arange(1.0, columns + 1)
    return np.asarray((0.5 + np.outer(np.arange(1, count + 1), steps)) % 1.0, np.float64)


def _reached(made: _MadeUp, cells: int, rows_per_cell: float, *, is_linear: bool) -> _Reached:
    """Return the means over the cells into which the rows are parted."""
    blocks = [_Blocks.of(values) for values in made.values]
    rows = Rows(
        ranks=np.stack([one.rank for one in blocks], axis=1),
        begins=np.stack([one.begin[one.rank] for one in blocks], axis=1),
        ends=np.stack([one.end[one.rank] for one in blocks], axis=1),
    )
    if is_linear:
        rows = _in_line(rows)
    turns = rows.ranks.shape[1] if cells <= _FEW_CELLS else 1
    found = [
        _measured(made, blocks, halved(rows.rolled(turn), cells), rows_per_cell)
        for turn in range(turns)
    ]
    return _Reached(
        depth=float(np.exp(np.mean([np.log(one.depth) for one in found]))),
        width=float(np.mean([one.width for one in found])),
    )


def _in_line(rows: Rows) -> Rows:
    """Return the rows by their keys, compared column by column, as one column."""
    order = np.lexsort(rows.ranks.T[::-1])
    ranked = rows.ranks[order]
    rank = np.zeros(len(order), np.int64)
    rank[order] = np.append(0, np.cumsum((ranked[1:] != ranked[:-1]).any(axis=1)))
    place = rank[:, None] / len(rank)
    return Rows(ranks=rank[:, None], begins=place, ends=place)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Blocks:
    """The distinct values of a column as blocks of rows, in order.

    `rank` is the block of each row; per block, `begin` and `end` are its share of rows before and
    up to it, `middle` is between them, `is_one` says that it is a single row.
    """

    rank: Ints
    begin: Floats
    middle: Floats
    end: Floats
    is_one: NDArray[np.bool_]

    @classmethod
    def of(cls, values: Floats) -> "_Blocks":
        _, rank, count = np.unique(values, return_inverse=True, return_counts=True)
        end = np.cumsum(count) / len(values)
        begin = end - count / len(values)
        return cls(rank=rank, begin=begin, middle=(begin + end) / 2, end=end, is_one=count == 1)


def _measured(made: _MadeUp, blocks: list[_Blocks], parts: Ints, rows_per_cell: float) -> _Reached:
    order = np.argsort(parts, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(parts[order]) > 0))
    count = np.diff(np.append(starts, len(order))).astype(np.float64)
    share = np.add.reduceat(made.chosen[order].astype(np.float64), starts) / count
    # The range of n even rows falls short of their cell; so does that of the rows of a real file.
    real = 1.0 if np.isinf(rows_per_cell) else (rows_per_cell - 1) / rows_per_cell
    unseen = (count / np.maximum(count - 1, 1) * real - 1) / 2
    widths, ends = [], []
    for block in blocks:
        rank = block.rank[order]
        first, last = np.minimum.reduceat(rank, starts), np.maximum.reduceat(rank, starts)
        more = unseen * (block.middle[last] - block.middle[first])
        low = np.where(block.is_one[first], block.middle[first] - more, block.begin[first])
        high = np.where(block.is_one[last], block.middle[last] + more, block.end[last])
        widths.append(np.minimum(high, 1.0) - np.maximum(low, 0.0))
        ends.append(column_ranges(pa.array(first), pa.array(last)))
    weight = count * share
    depth = weighted_depths(key_ranges(ends), share)
    return _Reached(
        depth=max(1.0, float(share @ depth / share.sum())),
        width=float(weight @ np.mean(widths, axis=0) / weight.sum()),
    )
