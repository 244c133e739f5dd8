"""One group as Spark jobs: the sampling pass, then the main pass.

`spark.range(n)` with n partitions gives n tasks, each its own number; what a task has to do
travels with the function. So nothing but numbers is ever a Spark row before the shuffle.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from liquidlog.errors import LiquidlogError
from liquidlog.plan import GroupCosts
from liquidspark.jobs import GroupJobs
from liquidspark.layout import build_layout, first_ordinals
from liquidspark.sample import (
    Survey,
    check_rows,
    decode_survey,
    encode_survey,
    sample_shares,
    survey_file,
)
from liquidspark.shuffle import (
    FACTS_SCHEMA,
    SHUFFLE_SCHEMA,
    OutputTasks,
    SplitTasks,
    partition_values,
)
from liquidspark.sink import TaskFacts, decode_facts, encode_facts, failed, merge_facts
from liquidspark.source import GroupWork, Split, split_file
from liquidspark.timing import Timer
from liquidspark.whole import CompactionTasks, GroupTask
from liquidspark.worker import prepare_worker

_SURVEY_SCHEMA: Final = "survey binary, failure binary"
_MAX_SURVEY_TASKS: Final = 1000
_SURVEY_SHARE: Final = 0.1
"""About what the sampling pass is of a group's time; only a progress bar depends on it."""
_MIN_TASKS_PER_CORE: Final = 4
_MIN_TASK_BYTES: Final = 8 << 20


class BatchFunction(Protocol):
    """What mapInArrow calls once a task; must be picklable."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A function of tasks, in a worker made ready for them."""

    function: BatchFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        return self.function(batches)


class Division(Protocol):
    """How the work of a group is divided; see ExecutorOptions."""

    @property
    def single_task_bytes(self) -> int: ...  # noqa: D102
    @property
    def task_bytes(self) -> int: ...  # noqa: D102
    @property
    def sample_rows(self) -> int: ...  # noqa: D102
    @property
    def sample_rows_per_output(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyTasks:
    """The sampling pass: each task surveys some inputs."""

    work: GroupWork
    files: tuple[tuple[int, ...], ...]
    shares: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per surveyed input, or a failure."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for file in self.files[number]:
                    yield self._survey(file)

    def _survey(self, file: int) -> pa.RecordBatch:
        survey, failure = None, None
        try:
            survey = encode_survey(survey_file(self.work, file, sample_rows=self.shares[file]))
        except LiquidlogError as error:
            failure = encode_facts(failed(error))
        arrays = [pa.array([survey], pa.binary()), pa.array([failure], pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, ["survey", "failure"])


def run_group(
    spark: SparkSession, work: GroupWork, *, options: Division, jobs: GroupJobs
) -> TaskFacts:
    """Rewrite one group and return the summed facts of its tasks, failure included."""
    sample_rows = max(options.sample_rows, options.sample_rows_per_output * work.outputs)
    if work.size_bytes <= options.single_task_bytes:
        jobs.begin_phase(1, until=1.0)
        return _collect(_tasks(spark, GroupTask(work=work, sample_rows=sample_rows), 1))
    sampling = Timer()
    with sampling.running():
        surveys, failure = _survey(spark, work, sample_rows=sample_rows, jobs=jobs)
    if failure is not None:
        return failure
    if work.curve is None:
        jobs.begin_phase(work.outputs, until=1.0)
        tasks = CompactionTasks(work=work, surveys=tuple(surveys))
        facts = _collect(_tasks(spark, tasks, work.outputs))
    else:
        facts = _shuffle(spark, work, surveys, options=options, jobs=jobs)
    sampled = TaskFacts(costs=GroupCosts(sample_seconds=sampling.seconds))
    return check_rows(merge_facts([facts, sampled]), surveys)


def _survey(
    spark: SparkSession, work: GroupWork, *, sample_rows: int, jobs: GroupJobs
) -> tuple[list[Survey], TaskFacts | None]:
    count = len(work.paths)
    tasks = min(count, _MAX_SURVEY_TASKS)
    jobs.begin_phase(tasks, until=_SURVEY_SHARE)
    survey_tasks = SurveyTasks(
        work=work,
        files=tuple(tuple(range(number, count, tasks)) for number in range(tasks)),
        shares=tuple(sample_shares(work.sizes_bytes, sample_rows)),
    )
    rows = _tasks(spark, survey_tasks, tasks, schema=_SURVEY_SCHEMA).collect()
    failures = [decode_facts(bytes(row.failure)) for row in rows if row.failure is not None]
    if failures:
        return [], merge_facts(failures)
    return sorted((decode_survey(bytes(row.survey)) for row in rows), key=attrgetter("file")), None


def _shuffle(
    spark: SparkSession,
    work: GroupWork,
    surveys: Sequence[Survey],
    *,
    options: Division,
    jobs: GroupJobs,
) -> TaskFacts:
    if not any(survey.num_rows for survey in surveys):
        return merge_facts([])
    layout = build_layout(work, surveys)
    splits = _splits(spark, work, surveys, task_bytes=options.task_bytes)
    jobs.begin_phase(len(splits) + work.outputs, until=1.0)
    tasks = SplitTasks(
        work=work, layout=layout, splits=splits, targets=partition_values(work.outputs)
    )
    pieces = _tasks(spark, tasks, len(splits), schema=SHUFFLE_SCHEMA)
    moved = pieces.repartition(work.outputs, "target")
    if layout.slices_per_output > 1:
        moved = moved.sortWithinPartitions("slice", "ordinal")
    outputs = OutputTasks(work=work, slices_per_output=layout.slices_per_output)
    return _collect(_mapped(moved, outputs, FACTS_SCHEMA))


def _splits(
    spark: SparkSession, work: GroupWork, surveys: Sequence[Survey], *, task_bytes: int
) -> tuple[tuple[Split, ...], ...]:
    """Return the splits of each reading task: small files together, large ones apart."""
    cores = _cores(spark)
    even_bytes = work.size_bytes // (cores * _MIN_TASKS_PER_CORE)
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


def _cores(spark: SparkSession) -> int:
    context = getattr(spark, "sparkContext", None)
    return int(context.defaultParallelism) if context is not None else 1


def _tasks(
    spark: SparkSession, function: BatchFunction, count: int, *, schema: str = FACTS_SCHEMA
) -> DataFrame:
    return _mapped(spark.range(0, count, 1, count), function, schema)


def _mapped(frame: DataFrame, function: BatchFunction, schema: str) -> DataFrame:
    return frame.mapInArrow(_Prepared(function).__call__, schema)


def _collect(frame: DataFrame) -> TaskFacts:
    return merge_facts([decode_facts(bytes(row.facts)) for row in frame.collect()])
