"""One group, pass by pass, whatever runs its tasks: the sampling pass, then the main pass."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeVar

import pyarrow as pa

from liquidlog.data.encodings import concat
from liquidlog.errors import ExecutorError, LiquidlogError
from liquidlog.plan import GroupCosts, WrittenFile
from liquidlog.rewriting.layout import Layout, Route, build_layout, choose_route, first_ordinals
from liquidlog.rewriting.shuffle import keyed_rows, slice_rows, sorted_slice
from liquidlog.rewriting.sink import (
    OutputFile,
    TaskFacts,
    TaskProofs,
    Timer,
    check_rows,
    failed,
    merge_facts,
    require_running,
)
from liquidlog.rewriting.source import (
    Assignment,
    ExecutorOptions,
    GroupWork,
    Planned,
    Split,
    Survey,
    WritingWork,
    read_splits,
    rows_to_sample,
    split_file,
    survey_file,
)

# Rewriting without a shuffle: a whole small group in one task, or a compaction output by output.
#
# Compaction keeps row order and gives each output a contiguous, equal share of the group's rows.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTask:
    """One task that does everything; for groups that fit in its memory."""

    work: GroupWork
    sample_rows: int

    def run(self) -> TaskFacts:
        """Rewrite the group and return the task's facts."""
        try:
            require_running(self.work)
            sampling = Timer()
            with sampling.running():
                counts = rows_to_sample(self.work.sizes_bytes, self.sample_rows)
                surveys = [
                    survey_file(self.work, file, sample_rows=count)
                    for file, count in enumerate(counts)
                ]
            if self.work.curve is None:
                facts = merge_facts(
                    [_compact(one.work(self.work), one.own) for one in shares(self.work, surveys)]
                )
            else:
                facts = _sort_group(self.work, surveys)
        except LiquidlogError as error:
            return failed(error, self.work)
        sampled = TaskFacts(costs=GroupCosts(sample_seconds=sampling.seconds))
        return check_rows(merge_facts([facts, sampled]), surveys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The rows of one output of a compaction, numbered from 0 over its inputs."""

    number: int
    surveys: tuple[Survey, ...]
    start: int
    stop: int


def shares(work: GroupWork, surveys: Sequence[Survey]) -> list[Assignment[Share]]:
    """Return the inputs and the row range of each output of a compaction."""
    edges = list(accumulate((survey.num_rows for survey in surveys), initial=0))
    found = []
    for number in range(work.outputs):
        start, stop = (end * edges[-1] // work.outputs for end in (number, number + 1))
        files = (
            range(bisect_right(edges, start) - 1, bisect_left(edges, stop))
            if stop > start
            else range(0)
        )
        own = tuple(replace(surveys[file], file=place) for place, file in enumerate(files))
        first = edges[files.start]
        share = Share(number=number, surveys=own, start=start - first, stop=stop - first)
        found.append(Assignment.of(work, [surveys[file].file for file in files], share))
    return found


def compact_share(common: GroupWork, assignment: Assignment[Share]) -> TaskFacts:
    """Write one output of a compaction and return the task's facts."""
    try:
        require_running(common)
        return _compact(assignment.work(common), assignment.own)
    except LiquidlogError as error:
        return failed(error, common)


def _compact(work: GroupWork, share: Share) -> TaskFacts:
    proofs = TaskProofs()
    with proofs.whole.running(), OutputFile(work, share.number, proof=proofs.written) as output:
        for table in proofs.reading.each(_share_rows(work, share)):
            proofs.read.add(table)
            output.write(table)
        file = output.finish()
    return proofs.facts([file])


def _share_rows(work: GroupWork, share: Share) -> Iterator[pa.Table]:
    for table, ordinal in read_splits(work, _share_splits(share)):
        # Parts of a large row group may lie outside as a whole.
        skipped = min(max(share.start - ordinal, 0), len(table))
        yield table.slice(skipped, max(share.stop - ordinal - skipped, 0))


def _share_splits(share: Share) -> Iterator[Split]:
    for survey, first in zip(share.surveys, first_ordinals(share.surveys), strict=True):
        edges = list(accumulate(survey.row_group_rows, initial=first))
        inside = [
            number
            for number, (low, high) in enumerate(pairwise(edges))
            if max(low, share.start) < min(high, share.stop)
        ]
        if inside:
            low, high = edges[inside[0]], edges[inside[-1] + 1]
            yield Split(survey.file, tuple(inside), low, high - low)


def _sort_group(work: GroupWork, surveys: Sequence[Survey]) -> TaskFacts:
    proofs = TaskProofs()
    with proofs.whole.running():
        rows = proofs.reading.each(read_splits(work, _whole_files(surveys)))
        tables = [table for table, _ in rows]
        outputs = sorted_outputs(work, surveys, tables, proofs) if tables else ()
    return proofs.facts(outputs)


def _whole_files(surveys: Sequence[Survey]) -> Iterator[Split]:
    for survey, first in zip(surveys, first_ordinals(surveys), strict=True):
        yield from split_file(
            survey.file, survey.row_group_rows, first_ordinal=first, max_rows=survey.num_rows
        )


def sorted_outputs(
    work: WritingWork,
    surveys: Sequence[Survey],
    tables: Sequence[pa.Table],
    proofs: TaskProofs,
) -> tuple[WrittenFile, ...]:
    """Write rows, in at least one table, as the layout of their surveys orders them."""
    table = concat(tables)
    proofs.read.add(table)
    layout = build_layout(work, surveys)
    files = []
    slices = slice_rows(*keyed_rows(work, layout, table, 0))
    for number, members in groupby(slices, key=lambda one: one.slice // layout.slices_per_output):
        with OutputFile(work, number, proof=proofs.written) as output:
            for member in members:
                for rows in sorted_slice(work, [member.rows]):
                    output.write(rows)
            files.append(output.finish())
    return tuple(file for file in files if file is not None)


T = TypeVar("T")
Work = TypeVar("Work", bound=WritingWork)

_MAX_SURVEY_TASKS: Final = 1000
_MAX_SURVEYED: Final = 16
"""Inputs per surveying task where slots are few: clusters grow with the number of waiting tasks."""
_SURVEY_SHARE: Final = 0.1
"""The sampling pass's share of a group's time; only a progress bar depends on it."""
_MIN_TASKS_PER_SLOT: Final = 4
_MIN_TASK_BYTES: Final = 8 << 20
_MOST_SENT: Final = 3
"""Most times that a job's tasks are sent with newer credentials, the first time included."""


def survey_inputs(
    common: GroupWork, assignment: Assignment[tuple[tuple[Planned, int], ...]]
) -> list[Survey] | TaskFacts:
    """Return the surveys of a task's inputs, each with rows to sample, or facts of a failure."""
    work = assignment.work(common)
    try:
        return [
            survey_file(work, file, sample_rows=sample_rows, planned=planned)
            for file, (planned, sample_rows) in enumerate(assignment.own)
        ]
    except LiquidlogError as error:
        return failed(error, work)


class Engine(ABC):
    """Runs the tasks of one group, in jobs of a known number of tasks each; mutable."""

    def __init__(self) -> None:
        self._base, self._until = 0.0, 0.0
        self._tasks_before, self._tasks = 0, 0
        self._cancelled: str | None = None

    @property
    @abstractmethod
    def task_attempts(self) -> int:
        """Attempts of a task before it is given up, at least 1."""

    @abstractmethod
    def each(self, function: Callable[[Any], T], requests: Sequence[Any]) -> Sequence[T]:
        """Run one task per request; return the function's results in order."""

    @abstractmethod
    def moved(
        self,
        work: GroupWork,
        layout: Layout,
        route: Route,
        sent: Sequence[Assignment[tuple[Split, ...]]],
    ) -> Sequence[TaskFacts]:
        """Run the reading tasks, then the writing tasks; return their facts."""

    @abstractmethod
    def _tasks_done(self) -> float:
        """Return how many tasks of all phases are done; 0 if unknown."""

    @abstractmethod
    def _stop(self, *, is_again: bool) -> None:
        """Stop what runs, best-effort."""

    def at_work(self) -> AbstractContextManager[object]:
        """Return a context manager around all calls for the group, in one thread."""
        return nullcontext()

    def reason_of(self, error: Exception) -> str:
        """Return in one sentence why a call failed."""
        return "; ".join(str(error).splitlines()) or type(error).__name__

    def require_running(self) -> None:  # noqa: B027  most can go on
        """Refuse to continue if no other group could be rewritten either."""

    @property
    def cancelled(self) -> str | None:
        """The reason why the group was cancelled, None if it was not."""
        return self._cancelled

    def begin_phase(self, tasks: int, *, until: float) -> None:
        """Begin a phase of `tasks` tasks, at whose end the share done is `until`."""
        if self._cancelled is not None:
            raise ExecutorError(self._cancelled)
        self._base, self._until = self._until, until
        self._tasks_before, self._tasks = self._tasks_before + self._tasks, tasks

    def share_done(self) -> float:
        """Return the share of the tasks that are done, 0 to 0.99; 0 if unknown."""
        if not self._tasks:
            return 0.0
        share = self._done_in_phase() / self._tasks
        return min(0.99, self._base + (self._until - self._base) * share)

    def tasks_left(self, outputs: int) -> float:
        """Return how many of the tasks that write `outputs` are not done; all if unknown."""
        if self._until < 1:
            return outputs
        return min(outputs, self._tasks - self._done_in_phase())

    def cancel(self, because: str | None = None) -> None:
        """Stop the group's jobs, best-effort; with a reason, no other phase begins.

        A job that begins at the same time goes on: call again until the group has ended.
        """
        is_again = because is not None and self._cancelled is not None
        self._cancelled = self._cancelled if because is None else because
        self._stop(is_again=is_again)

    def _done_in_phase(self) -> float:
        return min(self._tasks, max(0, self._tasks_done() - self._tasks_before))


def run_group(
    engine: Engine,
    work: GroupWork,
    *,
    is_one_task: bool,
    options: ExecutorOptions,
    slots: Callable[[], int],
) -> TaskFacts:
    """Rewrite one group and return the summed facts of its tasks, also if they failed."""
    work = replace(work, task_attempts=engine.task_attempts)
    if is_one_task:
        return with_fresh_options(
            work,
            lambda sent: run_together(engine, [sent], options)[0],
            facts_of=lambda facts: facts,
        )
    sample_rows = options.sample_rows_of(work.outputs)
    sampling = Timer()
    with sampling.running():
        surveys, failure = with_fresh_options(
            work,
            lambda sent: _surveyed(engine, sent, sample_rows=sample_rows, slots=slots()),
            facts_of=itemgetter(1),
        )
    if failure is not None:
        return failure

    def main_pass(sent: GroupWork) -> TaskFacts:
        if sent.curve is not None:
            return _moved(engine, sent, surveys, task_bytes=options.task_bytes, slots=slots())
        engine.begin_phase(sent.outputs, until=1.0)
        task = partial(compact_share, sent.without_inputs())
        return merge_facts(list(engine.each(task, shares(sent, surveys))))

    facts = with_fresh_options(work, main_pass, facts_of=lambda facts: facts)
    sampled = TaskFacts(costs=GroupCosts(sample_seconds=sampling.seconds))
    return check_rows(merge_facts([facts, sampled]), surveys)


def run_together(
    engine: Engine, works: Sequence[GroupWork], options: ExecutorOptions
) -> Sequence[TaskFacts]:
    """Rewrite groups of one task each in one job, and return their facts in order."""
    tasks = [
        GroupTask(work=work, sample_rows=options.sample_rows_of(work.outputs)) for work in works
    ]
    engine.begin_phase(len(tasks), until=1.0)
    return engine.each(GroupTask.run, tasks)


def with_fresh_options(
    work: Work, job: Callable[[Work], T], *, facts_of: Callable[[T], TaskFacts | None]
) -> T:
    """Return the result of a job, begun again with new options while only expired ones failed."""
    sent = work.sent()
    for _ in range(_MOST_SENT - 1):
        found = job(sent)
        facts = facts_of(found)
        if facts is None or not facts.denied or not work.storage.differ_from(sent.storage):
            return found
        sent = work.sent()
    return job(sent)


def _surveyed(
    engine: Engine, work: GroupWork, *, sample_rows: int, slots: int
) -> tuple[list[Survey], TaskFacts | None]:
    inputs = len(work.paths)
    enough = max(slots * _MIN_TASKS_PER_SLOT, -(-inputs // _MAX_SURVEYED))
    tasks = min(inputs, enough, _MAX_SURVEY_TASKS)
    engine.begin_phase(tasks, until=_SURVEY_SHARE)
    planned = Planned(0, work.size_bytes, work.num_records)
    counts = rows_to_sample(work.sizes_bytes, sample_rows)
    sent = []
    for number in range(tasks):
        files = range(number, len(counts), tasks)
        orders = tuple((planned._replace(file=file), counts[file]) for file in files)
        sent.append(Assignment.of(work, files, orders))
    found = engine.each(partial(survey_inputs, work.without_inputs()), sent)
    failures = [one for one in found if isinstance(one, TaskFacts)]
    if failures:
        return [], merge_facts(failures)
    surveys = [survey for one in found if not isinstance(one, TaskFacts) for survey in one]
    return sorted(surveys, key=attrgetter("file")), None


def _moved(
    engine: Engine, work: GroupWork, surveys: Sequence[Survey], *, task_bytes: int, slots: int
) -> TaskFacts:
    if not any(survey.num_rows for survey in surveys):
        return merge_facts([])
    layout = build_layout(work, surveys)
    work = replace(work, outputs=layout.outputs)
    splits = _splits(work, surveys, task_bytes=task_bytes, slots=slots)
    route = choose_route(work, slices_per_output=layout.slices_per_output)
    engine.begin_phase(len(splits) + route.tasks, until=1.0)
    sent = []
    for own in splits:
        files = sorted({split.file for split in own})
        numbers = {file: number for number, file in enumerate(files)}
        renumbered = tuple(replace(split, file=numbers[split.file]) for split in own)
        sent.append(Assignment.of(work, files, renumbered))
    return merge_facts(list(engine.moved(work.without_inputs(), layout, route, sent)))


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
