"""Layouts fitted to what readers ask, or with single values first; never worse than the even one.

The even layout is one of the candidates: grids with other numbers of cells, cells and boxes that
end at constants that readers use, and columns of few values before the others. Of those with which
the readers of the workload open no more of the sample than with the even one, that is taken with
which they, and a few readers of other values, open the least.

Of few files there are few ways to cut them: 24 can be 8 by 3 or 12 by 2, and nothing between. So
up to an eighth more files are tried, too, and taken if readers open less than that many more files
would let them open of themselves.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from liquidlog.curve.asked import Asked
from liquidlog.curve.curves import Curve
from liquidlog.curve.cuts import CurveSample, Cuts, Ordinals, Reach, asked_share, choose_cuts
from liquidlog.curve.fit import MAX_FITTED_PARTS, CurveGrid, Rows, fit_curve
from liquidlog.curve.grid import Coords
from liquidlog.curve.grids import fit_grid, mean_opened
from liquidlog.curve.kd import Boxes, fit_boxes
from liquidlog.curve.prefixed import Prefixed, fit_prefixed
from liquidlog.curve.tree import part_by_prefix

KeyOrder: TypeAlias = CurveGrid | Boxes | Prefixed
"""What gives rows their keys, by `keys_of(coords)`."""

Placed: TypeAlias = tuple[KeyOrder, CurveSample, Cuts]
"""The order of keys, the sample in that order, and the cuts into files."""

MOST_MORE: Final = 1 / 8
"""Of the files asked for: how many more there may be, where readers are served better so."""

_FEW_FILES: Final = 64
"""Beyond, there are cuts enough for any readers."""

_ROUNDING: Final = 1e-9


def fit_layout(
    coords: Coords,
    ordinals: Ordinals,
    parts: int,
    *,
    curve: Curve,
    bits: int,
    asked: Asked | None,
    prefix: Sequence[int],
) -> Placed:
    """Return the order of keys, the sample in that order, and the cuts into files.

    Args:
        coords: (s, d) unsigned, the coordinates of the sample, s at least 1, each below 2**bits.
        ordinals: (s,) uint64, the ordinals of the sampled rows, increasing.
        parts: Files; there may be more with a prefix, and up to `MOST_MORE` more if readers ask.
        curve: Any curve.
        bits: Bits of a coordinate, as `kd_bits` gives.
        asked: What readers ask; None if that is not known.
        prefix: Columns by whose single values rows are parted first.
    """
    rows = Rows.of(coords, ordinals, bits)
    even = _Candidates(rows, parts, curve, bits).even(prefix)
    if asked is None:
        return even
    limit = asked_share(even[1], even[2], asked) * (1 + _ROUNDING)
    reach = Reach(asked, asked.axis_weights(coords.shape[1]))
    columns = max(1, int((reach.axis_weights > 0).sum()))
    best, least = even, mean_opened(even[1], even[2], reach)
    for count in _numbers_of_files(parts, len(coords)):
        # Readers of single values open this much less with more files of the same shape.
        usual = (parts / count) ** (1 / columns)
        candidates = _Candidates(rows, count, curve, bits)
        for placed in candidates.fitted(reach, prefix, even):
            opened = mean_opened(placed[1], placed[2], reach) / usual
            if opened < least and asked_share(placed[1], placed[2], asked) <= limit:
                best, least = placed, opened
    return best


def _numbers_of_files(parts: int, rows: int) -> Iterator[int]:
    """Yield the numbers of files to try, for so many sampled rows."""
    yield parts
    most = min(int(parts * (1 + MOST_MORE)), rows)
    if parts < most and parts <= _FEW_FILES:
        yield most


class _Candidates:
    def __init__(self, rows: Rows, parts: int, curve: Curve, bits: int) -> None:
        self._rows, self._parts, self._curve, self._bits = rows, parts, curve, bits
        self._dimensions = rows.coords.shape[1]

    def even(self, prefix: Sequence[int]) -> Placed:
        """Return the layout that treats all columns alike."""
        if prefix or self._curve is Curve.KD:
            weights = np.full(self._dimensions, 1 / self._dimensions)
            return self._parted(Reach(None, weights), prefix, is_even=True)
        return fit_curve(
            self._rows.coords, self._rows.ordinals, self._parts, curve=self._curve, bits=self._bits
        )

    def fitted(self, reach: Reach, prefix: Sequence[int], even: Placed) -> Iterator[Placed]:
        """Yield the layouts that come into question for readers."""
        if isinstance(even[0], CurveGrid):
            yield even[0], even[1], choose_cuts(even[1], self._parts, reach)
        if self._parts > MAX_FITTED_PARTS:
            return
        yield self._parted(reach, prefix)
        if prefix:
            return
        for axis in range(self._dimensions):
            if self._has_few_values(axis):
                yield self._parted(reach, (axis,))

    def _parted(self, reach: Reach, prefix: Sequence[int], *, is_even: bool = False) -> Placed:
        rows = self._rows
        if self._curve is Curve.KD:
            return fit_boxes(
                rows.coords,
                rows.ordinals,
                self._parts,
                bits=self._bits,
                reach=None if is_even else reach,
                prefix=prefix,
            )
        if prefix:
            return fit_prefixed(
                rows, self._parts, reach, prefix=prefix, curve=self._curve, bits=self._bits
            )
        axes = tuple(range(self._dimensions))
        placed = fit_grid(rows, self._parts, reach, axes=axes, curve=self._curve, bits=self._bits)
        return placed.order, placed.sample, placed.cuts

    def _has_few_values(self, axis: int) -> bool:
        """Return whether a prefix of this column parts the rows into no more than the files."""
        values = len(np.unique(self._rows.coords[:, axis]))
        if not 1 < values <= self._parts:
            return False
        nodes, boxes = part_by_prefix(self._rows.coords, self._parts, (axis,))
        return len(boxes) > 1 and sum(nodes[box.node].parts for box in boxes) <= self._parts
