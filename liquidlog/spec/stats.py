"""Per-file statistics as they are written: which columns get them, and their JSON.

Source: PROTOCOL.md, "Per-file Statistics".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import msgspec

from liquidlog.errors import CorruptLogError, UsageError
from liquidlog.spec.schema import Leaf, Path, StructType, leaves, split_paths

NUM_INDEXED_COLUMNS: Final = "delta.dataSkippingNumIndexedCols"
STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"
DEFAULT_NUM_INDEXED_COLUMNS: Final = 32


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


def indexed_leaves(schema: StructType, configuration: Mapping[str, str]) -> tuple[Leaf, ...]:
    """Return the leaves that the table's properties ask statistics for, in schema order.

    Named columns win over a number of columns; a named struct stands for all its leaves.
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


def wide_bounds(stats: str, *, where: str) -> str:
    """Return the statistics of a file for an add action with a deletion vector.

    They say that bounds may be wider than the rows that are left. All else stays as it is written:
    the number of physical rows, and counts of nulls, of which readers then believe none and all.

    Args:
        stats: The JSON of the file without the vector.
        where: The file, which the error names.
    """
    try:
        document = msgspec.json.decode(stats, type=dict[str, msgspec.Raw])
        counted = msgspec.json.decode(document.get("numRecords", b"null"), type=int)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptLogError(
            where, f"a deletion vector needs statistics with numRecords: {error}"
        ) from error
    if counted < 0:
        raise CorruptLogError(where, f"its statistics have numRecords {counted}")
    document["tightBounds"] = msgspec.Raw(b"false")
    return msgspec.json.encode(document).decode()


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
