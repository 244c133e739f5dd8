"""The command line: its verbs, each imported when it is called, and the exit status."""

import gc
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

from liquidlog.version import __version__


class Verb(NamedTuple):
    """The module of a verb, and its summary in the list of commands."""

    module: str
    summary: str


SECTIONS: Final[Mapping[str, Mapping[str, Verb]]] = {
    "Start here": {
        "fleet": Verb("upkeeping", "Say which tables are worth a rewrite, the best first."),
        "advise": Verb("rewriting", "Say which columns and layout suit the queries, if any."),
        "optimize": Verb("rewriting", "Rewrite and commit; asks first if that is not worth it."),
        "health": Verb("looking", "Say how well the table is clustered now."),
        "report": Verb("looking", "Say whether to rewrite, and why, on one HTML page."),
    },
    "Look": {
        "detail": Verb("looking", "Show the table as DESCRIBE DETAIL does."),
        "history": Verb("looking", "Show the commits, newest first."),
        "files": Verb("looking", "List the live files and their place in the clustering."),
        "scan": Verb("looking", "List the files that a query with a predicate must open."),
        "doctor": Verb("changing", "Find faults of the clustering, and repair them."),
    },
    "Change": {
        "create": Verb("changing", "Create an empty table."),
        "append": Verb("changing", "Append Parquet files as new files, in one commit."),
        "cluster-by": Verb("changing", "Set the clustering columns; rewrites no file."),
        "migrate": Verb("rewriting", "Make a partitioned table a clustered one, in one commit."),
        "drop-feature": Verb("changing", "Drop a table feature, so that other writers can write."),
        "sql": Verb("statements", "Run one statement of SQL about a table."),
    },
    "Operate": {
        "vacuum": Verb("changing", "Delete files that no version within the retention needs."),
        "orphans": Verb("changing", "List or delete files that dead or forgotten runs left."),
        "checkpoint": Verb("changing", "Write a checkpoint of the newest version."),
        "tick": Verb("upkeeping", "Do for each table what a policy says is due."),
    },
    "In parts": {
        "plan": Verb("rewriting", "Show what OPTIMIZE would rewrite; writes nothing."),
        "run": Verb("rewriting", "Execute a saved plan without committing it."),
        "commit": Verb("rewriting", "Commit the finished groups of an executed plan."),
        "workload": Verb("rewriting", "Import queries, from logs of engines and from SQL."),
    },
}
"""The verbs by the heading of their section."""

GONE: Final[Mapping[str, str]] = {
    "cubes": "liquidlog health TABLE --cubes",
    "explain": "liquidlog plan TABLE --why PATH",
    "rename-column": 'liquidlog sql "ALTER TABLE delta.`PATH` RENAME COLUMN a TO b"',
    "drop-column": 'liquidlog sql "ALTER TABLE delta.`PATH` DROP COLUMN a"',
    "set-properties": "liquidlog sql \"ALTER TABLE delta.`PATH` SET TBLPROPERTIES ('k' = 'v')\"",
    "simulate": "benchmarks/bench_rounds.py of the repository",
}
"""What to use instead of verbs of earlier releases."""

_VERBS: Final = {name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()}


class CommandLine(click.Group):
    """A group that lists its commands by section and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a verb and return its command, None for an unknown verb."""
        if cmd_name not in _VERBS:
            return None
        module = import_module(f"liquidlog.cli.{_VERBS[cmd_name].module}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb; errors name similar verbs, or the successor of a removed verb."""
        name = args[0]
        if name in GONE:
            raise click.UsageError(f"the verb {name} is gone: use {GONE[name]}")
        if name not in _VERBS:
            from liquidlog.spec.text import near_names

            near = near_names(name, _VERBS)
            hint = f" (did you mean {' or '.join(near)}?)" if near else ""
            raise click.UsageError(f"there is no verb {name}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Offer verbs and options; imports no verb."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=verb.summary)
            for name, verb in _VERBS.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, section by section."""
        del ctx
        width = max(map(len, _VERBS))
        for heading, verbs in SECTIONS.items():
            with formatter.section(heading):
                rows = [(name.ljust(width), verb.summary) for name, verb in verbs.items()]
                formatter.write_dl(rows)


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="liquidlog")
@click.pass_context
def cli(context: click.Context) -> None:
    """Liquid clustering for Delta tables: planned without a JVM, rewritten on Spark."""
    # The command's module has been imported by now, and pyarrow with it.
    from liquidlog.cli.output import warnings_said
    from liquidlog.startup import do_without_pandas

    context.with_resource(warnings_said())
    do_without_pandas()


def run(group: click.Group, arguments: Sequence[str]) -> int:
    """Run a command and return its exit status; every error is one sentence on stderr."""
    words = list(arguments)
    try:
        return int(group.main(args=words, prog_name="liquidlog", standalone_mode=False) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the boundary to the user
        from liquidlog.cli.failures import explain_failure

        return explain_failure(error, as_json="--json" in words)


def start() -> int:
    # Imports make no garbage; a collection per 700 objects takes a sixth of their time.
    gc.set_threshold(50_000)
    return run(cli, sys.argv[1:])
