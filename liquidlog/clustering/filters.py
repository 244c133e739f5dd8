"""Columns with Bloom filters: which can have one, and which reader would be misled or never ask.

An equal value must have equal bytes in the file, else a filter hides rows: 0.0 and -0.0 are equal
as floating-point numbers, and so are many texts under a collation.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from liquidlog.errors import UsageError
from liquidlog.spec.schema import (
    ArrayType,
    DecimalType,
    Leaf,
    MapType,
    Path,
    PrimitiveType,
    StructType,
    find_column,
    leaves,
    quote_path,
    resolve_path,
)
from liquidlog.spec.text import unknown_columns

_FILTERED: Final = frozenset(
    {"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "string", "binary"}
)
_FLOATING: Final = frozenset({"float", "double"})
_COLLATIONS: Final = "__COLLATIONS"


def filtered_leaves(schema: StructType, requested: Sequence[Path]) -> tuple[Leaf, ...]:
    """Return the leaves that columns with Bloom filters are, in the requested order."""
    known = {leaf.logical: leaf for leaf in leaves(schema)}
    problems = list(_problems(schema, requested))
    if problems:
        raise UsageError(f"bloom_filter: {'; '.join(problems)}", option="bloom_filter")
    return tuple(known[resolve_path(schema, path)[0]] for path in requested)


def _problems(schema: StructType, requested: Sequence[Path]) -> Iterator[str]:
    unknown = []
    for path in requested:
        problem = _column_problem(schema, path)
        if problem is not None:
            yield problem
        elif find_column(schema, path) is None:
            unknown.append(quote_path(path))
    yield from unknown_columns(unknown, schema)
    found = (path for path in requested if find_column(schema, path) is not None)
    named = Counter(resolve_path(schema, path)[0] for path in found)
    for path, times in named.items():
        if times > 1:
            yield f"{quote_path(path)} is named {times} times; name it once"


def _column_problem(schema: StructType, path: Path) -> str | None:
    """Return why a column cannot have filters; None if it can, or does not exist."""
    name = quote_path(path)
    for length in range(1, len(path)):
        around = find_column(schema, path[:length])
        if around is not None and isinstance(around.data_type, ArrayType | MapType):
            return f"{name} is inside {quote_path(path[:length])}, a list or a map of many values"
    found = find_column(schema, path)
    if found is None:
        return None
    match found.data_type:
        case StructType(fields):
            inner = ", ".join(quote_path((*path, field.name)) for field in fields)
            return f"{name} is a struct; name one of its fields: {inner}"
        case PrimitiveType(kind) if kind in _FLOATING:
            return f"{name} is of type {kind}, where 0.0 and -0.0 are equal and hashed differently"
        case PrimitiveType("string") if _is_collated(schema, path):
            return f"{name} is a collated string, whose equal texts are hashed differently"
        case DecimalType() | PrimitiveType(_) if _is_filtered(found.data_type):
            return None
        case other:
            return (
                f"{name} is of type {other}; a Bloom filter is for whole numbers, decimals, dates,"
                " timestamps, strings and bytes"
            )


def _is_collated(schema: StructType, path: Path) -> bool:
    """Return whether a column or a struct around it names a collation."""
    around = (find_column(schema, path[:length]) for length in range(1, len(path) + 1))
    return any(found is not None and _COLLATIONS in found.metadata for found in around)


def _is_filtered(data_type: object) -> bool:
    if isinstance(data_type, PrimitiveType):
        return data_type.name in _FILTERED
    return isinstance(data_type, DecimalType)
