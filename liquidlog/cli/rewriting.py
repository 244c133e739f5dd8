"""Commands that rewrite files: in one go, in rounds, or in two halves."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final, TypeAlias

import click
from msgspec import to_builtins

from liquidlog.cli.executors import Rewrite, executors_heard, find_executor, open_executor
from liquidlog.cli.options import (
    PAIR,
    Number,
    Pairs,
    dry_run_option,
    json_option,
    mapping,
    policy_options,
    storage_option,
    table_argument,
    verb,
)
from liquidlog.cli.output import emit
from liquidlog.cli.rehearsing import would_do_round, would_do_rounds, would_run
from liquidlog.errors import UsageError
from liquidlog.log.stores import require_used
from liquidlog.operations.optimize import CommitReport
from liquidlog.operations.results import (
    complete_result,
    read_plan,
    read_result,
    result_so_far,
)
from liquidlog.plan import ClusteringPlan, GroupFailure, RewrittenGroup
from liquidlog.report import changes
from liquidlog.report.progress import rewrite_progress
from liquidlog.table import Table

_MIN_GAIN: Final = 0.1

_RewriteOf: TypeAlias = Callable[[ClusteringPlan], Rewrite]

_EXECUTOR = click.option(
    "--executor", default="spark", show_default=True, help="What rewrites the files."
)
_SPARK_CONF = click.option(
    "--spark-conf", multiple=True, type=PAIR, help="A Spark setting; repeats."
)
_FINAL = click.option(
    "--final",
    is_flag=True,
    help="overlap: repeat as long as each round lowers the average depth by --min-gain.",
)
_MIN_GAIN_OPTION = click.option(
    "--min-gain",
    type=Number(0),
    help="With --final: the least a round must lower the average depth by.  [default: 0.1]",
)


@verb(
    "liquidlog optimize ./sales --dry-run",
    "liquidlog optimize ./sales --strategy overlap --budget 50GiB --final",
)
@table_argument
@policy_options
@_FINAL
@_MIN_GAIN_OPTION
@_EXECUTOR
@_SPARK_CONF
@dry_run_option
@json_option
def optimize(  # noqa: PLR0913  one parameter per option
    table: str,
    policy: Mapping[str, Any],
    min_gain: float | None,
    executor: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
    final: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Plan, rewrite on Spark and commit, cube by cube."""
    _check_final(policy, min_gain, final=final)
    opened = Table.open(table, storage_options=mapping(storage_options))
    started = time.monotonic()
    made = opened.plan(**policy)
    planned_seconds = time.monotonic() - started
    opened.require_writable(made)
    gain = _MIN_GAIN if min_gain is None else min_gain
    if dry_run:
        if made.groups:
            find_executor(executor)
        if final:
            document = would_do_rounds(opened, made, planned_seconds, gain)
            shown = partial(changes.would_optimize_finally, made)
        else:
            document = would_do_round(opened, made, planned_seconds)
            shown = partial(changes.would_optimize, made)
        emit(document, shown, as_json=as_json, dry_run=True)
        return
    with (
        executors_heard(as_json=as_json),
        _executor_when_needed(executor, spark_conf, storage_options) as rewrite_of,
    ):
        if not final:
            document = _round(opened, made, rewrite_of, planned_seconds)
            emit(document, changes.optimized, as_json=as_json)
            return
        document = _rounds(opened, policy, made, rewrite_of, gain)
    emit(document, changes.optimized_finally, as_json=as_json)


@contextlib.contextmanager
def _executor_when_needed(
    name: str, spark_conf: Pairs, storage_options: Pairs
) -> Iterator[_RewriteOf]:
    """Context manager: what gives a plan's rewrite; the first plan that has groups starts it."""
    with contextlib.ExitStack() as stack:

        @cache
        def executor() -> Rewrite:
            return stack.enter_context(
                open_executor(name, mapping(spark_conf), mapping(storage_options))
            )

        yield lambda made: executor() if made.groups else _rewrite_nothing


def _rewrite_nothing(*_: object) -> Iterator[RewrittenGroup | GroupFailure]:
    return iter(())


def _check_final(policy: Mapping[str, Any], min_gain: float | None, *, final: bool) -> None:
    if final and policy.get("strategy") != "overlap":
        raise UsageError(
            "--final is for --strategy overlap; the strategy cube is done in one round"
        )
    if min_gain is not None and not final:
        raise UsageError("--min-gain says when --final ends")


def _rounds(
    opened: Table,
    policy: Mapping[str, Any],
    made: ClusteringPlan,
    rewrite_of: _RewriteOf,
    gain: float,
) -> Mapping[str, Any]:
    """Return what rounds did, until one would not, or did not, lower the depth by the gain."""
    rounds: list[Mapping[str, Any]] = []
    depth = opened.health().average_depth
    while made.groups and opened.predicted_health(made).average_depth <= depth - gain:
        done = _round(opened, made, rewrite_of, 0.0)
        before, depth = depth, opened.health().average_depth
        rounds.append({**done, "average_depth": depth})
        if depth > before - gain:
            break
        made = opened.plan(**policy)
    return {
        "versions": [version for one in rounds for version in one["versions"]],
        "rounds": rounds,
        "average_depth": depth,
        "rows_verified": sum(one["rows_verified"] for one in rounds),
        "seconds": round(sum(one["seconds"] for one in rounds), 3),
    }


def _round(
    opened: Table, made: ClusteringPlan, rewrite_of: _RewriteOf, planned_seconds: float
) -> Mapping[str, Any]:
    rewrite = rewrite_of(made)
    started = time.monotonic()
    with rewrite_progress(made) as progress:
        pending = opened.pending(made)
        report = opened.commit_each(
            made, rewrite(made, pending, progress.on_share), on_commit=progress.on_group
        )
    seconds = planned_seconds + time.monotonic() - started
    report.require_success()
    return _optimized(made, report, opened.optimize_metrics(made, report), seconds)


@verb("liquidlog run plan.json -o result.jsonl --spark-conf spark.driver.memory=8g")
@click.argument("plan_path", metavar="PLAN.json")
@click.option(
    "-o", "--output", required=True, help="Append the results to this file, one line per group."
)
@_EXECUTOR
@_SPARK_CONF
@storage_option
@dry_run_option
@json_option
def run(  # noqa: PLR0913  one parameter per option
    plan_path: str,
    output: str,
    executor: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Execute a saved plan without committing it.

    Running it again executes only the groups that RESULT.jsonl lacks.
    """
    made = read_plan(plan_path)
    require_used(made.table_uri, mapping(storage_options))
    if dry_run:
        finished = result_so_far(output, made)
        find_executor(executor)
        done = tuple(group.group_id for group in finished.groups)
        shown = would_run(made, finished) if as_json else made
        words = partial(changes.would_rewrite, finished=done)
        emit(shown, words, as_json=as_json, dry_run=True)
        return
    started = open_executor(executor, mapping(spark_conf), mapping(storage_options))

    def rewrite(groups: tuple[int, ...]) -> Iterator[RewrittenGroup | GroupFailure]:
        with started as run_groups, rewrite_progress(made) as progress:
            for outcome in run_groups(made, groups, progress.on_share):
                progress.on_group(outcome.group_id)
                yield outcome

    with executors_heard(as_json=as_json):
        result = complete_result(output, made, rewrite)
    emit(result, changes.rewritten, as_json=as_json)


@verb("liquidlog commit plan.json result.jsonl")
@click.argument("plan_path", metavar="PLAN.json")
@click.argument("result_path", metavar="RESULT.jsonl")
@storage_option
@dry_run_option
@json_option
def commit(
    plan_path: str, result_path: str, storage_options: Pairs, *, dry_run: bool, as_json: bool
) -> None:
    """Commit the finished groups of an executed plan.

    Groups that are committed already are skipped.
    """
    made = read_plan(plan_path)
    result = read_result(result_path, made)
    opened = Table.open(made.table_uri, storage_options=mapping(storage_options))
    report = _committed(opened.commit(made, result, dry_run=dry_run))
    shown = partial(changes.committed, dry_run=dry_run)
    emit(report, shown, as_json=as_json, dry_run=dry_run)


def _committed(report: CommitReport) -> Mapping[str, Any]:
    return {
        "versions": report.versions,
        "committed_groups": report.committed_groups,
        "skipped_groups": report.skipped_groups,
    }


def _optimized(
    plan: ClusteringPlan, report: CommitReport, metrics: Mapping[str, Any], seconds: float
) -> Mapping[str, Any]:
    costs = {group.group_id: group.costs for group in report.finished}
    return {
        "versions": report.versions,
        "groups": [
            {
                "group_id": group_id,
                "zcube_id": plan.groups[group_id].zcube_id,
                "version": version,
                "inputs": len(plan.groups[group_id].inputs),
                "costs": to_builtins(costs[group_id]),
            }
            for group_id, version in zip(report.committed_groups, report.versions, strict=True)
        ],
        "metrics": metrics,
        "rows_verified": report.rows_verified,
        "seconds": round(seconds, 3),
    }
