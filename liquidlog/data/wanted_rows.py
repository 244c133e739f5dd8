"""Rows that are looked for in files: a multiset, from which each row that is found is taken.

Files and row groups whose bounds admit none of them are left out.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.curve.grid import Ids, range_ids
from liquidlog.data.buffers import integer_array
from liquidlog.data.checksum import Lane, Lanes, lanes_checksum, row_lanes, same_bits
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.bounds import Bounds, ColumnBounds
from liquidlog.spec.schema import Leaf, Path

_HASH_BITS: Final = 64
_SPARE_BITS: Final = 4
"""With these, one in 16 of the hashes that are no members begins as a member does."""
_MOST_BITS: Final = 26

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Taken(NamedTuple):
    """Rows that were found, and the wanted rows that they equal: their numbers, (n,) int64 each.

    Those of the rows that were found increase.
    """

    rows: Rows
    wanted: Rows


class UnequalRowsError(ValueError):
    """Rows with the same two hashes are not equal, which is not by chance."""


class WantedRows:
    """Rows to find; `missing` counts those of `rows` that were not found yet. Mutable."""

    def __init__(self, rows: pa.Table, columns: Sequence[Path]) -> None:
        """Look for rows; equal ones are wanted as often as they occur.

        `columns` can be asked for first.
        """
        self.rows = rows
        first, second = lanes = row_lanes(rows)
        self.checksum = lanes_checksum(lanes)
        self.missing = len(rows)
        self._order = np.lexsort((second, first))
        first, second = first[self._order], second[self._order]
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        self._starts = np.flatnonzero(begins)
        self._counts = np.diff(np.append(self._starts, len(rows)))
        self._require_equal(begins)
        self._kind_of = np.empty(len(rows), np.int64)
        self._kind_of[self._order] = np.cumsum(begins) - 1
        self._used = np.zeros(len(self._starts), np.int64)
        self._first, self._second = first[begins], second[begins]
        self._tries = int(_occurrences(self._first).max(initial=-1)) + 1
        self._keys = _Members(_first_lane([leaf_column(rows, path) for path in columns]))

    def may_be(self, columns: pa.Table) -> Mask:
        """Return which of n rows have the values of a wanted row in the columns asked for first."""
        return self._keys.among(_first_lane(columns.columns))

    def take(self, rows: pa.Table) -> Taken:
        """Take the rows that are wanted, the first of equal ones, from what is missing."""
        lanes = row_lanes(rows)
        kinds = self._kinds(lanes)
        known = np.flatnonzero(kinds >= 0)
        kinds = kinds[known]
        ordinals = self._used[kinds] + _occurrences(kinds)
        wanted = ordinals < self._counts[kinds]
        found, kinds = known[wanted], kinds[wanted]
        partners = self._order[self._starts[kinds] + ordinals[wanted]]
        if not same_bits(_taken(rows, found), _taken(self.rows, partners)):
            raise UnequalRowsError
        self._use(kinds)
        return Taken(found, partners)

    def is_missing(self, wanted: Rows) -> Mask:
        """Return of which wanted rows, by their numbers, one or an equal one is not found yet."""
        kinds = self._kind_of[wanted]
        return self._used[kinds] < self._counts[kinds]

    def take_equal(self, wanted: Rows) -> Mask:
        """Take rows, the first of equal ones, from what is missing; return which were taken."""
        kinds = self._kind_of[wanted]
        found: Mask = self._used[kinds] + _occurrences(kinds) < self._counts[kinds]
        self._use(kinds[found])
        return found

    def _use(self, kinds: Rows) -> None:
        np.add.at(self._used, kinds, 1)
        self.missing -= len(kinds)

    def _require_equal(self, begins: Mask) -> None:
        """Refuse rows of the same hashes that are not equal: any of them may stand for another."""
        again = np.flatnonzero(~begins)
        before, after = self._order[again - 1], self._order[again]
        if not same_bits(_taken(self.rows, before), _taken(self.rows, after)):
            raise UnequalRowsError

    def _kinds(self, lanes: Lanes) -> Rows:
        first, second = lanes
        kinds = np.full(len(first), -1, np.int64)
        places = np.searchsorted(self._first, first)
        last = len(self._first) - 1
        for step in range(self._tries):
            at = np.minimum(places + step, last)
            same = (self._first[at] == first) & (self._second[at] == second)
            kinds[same] = at[same]
        return kinds


def _first_lane(columns: Sequence[pa.ChunkedArray]) -> Lane:
    names = [str(number) for number in range(len(columns))]
    return row_lanes(pa.table(list(columns), names))[0]


class _Members:
    """A set of hashes. Bits of them say of most others, from little memory, that they are none."""

    def __init__(self, hashes: Lane) -> None:
        self._sorted = np.unique(hashes)
        bits = min(len(self._sorted).bit_length() + _SPARE_BITS, _MOST_BITS)
        self._shift = np.uint64(_HASH_BITS - bits)
        self._begins = np.zeros(1 << bits, np.bool_)
        self._begins[self._sorted >> self._shift] = True

    def among(self, hashes: Lane) -> Mask:
        """Return which of n hashes are members, (n,) bool."""
        found: Mask = self._begins[hashes >> self._shift]
        suspects = np.flatnonzero(found)
        if len(suspects):
            places = np.searchsorted(self._sorted, hashes[suspects])
            places = np.minimum(places, len(self._sorted) - 1)
            found[suspects] = self._sorted[places] == hashes[suspects]
        return found


def _occurrences(kinds: Rows | Lane) -> Rows:
    order = np.argsort(kinds, kind="stable")
    ordered = kinds[order]
    begins = np.ones(len(kinds), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(begins)
    counts = np.diff(np.append(starts, len(kinds)))
    found = np.empty(len(kinds), np.int64)
    found[order] = np.arange(len(kinds)) - np.repeat(starts, counts)
    return found


def _taken(table: pa.Table, rows: Rows) -> pa.Table:
    return table.take(integer_array(rows))


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

        An end that is not known admits every value.
        """
        if not self._columns:
            return np.ones(len(bounds), np.bool_)
        return np.array([len(rows) > 0 for rows in self.rows_within(bounds)], np.bool_)

    def rows_within(self, bounds: Bounds) -> Iterator[Rows]:
        """Yield for each file or row group the numbers of the rows that it may hold; not sorted."""
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
        return int(self._low[number]), int(self._high[number])

    def admits(self, rows: Rows, number: int) -> Mask:
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
