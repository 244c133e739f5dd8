"""One group as Spark jobs: the sampling pass, then the main pass.

`spark.range(n)` with n partitions gives n tasks, each its own number; what a task has to do
travels with the function. So nothing but numbers is ever a Spark row before the shuffle.
"""

import ctypes
import gc
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from liquidlog.errors import LiquidlogError
from liquidlog.plan import GroupCosts
from liquidlog.rewriting.assignment import Assignment, decode_survey, encode_survey
from liquidlog.rewriting.layout import Route, build_layout, choose_route, first_ordinals
from liquidlog.rewriting.pieces import SHUFFLE_SCHEMA
from liquidlog.rewriting.shuffle import FACTS_SCHEMA, OutputTasks, RegroupTasks, SplitTasks
from liquidlog.rewriting.sink import (
    TaskFacts,
    Timer,
    begin_attempt,
    check_rows,
    decode_facts,
    encode_facts,
    failed,
    merge_facts,
)
from liquidlog.rewriting.source import (
    GroupWork,
    Planned,
    Split,
    Survey,
    rows_to_sample,
    split_file,
    survey_file,
)
from liquidlog.rewriting.whole import CompactionTasks, GroupTask, shares
from liquidlog.spec.arguments import one, whole_number
from liquidlog.startup import do_without_pandas
from liquidspark.jobs import GroupJobs
from liquidspark.sending import assigned, partition_values
from liquidspark.versions import OWN_WORKERS

T = TypeVar("T")

SURVEY_SCHEMA: Final = "survey binary, failure binary"
_MAX_SURVEY_TASKS: Final = 1000
_SURVEY_SHARE: Final = 0.1
"""About the share of the sampling pass in a group's time; only a progress bar depends on it."""
_MIN_TASKS_PER_SLOT: Final = 4
_MIN_TASK_BYTES: Final = 8 << 20
_MOST_SENT: Final = 3
"""How often a job's tasks are sent with newer credentials, the first time included."""
_LOCAL_ATTEMPTS: Final = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")
_DEFAULT_ATTEMPTS: Final = 4
_LEAST_OPTIONS: Final = {
    "single_task_bytes": 0,
    "task_bytes": 1,
    "slice_bytes": 1,
    "sample_rows": 1,
    "sample_rows_per_output": 0,
}

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of glibc's mallopt(3)."""

_LARGEST_MMAP_THRESHOLD_BYTES: Final = 32 << 20
"""The most that glibc accepts."""

_KEPT_BYTES: Final = 128 << 20
"""Free memory at the end of the heap that the process keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """How the work of a group is divided, and how far its proof goes.

    The proof covers what the readers of the outputs will find, or, without `read_back`, ends
    where rows are handed to the Parquet encoder.

    Attributes:
        single_task_bytes: A group of at most this many input bytes, as stored, is one task
            without a shuffle.
        task_bytes: Input bytes, as stored, that one reading task takes at most.
        slice_bytes: Input bytes, as stored, that a task turns into rows, or sorts, at a time.
            The memory of a Python worker goes by it, whatever the size of the group.
        sample_rows: Rows sampled per group.
        sample_rows_per_output: Rows sampled per output, where that makes more per group.
        read_back: Whether every output is read back and proved to hold what was read.
        copy_row_groups: Whether a compaction copies row groups byte by byte where it can, instead
            of decoding and encoding their rows.

    Raises:
        UsageError: If a number is no whole number or is below its least value.
    """

    single_task_bytes: int = 16 << 20
    task_bytes: int = 128 << 20
    slice_bytes: int = 32 << 20
    sample_rows: int = 200_000
    sample_rows_per_output: int = 2_000
    read_back: bool = True
    copy_row_groups: bool = True

    def __post_init__(self) -> None:
        """Check the values."""
        for name, least in _LEAST_OPTIONS.items():
            whole_number(getattr(self, name), argument=name, least=least)
        for name in ("read_back", "copy_row_groups"):
            one(getattr(self, name), bool, argument=name, expected="True or False")

    def sample_rows_of(self, outputs: int) -> int:
        """Return how many rows are sampled in a group of this many outputs."""
        return max(self.sample_rows, self.sample_rows_per_output * outputs)


class BatchFunction(Protocol):
    """What mapInArrow calls once per task; must be picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A task's function, and before it what a worker does once; see `prepare_worker`."""

    function: BatchFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        context = TaskContext.get()
        begin_attempt(0 if context is None else int(context.attemptNumber()))
        return self.function(batches)


class SurveyOrder(NamedTuple):
    """One input to survey: its place in the plan, and how many rows to sample."""

    planned: Planned
    sample_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyTasks:
    """The sampling pass: each task surveys some inputs."""

    work: GroupWork

    def __call__(
        self, _: int, assignment: Assignment[tuple[SurveyOrder, ...]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield one row per surveyed input, or a failure."""
        work = assignment.work(self.work)
        for file, order in enumerate(assignment.own):
            yield self._survey(work, file, order)

    def _survey(self, work: GroupWork, file: int, order: SurveyOrder) -> pa.RecordBatch:
        survey, failure = None, None
        try:
            rows = order.sample_rows
            survey = encode_survey(survey_file(work, file, sample_rows=rows, planned=order.planned))
        except LiquidlogError as error:
            failure = encode_facts(failed(error, work))
        arrays = [pa.array([survey], pa.binary()), pa.array([failure], pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, ["survey", "failure"])


def run_group(
    spark: SparkSession, work: GroupWork, *, options: ExecutorOptions, jobs: GroupJobs, slots: int
) -> TaskFacts:
    """Rewrite one group and return the summed facts of its tasks, failure included.

    Tasks are sent storage options of the moment their job begins; see `with_fresh_options`.

    Args:
        spark: The session.
        work: The group.
        options: How the work is divided.
        jobs: What the group's jobs belong to.
        slots: How many tasks the cluster runs at a time.
    """
    work = replace(work, task_attempts=task_attempts(spark))
    sample_rows = options.sample_rows_of(work.outputs)
    if work.size_bytes <= options.single_task_bytes:

        def whole(sent: GroupWork) -> TaskFacts:
            jobs.begin_phase(1, until=1.0)
            return collected(_tasks(spark, GroupTask(work=sent, sample_rows=sample_rows), 1))

        return with_fresh_options(work, whole, facts_of=lambda facts: facts)
    sampling = Timer()
    with sampling.running():
        surveys, failure = with_fresh_options(
            work,
            lambda sent: _survey(spark, sent, sample_rows=sample_rows, jobs=jobs),
            facts_of=itemgetter(1),
        )
    if failure is not None:
        return failure

    def main_pass(sent: GroupWork) -> TaskFacts:
        if sent.curve is not None:
            return _shuffle(spark, sent, surveys, options=options, jobs=jobs, slots=slots)
        jobs.begin_phase(sent.outputs, until=1.0)
        tasks = CompactionTasks(work=sent.without_inputs())
        frame, mapped = assigned(spark, tasks, shares(sent, surveys))
        return collected(map_batches(frame, mapped, FACTS_SCHEMA))

    facts = with_fresh_options(work, main_pass, facts_of=lambda facts: facts)
    sampled = TaskFacts(costs=GroupCosts(sample_seconds=sampling.seconds))
    return check_rows(merge_facts([facts, sampled]), surveys)


def with_fresh_options(
    work: GroupWork, job: Callable[[GroupWork], T], *, facts_of: Callable[[T], TaskFacts | None]
) -> T:
    """Return what a job gives whose tasks are sent the work with options of this moment.

    If nothing failed but credentials that have expired meanwhile, the job begins again with those
    of then, a few times. Tasks cannot do that: Spark tries them with what they were sent.

    Raises:
        StorageError: If a callable that gives the options fails.
    """
    sent = work.sent()
    for _ in range(_MOST_SENT - 1):
        found = job(sent)
        facts = facts_of(found)
        if facts is None or not facts.denied or not work.storage.differ_from(sent.storage):
            return found
        sent = work.sent()
    return job(sent)


def task_attempts(spark: SparkSession) -> int:
    """Return how often Spark tries a task before it gives up its job, at least 1.

    Source: Spark, SparkContext.createTaskScheduler: a local master names the number itself.
    """
    local = _LOCAL_ATTEMPTS.fullmatch(spark.conf.get("spark.master", None) or "")
    if local is not None:
        return int(local[1] or 1)
    return int(spark.conf.get("spark.task.maxFailures", None) or _DEFAULT_ATTEMPTS)


def _survey(
    spark: SparkSession, work: GroupWork, *, sample_rows: int, jobs: GroupJobs
) -> tuple[list[Survey], TaskFacts | None]:
    tasks = min(len(work.paths), _MAX_SURVEY_TASKS)
    jobs.begin_phase(tasks, until=_SURVEY_SHARE)
    planned = Planned(0, work.size_bytes, work.num_records)
    counts = rows_to_sample(work.sizes_bytes, sample_rows)
    assignments = []
    for number in range(tasks):
        files = range(number, len(counts), tasks)
        orders = tuple(SurveyOrder(planned._replace(file=file), counts[file]) for file in files)
        assignments.append(Assignment.of(work, files, orders))
    function = SurveyTasks(work=work.without_inputs())
    frame, mapped = assigned(spark, function, assignments)
    rows = map_batches(frame, mapped, SURVEY_SCHEMA).collect()
    failures = [decode_facts(bytes(row.failure)) for row in rows if row.failure is not None]
    if failures:
        return [], merge_facts(failures)
    return sorted((decode_survey(bytes(row.survey)) for row in rows), key=attrgetter("file")), None


def _shuffle(
    spark: SparkSession,
    work: GroupWork,
    surveys: Sequence[Survey],
    *,
    options: ExecutorOptions,
    jobs: GroupJobs,
    slots: int,
) -> TaskFacts:
    if not any(survey.num_rows for survey in surveys):
        return merge_facts([])
    layout = build_layout(work, surveys)
    work = replace(work, outputs=layout.outputs)
    splits = _splits(work, surveys, task_bytes=options.task_bytes, slots=slots)
    route = choose_route(work, slices_per_output=layout.slices_per_output)
    jobs.begin_phase(len(splits) + route.tasks, until=1.0)
    sent = work.without_inputs()
    targets = partition_values(route.tasks)
    reading = SplitTasks(work=sent, layout=layout, route=route, targets=targets)
    frame, mapped = assigned(spark, reading, [_assignment(work, own) for own in splits])
    return write_moved(map_batches(frame, mapped, SHUFFLE_SCHEMA), sent, route)


def write_moved(pieces: DataFrame, work: GroupWork, route: Route) -> TaskFacts:
    """Move pieces to the tasks that write them, and return the sum of what all tasks did."""
    moved = pieces.repartition(route.tasks, "target")
    if route.in_two_steps:
        moved = moved.sortWithinPartitions("slice", "ordinal")
        moved = map_batches(moved, RegroupTasks(work=work), SHUFFLE_SCHEMA)
    if route.slices_per_task > 1:
        moved = moved.sortWithinPartitions("slice", "ordinal")
    return collected(map_batches(moved, OutputTasks(work=work, route=route), FACTS_SCHEMA))


def _assignment(work: GroupWork, splits: Sequence[Split]) -> Assignment[tuple[Split, ...]]:
    files = sorted({split.file for split in splits})
    numbers = {file: number for number, file in enumerate(files)}
    own = tuple(replace(split, file=numbers[split.file]) for split in splits)
    return Assignment.of(work, files, own)


def _splits(
    work: GroupWork, surveys: Sequence[Survey], *, task_bytes: int, slots: int
) -> tuple[tuple[Split, ...], ...]:
    """Return the splits of each reading task: small files together, large ones apart."""
    even_bytes = work.size_bytes // (slots * _MIN_TASKS_PER_SLOT)
    limit = max(_MIN_TASK_BYTES, min(task_bytes, even_bytes))
    tasks: list[tuple[Split, ...]] = []
    waiting: list[Split] = []
    waiting_bytes = 0.0
    for survey, first in zip(surveys, first_ordinals(surveys), strict=True):
        row_bytes = work.sizes_bytes[survey.file] / max(survey.num_rows, 1)
        for split in split_file(
            survey.file, survey.row_group_rows, first_ordinal=first, max_rows=limit / row_bytes
        ):
            if waiting and waiting_bytes + split.rows * row_bytes > limit:
                tasks.append(tuple(waiting))
                waiting, waiting_bytes = [], 0.0
            waiting.append(split)
            waiting_bytes += split.rows * row_bytes
    return (*tasks, tuple(waiting)) if waiting else tuple(tasks)


def _tasks(
    spark: SparkSession, function: BatchFunction, count: int, *, schema: str = FACTS_SCHEMA
) -> DataFrame:
    return map_batches(spark.range(0, count, 1, count), function, schema)


def map_batches(frame: DataFrame, function: BatchFunction, schema: str) -> DataFrame:
    """Return what a function makes of a frame's batches; it is called once per task."""
    return frame.mapInArrow(_Prepared(function).__call__, schema)


def collected(frame: DataFrame) -> TaskFacts:
    """Run a job whose rows are facts, and return their sum."""
    return merge_facts([decode_facts(bytes(row.facts)) for row in frame.collect()])


@cache
def prepare_worker() -> None:
    """Keep freed memory for the next slice, and take imported modules out of garbage collection.

    Every slice needs as much memory as the one before. If the allocator returns it in between, the
    kernel clears it again and again: a ninth of the CPU time of a rewrite of TPC-H lineitem. Spark
    collects garbage after every task, which visits every imported object: another thirtieth. A
    worker that runs nothing but our tasks does without pandas, which Arrow imports for its first
    conversion.
    """
    if OWN_WORKERS in os.environ:
        do_without_pandas()
    gc.collect()
    gc.freeze()
    mallopt = _mallopt()
    if mallopt is None:
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    pa.set_memory_pool(pa.system_memory_pool())


def _mallopt() -> Callable[[int, int], int] | None:
    """Return the function of the C library; None where it has none."""
    return getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
