"""Rows that arrive for a partitioned table: which partitions there are, then files of them.

The partitions are asked for before the first file is written, in a pass over their columns alone:
a run must have noted the directories of its files. With many partitions, Spark sorts the rows of a
task by them, so that a task has few files open.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.data.partitioned import split_by_partition
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import WritePlan
from liquidlog.rewriting.sink import OutputFile, Proof, encode_facts, failed
from liquidlog.rewriting.source import ArrivingWork
from liquidlog.spec.partitions import (
    PartitionTexts,
    has_short_directories,
    output_directory,
    typed_value,
)
from liquidlog.spec.schema import StructField, StructType, parse_schema, schema_json
from liquidspark.arrivals import Arrived, WritingArrival
from liquidspark.arriving import Arriving, partition_number

MOST_OPEN: Final = 4
"""Files that a task writes at a time, each of which gathers a row group. The one that was written
to longest ago is finished to begin another one."""

DIRECTORY_SCHEMA: Final = "directory string, failure binary"
_Key = tuple[str | None, ...]

_ROWS: Final = "\x00rows"
"""A name that no Delta column can have."""


def partition_fields_of(plan: WritePlan) -> tuple[StructField, ...]:
    """Return the fields of the partition columns of a plan's table, in their order."""
    schema = parse_schema(plan.schema_string, where="the plan")
    known = {one.physical_name: one for one in schema.fields}
    return tuple(known[name] for name in plan.partition_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """How rows of a table are parted: its partition columns, and where files of each are."""

    fields: tuple[StructField, ...]
    settings: Mapping[str, str]
    token: str

    @classmethod
    def of(cls, plan: WritePlan, token: str) -> "Parting":
        """Return how rows of a run are parted for a plan."""
        fields = partition_fields_of(plan)
        return cls(fields=fields, settings=plan.directory_settings, token=token)

    @property
    def shares_directories(self) -> bool:
        """Whether several partitions may have one directory."""
        return has_short_directories(self.settings)

    def parts(self, table: pa.Table) -> Iterator[tuple[str, PartitionTexts, pa.Table]]:
        """Yield the rows of each partition, without its columns, their directory and its values."""
        try:
            for values, rows in split_by_partition(table, self.fields):
                unique = f"{self.token}-{sorted(values.items())}"
                yield output_directory(self.settings, values, unique), values, rows
        except ValueError as error:
            raise ExecutorError(f"the rows are none of the table: {error}") from error

    def proved(self, rows: pa.Table, values: PartitionTexts) -> pa.Table:
        """Return rows of a file with the partition columns as readers get them, as the last."""
        for one in self.fields:
            column = pa.repeat(typed_value(values[one.physical_name], one), len(rows))
            rows = rows.append_column(one.physical_name, column)
        return rows

    def given(self, table: pa.Table) -> pa.Table:
        """Return rows that came in as `proved` has them: "" is null in a partition column."""
        names = [one.physical_name for one in self.fields]
        rows = table.drop_columns(names)
        for name in names:
            column = table[name]
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if pa.types.is_string(column.type):
                column = pc.if_else(pc.equal(column, ""), None, column)
            rows = rows.append_column(name, column)
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryTasks:
    """The pass over the partition columns: batches have these only."""

    arriving: Arriving
    parting: Parting

    @classmethod
    def of(cls, work: ArrivingWork, parting: Parting) -> "DirectoryTasks":
        """Return the tasks for a work with the whole table's schema."""
        only = StructType(parting.fields)
        arriving = Arriving(replace(work, schema_string=schema_json(only)))
        return cls(arriving=arriving, parting=parting)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield (directory, null) for each partition, or (null, a failure)."""
        found: set[str | None] = set()
        failures: list[bytes | None] = []
        try:
            for table in self.arriving.tables(batches):
                counted = table.append_column(_ROWS, pa.nulls(len(table)))
                found.update(directory for directory, _, _ in self.parting.parts(counted))
            failures = [None] * len(found)
        except LiquidlogError as error:
            found, failures = {None}, [encode_facts(failed(error, self.arriving.work))]
            deque(batches, maxlen=0)
        arrays = [pa.array(list(found), pa.string()), pa.array(failures, pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, ["directory", "failure"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedArrival(WritingArrival):
    """Each task writes the rows that it gets to files of their partitions.

    `directories` are those that the run has noted.
    """

    parting: Parting
    directories: frozenset[str]
    max_file_bytes: int

    def files(self, tables: Iterator[pa.Table], read: Proof, written: Proof) -> Iterator[Arrived]:
        """Yield the files with the rows of tables, and add the rows to the proofs."""
        with _OpenFiles(self, written) as files:
            for table in tables:
                read.add(self.parting.given(table))
                for directory, values, rows in self.parting.parts(table):
                    if directory not in self.directories:
                        raise ExecutorError(
                            f"the DataFrame has rows for {directory}, and had none when it was"
                            " asked for its partitions: write one that gives the same rows twice"
                        )
                    yield from files.write(directory, values, rows)
                del table
            yield from files.finish()

    def part_work(self, directory: str) -> ArrivingWork:
        """Return the work as the file of a partition sees it."""
        return replace(
            self.arriving.work,
            partition_columns=tuple(one.physical_name for one in self.parting.fields),
            output_directories=(directory,),
        )


class _OpenFiles:
    """Context manager: the files of a task that are open; deletes those that are not finished."""

    def __init__(self, arrival: PartedArrival, written: Proof) -> None:
        self._arrival = arrival
        self._written = written
        self._open: OrderedDict[_Key, tuple[OutputFile, PartitionTexts]] = OrderedDict()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, directory: str, values: PartitionTexts, rows: pa.Table) -> Iterator[Arrived]:
        """Append rows to the file of a partition, and yield those that are finished with it."""
        # Directories with short names are shared by partitions.
        key = tuple(values.values())
        if key not in self._open:
            if len(self._open) >= MOST_OPEN:
                yield from self._finished(next(iter(self._open)))
            proof = _PartProof(self._written, self._arrival.parting, values)
            work = self._arrival.part_work(directory)
            file = self._stack.enter_context(OutputFile(work, partition_number(), proof=proof))
            self._open[key] = file, values
        self._open.move_to_end(key)
        file, _ = self._open[key]
        file.write(rows)
        if file.written_bytes >= self._arrival.max_file_bytes:
            yield from self._finished(key)

    def finish(self) -> Iterator[Arrived]:
        """Yield all files that are open, finished."""
        for key in tuple(self._open):
            yield from self._finished(key)

    def _finished(self, key: _Key) -> Iterator[Arrived]:
        file, values = self._open.pop(key)
        written = file.finish()
        if written is not None:
            yield written, values


class _PartProof(Proof):
    """Adds rows of the files of a partition to the proof of a task, with its values."""

    def __init__(self, whole: Proof, parting: Parting, values: PartitionTexts) -> None:
        super().__init__()
        self.timer = whole.timer
        self._whole, self._parting, self._values = whole, parting, values

    def add(self, table: pa.Table) -> None:
        """Count rows and add their checksum."""
        self._whole.add(self._parting.proved(table, self._values))
