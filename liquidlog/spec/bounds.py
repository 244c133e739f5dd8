"""Bounds: what statistics say of the values in each file, typed, column by column.

Source: PROTOCOL.md, "Per-file Statistics".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.spec.arrow import TIMESTAMP, TIMESTAMP_NTZ, arrow_type, unsupported_types
from liquidlog.spec.schema import (
    VOID,
    DataType,
    DecimalType,
    Leaf,
    PrimitiveType,
    StructField,
    StructType,
)

NUM_RECORDS: Final = "numRecords"
MIN_VALUES: Final = "minValues"
MAX_VALUES: Final = "maxValues"
NULL_COUNT: Final = "nullCount"

MILLISECOND_REST_US: Final = 999
"""What a maximum of a timestamp is raised by, because the log holds milliseconds."""

_LAST_US: Final = (1 << 63) - 1

_BOUNDED: Final = frozenset(
    {
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "date",
        "timestamp",
        "timestamp_ntz",
        "string",
    }
)
_NEVER_SHOWN: Final = (PrimitiveType("variant"), VOID)


def has_bounds(data_type: DataType) -> bool:
    """Return whether a leaf of this type has min/max statistics (is eligible for skipping).

    Numeric types, date, timestamp, timestamp_ntz and string are; boolean, binary, array, map,
    variant and unknown types are not.
    """
    match data_type:
        case DecimalType():
            return True
        case PrimitiveType(name):
            return name in _BOUNDED
        case _:
            return False


def bounds_type(leaf: Leaf) -> pa.DataType:
    """Return the Arrow type of a leaf's bounds; the null type where Arrow has none for the leaf.

    A leaf whose type has no bounds has a type here too: that of its nulls.
    """
    alone = StructType((StructField(leaf.logical[-1], leaf.data_type),))
    shown = leaf.data_type not in _NEVER_SHOWN and not unsupported_types(alone)
    return arrow_type(leaf.data_type) if shown else pa.null()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnBounds:
    """The bounds of one column, one entry per file, null where unknown.

    `low` and `high` have the Arrow type of the column (timestamps in microseconds) and are both
    inclusive; `null_count` is int64 and counts rows.
    """

    low: pa.Array
    high: pa.Array
    null_count: pa.Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounds:
    """The bounds of some columns in each of some files.

    `columns` are in the order in which the caller named the leaves. `num_records` is int64, the
    physical rows of each file, null where unknown. All arrays have one entry per file. Masks are
    numpy arrays of bool, one entry per file.
    """

    columns: tuple[ColumnBounds, ...]
    num_records: pa.Array

    def __post_init__(self) -> None:
        """Refuse arrays that differ in length, are in chunks, or are not of the types promised."""
        for number, column in enumerate(self.columns):
            ends = (column.low, column.high, column.null_count)
            if any(isinstance(array, pa.ChunkedArray) for array in ends):
                raise ValueError(f"column {number} has bounds in chunks")
            lengths = {len(array) for array in ends}
            if lengths != {len(self)}:
                raise ValueError(f"column {number} has bounds of {lengths} files, not {len(self)}")
            if column.low.type != column.high.type:
                raise ValueError(f"column {number} is from {column.low.type} to {column.high.type}")
        counts = (self.num_records, *(column.null_count for column in self.columns))
        if any(count.type != pa.int64() for count in counts):
            raise ValueError(f"counts are int64, not {[str(count.type) for count in counts]}")

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.num_records)

    def low(self, number: int) -> pa.Array:
        """Return the smallest value of column `number` in each file, null where unknown."""
        return self.columns[number].low

    def high(self, number: int) -> pa.Array:
        """Return the largest value of column `number` in each file, null where unknown."""
        return self.columns[number].high

    def null_count(self, number: int) -> pa.Array:
        """Return how many rows of each file are null in column `number`, null where unknown."""
        return self.columns[number].null_count

    def known(self, number: int) -> NDArray[np.bool_]:
        """Return which files have both ends of column `number`."""
        both = pc.and_(self.low(number).is_valid(), self.high(number).is_valid())
        return np.asarray(both, np.bool_)

    def all_known(self) -> NDArray[np.bool_]:
        """Return which files have both ends of every column; none where there are no columns."""
        mask = np.full(len(self), bool(self.columns))
        for number in range(len(self.columns)):
            mask &= self.known(number)
        return mask

    def any_unknown(self) -> NDArray[np.bool_]:
        """Return which files may have values of some column without ends of it."""
        mask = np.zeros(len(self), np.bool_)
        for number in range(len(self.columns)):
            mask |= self.unknown(number)
        return mask

    def only_nulls(self, number: int) -> NDArray[np.bool_]:
        """Return which files hold nothing but nulls in column `number`, and so have no ends."""
        nulls = pc.fill_null(pc.equal(self.null_count(number), self.num_records), fill_value=False)
        return np.asarray(nulls, np.bool_) & ~self.known(number)

    def unknown(self, number: int) -> NDArray[np.bool_]:
        """Return which files may hold any value in column `number`: they lack statistics."""
        return ~(self.known(number) | self.only_nulls(number))

    def filter(self, mask: pa.BooleanArray) -> "Bounds":
        """Return the bounds of the files where `mask` is true."""
        return self._each(lambda array: array.filter(mask))

    def take(self, rows: pa.Array) -> "Bounds":
        """Return the bounds of the files at `rows` (integers), in that order."""
        return self._each(lambda array: array.take(rows))

    def select(self, numbers: Sequence[int]) -> "Bounds":
        """Return the bounds of some columns, in the order of `numbers`."""
        chosen = tuple(self.columns[number] for number in numbers)
        return Bounds(columns=chosen, num_records=self.num_records)

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> "Bounds":
        return Bounds(
            columns=tuple(
                ColumnBounds(
                    low=change(column.low),
                    high=change(column.high),
                    null_count=change(column.null_count),
                )
                for column in self.columns
            ),
            num_records=change(self.num_records),
        )


Mask = NDArray[np.bool_]
"""(n,) bool, one per live file of a snapshot."""

BoundsOf = Callable[[Sequence[Leaf]], Bounds]
"""Returns the bounds of leaves, one column per leaf, one entry per live file of a snapshot."""

ValuesOf = Callable[[str, pa.DataType], pa.Array]
"""(section of the statistics, type) -> its values for one leaf, null where not of that type."""


def column_bounds(leaf: Leaf, values_of: ValuesOf) -> ColumnBounds:
    """Return the bounds of a leaf from statistics as a log states them.

    The log truncates timestamps to milliseconds, so their maxima are raised by 999 us. A leaf
    whose type has no bounds has nulls.
    """
    wanted = bounds_type(leaf)
    null_count = values_of(NULL_COUNT, pa.int64())
    if not has_bounds(leaf.data_type):
        nothing = pa.nulls(len(null_count), wanted)
        return ColumnBounds(low=nothing, high=nothing, null_count=null_count)
    return ColumnBounds(
        low=values_of(MIN_VALUES, wanted),
        high=_raised(values_of(MAX_VALUES, wanted)),
        null_count=null_count,
    )


def _raised(maxima: pa.Array) -> pa.Array:
    if maxima.type not in {TIMESTAMP, TIMESTAMP_NTZ}:
        return maxima
    stated = pc.cast(maxima, pa.int64())
    # Past the last microsecond that there is, a maximum is unknown.
    inside = pc.less_equal(stated, _LAST_US - MILLISECOND_REST_US)
    return pc.cast(pc.if_else(inside, pc.add(stated, MILLISECOND_REST_US), None), maxima.type)


def concat_bounds(parts: Sequence[Bounds]) -> Bounds:
    """Return the bounds of the files of all parts, which are of the same columns, in order."""
    if len(parts) == 1:
        return parts[0]
    return Bounds(
        columns=tuple(
            ColumnBounds(
                low=pa.concat_arrays([column.low for column in same]),
                high=pa.concat_arrays([column.high for column in same]),
                null_count=pa.concat_arrays([column.null_count for column in same]),
            )
            for same in zip(*(part.columns for part in parts), strict=True)
        ),
        num_records=pa.concat_arrays([part.num_records for part in parts]),
    )


def cast_where_possible(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the values as `wanted`, null where a value cannot be converted."""
    try:
        return pc.cast(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(values) == 1:
            return pa.nulls(1, wanted)
        half = len(values) // 2
        parts = (values.slice(0, half), values.slice(half))
        return pa.concat_arrays([cast_where_possible(part, wanted) for part in parts])
