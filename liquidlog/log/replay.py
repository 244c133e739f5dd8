"""Reconcile log actions into the table's state. Pure.

The newest action about a file, a domain or an application wins; within one commit the last line
wins, as in the reference engine. A file is the pair (normal path, deletion vector id).

Source: PROTOCOL.md, "Action Reconciliation".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.snapshot import FILES_SCHEMA, STATISTICS_TYPE, decoded_paths, deletion_vector
from liquidlog.spec.actions import (
    ZCUBE_ID,
    ZCUBE_ZORDER_BY,
    AddFile,
    AnyAction,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    replay_key,
    vector_id,
)
from liquidlog.spec.arrow import one_array
from liquidlog.spec.bounds import record_counts
from liquidlog.spec.paths import normal_paths


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
        "partition_values_json": [_json(add.partition_values or {}) for add in adds],
        "tags_json": [None if add.tags is None else _json(add.tags) for add in adds],
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
    # Column by column, so that only one is there three times; paths are half of all bytes.
    columns = {"path": paths.take(rows)}
    del paths
    pa.default_memory_pool().release_unused()
    for name in files.schema.names[1:]:
        columns[name] = _taken(files[name], rows)
    return pa.table(columns, schema=files.schema)


def _decided_rows(files: pa.Table, decided: TailState, *, plain: bool) -> NDArray[np.int64]:
    known = pa.array({path for path, _ in decided.files}, pa.string())
    touched = pc.is_in(files["path"] if plain else normal_paths(files["path"]), known)
    # A filter works chunk by chunk; `take` would first copy everything into one chunk.
    suspects = files.select(["path", "deletion_vector"]).filter(touched)
    keys = _keys(suspects, normal_paths(suspects["path"]))
    gone = np.array([key in decided.files for key in keys], np.bool_)
    return np.flatnonzero(touched)[gone]


def _taken(column: pa.ChunkedArray, rows: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(rows), column.type)
    return one_array(column).take(rows)


def file_keys(files: pa.Table) -> list[FileKey]:
    """Return the `file_key` per row of a table in FILES_SCHEMA; slow, for a few files."""
    return _keys(files, decoded_paths(files))


def _keys(files: pa.Table, paths: pa.Array | pa.ChunkedArray) -> list[FileKey]:
    vectors = map(deletion_vector, files["deletion_vector"].to_pylist())
    return [
        (path, vector_id(vector)) for path, vector in zip(paths.to_pylist(), vectors, strict=True)
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_WORD: Final = 8
_BITS: Final = 8 * _WORD


def path_order(paths: pa.StringArray) -> NDArray[np.int64]:
    """Return the positions (int64) that sort `paths` by their bytes, stably; a null is empty.

    Arrow compares whole texts; words of eight bytes sort as numbers, many times faster.
    """
    order = np.arange(len(paths))
    if not len(paths):
        return order
    paths = paths.fill_null("") if paths.null_count else paths
    starts, ends, text = _bounds(paths)
    position = _shared_bytes(paths)
    longest = int((ends - starts).max())
    # Slots of `order` whose rows still compare equal, and the group of equal rows of each slot.
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
