"""The executor: rewrites the groups of a ClusteringPlan and returns facts about each of them.

As many groups run beside each other as keep the cluster busy (see `flight`). Each is reported as it
finishes, whatever the order, so that it can be committed at once. Nothing here reads or writes the
log.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4  # noqa: TID251  names the files of a run

from msgspec import UNSET, UnsetType, structs
from pyspark.sql import SparkSession

from liquidlog.data.origins import Origin
from liquidlog.data.runs import Run
from liquidlog.errors import ExecutorError, LiquidlogError, UsageError
from liquidlog.plan import (
    Cancelled,
    ClusteringPlan,
    CopiedRowGroups,
    GroupCosts,
    GroupFailure,
    Outcome,
    Progress,
    RewriteGroup,
    RewriteResult,
    RewrittenGroup,
    repeated_inputs,
    repeated_message,
    rewrite_digest,
)
from liquidlog.rewriting.planned import (
    curve_of,
    file_location,
    require_layout,
    require_partition,
    vector_location,
)
from liquidlog.rewriting.sink import RowsProof, TaskFacts
from liquidlog.rewriting.source import GroupWork
from liquidlog.spec.arguments import one, several
from liquidlog.storage.files import require_creatable
from liquidlog.storage.options import NO_OPTIONS, OptionsSource, StorageOptions
from liquidspark.flight import Flight, task_slots
from liquidspark.jobs import GroupJobs
from liquidspark.pipeline import ExecutorOptions, run_group
from liquidspark.probing import require_ready
from liquidspark.session import failure_reason, piece_settings

__all__ = ["ExecutorOptions", "GroupRun", "execute", "execute_groups"]

_INPUT_BYTES: Final = 2 << 10
_SAMPLED_BYTES: Final = 32
"""Estimates of what an input, and a sampled value, take on the driver."""

DEFAULT_OPTIONS: Final = ExecutorOptions()

_log: Final = logging.getLogger("liquidlog.executors")
"""The logger whose messages the command line shows."""


def execute(  # noqa: PLR0913  what to do, and four ways to watch and steer it
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

    Args:
        spark: A classic or Connect session whose workers can import this package.
        plan: What to rewrite.
        groups: Ids of the groups to rewrite, or one id; all if None.
        on_group: Called with each group when it finishes or fails.
        progress: Called now and then with the share of a running group that is done.
        options: How the work of a group is divided.
        storage_options: Workers open the table's files with these and with what their own
            environment says. A callable that returns options is asked here, before each job.

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
    except ExecutorError:
        if on_group is None:
            _discard(plan, finished, StorageOptions.of(storage_options))
        raise
    if failures:
        if on_group is None:
            _discard(plan, finished, StorageOptions.of(storage_options))
        raise ExecutorError("; ".join(f"group {f.group_id}: {f.reason}" for f in failures))
    finished.sort(key=lambda group: group.group_id)
    return RewriteResult(plan_id=plan.plan_id, groups=tuple(finished))


def execute_groups(  # noqa: PLR0913  as execute
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
        verb: What the markers of the runs say that this process does.

    Raises:
        UsageError: If the plan has no such group.
        ExecutorError: If the plan asks for something this executor cannot do, the driver or
            the workers lack what it needs, or the session ends.
    """
    wanted = _wanted(plan, groups)
    one(options, ExecutorOptions, argument="options", expected="ExecutorOptions")
    repeated = repeated_inputs(plan.groups)
    if repeated:
        raise ExecutorError(f"the plan {repeated_message(repeated)}")
    storage = StorageOptions.of(storage_options)
    origin = Origin.here(
        one(verb, str, argument="verb", expected="text"),
        now_ms=time.time_ns() // 1_000_000,
        plan_id=plan.plan_id,
    )
    runs = [
        GroupRun(plan=plan, group=group, options=options, storage=storage, origin=origin)
        for group in wanted
    ]
    for run in runs:
        run.check()
    if not runs:
        return
    # Groups of one task go last, where they fill the slots that large groups leave.
    large = [run for run in runs if run.group.size_bytes > options.single_task_bytes]
    small = [run for run in runs if run.group.size_bytes <= options.single_task_bytes]
    runs[0].require_ready(spark, tasks=sum(len(run.group.inputs) for run in large) or len(small))
    with piece_settings(spark):
        yield from Flight(spark, [*large, *small]).outcomes(progress, cancelled)


def _wanted(plan: ClusteringPlan, groups: object) -> list[RewriteGroup]:
    """Return the groups of a plan with these ids, all if None.

    Raises:
        UsageError: If it is no plan, or has no such group.
    """
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
    """One attempt to rewrite one group of a plan, with its own run in the table.

    `token` is part of the names of the run's files; `storage` opens the table's files; `origin` is
    this process, as the run's marker says.
    """

    plan: ClusteringPlan
    group: RewriteGroup
    options: ExecutorOptions = DEFAULT_OPTIONS
    storage: StorageOptions = NO_OPTIONS
    origin: Origin | None = None
    token: str = field(default_factory=lambda: uuid4().hex[:12])
    jobs: GroupJobs = field(default_factory=GroupJobs)

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
        """About what the driver holds for the group: its inputs and the sampled rows."""
        sampled = self.options.sample_rows_of(self.outputs) * len(self.plan.columns)
        return _INPUT_BYTES * len(self.group.inputs) + _SAMPLED_BYTES * sampled

    @property
    def directory(self) -> str:
        """The table's directory: a local path or a URI."""
        return file_location(self.plan.table_uri, "")

    @property
    def run(self) -> Run:
        """The run in the table."""
        return Run(self.directory, self.token, self.storage, self.group.directories)

    def check(self) -> None:
        """Refuse a group that no attempt could rewrite, without asking Spark.

        Raises:
            ExecutorError: If the plan asks for something this executor cannot do, or no file can
                be created in the table.
        """
        curve_of(self.plan)
        require_layout(self.plan)
        require_partition(self.plan, self.group)
        try:
            require_creatable(self.directory, self.storage)
        except LiquidlogError as error:
            raise ExecutorError(error.message) from error
        for file in self.group.inputs:
            vector_location(self.plan, file)

    def require_ready(self, spark: SparkSession, *, tasks: int) -> None:
        """Refuse to begin if no group at all could be rewritten.

        Args:
            spark: The session.
            tasks: How many tasks are to follow.

        Raises:
            ExecutorError: If the driver or a worker lacks what a rewrite needs.
        """
        file = next(iter(self.group.inputs), None)
        if file is not None:
            require_ready(
                spark,
                directory=self.directory,
                file=file_location(self.plan.table_uri, file.path),
                storage=self.storage,
                tasks=tasks,
            )

    def work(self) -> GroupWork:
        """Return the group as tasks see it."""
        inputs = tuple(self.group.inputs)
        return GroupWork(
            directory=self.directory,
            inputs=inputs,
            paths=tuple(file_location(self.plan.table_uri, file.path) for file in inputs),
            vector_paths=tuple(vector_location(self.plan, file) for file in inputs),
            outputs=self.outputs,
            schema_string=self.plan.schema_string,
            row_tracking=self.plan.row_tracking,
            mapping_mode=self.plan.mapping_mode,
            columns=tuple(column.physical for column in self.plan.columns),
            curve=curve_of(self.plan),
            readers=self.plan.readers,
            prefix=self.plan.prefix,
            writer_options=self.plan.writer_options,
            token=self.token,
            storage=self.storage,
            read_back=self.options.read_back,
            copy_row_groups=self.options.copy_row_groups,
            slice_bytes=self.options.slice_bytes,
            partition_columns=self.plan.partitioned_by,
            output_directories=self.group.directories,
        )

    def execute(self, spark: SparkSession, *, slots: int) -> Outcome:
        """Rewrite the group; its run ends finished, or discarded with all its files.

        Args:
            spark: The session.
            slots: How many tasks its cluster runs at a time.

        Raises:
            ExecutorError: If the session has ended.
        """
        if self.jobs.cancelled is not None:
            return self.cancelled(self.jobs.cancelled)
        started = time.perf_counter()
        try:
            self.run.begin(self.origin)
            with self.jobs.started_here(spark):
                facts = run_group(
                    spark, self.work(), options=self.options, jobs=self.jobs, slots=slots
                )
            outcome = self.outcome(facts, seconds=time.perf_counter() - started)
            if isinstance(outcome, RewrittenGroup):
                digest = rewrite_digest(self.plan, self.group, outcome)
                self.run.finish(digest, keep={output.path for output in outcome.outputs})
        except Exception as error:  # noqa: BLE001  whatever Spark raises is this group's failure
            outcome = self._ended(failure_reason(error))
            self.discard()
            task_slots(spark)  # raises where no other group could be rewritten either
            return outcome
        if isinstance(outcome, GroupFailure):
            outcome = self._ended(outcome.reason)
            self.discard()
        return outcome

    def cancelled(self, because: str) -> GroupFailure:
        """Return what becomes of the group, of which nothing is left, if it is cancelled."""
        _log.info("group %d: cancelled: %s", self.group_id, because)
        return GroupFailure(group_id=self.group_id, reason=because, cancelled=True)

    def _ended(self, reason: str) -> GroupFailure:
        """Return what becomes of the group after an error, which cancelling brings about, too."""
        because = self.jobs.cancelled
        return self._failed(reason) if because is None else self.cancelled(because)

    def discard(self) -> None:
        """Delete everything that the run wrote, best-effort."""
        self.run.discard()

    def _failed(self, reason: str) -> GroupFailure:
        return GroupFailure(group_id=self.group.group_id, reason=reason)

    def outcome(self, facts: TaskFacts, *, seconds: float) -> Outcome:
        """Return the outcome of the group: a failure if the rows written differ from those read.

        Args:
            facts: The sum of its tasks' facts.
            seconds: The duration of the rewrite.
        """
        try:
            read, written = facts.proofs()
        except ExecutorError as error:
            return self._failed(str(error))
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
            copied=_copied(read, written),
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


def _copied(read: RowsProof, written: RowsProof) -> CopiedRowGroups | UnsetType:
    if not read.copied_row_groups:
        return UNSET
    return CopiedRowGroups(
        row_groups=read.copied_row_groups,
        rows=read.copied_rows,
        checksum_read=read.copied_checksum,
        checksum_written=written.copied_checksum,
    )


def _discard(plan: ClusteringPlan, groups: list[RewrittenGroup], storage: StorageOptions) -> None:
    places = {group.group_id: group.directories for group in plan.groups}
    for group in groups:
        run = Run(file_location(plan.table_uri, ""), group.run, storage, places[group.group_id])
        run.discard()
