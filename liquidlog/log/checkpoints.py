"""Checkpoints of every kind to state: classic, multi-part, and V2 with its sidecars.

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
from liquidlog.log.paths import SIDECAR_DIR, log_path, parse_log_file
from liquidlog.log.replay import replay_tail, tail_files
from liquidlog.log.store import TableStore
from liquidlog.snapshot import FILES_SCHEMA
from liquidlog.spec.actions import (
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    Sidecar,
    decode_line,
    decode_sidecar_line,
)

_ACTIONS: Final[Mapping[str, type]] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "domainMetadata": DomainMetadata,
    "txn": SetTransaction,
    "sidecar": Sidecar,
}

_JSON_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The table's state as a checkpoint holds it; `files` has FILES_SCHEMA."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    files: pa.Table = field(default_factory=FILES_SCHEMA.empty_table)


def read_checkpoint(store: TableStore, names: Sequence[str]) -> CheckpointState:
    """Return the state in the files of one checkpoint: one, or all parts of a multi-part one.

    Raises:
        CorruptLogError: If one of them, or a sidecar they name, is missing or not readable.
    """
    parts = [_guarded(store, name, _read_json if _is_json(name) else _read) for name in names]
    return CheckpointState(
        protocol=next((part.protocol for part in parts if part.protocol), None),
        metadata=next((part.metadata for part in parts if part.metadata), None),
        domains={key: value for part in parts for key, value in part.domains.items()},
        transactions={key: value for part in parts for key, value in part.transactions.items()},
        files=pa.concat_tables([part.files for part in parts]),
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
    problem = implausible(store.log_file_path(name))
    if problem is not None:
        raise CorruptLogError(log_path(name), f"is not a plausible checkpoint: {problem}")


def _read(store: TableStore, name: str) -> CheckpointState:
    _require_plausible(store, name)
    with pq.ParquetFile(store.log_file_path(name)) as file:
        actions = _actions(file, file.schema_arrow)
        has_adds = "add" in file.schema_arrow.names
    files = FILES_SCHEMA.empty_table()
    if has_adds or not _is_partial(name, actions["sidecar"]):
        files = live_files(store.log_file_path(name))
    return CheckpointState(
        protocol=next(reversed(actions["protocol"]), None),
        metadata=next(reversed(actions["metaData"]), None),
        domains={domain.domain: domain for domain in actions["domainMetadata"]},
        transactions={txn.app_id: txn for txn in actions["txn"]},
        files=_with_sidecars(store, files, actions["sidecar"]),
    )


def _is_partial(name: str, sidecars: Sequence[Sidecar]) -> bool:
    """Return whether other files may hold the adds, so that this one may have no such column."""
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
    return CheckpointState(
        protocol=state.protocol,
        metadata=state.metadata,
        domains=state.domains,
        transactions=state.transactions,
        files=_with_sidecars(store, files, sidecars),
    )


def _with_sidecars(store: TableStore, files: pa.Table, sidecars: Sequence[Sidecar]) -> pa.Table:
    return pa.concat_tables([files, *(_read_sidecar(store, sidecar) for sidecar in sidecars)])


def _read_sidecar(store: TableStore, sidecar: Sidecar) -> pa.Table:
    path = unquote(sidecar.path)
    if "/" in path or ":" in path:
        raise CorruptLogError(log_path(path), f"a sidecar outside of {SIDECAR_DIR} is not read")
    name = f"{SIDECAR_DIR}/{path}"
    try:
        _require_plausible(store, name)
        return live_files(store.log_file_path(name))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorruptLogError(log_path(name), f"is not a readable sidecar: {error}") from error


def _actions(file: pq.ParquetFile, schema: pa.Schema) -> dict[str, list[Any]]:
    present = [name for name in _ACTIONS if name in schema.names]
    found: dict[str, list[Any]] = {name: [] for name in _ACTIONS}
    for group in range(file.num_row_groups):
        read = file.read_row_group(group, columns=present)
        for name in present:
            column = read[name].combine_chunks()
            rows = column.filter(pc.is_valid(column)).to_pylist()
            plain = (_plain(row, column.type) for row in rows)
            found[name].extend(msgspec.convert(row, _ACTIONS[name]) for row in plain)
    return found


def _plain(value: Any, data_type: pa.DataType) -> Any:  # noqa: ANN401  maps arrive as lists of pairs
    if value is None or not pa.types.is_nested(data_type):
        return value
    if pa.types.is_map(data_type):
        return {key: _plain(child, data_type.item_type) for key, child in value}
    if pa.types.is_struct(data_type):
        present = [f for f in data_type if value[f.name] is not None]
        return {f.name: _plain(value[f.name], f.type) for f in present}
    return [_plain(child, data_type.value_type) for child in value]
