"""The main pass: rows read by splits, moved through Spark's shuffle as columns, written by output.

A *piece* is the rows of one chunk of one split that go into one slice, in row order, as an Arrow
IPC stream with the curve key as last column. The shuffle moves rows of SHUFFLE_SCHEMA: few, large
and opaque to Spark. What a reading task did, or why it failed, travels the same way, as a *note*:
only what finished tasks did counts.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.curve.curves import Curve
from liquidlog.curve.grid import Keys
from liquidlog.curve.order import RowOrder, order_rows, stable_order
from liquidlog.data.encodings import compacted, concat
from liquidlog.data.narrow import aligned, narrowed, widened
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import GroupCosts
from liquidlog.spec.arrow import arrow_schema, leaf_column
from liquidspark.assignment import Assignment
from liquidspark.layout import Layout, table_keys
from liquidspark.sink import (
    OutputFile,
    Proof,
    TaskFacts,
    Timer,
    decode_facts,
    encode_facts,
    failed,
    merge_facts,
    require_running,
)
from liquidspark.source import (
    GroupWork,
    Split,
    decode_table,
    encode_table,
    ordinals_from,
    read_split,
)

SHUFFLE_SCHEMA: Final = "target int, slice int, ordinal long, payload binary"
FACTS_SCHEMA: Final = "facts binary"

KEY_COLUMN: Final = "\x00curve key"
"""A name that no Delta column can have."""

_NOTES: Final = -1
"""The slice of notes: sorted before all others, so that a failure is known before rows are."""

_PIECE_BYTES: Final = 16 << 20
"""Bytes of one piece's rows in memory; Spark keeps whole pieces in single rows."""

_MAX_PAYLOAD_BYTES: Final = 256 << 20
"""Above this, a value is so large that executors of 1 GiB may run out of memory."""

_BATCH_BYTES: Final = 32 << 20
"""Payload bytes of one batch handed to Spark."""

_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_TEXT_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(
    compression=pa.Codec("zstd", compression_level=1), use_threads=False
)
"""For rows with dictionaries of their own: lz4 makes little of texts such as keys in hex digits."""


class Piece(NamedTuple):
    """One row of SHUFFLE_SCHEMA: rows of a slice, or a note.

    `target` leads to the output; see `partition_values`. `ordinal` is that of the first row.
    """

    target: int
    slice: int
    ordinal: int
    payload: bytes | pa.Buffer

    @classmethod
    def note(cls, target: int, task: int, facts: TaskFacts) -> "Piece":
        """Return a note to an output's task: what the reading task of that number did."""
        return cls(target, _NOTES, task, encode_facts(facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTasks:
    """The map side: each task reads its splits and sends pieces to `targets` (by output)."""

    work: GroupWork
    layout: Layout
    targets: tuple[int, ...]

    def __call__(
        self, number: int, assignment: Assignment[tuple[Split, ...]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the pieces of a task."""
        return _in_batches(self._run(number, assignment))

    def _run(self, number: int, assignment: Assignment[tuple[Split, ...]]) -> Iterator[Piece]:
        proof, timer, shuffled_bytes = Proof(), Timer(), 0
        try:
            require_running(self.work)
            for piece in timer.each(self._read(assignment, proof)):
                shuffled_bytes += len(piece.payload)
                yield piece
        except LiquidlogError as error:
            facts = failed(error, self.work)
            for target in self.targets:
                yield Piece.note(target, number, facts)
            return
        costs = GroupCosts(
            map_seconds=timer.seconds - proof.timer.seconds,
            verify_seconds=proof.timer.seconds,
            shuffled_bytes=shuffled_bytes,
        )
        facts = TaskFacts(read=proof.total(), costs=costs)
        yield Piece.note(self.targets[number % len(self.targets)], number, facts)

    def _read(self, assignment: Assignment[tuple[Split, ...]], proof: Proof) -> Iterator[Piece]:
        work = assignment.work(self.work)
        for split in assignment.own:
            for table, first in read_split(work, split):
                proof.add(table)
                yield from self._pieces(table, first)

    def _pieces(self, table: pa.Table, first: int) -> Iterator[Piece]:
        keys = table_keys(self.work, self.layout, table)
        ordinals = ordinals_from(first, len(table))
        for number, shared, places in slice_table(self.layout, narrowed(table), keys, ordinals):
            rows = compacted(shared)
            options = _IPC_OPTIONS if rows is shared else _TEXT_IPC_OPTIONS
            target = self.targets[number // self.layout.slices_per_output]
            step = max(1, len(rows) * _PIECE_BYTES // max(rows.nbytes, 1))
            for start in range(0, len(rows), step):
                payload = encode_table(rows.slice(start, step), options)
                if len(payload) > _MAX_PAYLOAD_BYTES:
                    raise ExecutorError(_too_large(step, len(payload)))
                yield Piece(target, number, int(places[start]), payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTasks:
    """The reduce side: each task writes the output whose pieces it receives."""

    work: GroupWork
    slices_per_output: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row of facts for the pieces of a partition."""
        facts = self._run(_received(batches))
        yield pa.RecordBatch.from_arrays(
            [pa.array([encode_facts(facts)], pa.binary())], names=["facts"]
        )

    def _run(self, pieces: Iterator[Piece]) -> TaskFacts:
        whole, waiting = Timer(), Timer()
        with whole.running():
            facts, proof = self._written(waiting.each(pieces), waiting)
        spent = waiting.seconds + proof.timer.seconds
        costs = GroupCosts(
            shuffle_seconds=waiting.seconds,
            write_seconds=whole.seconds - spent,
            verify_seconds=proof.timer.seconds,
        )
        return merge_facts([facts, TaskFacts(costs=costs)])

    def _written(self, pieces: Iterator[Piece], waiting: Timer) -> tuple[TaskFacts, Proof]:
        proof = Proof()
        # More slices than one arrive sorted by slice; a lone slice arrives in any order.
        if self.slices_per_output == 1:
            pieces = iter(sorted(pieces, key=lambda piece: piece[:3]))
        notes: list[TaskFacts] = []
        output: OutputFile | None = None
        try:
            for number, members in groupby(pieces, key=lambda piece: piece.slice):
                if number == _NOTES:
                    notes = [decode_facts(piece.payload) for piece in members]
                    if any(note.failure is not None for note in notes):
                        return _drained(pieces, merge_facts(notes)), proof
                    continue
                output = output or OutputFile(
                    self.work, number // self.slices_per_output, proof=proof
                )
                payloads = [piece.payload for piece in members]
                with waiting.running():
                    tables = [decode_table(payload) for payload in payloads]
                output.write(sorted_slice(self.work, tables))
            written = output.finish() if output else None
        except LiquidlogError as error:
            return failed(error, self.work), proof
        finally:
            if output is not None:
                output.__exit__(None, None, None)
        outputs = () if written is None else (written,)
        return merge_facts([*notes, TaskFacts(written=proof.total(), outputs=outputs)]), proof


def _too_large(rows: int, found_bytes: int) -> str:
    return (
        f"{rows} rows take {found_bytes} bytes compressed, expected at most {_MAX_PAYLOAD_BYTES}"
        " in one piece: a value is too large to be moved through Spark safely"
    )


def _drained(pieces: Iterator[Piece], facts: TaskFacts) -> TaskFacts:
    """Return the facts after reading all that Spark sends: it waits until all is taken."""
    deque(pieces, maxlen=0)
    return facts


class SliceRows(NamedTuple):
    """Rows of one slice in row order, n of them, with their keys as last column.

    `ordinals` are theirs, (n,) uint64.
    """

    slice: int
    rows: pa.Table
    ordinals: npt.NDArray[np.uint64]


def slice_table(
    layout: Layout, table: pa.Table, keys: Keys, ordinals: npt.NDArray[np.uint64]
) -> Iterator[SliceRows]:
    """Yield the rows of each slice that has rows in a table, by slice number.

    Args:
        layout: Where rows go.
        table: n rows.
        keys: (n,) uint64, their curve keys.
        ordinals: (n,) uint64, their ordinals.
    """
    slices = layout.cuts.parts_of(keys, ordinals)
    count = len(layout.cuts.keys) + 1
    # Stable sorting of 16-bit numbers is a radix sort.
    narrow = slices.astype(np.uint16) if count <= 1 << 16 else slices
    order = np.argsort(narrow, kind="stable")
    edges = np.concatenate([[0], np.cumsum(np.bincount(slices, minlength=count))])
    keyed = table.append_column(KEY_COLUMN, pa.array(keys).cast(layout.key_type)).combine_chunks()
    moved, moved_ordinals = keyed.take(pa.array(order)), ordinals[order]
    for number in np.flatnonzero(np.diff(edges)).tolist():
        start, stop = int(edges[number]), int(edges[number + 1])
        yield SliceRows(number, moved.slice(start, stop - start), moved_ordinals[start:stop])


def sorted_slice(work: GroupWork, pieces: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of one slice sorted along the curve, without keys.

    Args:
        work: The group.
        pieces: The slice's rows in the order of their ordinals, with keys as last column.
    """
    kinds = arrow_schema(work.schema, physical=True)
    together = concat(aligned(pieces, kinds)).combine_chunks()
    keys = together.column(KEY_COLUMN).to_numpy().astype(np.uint64, copy=False)
    table = together.drop_columns([KEY_COLUMN])
    return widened(table.take(pa.array(row_order(work, table, keys))), kinds)


def row_order(work: GroupWork, table: pa.Table, keys: Keys) -> RowOrder:
    """Return the order of n rows inside a file, (n,) int64: indices that sort them.

    Rows are sorted by their curve keys, (n,) uint64; by exact values where there is one column.
    """
    if work.curve is Curve.LINEAR and len(work.columns) == 1:
        return order_rows([leaf_column(table, work.columns[0])], Curve.LINEAR)
    return stable_order(keys)


def _in_batches(pieces: Iterator[Piece]) -> Iterator[pa.RecordBatch]:
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


def _received(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        targets, slices, ordinals = (batch.column(i).to_pylist() for i in range(3))
        payloads = batch.column(3)
        for row, place in enumerate(zip(targets, slices, ordinals, strict=True)):
            yield Piece(*place, payloads[row].as_buffer())
