"""The executor: rewrites the groups of a ClusteringPlan and returns facts about each of them.

As many groups run beside each other as keep the cluster busy. Each is reported as it finishes,
whatever the order, so that it can be committed at once. Nothing here reads or writes the log.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NoReturn

from pyspark.sql import SparkSession

from liquidlog.data.runs import Run
from liquidlog.errors import ExecutorError
from liquidlog.plan import (
    Cancelled,
    ClusteringPlan,
    GroupFailure,
    Outcome,
    Progress,
    RewriteResult,
    RewrittenGroup,
)
from liquidlog.rewriting.groups import Flight, GroupsInFlight, runs_of, table_location
from liquidlog.rewriting.source import DEFAULT_OPTIONS, ExecutorOptions
from liquidlog.storage.options import OptionsSource
from liquidlog.storage.unity import storage_of
from liquidspark.pipeline import SparkEngine, TaskSlots
from liquidspark.probing import require_ready
from liquidspark.session import piece_session

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
        if failures:
            _refuse(failures)
    except ExecutorError:
        places = {group.group_id: group.directories for group in plan.groups}
        for group in finished if on_group is None else ():
            storage = storage_of(plan.table_uri, plan.location, storage_options)
            Run(table_location(plan.location), group.run, storage, places[group.group_id]).discard()
        raise
    finished.sort(key=lambda group: group.group_id)
    return RewriteResult(plan_id=plan.plan_id, groups=tuple(finished))


def _refuse(failures: list[GroupFailure]) -> NoReturn:
    raise ExecutorError("; ".join(f"group {f.group_id}: {f.reason}" for f in failures))


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
        verb: What the markers of the runs say that this process does.

    Raises:
        UsageError: If the plan has no such group.
        ExecutorError: If the plan asks for something this executor cannot do, the driver or
            the workers lack what it needs, or the session ends.
    """
    runs = runs_of(plan, groups, options=options, storage=storage_options, verb=verb)
    if not runs:
        return
    inputs = [len(run.group.inputs) for run in runs if not run.is_one_task]
    with piece_session(spark) as own:
        first = runs[0]
        if first.first_input is not None:
            require_ready(
                own,
                directory=first.directory,
                file=first.first_input,
                storage=first.storage,
                tasks=sum(inputs) or len(runs),
            )
        flying = [GroupsInFlight((run,), SparkEngine(own)) for run in runs]
        yield from Flight(TaskSlots(own), flying).outcomes(progress, cancelled)
