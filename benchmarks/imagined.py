"""Imagined files: nobody wrote them, but planners and measures see them as live in a snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.clustering.columns import CLUSTERING_DOMAIN, PROVIDER
from liquidlog.snapshot import DELETION_VECTOR_TYPE, FILES_SCHEMA, Snapshot
from liquidlog.spec.actions import DomainMetadata, Format, Metadata
from liquidlog.spec.features import new_table_protocol
from liquidlog.spec.schema import PrimitiveType, StructField, StructType, schema_json

Points = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImaginedFiles:
    """Files that exist only in a simulation; all arrays have one entry per file.

    `paths` has strings, `size_bytes` int64. `num_records` (int64) counts physical rows and is null
    if unknown; `deleted_rows` (int64) counts those that a deletion vector deletes. `zcube_id` has
    the string id of each file's cube, null outside cubes. If the last two are omitted, no file has
    deleted rows or a cube.
    """

    paths: pa.StringArray
    size_bytes: NDArray[np.int64]
    num_records: pa.Array
    deleted_rows: NDArray[np.int64] | None = None
    zcube_id: pa.StringArray | None = None


def imagined_table(columns: Sequence[str], files: ImaginedFiles) -> Snapshot:
    """Return a table that consists of `files`, clustered by `columns` of type double.

    Its cubes are clustered by all columns. It has no statistics; callers pass bounds separately.
    """
    schema = StructType(tuple(StructField(name, PrimitiveType("double")) for name in columns))
    domain = msgspec.json.encode({"clusteringColumns": [[name] for name in columns]}).decode()
    return Snapshot(
        uri="simulation",
        location="simulation",
        version=0,
        timestamp_ms=0,
        protocol=new_table_protocol(clustered=True),
        metadata=Metadata(
            id="simulation",
            format=Format(provider="parquet", options={}),
            schema_string=schema_json(schema),
            partition_columns=(),
            configuration={},
            created_time=0,
        ),
        schema=schema,
        files=_live_files(files, msgspec.json.encode(list(columns)).decode()),
        domains={
            CLUSTERING_DOMAIN: DomainMetadata(
                domain=CLUSTERING_DOMAIN, configuration=domain, removed=False
            )
        },
        transactions={},
    )


def _live_files(files: ImaginedFiles, zorder_by: str | None) -> pa.Table:
    """Return the files in FILES_SCHEMA; `zorder_by` is the tag of files that are in a cube."""
    count = len(files.paths)
    columns = {"path": files.paths, "size": files.size_bytes, "num_records": files.num_records}
    if files.zcube_id is not None:
        in_cube = files.zcube_id.is_valid()
        columns["zcube_id"] = files.zcube_id.dictionary_encode()
        columns["zorder_by"] = _repeated(zorder_by, in_cube)
        columns["clustering_provider"] = _repeated(PROVIDER, in_cube)
    if files.deleted_rows is not None:
        vectors = [_vector(rows) if rows else None for rows in files.deleted_rows.tolist()]
        columns["deletion_vector"] = pa.array(vectors, DELETION_VECTOR_TYPE)
    return pa.table(
        [columns.get(field.name, pa.nulls(count, field.type)) for field in FILES_SCHEMA],
        schema=FILES_SCHEMA,
    )


def _repeated(text: str | None, mask: pa.BooleanArray) -> pa.DictionaryArray:
    """Return the text where `mask` is true, null elsewhere."""
    absent = ~np.asarray(mask, np.bool_)
    codes = pa.array(np.zeros(len(mask), np.int32), mask=absent)
    return pa.DictionaryArray.from_arrays(codes, pa.array([text], pa.string()))


def _vector(deleted_rows: int) -> dict[str, object]:
    return {
        "storageType": "u",
        "pathOrInlineDv": "simulated",
        "offset": 1,
        "sizeInBytes": 1,
        "cardinality": deleted_rows,
    }
