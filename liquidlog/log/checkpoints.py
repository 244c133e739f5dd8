"""Read checkpoints of every kind into state: classic, multi-part, and V2 with its sidecars.

Source: PROTOCOL.md, "Checkpoints", "V2 Spec".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.errors import CorruptLogError
from liquidlog.log.file_actions import live_files
from liquidlog.log.footers import implausible
from liquidlog.log.replay import replay_tail, tail_files, tail_statistics
from liquidlog.log.store import TableStore
from liquidlog.snapshot import FILES_SCHEMA, CheckpointFile, Statistics
from liquidlog.spec.actions import (
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    Sidecar,
    decode_line,
    decode_sidecar_line,
)
from liquidlog.spec.file_paths import are_plain
from liquidlog.spec.log_files import SIDECAR_DIR, log_path, parse_log_file

_ACTIONS: Final[Mapping[str, type]] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "domainMetadata": DomainMetadata,
    "txn": SetTransaction,
    "sidecar": Sidecar,
}

_REQUIRED: Final[Mapping[str, str]] = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "domainMetadata": "domain",
    "txn": "appId",
    "sidecar": "path",
}
"""For each kind of action, a field that every action of the kind has."""

_JSON_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The table's state in a checkpoint; `files` has FILES_SCHEMA.

    The files' `statistics_row` points into `statistics`. `plain` says that the paths of all files
    are known to be plain, as `are_plain` has it.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    files: pa.Table = field(default_factory=FILES_SCHEMA.empty_table)
    statistics: Statistics = field(default_factory=Statistics)
    plain: bool = False


def read_checkpoint(store: TableStore, names: Sequence[str]) -> CheckpointState:
    """Return the state in a checkpoint; a multi-part checkpoint is given with all its parts."""
    parts = [_guarded(store, name, _read_json if _is_json(name) else _read) for name in names]
    files, statistics = _joined([(part.files, part.statistics) for part in parts])
    return CheckpointState(
        protocol=next((part.protocol for part in parts if part.protocol), None),
        metadata=next((part.metadata for part in parts if part.metadata), None),
        domains={key: value for part in parts for key, value in part.domains.items()},
        transactions={key: value for part in parts for key, value in part.transactions.items()},
        files=files,
        statistics=statistics,
        plain=all(map(are_plain, files["path"].chunks)),
    )


def _joined(parts: Sequence[tuple[pa.Table, Statistics]]) -> tuple[pa.Table, Statistics]:
    """Return the files of several pieces as one table, with statistics rows renumbered to match.

    Only one piece may have statistics as text: the top-level file of a checkpoint in JSON.
    """
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


def _is_json(name: str) -> bool:
    return name.endswith(_JSON_SUFFIX)


def _guarded(
    store: TableStore, name: str, read: Callable[[TableStore, str], CheckpointState]
) -> CheckpointState:
    try:
        return read(store, name)
    except (pa.ArrowException, OSError, KeyError, msgspec.MsgspecError) as error:
        raise CorruptLogError(log_path(name), f"is not a readable checkpoint: {error}") from error


def _require_plausible(store: TableStore, name: str) -> None:
    problem = implausible(lambda: store.open_log(name))
    if problem is not None:
        raise CorruptLogError(log_path(name), f"is not a plausible checkpoint: {problem}")


def _read(store: TableStore, name: str) -> CheckpointState:
    _require_plausible(store, name)
    with pq.ParquetFile(store.open_log(name)) as file:
        actions = _actions(file, file.schema_arrow)
        has_adds = "add" in file.schema_arrow.names
    own = (FILES_SCHEMA.empty_table(), Statistics())
    if has_adds or not _is_partial(name, actions["sidecar"]):
        own = _parquet_files(store, name)
    files, statistics = _with_sidecars(own, store, actions["sidecar"])
    return CheckpointState(
        protocol=next(reversed(actions["protocol"]), None),
        metadata=next(reversed(actions["metaData"]), None),
        domains={domain.domain: domain for domain in actions["domainMetadata"]},
        transactions={txn.app_id: txn for txn in actions["txn"]},
        files=files,
        statistics=statistics,
    )


def _is_partial(name: str, sidecars: Sequence[Sidecar]) -> bool:
    """Return whether other files may have the adds, so that this one may lack the column `add`."""
    named = parse_log_file(name, 0, 0)
    return bool(sidecars) or (named is not None and named.parts > 1)


def _read_json(store: TableStore, name: str) -> CheckpointState:
    content = store.read_log(name)
    if content is None:
        raise CorruptLogError(log_path(name), "is not there any more")
    lines = [line for line in content.split(b"\n") if line.strip()]
    actions = tuple(action for line in lines if (action := decode_line(line)) is not None)
    sidecars = [sidecar for line in lines if (sidecar := decode_sidecar_line(line)) is not None]
    state = replay_tail([(0, actions)])
    # A checkpoint does not know which commit added a file.
    files = tail_files(state)
    unknown = pa.nulls(files.num_rows, pa.int64())
    files = files.set_column(files.schema.get_field_index("version"), "version", unknown)
    texts = pa.chunked_array([tail_statistics(state)])
    files, statistics = _with_sidecars((files, Statistics(texts=texts)), store, sidecars)
    return CheckpointState(
        protocol=state.protocol,
        metadata=state.metadata,
        domains=state.domains,
        transactions=state.transactions,
        files=files,
        statistics=statistics,
    )


def _parquet_files(store: TableStore, name: str) -> tuple[pa.Table, Statistics]:
    files = live_files(lambda: store.open_log(name))
    return files, Statistics((CheckpointFile(name, files.num_rows),))


def _with_sidecars(
    files: tuple[pa.Table, Statistics], store: TableStore, sidecars: Sequence[Sidecar]
) -> tuple[pa.Table, Statistics]:
    return _joined([files, *(_read_sidecar(store, sidecar) for sidecar in sidecars)])


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
            found[name].extend(msgspec.convert(row, _ACTIONS[name]) for row in plain)
    return found


def _may_hold(group: pq.RowGroupMetaData, name: str) -> bool:
    """Return whether a row group may have actions of a kind; its statistics can rule that out."""
    required = f"{name}.{_REQUIRED[name]}"
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
