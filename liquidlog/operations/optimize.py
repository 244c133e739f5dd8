"""OPTIMIZE: rewrite and commit the pending groups of a plan, once or in rounds."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from liquidlog.clustering.change import column_names, optimize_metrics, planned_metrics
from liquidlog.clustering.columns import (
    MIGRATION,
    clustering_state,
    defining_actions,
    migrated,
    migration_parameters,
)
from liquidlog.clustering.health import measure_health
from liquidlog.clustering.settings import (
    CommitSettings,
    RewriteSettings,
    Stage,
    policy_settings,
    remembered_if_right,
    settings_of,
    settle,
)
from liquidlog.commit import OpenedTable
from liquidlog.errors import CommitConflictError, Outdated, UsageError
from liquidlog.foresee.verdict import Criteria
from liquidlog.operations.batches import LandedGroups
from liquidlog.operations.define import changed
from liquidlog.operations.executors import (
    LOCAL,
    Executor,
    ExecutorOf,
    active_session,
    choose_executor,
    executors_when_needed,
    open_executor,
    require_settings,
    rewrite_groups,
)
from liquidlog.operations.inspect import health
from liquidlog.operations.planned import foresight_of, snapshot_of_plan
from liquidlog.operations.rewrite import (
    CommitReport,
    commit_groups,
    groups_per_commit,
    require_rewritable,
    watch_for,
)
from liquidlog.plan import ClusteringPlan, Progress
from liquidlog.predicates.conditions import parse_condition, referenced_columns
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Change
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import Summary

DEFAULT_MIN_GAIN: Final = 0.1
"""The least amount by which a round must lower the average depth."""

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Optimized(Summary):
    """A plan, its commits and Delta's metrics by name; with `rounds`, those of the last round."""

    plan: ClusteringPlan
    report: CommitReport
    metrics: Mapping[str, Any]
    seconds: float
    rounds: "tuple[Round[Optimized], ...]" = ()

    @property
    def versions(self) -> tuple[int, ...]:
        """The commits made, in order."""
        if self.rounds:
            return tuple(version for one in self.rounds for version in one.done.report.versions)
        return self.report.versions

    def _facts(self) -> Mapping[str, object]:
        groups = sum(len(one.done.report.committed_groups) for one in self.rounds)
        return {"versions": self.versions, "groups": groups or len(self.report.committed_groups)}


def no_progress(*_: object) -> None:
    """Do nothing with the progress of a group."""


def optimize(
    opened: OpenedTable,
    plan: ClusteringPlan | None,
    make: Callable[..., ClusteringPlan],
    settings: RewriteSettings,
    *,
    executor: str,
    session: object = None,
) -> Optimized:
    """Rewrite and commit a plan, by default the one that `make` returns for the settings."""
    given = settings_of(settings)
    rounds = given[Stage.ROUNDS]
    run: Mapping[str, Any] = given[Stage.RUN]
    commits: CommitSettings = given[Stage.COMMIT]  # type: ignore[assignment]  # by their names
    if plan is not None and (given[Stage.PLAN] or rounds):
        name = next(iter({**given[Stage.PLAN], **rounds}))
        raise UsageError(f"{name} has no effect on a plan that is made already", option=name)
    if not rounds.get("final") and "min_gain" in rounds:
        raise UsageError("min_gain says when rounds end: give final too", option="min_gain")
    planning = partial(make, **given[Stage.PLAN])
    if rounds.get("final"):
        strategy = policy_settings({"strategy": given[Stage.PLAN].get("strategy")})
        require_rounds(settle(opened.snapshot(), strategy).strategy)
    made = planning() if plan is None else plan
    limit_bytes = run.get("local_limit")
    require_settings(executor, {}, limit_bytes)

    def choose(plan: ClusteringPlan) -> str:
        there = active_session() if session is None else session
        return choose_executor(executor, plan, {}, session=there, limit_bytes=limit_bytes).name

    def opening(name: str) -> AbstractContextManager[Executor]:
        return open_executor(
            name,
            {},
            opened.store.storage.source(),
            verb="optimize",
            session=session,
            read_back=run.get("read_back", True),
            limit_bytes=limit_bytes if name == LOCAL else None,
        )

    with executors_when_needed(choose, opening) as started:
        execute = partial(rewrite_and_commit, opened, executor=started, commits=commits)
        if not rounds.get("final"):
            return execute(made)
        least = rounds.get("min_gain", DEFAULT_MIN_GAIN)
        done = tuple(optimize_in_rounds(opened, planning, execute, min_gain=least, first=made))
    if done:
        seconds = sum(one.done.seconds for one in done)
        return replace(done[-1].done, seconds=seconds, rounds=done)
    report = CommitReport(read_version=made.read_version)
    metrics = metrics_of(opened, made, report)
    return Optimized(plan=made, report=report, metrics=metrics, seconds=0)


def rewrite_and_commit(
    opened: OpenedTable,
    plan: ClusteringPlan,
    *,
    executor: ExecutorOf,
    commits: CommitSettings,
    on_share: Progress = no_progress,
    on_group: Callable[[int], None] = no_progress,
) -> Optimized:
    """Rewrite and commit the rest of a plan; raise the failures of groups at the end."""
    started = time.monotonic()
    report = rewritten(
        opened, plan, executor=executor, commits=commits, on_share=on_share, on_group=on_group
    )
    seconds = time.monotonic() - started
    report.require_success()
    metrics = metrics_of(opened, plan, report)
    return Optimized(plan=plan, report=report, metrics=metrics, seconds=seconds)


def rewritten(
    opened: OpenedTable,
    plan: ClusteringPlan,
    *,
    executor: ExecutorOf,
    commits: CommitSettings,
    on_share: Progress = no_progress,
    on_group: Callable[[int], None] = no_progress,
) -> CommitReport:
    """Rewrite and commit the rest of a plan; the report has the failures of groups."""
    groups_per_commit(plan, commits)
    require_rewritable(opened, plan)
    if plan.is_migration and not plan.groups:
        return migrate_empty(opened, plan)
    watch = watch_for(opened, plan, commits.get("max_reconciled_share"))
    rewrite = executor(plan)
    landed = LandedGroups(opened.store, plan).update()
    pending = [group.group_id for group in plan.groups if group.group_id not in landed]
    return commit_groups(
        opened,
        plan,
        rewrite_groups(rewrite, plan, pending, on_share, watch),
        commits,
        on_commit=on_group,
        watch=watch,
        tasks=getattr(rewrite, "tasks", None),
    )


def metrics_of(
    opened: OpenedTable, plan: ClusteringPlan, report: CommitReport
) -> Mapping[str, Any]:
    """Return the metrics of a run, by the names of Delta's OPTIMIZE metrics."""
    snapshot, commits = opened.snapshot(plan.read_version), len(report.versions)
    gone = report.reconciled.gone
    return optimize_metrics(snapshot, plan, report.finished, commits=commits, gone=gone)


def expected_metrics(
    opened: OpenedTable, plan: ClusteringPlan, commits: CommitSettings
) -> Mapping[str, Any]:
    """Return the metrics of a whole plan, None for those that are unknown before the run."""
    versions = -(-len(plan.groups) // groups_per_commit(plan, commits)) or int(plan.is_migration)
    return planned_metrics(snapshot_of_plan(opened, plan), plan, commits=versions)


def partition_where(snapshot: Snapshot, where: str) -> str:
    """Return the WHERE of an OPTIMIZE; as in Delta Spark, it may only name partition columns."""
    if clustering_state(snapshot).columns:
        raise UsageError(
            f"OPTIMIZE of a clustered table takes no WHERE, found {where}: leave it out, or rewrite"
            " what it matches with ALTER TABLE … RECLUSTER WHERE",
            where=where,
        )
    partitions = snapshot.metadata.partition_columns
    named = referenced_columns(parse_condition(where), snapshot.schema).values()
    others = [quote_path(path) for path in named if path[0] not in partitions]
    if others or not partitions:
        listed = ", ".join(partitions) or "none"
        raise UsageError(
            f"WHERE of OPTIMIZE may name partition columns only ({listed}),"
            f" found {', '.join(others) or where}: leave it out",
            where=where,
        )
    return where


# Rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Generic[Done]):
    """The outcome of a round's plan, and the average depth afterwards."""

    done: Done
    average_depth: float | None


def require_rounds(strategy: str) -> None:
    """Refuse a strategy that needs only one round."""
    if strategy != "overlap":
        raise UsageError(
            "rounds are for the strategy overlap; the strategy cube is done in one round",
            option="final",
        )


def average_depth(opened: OpenedTable, where: str | None = None) -> float | None:
    """Return the average depth of the files that `where` may match, None if not measured."""
    snapshot = opened.snapshot()
    least = remembered_if_right(snapshot, "min_cube_bytes")
    return health(opened.store, snapshot, None, where=where, min_cube_bytes=least).average_depth


def depth_after_round(
    opened: OpenedTable,
    plan: ClusteringPlan,
    depth: float | None,
    min_gain: float = DEFAULT_MIN_GAIN,
) -> float | None:
    """Return the average depth predicted after a plan, None if it gains too little."""
    if not plan.groups or depth is None:
        return None
    snapshot = snapshot_of_plan(opened, plan)
    least = plan.policy.min_cube_bytes
    bounds_of = opened.bounds_of(snapshot)
    foresight = foresight_of(opened.store, snapshot, Criteria(), bounds_of, [plan])
    columns = clustering_state(snapshot).columns
    table, bounds = foresight.table_after(0)
    known = bounds.select([foresight.leaves.index(column.leaf) for column in columns])
    after = measure_health(table, columns, known, min_cube_bytes=least).average_depth
    return after if after is not None and after <= depth - min_gain else None


def optimize_in_rounds(
    opened: OpenedTable,
    make: Callable[[], ClusteringPlan],
    execute: Callable[[ClusteringPlan], Done],
    *,
    min_gain: float = DEFAULT_MIN_GAIN,
    first: ClusteringPlan | None = None,
) -> Iterator[Round[Done]]:
    """Yield each round once it is committed, until a round does not gain enough."""
    plan = make() if first is None else first
    require_rounds(plan.strategy)
    where = plan.policy.where
    depth = average_depth(opened, where)
    while depth_after_round(opened, plan, depth, min_gain) is not None:
        done = execute(plan)
        before, depth = depth, average_depth(opened, where)
        yield Round(done=done, average_depth=depth)
        if before is None or depth is None or depth > before - min_gain:
            return
        plan = make()


def migrate_empty(opened: OpenedTable, made: ClusteringPlan) -> CommitReport:
    """Commit the migration of a table without files."""

    def change(newest: Snapshot) -> Change:
        if newest.files.num_rows:
            added = Outdated("files were added that the migration has not rewritten")
            raise CommitConflictError(made.read_version, [added])
        after = migrated(newest, [column.logical for column in made.columns])
        return Change(
            operation=MIGRATION,
            parameters=migration_parameters(newest, column_names(made)),
            actions=defining_actions(newest, clustering_state(after).columns),
            is_blind_append=False,
        )

    return CommitReport(
        read_version=made.read_version, definition_version=changed(opened, change, dry_run=False)
    )
