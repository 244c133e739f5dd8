"""What footers say of row groups: bounds of leaves like those of files in the log.

An end is known only where it certainly is one: a footer's type must be the leaf's, or an integer
that the table has widened; its place in today's calendar must be known. Statistics of
floating-point numbers leave out NaN, the largest number to Spark: their upper end is infinity.

Source: Apache Parquet format, parquet.thrift, Statistics.
"""

import decimal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.parquet_file import ParquetFile
from liquidlog.data.reader import find_columns
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.bounds import Bounds, ColumnBounds, bounds_type, cast_where_possible, has_bounds
from liquidlog.spec.schema import Leaf, MappingMode, Path, StructType

_STORED: Final = {
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
}
"""The Arrow type of statistics by physical type, where it is a number's."""

_DIGITS: Final = decimal.Context(prec=76)


def read_row_group_bounds(
    file: ParquetFile,
    *,
    schema: StructType,
    mapping: MappingMode,
    wanted: Sequence[Leaf],
) -> Bounds:
    """Return the bounds of the row groups of an open file, a column for each leaf.

    A leaf that the file does not have is not known there.
    """
    footer = file.metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    num_records = pa.array([group.num_rows for group in groups], pa.int64())
    places = _places(file, schema, mapping, wanted)
    columns = []
    for leaf in wanted:
        kind = bounds_type(leaf)
        place = places.get(leaf.physical)
        found = [None] * len(groups) if place is None else _statistics(groups, place.number)
        stored = pa.null() if place is None else place.stored
        column = _column(found, leaf, kind, stored)
        low, high = (file.calendars.bounds(end) for end in (column.low, column.high))
        columns.append(replace(column, low=low, high=high))
    return Bounds(columns=tuple(columns), num_records=num_records)


@dataclass(frozen=True, slots=True)
class _Place:
    number: int
    stored: pa.DataType


def _places(
    file: ParquetFile, schema: StructType, mapping: MappingMode, wanted: Sequence[Leaf]
) -> dict[Path, _Place]:
    """Return where leaves are in a file, by physical path; only those that certainly are there."""
    table = arrow_schema(schema, physical=True)
    columns = find_columns(file.schema, table, mapping)
    if any(True for _ in columns.problems(table)):
        return {}
    numbers = _leaves(file.schema)
    stored = ((leaf, columns.stored_path(leaf.physical)) for leaf in wanted)
    return {leaf.physical: numbers[path] for leaf, path in stored if path in numbers}


def _leaves(schema: pa.Schema) -> dict[Path, _Place]:
    found: dict[Path, _Place] = {}
    for number, (path, kind) in enumerate(_walk(pa.struct(list(schema)), ())):
        if path is not None:
            found[path] = _Place(number, kind)
    return found


def _walk(kind: pa.DataType, path: Path | None) -> Iterator[tuple[Path | None, pa.DataType]]:
    """Yield (path, type) of every leaf in the order of Parquet; the path is None inside a list."""
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    if kind.num_fields == 0:
        yield path, kind
    is_struct = isinstance(kind, pa.StructType)
    for child in (kind.field(number) for number in range(kind.num_fields)):
        yield from _walk(child.type, None if path is None or not is_struct else (*path, child.name))


def _statistics(groups: Sequence[pq.RowGroupMetaData], number: int) -> list[pq.Statistics | None]:
    chunks = (group.column(number) for group in groups)
    return [chunk.statistics if chunk.is_stats_set else None for chunk in chunks]


def _column(
    found: Sequence[pq.Statistics | None],
    leaf: Leaf,
    kind: pa.DataType,
    stored: pa.DataType,
) -> ColumnBounds:
    counts = [one.null_count if one is not None and one.has_null_count else None for one in found]
    low = high = pa.nulls(len(found), kind)
    if has_bounds(leaf.data_type) and _is_plain(stored, kind):
        ends = [one if one is not None and one.has_min_max else None for one in found]
        low = _values([None if one is None else one.min_raw for one in ends], ends, stored, kind)
        high = _values([None if one is None else one.max_raw for one in ends], ends, stored, kind)
        if pa.types.is_floating(kind):
            low, high = _with_nan(low, high)
    return ColumnBounds(low=low, high=high, null_count=pa.array(counts, pa.int64()))


def _is_plain(stored: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_integer(stored) and pa.types.is_integer(kind):
        return bool(pa.types.is_signed_integer(stored) and stored.bit_width <= kind.bit_width)
    if pa.types.is_large_string(stored) or pa.types.is_string_view(stored):
        return bool(pa.types.is_string(kind))
    return bool(stored == kind)


def _values(
    raw: Sequence[Any],
    ends: Sequence[pq.Statistics | None],
    stored: pa.DataType,
    kind: pa.DataType,
) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([_decimal(one, kind.scale) for one in raw], kind)
    if pa.types.is_string(kind):
        return pa.array([_text(one) for one in raw], kind)
    physical = {one.physical_type for one in ends if one is not None}
    if len(physical) != 1 or not physical <= _STORED.keys():
        return pa.nulls(len(raw), kind)
    numbers = pa.array(raw, _STORED[physical.pop()])
    return cast_where_possible(cast_where_possible(numbers, stored), kind)


def _decimal(raw: Any, scale: int) -> decimal.Decimal | None:  # noqa: ANN401  as Arrow gives it
    if isinstance(raw, bytes):
        raw = int.from_bytes(raw, "big", signed=True)
    return decimal.Decimal(raw).scaleb(-scale, _DIGITS) if isinstance(raw, int) else None


def _text(raw: Any) -> str | None:  # noqa: ANN401  as Arrow gives it
    try:
        return raw.decode() if isinstance(raw, bytes) else None
    except UnicodeDecodeError:
        return None


def _with_nan(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return ends of floating-point numbers that allow for NaN, which a footer leaves out."""
    known = pc.and_(low.is_valid(), high.is_valid())
    numbers = pc.and_(known, pc.invert(pc.or_kleene(pc.is_nan(low), pc.is_nan(high))))
    numbers = pc.fill_null(numbers, fill_value=False)
    nothing = pa.scalar(None, low.type)
    top = pa.scalar(float("inf"), high.type)
    return pc.if_else(numbers, low, nothing), pc.if_else(numbers, top, nothing)
