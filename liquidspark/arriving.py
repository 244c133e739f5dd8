"""Rows that come from a DataFrame instead of from inputs: made rows of the table, checked, placed.

A task gets the batches of a partition: the table's columns in its order under its names, then one
boolean per check, true or false. What becomes of the rows is what becomes of those of a rewrite.

A partition's rows are not counted before the last one is there. So the sampling pass keeps those
with the least hash of (partition, row): of all partitions together, the rows with the least hashes
are an even sample, whatever the sizes of partitions, and the same one each time.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from liquidlog.data.append import conform
from liquidlog.data.encodings import concat, decoded
from liquidlog.data.exact import convert_chunks
from liquidlog.data.file_encoding import with_light_dictionaries
from liquidlog.data.writer import encoded_bytes
from liquidlog.errors import ExecutorError, LiquidlogError, SchemaMismatchError
from liquidlog.rewriting.pieces import Piece
from liquidlog.rewriting.shuffle import MapSide
from liquidlog.rewriting.sink import encode_facts, failed
from liquidlog.rewriting.source import ArrivingWork, Survey, encode_survey, flat_array
from liquidlog.spec.arrow import arrow_type, without_void
from liquidlog.spec.schema import leaves

_HELD_SHARE: Final = 2
"""Rows are gathered until they take half of what a slice may take in memory: then they are divided
by slice, and both are held for a moment."""

_SHOWN: Final = 200
_PARTITION_BITS: Final = np.uint64(40)
_MIX: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_INCREMENT: Final = np.uint64(0x9E3779B97F4A7C15)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Arriving:
    """What tasks know of rows that come as batches; `checks` name the conditions on rows."""

    work: ArrivingWork
    checks: tuple[str, ...] = ()

    def tables(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield rows with physical names as the table's files have them, some slices at a time."""
        held: list[pa.Table] = []
        held_bytes = 0
        for table in self._conformed(iter(batches)):
            held.append(table)
            held_bytes += table.nbytes
            if held_bytes >= self.work.slice_memory_bytes // _HELD_SHARE:
                ready, held, held_bytes = with_light_dictionaries(concat(held)), [], 0
                del table
                yield ready
        if held:
            yield with_light_dictionaries(concat(held))

    def _conformed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        schema = without_void(self.work.table_schema)
        names = [field.name for field in schema.fields]
        kinds = pa.schema([
            pa.field(name, kind.type) for name, kind in zip(names, first.schema, strict=False)
        ])  # fmt: skip

        def columns() -> Iterator[pa.RecordBatch]:
            for batch in _with_first(first, batches):
                self._check(batch, len(names))
                yield pa.RecordBatch.from_arrays(batch.columns[: len(names)], schema=kinds)

        reader = pa.RecordBatchReader.from_batches(kinds, columns())
        try:
            yield from conform(reader, schema, where="the DataFrame", missing_is_null=True)
        except SchemaMismatchError as error:
            raise ExecutorError(
                f"the rows are none of the table: {'; '.join(error.problems)}"
            ) from error

    def _check(self, batch: pa.RecordBatch, columns: int) -> None:
        for number, what in enumerate(self.checks):
            passed = batch.column(columns + number)
            violated = batch.num_rows - (pc.sum(passed).as_py() or 0)
            if violated:
                position = pc.index(passed, value=False).as_py()
                row = batch.slice(position, 1).select(range(columns)).to_pylist()[0]
                values = ", ".join(f"{name}: {value}" for name, value in row.items())
                raise ExecutorError(
                    f"{what} is not true of {violated} of {batch.num_rows} rows that came together,"
                    f" such as {values[:_SHOWN]}"
                )


def _with_first(
    first: pa.RecordBatch, others: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield first
    yield from (batch for batch in others if batch.num_rows)


def partition_number() -> int:
    """Return the number of the partition that the task has."""
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def row_hashes(partition: int, rows: npt.NDArray[np.uint64]) -> Hashes:
    """Return a hash for each row of a partition, (n,) uint64, by its number there, (n,) uint64.

    Source: Steele et al., "Fast splittable pseudorandom number generators" (SplitMix64).
    """
    mixed = ((np.uint64(partition) << _PARTITION_BITS) | rows) * _INCREMENT
    for shift, factor in _MIX:
        mixed = (mixed ^ (mixed >> shift)) * factor
    hashes: Hashes = mixed ^ (mixed >> np.uint64(31))
    return hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTasks:
    """The sampling pass: batches have the clustering columns only; at most `most` rows are kept."""

    work: ArrivingWork
    most: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the survey of a partition, or a failure."""
        survey, failure = None, None
        try:
            survey = encode_survey(self._survey(partition_number(), batches))
        except LiquidlogError as error:
            failure = encode_facts(failed(error, self.work))
            deque(batches, maxlen=0)
        arrays = [pa.array([survey], pa.binary()), pa.array([failure], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, ["survey", "failure"])

    def _survey(self, number: int, batches: Iterable[pa.RecordBatch]) -> Survey:
        kept = _LeastHashed(number, self.most)
        for batch in batches:
            kept.add(batch)
        rows, columns = kept.sample()
        known = {leaf.physical: leaf.data_type for leaf in leaves(self.work.table_schema)}
        kinds = [arrow_type(known[path]) for path in self.work.columns]
        try:
            found = [
                flat_array(convert_chunks(column, kind))
                for column, kind in zip(columns, kinds, strict=False)
            ]
        except pa.ArrowInvalid as error:
            raise ExecutorError(f"a clustering column would change: {error}") from error
        return Survey(
            file=number,
            row_group_rows=(kept.rows,),
            memory_bytes=0,
            rows=rows,
            columns=tuple(found),
            row_bytes=np.full(len(rows), np.nan),
        )


class _LeastHashed:
    """The rows of a partition with the least hashes, `most` of them; mutable."""

    def __init__(self, partition: int, most: int) -> None:
        self.rows = 0
        self._partition, self._most = partition, most
        self._limit = np.uint64(2**64 - 1)
        self._numbers: list[npt.NDArray[np.uint64]] = []
        self._taken: list[pa.Table] = []
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the rows of a batch."""
        numbers = np.arange(self.rows, self.rows + batch.num_rows, dtype=np.uint64)
        self.rows += batch.num_rows
        wanted = row_hashes(self._partition, numbers) <= self._limit
        if wanted.any():
            self._numbers.append(numbers[wanted])
            self._taken.append(pa.Table.from_batches([batch.filter(pa.array(wanted))]))
            self._count += int(wanted.sum())
        if self._count > 2 * self._most:
            self._thin()

    def sample(self) -> tuple[npt.NDArray[np.uint64], Sequence[pa.ChunkedArray]]:
        """Return the numbers of the rows that are kept, increasing, and their columns."""
        if not self._count:
            return np.array([], np.uint64), ()
        if self._count > self._most:
            self._thin()
        return np.concatenate(self._numbers), pa.concat_tables(self._taken).columns

    def _thin(self) -> None:
        numbers = np.concatenate(self._numbers)
        hashes = row_hashes(self._partition, numbers)
        self._limit = np.partition(hashes, self._most - 1)[self._most - 1]
        kept = hashes <= self._limit
        self._numbers = [numbers[kept]]
        self._taken = [pa.concat_tables(self._taken).filter(pa.array(kept)).combine_chunks()]
        self._count = int(kept.sum())


def even_sample(surveys: Sequence[Survey], most: int) -> list[Survey]:
    """Return surveys of partitions with about `most` rows together, an even sample of all rows."""
    hashes = [row_hashes(survey.file, survey.rows) for survey in surveys]
    limits = [
        int(known.max())
        for survey, known in zip(surveys, hashes, strict=True)
        if 0 < len(known) < survey.num_rows
    ]
    together = np.concatenate(hashes) if hashes else np.array([], np.uint64)
    if len(together) > most:
        limits.append(int(np.partition(together, most - 1)[most - 1]))
    limit = np.uint64(min(limits, default=2**64 - 1))
    return [
        _thinned(survey, np.flatnonzero(known <= limit))
        for survey, known in zip(surveys, hashes, strict=True)
    ]


def _thinned(survey: Survey, kept: npt.NDArray[np.int64]) -> Survey:
    taken = pa.array(kept)
    return replace(
        survey,
        rows=survey.rows[kept],
        columns=tuple(column.take(taken) for column in survey.columns),
        row_bytes=survey.row_bytes[kept],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthTasks:
    """Measures how many bytes rows take as stored, with the first `rows` of a partition."""

    arriving: Arriving
    rows: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield (bytes of a row, null), or (null, a failure); nothing if there is no row."""
        width, failure = None, None
        work = self.arriving.work
        try:
            tables = list(self.arriving.tables(self._first(batches)))
            if not tables:
                return
            table = concat(tables)
            width = encoded_bytes(decoded(table), work.writer_options) / len(table)
        except LiquidlogError as error:
            failure = encode_facts(failed(error, work))
        arrays = [pa.array([width], pa.float64()), pa.array([failure], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, ["width", "failure"])

    def _first(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = self.rows
        for batch in batches:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingTasks(MapSide):
    """The map side for rows that arrive; `firsts` are the ordinals of partitions' first rows."""

    arriving: Arriving
    firsts: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
        """Yield the pieces of a partition."""
        number = partition_number()
        yield from self.pieces(number, lambda: self._rows(number, batches))
        deque(batches, maxlen=0)

    def _rows(
        self, number: int, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.Table, int]]:
        # A source that gives other rows now than when it was sampled gives ordinals twice, which
        # only order equal keys.
        ordinal = self.firsts[number] if number < len(self.firsts) else 0
        for table in self.arriving.tables(batches):
            following = ordinal + len(table)
            yield table, ordinal
            del table
            ordinal = following
