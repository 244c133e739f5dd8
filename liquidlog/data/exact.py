"""Arrow values of one type as values of another, only where nothing is lost.

What may differ is the encoding: dictionaries, large and view layouts, the unit of a timestamp,
nullability, the order of struct fields. Everything else is a difference to report.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.encodings import fixed_width, integer_array, list_offsets, null_mask
from liquidlog.spec.arrow import VARIANT, is_list
from liquidlog.spec.schema import Path, quote_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Leniency:
    """What is allowed to differ besides the encoding.

    Attributes:
        missing_is_null: Whether a field that is not there is null.
        surplus_is_dropped: Whether a field that is not wanted is left out.
        earlier: Other types that the part at a path may have; a cast from them loses nothing.
        ignore_case: Whether a name may differ in case where no name is equal.
        widen_decimals: Whether a decimal of the same scale may have fewer digits.
        unsigned: Whether integers may be unsigned where the wanted type holds all of them.
        as_spark_reads: Whether what Parquet's annotations leave out may be what Spark reads there:
            byte and short columns as plain INT32, as Trino writes them, whose values must fit; and
            timestamps that are not marked as UTC, which Spark reads as if they were.
    """

    missing_is_null: bool = False
    surplus_is_dropped: bool = False
    earlier: Mapping[Path, frozenset[pa.DataType]] = field(default_factory=dict)
    ignore_case: bool = False
    widen_decimals: bool = False
    unsigned: bool = False
    as_spark_reads: bool = False


_UNSIGNED: Final[Mapping[pa.DataType, frozenset[pa.DataType]]] = {
    # As what Spark reads them exactly, in its vectorised reader and in its row-based one; as other
    # integers it reads other numbers.
    pa.uint8(): frozenset({pa.int16(), pa.int32(), pa.int64()}),
    pa.uint16(): frozenset({pa.int32(), pa.int64()}),
    pa.uint32(): frozenset({pa.int64()}),
    pa.uint64(): frozenset({pa.decimal128(20, 0)}),
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
    """Return `convert` of every chunk."""
    if column.type == wanted:
        return column
    return pa.chunked_array([convert(chunk, wanted) for chunk in column.chunks], wanted)


def nulls(length: int, wanted: pa.DataType) -> pa.Array:
    """Return null values; those of a variant have empty parts, as their nulls are forbidden."""
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
        name = matching_name(fields, child.name) if leniency.ignore_case else child.name
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
    elif sorted(names) != ["metadata", "value"] or not all(_is_binary(c.type) for c in found):
        yield f"column {quote_path(path)} is {found}, a variant has a binary value and metadata"


def _is_binary(found: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(found) or types.is_large_binary(found))


def _same_value(found: pa.DataType, wanted: pa.DataType, leniency: Leniency) -> bool:
    if found == wanted or (leniency.unsigned and wanted in _UNSIGNED.get(found, ())):
        return True
    if isinstance(wanted, pa.TimestampType):
        as_utc = leniency.as_spark_reads and wanted.tz is not None
        return isinstance(found, pa.TimestampType) and (as_utc or bool(found.tz) == bool(wanted.tz))
    if leniency.as_spark_reads and found == pa.int32() and wanted in {pa.int8(), pa.int16()}:
        return True
    if pa.types.is_decimal128(wanted):
        return _same_decimal(found, wanted, leniency)
    return any(check(found) for check in _encodings(wanted))


def _same_decimal(found: pa.DataType, wanted: pa.DataType, leniency: Leniency) -> bool:
    if not pa.types.is_decimal(found) or found.scale != wanted.scale:
        return False
    narrower = leniency.widen_decimals and found.precision < wanted.precision
    return narrower or bool(found.precision == wanted.precision)


def _encodings(wanted: pa.DataType) -> tuple[Callable[[pa.DataType], bool], ...]:
    types = pa.types
    if types.is_string(wanted):
        return (types.is_large_string, types.is_string_view)
    if types.is_binary(wanted):
        return (types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    if types.is_date32(wanted):
        return (types.is_date64,)
    return ()


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
        children = [_filled(child, array) for child in children]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_null_mask(array))


def _filled(part: pa.Array, variants: pa.StructArray) -> pa.Array:
    """Return a binary of variants without nulls: a null variant has empty ones."""
    if part.filter(variants.is_valid()).null_count:
        raise pa.ArrowInvalid("a variant has no value or no metadata")
    return pc.fill_null(part, b"") if part.null_count else part


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
