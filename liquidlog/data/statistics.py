"""Statistics of data files: collected while writing, and read from footers.

Bounds may be absent, but are never wrong: no value of the file is below the minimum or above the
maximum, if a reader adds the microseconds that the log leaves out.

Source: PROTOCOL.md, "Per-file Statistics"; Delta Spark, StatisticsCollection (also for how long
strings are truncated) and its tests; Apache Parquet format, parquet.thrift, Statistics.
"""

import decimal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.encodings import decimal_integers, fixed_width
from liquidlog.data.reader import DataFile, ParquetFile, find_columns, leaf_types
from liquidlog.errors import DataFileError
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.spec.arrow import PARQUET_FIELD_ID, arrow_schema, leaf_column
from liquidlog.spec.bounds import (
    Bounds,
    ColumnBounds,
    FileStatistics,
    bounds_type,
    cast_where_possible,
    has_bounds,
    parse_bounds,
)
from liquidlog.spec.schema import (
    VOID,
    DataType,
    DecimalType,
    Leaf,
    MappingMode,
    Path,
    PrimitiveType,
    StructType,
    find_column,
    leaves,
)
from liquidlog.spec.text import json_scalar
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions

_MICROSECONDS_PER_MILLISECOND: Final = 1000
_FLOATS: Final = frozenset({"float", "double"})
_MAX_ASCII: Final = "\x7f"
_MAX_CODE_POINT: Final = "\U0010ffff"
_LAST_IN_ONE_UNIT: Final = "\uffff"
_EXPANSION: Final = 2


@dataclass(frozen=True, slots=True)
class Ends:
    """Smallest and largest value, in types that `_order` sorts as the table does.

    Integers, days and microseconds are int, strings are UTF-8, decimals Decimal, floats numpy's.
    """

    minimum: Any
    maximum: Any


class StatisticsCollector:
    """Collects the statistics of one file's add action from slices of any number and size."""

    def __init__(self, schema: StructType, options: WriterOptions) -> None:
        """Collect for the leaves in `options.indexed`, which are physical paths."""
        indexed = set(options.indexed)
        self._prefix_chars = options.string_prefix_chars
        asked = tuple(leaf for leaf in leaves(schema) if leaf.physical in indexed)
        self._leaves = tuple(leaf for leaf in asked if leaf.data_type != VOID)
        self._num_records = 0
        self._null_count = dict.fromkeys((leaf.physical for leaf in asked), 0)
        self._void = tuple(leaf.physical for leaf in asked if leaf.data_type == VOID)
        self._ends: dict[Path, Ends] = {}

    def add(self, table: pa.Table) -> None:
        """Add the rows of a slice, whose columns have physical names."""
        self._num_records += table.num_rows
        for leaf in self._leaves:
            column = leaf_column(table, leaf.physical)
            self._null_count[leaf.physical] += column.null_count
            if has_bounds(leaf.data_type) and column.null_count < len(column):
                found = _ends(column, leaf.data_type)
                known = self._ends.get(leaf.physical, found)
                self._ends[leaf.physical] = Ends(
                    min(known.minimum, found.minimum, key=_order),
                    max(known.maximum, found.maximum, key=_order),
                )

    def finish(self) -> FileStatistics:
        return FileStatistics(
            num_records=self._num_records,
            min_values=self._values("minimum", truncate_min),
            max_values=self._values("maximum", truncate_max),
            # Files hold no void columns, but their nulls count.
            null_count={**self._null_count, **dict.fromkeys(self._void, self._num_records)},
        )

    def _values(self, side: str, truncate: Callable[[str, int], str | None]) -> Mapping[Path, Any]:
        values: dict[Path, Any] = {}
        for leaf in self._leaves:
            bounds = self._ends.get(leaf.physical)
            value = None if bounds is None else _json_value(getattr(bounds, side), leaf)
            if isinstance(value, str) and leaf.data_type == PrimitiveType("string"):
                value = truncate(value, self._prefix_chars)
            if value is not None:
                values[leaf.physical] = value
        return values


def _order(value: Any) -> Any:  # noqa: ANN401  an end
    """Return a sort key for ends: -0.0 is before 0.0, and NaN after infinity."""
    is_float = isinstance(value, np.floating)
    return (np.isnan(value), value, not np.signbit(value)) if is_float else value


def _ends(column: pa.ChunkedArray, data_type: DataType) -> Ends:
    if isinstance(column.type, pa.DictionaryType):
        used = [chunk.dictionary.take(chunk.indices.unique()) for chunk in column.chunks]
        column = pa.chunked_array(used, column.type.value_type)
    if isinstance(data_type, PrimitiveType) and data_type.name in _FLOATS:
        return _float_bounds(column)
    if column.type == pa.string():
        found = pc.min_max(column.cast(pa.binary()))
    elif isinstance(data_type, DecimalType):
        return _decimal_bounds(column, data_type)
    elif pa.types.is_date32(column.type):
        found = pc.min_max(column.cast(pa.int32()))
    elif pa.types.is_integer(column.type):
        found = pc.min_max(column)
    else:
        found = pc.min_max(column.cast(pa.int64()))
    return Ends(found["min"].as_py(), found["max"].as_py())


def _decimal_bounds(column: pa.ChunkedArray, data_type: DecimalType) -> Ends:
    """Return the bounds of decimals, where possible as 64-bit integers: 20 times faster."""
    if pa.types.is_decimal64(column.type):
        chunks = [chunk.view(pa.int64()) for chunk in column.chunks]
    else:
        chunks = [chunk for chunk in map(decimal_integers, column.chunks) if chunk is not None]
    if len(chunks) < column.num_chunks:
        found = pc.min_max(column)
        return Ends(found["min"].as_py(), found["max"].as_py())
    found = pc.min_max(pa.chunked_array(chunks, pa.int64()))
    low, high = (Decimal(found[end].as_py()).scaleb(-data_type.scale) for end in ("min", "max"))
    return Ends(low, high)


def _float_bounds(column: pa.ChunkedArray) -> Ends:
    present = column.drop_null().combine_chunks()
    values = fixed_width(present, f"<f{present.type.bit_width // 8}")
    is_nan = np.isnan(values)
    numbers = values[~is_nan] if is_nan.any() else values
    if not len(numbers):
        return Ends(values[0], values[0])
    minimum, maximum = numbers.min(), numbers.max()
    if minimum == 0 and np.signbit(numbers[numbers == 0]).any():
        minimum = -np.abs(minimum)
    if maximum == 0 and not np.signbit(numbers[numbers == 0]).all():
        maximum = np.abs(maximum)
    largest = values[is_nan][0] if is_nan.any() else maximum
    return Ends(minimum, largest)


def _json_value(bound: Any, leaf: Leaf) -> Any:  # noqa: ANN401  JSON
    match bound, leaf.data_type:
        case np.floating(), _:
            # The shortest text of this number in its own width: 0.1 for a float, not 0.10000000149.
            return json_scalar(float(str(bound)), timespec="milliseconds")
        case bytes(), _:
            return _text(bound)
        case int(), PrimitiveType("date"):
            return _iso(np.datetime64(bound, "D"))
        case int(), PrimitiveType("timestamp" | "timestamp_ntz" as name):
            moment = _iso(np.datetime64(bound // _MICROSECONDS_PER_MILLISECOND, "ms"))
            return f"{moment}Z" if moment and name == "timestamp" else moment
        case _:
            return bound


def _iso(moment: np.datetime64) -> str | None:
    day = moment.astype("datetime64[D]")
    if not np.datetime64("0001-01-01") <= day <= np.datetime64("9999-12-31"):
        return None
    return str(moment)


def truncate_min(text: str, prefix_chars: int) -> str | None:
    """Return a lower bound: the first UTF-16 code units of `text`, with code points whole."""
    return text[: _code_points(text, prefix_chars)] if prefix_chars > 0 else None


def truncate_max(text: str, prefix_chars: int) -> str | None:
    """Return an upper bound of every text that begins as `text` does; None if there is none.

    The character after the prefix becomes U+007F or, if it is larger, the largest code point. A
    prefix before a largest code point is extended, up to twice its length.
    """
    if prefix_chars <= 0:
        return None
    end = _code_points(text, prefix_chars)
    while end < len(text) and text[end] == _MAX_CODE_POINT:
        end += 1
    if _units(text[:end]) > _EXPANSION * prefix_chars:
        return None
    if end == len(text):
        return text
    return text[:end] + (_MAX_ASCII if text[end] < _MAX_ASCII else _MAX_CODE_POINT)


def _code_points(text: str, units: int) -> int:
    end = 0
    while units > 0 and end < len(text):
        units -= _units(text[end])
        end += 1
    return end


def _units(text: str) -> int:
    return len(text) + sum(character > _LAST_IN_ONE_UNIT for character in text)


def rescan(
    path: str,
    *,
    schema: StructType,
    options: WriterOptions,
    mapping: MappingMode = MappingMode.NONE,
    num_records: int | None = None,
    ignored: frozenset[str] = frozenset(),
    storage: StorageOptions = NO_OPTIONS,
) -> FileStatistics:
    """Return statistics of a file's physical rows without `ignored` columns."""
    found = (path for path in options.indexed if find_column(schema, path, physical=True))
    tops = {path[0] for path in found}
    wanted = StructType(tuple(one for one in schema.fields if one.physical_name in tops))
    collector = StatisticsCollector(wanted, options)
    with DataFile.open(
        path, schema=schema, mapping=mapping, ignored=ignored, storage=storage
    ) as file:
        if num_records is not None and num_records != file.num_rows:
            raise DataFileError(path, f"has {file.num_rows} rows, the log says {num_records}")
        names = [field.physical_name for field in wanted.fields]
        for group in range(file.num_row_groups):
            table = file.read([(name,) for name in names], [group])
            collector.add(table.rename_columns(names))
    return collector.finish()


def footer_problems(
    address: str, written: WrittenFile, schema: StructType, storage: StorageOptions = NO_OPTIONS
) -> tuple[str, ...]:
    """Return how a file's footer contradicts a result, which may have wider bounds."""
    with ParquetFile(address, storage=storage) as file:
        return tuple(_problems(file, written, schema))


def columns_held(
    address: str,
    columns: Sequence[tuple[Path, Collection[int]]],
    *,
    size_bytes: int,
    storage: StorageOptions = NO_OPTIONS,
) -> tuple[Path, ...]:
    """Return the columns that a file may have, by path in any case, or by one of their ids."""
    with ParquetFile(address, storage=storage, size_bytes=size_bytes) as file:
        schema = file.metadata.schema
        found = [schema.column(number).path.lower() for number in range(len(schema))]
        ids = frozenset(_field_ids(schema.to_arrow_schema()))
    below = [f"{path}." for path in found]
    named = ((path, f"{'.'.join(path).lower()}.", own) for path, own in columns)
    return tuple(
        path
        for path, name, own in named
        if ids.intersection(own) or any(leaf.startswith(name) for leaf in below)
    )


def _field_ids(fields: Iterable[pa.Field]) -> Iterator[int]:
    for field in fields:
        number = (field.metadata or {}).get(PARQUET_FIELD_ID, b"")
        if number.isdigit():
            yield int(number)
        kind = field.type
        yield from _field_ids(kind.field(index) for index in range(kind.num_fields))


def _problems(file: ParquetFile, written: WrittenFile, schema: StructType) -> Iterator[str]:
    rows = file.metadata.num_rows
    if rows != written.num_records:
        yield f"{written.path} has {rows} rows, the result says {written.num_records}"
        return
    places = _leaves(file.schema)
    found = [leaf for leaf in leaves(schema) if leaf.physical in places]
    claimed = parse_bounds(pa.array([written.stats], pa.string()), found)
    for position, leaf in enumerate(found):
        low, high = _footer_ends(file, leaf, places[leaf.physical])
        narrow = {
            "minimum": _is_beyond(pc.less, low, claimed.low(position)[0]),
            "maximum": _is_beyond(pc.greater, high, claimed.high(position)[0]),
        }
        yield from (
            f"the {side} of {'.'.join(leaf.logical)} in the result for {written.path} leaves out"
            " values that the file holds"
            for side, is_lie in narrow.items()
            if is_lie
        )


def _is_beyond(compare: Callable[..., pa.Array], ends: pa.Array, bound: pa.Scalar) -> bool:
    # NaN is greater than every number, and footers never contain it.
    claims = bound.is_valid and bound.as_py() == bound.as_py()
    return claims and bool(pc.any(compare(ends, bound)).as_py())


_STORED: Final = {
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
}
"""The Arrow type of numeric statistics by physical type."""
_DIGITS: Final = decimal.Context(prec=76)


def read_row_group_bounds(
    file: ParquetFile, *, schema: StructType, mapping: MappingMode, wanted: Sequence[Leaf]
) -> Bounds:
    """Return the bounds of the row groups of a file, a column for each leaf, where certain."""
    groups = _row_groups(file)
    num_records = pa.array([group.num_rows for group in groups], pa.int64())
    places = _places(file, schema, mapping, wanted)
    columns = [_column(file, leaf, places.get(leaf.physical)) for leaf in wanted]
    return Bounds(columns=tuple(columns), num_records=num_records)


class _Place(NamedTuple):
    number: int
    stored: pa.DataType


def _row_groups(file: ParquetFile) -> list[pq.RowGroupMetaData]:
    return [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]


def _places(
    file: ParquetFile, schema: StructType, mapping: MappingMode, wanted: Sequence[Leaf]
) -> dict[Path, _Place]:
    """Return where leaves are in a file, by physical path, if that is certain."""
    table = arrow_schema(schema, physical=True)
    columns = find_columns(file.schema, table, mapping)
    if any(True for _ in columns.problems()):
        return {}
    numbers = _leaves(file.schema)
    stored = ((leaf, columns.stored_path(leaf.physical)) for leaf in wanted)
    return {leaf.physical: numbers[path] for leaf, path in stored if path in numbers}


def _leaves(schema: pa.Schema) -> dict[Path, _Place]:
    walked = enumerate(leaf_types(pa.struct(list(schema)), ()))
    return {path: _Place(number, kind) for number, (path, kind) in walked if path is not None}


def _statistics(file: ParquetFile, number: int) -> list[pq.Statistics | None]:
    chunks = (group.column(number) for group in _row_groups(file))
    return [chunk.statistics if chunk.is_stats_set else None for chunk in chunks]


def _column(file: ParquetFile, leaf: Leaf, place: _Place | None) -> ColumnBounds:
    kind = bounds_type(leaf)
    if place is None:
        unknown = pa.nulls(file.metadata.num_row_groups, kind)
        return ColumnBounds(low=unknown, high=unknown, null_count=unknown.cast(pa.int64()))
    found = _statistics(file, place.number)
    counts = [one.null_count if one is not None and one.has_null_count else None for one in found]
    low, high = _footer_ends(file, leaf, place)
    if pa.types.is_floating(kind):
        low, high = _with_nan(low, high)
    # An end is unknown if it may be in another calendar.
    low, high = (file.calendars.bounds(end) for end in (low, high))
    return ColumnBounds(low=low, high=high, null_count=pa.array(counts, pa.int64()))


def _footer_ends(file: ParquetFile, leaf: Leaf, place: _Place) -> tuple[pa.Array, pa.Array]:
    """Return the smallest and the largest value of each row group by the footer."""
    kind, found = bounds_type(leaf), _statistics(file, place.number)
    if not (has_bounds(leaf.data_type) and _is_plain(place.stored, kind)):
        return pa.nulls(len(found), kind), pa.nulls(len(found), kind)
    ends = [one if one is not None and one.has_min_max else None for one in found]
    low = [None if one is None else one.min_raw for one in ends]
    high = [None if one is None else one.max_raw for one in ends]
    return _values(low, ends, place.stored, kind), _values(high, ends, place.stored, kind)


def _is_plain(stored: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_integer(stored) and pa.types.is_integer(kind):
        return bool(pa.types.is_signed_integer(stored) and stored.bit_width <= kind.bit_width)
    if pa.types.is_large_string(stored) or pa.types.is_string_view(stored):
        return bool(pa.types.is_string(kind))
    return bool(stored == kind)


def _values(
    raw: Sequence[Any], ends: Sequence[pq.Statistics | None], stored: pa.DataType, kind: pa.DataType
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
    """Return ends of floats that include NaN, which Spark sorts last and footers omit."""
    known = pc.and_(low.is_valid(), high.is_valid())
    numbers = pc.and_(known, pc.invert(pc.or_kleene(pc.is_nan(low), pc.is_nan(high))))
    numbers = pc.fill_null(numbers, fill_value=False)
    nothing = pa.scalar(None, low.type)
    top = pa.scalar(float("inf"), high.type)
    return pc.if_else(numbers, low, nothing), pc.if_else(numbers, top, nothing)
