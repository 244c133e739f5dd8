"""Columns of values: exact conversions, a checksum of rows, and their encodings in files.

Arrow columns: in dictionaries, in few bytes, as numpy arrays, and as other types exactly.

Arrow joins dictionaries only if their index type can number all values together, and if no
dictionary holds a null. So everything that joins chunks with different dictionaries
(`combine_chunks`, `take`, a Parquet writer) needs the result of `concat` or `joinable`.

The proof that a rewrite lost nothing: a checksum of the multiset of rows.

Two independent 64-bit hashes of each whole row, its *lanes*, are summed modulo 2**64 over all rows.
The order and the slicing of rows do not matter; everything else does.

Equal values (bit by bit: NaN payloads and the sign of zero count) have equal hashes in every
encoding; null has a hash of its own. Fixed-width values are hashed without collisions.

A row's hash is a sum over its columns, scrambled at the end: each value's word is folded, then
multiplied by an odd constant of its column and lane. Folding (`w = word * odd; w ^ w >> 32`), odd
multiples and scrambling are bijections. Folding spreads a difference in few high bits to all bits.
"""

import hashlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.errors import UsageError
from liquidlog.spec.arrow import VARIANT, is_list, leaf_column, with_leaf_types
from liquidlog.spec.schema import Path, quote_path
from liquidlog.spec.text import Codec, parse_codec

# Arrow buffers as numpy arrays without a copy. `Array.to_numpy` would import an installed pandas,
# which costs every Spark worker half a second.

_SIGN: Final = np.int64(63)


def buffer_bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """Return the bytes of a buffer, (bytes,) uint8 over the same memory; none if it is absent."""
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def fixed_width(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return n values of a fixed width without a copy; values under nulls are arbitrary."""
    width = array.type.bit_width // 8
    data = buffer_bytes(array.buffers()[1])
    return data[array.offset * width : (array.offset + len(array)) * width].view(dtype)


def null_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    return fixed_width(pc.cast(array.is_null(), pa.uint8()), np.bool_)


def list_offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return where each list of a list or map array begins in its children, (n + 1,) int64."""
    if not len(array):
        return np.zeros(1, np.int64)
    offsets = array.offsets
    return fixed_width(offsets, f"<i{offsets.type.bit_width // 8}").astype(np.int64)


def integer_array(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Return (n,) int64 as an Arrow array of n values over the same memory, without nulls."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def decimal_integers(array: pa.Decimal128Array) -> pa.Int64Array | None:
    """Return the unscaled values of decimals, n values; None if one needs more than 64 bits."""
    halves = fixed_width(array, np.int64)
    values, beyond = halves[::2].copy(), halves[1::2]
    wide = (values >> _SIGN) != beyond
    validity = _validity(array)
    if array.null_count:
        wide &= ~null_mask(array)
    if wide.any():
        return None
    return pa.Array.from_buffers(pa.int64(), len(array), [validity, pa.py_buffer(values)])


def decimals_of(array: pa.Int64Array, kind: pa.Decimal128Type) -> pa.Decimal128Array:
    """Return the decimals with these unscaled values; inverse: `decimal_integers`."""
    values = fixed_width(array, np.int64)
    halves = np.empty((len(array), 2), np.int64)
    halves[:, 0] = values
    np.right_shift(values, _SIGN, out=halves[:, 1])
    return pa.Array.from_buffers(kind, len(array), [_validity(array), pa.py_buffer(halves)])


def _validity(array: pa.Array) -> pa.Buffer | None:
    if not array.null_count:
        return None
    return pa.py_buffer(np.packbits(~null_mask(array), bitorder="little"))


Bytes = npt.NDArray[np.float64]


def value_bytes(column: pa.ChunkedArray) -> Bytes:
    """Return the bytes of each value of a column, (n,) float64; of its index if it is encoded."""
    return np.concatenate([np.zeros(0), *(_bytes_of(chunk) for chunk in column.chunks)])


def _bytes_of(array: pa.Array) -> Bytes:
    kind = array.type
    if isinstance(kind, pa.DictionaryType):
        return np.full(len(array), kind.index_type.bit_width / 8)
    if isinstance(kind, pa.StructType):
        total: Bytes = np.sum([np.zeros(len(array)), *map(_bytes_of, array.flatten())], axis=0)
        return total
    if isinstance(kind, pa.ListType):
        return _sums(array, _bytes_of(array.values))
    if isinstance(kind, pa.MapType):
        return _sums(array, _bytes_of(array.keys) + _bytes_of(array.items))
    if kind in {pa.string(), pa.binary()}:
        lengths = pc.fill_null(pc.binary_length(array), pa.scalar(0, pa.int32()))
        return fixed_width(lengths, np.int32).astype(np.float64)
    return np.full(len(array), kind.bit_width / 8)


def _sums(array: pa.Array, children: Bytes) -> Bytes:
    ends = np.concatenate([[0.0], np.cumsum(children)])[list_offsets(array)]
    sums: Bytes = np.diff(ends)
    return sums


CODES: Final = pa.int32()
"""The type of dictionaries' indices, except in a shuffle."""
_LIGHT: Final = 8
"""A dictionary with fewer bytes than its indices, divided by this, is left as it is."""
_INDEX_TYPES: Final = (pa.int8(), pa.int16(), CODES)


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all rows in joinable chunks; dictionaries stay if every table has them."""
    first = tables[0].schema
    if any(table.schema != first for table in tables[1:]):
        fields = [
            child.with_type(common_type(table.schema.field(position).type for table in tables))
            for position, child in enumerate(first)
        ]
        tables = [table.cast(pa.schema(fields)) for table in tables]
    return map_dictionaries(pa.concat_tables(tables), joinable)


def joinable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary-encoded column in chunks that Arrow can join, without nulls in these."""
    # Only nulls among the indices count in `null_count`.
    chunks = [
        chunk.dictionary_decode().dictionary_encode() if chunk.dictionary.null_count else chunk
        for chunk in column.chunks
    ]
    if not chunks:
        return column
    kind = chunks[0].type.index_type
    if len(chunks) > 1:
        kind = _index_type(
            sum(len(chunk.dictionary) for chunk in chunks),
            least_bits=max(chunk.type.index_type.bit_width for chunk in chunks),
        )
    return pa.chunked_array([_with_indices(chunk, kind) for chunk in chunks])


def with_indices(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a dictionary-encoded column with indices of type `kind`, which must hold them."""
    chunks = [_with_indices(chunk, kind) for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.dictionary(kind, column.type.value_type))


def with_light_indices(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary-encoded column with the narrowest indices that hold its values."""
    largest = max((len(chunk.dictionary) for chunk in column.chunks), default=0)
    return with_indices(column, _index_type(largest, least_bits=0))


def map_dictionaries(
    table: pa.Table, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]
) -> pa.Table:
    """Return the table with `change` applied to each of its dictionary-encoded columns."""
    for position, column in enumerate(table.itercolumns()):
        if isinstance(column.type, pa.DictionaryType):
            changed = change(column)
            if changed is not column:
                field = table.field(position).with_type(changed.type)
                table = table.set_column(position, field, changed)
    return table


def decoded(table: pa.Table) -> pa.Table:
    fields = [child.with_type(plain_type(child.type)) for child in table.schema]
    return table.cast(pa.schema(fields))


def common_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type of a column over several tables: a dictionary if it is one in all."""
    first, *others = set(types)
    if not others:
        return first
    plain = plain_type(first)
    encoded = all(
        isinstance(found, pa.DictionaryType) and found.value_type == plain
        for found in (first, *others)
    )
    return pa.dictionary(CODES, plain) if encoded else plain


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return a dictionary's value type, any other type as it is."""
    return data_type.value_type if isinstance(data_type, pa.DictionaryType) else data_type


def compacted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return an encoded column without unused values in large dictionaries."""
    index_bytes = column.type.index_type.bit_width // 8
    if all(_LIGHT * one.dictionary.nbytes <= len(one) * index_bytes for one in column.chunks):
        return column
    return pa.chunked_array([_by_first_use(chunk) for chunk in column.chunks], column.type)


def by_first_use(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return an encoded column with one dictionary, its values in the order of first use."""
    # A Parquet writer stops encoding with dictionaries when they differ.
    together = column.unify_dictionaries().combine_chunks()
    chunks = together.chunks if isinstance(together, pa.ChunkedArray) else [together]
    return pa.chunked_array([_by_first_use(chunk) for chunk in chunks], column.type)


def _by_first_use(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    used = chunk.indices.unique().drop_null()  # in order
    numbers = fixed_width(used.cast(pa.int64()), np.int64)
    if np.array_equal(numbers, np.arange(len(chunk.dictionary))):
        return chunk
    places = np.zeros(len(chunk.dictionary), np.int64)
    places[numbers] = np.arange(len(numbers))
    positions = pa.array(places).cast(chunk.type.index_type).take(chunk.indices)
    return pa.DictionaryArray.from_arrays(positions, chunk.dictionary.take(used))


def _with_indices(chunk: pa.DictionaryArray, kind: pa.DataType) -> pa.DictionaryArray:
    if chunk.type.index_type == kind:
        return chunk
    return pa.DictionaryArray.from_arrays(
        chunk.indices.cast(kind, safe=False), chunk.dictionary, safe=False
    )


def _index_type(values: int, *, least_bits: int) -> pa.DataType:
    """Return the narrowest type of indices into so many values."""
    # A type could hold one value more, but Arrow refuses to join dictionaries that fill it.
    fitting = (
        kind
        for kind in _INDEX_TYPES
        if kind.bit_width >= least_bits and values < 1 << (kind.bit_width - 1)
    )
    return next(fitting, CODES)


# The shuffle copies rows half a dozen times, and tables hold small numbers in wide types. So
# integers are moved and sorted in the narrowest type that holds them all, and get their own types
# back before they are written. Columns inside structs, lists and maps stay as they are.

_NARROW: Final = tuple(
    (kind, -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
    for kind in (pa.int8(), pa.int16(), pa.int32())
)


def aligned(tables: Sequence[pa.Table], kinds: pa.Schema) -> list[pa.Table]:
    """Return tables of narrow columns, widened where their types differ."""
    first = tables[0].schema.types
    if all(table.schema.types == first for table in tables):
        return list(tables)
    types = {}
    for position, name in enumerate(tables[0].column_names):
        found = {table.schema.field(position).type for table in tables}
        if len(found) > 1:
            are_integers = all(map(pa.types.is_signed_integer, found))
            widest = max(found, key=attrgetter("bit_width")) if are_integers else None
            types[name] = widest or kinds.field(name).type
    return [widened(table, pa.schema(list(types.items()))) for table in tables]


def widened(table: pa.Table, kinds: pa.Schema) -> pa.Table:
    """Return the table with the columns that `kinds` names in these types."""
    types = dict(zip(kinds.names, kinds.types, strict=True))
    columns = [
        _wide(column, types[name]) if name in types else column
        for name, column in zip(table.column_names, table.itercolumns(), strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def narrowed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in fewer bytes, if that is possible."""
    kind = column.type
    if isinstance(kind, pa.DictionaryType):
        # Each row group has its own dictionary; together they may need wider indices.
        return with_light_indices(joinable(column).unify_dictionaries())
    if pa.types.is_date32(kind):
        return _narrow_integers(column.cast(pa.int32()), otherwise=column)
    if pa.types.is_signed_integer(kind):
        return _narrow_integers(column, otherwise=column)
    if pa.types.is_decimal128(kind):
        chunks = [decimal_integers(chunk) for chunk in column.chunks]
        # Foreign files can hold more digits than their type has; they are kept.
        if all(chunk is not None for chunk in chunks):
            integers = pa.chunked_array(chunks, pa.int64())
            return _narrow_integers(integers, otherwise=integers)
    return column


def _narrow_integers(column: pa.ChunkedArray, *, otherwise: pa.ChunkedArray) -> pa.ChunkedArray:
    extremes = pc.min_max(column)
    low, high = extremes["min"].as_py() or 0, extremes["max"].as_py() or 0
    for kind, lowest, highest in _NARROW:
        if kind.bit_width < column.type.bit_width and lowest <= low and high <= highest:
            return column.cast(kind, safe=False)
    return otherwise


def _wide(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    found = column.type
    if isinstance(found, pa.DictionaryType):
        return with_indices(column, CODES)
    if found == kind or not pa.types.is_integer(found):
        return column
    if pa.types.is_decimal128(kind):
        chunks = [decimals_of(chunk, kind) for chunk in column.cast(pa.int64()).chunks]
        return pa.chunked_array(chunks, kind)
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(kind)
    return column.cast(kind)


def decode_table(content: bytes | pa.Buffer) -> pa.Table:
    """Return the rows in an Arrow IPC stream, without copying what is not compressed."""
    return pa.ipc.open_stream(content).read_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leniency:
    """Which differences are allowed besides the encoding.

    `earlier` are other types of the part at a path; a cast from them loses nothing. `of_users`
    ignores the case of names without an exact match, and allows narrower decimals.
    `as_spark_reads` allows unsigned integers that fit the wanted type, byte and short columns as
    plain INT32 (Trino), whose values must fit, and timestamps without the mark of UTC.
    """

    missing_is_null: bool = False
    surplus_is_dropped: bool = False
    earlier: Mapping[Path, frozenset[pa.DataType]] = field(default_factory=dict)
    of_users: bool = False
    as_spark_reads: bool = False


_BINARY: Final = (pa.binary(), pa.large_binary())
_UNSIGNED: Final[Mapping[pa.DataType, frozenset[pa.DataType]]] = {
    # Both of Spark's readers read these types exactly, and wrong numbers as other integers.
    pa.uint8(): frozenset({pa.int16(), pa.int32(), pa.int64()}),
    pa.uint16(): frozenset({pa.int32(), pa.int64()}),
    pa.uint32(): frozenset({pa.int64()}),
    pa.uint64(): frozenset({pa.decimal128(20, 0)}),
}
_ENCODINGS: Final[Mapping[pa.DataType, Sequence[Callable[[pa.DataType], bool]]]] = {
    pa.string(): (pa.types.is_large_string, pa.types.is_string_view),
    pa.binary(): (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
    pa.date32(): (pa.types.is_date64,),
}


def differences(
    found: pa.DataType, wanted: pa.DataType, path: Path, leniency: Leniency
) -> Iterator[str]:
    """Yield a sentence for every part of `found` that cannot become `wanted` without loss."""
    if isinstance(found, pa.DictionaryType):
        found = found.value_type
    if wanted == VARIANT:
        yield from _variant_differences(found, path)
    elif isinstance(wanted, pa.StructType) and isinstance(found, pa.StructType):
        yield from _struct_differences(found, wanted, path, leniency)
    elif isinstance(wanted, pa.MapType) and isinstance(found, pa.MapType):
        yield from differences(found.key_type, wanted.key_type, (*path, "key"), leniency)
        yield from differences(found.item_type, wanted.item_type, (*path, "value"), leniency)
    elif is_list(wanted) and is_list(found):
        yield from differences(found.value_type, wanted.value_type, (*path, "element"), leniency)
    elif found not in leniency.earlier.get(path, ()) and not _same_value(found, wanted, leniency):
        yield f"column {quote_path(path)} is {found}, the table's is {wanted}"


def convert(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the values as `wanted`; the types must be without differences."""
    if array.type == wanted:
        return array
    if isinstance(array.type, pa.DictionaryType):
        return convert(array.dictionary_decode(), wanted)
    if isinstance(wanted, pa.StructType):
        return _convert_struct(array, wanted)
    if isinstance(wanted, pa.MapType):
        keys, items = convert(array.keys, wanted.key_type), convert(array.items, wanted.item_type)
        return pa.MapArray.from_arrays(
            _offsets(array), keys, items, type=wanted, mask=_null_mask(array)
        )
    if isinstance(wanted, pa.ListType):
        return _convert_list(array, wanted)
    return pc.cast(array, wanted)


def convert_chunks(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    return pa.chunked_array([convert(chunk, wanted) for chunk in column.chunks], wanted)


def nulls(length: int, wanted: pa.DataType) -> pa.Array:
    """Return null values; a null variant has empty parts, because these may not be null."""
    if not isinstance(wanted, pa.StructType):
        return pa.nulls(length, wanted)
    empty = pa.repeat(pa.scalar(b""), length)
    parts = [empty if wanted == VARIANT else nulls(length, child.type) for child in wanted]
    mask = pa.repeat(pa.scalar(True), length)  # noqa: FBT003  pyarrow's signature
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=mask)


def matching_name(names: Iterable[str], wanted: str) -> str | None:
    """Return the name that is `wanted`, else one that differs from it only in case, or None."""
    alike = [name for name in names if name.lower() == wanted.lower()]
    return wanted if wanted in alike else next(iter(alike), None)


def _struct_differences(
    found: pa.StructType, wanted: pa.StructType, path: Path, leniency: Leniency
) -> Iterator[str]:
    fields = {child.name: child.type for child in found}
    if len(fields) < found.num_fields:
        yield f"column {quote_path(path)} has two fields of the same name"
    for child in wanted:
        below = (*path, child.name)
        name = matching_name(fields, child.name) if leniency.of_users else child.name
        if name in fields:
            yield from differences(fields.pop(name), child.type, below, leniency)
        elif not leniency.missing_is_null:
            yield f"column {quote_path(below)} is missing"
    if not leniency.surplus_is_dropped:
        yield from (f"column {quote_path((*path, name))} is not in the table" for name in fields)


def _variant_differences(found: pa.DataType, path: Path) -> Iterator[str]:
    names = [child.name for child in found] if isinstance(found, pa.StructType) else []
    if "typed_value" in names:
        yield f"column {quote_path(path)} is a shredded variant"
    elif sorted(names) != ["metadata", "value"] or any(c.type not in _BINARY for c in found):
        yield f"column {quote_path(path)} is {found}, a variant has a binary value and metadata"


def _same_value(found: pa.DataType, wanted: pa.DataType, leniency: Leniency) -> bool:
    if found == wanted or (leniency.as_spark_reads and wanted in _UNSIGNED.get(found, ())):
        return True
    if isinstance(wanted, pa.TimestampType):
        as_utc = leniency.as_spark_reads and wanted.tz is not None
        return isinstance(found, pa.TimestampType) and (as_utc or bool(found.tz) == bool(wanted.tz))
    if leniency.as_spark_reads and found == pa.int32() and wanted in {pa.int8(), pa.int16()}:
        return True
    if pa.types.is_decimal128(wanted) and pa.types.is_decimal(found):
        narrower = leniency.of_users and found.precision < wanted.precision
        is_as_long = narrower or found.precision == wanted.precision
        return bool(is_as_long and found.scale == wanted.scale)
    return any(check(found) for check in _ENCODINGS.get(wanted, ()))


def _convert_struct(array: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    positions = {child.name: position for position, child in enumerate(array.type)}
    children = []
    for child in wanted:
        # Where case matters, differences() has refused every name that only looks alike.
        position = positions.get(matching_name(positions, child.name) or "")
        found = None if position is None else array.field(position)
        children.append(
            nulls(len(array), child.type) if found is None else convert(found, child.type)
        )
    if wanted == VARIANT:
        if any(child.filter(array.is_valid()).null_count for child in children):
            raise pa.ArrowInvalid("a variant has no value or no metadata")
        # A null variant has empty parts.
        children = [pc.fill_null(child, b"") if child.null_count else child for child in children]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_null_mask(array))


def _convert_list(array: pa.Array, wanted: pa.ListType) -> pa.ListArray:
    if isinstance(array.type, pa.ListType | pa.LargeListType):
        offsets, values = _offsets(array), array.values
    else:
        # pc.cast of a sliced list view gives offsets that are not monotonic (pyarrow 26).
        lengths = fixed_width(pc.cast(pc.list_value_length(array), pa.int64()), np.int64).copy()
        lengths[null_mask(array)] = 0
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        offsets, values = pc.cast(integer_array(ends), pa.int32()), array.flatten()
    return pa.ListArray.from_arrays(
        offsets, convert(values, wanted.value_type), type=wanted, mask=_null_mask(array)
    )


def _null_mask(array: pa.Array) -> pa.BooleanArray | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array) -> pa.Int32Array:
    # A copy, because Arrow refuses a null mask beside offsets that are a slice.
    return pc.cast(integer_array(list_offsets(array)), pa.int32())


Lane = npt.NDArray[np.uint64]
Lanes = tuple[Lane, Lane]
Positions = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

_WORD_BYTES: Final = 8
_WORD_SHIFT: Final = 3
_BYTE_SHIFT: Final = 3
_WORD_BITS: Final = np.uint64(64)
_INLINE_BYTES: Final = 256
"""Longer byte strings are rare and hashed one by one."""
_HALF: Final = np.uint64(32)
_WORD_MASKS: Final = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)
_BLOCK_ROWS: Final = 32_768
"""Rows hashed at a time, so that the intermediate arrays stay in the processor's cache."""
_LANE_BITS: Final = 64
_LANE: Final = (1 << _LANE_BITS) - 1


def _constant(number: int) -> np.uint64:
    """Return the `number`-th odd constant of SplitMix64."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & _LANE
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _LANE
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _LANE
    return np.uint64(mixed ^ (mixed >> 31) | 1)


Keys = tuple[np.uint64, np.uint64]


@cache
def _keys(number: int) -> Keys:
    return _constant(2 * number), _constant(2 * number + 1)


_MULTIPLIER: Final = _constant(14)
_ELEMENTS: Final = _keys(0)
_NULLS: Final = _keys(1)
_NULL_LANES: Final = np.full(1, _NULLS[0]), np.full(1, _NULLS[1])
_LENGTHS: Final = _keys(2)
_POSITIONS: Final = _keys(3)
_ROWS: Final = _keys(4)
_HIGH_WORDS: Final = _keys(5)
_LAST_WORDS: Final = _keys(6)
_TEXT_WORDS: Final = tuple(_keys(100 + number) for number in range(_INLINE_BYTES // _WORD_BYTES))
_FIELDS: Final = 500
"""Keys from here on belong to the fields of rows and structs."""


def multiset_checksum(table: pa.Table) -> int:
    """Return the checksum of the rows, below 2**128, with dictionaries decoded."""
    return add_checksums(*map(lanes_checksum, _lanes(table)))


def row_lanes(table: pa.Table) -> Lanes:
    """Return the two hashes of each of n rows, (n,) uint64 each; checksums are their sums."""
    found = list(_lanes(table))
    none = np.empty(0, np.uint64)
    first, second = (np.concatenate([none, *(lanes[n] for lanes in found)]) for n in (0, 1))
    return first, second


def _lanes(table: pa.Table) -> Iterator[Lanes]:
    hasher = _LaneHasher()
    for batch in table.to_batches(max_chunksize=_BLOCK_ROWS):
        yield hasher.rows(batch.columns, batch.num_rows)


def lanes_checksum(lanes: Lanes) -> int:
    first, second = (int(np.sum(lane, dtype=np.uint64)) for lane in lanes)
    return _joined(first, second)


def add_checksums(*checksums: int) -> int:
    """Return the checksum of all rows together; the lanes are added separately."""
    return _joined(
        sum(checksum >> _LANE_BITS for checksum in checksums),
        sum(checksum & _LANE for checksum in checksums),
    )


def subtract_checksums(whole: int, part: int) -> int:
    """Return the checksum of `whole` without the rows of `part`, which `whole` must hold."""
    return _joined((whole >> _LANE_BITS) - (part >> _LANE_BITS), (whole & _LANE) - (part & _LANE))


def format_checksum(checksum: int) -> str:
    """Return the checksum as documents write it: 32 hex digits."""
    return f"{checksum:032x}"


def _joined(first: int, second: int) -> int:
    return (first & _LANE) << _LANE_BITS | second & _LANE


class _LaneHasher:
    def __init__(self) -> None:
        self._dictionaries: dict[tuple[int, ...], tuple[pa.Array, Lanes]] = {}

    def rows(self, columns: Iterable[pa.Array], num_rows: int) -> Lanes:
        # Do not begin with zero: a row of zeros must count too.
        rows = np.full(num_rows, _ROWS[0]), np.full(num_rows, _ROWS[1])
        for ordinal, column in enumerate(columns):
            terms = self._terms(column, _keys(_FIELDS + ordinal))
            for row, term in zip(rows, terms, strict=True):
                np.add(row, term, out=row)
        return _finish(rows[0]), _finish(rows[1])

    def values(self, array: pa.Array) -> Lanes:
        lanes = self._valid_values(array)
        if not array.null_count:
            return lanes
        is_null = null_mask(array)
        first, second = (
            np.where(is_null, null, lane) for lane, null in zip(lanes, _NULLS, strict=True)
        )
        return first, second

    def _terms(self, array: pa.Array, keys: Keys) -> Iterator[Lane]:
        if isinstance(array.type, pa.DictionaryType) and not array.null_count:
            hashes, positions = self._dictionary(array)
            return ((lane * key)[positions] for lane, key in zip(hashes, keys, strict=True))
        return (lane * key for lane, key in zip(self.values(array), keys, strict=True))

    def _valid_values(self, array: pa.Array) -> Lanes:
        kind = array.type
        if isinstance(kind, pa.DictionaryType):
            hashes, positions = self._dictionary(array)
            return hashes[0][positions], hashes[1][positions]
        if isinstance(kind, pa.StructType):
            return self.rows(array.flatten(), len(array))
        if isinstance(kind, pa.ListType):
            return _sequences(list_offsets(array), self.values(_within(array, array.values)))
        if isinstance(kind, pa.MapType):
            entries = [_within(array, array.keys), _within(array, array.items)]
            return _sequences(list_offsets(array), self.rows(entries, len(entries[0])))
        if kind in {pa.string(), pa.binary()}:
            return _byte_strings(array)
        return _numbers(array)

    def _dictionary(self, array: pa.DictionaryArray) -> tuple[Lanes, Positions]:
        """Return the hashes of a dictionary's values, and each entry's position in them."""
        dictionary = array.dictionary
        addresses = (buffer.address if buffer else 0 for buffer in dictionary.buffers())
        key = (dictionary.offset, len(dictionary), *addresses)
        # The dictionary is kept with its hashes, so that no other gets its addresses.
        if key not in self._dictionaries:
            hashes = self.values(dictionary) if len(dictionary) else _NULL_LANES
            self._dictionaries[key] = dictionary, hashes
        positions = fixed_width(pc.cast(array.indices, pa.int64()), np.int64)
        if array.null_count:
            positions = np.where(null_mask(array), 0, positions)
        return self._dictionaries[key][1], positions


def _finish(lane: Lane) -> Lane:
    lane ^= lane >> np.uint64(30)
    lane *= np.uint64(0xBF58476D1CE4E5B9)
    lane ^= lane >> np.uint64(27)
    lane *= np.uint64(0x94D049BB133111EB)
    lane ^= lane >> np.uint64(31)
    return lane


def _folded(words: Lane) -> Lane:
    mixed = words * _MULTIPLIER
    mixed ^= mixed >> _HALF
    return mixed


def _numbers(array: pa.Array) -> Lanes:
    if not pa.types.is_decimal128(array.type):
        if pa.types.is_boolean(array.type):
            array = pc.cast(array, pa.uint8())
        values = fixed_width(array, f"<i{array.type.bit_width // 8}")
        words = _folded(values.astype(np.int64, copy=False).view(np.uint64))
        return words, words
    halves = fixed_width(array, np.int64)
    low, high = halves[::2].copy(), halves[1::2]
    words = _folded(low.view(np.uint64))
    beyond = high ^ (low >> _SIGN)
    if not beyond.any():
        return words, words
    first, second = (words + _folded(beyond.view(np.uint64)) * key for key in _HIGH_WORDS)
    return first, second


def _byte_strings(array: pa.Array) -> Lanes:
    if not len(array):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = buffer_bytes(offsets_buffer).view(np.int32)[array.offset :][: len(array) + 1]
    data = buffer_bytes(data_buffer)[offsets[0] : offsets[-1]]
    starts, lengths = (offsets[:-1] - offsets[0]).astype(np.int64), np.diff(offsets)
    is_long = lengths > _INLINE_BYTES
    if is_long.any():
        return _with_long(array, is_long, _digests(data, starts[is_long], lengths[is_long]))
    # Zeros behind the bytes, so that any word can be read.
    words = np.zeros((len(data) + _INLINE_BYTES) // _WORD_BYTES + 2, np.uint64)
    words.view(np.uint8)[: len(data)] = data
    return _texts(words, starts, lengths)


def _with_long(array: pa.Array, is_long: npt.NDArray[np.bool_], digests: Iterable[bytes]) -> Lanes:
    hashes = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
    lanes = np.zeros(len(array), np.uint64), np.zeros(len(array), np.uint64)
    short = _byte_strings(array.filter(pa.array(~is_long)))
    for number, lane in enumerate(lanes):
        lane[is_long], lane[~is_long] = hashes[:, number], short[number]
    return lanes


def _digests(data: Octets, starts: Positions, lengths: Positions) -> Iterator[bytes]:
    held = data.data
    for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True):
        yield hashlib.blake2b(held[start:stop], digest_size=16).digest()


def _words_from(aligned: Lane, starts: Positions) -> Iterator[Lane]:
    """Yield the words at the starts, in bytes, (n,), then the words after them, and so on."""
    # Joining two aligned words takes half the time of reading an unaligned one.
    places = starts >> _WORD_SHIFT
    right = ((starts & (_WORD_BYTES - 1)) << _BYTE_SHIFT).astype(np.uint64)
    left = _WORD_BITS - right  # numpy shifts by 64 bits to 0
    low = aligned[places]
    while True:
        places += 1
        high = aligned[places]
        yield (low >> right) | (high << left)
        low = high


def _texts(words: Lane, starts: Positions, lengths: npt.NDArray[np.int32]) -> Lanes:
    """Return the hashes of byte strings: of the words before the last 8 bytes, and of these."""
    last = next(_words_from(words, starts + np.maximum(lengths - _WORD_BYTES, 0)))
    if (lengths < _WORD_BYTES).any():
        last &= _WORD_MASKS[np.minimum(lengths, _WORD_BYTES)]
    last = _folded(last)
    rest = _absorbed(words, starts, lengths, 0)
    counts = lengths.astype(np.uint64)
    for lane, key, length in zip(rest, _LAST_WORDS, _LENGTHS, strict=True):
        np.add(lane, last * key + counts * length, out=lane)
        np.bitwise_xor(lane, lane >> _HALF, out=lane)
    return rest


def _absorbed(words: Lane, starts: Positions, lengths: npt.NDArray[np.int32], number: int) -> Lanes:
    """Return the sums of each string's words from `number` on, without its last word."""
    sums = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
    texts = _words_from(words, starts + number * _WORD_BYTES)
    while True:
        inside = lengths > (number + 1) * _WORD_BYTES
        left = np.count_nonzero(inside)
        if left * 2 <= len(starts):
            break
        folded = _folded(next(texts))
        if left < len(starts):
            folded *= inside
        for lane, key in zip(sums, _TEXT_WORDS[number], strict=True):
            np.add(lane, folded * key, out=lane)
        number += 1
    if left:
        rows = np.flatnonzero(inside)
        others = _absorbed(words, starts[rows], lengths[rows], number)
        for lane, other in zip(sums, others, strict=True):
            lane[rows] += other
    return sums


def _sequences(offsets: npt.NDArray[np.int64], elements: Lanes) -> Lanes:
    offsets = offsets - offsets[0]
    counts = np.diff(offsets)
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    lanes = []
    for lane, element in enumerate(elements):
        places = positions.astype(np.uint64) * _POSITIONS[lane]
        terms = _finish(element * _ELEMENTS[lane] + places)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        within = sums[offsets[1:]] - sums[offsets[:-1]]
        lanes.append(_finish(counts.astype(np.uint64) * _LENGTHS[lane] + within))
    return lanes[0], lanes[1]


def _within(array: pa.Array, children: pa.Array) -> pa.Array:
    offsets = list_offsets(array)
    return children.slice(offsets[0], offsets[-1] - offsets[0])


_BITS: Final = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
"""Types whose bits are compared as integers: Arrow compares floating-point values as numbers."""


def same_bits(first: pa.Table, second: pa.Table) -> bool:
    """Return whether two tables of the same columns hold the same rows in the same order."""
    if first.num_rows != second.num_rows or first.num_columns != second.num_columns:
        return False
    pairs = zip(first.itercolumns(), second.itercolumns(), strict=True)
    return all(_bits(left).equals(_bits(right)) for left, right in pairs)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with floats as integers and without dictionaries."""
    if isinstance(column.type, pa.DictionaryType):
        column = column.cast(column.type.value_type)
    wanted = with_leaf_types(column.type, lambda found: _BITS.get(found, found))
    return pa.chunked_array([chunk.view(wanted) for chunk in column.chunks], wanted)


# How files encode columns: dictionaries, codecs, pages, Bloom filters

_PAGES: Final = {
    "data_page_version": "1.0",
    "coerce_timestamps": "us",
    # Like the reference engine; fixed-length bytes are slower to write and to read.
    "store_decimal_as_integer": True,
    "store_schema": False,
}

_PAGE_BYTES: Final = 1 << 20
"""Size of a page before compression; Arrow also ends pages after 20 000 rows. Pages of 64 KiB
take delta-rs a tenth longer for all columns of lineitem, and a seventh less for single days."""

_MOST_BATCH_ROWS: Final = 8_192
_LEAST_BATCH_ROWS: Final = 64
"""Rows between Arrow's looks at a page's size: rows of one page of the widest column within these
limits. Its default of 1024 takes 6 % longer on lineitem than 65 536."""

_SAMPLE_ROWS: Final = 16_384
_DISTINCT_SHARE: Final = 0.75
"""Most distinct values in a sample: about 27 000 in all, whose dictionary fits its page."""
_NARROW_DISTINCT_SHARE: Final = 0.25
"""The same for values of up to eight bytes: random integers take as many bytes per row with a
dictionary as without at 0.29 of a sample, and a third more with four times as many."""
_NARROW_BITS: Final = 64
_LIGHT_SHARE: Final = 1 / 64
"""Texts with at most this share of distinct values in a sample get dictionaries."""

_TRIAL_ROWS: Final = 8_192
_TRIAL_BYTES: Final = 8 << 20
_TRIAL_SHARE: Final = 8
"""A trial encodes this many rows, or bytes in memory, or one row in this many."""

_LEAST_ROWS: Final = 1_024
_LEAST_BYTES: Final = 256 << 10
"""A column with fewer rows of codes, or fewer bytes of values, gets the codec without a test."""
_MAX_GROWTH: Final = 0.01
"""Most growth of a file, as a share, by columns without the codec: they are quicker to read."""
_OVERLOOKED_BYTES: Final = 128
"""Bytes that a codec may add to the few values of a trial, for example of a nearly empty column."""

_ARROW_NAMES: Final = {Codec.UNCOMPRESSED: "none", Codec.LZ4_RAW: "lz4"}
"""Codecs with other names in Arrow."""
_ZSTD_LEVEL: Final = 1
# On lineitem sorted along the curve, level 3 takes a fifth longer and saves nothing; snappy takes
# a third less and half as many bytes more.

FALSE_POSITIVES: Final = 0.01
"""Share of the absent values that a filter takes for present."""
MAX_FILTER_SHARE: Final = 0.1
"""Filters take at most this share of the bytes of their row group's pages."""
_FILTER_HASHES: Final = 8
_LEAST_FILTER_BYTES: Final = 32
_FILTERS: Final = "bloom_filter_options"


class Trial(NamedTuple):
    """Rows encoded on trial, and what the footer says of each column."""

    rows: int
    columns: tuple[pq.ColumnChunkMetaData, ...]


@dataclass(frozen=True, slots=True)
class FileEncoding:
    """The encoding of a file; `dictionaries` are the Parquet paths of the leaves that get one."""

    compression: str
    dictionaries: tuple[str, ...]
    trial: Trial

    @classmethod
    def measure(cls, table: pa.Table, *, compression: str) -> "FileEncoding":
        """Return the encoding of a file, measured on as many of its rows as are known, in order."""
        dictionaries = tuple(worth_dictionaries(table))
        return cls(compression, dictionaries, _tried(table, dictionaries, compression))

    def arguments(self, first: pa.Table, *, bloom_filters: Sequence[Path] = ()) -> dict[str, Any]:
        """Return the arguments of Arrow's writer; the `first` row group sizes the filters."""
        widest = max((one.total_uncompressed_size for one in self.trial.columns), default=0)
        page_rows = _PAGE_BYTES * self.trial.rows // max(1, widest)
        return {
            **_PAGES,
            **_codecs(self.trial, self.compression),
            **self._filters(first, bloom_filters),
            "use_dictionary": list(self.dictionaries),
            "data_page_size": _PAGE_BYTES,
            "write_batch_size": min(max(page_rows, _LEAST_BATCH_ROWS), _MOST_BATCH_ROWS),
            "write_page_index": True,
            "write_page_checksum": True,
        }

    def _filters(self, first: pa.Table, paths: Sequence[Path]) -> dict[str, Any]:
        if not paths or not first.num_rows:
            return {}
        stored = sum(column.total_compressed_size for column in self.trial.columns)
        room_bytes = MAX_FILTER_SHARE * stored * first.num_rows / self.trial.rows
        chosen = {}
        for path in paths:
            column = leaf_column(first, path)
            if isinstance(column.type, pa.DictionaryType):
                column = column.unify_dictionaries()
            distinct = max(1, _distinct(column))
            if filter_bytes(distinct) <= room_bytes:
                room_bytes -= filter_bytes(distinct)
                chosen[".".join(path)] = {"ndv": distinct, "fpp": FALSE_POSITIVES}
        return {_FILTERS: chosen} if chosen else {}


def require_possible_filters(bloom_filters: Sequence[Path]) -> None:
    if bloom_filters and _FILTERS not in inspect.signature(pq.ParquetWriter.__init__).parameters:
        raise UsageError(
            f"Bloom filters need a newer pyarrow than {pa.__version__}, which writes none;"
            " install a newer one wherever files are written, or leave out bloom_filter",
            option="bloom_filter",
        )


def filter_bytes(distinct: int) -> int:
    """Return the bytes, a power of two, of a filter for this many distinct values."""
    bits = -_FILTER_HASHES * distinct / math.log(1 - FALSE_POSITIVES ** (1 / _FILTER_HASHES))
    return max(_LEAST_FILTER_BYTES, 1 << math.ceil(math.log2(bits / 8)))


def _codec_arguments(name: str) -> dict[str, Any]:
    codec = parse_codec(name)
    arguments: dict[str, Any] = {"compression": _ARROW_NAMES.get(codec, codec.value)}
    return arguments | ({"compression_level": _ZSTD_LEVEL} if codec is Codec.ZSTD else {})


def _left_uncompressed(trial: Trial) -> frozenset[str]:
    """Return the columns that a codec shrinks least, as many as let the file hardly grow."""
    room = _MAX_GROWTH * sum(column.total_compressed_size for column in trial.columns)
    chosen = set()
    for column in sorted(trial.columns, key=_saved_share):
        size_bytes = column.total_uncompressed_size
        saved = _saved_share(column) * max(1, size_bytes)
        is_coded = column.has_dictionary_page
        is_known = trial.rows >= _LEAST_ROWS if is_coded else size_bytes >= _LEAST_BYTES
        if is_known and saved <= room:
            room -= saved
            chosen.add(column.path_in_schema)
    return frozenset(chosen)


def _saved_share(column: pq.ColumnChunkMetaData) -> float:
    size_bytes = column.total_uncompressed_size
    saved = max(0, size_bytes - column.total_compressed_size) + _OVERLOOKED_BYTES
    return float(saved / max(1, size_bytes))


def _codecs(trial: Trial, compression: str) -> dict[str, Any]:
    arguments = _codec_arguments(compression)
    if parse_codec(compression) is Codec.UNCOMPRESSED:
        return arguments
    plain = _left_uncompressed(trial)
    if not plain:
        return arguments
    paths = [column.path_in_schema for column in trial.columns]
    compressed = [path for path in paths if path not in plain]
    by_column = {name: dict.fromkeys(compressed, value) for name, value in arguments.items()}
    by_column["compression"] |= dict.fromkeys(plain, "none")
    return by_column


def _tried(table: pa.Table, dictionaries: Sequence[str], compression: str) -> Trial:
    """Encode some neighbouring rows, since compression depends on the order of rows."""
    if table.num_rows == 0:
        return Trial(0, ())
    row_bytes = max(1, table.nbytes // table.num_rows)
    rows = min(_TRIAL_ROWS, _TRIAL_BYTES // row_bytes, table.num_rows // _TRIAL_SHARE)
    rows = max(1, rows)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.slice((table.num_rows - rows) // 2, rows),
        sink,
        use_dictionary=list(dictionaries),
        **_PAGES,
        **_codec_arguments(compression),
    )
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    return Trial(rows, tuple(map(group.column, range(group.num_columns))))


def worth_dictionaries(table: pa.Table) -> Iterator[str]:
    """Yield the Parquet paths of leaves that gain by dictionaries, and of all in lists and maps."""
    for child, column in zip(table.schema, table.itercolumns(), strict=True):
        for path, values in _leaf_values(column, column.type, (child.name,)):
            kind = None if values is None else plain_type(values.type)
            is_narrow = kind and pa.types.is_primitive(kind) and kind.bit_width <= _NARROW_BITS
            share = _NARROW_DISTINCT_SHARE if is_narrow else _DISTINCT_SHARE
            if values is None or _distinct(values) <= max(1, share * len(values)):
                yield ".".join(path)


def with_light_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with its text columns of few values in dictionaries, as files keep them."""
    if table.num_rows < _SAMPLE_ROWS:
        return table
    for position, kind in enumerate(table.schema.types):
        if kind != pa.string():
            continue
        sample = _sampled(table.column(position))
        if _distinct(sample) <= _LIGHT_SHARE * len(sample):
            column = table.column(position).combine_chunks().dictionary_encode()
            field = table.field(position).with_type(column.type)
            table = table.set_column(position, field, column)
    return table


def _sampled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if len(column) <= _SAMPLE_ROWS:
        return column
    rows = np.linspace(0, len(column) - 1, _SAMPLE_ROWS, dtype=np.int64)
    return column.take(integer_array(rows))


def _leaf_values(
    column: pa.ChunkedArray | None, kind: pa.DataType, path: Path
) -> Iterator[tuple[Path, pa.ChunkedArray | None]]:
    """Yield the Parquet path and the values of each leaf; None inside lists and maps."""
    if isinstance(kind, pa.StructType):
        for child in kind:
            inner = None if column is None else pc.struct_field(column, [child.name])
            yield from _leaf_values(inner, child.type, (*path, child.name))
    elif isinstance(kind, pa.MapType):
        yield from _leaf_values(None, kind.key_type, (*path, "key_value", "key"))
        yield from _leaf_values(None, kind.item_type, (*path, "key_value", "value"))
    elif isinstance(kind, pa.ListType):
        yield from _leaf_values(None, kind.value_type, (*path, "list", "element"))
    else:
        yield path, None if column is None else _sampled(column)


def _distinct(values: pa.ChunkedArray) -> int:
    if isinstance(values.type, pa.DictionaryType):
        values = pa.chunked_array([chunk.indices.cast(CODES) for chunk in values.chunks], CODES)
    found: int = pc.count_distinct(values).as_py()
    return found
