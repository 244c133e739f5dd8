"""Tasks that sample, place and write the rows of a DataFrame.

A task gets the batches of a Spark partition: the table's columns, then one boolean column per
check. The directories of a partitioned table are collected in a pass before the first file is
written, since a run must have noted the directories of its files.

The sampling pass keeps the rows with the least hash of (partition, row number), because the number
of rows is unknown until the last one. Over all partitions this is an even sample, always the same.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from liquidlog.data.append import conform
from liquidlog.data.encodings import concat, convert_chunks, decoded
from liquidlog.data.writer import encoded_bytes, with_light_dictionaries
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import WrittenFile
from liquidlog.rewriting.groups import sorted_outputs
from liquidlog.rewriting.shuffle import MapSide, Piece, facts_batch
from liquidlog.rewriting.sink import (
    ArrivingFiles,
    Parting,
    TaskFacts,
    TaskProofs,
    failed,
    require_running,
)
from liquidlog.rewriting.source import Survey, WritingWork, sample_positions
from liquidlog.spec.arrow import arrow_type, leaf_column, one_array, without_void
from liquidlog.spec.schema import StructType, leaves, schema_json
from liquidspark.executor import Batches

_HELD_SHARE: Final = 2
"""Rows take up to half the memory of a slice, since dividing them by slice holds them twice."""
MOST_OPEN: Final = 4
"""The most partition files that a task writes at a time; with more, Spark sorts its rows first."""
_ROWS: Final = "\x00rows"
"""A Delta column cannot have this name."""
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
    """Reads rows from batches; `checks` names the conditions on rows."""

    work: WritingWork
    checks: tuple[str, ...] = ()

    def tables(self, batches: Batches) -> Iterator[pa.Table]:
        """Yield rows with the columns of the table's files, some slices at a time."""
        held: list[pa.Table] = []
        held_bytes = 0
        for table in self._conformed(batches):
            held.append(table)
            held_bytes += table.nbytes
            if held_bytes >= self.work.slice_memory_bytes // _HELD_SHARE:
                ready, held, held_bytes = with_light_dictionaries(concat(held)), [], 0
                del table
                yield ready
        if held:
            yield with_light_dictionaries(concat(held))

    def _conformed(self, batches: Batches) -> Iterator[pa.Table]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        schema = without_void(self.work.table_schema)
        names = [field.name for field in schema.fields]
        kinds = pa.schema(list(zip(names, first.schema.types, strict=False)))

        def columns() -> Iterator[pa.RecordBatch]:
            for batch in chain([first], filled):
                self._check(batch, len(names))
                yield pa.RecordBatch.from_arrays(batch.columns[: len(names)], schema=kinds)

        reader = pa.RecordBatchReader.from_batches(kinds, columns())
        yield from conform(reader, schema, where="the DataFrame", missing_is_null=True)

    def _check(self, batch: pa.RecordBatch, columns: int) -> None:
        for number, what in enumerate(self.checks):
            passed = batch.column(columns + number)
            violated = batch.num_rows - (pc.sum(passed).as_py() or 0)
            if violated:
                position = pc.index(passed, value=False).as_py()
                row = batch.slice(position, 1).select(range(columns)).to_pylist()[0]
                values = ", ".join(f"{name}: {value}" for name, value in row.items())
                raise ExecutorError(
                    f"{what} is not true of {violated} of {batch.num_rows} rows of a batch,"
                    f" such as {values[:_SHOWN]}"
                )


def _partition_number() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def row_hashes(partition: int, rows: npt.NDArray[np.uint64]) -> Hashes:
    """Return the SplitMix64 hash (Steele et al.), (n,), of a partition's rows by number, (n,)."""
    mixed = ((np.uint64(partition) << _PARTITION_BITS) | rows) * _INCREMENT
    for shift, factor in _MIX:
        mixed = (mixed ^ (mixed >> shift)) * factor
    hashes: Hashes = mixed ^ (mixed >> np.uint64(31))
    return hashes


def sampled(work: WritingWork, most: int, batches: Batches) -> Survey:
    """Return the survey of a partition's clustering columns, with at most `most` rows."""
    number = _partition_number()
    kept = _LeastHashed(number, most)
    for batch in batches:
        kept.add(batch)
    rows, columns = kept.sample()
    known = {leaf.physical: leaf.data_type for leaf in leaves(work.table_schema)}
    kinds = [arrow_type(known[path]) for path in work.columns]
    try:
        found = [one_array(one) for one in map(convert_chunks, columns, kinds)]
    except pa.ArrowInvalid as error:
        raise ExecutorError(f"a clustering column would change: {error}") from error
    return _survey(number, kept.rows, rows, found)


class _LeastHashed:
    def __init__(self, partition: int, most: int) -> None:
        self.rows = 0
        self._partition, self._most = partition, most
        self._limit = np.uint64(2**64 - 1)
        self._numbers: list[npt.NDArray[np.uint64]] = []
        self._taken: list[pa.Table] = []
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
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
    """Return about `most` rows of the partitions' surveys, an even sample of all rows."""
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
    kept = [known <= limit for known in hashes]
    return [
        _survey(
            one.file, one.num_rows, one.rows[own], [c.filter(pa.array(own)) for c in one.columns]
        )
        for one, own in zip(surveys, kept, strict=True)
    ]


def row_width(arriving: Arriving, most: int, batches: Batches) -> float | None:
    """Return the mean stored bytes of a partition's first rows, None if it has no rows."""
    tables = list(arriving.tables(_first_rows(batches, most)))
    if not tables:
        return None
    table = concat(tables)
    return encoded_bytes(decoded(table), arriving.work.writer_options) / len(table)


def _first_rows(batches: Batches, left: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingTasks(MapSide):
    """The map side for arriving rows; `firsts` has the ordinal of each partition's first row."""

    arriving: Arriving
    firsts: Mapping[int, int]

    def __call__(self, batches: Batches) -> Iterator[Piece]:
        number = _partition_number()
        yield from self.pieces(number, lambda: self._rows(number, batches))
        deque(batches, maxlen=0)

    def _rows(self, number: int, batches: Batches) -> Iterator[tuple[pa.Table, int]]:
        # If the rows differ from those of the sampling pass, ordinals repeat: they only order
        # equal keys.
        ordinal = self.firsts.get(number, 0)
        for table in self.arriving.tables(batches):
            following = ordinal + len(table)
            yield table, ordinal
            del table
            ordinal = following


def write_whole(arriving: Arriving, sample_rows: int, batches: Batches) -> TaskFacts:
    """Lay out and write all rows in one task."""
    work, proofs = arriving.work, TaskProofs()
    with proofs.whole.running():
        held = list(proofs.reading.each(arriving.tables(batches)))
        outputs: tuple[WrittenFile, ...] = ()
        if held:
            table = concat(held)
            rows = sample_positions(len(table), sample_rows)
            keys = [leaf_column(table, path) for path in work.columns]
            taken = decoded(pa.table(keys, list(map(str, range(len(keys))))).take(pa.array(rows)))
            columns = map(one_array, taken.columns)
            surveys = [_survey(0, len(table), rows, columns, memory_bytes=table.nbytes)]
            outputs = sorted_outputs(work, surveys, held, proofs)
    return proofs.facts(outputs)


def write_plainly(
    arriving: Arriving,
    parting: Parting,
    directories: frozenset[str],
    max_file_bytes: int,
    batches: Batches,
) -> TaskFacts:
    """Write rows in their order, to files of their partitions, which must be in `directories`."""

    def admit(found: list[str]) -> None:
        unknown = set(found) - directories
        if unknown:
            raise ExecutorError(
                f"the DataFrame has rows for {min(unknown)}, and had none when its partitions were"
                " listed: write one that gives the same rows twice"
            )

    with ArrivingFiles(
        arriving.work,
        parting,
        numbers=repeat(_partition_number()),
        admit=admit,
        most_open=MOST_OPEN,
        max_bytes=max_file_bytes,
    ) as files:
        files.arrived(arriving.tables(batches))
    return files.facts()


def fact_batches(
    work: WritingWork, write: Callable[[Batches], TaskFacts], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Yield one row of facts about the files that a task writes, or about its failure."""
    try:
        require_running(work)
        facts = write(batches)
    except LiquidlogError as error:
        facts = failed(error, work)
    yield facts_batch(facts)
    deque(batches, maxlen=0)


def _survey(
    file: int,
    num_rows: int,
    rows: npt.NDArray[np.uint64],
    columns: Iterable[pa.Array],
    memory_bytes: int = 0,
) -> Survey:
    return Survey(
        file=file,
        row_group_rows=(num_rows,),
        memory_bytes=memory_bytes,
        rows=rows,
        columns=tuple(columns),
        row_bytes=np.full(len(rows), np.nan),
    )


def directories_of(work: WritingWork, parting: Parting, batches: Batches) -> set[str]:
    """Return the directories of a task's partitions; its batches have their columns alone."""
    only = replace(work, schema_string=schema_json(StructType(parting.fields)))
    found: set[str] = set()
    for table in Arriving(only).tables(batches):
        counted = table.append_column(_ROWS, pa.nulls(len(table)))
        found.update(directory for directory, _, _ in parting.parts(counted))
    return found
