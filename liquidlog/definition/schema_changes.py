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
from liquidlog.errors import SchemaChangeError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import CopiedAdd, Metadata
from liquidlog.spec.change import Change
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
_RESERVED: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
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
    """Return the rename of a column; `new_name` replaces the last part of its path.

    Raises:
        SchemaChangeError: If the table does not allow the rename; lists every problem.
    """
    found = _existing(snapshot, old)
    parent = _parent(snapshot.schema, found)
    problems = [
        f"there is a column {quote_path((*found[:-1], field.name))} already"
        for field in parent.fields
        if field.name.lower() == new_name.lower() and field.name != found[-1]
    ]
    if new_name.lower() in _RESERVED and len(found) == 1:
        problems.append(f"{new_name} is a name that the change data feed uses")
    problems.extend(_dependents(snapshot, found))
    if problems:
        raise SchemaChangeError(tuple(problems))
    return Rename(found, (*found[:-1], new_name))


def rename_change(snapshot: Snapshot, rename: Rename, retagged: Sequence[CopiedAdd]) -> Change:
    """Return the change that renames a column; `retagged` holds the adds of files with new tags.

    Raises:
        SchemaChangeError: If the table cannot have the new schema.
    """
    schema = with_field(
        snapshot.schema, rename.old, lambda field: replace(field, name=rename.new[-1])
    )
    partitions = snapshot.metadata.partition_columns
    metadata = _metadata(snapshot, schema, _renamed_stats_columns(snapshot, rename))
    metadata = structs.replace(
        metadata, partition_columns=tuple(rename.applied((name,))[0] for name in partitions)
    )
    return Change(
        operation="RENAME COLUMN",
        parameters={
            "oldColumnPath": _attribute_name(rename.old),
            "newColumnPath": _attribute_name(rename.new),
        },
        actions=(metadata, *retagged),
        is_blind_append=not retagged,
    )


def drop_change(snapshot: Snapshot, column: Path) -> Change:
    """Return the change that drops a column with its fields; its data stays in the files.

    Raises:
        SchemaChangeError: If the table needs the column; lists every problem.
    """
    found = _existing(snapshot, column)
    name = quote_path(found)
    problems = []
    if len(_parent(snapshot.schema, found).fields) == 1:
        holder = quote_path(found[:-1]) if len(found) > 1 else "the table"
        problems.append(f"{name} is the only column of {holder}")
    problems.extend(_clustering_problems(snapshot, found))
    if len(found) == 1 and found[0] in snapshot.metadata.partition_columns:
        problems.append(f"the table is partitioned by {name}")
    for path, field in fields_with_paths(snapshot.schema):
        blooms = any(key.startswith(_BLOOM_PREFIX) for key in field.metadata)
        if blooms and path[: len(found)] == found:
            problems.append(f"{quote_path(path)} has a bloom filter")
    problems.extend(_dependents(snapshot, found))
    if problems:
        raise SchemaChangeError(tuple(problems))
    schema = with_field(snapshot.schema, found, lambda _: None)
    return Change(
        operation="DROP COLUMNS",
        parameters={"columns": msgspec.json.encode([_attribute_name(found)]).decode()},
        actions=(_metadata(snapshot, schema, _kept_stats_columns(snapshot, found)),),
        is_blind_append=True,
    )


def _renamed_stats_columns(snapshot: Snapshot, rename: Rename) -> Mapping[str, str]:
    """Return the properties; the list of columns with statistics gets the new name."""

    def renamed(path: Path) -> Path:
        depth = len(rename.old)
        same = _lower(path[:depth]) == _lower(rename.old)
        return rename.applied((*rename.old, *path[depth:])) if same else path

    return _with_stats_columns(snapshot, lambda paths: map(renamed, paths))


def _kept_stats_columns(snapshot: Snapshot, dropped: Path) -> Mapping[str, str]:
    def is_kept(path: Path) -> bool:
        return _lower(path[: len(dropped)]) != _lower(dropped)

    return _with_stats_columns(snapshot, lambda paths: filter(is_kept, paths))


def _with_stats_columns(
    snapshot: Snapshot, changed: Callable[[tuple[Path, ...]], Iterable[Path]]
) -> Mapping[str, str]:
    configuration = dict(snapshot.metadata.configuration)
    named = configuration.get(STATS_COLUMNS)
    if named is None:
        return configuration
    before = split_paths(named)
    after = tuple(changed(before))
    if after != before:
        configuration[STATS_COLUMNS] = ",".join(map(quote_path, after))
    return configuration


def _metadata(snapshot: Snapshot, schema: StructType, configuration: Mapping[str, str]) -> Metadata:
    problems = schema_problems(snapshot.protocol, configuration, schema)
    if problems:
        raise SchemaChangeError(tuple(f"the table would have {problem}" for problem in problems))
    return structs.replace(
        snapshot.metadata, schema_string=schema_json(schema), configuration=configuration
    )


def _existing(snapshot: Snapshot, column: Path) -> Path:
    """Return the path of an existing column in the schema's spelling.

    Raises:
        SchemaChangeError: If there is no such column, or the table has no column mapping.
    """
    if mapping_mode(snapshot.metadata.configuration) is MappingMode.NONE:
        raise SchemaChangeError(
            (
                (
                    "columns can be renamed or dropped with column mapping only; turn it on with"
                    f" set-properties {MODE}=name"
                ),
            )
        )
    if find_column(snapshot.schema, column) is None:
        raise SchemaChangeError(tuple(unknown_columns([quote_path(column)], snapshot.schema)))
    return resolve_path(snapshot.schema, column)[0]


def _parent(schema: StructType, path: Path) -> StructType:
    parent = find_column(schema, path[:-1])
    data_type = schema if parent is None else parent.data_type
    assert isinstance(data_type, StructType)  # noqa: S101  the column exists
    return data_type


def _clustering_problems(snapshot: Snapshot, dropped: Path) -> Iterator[str]:
    for column in clustering_state(snapshot).columns:
        if column.logical[: len(dropped)] == dropped:
            yield (
                f"the table is clustered by {column.name}; set other clustering columns first,"
                " or clear them with cluster-by --none"
            )


def _dependents(snapshot: Snapshot, path: Path) -> Iterator[str]:
    """Yield the problem per expression that depends on a column or on a struct that contains it.

    Expressions are not parsed: one depends on the column if it contains the name of its outermost
    column anywhere.
    """
    name = path[0].lower()
    for key, expression in snapshot.metadata.configuration.items():
        if key.startswith(_CONSTRAINT_PREFIX) and name in _names(expression):
            yield f"the CHECK constraint {key.removeprefix(_CONSTRAINT_PREFIX)} uses it"
    for owner, field in fields_with_paths(snapshot.schema):
        for key, words in _OWNERS.items():
            if name in _names(str(field.metadata.get(key, ""))):
                yield f"{words} {quote_path(owner)} uses it"
        if owner == path[: len(owner)] and len(owner) < len(path):
            yield from _char_problem(owner, field)


def _char_problem(owner: Path, field: StructField) -> Iterator[str]:
    if _CHAR_VARCHAR in field.metadata:
        yield f"{quote_path(owner)} repeats the names of its fields in a char or varchar type"


def _names(expression: str) -> frozenset[str]:
    """Return every word of a SQL expression that may be an identifier, in lower case."""
    quoted = (name.replace("``", "`") for name in _BACKTICKED.findall(expression))
    return frozenset(name.lower() for name in (*quoted, *_WORD.findall(expression)))


def _attribute_name(path: Path) -> str:
    """Return a column as the reference's commitInfo spells it: parts with a dot are quoted."""
    return ".".join(f"`{part}`" if "." in part else part for part in path)


def _lower(path: Iterable[str]) -> Path:
    return tuple(part.lower() for part in path)
