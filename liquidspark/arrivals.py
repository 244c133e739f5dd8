"""Tasks that write rows as they arrive: all of them laid out by one, or each task its own.

What they are told and what becomes of it is here too: a plan as work, and their facts as a result.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from msgspec import structs

from liquidlog.curve.curves import parse_curve
from liquidlog.data.encodings import concat, decoded
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import GroupCosts, WritePlan, WriteResult, WrittenFile
from liquidlog.rewriting.options import ExecutorOptions
from liquidlog.rewriting.sink import (
    OutputFile,
    Proof,
    TaskFacts,
    Timer,
    failed,
    require_running,
)
from liquidlog.rewriting.source import ArrivingWork, Survey, flat_array, sample_positions
from liquidlog.rewriting.whole import facts_batch, sorted_outputs
from liquidlog.spec.arrow import leaf_column
from liquidlog.spec.partitions import PartitionTexts
from liquidlog.storage.addresses import file_address
from liquidlog.storage.options import StorageOptions
from liquidspark.arriving import Arriving, partition_number

Arrived = tuple[WrittenFile, PartitionTexts]
"""A file, and the partition values of its rows; none in a table without partition columns."""


def arriving_work(
    plan: WritePlan, token: str, storage: StorageOptions, options: ExecutorOptions, *, attempts: int
) -> ArrivingWork:
    """Return a plan as tasks see it; `attempts` is how often Spark tries a task."""
    return ArrivingWork(
        directory=file_address(plan.table_uri, "").rstrip("/"),
        outputs=1,
        schema_string=plan.schema_string,
        mapping_mode=plan.mapping_mode,
        columns=tuple(column.physical for column in plan.columns),
        curve=None if plan.curve is None else parse_curve(plan.curve),
        prefix=plan.prefix,
        writer_options=plan.writer_options,
        token=token,
        storage=storage,
        read_back=options.read_back,
        slice_bytes=options.slice_bytes,
        task_attempts=attempts,
    )


def write_result(plan: WritePlan, token: str, facts: TaskFacts, *, seconds: float) -> WriteResult:
    """Return what tasks did for a plan, as a result."""
    try:
        read, written = facts.proofs()
    except ExecutorError as error:
        raise ExecutorError(f"{error}; nothing was committed") from error
    written_bytes = sum(output.size_bytes for output in facts.outputs)
    return WriteResult(
        write_id=plan.write_id,
        run=token,
        outputs=tuple(sorted(facts.outputs, key=lambda output: output.path)),
        partitions=facts.partitions,
        rows_read=read.rows,
        rows_written=written.rows,
        checksum_read=read.checksum,
        checksum_written=written.checksum,
        seconds=round(seconds, 3),
        costs=structs.replace(facts.costs, written_bytes=written_bytes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingArrival(ABC):
    """A task that writes rows as they arrive, and proves that it wrote what came."""

    arriving: Arriving

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row of facts."""
        yield facts_batch(self.run(batches))
        deque(batches, maxlen=0)

    @abstractmethod
    def files(self, tables: Iterator[pa.Table], read: Proof, written: Proof) -> Iterator[Arrived]:
        """Write the rows of tables, add them to the proofs, and yield the files."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskFacts:
        """Write the rows of batches, and return what that did."""
        work = self.arriving.work
        read, written, whole, reading = Proof(), Proof(), Timer(), Timer()
        try:
            require_running(work)
            with whole.running():
                tables = reading.each(self.arriving.tables(batches))
                arrived = tuple(self.files(tables, read, written))
        except LiquidlogError as error:
            return failed(error, work)
        return _facts(read, written, arrived, whole, reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeArrival(WritingArrival):
    """One task that lays out and writes all rows; for as few as fit into its memory."""

    sample_rows: int

    def files(self, tables: Iterator[pa.Table], read: Proof, written: Proof) -> Iterator[Arrived]:
        """Yield the files with the rows of tables, which are held until the last one is there."""
        held = list(tables)
        if not held:
            return
        work = self.arriving.work
        surveys = [_survey_of(work, concat(held), self.sample_rows)]
        yield from _unparted(sorted_outputs(work, surveys, held, read, written))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainArrival(WritingArrival):
    """Each task writes the rows of its partition as they come, to files of `max_file_bytes`."""

    max_file_bytes: int

    def files(self, tables: Iterator[pa.Table], read: Proof, written: Proof) -> Iterator[Arrived]:
        """Yield the files with the rows of tables, in their order."""
        number = partition_number()
        for first in tables:
            with OutputFile(self.arriving.work, number, proof=written) as output:
                table: pa.Table | None = first
                while table is not None:
                    read.add(table)
                    output.write(table)
                    full = output.written_bytes >= self.max_file_bytes
                    table = None if full else next(tables, None)
                file = output.finish()
            if file is not None:
                yield file, {}


def _survey_of(work: ArrivingWork, table: pa.Table, sample_rows: int) -> Survey:
    rows = sample_positions(len(table), sample_rows)
    taken = decoded(
        pa.table(
            [leaf_column(table, path) for path in work.columns],
            [str(number) for number in range(len(work.columns))],
        ).take(pa.array(rows))
    )
    return Survey(
        file=0,
        row_group_rows=(len(table),),
        memory_bytes=table.nbytes,
        rows=rows,
        columns=tuple(flat_array(column) for column in taken.columns),
        row_bytes=np.full(len(rows), np.nan),
    )


def _facts(
    read: Proof,
    written: Proof,
    arrived: tuple[Arrived, ...],
    whole: Timer,
    reading: Timer,
) -> TaskFacts:
    verify_seconds = read.timer.seconds + written.timer.seconds
    costs = GroupCosts(
        map_seconds=reading.seconds,
        write_seconds=whole.seconds - reading.seconds - verify_seconds,
        verify_seconds=verify_seconds,
    )
    return TaskFacts(
        read=read.total(),
        written=written.total(),
        outputs=tuple(file for file, _ in arrived),
        partitions={file.path: values for file, values in arrived if values},
        costs=costs,
    )


def _unparted(files: Iterable[WrittenFile]) -> Iterator[Arrived]:
    return ((file, {}) for file in files)
