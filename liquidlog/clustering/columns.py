"""The clustering of a table in its log: columns, row ids, and cubes with their states.

The domain `delta.clustering` of a table lists its clustering columns by their physical names.

Source: PROTOCOL.md, "Clustered Table"; Delta Spark, ClusteringMetadataDomain.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs
from numpy.typing import NDArray

from liquidlog.errors import (
    ClusteringColumnError,
    CorruptLogError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.plan import RowTracking
from liquidlog.snapshot import (
    FILES_SCHEMA,
    Snapshot,
    distinct_values,
    logical_bytes,
    num_records,
    partition_values,
)
from liquidlog.spec.actions import UNREADABLE, AddFile, DomainMetadata, Metadata, Protocol
from liquidlog.spec.arrow import (
    READ_AS,
    PartitionTexts,
    in_zone,
    one_array,
    partition_fields,
    untyped_values,
)
from liquidlog.spec.bounds import Bounds, BoundsOf, ColumnBounds, has_bounds, indexed_leaves
from liquidlog.spec.features import (
    PROPERTY_V1,
    PROPERTY_V2,
    ROW_TRACKING,
    ROW_TRACKING_ENABLED,
    ROW_TRACKING_SUSPENDED,
    SHREDDING,
    clustering_upgrade,
    file_problems,
    is_clustered,
    is_true,
    table_features,
)
from liquidlog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    Leaf,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    fields_with_paths,
    find_column,
    leaves,
    nested_parts,
    quote_path,
    resolve_path,
)
from liquidlog.spec.text import unknown_columns

DEFAULT_COLUMN_LIMIT: Final = 4
"""Most columns a table may be clustered by.

Source: Delta Spark, spark.databricks.delta.clusteredTable.numClusteringColumnsLimit.
"""

_COLLATIONS: Final = "__COLLATIONS"


@dataclass(frozen=True, slots=True)
class ClusteringColumn:
    """A column of the clustering order; both paths are in the schema's spelling."""

    logical: Path
    physical: Path
    data_type: DataType

    @property
    def name(self) -> str:
        """The logical name as ZCUBE_ZORDER_BY and DESCRIBE DETAIL spell it."""
        return quote_path(self.logical)

    @property
    def leaf(self) -> Leaf:
        return Leaf(self.logical, self.physical, self.data_type, nullable=True)


def resolve_columns(
    schema: StructType,
    requested: Sequence[Path],
    *,
    configuration: Mapping[str, str],
    partition_columns: Sequence[str] = (),
    limit: int = DEFAULT_COLUMN_LIMIT,
    case_sensitive: bool = False,
) -> tuple[ClusteringColumn, ...]:
    """Return the requested columns in the requested order, in the schema's spelling."""
    indexed = {leaf.physical for leaf in indexed_leaves(schema, configuration)}
    columns: list[ClusteringColumn] = []
    problems, unknown = list(_table_problems(requested, partition_columns, limit=limit)), []
    for path in requested:
        found = find_column(schema, path)
        if found is not None and case_sensitive and resolve_path(schema, path)[0] != path:
            found = None
        problem = _column_problem(schema, path, found)
        if problem is not None:
            problems.append(problem)
        elif found is None:
            unknown.append(quote_path(path))
        else:
            logical, physical = resolve_path(schema, path)
            if physical not in indexed:
                problems.append(_no_statistics(logical, configuration))
            columns.append(ClusteringColumn(logical, physical, found.data_type))
    problems.extend(unknown_columns(unknown, schema))
    problems.extend(repeated_names([column.logical for column in columns]))
    if problems:
        raise ClusteringColumnError(tuple(problems))
    return tuple(columns)


def _table_problems(
    requested: Sequence[Path], partition_columns: Sequence[str], *, limit: int
) -> Iterator[str]:
    if requested and partition_columns:
        yield (
            f"the table is partitioned by {', '.join(partition_columns)},"
            " and a partitioned table cannot be clustered until migrate has rewritten it"
        )
    if len(requested) > limit:
        yield f"{len(requested)} clustering columns are given, at most {limit} are possible"


def _column_problem(schema: StructType, path: Path, found: StructField | None) -> str | None:
    if found is None:
        return _shape_problem(schema, path) or _dotted_problem(schema, path)
    data_type, is_collated = found.data_type, _COLLATIONS in found.metadata
    if isinstance(data_type, StructType):
        return _shape_problem(schema, path)
    if has_bounds(data_type) and not is_collated:
        return None
    kind = "a collated string" if is_collated else f"of type {data_type}"
    return (
        f"{quote_path(path)} is {kind}; a clustering column must be a number, a date, a"
        " timestamp or a string without collation"
    )


def _shape_problem(schema: StructType, path: Path) -> str | None:
    name = quote_path(path)
    for length in range(1, len(path)):
        around = find_column(schema, path[:length])
        if around is not None and isinstance(around.data_type, ArrayType | MapType):
            kind = "an array" if isinstance(around.data_type, ArrayType) else "a map"
            return f"{name} lies inside {quote_path(path[:length])}, {kind} of many values per row"
    found = find_column(schema, path)
    if found is not None and isinstance(found.data_type, StructType):
        inner = ", ".join(quote_path((*path, field.name)) for field in found.data_type.fields)
        return f"{name} is a struct; name one of its fields: {inner}"
    return None


def repeated_names(paths: Iterable[Path]) -> Iterator[str]:
    for path, times in Counter(paths).items():
        if times > 1:
            yield f"{quote_path(path)} is named more than once"


def _dotted_problem(schema: StructType, path: Path) -> str | None:
    flat = ".".join(path)
    if len(path) > 1 and find_column(schema, (flat,)) is not None:
        return (
            f"there is no column {quote_path(path)}; the column with a dot in its name is written"
            f" `{flat}`"
        )
    listed = path[-1].split(",")
    if len(listed) > 1 and all(find_column(schema, (name.strip(),)) for name in listed):
        return f"there is no column {quote_path(path)}; give several columns as a list of names"
    return None


def _no_statistics(logical: Path, configuration: Mapping[str, str]) -> str:
    named = configuration.get("delta.dataSkippingStatsColumns")
    count = configuration.get("delta.dataSkippingNumIndexedCols", "32")
    reason = f"only the first {count} columns have them (delta.dataSkippingNumIndexedCols)"
    if named is not None:
        reason = f"delta.dataSkippingStatsColumns is {named!r}"
    return f"{quote_path(logical)} has no statistics: {reason}"


CLUSTERING_DOMAIN: Final = "delta.clustering"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringState:
    """The clustering in a table's domain; `unresolved` physical paths are not in the schema."""

    columns: tuple[ClusteringColumn, ...]
    unresolved: tuple[Path, ...]
    clustered: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The logical names in clustering order, without unresolved paths."""
        return tuple(column.name for column in self.columns)


class _Domain(msgspec.Struct):
    clustering_columns: list[list[str] | str] = msgspec.field(name="clusteringColumns")


def read_domain(configuration: str) -> tuple[Path, ...]:
    """Return the physical paths that the domain's configuration lists."""
    where = f"the {CLUSTERING_DOMAIN} domain"
    try:
        domain = msgspec.json.decode(configuration, type=_Domain)
    except UNREADABLE as error:
        raise CorruptLogError(where, f"its configuration cannot be read: {error}") from error
    # Engines write a column as a list of name parts, the protocol shows it as one string.
    paths = tuple(
        (entry,) if isinstance(entry, str) else tuple(entry) for entry in domain.clustering_columns
    )
    if not all(path and all(path) for path in paths):
        raise CorruptLogError(where, "it names a clustering column without a name")
    return paths


def clustering_domain(columns: Sequence[ClusteringColumn]) -> DomainMetadata:
    physical = [column.physical for column in columns]
    document = {"clusteringColumns": physical, "domainName": CLUSTERING_DOMAIN}
    configuration = msgspec.json.encode(document).decode()
    return DomainMetadata(domain=CLUSTERING_DOMAIN, configuration=configuration, removed=False)


def clustering_state(snapshot: Snapshot) -> ClusteringState:
    clustered = is_clustered(snapshot.protocol)
    domain = snapshot.domains.get(CLUSTERING_DOMAIN)
    if not clustered or domain is None or domain.removed:
        return ClusteringState(columns=(), unresolved=(), clustered=clustered)
    paths = read_domain(domain.configuration)
    found = [_resolve(snapshot.schema, path) for path in paths]
    return ClusteringState(
        columns=tuple(column for column in found if column is not None),
        unresolved=tuple(p for p, column in zip(paths, found, strict=True) if column is None),
        clustered=True,
    )


def unresolved_problem(path: Path) -> str:
    """Return the message about a path of the domain that the schema lacks."""
    return (
        f"the table is clustered by {quote_path(path)} (physical name), which its schema no longer"
        " has; set new clustering columns with cluster-by, or clear them with"
        " cluster-by --none"
    )


def _resolve(schema: StructType, path: Path) -> ClusteringColumn | None:
    found = find_column(schema, path, physical=True)
    if found is None and len(path) == 1 and "." in path[0]:
        # In the flat form, dots join the parts of a nested column's name.
        return _resolve(schema, tuple(path[0].split(".")))
    if found is None or isinstance(found.data_type, StructType):
        return None
    logical, physical = resolve_path(schema, path, physical=True)
    return ClusteringColumn(logical, physical, found.data_type)


# Columns that can have Bloom filters
#
# Equal values must have equal bytes in the file, else a filter hides rows: 0.0 and -0.0 are equal
# as floating-point numbers, and so are many texts under a collation.


def filtered_leaves(schema: StructType, requested: Sequence[Path]) -> tuple[Leaf, ...]:
    """Return the leaves of columns that get Bloom filters, in the requested order."""
    known = {leaf.logical: leaf for leaf in leaves(schema)}
    problems, unknown, named = [], [], []
    for path in requested:
        problem = _shape_problem(schema, path) or _filter_problem(schema, path)
        if problem is not None:
            problems.append(problem)
        elif find_column(schema, path) is None:
            unknown.append(quote_path(path))
        else:
            named.append(resolve_path(schema, path)[0])
    problems += [*unknown_columns(unknown, schema), *repeated_names(named)]
    if problems:
        raise UsageError(f"bloom_filter: {'; '.join(problems)}", option="bloom_filter")
    return tuple(known[path] for path in named)


def _filter_problem(schema: StructType, path: Path) -> str | None:
    name, found = quote_path(path), find_column(schema, path)
    if found is None:
        return None
    around = (find_column(schema, path[:length]) for length in range(1, len(path) + 1))
    match found.data_type:
        case PrimitiveType("float" | "double" as kind):
            return f"{name} is of type {kind}, where 0.0 and -0.0 are equal and hashed differently"
        case PrimitiveType("string") if any(one and _COLLATIONS in one.metadata for one in around):
            return f"{name} is a collated string, whose equal texts are hashed differently"
        case DecimalType() | PrimitiveType("byte" | "short" | "integer" | "long" | "date"):
            return None
        case PrimitiveType("timestamp" | "timestamp_ntz" | "string" | "binary"):
            return None
        case other:
            return (
                f"{name} is of type {other}; a Bloom filter is for whole numbers, decimals, dates,"
                " timestamps, strings and bytes"
            )


# Migration of a partitioned table: the partition columns become columns of the data files
#
# Source: PROTOCOL.md, "Partition Value Serialization", "Clustered Table"; docs/adr/0027.

MIGRATION: Final = "REPLACE PARTITIONED BY"
"""The operation of its commit; Databricks has a statement of these words for the same."""
_UNIFORM: Final = "delta.universalFormat.enabledFormats"


def unpartitioned(snapshot: Snapshot) -> Snapshot:
    if not snapshot.metadata.partition_columns:
        return snapshot
    return replace(snapshot, metadata=structs.replace(snapshot.metadata, partition_columns=()))


def clustered_by(snapshot: Snapshot, columns: Sequence[ClusteringColumn]) -> Snapshot:
    protocol = snapshot.protocol
    if not is_clustered(protocol):
        protocol = clustering_upgrade(protocol)
    domains = {**snapshot.domains, CLUSTERING_DOMAIN: clustering_domain(columns)}
    return replace(unpartitioned(snapshot), protocol=protocol, domains=domains)


def migrated(snapshot: Snapshot, requested: Sequence[Path]) -> Snapshot:
    """Return a partitioned table as it will be after the migration, without cubes."""
    problems = tuple(_migration_problems(snapshot))
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "migrated", problems)
    configuration, files = snapshot.metadata.configuration, snapshot.files
    columns = resolve_columns(snapshot.schema, requested, configuration=configuration)
    for name in ("zcube_id", "zorder_by", "clustering_provider"):
        place = FILES_SCHEMA.get_field_index(name)
        kind = FILES_SCHEMA.field(place)
        files = files.set_column(place, kind, pa.nulls(files.num_rows, kind.type))
    return replace(clustered_by(snapshot, columns), files=files, plain_files=None)


def defining_actions(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn]
) -> tuple[Protocol | Metadata | DomainMetadata, ...]:
    after = clustered_by(snapshot, columns)
    protocol = () if after.protocol == snapshot.protocol else (after.protocol,)
    return (*protocol, after.metadata, after.domains[CLUSTERING_DOMAIN])


def migration_parameters(snapshot: Snapshot, cluster_by: str) -> dict[str, object]:
    """Return the parameters of a migration in commitInfo; `cluster_by` is a JSON list of names."""
    former = list(snapshot.metadata.partition_columns)
    return {"oldPartitionBy": msgspec.json.encode(former).decode(), "clusterBy": cluster_by}


def bounds_with_values(snapshot: Snapshot, bounds_of: BoundsOf) -> BoundsOf:
    """Return a function like `bounds_of` that also returns partition values, as bounds."""
    partitions = {(name,) for name in snapshot.metadata.partition_columns}

    def bounds(columns: Sequence[Leaf]) -> Bounds:
        found = bounds_of(columns)
        known = list(found.columns)
        for number, leaf in enumerate(columns):
            if leaf.logical in partitions:
                values = partition_values(snapshot.files, leaf)
                no_nulls = pa.scalar(0, pa.int64())
                nulls = pc.if_else(pa.array(values.is_null), found.num_records, no_nulls)
                ends = values.values
                known[number] = ColumnBounds(low=ends, high=ends, null_count=nulls)
        return Bounds(columns=tuple(known), num_records=found.num_records)

    return bounds


def _migration_problems(snapshot: Snapshot) -> Iterator[str]:
    configuration = snapshot.metadata.configuration
    yield from file_problems(configuration)
    for name in (PROPERTY_V1, PROPERTY_V2):
        if is_true(configuration, name):
            yield f"{name}, which forbids other partition columns"
    if configuration.get(_UNIFORM):
        yield f"{_UNIFORM}, since tables of other formats are partitioned by the same columns"
    yield from shredding_problems(snapshot)
    # Whatever the zone, a value in it has the same form.
    yield from value_problems(snapshot, time_zone=READ_AS)


def shredding_problems(snapshot: Snapshot) -> Iterator[str]:
    """Yield why files cannot be rewritten: some may have variants in typed columns."""
    shredded = set(SHREDDING).intersection(table_features(snapshot.protocol))
    for path, field in fields_with_paths(snapshot.schema) if shredded else ():
        types = (field.data_type, *(part for _, part in nested_parts(field.data_type)))
        if PrimitiveType("variant") in types:
            name = quote_path(path)
            yield f"{min(shredded)} with the variant {name}, whose parts files may shred"


def value_problems(snapshot: Snapshot, *, time_zone: str | None = None) -> Iterator[str]:
    """Yield why partition values cannot become values of rows; `time_zone` as `in_zone`."""
    partitions = snapshot.metadata.partition_columns
    fields = partition_fields(snapshot.schema, partitions, where=snapshot.uri)
    documents: tuple[PartitionTexts, ...] = distinct_values(snapshot.files).documents
    names = {field.physical_name for field in fields}
    if any(set(document) != names for document in documents):
        yield f"partition values of other columns than {', '.join(partitions)}"
        return
    if time_zone is not None:
        documents = tuple(in_zone(one, fields, time_zone) for one in documents)
    yield from untyped_values(documents, fields)


# Row tracking: fresh row ids for new files, and hidden columns in which rows keep their ids
#
# A table with the feature *supports* row tracking: new files get row ids. If a property *enables*
# it, rows keep their ids when they move, in two hidden columns of the data files. If another
# property *suspends* it, no ids are assigned.
#
# Source: PROTOCOL.md, "Row Tracking".

ROW_TRACKING_DOMAIN: Final = "delta.rowTracking"
ROW_ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
ROW_COMMIT_VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
HIDDEN_COLUMNS: Final = (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN)
PRESERVED_TAG: Final = "delta.rowTracking.preserved"
"""Tag of commitInfo: every copied row kept its row id and its commit version."""


class _RowIds(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: int


def planned_row_tracking(snapshot: Snapshot) -> RowTracking | None:
    """Return the hidden columns that data files may have, None if the table names none."""
    if ROW_TRACKING not in (snapshot.protocol.writer_features or ()):
        return None
    configuration = snapshot.metadata.configuration
    row_ids, versions = map(configuration.get, HIDDEN_COLUMNS)
    enabled = is_true(configuration, ROW_TRACKING_ENABLED)
    problems = tuple(_enabled_problems(snapshot)) if enabled else ()
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "rewritten", problems)
    if row_ids is None or versions is None:
        return None
    return RowTracking(row_id_column=row_ids, row_commit_version_column=versions, preserved=enabled)


def assign_row_ids(
    snapshot: Snapshot, adds: Sequence[AddFile], rows: Sequence[int]
) -> tuple[tuple[AddFile, ...], tuple[DomainMetadata, ...]]:
    """Return the adds with fresh row ids, and the action that raises the high-water mark."""
    features, configuration = snapshot.protocol.writer_features, snapshot.metadata.configuration
    if ROW_TRACKING not in (features or ()) or is_true(configuration, ROW_TRACKING_SUSPENDED):
        return tuple(adds), ()
    mark = _high_water_mark(snapshot)
    numbered, version = [], snapshot.version + 1
    for add, count in zip(adds, rows, strict=True):
        fresh = structs.replace(add, base_row_id=mark + 1, default_row_commit_version=version)
        numbered.append(fresh)
        mark += count
    if not numbered:
        return (), ()
    document = msgspec.json.encode(_RowIds(row_id_high_water_mark=mark)).decode()
    raised = DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=document, removed=False)
    return tuple(numbered), (raised,)


def _enabled_problems(snapshot: Snapshot) -> Iterable[str]:
    configuration = snapshot.metadata.configuration
    names = [configuration.get(key) for key in HIDDEN_COLUMNS]
    taken = {field.name for field in snapshot.schema.fields}
    taken |= {field.physical_name for field in snapshot.schema.fields}
    if None in names or len(set(names)) < len(names):
        yield "row tracking that is enabled without names for its columns"
    elif taken.intersection(names):
        yield "row tracking whose columns have the names of others"
    files = snapshot.files
    missing = max(files[key].null_count for key in ("base_row_id", "default_row_commit_version"))
    if missing:
        yield f"row tracking that is enabled with {missing} file(s) without row ids"


def _high_water_mark(snapshot: Snapshot) -> int:
    """Return the highest row id that was ever assigned, -1 if none was."""
    where, domain = f"the domain {ROW_TRACKING_DOMAIN}", snapshot.domains.get(ROW_TRACKING_DOMAIN)
    mark = -1
    try:
        if domain is not None:
            mark = msgspec.json.decode(domain.configuration, type=_RowIds).row_id_high_water_mark
    except UNREADABLE as error:
        raise CorruptLogError(where, f"cannot be read: {error}") from error
    files = snapshot.files
    numbered = files.filter(pc.is_valid(files["base_row_id"]))
    rows = pc.fill_null(num_records(numbered), 1)
    last = pc.max(pc.subtract(pc.add(numbered["base_row_id"], rows), 1)).as_py()
    used = -1 if last is None else last
    if used > mark:
        problem = f"says that row ids up to {mark} are taken, files have ids up to {used}"
        raise CorruptLogError(where, f"{problem}; new rows would get ids that others have")
    return mark


# ZCubes: which files were clustered together, by which columns, and whether their cube is full
#
# A file belongs to a cube if it has both tags, ZCUBE_ID and ZCUBE_ZORDER_BY; with only one of them
# it counts as unclustered. A missing provider counts as ours, because some writers drop that tag.
# `ZCUBE_ZORDER_BY` is a JSON list of logical names; order matters.
#
# Source: Delta Spark, ZCubeInfo and OptimizeTableStrategy.

PROVIDER: Final = "liquid"
UNCLUSTERED: Final = "unclustered"
PARTIAL: Final = "partial"
STABLE: Final = "stable"
OTHER_COLUMNS: Final = "other_columns"
OTHER_PROVIDER: Final = "other_provider"
FILE_STATES: Final = (UNCLUSTERED, PARTIAL, STABLE, OTHER_COLUMNS, OTHER_PROVIDER)
_UNCLUSTERED, _PARTIAL, _STABLE, _OTHER_COLUMNS, _OTHER_PROVIDER = range(len(FILE_STATES))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Membership:
    """The cube membership of live files; all arrays have one entry per file.

    `cube` (int64) is the rank of the file's ZCUBE_ID, -1 without that tag. Files `in_cube` have
    both tags, files of the `same_columns` the current columns, and `ours` no foreign provider.
    """

    cube: NDArray[np.int64]
    in_cube: NDArray[np.bool_]
    same_columns: NDArray[np.bool_]
    ours: NDArray[np.bool_]

    @property
    def own_cube(self) -> NDArray[np.int64]:
        """The cube of files that we clustered by the current columns, -1 for others (int64)."""
        return np.where(self.ours & self.same_columns, self.cube, -1)

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """The mask of files that clustering may take: ours, unclustered or of the same columns."""
        return self.ours & (~self.in_cube | self.same_columns)


def parse_zorder_by(tag: str) -> tuple[str, ...] | None:
    """Return the quoted logical names in a ZCUBE_ZORDER_BY tag, None if it lists no names."""
    try:
        return msgspec.json.decode(tag, type=tuple[str, ...]) or None
    except msgspec.MsgspecError:
        return None


def membership(files: pa.Table, columns: Sequence[ClusteringColumn]) -> Membership:
    """Return the cube membership of live files, judged by the current clustering columns."""
    ids, tags = (one_array(files[name]).dictionary_encode() for name in ("zcube_id", "zorder_by"))
    order = pc.array_sort_indices(ids.dictionary).to_numpy()
    rank = np.full(len(order) + 1, -1)  # the code -1 of a missing id selects the last entry
    rank[order] = np.arange(len(order))
    cube = np.asarray(rank[_codes(ids)], np.int64)
    in_cube = (cube >= 0) & np.asarray(pc.is_valid(files["zorder_by"]), np.bool_)
    names = tuple(column.name for column in columns)
    equal = [parse_zorder_by(tag) == names for tag in tags.dictionary.to_pylist()]
    ours = pc.fill_null(pc.equal(files["clustering_provider"], PROVIDER), fill_value=True)
    return Membership(
        cube=cube,
        in_cube=in_cube,
        same_columns=in_cube & np.array([*equal, False], np.bool_)[_codes(tags)],
        ours=np.asarray(ours, np.bool_),
    )


def logical_sizes(files: pa.Table) -> NDArray[np.int64]:
    """Return the logical bytes per file (int64): its size scaled by its share of live rows."""
    if files["deletion_vector"].null_count == files.num_rows:
        return sizes(files)
    return _integers(logical_bytes(files))


def sizes(files: pa.Table) -> NDArray[np.int64]:
    return _integers(files["size"])


def file_states(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], min_cube_bytes: int
) -> pa.Array:
    """Return the state of each live file; a stable cube has `min_cube_bytes` logical bytes."""
    files = snapshot.files
    places = membership(files, columns)
    same = places.ours & places.same_columns
    cubes = places.cube[same]
    totals = np.zeros(int(places.cube.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, cubes, logical_sizes(files)[same])
    codes = np.full(files.num_rows, _UNCLUSTERED, np.int64)
    codes[same] = np.where(totals[cubes] >= min_cube_bytes, _STABLE, _PARTIAL)
    codes[places.in_cube & ~places.same_columns] = _OTHER_COLUMNS
    codes[~places.ours] = _OTHER_PROVIDER
    return pa.array(FILE_STATES, pa.string()).take(pa.array(codes))


def cube_table(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], min_cube_bytes: int
) -> pa.Table:
    """Return one row per cube, sorted by its id; numbers are null if unknown for a file."""
    files = snapshot.files
    places = membership(files, columns)
    names = ("zcube_id", "zorder_by", "clustering_provider")
    ids, tags, provider = (pc.cast(one_array(files[name]), pa.string()) for name in names)
    rows = pa.table(
        {
            "zcube_id": ids,
            "zorder_by": tags,
            "foreign": pc.if_else(pa.array(places.ours), pa.scalar(None, pa.string()), provider),
            "state": file_states(snapshot, columns, min_cube_bytes),
            "provider": provider,
            "files": files["size"],
            "size_bytes": files["size"],
            "logical_bytes": pa.array(logical_sizes(files)),
            "num_records": num_records(files),
            "created_version": files["version"],
        }
    ).filter(pa.array(places.in_cube))
    complete = pc.ScalarAggregateOptions(skip_nulls=False)
    keys = ["zcube_id", "zorder_by", "foreign", "state"]
    figures = {
        ("provider", "max"): None,
        ("files", "count"): None,
        ("size_bytes", "sum"): None,
        ("logical_bytes", "sum"): None,
        ("num_records", "sum"): complete,
        ("created_version", "min"): complete,
    }
    cubes = rows.group_by(keys, use_threads=False).aggregate(
        [(*figure, options) for figure, options in figures.items()]
    )
    kept = {name: cubes[name] for name in ("zcube_id", "zorder_by")}
    found = {name: cubes[f"{name}_{how}"] for name, how in figures}
    state = {"state": cubes["state"], "created_version": found.pop("created_version")}
    order = [(name, "ascending") for name in ("zcube_id", "zorder_by", "provider")]
    return pa.table({**kept, **found, **state}).sort_by(order)


def _codes(encoded: pa.DictionaryArray) -> NDArray[np.int64]:
    return _integers(pc.fill_null(pc.cast(encoded.indices, pa.int64()), -1))


def _integers(values: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    return np.asarray(one_array(values).to_numpy(zero_copy_only=False), np.int64)
