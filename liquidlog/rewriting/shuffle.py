"""The layout of a group, and its main pass: rows are read by splits, moved, and written by output.

The driver makes the layout once from the samples and sends it to every task, so a row goes to the
same place in any order of tasks. Files are cut by rows or, if their sizes would differ much, by
bytes.

A reading task sends each slice a piece of the rows in its memory, in order, with the curve key as
last column. If such pieces would be tiny, it sends one piece per writing task, with the slice of
each row, and `RegroupTasks` joins rows slice by slice.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from liquidlog.curve.curves import (
    Curve,
    CurveSample,
    Ordinals,
    RowOrder,
    equal_cuts,
    refine_cuts,
    sort_rows,
    stable_order,
)
from liquidlog.curve.layouts import LEAST_SHARE, Layout, place_columns
from liquidlog.data.encodings import (
    aligned,
    compacted,
    concat,
    decode_table,
    map_dictionaries,
    narrowed,
    widened,
)
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import GroupCosts, WrittenFile
from liquidlog.rewriting.inputs import (
    Assignment,
    GroupWork,
    Split,
    Survey,
    WritingWork,
    read_splits,
)
from liquidlog.rewriting.outputs import (
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
from liquidlog.spec.arrow import arrow_schema, leaf_column

_MIN_SIZE: Final = 0.4
_MAX_SIZES: Final = (1.6, 1.4, 1.4)
"""Largest estimated output over the mean: the first for cuts by rows, the others for cuts by bytes;
otherwise cuts are equal. Chosen cuts make files of 0.5 to 1.5."""
_MIN_PIECE_BYTES: Final = 24 << 10
_MIN_PIECE_COLUMN_BYTES: Final = 256
"""Least stored bytes of a piece per column: Arrow needs about as much to describe a column."""
_MEASURED_PER_MEAN: Final = 64
_CHANCE: Final = 3.0
"""A mean of so many widths counts if it differs by so many standard errors."""

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How rows get to `tasks` writing tasks with `outputs_per_task` each; maybe in two steps."""

    tasks: int
    outputs_per_task: int
    slices_per_output: int
    in_two_steps: bool

    @property
    def slices_per_task(self) -> int:
        return self.outputs_per_task * self.slices_per_output


def choose_route(work: WritingWork, *, slices_per_output: int) -> Route:
    """Return the route; there are fewer writing tasks if pieces would be too small."""
    slices = work.outputs * slices_per_output
    piece_bytes = max(_MIN_PIECE_BYTES, len(work.schema.fields) * _MIN_PIECE_COLUMN_BYTES)
    most = max(1, work.slice_bytes // piece_bytes)
    is_direct = slices <= most
    # With n slices, pieces have slice_bytes / sqrt(n) or more, in both steps.
    outputs_per_task = 1 if is_direct else -(-work.outputs // max(most, math.isqrt(slices)))
    return Route(
        tasks=-(-work.outputs // outputs_per_task),
        outputs_per_task=outputs_per_task,
        slices_per_output=slices_per_output,
        in_two_steps=not is_direct and outputs_per_task * slices_per_output > 1,
    )


def build_layout(work: WritingWork, surveys: Sequence[Survey]) -> Layout:
    """Return the layout of a group whose curve is not None."""
    columns = [
        pa.concat_arrays([survey.columns[j] for survey in surveys if survey.columns])
        for j in range(len(work.columns))
    ]
    ordinals = [
        survey.rows + np.uint64(first)
        for survey, first in zip(surveys, first_ordinals(surveys), strict=True)
    ]
    measured = [one.row_bytes * (one.num_rows / max(len(one.rows), 1)) for one in surveys]
    layout, sample = _even_layout(work, columns, np.concatenate(ordinals), np.concatenate(measured))
    work = replace(work, outputs=layout.outputs)
    slices = slices_per_output(work, memory_bytes=sum(survey.memory_bytes for survey in surveys))
    if slices == 1:
        return layout
    cuts = refine_cuts(sample, layout.cuts, slices=slices)
    return replace(layout, cuts=cuts, slices_per_output=slices)


def _even_layout(
    work: WritingWork, columns: Sequence[pa.Array], ordinals: Ordinals, measured: Weights
) -> tuple[Layout, CurveSample]:
    """Return the layout by rows, or by bytes if cuts by rows would make very unequal files.

    `measured` (s,) float64 has the bytes that sampled rows stand for, NaN if not measured.
    """
    layout, sample = _fitted(work, columns, ordinals)
    if np.isnan(measured).all():
        return layout, sample
    # Each layout gives wide rows more room than the one before.
    for max_size in _MAX_SIZES:
        keys = layout.keys_of(columns)
        weights = local_means(measured, stable_order(keys))
        places = layout.cuts.parts_of(keys, ordinals)
        sizes = np.bincount(places, weights=weights, minlength=layout.outputs)
        least = _MIN_SIZE if not work.prefix else _MIN_SIZE * LEAST_SHARE
        if sizes.min() >= least * sizes.mean() and sizes.max() <= max_size * sizes.mean():
            return layout, sample
        # Each row as often as it weighs.
        ends = np.cumsum(weights)
        steps = (np.arange(len(weights)) + 0.5) * (ends[-1] / len(weights))
        rows = np.minimum(np.searchsorted(ends, steps, side="right"), len(weights) - 1)
        taken = pa.array(rows)
        layout, sample = _fitted(work, [c.take(taken) for c in columns], ordinals[rows])
    if work.prefix:
        return layout, sample  # equal cuts would mix its values
    return replace(layout, cuts=equal_cuts(sample, work.outputs)), sample


def _fitted(
    work: WritingWork, columns: Sequence[pa.Array], ordinals: Ordinals
) -> tuple[Layout, CurveSample]:
    """Return the layout with one slice per output, and the sample in the order of its keys."""
    assert work.curve is not None  # noqa: S101  compaction has no layout
    conditions = None
    if work.readers is not None:
        conditions = work.readers.conditions([column.type for column in columns])
    return place_columns(
        columns, ordinals, work.outputs, curve=work.curve, conditions=conditions, prefix=work.prefix
    )


def local_means(measured: Weights, order: RowOrder) -> Weights:
    """Return a weight for every sampled row: the mean of the bytes measured near it on the curve.

    A weight that differs from 1 only by chance is 1. `measured` has NaN for rows that were not
    measured; `order` (s,) int64 has the rows along the curve.
    """
    along = measured[order]
    known = np.flatnonzero(~np.isnan(along))
    values = along[known] / along[known].mean()
    count = max(1, len(known) // _MEASURED_PER_MEAN)
    edges = np.arange(count) * len(known) // count
    numbers = np.diff(np.append(edges, len(known)))
    means = np.add.reduceat(values, edges) / numbers
    variances = np.add.reduceat(values**2, edges) / numbers - means**2
    errors = np.sqrt(np.maximum(variances, 0) / numbers)
    means[np.abs(means - 1) <= _CHANCE * errors] = 1.0
    starts = known[edges]
    starts[0] = 0
    weights = np.empty(len(measured))
    weights[order] = np.repeat(means, np.diff(np.append(starts, len(along))))
    return weights


def slices_per_output(work: WritingWork, *, memory_bytes: int) -> int:
    """Return how many slices each output is sorted in, so that a slice takes `memory_bytes`."""
    by_stored = -(-work.size_bytes // (work.outputs * work.slice_bytes))
    by_memory = -(-memory_bytes // (work.outputs * work.slice_memory_bytes))
    return max(1, by_stored, by_memory)


def first_ordinals(surveys: Sequence[Survey]) -> list[int]:
    """Return the ordinal of the first row of each input, surveys in file order."""
    return [0, *accumulate(survey.num_rows for survey in surveys)][:-1]


# A *piece* holds rows as an Arrow IPC stream, and is one row of a shuffle. A *note* holds the facts
# of a task, or its failure, in the same form: only facts of finished tasks count.

SHUFFLE_SCHEMA: Final = "target int, slice int, ordinal long, payload binary"
NOTES: Final = -1
"""The slice of notes, which are sorted before all rows, so that a failure is known first."""
_PIECE_BYTES: Final = 16 << 20
"""Memory of one piece's rows; a shuffle keeps whole pieces in single rows."""
_MAX_PAYLOAD_BYTES: Final = 256 << 20
"""Larger values could take all memory of executors with 1 GiB."""
_BATCH_BYTES: Final = 32 << 20
"""Payload bytes of one batch handed to a shuffle."""
_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_TEXT_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(
    compression=pa.Codec("zstd", compression_level=1), use_threads=False
)
"""For rows with their own dictionaries: lz4 hardly compresses texts such as hexadecimal keys."""


class Piece(NamedTuple):
    """One row of SHUFFLE_SCHEMA: rows of a slice, or of all slices of a writing task, or a note.

    `target` leads to the writing task, `slice` is the first of its slices. `ordinal` is the number
    of the first row; the others follow. So pieces sorted by `ordinal` hold rows in order.
    """

    target: int
    slice: int
    ordinal: int
    payload: bytes | pa.Buffer

    @classmethod
    def note(cls, target: int, task: int, facts: TaskFacts) -> "Piece":
        """Return a note to a writing task with the facts of a reading task."""
        return cls(target, NOTES, task, encode_facts(facts))


def pieces_of(rows: pa.Table, *, target: int, first_slice: int, ordinal: int) -> Iterator[Piece]:
    """Yield rows, of one slice or sorted by slice, as pieces of bounded size from `ordinal` on."""
    compact = map_dictionaries(rows, compacted)
    options = _IPC_OPTIONS if compact is rows else _TEXT_IPC_OPTIONS
    step = max(1, len(rows) * _PIECE_BYTES // max(compact.nbytes, 1))
    for start in range(0, len(rows), step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, compact.schema, options=options) as stream:
            stream.write_table(compact.slice(start, step))
        payload = sink.getvalue()
        if len(payload) > _MAX_PAYLOAD_BYTES:
            raise ExecutorError(
                f"{step} rows take {len(payload)} bytes compressed, expected at most"
                f" {_MAX_PAYLOAD_BYTES} in one piece: a value is too large to be moved safely"
            )
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
    for batch in batches:
        targets, slices, ordinals = (batch.column(i).to_pylist() for i in range(3))
        payloads = batch.column(3)
        for row, place in enumerate(zip(targets, slices, ordinals, strict=True)):
            yield Piece(*place, payloads[row].as_buffer())


def _batch(pieces: list[Piece]) -> pa.RecordBatch:
    targets, slices, ordinals, payloads = zip(*pieces, strict=True)
    # `pa.array` would copy each payload more than once.
    offsets = np.cumsum([0, *map(len, payloads)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(payloads))]
    columns = [
        pa.array(targets, pa.int32()),
        pa.array(slices, pa.int32()),
        pa.array(ordinals, pa.int64()),
        pa.Array.from_buffers(pa.binary(), len(payloads), buffers),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["target", "slice", "ordinal", "payload"])


FACTS_SCHEMA: Final = "facts binary"


def facts_batch(facts: TaskFacts) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([encode_facts(facts)], pa.binary())], ["facts"])


KEY_COLUMN: Final = "\x00curve key"
SLICE_COLUMN: Final = "\x00slice"
"""Names that no Delta column can have."""
_NARROW_SHARE: Final = 4
"""Rows that are divided by slice at a time take this part of a slice's memory."""
_WRITTEN_BYTES: Final = 32 << 20
"""Sorted rows are converted to their own types in parts of this size."""

Slices = npt.NDArray[np.int64]


Reading = Callable[[], Iterator[tuple[pa.Table, int]]]
"""Returns an iterator of (rows, ordinal of the first): the input of a reading task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSide:
    """The reading side of a shuffle: a task sends pieces to `targets`, one per writing task."""

    work: WritingWork
    layout: Layout
    route: Route
    targets: tuple[int, ...]

    def pieces(self, number: int, read: Reading) -> Iterator[Piece]:
        """Yield the pieces of task `number`, and a note with its facts."""
        proof, timer, shuffled_bytes = Proof(), Timer(), 0
        try:
            require_running(self.work)
            for piece in timer.each(self._read(read, proof)):
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

    def _read(self, read: Reading, proof: Proof) -> Iterator[Piece]:
        for table, first in read():
            proof.add(table)
            keyed, slices = keyed_rows(self.work, self.layout, table, first)
            if self.route.in_two_steps:
                keyed = keyed.append_column(SLICE_COLUMN, pa.array(slices))
            held = [keyed]
            # They need not stay while rows are sorted and sent, and the next ones are read.
            del table, keyed
            yield from self._sent(held, slices, first)

    def _sent(self, held: list[pa.Table], slices: Slices, first: int) -> Iterator[Piece]:
        together = self.route.slices_per_task if self.route.in_two_steps else 1
        for number, start, rows in slice_rows(held, slices, together=together):
            target = self.targets[number // self.route.slices_per_task]
            yield from pieces_of(rows, target=target, first_slice=number, ordinal=first + start)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTasks(MapSide):
    """The reading side of a rewrite: each task reads its splits of the inputs."""

    work: GroupWork

    def __call__(self, number: int, assignment: Assignment[tuple[Split, ...]]) -> Iterator[Piece]:
        work = assignment.work(self.work)
        return self.pieces(number, lambda: read_splits(work, assignment.own))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegroupTasks:
    """Turns pieces of several slices, by ordinal after all notes, into pieces of one slice each."""

    work: WritingWork

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches(self.regrouped(received(batches)))

    def regrouped(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        timer, target = Timer(), 0
        for piece in pieces:
            if piece.slice != NOTES:
                for regrouped in timer.each(self._regrouped(piece, pieces)):
                    target = regrouped.target
                    yield regrouped
                break
            yield piece
            if decode_facts(piece.payload).failure is not None:
                deque(pieces, maxlen=0)
                return
        costs = GroupCosts(shuffle_seconds=timer.seconds)
        yield Piece.note(target, 0, TaskFacts(costs=costs))

    def _regrouped(self, first: Piece, others: Iterator[Piece]) -> Iterator[Piece]:
        held, held_bytes, ordinal = [decode_table(first.payload)], 0, first.ordinal
        for piece in others:
            table = decode_table(piece.payload)
            held_bytes += held[-1].nbytes
            if held_bytes + table.nbytes > self.work.slice_memory_bytes // _NARROW_SHARE:
                yield from self._slices(held, first.target, ordinal)
                held, held_bytes, ordinal = [], 0, piece.ordinal
            held.append(table)
        yield from self._slices(held, first.target, ordinal)

    def _slices(self, held: list[pa.Table], target: int, ordinal: int) -> Iterator[Piece]:
        held = [_joined(self.work, held)]
        position = held[0].column_names.index(SLICE_COLUMN)
        slices = held[0].column(position).to_numpy().astype(np.int64, copy=False)
        held[0] = held[0].remove_column(position)
        for number, start, part in slice_rows(held, slices):
            yield from pieces_of(part, target=target, first_slice=number, ordinal=ordinal + start)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTasks:
    """The writing side: each task writes the outputs whose pieces it receives."""

    work: WritingWork
    route: Route

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield facts_batch(self.written(received(batches)))

    def written(self, pieces: Iterator[Piece]) -> TaskFacts:
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
        # Several slices arrive sorted by slice; a single slice arrives in any order.
        if self.route.slices_per_task == 1:
            pieces = iter(sorted(pieces, key=lambda piece: piece[:3]))
        per_output = self.route.slices_per_output  # NOTES // per_output is NOTES
        notes: list[TaskFacts] = []
        outputs: list[WrittenFile | None] = []
        try:
            for number, members in groupby(pieces, key=lambda piece: piece.slice // per_output):
                if number == NOTES:
                    notes = [decode_facts(piece.payload) for piece in members]
                    if any(note.failure is not None for note in notes):
                        deque(pieces, maxlen=0)  # Spark waits until all pieces are taken
                        return merge_facts(notes), proof
                    continue
                outputs.append(self._output(number, members, proof, waiting))
        except LiquidlogError as error:
            return failed(error, self.work), proof
        written = tuple(output for output in outputs if output is not None)
        return merge_facts([*notes, TaskFacts(written=proof.total(), outputs=written)]), proof

    def _output(
        self, number: int, pieces: Iterator[Piece], proof: Proof, waiting: Timer
    ) -> WrittenFile | None:
        with OutputFile(self.work, number, proof=proof) as output:
            for _, members in groupby(pieces, key=attrgetter("slice")):
                with waiting.running():
                    tables = [decode_table(piece.payload) for piece in members]
                for rows in sorted_slice(self.work, tables):
                    output.write(rows)
            return output.finish()


class SliceRows(NamedTuple):
    """Rows of consecutive slices from `slice` on; `start` is their place among all rows."""

    slice: int
    start: int
    rows: pa.Table


def keyed_rows(
    work: WritingWork, layout: Layout, table: pa.Table, first: int
) -> tuple[pa.Table, Slices]:
    """Return rows with their keys as last column, and their slices, (n,)."""
    keys = layout.keys_of([leaf_column(table, path) for path in work.columns])
    keyed = table.append_column(KEY_COLUMN, pa.array(keys).cast(layout.key_type))
    ordinals = np.arange(first, first + len(table), dtype=np.uint64)
    return keyed, layout.cuts.parts_of(keys, ordinals)


def slice_rows(held: list[pa.Table], slices: Slices, *, together: int = 1) -> Iterator[SliceRows]:
    """Return rows in narrow columns, sorted by slice, `together` slices at a time.

    `held` has one table; the list is emptied to free memory.
    """
    # Stable sorting of 16-bit numbers is a radix sort.
    count = int(slices.max(initial=0)) + 1
    narrow = slices.astype(np.uint16) if count <= 1 << 16 else slices
    order = np.argsort(narrow, kind="stable")
    units = slices[order] // together
    starts = np.flatnonzero(np.diff(units, prepend=-1))
    names, columns = _columns_of(held)
    moved = _taken(map(narrowed, columns), names, pa.array(order))
    numbers, edges = (units[starts] * together).tolist(), [*starts.tolist(), len(units)]
    return (
        SliceRows(number, start, moved.slice(start, stop - start))
        for number, (start, stop) in zip(numbers, pairwise(edges), strict=True)
    )


def sorted_slice(work: WritingWork, pieces: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of one slice sorted along the curve, some at a time.

    `pieces` are in row order, with keys as last column; the list is emptied to free memory.
    """
    kinds = arrow_schema(work.schema, physical=True)
    together = _joined(work, pieces)
    keys = together.column(KEY_COLUMN).to_numpy().astype(np.uint64, copy=False)
    pieces.append(together.drop_columns([KEY_COLUMN]))
    del together
    order = stable_order(keys)
    if work.curve is Curve.LINEAR and len(work.columns) == 1:
        order, _ = sort_rows([leaf_column(pieces[0], work.columns[0])], Curve.LINEAR)
    names, columns = _columns_of(pieces)
    rows = _taken(columns, names, pa.array(order))
    step = max(1, len(rows) * _WRITTEN_BYTES // max(rows.nbytes, 1))
    for start in range(0, len(rows), step):
        yield widened(rows.slice(start, step), kinds)


def _joined(work: WritingWork, pieces: list[pa.Table]) -> pa.Table:
    kinds = arrow_schema(work.schema, physical=True)
    together = concat(aligned(pieces, kinds))
    pieces.clear()
    return together


def _columns_of(held: list[pa.Table]) -> tuple[list[str], Iterator[pa.ChunkedArray]]:
    """Return the names and the columns of the table in `held`; nothing holds a column after it."""
    table = held.pop()
    names, columns = table.column_names, table.columns[::-1]
    return names, (columns.pop() for _ in names)


def _taken(columns: Iterable[pa.ChunkedArray], names: list[str], order: pa.Array) -> pa.Table:
    """Return rows of columns, joining the chunks of one column at a time."""
    taken = [pa.table([column], [""]).combine_chunks().take(order).column(0) for column in columns]
    return pa.table(taken, names)
