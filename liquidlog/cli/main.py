"""The command group and its entry point."""

import sys
from typing import Final

import click

from liquidlog.cli.altering import drop_column, rename_column, set_properties
from liquidlog.cli.auditing import doctor, health, report
from liquidlog.cli.common import run
from liquidlog.cli.inspecting import cubes, detail, explain, files, history, plan, scan
from liquidlog.cli.rewriting import commit, optimize, run_plan
from liquidlog.cli.simulating import simulate_command
from liquidlog.cli.startup import do_without_pandas
from liquidlog.cli.upkeep import checkpoint, orphans
from liquidlog.cli.writing import append, cluster_by, create

_WITH_SPARK: Final = frozenset({"optimize", "run"})


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="liquidlog")
@click.pass_context
def cli(context: click.Context) -> None:
    """Liquid clustering for Delta tables: planned without a JVM, rewritten on Spark."""
    if context.invoked_subcommand not in _WITH_SPARK:
        do_without_pandas()


for _command in (
    create,
    append,
    cluster_by,
    rename_column,
    drop_column,
    set_properties,
    checkpoint,
    orphans,
    detail,
    history,
    files,
    cubes,
    health,
    doctor,
    report,
    scan,
    plan,
    explain,
    simulate_command,
    optimize,
    run_plan,
    commit,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(cli))
