"""The command `liquidspark` for spark-submit, and the entry point by which `liquidlog` finds it."""

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import click

from liquidlog.errors import EXIT_USAGE, LiquidlogError
from liquidlog.operations.results import complete_result, read_plan
from liquidlog.plan import ClusteringPlan, GroupFailure, RewriteResult, RewrittenGroup
from liquidlog.spec.visible import visible_lines
from liquidspark.session import open_session

Outcome = RewrittenGroup | GroupFailure
Progress = Callable[[int, float], None]
Executor = Callable[[ClusteringPlan, Collection[int] | None, Progress | None], Iterator[Outcome]]
"""(plan, ids of the groups or None for all, progress) -> each group as it finishes or fails."""


@contextmanager
def open_executor(
    conf: Mapping[str, str], storage_options: Mapping[str, str] | None = None
) -> Iterator[Executor]:
    """Context manager: an executor on the active Spark session, or on a new local one.

    Args:
        conf: Spark settings by name.
        storage_options: With which workers open the files of tables.

    Raises:
        ExecutorError: If pyspark or Java is missing, or Spark does not start.
    """
    with open_session(conf) as spark:
        from liquidspark.executor import execute_groups

        def run(
            plan: ClusteringPlan, groups: Collection[int] | None, progress: Progress | None
        ) -> Iterator[Outcome]:
            return execute_groups(
                spark, plan, groups=groups, progress=progress, storage_options=storage_options
            )

        yield run


@click.group()
def main() -> None:
    """Execute clustering plans on Spark."""


@main.command("run")
@click.argument("plan_path", metavar="PLAN.json")
@click.option(
    "-o",
    "--output",
    "result_path",
    metavar="RESULT.jsonl",
    required=True,
    help="One line a finished group is appended here.",
)
@click.option("--spark-conf", multiple=True, metavar="K=V", help="A Spark setting; repeats.")
@click.option(
    "--storage-option", multiple=True, metavar="K=V", help="An option of the storage; repeats."
)
def run_command(
    plan_path: str,
    result_path: str,
    spark_conf: tuple[str, ...],
    storage_option: tuple[str, ...],
) -> None:
    """Execute a saved plan; groups already in the result file are skipped. Commits nothing."""
    # Executors say there what takes long.
    log = logging.getLogger("liquidlog.executors")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler())
    try:
        run_plan(
            plan_path,
            result_path,
            conf=parse_conf(spark_conf),
            storage_options=parse_conf(storage_option, option="--storage-option"),
        )
    except LiquidlogError as error:
        click.echo(visible_lines(f"error: {error}"), err=True)
        sys.exit(error.exit_status)


def run_plan(
    plan_path: str,
    result_path: str,
    *,
    conf: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
) -> RewriteResult:
    """Execute the groups of a plan that its result file lacks, appending each as it finishes.

    Raises:
        StorageError: If a file cannot be read or written.
        DocumentError: If a file is no plan, or no result of it.
        ExecutorError: If Spark does not start, or groups failed; the others are in the file.
    """
    plan = read_plan(plan_path)

    def rewrite(groups: tuple[int, ...]) -> Iterator[Outcome]:
        with open_executor(conf, storage_options) as execute:
            for outcome in execute(plan, groups, None):
                if isinstance(outcome, RewrittenGroup):
                    click.echo(_line(outcome), err=True)
                yield outcome

    return complete_result(result_path, plan, rewrite)


def parse_conf(settings: tuple[str, ...], *, option: str = "--spark-conf") -> dict[str, str]:
    """Return `K=V` settings as a mapping; exits with a usage error if one has no `=`."""
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals or not name:
            click.echo(f"error: {option} expects K=V, found one without a name or =", err=True)
            sys.exit(EXIT_USAGE)
    return {name: value for name, _, value in pairs}


def _line(group: RewrittenGroup) -> str:
    size = sum(output.size_bytes for output in group.outputs)
    return (
        f"group {group.group_id}: {group.rows_written} rows in {len(group.outputs)} files,"
        f" {size} bytes, {group.seconds} s"
    )
