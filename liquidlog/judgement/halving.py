"""Boxes by halving: rows parted into cells of equally many rows, across the longest side each time.

All boxes of one depth are halved together, so that ten thousand cells take a fraction of a second.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MAX_UNEVENNESS: Final = 0.25
"""How far rows per cell may be from the mean, as a share of it, where a box is divided."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Rows in columns, all (n, d).

    `ranks` number the distinct values of each column in their order; `begins` and `ends` are the
    shares of rows below a row's value, and up to it.
    """

    ranks: Ints
    begins: Floats
    ends: Floats

    def rolled(self, by: int) -> "Rows":
        """Return the same rows with the columns moved on by so many."""
        return Rows(
            ranks=np.roll(self.ranks, -by, axis=1),
            begins=np.roll(self.begins, -by, axis=1),
            ends=np.roll(self.ends, -by, axis=1),
        )


@dataclass(slots=True, eq=False)
class _Boxes:
    """Boxes that hold more than one cell: their rows box after box, where each begins, its cells.

    `first` is the number of each box's first cell.
    """

    rows: Ints
    starts: Ints
    cells: Ints
    first: Ints

    @property
    def counts(self) -> Ints:
        """The number of rows per box."""
        return np.diff(np.append(self.starts, len(self.rows)))


def halved(rows: Rows, cells: int) -> Ints:
    """Return the number of the cell per row (n,), below `cells`; rows of equal values part last.

    Takes O(rows * log cells) for each column that has to be tried.
    """
    found = np.zeros(len(rows.ranks), np.int64)
    boxes = _unfinished(
        _Boxes(
            rows=np.arange(len(found)),
            starts=np.zeros(1, np.int64),
            cells=np.array([max(1, min(cells, len(found)))]),
            first=np.zeros(1, np.int64),
        ),
        found,
    )
    while len(boxes.starts):
        boxes = _unfinished(_divided(rows, boxes), found)
    return found


def _unfinished(boxes: _Boxes, found: Ints) -> _Boxes:
    """Return the boxes of several cells; write the cells of all rows into `found`."""
    counts = boxes.counts
    found[boxes.rows] = np.repeat(boxes.first, counts)
    goes_on = (boxes.cells > 1) & (counts > 1)
    kept = counts[goes_on]
    return _Boxes(
        rows=boxes.rows[np.repeat(goes_on, counts)],
        starts=np.cumsum(kept) - kept,
        cells=boxes.cells[goes_on],
        first=boxes.first[goes_on],
    )


def _divided(rows: Rows, boxes: _Boxes) -> _Boxes:
    """Return each box as two, one after the other, divided between different values if possible."""
    first = np.minimum.reduceat(rows.begins[boxes.rows], boxes.starts)
    sides = np.maximum.reduceat(rows.ends[boxes.rows], boxes.starts) - first
    axes = np.argsort(-sides, axis=1, kind="stable")
    counts, box_of = boxes.counts, np.repeat(np.arange(len(boxes.starts)), boxes.counts)
    below = np.clip(np.rint(counts * (boxes.cells // 2) / boxes.cells).astype(np.int64), 1, None)
    below = np.minimum(below, counts - 1)
    cells_below = boxes.cells // 2
    order = boxes.rows.copy()
    waits = np.ones(len(boxes.starts), np.bool_)
    # Where no column has a place to divide at, equal values are parted along the longest side.
    for attempt in range(axes.shape[1] + 1):
        last = attempt == axes.shape[1]
        choice = 0 if last else attempt
        places_of = np.flatnonzero(np.repeat(waits, counts))
        members = boxes.rows[places_of]
        rank = rows.ranks[members, axes[box_of[places_of], choice]]
        by_value = np.lexsort((members, rank, box_of[places_of]))
        sorted_rows, sorted_rank = members[by_value], rank[by_value]
        taken, at, whole = _planes(boxes, waits, sorted_rank)
        if last:
            taken = np.ones(len(at), np.bool_)
        chosen = np.flatnonzero(waits)[taken]
        if not last:
            below[chosen], cells_below[chosen] = at[taken], whole[taken]
        is_taken = np.zeros(len(waits), np.bool_)
        is_taken[chosen] = True
        moved = is_taken[box_of[places_of]]
        order[places_of[moved]] = sorted_rows[moved]
        waits[chosen] = False
        if not waits.any():
            break
    return _Boxes(
        rows=order,
        starts=np.stack([boxes.starts, boxes.starts + below], axis=1).ravel(),
        cells=np.stack([cells_below, boxes.cells - cells_below], axis=1).ravel(),
        first=np.stack([boxes.first, boxes.first + cells_below], axis=1).ravel(),
    )


def _planes(
    boxes: _Boxes, waits: NDArray[np.bool_], rank: Ints
) -> tuple[NDArray[np.bool_], Ints, Ints]:
    """Return per waiting box whether it can be divided, the rows and the cells below the plane.

    `rank` has the values' ranks in the rows of the waiting boxes, sorted in each box. The plane is
    the one next to the middle.
    """
    counts, cells = boxes.counts[waits], boxes.cells[waits]
    starts = np.cumsum(counts) - counts
    is_new = np.append(True, rank[1:] != rank[:-1])
    is_new[starts] = False
    changes = np.concatenate([[-1], np.flatnonzero(is_new), [len(rank) + 1]])
    middle = starts + counts * (cells // 2) / cells
    above = np.searchsorted(changes, middle)
    before, after = changes[above - 1], changes[above]
    before = np.where(before > starts, before, -len(rank) - 1)
    after = np.where(after < starts + counts, after, 3 * len(rank) + 3)
    nearest = np.where(middle - before <= after - middle, before, after)
    at = nearest - starts
    is_inside = (at > 0) & (at < counts)
    shares = np.where(is_inside, at, 1) * cells / counts
    whole = np.clip(np.rint(shares), 1, cells - 1).astype(np.int64)
    uneven = np.maximum(np.abs(shares / whole - 1), np.abs((cells - shares) / (cells - whole) - 1))
    return is_inside & (uneven <= _MAX_UNEVENNESS), at, whole
