"""The entry point by which `liquidlog` finds this executor, and the program for spark-submit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any

import click

from liquidlog.cli.main import run
from liquidlog.cli.options import PAIR, Pairs, mapping, settings_options, storage_option
from liquidlog.cli.output import VERBOSE, executors_heard
from liquidlog.clustering.settings import Stage, settings_of
from liquidlog.errors import UsageError
from liquidlog.operations.executors import NOT_READ_BACK, Executor, rewrite_groups
from liquidlog.operations.rewrite import complete_result, read_plan, watch_of
from liquidlog.plan import Cancelled, ClusteringPlan, Outcome, Progress, RewrittenGroup, Tasks
from liquidlog.report.printing import say
from liquidlog.spec.arguments import refuse
from liquidlog.storage.options import OptionsSource
from liquidspark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class _OnSession:
    execute: Executor
    tasks: Tasks

    @property
    def __signature__(self) -> Signature:
        """The executor's, by which callers find out what they may ask of it."""
        return signature(self.execute)

    def __call__(self, *arguments: object, **named: object) -> Iterator[Outcome]:
        return self.execute(*arguments, **named)


@contextmanager
def open_executor(
    conf: Mapping[str, str],
    storage_options: OptionsSource | None = None,
    *,
    read_back: bool = True,
    verb: str = "run",
    session: "SparkSession | None" = None,
) -> Iterator[Executor]:
    """Context manager: an executor on the given or active Spark session, or on a new local one."""
    if session is not None and not hasattr(session, "createDataFrame"):
        refuse("session", "a SparkSession", session)
    with nullcontext(session) if session is not None else open_session(conf) as spark:
        from liquidspark.executor import ExecutorOptions, execute_groups
        from liquidspark.pipeline import session_tasks

        options = ExecutorOptions(read_back=read_back)

        def execute(
            plan: ClusteringPlan,
            groups: Sequence[int],
            progress: Progress,
            cancelled: Cancelled | None = None,
        ) -> Iterator[Outcome]:
            return execute_groups(
                spark,
                plan,
                groups=groups,
                progress=progress,
                options=options,
                storage_options=storage_options,
                cancelled=cancelled,
                verb=verb,
            )

        yield _OnSession(execute, session_tasks(spark))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Execute saved plans as a program of spark-submit."""


@cli.command("run")
@click.argument("plan_path", metavar="PLAN.json")
@click.option(
    "-o",
    "--output",
    "result_path",
    metavar="RESULT.jsonl",
    required=True,
    help="The result document; one line per finished group is appended.",
)
@click.option("--spark-conf", multiple=True, type=PAIR, help="A Spark configuration; repeats.")
@settings_options(stages=(Stage.RUN,))
@storage_option
def run_command(
    plan_path: str,
    result_path: str,
    spark_conf: Pairs,
    settings: Mapping[str, Any],
    storage_options: Pairs,
) -> None:
    """Execute a saved plan without committing; running again does only what is missing.

    Use it with spark-submit, which chooses the master and may ship this package as a file. From
    a shell use `liquidlog run`: it does the same and adds a progress bar, --json and --dry-run.
    """
    run = settings_of(settings)[Stage.RUN]
    if "local_limit" in run:
        raise UsageError("local_limit is for the executor local", option="local_limit")
    read_back = run.get("read_back", True)
    plan = read_plan(plan_path)
    if not read_back:
        say(f"warning: {NOT_READ_BACK}")
    opened = open_executor(mapping(spark_conf), mapping(storage_options), read_back=read_back)
    watch = watch_of(plan, mapping(storage_options))
    rewrite = partial(_rewritten, plan, opened, watch)
    with executors_heard(as_json=False):
        complete_result(result_path, plan, rewrite, watch)


run_command.params.append(VERBOSE)


def start() -> int:
    """Run the command line and return its exit status."""
    return run(cli, program="liquidspark")


def _rewritten(
    plan: ClusteringPlan,
    executor: AbstractContextManager[Executor],
    watch: Cancelled,
    groups: tuple[int, ...],
) -> Iterator[Outcome]:
    with executor as execute:
        for outcome in rewrite_groups(execute, plan, groups, lambda *_: None, watch):
            if isinstance(outcome, RewrittenGroup):
                say(_line(outcome))
            yield outcome


def _line(group: RewrittenGroup) -> str:
    size = sum(output.size_bytes for output in group.outputs)
    return (
        f"group {group.group_id}: {group.rows_written} rows in {len(group.outputs)} files,"
        f" {size} bytes, {group.seconds} s"
    )
