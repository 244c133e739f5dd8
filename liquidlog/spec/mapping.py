"""Column mapping: its mode, what it demands of a schema, and new ids and names of columns.

Source: PROTOCOL.md, "Column Mapping"; Delta Spark, DeltaColumnMapping.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import count
from typing import Final

from liquidlog.errors import UsageError
from liquidlog.spec.fields import fields_with_paths, with_fields
from liquidlog.spec.schema import (
    FIELD_ID,
    PHYSICAL_NAME,
    Path,
    StructField,
    StructType,
    quote_path,
)

MODE: Final = "delta.columnMapping.mode"
MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"

_NESTED_IDS: Final = "delta.columnMapping.nested.ids"
_KEYS: Final = frozenset({FIELD_ID, PHYSICAL_NAME, _NESTED_IDS})
_MAX_ID: Final = 2**31 - 1


class MappingMode(StrEnum):
    """How the columns of a data file are found."""

    NONE = "none"
    NAME = "name"
    ID = "id"


def mapping_mode(configuration: Mapping[str, str]) -> MappingMode:
    """Return the mode that a table's properties set."""
    text = configuration.get(MODE, "none")
    try:
        return MappingMode(text.lower())
    except ValueError:
        raise UsageError(f"{MODE} must be none, name or id, not {text!r}", value=text) from None


def mapping_problems(schema: StructType, configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return every reason why the columns of a table cannot be located with certainty."""
    try:
        mode = mapping_mode(configuration)
    except UsageError as error:
        return (error.message,)
    fields = list(fields_with_paths(schema))
    if mode is MappingMode.NONE:
        renamed = [path for path, field in fields if field.physical_name != field.name]
        return tuple(
            f"a physical name of {quote_path(path)} without column mapping" for path in renamed
        )
    problems = [
        f"{quote_path(path)} without {key}"
        for path, field in fields
        for key in (FIELD_ID, PHYSICAL_NAME)
        if key not in field.metadata
    ]
    return (*problems, *_id_problems(fields, configuration), *_name_problems(schema))


def with_new_mapping(
    schema: StructType, new_id: Callable[[], str], *, first: int = 1
) -> tuple[StructType, int]:
    """Return the schema with fresh ids and physical names, and the largest id.

    Ids count from `first`, a struct before its fields; names are `col-` and a new id, as the
    reference engine makes them for new columns. A mapping that the schema had is replaced.
    """
    return _mapped(schema, lambda _: f"col-{new_id()}", first=first)


def with_own_names(schema: StructType) -> tuple[StructType, int]:
    """Return the schema with fresh ids, each column's name as its physical one, and the largest id.

    This is how column mapping is enabled on a table whose files use its column names.
    """
    return _mapped(schema, lambda field: field.name)


def without_mapping(schema: StructType) -> StructType:
    """Return the schema without ids and physical names."""

    def stripped(field: StructField) -> StructField:
        metadata = {key: value for key, value in field.metadata.items() if key not in _KEYS}
        return replace(field, metadata=metadata)

    return with_fields(schema, stripped)


def _mapped(
    schema: StructType, physical_name: Callable[[StructField], str], *, first: int = 1
) -> tuple[StructType, int]:
    numbers = count(first)
    largest = first - 1

    def numbered(field: StructField) -> StructField:
        nonlocal largest
        largest = next(numbers)
        metadata = {FIELD_ID: largest, PHYSICAL_NAME: physical_name(field)}
        return replace(field, metadata={**field.metadata, **metadata})

    return with_fields(without_mapping(schema), numbered), largest


def _id_problems(
    fields: list[tuple[Path, StructField]], configuration: Mapping[str, str]
) -> Iterator[str]:
    ids = [(path, field.metadata[FIELD_ID]) for path, field in fields if FIELD_ID in field.metadata]
    counted = Counter(found for _, found in ids)
    text = configuration.get(MAX_COLUMN_ID, "")
    largest = int(text) if text.isdecimal() else None
    if largest is None:
        yield f"{MAX_COLUMN_ID} {text!r}"
    for path, found in ids:
        if type(found) is not int or not 0 <= found <= min(largest or _MAX_ID, _MAX_ID):
            yield f"{quote_path(path)} with the column id {found!r}"
        elif counted[found] > 1:
            yield f"{quote_path(path)} with the column id {found}, which another column has"


def _name_problems(schema: StructType) -> Iterator[str]:
    paths = Counter(path for path, _ in fields_with_paths(schema, physical=True))
    yield from (
        f"{number} columns with the physical name {quote_path(path)}"
        for path, number in paths.items()
        if number > 1
    )
