"""Per-file statistics: which columns get them, their JSON, their typed bounds.

Source: PROTOCOL.md, "Per-file Statistics".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import UsageError
from liquidlog.spec.bounds import bounds_columns
from liquidlog.spec.schema import (
    DataType,
    DecimalType,
    Leaf,
    Path,
    PrimitiveType,
    StructType,
    leaves,
    split_paths,
)

NUM_INDEXED_COLUMNS: Final = "delta.dataSkippingNumIndexedCols"
STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"
DEFAULT_NUM_INDEXED_COLUMNS: Final = 32

_NUM_RECORDS_FIRST: Final = r'^\{"numRecords":(?P<n>[0-9]{1,18})[,}]'

_BOUNDED: Final = frozenset(
    {
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "date",
        "timestamp",
        "timestamp_ntz",
        "string",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """Statistics of one data file, keyed by physical leaf path.

    Bounds are the JSON values that go into the log (strings for dates, timestamps, NaN and
    infinities; decimal.Decimal for decimals); a leaf without a bound is absent.
    """

    num_records: int
    min_values: Mapping[Path, Any]
    max_values: Mapping[Path, Any]
    null_count: Mapping[Path, int]


BoundsOf = Callable[[Sequence[Leaf]], pa.Table]
"""Brings the bounds of leaves, one row per live file, as `parse_bounds` spells them."""


def has_bounds(data_type: DataType) -> bool:
    """Return whether a leaf of this type has min/max statistics (is eligible for skipping).

    Numeric types, date, timestamp, timestamp_ntz and string are; boolean, binary, array, map,
    variant and unknown types are not.
    """
    match data_type:
        case DecimalType():
            return True
        case PrimitiveType(name):
            return name in _BOUNDED
        case _:
            return False


def indexed_leaves(schema: StructType, configuration: Mapping[str, str]) -> tuple[Leaf, ...]:
    """Return the leaves that the table's properties ask statistics for, in schema order.

    Named columns win over a number of columns; a named struct stands for all its leaves.

    Raises:
        UsageError: If a property has a value that cannot be understood.
    """
    named = configuration.get(STATS_COLUMNS)
    if named is not None:
        prefixes = {_lower(path) for path in split_paths(named)}
        return tuple(leaf for leaf in leaves(schema) if _is_below(leaf.logical, prefixes))
    text = configuration.get(NUM_INDEXED_COLUMNS, str(DEFAULT_NUM_INDEXED_COLUMNS))
    try:
        number = int(text)
    except ValueError:
        raise UsageError(
            f"{NUM_INDEXED_COLUMNS} must be a whole number, found {text!r}", property=text
        ) from None
    return tuple(leaves(schema) if number < 0 else islice(leaves(schema), number))


def encode_stats(stats: FileStatistics, *, tight_bounds: bool = False) -> str:
    """Return the JSON string of an add action's `stats`; nested columns become nested objects.

    With `tight_bounds` it says that the bounds are those of the file's rows.
    """
    document = {
        "numRecords": stats.num_records,
        "minValues": _nested(stats.min_values),
        "maxValues": _nested(stats.max_values),
        "nullCount": _nested(stats.null_count),
        **({"tightBounds": True} if tight_bounds else {}),
    }
    return msgspec.json.encode(document).decode()


def parse_bounds(stats: pa.Array | pa.ChunkedArray, columns: Sequence[Leaf]) -> pa.Table:
    """Return typed bounds of `columns` for each file of `stats` (raw JSON strings, nulls allowed).

    Columns `min.0`, `max.0`, `null_count.0`, `min.1`, … in the order of `columns`, and
    `num_records`. Bounds have the Arrow type of the column (timestamps microseconds); null where
    the file has none, or has one that is not of the column's type. Timestamp maxima are raised by
    999 us: the log holds milliseconds.
    """
    return bounds_columns(stats, [(leaf, has_bounds(leaf.data_type)) for leaf in columns])


def record_counts(stats: pa.Array) -> pa.Array:
    """Return numRecords of each raw statistics string (large strings), null where it is absent.

    The known writers put it first; of such a string only its digits are read.
    """
    found = pc.extract_regex(stats, _NUM_RECORDS_FIRST)
    counts = pc.cast(pc.struct_field(found, "n"), pa.int64())
    odd = pc.and_(counts.is_null(), stats.is_valid())
    if not pc.any(odd).as_py():
        return counts
    parsed = bounds_columns(stats.filter(odd), ())["num_records"].combine_chunks()
    return pc.replace_with_mask(counts, odd, parsed)


def _lower(path: Path) -> Path:
    return tuple(part.lower() for part in path)


def _is_below(path: Path, prefixes: set[Path]) -> bool:
    lowered = _lower(path)
    return any(lowered[:depth] in prefixes for depth in range(1, len(lowered) + 1))


def _nested(values: Mapping[Path, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, value in values.items():
        parent = document
        for part in path[:-1]:
            parent = parent.setdefault(part, {})
        # Decimal's own text can have an exponent ("0E-18"), which some JSON readers take for a
        # binary float; every digit is written instead.
        exact = isinstance(value, Decimal)
        parent[path[-1]] = msgspec.Raw(format(value, "f").encode()) if exact else value
    return document
