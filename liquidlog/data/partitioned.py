"""Rows parted by the values of partition columns, and these values as the log spells them.

Source: PROTOCOL.md, "Partition Value Serialization"; Delta Spark, which writes "" as null too.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.spec.partitions import PartitionTexts
from liquidlog.spec.schema import DecimalType, PrimitiveType, StructField, quote_path

_YEARS: Final = re.compile(r"(?!0000)\d{4}-")
"""Years that every reader takes; Arrow writes others with a sign."""


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
    """Return the number of each row's text (n,) int64, and the different texts."""
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
        return [None if value is None else _number(value) for value in _floats(values)]
    texts: list[str | None] = pc.cast(values, pa.string()).to_pylist()
    if name in {"date", "timestamp", "timestamp_ntz"}:
        _require_years(texts, field)
    if name == "timestamp":
        return [None if text is None else text.replace(" ", "T") for text in texts]
    if name == "timestamp_ntz":
        return [None if text is None else text.rstrip("0").rstrip(".") for text in texts]
    return [text or None for text in texts]


def _floats(values: pa.Array) -> list[np.floating | None]:
    numbers = values.to_numpy(zero_copy_only=False)
    return [None if null else value for null, value in zip(values.is_null(), numbers, strict=True)]


def _number(value: np.floating) -> str:
    """Return a number as Java writes it: with the fewest digits that are no other number."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits, exponent, power = str(value).partition("e")
    if not exponent:
        return digits
    return f"{digits if '.' in digits else digits + '.0'}E{int(power)}"


def _require_years(texts: Sequence[str | None], field: StructField) -> None:
    odd = [text for text in texts if text is not None and _YEARS.match(text) is None]
    if odd:
        name = quote_path((field.name,))
        raise ValueError(f"partition column {name} has the value {odd[0]}: years are 1 to 9999")
