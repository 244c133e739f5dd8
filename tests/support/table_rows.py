"""All live rows of a table at a version, as our data reader sees them: what a plain scan would be.

liquidlog itself has no scan, as a rewrite reads group by group. This one is for comparing what it
reads with what others read, so it takes tables too that no rewrite would: partitioned ones.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.row_tracking import planned_row_tracking
from liquidlog.data.logical_file import LogicalFile
from liquidlog.errors import UnsupportedFeatureError
from liquidlog.log.store import TableStore
from liquidlog.plan import InputFile, PlannedDeletionVector, RowTracking
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.deletion_vectors import vector_path
from liquidlog.spec.mapping import mapping_mode


def live_rows(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return every live row, columns named and ordered as the table has them.

    Fields inside columns keep their physical names under column mapping.

    Raises:
        LiquidlogError: If a file cannot be read exactly.
    """
    parts = list(_parts(store, snapshot))
    return pa.concat_tables(parts) if parts else arrow_schema(snapshot.schema).empty_table()


def _parts(store: TableStore, snapshot: Snapshot) -> Iterator[pa.Table]:
    mapping = mapping_mode(snapshot.metadata.configuration)
    row_tracking = _hidden_columns(snapshot)
    names = arrow_schema(snapshot.schema).names
    values = snapshot.files["partition_values_json"].to_pylist()
    for source, described in zip(_inputs(snapshot), values, strict=True):
        vector = source.deletion_vector
        location = None if vector is None else vector_path(vector.descriptor)
        with LogicalFile.open(
            store.data_path(source.path),
            source,
            schema=snapshot.schema,
            mapping=mapping,
            vector_location=None if location is None else store.data_path(location),
            row_tracking=row_tracking,
            storage=store.storage,
        ) as file:
            rows = file.read()
        # Hidden columns come last.
        rows = rows.select(range(len(names))).rename_columns(names)
        yield _with_partitions(rows, snapshot, json.loads(described))


def _hidden_columns(snapshot: Snapshot) -> RowTracking | None:
    try:
        return planned_row_tracking(snapshot)
    except UnsupportedFeatureError:
        return None


def _inputs(snapshot: Snapshot) -> Iterator[InputFile]:
    files = snapshot.files
    columns = ("size", "num_records", "deletion_vector")
    rows = files.select(columns).to_pylist()
    for path, row, base, version in zip(
        decoded_paths(files).to_pylist(),
        rows,
        files["base_row_id"].to_pylist(),
        files["default_row_commit_version"].to_pylist(),
        strict=True,
    ):
        yield InputFile(
            path=path,
            size_bytes=row["size"],
            num_records=row["num_records"],
            deletion_vector=_planned(row["deletion_vector"]),
            base_row_id=base,
            default_row_commit_version=version,
        )


def _planned(vector: Mapping[str, Any] | None) -> PlannedDeletionVector | None:
    if vector is None:
        return None
    return PlannedDeletionVector(
        storage_type=vector["storageType"],
        path_or_inline_dv=vector["pathOrInlineDv"],
        offset=vector["offset"],
        size_bytes=vector["sizeInBytes"],
        cardinality=vector["cardinality"],
    )


def _with_partitions(
    rows: pa.Table, snapshot: Snapshot, values: Mapping[str, str | None]
) -> pa.Table:
    """Replace partition columns, which data files need not have, by what the log says."""
    physical = arrow_schema(snapshot.schema, physical=True).names
    for index, field in enumerate(rows.schema):
        if field.name in snapshot.metadata.partition_columns:
            value = partition_value(values.get(physical[index]), field.type)
            rows = rows.set_column(index, field, pa.repeat(value, rows.num_rows))
    return rows


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value as its type.

    Source: PROTOCOL.md, "Partition Value Serialization".
    """
    if not text:
        return pa.scalar(None, kind)
    if pa.types.is_binary(kind):
        return pa.scalar(text.encode(), kind)
    if pa.types.is_timestamp(kind):
        text = text.removesuffix("Z") + ("" if kind.tz is None else "Z")
    return pc.cast(pa.scalar(text), kind)
