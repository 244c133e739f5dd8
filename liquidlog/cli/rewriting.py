"""Commands that advise, plan, and rewrite files: at once, in rounds, or in two steps."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click

from liquidlog.advice import encode_advice
from liquidlog.cli.options import (
    LOCAL_FILE,
    PERCENTAGE,
    SIZE,
    Address,
    advice_option,
    bar_options,
    dry_run_option,
    executor_option,
    files,
    limit_option,
    offered_columns,
    output_option,
    settings_options,
    spark_conf_option,
    storage_defaults,
    storage_option,
    table_argument,
    verb,
    whole_number,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import (
    emit,
    emit_change,
    executors_heard,
    first_of,
    is_json,
    note,
    replace_file,
    require_consent,
    say_rest,
)
from liquidlog.clustering.planner import fitted_to
from liquidlog.clustering.settings import (
    WITH_OPTION,
    MigrationSettings,
    Stage,
    settings_of,
    split_names,
)
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.foresee.verdict import Criteria, Prediction, Verdict, command
from liquidlog.log.loader import require_used
from liquidlog.operations.batches import reconcile_limits
from liquidlog.operations.executors import (
    AUTO,
    LOCAL,
    NOT_READ_BACK,
    ChosenExecutor,
    Executor,
    ExecutorOf,
    choose_executor,
    executors_when_needed,
    open_executor,
    require_doable,
    require_settings,
    rewrite_groups,
)
from liquidlog.operations.optimize import (
    DEFAULT_MIN_GAIN,
    complete_result,
    optimize_in_rounds,
    read_advice,
    read_plan,
    read_result,
    require_rewritable,
    require_rounds,
    result_so_far,
    rewrite_and_commit,
    watch_of,
)
from liquidlog.operations.planning import (
    MigrationNotice,
    criteria_of,
    explain_together,
    judge,
    judge_plan,
    migration_notice,
    predicted,
    snapshot_of_plan,
)
from liquidlog.operations.vacuum import at_work
from liquidlog.plan import ClusteringPlan, Outcome, plan_pieces
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.report import changes
from liquidlog.report.jsonable import printed_plan
from liquidlog.report.printing import say
from liquidlog.report.progress import rewrite_progress
from liquidlog.table import Table


def criteria_for(
    opened: Table,
    made: ClusteringPlan,
    workload: Workload,
    workload_source: str | None,
    *,
    sample: bool = True,
    **bar: Any,  # noqa: ANN401  as criteria_of takes it
) -> Criteria:
    """Return how to judge a plan; without a workload, its `where` is the only query.

    The `where` of a partitioned table only selects partitions to rewrite: it is no query.
    """
    where = made.policy.where
    if not workload and where is not None and not made.partitioned_by:
        workload = (WeightedPredicate(where),)
    return replace(criteria_of(opened.opened, workload, workload_source, **bar), reads_rows=sample)


def judged(
    opened: Table,
    made: ClusteringPlan,
    criteria: Criteria,
    policy: Mapping[str, Any],
    advice: str | None,
) -> Verdict:
    """Return the verdict on the table, or on the plan if options changed it."""
    words = policy if advice is None else {**policy, "advice": advice}
    if not words:
        snapshot = snapshot_of_plan(opened.opened, made)
        return judge(opened.opened, snapshot, criteria, made=made).verdict
    source = criteria.workload_source if made.readers is not None else None
    text = command(opened.uri, words, source)
    return judge_plan(opened.opened, made, criteria, command=text)


_FITTING_WORKLOAD: Final = workload_option(
    "Fit the layout to these queries, and predict what they read: JSON lines, .sql, or a source of"
    " `workload import`."
)


@verb(
    "liquidlog plan ./sales -o plan.json",
    "liquidlog plan ./sales --strategy overlap --budget 50GiB",
    "liquidlog plan ./sales --why",
)
@table_argument
@settings_options(*WITH_OPTION, stages=(Stage.PLAN, Stage.JUDGE))
@output_option("Save the plan to this file; replaces it.")
@_FITTING_WORKLOAD
@advice_option
@click.option(
    "--why",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="Show only why this file would be rewritten or not; without a path, for every file.",
)
@limit_option
def plan(
    table: Address,
    settings: Mapping[str, Any],
    output: Path | None,
    workload: str | None,
    advice: str | None,
    why: str | None,
    limit: int | None,
) -> None:
    """Show what OPTIMIZE would rewrite; writes nothing.

    The first line is the verdict on the table, or on the plan if options change it. Without a
    workload it assumes full scans and queries for one value of a column. `run` executes a saved
    plan, `commit` commits it.

    With --advice, the layout is fitted as the advice says, and a workload only predicts.
    """
    given = settings_of(settings)
    policy, judging = given[Stage.PLAN], given[Stage.JUDGE]
    _check_why(judging, why, limit)
    opened = table.open()
    queries = workload_at(workload, opened.uri, table.options)
    if advice is None:
        readers = None if workload is None else queries
        made = opened.plan(**policy, workload=readers, require_fit=False)
    else:
        made = opened.plan(advice=read_advice(advice), **policy)
    if why is not None:
        if output is not None:
            replace_file(output, plan_pieces(made))
        _explain(opened, made, why or None, limit)
        return
    criteria = criteria_for(opened, made, queries, workload, **judging)
    verdict = judged(opened, made, criteria, policy, advice)
    if output is not None:
        replace_file(output, plan_pieces(made))
    if not is_json():
        emit(made, partial(changes.judged_plan, verdict))
        return
    document = {**printed_plan(made), "verdict": verdict}
    if criteria.workload:
        document["prediction"] = predicted(opened.opened, made, criteria)
    emit(document, changes.plan)


def _check_why(judging: Mapping[str, Any], why: str | None, limit: int | None) -> None:
    if limit is not None and why is None:
        raise UsageError("--limit needs --why", option="limit")
    if why is not None and judging:
        raise UsageError(f"{min(judging)} has no effect with --why", option=min(judging))


def _explain(opened: Table, made: ClusteringPlan, path: str | None, limit: int | None) -> None:
    if path is None and limit is None and not is_json():
        emit(explain_together(made, examples=3), changes.explanation)
        return
    rows = opened.explain(made, path=path)
    emit(first_of(rows, limit), changes.explained_files, root="explain")
    say_rest(len(rows), limit)


@verb(
    "liquidlog workload import ./eventlogs -o workload.jsonl --table ./sales",
    "liquidlog workload import queries.sql history.parquet -o workload.jsonl",
)
@click.argument("action", type=click.Choice(["import"]), metavar="import")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=files)
@output_option("Write the workload to this file, as JSON lines; replaces it.", required=True)
@click.option("--table", "tables", multiple=True, help="Keep only queries of this table; repeats.")
@click.option("--since", help="Leave out queries that last ran before this time, as 2026-01-31.")
@click.option(
    "--redact", is_flag=True, help="Replace constants by their quantiles, and show no examples."
)
@storage_option
def workload(
    action: str,
    sources: tuple[str, ...],
    output: Path,
    tables: tuple[str, ...],
    since: str | None,
    storage_options: Mapping[str, str],
    *,
    redact: bool,
) -> None:
    """Import queries, from logs of engines and from SQL.

    Sources are Spark event logs, files of SQL, query logs of DuckDB, Databricks and Trino as CSV,
    JSON or Parquet, imported workloads, Delta tables, and directories of these.
    """
    from liquidlog.operations.advise import import_workload
    from liquidlog.report.tables import imported
    from liquidlog.workload.queries import encode_queries

    del action
    found = import_workload(
        sources,
        tables=tables,
        since=since,
        without_constants=redact,
        storage_options=storage_options or storage_defaults(*sources, *tables),
    )
    replace_file(output, encode_queries(found.queries))
    emit(found, imported)


@verb(
    "liquidlog advise ./sales --workload workload.jsonl",
    "liquidlog advise ./sales --workload queries.sql --columns day,store -o advice.json",
)
@table_argument
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    required=True,
    help="The queries: JSON lines, .sql, or a source of `workload import`; repeats.",
)
@click.option(
    "--columns",
    shell_complete=offered_columns,
    help="Try only these columns, a,b.  [default: all columns that queries compare]",
)
@click.option(
    "--max-columns",
    type=whole_number(1, 4),
    help="Try at most this many clustering columns.  [default: 4]",
)
@click.option(
    "--min-gain",
    type=PERCENTAGE,
    help="Recommend a layout only if queries wait this share less.  [default: 10%]",
)
@click.option(
    "--max-file-size",
    type=SIZE,
    help="Try only this file size.  [default: the table's own and smaller ones, from 16MiB]",
)
@bar_options
@click.option("--apply", is_flag=True, help="Set the advised columns and layout properties.")
@output_option("Save the advice to this file, for `plan --advice`; replaces it.")
@dry_run_option
def advise(
    table: Address,
    workloads: tuple[str, ...],
    columns: str | None,
    max_columns: int | None,
    min_gain: float | None,
    max_file_size: int | None,
    bar: Mapping[str, Any],
    output: Path | None,
    *,
    apply: bool,
    dry_run: bool,
) -> None:
    """Say which columns and layout suit the queries, if any.

    It measures layouts on sampled rows: the older queries choose one, the newest judge it. Only
    --apply changes the table, and nothing rewrites a file.
    """
    if dry_run and not apply:
        raise UsageError("--dry-run has no effect without --apply", option="dry_run")
    opened = table.open()
    read = (workload_at(source, opened.uri, table.options) for source in workloads)
    queries = tuple(chain.from_iterable(read))
    given: dict[str, Any] = {
        "columns": None if columns is None else split_names(columns),
        "max_columns": max_columns,
        "min_gain": min_gain,
        "max_file_size": max_file_size,
    }
    chosen = {name: one for name, one in given.items() if one is not None}
    found = opened.advise(queries, workload_source=workloads[0], **chosen, **bar)
    if output is not None:
        found = found.saved_as(str(output))
        replace_file(output, encode_advice(found))
    if apply and found.protocol_change is not None:
        note(str(found.protocol_change))
    applied = opened.apply_advice(found, dry_run=dry_run) if apply else ()
    document, report = found.document(), changes.advice(found)
    if apply:
        document["applied"] = list(applied)
        report = (*report, *changes.applied_advice(applied, dry_run=dry_run))
    emit(document, lambda _: report, dry_run=dry_run)


_EXECUTOR_OPTION: Final = executor_option(
    "What rewrites the files: local, without a JVM, or spark; auto uses local for at most 4GiB of"
    " input, unless Spark settings or a master are given.",
    default=AUTO,
    show_default=True,
)


def _commit_settings(settings: Mapping[Stage, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return how to commit groups; refuses limits that contradict each other."""
    commits = settings[Stage.COMMIT]
    reconcile_limits(commits.get("max_reconciled_share"), commits.get("reconcile_limit"))
    return commits


@dataclass(frozen=True, slots=True)
class _Engine:
    """The executor of a verb, perhaps AUTO, and the settings of its session and of the run."""

    verb: str
    executor: str
    configuration: Mapping[str, str]
    run: Mapping[str, Any]

    def __post_init__(self) -> None:
        require_settings(self.executor, self.configuration, self.run.get("local_limit"))
        if not self.run.get("read_back", True):
            note(f"warning: {NOT_READ_BACK}")

    def chosen(self, made: ClusteringPlan, *, quietly: bool = False) -> ChosenExecutor:
        """Return the executor of a plan; print the choice if the user named none."""
        limit = self.run.get("local_limit")
        chosen = choose_executor(self.executor, made, self.configuration, limit_bytes=limit)
        if self.executor == AUTO and made.groups and not quietly:
            note(f"executor {chosen.name}: {chosen.reason}")
        return chosen

    def require_doable(
        self, chosen: ChosenExecutor, made: ClusteringPlan, groups: Collection[int] | None = None
    ) -> None:
        """Refuse groups (all if None) that the executor would refuse."""
        if made.groups:
            require_doable(chosen.name, made, groups, self._limit_bytes(chosen))

    def open(
        self, chosen: ChosenExecutor, storage_options: Mapping[str, str]
    ) -> AbstractContextManager[Executor]:
        return open_executor(
            chosen.name,
            self.configuration,
            storage_options,
            read_back=self.run.get("read_back", True),
            verb=self.verb,
            limit_bytes=self._limit_bytes(chosen),
        )

    def _limit_bytes(self, chosen: ChosenExecutor) -> int | None:
        return self.run.get("local_limit") if chosen.name == LOCAL else None

    @contextmanager
    def at_work(
        self,
        opened: Table,
        made: ClusteringPlan,
        chosen: ChosenExecutor,
        storage_options: Mapping[str, str],
    ) -> Iterator[ExecutorOf]:
        """Context manager: an executor that starts with the first plan that has groups.

        Prints who else may be at work on the table, then the executor's messages.
        """
        if made.groups:
            _say_who_is_at_work(opened)
        waiting = executors_when_needed(
            lambda _: chosen.name, lambda _: self.open(chosen, storage_options)
        )
        with executors_heard(), waiting as executor_of:
            yield executor_of


def _say_who_is_at_work(opened: Table) -> None:
    if is_json():
        return
    try:
        others = at_work(opened.opened.store, opened.opened.clock)
    except LiquidlogError:
        return  # only the note is lost
    for other in others:
        say(
            f"note: another rewrite may be at work on this table: {other}. This one goes on; if"
            " both rewrite the same file, the later commit is refused as a conflict. If the other"
            " one was killed, `liquidlog orphans` lists the files that it left"
        )


def _by(chosen: ChosenExecutor) -> Mapping[str, str]:
    return {"executor": chosen.name, "executor_reason": chosen.reason}


@verb(
    "liquidlog optimize ./sales --dry-run",
    "liquidlog optimize ./sales --strategy overlap --budget 50GiB --set final=true",
)
@table_argument
@settings_options(*WITH_OPTION, stages=(Stage.PLAN, Stage.ROUNDS, Stage.RUN, Stage.COMMIT))
@workload_option("Fit the layout to these queries: a file of JSON lines, or .sql.")
@advice_option
@_EXECUTOR_OPTION
@spark_conf_option
@click.option("--yes", is_flag=True, help="Rewrite without asking, even if it is not worth it.")
@dry_run_option
def optimize(
    table: Address,
    settings: Mapping[str, Any],
    workload: str | None,
    advice: str | None,
    executor: str,
    spark_conf: Mapping[str, str],
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Rewrite and commit; asks first if that is not worth it.

    The first line is the verdict. The command asks only on a terminal.

    Small tables are rewritten without a JVM; Spark would write the same files.
    """
    given = settings_of(settings)
    policy, commits = given[Stage.PLAN], _commit_settings(given)
    gain = _gain_of_rounds(policy, given[Stage.ROUNDS])
    engine = _Engine("optimize", executor, spark_conf, given[Stage.RUN])
    opened = table.open()
    started = time.monotonic()
    queries = workload_at(workload, opened.uri, table.options)
    fitted = policy if workload is None else {**policy, "workload": queries}
    made = opened.plan(**fitted, advice=None if advice is None else read_advice(advice))
    seconds = time.monotonic() - started
    if gain is not None:
        require_rounds(made.strategy)
    require_rewritable(opened.opened, made)
    chosen = engine.chosen(made)
    criteria = criteria_for(opened, made, queries, workload)
    verdict = judged(opened, made, criteria, policy, advice) if made.groups else None
    end = {**_by(chosen), "verdict": verdict}
    if dry_run:
        engine.require_doable(chosen, made)
        would = changes.would_do(opened, made, seconds, gain, commits)
        emit({**would, **end}, partial(changes.would_optimize, verdict, made), dry_run=True)
        return
    _say_verdict(verdict, yes=yes)
    with engine.at_work(opened, made, chosen, table.options) as waiting:
        rewrite = partial(_rewritten_round, opened, waiting, commits)
        if gain is None:
            done = rewrite(seconds, made)
        else:
            done = _in_rounds(opened, partial(opened.plan, **fitted), rewrite, made, gain)
    emit({**done, **end}, changes.optimized)


def _in_rounds(
    opened: Table,
    again: Callable[[], ClusteringPlan],
    rewrite: Callable[[float, ClusteringPlan], Mapping[str, Any]],
    first: ClusteringPlan,
    gain: float,
) -> Mapping[str, Any]:
    execute = partial(rewrite, 0.0)
    rounds = optimize_in_rounds(opened.opened, again, execute, min_gain=gain, first=first)
    return changes.rounds_document(opened, first, tuple(rounds))


def _gain_of_rounds(policy: Mapping[str, Any], rounds: Mapping[str, Any]) -> float | None:
    """Return how much a round must gain so that another follows, None for a single round."""
    if rounds.get("final"):
        if "strategy" in policy:
            require_rounds(policy["strategy"])  # refuses it before the table is read
        return float(rounds.get("min_gain", DEFAULT_MIN_GAIN))
    if "min_gain" in rounds:
        raise UsageError("min_gain needs final=true: it ends the rounds", option="min_gain")
    return None


def _say_verdict(verdict: Verdict | None, *, yes: bool) -> None:
    if is_json() or verdict is None:
        return
    if verdict.answer == "leave" and sys.stdin.isatty():
        require_consent(verdict.sentence, yes=yes)
    else:
        say(verdict.sentence)


def _rewritten_round(
    opened: Table,
    executor: ExecutorOf,
    commits: Mapping[str, Any],
    planned_seconds: float,
    made: ClusteringPlan,
) -> Mapping[str, Any]:
    with rewrite_progress(made) as (on_share, on_group):
        done = rewrite_and_commit(
            opened.opened,
            made,
            executor=executor,
            commits=commits,  # type: ignore[arg-type]  # by their names
            on_share=on_share,
            on_group=on_group,
        )
    seconds = planned_seconds + done.seconds
    return changes.round_document(made, done.report, done.metrics, seconds, commits)


@verb("liquidlog run plan.json -o result.jsonl --spark-conf spark.driver.memory=8g")
@click.argument("plan_path", metavar="PLAN.json", shell_complete=files)
@click.option(
    "-o", "--output", required=True, help="Append the results to this file, one line per group."
)
@settings_options(stages=(Stage.RUN,))
@_EXECUTOR_OPTION
@spark_conf_option
@storage_option
@dry_run_option
def run(
    plan_path: str,
    output: str,
    settings: Mapping[str, Any],
    executor: str,
    spark_conf: Mapping[str, str],
    storage_options: Mapping[str, str],
    *,
    dry_run: bool,
) -> None:
    """Execute a saved plan without committing it.

    Running it again executes only the groups that RESULT.jsonl lacks.
    """
    engine = _Engine("run", executor, spark_conf, settings_of(settings)[Stage.RUN])
    made = read_plan(plan_path)
    storage_options = storage_options or storage_defaults(made.table_uri)
    require_used(made.table_uri, storage_options)
    if dry_run:
        finished = result_so_far(output, made)
        done = tuple(group.group_id for group in finished.groups)
        missing = {group.group_id for group in made.groups}.difference(done)
        engine.require_doable(engine.chosen(made), made, missing)
        shown = changes.would_run(made, finished) if is_json() else made
        emit(shown, partial(changes.would_rewrite, finished=done), dry_run=True)
        return
    watch = watch_of(made, storage_options)

    def rewrite(groups: tuple[int, ...]) -> Iterator[Outcome]:
        started = engine.open(engine.chosen(made), storage_options)
        with started as run_groups, rewrite_progress(made) as (on_share, on_group):
            for outcome in rewrite_groups(run_groups, made, groups, on_share, watch):
                on_group(outcome.group_id)
                yield outcome

    with executors_heard():
        result = complete_result(output, made, rewrite, watch)
    emit(result, changes.rewritten)


@verb("liquidlog commit plan.json result.jsonl")
@click.argument("plan_path", metavar="PLAN.json", shell_complete=files)
@click.argument("result_path", metavar="RESULT.jsonl", shell_complete=files)
@settings_options(stages=(Stage.COMMIT,))
@storage_option
@dry_run_option
def commit(
    plan_path: str,
    result_path: str,
    settings: Mapping[str, Any],
    storage_options: Mapping[str, str],
    *,
    dry_run: bool,
) -> None:
    """Commit the finished groups of an executed plan.

    Groups that have been committed already are skipped.
    """
    commits = _commit_settings(settings_of(settings))
    made = read_plan(plan_path)
    result = read_result(result_path, made)
    storage_options = storage_options or storage_defaults(made.table_uri)
    opened = Table.open(made.table_uri, storage_options=storage_options)
    report = opened.commit(made, result, **commits, dry_run=dry_run)
    document = changes.committed_document(made, report, commits)
    emit_change(document, changes.committed, dry_run=dry_run)


_ONLY_TO_REWRITE: Final = ("yes", "dry_run", "executor", "spark_conf")
"""Parameters that have no effect if the plan is only saved."""


@verb(
    "liquidlog migrate ./sales --cluster-by day,store --workload readers.jsonl --dry-run",
    "liquidlog migrate ./sales --cluster-by day,store -o plan.json",
    "liquidlog migrate ./sales --cluster-by day,store --yes",
)
@table_argument
@click.option(
    "--cluster-by",
    shell_complete=offered_columns,
    help="The clustering columns, a,b; partition columns are allowed.",
)
@click.option(
    "--add-to",
    type=LOCAL_FILE,
    help="Add the files that others added since to this saved migration plan; replaces it.",
)
@settings_options(
    "max_file_size", "curve", stages=(Stage.PLAN, Stage.RUN, Stage.COMMIT, Stage.JUDGE)
)
@output_option("Only save the plan to this file, for run and commit; replaces it.")
@_FITTING_WORKLOAD
@_EXECUTOR_OPTION
@spark_conf_option
@click.option(
    "--yes", is_flag=True, help="Migrate without asking; afterwards the table has no partitions."
)
@dry_run_option
def migrate(
    table: Address,
    cluster_by: str | None,
    add_to: Path | None,
    settings: Mapping[str, Any],
    output: Path | None,
    workload: str | None,
    executor: str,
    spark_conf: Mapping[str, str],
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Make a partitioned table a clustered one, in one commit.

    It rewrites all files, with the values of the partition columns in them. Readers see the
    partitioned table until the commit, and can read that version after it. The command says who
    is affected and asks first; without a terminal it needs --yes.

    -o only saves the plan. `run` then executes it, and continues after an interruption; `commit`
    commits it when every group is done. Files that others add meanwhile are a conflict: --add-to
    adds them to the saved plan as new groups, for `run`.
    """
    given = settings_of(settings)
    _check_migration(cluster_by, add_to, output, given)
    if add_to is not None:
        _extend(table.open(), add_to)
        return
    if "sample" in given[Stage.JUDGE] and workload is None:
        raise UsageError("sample needs --workload: it predicts for queries", option="sample")
    commits = _commit_settings(given)
    engine = _Engine("migrate", executor, spark_conf, given[Stage.RUN])
    opened = table.open()
    started = time.monotonic()
    queries = workload_at(workload, opened.uri, table.options)
    made = fitted_to(
        opened.plan_migration(split_names(cluster_by or ""), **given[Stage.PLAN]), queries
    )
    sample: bool = given[Stage.JUDGE].get("sample", True)
    predicted = opened.predict(made, queries, sample=sample) if queries else None
    notice = migration_notice(opened.snapshot(), made)
    require_rewritable(opened.opened, made)
    planned_seconds = time.monotonic() - started
    chosen = engine.chosen(made, quietly=output is not None)
    if dry_run or output is not None:
        if output is None:
            engine.require_doable(chosen, made)
        else:
            replace_file(output, plan_pieces(made))
        would = {**changes.would_do(opened, made, planned_seconds, None, commits), **_by(chosen)}
        _show(made, would, notice, predicted)
        return
    require_consent(str(notice), yes=yes)
    with engine.at_work(opened, made, chosen, table.options) as waiting:
        done = {**_rewritten_round(opened, waiting, commits, planned_seconds, made), **_by(chosen)}
    emit(changes.migration_document(made, done, notice, predicted), changes.migrated)


def _extend(opened: Table, path: Path) -> None:
    started = time.monotonic()
    made = opened.plan_migration(add_to=read_plan(str(path)))
    seconds = time.monotonic() - started
    replace_file(path, plan_pieces(made))
    unknown = {"executor": None, "executor_reason": None}
    would = {**changes.would_do(opened, made, seconds, None, {}), **unknown}
    _show(made, would, migration_notice(opened.snapshot(), made), None)


def _show(
    made: ClusteringPlan,
    would: Mapping[str, Any],
    notice: MigrationNotice,
    predicted: Prediction | None,
) -> None:
    document = changes.migration_document(made, would, notice, predicted)
    emit(document, partial(changes.would_migrate, made, predicted, notice), dry_run=True)


def _check_migration(
    cluster_by: str | None,
    add_to: Path | None,
    output: Path | None,
    settings: Mapping[Stage, Mapping[str, Any]],
) -> None:
    foreign = settings[Stage.PLAN].keys() - MigrationSettings.__annotations__.keys()
    others = {**settings[Stage.COMMIT], **settings[Stage.JUDGE]}
    foreign |= others.keys() & {"groups_per_commit", "payback_days", "queries_per_day"}
    if foreign:
        raise UsageError(f"{min(foreign)} has no effect on a migration", option=min(foreign))
    if (cluster_by is None) == (add_to is None):
        raise UsageError("give either --cluster-by with the clustering columns, or --add-to")
    if add_to is not None:
        given = [name for one in settings.values() for name in one]
        _refuse(("output", "workload", *_ONLY_TO_REWRITE), given, "--add-to")
    elif output is not None:
        given = [*settings[Stage.RUN], *settings[Stage.COMMIT]]
        _refuse(_ONLY_TO_REWRITE, given, "-o")


def _refuse(names: Sequence[str], settings: Sequence[str], option: str) -> None:
    """Refuse parameters that a user gave, and settings, beside an option that saves a plan."""
    context = click.get_current_context()
    on_the_line = click.core.ParameterSource.COMMANDLINE
    given = [name for name in names if context.get_parameter_source(name) is on_the_line]
    given += settings
    if given:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(
            f"{listed}: no effect with {option}, which only saves a plan; give it to run or commit",
            option=given[0],
        )
