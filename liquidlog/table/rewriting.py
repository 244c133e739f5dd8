"""Rewriting a table: a plan, and the commits of what an executor made of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

from liquidlog.clustering.health import Health
from liquidlog.clustering.metrics import optimize_metrics, planned_metrics
from liquidlog.clustering.planner import STRATEGIES
from liquidlog.clustering.planner import plan as make_plan
from liquidlog.clustering.planning import Strategy
from liquidlog.clustering.workload import Workload
from liquidlog.log.loader import require_same_table
from liquidlog.operations import inspect
from liquidlog.operations.explain import Explained, explain, explain_together
from liquidlog.operations.optimize import CommitReport, commit_groups
from liquidlog.operations.replay import Replay, replay
from liquidlog.operations.rewrite import pending_groups
from liquidlog.operations.sampling import sample_keys
from liquidlog.plan import (
    DEFAULT_MAX_FILE_BYTES,
    DEFAULT_MIN_CUBE_BYTES,
    DEFAULT_MIN_OVERLAP,
    DEFAULT_MIN_OVERLAPPING_FILES,
    DEFAULT_TARGET_CUBE_BYTES,
    DEFAULT_TOLERANCE,
    ClusteringPlan,
    ClusteringPolicy,
    GroupFailure,
    RewriteResult,
    RewrittenGroup,
)
from liquidlog.simulation.prediction import Prediction, predict, predicted_health
from liquidlog.snapshot import Snapshot
from liquidlog.spec.rows import Rows
from liquidlog.spec.schema import split_path
from liquidlog.spec.sizes import parse_size
from liquidlog.table.opened import OpenedTable, Size

STRATEGY_GROUP: Final = "liquidlog.strategies"
"""Entry points of further planning strategies: a name and a Strategy."""


class Rewriting(OpenedTable):
    """Methods from a snapshot to a plan, and from a result to versions."""

    def plan(  # noqa: PLR0913  the policy, spelled out
        self,
        *,
        full: bool = False,
        strategy: str = "cube",
        curve: str = "hilbert",
        min_cube_size: Size = DEFAULT_MIN_CUBE_BYTES,
        target_cube_size: Size = DEFAULT_TARGET_CUBE_BYTES,
        max_file_size: Size = DEFAULT_MAX_FILE_BYTES,
        zorder_by: Sequence[str] = (),
        budget: Size | None = None,
        where: str | None = None,
        tolerance: float = DEFAULT_TOLERANCE,
        min_overlapping_files: int = DEFAULT_MIN_OVERLAPPING_FILES,
        min_overlap: float = DEFAULT_MIN_OVERLAP,
        version: int | None = None,
    ) -> ClusteringPlan:
        """Return what OPTIMIZE would rewrite; writes nothing.

        From `budget` on, the arguments are for the strategy "overlap"; see ClusteringPolicy.

        Raises:
            UsageError: If the policy asks for what such a table cannot have.
            ClusteringColumnError: If a column cannot be clustered by.
            UnsupportedFeatureError: If the table cannot be read or planned.
        """
        policy = ClusteringPolicy(
            min_cube_bytes=parse_size(min_cube_size),
            target_cube_bytes=parse_size(target_cube_size),
            max_file_bytes=parse_size(max_file_size),
            full=full,
            curve=curve,
            zorder_by=tuple(split_path(column) for column in zorder_by),
            tolerance=tolerance,
            min_overlapping_files=min_overlapping_files,
            min_overlap=min_overlap,
            budget_bytes=None if budget is None else parse_size(budget),
            where=where,
        )
        snapshot = self.snapshot(version)
        strategies = {**STRATEGIES, **_installed_strategies()}
        new_id = self._clock.new_id
        return make_plan(
            snapshot,
            policy,
            new_id=new_id,
            strategy=strategy,
            strategies=strategies,
            bounds_of=self.bounds_of(snapshot),
        )

    def predict(
        self, plan: ClusteringPlan, workload: Workload, *, sample: bool = False
    ) -> Prediction:
        """Return what a plan would bring to the readers of a workload, from statistics.

        With `sample`, rows of the clustering columns are read from some of the files, and the
        prediction follows how they really lie.

        Raises:
            UsageError: If a predicate cannot be understood.
            DataFileError: If a file that is sampled cannot be read.
        """
        snapshot = self.snapshot_of(plan)
        samples = sample_keys(self._store, snapshot, plan) if sample and plan.columns else None
        return predict(snapshot, plan, workload, self.bounds_of(snapshot), samples)

    def predicted_health(self, plan: ClusteringPlan) -> Health:
        """Return the health that the table would have after a plan, from statistics."""
        snapshot = self.snapshot_of(plan)
        size = plan.policy.min_cube_bytes
        return predicted_health(snapshot, plan, self.bounds_of(snapshot), min_cube_bytes=size)

    def explain(self, plan: ClusteringPlan | None = None, *, path: str | None = None) -> Rows:
        """Return why each live file, or one, is or is not a candidate, in words and numbers."""
        made = self.plan() if plan is None else plan
        snapshot = self.snapshot_of(made)
        return explain(made, snapshot, self.bounds_of(snapshot), path)

    def explain_together(
        self, plan: ClusteringPlan | None = None, *, examples: int = 3
    ) -> tuple[Explained, ...]:
        """Return how many files a plan takes or leaves for which reason, each with some paths."""
        return explain_together(self.plan() if plan is None else plan, examples=examples)

    def snapshot_of(self, plan: ClusteringPlan) -> Snapshot:
        """Return the table at the version that a plan was made for.

        Raises:
            TableReplacedError: If it was made for another table.
            VersionNotFoundError: If the log does not hold that version.
        """
        newest = self._newest
        if newest is None or newest.version != plan.read_version:
            newest = self.snapshot(plan.read_version)
        require_same_table(newest, plan.table_id)
        return newest

    def replay(self, version: int, **policy: Any) -> Replay:  # noqa: ANN401  as plan takes them
        """Return how a plan for the version before an OPTIMIZE compares with what it took.

        `policy` is what `plan` takes; whether it was FULL is read from the commit.

        Raises:
            UsageError: If the commit is no OPTIMIZE.
            VersionNotFoundError: If the log does not hold it, or the version before.
        """

        def plan_at(before: int, full: bool) -> ClusteringPlan:  # noqa: FBT001  the callback's type
            return self.plan(**{**policy, "version": before, "full": full})

        return replay(self._store, version, plan_at)

    def require_writable(self, plan: ClusteringPlan) -> None:
        """Refuse, before anything is rewritten, a plan whose outputs could not be committed.

        Raises:
            UnsupportedFeatureError: With every reason.
        """
        self._store.require_writable()
        inspect.require_rewritable(self.snapshot(), plan, self._store.storage)

    def pending(self, plan: ClusteringPlan) -> tuple[int, ...]:
        """Return the ids of the plan's groups that are not committed yet."""
        return tuple(group.group_id for group in pending_groups(self._store, plan))

    def commit(
        self, plan: ClusteringPlan, result: RewriteResult, *, dry_run: bool = False
    ) -> CommitReport:
        """Commit the finished groups that are not committed yet, one commit per group.

        With `dry_run` every group is checked as if it were committed, nothing is written or
        deleted, and the report holds the versions that the groups would get.

        Raises:
            CommitConflictError: If other commits made groups impossible; the others landed.
            ResultMismatchError: If the result does not answer the plan, or lost a row.
            CommitStateUnknownError: If it cannot be told whether a commit landed.
        """
        report = self.commit_each(plan, result.groups, dry_run=dry_run)
        report.require_success()
        return report

    def optimize_metrics(self, plan: ClusteringPlan, report: CommitReport) -> Mapping[str, Any]:
        """Return what a run did, under the names of Delta's OPTIMIZE metrics."""
        return optimize_metrics(self.snapshot(plan.read_version), plan, report.finished)

    def planned_metrics(self, plan: ClusteringPlan) -> Mapping[str, Any]:
        """Return the metrics that committing a whole plan would have; None is not known yet."""
        return planned_metrics(self.snapshot_of(plan), plan)

    def commit_each(
        self,
        plan: ClusteringPlan,
        groups: Iterable[RewrittenGroup | GroupFailure],
        *,
        on_commit: Callable[[int], None] = lambda _: None,
        dry_run: bool = False,
    ) -> CommitReport:
        """Commit groups as an executor finishes them; failures are collected, not raised."""
        return commit_groups(
            self._store, plan, groups, self._clock, on_commit=on_commit, dry_run=dry_run
        )


def _installed_strategies() -> Mapping[str, Strategy]:
    points = entry_points(group=STRATEGY_GROUP)
    return {point.name: point.load() for point in points}
