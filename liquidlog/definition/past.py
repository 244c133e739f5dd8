"""Past definitions of a table: earlier names of columns, and clustering columns that were lost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from liquidlog.clustering.columns import CLUSTERING_DOMAIN, ClusteringColumn, read_domain
from liquidlog.errors import CorruptLogError, UsageError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Commit, DomainMetadata, Metadata
from liquidlog.spec.bounds import has_bounds
from liquidlog.spec.schema import (
    Path,
    StructType,
    find_column,
    parse_schema,
    resolve_path,
    split_path,
)

_DELIBERATE: Final = "CLUSTER BY"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostColumns:
    """Clustering columns that a table used to have, under their current names.

    `version` and `operation` are those of the commit that removed them.
    """

    columns: tuple[ClusteringColumn, ...]
    version: int
    operation: str


@dataclass(frozen=True, slots=True)
class _State:
    """The domain after a commit; `paths` is None if its text cannot be read."""

    version: int
    operation: str
    paths: tuple[Path, ...] | None
    schema: StructType | None


def past_schemas(past: Sequence[Commit], current: StructType) -> tuple[StructType, ...]:
    """Return the distinct schemas that the table has had, the current one last."""
    texts = dict.fromkeys(
        action.schema_string
        for commit in past
        for action in commit.actions
        if isinstance(action, Metadata) and action.schema_string
    )
    schemas = [parse_schema(text, where="a past version of the log") for text in texts]
    return (*(schema for schema in schemas if schema != current), current)


def columns_of_tag(
    names: Sequence[str], schemas: Sequence[StructType]
) -> frozenset[tuple[Path, ...]]:
    """Return the lists of physical columns that a tag may mean: several if names were reused."""
    try:
        paths = [split_path(name) for name in names]
    except UsageError:
        return frozenset()
    return frozenset(
        tuple(resolve_path(schema, path)[1] for path in paths)
        for schema in schemas
        if all(find_column(schema, path) is not None for path in paths)
    )


def lost_columns(snapshot: Snapshot, past: Sequence[Commit]) -> LostColumns | None:
    """Return the clustering columns that a commit other than CLUSTER BY removed.

    Returns None if there are none, or the current schema lacks any of them.
    """
    before: _State | None = None
    taken: _State | None = None
    for state in _states(past):
        if state.paths:
            before, taken = state, None
        elif before is not None and taken is None:
            taken = state
    if before is None or taken is None or taken.operation == _DELIBERATE:
        return None
    columns = _today(snapshot.schema, before)
    if columns is None:
        return None
    return LostColumns(columns=columns, version=taken.version, operation=taken.operation)


def last_whole_columns(
    snapshot: Snapshot, past: Sequence[Commit]
) -> tuple[ClusteringColumn, ...] | None:
    """Return the latest clustering columns that are readable and in the current schema, or None."""
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
            operation = commit.info.operation or "unknown"
            yield _State(commit.version, operation, _paths(domain), schema)


def _paths(domain: DomainMetadata) -> tuple[Path, ...] | None:
    if domain.removed:
        return ()
    try:
        return read_domain(domain.configuration)
    except CorruptLogError:
        return None


def _today(schema: StructType, state: _State) -> tuple[ClusteringColumn, ...] | None:
    """Return the columns of a past domain in the current schema, by physical or logical name."""
    columns = []
    for path in state.paths or ():
        found = _by_physical(schema, path) or _by_logical(schema, state.schema, path)
        if found is None or not has_bounds(found.data_type):
            return None
        columns.append(found)
    return tuple(columns)


def _by_physical(schema: StructType, path: Path) -> ClusteringColumn | None:
    field = find_column(schema, path, physical=True)
    if field is None:
        return None
    logical, physical = resolve_path(schema, path, physical=True)
    return ClusteringColumn(logical, physical, field.data_type)


def _by_logical(
    schema: StructType, earlier: StructType | None, path: Path
) -> ClusteringColumn | None:
    # An overwrite of the schema may give the same columns new physical names.
    if earlier is None or find_column(earlier, path, physical=True) is None:
        return None
    name = resolve_path(earlier, path, physical=True)[0]
    field = find_column(schema, name)
    if field is None:
        return None
    logical, physical = resolve_path(schema, name)
    return ClusteringColumn(logical, physical, field.data_type)
