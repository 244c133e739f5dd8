"""Pieces: what a shuffle moves, few rows that are large and opaque to it.

A *piece* holds rows as an Arrow IPC stream. What a task did, or why it failed, travels the same
way, as a *note*.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from liquidlog.data.encodings import compacted
from liquidlog.data.narrow import encode_table
from liquidlog.errors import ExecutorError
from liquidlog.rewriting.sink import TaskFacts, encode_facts

SHUFFLE_SCHEMA: Final = "target int, slice int, ordinal long, payload binary"

NOTES: Final = -1
"""The slice of notes: sorted before all others, so that a failure is known before rows are."""

_PIECE_BYTES: Final = 16 << 20
"""Bytes of one piece's rows in memory; a shuffle keeps whole pieces in single rows."""

_MAX_PAYLOAD_BYTES: Final = 256 << 20
"""Above this, a value is so large that executors of 1 GiB may run out of memory."""

_BATCH_BYTES: Final = 32 << 20
"""Payload bytes of one batch handed to a shuffle."""

_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_TEXT_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(
    compression=pa.Codec("zstd", compression_level=1), use_threads=False
)
"""For rows with dictionaries of their own: lz4 makes little of texts such as keys in hex digits."""


class Piece(NamedTuple):
    """One row of SHUFFLE_SCHEMA: rows of a slice, or of all slices of a writing task, or a note.

    `target` leads to the task that writes them; see `assignment.partition_values`. `slice` is the
    first slice that the piece may have rows of. Pieces of one slice hold its rows in order if they
    are sorted by `ordinal`: as many ordinals from it on as the piece has rows are its own.
    """

    target: int
    slice: int
    ordinal: int
    payload: bytes | pa.Buffer

    @classmethod
    def note(cls, target: int, task: int, facts: TaskFacts) -> "Piece":
        """Return a note to a writing task: what the task of that number did."""
        return cls(target, NOTES, task, encode_facts(facts))


def pieces_of(rows: pa.Table, *, target: int, first_slice: int, ordinal: int) -> Iterator[Piece]:
    """Yield rows, of one slice or sorted by slice, as pieces of bounded size.

    `ordinal` is that of the first row; the ordinals after it are those of the other rows.
    """
    compact = compacted(rows)
    options = _IPC_OPTIONS if compact is rows else _TEXT_IPC_OPTIONS
    step = max(1, len(rows) * _PIECE_BYTES // max(compact.nbytes, 1))
    for start in range(0, len(rows), step):
        payload = encode_table(compact.slice(start, step), options)
        if len(payload) > _MAX_PAYLOAD_BYTES:
            raise ExecutorError(_too_large(step, len(payload)))
        yield Piece(target, first_slice, ordinal + start, payload)


def in_batches(pieces: Iterator[Piece]) -> Iterator[pa.RecordBatch]:
    """Yield pieces as batches of SHUFFLE_SCHEMA; inverse: `received`."""
    waiting: list[Piece] = []
    waiting_bytes = 0
    for piece in pieces:
        waiting.append(piece)
        waiting_bytes += len(piece.payload)
        if waiting_bytes >= _BATCH_BYTES:
            yield _batch(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _batch(waiting)


def received(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    """Yield the pieces in batches of SHUFFLE_SCHEMA."""
    for batch in batches:
        targets, slices, ordinals = (batch.column(i).to_pylist() for i in range(3))
        payloads = batch.column(3)
        for row, place in enumerate(zip(targets, slices, ordinals, strict=True)):
            yield Piece(*place, payloads[row].as_buffer())


def _too_large(rows: int, found_bytes: int) -> str:
    return (
        f"{rows} rows take {found_bytes} bytes compressed, expected at most {_MAX_PAYLOAD_BYTES}"
        " in one piece: a value is too large to be moved safely"
    )


def _batch(pieces: list[Piece]) -> pa.RecordBatch:
    targets, slices, ordinals, payloads = zip(*pieces, strict=True)
    columns = [
        pa.array(targets, pa.int32()),
        pa.array(slices, pa.int32()),
        pa.array(ordinals, pa.int64()),
        _binary_array(payloads),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["target", "slice", "ordinal", "payload"])


def _binary_array(values: Sequence[bytes | pa.Buffer]) -> pa.BinaryArray:
    """Return the values as an array; each is copied once, which `pa.array` does not manage."""
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
