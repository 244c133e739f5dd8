"""Which changes of a schema leave data files, written before them, complete and valid.

Columns may be added that can be null: a file without a column has null in it for every row. What is
said about a column to people and to those who insert rows may change. Nothing else may.

Source: PROTOCOL.md, "Reader Requirements for Column Mapping", "Default Columns" and "Identity
Columns".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from liquidlog.errors import CorruptLogError
from liquidlog.spec.char_types import CHAR_VARCHAR
from liquidlog.spec.fields import fields_with_paths
from liquidlog.spec.schema import (
    FIELD_ID,
    PHYSICAL_NAME,
    VOID,
    Path,
    StructField,
    StructType,
    parse_schema,
    quote_path,
)

_ABOUT_INSERTS: Final = frozenset({"comment", "CURRENT_DEFAULT", "delta.identity.highWaterMark"})
"""Metadata that says nothing about rows that are there: what people read, what INSERT puts where a
row has no value, and the last value that an identity column gave out."""

_OF_NEW_COLUMNS: Final = frozenset(
    {"comment", "CURRENT_DEFAULT", CHAR_VARCHAR, FIELD_ID, PHYSICAL_NAME}
)
"""What a new column may say of itself. A value for rows that are there, a generating expression, an
identity or an invariant would ask something of files without the column."""


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column that was added: its paths, and its ids with those in it; none if one has none."""

    logical: Path
    physical: Path
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Growth:
    """What became of a schema.

    `new` are the outermost columns that were added, in schema order. `problems` are clauses, one
    for each change that files written before may not be valid after.
    """

    new: tuple[NewColumn, ...]
    problems: tuple[str, ...]


@lru_cache(maxsize=64)
def schema_growth(before: str, after: str) -> Growth:
    """Return what became of a schema, from both in the protocol's JSON."""
    if before == after:
        return Growth((), ())
    try:
        old = parse_schema(before, where="the schema before")
        new = parse_schema(after, where="the schema after")
    except CorruptLogError as error:
        return Growth((), (error.message,))
    found = _Comparison()
    found.compare(old, new, (), ())
    return Growth(tuple(found.new), tuple(found.problems))


class _Comparison:
    """What was found so far of the differences between two schemas."""

    def __init__(self) -> None:
        self.new: list[NewColumn] = []
        self.problems: list[str] = []

    def compare(self, old: StructType, new: StructType, logical: Path, physical: Path) -> None:
        """Compare the fields of two structs that have the same paths."""
        before = {field.name: field for field in old.fields}
        after = {field.name: field for field in new.fields}
        for field in old.fields:
            if field.name not in after:
                name = quote_path((*logical, field.name))
                self.problems.append(f"the column {name} was dropped or renamed")
        kept = [field.name for field in new.fields if field.name in before]
        if kept != [field.name for field in old.fields if field.name in after]:
            where = f" in {quote_path(logical)}" if logical else ""
            self.problems.append(f"columns{where} changed their order")
        if len(after) < len(new.fields) or len(before) < len(old.fields):
            self.problems.append("several columns have one name")
        for field in new.fields:
            paths = (*logical, field.name), (*physical, field.physical_name)
            if field.name in before:
                self._compare_field(before[field.name], field, *paths)
            else:
                self._add(field, *paths)

    def _compare_field(
        self, old: StructField, new: StructField, logical: Path, physical: Path
    ) -> None:
        name = quote_path(logical)
        if old.nullable and not new.nullable:
            self.problems.append(f"the column {name} became NOT NULL")
        changed = _differing(old.metadata, new.metadata) - _ABOUT_INSERTS
        if changed:
            listed = ", ".join(sorted(changed))
            self.problems.append(f"the column {name} has other metadata ({listed})")
        if isinstance(old.data_type, StructType) and isinstance(new.data_type, StructType):
            self.compare(old.data_type, new.data_type, logical, physical)
        elif _plain(old) != _plain(new):
            self.problems.append(
                f"the type of the column {name} changed from {old.data_type} to {new.data_type}"
            )

    def _add(self, field: StructField, logical: Path, physical: Path) -> None:
        self.problems.extend(_problems_of_new(field, logical))
        ids = [inner.metadata.get(FIELD_ID) for _, inner in _with_inner(field)]
        known = tuple(number for number in ids if type(number) is int)
        self.new.append(NewColumn(logical, physical, known if len(known) == len(ids) else ()))


def _with_inner(field: StructField) -> Iterator[tuple[Path, StructField]]:
    return fields_with_paths(StructType((field,)))


def _problems_of_new(field: StructField, logical: Path) -> Iterator[str]:
    for inner, found in _with_inner(field):
        name = quote_path((*logical[:-1], *inner))
        if not found.nullable:
            yield f"the new column {name} is NOT NULL"
        asks = found.metadata.keys() - _OF_NEW_COLUMNS
        if asks:
            yield f"the new column {name} has metadata ({', '.join(sorted(asks))})"
        if found.data_type == VOID:
            yield f"the new column {name} is void"


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    missing = object()
    return {key for key in {*old, *new} if old.get(key, missing) != new.get(key, missing)}


def _plain(field: StructField) -> StructField:
    """Return a field without what is compared by itself."""
    return replace(field, nullable=True, metadata={})
