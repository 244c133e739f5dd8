"""Read a checkpoint into the table's state; refuse implausible files, which may hold terabytes.

Before anything is decoded, the rows and bytes that the footer claims are compared with the file's
size. If text could still grow beyond bounds, the length of every text is measured while it is in
dictionaries, which hold a repeated value once.

Source: PROTOCOL.md, "Checkpoints", "Checkpoint Schema", "V2 Spec", "Per-file Statistics".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.errors import CorruptLogError
from liquidlog.snapshot import (
    DELETION_VECTOR_TYPE,
    FILES_SCHEMA,
    STATISTICS_TYPE,
    CheckpointFile,
    Statistics,
    TailState,
    replay_tail,
    tail_files,
    tail_statistics,
)
from liquidlog.spec.actions import (
    SIDECAR_DIR,
    ZCUBE_ID,
    ZCUBE_ZORDER_BY,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    Sidecar,
    are_plain,
    decode_line,
    decode_sidecar_line,
    log_path,
    parse_log_file,
)
from liquidlog.spec.arrow import Calendars, json_objects, map_values
from liquidlog.spec.bounds import record_counts
from liquidlog.spec.schema import Path
from liquidlog.storage.files import Source, TableStore

_ROWS_PER_BYTE: Final = 8
_ROWS_ALWAYS: Final = 1 << 16
"""Most rows per stored byte, besides rows that are always accepted: each row takes some bytes."""
_PAGES_RATIO: Final = 1024
_TEXT_RATIO: Final = 64
_BYTES_ALWAYS: Final = 1 << 26
"""How many bytes each stored byte may decode to, besides bytes that are always accepted."""
_MEASURED_BYTES: Final = 1 << 24
"""Text of larger files is not measured: they fill the sender's disk before our memory."""
_GROWING: Final = frozenset({"DELTA_BYTE_ARRAY"})
"""Encodings, besides dictionaries, in which a value can repeat its predecessor."""


def implausible(open_file: Callable[[], Source]) -> str | None:
    """Return why a Parquet file cannot be part of a checkpoint, None if it is plausible."""
    with pq.ParquetFile(open_file()) as file:
        metadata = file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(column) for group in groups for column in range(group.num_columns)]
    stored = sum(chunk.total_compressed_size for chunk in chunks)
    decoded = sum(chunk.total_uncompressed_size for chunk in chunks)
    if any(min(c.total_compressed_size, c.total_uncompressed_size) < 0 for c in chunks):
        return "its footer claims columns of negative size"
    if metadata.num_rows > stored * _ROWS_PER_BYTE + _ROWS_ALWAYS:
        return f"it claims {metadata.num_rows} rows in {stored} bytes"
    if decoded > stored * _PAGES_RATIO + _BYTES_ALWAYS:
        return f"it claims {decoded} bytes in {stored} bytes"
    limit = stored * _TEXT_RATIO + _BYTES_ALWAYS
    text = [c for c in chunks if c.physical_type == "BYTE_ARRAY"]
    numbers = sum(c.num_values for c in chunks if c.physical_type != "BYTE_ARRAY")
    most = 16 * numbers + sum(c.num_values * c.total_uncompressed_size for c in text)
    if stored > _MEASURED_BYTES or most <= limit:
        return None
    if any(_GROWING & set(c.encodings) for c in text):
        return "its text is encoded in a way that can grow beyond bounds"
    length = _text_bytes(open_file, sorted({c.path_in_schema for c in text}), limit)
    return None if length <= limit else f"its {stored} bytes stand for more than {limit} of text"


def _text_bytes(open_file: Callable[[], Source], columns: list[str], limit: int) -> int:
    total = 0
    with pq.ParquetFile(open_file(), read_dictionary=columns) as file:
        for group in range(file.num_row_groups):
            for column in columns:
                read = file.read_row_group(group, columns=[column], use_threads=False)
                total += sum(_length(chunk) for chunk in read.column(0).chunks)
                if total > limit:
                    return total
    return total


def _length(array: pa.Array) -> int:
    if pa.types.is_dictionary(array.type):
        lengths = pc.cast(pc.binary_length(array.dictionary), pa.int64())
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if pa.types.is_map(array.type):
        return _length(array.keys) + _length(array.items)
    if pa.types.is_list(array.type):
        return _length(array.values)
    if pa.types.is_struct(array.type):
        # Flattened, the required fields of a null struct are null. Otherwise they would be values
        # that point into a dictionary, which may be empty.
        return sum(map(_length, array.flatten()))
    return 0


Read = TypeVar("Read")

_READERS: Final = 2
_BATCH_FILES: Final = 8_192


def read_adds(
    open_file: Callable[[], Source],
    fields: Sequence[Path],
    convert: Callable[[pa.StructArray], Read],
    readers: int = _READERS,
) -> list[Read]:
    """Return `convert` of the adds in a Parquet file, one result per batch, in file order.

    Adds have those `fields` (paths below `add`) that the file has, without bounds that another
    calendar may have moved. Each batch is converted before the next one is read.
    """
    with pq.ParquetFile(open_file()) as file:
        metadata = file.metadata
    wanted = _wanted(metadata, fields)
    calendars = Calendars.of(metadata.metadata)

    def batches(group: int) -> list[Read]:
        with pq.ParquetFile(
            open_file(), metadata=metadata, coerce_int96_timestamp_unit="us"
        ) as file:
            read = file.iter_batches(
                _BATCH_FILES, row_groups=[group], columns=wanted, use_threads=False
            )
            found = _adds(read)
            if not calendars.are_todays:
                found = map(calendars.bounds, found)
            return [convert(adds) for adds in found]

    with ThreadPoolExecutor(readers) as pool:
        groups = pool.map(batches, range(metadata.num_row_groups))
        return [batch for group in groups for batch in group]


def read_statistics(
    store: TableStore,
    file: CheckpointFile,
    fields: Sequence[Path],
    convert: Callable[[pa.StructArray], Read],
    *,
    of_few: bool = False,
) -> list[Read]:
    """Return `convert` of the adds in a checkpoint file, one result per batch, in file order."""
    # For few files, one thread reads one row group at a time.
    readers = 1 if of_few else _READERS
    where = log_path(file.name)
    try:
        parts = read_adds(
            lambda: store.open_log(file.name),
            fields,
            lambda adds: (len(adds), convert(adds)),
            readers,
        )
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorruptLogError(where, f"its statistics cannot be read: {error}") from error
    if sum(count for count, _ in parts) != file.adds:
        raise CorruptLogError(where, "it was replaced while it was read")
    return [part for _, part in parts]


def struct_field(struct: pa.StructArray, name: str, data_type: pa.DataType) -> pa.Array:
    """Return a field of structs as `data_type`, with the null type as it is, or nulls."""
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
    """Return the adds of a checkpoint or sidecar file in FILES_SCHEMA, numbered in file order."""
    files = pa.concat_tables(
        [FILES_SCHEMA.empty_table(), *read_adds(open_file, _ADD_FIELDS, _files)]
    )
    rows = pa.array(np.arange(files.num_rows))
    return files.set_column(files.schema.get_field_index("statistics_row"), "statistics_row", rows)


def _files(adds: pa.StructArray) -> pa.Table:
    tags = struct_field(adds, "tags", _MAP)
    values = json_objects(struct_field(adds, "partitionValues", _MAP))
    if values.null_count:
        values = pc.fill_null(pc.cast(values, pa.string()), "{}")
    columns = {
        "path": struct_field(adds, "path", pa.string()),
        "size": struct_field(adds, "size", pa.int64()),
        "modification_time": struct_field(adds, "modificationTime", pa.int64()),
        "num_records": _num_records(adds),
        "partition_values_json": values,
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
    # Parquet does not check that text is UTF-8; invalid text would fail later.
    files.validate(full=True)
    return files


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


_ACTIONS: Final[Mapping[str, tuple[type, str]]] = {
    "protocol": (Protocol, "minReaderVersion"),
    "metaData": (Metadata, "id"),
    "domainMetadata": (DomainMetadata, "domain"),
    "txn": (SetTransaction, "appId"),
    "sidecar": (Sidecar, "path"),
}
"""The kinds of actions besides files, each with a field that is never null."""


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The table's state in a checkpoint; `files` has FILES_SCHEMA, `plain` if all paths are."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    files: pa.Table = field(default_factory=FILES_SCHEMA.empty_table)
    statistics: Statistics = field(default_factory=Statistics)
    plain: bool = False


_Part = tuple[TailState, pa.Table, Statistics]
"""The rare actions of a checkpoint's file, and its live files."""


def read_checkpoint(store: TableStore, names: Sequence[str]) -> CheckpointState:
    """Return the state in a checkpoint; `names` has all parts of a multi-part checkpoint."""
    parts = []
    for name in names:
        try:
            parts.append((_read_json if name.endswith(".json") else _read)(store, name))
        except (pa.ArrowException, OSError, KeyError, msgspec.MsgspecError) as error:
            detail = f"is not a readable checkpoint: {error}"
            raise CorruptLogError(log_path(name), detail) from error
    states = [state for state, _, _ in parts]
    files, statistics = _joined([(files, statistics) for _, files, statistics in parts])
    return CheckpointState(
        protocol=next((one.protocol for one in states if one.protocol), None),
        metadata=next((one.metadata for one in states if one.metadata), None),
        domains={key: value for one in states for key, value in one.domains.items()},
        transactions={key: value for one in states for key, value in one.transactions.items()},
        files=files,
        statistics=statistics,
        plain=all(map(are_plain, files["path"].chunks)),
    )


def _joined(parts: Sequence[tuple[pa.Table, Statistics]]) -> tuple[pa.Table, Statistics]:
    """Return the files of several pieces as one table; their statistics rows are renumbered."""
    # Only one piece may have statistics as text: the top-level file of a checkpoint in JSON.
    pieces = sorted(parts, key=lambda part: len(part[1].texts))
    first = 0
    files = []
    for table, statistics in pieces:
        position = table.schema.get_field_index("statistics_row")
        rows = pc.add(table["statistics_row"], first)
        files.append(table.set_column(position, "statistics_row", rows))
        first += statistics.rows
    return pa.concat_tables(files), Statistics(
        tuple(file for _, statistics in pieces for file in statistics.checkpoint),
        pieces[-1][1].texts,
    )


def _require_plausible(store: TableStore, name: str) -> None:
    problem = implausible(lambda: store.open_log(name))
    if problem is not None:
        raise CorruptLogError(log_path(name), f"is not a plausible checkpoint: {problem}")


def _read(store: TableStore, name: str) -> _Part:
    _require_plausible(store, name)
    with pq.ParquetFile(store.open_log(name)) as file:
        actions = _actions(file, file.schema_arrow)
        has_adds = "add" in file.schema_arrow.names
    own = (FILES_SCHEMA.empty_table(), Statistics())
    named = parse_log_file(name, 0, 0)
    # If other files may have the adds, this one may lack the column `add`.
    is_partial = bool(actions["sidecar"]) or (named is not None and named.parts > 1)
    if has_adds or not is_partial:
        own = _parquet_files(store, name)
    sidecars = (_read_sidecar(store, sidecar) for sidecar in actions["sidecar"])
    files, statistics = _joined([own, *sidecars])
    rare = [action for kind in _ACTIONS if kind != "sidecar" for action in actions[kind]]
    return replay_tail([(0, rare)]), files, statistics


def _read_json(store: TableStore, name: str) -> _Part:
    content = store.read_log(name)
    if content is None:
        raise CorruptLogError(log_path(name), "is not there any more")
    lines = [line for line in content.split(b"\n") if line.strip()]
    actions = tuple(action for line in lines if (action := decode_line(line)) is not None)
    sidecars = (sidecar for line in lines if (sidecar := decode_sidecar_line(line)) is not None)
    state = replay_tail([(0, actions)])
    # A checkpoint does not know which commit added a file.
    files = tail_files(state)
    unknown = pa.nulls(files.num_rows, pa.int64())
    files = files.set_column(files.schema.get_field_index("version"), "version", unknown)
    texts = pa.chunked_array([tail_statistics(state)])
    others = (_read_sidecar(store, sidecar) for sidecar in sidecars)
    return state, *_joined([(files, Statistics(texts=texts)), *others])


def _parquet_files(store: TableStore, name: str) -> tuple[pa.Table, Statistics]:
    files = live_files(lambda: store.open_log(name))
    return files, Statistics((CheckpointFile(name, files.num_rows),))


def _read_sidecar(store: TableStore, sidecar: Sidecar) -> tuple[pa.Table, Statistics]:
    path = unquote(sidecar.path)
    if "/" in path or ":" in path:
        raise CorruptLogError(log_path(path), f"a sidecar outside of {SIDECAR_DIR} is not read")
    name = f"{SIDECAR_DIR}/{path}"
    try:
        _require_plausible(store, name)
        return _parquet_files(store, name)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorruptLogError(log_path(name), f"is not a readable sidecar: {error}") from error


def _actions(file: pq.ParquetFile, schema: pa.Schema) -> dict[str, list[Any]]:
    present = [name for name in _ACTIONS if name in schema.names]
    found: dict[str, list[Any]] = {name: [] for name in _ACTIONS}
    for group in range(file.num_row_groups):
        # Nearly all row groups hold files only.
        there = [name for name in present if _may_hold(file.metadata.row_group(group), name)]
        if not there:
            continue
        read = file.read_row_group(group, columns=there, use_threads=False)
        for name in there:
            column = read[name].combine_chunks()
            rows = column.filter(pc.is_valid(column)).to_pylist()
            plain = (_plain(row, column.type) for row in rows)
            found[name].extend(msgspec.convert(row, _ACTIONS[name][0]) for row in plain)
    return found


def _may_hold(group: pq.RowGroupMetaData, name: str) -> bool:
    required = f"{name}.{_ACTIONS[name][1]}"
    for position in range(group.num_columns):
        chunk = group.column(position)
        if chunk.path_in_schema == required:
            statistics = chunk.statistics
            known = statistics is not None and statistics.has_null_count
            return not known or statistics.null_count < chunk.num_values
    return True


def _plain(value: Any, data_type: pa.DataType) -> Any:  # noqa: ANN401  maps arrive as lists of pairs
    if value is None or not pa.types.is_nested(data_type):
        return value
    if pa.types.is_map(data_type):
        return {key: _plain(child, data_type.item_type) for key, child in value}
    if pa.types.is_struct(data_type):
        present = [f for f in data_type if value[f.name] is not None]
        return {f.name: _plain(value[f.name], f.type) for f in present}
    return [_plain(child, data_type.value_type) for child in value]
