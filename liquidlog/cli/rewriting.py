"""Commands that rewrite files: at once, in rounds, or in two steps."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from liquidlog.cli.defaults import storage_defaults
from liquidlog.cli.judging import asked_of, criteria_for, judged
from liquidlog.cli.options import (
    LOCAL_FILE,
    PAIR,
    Pairs,
    advice_option,
    dry_run_option,
    executors,
    files,
    json_option,
    mapping,
    offered_columns,
    one_of,
    output_option,
    settings_options,
    storage_option,
    table_argument,
    verb,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import emit, executors_heard, replace_file, require_consent
from liquidlog.clustering.planner import fitted_to
from liquidlog.clustering.settings import (
    WITH_OPTION,
    MigrationSettings,
    Stage,
    settings_of,
    split_names,
)
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.log.loader import require_used
from liquidlog.operations.executors import (
    AUTO,
    LOCAL,
    NOT_READ_BACK,
    ChosenExecutor,
    Executor,
    ExecutorWhenNeeded,
    choose_executor,
    open_executor,
    require_doable,
    require_settings,
    rewrite_groups,
)
from liquidlog.operations.optimize import (
    DEFAULT_MIN_GAIN,
    optimize_in_rounds,
    require_rounds,
    rewrite_and_commit,
)
from liquidlog.operations.outputs import at_work
from liquidlog.operations.planned import migration_notice
from liquidlog.operations.reconcile import reconcile_limits
from liquidlog.operations.rewrite import (
    complete_result,
    read_advice,
    read_plan,
    read_result,
    require_rewritable,
    result_so_far,
    watch_of,
)
from liquidlog.plan import ClusteringPlan, Outcome, plan_pieces
from liquidlog.report import changes
from liquidlog.report.printing import say
from liquidlog.report.progress import rewrite_progress
from liquidlog.report.rewrites import (
    committed_document,
    migration_document,
    round_document,
    rounds_document,
    would_do_round,
    would_do_rounds,
    would_run,
)
from liquidlog.table import Table

if TYPE_CHECKING:
    from liquidlog.foresee.prediction import Prediction
    from liquidlog.foresee.verdict import Verdict
    from liquidlog.operations.planned import MigrationNotice


EXECUTOR_OPTION = click.option(
    "--executor",
    default=AUTO,
    show_default=True,
    shell_complete=one_of(executors),
    help="What rewrites the files: local, without a JVM, or spark; auto is local up to 4GiB of"
    " input, unless Spark settings or a master are given.",
)
SPARK_CONF_OPTION = click.option(
    "--spark-conf", multiple=True, type=PAIR, help="A Spark setting; repeats."
)
_WORKLOAD = workload_option("Fit the layout to these queries: a file of JSON lines, or .sql.")


class RunSettings(NamedTuple):
    """How an executor is started, and how finished groups are committed."""

    read_back: bool
    local_limit: int | None
    commits: Mapping[str, Any]


def _run_settings(settings: Mapping[Stage, Mapping[str, Any]]) -> RunSettings:
    run, commits = settings[Stage.RUN], settings[Stage.COMMIT]
    reconcile_limits(commits.get("max_reconciled_share"), commits.get("reconcile_limit"))
    return RunSettings(run.get("read_back", True), run.get("local_limit"), commits)


@verb(
    "liquidlog optimize ./sales --dry-run",
    "liquidlog optimize ./sales --strategy overlap --budget 50GiB --set final=true",
)
@table_argument
@settings_options(*WITH_OPTION, stages=(Stage.PLAN, Stage.ROUNDS, Stage.RUN, Stage.COMMIT))
@_WORKLOAD
@advice_option
@EXECUTOR_OPTION
@SPARK_CONF_OPTION
@click.option("--yes", is_flag=True, help="Do not ask before a rewrite that is not worth it.")
@dry_run_option
@json_option
def optimize(
    table: str,
    settings: Mapping[str, Any],
    workload: str | None,
    advice: str | None,
    executor: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Rewrite and commit; asks first if that is not worth it.

    The first line is the verdict. It asks on a terminal only.

    Small tables are rewritten without a JVM, to the same files as by Spark.
    """
    given = settings_of(settings)
    policy, rounds, run = given[Stage.PLAN], given[Stage.ROUNDS], _run_settings(given)
    final = rounds.get("final", False)
    _check_final(policy, rounds)
    require_settings(executor, mapping(spark_conf), run.local_limit)
    opened = Table.open(table, storage_options=mapping(storage_options))
    started = time.monotonic()
    asked = _for_readers(policy, workload, opened, storage_options)
    made = _planned(opened, asked, advice)
    seconds = time.monotonic() - started
    _require_doable(opened, made, final=final)
    gain = rounds.get("min_gain", DEFAULT_MIN_GAIN) if final else None
    _warn_of_what_is_not_read_back(run, as_json=as_json)
    chosen = _chosen(executor, made, spark_conf, run, as_json=as_json)
    verdict = _judged(opened, made, asked, advice, workload) if made.groups else None
    said = {**_by(chosen), "verdict": None if verdict is None else verdict.document()}
    if dry_run:
        _require_rewritable_by(chosen, made, run)
        document = _would_optimize(opened, made, seconds, gain, run.commits)
        words = changes.would_optimize_finally if final else changes.would_optimize
        emit({**document, **said}, partial(words, verdict, made), as_json=as_json, dry_run=True)
        return
    _say_verdict(verdict, yes=yes, as_json=as_json)
    with executor_at_work(
        opened,
        made,
        chosen,
        mapping(spark_conf),
        mapping(storage_options),
        verb="optimize",
        run=run,
        as_json=as_json,
    ) as started_executor:
        execute = partial(_rewritten_round, opened, started_executor, run.commits)
        if gain is None:
            document = execute(seconds, made)
        else:
            document = _in_rounds(opened, made, asked, partial(execute, 0.0), gain)
    emit(
        {**document, **said},
        changes.optimized_finally if final else changes.optimized,
        as_json=as_json,
    )


def _in_rounds(
    opened: Table,
    made: ClusteringPlan,
    asked: Mapping[str, Any],
    execute: Callable[[ClusteringPlan], Mapping[str, Any]],
    gain: float,
) -> Mapping[str, Any]:
    again = partial(opened.plan, **asked)
    done = optimize_in_rounds(opened.opened, again, execute, min_gain=gain, first=made)
    return rounds_document(opened, tuple(done))


def _chosen(
    executor: str, made: ClusteringPlan, spark_conf: Pairs, run: RunSettings, *, as_json: bool
) -> ChosenExecutor:
    chosen = choose_executor(executor, made, mapping(spark_conf), limit_bytes=run.local_limit)
    if executor == AUTO and made.groups and not as_json:
        say(f"executor {chosen.name}: {chosen.reason}")
    return chosen


def _by(chosen: ChosenExecutor) -> Mapping[str, str]:
    return {"executor": chosen.name, "executor_reason": chosen.reason}


def _require_rewritable_by(
    chosen: ChosenExecutor,
    made: ClusteringPlan,
    run: RunSettings,
    groups: Collection[int] | None = None,
) -> None:
    if made.groups:
        limit_bytes = run.local_limit if chosen.name == LOCAL else None
        require_doable(chosen.name, made, groups, limit_bytes)


@contextmanager
def executor_at_work(
    opened: Table,
    made: ClusteringPlan,
    chosen: ChosenExecutor,
    configuration: Mapping[str, str],
    storage_options: Mapping[str, str],
    *,
    verb: str,
    run: RunSettings,
    as_json: bool,
) -> Iterator[ExecutorWhenNeeded]:
    """Context manager: an executor for a plan, which is started for the first one with groups.

    Says before it who else may be at work on the table, and meanwhile what the executor says.
    """
    _say_who_is_at_work(opened, made, as_json=as_json)

    def opening(name: str) -> AbstractContextManager[Executor]:
        return open_executor(
            name,
            configuration,
            storage_options,
            read_back=run.read_back,
            verb=verb,
            limit_bytes=run.local_limit if name == LOCAL else None,
        )

    waiting = ExecutorWhenNeeded(lambda _: chosen.name, opening)
    with executors_heard(as_json=as_json), waiting:
        yield waiting


def _would_optimize(
    opened: Table,
    made: ClusteringPlan,
    seconds: float,
    min_gain: float | None,
    commits: Mapping[str, Any],
) -> Mapping[str, Any]:
    if min_gain is None:
        return would_do_round(opened, made, seconds, commits)
    return would_do_rounds(opened, made, seconds, min_gain, commits)


def _say_who_is_at_work(opened: Table, made: ClusteringPlan, *, as_json: bool) -> None:
    if as_json or not made.groups:
        return
    try:
        others = at_work(opened.opened.store, opened.opened.clock)
    except LiquidlogError:
        return  # whoever cannot be asked is not spoken of; what the rewrite needs, it asks itself
    for other in others:
        say(
            f"note: another rewrite may be at work on this table: {other}. This one goes on: plans"
            " do not exclude each other, and of two that rewrite the same file, the later commit is"
            " a conflict. If the other one was killed, `liquidlog orphans` lists what it left"
        )


def _warn_of_what_is_not_read_back(run: RunSettings, *, as_json: bool) -> None:
    if not run.read_back and not as_json:
        say(f"warning: {NOT_READ_BACK}")


def _for_readers(
    policy: Mapping[str, Any], workload: str | None, opened: Table, storage_options: Pairs
) -> Mapping[str, Any]:
    if workload is None:
        return policy
    return {**policy, "workload": workload_at(workload, opened, storage_options)}


def _planned(opened: Table, policy: Mapping[str, Any], advice: str | None) -> ClusteringPlan:
    if advice is None:
        return opened.plan(**policy)
    return opened.plan(advice=read_advice(advice), **policy)


def _require_doable(opened: Table, made: ClusteringPlan, *, final: bool) -> None:
    if final:
        require_rounds(made.strategy)
    require_rewritable(opened.opened, made)


def _judged(
    opened: Table,
    made: ClusteringPlan,
    policy: Mapping[str, Any],
    advice: str | None,
    workload: str | None,
) -> "Verdict":
    words = {name: value for name, value in policy.items() if name != "workload"}
    criteria = criteria_for(opened, asked_of(made, policy.get("workload", ())), workload)
    return judged(
        opened, made, criteria, policy=words if advice is None else {**words, "advice": advice}
    )


def _say_verdict(verdict: "Verdict | None", *, yes: bool, as_json: bool) -> None:
    """Say the verdict before anything is written; ask whether to go on against it, if one can."""
    if as_json or verdict is None:
        return
    if verdict.answer == "leave" and sys.stdin.isatty():
        require_consent(verdict.sentence, yes=yes, can_ask=True)
    else:
        say(verdict.sentence)


def _check_final(policy: Mapping[str, Any], rounds: Mapping[str, Any]) -> None:
    if rounds.get("final") and "strategy" in policy:
        require_rounds(policy["strategy"])  # no table needs to be read to refuse it
    if not rounds.get("final") and "min_gain" in rounds:
        raise UsageError("min_gain says when rounds end: set final=true too", option="min_gain")


def _rewritten_round(
    opened: Table,
    executor: ExecutorWhenNeeded,
    commits: Mapping[str, Any],
    planned_seconds: float,
    made: ClusteringPlan,
) -> Mapping[str, Any]:
    with rewrite_progress(made) as progress:
        done = rewrite_and_commit(
            opened.opened,
            made,
            executor=executor,
            commits=commits,  # type: ignore[arg-type]  # by their names
            on_share=progress.on_share,
            on_group=progress.on_group,
        )
    seconds = planned_seconds + done.seconds
    return round_document(made, done.report, done.metrics, seconds, commits)


@verb("liquidlog run plan.json -o result.jsonl --spark-conf spark.driver.memory=8g")
@click.argument("plan_path", metavar="PLAN.json", shell_complete=files)
@click.option(
    "-o", "--output", required=True, help="Append the results to this file, one line per group."
)
@settings_options(stages=(Stage.RUN,))
@EXECUTOR_OPTION
@SPARK_CONF_OPTION
@storage_option
@dry_run_option
@json_option
def run(
    plan_path: str,
    output: str,
    settings: Mapping[str, Any],
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
    how = _run_settings(settings_of(settings))
    require_settings(executor, mapping(spark_conf), how.local_limit)
    made = read_plan(plan_path)
    storage_options = storage_options or storage_defaults(made.table_uri)
    require_used(made.table_uri, mapping(storage_options))
    _warn_of_what_is_not_read_back(how, as_json=as_json)
    if dry_run:
        finished = result_so_far(output, made)
        chosen = _chosen(executor, made, spark_conf, how, as_json=as_json)
        done = tuple(group.group_id for group in finished.groups)
        missing = {group.group_id for group in made.groups}.difference(done)
        _require_rewritable_by(chosen, made, how, missing)
        shown = would_run(made, finished) if as_json else made
        words = partial(changes.would_rewrite, finished=done)
        emit(shown, words, as_json=as_json, dry_run=True)
        return
    watch = watch_of(made, mapping(storage_options))

    def rewrite(groups: tuple[int, ...]) -> Iterator[Outcome]:
        chosen = _chosen(executor, made, spark_conf, how, as_json=as_json)
        started = open_executor(
            chosen.name,
            mapping(spark_conf),
            mapping(storage_options),
            read_back=how.read_back,
            verb="run",
            limit_bytes=how.local_limit if chosen.name == LOCAL else None,
        )
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
@settings_options(stages=(Stage.COMMIT,))
@storage_option
@dry_run_option
@json_option
def commit(
    plan_path: str,
    result_path: str,
    settings: Mapping[str, Any],
    storage_options: Pairs,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Commit the finished groups of an executed plan.

    Groups that have been committed already are skipped.
    """
    commits = _run_settings(settings_of(settings)).commits
    made = read_plan(plan_path)
    result = read_result(result_path, made)
    storage_options = storage_options or storage_defaults(made.table_uri)
    opened = Table.open(made.table_uri, storage_options=mapping(storage_options))
    report = opened.commit(made, result, **commits, dry_run=dry_run)
    document = committed_document(made, report, commits)
    shown = partial(changes.committed, dry_run=dry_run)
    emit(document, shown, as_json=as_json, dry_run=dry_run)


# The command that makes a partitioned table a clustered one

_OF_NEW_PLANS: Final = ("output", "workload")
_ONLY_TO_REWRITE: Final = ("yes", "dry_run", "executor", "spark_conf")
"""Parameters that have no effect where the plan is only saved."""

_MIGRATION_WORKLOAD = workload_option(
    "Fit the layout to these readers, and predict what they read: JSON lines, .sql, or a source of"
    " `workload import`."
)


@verb(
    "liquidlog migrate ./sales --cluster-by day,store --workload readers.jsonl --dry-run",
    "liquidlog migrate ./sales --cluster-by day,store -o plan.json",
    "liquidlog migrate ./sales --cluster-by day,store --yes",
)
@table_argument
@click.option(
    "--cluster-by",
    shell_complete=offered_columns,
    help="The clustering columns, a,b; partition columns may be.",
)
@click.option(
    "--add-to",
    type=LOCAL_FILE,
    help="Add the files that others added since to this saved plan of a migration; replaces it.",
)
@settings_options(
    "max_file_size", "curve", stages=(Stage.PLAN, Stage.RUN, Stage.COMMIT, Stage.JUDGE)
)
@output_option("Only save the plan to this file, for run and commit; replaces it.")
@_MIGRATION_WORKLOAD
@EXECUTOR_OPTION
@SPARK_CONF_OPTION
@click.option(
    "--yes", is_flag=True, help="Do not ask before the table is no longer partitioned for good."
)
@dry_run_option
@json_option
def migrate(
    table: str,
    cluster_by: str | None,
    add_to: Path | None,
    settings: Mapping[str, Any],
    output: Path | None,
    workload: str | None,
    executor: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a partitioned table a clustered one, in one commit.

    All files are rewritten, with the values of the partition columns in them. Until that is
    committed, readers see the table as it was, and its last partitioned version stays readable
    after it. It says who is affected and asks; where nobody can answer, it wants --yes.

    With -o, the plan is saved: `run` rewrites it, and goes on where it was stopped, `commit`
    commits it once every group is there. Files that others add meanwhile are a conflict; with
    --add-to they become groups of the saved plan, for `run` to go on with.
    """
    given = settings_of(settings)
    _require_sense(cluster_by, add_to, output, given)
    if add_to is not None:
        _extend(table, add_to, mapping(storage_options), as_json=as_json)
        return
    sample = given[Stage.JUDGE].get("sample", True)
    if "sample" in given[Stage.JUDGE] and workload is None:
        raise UsageError("sample predicts for a --workload; give one", option="sample")
    run = _run_settings(given)
    require_settings(executor, mapping(spark_conf), run.local_limit)
    opened = Table.open(table, storage_options=mapping(storage_options))
    started = time.monotonic()
    asked = workload_at(workload, opened, storage_options)
    made = fitted_to(
        opened.plan_migration(split_names(cluster_by or ""), **given[Stage.PLAN]), asked
    )
    predicted = opened.predict(made, asked, sample=sample) if asked else None
    notice = migration_notice(opened.snapshot(), made)
    require_rewritable(opened.opened, made)
    planned_seconds = time.monotonic() - started
    quietly = as_json or output is not None
    chosen = _chosen(executor, made, spark_conf, run, as_json=quietly)
    if dry_run or output is not None:
        _save_or_check(made, output, chosen, run)
        would = {**would_do_round(opened, made, planned_seconds, run.commits), **_by(chosen)}
        _show(made, would, notice, predicted, as_json=as_json)
        return
    require_consent(str(notice), yes=yes, can_ask=not as_json)
    _warn_of_what_is_not_read_back(run, as_json=as_json)
    with executor_at_work(
        opened,
        made,
        chosen,
        mapping(spark_conf),
        mapping(storage_options),
        verb="migrate",
        run=run,
        as_json=as_json,
    ) as waiting:
        done = _rewritten_round(opened, waiting, run.commits, planned_seconds, made)
    document = migration_document(made, {**done, **_by(chosen)}, notice, predicted)
    emit(document, changes.migrated, as_json=as_json)


def _save_or_check(
    made: ClusteringPlan, output: Path | None, chosen: ChosenExecutor, run: RunSettings
) -> None:
    if output is None:
        _require_rewritable_by(chosen, made, run)
    else:
        replace_file(output, plan_pieces(made))


def _extend(table: str, path: Path, options: Mapping[str, str], *, as_json: bool) -> None:
    opened = Table.open(table, storage_options=options)
    started = time.monotonic()
    made = opened.plan_migration(add_to=read_plan(str(path)))
    seconds = time.monotonic() - started
    replace_file(path, plan_pieces(made))
    would = {**would_do_round(opened, made, seconds, {}), "executor": None, "executor_reason": None}
    _show(made, would, migration_notice(opened.snapshot(), made), None, as_json=as_json)


def _show(
    made: ClusteringPlan,
    would: Mapping[str, Any],
    notice: "MigrationNotice",
    predicted: "Prediction | None",
    *,
    as_json: bool,
) -> None:
    shown = partial(changes.would_migrate, made, predicted, notice)
    document = migration_document(made, would, notice, predicted)
    emit(document, shown, as_json=as_json, dry_run=True)


def _require_sense(
    cluster_by: str | None,
    add_to: Path | None,
    output: Path | None,
    settings: Mapping[Stage, Mapping[str, Any]],
) -> None:
    foreign = [*(settings[Stage.PLAN].keys() - MigrationSettings.__annotations__.keys())]
    others = {**settings[Stage.COMMIT], **settings[Stage.JUDGE]}
    foreign += [
        name for name in ("groups_per_commit", "payback_days", "queries_per_day") if name in others
    ]
    if foreign:
        raise UsageError(f"{min(foreign)} has no effect on a migration", option=min(foreign))
    if (cluster_by is None) == (add_to is None):
        raise UsageError("give the clustering columns, --cluster-by a,b, or a plan --add-to")
    if add_to is not None:
        given = [name for one in settings.values() for name in one]
        _refuse_what_has_no_effect(
            (*_OF_NEW_PLANS, *_ONLY_TO_REWRITE), given, "--add-to, which changes a"
        )
    elif output is not None:
        given = [*settings[Stage.RUN], *settings[Stage.COMMIT]]
        _refuse_what_has_no_effect(_ONLY_TO_REWRITE, given, "-o, which only saves the")


def _refuse_what_has_no_effect(names: Sequence[str], settings: Sequence[str], why: str) -> None:
    context = click.get_current_context()
    on_the_line = click.core.ParameterSource.COMMANDLINE
    given = [
        *(name for name in names if context.get_parameter_source(name) is on_the_line),
        *settings,
    ]
    if given:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(
            f"{listed}: no effect with {why} plan; run and commit rewrite and commit it",
            option=given[0],
        )
