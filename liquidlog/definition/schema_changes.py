"""Changes of columns and properties, a table's earlier schemas, and how data becomes its rows.

Source: PROTOCOL.md, "Column Mapping"; Delta Spark, AlterTableAddColumnsDeltaCommand,
AlterTableChangeColumnDeltaCommand, AlterTableDropColumnsDeltaCommand and
AlterTableSetPropertiesDeltaCommand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import filterfalse
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    ClusteringColumn,
    clustering_state,
    parse_zorder_by,
    read_domain,
)
from liquidlog.clustering.settings import (
    COLUMN_PROPERTIES,
    WEIGHTS_PROPERTY,
    columns_of,
    weights_in,
    weights_text,
)
from liquidlog.definition.create import (
    ADDABLE,
    CONSTRAINT_PREFIX,
    asked_features,
    asks_for_protocol,
    canonical_key,
    layout_problems,
    needed_features,
    numbered_columns,
    refusal,
    value_problems,
)
from liquidlog.errors import CorruptLogError, SchemaChangeError, SchemaProblem, UsageError
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.plan import ColumnSource, RowCheck
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import (
    UNREADABLE,
    ZCUBE_ZORDER_BY,
    Change,
    Commit,
    CopiedAdd,
    DomainMetadata,
    Metadata,
    Protocol,
)
from liquidlog.spec.arrow import CHAR_VARCHAR, intervals, unsupported_types, without_void
from liquidlog.spec.bounds import STATS_COLUMNS, has_bounds, indexed_leaves
from liquidlog.spec.features import (
    PREVIEW,
    column_mapping_upgrade,
    is_widening,
    schema_problems,
    switched_feature,
    table_features,
    with_features,
)
from liquidlog.spec.schema import (
    MAX_COLUMN_ID,
    MODE,
    VOID,
    ArrayType,
    DataType,
    MappingMode,
    MapType,
    Path,
    StructField,
    StructType,
    field_document,
    fields_with_paths,
    find_column,
    mapping_mode,
    parse_schema,
    plain_nullable,
    quote_path,
    quote_paths,
    resolve_path,
    schema_json,
    split_path,
    split_paths,
    with_field,
    with_mapping,
)
from liquidlog.spec.text import json_text, set_properties, unknown_columns, unset_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class LostColumns:
    """A table's earlier clustering columns, under their current names."""

    columns: tuple[ClusteringColumn, ...]
    version: int
    operation: str


@dataclass(frozen=True, slots=True)
class _State:
    """The domain after a commit; `paths` is None for an unreadable text."""

    version: int
    operation: str
    paths: tuple[Path, ...] | None
    schema: StructType | None


def past_schemas(past: Sequence[Commit], current: StructType) -> tuple[StructType, ...]:
    """Return the distinct schemas that the table had, the current one last."""
    texts = dict.fromkeys(
        action.schema_string
        for commit in past
        for action in commit.actions
        if isinstance(action, Metadata) and action.schema_string
    )
    schemas = [parse_schema(text, where="a past version of the log") for text in texts]
    return (*(schema for schema in schemas if schema != current), current)


def lost_columns(snapshot: Snapshot, past: Sequence[Commit]) -> LostColumns | None:
    """Return the clustering columns that a commit other than CLUSTER BY removed, if all exist."""
    before: _State | None = None
    taken: _State | None = None
    for state in _states(past):
        if state.paths:
            before, taken = state, None
        elif before is not None and taken is None:
            taken = state
    if before is None or taken is None or taken.operation == "CLUSTER BY":
        return None
    columns = _today(snapshot.schema, before)
    if columns is None:
        return None
    return LostColumns(columns=columns, version=taken.version, operation=taken.operation)


def last_whole_columns(
    snapshot: Snapshot, past: Sequence[Commit]
) -> tuple[ClusteringColumn, ...] | None:
    """Return the latest clustering columns that can be read and exist in the schema, or None."""
    for state in reversed(list(_states(past))):
        columns = _today(snapshot.schema, state) if state.paths else None
        if columns:
            return columns
    return None


def _states(past: Sequence[Commit]) -> Iterator[_State]:
    schema: StructType | None = None
    for commit in past:
        domain: DomainMetadata | None = None
        for action in commit.actions:
            if isinstance(action, Metadata) and action.schema_string:
                schema = parse_schema(action.schema_string, where="a past version of the log")
            elif isinstance(action, DomainMetadata) and action.domain == CLUSTERING_DOMAIN:
                domain = action
        if domain is not None:
            operation, paths = commit.info.operation or "unknown", None
            with suppress(CorruptLogError):
                paths = () if domain.removed else read_domain(domain.configuration)
            yield _State(commit.version, operation, paths, schema)


def _today(schema: StructType, state: _State) -> tuple[ClusteringColumn, ...] | None:
    columns = []
    for physical in state.paths or ():
        path, is_physical = physical, find_column(schema, physical, physical=True) is not None
        if not is_physical:
            # An overwritten schema can give the same columns new physical names.
            earlier = state.schema
            if earlier is None or find_column(earlier, physical, physical=True) is None:
                return None
            path = resolve_path(earlier, physical, physical=True)[0]
        field = find_column(schema, path, physical=is_physical)
        if field is None or not has_bounds(field.data_type):
            return None
        columns.append(
            ClusteringColumn(*resolve_path(schema, path, physical=is_physical), field.data_type)
        )
    return tuple(columns)


_BLOOM_PREFIX: Final = "delta.bloomFilter."
RESERVED_NAMES: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
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
        """Return a path after the rename, also for fields inside the renamed column."""
        depth = len(self.old)
        return (*self.new, *path[depth:]) if path[:depth] == self.old else path


def plan_rename(snapshot: Snapshot, old: Path, new_name: str) -> Rename:
    """Return the rename of a column; `new_name` replaces the last part of its path."""
    found = _existing(snapshot, old)
    beside = _parent(snapshot.schema, found).fields
    taken = {field.name.lower(): field.name for field in beside if field.name != found[-1]}
    problems = list(_name_problems(taken, (*found[:-1], new_name)))
    problems.extend(_dependents(snapshot, found))
    if problems:
        raise SchemaChangeError(problems)
    return Rename(found, (*found[:-1], new_name))


def rename_change(snapshot: Snapshot, rename: Rename, retagged: Sequence[CopiedAdd]) -> Change:
    """Return the change that renames a column; `retagged` are adds with new tags."""
    schema = with_field(
        snapshot.schema, rename.old, lambda field: replace(field, name=rename.new[-1])
    )
    partitions = snapshot.metadata.partition_columns
    metadata = _metadata_with(snapshot, schema, _renamed_lists(snapshot, rename))
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
            properties = dict(left.metadata.configuration)
            kept = partial(filterfalse, partial(_is_at, column=found))
            _change_list(properties, STATS_COLUMNS, split_paths, kept)
            metadata = _metadata_with(left, schema, properties)
            left = replace(left, schema=schema, metadata=metadata)
            dropped.append(found)
    if problems:
        raise SchemaChangeError(problems)
    return Change(
        operation="DROP COLUMNS",
        parameters={"columns": json_text(list(map(_attribute_name, dropped)))},
        actions=(left.metadata,),
        is_blind_append=True,
    )


def _renamed_lists(snapshot: Snapshot, rename: Rename) -> Mapping[str, str]:
    def renamed(path: Path) -> Path:
        inside = path[len(rename.old) :]
        return (*rename.new, *inside) if _is_at(path, rename.old) else path

    configuration = dict(snapshot.metadata.configuration)
    _change_list(configuration, STATS_COLUMNS, split_paths, lambda paths: map(renamed, paths))
    for name in COLUMN_PROPERTIES:
        _change_list(configuration, name, columns_of, lambda paths: map(renamed, paths))
    before = weights_in(configuration)
    after = tuple((renamed(path), weight) for path, weight in before)
    if after != before:
        configuration[WEIGHTS_PROPERTY] = weights_text(after)
    return configuration


def _change_list(
    configuration: dict[str, str],
    name: str,
    read: Callable[[str], tuple[Path, ...]],
    changed: Callable[[tuple[Path, ...]], Iterable[Path]],
) -> None:
    if name not in configuration:
        return
    before = read(configuration[name])
    after = tuple(changed(before))
    if after != before:
        configuration[name] = ",".join(map(quote_path, after))


def _metadata_with(
    snapshot: Snapshot, schema: StructType, configuration: Mapping[str, str]
) -> Metadata:
    problems = _unwritable(snapshot.protocol, configuration, schema)
    if problems:
        raise SchemaChangeError(problems)
    return structs.replace(
        snapshot.metadata, schema_string=schema_json(schema), configuration=configuration
    )


def _unwritable(
    protocol: Protocol, configuration: Mapping[str, str], schema: StructType
) -> list[SchemaProblem]:
    return [
        SchemaProblem(Kind.SCHEMA_IS_NOT_WRITABLE, f"the table would have {problem}")
        for problem in schema_problems(protocol, configuration, schema)
    ]


def _existing(snapshot: Snapshot, column: Path) -> Path:
    if mapping_mode(snapshot.metadata.configuration) is MappingMode.NONE:
        text = (
            "columns can be renamed or dropped with column mapping only; turn it on with"
            f" ALTER TABLE … {set_properties({MODE: 'name'})}"
        )
        raise SchemaChangeError([SchemaProblem(Kind.COLUMN_MAPPING_IS_OFF, text, property=MODE)])
    if find_column(snapshot.schema, column) is None:
        name = quote_path(column)
        (text,) = unknown_columns([name], snapshot.schema)
        raise SchemaChangeError([SchemaProblem(Kind.COLUMN_UNKNOWN, text, column=name)])
    return resolve_path(snapshot.schema, column)[0]


def _parent(schema: StructType, path: Path) -> StructType:
    parent = find_column(schema, path[:-1])
    data_type = schema if parent is None else parent.data_type
    assert isinstance(data_type, StructType)  # noqa: S101  the column exists
    return data_type


def _name_problems(taken: Mapping[str, str], column: Path) -> Iterator[SchemaProblem]:
    """Yield why a column cannot have its name; `taken` has the other names by lower case."""
    name = column[-1].lower()
    if name in taken:
        there = quote_path((*column[:-1], taken[name]))
        text = f"there is a column {there} already"
        yield SchemaProblem(Kind.COLUMN_EXISTS, text, column=there)
    if name in RESERVED_NAMES and len(column) == 1:
        text = f"{column[-1]} is a name that the change data feed uses"
        yield SchemaProblem(Kind.COLUMN_NAME_RESERVED, text, column=column[-1])


def _loss_problems(snapshot: Snapshot, dropped: Path) -> Iterator[SchemaProblem]:
    name = quote_path(dropped)
    if len(_parent(snapshot.schema, dropped).fields) == 1:
        holder = quote_path(dropped[:-1]) if len(dropped) > 1 else "the table"
        text = f"{name} is the only column of {holder}"
        yield SchemaProblem(Kind.COLUMN_IS_THE_LAST, text, column=name)
    for column in clustering_state(snapshot).columns:
        if column.logical[: len(dropped)] == dropped:
            text = (
                f"the table is clustered by {column.name}; set other clustering columns first,"
                " or clear them with cluster-by --none"
            )
            yield SchemaProblem(Kind.COLUMN_IS_CLUSTERED_BY, text, column=column.name)
    configuration = snapshot.metadata.configuration
    listed = {key: columns_of(configuration.get(key, "")) for key in COLUMN_PROPERTIES}
    listed[WEIGHTS_PROPERTY] = tuple(path for path, _ in weights_in(configuration))
    for key, paths in listed.items():
        for inside in (quote_path(path) for path in paths if _is_at(path, dropped)):
            text = (
                f"the table's property {key} lists {inside}; set it to other columns first, or"
                f" remove it with ALTER TABLE … {unset_properties([key])}"
            )
            yield SchemaProblem(Kind.COLUMN_IS_USED, text, column=inside, property=key)
    if len(dropped) == 1 and dropped[0] in snapshot.metadata.partition_columns:
        text = f"the table is partitioned by {name}"
        yield SchemaProblem(Kind.COLUMN_IS_PARTITIONED_BY, text, column=name)
    for path, field in fields_with_paths(snapshot.schema):
        blooms = any(key.startswith(_BLOOM_PREFIX) for key in field.metadata)
        if blooms and path[: len(dropped)] == dropped:
            inside = quote_path(path)
            text = f"{inside} has a bloom filter"
            yield SchemaProblem(Kind.COLUMN_HAS_BLOOM_FILTER, text, column=inside)


def _dependents(snapshot: Snapshot, path: Path) -> Iterator[SchemaProblem]:
    """Yield a problem for each expression that may use a column, because it has its first name."""
    name, kind = path[0].lower(), Kind.COLUMN_IS_USED
    for key, expression in snapshot.metadata.configuration.items():
        if key.startswith(CONSTRAINT_PREFIX) and name in _names(expression):
            text = f"the CHECK constraint {key.removeprefix(CONSTRAINT_PREFIX)} uses it"
            yield SchemaProblem(kind, text, property=key)
    for owner, field in fields_with_paths(snapshot.schema):
        said = quote_path(owner)
        for key, words in _OWNERS.items():
            if name in _names(str(field.metadata.get(key, ""))):
                yield SchemaProblem(kind, f"{words} {said} uses it", column=said, property=key)
        is_around = owner == path[: len(owner)] and len(owner) < len(path)
        if is_around and CHAR_VARCHAR in field.metadata:
            text = f"{said} repeats the names of its fields in a char or varchar type"
            yield SchemaProblem(Kind.COLUMN_HAS_CHAR_TYPE, text, column=said)


def _names(expression: str) -> frozenset[str]:
    quoted = (name.replace("``", "`") for name in _BACKTICKED.findall(expression))
    return frozenset(name.lower() for name in (*quoted, *_WORD.findall(expression)))


def _attribute_name(path: Path) -> str:
    return ".".join(f"`{part}`" if "." in part else part for part in path)


def _is_at(path: Path, column: Path) -> bool:
    return [part.lower() for part in path[: len(column)]] == [part.lower() for part in column]


def add_change(
    snapshot: Snapshot, columns: StructType, into: Path, new_id: Callable[[], str]
) -> Change:
    """Return the change that appends columns to the table or to a struct `into`."""
    holder, place = _holder(snapshot, into)
    problems = tuple(addition_problems(holder, snapshot.protocol, columns, place))
    if problems:
        raise SchemaChangeError(problems)
    added, configuration = numbered_columns(columns, snapshot.metadata.configuration, new_id)
    schema = grown = StructType((*holder.fields, *added.fields))
    if place:
        schema = with_field(snapshot.schema, place, lambda field: replace(field, data_type=grown))
    documents = [
        {"column": {**field_document(field), "name": _attribute_name((*place, field.name))}}
        for field in columns.fields
    ]
    return Change(
        operation="ADD COLUMNS",
        parameters={"columns": json_text(documents)},
        actions=(_metadata_with(snapshot, schema, configuration),),
        is_blind_append=True,
    )


def _holder(snapshot: Snapshot, into: Path) -> tuple[StructType, Path]:
    if not into:
        return snapshot.schema, ()
    found = find_column(snapshot.schema, into)
    name = quote_path(into)
    if found is not None and isinstance(found.data_type, StructType):
        return found.data_type, resolve_path(snapshot.schema, into)[0]
    text = f"{name} is no struct, so that it cannot get a field"
    if found is None:
        (text,) = unknown_columns([name], snapshot.schema)
    raise SchemaChangeError([SchemaProblem(Kind.COLUMN_UNKNOWN, text, column=name)])


def addition_problems(
    holder: StructType, protocol: Protocol, columns: StructType, place: Path = ()
) -> Iterator[SchemaProblem]:
    """Yield why a table with this protocol cannot get these columns in `holder`, at `place`."""
    taken = {field.name.lower(): field.name for field in holder.fields}
    features = table_features(protocol)
    for field in columns.fields:
        name = quote_path((*place, field.name))
        yield from _name_problems(taken, (*place, field.name))
        taken[field.name.lower()] = field.name
        if not field.nullable:
            text = f"{name} would be null in every existing row; leave NOT NULL out"
            yield SchemaProblem(Kind.SCHEMA_IS_NOT_WRITABLE, text, column=name)
        for feature in needed_features(StructType((field,)), {}):
            if feature not in features:
                text = f"{name} needs the table feature {feature}, which the table does not have"
                yield SchemaProblem(Kind.FEATURE_MISSING, text, column=name, feature=feature)


# Delta Spark stores logical names in ZCUBE_ZORDER_BY, so after a rename it treats cubes as
# clustered by other columns. Retagging keeps cubes valid: each file is added again with the same
# content and a new tag, in the commit with the rename, or later after another engine's rename.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Retagging:
    """The files (rows of FILES_SCHEMA) whose tag names a column, and the new tag per old tag."""

    files: pa.Table
    tags: Mapping[str, str]


def plan_retagging(snapshot: Snapshot, rename: Rename) -> Retagging:
    """Return the live files that a rename must retag; unreadable tags are left alone."""
    return _retagging(snapshot, lambda tag: _renamed(tag, rename))


def _retagging(snapshot: Snapshot, new_tag: Callable[[str], str | None]) -> Retagging:
    found = snapshot.files["zorder_by"]
    tags = {}
    for tag in pc.unique(found).to_pylist():
        new = None if tag is None else new_tag(tag)
        if new is not None and new != tag:
            tags[tag] = new
    touched = pc.is_in(found, value_set=pa.array(list(tags), pa.string()))
    return Retagging(files=snapshot.files.filter(touched), tags=tags)


def plan_late_retagging(snapshot: Snapshot, schemas: Sequence[StructType]) -> Retagging:
    """Return the live files with tags from before a rename, by all earlier schemas.

    A tag is left alone if its names meant different columns over time, or if one was dropped.
    """
    return _retagging(snapshot, lambda tag: _current(tag, snapshot.schema, schemas))


def _current(tag: str, schema: StructType, schemas: Sequence[StructType]) -> str | None:
    names = parse_zorder_by(tag)
    try:
        written = [split_path(name) for name in names or ()]
    except UsageError:
        return None
    meanings = {
        tuple(resolve_path(one, path)[1] for path in written)
        for one in schemas
        if all(find_column(one, path) is not None for path in written)
    }
    if not names or len(meanings) != 1:
        return None
    (paths,) = meanings
    if any(find_column(schema, path, physical=True) is None for path in paths):
        return None
    current = quote_paths(resolve_path(schema, path, physical=True)[0] for path in paths)
    return tag if current == names else json_text(current)


def retagged(
    retagging: Retagging, originals: Sequence[Mapping[str, msgspec.Raw]]
) -> tuple[CopiedAdd, ...]:
    """Return the files' adds, in order, with only their tags changed."""
    files = retagging.files.select(["path", "zorder_by"]).to_pylist()
    found = []
    for file, original in zip(files, originals, strict=True):
        tags: dict[str, Any] = msgspec.json.decode(original["tags"])
        tags[ZCUBE_ZORDER_BY] = retagging.tags[file["zorder_by"]]
        document = {**original, "dataChange": False, "tags": tags}
        found.append(
            CopiedAdd(path=file["path"], document=msgspec.Raw(msgspec.json.encode(document)))
        )
    return tuple(found)


def _renamed(tag: str, rename: Rename) -> str | None:
    """Return the tag with the column's new name, None if the tag has no list of names."""
    try:
        names = msgspec.json.decode(tag, type=list[str])
        for number, path in enumerate(map(split_path, names)):
            if rename.applied(path) != path:
                names[number] = quote_path(rename.applied(path))
    except (msgspec.MsgspecError, UsageError):
        return None
    return json_text(names)


def properties_change(
    snapshot: Snapshot, properties: Mapping[str, str], unset: Sequence[str]
) -> Change | None:
    """Return the change that sets and removes properties, None if nothing changes.

    The same commit adds features that properties need or name. If column mapping by name is turned
    on, columns get ids, and their names as physical names.
    """
    given = {canonical_key(name): value for name, value in properties.items()}
    asked = {name: value for name, value in given.items() if asks_for_protocol(name)}
    setting = {name: value for name, value in given.items() if name not in asked}
    before = snapshot.metadata.configuration
    removing = tuple(
        dict.fromkeys(name if name in before else canonical_key(name) for name in unset)
    )
    features, problems = _features(snapshot, asked, setting)
    problems.extend(_problems(snapshot, setting, removing, asked))
    after = {name: value for name, value in {**before, **setting}.items() if name not in removing}
    old_mode, mode = before.get(MODE, "none").lower(), after.get(MODE, "none").lower()
    if old_mode != mode and (old_mode, mode) != ("none", "name"):
        text = (
            f"{MODE} cannot change from {old_mode} to {mode}: data files would have to be rewritten"
        )
        problems.append(SchemaProblem(Kind.COLUMN_MAPPING_IS_FIXED, text, property=MODE))
    kept = [name for name in setting if name in after]
    problems.extend(layout_problems(kept, after, snapshot.schema))
    if problems:
        raise SchemaChangeError(tuple(dict.fromkeys(problems)))
    schema, after, protocol = _with_mapping(snapshot, after)
    protocol = with_features(protocol, features)
    if after == dict(before) and protocol == snapshot.protocol:
        return None
    metadata = structs.replace(
        snapshot.metadata, schema_string=schema_json(schema), configuration=after
    )
    _check(snapshot, schema, after, protocol)
    parameters = {"properties": json_text(given or removing)}
    if removing or not given:
        parameters |= {"unset": json_text(removing)} if given else {"ifExists": "true"}
    return Change(
        operation="SET TBLPROPERTIES" if given else "UNSET TBLPROPERTIES",
        parameters=parameters,
        actions=(metadata,) if protocol == snapshot.protocol else (metadata, protocol),
        is_blind_append=True,
    )


def _features(
    snapshot: Snapshot, asked: Mapping[str, str], setting: Mapping[str, str]
) -> tuple[frozenset[str], list[SchemaProblem]]:
    named, problems = asked_features(asked, snapshot.protocol)
    switched = {switched_feature(name, value) for name, value in setting.items() if name != MODE}
    there = {name.removesuffix(PREVIEW) for name in table_features(snapshot.protocol)}
    return named | {name for name in switched if name in ADDABLE and name not in there}, [*problems]


def _problems(
    snapshot: Snapshot,
    setting: Mapping[str, str],
    removing: Sequence[str],
    asked: Mapping[str, str],
) -> Iterator[SchemaProblem]:
    if not setting and not removing and not asked:
        yield SchemaProblem(Kind.PROPERTY_MISSING, "no property is given")
    for name in (*setting, *removing):
        reason = refusal(name)
        if reason is not None:
            yield reason
        elif name in setting and name in removing:
            text = f"{name} is both set and unset"
            yield SchemaProblem(Kind.PROPERTY_SET_AND_UNSET, text, property=name)
        elif name in setting:
            yield from value_problems(name, setting[name], schema=snapshot.schema)


def _with_mapping(
    snapshot: Snapshot, configuration: dict[str, str]
) -> tuple[StructType, dict[str, str], Protocol]:
    before = mapping_mode(snapshot.metadata.configuration)
    if before is not MappingMode.NONE or mapping_mode(configuration) is MappingMode.NONE:
        return snapshot.schema, configuration, snapshot.protocol
    # Existing files use the columns' names.
    schema, largest = with_mapping(snapshot.schema, lambda field: field.name)
    protocol = column_mapping_upgrade(snapshot.protocol)
    return schema, {**configuration, MAX_COLUMN_ID: str(largest)}, protocol


def _check(
    snapshot: Snapshot, schema: StructType, configuration: Mapping[str, str], protocol: Protocol
) -> None:
    problems = _unwritable(protocol, configuration, schema)
    before = indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    lost = {leaf.physical for leaf in before}
    lost -= {leaf.physical for leaf in indexed_leaves(schema, configuration)}
    for column in clustering_state(snapshot).columns:
        if column.physical in lost:
            text = (
                f"the clustering column {column.name} would have no statistics in files of other"
                " engines"
            )
            problems.append(SchemaProblem(Kind.COLUMN_LOSES_STATISTICS, text, column=column.name))
    if problems:
        raise SchemaChangeError(problems)


# How data becomes rows of a table. Columns match by name, exactly or else without case. A column
# that the data lacks gets its generation expression, its default, or null. Types must be equal or
# narrower.
#
# Source: Delta Spark, SchemaUtils, ColumnWithDefaultExprUtils, Constraints, Invariants;
# PROTOCOL.md, "Column Invariants", "CHECK Constraints", "Generated Columns", "Default Columns",
# "Identity Columns". As there, null violates a condition.

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
    cannot_write = (*unsupported_types(data), *intervals(data))
    problems.extend(f"type of column {text}" for text in cannot_write)
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
        yield f"column {name} is an identity column: only Delta Spark makes its values"
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
