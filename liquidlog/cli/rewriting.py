"""Commands that rewrite files: at once, in rounds, or in two steps."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from liquidlog.cli.completion import executors, files, one_of
from liquidlog.cli.defaults import storage_defaults
from liquidlog.cli.judging import predicted_and_judged
from liquidlog.cli.options import (
    Pairs,
    advice_option,
    dry_run_option,
    gathered,
    json_option,
    mapping,
    read_back_option,
    rewrite_options,
    storage_option,
    table_argument,
    verb,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import emit
from liquidlog.cli.values import PAIR, SIZE, Number, Percentage, WholeNumber
from liquidlog.cli.verbosity import executors_heard
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.log.loader import require_used
from liquidlog.operations.executors import (
    NOT_READ_BACK,
    ExecutorWhenNeeded,
    begun_early,
    open_executor,
    require_doable,
    require_settings,
    rewrite_groups,
    tasks_of,
)
from liquidlog.operations.followed import reconcile_limits
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
from liquidlog.operations.watch import watch_of
from liquidlog.plan import ClusteringPlan, Outcome
from liquidlog.report import changes
from liquidlog.report.printing import say
from liquidlog.report.progress import rewrite_progress
from liquidlog.report.rewrites import (
    committed_document,
    round_document,
    rounds_document,
    would_do_round,
    would_do_rounds,
    would_run,
)
from liquidlog.table import Table

if TYPE_CHECKING:
    from liquidlog.judgement.verdicts import Option

EXECUTOR_OPTION = click.option(
    "--executor",
    default="spark",
    show_default=True,
    shell_complete=one_of(executors),
    help="What rewrites the files.",
)
SPARK_CONF_OPTION = click.option(
    "--spark-conf", multiple=True, type=PAIR, help="A Spark setting; repeats."
)
LOCAL_LIMIT_OPTION = click.option(
    "--local-limit",
    type=SIZE,
    help="With --executor local: refuse a plan of more input than this.  [default: 20GiB]",
)
COMMIT_OPTIONS = {
    "groups_per_commit": click.option(
        "--groups-per-commit",
        type=WholeNumber(1),
        help="Commit up to this many finished groups as one version."
        "  [default: 100 for a compaction, whose groups become one file each, else 1]",
    ),
    "max_reconciled_share": click.option(
        "--max-reconciled-share",
        type=Percentage(),
        help="If others delete rows of a group meanwhile, delete them from what was written: up to"
        " this share of its rows.  [default: 20%]",
    ),
    "reconcile_limit": click.option(
        "--reconcile-limit",
        type=SIZE,
        help="Read at most this much per group to find such rows; what is more, optimize leaves to"
        " the executor's tasks.  [default: 10GiB]",
    ),
}
_WORKLOAD = workload_option(
    "Fit the layout to readers of these predicates: a file of JSON lines, or .sql."
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


def _commit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add how groups are committed; the command receives `commits`, for Table.commit_each."""
    return gathered(command, COMMIT_OPTIONS, "commits", checked_commits)


def checked_commits(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options if they can be used together, before anything is rewritten."""
    reconcile_limits(given.get("max_reconciled_share"), given.get("reconcile_limit"))
    return given


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
@_commit_options
@EXECUTOR_OPTION
@SPARK_CONF_OPTION
@LOCAL_LIMIT_OPTION
@read_back_option
@dry_run_option
@json_option
def optimize(
    table: str,
    policy: Mapping[str, Any],
    workload: str | None,
    advice: str | None,
    min_gain: float | None,
    commits: Mapping[str, Any],
    executor: str,
    spark_conf: Pairs,
    local_limit: int | None,
    storage_options: Pairs,
    *,
    final: bool,
    no_read_back: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Plan, rewrite on Spark and commit, cube by cube.

    With --executor local, small tables are rewritten without a JVM, to the same files.
    """
    _check_final(policy, min_gain, final=final)
    require_settings(executor, mapping(spark_conf), local_limit)
    opened = Table.open(table, storage_options=mapping(storage_options))
    policy = _for_readers(policy, workload, opened, storage_options)
    started = time.monotonic()
    made = _planned(opened, policy, advice)
    planned_seconds = time.monotonic() - started
    _require_doable(opened, made, final=final)
    gain = DEFAULT_MIN_GAIN if min_gain is None else min_gain
    warn_of_what_is_not_read_back(no_read_back=no_read_back, as_json=as_json)
    if dry_run:
        if made.groups:
            require_doable(executor, made, None, local_limit)
        document = _would_optimize(opened, made, planned_seconds, gain if final else None, commits)
        words = partial(changes.would_optimize_finally, made)
        if not final:
            # The document has the fields that it has when all is done.
            judged = None if as_json else _judged(opened, made, policy, workload)
            words = partial(changes.would_optimize, made, judged)
        emit(document, words, as_json=as_json, dry_run=True)
        return
    with executor_at_work(
        opened,
        made,
        executor,
        mapping(spark_conf),
        mapping(storage_options),
        verb="optimize",
        read_back=not no_read_back,
        limit_bytes=local_limit,
        as_json=as_json,
    ) as started_executor:
        if not final:
            document = rewritten_round(opened, started_executor, commits, planned_seconds, made)
            emit(document, changes.optimized, as_json=as_json)
            return
        execute = partial(rewritten_round, opened, started_executor, commits, 0.0)
        rounds = optimize_in_rounds(opened, execute, policy, min_gain=gain, first=made)
        document = rounds_document(opened, tuple(rounds))
    emit(document, changes.optimized_finally, as_json=as_json)


@contextmanager
def executor_at_work(
    opened: Table,
    made: ClusteringPlan,
    executor: str,
    configuration: Mapping[str, str],
    storage_options: Mapping[str, str],
    *,
    verb: str,
    read_back: bool,
    limit_bytes: int | None,
    as_json: bool,
) -> Iterator[ExecutorWhenNeeded]:
    """Context manager: an executor for a plan, which is started for the first one with groups.

    Says before it who else may be at work on the table, and meanwhile what the executor says. What
    the executor needs is begun at once, if the plan has groups; the command's end ends it.
    """
    if made.groups:
        click.get_current_context().with_resource(begun_early(executor, configuration))
    _say_who_is_at_work(opened, made, as_json=as_json)
    opening = partial(
        open_executor,
        executor,
        configuration,
        storage_options,
        read_back=read_back,
        verb=verb,
        limit_bytes=limit_bytes,
    )
    with executors_heard(as_json=as_json), ExecutorWhenNeeded(opening) as waiting:
        yield waiting


def _would_optimize(
    opened: Table,
    made: ClusteringPlan,
    seconds: float,
    min_gain: float | None,
    commits: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return what an OPTIMIZE would do: in rounds of at least `min_gain` each, if there is one."""
    if min_gain is None:
        return would_do_round(opened, made, seconds, commits)
    return would_do_rounds(opened, made, seconds, min_gain, commits)


def _say_who_is_at_work(opened: Table, made: ClusteringPlan, *, as_json: bool) -> None:
    """Say on stderr which other rewrites may be at work on a table, and what follows from it."""
    if as_json or not made.groups:
        return
    try:
        others = opened.at_work()
    except LiquidlogError:
        return  # whoever cannot be asked is not spoken of; what the rewrite needs, it asks itself
    for other in others:
        say(
            f"note: another rewrite may be at work on this table: {other}. This one goes on: plans"
            " do not exclude each other, and of two that rewrite the same file, the later commit is"
            " a conflict. If the other one was killed, `liquidlog orphans` lists what it left"
        )


def warn_of_what_is_not_read_back(*, no_read_back: bool, as_json: bool) -> None:
    """Say on stderr what is not proved where outputs are not read back."""
    if no_read_back and not as_json:
        say(f"warning: {NOT_READ_BACK}")


def _for_readers(
    policy: Mapping[str, Any], workload: str | None, opened: Table, storage_options: Pairs
) -> Mapping[str, Any]:
    """Return the arguments of a plan, with what a workload asks of the table if one is named."""
    if workload is None:
        return policy
    return {**policy, "workload": workload_at(workload, opened, storage_options)}


def _planned(opened: Table, policy: Mapping[str, Any], advice: str | None) -> ClusteringPlan:
    if advice is None:
        return opened.plan(**policy)
    return opened.plan_advised(read_advice(advice), **policy)


def _require_doable(opened: Table, made: ClusteringPlan, *, final: bool) -> None:
    if final:
        require_rounds(made.strategy)
    opened.require_writable(made)


def _judged(
    opened: Table, made: ClusteringPlan, policy: Mapping[str, Any], workload: str | None
) -> "Option | None":
    words = {name: value for name, value in policy.items() if name != "workload"}
    _, judged = predicted_and_judged(
        opened,
        made,
        policy=words,
        asked=policy.get("workload", ()),
        workload_source=workload,
        bar={},
    )
    return judged


def _check_final(policy: Mapping[str, Any], min_gain: float | None, *, final: bool) -> None:
    if final and "strategy" in policy:
        require_rounds(policy["strategy"])  # no table needs to be read to refuse it
    if not final and min_gain is not None:
        raise UsageError("--min-gain says when --final ends", option="min_gain")


def rewritten_round(
    opened: Table,
    executor: ExecutorWhenNeeded,
    commits: Mapping[str, Any],
    planned_seconds: float,
    made: ClusteringPlan,
) -> Mapping[str, Any]:
    """Rewrite and commit what is left of a plan; return the document of that."""
    rewrite = executor.for_plan(made)
    share = commits.get("max_reconciled_share")
    started = time.monotonic()
    with rewrite_progress(made) as progress:
        pending, watch = opened.pending(made), opened.watch(made, max_reconciled_share=share)
        report = opened.commit_each(
            made,
            rewrite_groups(rewrite, made, pending, progress.on_share, watch),
            on_commit=progress.on_group,
            watch=watch,
            tasks=tasks_of(rewrite),
            **commits,
        )
    seconds = planned_seconds + time.monotonic() - started
    report.require_success()
    metrics = opened.optimize_metrics(made, report)
    return round_document(made, report, metrics, seconds, commits)


@verb("liquidlog run plan.json -o result.jsonl --spark-conf spark.driver.memory=8g")
@click.argument("plan_path", metavar="PLAN.json", shell_complete=files)
@click.option(
    "-o", "--output", required=True, help="Append the results to this file, one line per group."
)
@EXECUTOR_OPTION
@SPARK_CONF_OPTION
@LOCAL_LIMIT_OPTION
@read_back_option
@storage_option
@dry_run_option
@json_option
def run(
    plan_path: str,
    output: str,
    executor: str,
    spark_conf: Pairs,
    local_limit: int | None,
    storage_options: Pairs,
    *,
    no_read_back: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Execute a saved plan without committing it.

    Running it again executes only the groups that RESULT.jsonl lacks.
    """
    require_settings(executor, mapping(spark_conf), local_limit)
    made = read_plan(plan_path)
    storage_options = storage_options or storage_defaults(made.table_uri)
    require_used(made.table_uri, mapping(storage_options))
    warn_of_what_is_not_read_back(no_read_back=no_read_back, as_json=as_json)
    if dry_run:
        finished = result_so_far(output, made)
        done = tuple(group.group_id for group in finished.groups)
        missing = {group.group_id for group in made.groups}.difference(done)
        require_doable(executor, made, missing, local_limit)
        shown = would_run(made, finished) if as_json else made
        words = partial(changes.would_rewrite, finished=done)
        emit(shown, words, as_json=as_json, dry_run=True)
        return
    started = open_executor(
        executor,
        mapping(spark_conf),
        mapping(storage_options),
        read_back=not no_read_back,
        verb="run",
        limit_bytes=local_limit,
    )
    watch = watch_of(made, mapping(storage_options))

    def rewrite(groups: tuple[int, ...]) -> Iterator[Outcome]:
        with started as run_groups, rewrite_progress(made) as progress:
            for outcome in rewrite_groups(run_groups, made, groups, progress.on_share, watch):
                progress.on_group(outcome.group_id)
                yield outcome

    with executors_heard(as_json=as_json):
        result = complete_result(output, made, rewrite, watch)
    emit(result, changes.rewritten, as_json=as_json)


@verb("liquidlog commit plan.json result.jsonl")
@click.argument("plan_path", metavar="PLAN.json", shell_complete=files)
@click.argument("result_path", metavar="RESULT.jsonl", shell_complete=files)
@_commit_options
@storage_option
@dry_run_option
@json_option
def commit(
    plan_path: str,
    result_path: str,
    commits: Mapping[str, Any],
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
    storage_options = storage_options or storage_defaults(made.table_uri)
    opened = Table.open(made.table_uri, storage_options=mapping(storage_options))
    report = opened.commit(made, result, **commits, dry_run=dry_run)
    document = committed_document(made, report, commits)
    shown = partial(changes.committed, dry_run=dry_run)
    emit(document, shown, as_json=as_json, dry_run=dry_run)
