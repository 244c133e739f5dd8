"""Writing a DataFrame into new files of a table: the sampling pass, then the main pass.

The DataFrame is evaluated for each. The sampling pass needs the clustering columns only; what the
main pass reads is what is proved to be in the files, whatever the sample was.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Final
from uuid import uuid4  # noqa: TID251  names the files of a run

from pyspark.sql import DataFrame, SparkSession

from liquidlog.data.runs import Run
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import GroupCosts, WritePlan, WriteResult, files_digest
from liquidlog.rewriting.layout import build_layout, choose_route, first_ordinals
from liquidlog.rewriting.options import ExecutorOptions
from liquidlog.rewriting.passes import with_fresh_options
from liquidlog.rewriting.shuffle import FACTS_SCHEMA
from liquidlog.rewriting.sink import TaskFacts, Timer, merge_facts
from liquidlog.rewriting.source import ArrivingWork, Survey
from liquidlog.storage.addresses import file_address
from liquidlog.storage.options import StorageOptions
from liquidspark.aligning import aligned, quoted, with_kept
from liquidspark.arrivals import PlainArrival, WholeArrival, arriving_work, write_result
from liquidspark.arriving import (
    Arriving,
    ArrivingTasks,
    SampleTasks,
    WidthTasks,
    even_sample,
)
from liquidspark.parting import (
    DIRECTORY_SCHEMA,
    MOST_OPEN,
    DirectoryTasks,
    PartedArrival,
    Parting,
    partition_fields_of,
)
from liquidspark.pipeline import shuffled, surveys_of, task_attempts
from liquidspark.sending import collected, failure_in, map_batches, partition_values
from liquidspark.session import (
    BYTES_PER_BATCH,
    FEW_ROWS,
    ROWS_PER_BATCH,
    bounded_batches,
    failure_reason,
)
from liquidspark.versions import add_tag, cancel_tagged, context_of, has_setting, remove_tag

_PROBED_ROWS: Final = 20_000
"""Rows whose stored width is measured where the table has too few to tell."""

_BOUNDED_BY_BYTES: Final = {BYTES_PER_BATCH: "64m", ROWS_PER_BATCH: "65536"}
_BOUNDED_BY_ROWS: Final = {ROWS_PER_BATCH: FEW_ROWS}
"""One number for rows of data and for pieces, of which each may have 16 MiB."""

_WIDTH_SCHEMA: Final = "width double, failure binary"
_KEPT_PER_EVEN_SHARE: Final = 4
_LEAST_KEPT: Final = 4_096
"""A partition returns that many times its even share of the sample, or so many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRun:
    """One attempt to write a DataFrame for a plan, with its own run in the table.

    `frame` has the rows as `aligned` returns them; `directories` are those of their partitions, if
    the table has such (`parted`).
    """

    spark: SparkSession
    frame: DataFrame
    plan: WritePlan
    storage: StorageOptions
    options: ExecutorOptions
    token: str = field(default_factory=lambda: uuid4().hex[:12])
    directories: tuple[str, ...] = ()

    @property
    def directory(self) -> str:
        """The table's directory: a local path or a URI."""
        return file_address(self.plan.table_uri, "").rstrip("/")

    @property
    def run(self) -> Run:
        """The run in the table."""
        return Run(self.directory, self.token, self.storage, self.directories)

    def execute(self) -> WriteResult:
        """Write all rows; the run ends finished, or discarded with all its files."""
        started = time.perf_counter()
        try:
            with self._reasons():
                self.run.begin()
                with _tagged(self.spark, self._tag), batch_settings(self.spark):
                    facts = self._written()
                seconds = time.perf_counter() - started
                result = write_result(self.plan, self.token, facts, seconds=seconds)
                keep = {one.path for one in result.outputs}
                self.run.finish(files_digest(result.outputs), keep=keep)
        except BaseException:
            self.run.discard()
            raise
        return result

    @property
    def _tag(self) -> str:
        return f"liquidspark-{self.token}"

    @contextmanager
    def _reasons(self) -> Iterator[None]:
        """Context manager: what Spark raises becomes one sentence."""
        try:
            yield
        except LiquidlogError:
            raise
        except Exception as error:
            raise ExecutorError(
                f"the rows were not written: {failure_reason(error)}; nothing was committed"
            ) from error

    def _work(self) -> ArrivingWork:
        attempts = task_attempts(self.spark)
        return arriving_work(self.plan, self.token, self.storage, self.options, attempts=attempts)

    def _written(self) -> TaskFacts:
        work = self._work()
        if self.plan.partition_columns:
            return with_fresh_options(work, self._in_partitions, facts_of=lambda facts: facts)
        if work.curve is None:
            return with_fresh_options(work, self._plainly, facts_of=lambda facts: facts)
        sampling = Timer()
        with sampling.running():
            surveys, failure = with_fresh_options(work, self._sampled, facts_of=itemgetter(1))
        if failure is not None:
            return failure
        rows = sum(survey.num_rows for survey in surveys)
        row_bytes = self.plan.row_bytes
        if row_bytes is None:
            row_bytes, failure = with_fresh_options(work, self._measured, facts_of=itemgetter(1))
            if failure is not None:
                return failure
        expected_bytes = int(rows * row_bytes)
        work = replace(
            work,
            expected_bytes=expected_bytes,
            outputs=max(1, -(-expected_bytes // self.plan.max_file_bytes)),
        )

        def main_pass(sent: ArrivingWork) -> TaskFacts:
            if expected_bytes <= self.options.single_task_bytes:
                return self._whole(sent)
            return self._shuffled(sent, surveys)

        facts = with_fresh_options(work, main_pass, facts_of=lambda facts: facts)
        sampled = TaskFacts(costs=GroupCosts(sample_seconds=sampling.seconds))
        return merge_facts([facts, sampled])

    def _plainly(self, work: ArrivingWork) -> TaskFacts:
        tasks = PlainArrival(arriving=self._arriving(work), max_file_bytes=self.plan.max_file_bytes)
        return collected(map_batches(self.frame, tasks, FACTS_SCHEMA))

    def parted(self) -> "FrameRun":
        """Return the run with the directories of the partitions that the rows are of."""
        names = [quoted(one.name) for one in partition_fields_of(self.plan)]
        parting = Parting.of(self.plan, self.token)
        # Not distinct ones: to Spark, -0.0 and 0.0 are one value.
        keys = self.frame.selectExpr(*names)

        def listed(work: ArrivingWork) -> tuple[list[str], TaskFacts | None]:
            tasks = DirectoryTasks.of(work, parting)
            rows = map_batches(keys, tasks, DIRECTORY_SCHEMA).distinct().collect()
            return [one.directory for one in rows], failure_in(rows)

        with self._reasons(), _tagged(self.spark, self._tag), batch_settings(self.spark):
            found, failure = with_fresh_options(self._work(), listed, facts_of=itemgetter(1))
        if failure is not None:
            raise ExecutorError(f"{failure.failure}; nothing was committed")
        return replace(self, directories=tuple(sorted(found)))

    def _in_partitions(self, work: ArrivingWork) -> TaskFacts:
        parting = Parting.of(self.plan, self.token)
        frame = self.frame
        if len(self.directories) > MOST_OPEN or parting.shares_directories:
            frame = frame.sortWithinPartitions(*(quoted(one.name) for one in parting.fields))
        tasks = PartedArrival(
            arriving=self._arriving(work),
            parting=parting,
            directories=frozenset(self.directories),
            max_file_bytes=self.plan.max_file_bytes,
        )
        return collected(map_batches(frame, tasks, FACTS_SCHEMA))

    def _whole(self, work: ArrivingWork) -> TaskFacts:
        rows = self.options.sample_rows_of(work.outputs)
        tasks = WholeArrival(arriving=self._arriving(work), sample_rows=rows)
        return collected(map_batches(self.frame.repartition(1), tasks, FACTS_SCHEMA))

    def _sampled(self, work: ArrivingWork) -> tuple[list[Survey], TaskFacts | None]:
        paths = (".".join(map(quoted, column.logical)) for column in self.plan.columns)
        columns = [f"{path} AS c{number}" for number, path in enumerate(paths)]
        wanted = self.options.sample_rows
        share = wanted // max(1, _partitions(self.spark))
        most = min(wanted, max(_LEAST_KEPT, _KEPT_PER_EVEN_SHARE * share))
        tasks = SampleTasks(work=work, most=most)
        surveys, failure = surveys_of(self.frame.selectExpr(*columns), tasks)
        if failure is not None:
            return [], failure
        found = sorted((survey for survey in surveys if survey.num_rows), key=attrgetter("file"))
        return even_sample(found, wanted), None

    def _shuffled(self, work: ArrivingWork, surveys: Sequence[Survey]) -> TaskFacts:
        layout = build_layout(work, surveys)
        work = replace(work, outputs=layout.outputs)
        route = choose_route(work, slices_per_output=layout.slices_per_output)
        tasks = ArrivingTasks(
            work=work,
            layout=layout,
            route=route,
            targets=partition_values(route.tasks),
            arriving=self._arriving(work),
            firsts=_firsts(surveys),
        )
        return shuffled(self.frame, tasks, work, route)

    def _arriving(self, work: ArrivingWork) -> Arriving:
        return Arriving(work, tuple(check.what for check in self.plan.checks))

    def _measured(self, work: ArrivingWork) -> tuple[float, TaskFacts | None]:
        """Return about how many bytes a row takes as stored, or why that cannot be said."""
        tasks = WidthTasks(arriving=self._arriving(work), rows=_PROBED_ROWS)
        # Spark looks at one partition, and at more of them only while it finds no row.
        found = map_batches(self.frame, tasks, _WIDTH_SCHEMA).limit(1).collect()
        failure = failure_in(found)
        if failure is not None or not found:
            return 0.0, failure
        return float(found[0].width), None


def write_frame(
    frame: DataFrame,
    plan: WritePlan,
    *,
    storage: StorageOptions,
    options: ExecutorOptions,
) -> WriteResult:
    """Write the rows of a DataFrame for a plan, with the rows that stay of files to rewrite."""
    spark = frame.sparkSession
    rows = aligned(frame, plan)
    if len(plan.rewritten):
        rows = with_kept(rows, plan, storage)
    run = FrameRun(spark=spark, frame=rows, plan=plan, storage=storage, options=options)
    return (run.parted() if plan.partition_columns else run).execute()


@contextmanager
def batch_settings(spark: SparkSession) -> Iterator[None]:
    """Context manager: batches of many rows, which are bounded by their bytes.

    Versions of Spark that cannot bound bytes get small batches: the same number bounds rows of data
    and pieces, which are large.
    """
    bounded = has_setting(spark, BYTES_PER_BATCH)
    settings = _BOUNDED_BY_BYTES if bounded else _BOUNDED_BY_ROWS
    with bounded_batches(spark, settings):
        yield


@contextmanager
def _tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Context manager: jobs that this thread starts have a tag; an interrupt cancels them.

    A job group would take the place of the caller's, by which a stopped query cancels its jobs.
    """
    add_tag(spark, tag)
    try:
        yield
    except BaseException:
        with suppress(Exception):
            cancel_tagged(spark, tag)
        raise
    finally:
        remove_tag(spark, tag)


def _partitions(spark: SparkSession) -> int:
    """Return about how many partitions hold most rows: as many as the session makes of its own."""
    context = context_of(spark)
    return 1 if context is None else int(context.defaultParallelism)


def _firsts(surveys: Sequence[Survey]) -> tuple[int, ...]:
    """Return the ordinal of the first row of each partition, by its number."""
    firsts = [0] * (max(survey.file for survey in surveys) + 1)
    for survey, first in zip(surveys, first_ordinals(surveys), strict=True):
        firsts[survey.file] = first
    return tuple(firsts)
