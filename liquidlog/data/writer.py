"""Writes data files, and collects their statistics or reads them from footers.

Bounds may be absent, but are never wrong: no value of the file is below the minimum or above the
maximum, if a reader adds the microseconds that the log leaves out.

Everything is nullable, timestamps are INT64 microseconds, names and field ids are physical, and the
footer says that the calendar is today's, as the reference engine's readers expect. Row groups are
large, because each costs a reader requests; inside them, readers skip pages by their index.

Source: PROTOCOL.md, "Per-file Statistics"; Delta Spark, StatisticsCollection (also for how long
strings are truncated) and its tests; Apache Parquet format, parquet.thrift, Statistics.
"""

import decimal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from operator import ne
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.data.encodings import (
    CODES,
    FileEncoding,
    by_first_use,
    common_type,
    concat,
    convert_chunks,
    decimal_integers,
    fixed_width,
    map_dictionaries,
    plain_type,
    require_possible_filters,
    with_indices,
    with_light_indices,
)
from liquidlog.data.reader import Closing, DataFile, ParquetFile, find_columns, leaf_types
from liquidlog.errors import DataFileError, StorageError
from liquidlog.plan import DEFAULT_ROW_GROUP_ROWS, WriterOptions, WrittenFile
from liquidlog.spec.arrow import PARQUET_FIELD_ID, TODAYS_FOOTER, arrow_schema, leaf_column
from liquidlog.spec.bounds import (
    Bounds,
    ColumnBounds,
    FileStatistics,
    bounds_type,
    cast_where_possible,
    encode_stats,
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
from liquidlog.spec.text import json_scalar, parse_codec
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidlog.storage.files import create

_MAX_ASCII: Final = "\x7f"
_MAX_CODE_POINT: Final = "\U0010ffff"
_LAST_IN_ONE_UNIT: Final = "\uffff"


class Ends(NamedTuple):
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
    if pa.types.is_floating(column.type):
        return _float_bounds(column)
    if isinstance(data_type, DecimalType):
        return _decimal_bounds(column, data_type)
    if column.type == pa.string():
        column = column.cast(pa.binary())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif not pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    found = pc.min_max(column)
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
            moment = _iso(np.datetime64(bound // 1000, "ms"))
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
    if _units(text[:end]) > 2 * prefix_chars:
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
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    num_records = pa.array([group.num_rows for group in groups], pa.int64())
    found = find_columns(file.schema, arrow_schema(schema, physical=True), mapping)
    places, columns = _leaves(file.schema), []
    for leaf in wanted:
        path = found.stored_path(leaf.physical)
        columns.append(_column(file, leaf, places.get(path) if path else None))
    return Bounds(columns=tuple(columns), num_records=num_records)


class _Place(NamedTuple):
    number: int
    stored: pa.DataType


def _leaves(schema: pa.Schema) -> dict[Path, _Place]:
    walked = enumerate(leaf_types(pa.struct(list(schema)), ()))
    return {path: _Place(number, kind) for number, (path, kind) in walked if path is not None}


def _statistics(file: ParquetFile, number: int) -> list[pq.Statistics | None]:
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    chunks = (group.column(number) for group in groups)
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
    kind, found, stored = bounds_type(leaf), _statistics(file, place.number), place.stored
    is_plain = stored == kind
    if pa.types.is_integer(stored) and pa.types.is_integer(kind):
        is_plain = pa.types.is_signed_integer(stored) and stored.bit_width <= kind.bit_width
    elif pa.types.is_large_string(stored) or pa.types.is_string_view(stored):
        is_plain = pa.types.is_string(kind)
    if not (has_bounds(leaf.data_type) and is_plain):
        return pa.nulls(len(found), kind), pa.nulls(len(found), kind)
    ends = [one if one is not None and one.has_min_max else None for one in found]
    low = [None if one is None else one.min_raw for one in ends]
    high = [None if one is None else one.max_raw for one in ends]
    return _values(low, ends, stored, kind), _values(high, ends, stored, kind)


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


ROW_GROUP_BYTES: Final = 640 << 20
"""Most bytes in memory of a row group, which Arrow writes at once: a file of TPC-H lineitem with up
to 145 MiB."""
_MOST_DECIMAL64_DIGITS: Final = 18
_BUFFER_BYTES: Final = 1 << 20
"""Bytes gathered before a write: a call into Python for each page takes a tenth of the time."""


class DataFileWriter(Closing):
    """Context manager: writes slices of any size into one file; deletes it unless `finish` ran."""

    def __init__(
        self,
        path: str,
        *,
        schema: StructType,
        options: WriterOptions,
        sorted_by: str | None = None,
        storage: StorageOptions = NO_OPTIONS,
    ) -> None:
        """Create a file of a unique name.

        If the file has one row group, sorted by `sorted_by`, its footer says so.
        """
        self._path, self._sorted_by = path, sorted_by
        self._schema = arrow_schema(schema, physical=True)
        self._options = options
        parse_codec(options.compression)
        require_possible_filters(options.bloom_filters)
        self._statistics = StatisticsCollector(schema, options)
        self._light = _light_schema(self._schema)
        self._max_rows = options.row_group_rows or DEFAULT_ROW_GROUP_ROWS
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self.pending_bytes = 0
        """Bytes in memory of the rows that wait for their row group."""
        self.num_rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._file = create(path, storage)
        # The file itself is finished or discarded later.
        kept = SimpleNamespace(
            closed=False, write=self._file.write, flush=lambda: None, close=lambda: None
        )
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(kept, "w"), _BUFFER_BYTES)

    def close(self) -> None:
        if self._file.closed:
            return
        with suppress(OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._buffer.close()
        self._file.discard()

    @property
    def written_bytes(self) -> int:
        """Bytes of the row groups written so far."""
        return int(self._buffer.tell())

    def write(self, table: pa.Table) -> None:
        """Append rows with physical names; strings may be dictionary-encoded."""
        found, wanted = table.schema, self._schema
        kinds = map(plain_type, found.types)
        if found.names != wanted.names or any(map(ne, kinds, wanted.types)):
            raise ValueError(f"expected columns {wanted}, found {found}")
        table = _lightened(table, self._light)
        row_bytes = max(1, table.nbytes // max(1, table.num_rows))
        start = 0
        while start < table.num_rows:
            part = table.slice(start, self._room(row_bytes))
            start += part.num_rows
            self.num_rows += part.num_rows
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self.pending_bytes += part.num_rows * row_bytes
            if self._room(row_bytes) == 0:
                self.end_row_group()

    def _room(self, row_bytes: int) -> int:
        """Return how many rows of this width fit into the row group; at least one in all."""
        fitting = (ROW_GROUP_BYTES - self.pending_bytes) // row_bytes
        room = min(self._max_rows - self._pending_rows, fitting)
        return max(room, 0 if self._pending_rows else 1)

    def end_row_group(self) -> None:
        if self._pending:
            self._write_row_group(self._taken())

    def _taken(self) -> pa.Table:
        """Return the rows that wait for their row group, which wait no longer."""
        fields = []
        for position, child in enumerate(self._light):
            common = common_type(table.schema.field(position).type for table in self._pending)
            # Equal types may differ in field ids; only `self._light` has the table's.
            encoded = isinstance(common, pa.DictionaryType)
            kind = pa.dictionary(common.index_type, child.type) if encoded else child.type
            fields.append(child.with_type(kind))
        tables = [_matching(table, pa.schema(fields)) for table in self._pending]
        self._pending, self._pending_rows, self.pending_bytes = [], 0, 0
        found = map_dictionaries(concat(tables), by_first_use)
        return map_dictionaries(found, partial(with_indices, kind=CODES))

    def finish(self, relative_path: str) -> WrittenFile:
        """Complete the file, make it durable and return its facts under the given path."""
        if self._writer is None and self._pending:
            whole, name = self._taken(), self._sorted_by
            is_sorted = name is not None and _is_sorted(whole.column(name))
            self._write_row_group(whole, sorted_by=name if is_sorted else None)
        self.end_row_group()
        empty = self._schema.empty_table()
        writer = self._writer or _parquet_writer(self._buffer, empty, self._options)
        try:
            writer.close()
            self._buffer.flush()
            facts = self._file.finish()
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error
        return WrittenFile(
            path=relative_path,
            size_bytes=facts.size_bytes,
            modification_time_ms=facts.modification_time_ms,
            num_records=self.num_rows,
            stats=encode_stats(self._statistics.finish(), tight_bounds=self._options.tight_bounds),
        )

    def _write_row_group(self, table: pa.Table, *, sorted_by: str | None = None) -> None:
        self._statistics.add(table)
        try:
            self._writer = self._writer or _parquet_writer(
                self._buffer, table, self._options, sorted_by=sorted_by
            )
            table = _matching(table, self._writer.schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error


def _is_sorted(column: pa.ChunkedArray) -> bool:
    """Return whether a column has nulls first, and then ascending values; False for floats."""
    column = column.cast(plain_type(column.type))
    if pa.types.is_floating(column.type):
        return False
    if pa.types.is_decimal64(column.type):
        column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    values = column.slice(column.null_count)
    if values.null_count:
        return False
    ascending = pc.less_equal(values.slice(0, max(len(values) - 1, 0)), values.slice(1))
    return bool(pc.all(ascending).as_py() is not False)


def _light_schema(wanted: pa.Schema) -> pa.Schema:
    """Return the schema with decimals in the bytes that Parquet gives them."""
    for position, child in enumerate(wanted):
        kind = child.type
        if pa.types.is_decimal128(kind) and kind.precision <= _MOST_DECIMAL64_DIGITS:
            light = pa.decimal64(kind.precision, kind.scale)
            wanted = wanted.set(position, child.with_type(light))
    return wanted


def _lightened(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    for position, kind in enumerate(wanted.types):
        column = table.column(position)
        if pa.types.is_decimal64(kind):
            column = _light_decimals(column, kind)
        elif isinstance(column.type, pa.DictionaryType):
            column = with_light_indices(column)
        else:
            continue
        field = table.schema.field(position).with_type(column.type)
        table = table.set_column(position, field, column)
    return table


def _light_decimals(column: pa.ChunkedArray, kind: pa.Decimal64Type) -> pa.ChunkedArray:
    column = column.cast(plain_type(column.type))
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        # Foreign files can hold more digits than their type has; they are kept.
        chunks = []
        for chunk in column.chunks:
            integers = decimal_integers(chunk)
            if integers is None:
                raise
            chunks.append(pa.Array.from_buffers(kind, len(integers), integers.buffers()))
        return pa.chunked_array(chunks, kind)


def _matching(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    columns = []
    for column, kind in zip(table.itercolumns(), wanted.types, strict=True):
        if isinstance(kind, pa.DictionaryType):
            encoded = isinstance(column.type, pa.DictionaryType)
            coded = column if encoded else column.dictionary_encode()
            columns.append(with_indices(coded, kind.index_type))
        else:
            columns.append(convert_chunks(column, kind))
    return pa.Table.from_arrays(columns, schema=wanted)


def encoded_bytes(table: pa.Table, options: WriterOptions) -> int:
    """Return how many bytes a file of these rows, at least one, would have."""
    sink = pa.BufferOutputStream()
    table = _lightened(table, _light_schema(table.schema))
    with _parquet_writer(sink, table, options) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
    return int(sink.getvalue().size)


def _parquet_writer(
    sink: pa.NativeFile, first: pa.Table, options: WriterOptions, *, sorted_by: str | None = None
) -> pq.ParquetWriter:
    encoding = FileEncoding.measure(first, compression=options.compression)
    arguments = encoding.arguments(first, bloom_filters=options.bloom_filters)
    if sorted_by is not None:
        arguments["sorting_columns"] = pq.SortingColumn.from_ordering(
            first.schema, [(sorted_by, "ascending")], null_placement="at_start"
        )
    writer = pq.ParquetWriter(sink, first.schema, **arguments)
    writer.add_key_value_metadata(TODAYS_FOOTER)
    return writer
