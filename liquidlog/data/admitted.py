"""Which files or row groups may hold one of some rows, judged by bounds of a few columns."""

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.ranges import Ids, range_ids
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.bounds import Bounds, ColumnBounds
from liquidlog.spec.schema import Leaf

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class SoughtRows:
    """The values that rows have in some columns; asks of bounds whether they admit any row.

    Whatever holds one of the rows is admitted. A little more is: a value between the end of one box
    and the start of the next counts as in both.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        """Use `of`; this does not check anything."""
        self._columns = columns

    @classmethod
    def of(cls, rows: pa.Table, leaves: Sequence[Leaf]) -> Self:
        """Return the values of rows, whose columns have physical names, in leaves with bounds."""
        return cls([_flat(leaf_column(rows, leaf.physical)) for leaf in leaves])

    def admitted(self, bounds: Bounds) -> Mask:
        """Return which of n files or row groups may hold one of the rows, (n,) bool.

        Args:
            bounds: One column per leaf. An end that is not known admits every value.
        """
        if not self._columns:
            return np.ones(len(bounds), np.bool_)
        return np.array([len(rows) > 0 for rows in self.rows_within(bounds)], np.bool_)

    def rows_within(self, bounds: Bounds) -> Iterator[Rows]:
        """Yield for each file or row group the numbers of the rows that it may hold; not sorted.

        Args:
            bounds: As `admitted` takes them; at least one column.
        """
        axes = [_Axis(*pair) for pair in zip(self._columns, bounds.columns, strict=True)]
        by_first = np.argsort(axes[0].ids, kind="stable")
        ordered = axes[0].ids[by_first].astype(np.int64)
        for number in range(len(bounds)):
            low, high = axes[0].span(number)
            edges = np.searchsorted(ordered, np.array([1, low, high + 1], np.int64)).tolist()
            nulls = by_first[: edges[0] if axes[0].may_be_null[number] else 0]
            rows = np.concatenate([nulls, by_first[edges[1] : edges[2]]])
            for axis in axes[1:]:
                rows = rows[axis.admits(rows, number)]
            yield rows


class _Axis:
    """One column: range ids of the rows' values, 0 for null, between the ends of all boxes."""

    def __init__(self, values: pa.Array, bounds: ColumnBounds) -> None:
        low, high = _plain_zero(bounds.low), _with_nan(_plain_zero(bounds.high))
        edges = pa.concat_arrays([low, high]).drop_null()
        edges = pc.unique(edges.take(pc.sort_indices(edges)))
        self.ids: Ids = range_ids(values, edges)
        # An end that is null has range id 0: nothing is below it, and nothing above counts.
        self._low = np.maximum(range_ids(low, edges).astype(np.int64), 1)
        highs = range_ids(high, edges).astype(np.int64)
        self._high = np.where(highs == 0, len(edges) + 1, highs)
        none_null = pc.fill_null(pc.equal(bounds.null_count, 0), fill_value=False)
        self.may_be_null: Mask = ~np.asarray(none_null, np.bool_)

    def span(self, number: int) -> tuple[int, int]:
        """Return the least and the greatest id of a value that a box admits."""
        return int(self._low[number]), int(self._high[number])

    def admits(self, rows: Rows, number: int) -> Mask:
        """Return which of some rows have a value that a box admits, or null if it may hold one."""
        ids = self.ids[rows]
        low, high = self.span(number)
        inside = (ids >= low) & (ids <= high)
        return inside | (ids == 0) if self.may_be_null[number] else inside


def _flat(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    flat = pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
    return flat.dictionary_decode() if isinstance(flat, pa.DictionaryArray) else flat


def _plain_zero(ends: pa.Array) -> pa.Array:
    """Return ends with one zero: range ids count both as equal, but sort them as they come."""
    return pc.add(ends, pa.scalar(0.0, ends.type)) if pa.types.is_floating(ends.type) else ends


def _with_nan(highs: pa.Array) -> pa.Array:
    """Return upper ends, NaN for infinity: footers leave NaN out, and their ends stand for it."""
    if not pa.types.is_floating(highs.type):
        return highs
    infinite = pc.equal(highs, pa.scalar(float("inf"), highs.type))
    return pc.if_else(infinite, pa.scalar(float("nan"), highs.type), highs)
