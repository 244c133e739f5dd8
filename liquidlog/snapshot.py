"""A table at one version: pure data, one row per live file.

Columns of `Snapshot.files` (FILES_SCHEMA): `path` is URI-encoded, as in the log; `size` is in
bytes; `modification_time` is in ms since the epoch; `num_records` is the physical row count;
`tags_json` has all tags, also the two that have columns of their own; `version` is the commit that
added the file, null if only a checkpoint names it; `statistics_row` locates the other statistics
(see Statistics). Null means absent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.spec.actions import (
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)
from liquidlog.spec.arrow import arrow_type, one_array
from liquidlog.spec.bounds import cast_where_possible, has_bounds
from liquidlog.spec.partitions import data_schema
from liquidlog.spec.paths import LogFile, canonical_paths, named_twice
from liquidlog.spec.schema import Leaf, StructType
from liquidlog.spec.text import Summary

DELETION_VECTOR_TYPE: Final = pa.struct(
    [
        pa.field("storageType", pa.string()),
        pa.field("pathOrInlineDv", pa.string()),
        pa.field("offset", pa.int32()),
        pa.field("sizeInBytes", pa.int32()),
        pa.field("cardinality", pa.int64()),
    ]
)

_REPEATED: Final = pa.dictionary(pa.int32(), pa.string())

FILES_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modification_time", pa.int64()),
        pa.field("num_records", pa.int64()),
        pa.field("partition_values_json", _REPEATED),
        pa.field("tags_json", _REPEATED),
        pa.field("zcube_id", _REPEATED),
        pa.field("zorder_by", _REPEATED),
        pa.field("clustering_provider", _REPEATED),
        pa.field("deletion_vector", DELETION_VECTOR_TYPE),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("version", pa.int64()),
        pa.field("statistics_row", pa.int64()),
    ]
)

STATISTICS_TYPE: Final = pa.large_string()
"""Raw statistics as JSON, null where a file has none."""

MAX_FILE_BYTES: Final = 1 << 50
"""Larger sizes are refused, since sums of them would overflow silently."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """The name of a checkpoint's Parquet file in the log directory, and its number of adds."""

    name: str
    adds: int


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Where the statistics of live files are, to be read on demand.

    `statistics_row` counts the adds of the `checkpoint` files in order, then the rows of `texts`,
    the raw statistics from commits.
    """

    checkpoint: tuple[CheckpointFile, ...] = ()
    texts: pa.ChunkedArray = field(default_factory=lambda: pa.chunked_array([], STATISTICS_TYPE))

    @property
    def rows(self) -> int:
        """Number of rows to which `statistics_row` can point."""
        return sum(file.adds for file in self.checkpoint) + len(self.texts)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Snapshot(Summary):
    """The state of a table at `version`.

    `files` has FILES_SCHEMA, sorted by path unless a caller reordered it; planners scan it in this
    order, below the directory `location`. `domains` has live domains only. `mark` is the commit's
    log file, or a checkpoint's if that is gone, None without a log. `plain_files` is `files` if all
    its paths are known to be canonical, else None. `notes` are for whoever plans a change.
    """

    uri: str
    location: str
    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    schema: StructType
    files: pa.Table
    domains: Mapping[str, DomainMetadata]
    transactions: Mapping[str, SetTransaction]
    statistics: Statistics = field(default_factory=Statistics)
    mark: LogFile | None = None
    plain_files: pa.Table | None = None
    notes: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether all paths of `files` are known to be canonical as they stand."""
        return self.plain_files is self.files

    def paths(self) -> pa.Array:
        """Return the decoded, canonical path per row of `files`."""
        return one_array(self.files["path"]) if self.plain else decoded_paths(self.files)

    @property
    def data_schema(self) -> StructType:
        """The columns in data files: all but the partition columns."""
        partitions = self.metadata.partition_columns
        physical = {f.physical_name for f in self.schema.fields if f.name in partitions}
        return data_schema(self.schema, physical)

    @property
    def size_bytes(self) -> int:
        """Total bytes of the live files."""
        return int(pc.sum(self.files["size"]).as_py() or 0)

    def _facts(self) -> Mapping[str, object]:
        return {
            "uri": self.uri,
            "version": self.version,
            "table_id": self.metadata.id,
            "columns": tuple(column.name for column in self.schema.fields),
            "files": self.files.num_rows,
            "size_bytes": self.size_bytes,
        }


def unsound(files: pa.Table, uri: str, *, plain: bool) -> tuple[str, ...]:
    """Return the problems of live files; if all paths are `plain`, no two of them are one file."""
    problems = []
    if files["path"].null_count or pc.any(pc.equal(files["path"], "")).as_py():
        problems.append("a live file has no path")
    sizes = pc.min_max(files["size"])
    if files["size"].null_count:
        problems.append("a live file has no size")
    ends = {sizes[end].as_py() or 0 for end in ("min", "max")}
    wrong = sorted(size for size in ends if not 0 <= size <= MAX_FILE_BYTES)
    problems.extend(f"a live file is said to have {size} bytes" for size in wrong)
    twice = () if plain else named_twice(one_array(files["path"]), uri)
    if twice:
        others = f" and {len(twice) - 1} more" if twice[1:] else ""
        problems.append(f"two live files are one file, spelled differently: {twice[0]}{others}")
    return tuple(problems)


def decoded_paths(files: pa.Table) -> pa.Array:
    """Return the decoded, canonical path per row of `files`."""
    return canonical_paths(one_array(files["path"]))


def deletion_vector(row: Mapping[str, Any] | None) -> DeletionVector | None:
    """Return a value of the column `deletion_vector`, None for null."""
    if row is None:
        return None
    return DeletionVector(
        storage_type=row["storageType"],
        path_or_inline_dv=row["pathOrInlineDv"],
        offset=row["offset"],
        size_in_bytes=row["sizeInBytes"],
        cardinality=row["cardinality"],
    )


def num_records(files: pa.Table) -> pa.Array:
    """Return the physical row count per file (int64), null if unknown."""
    return one_array(files["num_records"])


def deleted_rows(files: pa.Table) -> pa.Array:
    """Return the number of rows that deletion vectors delete per file (int64)."""
    vectors = one_array(files["deletion_vector"])
    return pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)


def logical_bytes(files: pa.Table) -> pa.Array:
    """Return bytes per file times its share of live rows, as Delta Spark's estLogicalFileSize."""
    rows = num_records(files)
    deleted = deleted_rows(files)
    size = one_array(files["size"])
    known = pc.and_(pc.is_valid(rows), pc.greater(pc.fill_null(rows, 0), 0))
    safe_rows = pc.if_else(known, rows, 1)
    ratio = pc.divide(
        pc.cast(pc.subtract(safe_rows, deleted), pa.float64()), pc.cast(safe_rows, pa.float64())
    )
    scaled = pc.cast(pc.floor(pc.multiply(pc.cast(size, pa.float64()), ratio)), pa.int64())
    touched = pc.and_(known, pc.greater(deleted, 0))
    return pc.if_else(touched, scaled, size)


# Values of partition columns: one per file, stored as text in the log
#
# Source: PROTOCOL.md, "Partition Value Serialization".

_NULL_TEXTS: Final = (None, "")


@dataclass(frozen=True, slots=True, eq=False)
class PartitionValues:
    """Values per file in the column's Arrow type; unparsable ones are null, but not `is_null`."""

    values: pa.Array
    is_null: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class DistinctValues:
    """Distinct partition values, as texts by physical name, and the `number` of each file's."""

    documents: tuple[dict[str, str | None], ...]
    number: NDArray[np.int64]


def distinct_values(files: pa.Table) -> DistinctValues:
    """Return the distinct partition values of live files."""
    encoded = one_array(files["partition_values_json"]).dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary))
    used, number = np.unique(codes.to_numpy(zero_copy_only=False), return_inverse=True)
    texts = [*encoded.dictionary.to_pylist(), None]
    documents = tuple(_document(texts[code]) for code in used.tolist())
    return DistinctValues(documents, number.astype(np.int64))


def partition_values(files: pa.Table, leaf: Leaf) -> PartitionValues:
    """Return the value of a partition column per live file."""
    encoded = one_array(files["partition_values_json"]).dictionary_encode()
    name = leaf.physical[-1]
    texts = [_text(document, name) for document in encoded.dictionary.to_pylist()]
    codes = pc.fill_null(encoded.indices, len(texts))
    values = pa.array([*texts, None], pa.string()).take(codes)
    wanted = arrow_type(leaf.data_type) if has_bounds(leaf.data_type) else pa.null()
    typed = pa.nulls(len(values), wanted)
    if wanted != pa.null():
        typed = cast_where_possible(values, wanted) if len(values) else typed
    return PartitionValues(typed, np.asarray(values.is_null()))


def _text(document: str | None, name: str) -> str | None:
    text = _document(document).get(name)
    return None if text in _NULL_TEXTS else text


def _document(text: str | None) -> dict[str, str | None]:
    values: dict[str, str | None] = msgspec.json.decode(text or "{}", type=dict[str, str | None])
    return values
