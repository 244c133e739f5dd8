"""Rewrites groups of a plan, each pass by pass: their runs in the table, and the outcomes.

One group alone leaves task slots empty. So threads submit groups until these have twice as many
tasks as there are slots. A job costs the driver of a cluster tens of milliseconds of CPU, so groups
of one task share jobs.
"""

import time
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, pairwise, repeat
from operator import attrgetter, itemgetter
from threading import RLock
from typing import Any, Final, TypeVar

import pyarrow as pa
from msgspec import UNSET, structs

from liquidlog.curve.curves import Curve, parse_curve
from liquidlog.curve.layouts import Layout
from liquidlog.data.encodings import concat
from liquidlog.data.reader import Located
from liquidlog.data.runs import Origin, Run
from liquidlog.errors import ExecutorError, LiquidlogError, UsageError
from liquidlog.logs import Log
from liquidlog.plan import (
    Cancelled,
    ClusteringPlan,
    GroupCosts,
    GroupFailure,
    Outcome,
    Progress,
    RewriteGroup,
    RewriteMode,
    RewrittenGroup,
    WrittenFile,
    repeated_inputs,
    repeated_message,
    rewrite_digest,
)
from liquidlog.rewriting.inputs import (
    DEFAULT_OPTIONS,
    Assignment,
    ExecutorOptions,
    GroupWork,
    Planned,
    Split,
    Survey,
    WritingWork,
    new_token,
    on_one_line,
    read_splits,
    rows_to_sample,
    split_file,
    survey_file,
)
from liquidlog.rewriting.outputs import (
    OutputFile,
    TaskFacts,
    TaskProofs,
    Timer,
    check_rows,
    failed,
    merge_facts,
    require_running,
)
from liquidlog.rewriting.shuffle import (
    Route,
    build_layout,
    choose_route,
    first_ordinals,
    keyed_rows,
    slice_rows,
    sorted_slice,
)
from liquidlog.spec.arrow import arrow_type, is_safe_directory
from liquidlog.spec.schema import leaves, parse_schema
from liquidlog.spec.text import one, render_size, several
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    OptionsSource,
    StorageOptions,
    file_address,
    table_address,
)
from liquidlog.storage.unity import storage_of


def rewrite_alone(request: tuple[GroupWork, int]) -> TaskFacts:
    """Rewrite a group that fits into the memory of one task, by so many sampled rows."""
    work, sample_rows = request
    try:
        require_running(work)
        sampling = Timer()
        with sampling.running():
            counts = rows_to_sample(work.sizes_bytes, sample_rows)
            surveys = [
                survey_file(work, file, sample_rows=count) for file, count in enumerate(counts)
            ]
        if work.curve is None:
            own = [_compact(one.work(work), one.own) for one in shares(work, surveys)]
            facts = merge_facts(own)
        else:
            facts = _sort_group(work, surveys)
    except LiquidlogError as error:
        return failed(error, work)
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
    """Return the inputs and the row range of each output of a compaction.

    Compaction keeps the order of rows; each output gets a contiguous, equal share of them.
    """
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
    try:
        require_running(common)
        return _compact(assignment.work(common), assignment.own)
    except LiquidlogError as error:
        return failed(error, common)


def _compact(work: GroupWork, share: Share) -> TaskFacts:
    proofs = TaskProofs()
    with proofs.whole.running(), OutputFile(work, share.number, proof=proofs.written) as output:
        for table, ordinal in proofs.reading.each(read_splits(work, _share_splits(share))):
            # Parts of a large row group may lie outside.
            skipped = min(max(share.start - ordinal, 0), len(table))
            rows = table.slice(skipped, max(share.stop - ordinal - skipped, 0))
            proofs.read.add(rows)
            output.write(rows)
        file = output.finish()
    return proofs.facts([file])


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
    firsts = zip(surveys, first_ordinals(surveys), strict=True)
    splits = (
        split
        for one, first in firsts
        for split in split_file(one.file, one.row_group_rows, first, max_rows=one.num_rows)
    )
    proofs = TaskProofs()
    with proofs.whole.running():
        rows = proofs.reading.each(read_splits(work, splits))
        tables = [table for table, _ in rows]
        outputs = sorted_outputs(work, surveys, tables, proofs) if tables else ()
    return proofs.facts(outputs)


def sorted_outputs(
    work: WritingWork, surveys: Sequence[Survey], tables: Sequence[pa.Table], proofs: TaskProofs
) -> tuple[WrittenFile, ...]:
    """Write rows, of at least one table, in the order of the layout of their surveys."""
    table = concat(tables)
    proofs.read.add(table)
    layout = build_layout(work, surveys)
    files = []
    keyed, places = keyed_rows(work, layout, table, 0)
    slices = slice_rows([keyed], places)
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
"""Most inputs per surveying task: clusters grow with the number of waiting tasks."""
_SURVEY_SHARE: Final = 0.1
"""The share of a group's time that sampling takes, for a progress bar."""
_MIN_TASKS_PER_SLOT: Final = 4
_MIN_TASK_BYTES: Final = 8 << 20
_MOST_SENT: Final = 3
"""How often a job's tasks are sent at most, with newer credentials each time."""


def survey_inputs(
    common: GroupWork, assignment: Assignment[tuple[tuple[Planned, int], ...]]
) -> list[Survey] | TaskFacts:
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
        self.cancelled: str | None = None

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
        return on_one_line(error)

    def require_running(self) -> None:  # noqa: B027  most engines can continue
        """Refuse to continue if no other group could be rewritten either."""

    def begin_phase(self, tasks: int, *, until: float) -> None:
        """Begin a phase of `tasks` tasks; at its end, the share `until` of the group is done."""
        if self.cancelled is not None:
            raise ExecutorError(self.cancelled)
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

        A job that begins at the same time continues: call again until the group has ended.
        """
        is_again = because is not None and self.cancelled is not None
        self.cancelled = self.cancelled if because is None else because
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
    tasks = [(work, options.sample_rows_of(work.outputs)) for work in works]
    engine.begin_phase(len(tasks), until=1.0)
    return engine.each(rewrite_alone, tasks)


def with_fresh_options(
    work: Work, job: Callable[[Work], T], *, facts_of: Callable[[T], TaskFacts | None]
) -> T:
    """Return the result of a job; repeat it with new options if only expired ones made it fail."""
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
        max_rows = limit / row_bytes
        for split in split_file(survey.file, survey.row_group_rows, first, max_rows=max_rows):
            if waiting and waiting_bytes + split.rows * row_bytes > limit:
                tasks.append(tuple(waiting))
                waiting, waiting_bytes = [], 0.0
            waiting.append(split)
            waiting_bytes += split.rows * row_bytes
    return (*tasks, tuple(waiting)) if waiting else tuple(tasks)


_INPUT_BYTES: Final = 2 << 10
_SAMPLED_BYTES: Final = 32
"""Estimated memory on the driver of an input, and of a sampled value."""
_log: Final = Log(__name__)
_said: Final = Log("liquidlog.executors")
"""The logger whose messages the command line shows."""


def runs_of(
    plan: ClusteringPlan,
    groups: int | Collection[int] | None,
    *,
    options: ExecutorOptions,
    storage: OptionsSource | None,
    verb: str,
) -> list["GroupRun"]:
    """Return an attempt at each of these groups, all if None, groups of many tasks first."""
    wanted = _wanted(plan, groups)
    one(options, ExecutorOptions, argument="options", expected="ExecutorOptions")
    repeated = repeated_inputs(plan.groups)
    if repeated:
        raise ExecutorError(f"the plan {repeated_message(repeated)}")
    own = storage_of(plan.table_uri, plan.location, storage)
    verb, now_ms = one(verb, str, argument="verb", expected="text"), time.time_ns() // 1_000_000
    origin = Origin.here(verb, now_ms=now_ms, plan_id=plan.plan_id)
    runs = [
        GroupRun(plan=plan, group=group, options=options, storage=own, origin=origin)
        for group in wanted
    ]
    for run in runs:
        run.check()
    return sorted(runs, key=lambda run: run.is_one_task)


def _wanted(plan: ClusteringPlan, groups: object) -> list[RewriteGroup]:
    one(plan, ClusteringPlan, argument="plan", expected="a ClusteringPlan")
    if groups is None:
        return list(plan.groups)
    given = tuple(groups) if isinstance(groups, AbstractSet) else groups
    wanted = set(several(given, (int,), argument="groups", of="ids of groups"))
    unknown = sorted(wanted - {group.group_id for group in plan.groups})
    if unknown:
        listed = ", ".join(map(str, unknown))
        raise UsageError(f"the plan has no group {listed}; it has {len(plan.groups)}, from 0")
    return [group for group in plan.groups if group.group_id in wanted]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """One attempt to rewrite one group of a plan, with a run of its own."""

    plan: ClusteringPlan
    group: RewriteGroup
    options: ExecutorOptions = DEFAULT_OPTIONS
    storage: StorageOptions = NO_OPTIONS
    origin: Origin | None = None
    token: str = field(default_factory=new_token)

    @property
    def group_id(self) -> int:
        return self.group.group_id

    @property
    def outputs(self) -> int:
        return max(1, self.group.expected_outputs)

    @property
    def driver_bytes(self) -> int:
        """Estimated memory on the driver for the group: its inputs and the sampled rows."""
        sampled = self.options.sample_rows_of(self.outputs) * len(self.plan.columns)
        return _INPUT_BYTES * len(self.group.inputs) + _SAMPLED_BYTES * sampled

    @property
    def is_one_task(self) -> bool:
        return self.options.is_one_task(
            size_bytes=self.group.size_bytes,
            inputs=len(self.group.inputs),
            outputs=self.outputs,
            sorts=_curve_of(self.plan) is not None,
        )

    @property
    def first_input(self) -> str | None:
        """The first input, which tests access to the table; None without inputs."""
        file = next(iter(self.group.inputs), None)
        return None if file is None else Located.of(self.plan.location, file).path

    @property
    def directory(self) -> str:
        return file_address(self.plan.location, "")

    @property
    def run(self) -> Run:
        return Run(self.directory, self.token, self.storage, self.group.directories)

    def check(self) -> None:
        """Refuse a group that no attempt could rewrite, before any task begins."""
        try:
            self._require_possible()
        except LiquidlogError as error:
            raise ExecutorError(error.message) from error

    def _require_possible(self) -> None:
        _curve_of(self.plan)
        _require_layout(self.plan)
        if set(self.group.partition_values) != set(self.plan.partitioned_by):
            listed = ", ".join(self.plan.partitioned_by) or "none"
            raise ExecutorError(
                f"group {self.group_id} has values of other partition columns than the plan:"
                f" {listed}"
            )
        if self.group.directory and not is_safe_directory(self.group.directory):
            raise ExecutorError(
                f"{self.group.directory!r} is no directory of data files of the table; plan again"
            )
        table_address(self.plan.location)
        for file in self.group.inputs:
            Located.of(self.plan.location, file)

    def work(self) -> GroupWork:
        return GroupWork(
            directory=self.directory,
            inputs=tuple(Located.of(self.plan.location, file) for file in self.group.inputs),
            outputs=self.outputs,
            schema_string=self.plan.schema_string,
            row_tracking=self.plan.row_tracking,
            mapping_mode=self.plan.mapping_mode,
            columns=tuple(column.physical for column in self.plan.columns),
            curve=_curve_of(self.plan),
            readers=self.plan.readers,
            prefix=self.plan.prefix,
            writer_options=self.plan.writer_options,
            token=self.token,
            storage=self.storage,
            read_back=self.options.read_back,
            slice_bytes=self.options.slice_bytes,
            partition_columns=self.plan.partitioned_by,
            constant_columns=self.plan.constant_columns,
            output_directories=self.group.directories,
        )

    def outcome(self, facts: TaskFacts, *, seconds: float) -> Outcome:
        """Return the outcome of the group: a failure if the rows written differ from those read."""
        try:
            read, written = facts.proofs()
        except ExecutorError as error:
            return GroupFailure(group_id=self.group_id, reason=str(error))
        return RewrittenGroup(
            plan_id=self.plan.plan_id,
            group_id=self.group.group_id,
            run=self.token,
            partition_values=self.group.partition_values if self.plan.partitioned_by else UNSET,
            outputs=tuple(sorted(facts.outputs, key=lambda output: output.path)),
            rows_read=read.rows,
            rows_written=written.rows,
            checksum_read=read.checksum,
            checksum_written=written.checksum,
            seconds=round(seconds, 3),
            costs=self._costs(facts),
            read_back=UNSET if self.options.read_back else False,
        )

    def _costs(self, facts: TaskFacts) -> GroupCosts:
        written_bytes = sum(output.size_bytes for output in facts.outputs)
        seconds = {
            name: round(getattr(facts.costs, name), 3)
            for name in GroupCosts.__struct_fields__
            if name.endswith("_seconds")
        }
        return structs.replace(
            facts.costs, read_bytes=self.group.size_bytes, written_bytes=written_bytes, **seconds
        )


@dataclass(frozen=True, slots=True)
class GroupsInFlight:
    """Attempts at one group, or at several groups of one task each in one job, and their engine."""

    attempts: tuple[GroupRun, ...]
    engine: Engine

    @property
    def group_ids(self) -> tuple[int, ...]:
        return tuple(attempt.group_id for attempt in self.attempts)

    @property
    def may_join(self) -> bool:
        """Whether the groups may share a job with other such groups."""
        return self.attempts[0].is_one_task

    @property
    def outputs(self) -> int:
        return sum(attempt.outputs for attempt in self.attempts)

    @property
    def driver_bytes(self) -> int:
        return sum(attempt.driver_bytes for attempt in self.attempts)

    def joined(self, others: Sequence["GroupsInFlight"]) -> "GroupsInFlight":
        more = (attempt for other in others for attempt in other.attempts)
        return replace(self, attempts=(*self.attempts, *more))

    def execute(self, *, slots: Callable[[], int]) -> Sequence[Outcome]:
        """Rewrite the groups; each run ends finished, or discarded with all its files."""
        if self.engine.cancelled is not None:
            return self.cancelled(self.engine.cancelled)
        started = time.perf_counter()
        with ThreadPoolExecutor(len(self.attempts)) as pool:
            each = map if len(self.attempts) == 1 else pool.map
            problems = list(each(_begun, self.attempts))
            # If a shared job fails, its groups run again one by one: one may have failed all.
            facts = [] if len(problems) == 1 or any(problems) else self._facts_together()
            ended = partial(self._ended, slots=slots, started=started)
            return list(each(ended, self.attempts, problems, facts or repeat(None)))

    def _facts_together(self) -> Sequence[TaskFacts]:
        try:
            storage, tries = self.attempts[0].storage.fresh(), self.engine.task_attempts
            works = [
                replace(attempt.work(), storage=storage, task_attempts=tries)
                for attempt in self.attempts
            ]
            with self.engine.at_work():
                return run_together(self.engine, works, self.attempts[0].options)
        except Exception:  # noqa: BLE001  each group is tried again by itself
            return ()

    def _ended(
        self,
        attempt: GroupRun,
        problem: Exception | None,
        facts: TaskFacts | None,
        *,
        slots: Callable[[], int],
        started: float,
    ) -> Outcome:
        """Return the outcome of a group; it may have `facts` of a shared job."""
        raised = False
        try:
            if facts is None or facts.denied:
                facts = self._facts(attempt, problem, slots)
            outcome = attempt.outcome(facts, seconds=time.perf_counter() - started)
            if isinstance(outcome, RewrittenGroup):
                digest = rewrite_digest(attempt.plan, attempt.group, outcome)
                attempt.run.finish(digest, keep={output.path for output in outcome.outputs})
        except Exception as error:  # noqa: BLE001  whatever an engine raises is this group's failure
            reason, raised = self.engine.reason_of(error), True
            outcome = GroupFailure(group_id=attempt.group_id, reason=reason)
        if isinstance(outcome, GroupFailure):
            because = self.engine.cancelled  # this may be why it failed
            outcome = outcome if because is None else _cancelled(attempt, because)
            attempt.run.discard()
        _say_ended(outcome)
        if raised:
            self.engine.require_running()
        return outcome

    def _facts(
        self, attempt: GroupRun, problem: Exception | None, slots: Callable[[], int]
    ) -> TaskFacts:
        if problem is not None:
            raise problem
        with self.engine.at_work():
            return run_group(
                self.engine,
                attempt.work(),
                is_one_task=attempt.is_one_task,
                options=attempt.options,
                slots=slots,
            )

    def cancelled(self, because: str) -> list[Outcome]:
        """Return the outcomes of groups that are cancelled and have no files left."""
        return [_cancelled(attempt, because) for attempt in self.attempts]

    def discard(self) -> None:
        for attempt in self.attempts:
            attempt.run.discard()


def _begun(attempt: GroupRun) -> Exception | None:
    """Begin the run of an attempt; return the error if it cannot begin."""
    group, text = attempt.group, "group %d: run %s rewrites %d files (%s) to about %d"
    size = render_size(group.size_bytes)
    _log.info(text, group.group_id, attempt.token, len(group.inputs), size, attempt.outputs)
    try:
        attempt.run.begin(attempt.origin)
    except Exception as error:  # noqa: BLE001  whatever it is, it is this group's failure
        return error
    return None


def _cancelled(attempt: GroupRun, because: str) -> GroupFailure:
    _said.info("group %d: cancelled: %s", attempt.group_id, because)
    return GroupFailure(group_id=attempt.group_id, reason=because, cancelled=True)


def _say_ended(outcome: Outcome) -> None:
    if isinstance(outcome, GroupFailure):
        _log.info("group %d: not rewritten: %s", outcome.group_id, outcome.reason)
        return
    _log.info(
        "group %d: wrote %d rows to %d files (%s) in %.3f s",
        outcome.group_id,
        outcome.rows_written,
        len(outcome.outputs),
        render_size(sum(output.size_bytes for output in outcome.outputs)),
        outcome.seconds,
    )


_POLL_SECONDS: Final = 0.2
_POLL_SECONDS_PER_GROUP: Final = 0.02
"""A question to Spark about a group takes milliseconds of a thread."""
_TASKS_PER_SLOT: Final = 2
_MAX_GROUPS: Final = 1024
"""Each takes a thread here, and another one in Spark's driver."""
_MAX_DRIVER_BYTES: Final = 1 << 30
_LEAST_UNWATCHED: Final = 2
"""Groups in flight if nothing reports how many tasks are done."""


class Slots:
    """How many tasks run at a time; this may change on a cluster.

    If they are `watched`, jobs report how many of their tasks are done.
    """

    watched = True

    def __init__(self, count: int) -> None:
        self._count = count

    @property
    def groups_per_job(self) -> int:
        """How many groups of one task share a job now, at least 1."""
        return 1

    def count(self) -> int:
        return self._count


class Flight:
    """Rewrites groups from threads in their order; mutable."""

    def __init__(self, slots: Slots, runs: Sequence[GroupsInFlight]) -> None:
        self._slots = slots
        self._lock = RLock()
        self._waiting = deque(runs)
        self._running: dict[Future[Sequence[Outcome]], GroupsInFlight] = {}
        self._closed = False
        self._pool = ThreadPoolExecutor(max(1, min(len(runs), _MAX_GROUPS)))

    def outcomes(
        self, progress: Progress | None, cancelled: Cancelled | None = None
    ) -> Iterator[Outcome]:
        """Yield the outcome of each group as it finishes; afterwards the flight is closed."""
        try:
            yield from self._without_lost(cancelled)
            self._admit()
            while running := self._in_flight():
                seconds = max(_POLL_SECONDS, _POLL_SECONDS_PER_GROUP * len(running))
                done, _ = wait(running, timeout=seconds, return_when=FIRST_COMPLETED)
                if progress is not None:
                    self._report(running, progress)
                for future in done:
                    with self._lock:
                        del self._running[future]
                    yield from future.result()
                yield from self._without_lost(cancelled)
                self._admit()
        finally:
            self._close()

    def _without_lost(self, cancelled: Cancelled | None) -> Iterator[Outcome]:
        lost = {} if cancelled is None else cancelled()
        if not lost:
            return
        with self._lock:
            running = [run for future, run in self._running.items() if not future.done()]
            dropped = [run for run in self._waiting if _is_lost(run, lost)]
            self._waiting = deque(run for run in self._waiting if not _is_lost(run, lost))
        for run in running:
            if _is_lost(run, lost):
                run.engine.cancel(lost[run.group_ids[0]])
        for run in dropped:
            yield from run.cancelled(lost[run.group_ids[0]])

    def _in_flight(self) -> dict[Future[Sequence[Outcome]], GroupsInFlight]:
        with self._lock:
            return dict(self._running)

    def _admit(self, _: object = None) -> None:
        with self._lock:
            while not self._closed and self._waiting and self._has_room(self._waiting[0]):
                run = self._next()
                future = self._pool.submit(run.execute, slots=self._slots.count)
                self._running[future] = run
                future.add_done_callback(self._admit)

    def _next(self) -> GroupsInFlight:
        first = self._waiting.popleft()
        others: list[GroupsInFlight] = []
        most = self._slots.groups_per_job if first.may_join else 1
        while len(others) + 1 < most and self._waiting and self._waiting[0].may_join:
            others.append(self._waiting.popleft())
        return first.joined(others) if others else first

    def _has_room(self, run: GroupsInFlight) -> bool:
        running = [run for future, run in self._running.items() if not future.done()]
        if not running:
            return True
        if len(running) >= _MAX_GROUPS:
            return False
        if sum(other.driver_bytes for other in (*running, run)) > _MAX_DRIVER_BYTES:
            return False
        if len(running) < _LEAST_UNWATCHED and not self._slots.watched:
            return True
        enough, tasks = _TASKS_PER_SLOT * self._slots.count(), 0.0
        for other in running:
            tasks += other.engine.tasks_left(other.outputs)
            if tasks >= enough:
                return False
        return True

    def _report(
        self, running: dict[Future[Sequence[Outcome]], GroupsInFlight], progress: Progress
    ) -> None:
        for future, run in running.items():
            share = 1.0 if future.done() else run.engine.share_done()
            for group_id in run.group_ids if share > 0 else ():
                progress(group_id, share)

    def _close(self) -> None:
        with self._lock:
            self._closed = True
        for future, run in self._running.items():
            if not future.cancel():
                run.engine.cancel()
        self._pool.shutdown(wait=True)
        for future, run in self._running.items():
            if not future.cancelled():
                run.discard()


def _is_lost(run: GroupsInFlight, lost: Mapping[int, str]) -> bool:
    return all(group_id in lost for group_id in run.group_ids)


def _curve_of(plan: ClusteringPlan) -> Curve | None:
    if plan.mode is RewriteMode.COMPACTION:
        return None
    if not plan.columns:
        raise ExecutorError(f"a plan of mode {plan.mode} names no columns to sort by")
    return parse_curve(plan.curve)


def _require_layout(plan: ClusteringPlan) -> None:
    try:
        numbers = plan.prefix
        if len(set(numbers)) < len(numbers):
            raise ExecutorError("the plan's prefix names a column twice")
        if plan.readers is not None:
            schema = parse_schema(plan.schema_string, where="the plan")
            known = {leaf.physical: leaf.data_type for leaf in leaves(schema)}
            kinds = [arrow_type(known[column.physical]) for column in plan.columns]
            plan.readers.conditions(kinds)
    except (ValueError, OverflowError, KeyError) as error:
        raise ExecutorError(f"the plan's fitted workload is not valid: {error}") from error
