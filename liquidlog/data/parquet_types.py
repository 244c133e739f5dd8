"""What a Parquet footer says about types that Arrow's schema of it does not.

INT96 timestamps have no zone in Arrow and any precision; files of old or legacy-mode Spark count
days in another calendar; dictionary pages tell which columns have few values.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.data.buffers import fixed_width
from liquidlog.spec.arrow import TIMESTAMP, is_list

_SPARK_VERSION: Final = b"org.apache.spark.version"
_LEGACY_DATETIME: Final = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96: Final = b"org.apache.spark.legacyINT96"
_PROLEPTIC_SINCE: Final = 3
_DICTIONARY_BITS: Final = 12
"""A column with at most this many bits a value counts as one of few distinct values."""


def found_schema(parquet: pq.ParquetFile) -> pa.Schema:
    """Return the Arrow schema of a file, INT96 as what it means: an instant in UTC."""
    schema = parquet.schema_arrow
    if not has_int96(parquet):
        return schema
    leaves = iter(_physical_types(parquet))
    return pa.schema([child.with_type(_retyped(child.type, leaves)) for child in schema])


def has_int96(parquet: pq.ParquetFile) -> bool:
    """Return whether a column is stored as INT96."""
    return "INT96" in _physical_types(parquet)


def needs_precision_check(parquet: pq.ParquetFile) -> bool:
    """Return whether INT96 columns may hold nanoseconds: Spark never writes them, others may."""
    return has_int96(parquet) and _SPARK_VERSION not in _metadata(parquet)


def has_nanoseconds(micros: pa.Table, nanos: pa.Table) -> bool:
    """Return whether the INT96 values of one read have digits below the microsecond.

    Takes the same rows read as microseconds and as nanoseconds. The latter wrap around outside
    the years 1677 to 2262, and so does the product here; their difference is right nonetheless.
    """
    pairs = zip(micros.itercolumns(), nanos.itercolumns(), strict=True)
    return any(
        _differ(*chunks)
        for column_us, column_ns in pairs
        for chunks in zip(column_us.chunks, column_ns.chunks, strict=True)
    )


def calendar_problems(parquet: pq.ParquetFile) -> Iterator[str]:
    """Yield why dates or timestamps of this file would have to be moved to today's calendar."""
    metadata = _metadata(parquet)
    types = [leaf for child in parquet.schema_arrow for leaf in _leaf_types(child.type)]
    dated = any(pa.types.is_date(leaf) or pa.types.is_timestamp(leaf) for leaf in types)
    version = metadata.get(_SPARK_VERSION, b"").split(b".")[0]
    if dated and version.isdigit() and int(version) < _PROLEPTIC_SINCE:
        yield f"was written by Spark {version.decode()}, which counts dates in the Julian calendar"
    if dated and _LEGACY_DATETIME in metadata:
        yield "holds dates or timestamps in the Julian calendar (legacyDateTime)"
    if has_int96(parquet) and _LEGACY_INT96 in metadata:
        yield "holds timestamps in the Julian calendar (legacyINT96)"


def dictionary_candidates(parquet: pq.ParquetFile, wanted: pa.Schema) -> frozenset[str]:
    """Return the top-level string columns that the file keeps in small dictionaries."""
    metadata = parquet.metadata
    bits: dict[str, float] = {}
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            share = 8 * chunk.total_uncompressed_size / max(chunk.num_values, 1)
            found = share if chunk.has_dictionary_page else float("inf")
            bits[chunk.path_in_schema] = max(found, bits.get(chunk.path_in_schema, 0))
    return frozenset(
        child.name
        for child in wanted
        if child.type == pa.string() and bits.get(child.name, float("inf")) <= _DICTIONARY_BITS
    )


def _metadata(parquet: pq.ParquetFile) -> dict[bytes, bytes]:
    return parquet.metadata.metadata or {}


def _physical_types(parquet: pq.ParquetFile) -> list[str]:
    schema = parquet.schema
    return [schema.column(index).physical_type for index in range(len(schema))]


def _leaf_types(found: pa.DataType) -> Iterator[pa.DataType]:
    if found.num_fields == 0:
        yield found.value_type if isinstance(found, pa.DictionaryType) else found
    for index in range(found.num_fields):
        yield from _leaf_types(found.field(index).type)


def _retyped(found: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """Return the type with INT96 leaves in UTC; takes one of `leaves` for each of its own."""
    if isinstance(found, pa.StructType):
        return pa.struct([child.with_type(_retyped(child.type, leaves)) for child in found])
    if isinstance(found, pa.MapType):
        return pa.map_(_retyped(found.key_type, leaves), _retyped(found.item_type, leaves))
    if is_list(found):
        return pa.list_(_retyped(found.value_type, leaves))
    return TIMESTAMP if next(leaves) == "INT96" else found


def _differ(micros: pa.Array, nanos: pa.Array) -> bool:
    kind = nanos.type
    if isinstance(kind, pa.StructType):
        pairs = zip(micros.flatten(), nanos.flatten(), strict=True)
        return any(_differ(us, ns) for us, ns in pairs)
    if isinstance(kind, (pa.ListType, pa.MapType)):
        return _differ(micros.values, nanos.values)
    if micros.type == kind or not isinstance(kind, pa.TimestampType):
        return False
    us = fixed_width(micros.drop_null(), np.uint64)
    ns = fixed_width(nanos.drop_null(), np.uint64)
    return bool(np.any(us * np.uint64(1000) != ns))
