"""What footers say: bounds of row groups like those in the log, and evidence for results.

An end is known only where it certainly is one: a footer's type must be the leaf's, or an integer
that the table has widened; its place in today's calendar must be known. Statistics of
floating-point numbers leave out NaN, the largest number to Spark: their upper end is infinity.

Source: Apache Parquet format, parquet.thrift, Statistics.
"""

import decimal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.parquet_file import ParquetFile
from liquidlog.data.reader import find_columns
from liquidlog.plan import WrittenFile
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.bounds import (
    Bounds,
    ColumnBounds,
    bounds_type,
    cast_where_possible,
    has_bounds,
    parse_bounds,
)
from liquidlog.spec.schema import Leaf, MappingMode, Path, StructType, leaves
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

# Compare the footers of written files with what a result says about the files.
#
# The row count is compared, and the bounds and nulls of the columns that have statistics in the
# result. A bound in the result may be wider than the footer's, never narrower. And find out from
# the footers of any files which columns they do not have.
#
# Source: parquet.thrift, Statistics; PROTOCOL.md, "Per-file Statistics".

_FIELD_ID: Final = b"PARQUET:field_id"
_SIDES: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = {
    "min": ("minimum", pc.less_equal),
    "max": ("maximum", pc.greater_equal),
}
"""Per side of a bound: its name, and the comparison that must hold between result and footer."""


def footer_problems(
    address: str,
    written: WrittenFile,
    schema: StructType,
    storage: StorageOptions = NO_OPTIONS,
) -> tuple[str, ...]:
    """Return every way in which a file's footer contradicts a result, as sentences."""
    with ParquetFile(address, storage=storage) as file:
        return tuple(_problems(file.metadata, written, schema))


def columns_held(
    address: str,
    columns: Sequence[tuple[Path, Collection[int]]],
    *,
    size_bytes: int,
    storage: StorageOptions = NO_OPTIONS,
) -> tuple[Path, ...]:
    """Return those of some columns that a file may have: by name, whatever its case, or by id.

    A column is its physical path and its ids; those of a struct include its fields'.
    """
    with ParquetFile(address, storage=storage, size_bytes=size_bytes) as file:
        schema = file.metadata.schema
        found = [schema.column(number).path.lower() for number in range(len(schema))]
        ids = frozenset(_field_ids(schema.to_arrow_schema()))
    return tuple(path for path, own in columns if ids.intersection(own) or _is_among(path, found))


def _is_among(path: Path, leaf_paths: Sequence[str]) -> bool:
    name = ".".join(path).lower()
    return any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaf_paths)


def _field_ids(fields: Iterable[pa.Field]) -> Iterator[int]:
    for field in fields:
        number = (field.metadata or {}).get(_FIELD_ID, b"")
        if number.isdigit():
            yield int(number)
        kind = field.type
        yield from _field_ids(kind.field(index) for index in range(kind.num_fields))


def _problems(footer: pq.FileMetaData, written: WrittenFile, schema: StructType) -> Iterator[str]:
    if footer.num_rows != written.num_records:
        yield f"{written.path} has {footer.num_rows} rows, the result says {written.num_records}"
        return
    numbers = _column_numbers(footer)
    found = [leaf for leaf in leaves(schema) if ".".join(leaf.physical) in numbers]
    claimed = parse_bounds(pa.array([written.stats], pa.string()), found)
    for position, leaf in enumerate(found):
        number = numbers[".".join(leaf.physical)]
        for group in range(footer.num_row_groups):
            statistics = footer.row_group(group).column(number).statistics
            side = None if statistics is None else _lie(claimed, position, leaf, statistics)
            if side is not None:
                yield (
                    f"the {side} of {'.'.join(leaf.logical)} in the result for"
                    f" {written.path} leaves out values that the file holds"
                )
                break


def _column_numbers(footer: pq.FileMetaData) -> Mapping[str, int]:
    paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
    counts = Counter(paths)
    return {path: number for number, path in enumerate(paths) if counts[path] == 1}


def _lie(claimed: Bounds, position: int, leaf: Leaf, statistics: pq.Statistics) -> str | None:
    if not has_bounds(leaf.data_type) or not statistics.has_min_max:
        return None
    ends = {"min": claimed.low(position), "max": claimed.high(position)}
    for side, (name, is_wider) in _SIDES.items():
        bound = ends[side][0]
        value = _value(statistics, side, bound.type)
        # NaN is greater than every number, and footers never contain it.
        claims = bound.is_valid and bound.as_py() == bound.as_py()
        if claims and value is not None and not is_wider(bound, value).as_py():
            return name
    return None


def _value(statistics: pq.Statistics, side: str, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return pa.scalar(getattr(statistics, side), kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
        return None


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
