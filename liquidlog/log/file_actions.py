"""File actions in the Parquet files of a checkpoint as rows of FILES_SCHEMA.

Source: PROTOCOL.md, "Checkpoint Schema".
"""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.snapshot import DELETION_VECTOR_TYPE, FILES_SCHEMA
from liquidlog.spec.actions import ZCUBE_ID, ZCUBE_ZORDER_BY

_READERS: Final = 4
"""Threads that decode row groups. Measured on two cores: 1.4 s alone, 0.8 s with two or four."""

_ADD_FIELDS: Final = (
    "path",
    "size",
    "modificationTime",
    "stats",
    "partitionValues",
    "tags",
    "clusteringProvider",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
)


def live_files(path: str) -> pa.Table:
    """Return the adds of a checkpoint or sidecar file in FILES_SCHEMA, in file order.

    Row groups are decoded by a few threads at once, each with its own handle.

    Raises:
        KeyError: If the file has no column `add`.
        pyarrow.ArrowException: If it cannot be read.
    """
    metadata = pq.read_metadata(path)

    def rows(group: int) -> pa.Table:
        with pq.ParquetFile(path, metadata=metadata) as file:
            return _files(file, file.schema_arrow, group)

    with ThreadPoolExecutor(_READERS) as pool:
        parts = list(pool.map(rows, range(metadata.num_row_groups)))
    return pa.concat_tables(parts) if parts else FILES_SCHEMA.empty_table()


def _files(file: pq.ParquetFile, schema: pa.Schema, group: int) -> pa.Table:
    _require(schema.field("add").type, pa.struct([]), "add")
    present = {f.name for f in schema.field("add").type}
    wanted = [f"add.{name}" for name in _ADD_FIELDS if name in present]
    if "stats_parsed" in present:
        wanted.append("add.stats_parsed")
    read = file.read_row_group(group, columns=wanted)
    adds = read["add"].combine_chunks()
    adds = adds.filter(pc.is_valid(adds))
    tags = _field(adds, "tags", pa.map_(pa.string(), pa.string()))
    columns = {
        "path": _field(adds, "path", pa.string()),
        "size": _field(adds, "size", pa.int64()),
        "modification_time": _field(adds, "modificationTime", pa.int64()),
        "stats": _stats(adds),
        "partition_values_json": _partition_values_json(adds),
        "tags_json": _tags_json(tags),
        "zcube_id": _tag(tags, ZCUBE_ID),
        "zorder_by": _tag(tags, ZCUBE_ZORDER_BY),
        "clustering_provider": _field(adds, "clusteringProvider", pa.string()),
        "deletion_vector": _deletion_vectors(adds),
        "base_row_id": _field(adds, "baseRowId", pa.int64()),
        "default_row_commit_version": _field(adds, "defaultRowCommitVersion", pa.int64()),
        "version": pa.nulls(len(adds), pa.int64()),
    }
    arrays = [pc.cast(columns[f.name], f.type) for f in FILES_SCHEMA]
    files = pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)
    # Parquet does not check that text is UTF-8, and whoever turns it into a str would fail.
    files.validate(full=True)
    return files


def _field(struct: pa.StructArray, name: str, data_type: pa.DataType) -> pa.Array:
    if struct.type.get_field_index(name) < 0:
        return pa.nulls(len(struct), data_type)
    values = pc.struct_field(struct, name)
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


def _deletion_vectors(adds: pa.StructArray) -> pa.Array:
    vectors = _field(adds, "deletionVector", DELETION_VECTOR_TYPE)
    children = [_field(vectors, f.name, f.type) for f in DELETION_VECTOR_TYPE]
    return pa.StructArray.from_arrays(
        children, fields=list(DELETION_VECTOR_TYPE), mask=pc.is_null(vectors)
    )


def _tag(tags: pa.Array, key: str) -> pa.Array:
    return pc.map_lookup(tags, pa.scalar(key, pa.string()), "first")


def _tags_json(tags: pa.Array) -> pa.Array:
    """Return tags as JSON. Files with exactly the two cube tags are rendered as columns."""
    keys = pa.array([ZCUBE_ID, ZCUBE_ZORDER_BY])
    cube, order = (_tag(tags, key.as_py()) for key in keys)
    plain = pc.and_(
        pc.equal(_entries(tags), len(keys)),
        pc.and_(pc.is_valid(cube), pc.is_valid(order)),
    )
    escaped = pc.replace_substring(pc.replace_substring(order, "\\", "\\\\"), '"', '\\"')
    simple = pc.and_(
        plain, pc.invert(pc.match_substring_regex(pc.fill_null(order, ""), r"[\x00-\x1f]"))
    )
    text = pc.binary_join_element_wise(
        f'{{"{ZCUBE_ID}":"', cube, f'","{ZCUBE_ZORDER_BY}":"', escaped, '"}', ""
    )
    odd = pc.and_(pc.is_valid(tags), pc.invert(simple))
    if not pc.any(odd).as_py():
        return pc.if_else(simple, text, pa.scalar(None, pa.string()))
    rendered = [
        json.dumps(dict(entry), ensure_ascii=False, separators=(",", ":"))
        for entry in tags.filter(odd).to_pylist()
    ]
    base = pc.if_else(simple, text, pa.scalar(None, pa.string()))
    return pc.replace_with_mask(base, odd, pa.array(rendered, pa.string()))


def _entries(maps: pa.Array) -> pa.Array:
    # list_value_length has no kernel for maps; the offsets of nulls are equal, so they count 0.
    return pa.array(np.diff(maps.offsets.to_numpy()), pa.int32())


def _partition_values_json(adds: pa.StructArray) -> pa.Array:
    values = _field(adds, "partitionValues", pa.map_(pa.string(), pa.string()))
    filled = pc.greater(_entries(values), 0)
    text = pa.array(["{}"] * len(values), pa.string())
    if not pc.any(filled).as_py():
        return text
    rendered = [
        json.dumps(dict(entry), ensure_ascii=False, separators=(",", ":"))
        for entry in values.filter(filled).to_pylist()
    ]
    return pc.replace_with_mask(text, filled, pa.array(rendered, pa.string()))


def _stats(adds: pa.StructArray) -> pa.Array:
    """Return the statistics as JSON; from the struct form where only that was written."""
    text = pc.cast(_field(adds, "stats", pa.string()), pa.large_string())
    if adds.type.get_field_index("stats_parsed") < 0:
        return text
    parsed = pc.struct_field(adds, "stats_parsed")
    missing = pc.and_(pc.is_null(text), pc.is_valid(parsed))
    if not pc.any(missing).as_py():
        return text
    rendered = [
        json.dumps(_present(row), ensure_ascii=False, default=_stat_value, allow_nan=False)
        for row in parsed.filter(missing).to_pylist()
    ]
    return pc.replace_with_mask(text, missing, pa.array(rendered, pa.large_string()))


def _present(value: Any) -> Any:  # noqa: ANN401  any value of a statistics struct
    if isinstance(value, dict):
        return {key: _present(child) for key, child in value.items() if child is not None}
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):  # noqa: PLR0124
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")  # noqa: PLR0124
    return value


def _stat_value(value: object) -> object:
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else "Z"
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return str(value)
