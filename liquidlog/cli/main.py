"""The command group and its entry point."""

import sys

import click

from liquidlog.cli.altering import drop_column, rename_column, set_properties
from liquidlog.cli.common import run
from liquidlog.cli.inspecting import cubes, detail, explain, files, health, history, plan, scan
from liquidlog.cli.simulating import simulate_command
from liquidlog.cli.upkeep import orphans
from liquidlog.cli.writing import append, cluster_by, commit, create, optimize, run_plan


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="liquidlog")
def cli() -> None:
    """Liquid clustering for Delta tables: planned without a JVM, rewritten on Spark."""


for _command in (
    create,
    append,
    cluster_by,
    rename_column,
    drop_column,
    set_properties,
    orphans,
    detail,
    history,
    files,
    cubes,
    health,
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
