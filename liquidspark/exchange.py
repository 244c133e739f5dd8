"""How pieces get from the tasks that make them to those that write them.

On a cluster they go through Spark's shuffle. Where the driver and all workers are one machine they
stay in files on its disk, and Spark moves only the places where they are: its shuffle would copy
every byte half a dozen times between Python, the JVM and the same disk.
"""

import os
import re
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from liquidlog.errors import LiquidlogError
from liquidlog.rewriting.assignment import Assignment
from liquidlog.rewriting.layout import Route
from liquidlog.rewriting.pieces import SHUFFLE_SCHEMA, Piece, in_batches
from liquidlog.rewriting.scratch import scratch_directory
from liquidlog.rewriting.shuffle import FACTS_SCHEMA, OutputTasks, RegroupTasks
from liquidlog.rewriting.sink import TaskFacts, encode_facts, failed
from liquidlog.rewriting.source import GroupWork
from liquidlog.rewriting.spilled import Spilled, SpilledTasks
from liquidlog.rewriting.whole import facts_batch
from liquidspark.mapping import collected, failure_in, map_batches
from liquidspark.sending import assigned, partition_values
from liquidspark.versions import context_of

_SPILLED_SCHEMA: Final = "file string, places binary, failure binary"
_ONE_MACHINE: Final = re.compile(r"local(\[.*\])?")
_DIRECTORIES: Final = "spark.local.dir"
_DIRECTORIES_VARIABLE: Final = "SPARK_LOCAL_DIRS"


class ReadingTasks(Protocol):
    """What reading tasks do with the batches of their partitions; must be picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]: ...  # noqa: D102


class Exchange(Protocol):
    """One way from reading tasks to writing tasks."""

    def targets(self, tasks: int) -> tuple[int, ...]:
        """Return what leads to each of so many writing tasks: `Piece.target`."""

    def write(
        self, frame: DataFrame, reading: ReadingTasks, work: GroupWork, route: Route
    ) -> TaskFacts:
        """Move the pieces that a function makes of a frame to the tasks that write them.

        Args:
            frame: Its partitions are the reading tasks.
            reading: Yields pieces, with `targets` for the tasks of the route.
            work: The group.
            route: Of its rows.
        """


@dataclass(frozen=True, slots=True)
class ShuffleExchange:
    """Spark's shuffle."""

    def targets(self, tasks: int) -> tuple[int, ...]:
        """Return ints that Spark's hash partitioning sends to one task each."""
        return partition_values(tasks)

    def write(
        self, frame: DataFrame, reading: ReadingTasks, work: GroupWork, route: Route
    ) -> TaskFacts:
        """Run one job with a shuffle; with two if rows go in two steps."""
        pieces = map_batches(frame, _SendingTasks(reading), SHUFFLE_SCHEMA)
        moved = pieces.repartition(route.tasks, "target")
        if route.in_two_steps:
            moved = moved.sortWithinPartitions("slice", "ordinal")
            moved = map_batches(moved, RegroupTasks(work=work), SHUFFLE_SCHEMA)
        if route.slices_per_task > 1:
            moved = moved.sortWithinPartitions("slice", "ordinal")
        return collected(map_batches(moved, OutputTasks(work=work, route=route), FACTS_SCHEMA))


@dataclass(frozen=True, slots=True)
class DiskExchange:
    """Files in a directory of the one machine on which everything runs."""

    spark: SparkSession
    directory: str

    def targets(self, tasks: int) -> tuple[int, ...]:
        """Return the numbers of the tasks."""
        return tuple(range(tasks))

    def write(
        self, frame: DataFrame, reading: ReadingTasks, work: GroupWork, route: Route
    ) -> TaskFacts:
        """Run a job whose tasks fill files, and one whose tasks write what is in them."""
        with scratch_directory(self.directory) as directory:
            spilling = _SpillingTasks(reading=reading, work=work, directory=directory)
            rows = map_batches(frame, spilling, _SPILLED_SCHEMA).collect()
            failure = failure_in(rows)
            if failure is not None:
                return failure
            spilled = Spilled.together([Spilled.of(row.file, bytes(row.places)) for row in rows])
            writing = SpilledTasks(writing=OutputTasks(work=work, route=route), directory=directory)
            sent = [Assignment((), (), (), one) for one in spilled.by_target(route.tasks)]
            numbers, mapped = assigned(self.spark, _WritingTasks(writing), sent)
            return collected(map_batches(numbers, mapped, FACTS_SCHEMA))


def exchange_of(spark: SparkSession) -> Exchange:
    """Return the way that pieces go on a session."""
    directory = shared_directory(spark)
    return ShuffleExchange() if directory is None else DiskExchange(spark, directory)


def shared_directory(spark: SparkSession) -> str | None:
    """Return where a session keeps rows on their way, if all its tasks run on this machine.

    None on a cluster, and over Spark Connect, whose server may be on another machine.
    """
    master = spark.conf.get("spark.master", None) or ""
    if context_of(spark) is None or _ONE_MACHINE.fullmatch(master) is None:
        return None
    named = os.environ.get(_DIRECTORIES_VARIABLE) or spark.conf.get(_DIRECTORIES, None)
    return named.split(",")[0].strip() if named else tempfile.gettempdir()


@dataclass(frozen=True, slots=True)
class _SendingTasks:
    """Reading tasks whose pieces go through the shuffle."""

    reading: ReadingTasks

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return in_batches(self.reading(batches))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpillingTasks:
    """Reading tasks whose pieces stay in files of a directory; each yields where they are."""

    reading: ReadingTasks
    work: GroupWork
    directory: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file, places, failure = None, None, None
        try:
            spilled = Spilled.written(self.directory, self.reading(batches))
            (file,), places = spilled.files, spilled.places.tobytes()
        except LiquidlogError as error:
            failure = encode_facts(failed(error, self.work))
            deque(batches, maxlen=0)
        arrays = [
            pa.array([file], pa.string()),
            pa.array([places], pa.binary()),
            pa.array([failure], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, ["file", "places", "failure"])


@dataclass(frozen=True, slots=True)
class _WritingTasks:
    """Tasks that write what is in files; each is sent where its pieces are."""

    tasks: SpilledTasks

    def __call__(self, _: int, assignment: Assignment[Spilled]) -> Iterator[pa.RecordBatch]:
        try:
            facts = self.tasks.run(assignment.own)
        except LiquidlogError as error:
            facts = failed(error, self.tasks.writing.work)
        yield facts_batch(facts)
