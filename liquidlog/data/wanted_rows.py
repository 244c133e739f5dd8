"""Rows that are looked for in files: a multiset, from which each row that is found is taken."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.data.buffers import integer_array
from liquidlog.data.checksum import Lane, Lanes, lanes_checksum, row_lanes
from liquidlog.data.identical import same_bits
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.schema import Path

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
        """Look for rows.

        Args:
            rows: The rows, with physical names; equal ones are wanted as often as they occur.
            columns: Physical paths of columns that can be asked for first; none if not.
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
        """Return which of n rows have the values of a wanted row in the columns asked for first.

        Args:
            columns: These columns of the rows, flat, in the order given.
        """
        return self._keys.among(_first_lane(columns.columns))

    def take(self, rows: pa.Table) -> Taken:
        """Take the rows that are wanted, the first of equal ones, from what is missing.

        Args:
            rows: All columns, with physical names.
        """
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
        """Take rows, the first of equal ones, from what is missing; return which were taken.

        Args:
            wanted: The number of a wanted row that each of the rows equals, as `take` returns it.
        """
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
        """Return which of the distinct wanted rows has the hashes of each row, -1 where none."""
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
    """Return how many equal entries stand before each entry."""
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
