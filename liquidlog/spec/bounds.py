"""Bounds: what statistics say of the values in each file, typed, column by column.

`RULES` is the table of what writers are known to state wrongly.

Source: PROTOCOL.md, "Per-file Statistics".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.spec.arrow import arrow_type, unsupported_types
from liquidlog.spec.floats import widened_to_floats
from liquidlog.spec.schema import (
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Leaf,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    leaves,
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


def remembering(bounds_of: BoundsOf) -> BoundsOf:
    """Return the same function, which loads the bounds of the same columns only once."""
    known: dict[tuple[Leaf, ...], Bounds] = {}

    def bounds(columns: Sequence[Leaf]) -> Bounds:
        wanted = tuple(columns)
        if wanted not in known:
            known[wanted] = bounds_of(wanted)
        return known[wanted]

    return bounds


ValuesOf = Callable[[str, pa.DataType], pa.Array]
"""(section of the statistics, type) -> its values for one leaf, null where not of that type."""


def column_bounds(leaf: Leaf, values_of: ValuesOf) -> ColumnBounds:
    """Return the bounds of a leaf from statistics as a log states them, without what is no bound.

    A leaf whose type has no bounds has nulls.
    """
    wanted = bounds_type(leaf)
    null_count = values_of(NULL_COUNT, pa.int64())
    low = high = pa.nulls(len(null_count), wanted)
    if has_bounds(leaf.data_type):
        low, high = values_of(MIN_VALUES, wanted), values_of(MAX_VALUES, wanted)
    stated = ColumnBounds(low=low, high=high, null_count=null_count)
    return mended(stated, Use.ANY, Column(leaf.data_type))


class Use(Enum):
    """What bounds are used for."""

    ANY = auto()
    SKIPPING = auto()
    """Files are skipped by them: they must hold every value, and may be wider."""
    ROWS = auto()
    """Rows are read or replaced by them: they hold values that Delta's readers miss, too."""


@dataclass(frozen=True, slots=True)
class Column:
    """What rules ask of a column.

    `was_float` says that it was widened from float, `is_like_element` that it has the name that
    Parquet gives the elements of arrays or maps, in a table that has such.
    """

    data_type: DataType
    was_float: bool = False
    is_like_element: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """What some writer states that is not so of the columns `of`, and what is taken instead."""

    stated: str
    writers: str
    source: str
    use: Use
    of: Callable[[Column], bool]
    instead: Callable[[ColumnBounds], ColumnBounds]


def mended(stated: ColumnBounds, use: Use, column: Column) -> ColumnBounds:
    """Return the bounds of a column after the rules for a use."""
    for rule in RULES:
        if rule.use is use and rule.of(column):
            stated = rule.instead(stated)
    return stated


def can_be_nan(data_type: DataType) -> bool:
    """Return whether a column of this type can hold NaN, which Spark takes for the largest."""
    return data_type in {PrimitiveType("float"), PrimitiveType("double")}


_INT64_ENDS: Final = (-(1 << 63), (1 << 63) - 1)
_INT64_DIGITS: Final = 18
"""Every decimal with so many digits is far from the ends of int64."""

_NO_SECONDS_IN_OFFSETS_US: Final = 94_694_400_000_000
"""1973-01-01; from then on, the offsets of all time zones are whole minutes."""

_MINUTE_US: Final = 60_000_000

_DOUBLE_ERROR: Final = 2.0**-52
"""Twice the largest relative error of a double."""

_REPEATED: Final = (ArrayType, MapType)
_ELEMENTS: Final = ("key", "value", "item", "element")
"""What Parquet calls the parts of arrays and maps."""

_CUT: Final = r"\??\x{FFFD}+$"
"""What marks a text that was cut; half of a character before it was written as a question mark."""

_LAST_CHARACTER: Final = "\U0010ffff"


def is_like_element(leaf: Leaf, schema: StructType) -> bool:
    """Return whether a column has a name that elements of some array or map of the table have."""
    is_named_so = len(leaf.physical) == 1 and leaf.physical[0] in _ELEMENTS
    return is_named_so and any(isinstance(one.data_type, _REPEATED) for one in leaves(schema))


def _is_wide_whole(kind: DataType) -> bool:
    """Return whether a type has decimals without a scale that int64 may not hold."""
    return isinstance(kind, DecimalType) and not kind.scale and kind.precision > _INT64_DIGITS


def _without_int64_ends(stated: ColumnBounds) -> ColumnBounds:
    def known(ends: pa.Array) -> pa.Array:
        cut = pc.is_in(ends, value_set=pa.array(_INT64_ENDS, pa.decimal128(38, 0)).cast(ends.type))
        return pc.if_else(cut, pa.scalar(None, ends.type), ends)

    return replace(stated, low=known(stated.low), high=known(stated.high))


def _after_the_cut(stated: ColumnBounds) -> ColumnBounds:
    high = pc.replace_substring_regex(stated.high, pattern=_CUT, replacement=_LAST_CHARACTER)
    return replace(stated, high=high)


def _raised(stated: ColumnBounds) -> ColumnBounds:
    micros = pc.cast(stated.high, pa.int64())
    # Past the last microsecond that there is, a maximum is unknown.
    inside = pc.less_equal(micros, _LAST_US - MILLISECOND_REST_US)
    raised = pc.if_else(inside, pc.add(micros, MILLISECOND_REST_US), None)
    return replace(stated, high=pc.cast(raised, stated.high.type))


def _no_count_of_elements(stated: ColumnBounds) -> ColumnBounds:
    none = pc.equal(stated.null_count, 0)
    return replace(stated, null_count=pc.if_else(none, stated.null_count, None))


def _without_count(stated: ColumnBounds) -> ColumnBounds:
    return replace(stated, null_count=pa.nulls(len(stated.null_count), pa.int64()))


def _without_offset_seconds(stated: ColumnBounds) -> ColumnBounds:
    low, high = _moved_early(stated.low, -_MINUTE_US), _moved_early(stated.high, _MINUTE_US)
    return replace(stated, low=low, high=high)


def _moved_early(values: pa.Array, step_us: int) -> pa.Array:
    micros = pc.cast(values, pa.int64())
    early = pc.less(micros, _NO_SECONDS_IN_OFFSETS_US)
    floor = np.iinfo(np.int64).min + _MINUTE_US
    moved = pc.add(pc.max_element_wise(micros, floor, skip_nulls=False), step_us)
    return pc.cast(pc.if_else(early, moved, micros), values.type)


def _around_floats(stated: ColumnBounds) -> ColumnBounds:
    numbers = (np.asarray(pc.fill_null(end, 0.0)) for end in (stated.low, stated.high))
    low, high = (pa.array(ends) for ends in widened_to_floats(*numbers))
    nothing = pa.scalar(None, pa.float64())
    return replace(
        stated,
        low=pc.if_else(stated.low.is_valid(), low, nothing),
        high=pc.if_else(stated.high.is_valid(), high, nothing),
    )


def _around_doubles(stated: ColumnBounds) -> ColumnBounds:
    low, high = _moved_large(stated.low, pc.subtract), _moved_large(stated.high, pc.add)
    return replace(stated, low=low, high=high)


def _moved_large(values: pa.Array, move: Callable[[pa.Array, pa.Array], pa.Array]) -> pa.Array:
    """Return the decimals; those that their nearest double does not determine are moved."""
    error = pc.multiply(pc.abs(pc.cast(values, pa.float64())), _DOUBLE_ERROR)
    coarse = pc.fill_null(pc.greater(error, 0.5 * 10.0**-values.type.scale), fill_value=False)
    wide = pa.decimal256(values.type.precision + 2, values.type.scale)
    steps = pc.cast(pc.if_else(coarse, pc.multiply(error, 4.0), 0.0), wide)
    return move(pc.cast(values, wide), steps)


def _nan_alone(stated: ColumnBounds) -> ColumnBounds:
    """Return bounds of NaN alone: infinity, since comparisons with NaN are false here."""
    infinite = pa.scalar(float("inf"), stated.high.type)
    nan = pa.repeat(infinite, len(stated.high))
    return replace(stated, low=nan, high=nan)


RULES: Final = (
    Rule(
        stated="ends of int64 for decimals without a scale that lie beyond",
        writers="delta-rs",
        source="delta-rs crates/core/src/writer/stats.rs, StatsScalar as JSON",
        use=Use.ANY,
        of=lambda column: _is_wide_whole(column.data_type),
        instead=_without_int64_ends,
    ),
    Rule(
        stated="long texts that end in U+FFFD, which supplementary characters exceed",
        writers="Delta Spark before 3.3, Databricks of that time",
        source="delta-io/delta#3430; StatisticsCollection.truncateMaxStringAgg before it",
        use=Use.ANY,
        of=lambda column: column.data_type == PrimitiveType("string"),
        instead=_after_the_cut,
    ),
    Rule(
        stated="maxima of times without their microseconds",
        writers="all that follow PROTOCOL.md; checkpoints of Trino and delta-rs",
        source="PROTOCOL.md, Per-file Statistics; trinodb/trino#31231, delta-io/delta-rs#2571",
        use=Use.ANY,
        of=lambda column: (
            column.data_type in {PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")}
        ),
        instead=_raised,
    ),
    Rule(
        stated="null elements as null arrays and maps",
        writers="delta-rs before 1.6",
        source="delta-io/delta-rs#4578, #4581",
        use=Use.ANY,
        of=lambda column: isinstance(column.data_type, _REPEATED),
        instead=_no_count_of_elements,
    ),
    Rule(
        stated="null counts of elements as those of columns of the same name, like value",
        writers="delta-rs 0.22 to 1.1",
        source="tables written by 0.22.3 and 1.1.4; delta-io/delta-rs#4578",
        use=Use.SKIPPING,
        of=lambda column: column.is_like_element,
        instead=_without_count,
    ),
    Rule(
        stated="old instants with offsets that lack their seconds",
        writers="Delta Spark",
        source="delta-io/delta#5512; StatisticsCollection, the format of timestamps",
        use=Use.SKIPPING,
        of=lambda column: column.data_type == PrimitiveType("timestamp"),
        instead=_without_offset_seconds,
    ),
    Rule(
        stated="the shortest text of a float, for a column that is double by now",
        writers="Delta Spark, delta-rs",
        source="delta.typeChanges; Delta Spark skips such files",
        use=Use.SKIPPING,
        of=lambda column: column.was_float and column.data_type == PrimitiveType("double"),
        instead=_around_floats,
    ),
    Rule(
        stated="decimals that were doubles on the way",
        writers="delta-rs",
        source="delta-rs crates/core/src/writer/stats.rs, StatsScalar::Decimal",
        use=Use.SKIPPING,
        of=lambda column: isinstance(column.data_type, DecimalType),
        instead=_around_doubles,
    ),
    Rule(
        stated="bounds that leave NaN out",
        writers="delta-rs, polars, kernel-rs, whoever takes them from footers of Parquet",
        source="delta-io/delta#7101; parquet.thrift, ColumnOrder",
        use=Use.ROWS,
        of=lambda column: can_be_nan(column.data_type),
        instead=_nan_alone,
    ),
)
"""What writers are known to state wrongly. Each has a test, by that writer where it can be had."""


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
