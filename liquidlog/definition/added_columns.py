"""ALTER TABLE … ADD COLUMNS as a change: files that lack a column are not rewritten.

Source: Delta Spark, AlterTableAddColumnsDeltaCommand; PROTOCOL.md, "Column Mapping".
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from liquidlog.definition.new_table import needed_features
from liquidlog.definition.schema_changes import RESERVED_NAMES, attribute_name, metadata_with
from liquidlog.errors import SchemaChangeError, SchemaProblem, SchemaProblemKind
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Protocol
from liquidlog.spec.change import Change
from liquidlog.spec.features import table_features
from liquidlog.spec.fields import with_field
from liquidlog.spec.mapping import (
    MAX_COLUMN_ID,
    MappingMode,
    mapping_mode,
    with_new_mapping,
    without_mapping,
)
from liquidlog.spec.near import unknown_columns
from liquidlog.spec.schema import (
    Path,
    StructField,
    StructType,
    field_document,
    find_column,
    quote_path,
    resolve_path,
)


def add_change(
    snapshot: Snapshot, columns: StructType, into: Path, new_id: Callable[[], str]
) -> Change:
    """Return the change that adds columns behind the others, of the table or of a struct `into`.

    With column mapping, they get ids and physical names of their own.
    """
    holder, place = _holder(snapshot, into)
    problems = tuple(addition_problems(holder, snapshot.protocol, columns, place))
    if problems:
        raise SchemaChangeError(problems)
    added, configuration = numbered_columns(columns, snapshot.metadata.configuration, new_id)
    schema = _with_more(snapshot.schema, place, added)
    return Change(
        operation="ADD COLUMNS",
        parameters={"columns": msgspec.json.encode(_documents(columns, place)).decode()},
        actions=(metadata_with(snapshot, schema, configuration),),
        is_blind_append=True,
    )


def _holder(snapshot: Snapshot, into: Path) -> tuple[StructType, Path]:
    """Return the struct that gets columns, and its path in the schema's spelling."""
    if not into:
        return snapshot.schema, ()
    found = find_column(snapshot.schema, into)
    name = quote_path(into)
    if found is None:
        (text,) = unknown_columns([name], snapshot.schema)
        raise SchemaChangeError(
            [SchemaProblem(SchemaProblemKind.COLUMN_UNKNOWN, text, column=name)]
        )
    if not isinstance(found.data_type, StructType):
        text = f"{name} is no struct, so that it cannot get a field"
        raise SchemaChangeError(
            [SchemaProblem(SchemaProblemKind.COLUMN_UNKNOWN, text, column=name)]
        )
    return found.data_type, resolve_path(snapshot.schema, into)[0]


def addition_problems(
    holder: StructType, protocol: Protocol, columns: StructType, place: Path = ()
) -> Iterator[SchemaProblem]:
    """Yield why a table with this protocol cannot have more columns in `holder`, at `place`."""
    taken = {field.name.lower(): field.name for field in holder.fields}
    features = table_features(protocol)
    for field in columns.fields:
        name = quote_path((*place, field.name))
        if field.name.lower() in taken:
            there = quote_path((*place, taken[field.name.lower()]))
            text = f"there is a column {there} already"
            yield SchemaProblem(SchemaProblemKind.COLUMN_EXISTS, text, column=there)
        taken[field.name.lower()] = field.name
        if not place and field.name.lower() in RESERVED_NAMES:
            text = f"{field.name} is a name that the change data feed uses"
            yield SchemaProblem(SchemaProblemKind.COLUMN_NAME_RESERVED, text, column=name)
        if not field.nullable:
            text = f"{name} would be null in every row that there is; leave NOT NULL out"
            yield SchemaProblem(SchemaProblemKind.SCHEMA_IS_NOT_WRITABLE, text, column=name)
        for feature in needed_features(StructType((field,)), {}):
            if feature not in features:
                text = f"{name} needs the table feature {feature}, which the table does not have"
                kind = SchemaProblemKind.FEATURE_MISSING
                yield SchemaProblem(kind, text, column=name, feature=feature)


def numbered_columns(
    columns: StructType, configuration: Mapping[str, str], new_id: Callable[[], str]
) -> tuple[StructType, Mapping[str, str]]:
    """Return new columns as a table with these properties has them, and its properties then.

    With column mapping, the columns get ids above the largest and physical names of their own.
    """
    if mapping_mode(configuration) is MappingMode.NONE:
        return without_mapping(columns), configuration
    first = int(configuration.get(MAX_COLUMN_ID, "0")) + 1
    mapped, largest = with_new_mapping(columns, new_id, first=first)
    return mapped, {**configuration, MAX_COLUMN_ID: str(largest)}


def _with_more(schema: StructType, place: Path, added: StructType) -> StructType:
    if not place:
        return StructType((*schema.fields, *added.fields))

    def grown(field: StructField) -> StructField:
        assert isinstance(field.data_type, StructType)  # noqa: S101  it is the holder
        return replace(field, data_type=StructType((*field.data_type.fields, *added.fields)))

    return with_field(schema, place, grown)


def _documents(columns: StructType, place: Path) -> list[dict[str, Any]]:
    return [
        {"column": {**field_document(field), "name": attribute_name((*place, field.name))}}
        for field in columns.fields
    ]
