"""A user's Arrow data as rows of a table, or a refusal that names every difference.

Texts longer than their char(n) or varchar(n) are refused; nothing is cut or padded. Lengths are
compared in characters (code points), with trailing spaces.

Source: Delta Spark's write rules, but without its implicit casts; its CharVarcharConstraint, which
does not pad a char either; PROTOCOL.md, "Partition Value Serialization".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.data.encodings import Leniency, convert_chunks, differences, matching_name
from liquidlog.data.reader import ParquetFile, with_names_of
from liquidlog.errors import DataFileError, SchemaMismatchError, UsageError
from liquidlog.spec.arrow import (
    ArrayLimits,
    Limits,
    MapLimits,
    StructLimits,
    TextLimit,
    arrow_schema,
    column_limits,
    without_void,
)
from liquidlog.spec.partitions import PartitionTexts
from liquidlog.spec.schema import (
    ArrayType,
    DecimalType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    quote_path,
    render_schema,
)
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidlog.storage.files import content_mark

_YEARS: Final = re.compile(r"(?!0000)\d{4}-")
"""Years that every reader accepts; Arrow writes others with a sign."""


def split_by_partition(
    table: pa.Table, fields: Sequence[StructField]
) -> Iterator[tuple[PartitionTexts, pa.Table]]:
    """Yield the rows of each partition, without the partition columns, in their order."""
    if not len(table):
        return
    number = np.zeros(len(table), np.int64)
    columns = [_texts(table[field.physical_name].combine_chunks(), field) for field in fields]
    for codes, texts in columns:
        _, number = np.unique(number * len(texts) + codes, return_inverse=True)
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1)).tolist()
    data = table.drop_columns([field.physical_name for field in fields]).take(pa.array(order))
    for start, stop in pairwise([*starts, len(table)]):
        values = {
            field.physical_name: texts[int(codes[order[start]])]
            for field, (codes, texts) in zip(fields, columns, strict=True)
        }
        yield values, data.slice(start, stop - start)


def _texts(column: pa.Array, field: StructField) -> tuple[NDArray[np.int64], list[str | None]]:
    """Return the number of each row's text, (n,) int64, and the distinct texts."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    written = [*_spelled(encoded.dictionary, field), None]
    texts: dict[str | None, int] = {}
    numbers = np.array([texts.setdefault(text, len(texts)) for text in written], np.int64)
    codes = pc.fill_null(encoded.indices, len(written) - 1).to_numpy(zero_copy_only=False)
    found = numbers[codes.astype(np.int64)]
    if not field.nullable and None in texts and (found == texts[None]).any():
        name = quote_path((field.name,))
        raise ValueError(f'partition column {name} takes no null, and "" is null there')
    return found, list(texts)


def _spelled(values: pa.Array, field: StructField) -> list[str | None]:
    kind = field.data_type
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if isinstance(kind, DecimalType):
        return [None if value is None else format(value, "f") for value in values.to_pylist()]
    if name in {"float", "double"}:
        numbers = values.to_numpy(zero_copy_only=False)
        pairs = zip(values.is_valid().to_pylist(), numbers, strict=True)
        return [_number(number) if is_valid else None for is_valid, number in pairs]
    texts: list[str | None] = pc.cast(values, pa.string()).to_pylist()
    if name in {"date", "timestamp", "timestamp_ntz"}:
        odd = [text for text in texts if text is not None and _YEARS.match(text) is None]
        if odd:
            column = quote_path((field.name,))
            raise ValueError(
                f"partition column {column} has the value {odd[0]}: years are 1 to 9999"
            )
    if name == "timestamp":
        return [None if text is None else text.replace(" ", "T") for text in texts]
    if name == "timestamp_ntz":
        return [None if text is None else text.rstrip("0").rstrip(".") for text in texts]
    return [text or None for text in texts]


def _number(value: np.floating) -> str:
    """Return a number as Java writes it: with the fewest digits that identify it."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits, exponent, power = str(value).partition("e")
    if not exponent:
        return digits
    return f"{digits if '.' in digits else digits + '.0'}E{int(power)}"


ArrowData: TypeAlias = pa.Table | pa.RecordBatchReader | ParquetFile

_SLICE_ROWS: Final = 1_000_000


def conform(
    data: ArrowData, schema: StructType, *, where: str, missing_is_null: bool = False
) -> Iterator[pa.Table]:
    """Yield the data slice by slice with the columns, order, types and names of the table.

    Names match exactly, else without case. With `missing_is_null`, structs may lack fields.
    """
    wanted = arrow_schema(schema)
    leniency = Leniency(of_users=True, missing_is_null=missing_is_null)
    problems = tuple(
        differences(pa.struct(list(data.schema)), pa.struct(list(wanted)), (), leniency)
    )
    if problems:
        raise SchemaMismatchError(where, render_schema(schema), _rendered(data.schema), problems)
    return _conformed(data, schema, wanted, where, _limits(schema, where))


@dataclass(frozen=True, slots=True)
class Source:
    """A user's data as slices of a table's rows; `mark` shows whether the file `path` changed."""

    slices: Iterator[pa.Table]
    path: str | None = None
    mark: tuple[object, ...] | None = None
    storage: StorageOptions = NO_OPTIONS

    def __iter__(self) -> Iterator[pa.Table]:
        for piece in self.slices:
            yield piece
            self.require_unchanged()
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Refuse a file that changed since it was opened: rows may come from two versions."""
        if self.path is not None and content_mark(self.path, self.storage) != self.mark:
            detail = "was changed while it was read; append it when nobody writes to it"
            raise DataFileError(self.path, detail)


def open_source(
    source: str | pa.Table | pa.RecordBatchReader,
    schema: StructType,
    storage: StorageOptions = NO_OPTIONS,
) -> Source:
    """Return `conform` of Arrow data, or of the Parquet file at a path or URI."""
    if not isinstance(source, str):
        return Source(conform(source, schema, where="the Arrow data"))
    mark = content_mark(source, storage)
    slices = conform(ParquetFile(source, storage=storage), schema, where=source)
    return Source(slices, source, mark, storage)


def read_schema(path: str, storage: StorageOptions = NO_OPTIONS) -> pa.Schema:
    with ParquetFile(path, storage=storage) as file:
        return file.schema


def _limits(schema: StructType, where: str) -> Sequence[Limits | None]:
    found, problems = [], []
    for field in without_void(schema).fields:
        try:
            found.append(column_limits(field))
        except ValueError as error:
            problems.append(f"column {quote_path((field.name,))}: {error}")
    if problems:
        raise UsageError(f"{where} cannot be appended: {'; '.join(problems)}")
    return found


def _conformed(
    data: ArrowData,
    schema: StructType,
    wanted: pa.Schema,
    where: str,
    limits: Sequence[Limits | None],
) -> Iterator[pa.Table]:
    found = [matching_name(data.schema.names, name) or name for name in wanted.names]
    stored = without_void(schema)
    physical = arrow_schema(stored, physical=True)
    for piece in _slices(data):
        converted = []
        problems: list[str] = []
        for column, child, arrow, limit in zip(
            piece.select(found).itercolumns(), stored.fields, wanted, limits, strict=True
        ):
            try:
                converted.append(convert_chunks(column, arrow.type))
            except pa.ArrowInvalid as error:
                problems.append(f"column {quote_path((child.name,))} would change: {error}")
                continue
            for chunk in converted[-1].chunks:
                problems.extend(_value_problems(chunk, child, (child.name,)))
                problems.extend(too_long(chunk, limit, (child.name,)))
        if problems:
            raise SchemaMismatchError(
                where, render_schema(schema), _rendered(data.schema), tuple(dict.fromkeys(problems))
            )
        columns = map(with_names_of, converted, physical.types)
        yield pa.Table.from_arrays(list(columns), schema=physical)


def _slices(data: ArrowData) -> Iterator[pa.Table]:
    match data:
        case pa.Table():
            for batch in data.to_batches(max_chunksize=_SLICE_ROWS):
                yield pa.Table.from_batches([batch])
        case ParquetFile():
            for group in range(data.metadata.num_row_groups):
                yield data.read([group])
        case _:
            for batch in data:
                yield pa.Table.from_batches([batch])


def _rendered(found: pa.Schema) -> str:
    return "\n".join(
        f"  {child.name}: {child.type}{'' if child.nullable else ' not null'}" for child in found
    )


def _value_problems(array: pa.Array, field: StructField, path: Path) -> Iterator[str]:
    if array.null_count and not field.nullable:
        yield f"column {quote_path(path)} must not be null, {array.null_count} rows are"
    match field.data_type:
        case StructType(fields):
            # Fields of a null struct are null, even if they are NOT NULL.
            valid = array.drop_null()
            for position, child in enumerate(fields):
                yield from _value_problems(valid.field(position), child, (*path, child.name))
        case ArrayType(element, contains_null):
            inside = StructField("element", element, contains_null)
            yield from _value_problems(array.flatten(), inside, (*path, "element"))
        case MapType(_, value, value_contains_null):
            inside = StructField("value", value, value_contains_null)
            yield from _value_problems(_map_entries(array)[1], inside, (*path, "value"))
        case _:
            return


def too_long(array: pa.Array, limits: Limits | None, path: Path) -> Iterator[str]:
    """Yield a sentence for each part of a column that holds texts longer than its type."""
    match limits:
        case None:
            return
        case TextLimit(length):
            if (pc.max(pc.utf8_length(array)).as_py() or 0) > length:
                yield f"column {quote_path(path)} holds strings longer than {limits}"
        case StructLimits(fields):
            # Flattened, the fields of a null struct are null.
            for child, (name, inner) in zip(array.flatten(), fields, strict=True):
                yield from too_long(child, inner, (*path, name))
        case ArrayLimits(element):
            yield from too_long(array.flatten(), element, (*path, "element"))
        case MapLimits(key, value):
            keys, values = _map_entries(array)
            yield from too_long(keys, key, (*path, "key"))
            yield from too_long(values, value, (*path, "value"))


def _map_entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    there = array.drop_null()
    if not len(there):
        return array.keys.slice(0, 0), array.items.slice(0, 0)
    start, stop = there.offsets[0].as_py(), there.offsets[-1].as_py()
    return there.keys.slice(start, stop - start), there.items.slice(start, stop - start)
