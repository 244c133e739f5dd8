"""The executor: rewrites the groups of a ClusteringPlan, and writes the rows of DataFrames.

As many groups run at the same time as keep the cluster busy. Each is reported as it finishes, so
that it can be committed at once. Nothing here reads or writes the log.

A task that samples, places or writes the rows of a DataFrame gets the batches of a Spark partition:
the table's columns, then one boolean column per check. The directories of a partitioned table are
collected in a pass before the first file is written, since a run must have noted the directories of
its files.

The sampling pass keeps the rows with the least hash of (partition, row number), because the number
of rows is unknown until the last one. Over all partitions this is an even sample, always the same.
"""

import os
import pickle
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from uuid import uuid4  # noqa: TID251  names jobs, not files

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType as SparkStruct

from liquidlog.curve.layouts import Layout
from liquidlog.data.encodings import concat, convert_chunks, decoded, with_light_dictionaries
from liquidlog.data.runs import Run
from liquidlog.data.writer import encoded_bytes
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import (
    Cancelled,
    ClusteringPlan,
    GroupFailure,
    Outcome,
    Progress,
    RewriteResult,
    RewrittenGroup,
    Tasks,
    WrittenFile,
)
from liquidlog.rewriting.groups import (
    Engine,
    Flight,
    GroupsInFlight,
    Slots,
    runs_of,
    sorted_outputs,
)
from liquidlog.rewriting.inputs import (
    DEFAULT_OPTIONS,
    Assignment,
    ExecutorOptions,
    GroupWork,
    Split,
    Survey,
    WritingWork,
    conform,
    on_one_line,
    prepare_process,
    sample_positions,
)
from liquidlog.rewriting.outputs import (
    ArrivingFiles,
    Parting,
    TaskFacts,
    TaskProofs,
    begin_attempt,
    decode_facts,
    encode_facts,
    failed,
    is_tried_again,
    merge_facts,
    require_running,
)
from liquidlog.rewriting.shuffle import (
    FACTS_SCHEMA,
    SHUFFLE_SCHEMA,
    MapSide,
    OutputTasks,
    Piece,
    RegroupTasks,
    Route,
    SplitTasks,
    facts_batch,
    in_batches,
)
from liquidlog.spec.arrow import arrow_type, leaf_column, one_array, without_void
from liquidlog.spec.schema import StructType, leaves, schema_json
from liquidlog.storage.addresses import OptionsSource, file_address
from liquidlog.storage.objects import may_pass
from liquidlog.storage.unity import storage_of
from liquidspark.session import (
    OWN_WORKERS,
    arrow_frame,
    cancel_tagged,
    context_of,
    failure_reason,
    piece_session,
    require_ready,
    setting_of,
    tagged,
)

if TYPE_CHECKING:
    from pyspark import SparkContext, SparkJobInfo


# Functions over batches, and the requests of tasks
#
# A function travels to every task of a job, so a task's request is a row of a DataFrame. Small
# requests travel with the function instead, which saves a stage.
#
# Spark's `repartition(n, column)` sends a row to partition murmur3(column) mod n.
# `partition_values` finds a value for each partition, in every version of Spark and over Connect.

Batches: TypeAlias = Iterable[pa.RecordBatch]
Made = TypeVar("Made")

BatchFunction: TypeAlias = Callable[[Batches], Iterator[pa.RecordBatch]]
"""A function that mapInArrow calls once per task; must be picklable."""

TaskFunction = Callable[[int, Any], Iterator[Made]]
"""(number of the task, its request) -> results."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    function: BatchFunction

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        context = TaskContext.get()
        begin_attempt(0 if context is None else int(context.attemptNumber()))
        return self.function(batches)


def map_batches(frame: DataFrame, function: BatchFunction, schema: str | SparkStruct) -> DataFrame:
    """Return the frame of a function over a frame's batches; Spark calls it once per task."""
    return frame.mapInArrow(_Prepared(function).__call__, schema)


def collected(frame: DataFrame) -> TaskFacts:
    return merge_facts([decode_facts(bytes(row.facts)) for row in frame.collect()])


def answer_batches(
    work: WritingWork, ask: Callable[[Batches], object], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Yield the answer of a task, unless it is None, or its failure."""
    answer, failure = None, None
    try:
        found = ask(batches)
        if found is None:
            return
        answer = pickle.dumps(found, pickle.HIGHEST_PROTOCOL)
    except LiquidlogError as error:
        failure = encode_facts(failed(error, work))
        deque(batches, maxlen=0)
    arrays = [pa.array([answer], pa.binary()), pa.array([failure], pa.binary())]
    yield pa.RecordBatch.from_arrays(arrays, ["answer", "failure"])


def answers_of(
    frame: DataFrame,
    work: WritingWork,
    ask: Callable[[Batches], object],
    *,
    most: int | None = None,
) -> tuple[list[Any], TaskFacts | None]:
    answering = partial(answer_batches, work, ask)
    mapped = map_batches(frame, answering, "answer binary, failure binary")
    rows = (mapped if most is None else mapped.limit(most)).collect()
    failures = [decode_facts(bytes(row.failure)) for row in rows if row.failure is not None]
    if failures:
        return [], merge_facts(failures)
    return [pickle.loads(row.answer) for row in rows], None  # noqa: S301  ours


def prepare_worker() -> None:
    """Prepare a Python worker of Spark once; see `prepare_process`."""
    prepare_process(runs_only_tasks=OWN_WORKERS in os.environ)


_MAX_EMBEDDED_BYTES: Final = 64 << 10
"""Most bytes of all requests together that travel with the function."""


@dataclass(frozen=True, slots=True)
class AssignedTasks(Generic[Made]):
    """Runs tasks with their requests, from the rows of batches or from `embedded`."""

    function: TaskFunction[Made]
    embedded: tuple[bytes, ...] | None

    def __call__(self, batches: Batches) -> Iterator[Made]:
        for batch in batches:
            for row, number in enumerate(batch.column(0).to_pylist()):
                if self.embedded is None:
                    content = batch.column(1)[row].as_py()
                else:
                    content = self.embedded[number]
                yield from self.function(number, decoded_request(content))


_SIZE_BYTES: Final = 8
_CODEC: Final = "zstd"


def encoded_request(request: object) -> bytes:
    """Return a request as bytes; inverse: `decoded_request`."""
    plain = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
    packed: bytes = pa.compress(plain, codec=_CODEC, asbytes=True)
    return len(plain).to_bytes(_SIZE_BYTES, "little") + packed


def decoded_request(content: bytes) -> Any:  # noqa: ANN401  whatever was sent
    """Return the request in bytes that `encoded_request` made in this run."""
    size = int.from_bytes(content[:_SIZE_BYTES], "little")
    plain = pa.decompress(content[_SIZE_BYTES:], size, codec=_CODEC, asbytes=True)
    return pickle.loads(plain)  # noqa: S301  the driver of this run made it


def assigned(
    spark: SparkSession, function: TaskFunction[Made], requests: Sequence[Any]
) -> tuple[DataFrame, AssignedTasks[Made]]:
    """Return a frame with one partition per request, and the function that maps its batches."""
    contents = tuple(map(encoded_request, requests))
    count = len(contents)
    if sum(map(len, contents)) <= _MAX_EMBEDDED_BYTES:
        return spark.range(0, count, 1, count), AssignedTasks(function, contents)
    numbers = pa.array(range(count), pa.int64())
    targets = pa.array(partition_values(count), pa.int32())
    columns = [numbers, pa.array(contents, pa.binary()), targets]
    rows = pa.table(columns, ["id", "content", "target"])
    frame = arrow_frame(spark, rows, "id bigint, content binary, target int")
    return frame.repartition(count, "target"), AssignedTasks(function, None)


def partition_values(partitions: int) -> tuple[int, ...]:
    """Return an int per partition that Spark's hash partitioning sends there."""
    # Source: Spark, Murmur3_x86_32.hashInt and HashPartitioning.partitionIdExpression.
    found: dict[int, int] = {}
    start, step = 0, max(1024, 4 * partitions)
    while len(found) < partitions:
        values = np.arange(start, start + step, dtype=np.int64)
        homes = _murmur3(values).astype(np.int32) % np.int32(partitions)
        for home, value in zip(homes.tolist(), values.tolist(), strict=True):
            found.setdefault(home, value)
        start += step
    return tuple(found[partition] for partition in range(partitions))


def _murmur3(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    mixed = values.astype(np.uint32) * np.uint32(0xCC9E2D51)
    mixed = _rotate(mixed, 15) * np.uint32(0x1B873593)
    hashed = _rotate(mixed ^ np.uint32(42), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(4)
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashed ^ (hashed >> np.uint32(16))


def _rotate(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


# The tasks of groups as Spark jobs
#
# `spark.range(n)` with n partitions gives n tasks, each with its number.

T = TypeVar("T")

SLOTS_PER_GROUP: Final = 16
"""With twice as many groups in flight as there are slots, there are 32 jobs at a time."""
_MEASURE_SECONDS: Final = 30.0
_RANGE: Final = 1 << 16


class TaskSlots(Slots):
    """The number of tasks that the cluster runs at a time, measured twice a minute: it may grow."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(task_slots(spark))
        self._spark, self._measured = spark, time.monotonic()
        self.watched = context_of(spark) is not None

    @property
    def groups_per_job(self) -> int:
        return max(1, self._count // SLOTS_PER_GROUP)

    def count(self) -> int:
        if time.monotonic() - self._measured > _MEASURE_SECONDS:
            self._measured = time.monotonic()
            with suppress(ExecutorError):  # the jobs of the groups say what is wrong
                self._count = task_slots(self._spark)
        return self._count


def task_slots(spark: SparkSession) -> int:
    """Return the number of tasks that the session's cluster runs at a time, at least 1."""
    try:
        context = context_of(spark)
        cores = _partitions(spark) if context is None else int(context.defaultParallelism)
    except Exception as error:
        raise ExecutorError(f"the Spark session has ended: {failure_reason(error)}") from error
    return max(1, cores // int(setting_of(spark, "spark.task.cpus") or 1))


def _partitions(spark: SparkSession) -> int:
    """Return how many partitions Spark makes by default: one per core."""
    numbers = spark.range(_RANGE).select(spark_partition_id().alias("number"))
    (row,) = numbers.agg({"number": "max"}).collect()
    return int(row[0]) + 1


_LOCAL_ATTEMPTS: Final = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")


class SparkEngine(Engine):
    """Runs the tasks of one group on a session, as jobs with an own name."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark
        self._name = f"liquidspark-{uuid4().hex}"

    @property
    def task_attempts(self) -> int:
        return task_attempts(self._spark)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        context = context_of(self._spark)
        if context is not None:
            context.setJobGroup(self._name, "liquidspark", interruptOnCancel=True)
        with nullcontext() if context is not None else tagged(self._spark, self._name):
            yield

    def each(self, function: Callable[[Any], T], requests: Sequence[Any]) -> Sequence[T]:
        return _answers(self._spark, function, requests)

    def moved(
        self,
        work: GroupWork,
        layout: Layout,
        route: Route,
        sent: Sequence[Assignment[tuple[Split, ...]]],
    ) -> list[TaskFacts]:
        targets = partition_values(route.tasks)
        reading = SplitTasks(work=work, layout=layout, route=route, targets=targets)
        return [shuffled(*assigned(self._spark, reading, sent), work, route)]

    def reason_of(self, error: Exception) -> str:
        return failure_reason(error)

    def require_running(self) -> None:
        task_slots(self._spark)

    def _tasks_done(self) -> int:
        context = context_of(self._spark)
        if context is None:
            return 0
        stages = {stage for job in self._jobs(context) for stage in job.stageIds}
        infos = map(context.statusTracker().getStageInfo, stages)
        return sum(int(info.numCompletedTasks) for info in infos if info is not None)

    def _stop(self, *, is_again: bool) -> None:
        context = context_of(self._spark)
        with suppress(Exception):
            if context is None:
                cancel_tagged(self._spark, self._name)
            elif not is_again or "RUNNING" in {job.status for job in self._jobs(context)}:
                # Spark logs a warning whenever there is nothing to stop.
                context.cancelJobGroup(self._name)

    def _jobs(self, context: "SparkContext") -> "list[SparkJobInfo]":
        tracker = context.statusTracker()
        found = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name))
        return [job for job in found if job is not None]


PieceFunction = Callable[[Batches], Iterator[Piece]]
"""Maps the batches of a reading task's partition to pieces; must be picklable."""


def shuffled(
    frame: DataFrame, reading: PieceFunction, work: WritingWork, route: Route
) -> TaskFacts:
    """Return facts about the files that tasks write of the pieces of a frame."""
    pieces = map_batches(frame, partial(_sent, reading), SHUFFLE_SCHEMA)
    moved = pieces.repartition(route.tasks, "target")
    if route.in_two_steps:
        moved = moved.sortWithinPartitions("slice", "ordinal")
        moved = map_batches(moved, RegroupTasks(work=work), SHUFFLE_SCHEMA)
    if route.slices_per_task > 1:
        moved = moved.sortWithinPartitions("slice", "ordinal")
    return collected(map_batches(moved, OutputTasks(work=work, route=route), FACTS_SCHEMA))


def _sent(reading: PieceFunction, batches: Batches) -> Iterator[pa.RecordBatch]:
    return in_batches(reading(batches))


def task_attempts(spark: SparkSession) -> int:
    local = _LOCAL_ATTEMPTS.fullmatch(setting_of(spark, "spark.master") or "")
    if local is not None:
        return int(local[1] or 1)
    return int(setting_of(spark, "spark.task.maxFailures") or 4)


def session_tasks(spark: SparkSession) -> Tasks:
    return partial(_run_tasks, spark)


def _run_tasks(
    spark: SparkSession, function: Callable[[Any], Any], requests: Sequence[Any]
) -> Sequence[Any]:
    if not requests:
        return ()
    # The names of jobs belong to the thread, and the caller's thread may have set its own.
    with piece_session(spark) as own, ThreadPoolExecutor(1) as pool:
        engine = SparkEngine(own)

        def answers() -> Sequence[Any]:
            with engine.at_work():
                return engine.each(function, requests)

        try:
            return pool.submit(answers).result()
        except Exception as error:
            raise ExecutorError(failure_reason(error)) from error
        except BaseException:
            engine.cancel()
            raise


def _answers(
    spark: SparkSession, function: Callable[[Any], T], requests: Sequence[Any]
) -> Sequence[T]:
    task = partial(_answer, function, task_attempts(spark))
    frame, mapped = assigned(spark, task, requests)
    schema = "number long, answer binary, failure string"
    rows = map_batches(frame, mapped, schema).collect()
    failures = sorted({row.failure for row in rows if row.failure is not None})
    if failures:
        raise ExecutorError("; ".join(failures))
    answers = {row.number: bytes(row.answer) for row in rows}
    if answers.keys() != set(range(len(requests))):
        raise ExecutorError(f"Spark ran {len(answers)} of {len(requests)} tasks")
    return [pickle.loads(answers[number]) for number in range(len(requests))]  # noqa: S301  ours


def _answer(
    function: Callable[[Any], Any], attempts: int, number: int, request: object
) -> Iterator[pa.RecordBatch]:
    answer, failure = None, None
    try:
        answer = pickle.dumps(function(request), pickle.HIGHEST_PROTOCOL)
    except LiquidlogError as error:
        if may_pass(error) and is_tried_again(attempts):
            raise
        failure = on_one_line(error)
    schema = {"number": pa.int64(), "answer": pa.binary(), "failure": pa.string()}
    row = {"number": number, "answer": answer, "failure": failure}
    yield pa.RecordBatch.from_pylist([row], pa.schema(schema))


# Groups of a plan, one by one as they finish

__all__ = ["ExecutorOptions", "execute", "execute_groups"]


def execute(
    spark: SparkSession,
    plan: ClusteringPlan,
    *,
    groups: int | Collection[int] | None = None,
    on_group: Callable[[Outcome], None] | None = None,
    progress: Progress | None = None,
    options: ExecutorOptions = DEFAULT_OPTIONS,
    storage_options: OptionsSource | None = None,
) -> RewriteResult:
    """Rewrite the plan's groups and return the facts about all of them, in group order.

    `on_group` is called with each group when it finishes or fails. The other arguments are those of
    `execute_groups`.

    Raises:
        UsageError: If the plan has no such group.
        ExecutorError: If the plan cannot be executed; or, after all others are finished, if a
            group failed; or at once, if the session ended. Files of finished groups are then
            deleted, unless there is an `on_group`, which has received them.
    """
    finished: list[RewrittenGroup] = []
    failures: list[GroupFailure] = []
    outcomes = execute_groups(
        spark,
        plan,
        groups=groups,
        progress=progress,
        options=options,
        storage_options=storage_options,
    )
    try:
        for outcome in outcomes:
            if isinstance(outcome, GroupFailure):
                failures.append(outcome)
            else:
                finished.append(outcome)
            if on_group is not None:
                on_group(outcome)
        if failures:
            reasons = [f"group {one.group_id}: {one.reason}" for one in failures]
            raise ExecutorError("; ".join(reasons))  # noqa: TRY301  also deletes files
    except ExecutorError:
        places = {group.group_id: group.directories for group in plan.groups}
        for group in finished if on_group is None else ():
            storage = storage_of(plan.table_uri, plan.location, storage_options)
            directory = file_address(plan.location, "")
            Run(directory, group.run, storage, places[group.group_id]).discard()
        raise
    finished.sort(key=lambda group: group.group_id)
    return RewriteResult(plan_id=plan.plan_id, groups=tuple(finished))


def execute_groups(
    spark: SparkSession,
    plan: ClusteringPlan,
    *,
    groups: int | Collection[int] | None = None,
    progress: Progress | None = None,
    options: ExecutorOptions = DEFAULT_OPTIONS,
    storage_options: OptionsSource | None = None,
    cancelled: Cancelled | None = None,
    verb: str = "execute_groups",
) -> Iterator[Outcome]:
    """Yield each group of the plan when it finishes or fails; a failure does not stop the others.

    A group that `cancelled` names is stopped, or not begun; its files are deleted, and it is a
    failure that is cancelled. One that finishes nevertheless is yielded as any other.

    Closing the iterator cancels the running groups and deletes what they wrote. Tasks that Spark
    does not stop at once delete their own files when they are done.

    Args:
        spark: A classic or Connect session whose workers can import this package.
        plan: What to rewrite.
        groups: Ids of the groups to rewrite, or one id; all if None.
        progress: Called now and then with the share of a running group that is done.
        options: How the work of a group is divided.
        storage_options: Workers open the table's files with these and with what their own
            environment says. A callable that returns options is asked here, before each job.
        cancelled: Returns why groups need not be rewritten, by id; `Table.watch` returns one. It is
            called a few times a second, while the caller waits for an outcome.
        verb: The name of this process's work in the markers of the runs.

    Raises:
        UsageError: If the plan has no such group.
        ExecutorError: If this executor cannot execute the plan, the driver or the workers lack
            something, or the session ends.
    """
    runs = runs_of(plan, groups, options=options, storage=storage_options, verb=verb)
    if not runs:
        return
    first, inputs = runs[0], sum(len(run.group.inputs) for run in runs if not run.is_one_task)
    with piece_session(spark) as own:
        if first.first_input is not None:
            require_ready(
                own,
                directory=first.directory,
                file=first.first_input,
                storage=first.storage,
                tasks=inputs or len(runs),
            )
        flying = [GroupsInFlight((run,), SparkEngine(own)) for run in runs]
        yield from Flight(TaskSlots(own), flying).outcomes(progress, cancelled)


_HELD_SHARE: Final = 2
"""Rows take up to half the memory of a slice, since dividing them by slice holds them twice."""
MOST_OPEN: Final = 4
"""The most partition files that a task writes at a time; with more, Spark sorts its rows first."""
_ROWS: Final = "\x00rows"
"""A Delta column cannot have this name."""
_SHOWN: Final = 200
_MIX: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)

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
    mixed = ((np.uint64(partition) << np.uint64(40)) | rows) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _MIX:
        mixed = (mixed ^ (mixed >> shift)) * factor
    return mixed ^ (mixed >> np.uint64(31))


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
    found = []
    for one, known in zip(surveys, hashes, strict=True):
        columns = [column.filter(pa.array(known <= limit)) for column in one.columns]
        found.append(_survey(one.file, one.num_rows, one.rows[known <= limit], columns))
    return found


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
