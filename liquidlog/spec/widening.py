"""Type widening: which type changes keep every value, and which changes a schema records.

Source: PROTOCOL.md, "Type Widening".
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from liquidlog.spec.fields import data_type_at, fields_with_paths
from liquidlog.spec.schema import (
    DataType,
    DecimalType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    parse_type,
    quote_path,
)

TYPE_CHANGES: Final = "delta.typeChanges"
"""Key of a field's metadata: every change of its type, oldest first."""

_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "byte": frozenset({"short", "integer", "long", "double"}),
    "short": frozenset({"integer", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "long": frozenset(),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
_DIGITS: Final[Mapping[str, int]] = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Digits before the point that a decimal must have to take an integer."""


def is_widening(source: DataType, target: DataType) -> bool:
    """Return whether `target` can hold every value of `source`, as the protocol defines it."""
    match source, target:
        case PrimitiveType(name), PrimitiveType(wider):
            return wider in _WIDER.get(name, ())
        case PrimitiveType(name), DecimalType(precision, scale):
            return name in _DIGITS and precision - scale >= _DIGITS[name]
        case DecimalType(precision, scale), DecimalType(wide_precision, wide_scale):
            more_digits, more_scale = wide_precision - precision, wide_scale - scale
            return more_digits >= more_scale >= 0 and more_digits > 0
        case _:
            return False


def type_change_problems(schema: StructType) -> tuple[str, ...]:
    """Return a sentence for every recorded type change that is not a widening to today's type."""
    return tuple(
        problem for path, field in fields_with_paths(schema) for problem in _problems(path, field)
    )


def type_changes(schema: StructType) -> Iterator[tuple[Path, DataType, DataType]]:
    """Yield (logical path, earlier type, later type) of every recorded change, sound or not."""
    for path, field in fields_with_paths(schema):
        for change in _recorded(field):
            yield (*path, *_inner(change)), _type(change, "fromType"), _type(change, "toType")


def earlier_types(schema: StructType) -> Mapping[Path, frozenset[DataType]]:
    """Return the types that data files may still have for a column, by physical path.

    Paths go into arrays and maps by `element`, `key` and `value`. The schema must be without
    `type_change_problems`.
    """
    found: dict[Path, set[DataType]] = {}
    for path, field in fields_with_paths(schema, physical=True):
        for change in _recorded(field):
            found.setdefault((*path, *_inner(change)), set()).add(_type(change, "fromType"))
    return {path: frozenset(types) for path, types in found.items()}


def _problems(path: Path, field: StructField) -> Iterator[str]:
    newest: dict[Path, DataType] = {}
    for change in _recorded(field):
        inner = _inner(change)
        name = quote_path((*path, *inner))
        source, target = _type(change, "fromType"), _type(change, "toType")
        today = data_type_at(field.data_type, inner)
        newest[inner] = target
        if not is_widening(source, target) or today is None or not is_widening(source, today):
            yield f"the type change of {name} from {source} to {target}"
    for inner, target in newest.items():
        today = data_type_at(field.data_type, inner)
        if today is not None and target != today:
            name = quote_path((*path, *inner))
            yield f"the type of {name}, which is {today} after a change to {target}"


def _recorded(field: StructField) -> list[Mapping[str, Any]]:
    changes = field.metadata.get(TYPE_CHANGES) or []
    return changes if isinstance(changes, list) else [{}]


def _inner(change: Mapping[str, Any]) -> Path:
    path = str(change.get("fieldPath") or "")
    return tuple(path.split(".")) if path else ()


def _type(change: Mapping[str, Any], key: str) -> DataType:
    try:
        return parse_type(change[key])
    except (ValueError, KeyError, TypeError, AttributeError):
        return PrimitiveType(f"unreadable {key}")
