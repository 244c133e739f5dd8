"""Renaming and dropping columns of tables with column mapping. No data is ever rewritten.

Source: PROTOCOL.md, "Column Mapping"; Delta Spark, AlterTableChangeColumnDeltaCommand and
AlterTableDropColumnsDeltaCommand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from msgspec import structs

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.settings import (
    COLUMN_PROPERTIES,
    WEIGHTS_PROPERTY,
    columns_of,
    weights_in,
    weights_text,
)
from liquidlog.errors import SchemaChangeError, SchemaProblem, SchemaProblemKind
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import CopiedAdd, Metadata, Protocol
from liquidlog.spec.change import Change
from liquidlog.spec.commands import set_properties, unset_properties
from liquidlog.spec.fields import fields_with_paths, with_field
from liquidlog.spec.mapping import MODE, MappingMode, mapping_mode
from liquidlog.spec.near import unknown_columns
from liquidlog.spec.obligations import schema_problems
from liquidlog.spec.schema import (
    Path,
    StructField,
    StructType,
    find_column,
    quote_path,
    resolve_path,
    schema_json,
    split_paths,
)
from liquidlog.spec.stats import STATS_COLUMNS

_CONSTRAINT_PREFIX: Final = "delta.constraints."
_BLOOM_PREFIX: Final = "delta.bloomFilter."
_CHAR_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
RESERVED_NAMES: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Names of columns that the change data feed adds."""

_BACKTICKED: Final = re.compile(r"`((?:[^`]|``)*)`")
_WORD: Final = re.compile(r"[^\W\d]\w*")
_OWNERS: Final = {
    "delta.generationExpression": "the generated column",
    "delta.invariants": "the invariant of",
}


@dataclass(frozen=True, slots=True)
class Rename:
    """A column's logical path before and after, in the schema's spelling."""

    old: Path
    new: Path

    def applied(self, path: Path) -> Path:
        """Return the path after the rename of the renamed column, or of a field inside it."""
        depth = len(self.old)
        return (*self.new, *path[depth:]) if path[:depth] == self.old else path


def plan_rename(snapshot: Snapshot, old: Path, new_name: str) -> Rename:
    """Return the rename of a column; `new_name` replaces the last part of its path."""
    found = _existing(snapshot, old)
    problems = list(_name_problems(snapshot.schema, found, new_name))
    problems.extend(_dependents(snapshot, found))
    if problems:
        raise SchemaChangeError(problems)
    return Rename(found, (*found[:-1], new_name))


def rename_change(snapshot: Snapshot, rename: Rename, retagged: Sequence[CopiedAdd]) -> Change:
    """Return the change that renames a column; `retagged` holds the adds of files with new tags."""
    schema = with_field(
        snapshot.schema, rename.old, lambda field: replace(field, name=rename.new[-1])
    )
    partitions = snapshot.metadata.partition_columns
    metadata = metadata_with(snapshot, schema, _renamed_lists(snapshot, rename))
    metadata = structs.replace(
        metadata, partition_columns=tuple(rename.applied((name,))[0] for name in partitions)
    )
    return Change(
        operation="RENAME COLUMN",
        parameters={
            "oldColumnPath": attribute_name(rename.old),
            "newColumnPath": attribute_name(rename.new),
        },
        actions=(metadata, *retagged),
        is_blind_append=not retagged,
    )


def drop_change(snapshot: Snapshot, *columns: Path) -> Change:
    """Return the change that drops columns with their fields; their data stays in the files."""
    left, dropped = snapshot, list[Path]()
    problems: list[SchemaProblem] = []
    for column in columns:
        found = _existing(left, column)
        reasons = [*_loss_problems(left, found), *_dependents(left, found)]
        problems.extend(reasons)
        if not reasons:
            schema = with_field(left.schema, found, lambda _: None)
            metadata = metadata_with(left, schema, _kept_stats_columns(left, found))
            left = replace(left, schema=schema, metadata=metadata)
            dropped.append(found)
    if problems:
        raise SchemaChangeError(problems)
    return Change(
        operation="DROP COLUMNS",
        parameters={"columns": msgspec.json.encode(list(map(attribute_name, dropped))).decode()},
        actions=(left.metadata,),
        is_blind_append=True,
    )


def _renamed_lists(snapshot: Snapshot, rename: Rename) -> Mapping[str, str]:
    """Return the properties; those that list columns get the new name."""

    def renamed(path: Path) -> Path:
        depth = len(rename.old)
        same = _lower(path[:depth]) == _lower(rename.old)
        return rename.applied((*rename.old, *path[depth:])) if same else path

    configuration = dict(snapshot.metadata.configuration)
    _change_list(configuration, STATS_COLUMNS, split_paths, lambda paths: map(renamed, paths))
    for name in COLUMN_PROPERTIES:
        _change_list(configuration, name, columns_of, lambda paths: map(renamed, paths))
    before = weights_in(configuration)
    after = tuple((renamed(path), weight) for path, weight in before)
    if after != before:
        configuration[WEIGHTS_PROPERTY] = weights_text(after)
    return configuration


def _kept_stats_columns(snapshot: Snapshot, dropped: Path) -> Mapping[str, str]:
    def is_kept(path: Path) -> bool:
        return _lower(path[: len(dropped)]) != _lower(dropped)

    configuration = dict(snapshot.metadata.configuration)
    _change_list(configuration, STATS_COLUMNS, split_paths, lambda paths: filter(is_kept, paths))
    return configuration


def _change_list(
    configuration: dict[str, str],
    name: str,
    read: Callable[[str], tuple[Path, ...]],
    changed: Callable[[tuple[Path, ...]], Iterable[Path]],
) -> None:
    """Change the columns that a property lists; a list that stays the same keeps its spelling."""
    if name not in configuration:
        return
    before = read(configuration[name])
    after = tuple(changed(before))
    if after != before:
        configuration[name] = ",".join(map(quote_path, after))


def metadata_with(
    snapshot: Snapshot, schema: StructType, configuration: Mapping[str, str]
) -> Metadata:
    """Return a table's metadata with another schema and other properties."""
    problems = tuple(unwritable(snapshot.protocol, configuration, schema))
    if problems:
        raise SchemaChangeError(problems)
    return structs.replace(
        snapshot.metadata, schema_string=schema_json(schema), configuration=configuration
    )


def unwritable(
    protocol: Protocol, configuration: Mapping[str, str], schema: StructType
) -> Iterator[SchemaProblem]:
    """Yield the reasons why no file could be written into a table with this metadata."""
    for problem in schema_problems(protocol, configuration, schema):
        text = f"the table would have {problem}"
        yield SchemaProblem(SchemaProblemKind.SCHEMA_IS_NOT_WRITABLE, text)


def _existing(snapshot: Snapshot, column: Path) -> Path:
    """Return the path of an existing column in the schema's spelling."""
    if mapping_mode(snapshot.metadata.configuration) is MappingMode.NONE:
        text = (
            "columns can be renamed or dropped with column mapping only; turn it on with"
            f" ALTER TABLE … {set_properties({MODE: 'name'})}"
        )
        kind = SchemaProblemKind.COLUMN_MAPPING_IS_OFF
        raise SchemaChangeError([SchemaProblem(kind, text, property=MODE)])
    if find_column(snapshot.schema, column) is None:
        name = quote_path(column)
        (text,) = unknown_columns([name], snapshot.schema)
        kind = SchemaProblemKind.COLUMN_UNKNOWN
        raise SchemaChangeError([SchemaProblem(kind, text, column=name)])
    return resolve_path(snapshot.schema, column)[0]


def _parent(schema: StructType, path: Path) -> StructType:
    parent = find_column(schema, path[:-1])
    data_type = schema if parent is None else parent.data_type
    assert isinstance(data_type, StructType)  # noqa: S101  the column exists
    return data_type


def _name_problems(schema: StructType, column: Path, new_name: str) -> Iterator[SchemaProblem]:
    """Yield the reasons why a column cannot have the new name in its place."""
    for field in _parent(schema, column).fields:
        if field.name.lower() == new_name.lower() and field.name != column[-1]:
            taken = quote_path((*column[:-1], field.name))
            text = f"there is a column {taken} already"
            yield SchemaProblem(SchemaProblemKind.COLUMN_EXISTS, text, column=taken)
    if new_name.lower() in RESERVED_NAMES and len(column) == 1:
        text = f"{new_name} is a name that the change data feed uses"
        yield SchemaProblem(SchemaProblemKind.COLUMN_NAME_RESERVED, text, column=new_name)


def _loss_problems(snapshot: Snapshot, dropped: Path) -> Iterator[SchemaProblem]:
    """Yield the reasons why the table cannot be without a column."""
    name = quote_path(dropped)
    if len(_parent(snapshot.schema, dropped).fields) == 1:
        holder = quote_path(dropped[:-1]) if len(dropped) > 1 else "the table"
        text = f"{name} is the only column of {holder}"
        yield SchemaProblem(SchemaProblemKind.COLUMN_IS_THE_LAST, text, column=name)
    for column in clustering_state(snapshot).columns:
        if column.logical[: len(dropped)] == dropped:
            text = (
                f"the table is clustered by {column.name}; set other clustering columns first,"
                " or clear them with cluster-by --none"
            )
            kind = SchemaProblemKind.COLUMN_IS_CLUSTERED_BY
            yield SchemaProblem(kind, text, column=column.name)
    for key in (*COLUMN_PROPERTIES, WEIGHTS_PROPERTY):
        yield from _remembered_problems(snapshot, key, dropped)
    if len(dropped) == 1 and dropped[0] in snapshot.metadata.partition_columns:
        text = f"the table is partitioned by {name}"
        yield SchemaProblem(SchemaProblemKind.COLUMN_IS_PARTITIONED_BY, text, column=name)
    for path, field in fields_with_paths(snapshot.schema):
        blooms = any(key.startswith(_BLOOM_PREFIX) for key in field.metadata)
        if blooms and path[: len(dropped)] == dropped:
            inside = quote_path(path)
            text = f"{inside} has a bloom filter"
            yield SchemaProblem(SchemaProblemKind.COLUMN_HAS_BLOOM_FILTER, text, column=inside)


def _remembered_problems(snapshot: Snapshot, key: str, dropped: Path) -> Iterator[SchemaProblem]:
    """Yield a problem per column inside the dropped one that a property about the layout lists."""
    configuration = snapshot.metadata.configuration
    if key == WEIGHTS_PROPERTY:
        listed = tuple(path for path, _ in weights_in(configuration))
    else:
        listed = columns_of(configuration.get(key, ""))
    for path in listed:
        if _lower(path[: len(dropped)]) == _lower(dropped):
            name = quote_path(path)
            text = (
                f"the table's property {key} lists {name}; set it to other columns first, or remove"
                f" it with ALTER TABLE … {unset_properties([key])}"
            )
            kind = SchemaProblemKind.COLUMN_IS_USED
            yield SchemaProblem(kind, text, column=name, property=key)


def _dependents(snapshot: Snapshot, path: Path) -> Iterator[SchemaProblem]:
    """Yield the problem per expression that depends on a column or on a struct that contains it.

    Expressions are not parsed: one depends on the column if it contains the name of its outermost
    column anywhere.
    """
    name, kind = path[0].lower(), SchemaProblemKind.COLUMN_IS_USED
    for key, expression in snapshot.metadata.configuration.items():
        if key.startswith(_CONSTRAINT_PREFIX) and name in _names(expression):
            text = f"the CHECK constraint {key.removeprefix(_CONSTRAINT_PREFIX)} uses it"
            yield SchemaProblem(kind, text, property=key)
    for owner, field in fields_with_paths(snapshot.schema):
        for key, words in _OWNERS.items():
            if name in _names(str(field.metadata.get(key, ""))):
                said = quote_path(owner)
                yield SchemaProblem(kind, f"{words} {said} uses it", column=said, property=key)
        if owner == path[: len(owner)] and len(owner) < len(path):
            yield from _char_problem(owner, field)


def _char_problem(owner: Path, field: StructField) -> Iterator[SchemaProblem]:
    if _CHAR_VARCHAR in field.metadata:
        name = quote_path(owner)
        text = f"{name} repeats the names of its fields in a char or varchar type"
        yield SchemaProblem(SchemaProblemKind.COLUMN_HAS_CHAR_TYPE, text, column=name)


def _names(expression: str) -> frozenset[str]:
    """Return every word of a SQL expression that may be an identifier, in lower case."""
    quoted = (name.replace("``", "`") for name in _BACKTICKED.findall(expression))
    return frozenset(name.lower() for name in (*quoted, *_WORD.findall(expression)))


def attribute_name(path: Path) -> str:
    """Return a column as the reference's commitInfo spells it: parts with a dot are quoted."""
    return ".".join(f"`{part}`" if "." in part else part for part in path)


def _lower(path: Iterable[str]) -> Path:
    return tuple(part.lower() for part in path)
