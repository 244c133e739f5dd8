"""Rewriting groups of a plan: their runs in the table, the work of tasks, and the outcomes.

One group alone leaves task slots empty, so threads submit groups until they have twice as many
tasks as there are slots. A job costs the driver of a cluster tens of milliseconds of CPU: groups of
one task share jobs.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from threading import RLock
from typing import Final, Protocol
from uuid import uuid4  # noqa: TID251  names the files of a run

from msgspec import UNSET, structs

from liquidlog.curve.curves import Curve, parse_curve
from liquidlog.data.logical_file import Located
from liquidlog.data.runs import Origin, Run
from liquidlog.errors import DataFileError, ExecutorError, LiquidlogError, UsageError
from liquidlog.logs import Log
from liquidlog.plan import (
    Cancelled,
    ClusteringPlan,
    GroupCosts,
    GroupFailure,
    InputFile,
    Outcome,
    Progress,
    RewriteGroup,
    RewriteMode,
    RewrittenGroup,
    repeated_inputs,
    repeated_message,
    rewrite_digest,
)
from liquidlog.rewriting.passes import Engine, run_group, run_together
from liquidlog.rewriting.sink import TaskFacts
from liquidlog.rewriting.source import DEFAULT_OPTIONS, ExecutorOptions, GroupWork
from liquidlog.spec.arguments import one, several
from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.partitions import is_safe_directory
from liquidlog.spec.schema import leaves, parse_schema
from liquidlog.spec.text import render_size
from liquidlog.storage.addresses import file_address, table_address
from liquidlog.storage.options import NO_OPTIONS, OptionsSource, StorageOptions
from liquidlog.storage.unity import storage_of

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
    token: str = field(default_factory=lambda: uuid4().hex[:12])

    @property
    def group_id(self) -> int:
        """The group's number in the plan."""
        return self.group.group_id

    @property
    def outputs(self) -> int:
        """How many files the group becomes, at least 1."""
        return max(1, self.group.expected_outputs)

    @property
    def driver_bytes(self) -> int:
        """Estimated memory on the driver for the group: its inputs and the sampled rows."""
        sampled = self.options.sample_rows_of(self.outputs) * len(self.plan.columns)
        return _INPUT_BYTES * len(self.group.inputs) + _SAMPLED_BYTES * sampled

    @property
    def is_one_task(self) -> bool:
        """Whether the group is rewritten by one task."""
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
        return None if file is None else located(self.plan.location, file).path

    @property
    def directory(self) -> str:
        """The table's directory: a local path or a URI."""
        return table_location(self.plan.location)

    @property
    def run(self) -> Run:
        """The run in the table."""
        return Run(self.directory, self.token, self.storage, self.group.directories)

    def check(self) -> None:
        """Refuse a group that no attempt could rewrite, before any task begins."""
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
        try:
            table_address(self.plan.location)
        except LiquidlogError as error:
            raise ExecutorError(error.message) from error
        for file in self.group.inputs:
            located(self.plan.location, file)

    def work(self) -> GroupWork:
        """Return the group as tasks see it."""
        return GroupWork(
            directory=self.directory,
            inputs=tuple(located(self.plan.location, file) for file in self.group.inputs),
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
            former_partition_columns=self.plan.formerly_partitioned_by,
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
        """The numbers of the groups in the plan."""
        return tuple(attempt.group_id for attempt in self.attempts)

    @property
    def may_join(self) -> bool:
        """Whether the groups may share a job with others of which this is true."""
        return self.attempts[0].is_one_task

    @property
    def outputs(self) -> int:
        """How many files the groups become, at least 1."""
        return sum(attempt.outputs for attempt in self.attempts)

    @property
    def driver_bytes(self) -> int:
        """Estimated memory on the driver for the groups."""
        return sum(attempt.driver_bytes for attempt in self.attempts)

    def joined(self, others: Sequence["GroupsInFlight"]) -> "GroupsInFlight":
        """Return these groups and others in one job."""
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
            # Groups whose job fails run again one by one: one may have made the others fail.
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
        except Exception:  # noqa: BLE001  each group meets it again by itself
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
        """Return the outcome of a group; `facts` are those of a job that others shared."""
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
            because = self.engine.cancelled  # which may be why it failed
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
        """Delete everything that the runs wrote, best-effort."""
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
"""Asking Spark about a group takes milliseconds of a thread."""
_TASKS_PER_SLOT: Final = 2
_MAX_GROUPS: Final = 1024
"""Each takes a thread here, and on Spark one in its driver."""
_MAX_DRIVER_BYTES: Final = 1 << 30
_LEAST_UNWATCHED: Final = 2
"""Groups in flight where nobody reports that the tasks of one are nearly done."""


class Slots(Protocol):
    """How many tasks run at a time, which may change."""

    @property
    def groups_per_job(self) -> int:
        """How many groups of one task share a job now, at least 1."""
        ...

    @property
    def watched(self) -> bool:
        """Whether jobs report how many of their tasks are done."""
        ...

    def count(self) -> int:
        """Return the number now, at least 1."""
        ...


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


def table_location(table_uri: str) -> str:
    """Return the local path or URI of a table."""
    try:
        return file_address(table_uri, "")
    except UsageError as error:
        raise ExecutorError(str(error)) from error


def located(table_uri: str, file: InputFile) -> Located:
    """Return an input with its path and that of its deletion vector."""
    try:
        return Located.of(table_uri, file)
    except (UsageError, DataFileError) as error:
        raise ExecutorError(error.message) from error


def _curve_of(plan: ClusteringPlan) -> Curve | None:
    if plan.mode is RewriteMode.COMPACTION:
        return None
    if not plan.columns:
        raise ExecutorError(f"a plan of mode {plan.mode} names no columns to sort by")
    try:
        return parse_curve(plan.curve)
    except UsageError as error:
        raise ExecutorError(str(error)) from error


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
    except LiquidlogError as error:
        raise ExecutorError(error.message) from error
    except (ValueError, OverflowError, KeyError) as error:
        raise ExecutorError(f"the plan's fitted workload is not valid: {error}") from error
