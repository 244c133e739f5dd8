"""The entry point by which `liquidlog` finds this executor, and the program for spark-submit."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import click

from liquidlog.cli.main import run
from liquidlog.cli.options import PAIR, Pairs, mapping, read_back_option, storage_option
from liquidlog.cli.rewriting import executors_heard
from liquidlog.operations.executors import NOT_READ_BACK, Executor
from liquidlog.operations.results import complete_result, read_plan
from liquidlog.plan import ClusteringPlan, Outcome, Progress, RewrittenGroup
from liquidlog.storage.options import OptionsSource
from liquidspark.session import open_session


@contextmanager
def open_executor(
    conf: Mapping[str, str],
    storage_options: OptionsSource | None = None,
    *,
    read_back: bool = True,
) -> Iterator[Executor]:
    """Context manager: an executor on the active Spark session, or on a new local one.

    Args:
        conf: Spark settings by name.
        storage_options: With which workers open the files of tables, or a callable that gives
            them, asked before each job.
        read_back: Whether every output is read back and proved to hold what was read.

    Raises:
        ExecutorError: If pyspark or Java is missing, or Spark does not start.
    """
    with open_session(conf) as spark:
        from liquidspark.executor import ExecutorOptions, execute_groups

        options = ExecutorOptions(read_back=read_back)

        def execute(
            plan: ClusteringPlan, groups: Sequence[int], progress: Progress
        ) -> Iterator[Outcome]:
            return execute_groups(
                spark,
                plan,
                groups=groups,
                progress=progress,
                options=options,
                storage_options=storage_options,
            )

        yield execute


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
@read_back_option
@storage_option
def run_command(
    plan_path: str,
    result_path: str,
    spark_conf: Pairs,
    storage_options: Pairs,
    *,
    no_read_back: bool,
) -> None:
    """Execute a saved plan without committing; running again does only what is missing.

    Use it with spark-submit, which chooses the master and may ship this package as a file. From
    a shell use `liquidlog run`: it does the same and adds a progress bar, --json and --dry-run.
    """
    plan = read_plan(plan_path)
    if no_read_back:
        click.echo(f"warning: {NOT_READ_BACK}", err=True)
    opened = open_executor(
        mapping(spark_conf), mapping(storage_options), read_back=not no_read_back
    )
    rewrite = partial(_rewritten, plan, opened)
    with executors_heard(as_json=False):
        complete_result(result_path, plan, rewrite)


def main() -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(cli, program="liquidspark"))


def _rewritten(
    plan: ClusteringPlan,
    executor: AbstractContextManager[Executor],
    groups: tuple[int, ...],
) -> Iterator[Outcome]:
    """Yield the outcomes of groups, and say on stderr which of them are finished."""
    with executor as execute:
        for outcome in execute(plan, groups, lambda *_: None):
            if isinstance(outcome, RewrittenGroup):
                click.echo(_line(outcome), err=True)
            yield outcome


def _line(group: RewrittenGroup) -> str:
    size = sum(output.size_bytes for output in group.outputs)
    return (
        f"group {group.group_id}: {group.rows_written} rows in {len(group.outputs)} files,"
        f" {size} bytes, {group.seconds} s"
    )
