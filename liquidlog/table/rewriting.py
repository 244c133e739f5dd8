"""Rewriting a table: a plan, and the commits of what an executor made of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

from liquidlog.clustering.health.measure import Health
from liquidlog.clustering.outcome.metrics import optimize_metrics, planned_metrics
from liquidlog.clustering.planning import cube
from liquidlog.clustering.planning.choice import Strategy
from liquidlog.clustering.planning.options import STRATEGY, policy_settings
from liquidlog.clustering.planning.planner import STRATEGIES, check_known
from liquidlog.clustering.planning.planner import plan as make_plan
from liquidlog.errors import UsageError
from liquidlog.log.loader import require_same_table
from liquidlog.operations import inspect
from liquidlog.operations.explain import Explained, explain, explain_together
from liquidlog.operations.optimize import CommitReport, commit_groups
from liquidlog.operations.replay import Replay, replay
from liquidlog.operations.rewrite import pending_groups
from liquidlog.operations.sampling import sample_keys
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    GroupFailure,
    RewriteResult,
    RewrittenGroup,
)
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.simulation.prediction import Prediction, predict, predicted_health
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arguments import one, several, whole_number
from liquidlog.spec.rows import Rows
from liquidlog.table.opened import OpenedTable, Size

STRATEGY_GROUP: Final = "liquidlog.strategies"
"""Entry points of further planning strategies: a name and a Strategy."""

_PREDICATES: Final = "WeightedPredicates"


class Rewriting(OpenedTable):
    """Methods from a snapshot to a plan, and from a result to versions."""

    def plan(  # noqa: PLR0913  the policy, spelled out
        self,
        *,
        full: bool = False,
        strategy: str | None = None,
        curve: str | None = None,
        min_cube_size: Size | None = None,
        target_cube_size: Size | None = None,
        max_file_size: Size | None = None,
        zorder_by: str | Sequence[str] | None = None,
        budget: Size | None = None,
        where: str | None = None,
        tolerance: float | None = None,
        min_overlapping_files: int | None = None,
        min_overlap: float | None = None,
        version: int | None = None,
    ) -> ClusteringPlan:
        """Return what OPTIMIZE would rewrite; writes nothing.

        What is None has the default of ClusteringPolicy, and `strategy` that of "cube". From
        `budget` on, the arguments are for the strategy "overlap". An argument that would have no
        effect on this table with this strategy is refused.

        Raises:
            UsageError: If the policy asks for what such a table cannot have, or an argument would
                have no effect.
            ClusteringColumnError: If a column cannot be clustered by.
            UnsupportedFeatureError: If the table cannot be read or planned.
        """
        settings = policy_settings(
            {
                "full": full or None,
                "curve": curve,
                "min_cube_size": min_cube_size,
                "target_cube_size": target_cube_size,
                "max_file_size": max_file_size,
                "zorder_by": zorder_by,
                "budget": budget,
                "where": where,
                "tolerance": tolerance,
                "min_overlapping_files": min_overlapping_files,
                "min_overlap": min_overlap,
            }
        )
        snapshot = self.snapshot(version)
        name = (
            cube.NAME
            if strategy is None
            else one(strategy, str, argument="strategy", expected="a name")
        )
        return make_plan(
            snapshot,
            ClusteringPolicy(**settings),
            new_id=self._clock.new_id,
            strategy=name,
            strategies=_strategies(name),
            bounds_of=self.bounds_of(snapshot),
            named={*settings, *(() if strategy is None else (STRATEGY,))},
        )

    def predict(
        self, plan: ClusteringPlan, workload: Workload, *, sample: bool = False
    ) -> Prediction:
        """Return what a plan would bring to the readers of a workload, from statistics.

        With `sample`, rows of the clustering columns are read from some of the files, and the
        prediction follows how they really lie.

        Raises:
            UsageError: If a predicate cannot be understood, there is none, or the plan has no
                columns to sample.
            DataFileError: If a file that is sampled cannot be read.
        """
        snapshot = self.snapshot_of(plan)
        asked = several(workload, (WeightedPredicate,), argument="workload", of=_PREDICATES)
        if not asked:
            raise UsageError("a prediction needs readers: the workload has no predicate")
        if sample and not plan.columns:
            raise UsageError("sample has no effect: the plan orders rows by no columns")
        samples = sample_keys(self._store, snapshot, plan) if sample else None
        return predict(snapshot, plan, asked, self.bounds_of(snapshot), samples)

    def predicted_health(self, plan: ClusteringPlan) -> Health:
        """Return the health that the table would have after a plan, from statistics."""
        snapshot = self.snapshot_of(plan)
        size = plan.policy.min_cube_bytes
        return predicted_health(snapshot, plan, self.bounds_of(snapshot), min_cube_bytes=size)

    def explain(self, plan: ClusteringPlan | None = None, *, path: str | None = None) -> Rows:
        """Return why each live file, or one, is or is not a candidate, in words and numbers.

        Raises:
            UsageError: If the path is not one of a live file.
        """
        if path is not None:
            one(path, str, argument="path", expected="a path as files shows it")
        made = self.plan() if plan is None else plan
        snapshot = self.snapshot_of(made)
        rows = explain(made, snapshot, self.bounds_of(snapshot), path)
        if path is not None and not rows:
            raise UsageError(
                f"{path} is not a live file of {self.uri} at version {snapshot.version};"
                " give its path as files shows it",
                path=str(path),
            )
        return rows

    def explain_together(
        self, plan: ClusteringPlan | None = None, *, examples: int = 3
    ) -> tuple[Explained, ...]:
        """Return how many files a plan takes or leaves for which reason, each with some paths."""
        made = self.plan() if plan is None else _plan(plan)
        shown = whole_number(examples, argument="examples")
        return explain_together(made, examples=shown)

    def snapshot_of(self, plan: ClusteringPlan) -> Snapshot:
        """Return the table at the version that a plan was made for.

        Raises:
            UsageError: If it was made for a table at another address.
            TableReplacedError: If it was made for another table at this one.
            VersionNotFoundError: If the log does not hold that version.
        """
        version = _plan(plan).read_version
        newest = self._newest or self.update()
        if newest.metadata.id != plan.table_id and plan.table_uri != self.uri:
            raise UsageError(
                f"the plan is of the table {plan.table_uri}, not of {self.uri}; plan this one",
                table_uri=plan.table_uri,
            )
        require_same_table(newest, plan.table_id)
        if newest.version == version:
            return newest
        then = self.snapshot(version)
        require_same_table(then, plan.table_id)
        return then

    def replay(self, version: int, **policy: Any) -> Replay:  # noqa: ANN401  as plan takes them
        """Return how a plan for the version before an OPTIMIZE compares with what it took.

        `policy` is what `plan` takes; whether it was FULL is read from the commit.

        Raises:
            UsageError: If the commit is no OPTIMIZE, or the policy names what the commit tells.
            VersionNotFoundError: If the log does not hold it, or the version before.
        """
        if policy.get("full") or policy.get("version") is not None:
            raise UsageError("full and version have no effect on a replay: the commit tells them")

        def plan_at(before: int, full: bool) -> ClusteringPlan:  # noqa: FBT001  the callback's type
            return self.plan(**{**policy, "version": before, "full": full})

        return replay(self._store, whole_number(version, argument="version"), plan_at)

    def require_writable(self, plan: ClusteringPlan) -> None:
        """Refuse, before anything is rewritten, a plan whose outputs could not be committed.

        Raises:
            UnsupportedFeatureError: With every reason.
        """
        self._store.require_writable()
        inspect.require_rewritable(self.snapshot(), _plan(plan), self._store.storage)

    def pending(self, plan: ClusteringPlan) -> tuple[int, ...]:
        """Return the ids of the plan's groups that are not committed yet."""
        return tuple(group.group_id for group in pending_groups(self._store, _plan(plan)))

    def commit(
        self, plan: ClusteringPlan, result: RewriteResult, *, dry_run: bool = False
    ) -> CommitReport:
        """Commit the finished groups that are not committed yet, one commit per group.

        With `dry_run` every group is checked as if it were committed, nothing is written or
        deleted, and the report holds the versions that the groups would get.

        Raises:
            UsageError: If the arguments are not a plan and a result.
            CommitConflictError: If other commits made groups impossible; the others landed.
            ResultMismatchError: If the result does not answer the plan, or lost a row.
            CommitStateUnknownError: If it cannot be told whether a commit landed.
        """
        kind = "a RewriteResult"
        finished = one(result, RewriteResult, argument="result", expected=kind)
        report = self.commit_each(plan, finished.groups, dry_run=dry_run)
        report.require_success()
        return report

    def optimize_metrics(self, plan: ClusteringPlan, report: CommitReport) -> Mapping[str, Any]:
        """Return what a run did, under the names of Delta's OPTIMIZE metrics."""
        return optimize_metrics(self.snapshot(_plan(plan).read_version), plan, report.finished)

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
            self._store, _plan(plan), groups, self._clock, on_commit=on_commit, dry_run=dry_run
        )


def _strategies(name: str) -> Mapping[str, Strategy]:
    """Return our strategies and, if it is another, the installed one of that name.

    Raises:
        UsageError: If there is none, or it cannot be loaded.
    """
    if name in STRATEGIES:
        return STRATEGIES
    installed = {point.name: point for point in entry_points(group=STRATEGY_GROUP)}
    check_known("strategy", name, (*STRATEGIES, *installed))
    try:
        return {**STRATEGIES, name: installed[name].load()}
    except Exception as error:  # whatever another package's import raises
        raise UsageError(f"the strategy {name} cannot be loaded: {error}", strategy=name) from error


def _plan(value: object) -> ClusteringPlan:
    return one(value, ClusteringPlan, argument="plan", expected="a ClusteringPlan")
