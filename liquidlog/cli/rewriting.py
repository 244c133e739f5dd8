"""Commands that rewrite files: at once, in rounds, or in two steps."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click

from liquidlog.cli.options import (
    PAIR,
    Number,
    Pairs,
    WholeNumber,
    advice_option,
    dry_run_option,
    json_option,
    mapping,
    read_back_option,
    rewrite_options,
    storage_option,
    table_argument,
    verb,
)
from liquidlog.cli.output import emit
from liquidlog.errors import UsageError
from liquidlog.log.loader import require_used
from liquidlog.operations.executors import (
    EXECUTOR_GROUP,
    NOT_READ_BACK,
    ExecutorWhenNeeded,
    find_executor,
    open_executor,
)
from liquidlog.operations.results import (
    complete_result,
    read_advice,
    read_plan,
    read_result,
    result_so_far,
)
from liquidlog.operations.rounds import (
    DEFAULT_MIN_GAIN,
    optimize_in_rounds,
    require_rounds,
)
from liquidlog.operations.scan import read_workload
from liquidlog.plan import ClusteringPlan, Outcome
from liquidlog.report import changes
from liquidlog.report.progress import rewrite_progress
from liquidlog.report.rewrites import (
    committed_document,
    round_document,
    rounds_document,
    would_do_round,
    would_do_rounds,
    would_run,
)
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table

_EXECUTOR = click.option(
    "--executor", default="spark", show_default=True, help="What rewrites the files."
)
_SPARK_CONF = click.option(
    "--spark-conf", multiple=True, type=PAIR, help="A Spark setting; repeats."
)
_GROUPS_PER_COMMIT = click.option(
    "--groups-per-commit",
    type=WholeNumber(1),
    help="Commit up to this many finished groups as one version."
    "  [default: 100 for a compaction, whose groups become one file each, else 1]",
)
_WORKLOAD = click.option(
    "--workload",
    help="Fit the layout to readers of these predicates: a file of JSON lines, or .sql.",
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
@rewrite_options
@_WORKLOAD
@advice_option
@_FINAL
@_MIN_GAIN_OPTION
@_GROUPS_PER_COMMIT
@_EXECUTOR
@_SPARK_CONF
@read_back_option
@dry_run_option
@json_option
def optimize(  # noqa: PLR0913  one parameter per option
    table: str,
    policy: Mapping[str, Any],
    workload: str | None,
    advice: str | None,
    min_gain: float | None,
    groups_per_commit: int | None,
    executor: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
    final: bool,
    no_read_back: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Plan, rewrite on Spark and commit, cube by cube."""
    _check_final(policy, min_gain, final=final)
    opened = Table.open(table, storage_options=mapping(storage_options))
    policy = _for_readers(policy, workload, opened.uri, storage_options)
    started = time.monotonic()
    made = _planned(opened, policy, advice)
    planned_seconds = time.monotonic() - started
    if final:
        require_rounds(made.strategy)
    opened.require_writable(made)
    gain = DEFAULT_MIN_GAIN if min_gain is None else min_gain
    _warn_of_what_is_not_read_back(no_read_back=no_read_back, as_json=as_json)
    if dry_run:
        if made.groups:
            find_executor(executor)
        if final:
            document = would_do_rounds(opened, made, planned_seconds, gain, groups_per_commit)
            shown = partial(changes.would_optimize_finally, made)
        else:
            document = would_do_round(opened, made, planned_seconds, groups_per_commit)
            shown = partial(changes.would_optimize, made)
        emit(document, shown, as_json=as_json, dry_run=True)
        return
    with (
        executors_heard(as_json=as_json),
        ExecutorWhenNeeded(
            lambda: open_executor(
                executor,
                mapping(spark_conf),
                mapping(storage_options),
                read_back=not no_read_back,
            )
        ) as started_executor,
    ):
        if not final:
            document = _round(opened, started_executor, groups_per_commit, planned_seconds, made)
            emit(document, changes.optimized, as_json=as_json)
            return
        execute = partial(_round, opened, started_executor, groups_per_commit, 0.0)
        rounds = optimize_in_rounds(opened, execute, policy, min_gain=gain, first=made)
        document = rounds_document(opened, tuple(rounds))
    emit(document, changes.optimized_finally, as_json=as_json)


@contextlib.contextmanager
def executors_heard(*, as_json: bool) -> Iterator[None]:
    """Context manager: messages of executors to the logger EXECUTOR_GROUP appear on stderr.

    With `as_json` they do not: stderr then holds only the document of an error.
    """
    log, handler = logging.getLogger(EXECUTOR_GROUP), logging.StreamHandler()
    level = log.level
    if not as_json:
        log.setLevel(logging.INFO)
        log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _warn_of_what_is_not_read_back(*, no_read_back: bool, as_json: bool) -> None:
    if no_read_back and not as_json:
        click.echo(f"warning: {NOT_READ_BACK}", err=True)


def _for_readers(
    policy: Mapping[str, Any], workload: str | None, uri: str, storage_options: Pairs
) -> Mapping[str, Any]:
    """Return the arguments of a plan, with what a workload asks of the table if one is named."""
    if workload is None:
        return policy
    options = StorageOptions.of(mapping(storage_options))
    asked = read_workload(workload, table=uri, storage_options=options)
    return {**policy, "workload": asked}


def _planned(opened: Table, policy: Mapping[str, Any], advice: str | None) -> ClusteringPlan:
    if advice is None:
        return opened.plan(**policy)
    return opened.plan_advised(read_advice(advice), **policy)


def _check_final(policy: Mapping[str, Any], min_gain: float | None, *, final: bool) -> None:
    if final and "strategy" in policy:
        require_rounds(policy["strategy"])  # no table needs to be read to refuse it
    if not final and min_gain is not None:
        raise UsageError("--min-gain says when --final ends", option="min_gain")


def _round(
    opened: Table,
    executor: ExecutorWhenNeeded,
    groups_per_commit: int | None,
    planned_seconds: float,
    made: ClusteringPlan,
) -> Mapping[str, Any]:
    rewrite = executor.for_plan(made)
    started = time.monotonic()
    with rewrite_progress(made) as progress:
        pending = opened.pending(made)
        report = opened.commit_each(
            made,
            rewrite(made, pending, progress.on_share),
            on_commit=progress.on_group,
            groups_per_commit=groups_per_commit,
        )
    seconds = planned_seconds + time.monotonic() - started
    report.require_success()
    metrics = opened.optimize_metrics(made, report)
    return round_document(made, report, metrics, seconds, groups_per_commit)


@verb("liquidlog run plan.json -o result.jsonl --spark-conf spark.driver.memory=8g")
@click.argument("plan_path", metavar="PLAN.json")
@click.option(
    "-o", "--output", required=True, help="Append the results to this file, one line per group."
)
@_EXECUTOR
@_SPARK_CONF
@read_back_option
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
    no_read_back: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Execute a saved plan without committing it.

    Running it again executes only the groups that RESULT.jsonl lacks.
    """
    made = read_plan(plan_path)
    require_used(made.table_uri, mapping(storage_options))
    _warn_of_what_is_not_read_back(no_read_back=no_read_back, as_json=as_json)
    if dry_run:
        finished = result_so_far(output, made)
        find_executor(executor)
        done = tuple(group.group_id for group in finished.groups)
        shown = would_run(made, finished) if as_json else made
        words = partial(changes.would_rewrite, finished=done)
        emit(shown, words, as_json=as_json, dry_run=True)
        return
    started = open_executor(
        executor, mapping(spark_conf), mapping(storage_options), read_back=not no_read_back
    )

    def rewrite(groups: tuple[int, ...]) -> Iterator[Outcome]:
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
@_GROUPS_PER_COMMIT
@storage_option
@dry_run_option
@json_option
def commit(
    plan_path: str,
    result_path: str,
    groups_per_commit: int | None,
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Commit the finished groups of an executed plan.

    Groups that have been committed already are skipped.
    """
    made = read_plan(plan_path)
    result = read_result(result_path, made)
    opened = Table.open(made.table_uri, storage_options=mapping(storage_options))
    report = opened.commit(made, result, groups_per_commit=groups_per_commit, dry_run=dry_run)
    document = committed_document(made, report, groups_per_commit)
    shown = partial(changes.committed, dry_run=dry_run)
    emit(document, shown, as_json=as_json, dry_run=dry_run)
