"""How data becomes rows of a table: the source of each column, and the checks of every row.

Columns match by name, exactly or else without case. A column that is absent from the data gets its
generation expression, its default, or null. Its types must be equal or narrower; new columns are
added to the table only on request.

Source: Delta Spark, SchemaUtils, ColumnWithDefaultExprUtils, Constraints, Invariants; PROTOCOL.md,
"Column Invariants", "CHECK Constraints", "Generated Columns", "Default Columns", "Identity
Columns". As there, null violates a condition.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from liquidlog.definition.create import CONSTRAINT_PREFIX, numbered_columns
from liquidlog.definition.schema_changes import addition_problems
from liquidlog.plan import ColumnSource, RowCheck
from liquidlog.spec.actions import UNREADABLE, Protocol
from liquidlog.spec.arrow import unsupported_types, without_void
from liquidlog.spec.evolution import is_widening
from liquidlog.spec.schema import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    Path,
    StructField,
    StructType,
    plain_nullable,
    quote_path,
)

_GENERATED: Final = "delta.generationExpression"
_IDENTITY: Final = "delta.identity.start"
_INVARIANTS: Final = "delta.invariants"
_DEFAULT: Final = "CURRENT_DEFAULT"


class _Rule(msgspec.Struct):
    expression: str


class _Invariants(msgspec.Struct):
    expression: _Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How data becomes rows of a table; schema and properties include added columns."""

    schema: StructType
    configuration: Mapping[str, str]
    sources: tuple[ColumnSource, ...]
    checks: tuple[RowCheck, ...]
    problems: tuple[str, ...]


def align(
    schema: StructType,
    configuration: Mapping[str, str],
    protocol: Protocol,
    data: StructType,
    *,
    merge: bool,
    new_id: Callable[[], str],
) -> Alignment:
    """Return how data becomes rows; with `merge`, unknown columns are added to the table."""
    problems = list(_repeated(data))
    matched = {field.name: _match(data, field.name) for field in schema.fields}
    known = {name.lower() for name in matched}
    surplus = [field for field in data.fields if field.name.lower() not in known]
    if surplus and not merge:
        problems.extend(
            f"column {quote_path((field.name,))} is not in the table (merge_schema=True adds it)"
            for field in surplus
        )
    elif surplus:
        problems.extend(
            f"column {quote_path((field.name,))} has no type, and cannot be added to the table"
            for field in surplus
            if field.data_type == VOID
        )
        added = plain_nullable(StructType(tuple(surplus)))
        problems.extend(problem.text for problem in addition_problems(schema, protocol, added))
        added, configuration = numbered_columns(added, configuration, new_id)
        schema = StructType((*schema.fields, *added.fields))
        matched |= {field.name: field for field in surplus}
    problems.extend(f"type of column {text}" for text in unsupported_types(data))
    sources = []
    for field in without_void(schema).fields:
        found = matched.get(field.name)
        problems.extend(_column_problems(field, found))
        sources.append(_source(field, found))
    checks = tuple(_checks(schema, configuration, matched, problems))
    return Alignment(
        schema=schema,
        configuration=configuration,
        sources=tuple(sources),
        checks=checks,
        problems=tuple(dict.fromkeys(problems)),
    )


def _repeated(data: StructType) -> Iterator[str]:
    seen: set[str] = set()
    for field in data.fields:
        if field.name.lower() in seen:
            yield f"column {quote_path((field.name,))} is there twice"
        seen.add(field.name.lower())


def _match(data: StructType, name: str) -> StructField | None:
    alike = [field for field in data.fields if field.name.lower() == name.lower()]
    return next((field for field in alike if field.name == name), alike[0] if alike else None)


def _source(field: StructField, found: StructField | None) -> ColumnSource:
    if found is not None and found.data_type != VOID:
        return ColumnSource(name=field.name, column=found.name)
    expression = field.metadata.get(_GENERATED)
    if found is None and expression is None:
        expression = field.metadata.get(_DEFAULT)
    return ColumnSource(name=field.name, expression=expression)


def _column_problems(field: StructField, found: StructField | None) -> Iterator[str]:
    name = quote_path((field.name,))
    if _IDENTITY in field.metadata:
        yield f"column {name} is an identity column, whose values only Delta Spark gives out"
        return
    if found is None or found.data_type == VOID:
        given = _GENERATED in field.metadata or (found is None and _DEFAULT in field.metadata)
        if not field.nullable and not given:
            yield f"column {name} is missing, and must not be null"
    elif not is_widening(found.data_type, field.data_type):
        yield from _type_problems(found.data_type, field.data_type, (field.name,))


def _type_problems(found: DataType, wanted: DataType, path: Path) -> Iterator[str]:
    match found, wanted:
        case StructType(), StructType():
            yield from _struct_problems(found, wanted, path)
        case ArrayType(element), ArrayType(wider):
            yield from _type_problems(element, wider, (*path, "element"))
        case MapType(key, value), MapType(wider_key, wider_value):
            yield from _type_problems(key, wider_key, (*path, "key"))
            yield from _type_problems(value, wider_value, (*path, "value"))
        case _ if found != wanted:
            yield f"column {quote_path(path)} is {found}, the table's is {wanted}"
        case _:
            return


def _struct_problems(found: StructType, wanted: StructType, path: Path) -> Iterator[str]:
    yield from _repeated(found)
    matched = {field.name: _match(found, field.name) for field in wanted.fields}
    for field in wanted.fields:
        there, below = matched[field.name], (*path, field.name)
        if there is not None and field.data_type != VOID:
            yield from _type_problems(there.data_type, field.data_type, below)
        elif there is None and not field.nullable:
            yield f"column {quote_path(below)} is missing, and must not be null"
    known = {field.name for field in matched.values() if field is not None}
    for field in found.fields:
        if field.name not in known:
            yield f"column {quote_path((*path, field.name))} is not in the table"


def _checks(
    schema: StructType,
    configuration: Mapping[str, str],
    matched: Mapping[str, StructField | None],
    problems: list[str],
) -> Iterator[RowCheck]:
    for key, text in configuration.items():
        if key.startswith(CONSTRAINT_PREFIX):
            name = key.removeprefix(CONSTRAINT_PREFIX)
            yield RowCheck(what=f"the CHECK constraint {name} ({text})", expression=text)
    for path, field in _nested(schema, ()):
        if len(path) > 1 and {_GENERATED, _IDENTITY}.intersection(field.metadata):
            problems.append(f"column {quote_path(path)} is computed inside a struct")
        if _INVARIANTS in field.metadata:
            yield from _invariant(path, field, problems)
    for field in schema.fields:
        found = matched.get(field.name)
        if _GENERATED in field.metadata and found is not None and found.data_type != VOID:
            name, text = quote_path((field.name,)), field.metadata[_GENERATED]
            what = f"the generating expression {text} of {name}"
            yield RowCheck(what=what, expression=f"{name} <=> ({text})")


def _invariant(path: Path, field: StructField, problems: list[str]) -> Iterator[RowCheck]:
    name = quote_path(path)
    try:
        rule = msgspec.json.decode(field.metadata[_INVARIANTS], type=_Invariants)
    except UNREADABLE:
        problems.append(f"column {name} has an invariant that cannot be read")
        return
    text = rule.expression.expression
    yield RowCheck(what=f"the invariant {text} of {name}", expression=text)


def _nested(struct: StructType, parent: Path) -> Iterator[tuple[Path, StructField]]:
    for field in struct.fields:
        yield (*parent, field.name), field
        if isinstance(field.data_type, StructType):
            yield from _nested(field.data_type, (*parent, field.name))
