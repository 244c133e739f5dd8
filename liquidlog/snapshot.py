"""A table at one version: one row per live file, and how log actions become that.

Columns of `Snapshot.files` (FILES_SCHEMA): `path` is URI-encoded, as in the log; `size` is in
bytes; `modification_time` is in ms since the epoch; `num_records` is the physical row count;
`tags_json` has all tags, also the two with their own columns; `version` is the commit that added
the file, null if only a checkpoint names it; `statistics_row` locates the other statistics (see
Statistics). Null means absent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.spec.actions import (
    ZCUBE_ID,
    ZCUBE_ZORDER_BY,
    AddFile,
    AnyAction,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    FileKey,
    LogFile,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    canonical_paths,
    named_twice,
    normal_paths,
    replay_key,
    vector_id,
)
from liquidlog.spec.arrow import arrow_type, data_schema, one_array
from liquidlog.spec.bounds import cast_where_possible, has_bounds, record_counts
from liquidlog.spec.schema import Leaf, StructType
from liquidlog.spec.text import Summary, json_text

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
    """Where the statistics of live files are, which are read on demand.

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
    order. `location` is the directory of the files. `domains` has live domains only. `mark` is the
    log file of the commit, or of a checkpoint if that is gone, None without a log. `plain_files` is
    `files` if all its paths are known to be canonical, else None. `notes` are hints for a planner.
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
        return one_array(self.files["path"]) if self.plain else decoded_paths(self.files)

    @property
    def data_schema(self) -> StructType:
        partitions = self.metadata.partition_columns
        physical = {f.physical_name for f in self.schema.fields if f.name in partitions}
        return data_schema(self.schema, physical)

    @property
    def size_bytes(self) -> int:
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
    """Return the problems of live files; if all paths are `plain`, no two can be one file."""
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
    return canonical_paths(one_array(files["path"]))


def deletion_vector(row: Mapping[str, Any] | None) -> DeletionVector | None:
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
    encoded = one_array(files["partition_values_json"]).dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary))
    used, number = np.unique(codes.to_numpy(zero_copy_only=False), return_inverse=True)
    texts = [*encoded.dictionary.to_pylist(), None]
    documents = tuple(_document(texts[code]) for code in used.tolist())
    return DistinctValues(documents, number.astype(np.int64))


def partition_values(files: pa.Table, leaf: Leaf) -> PartitionValues:
    encoded = one_array(files["partition_values_json"]).dictionary_encode()
    name = leaf.physical[-1]
    # The protocol reads "" as null.
    texts = [_document(text).get(name) or None for text in encoded.dictionary.to_pylist()]
    codes = pc.fill_null(encoded.indices, len(texts))
    values = pa.array([*texts, None], pa.string()).take(codes)
    wanted = arrow_type(leaf.data_type) if has_bounds(leaf.data_type) else pa.null()
    typed = pa.nulls(len(values), wanted)
    if wanted != pa.null() and len(values):
        typed = cast_where_possible(values, wanted)
    return PartitionValues(typed, np.asarray(values.is_null()))


def _document(text: str | None) -> dict[str, str | None]:
    values: dict[str, str | None] = msgspec.json.decode(text or "{}", type=dict[str, str | None])
    return values


# The newest action about a file, a domain or an application wins; within one commit the last line
# wins, as in the reference engine. A file is the pair (normal path, deletion vector id). Source:
# PROTOCOL.md, "Action Reconciliation".


@dataclass(slots=True)
class TailState:
    """The state after the commits that follow a checkpoint, filled from newest to oldest."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    files: dict[FileKey, tuple[int, AddFile] | None] = field(default_factory=dict)

    def take(self, version: int, actions: Sequence[AnyAction]) -> None:
        """Add the next older commit; newer actions win."""
        for action in reversed(actions):
            match action:
                case AddFile():
                    self.files.setdefault(replay_key(action), (version, action))
                case RemoveFile():
                    self.files.setdefault(replay_key(action), None)
                case Metadata():
                    self.metadata = self.metadata or action
                case Protocol():
                    self.protocol = self.protocol or action
                case DomainMetadata():
                    self.domains.setdefault(action.domain, action)
                case SetTransaction():
                    self.transactions.setdefault(action.app_id, action)
                case CommitInfo():
                    pass


def replay_tail(commits: Iterable[tuple[int, Sequence[AnyAction]]]) -> TailState:
    """Return the state after commits, given as (version, actions), newest first."""
    state = TailState()
    for version, actions in commits:
        state.take(version, actions)
    return state


def reconciled_files(
    decided: TailState, checkpoint: pa.Table, first_row: int, *, plain: bool = False
) -> pa.Table:
    """Return the live files in FILES_SCHEMA by path, with statistics rows from `first_row` on."""
    added = tail_files(decided, first_row)
    files = pa.concat_tables([added, checkpoint])
    return sorted_files(files, decided, after=added.num_rows, plain=plain)


def tail_files(decided: TailState, first_row: int = 0) -> pa.Table:
    """Return the files that commits added and did not remove, in FILES_SCHEMA."""
    live = [entry for entry in decided.files.values() if entry is not None]
    adds = [add for _, add in live]
    columns = {
        "path": [add.path for add in adds],
        "size": [add.size for add in adds],
        "modification_time": [add.modification_time for add in adds],
        "num_records": record_counts(tail_statistics(decided)),
        "partition_values_json": [json_text(add.partition_values or {}) for add in adds],
        "tags_json": [None if add.tags is None else json_text(add.tags) for add in adds],
        "zcube_id": [(add.tags or {}).get(ZCUBE_ID) for add in adds],
        "zorder_by": [(add.tags or {}).get(ZCUBE_ZORDER_BY) for add in adds],
        "clustering_provider": [add.clustering_provider for add in adds],
        "deletion_vector": [msgspec.to_builtins(add.deletion_vector) for add in adds],
        "base_row_id": [add.base_row_id for add in adds],
        "default_row_commit_version": [add.default_row_commit_version for add in adds],
        "version": [version for version, _ in live],
        "statistics_row": list(range(first_row, first_row + len(live))),
    }
    return pa.table(columns, schema=FILES_SCHEMA)


def tail_statistics(decided: TailState) -> pa.Array:
    """Return the raw statistics of `tail_files`, in the same order."""
    live = (entry for entry in decided.files.values() if entry is not None)
    return pa.array([add.stats for _, add in live], STATISTICS_TYPE)


def sorted_files(
    files: pa.Table, decided: TailState | None = None, *, after: int = 0, plain: bool = False
) -> pa.Table:
    """Return files by path, one chunk per column; from `after` on, without those in `decided`."""
    paths = one_array(files["path"])
    order = path_order(paths)
    if decided is not None and decided.files:
        gone = after + _decided_rows(files.slice(after), decided, plain=plain)
        kept = np.ones(files.num_rows, np.bool_)
        kept[gone] = False
        order = order[kept[order]]
    # pa.array would import numpy.ma, which nothing else here needs.
    rows = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
    # Column by column, so that only one is in memory three times; paths are half of all bytes.
    columns = {"path": paths.take(rows)}
    del paths
    pa.default_memory_pool().release_unused()
    for name in files.schema.names[1:]:
        column = files[name]
        all_null = column.null_count == len(column)
        columns[name] = (
            pa.nulls(len(rows), column.type) if all_null else one_array(column).take(rows)
        )
    return pa.table(columns, schema=files.schema)


def _decided_rows(files: pa.Table, decided: TailState, *, plain: bool) -> NDArray[np.int64]:
    known = pa.array({path for path, _ in decided.files}, pa.string())
    touched = pc.is_in(files["path"] if plain else normal_paths(files["path"]), known)
    # A filter works chunk by chunk; `take` would first copy everything into one chunk.
    suspects = files.select(["path", "deletion_vector"]).filter(touched)
    keys = file_keys(suspects, normal_paths(suspects["path"]))
    gone = np.array([key in decided.files for key in keys], np.bool_)
    return np.flatnonzero(touched)[gone]


def file_keys(files: pa.Table, paths: pa.Array | pa.ChunkedArray | None = None) -> list[FileKey]:
    """Return the `file_key` per row, by other `paths` if they are given; slow, for a few files."""
    names = (decoded_paths(files) if paths is None else paths).to_pylist()
    vectors = map(deletion_vector, files["deletion_vector"].to_pylist())
    return [(name, vector_id(vector)) for name, vector in zip(names, vectors, strict=True)]


_WORD: Final = 8
_BITS: Final = 8 * _WORD


def path_order(paths: pa.StringArray) -> NDArray[np.int64]:
    """Return the positions (int64) that sort `paths` by their bytes, stably; a null is empty.

    Words of eight bytes are sorted as numbers, much faster than Arrow compares whole texts.
    """
    order = np.arange(len(paths))
    if not len(paths):
        return order
    paths = paths.fill_null("") if paths.null_count else paths
    starts, ends, text = _bounds(paths)
    position = _shared_bytes(paths)
    longest = int((ends - starts).max())
    # Slots of `order` with rows that are equal so far, and the group of equal rows of each slot.
    slots = order.copy()
    group = np.zeros(len(paths), np.int64)
    while len(slots) and position < longest:
        rows = order[slots]
        # One key sorts faster than two: the group, then as many bytes as fit beside it.
        count = (_BITS - int(group[-1]).bit_length()) // 8
        keys = _words(starts[rows] + position, ends[rows], text) >> np.uint64(_BITS - 8 * count)
        if group[-1]:
            keys |= group.astype(np.uint64) << np.uint64(8 * count)
        sorting = np.argsort(keys, kind="stable")
        order[slots] = rows[sorting]
        keys = keys[sorting]
        same = keys[1:] == keys[:-1]
        tied = np.append(same, False) | np.append(False, same)
        group = np.cumsum(~np.append(False, same))[tied]
        slots = slots[tied]
        position += count
    return order


def _bounds(
    paths: pa.StringArray,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    _, offsets, data = paths.buffers()
    ends = np.frombuffer(offsets, np.int32)[paths.offset : paths.offset + len(paths) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    if len(text) < _WORD:
        text = np.append(text, np.zeros(_WORD, np.uint8))
    bounds = ends.astype(np.int64)
    return bounds[:-1], bounds[1:], text


def _shared_bytes(paths: pa.StringArray) -> int:
    """Return how many leading bytes the first and last path share, and so all between them."""
    ends = pc.min_max(paths).as_py()
    first, last = ((ends[end] or "").encode() for end in ("min", "max"))
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(last)))


def _words(
    starts: NDArray[np.int64], ends: NDArray[np.int64], text: NDArray[np.uint8]
) -> NDArray[np.uint64]:
    """Return, per start, eight bytes of `text` as a number, padded with zeros at its end."""
    inside = np.minimum(starts, len(text) - _WORD)
    windows = np.lib.stride_tricks.sliding_window_view(text, _WORD)
    words = windows[inside].view(">u8").ravel().astype(np.uint64)
    words <<= ((starts - inside) * 8 % _BITS).astype(np.uint64)
    missing = np.clip(_WORD - (ends - starts), 0, _WORD)
    words &= ~np.uint64(0) << (missing * 8 % _BITS).astype(np.uint64)
    words[missing == _WORD] = 0
    return words
