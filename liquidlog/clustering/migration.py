"""A partitioned table on its way to a clustered one: what it will be, and what forbids it.

The partition columns become columns of the data files. Everything else of the table stays.

Source: PROTOCOL.md, "Partition Value Serialization", "Clustered Table"; docs/adr/0027.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    ClusteringColumn,
    clustering_domain,
    resolve_columns,
)
from liquidlog.errors import UnsupportedFeatureError
from liquidlog.snapshot import FILES_SCHEMA, Snapshot, distinct_values, partition_values
from liquidlog.spec.actions import DomainMetadata, Metadata, Protocol
from liquidlog.spec.bounds import Bounds, BoundsOf, ColumnBounds
from liquidlog.spec.evolution import file_problems
from liquidlog.spec.features import clustering_upgrade, is_clustered
from liquidlog.spec.partitions import READ_AS, in_zone, partition_fields, untyped_values
from liquidlog.spec.schema import Leaf, Path

MIGRATION: Final = "REPLACE PARTITIONED BY"
"""The operation of its commit; Databricks has a statement of these words for the same."""
_UNIFORM: Final = "delta.universalFormat.enabledFormats"

_OF_CUBES: Final = ("zcube_id", "zorder_by", "clustering_provider")


def unpartitioned(snapshot: Snapshot) -> Snapshot:
    """Return the table as if it were not partitioned."""
    if not snapshot.metadata.partition_columns:
        return snapshot
    return replace(snapshot, metadata=structs.replace(snapshot.metadata, partition_columns=()))


def clustered_by(snapshot: Snapshot, columns: Sequence[ClusteringColumn]) -> Snapshot:
    """Return the table as if it were clustered by these columns, and not partitioned."""
    protocol = snapshot.protocol
    if not is_clustered(protocol):
        protocol = clustering_upgrade(protocol)
    domains = {**snapshot.domains, CLUSTERING_DOMAIN: clustering_domain(columns)}
    return replace(unpartitioned(snapshot), protocol=protocol, domains=domains)


def migrated(snapshot: Snapshot, requested: Sequence[Path]) -> Snapshot:
    """Return a partitioned table as it is after its files are rewritten; none is in a cube."""
    problems = tuple(_problems(snapshot))
    if problems:
        raise UnsupportedFeatureError(snapshot.uri, "migrated", problems)
    columns = resolve_columns(
        snapshot.schema,
        requested,
        configuration=snapshot.metadata.configuration,
        partition_columns=(),
    )
    files = snapshot.files
    for name in _OF_CUBES:
        place = FILES_SCHEMA.get_field_index(name)
        kind = FILES_SCHEMA.field(place)
        files = files.set_column(place, kind, pa.nulls(files.num_rows, kind.type))
    return replace(clustered_by(snapshot, columns), files=files, plain_files=None)


def defining_actions(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn]
) -> tuple[Protocol | Metadata | DomainMetadata, ...]:
    """Return the actions that turn partition columns into data, and cluster by these columns."""
    after = clustered_by(snapshot, columns)
    protocol = () if after.protocol == snapshot.protocol else (after.protocol,)
    return (*protocol, after.metadata, after.domains[CLUSTERING_DOMAIN])


def migration_parameters(snapshot: Snapshot, cluster_by: str) -> dict[str, object]:
    """Return the parameters of a migration in commitInfo; `cluster_by` is a JSON list of names."""
    former = list(snapshot.metadata.partition_columns)
    return {"oldPartitionBy": msgspec.json.encode(former).decode(), "clusterBy": cluster_by}


def bounds_with_values(snapshot: Snapshot, bounds_of: BoundsOf) -> BoundsOf:
    """Return a function like `bounds_of` that knows the partition values of files too."""
    partitions = {(name,) for name in snapshot.metadata.partition_columns}

    def bounds(columns: Sequence[Leaf]) -> Bounds:
        found = bounds_of(columns)
        known = (
            _of_values(snapshot, leaf, found.num_records) if leaf.logical in partitions else one
            for leaf, one in zip(columns, found.columns, strict=True)
        )
        return Bounds(columns=tuple(known), num_records=found.num_records)

    return bounds


def _of_values(snapshot: Snapshot, leaf: Leaf, num_records: pa.Array) -> ColumnBounds:
    values = partition_values(snapshot.files, leaf)
    nulls = pc.if_else(pa.array(values.is_null), num_records, pa.scalar(0, pa.int64()))
    return ColumnBounds(low=values.values, high=values.values, null_count=nulls)


def _problems(snapshot: Snapshot) -> Iterator[str]:
    partitions = snapshot.metadata.partition_columns
    configuration = snapshot.metadata.configuration
    yield from file_problems(partitions, configuration)
    if configuration.get(_UNIFORM):
        yield f"{_UNIFORM}, since tables of other formats are partitioned by the same columns"
    fields = partition_fields(snapshot.schema, partitions, where=snapshot.uri)
    documents = distinct_values(snapshot.files).documents
    names = {field.physical_name for field in fields}
    if any(set(document) != names for document in documents):
        yield f"partition values of other columns than {', '.join(partitions)}"
        return
    # Whatever the zone, a value in it has the same form.
    yield from untyped_values([in_zone(one, fields, READ_AS) for one in documents], fields)
