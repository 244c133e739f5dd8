"""File actions in the Parquet files of a checkpoint as rows of FILES_SCHEMA.

Source: PROTOCOL.md, "Checkpoint Schema".
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.log.adds import read_adds, struct_field
from liquidlog.snapshot import DELETION_VECTOR_TYPE, FILES_SCHEMA, STATISTICS_TYPE
from liquidlog.spec.actions import ZCUBE_ID, ZCUBE_ZORDER_BY
from liquidlog.spec.bounds_json import record_counts
from liquidlog.spec.json_texts import json_objects, map_values
from liquidlog.spec.schema import Path
from liquidlog.storage.files import Source

_MAP: Final = pa.map_(pa.string(), pa.string())

_ADD_FIELDS: Final[tuple[Path, ...]] = (
    ("path",),
    ("size",),
    ("modificationTime",),
    ("stats",),
    ("stats_parsed", "numRecords"),
    ("partitionValues",),
    ("tags",),
    ("clusteringProvider",),
    ("deletionVector",),
    ("baseRowId",),
    ("defaultRowCommitVersion",),
)


def live_files(open_file: Callable[[], Source]) -> pa.Table:
    """Return the adds of a checkpoint or sidecar file in FILES_SCHEMA, in file order.

    `statistics_row` counts them from 0.
    """
    files = pa.concat_tables(
        [FILES_SCHEMA.empty_table(), *read_adds(open_file, _ADD_FIELDS, _files)]
    )
    rows = pa.array(np.arange(files.num_rows))
    return files.set_column(files.schema.get_field_index("statistics_row"), "statistics_row", rows)


def _files(adds: pa.StructArray) -> pa.Table:
    tags = struct_field(adds, "tags", _MAP)
    partition_values = struct_field(adds, "partitionValues", _MAP)
    columns = {
        "path": struct_field(adds, "path", pa.string()),
        "size": struct_field(adds, "size", pa.int64()),
        "modification_time": struct_field(adds, "modificationTime", pa.int64()),
        "num_records": _num_records(adds),
        "partition_values_json": _partition_values_json(partition_values),
        "tags_json": json_objects(tags),
        "zcube_id": map_values(tags, ZCUBE_ID),
        "zorder_by": map_values(tags, ZCUBE_ZORDER_BY),
        "clustering_provider": struct_field(adds, "clusteringProvider", pa.string()),
        "deletion_vector": _deletion_vectors(adds),
        "base_row_id": struct_field(adds, "baseRowId", pa.int64()),
        "default_row_commit_version": struct_field(adds, "defaultRowCommitVersion", pa.int64()),
        "version": pa.nulls(len(adds), pa.int64()),
        "statistics_row": pa.nulls(len(adds), pa.int64()),
    }
    arrays = [pc.cast(columns[f.name], f.type) for f in FILES_SCHEMA]
    files = pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)
    # Parquet does not check that text is UTF-8; invalid text would fail later, when it becomes a
    # str.
    files.validate(full=True)
    return files


def _partition_values_json(values: pa.MapArray) -> pa.Array:
    texts = json_objects(values)
    return pc.fill_null(pc.cast(texts, pa.string()), "{}") if texts.null_count else texts


def _num_records(adds: pa.StructArray) -> pa.Array:
    texts = struct_field(adds, "stats", STATISTICS_TYPE)
    parsed = struct_field(adds, "stats_parsed", pa.null())
    counts = record_counts(texts)
    if not pa.types.is_struct(parsed.type):
        return counts
    there = struct_field(parsed, "numRecords", pa.int64())
    return pc.if_else(texts.is_null(), there, counts)


def _deletion_vectors(adds: pa.StructArray) -> pa.Array:
    vectors = struct_field(adds, "deletionVector", DELETION_VECTOR_TYPE)
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), DELETION_VECTOR_TYPE)
    children = [struct_field(vectors, f.name, f.type) for f in DELETION_VECTOR_TYPE]
    return pa.StructArray.from_arrays(
        children, fields=list(DELETION_VECTOR_TYPE), mask=pc.is_null(vectors)
    )
