"""Bounds: the smallest and largest value of each column in each file, typed, from statistics.

`usable_bounds` and `skipping_bounds` correct what writers are known to state wrongly.

Source: PROTOCOL.md, "Per-file Statistics".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from liquidlog.errors import CorruptLogError, UsageError
from liquidlog.spec.arrow import INTERVALS, arrow_type, unsupported_types
from liquidlog.spec.schema import (
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Leaf,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    leaves,
    split_paths,
)
from liquidlog.spec.text import widened_to_floats

NUM_RECORDS: Final = "numRecords"
MIN_VALUES: Final = "minValues"
MAX_VALUES: Final = "maxValues"
NULL_COUNT: Final = "nullCount"

MILLISECOND_REST_US: Final = 999
"""A maximum of a timestamp is raised by this, because the log holds milliseconds."""

_BOUNDED: Final = frozenset(
    {
        *("byte", "short", "integer", "long", "float", "double"),
        *("date", "timestamp", "timestamp_ntz", "string"),
    }
)


def has_bounds(data_type: DataType) -> bool:
    """Return whether leaves of this type have minimum and maximum, and so allow skipping."""
    return isinstance(data_type, DecimalType) or str(data_type) in _BOUNDED


def bounds_type(leaf: Leaf) -> pa.DataType:
    """Return the Arrow type of a leaf's bounds, null if the leaf's type has no Arrow form."""
    alone = StructType((StructField(leaf.logical[-1], leaf.data_type),))
    is_odd = str(leaf.data_type) in {"variant", str(VOID), *INTERVALS}
    return pa.null() if is_odd or unsupported_types(alone) else arrow_type(leaf.data_type)


class ColumnBounds(NamedTuple):
    """The bounds of one column, one entry per file, null where unknown.

    `low` and `high` are inclusive, with times in microseconds; `null_count` (int64) counts rows.
    """

    low: pa.Array
    high: pa.Array
    null_count: pa.Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounds:
    """The bounds of some columns, in the order of the requested leaves; one entry per file.

    `num_records` (int64) are the physical rows, null where unknown. Masks are numpy arrays of bool.
    """

    columns: tuple[ColumnBounds, ...]
    num_records: pa.Array

    def __len__(self) -> int:
        return len(self.num_records)

    def low(self, number: int) -> pa.Array:
        return self.columns[number].low

    def high(self, number: int) -> pa.Array:
        return self.columns[number].high

    def null_count(self, number: int) -> pa.Array:
        return self.columns[number].null_count

    def known(self, number: int) -> NDArray[np.bool_]:
        """Return which files have both ends of a column."""
        both = pc.and_(self.low(number).is_valid(), self.high(number).is_valid())
        return np.asarray(both, np.bool_)

    def all_known(self) -> NDArray[np.bool_]:
        """Return which files have both ends of every column; without columns, none."""
        mask = np.full(len(self), bool(self.columns))
        for number in range(len(self.columns)):
            mask &= self.known(number)
        return mask

    def any_unknown(self) -> NDArray[np.bool_]:
        """Return which files may have values of a column whose ends are unknown."""
        mask = np.zeros(len(self), np.bool_)
        for number in range(len(self.columns)):
            mask |= self.unknown(number)
        return mask

    def only_nulls(self, number: int) -> NDArray[np.bool_]:
        nulls = pc.fill_null(pc.equal(self.null_count(number), self.num_records), fill_value=False)
        return np.asarray(nulls, np.bool_) & ~self.known(number)

    def unknown(self, number: int) -> NDArray[np.bool_]:
        """Return which files lack statistics of a column, so that it may hold any value."""
        return ~(self.known(number) | self.only_nulls(number))

    def filter(self, mask: pa.BooleanArray) -> "Bounds":
        return self._each(lambda array: array.filter(mask))

    def take(self, rows: pa.Array) -> "Bounds":
        return self._each(lambda array: array.take(rows))

    def select(self, numbers: Sequence[int]) -> "Bounds":
        chosen = tuple(self.columns[number] for number in numbers)
        return Bounds(columns=chosen, num_records=self.num_records)

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> "Bounds":
        return Bounds(
            columns=tuple(ColumnBounds(*map(change, column)) for column in self.columns),
            num_records=change(self.num_records),
        )


Mask = NDArray[np.bool_]
"""(n,) bool, one entry per live file of a snapshot."""

BoundsOf = Callable[[Sequence[Leaf]], Bounds]


def remembering(bounds_of: BoundsOf) -> BoundsOf:
    """Return the function with a cache, so that the bounds of the same columns are loaded once."""
    cached = cache(bounds_of)
    return lambda columns: cached(tuple(columns))


ValuesOf = Callable[[Path, pa.DataType], pa.Array]
"""Maps a path in the statistics and a type to values, null where they are of another type."""


def bounds_from(columns: Sequence[Leaf], values_of: ValuesOf) -> Bounds:
    """Return the bounds of leaves from the log, after the rules for any use."""
    num_records, found = values_of((NUM_RECORDS,), pa.int64()), []
    for leaf in columns:
        wanted = bounds_type(leaf)
        low = high = pa.nulls(len(num_records), wanted)
        if has_bounds(leaf.data_type):
            low = values_of((MIN_VALUES, *leaf.physical), wanted)
            high = values_of((MAX_VALUES, *leaf.physical), wanted)
        null_count = values_of((NULL_COUNT, *leaf.physical), pa.int64())
        found.append(usable_bounds(ColumnBounds(low, high, null_count), leaf.data_type))
    return Bounds(columns=tuple(found), num_records=num_records)


def can_be_nan(data_type: DataType) -> bool:
    """Return whether a column of this type can hold NaN, Spark's largest number."""
    return data_type in {PrimitiveType("float"), PrimitiveType("double")}


_INT64_ENDS: Final = (-(1 << 63), (1 << 63) - 1)
_INT64_DIGITS: Final = 18

_NO_SECONDS_IN_OFFSETS_US: Final = 94_694_400_000_000
"""1973-01-01: since then, offsets of all time zones are whole minutes."""
_MINUTE_US: Final = 60_000_000
_DOUBLE_ERROR: Final = 2.0**-52
"""Twice the largest relative error of a double."""

_ELEMENTS: Final = ("key", "value", "item", "element")
"""Parquet's names for parts of arrays and maps."""
_CUT: Final = r"\??\x{FFFD}+$"
"""The end of a text that was cut; a question mark is half of a character."""
_LAST_CHARACTER: Final = "\U0010ffff"


def is_like_element(leaf: Leaf, schema: StructType) -> bool:
    """Return whether a column has Parquet's name for elements of an array or map in this table."""
    is_named_so = len(leaf.physical) == 1 and leaf.physical[0] in _ELEMENTS
    return is_named_so and any(
        isinstance(one.data_type, ArrayType | MapType) for one in leaves(schema)
    )


def usable_bounds(stated: ColumnBounds, data_type: DataType) -> ColumnBounds:
    """Return the bounds of a column, corrected for any use."""
    low, high = stated.low, stated.high
    match data_type:
        case DecimalType(precision, 0) if precision > _INT64_DIGITS:
            # delta-rs states the ends of int64 for larger decimals without a scale.
            # Source: delta-rs crates/core/src/writer/stats.rs, StatsScalar as JSON.
            ends = pa.array(_INT64_ENDS, pa.decimal128(38, 0)).cast(low.type)
            low, high = (
                pc.if_else(pc.is_in(end, value_set=ends), pa.scalar(None, end.type), end)
                for end in (low, high)
            )
            return stated._replace(low=low, high=high)
        case PrimitiveType("string"):
            # Delta Spark before 3.3 ends cut texts with U+FFFD; supplementary characters are
            # larger. Source: delta-io/delta#3430; StatisticsCollection.truncateMaxStringAgg before.
            high = pc.replace_substring_regex(high, pattern=_CUT, replacement=_LAST_CHARACTER)
            return stated._replace(high=high)
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            # Maxima of times lack microseconds, by PROTOCOL.md and in checkpoints of Trino and
            # delta-rs. Source: trinodb/trino#31231, delta-io/delta-rs#2571.
            micros = pc.cast(high, pa.int64())
            # A maximum past the last possible microsecond is unknown.
            inside = pc.less_equal(micros, _INT64_ENDS[1] - MILLISECOND_REST_US)
            raised = pc.if_else(inside, pc.add(micros, MILLISECOND_REST_US), None)
            return stated._replace(high=pc.cast(raised, high.type))
        case ArrayType() | MapType():
            # delta-rs before 1.6 counts null elements as null arrays or maps.
            # Source: delta-io/delta-rs#4578, #4581.
            none = pc.equal(stated.null_count, 0)
            return stated._replace(null_count=pc.if_else(none, stated.null_count, None))
        case _:
            return stated


def skipping_bounds(
    stated: ColumnBounds, data_type: DataType, *, was_float: bool, is_like_element: bool
) -> ColumnBounds:
    """Return usable bounds that include every value of a column; they may be too wide."""
    low, high, null_count = stated.low, stated.high, stated.null_count
    if is_like_element:
        # delta-rs 0.22 to 1.1 counts null elements as nulls of a column with the element's name,
        # such as value. Source: tables written by 0.22.3 and 1.1.4; delta-io/delta-rs#4578.
        null_count = pa.nulls(len(null_count), pa.int64())
    match data_type:
        case PrimitiveType("timestamp"):
            # Delta Spark writes old timestamps with offsets that lack their seconds.
            # Source: delta-io/delta#5512; StatisticsCollection, the format of timestamps.
            low, high = _moved_early(low, -_MINUTE_US), _moved_early(high, _MINUTE_US)
        case PrimitiveType("double") if was_float:
            # A column widened to double has the shortest text of its floats; Delta Spark skips
            # such files. Source: delta.typeChanges.
            numbers = (np.asarray(pc.fill_null(end, 0.0)) for end in (low, high))
            wide = (pa.array(ends) for ends in widened_to_floats(*numbers))
            low, high = (
                pc.if_else(end.is_valid(), wider, pa.scalar(None, pa.float64()))
                for end, wider in zip((low, high), wide, strict=True)
            )
        case DecimalType():
            # delta-rs converts decimals to doubles before it writes bounds.
            # Source: delta-rs crates/core/src/writer/stats.rs, StatsScalar::Decimal.
            low, high = _moved_large(low, pc.subtract), _moved_large(high, pc.add)
        case _:
            pass
    return ColumnBounds(low=low, high=high, null_count=null_count)


def _moved_early(values: pa.Array, step_us: int) -> pa.Array:
    micros = pc.cast(values, pa.int64())
    early = pc.less(micros, _NO_SECONDS_IN_OFFSETS_US)
    floor = np.iinfo(np.int64).min + _MINUTE_US
    moved = pc.add(pc.max_element_wise(micros, floor, skip_nulls=False), step_us)
    return pc.cast(pc.if_else(early, moved, micros), values.type)


def _moved_large(values: pa.Array, move: Callable[[pa.Array, pa.Array], pa.Array]) -> pa.Array:
    """Move the decimals that their nearest double does not determine."""
    error = pc.multiply(pc.abs(pc.cast(values, pa.float64())), _DOUBLE_ERROR)
    coarse = pc.fill_null(pc.greater(error, 0.5 * 10.0**-values.type.scale), fill_value=False)
    wide = pa.decimal256(values.type.precision + 2, values.type.scale)
    steps = pc.cast(pc.if_else(coarse, pc.multiply(error, 4.0), 0.0), wide)
    return move(pc.cast(values, wide), steps)


def concat_bounds(parts: Sequence[Bounds]) -> Bounds:
    """Return the bounds of the files of all parts, which have the same columns, in order."""
    if len(parts) == 1:
        return parts[0]
    columns = tuple(
        ColumnBounds(*map(pa.concat_arrays, zip(*same, strict=True)))
        for same in zip(*(part.columns for part in parts), strict=True)
    )
    return Bounds(columns=columns, num_records=pa.concat_arrays([one.num_records for one in parts]))


def cast_where_possible(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values as the type `wanted`, null where they cannot be converted."""
    try:
        return pc.cast(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(values) == 1:
            return pa.nulls(1, wanted)
        half = len(values) // 2
        parts = (values.slice(0, half), values.slice(half))
        return pa.concat_arrays([cast_where_possible(part, wanted) for part in parts])


# Statistics in JSON to typed bounds, value by value: the slow path, for malformed statistics and
# values of a wrong type. A value of a wrong type loses only one bound.

_object_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def exact_bounds(stats: pa.Array, columns: Sequence[Leaf]) -> Bounds:
    """Return the same as `parse_bounds`, for `stats` as JSON strings."""
    documents = list(map(_members, stats.to_pylist()))

    @cache
    def section(name: str) -> list[Mapping[str, msgspec.Raw]]:
        return [_members(document.get(name)) for document in documents]

    def values(path: Path, wanted: pa.DataType) -> pa.Array:
        within = section(path[0]) if len(path) > 1 else documents
        return _typed([_raw(members, path[1:] or path) for members in within], wanted)

    return bounds_from(columns, values)


def _members(text: str | msgspec.Raw | None) -> Mapping[str, msgspec.Raw]:
    try:
        return _object_decoder.decode(text) if text else {}
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _raw(members: Mapping[str, msgspec.Raw], path: Path) -> bytes | None:
    for part in path[:-1]:
        members = _members(members.get(part))
    found = bytes(members.get(path[-1], b"null"))
    return None if found == b"null" else found


def _typed(raw: Sequence[bytes | None], wanted: pa.DataType) -> pa.Array:
    try:
        if wanted == pa.string():
            document = b"[" + b",".join(value or b"null" for value in raw) + b"]"
            return pa.array(msgspec.json.decode(document, type=list[str | None]), wanted)
        text = pc.cast(pa.array(raw, pa.binary()), pa.string())
        return pc.cast(pc.utf8_trim(text, characters='"'), wanted)
    except (pa.ArrowInvalid, msgspec.MsgspecError):
        if len(raw) == 1:
            return pa.nulls(1, wanted)
        return pa.concat_arrays([_typed([value], wanted) for value in raw])


# Statistics in JSON to typed bounds, many files at once. Arrow's JSON reader parses a batch of
# files with the types of the leaves as its schema, so no number passes through a float. A batch
# that it refuses is halved until only the faulty files are left; `exact_bounds` parses them.

_BATCH_FILES: Final = 32_768
_FEW_FILES: Final = 64

_NOT_FINITE: Final = ("NaN", "Infinity", ":Inf", ":-Inf")
_NUM_RECORDS_FIRST: Final = r'^\{"numRecords":(?P<n>[0-9]{1,18})[,}]'


def parse_bounds(stats: pa.Array | pa.ChunkedArray, columns: Sequence[Leaf]) -> Bounds:
    """Return the bounds of `columns` in each file, null where absent or of a wrong type."""
    chunks = stats.chunks if isinstance(stats, pa.ChunkedArray) else [stats]
    batches = [
        chunk.slice(start, _BATCH_FILES)
        for chunk in chunks
        for start in range(0, len(chunk), _BATCH_FILES)
    ]
    if not batches:
        return exact_bounds(pa.array([], pa.string()), columns)
    return concat_bounds([_batch(batch, columns) for batch in batches])


def record_counts(stats: pa.Array) -> pa.Array:
    """Return numRecords (int64) of each file, null where absent; `stats` are large strings."""
    found = pc.extract_regex(stats, _NUM_RECORDS_FIRST)
    counts = pc.cast(pc.struct_field(found, "n"), pa.int64())
    odd = pc.and_(counts.is_null(), stats.is_valid())
    if not pc.any(odd).as_py():
        return counts
    parsed = parse_bounds(stats.filter(odd), ()).num_records
    return pc.replace_with_mask(counts, odd, parsed)


def _batch(stats: pa.Array, columns: Sequence[Leaf]) -> Bounds:
    text = pc.cast(stats, pa.large_string())
    # Which texts Arrow's reader may parse: one object each, with plain numbers only.
    regular = pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))
    if any(can_be_nan(leaf.data_type) for leaf in columns):
        # The protocol has these as texts; Arrow's reader also takes bare ones, which JSON forbids.
        for word in _NOT_FINITE:
            regular = pc.and_not(regular, pc.match_substring(text, word))
    regular = pc.fill_null(regular, fill_value=False)
    found = _read(pc.if_else(regular, text, "{}"), columns)
    odd = pc.and_not(pc.is_valid(text), regular)
    rows = np.flatnonzero(odd)
    if not len(rows):
        return found
    order = np.arange(len(text))
    order[rows] = len(text) + np.arange(len(rows))
    exact = exact_bounds(text.take(pa.array(rows)), columns)
    return concat_bounds([found, exact]).take(pa.array(order))


def _read(text: pa.Array, columns: Sequence[Leaf]) -> Bounds:
    """Return the bounds of files that seem to hold one object each."""
    if len(text) <= _FEW_FILES:
        return exact_bounds(text, columns)
    try:
        found = _parsed(text, columns)
    except pa.ArrowInvalid:
        half = len(text) // 2
        return concat_bounds([_read(part, columns) for part in (text[:half], text[half:])])

    def values(path: Path, wanted: pa.DataType) -> pa.Array:
        nested = pc.struct_field(found[path[0]], list(path[1:])) if path[1:] else found[path[0]]
        return cast_where_possible(nested.combine_chunks(), wanted)

    return bounds_from(columns, values)


def _parsed(text: pa.Array, columns: Sequence[Leaf]) -> pa.Table:
    # Made here, because pyarrow imports an installed pandas when it makes its first value.
    end, nothing = (pa.scalar(value, text.type) for value in ("\n", ""))
    lines = pc.binary_join_element_wise(text, end, nothing)
    _, offsets, content = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)[[lines.offset, lines.offset + len(lines)]]
    size = int(ends[1] - ends[0])
    found = pyarrow.json.read_json(
        pa.BufferReader(content.slice(int(ends[0]), size)),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=_json_schema(columns), unexpected_field_behavior="ignore"
        ),
    )
    # Each file gives at least one object, so an equal count means exactly one.
    if found.num_rows != len(text):
        raise pa.ArrowInvalid("a file has several objects for statistics")
    return found


def _json_schema(columns: Sequence[Leaf]) -> pa.Schema:
    counts = {leaf.physical: pa.int64() for leaf in columns}
    ends = {}
    for leaf in columns:
        if has_bounds(leaf.data_type):
            wanted = bounds_type(leaf)
            # Arrow's JSON reader does not parse zones and dates; its casts from text do.
            ends[leaf.physical] = pa.string() if pa.types.is_temporal(wanted) else wanted
    sections = ((MIN_VALUES, ends), (MAX_VALUES, ends), (NULL_COUNT, counts))
    fields = [pa.field(name, _struct(types)) for name, types in sections if types]
    return pa.schema([pa.field(NUM_RECORDS, pa.int64()), *fields])


def _struct(types: Mapping[Path, pa.DataType]) -> pa.DataType:
    if () in types:
        return types[()]
    below: dict[str, dict[Path, pa.DataType]] = {}
    for path, kind in types.items():
        below.setdefault(path[0], {})[path[1:]] = kind
    return pa.struct([(name, _struct(inner)) for name, inner in below.items()])


NUM_INDEXED_COLUMNS: Final = "delta.dataSkippingNumIndexedCols"
STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """Statistics of one data file by physical leaf path, without leaves that lack a bound.

    Decimals are `decimal.Decimal`; dates, timestamps, NaN and infinities are strings.
    """

    num_records: int
    min_values: Mapping[Path, Any]
    max_values: Mapping[Path, Any]
    null_count: Mapping[Path, int]


def indexed_leaves(schema: StructType, configuration: Mapping[str, str]) -> tuple[Leaf, ...]:
    """Return the leaves that should have statistics by the table's properties, in schema order.

    A list of names takes precedence over a number of columns; a struct's name means all its leaves.
    """
    named = configuration.get(STATS_COLUMNS)
    if named is not None:
        prefixes = [tuple(map(str.lower, path)) for path in split_paths(named)]
        return tuple(
            leaf
            for leaf in leaves(schema)
            if any(tuple(map(str.lower, leaf.logical))[: len(path)] == path for path in prefixes)
        )
    text = configuration.get(NUM_INDEXED_COLUMNS, "32")
    try:
        number = int(text)
    except ValueError:
        problem = f"{NUM_INDEXED_COLUMNS} must be a whole number, found {text!r}"
        raise UsageError(problem, property=text) from None
    return tuple(leaves(schema) if number < 0 else islice(leaves(schema), number))


def encode_stats(stats: FileStatistics, *, tight_bounds: bool = False) -> str:
    """Return the `stats` of an add; `tight_bounds` says that the bounds are exact for live rows."""
    document = {
        "numRecords": stats.num_records,
        "minValues": _nested(stats.min_values),
        "maxValues": _nested(stats.max_values),
        "nullCount": _nested(stats.null_count),
        **({"tightBounds": True} if tight_bounds else {}),
    }
    return msgspec.json.encode(document).decode()


def wide_bounds(stats: str, *, where: str) -> str:
    """Return the statistics of a file with a deletion vector, whose bounds may be too wide.

    Counts stay as written: physical rows, and nulls, which readers trust only for none or all.
    """
    try:
        document = msgspec.json.decode(stats, type=dict[str, msgspec.Raw])
        counted = msgspec.json.decode(document.get("numRecords", b"null"), type=int)
    except (msgspec.MsgspecError, RecursionError) as error:
        problem = f"a deletion vector needs statistics with numRecords: {error}"
        raise CorruptLogError(where, problem) from error
    if counted < 0:
        raise CorruptLogError(where, f"its statistics have numRecords {counted}")
    document["tightBounds"] = msgspec.Raw(b"false")
    return msgspec.json.encode(document).decode()


def _nested(values: Mapping[Path, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, value in values.items():
        parent = document
        for part in path[:-1]:
            parent = parent.setdefault(part, {})
        # Some JSON readers parse a number with an exponent ("0E-18") as a float: all digits.
        exact = isinstance(value, Decimal)
        parent[path[-1]] = msgspec.Raw(format(value, "f").encode()) if exact else value
    return document
