"""File actions in the Parquet files of a checkpoint as rows of FILES_SCHEMA.

Row groups are read in batches, each reduced to what FILES_SCHEMA keeps before the next one comes,
so that neither the statistics of all files nor a whole row group are ever in memory.

Source: PROTOCOL.md, "Checkpoint Schema".
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.log.json_maps import json_objects, map_values
from liquidlog.snapshot import DELETION_VECTOR_TYPE, FILES_SCHEMA, STATISTICS_TYPE
from liquidlog.spec.actions import ZCUBE_ID, ZCUBE_ZORDER_BY
from liquidlog.spec.schema import Path
from liquidlog.spec.stats import record_counts
from liquidlog.storage.files import Source

_READERS: Final = 2
_BATCH_FILES: Final = 32_768
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

    Raises:
        KeyError: If the file has no column `add`.
        pyarrow.ArrowException: If it cannot be read.
    """
    files = pa.concat_tables(
        [FILES_SCHEMA.empty_table(), *read_adds(open_file, _ADD_FIELDS, _files)]
    )
    rows = pa.array(np.arange(files.num_rows))
    return files.set_column(files.schema.get_field_index("statistics_row"), "statistics_row", rows)


def read_adds(
    open_file: Callable[[], Source],
    fields: Sequence[Path],
    convert: Callable[[pa.StructArray], pa.Table],
) -> list[pa.Table]:
    """Return `convert` of the adds of a Parquet file, batch after batch, in file order.

    The structs have those of `fields` that the file has, named by their paths below `add`.
    A few threads share the row groups, each with its own handle.

    Raises:
        KeyError: If the file has no column `add`.
        pyarrow.ArrowException: If it cannot be read.
    """
    with pq.ParquetFile(open_file()) as file:
        metadata = file.metadata
    wanted = _wanted(metadata, fields)

    def batches(group: int) -> list[pa.Table]:
        with pq.ParquetFile(
            open_file(), metadata=metadata, coerce_int96_timestamp_unit="us"
        ) as file:
            read = file.iter_batches(
                _BATCH_FILES, row_groups=[group], columns=wanted, use_threads=False
            )
            return [convert(adds) for adds in _adds(read)]

    with ThreadPoolExecutor(_READERS) as pool:
        groups = pool.map(batches, range(metadata.num_row_groups))
        return [table for group in groups for table in group]


def struct_field(struct: pa.StructArray, name: str, data_type: pa.DataType) -> pa.Array:
    """Return a field of structs as `data_type`, null where a struct or the field is not there.

    Nested types must be of that kind only; the null type stands for whatever is found.

    Raises:
        pyarrow.ArrowException: If it is of another type.
    """
    if struct.type.get_field_index(name) < 0:
        return pa.nulls(len(struct), data_type)
    values = pc.struct_field(struct, name)
    if pa.types.is_null(data_type):
        return values
    if pa.types.is_nested(data_type):
        _require(values.type, data_type, f"add.{name}")
        return values
    return pc.cast(values, data_type)


def _require(found: pa.DataType, expected: pa.DataType, name: str) -> None:
    """Refuse a column of another kind.

    Raises:
        ArrowTypeError: Naming the column and the type that the file gives it.
    """
    if found.id != expected.id:
        raise pa.ArrowTypeError(f"the column {name} is of type {str(found)[:80]}")


def _adds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.StructArray]:
    for batch in batches:
        adds = batch.column("add")
        kept = adds.filter(adds.is_valid()) if adds.null_count else adds
        if len(kept):
            yield kept


def _wanted(metadata: pq.FileMetaData, fields: Sequence[Path]) -> list[str]:
    add = metadata.schema.to_arrow_schema().field("add").type
    _require(add, pa.struct([]), "add")
    return [".".join(("add", *path)) for path in fields if _has_field(add, path)]


def _has_field(kind: pa.DataType, path: Path) -> bool:
    for part in path:
        position = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        if position < 0:
            return False
        kind = kind.field(position).type
    return True


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
    # Parquet does not check that text is UTF-8, and whoever turns it into a str would fail.
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
